//! Which processors servers may use, and which their clients.
//!
//! Where a server shares its processors with its clients, short statements go at one of two speeds
//! for many seconds at a time, the one twice the other, whichever the engine, and chance says which
//! one a run gets (`docs/results/sql.md`, "Two arrangements"). Pinned, the kernel has no choice.

use std::fs;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::error::{Error, Result};

/// The processors that this program may use, divided.
#[derive(Debug, Clone, Copy)]
pub struct Pinning {
    clients: CpuSet,
    servers: CpuSet,
}

impl Pinning {
    /// Half of them, and one of an odd number, is for servers. Those of one core are on one side,
    /// as far as that goes.
    ///
    /// # Errors
    /// When there is only one.
    pub fn new() -> Result<Self> {
        let failed = |error| Error::io("asking for this program's processors", error);
        let all = sched_getaffinity(None).map_err(|error| failed(error.into()))?;
        let mut numbers: Vec<_> = (0..CpuSet::MAX_CPU).filter(|&cpu| all.is_set(cpu)).collect();
        numbers.sort_by_key(|&cpu| (first_of_core(cpu), cpu));
        if numbers.len() < 2 {
            let what = "--pin needs two processors: one for the clients, one for the server";
            return Err(Error::Usage(what.into()));
        }
        let (clients, servers) = numbers.split_at(numbers.len() / 2);
        Ok(Pinning { clients: set_of(clients), servers: set_of(servers) })
    }

    /// How many both sides have together.
    pub fn cores(&self) -> usize {
        (self.clients.count() + self.servers.count()) as usize
    }

    /// Calls `start`, what it starts being a server. From then on the calling thread, and what it
    /// starts, are clients.
    ///
    /// # Errors
    /// The system's.
    pub fn start_server<T>(&self, start: impl FnOnce() -> T) -> Result<T> {
        pin(&self.servers)?;
        let started = start();
        pin(&self.clients)?;
        Ok(started)
    }
}

/// The lowest number of a processor of the same core.
fn first_of_core(cpu: usize) -> usize {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
    let list = fs::read_to_string(path).unwrap_or_default();
    let first = list.split([',', '-']).next();
    first.and_then(|number| number.trim().parse().ok()).unwrap_or(cpu)
}

fn set_of(processors: &[usize]) -> CpuSet {
    let mut set = CpuSet::new();
    processors.iter().for_each(|&cpu| set.set(cpu));
    set
}

/// Pins the calling thread.
fn pin(to: &CpuSet) -> Result<()> {
    sched_setaffinity(None, to).map_err(|error| Error::io("pinning to processors", error.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_and_clients_share_no_processor() {
        // Threads of their own, since what is pinned stays so.
        let pinned = || {
            let own = || sched_getaffinity(None).unwrap();
            let all = own();
            let Ok(pinning) = Pinning::new() else {
                assert_eq!(all.count(), 1, "two processors can be divided");
                return;
            };
            let servers = pinning.start_server(|| std::thread::spawn(own).join().unwrap()).unwrap();
            let clients = std::thread::spawn(own).join().unwrap();
            assert!(servers.count() >= 1 && clients.count() >= 1);
            assert_eq!(servers.count() + clients.count(), all.count());
            assert_eq!(pinning.cores(), all.count() as usize);
            assert!((0..CpuSet::MAX_CPU).all(|cpu| !(servers.is_set(cpu) && clients.is_set(cpu))));
        };
        std::thread::spawn(pinned).join().unwrap();
    }
}
