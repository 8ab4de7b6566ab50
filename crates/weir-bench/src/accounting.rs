//! What the process has used so far: processor, memory, device.
//!
//! Device figures are the kernel's block I/O accounting of this process (`/proc/self/io`): bytes read
//! from the device, also through page faults, and bytes sent to it; for files written through the page
//! cache the kernel counts a page when it becomes dirty. The kernel does not count operations per
//! process. Where the engine does not count them itself, the operations shown are read calls and major faults, and at most one for each 4 KiB
//! really read, so that reads served by the page cache do not count.
//!
//! Processor time covers all threads of the process, user and system, including io_uring's workers.
//! Work that the kernel does elsewhere (writing back the page cache) is nobody's.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

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
}

impl Usage {
    /// Reads the totals of this process.
    ///
    /// # Errors
    /// When `/proc` is not there.
    pub fn now() -> Result<Self> {
        let io = read("/proc/self/io")?;
        let field = |name: &str| field(&io, name).unwrap_or(0);
        Ok(Usage {
            cpu_us: cpu_of(ClockId::ProcessCPUTime).as_micros() as u64,
            read_bytes: field("read_bytes"),
            write_bytes: field("write_bytes"),
            read_calls: field("syscr"),
            write_calls: field("syscw"),
            major_faults: major_faults(&read("/proc/self/stat")?),
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

/// Resident memory of this process, bytes.
///
/// # Errors
/// When `/proc` is not there.
pub fn resident_bytes() -> Result<u64> {
    Ok(field(&read("/proc/self/status")?, "VmRSS").unwrap_or(0) * 1024)
}

/// Space that the files below `dir` take on the device: allocated blocks, not lengths.
pub fn size_bytes(dir: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    // Engines remove files meanwhile: what can't be looked at any more takes no space.
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(data) if data.is_dir() => size_bytes(&entry.path()),
        Ok(data) => data.blocks() * 512,
        Err(_) => 0,
    };
    entries.flatten().map(size).sum()
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

/// Field 12 of `/proc/self/stat`; the second may hold spaces and ends with the last parenthesis.
fn major_faults(stat: &str) -> u64 {
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    rest.split_whitespace().nth(9).and_then(|field| field.parse().ok()).unwrap_or(0)
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
        assert_eq!(major_faults("17 (a (b) c) S 1 17 17 0 -1 4194304 80 0 33 0 1 2"), 33);
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
        assert!(resident_bytes().unwrap() > 0);
    }
}
