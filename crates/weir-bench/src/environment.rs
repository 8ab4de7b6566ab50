//! Where a benchmark ran: without it, figures can't be compared.

use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// The machine, its software, and the time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// Processor model.
    pub cpu: String,
    /// Processors that this process may use, or it and a server together that has its own of them.
    pub cores: usize,
    /// Processors of the machine, whoever may use them; documents may not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_cores: Option<usize>,
    /// Physical memory, bytes.
    pub memory_bytes: u64,
    /// Kernel release.
    pub kernel: String,
    /// Operating system.
    pub system: String,
    /// File system of the database, its device and mount point.
    pub filesystem: String,
    /// Version of this benchmark.
    pub version: String,
    /// What it was built from: the commit as git describes it, with `-dirty` where something was
    /// changed.
    #[serde(default = "unknown")]
    pub build: String,
    /// Whether it was built with optimisation.
    pub optimised: bool,
    /// When it started, UTC.
    pub started: String,
}

/// The build of documents that don't tell it, and of programs that were built outside a checkout.
fn unknown() -> String {
    "unknown".into()
}

impl Environment {
    /// Looks at this machine, with the database in `dir`, or on another machine.
    pub fn look(dir: Option<&Path>) -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let info = read("/proc/cpuinfo");
        let memory = read("/proc/meminfo");
        Environment {
            cpu: value(&info, "model name", ':').unwrap_or("unknown").to_string(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            machine_cores: Some(processors(&read("/proc/stat"))).filter(|&count| count > 0),
            memory_bytes: value(&memory, "MemTotal", ':')
                .and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok())
                .map_or(0, |kilobytes| kilobytes * 1024),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_string(),
            system: value(&read("/etc/os-release"), "PRETTY_NAME", '=')
                .unwrap_or("unknown")
                .trim_matches('"')
                .to_string(),
            filesystem: dir
                .map_or("a server's".into(), |dir| filesystem(&read("/proc/self/mountinfo"), dir)),
            version: env!("CARGO_PKG_VERSION").to_string(),
            build: env!("WEIR_BUILD").to_string(),
            optimised: !cfg!(debug_assertions),
            started: utc(SystemTime::now()),
        }
    }
}

impl Environment {
    /// Of how many processors a host takes time (steal): the kernel counts it for the whole
    /// machine.
    pub fn cores_to_steal(&self) -> usize {
        self.machine_cores.unwrap_or(self.cores)
    }

    /// What keeps the figures from meaning what they seem to, if anything does.
    pub fn warnings(&self) -> Vec<&'static str> {
        let mut warnings = Vec::new();
        if !self.optimised {
            warnings.push(
                "built without optimisation: figures mean nothing; use `cargo run --release`",
            );
        }
        if ["tmpfs ", "ramfs "].iter().any(|kind| self.filesystem.starts_with(kind)) {
            warnings.push(
                "the database was in memory, on no device: choose another place with `--dir`",
            );
        }
        warnings
    }
}

/// `time` as `2024-02-29T13:05:00Z`.
pub fn utc(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    date_time(seconds as i64).replace(' ', "T") + "Z"
}

/// Seconds since 1970 as `2024-02-29 13:05:00`.
pub fn date_time(seconds: i64) -> String {
    let seconds = seconds.max(0) as u64;
    let (year, month, day) = civil(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

/// The date of a day counted from 1970-01-01, in years that begin in March (Hinnant, "chrono-
/// compatible low-level date algorithms").
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

/// How many processors `/proc/stat` has a line of.
fn processors(stat: &str) -> usize {
    let number = |line: &str| line.strip_prefix("cpu")?.split(' ').next()?.parse::<usize>().ok();
    stat.lines().filter_map(number).count()
}

fn value<'a>(text: &'a str, name: &str, separator: char) -> Option<&'a str> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(separator)?.1.trim())
}

/// The mount with the longest mount point that is a prefix of `dir`.
fn filesystem(mounts: &str, dir: &Path) -> String {
    let dir = fs::canonicalize(dir).unwrap_or_else(|_| dir.to_path_buf());
    let parse = |line: &str| {
        let (left, right) = line.split_once(" - ")?;
        let point = left.split(' ').nth(4)?.to_string();
        let mut right = right.split(' ');
        Some((point, right.next()?.to_string(), right.next()?.to_string()))
    };
    let mounts = mounts.lines().filter_map(parse);
    let longest =
        mounts.filter(|(point, ..)| dir.starts_with(point)).max_by_key(|(point, ..)| point.len());
    longest.map_or("unknown".into(), |(point, kind, device)| format!("{kind} on {device}, {point}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn times() {
        let at = |seconds| utc(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_827_696), "2000-02-29T12:34:56Z");
        assert_eq!(at(1_735_689_599), "2024-12-31T23:59:59Z");
    }

    #[test]
    fn a_host_steals_from_all_processors_of_the_machine() {
        let stat = "cpu  5 6\ncpu0 1 2\ncpu11 3 4\nintr 5\ncpufreq 7\n";
        assert_eq!(processors(stat), 2);
        let here = Environment { cores: 1, ..Environment::look(None) };
        assert!(here.cores_to_steal() >= std::thread::available_parallelism().unwrap().get());
        let untold = Environment { machine_cores: None, ..here };
        assert_eq!(untold.cores_to_steal(), 1);
    }

    #[test]
    fn documents_that_do_not_tell_their_build_are_read() {
        let here = Environment::look(None);
        assert!(!here.build.is_empty());
        let mut json = serde_json::to_value(&here).expect("it has a form");
        json.as_object_mut().expect("it has fields").remove("build").expect("it tells one");
        let read: Environment = serde_json::from_value(json).expect("it is a place");
        assert_eq!(read, Environment { build: "unknown".into(), ..here });
    }

    #[test]
    fn figures_without_a_device_are_warned_of() {
        let on = |filesystem: &str| {
            let filesystem = filesystem.to_string();
            let here = Environment { filesystem, optimised: true, ..Environment::look(None) };
            here.warnings().join("; ")
        };
        assert!(on("tmpfs on tmpfs, /dev/shm").contains("in memory"));
        assert_eq!(on("ext4 on /dev/vda, /") + &on("a server's"), "");
        let unoptimised = Environment { optimised: false, ..Environment::look(None) };
        assert!(unoptimised.warnings()[0].contains("without optimisation"));
    }

    #[test]
    fn longest_mount_point_wins() {
        let mounts =
            "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 0:9 / /nowhere rw shared:1 - tmpfs tmpfs rw";
        assert_eq!(filesystem(mounts, Path::new("/nowhere/x")), "tmpfs on tmpfs, /nowhere");
        assert_eq!(filesystem(mounts, Path::new("/else")), "ext4 on /dev/sda1, /");
    }
}
