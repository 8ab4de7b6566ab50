//! A disk that keeps in memory what is written: over nothing, or over another disk, which it only
//! reads.
//!
//! Over a directory it lets a database be opened that isn't to be changed: recovery writes what it
//! has to, and what it wrote is gone with the disk. Over nothing it is the disk of a database in
//! memory.
//!
//! - A file is what the disk beneath has under the name that it had there, in whole blocks, with
//!   the blocks over it that were written ([`content`]). Zeros take no memory, and a length none:
//!   files are as sparse as they can be.
//! - Removals, renames and new files change a table of names alone.
//! - Syncs do nothing: what is here doesn't outlive the process.
//! - The disk beneath is locked as long as this one is there: nobody else changes what it reads.

mod content;
mod file;

use crate::guard::Guard;
use crate::stats::Counters;
use crate::{
    AlignedBuf, BLOCK, Backend, Create, Disk, DiskError, DiskStats, File, Mode, Result, check_name,
    directory,
};
use content::Content;
use file::MemoryFile;
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// See the module. Its memory is [`DiskStats::memory_bytes`]; on top come some hundredths of that,
/// for finding it.
pub struct MemoryDisk {
    beneath: Option<Beneath>,
    names: Mutex<BTreeMap<String, Entry>>,
    guard: Guard,
    shared: Arc<Shared>,
}

struct Beneath {
    disk: Arc<dyn Disk>,
    _lock: Box<dyn Send + Sync>,
}

#[derive(Default)]
struct Shared {
    counters: Counters,
    memory_bytes: Arc<AtomicU64>,
}

/// What has a name.
enum Entry {
    /// The file of that name on the disk beneath, which nobody has opened yet.
    Beneath,
    Node(Arc<Node>),
}

/// A file, whatever its name is now.
struct Node {
    /// What it is over, if it is over anything.
    origin: Option<Origin>,
    content: RwLock<Content>,
}

/// A file of the disk beneath.
struct Origin {
    name: String,
    /// Whole blocks that it has.
    blocks: u64,
}

/// Opens a directory to read it: what is written is kept in memory, and nothing in the directory
/// changes. Others may do the same meanwhile; who has it open to write keeps this one out, and is
/// kept out by it.
///
/// # Errors
/// When the directory can't be read, or somebody has it open to write (`WouldBlock`).
///
/// ```
/// use weir_os::{AlignedBuf, Backend, Create, Disk, Mode, open_read_only};
/// let dir = tempfile::tempdir()?;
/// std::fs::write(dir.path().join("data"), "as it was")?;
/// let disk = open_read_only(dir.path(), Backend::Auto)?;
/// let file = disk.open("data", Create::No, Mode::Cached)?;
/// file.write(0, AlignedBuf::copy_of(b"is"))?;
/// assert_eq!(file.read(0, AlignedBuf::zeroed(9))?[..], *b"is it was");
/// assert_eq!(std::fs::read(dir.path().join("data"))?, b"as it was");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn open_read_only(path: impl AsRef<Path>, backend: Backend) -> Result<MemoryDisk> {
    MemoryDisk::over(directory::open_to_read(path.as_ref(), backend)?)
}

impl MemoryDisk {
    /// An empty one.
    pub fn new() -> MemoryDisk {
        MemoryDisk {
            beneath: None,
            names: Mutex::default(),
            guard: Guard::default(),
            shared: Arc::default(),
        }
    }

    /// One that has the files of `disk`, whose lock it takes. Nothing of what is written comes
    /// there.
    ///
    /// # Errors
    /// Those of the lock and of the list of files.
    pub fn over(disk: Arc<dyn Disk>) -> Result<MemoryDisk> {
        let lock = disk.lock()?;
        let names = disk.list()?.into_iter().map(|name| (name, Entry::Beneath)).collect();
        let beneath = Some(Beneath { disk, _lock: lock });
        Ok(MemoryDisk { beneath, names: Mutex::new(names), ..MemoryDisk::new() })
    }

    fn shown(&self, name: &str) -> String {
        format!("{}/{name}", self.place())
    }

    fn fail(&self, operation: &'static str, name: &str, reason: io::ErrorKind) -> DiskError {
        DiskError::new(operation, &self.shown(name), reason.into())
    }

    fn new_node(&self, origin: Option<Origin>) -> Node {
        let blocks = origin.as_ref().map_or(0, |origin| origin.blocks);
        let content = Content::new(blocks, self.shared.memory_bytes.clone());
        Node { origin, content: RwLock::new(content) }
    }

