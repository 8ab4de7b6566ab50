//! A disk made slow on purpose.
//!
//! The model is one device that serves one operation at a time, in order of arrival: each takes
//! `max(ceil(bytes / 16 KiB) / iops, bytes / bandwidth)`, and the device is free again after it. A
//! batch reserves its time on arrival, runs on the disk beneath at once, and returns when both are
//! done. So threads share the device fairly, and the disk's own latency comes off the wait.
//!
//! Writes of files that go through the page cache ([`Mode::Cached`]) cost device time when they are
//! synced, as the stretch of the file that they cover; before that only what a file has unsynced
//! beyond [`CACHED_BYTES_MAX`].
//!
//! A caller that works alone loses a little at each wait (sleeps overshoot); [`BURST`] lets the
//! device catch up that much.

use crate::{AlignedBuf, Clock, Create, Disk, DiskStats, File, Io, Mode, Result};
use parking_lot::Mutex;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Bytes that one operation of the `iops` limit covers.
const IOPS_UNIT: usize = 16 * 1024;

/// Idle time that the device makes up for at most.
pub const BURST: Duration = Duration::from_millis(1);

/// Bytes of a file that the page cache takes before they have to go to the device.
pub const CACHED_BYTES_MAX: u64 = 16 << 20;

/// The limits of a device. The default has none.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Profile {
    /// Operations of up to 16 KiB per second, reads and writes together.
    pub iops: Option<f64>,
    /// Bytes per second, reads and writes together.
    pub bandwidth: Option<f64>,
    /// Time that one sync takes.
    pub sync_latency: Duration,
    /// Whether an operation that continues the previous one of its file costs bandwidth only.
    pub seeks: bool,
}

impl Profile {
    /// No limits.
    pub const FAST: Profile =
        Profile { iops: None, bandwidth: None, sync_latency: Duration::ZERO, seeks: false };
    /// 10,000 operations per second.
    pub const SLOW_SSD: Profile = Profile { iops: Some(10_000.0), ..Profile::FAST };
    /// 30,000 random writes of 16 KiB per second, 468 MiB/s.
    pub const SATA_SSD: Profile =
        Profile { iops: Some(30_000.0), bandwidth: Some(468.0 * 1024.0 * 1024.0), ..Profile::FAST };
    /// Two striped SATA disks of 7200 rpm: 200 operations per second, 200 MB/s in sequence.
    pub const TWO_DISKS: Profile = Profile {
        iops: Some(200.0),
        bandwidth: Some(200e6),
        sync_latency: Duration::from_millis(8),
        seeks: true,
    };

    /// Names and profiles that [`Profile::from_str`] knows.
    pub const PRESETS: [(&'static str, Profile); 4] = [
        ("fast", Profile::FAST),
        ("slow-ssd", Profile::SLOW_SSD),
        ("sata-ssd", Profile::SATA_SSD),
        ("two-disks", Profile::TWO_DISKS),
    ];

    /// Device time of one operation.
    fn cost(&self, bytes: usize, contiguous: bool) -> Duration {
        let transfer = self.bandwidth.map_or(0.0, |rate| bytes as f64 / rate);
        let positioning = match self.iops {
            Some(rate) if !(self.seeks && contiguous) => bytes.div_ceil(IOPS_UNIT) as f64 / rate,
            _ => 0.0,
        };
        // A disk seeks once, however long the operation is.
        let positioning = match (self.seeks, self.iops) {
            (true, Some(rate)) => positioning.min(1.0 / rate),
            _ => positioning,
        };
        Duration::from_secs_f64(transfer.max(positioning))
    }
}

/// A profile's name is not known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown disk profile `{0}`: fast, slow-ssd, sata-ssd, two-disks, or a number of operations per second as \
     in iops-3000 is expected"
)]
pub struct UnknownProfile(String);

impl FromStr for Profile {
    type Err = UnknownProfile;

    fn from_str(name: &str) -> std::result::Result<Self, UnknownProfile> {
        if let Some((_, profile)) = Profile::PRESETS.iter().find(|(preset, _)| *preset == name) {
            return Ok(*profile);
        }
        let number = name.strip_prefix("iops-").and_then(|n| n.parse::<u32>().ok());
        match number.filter(|&n| n > 0) {
            Some(iops) => Ok(Profile { iops: Some(f64::from(iops)), ..Profile::FAST }),
            None => Err(UnknownProfile(name.to_string())),
        }
    }
}

