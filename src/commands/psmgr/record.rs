//! What psched was told of late, in a file.

use super::{ANSWER_BOUND, Client};
use crate::rpc::connect::status_text;
use crate::rpc::pb;
use clap::Args;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

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
        let said = |error: io::Error| vec![format!("{}: {error}", self.file.display())];
        let late = |_| vec![format!("psched has sent nothing for {} s", ANSWER_BOUND.as_secs())];
        let call = client.record(pb::RecordRequest {});
        let reply = tokio::time::timeout(ANSWER_BOUND, call).await.map_err(late)?;
        let mut pieces = reply.map_err(|status| vec![status_text(status)])?.into_inner();
        let mut file = create(&self.file, self.force).map_err(said)?;
        loop {
            let piece = tokio::time::timeout(ANSWER_BOUND, pieces.message()).await.map_err(late)?;
            match piece.map_err(|status| vec![status_text(status)])? {
                Some(pb::RecordPiece { data }) => file.write_all(&data).map_err(said)?,
                None => break,
            }
        }
        file.sync_all().or_else(unless_special).map_err(said)?;
        Ok(format!("{}: psched replay shows what is in it\n", self.file.display()))
    }
}

/// A file that only its owner may read.
fn create(path: &Path, force: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    match force {
        true => options.create(true).truncate(true).open(path),
        false => options.create_new(true).open(path),
    }
}

/// A pipe can't be synchronized, and need not be.
fn unless_special(error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::InvalidInput => Ok(()),
        _ => Err(error),
    }
}