    /// The file that has this name.
    fn find(&self, names: &mut BTreeMap<String, Entry>, name: &str) -> Result<Option<Arc<Node>>> {
        let Some(entry) = names.get_mut(name) else { return Ok(None) };
        let node = match entry {
            Entry::Node(node) => node.clone(),
            Entry::Beneath => Arc::new(self.node_beneath(name)?),
        };
        *entry = Entry::Node(node.clone());
        Ok(Some(node))
    }

    /// A file of the disk beneath. What it has behind its last whole block is read now.
    fn node_beneath(&self, name: &str) -> Result<Node> {
        let file = self.beneath().open(name, Create::No, Mode::Cached)?;
        let len = file.len()?;
        let blocks = len / BLOCK as u64;
        let node = self.new_node(Some(Origin { name: name.to_string(), blocks }));
        let end = blocks * BLOCK as u64;
        if len > end {
            let tail = file.read(end, AlignedBuf::zeroed((len - end) as usize))?;
            let none_beneath = |_| unreachable!("the last block is no whole one");
            node.content.write().write(end, &tail, &none_beneath)?;
        }
        Ok(node)
    }

    fn beneath(&self) -> &Arc<dyn Disk> {
        &self.beneath.as_ref().expect("only a disk over another has files from there").disk
    }
}

impl Default for MemoryDisk {
    fn default() -> Self {
        MemoryDisk::new()
    }
}

impl Disk for MemoryDisk {
    fn open(&self, name: &str, create: Create, mode: Mode) -> Result<Arc<dyn File>> {
        let path = self.shown(name);
        check_name(name).map_err(|error| DiskError::new("open", &path, error))?;
        let mut names = self.names.lock();
        let node = match (self.find(&mut names, name)?, create) {
            (Some(_), Create::New) => {
                return Err(self.fail("open", name, io::ErrorKind::AlreadyExists));
            }
            (None, Create::No) => return Err(self.fail("open", name, io::ErrorKind::NotFound)),
            (Some(node), _) => node,
            (None, _) => {
                let node = Arc::new(self.new_node(None));
                names.insert(name.to_string(), Entry::Node(node.clone()));
                node
            }
        };
        drop(names);
        let open = |origin: &Origin| self.beneath().open(&origin.name, Create::No, mode);
        let beneath = node.origin.as_ref().map(open).transpose()?;
        let shared = self.shared.clone();
        Ok(Arc::new(MemoryFile { node, beneath, mode, path, shared }))
    }

    fn remove(&self, name: &str) -> Result<()> {
        check_name(name).map_err(|error| DiskError::new("remove", &self.shown(name), error))?;
        let removed = self.names.lock().remove(name);
        removed.map(drop).ok_or_else(|| self.fail("remove", name, io::ErrorKind::NotFound))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let checked = check_name(from).and_then(|()| check_name(to));
        checked.map_err(|error| DiskError::new("rename", &self.shown(from), error))?;
        let mut names = self.names.lock();
        let node = self.find(&mut names, from)?;
        let node = node.ok_or_else(|| self.fail("rename", from, io::ErrorKind::NotFound))?;
        names.remove(from);
        names.insert(to.to_string(), Entry::Node(node));
        Ok(())
    }

    fn list(&self) -> Result<Vec<String>> {
        Ok(self.names.lock().keys().cloned().collect())
    }

    fn sync_dir(&self) -> Result<()> {
        self.shared.counters.count_sync();
        Ok(())
    }

    /// No limit: nobody knows how much memory the process will get.
    fn free_bytes(&self) -> Result<u64> {
        Ok(u64::MAX)
    }

    fn lock(&self) -> Result<Box<dyn Send + Sync>> {
        let guard = self.guard.take();
        Ok(Box::new(guard.map_err(|error| DiskError::new("lock", &self.shown("lock"), error))?))
    }

    fn describe(&self) -> String {
        match &self.beneath {
            None => "in memory".to_string(),
            Some(beneath) => format!("in memory, over {}", beneath.disk.describe()),
        }
    }

    fn place(&self) -> String {
        match &self.beneath {
            None => "memory".to_string(),
            Some(beneath) => beneath.disk.place(),
        }
    }

    fn stats(&self) -> DiskStats {
        let memory_bytes = self.shared.memory_bytes.load(Ordering::Relaxed);
        DiskStats { memory_bytes, ..self.shared.counters.get() }
    }
}