/// A disk with the limits of a [`Profile`] over another disk. Clones are the same disk.
#[derive(Clone)]
pub struct ThrottledDisk {
    disk: Arc<dyn Disk>,
    device: Arc<Device>,
}

struct Device {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    file_next: AtomicU64,
}

struct State {
    profile: Profile,
    /// When the device has done all that was asked of it.
    free_at: Duration,
    /// Device time of all that was asked of it.
    worth: Duration,
    /// File and end of the last operation.
    last: (u64, u64),
}

impl ThrottledDisk {
    /// Limits `disk`; `clock` measures and waits.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use weir_os::{SimClock, SimDisk, throttle::ThrottledDisk};
    /// let disk = Arc::new(SimDisk::new(1));
    /// let slow = ThrottledDisk::new(disk, "slow-ssd".parse()?, Arc::new(SimClock::new()));
    /// # Ok::<(), weir_os::throttle::UnknownProfile>(())
    /// ```
    pub fn new(disk: Arc<dyn Disk>, profile: Profile, clock: Arc<dyn Clock>) -> Self {
        let (free_at, worth) = (Duration::ZERO, Duration::ZERO);
        let state = State { profile, free_at, worth, last: (0, 0) };
        let device = Device { clock, state: Mutex::new(state), file_next: AtomicU64::new(1) };
        ThrottledDisk { disk, device: Arc::new(device) }
    }

    /// Changes the limits for operations that arrive from now on.
    pub fn set_profile(&self, profile: Profile) {
        self.device.state.lock().profile = profile;
    }

    /// The limits.
    pub fn profile(&self) -> Profile {
        self.device.state.lock().profile
    }
}

impl Device {
    /// Reserves device time; the time at which it ends. What costs nothing doesn't wait for the
    /// device.
    fn reserve(&self, cost_of: impl FnOnce(&mut State) -> Duration) -> Duration {
        let now = self.clock.now();
        let mut state = self.state.lock();
        let cost = cost_of(&mut state);
        if cost.is_zero() {
            return now;
        }
        state.free_at = state.free_at.max(now.saturating_sub(BURST)) + cost;
        state.worth += cost;
        state.free_at
    }

    fn wait_until(&self, end: Duration) {
        let now = self.clock.now();
        if end > now {
            self.clock.sleep(end - now);
        }
    }
}

impl Disk for ThrottledDisk {
    fn open(&self, name: &str, create: Create, mode: Mode) -> Result<Arc<dyn File>> {
        let file = self.disk.open(name, create, mode)?;
        let id = self.device.file_next.fetch_add(1, Ordering::Relaxed);
        let cached = (mode == Mode::Cached).then(Arc::default);
        Ok(Arc::new(ThrottledFile { file, id, cached, device: self.device.clone() }))
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.disk.remove(name)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.disk.rename(from, to)
    }

    fn list(&self) -> Result<Vec<String>> {
        self.disk.list()
    }

    fn sync_dir(&self) -> Result<()> {
        let end = self.device.reserve(|state| state.profile.sync_latency);
        let result = self.disk.sync_dir();
        self.device.wait_until(end);
        result
    }

    fn free_bytes(&self) -> Result<u64> {
        self.disk.free_bytes()
    }

    fn lock(&self) -> Result<Box<dyn Send + Sync>> {
        self.disk.lock()
    }

    fn place(&self) -> String {
        self.disk.place()
    }

    fn describe(&self) -> String {
        let profile = self.profile();
        let known = Profile::PRESETS.iter().find(|(_, preset)| *preset == profile);
        let name = known.map_or_else(|| format!("{profile:?}"), |(name, _)| name.to_string());
        format!("throttled ({name}) {}", self.disk.describe())
    }

    fn stats(&self) -> DiskStats {
        let now = self.device.clock.now();
        let state = self.device.state.lock();
        let busy = state.worth.saturating_sub(state.free_at.saturating_sub(now));
        DiskStats { busy_us: busy.as_micros() as u64, ..self.disk.stats() }
    }
}

struct ThrottledFile {
    file: Arc<dyn File>,
    id: u64,
    /// What the page cache holds, for files that go through it.
    cached: Option<Arc<Mutex<Unsynced>>>,
    device: Arc<Device>,
}

/// The stretch of a file that was written and not synced.
#[derive(Default)]
struct Unsynced {
    start: u64,
    end: u64,
    /// Sum of the writes; less than the stretch if they are far apart.
    bytes: u64,
}

