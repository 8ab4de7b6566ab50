//! Giving space back to the file system.

use crate::error::Result;
use crate::extent::UNIT;
use crate::space::no_space;
use crate::store::Store;
use std::io::ErrorKind;
use std::sync::atomic::Ordering;

impl Store {
    /// Cuts the free tail of the data file off and punches its large free runs, but for some slack.
    /// Only free units are touched: nothing durable refers to them once the log is replayed.
    ///
    /// # Errors
    /// `NoSpace` for what the file system notes of a hole, `Disk`: the space stays with the file;
    /// nothing else changed. `Poisoned`.
    pub fn trim(&self) -> Result<()> {
        self.assert_recovered();
        let _growth = self.growth.lock();
        self.check_poison()?;
        let kept = self.kept_places.load(Ordering::Relaxed);
        let cut = self.space.lock().cut_tail(kept);
        if let Some(units) = cut {
            self.data.set_len(units * UNIT as u64)?;
        }
        let mut walk = self.space.lock().punch_walk(kept);
        let mut changed = cut.is_some();
        loop {
            let Some((start, units)) = self.space.lock().take_to_punch(&mut walk) else { break };
            let punched = self.data.punch(start * UNIT as u64, units * UNIT as u64);
            let mut space = self.space.lock();
            match punched {
                Ok(()) => {
                    space.punched(start, units);
                    changed = true;
                }
                Err(error) => {
                    space.not_punched(start, units);
                    return match error.kind() {
                        // A hole may need space of its own.
                        ErrorKind::StorageFull => no_space(self.data.name(), 1),
                        _ => Err(error.into()),
                    };
                }
            }
        }
        match changed {
            true => self.sync_data(),
            false => Ok(()),
        }
    }
}
