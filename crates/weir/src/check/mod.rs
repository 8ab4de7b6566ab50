//! Structural check of a quiet database: behind `weir check`, and behind every simulated crash.
//!
//! *Quiet*: opened, nobody else at work, nothing in flight. It proceeds from the lane directory
//! (`lanes`), which tells what undo still refers to, over the trees (`tree`), to the chains and
//! trees that wait for purge, and, if all of these are sound, to what prepared transactions have
//! written. Each page that something refers to is entered in a ledger, once; what is allocated and
//! not in the ledger at the end is lost. The store's own check closes.
//!
//! What purge or a drop may have left half done, to be begun again, is no finding: a chain that
//! waits to be freed may be shorter than its reference says, a dropped tree may lack its right
//! side.
//!
//! Memory is a few bytes per page. Pages are read through the pool, one at a time, so it may be
//! smaller than the data.

mod lanes;
#[cfg(test)]
mod tests;
mod tree;

use crate::storage::{Fault, Stop, Storage};
use std::collections::HashMap;
use std::fmt;
use weir_os::DiskError;
use weir_page::{Page, PageId, TreeId};
use weir_store::{StoreError, UNIT};

/// One thing that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The page; [`PageId::NONE`] if it isn't about one.
    pub page: PageId,
    /// Offset in the page, or slot, where there is one.
    pub place: Option<Place>,
    /// What the page belongs to: a tree with its name, a lane.
    pub owner: String,
    /// What is wrong.
    pub what: String,
}

/// Where in a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A slot of a tree page.
    Slot(usize),
    /// An offset in bytes.
    Offset(u16),
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.owner.is_empty() {
            write!(f, "{}: ", self.owner)?;
        }
        if self.page != PageId::NONE {
            write!(f, "page {}", self.page)?;
            match self.place {
                Some(Place::Slot(slot)) => write!(f, ", slot {slot}")?,
                Some(Place::Offset(at)) => write!(f, ", offset {at}")?,
                None => {}
            }
            write!(f, ": ")?;
        }
        f.write_str(&self.what)
    }
}

/// What was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    /// Trees, those that wait to be freed included.
    pub trees: u64,
    /// Leaves.
    pub leaf_pages: u64,
    /// Inner pages.
    pub inner_pages: u64,
    /// Pages of overflow chains.
    pub overflow_pages: u64,
    /// Undo pages.
    pub undo_pages: u64,
    /// Entries that are alive.
    pub entries: u64,
    /// Entries that are dead and wait for purge.
    pub dead_entries: u64,
    /// Entries, alive or dead, with a version header.
    pub versions: u64,
    /// Bytes of values in overflow chains.
    pub overflow_bytes: u64,
    /// Undo records with work that purge has not noted as done.
    pub purge_records: u64,
    /// Prepared transactions.
    pub prepared: u64,
    /// Free units of the data file, 4 KiB each.
    pub free_units: u64,
    /// Indexes not compared with rows: those of raw tables, whose rows only the caller can read;
    /// all, if something else is not sound.
    pub uncompared_indexes: u64,
    /// Findings.
    pub findings: u64,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} trees, {} leaves, {} inner pages, {} overflow pages, {} undo pages; \
             {} entries, {} dead ones, {} with versions; {} findings",
            self.trees,
            self.leaf_pages,
            self.inner_pages,
            self.overflow_pages,
            self.undo_pages,
            self.entries,
            self.dead_entries,
            self.versions,
            self.findings
        )
    }
}

/// How much is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Depth {
    /// The stored image of every page, also of those in memory.
    Images,
    /// Each page once, from memory if it is there.
    Pages,
}

/// The trees that a database uses.
#[derive(Debug, Default)]
pub struct Roots {
    /// All of them, and what to call them.
    pub trees: Vec<(TreeId, String)>,
    /// Staging trees, and where their entries are moved to.
    pub moves: HashMap<TreeId, TreeId>,
}

/// Checks everything that a quiet database holds, reads every stored image, and reports each
/// finding.
///
/// # Errors
/// What keeps the check from going on. Pages that can't be read are findings.
pub fn check(
    storage: &Storage,
    roots: &Roots,
    report: &mut dyn FnMut(Finding),
) -> Result<Summary, Fault> {
    run(storage, roots, report, Depth::Images)
}

/// As [`check`], but the images of pages in memory are not read: for many runs on small databases.
///
/// # Errors
/// As [`check`].
pub fn check_quickly(
    storage: &Storage,
    roots: &Roots,
    report: &mut dyn FnMut(Finding),
) -> Result<Summary, Fault> {
    run(storage, roots, report, Depth::Pages)
}

fn run(
    storage: &Storage,
    roots: &Roots,
    report: &mut dyn FnMut(Finding),
    depth: Depth,
) -> Result<Summary, Fault> {
    let ledger = Ledger::new(&storage.store.allocated_pages());
    let summary = Summary::default();
    let moves = &roots.moves;
    let mut check = Check { storage, report, moves, summary, ledger, damaged: false };
    let found = check.lanes()?;
    for (id, name) in &roots.trees {
        check.tree(*id, name, tree::Condition::Whole, &found)?;
    }
    check.waiting_for_purge(&roots.trees, &found)?;
    if check.summary.findings == 0 {
        check.writes_of_prepared(&found)?;
    }
    check.lost_pages();
    check.store(depth);
    let stats = storage.store.stats();
    check.summary.free_units = stats.file_bytes / UNIT as u64 - stats.used_units;
    Ok(check.summary)
}

