//! A file under a name of its own until it is whole.
//!
//! Who writes over a file may write into somebody else's, through a link, and leaves half of it where the disk is full.
//! So the new file is made beside, and gets its name at the end; what has not become whole is removed.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The file, which only its owner may read.
#[derive(Debug)]
pub struct NewFile {
    path: PathBuf,
}

/// What could not be done with a file of which name, and why.
#[derive(Debug)]
pub struct NotDone {
    /// Its name.
    pub path: PathBuf,
    /// A participle: "made".
    pub what: &'static str,
    /// Why not.
    pub source: io::Error,
}

impl NewFile {
    /// Makes it, empty, in this folder; `of`: the name that it is to get.
    ///
    /// # Errors
    /// It can't be made there.
    pub fn make(folder: &Path, of: &Path) -> Result<NewFile, NotDone> {
        let name = of.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let path = folder.join(format!(".{name}.{}.new", std::process::id()));
        let failed = |source| NotDone { path: path.clone(), what: "made", source };
        let _ = fs::remove_file(&path);
        File::options().write(true).create_new(true).mode(0o600).open(&path).map_err(failed)?;
        Ok(NewFile { path })
    }

    /// How it is called meanwhile.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Gives it its name, durably; `replace`: also where there is something of that name.
    ///
    /// # Errors
    /// `AlreadyExists` where it is not to be replaced; or what else stood in the way.
    pub fn put(self, name: &Path, replace: bool) -> Result<(), NotDone> {
        let failed = |what| move |source| NotDone { path: name.into(), what, source };
        File::open(&self.path).and_then(|file| file.sync_all()).map_err(failed("written"))?;
        match replace {
            true => fs::rename(&self.path, name).map_err(failed("replaced"))?,
            // (A link is refused where there is something of that name.)
            false => fs::hard_link(&self.path, name).map_err(failed("made"))?,
        }
        File::open(folder_of(name)).and_then(|folder| folder.sync_all()).map_err(failed("written"))
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// The folder in which a path is.
pub fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}
