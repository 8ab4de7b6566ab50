//! What the device can do, found out from what it does.
//!
//! Only a device that is kept busy shows its limit. So a stretch of time in which the writer's
//! queue was full all the while counts as it is, and any other only when it shows *more* than was
//! known: by the pages of the time in which it was not idle. (By those of all the time it could
//! not: a limit that was learnt too low holds writers back, the device idles, and nobody ever sees
//! more.) Until the queue has been full once, the device's limit is unknown and nothing is held
//! back for its sake; then it is at least the most that was written in a stretch of the last
//! seconds, so that a device that hangs for a moment once in a while is not taken for a slow one.
//! When writers are held back for it, the governor asks for a little more than the device is known
//! to do ([`crate::Governor`]): the queue stays full, and a device that has become faster is found
//! out.

/// What the device has been seen to do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Device {
    /// Page writes per second that it sustains, with whatever it does besides; `None` while it has
    /// never been seen at its limit.
    pub pages_per_second: Option<f64>,
    /// Seconds from issuing a batch until it is durable: mean.
    pub latency: f64,
    /// The same: mean deviation.
    pub latency_deviation: f64,
    /// How far `pages_per_second` of moments is from that of some seconds: mean, as a share.
    pub variation: f64,
}

impl Device {
    /// Nothing is known.
    pub const UNKNOWN: Device =
        Device { pages_per_second: None, latency: 0.0, latency_deviation: 0.0, variation: 0.0 };

    /// A time that a write rarely exceeds: the mean and four deviations, as TCP's retransmission
    /// timer (Jacobson, SIGCOMM 1988).
    pub fn latency_bound(&self) -> f64 {
        self.latency + 4.0 * self.latency_deviation
    }
}

/// A queue that is full for this share of the time shows the device's limit.
const FULL: f64 = 0.9;
/// A window is at least this long, in seconds...
const WINDOW: f64 = 0.1;
/// ... and has at least this many pages, or is as long as that.
const WINDOW_PAGES: (u64, f64) = (32, 1.0);
/// Who was busy for less than this share of a window tells nothing of the rest of it.
const BUSY_MIN: f64 = 0.1;
/// What one window shows is at most this much slower than what is known.
const SLOWER: f64 = 8.0;
/// No device is taken for one that does fewer pages per second, however long it hangs.
const SLOWEST: f64 = 1.0;
/// Time in which an old rate is forgotten, in seconds: that of the moment, and the one that is
/// told.
const MEMORY: (f64, f64) = (0.4, 4.0);
/// When the rate of the moment has been off by more than this factor, for so many seconds, the
/// device has changed. One that does less (the first) may be one that hangs for a moment; what is
/// done (the second) can be done.
const CHANGED: f64 = 1.5;
const CHANGED_SECONDS: (f64, f64) = (1.0, 0.2);
/// Weight of one batch in the averages of latency.
const LATENCY_WEIGHT: f64 = 1.0 / 16.0;

/// Estimates [`Device`] from completions.
#[derive(Debug, Clone)]
pub struct DeviceMeter {
    device: Device,
    /// Most pages written per second in a window, forgotten over some seconds.
    most: f64,
    /// Pages per second at the moment.
    current: f64,
    /// For how long that has been quite another than the one that is told.
    off_seconds: f64,
    /// How long the device has been the same.
    same_seconds: f64,
    seconds: f64,
    full_seconds: f64,
    busy_seconds: f64,
    pages: u64,
    /// Pages of the last batch, which the next one may be expected to have.
    batch_pages: u64,
}

impl Default for DeviceMeter {
    fn default() -> Self {
        Self::new()
    }
}

impl DeviceMeter {
    /// Knows nothing yet.
    pub fn new() -> Self {
        DeviceMeter {
            device: Device::UNKNOWN,
            most: 0.0,
            current: 0.0,
            off_seconds: 0.0,
            same_seconds: 0.0,
            seconds: 0.0,
            full_seconds: 0.0,
            busy_seconds: 0.0,
            pages: 0,
            batch_pages: 0,
        }
    }

    /// What is known.
    pub fn device(&self) -> Device {
        self.device
    }

    /// A batch of `pages` is durable, `latency` seconds after it was issued.
    pub fn batch_done(&mut self, pages: u64, latency: f64) {
        self.pages += pages;
        self.batch_pages = pages;
        let device = &mut self.device;
        if device.latency == 0.0 {
            device.latency = latency;
            device.latency_deviation = latency / 2.0;
            return;
        }
        let off = latency - device.latency;
        device.latency += off * LATENCY_WEIGHT;
        device.latency_deviation += (off.abs() - device.latency_deviation) * LATENCY_WEIGHT;
    }

    /// `seconds` have passed, in `busy_seconds` of which the writer had batches under way; `full`
    /// if they were as many as it ever has. Call it every 10 to 100 ms, after the batches of that
    /// time.
    pub fn elapsed(&mut self, seconds: f64, busy_seconds: f64, full: bool) {
        self.seconds += seconds;
        self.busy_seconds += busy_seconds;
        self.full_seconds += if full { busy_seconds } else { 0.0 };
        let full = self.full_seconds >= FULL * self.seconds;
        let enough = self.pages >= WINDOW_PAGES.0 || self.seconds >= WINDOW_PAGES.1;
        if self.seconds >= WINDOW && (enough || !full) {
            self.learn(full);
            self.open_window();
        } else if full {
            self.doubt(seconds);
        }
    }

