//! Private servers for comparisons, one at work at a time.
//!
//! A server is started by the script `mariadb/run`, which knows how each storage engine is set so
//! that all have the same memory, redo log and promise of a commit. It has a directory of its own
//! and is reached by a socket there. It ends with this program, however that ends.

use std::fmt::Display;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tempfile::TempDir;

use crate::child;
use crate::engine::{Limits, ServerChoice, Statements};
use crate::engines::sql::target::Target;
use crate::error::{Error, Result};
use crate::files::MadeDir;
use crate::pinning::Pinning;

/// How long a server may take until it answers, its data directory being made.
const START_LIMIT: Duration = Duration::from_secs(300);
/// How long it may take to end.
const STOP_LIMIT: Duration = Duration::from_secs(120);
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// Lines of its log that an error shows.
const LOG_LINES: usize = 40;

/// A server to start: its storage engine, and settings beyond those that all have.
///
/// Written as `innodb` or `innodb:innodb-io-capacity=3000:innodb-doublewrite=0`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerSpec {
    /// As it was written: its name in tables.
    pub label: String,
    /// The storage engine.
    pub engine: String,
    /// Settings, without dashes in front.
    pub settings: Vec<String>,
}

/// Engines that `mariadb/run` knows.
const ENGINES: [&str; 3] = ["weir", "innodb", "rocksdb"];

impl FromStr for ServerSpec {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let mut parts = text.split(':').map(str::to_string);
        let engine = parts.next().unwrap_or_default();
        if !ENGINES.contains(&engine.as_str()) {
            return Err(format!("`{engine}` is no server; use {}", ENGINES.join(", ")));
        }
        let settings: Vec<_> = parts.collect();
        if let Some(bad) = settings.iter().find(|s| s.is_empty() || s.starts_with('-')) {
            return Err(format!("`{bad}` is no setting such as innodb-io-capacity=3000"));
        }
        Ok(ServerSpec { label: text.into(), engine, settings })
    }
}

impl ServerSpec {
    /// Its name as part of a file's.
    pub fn file_name(&self) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        self.label.chars().map(plain).collect()
    }
}

/// What all servers of a comparison have in common.
#[derive(Debug, Clone)]
pub struct ServerSetup {
    /// The script that starts one: `mariadb/run`.
    pub command: PathBuf,
    /// What each storage engine gets.
    pub limits: Limits,
    /// Whether there is a binary log.
    pub binlog: bool,
    /// Which processors they get, and which their clients; all of them when `None`.
    pub pinning: Option<Pinning>,
    /// Where the data directories go; with the system's temporary files when `None`.
    pub dir: Option<PathBuf>,
}

impl ServerSetup {
    /// The script of the repository that this program was built from.
    pub fn default_command() -> PathBuf {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../mariadb/run");
        fs::canonicalize(&path).unwrap_or(path)
    }

    /// Checks that servers can be started at all.
    ///
    /// # Errors
    /// When the script is not there.
    pub fn check(&self) -> Result<()> {
        if self.command.is_file() {
            return Ok(());
        }
        let command = self.command.display();
        Err(Error::Usage(format!(
            "{command} is not there: servers are started by mariadb/run of Weir's repository; \
             name it with --server-command"
        )))
    }

    /// Where the directories go: made if it isn't there, for as long as it is needed.
    ///
    /// # Errors
    /// When it can't be made.
    pub fn parent_dir(&self) -> Result<MadeDir> {
        let dir = self.dir.clone().unwrap_or_else(std::env::temp_dir);
        MadeDir::new(&dir).map_err(|error| Error::io(format!("creating {}", dir.display()), error))
    }

    /// Starts a server and waits until it answers, or `stop` is set.
    ///
    /// # Errors
    /// When it doesn't come up, with what it said.
    pub fn start(&self, spec: &ServerSpec, stop: &AtomicBool) -> Result<PrivateServer> {
        self.make_ready(spec, stop)?;
        let parent = self.parent_dir()?;
        let dir = tempfile::Builder::new().prefix("weir-server-").tempdir_in(&parent);
        let dir = dir.map_err(|error| Error::io("creating a server's directory", error))?;
        let start = || {
            let child = self.spawn(spec, dir.path())?;
            Ok(PrivateServer { child, dir, _parent: parent, label: spec.label.clone() })
        };
        let mut server = match &self.pinning {
            Some(pinning) => pinning.start_server(start)?,
            None => start(),
        }?;
        server.wait_until_ready(stop)?;
        Ok(server)
    }

