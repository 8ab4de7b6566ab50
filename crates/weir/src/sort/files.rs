//! Temporary files and their names.

use super::Result;
use std::sync::Arc;
use weir_os::{Create, Disk, File, Mode};

/// How the names of temporary files begin.
pub const TEMPORARY_PREFIX: &str = "tmp-";

/// Removes temporary files that a crash has left. Call when a database is opened, before any sort.
/// Returns how many there were.
///
/// # Errors
/// What the disk says; some files may be removed.
pub fn remove_leftovers(disk: &dyn Disk) -> weir_os::Result<usize> {
    let mut names = disk.list()?;
    names.retain(|name| is_temporary(name));
    for name in &names {
        disk.remove(name)?;
    }
    if !names.is_empty() {
        disk.sync_dir()?;
    }
    Ok(names.len())
}

/// Whether a file has a name that [`TemporaryFiles`] gives.
fn is_temporary(name: &str) -> bool {
    let ends = name.strip_prefix(TEMPORARY_PREFIX).and_then(|rest| rest.rsplit_once('-'));
    ends.is_some_and(|(_, number)| number.parse::<u32>().is_ok())
}

/// The names of a sort's files; removes them when dropped.
pub(super) struct TemporaryFiles {
    disk: Arc<dyn Disk>,
    stem: String,
    numbers: Vec<u32>,
    next: u32,
}

impl TemporaryFiles {
    /// None yet; `name` is that of the sort.
    pub(super) fn new(disk: Arc<dyn Disk>, name: &str) -> TemporaryFiles {
        let stem = format!("{TEMPORARY_PREFIX}{name}");
        TemporaryFiles { disk, stem, numbers: Vec::new(), next: 0 }
    }

    fn name(&self, number: u32) -> String {
        format!("{}-{number}", self.stem)
    }

    /// Makes a file; its number.
    pub(super) fn create(&mut self) -> Result<(u32, Arc<dyn File>)> {
        let number = self.next;
        let file = self.disk.open(&self.name(number), Create::New, Mode::Direct)?;
        self.next += 1;
        self.numbers.push(number);
        Ok((number, file))
    }

    pub(super) fn open(&self, number: u32) -> Result<Arc<dyn File>> {
        Ok(self.disk.open(&self.name(number), Create::No, Mode::Direct)?)
    }

    pub(super) fn remove(&mut self, number: u32) -> Result<()> {
        self.disk.remove(&self.name(number))?;
        self.numbers.retain(|kept| *kept != number);
        Ok(())
    }
}

impl Drop for TemporaryFiles {
    fn drop(&mut self) {
        for &number in &self.numbers {
            // Whatever stays is removed when the database is opened next.
            let _ = self.disk.remove(&self.name(number));
        }
    }
}
