//! What the engine's process has used so far: processor, memory, device.
//!
//! An embedded engine works in this process, a server in one of its own ([`Place`]). In both cases
//! processor time is that of clients and engine together, so that what clients took can be told
//! apart; all other figures are the engine's process's alone, but for what a host stole: that is
//! the machine's.
//!
//! Device figures are the kernel's block I/O accounting of that process (`/proc/PID/io`): bytes
//! read from the device, also through page faults, and bytes sent to it; for files written through
//! the page cache the kernel counts a page when it becomes dirty. The kernel does not count
//! operations per process. Where the engine does not count them itself, the operations shown are
//! read calls and major faults, and at most one for each 4 KiB really read, so that reads served by
//! the page cache do not count.
//!
//! Processor time covers all threads of the process, user and system, including io_uring's workers.
//! Work that the kernel does elsewhere (writing back the page cache) is nobody's.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::param::clock_ticks_per_second;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The process that does an engine's work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// This process. Its files are all in one directory.
    Here {
        /// The directory.
        dir: PathBuf,
    },
    /// Another process of this machine.
    Process {
        /// Its number.
        pid: u32,
        /// Where its files are.
        dir: PathBuf,
        /// Files in there that aren't the engine's begin with this: a binary log.
        except: Option<PathBuf>,
    },
    /// A process that can't be looked at from here.
    Elsewhere,
}

impl Place {
    /// Whether the engine works in this process.
    pub fn is_here(&self) -> bool {
        matches!(self, Place::Here { .. })
    }

    /// Whether its figures are known.
    pub fn is_seen(&self) -> bool {
        *self != Place::Elsewhere
    }

    /// Where the engine's files are; nowhere when that isn't known.
    pub fn dir(&self) -> Option<&Path> {
        match self {
            Place::Here { dir } | Place::Process { dir, .. } => Some(dir),
            Place::Elsewhere => None,
        }
    }

    /// What engine and clients have used so far.
    ///
    /// # Errors
    /// When `/proc` is not there, or the process.
    pub fn usage(&self) -> Result<Usage> {
        match self {
            Place::Here { .. } => Usage::now(),
            Place::Process { pid, .. } => Usage::of(*pid),
            Place::Elsewhere => {
                Ok(Usage { cpu_us: process_cpu().as_micros() as u64, ..Usage::default() })
            }
        }
    }

    /// Resident memory of the process, bytes.
    ///
    /// # Errors
    /// When `/proc` is not there, or the process.
    pub fn resident_bytes(&self) -> Result<u64> {
        match self {
            Place::Here { .. } => resident_bytes("self"),
            Place::Process { pid, .. } => resident_bytes(&pid.to_string()),
            Place::Elsewhere => Ok(0),
        }
    }

    /// Space that the engine's files take on the device.
    pub fn size_bytes(&self) -> u64 {
        match self {
            Place::Here { dir } => size_bytes(dir, None),
            Place::Process { dir, except, .. } => size_bytes(dir, except.as_deref()),
            Place::Elsewhere => 0,
        }
    }

    /// Processor time of clients so far, as the calling thread can tell: its own where clients and
    /// engine share a process, the whole process's where they don't.
    pub fn clients_cpu(&self) -> Duration {
        if self.is_here() { thread_cpu() } else { process_cpu() }
    }
}

/// Totals of the process since it started, or their growth over some time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Processor time of all threads, microseconds.
    pub cpu_us: u64,
    /// Bytes read from the device.
    pub read_bytes: u64,
    /// Bytes sent, or to be sent, to the device.
    pub write_bytes: u64,
    /// Read calls.
    pub read_calls: u64,
    /// Write calls.
    pub write_calls: u64,
    /// Page faults that had to read.
    pub major_faults: u64,
    /// Processor time that a host gave to other machines while something here was to run, of all
    /// processors, microseconds: the machine's, not the process's.
    #[serde(default)]
    pub stolen_us: u64,
}

