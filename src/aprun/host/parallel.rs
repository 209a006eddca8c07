//! Programs in a folder that all hosts have, for hosts that have no room for copies (PARALLEL_FILE_SYSTEM).

use super::program::Program;
use crate::apteam::launch::Launch;
use crate::apteam::protocol::programs::name_of;
use std::ffi::OsStr;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The variable that names the folder.
const VARIABLE: &str = "PARALLEL_FILE_SYSTEM";

/// The folder, if the user has named one.
pub fn folder() -> Option<PathBuf> {
    std::env::var_os(VARIABLE).filter(|folder| !folder.is_empty()).map(PathBuf::from)
}

/// A folder of this process's own below that one, which goes with it.
#[derive(Debug)]
pub struct Copies(PathBuf);

impl Drop for Copies {
    fn drop(&mut self) {
        // An Err: somebody else has removed it.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Copies {
    /// Copies the programs of a launch that may be executed somewhere else, and has the launch say where they are.
    ///
    /// # Errors
    /// In words, with the name of the folder. The launch is as it was.
    pub fn make(below: &Path, launch: &mut Launch, programs: &[Program]) -> Result<Copies, String> {
        let failed = |error: io::Error| {
            format!(
                "{VARIABLE}: no copies in {}: {}",
                below.display(),
                super::program::plain(&error)
            )
        };
        let below = std::path::absolute(below).map_err(failed)?;
        let mut random = [0; 8];
        rustix::rand::getrandom(&mut random[..], rustix::rand::GetRandomFlags::empty())
            .map_err(|error| failed(error.into()))?;
        let own = below.join(format!("psched-{:016x}", u64::from_ne_bytes(random)));
        DirBuilder::new().mode(0o700).create(&own).map_err(failed)?;
        let copies = Copies(own);
        for (part, program) in programs.iter().enumerate().filter(|(_, program)| program.moves) {
            let Some(name) = name_of(launch.program(part).executable) else { continue };
            let folder = copies.0.join(part.to_string());
            copy(program, &folder, OsStr::from_bytes(name)).map_err(failed)?;
        }
        launch.instead = copies.0.clone().into_os_string().into_vec();
        Ok(copies)
    }
}

fn copy(program: &Program, folder: &Path, name: &OsStr) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(folder)?;
    let mut options = File::options();
    let mut to = options.write(true).create_new(true).mode(0o500).open(folder.join(name))?;
    io::copy(&mut program.reader(), &mut to)?;
    // Other hosts are to find all of it.
    to.sync_all()
}
