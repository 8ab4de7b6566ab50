//! An open file of a disk in memory.

use super::content::{Content, ReadBeneath, blocks_of};
use super::{Node, Shared};
use crate::{AlignedBuf, BLOCK, DiskError, File, Io, Mode, Result, check_aligned, check_punch};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// A handle; its file lives at least as long.
pub(super) struct MemoryFile {
    pub node: Arc<Node>,
    /// The file that it is over, if it is over one.
    pub beneath: Option<Arc<dyn File>>,
    pub mode: Mode,
    pub path: String,
    pub shared: Arc<Shared>,
}

/// An operation of a batch.
enum Step {
    /// For memory alone.
    Own(Io),
    /// A read whose first part is asked of the file beneath.
    Fetched { offset: u64, len: usize },
}

impl MemoryFile {
    fn fail(&self, operation: &'static str, error: io::Error) -> DiskError {
        DiskError::new(operation, &self.path, error)
    }

    /// Tells reads of which the file beneath has a part from all else, up to one that fails: all of
    /// those at once.
    fn plan(&self, batch: Vec<Io>) -> (Vec<Step>, Vec<Io>) {
        let blocks_beneath = self.node.origin.as_ref().map_or(0, |origin| origin.blocks);
        let content = self.node.content.read();
        let (mut steps, mut reads) = (Vec::with_capacity(batch.len()), Vec::new());
        let mut fails = false;
        for op in batch {
            let Io::Read { offset, mut buf } = op else {
                steps.push(Step::Own(op));
                continue;
            };
            let len = buf.len();
            fails |= offset + len as u64 > content.len();
            if fails || !content.needs_beneath(&blocks_of(offset, len)) {
                steps.push(Step::Own(Io::Read { offset, buf }));
                continue;
            }
            let beneath = blocks_beneath * BLOCK as u64 - offset;
            buf.set_len(len.min(usize::try_from(beneath).unwrap_or(len)));
            reads.push(Io::Read { offset, buf });
            steps.push(Step::Fetched { offset, len });
        }
        (steps, reads)
    }

    fn read_over(&self, offset: u64, mut buf: AlignedBuf) -> Result<AlignedBuf> {
        if self.node.content.read().read_over(offset, &mut buf) {
            return Ok(buf);
        }
        let past = io::Error::new(io::ErrorKind::UnexpectedEof, "the range ends past the file");
        Err(self.fail("read", past).at(offset))
    }

    /// Changes the content, which may need a block from beneath.
    fn change(
        &self,
        change: impl FnOnce(&mut Content, &ReadBeneath<'_>) -> Result<()>,
    ) -> Result<()> {
        let read = |block| {
            let file = self.beneath.as_ref().expect("what is seen beneath is in a file");
            file.read(block * BLOCK as u64, AlignedBuf::zeroed(BLOCK))
        };
        change(&mut self.node.content.write(), &read)
    }
}

impl File for MemoryFile {
    fn run(&self, batch: Vec<Io>) -> Result<Vec<AlignedBuf>> {
        for op in &batch {
            check_aligned(op, self.mode).map_err(|e| self.fail(op.name(), e).at(op.offset()))?;
        }
        self.shared.counters.count(&batch);
        let (steps, mut fetched) = match &self.beneath {
            None => (batch.into_iter().map(Step::Own).collect(), Vec::new().into_iter()),
            Some(beneath) => {
                let (steps, reads) = self.plan(batch);
                let fetched = if reads.is_empty() { Vec::new() } else { beneath.run(reads)? };
                (steps, fetched.into_iter())
            }
        };
        let run = |step| match step {
            Step::Own(Io::Read { offset, buf }) => self.read_over(offset, buf),
            Step::Own(Io::Write { offset, buf }) => {
                self.change(|content, beneath| content.write(offset, &buf, beneath))?;
                Ok(buf)
            }
            Step::Fetched { offset, len } => {
                let mut buf = fetched.next().expect("a batch returns its buffers");
                buf.set_len(len);
                self.read_over(offset, buf)
            }
        };
        steps.into_iter().map(run).collect()
    }

    fn len(&self) -> Result<u64> {
        Ok(self.node.content.read().len())
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        self.change(|content, beneath| content.set_len(bytes, beneath))
    }

    fn punch(&self, offset: u64, bytes: u64) -> Result<()> {
        check_punch(offset, bytes).map_err(|error| self.fail("punch", error).at(offset))?;
        let block = |offset: u64| offset / BLOCK as u64;
        self.node.content.write().punch(block(offset)..block(offset + bytes));
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.shared.counters.count_sync();
        Ok(())
    }

    fn forget(&self, offset: u64, bytes: u64) {
        if let Some(beneath) = &self.beneath {
            beneath.forget(offset, bytes);
        }
    }

    fn name(&self) -> &str {
        &self.path
    }

    fn renamed(&self, name: &str) -> Arc<dyn File> {
        let path = Path::new(&self.path).with_file_name(name).display().to_string();
        let MemoryFile { node, beneath, mode, shared, .. } = self;
        let (node, beneath, shared) = (node.clone(), beneath.clone(), shared.clone());
        Arc::new(MemoryFile { node, beneath, mode: *mode, path, shared })
    }
}