    /// Installs and builds what the server needs, as far as that is still to be done. The script
    /// tells of it on standard error: it may take minutes.
    fn make_ready(&self, spec: &ServerSpec, stop: &AtomicBool) -> Result<()> {
        let failed =
            |why: &dyn Display| Error::engine("server", format!("start {}", spec.label), why);
        let mut command = Command::new(&self.command);
        command.args(["--ready", "--engine", &spec.engine]);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = child::start(&mut command, Signal::TERM);
        let done = child.and_then(|mut child| wait_for(&mut child, stop));
        let what = || format!("running {} --ready", self.command.display());
        match done.map_err(|error| Error::io(what(), error))? {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(failed(&format!("{} ended with {status}", what()))),
            None => Err(failed(&"interrupted")),
        }
    }

    fn spawn(&self, spec: &ServerSpec, dir: &Path) -> Result<Child> {
        let log = dir.join("log");
        let opened = File::create(&log).and_then(|file| Ok((file.try_clone()?, file)));
        let (out, err) = opened.map_err(|e| Error::io(format!("creating {}", log.display()), e))?;
        let mut command = Command::new(&self.command);
        command.arg("--dir").arg(dir).args(["--engine", &spec.engine]);
        command.args(["--memory", &self.limits.memory_bytes.to_string()]);
        command.args(["--redo", &self.limits.redo_bytes.to_string()]);
        command.args(["--durability", &self.limits.durability.to_string()]);
        if self.binlog {
            command.arg("--binlog");
        }
        command.arg("--").args(spec.settings.iter().map(|setting| format!("--{setting}")));
        command.stdin(Stdio::null()).stdout(out).stderr(err);
        // A server that is starting forgets that it was told to end.
        child::start(&mut command, Signal::KILL)
            .map_err(|e| Error::io(format!("starting {}", self.command.display()), e))
    }
}

/// Waits for a script; `None` if `stop` was set first: then the script ends, and what it is at.
fn wait_for(child: &mut Child, stop: &AtomicBool) -> io::Result<Option<ExitStatus>> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if stop.load(Ordering::Relaxed) {
            kill_process_group(Pid::from_child(child), Signal::TERM)?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(LOOK_AGAIN);
    }
}

/// A server that was started here. Dropped, it is killed; its files go in any case.
pub struct PrivateServer {
    child: Child,
    dir: TempDir,
    /// What `dir` is in. After it: dropped first, it would not be empty.
    _parent: MadeDir,
    label: String,
}

impl PrivateServer {
    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its socket.
    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("socket")
    }

    /// Its data directory.
    pub fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// How the benchmark gets there.
    pub fn choice(&self, table_engine: &str, statements: Statements) -> ServerChoice {
        ServerChoice {
            url: "mysql://root@localhost/".into(),
            password: None,
            socket: Some(self.socket()),
            table_engine: table_engine.into(),
            existing: false,
            statements,
            // Its whole directory goes.
            keep: true,
        }
    }

    fn wait_until_ready(&mut self, stop: &AtomicBool) -> Result<()> {
        let target = Target::new(&self.choice("any", Statements::Text))?;
        let began = Instant::now();
        loop {
            let error = match target.connect(None) {
                Ok(_) => return Ok(()),
                Err(error) => error,
            };
            let ended = self.child.try_wait();
            let ended = ended.map_err(|error| Error::io("waiting for a server", error))?;
            if let Some(status) = ended {
                return Err(self.failed("start", &format!("it ended with {status}")));
            }
            if stop.load(Ordering::Relaxed) {
                let what = format!("start {}", self.label);
                return Err(Error::engine("server", what, "interrupted"));
            }
            if began.elapsed() > START_LIMIT {
                return Err(self.failed("start", &format!("it doesn't answer: {error}")));
            }
            thread::sleep(LOOK_AGAIN);
        }
    }

    /// Stops all of its threads where they are, until [`PrivateServer::resume`].
    ///
    /// # Errors
    /// When it is gone.
    pub fn pause(&self) -> Result<()> {
        self.send(Signal::STOP, "pausing a server")
    }

    /// Has it go on.
    ///
    /// # Errors
    /// When it is gone.
    pub fn resume(&self) -> Result<()> {
        self.send(Signal::CONT, "resuming a server")
    }

    fn send(&self, signal: Signal, what: &str) -> Result<()> {
        kill_process(Pid::from_child(&self.child), signal)
            .map_err(|error| Error::io(what, error.into()))
    }

    /// Ends it as an administrator would, and removes its files.
    ///
    /// # Errors
    /// When it doesn't end in time, or not in order; it is gone all the same.
    pub fn stop(mut self) -> Result<()> {
        let began = Instant::now();
        self.send(Signal::TERM, "stopping a server")?;
        while began.elapsed() < STOP_LIMIT {
            let ended = self.child.try_wait();
            match ended.map_err(|error| Error::io("waiting for a server", error))? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => {
                    return Err(self.failed("stop", &format!("it ended with {status}")));
                }
                None => thread::sleep(LOOK_AGAIN),
            }
        }
        let what = format!("it was still there after {} s", STOP_LIMIT.as_secs());
        Err(self.failed("stop", &what))
    }

    fn failed(&self, what: &str, why: &str) -> Error {
        let log = fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        let last = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n  ");
        let message = format!("{why}; the end of its log:\n  {last}");
        Error::engine("server", format!("{what} {}", self.label), message)
    }
}