impl Unsynced {
    fn add(&mut self, offset: u64, bytes: u64) {
        if self.bytes == 0 {
            self.start = offset;
        }
        self.start = self.start.min(offset);
        self.end = self.end.max(offset.saturating_add(bytes));
        self.bytes += bytes;
    }

    fn bytes(&self) -> u64 {
        self.bytes.min(self.end - self.start)
    }
}

impl ThrottledFile {
    /// Device time of a batch.
    fn cost(&self, batch: &[Io], state: &mut State) -> Duration {
        let mut total = Duration::ZERO;
        for op in batch {
            let bytes = op.buf().len();
            if let (Some(cached), Io::Write { offset, .. }) = (&self.cached, op) {
                let mut cached = cached.lock();
                cached.add(*offset, bytes as u64);
                if cached.bytes() > CACHED_BYTES_MAX {
                    total += self.write_back(&mut cached, state);
                }
                continue;
            }
            let contiguous = state.last == (self.id, op.offset());
            total += state.profile.cost(bytes, contiguous);
            state.last = (self.id, op.offset().saturating_add(bytes as u64));
        }
        total
    }

    /// Device time of what the page cache holds.
    fn write_back(&self, cached: &mut Unsynced, state: &mut State) -> Duration {
        let held = std::mem::take(cached);
        if held.bytes == 0 {
            return Duration::ZERO;
        }
        let contiguous = state.last == (self.id, held.start);
        state.last = (self.id, held.end);
        state.profile.cost(held.bytes() as usize, contiguous)
    }
}

impl File for ThrottledFile {
    fn run(&self, batch: Vec<Io>) -> Result<Vec<AlignedBuf>> {
        let end = self.device.reserve(|state| self.cost(&batch, state));
        let result = self.file.run(batch);
        self.device.wait_until(end);
        result
    }

    fn len(&self) -> Result<u64> {
        self.file.len()
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        self.file.set_len(bytes)
    }

    fn punch(&self, offset: u64, bytes: u64) -> Result<()> {
        self.file.punch(offset, bytes)
    }

    fn sync(&self) -> Result<()> {
        let end = self.device.reserve(|state| {
            let held = self.cached.as_ref().map(|c| self.write_back(&mut c.lock(), state));
            held.unwrap_or_default() + state.profile.sync_latency
        });
        let result = self.file.sync();
        self.device.wait_until(end);
        result
    }

    fn forget(&self, offset: u64, bytes: u64) {
        self.file.forget(offset, bytes);
    }

    fn name(&self) -> &str {
        self.file.name()
    }

