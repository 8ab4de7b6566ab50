//! What the process uses: block I/O, processor time, memory.
//!
//! Readers of `/proc` and of the kernel's clocks, for status and reports. Each call reads anew;
//! none is meant for a hot path except [`thread_cpu_time`], which is one call to the kernel, and
//! [`processor`] and [`coarse_time`], which are none.

use crate::{DiskError, Result};
use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::io;
use std::time::Duration;

/// Block I/O of the process as the kernel accounts it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BlockIo {
    /// Bytes fetched from devices; reads that the page cache served don't count.
    pub read_bytes: u64,
    /// Bytes sent, or left in the page cache to be sent, to devices.
    pub write_bytes: u64,
    /// Bytes of `write_bytes` that never reached a device, as their file was cut or removed before.
    pub cancelled_write_bytes: u64,
}

/// Processor time of the process, all threads together, in clock ticks of usually 10 ms.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// Time in the program.
    pub user: Duration,
    /// Time in the kernel on its behalf.
    pub system: Duration,
}

/// Memory of the process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// Bytes resident now.
    pub rss_bytes: u64,
    /// Most bytes that were ever resident.
    pub peak_rss_bytes: u64,
}

/// Number of the processor that this thread is on; it may be on another one already.
#[inline]
pub fn processor() -> usize {
    rustix::thread::sched_getcpu()
}

/// Block I/O of this process, from `/proc/self/io`.
///
/// # Errors
/// Where the kernel doesn't account it or the container hides it.
pub fn block_io() -> Result<BlockIo> {
    let file = "/proc/self/io";
    let text = read(file)?;
    let figure = |key| field(&text, key).ok_or_else(|| malformed(file, key));
    Ok(BlockIo {
        read_bytes: figure("read_bytes")?,
        write_bytes: figure("write_bytes")?,
        cancelled_write_bytes: figure("cancelled_write_bytes")?,
    })
}

/// Processor time of this process, from `/proc/self/stat`.
///
/// # Errors
/// When `/proc` is missing.
pub fn cpu_time() -> Result<CpuTime> {
    let file = "/proc/self/stat";
    let text = read(file)?;
    let per_second = rustix::param::clock_ticks_per_second();
    let (user, system) = cpu_ticks(&text).ok_or_else(|| malformed(file, "utime and stime"))?;
    let time = |ticks: u64| Duration::from_secs_f64(ticks as f64 / per_second as f64);
    Ok(CpuTime { user: time(user), system: time(system) })
}

/// Resident memory of this process, now and at its peak, from `/proc/self/status`.
///
/// # Errors
/// When `/proc` is missing.
pub fn memory_use() -> Result<MemoryUse> {
    let file = "/proc/self/status";
    let text = read(file)?;
    let figure = |key| field(&text, key).ok_or_else(|| malformed(file, key));
    Ok(MemoryUse { rss_bytes: figure("VmRSS")? * 1024, peak_rss_bytes: figure("VmHWM")? * 1024 })
}

/// Memory that this process may still take without pushing others out: what the machine has
/// available, or less where a control group limits it.
///
/// # Errors
/// When `/proc` is missing.
pub fn available_memory() -> Result<u64> {
    let file = "/proc/meminfo";
    let machine =
        field(&read(file)?, "MemAvailable").ok_or_else(|| malformed(file, "available"))?;
    let group = fs::read_to_string("/proc/self/cgroup").ok().and_then(|text| group_room(&text));
    Ok((machine * 1024).min(group.unwrap_or(u64::MAX)))
}

/// Processor time of the calling thread (CLOCK_THREAD_CPUTIME_ID).
pub fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let (secs, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Duration::new(secs.unwrap_or(0), nanos.unwrap_or(0))
}

/// Time since some moment in the past, as it was at the kernel's last tick, up to 10 ms ago
/// (CLOCK_MONOTONIC_COARSE): a fifth of what the exact time costs.
#[inline]
pub fn coarse_time() -> Duration {
    let time = clock_gettime(ClockId::MonotonicCoarse);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The tightest room left under this group's and its parents' limits (control groups version 2).
fn group_room(own: &str) -> Option<u64> {
    let path = own.lines().find_map(|line| line.strip_prefix("0::"))?.trim_matches('/');
    let mut levels = vec![String::new()];
    for name in path.split('/').filter(|name| !name.is_empty()) {
        let parent = levels.last().expect("the root is there");
        levels.push(format!("{parent}/{name}"));
    }
    levels.iter().filter_map(|level| room_below(&format!("/sys/fs/cgroup{level}"))).min()
}

fn room_below(group: &str) -> Option<u64> {
    let figure = |name| fs::read_to_string(format!("{group}/{name}")).ok()?.trim().parse().ok();
    let (limit, current): (u64, u64) = (figure("memory.max")?, figure("memory.current")?);
    Some(limit.saturating_sub(current))
}

fn read(file: &'static str) -> Result<String> {
    fs::read_to_string(file).map_err(|error| DiskError::new("read", file, error))
}

fn malformed(file: &str, what: &str) -> DiskError {
    let reason = io::Error::new(io::ErrorKind::InvalidData, format!("no figure for {what}"));
    DiskError::new("read", file, reason)
}

/// The number after `key:`.
fn field(text: &str, key: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    value.split_whitespace().next()?.parse().ok()
}

/// utime and stime. The name of the program comes before them, in brackets, and may hold anything.
fn cpu_ticks(stat: &str) -> Option<(u64, u64)> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace().skip(11);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_by_their_whole_key() {
        let text = "xread_bytes: 1\nread_bytes: 23\nVmHWM:\t  456 kB\nbroken: x\n";
        assert_eq!(field(text, "read_bytes"), Some(23));
        assert_eq!(field(text, "VmHWM"), Some(456));
        assert_eq!(field(text, "read"), None);
        assert_eq!(field(text, "broken"), None);
    }

    #[test]
    fn a_program_may_have_brackets_in_its_name() {
        let stat = "12 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 111 222 13";
        assert_eq!(cpu_ticks(stat), Some((111, 222)));
        assert_eq!(cpu_ticks("nothing"), None);
    }

    #[test]
    fn this_process_has_figures() {
        let memory = memory_use().unwrap();
        assert!(memory.rss_bytes > 0 && memory.peak_rss_bytes >= memory.rss_bytes / 2);
        assert!(available_memory().unwrap() > 0);
        cpu_time().unwrap();
        let before = thread_cpu_time();
        assert!(thread_cpu_time() >= before);
        if std::path::Path::new("/proc/self/io").exists() {
            block_io().unwrap();
        }
    }

    #[test]
    fn coarse_time_goes_on() {
        let (before, began) = (coarse_time(), std::time::Instant::now());
        while coarse_time() == before {
            assert!(began.elapsed() < Duration::from_secs(60), "the kernel ticks");
        }
        assert!(coarse_time() > before);
    }

    #[test]
    fn groups_without_limits_leave_all() {
        assert_eq!(group_room("1:cpu:/a\n"), None);
        assert_eq!(group_room("0::/no/such/group\n").filter(|room| *room == 0), None);
    }
}
