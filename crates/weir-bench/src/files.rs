//! Files that are left behind: documents, pages; and directories that aren't.

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::error::{Error, Result};

/// Writes a file. Where there is no room for all of it, none of it is left, and what was there
/// stays.
///
/// # Errors
/// When it can't be written.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    // A device, a pipe or a link is written to, not replaced.
    let is_other = path.symlink_metadata().is_ok_and(|data| !data.is_file());
    let written = if is_other { fs::write(path, bytes) } else { replace(path, bytes) };
    written.map_err(|error| Error::io(format!("writing {}", path.display()), error))
}

fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let all = Permissions::from_mode(0o666);
    let new = tempfile::Builder::new().prefix(".weir-").permissions(all).tempfile_in(dir);
    match new {
        Ok(mut new) => {
            new.as_file_mut().write_all(bytes)?;
            new.persist(path)?;
            Ok(())
        }
        // In somebody else's directory a file may be ours.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => fs::write(path, bytes),
        Err(error) => Err(error),
    }
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

/// A directory, made with those above it where they weren't there. Dropped, what was made goes
/// again, as far as nothing is in it.
#[derive(Debug)]
pub struct MadeDir {
    path: PathBuf,
    /// What was made, the deepest first.
    made: Vec<PathBuf>,
}

impl MadeDir {
    /// Makes it, if it isn't there.
    ///
    /// # Errors
    /// When it can't be made; nothing of it is left then.
    pub fn new(path: &Path) -> io::Result<Self> {
        // A file's directory may have no name: that is the current one.
        let is_missing = |dir: &&Path| !dir.as_os_str().is_empty() && !dir.exists();
        let made = path.ancestors().take_while(is_missing).map(Path::to_path_buf).collect();
        let dir = MadeDir { path: path.to_path_buf(), made };
        fs::create_dir_all(&dir.path)?;
        Ok(dir)
    }

    /// A directory of its own among the system's temporary files.
    ///
    /// # Errors
    /// When it can't be made.
    pub fn temporary(prefix: &str) -> io::Result<Self> {
        let path = tempfile::Builder::new().prefix(prefix).tempdir()?.keep();
        Ok(MadeDir { made: vec![path.clone()], path })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// It stays, whatever is in it.
    pub fn keep(mut self) -> Self {
        self.made.clear();
        self
    }

    /// Whether it wasn't there before.
    pub fn is_new(&self) -> bool {
        !self.made.is_empty()
    }
}

impl AsRef<Path> for MadeDir {
    fn as_ref(&self) -> &Path {
        &self.path
    }
}

impl Drop for MadeDir {
    fn drop(&mut self) {
        // Somebody else may use those above by now.
        self.made.iter().take_while(|dir| fs::remove_dir(dir).is_ok()).for_each(drop);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_made_goes_again_and_what_was_there_stays() {
        let home = tempfile::tempdir().unwrap();
        let place = |name: &str| home.path().join(name);
        drop(MadeDir::new(&place("a/b/c")).unwrap());
        assert!(!place("a").exists());
        fs::create_dir(place("there")).unwrap();
        let dir = MadeDir::new(&place("there")).unwrap();
        assert!(!dir.is_new());
        drop(dir);
        let used = MadeDir::new(&place("there/far/used")).unwrap();
        assert!(used.is_new());
        fs::write(place("there/far/other"), "x").unwrap();
        drop(used);
        assert!(place("there/far/other").exists() && !place("there/far/used").exists());
        fs::write(place("file"), "x").unwrap();
        MadeDir::new(&place("file/dir")).unwrap_err();
    }
}