/// For each page, what refers to it.
struct Ledger(Vec<u32>);

/// The page is not allocated.
const FREE: u32 = u32::MAX;
/// The page is allocated; nothing was found to refer to it.
const UNKNOWN: u32 = u32::MAX - 1;

impl Ledger {
    fn new(allocated: &[PageId]) -> Ledger {
        let mut pages = vec![FREE; allocated.last().map_or(0, |last| last.0 as usize + 1)];
        for page in allocated {
            pages[page.0 as usize] = UNKNOWN;
        }
        Ledger(pages)
    }

    /// Enters that `from` (0: a list outside pages) refers to `page`.
    fn enter(&mut self, page: PageId, from: PageId) -> Result<(), String> {
        match self.0.get_mut(page.0 as usize) {
            None | Some(&mut FREE) => Err("is referred to, but not allocated".into()),
            Some(known @ &mut UNKNOWN) => {
                *known = from.0;
                Ok(())
            }
            Some(&mut 0) => Err("is referred to twice".into()),
            Some(other) => Err(format!("is referred to twice, also by page {other}")),
        }
    }

    /// Whether something refers to the page.
    fn knows(&self, page: PageId) -> bool {
        self.0.get(page.0 as usize).is_some_and(|from| *from < UNKNOWN)
    }

    /// Allocated pages that nothing refers to.
    fn unknown(&self) -> impl Iterator<Item = PageId> + '_ {
        let pages = self.0.iter().enumerate();
        pages.filter(|(_, from)| **from == UNKNOWN).map(|(page, _)| PageId(page as u32))
    }
}

/// A running check.
struct Check<'a> {
    storage: &'a Storage,
    report: &'a mut dyn FnMut(Finding),
    /// Staging trees, and where their entries are moved to.
    moves: &'a HashMap<TreeId, TreeId>,
    summary: Summary,
    ledger: Ledger,
    /// Whether a page could not be followed to what it refers to.
    damaged: bool,
}

impl Check<'_> {
    fn find(&mut self, owner: &str, page: PageId, place: Option<Place>, what: impl Into<String>) {
        self.summary.findings += 1;
        (self.report)(Finding { page, place, owner: owner.into(), what: what.into() });
    }

    /// Enters a reference and returns a copy of the page; `None` after a finding.
    fn follow(
        &mut self,
        owner: &str,
        page: PageId,
        from: PageId,
    ) -> Result<Option<Box<Page>>, Fault> {
        if let Err(what) = self.ledger.enter(page, from) {
            let by = if from == PageId::NONE { String::new() } else { format!(" by page {from}") };
            self.find(owner, page, None, format!("{what}{by}"));
            return Ok(None);
        }
        self.copy(owner, page)
    }

    /// A copy of an allocated page; `None` after a finding.
    fn copy(&mut self, owner: &str, page: PageId) -> Result<Option<Box<Page>>, Fault> {
        loop {
            match self.storage.read(page, true) {
                Ok(read) => {
                    let mut copy = Page::boxed();
                    copy.0.copy_from_slice(&read.0);
                    drop(read);
                    return Ok(self.named(owner, page, copy));
                }
                Err(Stop::Retry | Stop::Astray(_)) => {}
                Err(Stop::Load(page)) => match self.storage.load(page) {
                    Ok(true) => {}
                    Ok(false) => {
                        self.damaged = true;
                        self.find(
                            owner,
                            page,
                            None,
                            "is allocated, but neither stored nor in memory",
                        );
                        return Ok(None);
                    }
                    // Another operation that fails is of the eviction of other pages.
                    Err(Fault::Store(
                        error @ (StoreError::Corrupt { .. }
                        | StoreError::Disk(DiskError { operation: "read", .. })),
                    )) => {
                        self.damaged = true;
                        self.find(owner, page, None, error.to_string());
                        return Ok(None);
                    }
                    Err(fault) => return Err(fault),
                },
            }
        }
    }

    fn named(&mut self, owner: &str, page: PageId, copy: Box<Page>) -> Option<Box<Page>> {
        if copy.id() == page {
            return Some(copy);
        }
        self.damaged = true;
        self.find(owner, page, None, format!("says that it is page {}", copy.id()));
        None
    }

    /// Reports what is allocated and not in the ledger. Where a page could not be followed, what it
    /// led to is no finding of its own.
    fn lost_pages(&mut self) {
        let lost: Vec<PageId> = self.ledger.unknown().collect();
        if self.damaged {
            if let [first, ..] = lost[..] {
                let n = lost.len();
                let what = format!("and {} more pages were not reached: see above", n - 1);
                self.find("", first, None, what);
            }
            return;
        }
        for page in lost {
            self.find("", page, None, "is allocated, but nothing refers to it");
        }
    }

    fn store(&mut self, depth: Depth) {
        let mut found = Vec::new();
        match depth {
            Depth::Images => self.storage.store.check(&mut |what| found.push(what)),
            Depth::Pages => self.storage.store.check_space(&mut |what| found.push(what)),
        }
        for what in found {
            self.find("", PageId::NONE, None, what);
        }
    }
}
