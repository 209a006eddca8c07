//! Recordings in the state directory.

use crate::os::host::wall_ns;
use crate::psched::drive::recorder::Recording;
use std::fs::OpenOptions;
use std::io::{self, BufWriter};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Recordings that psched leaves in its state directory; older ones go.
const FILES_MAX: usize = 4;

/// How their names begin.
const PREFIX: &str = "recording-";

/// Writes one to the state directory, and says so in the log.
pub(super) fn keep(state: &Path, recording: &Recording, why: &str) {
    match kept(state, recording, why, wall_ns()) {
        Ok(path) => {
            tracing::warn!(
                "{why}: the recording {} has the events before; psched replay shows them",
                path.display()
            )
        }
        Err(error) => tracing::warn!(%error, "{why}: no recording could be written"),
    }
}

fn kept(state: &Path, recording: &Recording, why: &str, now_ns: u64) -> io::Result<PathBuf> {
    let path = state.join(format!("{PREFIX}{now_ns:020}"));
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    let mut to = BufWriter::new(file);
    if let Err(error) = recording.write(why, now_ns, &mut to) {
        // (Half of one takes no good one's place.)
        drop(to);
        let _ = std::fs::remove_file(&path);
        return Err(error);
    }
    let mut names: Vec<String> = std::fs::read_dir(state)?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.starts_with(PREFIX))
        .collect();
    names.sort_unstable();
    for old in names.iter().take(names.len().saturating_sub(FILES_MAX)) {
        std::fs::remove_file(state.join(old))?;
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::psched::decide::{Scheduler, Settings};
    use crate::psched::drive::recorder::Recorder;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_newest_four_are_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let scheduler = Scheduler::new(Default::default(), Settings::default());
        let recording = Recorder::new(&scheduler).recording();
        for now_ns in 1..=6 {
            let path = kept(folder.path(), &recording, "a test", now_ns).expect("written");
            let mode = path.metadata().expect("there").permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        let files =
            std::fs::read_dir(folder.path()).expect("there").map(|entry| entry.expect("one"));
        let mut names: Vec<_> = files.map(|f| f.file_name().into_string().expect("text")).collect();
        names.sort_unstable();
        let wanted = (3..=6).map(|at| format!("recording-{at:020}")).collect::<Vec<_>>();
        assert_eq!(names, wanted);
    }
}
