//! Devices: a rate that varies, a queue, and moments in which nothing comes back.

use std::collections::VecDeque;
use std::str::FromStr;

use weir_governor::DeviceMeter;

/// A device, or many that pages are spread over.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceModel {
    /// Its name.
    pub name: String,
    /// Pages per second, reads and writes together, at random places.
    pub pages_per_second: f64,
    /// Standard deviation of that rate, as a share of it.
    pub variation: f64,
    /// Times per second that it hangs...
    pub hangs_per_second: f64,
    /// ... and for how long.
    pub hang_seconds: f64,
    /// Seconds that a write takes on an idle device.
    pub latency: f64,
}

/// Time over which the rate's variation persists.
const PERSISTENCE: f64 = 0.5;

impl DeviceModel {
    /// Names that [`DeviceModel::from_str`] knows; `nvme` may be followed by `xN`.
    pub const NAMES: &str = "two-disks, slow-ssd, sata-ssd, nvme, nvmex2 to nvmex100";

    fn new(
        name: &str,
        pages_per_second: f64,
        variation: f64,
        hang: (f64, f64),
        latency: f64,
    ) -> Self {
        DeviceModel {
            name: name.into(),
            pages_per_second,
            variation,
            hangs_per_second: hang.0,
            hang_seconds: hang.1,
            latency,
        }
    }

    /// A device that always does the same.
    pub fn even(pages_per_second: f64) -> Self {
        DeviceModel::new("even", pages_per_second, 0.0, (0.0, 0.0), 0.001)
    }

    /// `count` of these, pages spread over them: their variations even out, and a hang of one is
    /// one in a part.
    fn times(self, count: u32) -> Self {
        let n = f64::from(count);
        DeviceModel {
            name: format!("{}x{count}", self.name),
            pages_per_second: self.pages_per_second * n,
            variation: self.variation / n.sqrt(),
            hang_seconds: self.hang_seconds / n,
            hangs_per_second: self.hangs_per_second * n,
            ..self
        }
    }
}

impl FromStr for DeviceModel {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let model = match name {
            "two-disks" => DeviceModel::new(name, 200.0, 0.3, (0.02, 0.2), 0.008),
            "slow-ssd" => DeviceModel::new(name, 10_000.0, 0.15, (0.05, 0.05), 0.001),
            "sata-ssd" => DeviceModel::new(name, 30_000.0, 0.15, (0.05, 0.05), 0.0005),
            "nvme" => DeviceModel::new(name, 200_000.0, 0.1, (0.02, 0.02), 0.0001),
            _ => {
                let count = name.strip_prefix("nvmex").and_then(|n| n.parse::<u32>().ok());
                let Some(count) = count.filter(|n| (1..=100).contains(n)) else {
                    return Err(format!("`{name}` is no device; use {}", DeviceModel::NAMES));
                };
                "nvme".parse::<DeviceModel>()?.times(count)
            }
        };
        Ok(model)
    }
}

/// Writes that were issued together.
struct Batch {
    issued: f64,
    pages: f64,
    left: f64,
    /// Whether their frames are free once they are written.
    frees: bool,
    /// LSN from which the log is needed until it is done.
    oldest: u64,
}

/// The device at work.
pub struct Device {
    model: DeviceModel,
    rng: fastrand::Rng,
    now: f64,
    noise: f64,
    hangs_until: f64,
    queue: VecDeque<Batch>,
    queued: f64,
    /// What it could do in this tick and has not done yet.
    budget: f64,
    tick: f64,
    /// Part of a page that the meter has not been told of.
    untold: f64,
    /// A slowdown to this share, for tests of devices that change.
    pub speed: f64,
    /// What the governor is told.
    pub meter: DeviceMeter,
}

impl Device {
    /// Idle.
    pub fn new(model: DeviceModel, seed: u64) -> Self {
        Device {
            model,
            rng: fastrand::Rng::with_seed(seed),
            now: 0.0,
            noise: 0.0,
            hangs_until: 0.0,
            queue: VecDeque::new(),
            queued: 0.0,
            budget: 0.0,
            tick: 0.0,
            untold: 0.0,
            speed: 1.0,
            meter: DeviceMeter::new(),
        }
    }

    /// A sample of the normal distribution (Box and Muller).
    fn normal(&mut self) -> f64 {
        let (u, v) = (1.0 - self.rng.f64(), self.rng.f64());
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }

