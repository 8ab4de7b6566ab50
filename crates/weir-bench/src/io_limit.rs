//! The kernel's limit of a process's I/O: so many reads and so many writes per second, however
//! large.
//!
//! It holds for whatever the process does past the page cache, whichever engine it is: what an
//! engine can't hide from. Writes that the kernel makes of the page cache later are nobody's with
//! control groups of version 1. Needs root and control groups, of either version.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor, stat};

use crate::error::{Error, Result};

const ROOT: &str = "/sys/fs/cgroup";

/// A control group that a process was put into. Dropped, the process goes back to where all are.
pub struct IoLimit {
    group: PathBuf,
    home: PathBuf,
}

/// Where control groups for block I/O are made, and whether they are of version 2.
fn controller() -> Result<(PathBuf, bool)> {
    let old = Path::new(ROOT).join("blkio");
    if old.join("blkio.throttle.read_iops_device").exists() {
        return Ok((old, false));
    }
    let new = Path::new(ROOT);
    let controllers = fs::read_to_string(new.join("cgroup.controllers")).unwrap_or_default();
    if controllers.split_whitespace().any(|name| name == "io") {
        return Ok((new.into(), true));
    }
    let what = "this machine has no control groups for block I/O: --iops can't be kept here";
    Err(Error::Usage(what.into()))
}

impl IoLimit {
    /// Checks that there can be limits at all, and removes groups of processes that are gone: who
    /// is killed leaves them behind.
    ///
    /// # Errors
    /// When there are no control groups for block I/O, or they may not be made.
    pub fn check() -> Result<()> {
        let (home, _) = controller()?;
        remove_abandoned(&home);
        let group = home.join(format!("weir-try-{}", std::process::id()));
        fs::create_dir(&group).and_then(|()| fs::remove_dir(&group)).map_err(|error| {
            Error::Usage(format!("--iops needs root: creating {}: {error}", group.display()))
        })
    }

    /// Limits the process `pid`, with all its threads, to `iops` reads and as many writes per
    /// second on the device that holds `dir`.
    ///
    /// # Errors
    /// The system's.
    pub fn new(pid: u32, dir: &Path, iops: u32) -> Result<Self> {
        let (home, is_new) = controller()?;
        let device = device_of(dir)?;
        if is_new {
            write(&home.join("cgroup.subtree_control"), "+io")?;
        }
        let group = home.join(format!("weir-{pid}"));
        fs::create_dir(&group)
            .map_err(|error| Error::io(format!("creating {}", group.display()), error))?;
        let limit = IoLimit { group, home };
        let file = |name: &str| limit.group.join(name);
        if is_new {
            write(&file("io.max"), &format!("{device} riops={iops} wiops={iops}"))?;
        } else {
            for name in ["blkio.throttle.read_iops_device", "blkio.throttle.write_iops_device"] {
                write(&file(name), &format!("{device} {iops}"))?;
            }
        }
        write(&file("cgroup.procs"), &pid.to_string())?;
        Ok(limit)
    }
}

impl Drop for IoLimit {
    fn drop(&mut self) {
        // Best effort: a group that stays behind limits nobody once its process is gone.
        let pids = fs::read_to_string(self.group.join("cgroup.procs")).unwrap_or_default();
        for pid in pids.lines() {
            let _ = write(&self.home.join("cgroup.procs"), pid);
        }
        let _ = fs::remove_dir(&self.group);
    }
}

/// Removes the groups in `home` whose process is gone. Best effort: they limit nobody.
fn remove_abandoned(home: &Path) {
    let Ok(entries) = fs::read_dir(home) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix("weir-")?.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists()) {
            // One with a process in it can't be removed.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text)
        .map_err(|error| Error::io(format!("writing `{text}` to {}", path.display()), error))
}

/// The disk that holds `dir`, as `major:minor`: limits are of disks, not of their partitions.
fn device_of(dir: &Path) -> Result<String> {
    let what = || format!("finding the device of {}", dir.display());
    let device = stat(dir).map_err(|error| Error::io(what(), error.into()))?.st_dev;
    let link = PathBuf::from(format!("/sys/dev/block/{}:{}", major(device), minor(device)));
    let mut block = fs::canonicalize(link).map_err(|error| Error::io(what(), error))?;
    if block.join("partition").exists() {
        block.pop();
    }
    let number = fs::read_to_string(block.join("dev"));
    Ok(number.map_err(|error| Error::io(what(), error))?.trim().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_processes_that_are_gone_are_removed() {
        let home = tempfile::tempdir().expect("a directory can be made");
        let groups = [format!("weir-{}", u32::MAX), format!("weir-{}", std::process::id())];
        let others = ["weir-try".to_string(), "other-1".to_string()];
        for name in groups.iter().chain(&others) {
            fs::create_dir(home.path().join(name)).expect("it can be made");
        }
        remove_abandoned(home.path());
        let is_there = |name: &String| home.path().join(name).exists();
        assert_eq!(groups.each_ref().map(is_there), [false, true]);
        assert!(others.iter().all(is_there), "those are none of ours");
    }
}
