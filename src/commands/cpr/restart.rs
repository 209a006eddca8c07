//! `cpr -r`: the application of a checkpoint is restarted.
//!
//! cpr is its aprun from then on: it posts, waits for a place, launches, and has its stdio, signals and exit
//! status, by the same course ([`crate::aprun::decide::session`]). Three things differ:
//!
//! - what is posted is in the manifest, which psched reads and believes for its seal;
//! - where there are images, the folder goes to the apinit of the first PE before the launch, as a descriptor
//!   that cpr has opened as its user;
//! - what is launched is in the manifest too: of one that waited, or saved itself, it is executed; of one that
//!   was dumped it is for show.
//!
//! The folder is held until the application runs, so that of two restarts at once one is refused. When cpr
//! dies before, all of it goes as a posting of aprun's goes: nothing stays placed, nothing runs.

use super::problem;
use crate::aprun::decide::options::Options;
use crate::aprun::decide::output::Template;
use crate::aprun::decide::session::Setup;
use crate::aprun::host::from_checkpoint::{for_show, opened};
use crate::aprun::host::{self as aprun, Failure, shell};
use crate::apteam::launch::Launch;
use crate::checkpoint::{Flaw, Manifest};
use crate::console::stderr::complain;
use crate::console::table::clean;
use crate::rpc::connect::socket_path;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

/// What is to be restarted, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restart {
    /// The checkpoint.
    pub dir: PathBuf,
    /// Where its output goes; none: cpr's own.
    pub output: Option<PathBuf>,
}

/// Restarts it, and gives the status to exit with: the application's, as aprun's.
pub fn restart(options: Restart) -> ExitCode {
    match attempt(&options) {
        Ok(status) => ExitCode::from(status),
        Err(Failure { status, text }) => {
            complain("cpr", &text);
            ExitCode::from(status)
        }
    }
}

fn attempt(restart: &Restart) -> Result<u8, Failure> {
    let failed = |flaw: Flaw| Failure::failed(problem(&restart.dir, &flaw));
    let (dir, manifest, text) = opened(&restart.dir).map_err(failed)?;
    let launch = launch_of(&manifest);
    let options = options(restart.output.as_deref(), &launch)?;
    let setup = Setup {
        launch,
        uid: nix::unistd::getuid().as_raw(),
        quiet: false,
        files: options.output.is_some(),
        parallel: false,
        immediate: false,
        restarts: Some(manifest.recovery.apid),
        recovers: false,
        within: aprun::within(),
        inside: false,
        patience: aprun::psched::patience(&socket_path(), None),
        answer_within: None,
        spread: aprun::spread(),
    };
    let from = shell::Restart {
        name: Some(clean(&restart.dir.display().to_string())),
        held: Some(Arc::new(dir)),
        images: manifest.kind.is_dumped(),
        no_stdin: options.output.is_some(),
    };
    aprun::restart(setup, &options, text, from)
}

/// What is launched: as it was kept; or, where nothing is executed and nothing was kept, what tells of it.
fn launch_of(manifest: &Manifest) -> Launch {
    manifest.launch.clone().unwrap_or_else(|| for_show(manifest))
}

/// The options of aprun that are left: what was chosen of the rest is in the posting.
fn options(output: Option<&Path>, launch: &Launch) -> Result<Options, Failure> {
    let name = |path: &Path| {
        Template::parse(path.as_os_str().as_bytes())
            .map_err(|why| Failure::failed(format!("--output: {why}")))
    };
    let output = output.map(name).transpose()?;
    let whole_lines = launch.whole_lines;
    Ok(Options { error: output.clone(), output, whole_lines, ..Options::default() })
}