    /// Begins a tick.
    pub fn begin(&mut self, seconds: f64) {
        self.now += seconds;
        self.tick = seconds;
        let keep = (-seconds / PERSISTENCE).exp();
        self.noise = self.noise * keep + self.normal() * (1.0 - keep * keep).sqrt();
        if self.rng.f64() < self.model.hangs_per_second * seconds {
            self.hangs_until = self.now + self.model.hang_seconds;
        }
        let factor = (1.0 + self.model.variation * self.noise).clamp(0.2, 2.0);
        let rate = self.model.pages_per_second * self.speed * factor;
        self.budget = if self.now < self.hangs_until { 0.0 } else { rate * seconds };
    }

    /// Pages that may be read in this tick: what writes leave, and at least half.
    pub fn readable(&self) -> f64 {
        self.budget - self.queued.min(self.budget / 2.0)
    }

    /// `pages` are read.
    pub fn read(&mut self, pages: f64) {
        self.budget = (self.budget - pages).max(0.0);
    }

    /// Pages that may be under way at most: those of this tick, and 20 ms more.
    fn depth(&self) -> f64 {
        (self.model.pages_per_second * (self.tick + 0.02)).max(16.0)
    }

    /// How many pages may be issued now.
    pub fn room(&self) -> f64 {
        (self.depth() - self.queued).max(0.0)
    }

    /// Issues a batch; the log is needed from `oldest` on until it is done.
    pub fn issue(&mut self, pages: f64, oldest: u64) {
        self.push(pages, oldest, false);
    }

    /// The same of pages whose frames are free once they are written.
    pub fn issue_leaving(&mut self, pages: f64, oldest: u64) {
        self.push(pages, oldest, true);
    }

    fn push(&mut self, pages: f64, oldest: u64, frees: bool) {
        if pages > 0.0 {
            self.queue.push_back(Batch { issued: self.now, pages, left: pages, frees, oldest });
            self.queued += pages;
        }
    }

    /// Does what the tick allows. Returns the pages that were written, and how many frames that
    /// frees.
    pub fn work(&mut self) -> (f64, f64) {
        let (mut done, mut freed) = (0.0, 0.0);
        while let Some(batch) = self.queue.front_mut()
            && self.budget > 0.0
        {
            let part = batch.left.min(self.budget);
            self.budget -= part;
            batch.left -= part;
            done += part;
            freed += if batch.frees { part } else { 0.0 };
            if batch.left <= 1e-9 {
                let latency = self.now - batch.issued + self.model.latency;
                self.untold += batch.pages;
                self.meter.batch_done(self.untold as u64, latency);
                self.untold = self.untold.fract();
                self.queue.pop_front();
            }
        }
        self.queued = (self.queued - done).max(0.0);
        (done, freed)
    }

    /// Ends a tick in which the writer had to wait for the queue or not.
    pub fn end(&mut self, seconds: f64, full: bool) {
        self.meter.elapsed(seconds, seconds, full);
    }

    /// Pages under way.
    pub fn queued(&self) -> f64 {
        self.queued
    }

    /// LSN from which the log is needed because of writes under way.
    pub fn oldest(&self) -> Option<u64> {
        self.queue.iter().map(|batch| batch.oldest).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_known_up_to_a_hundred() {
        assert_eq!("slow-ssd".parse::<DeviceModel>().map(|d| d.pages_per_second), Ok(10_000.0));
        assert_eq!("nvmex100".parse::<DeviceModel>().map(|d| d.pages_per_second), Ok(2e7));
        for bad in ["nvmex101", "nvmex0", "floppy", ""] {
            assert!(bad.parse::<DeviceModel>().unwrap_err().contains("is no device"), "{bad}");
        }
    }

    #[test]
    fn it_does_its_rate_in_the_mean_and_the_meter_finds_it() {
        for name in ["two-disks", "slow-ssd", "nvmex10"] {
            let model: DeviceModel = name.parse().unwrap();
            let rate = model.pages_per_second;
            let mut device = Device::new(model, 7);
            let mut done = 0.0;
            for _ in 0..50_000 {
                device.begin(0.02);
                let room = device.room();
                device.issue(room, 0);
                done += device.work().0;
                device.end(0.02, true);
            }
            assert!((done / 1000.0 / rate - 1.0).abs() < 0.1, "{name}: {}", done / 1000.0);
            let known = device.meter.device().pages_per_second.unwrap();
            assert!((0.4..1.8).contains(&(known / rate)), "{name}: {known}");
        }
    }

    #[test]
    fn reads_leave_half_to_writes() {
        let mut device = Device::new(DeviceModel::even(1000.0), 1);
        device.begin(0.02);
        assert_eq!(device.readable(), 20.0);
        device.issue(15.0, 5);
        assert_eq!(device.readable(), 10.0);
        device.read(10.0);
        assert_eq!(device.work(), (10.0, 0.0));
        assert_eq!((device.queued(), device.oldest()), (5.0, Some(5)));
    }
}
