//! What survives a power cut.
//!
//! A [`CrashProfile`] says which unsynced operations reached the medium. All choices come from one
//! seeded generator, so a seed repeats its crash.

use super::inode::{Length, Version};

/// Bytes that the device writes whole or not at all.
pub const SECTOR: usize = 512;

/// Which of the unsynced changes of a file, or of the directory, survive a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrashProfile {
    /// Everything written.
    All,
    /// Only what was synced.
    Nothing,
    /// Each sector independently: its durable content or any written to it since.
    Sectors,
    /// Each operation wholly or not at all.
    Operations,
    /// All operations up to a point in time; the one at that point torn at sectors.
    Prefix {
        /// Number of the operation at that point.
        last: u64,
    },
    /// All operations but one.
    AllBut {
        /// Number of the operation that is lost.
        lost: u64,
    },
}

impl CrashProfile {
    /// A profile for one file, by the generator; `unsynced` are the operations to choose from.
    pub(super) fn random(rng: &mut fastrand::Rng, unsynced: &[u64]) -> Self {
        let Some(&operation) =
            (!unsynced.is_empty()).then(|| &unsynced[rng.usize(..unsynced.len())])
        else {
            return CrashProfile::All;
        };
        match rng.u8(..6) {
            0 => CrashProfile::All,
            1 => CrashProfile::Nothing,
            2 => CrashProfile::Sectors,
            3 => CrashProfile::Operations,
            4 => CrashProfile::Prefix { last: operation },
            _ => CrashProfile::AllBut { lost: operation },
        }
    }
}

/// Makes the choices for one file.
pub(super) struct Chooser<'a> {
    profile: CrashProfile,
    rng: &'a mut fastrand::Rng,
    /// For [`CrashProfile::Operations`]: key and share (of 256) of the survivors.
    key: u64,
    share: u64,
}

impl<'a> Chooser<'a> {
    pub(super) fn new(profile: CrashProfile, rng: &'a mut fastrand::Rng) -> Self {
        let (key, share) = (rng.u64(..), [16, 64, 128, 192, 240][rng.usize(..5)]);
        Chooser { profile, rng, key, share }
    }

    /// Whether an operation on names survives.
    pub(super) fn survives(&mut self, seq: u64) -> bool {
        match self.profile {
            CrashProfile::All => true,
            CrashProfile::Nothing => false,
            CrashProfile::Sectors => self.rng.bool(),
            CrashProfile::Operations => {
                fastrand::Rng::with_seed(self.key ^ seq).u64(..256) < self.share
            }
            CrashProfile::Prefix { last } => seq < last || (seq == last && self.rng.bool()),
            CrashProfile::AllBut { lost } => seq != lost,
        }
    }

    /// Index of the version found in a sector; `None` for the durable content.
    pub(super) fn version(&mut self, sector: usize, versions: &[Version]) -> Option<usize> {
        let covers = |v: &Version| v.mask & (1 << sector) != 0;
        if self.profile == CrashProfile::Sectors {
            let count = versions.iter().filter(|v| covers(v)).count();
            let chosen = self.rng.usize(..=count).checked_sub(1)?;
            return versions.iter().enumerate().filter(|(_, v)| covers(v)).nth(chosen).map(|x| x.0);
        }
        (0..versions.len()).rev().find(|&i| covers(&versions[i]) && self.survives(versions[i].seq))
    }

    /// The length found.
    pub(super) fn length(&mut self, durable: u64, present: u64, lens: &[Length]) -> u64 {
        match self.profile {
            CrashProfile::All => present,
            CrashProfile::Sectors => {
                let chosen = self.rng.usize(..=lens.len()).checked_sub(1);
                chosen.map_or(durable, |i| lens[i].len)
            }
            _ => {
                let survivor = lens.iter().rev().find(|length| self.survives(length.seq));
                survivor.map_or(durable, |length| length.len)
            }
        }
    }
}
