//! Files that are left behind: documents, pages.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;

use crate::error::{Error, Result};

/// Writes a file. Where there is no room for all of it, none of it is left.
///
/// # Errors
/// When it can't be written.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let write = || -> io::Result<()> {
        let mut file = File::create(path)?;
        let written = file.write_all(bytes);
        // A device or a pipe stays where it is.
        if written.is_err() && path.is_file() {
            fs::remove_file(path)?;
        }
        written
    };
    write().map_err(|error| Error::io(format!("writing {}", path.display()), error))
}

/// Writes a document as JSON, with its directory.
///
/// # Errors
/// When it can't be written.
pub fn write_json(path: &Path, document: &impl Serialize) -> Result<()> {
    let text = || -> io::Result<Vec<u8>> {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let mut text = serde_json::to_vec(document)?;
        text.push(b'\n');
        Ok(text)
    };
    let text = text().map_err(|error| Error::io(format!("writing {}", path.display()), error))?;
    write_whole(path, &text)
}
