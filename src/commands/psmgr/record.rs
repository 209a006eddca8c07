//! What psched was told of late, in a file.

use super::{ANSWER_BOUND, Client};
use crate::commands::question::{Does, again};
use crate::os::new_file::{NewFile, folder_of};
use crate::os::trust::check_directory;
use crate::rpc::connect::status_text;
use crate::rpc::pb;
use clap::Args;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use tokio::time::timeout;
use tonic::{Response, Status};

/// A recording.
#[derive(Args, Clone, Debug)]
pub struct Record {
    /// The file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Replace the file if it exists
    #[arg(long)]
    force: bool,
}

impl Record {
    pub(super) async fn run(self, client: &mut Client) -> Result<String, Vec<String>> {
        let (record, from) = (&self, &*client);
        let whole = || {
            let mut client = from.clone();
            async move { record.receive(&mut client).await.map(Response::new) }
        };
        // (Another recording is made for it: of the same events, and of those since.)
        let received = again(whole, Does::Read, ANSWER_BOUND).await;
        let end = received.map_err(|status| vec![status_text(status)])?.into_inner();
        end.map_err(|why| vec![why])?;
        Ok(format!("{}: psched replay shows what is in it\n", self.file.display()))
    }

    /// Writes one recording; inside, what asking again does not mend.
    ///
    /// # Errors
    /// psched's answer instead of it, or that the connection broke: nothing has been written then.
    async fn receive(&self, client: &mut Client) -> Result<Result<(), String>, Status> {
        let said = |error: io::Error| format!("can't write {}: {error}", self.file.display());
        let late = || format!("psched has sent nothing for {} s", ANSWER_BOUND.as_secs());
        let call = timeout(ANSWER_BOUND, client.record(pb::RecordRequest {}));
        let Ok(reply) = call.await else { return Ok(Err(late())) };
        let mut pieces = reply?.into_inner();
        let mut to = match Target::open(&self.file, self.force) {
            Ok(to) => to,
            Err(error) => return Ok(Err(said(error))),
        };
        let mut bytes = 0;
        loop {
            let Ok(piece) = timeout(ANSWER_BOUND, pieces.message()).await else {
                return Ok(Err(late()));
            };
            match piece {
                Ok(Some(pb::RecordPiece { data })) => match to.file.write_all(&data) {
                    Ok(()) => bytes += data.len(),
                    Err(error) => return Ok(Err(said(error))),
                },
                Ok(None) => return Ok(to.done().map_err(said)),
                Err(status) if !to.may_begin_again() => {
                    return Ok(Err(format!(
                        "{}; {} has the first {bytes} bytes of a recording that is not whole: \
                         discard them and try again",
                        status_text(status),
                        self.file.display()
                    )));
                }
                Err(status) => return Err(status),
            }
        }
    }
}

/// Where a recording goes: into a new file, so that no other user's file or link is written to. Only a pipe or a device
/// is written to as it is.
struct Target {
    file: File,
    /// The new file, the name that it gets, and whether it replaces what has that name.
    named: Option<(NewFile, PathBuf, bool)>,
}

impl Target {
    fn open(path: &Path, force: bool) -> io::Result<Target> {
        let writable = |path| OpenOptions::new().write(true).open(path);
        if force && std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
            return Ok(Target { file: writable(path)?, named: None });
        }
        let path = match std::fs::symlink_metadata(path) {
            Ok(_) if !force => return Err(exists()),
            Ok(_) => std::fs::canonicalize(path)?,
            Err(_) => std::path::absolute(path)?,
        };
        let folder = folder_of(&path);
        check_directory(folder).map_err(io::Error::other)?;
        let new = NewFile::make(folder, &path).map_err(|failed| failed.source)?;
        Ok(Target { file: writable(new.path())?, named: Some((new, path, force)) })
    }

    /// Whether nothing stays of what has been written if this is dropped.
    fn may_begin_again(&self) -> bool {
        self.named.is_some()
    }

    fn done(self) -> io::Result<()> {
        match self.named {
            Some((new, path, force)) => {
                new.put(&path, force).map_err(|failed| match failed.source.kind() {
                    io::ErrorKind::AlreadyExists => exists(),
                    _ => failed.source,
                })
            }
            None => self.file.sync_all().or_else(unless_special),
        }
    }
}

fn exists() -> io::Error {
    io::Error::new(io::ErrorKind::AlreadyExists, "File exists: --force replaces it")
}

/// A pipe can't be synchronized, and need not be.
fn unless_special(error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::InvalidInput => Ok(()),
        _ => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn written(path: &Path, force: bool) -> io::Result<()> {
        let mut target = Target::open(path, force)?;
        target.file.write_all(b"new")?;
        target.done()
    }

    #[test]
    fn a_recording_is_a_new_file_of_its_own() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("events");
        written(&path, false).expect("written");
        assert_eq!(written(&path, false).expect_err("there").kind(), io::ErrorKind::AlreadyExists);
        // What was there with another mode is replaced, and who has it open reads nothing of it.
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).expect("set");
        std::fs::write(&path, "old").expect("written");
        let mut open = File::open(&path).expect("open");
        written(&path, true).expect("replaced");
        assert_eq!(std::fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
        let mut read = String::new();
        io::Read::read_to_string(&mut open, &mut read).expect("read");
        assert_eq!((read.as_str(), std::fs::read(&path).expect("read")), ("old", b"new".to_vec()));
        // A link is followed to a folder that is one's own; one that leads nowhere is in the way.
        let link = folder.path().join("link");
        symlink("nowhere", &link).expect("made");
        assert!(written(&link, false).is_err() && written(&link, true).is_err());
        // Nothing is left of one that did not become whole.
        drop(Target::open(&folder.path().join("half"), false).expect("open"));
        let mut names: Vec<_> = std::fs::read_dir(folder.path())
            .expect("there")
            .map(|entry| entry.expect("one").file_name())
            .collect();
        names.sort();
        assert_eq!(names, ["events", "link"]);
        // A folder that every user may write to is refused.
        let shared = folder.path().join("shared");
        std::fs::create_dir(&shared).expect("made");
        std::fs::set_permissions(&shared, PermissionsExt::from_mode(0o777)).expect("set");
        let error = written(&shared.join("events"), true).expect_err("refused");
        assert!(error.to_string().contains("shared"), "{error}");
    }

    #[test]
    fn a_device_is_written_to() {
        written(Path::new("/dev/null"), true).expect("written");
    }
}