impl Usage {
    /// Reads the totals of this process.
    ///
    /// # Errors
    /// When `/proc` is not there.
    pub fn now() -> Result<Self> {
        Self::read("self", |_| process_cpu())
    }

    /// Reads the totals of process `pid`; with processor time of this process added.
    ///
    /// # Errors
    /// When the process is gone or may not be looked at.
    pub fn of(pid: u32) -> Result<Self> {
        Self::read(&pid.to_string(), |stat| cpu_in(stat) + process_cpu())
    }

    fn read(process: &str, cpu: impl FnOnce(&str) -> Duration) -> Result<Self> {
        let io = read(&format!("/proc/{process}/io"))?;
        let stat = read(&format!("/proc/{process}/stat"))?;
        let field = |name: &str| field(&io, name).unwrap_or(0);
        Ok(Usage {
            cpu_us: cpu(&stat).as_micros() as u64,
            read_bytes: field("read_bytes"),
            write_bytes: field("write_bytes"),
            read_calls: field("syscr"),
            write_calls: field("syscw"),
            major_faults: stat_field(&stat, 12),
            stolen_us: ticks(stolen_ticks(&read("/proc/stat")?)).as_micros() as u64,
        })
    }

    /// The growth since `earlier`.
    pub fn since(&self, earlier: &Usage) -> Usage {
        Usage {
            cpu_us: self.cpu_us.saturating_sub(earlier.cpu_us),
            read_bytes: self.read_bytes.saturating_sub(earlier.read_bytes),
            write_bytes: self.write_bytes.saturating_sub(earlier.write_bytes),
            read_calls: self.read_calls.saturating_sub(earlier.read_calls),
            write_calls: self.write_calls.saturating_sub(earlier.write_calls),
            major_faults: self.major_faults.saturating_sub(earlier.major_faults),
            stolen_us: self.stolen_us.saturating_sub(earlier.stolen_us),
        }
    }

    /// The sum of both.
    pub fn plus(&self, other: &Usage) -> Usage {
        Usage {
            cpu_us: self.cpu_us + other.cpu_us,
            read_bytes: self.read_bytes + other.read_bytes,
            write_bytes: self.write_bytes + other.write_bytes,
            read_calls: self.read_calls + other.read_calls,
            write_calls: self.write_calls + other.write_calls,
            major_faults: self.major_faults + other.major_faults,
            stolen_us: self.stolen_us + other.stolen_us,
        }
    }

    /// Device reads, as well as one process can tell: see the module's head.
    pub fn reads(&self) -> u64 {
        (self.read_calls + self.major_faults).min(self.read_bytes.div_ceil(4096))
    }
}

/// Processor time of the calling thread.
pub fn thread_cpu() -> Duration {
    cpu_of(ClockId::ThreadCPUTime)
}

/// Processor time of all threads of this process.
pub fn process_cpu() -> Duration {
    cpu_of(ClockId::ProcessCPUTime)
}

fn resident_bytes(process: &str) -> Result<u64> {
    Ok(field(&read(&format!("/proc/{process}/status"))?, "VmRSS").unwrap_or(0) * 1024)
}

/// Space that the files below `dir` take on the device, but for those whose path begins as
/// `except`: allocated blocks, not lengths.
fn size_bytes(dir: &Path, except: Option<&Path>) -> u64 {
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    let is_counted = |entry: &fs::DirEntry| {
        let (path, except) = (entry.path(), except.map(Path::as_os_str));
        except.is_none_or(|except| {
            !path.as_os_str().as_encoded_bytes().starts_with(except.as_encoded_bytes())
        })
    };
    // Engines remove files meanwhile: what can't be looked at any more takes no space.
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(data) if data.is_dir() => size_bytes(&entry.path(), except),
        Ok(data) => data.blocks() * 512,
        Err(_) => 0,
    };
    entries.flatten().filter(is_counted).map(size).sum()
}

fn cpu_of(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(path).map_err(|error| Error::io(format!("reading {path}"), error))
}

fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Field `number` of `/proc/PID/stat`, from 1; the second may hold spaces and ends with the last
/// parenthesis.
fn stat_field(stat: &str, number: usize) -> u64 {
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    rest.split_whitespace().nth(number - 3).and_then(|field| field.parse().ok()).unwrap_or(0)
}

/// User and system time of all threads, also of those that have ended.
fn cpu_in(stat: &str) -> Duration {
    ticks(stat_field(stat, 14) + stat_field(stat, 15))
}

/// Ticks of all processors that were stolen, from `/proc/stat`.
fn stolen_ticks(stat: &str) -> u64 {
    let all = stat.lines().find_map(|line| line.strip_prefix("cpu "));
    all.and_then(|all| all.split_whitespace().nth(7)?.parse().ok()).unwrap_or(0)
}

fn ticks(ticks: u64) -> Duration {
    Duration::from_secs_f64(ticks as f64 / clock_ticks_per_second() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields() {
        let io = "rchar: 7\nsyscr: 12\nread_bytes: 4096\n";
        assert_eq!(field(io, "syscr"), Some(12));
        assert_eq!(field(io, "read_bytes"), Some(4096));
        assert_eq!(field(io, "bytes"), None);
        assert_eq!(field("VmRSS:\t  120 kB\n", "VmRSS"), Some(120));
        let stat = "17 (a (b) c) S 1 17 17 0 -1 4194304 80 0 33 0 150 250";
        assert_eq!(stat_field(stat, 12), 33);
        let seconds = 400.0 / clock_ticks_per_second() as f64;
        assert_eq!(cpu_in(stat), Duration::from_secs_f64(seconds));
        let machine = "cpu  1 2 3 4 5 6 7 80 9 10\ncpu0 1 2 3 4 5 6 7 40 9 10\nintr 5\n";
        assert_eq!(stolen_ticks(machine), 80);
        assert_eq!(stolen_ticks("cpu  1 2 3 4\n"), 0, "kernels that don't know of it");
    }

    #[test]
    fn cached_reads_are_no_device_reads() {
        let cached = Usage { read_calls: 1000, ..Usage::default() };
        assert_eq!(cached.reads(), 0);
        let large = Usage { read_calls: 2, read_bytes: 1 << 20, ..Usage::default() };
        assert_eq!(large.reads(), 2);
    }

    #[test]
    fn this_process() {
        let before = Usage::now().unwrap();
        let spin = std::hint::black_box((0..5_000_000u64).fold(0, |sum, i| sum ^ (i * i)));
        assert!(spin != 1);
        assert!(Usage::now().unwrap().since(&before).cpu_us > 0);
        assert!(resident_bytes("self").unwrap() > 0);
    }

    #[test]
    fn another_process_is_seen_by_its_number() {
        let dir = std::env::temp_dir();
        let pid = std::process::id();
        let place = Place::Process { pid, dir, except: None };
        assert!(place.is_seen() && !place.is_here());
        assert!(place.resident_bytes().unwrap() > 0);
        // This process is counted as the engine's and as the clients' here.
        let (clients, both) = (place.clients_cpu(), place.usage().unwrap());
        assert!(both.cpu_us >= clients.as_micros() as u64);
    }

    #[test]
    fn a_process_that_is_gone_is_an_error_and_one_elsewhere_is_not() {
        let gone = Place::Process { pid: u32::MAX, dir: "/".into(), except: None };
        assert!(gone.usage().unwrap_err().to_string().contains("/proc/4294967295/io"));
        assert_eq!(Place::Elsewhere.usage().unwrap().write_bytes, 0);
    }

    #[test]
    fn a_binary_log_is_no_data() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("table"), [1; 4096]).unwrap();
        let table = size_bytes(dir.path(), None);
        std::fs::write(dir.path().join("log.000001"), [1; 65536]).unwrap();
        assert!(table > 0 && size_bytes(dir.path(), None) > table);
        assert_eq!(size_bytes(dir.path(), Some(&dir.path().join("log"))), table);
    }
}