impl Drop for PrivateServer {
    fn drop(&mut self) {
        // The script may still be at making the data directory: that ends in order.
        if let Ok(None) = self.child.try_wait() {
            let _ = kill_process_group(Pid::from_child(&self.child), Signal::TERM);
        }
        // It may have ended already, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Durability;
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use std::io::{BufRead, BufReader, Read};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn servers_are_written_with_their_settings() {
        let spec: ServerSpec =
            "innodb:innodb-io-capacity=3000:innodb-doublewrite=0".parse().unwrap();
        assert_eq!(spec.engine, "innodb");
        assert_eq!(spec.settings, ["innodb-io-capacity=3000", "innodb-doublewrite=0"]);
        assert_eq!(spec.file_name(), "innodb-innodb-io-capacity-3000-innodb-doublewrite-0");
        for bad in ["", "oracle", "innodb:", "innodb:--skip-grant-tables", ":weir"] {
            assert!(bad.parse::<ServerSpec>().is_err(), "{bad}");
        }
    }

    fn setup(dir: &Path, script: &str) -> ServerSetup {
        let command = dir.join("run");
        fs::write(&command, script).unwrap();
        fs::set_permissions(&command, fs::Permissions::from_mode(0o755)).unwrap();
        ServerSetup {
            command,
            limits: Limits {
                memory_bytes: 64 << 20,
                redo_bytes: 32 << 20,
                durability: Durability::Write,
            },
            binlog: true,
            pinning: None,
            dir: Some(dir.join("servers")),
        }
    }

    #[test]
    fn a_server_that_does_not_come_up_tells_why_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let setup = setup(
            dir.path(),
            "#!/bin/sh\n[ $1 = --ready ] && exit\necho \"no room for $*\" >&2\nexit 3\n",
        );
        let spec = "innodb:innodb-doublewrite=0".parse().unwrap();
        let Err(error) = setup.start(&spec, &AtomicBool::new(false)) else {
            panic!("there is no server");
        };
        let text = error.to_string();
        let arguments = "--engine innodb --memory 67108864 --redo 33554432 --durability write \
                         --binlog -- --innodb-doublewrite=0";
        assert!(text.contains("exit status: 3"), "{text}");
        assert!(text.contains("no room for --dir") && text.contains(arguments), "{text}");
        assert!(!dir.path().join("servers").exists());
    }

    #[test]
    fn an_interrupt_ends_a_start_and_what_the_script_is_at() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RWXU, 0).unwrap();
        let build = "sh -c 'echo begun; sleep 60; echo done' >FIFO\n";
        let script = format!("#!/bin/sh\n{build}").replace("FIFO", &fifo.display().to_string());
        let setup = setup(dir.path(), &script);
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let started = scope.spawn(|| setup.start(&"weir".parse().unwrap(), &stop));
            let mut told = BufReader::new(File::open(&fifo).unwrap());
            let mut text = String::new();
            told.read_line(&mut text).unwrap();
            stop.store(true, Ordering::Relaxed);
            // Up to here there is a writer.
            told.read_to_string(&mut text).unwrap();
            assert_eq!(text, "begun\n");
            let Err(error) = started.join().unwrap() else { panic!("there is no server") };
            assert_eq!(error.to_string(), "server: start weir: interrupted");
        });
        assert!(!dir.path().join("servers").exists());
    }

    #[test]
    fn what_can_not_be_made_ready_is_not_started() {
        let dir = tempfile::tempdir().unwrap();
        let setup =
            setup(dir.path(), "#!/bin/sh\n[ \"$*\" = '--ready --engine innodb' ] && exit 3\n");
        let started = setup.start(&"innodb:a=1".parse().unwrap(), &AtomicBool::new(false));
        let Err(error) = started else { panic!("there is no server") };
        let text = error.to_string();
        assert!(
            text.starts_with("server: start innodb:a=1: running ")
                && text.contains("--ready ended with exit status: 3"),
            "{text}"
        );
        assert!(!dir.path().join("servers").exists());
    }

    #[test]
    fn a_script_that_is_not_there_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let mut setup = setup(dir.path(), "");
        setup.command = dir.path().join("elsewhere");
        let error = setup.check().unwrap_err();
        assert!(matches!(error, Error::Usage(_)));
        assert!(error.to_string().contains("elsewhere is not there"), "{error}");
        assert!(ServerSetup::default_command().ends_with("mariadb/run"));
    }
}
