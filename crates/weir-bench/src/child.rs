//! Programs that are started here. They end when this one does, however that ends, and none of them
//! gets the terminal's interrupt: this program does, and passes it on.

use std::io;
use std::mem;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output};
use std::sync::atomic::AtomicBool;

use rustix::process::{
    Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal, set_parent_process_death_signal,
};

use crate::stopping::ended_by;

/// Starts a program, which gets `signal` when the calling thread ends.
///
/// # Errors
/// When it can't be started.
pub fn start(command: &mut Command, signal: Signal) -> io::Result<Child> {
    let end_with_parent =
        move || set_parent_process_death_signal(Some(signal)).map_err(io::Error::from);
    command.process_group(0);
    // SAFETY: the closure makes one system call and touches no memory of the parent.
    unsafe { command.pre_exec(end_with_parent) };
    command.spawn()
}

/// Runs a program to its end, with what it wrote where that is piped. Once `stop` is set it is told
/// to end, and may take its time for that.
///
/// # Errors
/// When it can't be started or waited for.
pub fn run(command: &mut Command, stop: &AtomicBool) -> io::Result<Output> {
    let child = start(command, Signal::TERM)?;
    // Unlike its number, this means no other process once it has ended.
    let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
    let mut is_told = false;
    let tell = || {
        // It may just have ended by itself. Told twice it would not take its time.
        if !mem::replace(&mut is_told, true) {
            let _ = pidfd_send_signal(&process, Signal::TERM);
        }
    };
    ended_by(stop, tell, || child.wait_with_output())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Stdio;
    use std::thread;

    #[test]
    fn an_interrupt_is_passed_on() {
        let stop = AtomicBool::new(true);
        let output = run(Command::new("sleep").arg("1000"), &stop).unwrap();
        assert_eq!(output.status.signal(), Some(Signal::TERM.as_raw()));
    }

    #[test]
    fn a_child_that_does_not_listen_ends_with_the_thread_that_started_it() {
        let mut child = thread::spawn(|| {
            let mut command = Command::new("sh");
            command.args(["-c", "trap '' TERM; echo deaf; exec sleep 1000"]);
            let mut child = start(command.stdout(Stdio::piped()), Signal::KILL).unwrap();
            let mut told = [0; 5];
            child.stdout.take().unwrap().read_exact(&mut told).unwrap();
            child
        })
        .join()
        .unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(Signal::KILL.as_raw()));
    }

    #[test]
    fn what_ends_by_itself_is_waited_for() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo done; exit 3"]).stdout(Stdio::piped());
        let output = run(&mut command, &AtomicBool::new(false)).unwrap();
        assert_eq!((output.status.code(), &output.stdout[..]), (Some(3), &b"done\n"[..]));
        assert!(run(&mut Command::new("/nowhere"), &AtomicBool::new(false)).is_err());
    }
}
