//! A run: sorted records in a temporary file, as a stream cut into blocks.
//!
//! A block is [`BLOCK_BYTES`] long: CRC-32C of what follows (u32), payload bytes used (u32), number
//! of the run (u32), number of the block (u32), payload. All little-endian. The numbers tell a
//! block that was lost or went astray from the one wanted. Records follow one another through the
//! payloads, across block ends: length of key and of value as LEB128, key, value.

use super::arena::key_head;
use super::{Result, SortError};
use std::mem;
use std::sync::Arc;
use weir_os::{AlignedBuf, File};
use weir_page::varint;

/// Bytes of a block in the file.
pub(super) const BLOCK_BYTES: usize = 32 << 10;
const HEADER: usize = 16;

/// A finished run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    pub(super) number: u32,
    pub(super) blocks: u32,
    records: u64,
}

pub(super) struct RunWriter {
    file: Arc<dyn File>,
    run: Run,
    buf: AlignedBuf,
    /// Start of the block being filled, and end of its payload, in `buf`.
    block: usize,
    end: usize,
    offset: u64,
    lengths: Vec<u8>,
}

impl RunWriter {
    pub(super) fn new(number: u32, file: Arc<dyn File>, write_bytes: usize) -> Self {
        assert!(write_bytes >= BLOCK_BYTES && write_bytes.is_multiple_of(BLOCK_BYTES));
        RunWriter {
            file,
            run: Run { number, blocks: 0, records: 0 },
            buf: AlignedBuf::zeroed(write_bytes),
            block: 0,
            end: HEADER,
            offset: 0,
            lengths: Vec::with_capacity(20),
        }
    }

    pub(super) fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let mut lengths = mem::take(&mut self.lengths);
        lengths.clear();
        varint::put(&mut lengths, key.len() as u64);
        varint::put(&mut lengths, value.len() as u64);
        for bytes in [&lengths, key, value] {
            self.append(bytes)?;
        }
        self.lengths = lengths;
        self.run.records += 1;
        Ok(())
    }

    fn append(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            if self.end == self.block + BLOCK_BYTES {
                self.seal_block();
                if self.block == self.buf.len() {
                    self.write()?;
                }
            }
            let n = bytes.len().min(self.block + BLOCK_BYTES - self.end);
            self.buf[self.end..self.end + n].copy_from_slice(&bytes[..n]);
            self.end += n;
            bytes = &bytes[n..];
        }
        Ok(())
    }

    fn seal_block(&mut self) {
        let used = (self.end - self.block - HEADER) as u32;
        let block = &mut self.buf[self.block..self.end];
        block[4..8].copy_from_slice(&used.to_le_bytes());
        block[8..12].copy_from_slice(&self.run.number.to_le_bytes());
        block[12..16].copy_from_slice(&self.run.blocks.to_le_bytes());
        let crc = crc32c::crc32c(&block[4..]);
        block[..4].copy_from_slice(&crc.to_le_bytes());
        self.run.blocks = self.run.blocks.checked_add(1).expect("a run is below 128 TiB");
        self.block += BLOCK_BYTES;
        self.end = self.block + HEADER;
    }

    /// Writes the sealed blocks.
    fn write(&mut self) -> Result<()> {
        let mut buf = mem::replace(&mut self.buf, AlignedBuf::zeroed(0));
        let capacity = buf.len();
        buf.set_len(self.block);
        let mut buf = self.file.write(self.offset, buf)?;
        buf.set_len(capacity);
        self.buf = buf;
        self.offset += self.block as u64;
        (self.block, self.end) = (0, HEADER);
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<Run> {
        self.seal_block();
        self.write()?;
        Ok(self.run)
    }
}

pub(super) struct RunReader {
    file: Arc<dyn File>,
    run: Run,
    buf: AlignedBuf,
    /// Rest of the current block's payload in `buf`.
    from: usize,
    to: usize,
    /// Start of the next block in `buf`, and its number in the run.
    block: usize,
    block_next: u32,
    records_left: u64,
    record: Vec<u8>,
    key_len: usize,
    head: u64,
}