    fn open_window(&mut self) {
        (self.seconds, self.full_seconds, self.busy_seconds, self.pages) = (0.0, 0.0, 0.0, 0);
    }

    fn learn(&mut self, full: bool) {
        let of_time = match full || self.pages < WINDOW_PAGES.0 {
            true => self.seconds,
            false => self.busy_seconds.max(BUSY_MIN * self.seconds),
        };
        let rate = self.pages as f64 / of_time;
        let written = self.pages as f64 / self.seconds;
        self.most = written.max(self.most * (-self.seconds / MEMORY.1).exp());
        match self.device.pages_per_second {
            None if full && rate > 0.0 => {
                self.current = rate.max(self.most);
                self.device.pages_per_second = Some(self.current);
                self.same_seconds = if self.most > rate { MEMORY.1 } else { 0.0 };
            }
            Some(known) if full || rate > known => self.follow(known, rate, self.seconds),
            _ => {}
        }
    }

    /// A full queue from which nothing comes: even if a batch were done right now, the rate would
    /// be lower than what is known.
    fn doubt(&mut self, seconds: f64) {
        let possible = (self.pages + self.batch_pages.max(WINDOW_PAGES.0)) as f64 / self.seconds;
        if let Some(known) = self.device.pages_per_second
            && possible < self.current
        {
            self.follow(known, possible, seconds);
        }
    }

    fn follow(&mut self, known: f64, rate: f64, seconds: f64) {
        let rate = rate.max(self.current / SLOWER).max(SLOWEST);
        self.current = towards(self.current, rate, seconds / MEMORY.0);
        self.settle(known, seconds);
    }

    /// Follows the rate of the moment: slowly, or at once if it has been quite another for a while.
    /// A device that hangs for a moment is the same device.
    fn settle(&mut self, known: f64, seconds: f64) {
        let off = (self.current / known).ln().abs();
        self.off_seconds = if off > CHANGED.ln() { self.off_seconds + seconds } else { 0.0 };
        let (less, more) = CHANGED_SECONDS;
        let enough = if self.current < known { less } else { more };
        if self.off_seconds >= enough {
            self.device.pages_per_second = Some(self.current);
            (self.off_seconds, self.same_seconds) = (0.0, 0.0);
            return;
        }
        self.same_seconds += seconds;
        let times = seconds / self.same_seconds.clamp(MEMORY.0, MEMORY.1);
        self.device.pages_per_second = Some(towards(known, self.current, times));
        self.device.variation += (off - self.device.variation) * -(-times).exp_m1();
    }
}

