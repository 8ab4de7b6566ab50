//! What the log tells before it is applied: where it ends, where images are, which pages lag behind
//! it.

use super::table::Table;
use super::{Fault, OnProgress, Progress};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_os::Disk;
use weir_page::varint::Input;
use weir_page::{Before, Logged, Lsn, PageId, Redo, TxnId};
use weir_redo::Reader;
use weir_store::{Control, Store};

/// Groups between two reports of progress.
const REPORT_EVERY: u64 = 1 << 16;

/// What the log tells of a page.
pub(super) struct Lag {
    pub page: PageId,
    /// Records up to here are in the image that is stored, or don't matter: the page was freed or
    /// made anew later.
    pub done: Lsn,
    /// Its last record.
    pub last: Lsn,
    freed: bool,
    /// It needs no image: a record makes it anew, and no frame with a change of it was ever
    /// written.
    pub blank: AtomicBool,
}

impl Lag {
    fn of(page: PageId) -> Lag {
        let (done, last, freed, blank) = (Lsn(0), Lsn(0), false, AtomicBool::new(false));
        Lag { page, done, last, freed, blank }
    }

    /// Whether records of it have to be applied.
    pub fn is_behind(&self) -> bool {
        !self.freed && self.last > self.done
    }
}

pub(super) struct Analysis {
    pub lags: Vec<Lag>,
    pub end: Lsn,
    pub next_txn: TxnId,
}

/// Reads the log from the checkpoint to its end; from the table on, if there is one.
pub(super) fn analyse(
    disk: &Arc<dyn Disk>,
    store: &Store,
    control: &Control,
    table: Option<Table>,
    on_progress: &OnProgress,
) -> Result<Analysis, Fault> {
    let table = table.unwrap_or_else(|| Table { at: control.checkpoint, ..Table::default() });
    let (from, durable) = (table.at, control.durable.max(table.durable));
    let mut reader = Reader::open(disk.clone(), control.database_id, from)?.durable_hint(durable);
    let mut lags = Lags { store, lags: Vec::with_capacity(2 * table.pages.len()) };
    table.pages.iter().for_each(|&(page, last)| lags.add(page, last));
    let mut next_txn = control.next_txn_id.max(table.next_txn);
    let mut groups = 0u64;
    while let Some(group) = reader.next()? {
        let lsn = group.start;
        for_each_record(lsn, group.payload, &mut |logged| {
            if let Some(txn) = transaction(&logged.redo) {
                next_txn = next_txn.max(TxnId(txn.0 + 1));
            }
            lags.note(lsn, &logged.redo)
        })?;
        groups += 1;
        if groups.is_multiple_of(REPORT_EVERY) {
            on_progress.tell(Progress { phase: "analysis", from, at: lsn, end: None });
        }
    }
    let end = reader.end().unwrap_or(reader.position());
    Ok(Analysis { lags: lags.lags, end, next_txn })
}

/// The transaction that a record names.
fn transaction(redo: &Redo<'_>) -> Option<TxnId> {
    match *redo {
        Redo::Write(w) => Some(w.txn),
        Redo::UndoTail { txn, .. } | Redo::UndoInit { txn, .. } => Some(txn),
        Redo::UndoPush { first, .. } => first,
        _ => None,
    }
}

struct Lags<'s> {
    store: &'s Store,
    lags: Vec<Lag>,
}

impl Lags<'_> {
    /// That of a page, made if there is none.
    fn of(&mut self, page: PageId) -> &mut Lag {
        let tag = &self.store.map().slot(page).tag;
        let number = match tag.load(Ordering::Relaxed) as usize {
            0 => {
                self.lags.push(Lag::of(page));
                tag.store(self.lags.len() as u32, Ordering::Relaxed);
                self.lags.len()
            }
            number => number,
        };
        &mut self.lags[number - 1]
    }

    /// A page that was dirty.
    fn add(&mut self, page: PageId, last: Lsn) {
        let has_image = self.store.map().slot(page).extent().is_some();
        let lag = self.of(page);
        lag.last = last;
        *lag.blank.get_mut() = !has_image;
        self.store.recover_allocated(page);
    }

    fn note(&mut self, lsn: Lsn, redo: &Redo<'_>) -> Result<(), Fault> {
        match *redo {
            Redo::Relocate { moves } => {
                for moved in weir_store::decode_relocations(moves)? {
                    let lag = self.of(moved.page);
                    if lag.freed {
                        continue;
                    }
                    if moved.page_lsn > lag.done {
                        lag.done = moved.page_lsn;
                        *lag.blank.get_mut() = false;
                    }
                    self.store.recover_relocation(&moved, lsn);
                }
            }
            Redo::Free { page } => {
                let lag = self.of(page);
                (lag.done, lag.freed) = (lsn, true);
                self.store.recover_free(page, lsn);
            }
            _ if redo.initialises() => {
                let page = redo.page().expect("only a page can be initialised");
                let lag = self.of(page);
                (lag.last, lag.freed) = (lsn, false);
                lag.done = lag.done.max(Lsn(lsn.0 - 1));
                *lag.blank.get_mut() = true;
                self.store.recover_allocated(page);
            }
            _ => {
                for page in redo.page().into_iter().chain(redo.second_page()) {
                    self.of(page).last = lsn;
                }
            }
        }
        Ok(())
    }
}

/// Calls `each` for every record of a group.
///
/// # Errors
/// Those of `each`; [`Fault::Record`] if the bytes are no records.
pub fn for_each_record(
    lsn: Lsn,
    payload: &[u8],
    each: &mut dyn FnMut(&Logged<'_>) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let (mut rest, mut before) = (payload, Before::default());
    loop {
        let mut scratch = Vec::new();
        let mut input = Input::new(rest);
        let logged = Redo::decode(&mut input, &mut before, &mut scratch)
            .map_err(|e| Fault::Record { lsn, what: e.to_string() })?;
        let Some(logged) = logged else { return Ok(()) };
        let left = input.rest().len();
        each(&logged)?;
        rest = &rest[rest.len() - left..];
    }
}