impl RunReader {
    /// Opens a run; there is no record before the first [`RunReader::advance`].
    pub(super) fn new(run: Run, file: Arc<dyn File>, read_bytes: usize) -> Result<Self> {
        assert!(read_bytes >= BLOCK_BYTES && read_bytes.is_multiple_of(BLOCK_BYTES));
        let read_bytes = read_bytes.min(run.blocks as usize * BLOCK_BYTES);
        Ok(RunReader {
            file,
            run,
            buf: AlignedBuf::zeroed(read_bytes),
            from: 0,
            to: 0,
            block: read_bytes,
            block_next: 0,
            records_left: run.records,
            record: Vec::new(),
            key_len: 0,
            head: 0,
        })
    }

    /// The current record.
    pub(super) fn record(&self) -> (&[u8], &[u8]) {
        self.record.split_at(self.key_len)
    }

    /// What the current record is ordered by.
    pub(super) fn order(&self) -> (u64, &[u8]) {
        (self.head, &self.record[..self.key_len])
    }

    /// Reads the next record; `false` at the end of the run.
    pub(super) fn advance(&mut self) -> Result<bool> {
        if self.records_left == 0 {
            return Ok(false);
        }
        self.records_left -= 1;
        self.key_len = self.length()?;
        let len = self.key_len + self.length()?;
        self.record.clear();
        self.record.reserve_exact(len);
        while self.record.len() < len {
            self.fill()?;
            let n = (len - self.record.len()).min(self.to - self.from);
            self.record.extend_from_slice(&self.buf[self.from..self.from + n]);
            self.from += n;
        }
        self.head = key_head(&self.record[..self.key_len]);
        Ok(true)
    }

    fn length(&mut self) -> Result<usize> {
        let mut length = 0;
        for shift in (0..u32::BITS).step_by(7) {
            self.fill()?;
            let byte = self.buf[self.from];
            self.from += 1;
            length |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(length as usize);
            }
        }
        Err(self.corrupt("a record's length is malformed"))
    }

    /// Makes sure that at least one payload byte is there.
    fn fill(&mut self) -> Result<()> {
        while self.from == self.to {
            if self.block_next == self.run.blocks {
                return Err(self.corrupt("the run ends within a record"));
            }
            if self.block == self.buf.len() {
                self.read()?;
            }
            self.open_block()?;
        }
        Ok(())
    }

    fn read(&mut self) -> Result<()> {
        let blocks_left = (self.run.blocks - self.block_next) as usize;
        let mut buf = mem::replace(&mut self.buf, AlignedBuf::zeroed(0));
        buf.set_len(buf.len().min(blocks_left.saturating_mul(BLOCK_BYTES)));
        self.buf = self.file.read(u64::from(self.block_next) * BLOCK_BYTES as u64, buf)?;
        self.block = 0;
        Ok(())
    }

    fn open_block(&mut self) -> Result<()> {
        let block = &self.buf[self.block..self.block + BLOCK_BYTES];
        let word =
            |at: usize| u32::from_le_bytes(block[at..at + 4].try_into().expect("four bytes"));
        let used = word(4) as usize;
        if used > BLOCK_BYTES - HEADER {
            return Err(self.corrupt("a block's length is malformed"));
        }
        if crc32c::crc32c(&block[4..HEADER + used]) != word(0) {
            return Err(self.corrupt("a block's checksum does not match"));
        }
        if (word(8), word(12)) != (self.run.number, self.block_next) {
            return Err(self.corrupt("a block of another place was found"));
        }
        self.from = self.block + HEADER;
        self.to = self.from + used;
        self.block += BLOCK_BYTES;
        self.block_next += 1;
        Ok(())
    }

    #[cold]
    fn corrupt(&self, what: &'static str) -> SortError {
        let offset = u64::from(self.block_next) * BLOCK_BYTES as u64;
        SortError::Corrupt { file: self.file.name().to_string(), offset, what }
    }
}