    fn renamed(&self, name: &str) -> Arc<dyn File> {
        let (file, cached) = (self.file.renamed(name), self.cached.clone());
        Arc::new(ThrottledFile { file, id: self.id, cached, device: self.device.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BLOCK, SimClock, SimDisk};

    const PAGE: usize = 16 * 1024;

    fn setup(name: &str) -> (ThrottledDisk, Arc<SimClock>, Arc<dyn File>) {
        let clock = Arc::new(SimClock::new());
        let disk = Arc::new(SimDisk::new(1));
        let disk = ThrottledDisk::new(disk, name.parse().unwrap(), clock.clone());
        let file = disk.open("f", Create::New, Mode::Direct).unwrap();
        // Uses up the burst, so that times are exact from here on.
        let end = disk.device.reserve(|_| BURST);
        disk.device.wait_until(end);
        (disk, clock, file)
    }

    fn write(page: u64, len: usize) -> Io {
        Io::Write { offset: page * PAGE as u64, buf: AlignedBuf::zeroed(len) }
    }

    /// Simulated time that an action takes, in microseconds.
    fn took(clock: &SimClock, action: impl FnOnce()) -> u128 {
        let before = clock.now();
        action();
        (clock.now() - before).as_micros()
    }

    #[test]
    fn slow_ssd_does_ten_thousand_operations_per_second() {
        let (_, clock, file) = setup("slow-ssd");
        let time = took(&clock, || {
            (0..100).for_each(|i| drop(file.run(vec![write(i * 3, PAGE)]).unwrap()));
        });
        // The burst was given once.
        assert!((9_000..=10_000).contains(&time), "{time}");
        let one = took(&clock, || drop(file.run(vec![write(1, BLOCK)]).unwrap()));
        assert_eq!(one, 100);
        let wide = took(&clock, || drop(file.run(vec![write(1, 4 * PAGE + BLOCK)]).unwrap()));
        assert_eq!(wide, 500);
        let batch = (0..20).map(|i| write(i, PAGE)).collect();
        assert_eq!(took(&clock, || drop(file.run(batch).unwrap())), 2000);
    }

    #[test]
    fn sata_ssd_is_bound_by_the_stricter_limit() {
        let (_, clock, file) = setup("sata-ssd");
        let small = took(&clock, || drop(file.run((0..30).map(|i| write(i, BLOCK)).collect())));
        assert!((999..=1000).contains(&small), "{small}");
        let large = took(&clock, || drop(file.write(0, AlignedBuf::zeroed(468 << 16))));
        assert!((62_499..=62_500).contains(&large), "{large}");
    }

    #[test]
    fn disks_seek_unless_the_operation_continues_the_previous_one() {
        let (disk, clock, file) = setup("two-disks");
        let other = disk.open("g", Create::New, Mode::Direct).unwrap();
        let run = |file: &dyn File, page, len| {
            took(&clock, || drop(file.run(vec![write(page, len)]).unwrap()))
        };
        assert_eq!(run(&*file, 7, PAGE), 5000);
        assert_eq!(run(&*file, 8, PAGE), 81, "continues");
        assert_eq!(run(&*other, 9, PAGE), 5000, "another file");
        assert_eq!(run(&*file, 9, PAGE), 5000, "the head is elsewhere");
        assert_eq!(run(&*file, 9, PAGE), 5000, "a rewrite waits for its turn");
        assert_eq!(run(&*file, 100, 8 * PAGE), 5000, "one seek for a long write");
        assert_eq!(took(&clock, || file.sync().unwrap()), 8000);
        assert_eq!(took(&clock, || disk.sync_dir().unwrap()), 8000);
    }

    #[test]
    fn time_at_work_is_counted_and_idle_time_is_not() {
        let (disk, clock, file) = setup("slow-ssd");
        let before = disk.stats().busy_us;
        clock.advance(Duration::from_secs(1));
        drop(file.run((0..20).map(|i| write(i, PAGE)).collect()).unwrap());
        clock.advance(Duration::from_secs(1));
        assert_eq!(disk.stats().busy_us - before, 2000);
    }

    #[test]
    fn limits_change_while_running() {
        let (disk, clock, file) = setup("fast");
        let write_one = || drop(file.run(vec![write(0, PAGE)]).unwrap());
        assert_eq!(took(&clock, write_one), 0);
        assert_eq!(took(&clock, || file.sync().unwrap()), 0);
        disk.set_profile(Profile { iops: Some(100.0), ..Profile::FAST });
        assert_eq!(took(&clock, write_one), 10_000);
        disk.set_profile(Profile::FAST);
        assert_eq!(took(&clock, write_one), 0);
        assert!(disk.describe().starts_with("throttled (fast) simulated"));
    }

    #[test]
    fn the_page_cache_takes_writes_until_they_are_synced() {
        let (disk, clock, _) = setup("slow-ssd");
        let file = disk.open("cached", Create::New, Mode::Cached).unwrap();
        disk.device.reserve(|_| Duration::from_millis(50));
        let log = || (0..100).for_each(|i| drop(file.run(vec![write(i / 10, PAGE)]).unwrap()));
        assert_eq!(took(&clock, log), 0, "though the device is busy");
        clock.advance(Duration::from_millis(50));
        assert_eq!(took(&clock, || file.sync().unwrap()), 1000, "ten different pages");
        assert_eq!(took(&clock, || file.sync().unwrap()), 0);
        let large = || drop(file.write(0, AlignedBuf::zeroed((17 << 20) - PAGE)).unwrap());
        assert_eq!(took(&clock, large), 108_700, "more than it takes");
        assert_eq!(took(&clock, || drop(file.read(0, AlignedBuf::zeroed(PAGE)).unwrap())), 100);
    }

    #[test]
    fn idle_time_is_not_saved_up() {
        let (_, clock, file) = setup("two-disks");
        clock.advance(Duration::from_secs(60));
        let time = took(&clock, || drop(file.run(vec![write(5, PAGE)]).unwrap()));
        assert_eq!(time, 4000, "the cost less the burst");
    }

    #[test]
    fn names_of_profiles() {
        for (name, profile) in Profile::PRESETS {
            assert_eq!(name.parse::<Profile>().unwrap(), profile);
        }
        let limited = "iops-3000".parse::<Profile>().unwrap();
        assert_eq!(limited, Profile { iops: Some(3000.0), ..Profile::FAST });
        assert!("iops-0".parse::<Profile>().is_err());
        let error = "floppy".parse::<Profile>().unwrap_err();
        assert!(error.to_string().contains("floppy"), "{error}");
    }
}
