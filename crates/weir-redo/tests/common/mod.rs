//! A log with a model of what it must hold, for the crash and fault tests.

#![allow(dead_code, reason = "each test uses its part")]

use std::sync::Arc;

use weir_os::SimDisk;
use weir_page::Lsn;
use weir_redo::{Admission, Reader, Redo, RedoError, RedoOptions, Refused, remove_all, sync_all};

pub const DATABASE: u64 = 0xfeed;

/// What was appended, and what the caller was promised.
#[derive(Clone)]
pub struct Model {
    pub o: RedoOptions,
    pub rng: fastrand::Rng,
    /// Start, end and payload of every group that may still be in the log.
    pub groups: Vec<(Lsn, Lsn, Vec<u8>)>,
    /// The control file's checkpoint.
    pub checkpoint: Lsn,
    pub durable: Lsn,
    pub written: Lsn,
    /// All payloads have this length, so that stale groups start where new ones end.
    pub fixed: Option<usize>,
    pub created: bool,
}

impl Model {
    pub fn new(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let segment_bytes = 4096 * rng.u64(1..6);
        let o = RedoOptions {
            capacity_bytes: segment_bytes * rng.u64(4..8),
            segment_bytes,
            buffer_bytes: 4096 << rng.u32(0..4),
            database_id: DATABASE,
        };
        let start = Lsn(segment_bytes);
        let fixed = rng.bool().then(|| rng.choice([56, 504, 250, 1016, 4088]).expect("not empty"));
        Model {
            o,
            rng,
            groups: Vec::new(),
            checkpoint: start,
            durable: start,
            written: start,
            fixed,
            created: false,
        }
    }

    /// Creates the log, or recovers it as an engine would, checking what is read.
    pub fn open(&mut self, disk: &SimDisk, least: Lsn) -> Result<Redo, RedoError> {
        if !self.created {
            remove_all(disk)?;
            let redo = Redo::create(Arc::new(disk.clone()), &self.o)?;
            self.created = true;
            return Ok(redo);
        }
        let end = self.read(disk, least)?;
        sync_all(disk)?;
        let redo = Redo::open_at(Arc::new(disk.clone()), &self.o, self.checkpoint, end)?;
        assert_eq!(redo.durable(), end);
        self.groups.retain(|(_, e, _)| *e <= end);
        self.note(&redo);
        Ok(redo)
    }

    /// Reads the log; everything found must be what was appended, and everything before `least` be
    /// found.
    pub fn read(&self, disk: &SimDisk, least: Lsn) -> Result<Lsn, RedoError> {
        let mut reader =
            Reader::open(Arc::new(disk.clone()), DATABASE, self.checkpoint)?.durable_hint(least);
        let mut expected = self.groups.iter().skip_while(|(s, _, _)| *s < self.checkpoint);
        let mut at = self.checkpoint;
        while let Some(group) = reader.next()? {
            let (start, end, payload) = expected.next().expect("no group that nobody appended");
            assert_eq!((group.start, group.end), (*start, *end), "not where it was appended");
            assert_eq!(group.start, at, "contiguous");
            at = group.end;
            let (found, padding) = group.payload.split_at(payload.len());
            assert!(found == payload && padding.iter().all(|&b| b == 0), "bytes of {start}");
        }
        assert_eq!(reader.end(), Some(at));
        assert!(at >= least, "{at} {least}");
        Ok(at)
    }

    pub fn note(&mut self, redo: &Redo) {
        self.durable = redo.durable();
        self.written = redo.written();
    }

    /// One random operation.
    pub fn step(&mut self, redo: &Redo) -> Result<(), RedoError> {
        let result = self.step_inner(redo);
        self.note(redo);
        result
    }

    fn step_inner(&mut self, redo: &Redo) -> Result<(), RedoError> {
        match self.rng.u8(..100) {
            0..70 => self.append(redo),
            70..80 => redo.write_step(false).map(drop),
            80..84 => redo.write_step(true).map(drop),
            84..90 => {
                let end = self.groups.last().map_or(redo.reserved(), |g| g.1);
                redo.wait_durable(end)?;
                assert!(redo.durable() >= end);
                Ok(())
            }
            90..93 => redo.wait_written(redo.reserved()),
            93..98 => self.advance(redo),
            _ => {
                // Now and then so much that its segments become longer.
                let most = if self.rng.u8(..4) == 0 { 150 } else { 12 };
                let bytes = redo.segment_bytes() * self.rng.u64(2..most);
                let capacity = redo.set_capacity(bytes)?;
                assert_eq!(capacity, redo.capacity());
                self.o.capacity_bytes = capacity;
                Ok(())
            }
        }
    }

    fn append(&mut self, redo: &Redo) -> Result<(), RedoError> {
        let len = self.fixed.unwrap_or_else(|| match self.rng.u8(..10) {
            0 => self.rng.usize(..3000),
            _ => self.rng.usize(..200),
        });
        let payload: Vec<u8> = (0..len).map(|_| self.rng.u8(..)).collect();
        let class = if self.rng.bool() { Admission::User } else { Admission::System };
        let credit = match redo.try_admit(len + self.rng.usize(..40), class) {
            Ok(credit) => credit,
            Err(Refused::Buffer) => return redo.write_step(false).map(drop),
            Err(Refused::Capacity) => {
                redo.write_step(true)?;
                return self.advance(redo);
            }
            Err(Refused::Poisoned) => return redo.check(),
        };
        let appended = redo.append(credit, &payload);
        self.groups.push((appended.start, appended.end, payload));
        Ok(())
    }

    /// Moves the checkpoint to a random durable group.
    fn advance(&mut self, redo: &Redo) -> Result<(), RedoError> {
        let durable = redo.durable();
        let old = self.checkpoint;
        let choices: Vec<Lsn> =
            self.groups.iter().map(|g| g.1).filter(|e| (old..=durable).contains(e)).collect();
        if let Some(to) = self.rng.choice(choices) {
            self.checkpoint = to;
            redo.set_checkpoint(to)?;
            self.groups.retain(|g| g.0 >= to);
        }
        Ok(())
    }
}