/// From one rate towards another, in ratios, so that a drop to a tenth is followed as fast as a
/// rise to tenfold.
fn towards(from: f64, to: f64, times: f64) -> f64 {
    from * (to / from).powf(-(-times).exp_m1())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds of a device that does `rate` pages per second in batches, with the queue full or
    /// not.
    fn run(meter: &mut DeviceMeter, rate: f64, batch: u64, seconds: f64, full: bool) {
        let (tick, mut done) = (0.01, 0.0);
        for _ in 0..(seconds / tick) as u32 {
            done += rate * tick;
            while done >= batch as f64 {
                meter.batch_done(batch, 0.02);
                done -= batch as f64;
            }
            meter.elapsed(tick, tick, full);
        }
    }

    fn rate(meter: &DeviceMeter) -> f64 {
        meter.device().pages_per_second.unwrap()
    }

    #[test]
    fn a_device_that_was_never_full_has_no_known_limit() {
        let mut meter = DeviceMeter::new();
        run(&mut meter, 5000.0, 64, 5.0, false);
        assert_eq!(meter.device().pages_per_second, None);
    }

    #[test]
    fn what_was_written_for_a_moment_counts_when_the_queue_is_first_full() {
        let mut meter = DeviceMeter::new();
        run(&mut meter, 7000.0, 64, 0.5, false);
        run(&mut meter, 1000.0, 64, 0.25, true);
        assert!((4000.0..7000.0).contains(&rate(&meter)), "{}", rate(&meter));
    }

    #[test]
    fn a_full_queue_shows_the_limit_and_slack_does_not_hide_it() {
        let mut meter = DeviceMeter::new();
        run(&mut meter, 10_000.0, 64, 2.0, true);
        assert!((rate(&meter) / 10_000.0 - 1.0).abs() < 0.05, "{}", rate(&meter));
        run(&mut meter, 300.0, 64, 10.0, false);
        assert!((rate(&meter) / 10_000.0 - 1.0).abs() < 0.1, "{}", rate(&meter));
        run(&mut meter, 20_000.0, 64, 3.0, false);
        assert!(rate(&meter) > 18_000.0, "what is done can be done: {}", rate(&meter));
    }

    /// The rate was halved until it was 0, and from then on it was no number.
    #[test]
    fn a_device_that_hangs_for_an_hour_is_followed_when_it_is_back() {
        let mut meter = DeviceMeter::new();
        run(&mut meter, 10_000.0, 64, 3.0, true);
        run(&mut meter, 0.0, 64, 3600.0, true);
        assert!((SLOWEST * 0.9..10.0).contains(&rate(&meter)), "{}", rate(&meter));
        run(&mut meter, 10_000.0, 64, 3.0, true);
        assert!((rate(&meter) / 10_000.0 - 1.0).abs() < 0.25, "{}", rate(&meter));
    }

    #[test]
    fn a_drop_to_a_tenth_and_its_return_are_followed_within_seconds() {
        for (fast, batch) in [(10_000.0, 64), (200.0, 8), (500_000.0, 256)] {
            let mut meter = DeviceMeter::new();
            run(&mut meter, fast, batch, 3.0, true);
            run(&mut meter, fast / 10.0, batch, 3.0, true);
            let slow = rate(&meter);
            assert!((slow / fast * 10.0 - 1.0).abs() < 0.25, "{slow} of {fast}");
            run(&mut meter, fast, batch, 3.0, true);
            assert!((rate(&meter) / fast - 1.0).abs() < 0.25, "{} of {fast}", rate(&meter));
        }
    }

    #[test]
    fn a_device_that_hangs_is_noticed_before_it_answers() {
        let mut meter = DeviceMeter::new();
        run(&mut meter, 10_000.0, 64, 2.0, true);
        for _ in 0..10 {
            meter.elapsed(0.01, 0.01, true);
        }
        assert!(rate(&meter) > 9_000.0, "a moment is nothing: {}", rate(&meter));
        for _ in 0..200 {
            meter.elapsed(0.01, 0.01, true);
        }
        assert!(rate(&meter) < 1_000.0, "{}", rate(&meter));
        run(&mut meter, 10_000.0, 64, 3.0, true);
        assert!(rate(&meter) > 8_000.0, "{}", rate(&meter));
    }

    #[test]
    fn a_limit_that_was_learnt_too_low_is_forgotten_once_the_device_idles() {
        let mut meter = DeviceMeter::new();
        run(&mut meter, 400.0, 24, 3.0, true);
        assert!(rate(&meter) < 500.0);
        // Writers are held to that rate; each batch takes 3 ms.
        for _ in 0..100 {
            meter.batch_done(12, 0.003);
            meter.elapsed(0.03, 0.003, false);
        }
        assert!((rate(&meter) / 4000.0 - 1.0).abs() < 0.1, "{}", rate(&meter));
        // What takes a moment now and then is no sample of a second.
        for _ in 0..200 {
            meter.batch_done(12, 1e-4);
            meter.elapsed(0.03, 1e-4, false);
        }
        assert!(rate(&meter) < 5000.0, "{}", rate(&meter));
    }

    #[test]
    fn a_hang_before_any_limit_was_seen_is_no_limit() {
        let mut meter = DeviceMeter::new();
        run(&mut meter, 3000.0, 24, 20.0, false);
        run(&mut meter, 300.0, 24, 0.5, true);
        assert!(rate(&meter) > 2000.0, "what was done can be done: {}", rate(&meter));
        run(&mut meter, 300.0, 24, 2.0, true);
        assert!(rate(&meter) < 400.0, "but not for ever: {}", rate(&meter));
    }

    /// Bursts with long pauses, and then a hang at the moment in which the queue is first full.
    #[test]
    fn a_limit_learnt_in_a_hang_is_no_lower_than_a_burst_before_and_rises_at_once() {
        let mut meter = DeviceMeter::new();
        for _ in 0..4 {
            run(&mut meter, 20_000.0, 256, 0.3, false);
            run(&mut meter, 0.0, 256, 0.7, false);
        }
        run(&mut meter, 20_000.0, 256, 0.3, false);
        run(&mut meter, 1000.0, 256, 0.26, true);
        assert!(rate(&meter) > 15_000.0, "{}", rate(&meter));
        for _ in 0..80 {
            meter.batch_done(100, 0.003);
            meter.elapsed(0.01, 0.002, false);
        }
        assert!(rate(&meter) > 30_000.0, "{}", rate(&meter));
    }

    #[test]
    fn time_in_which_nothing_was_under_way_shows_no_limit() {
        let mut meter = DeviceMeter::new();
        for _ in 0..300 {
            meter.batch_done(24, 1e-4);
            meter.elapsed(0.04, 1e-3, true);
        }
        assert_eq!(meter.device().pages_per_second, None);
    }

    #[test]
    fn latency_that_varies_has_a_higher_bound() {
        let (mut even, mut uneven) = (DeviceMeter::new(), DeviceMeter::new());
        for i in 0..200 {
            even.batch_done(64, 0.02);
            uneven.batch_done(64, if i % 10 == 0 { 0.11 } else { 0.01 });
        }
        assert!(even.device().latency_bound() < 0.021);
        assert!(uneven.device().latency_bound() > 0.06);
    }
}
