//! What a restart from a checkpoint begins with, by `cpr -r` and by `aprun --restart-from`: the folder, held, and
//! its manifest.

use super::program::Program;
use super::shell::Restart;
use super::{Failure, launch, program, psched, random, within};
use crate::aprun::decide::after_loss::{Chain, Found};
use crate::aprun::decide::options::Options;
use crate::aprun::decide::session::Setup;
use crate::apteam::launch::Launch;
use crate::checkpoint::{Checksum, Files, Flaw, MANIFEST, MANIFEST_MAX, Manifest, listed};
use crate::console::table::clean;
use crate::node::checkpoint::dir::{Dir, Spot};
use crate::rpc::connect::socket_path;
use crate::rpc::{REQUEST_MAX, pb};
use rustix::fs::fstat;
use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// What a request has beside the manifest, in bytes.
const REST: usize = 1024;

/// Opens a checkpoint: its folder, locked, its manifest, and the manifest's bytes. psched verifies the seal, and
/// apinit the images when it restores them.
///
/// # Errors
/// It can't be restarted from.
pub fn opened(path: &Path) -> Result<(Dir, Manifest, Vec<u8>), Flaw> {
    let spot = Spot::of(path)?;
    if spot.is_partial() {
        return Err(Flaw::Partial);
    }
    let dir = spot.open()?.ok_or(Flaw::NoFolder)?;
    dir.hold()?;
    let mut text = Vec::new();
    let read = dir.read(MANIFEST, MANIFEST_MAX as u64 + 1, &mut |piece| {
        text.extend_from_slice(piece);
    })?;
    read.ok_or(Flaw::NoManifest)?;
    let manifest = Manifest::read(&text, None)?;
    listed(&manifest, &dir)?;
    let most = REQUEST_MAX - REST;
    if text.len() > most {
        return Err(Flaw::Unfit(format!(
            "can be restarted if its {MANIFEST} has at most {most} bytes, and this one has {} \
             (many files, or a large environment)",
            text.len()
        )));
    }
    Ok((dir, manifest, text))
}

/// What tells of a program that is not executed, because it goes on from images.
pub fn for_show(manifest: &Manifest) -> Launch {
    let posting = &manifest.recovery.posting;
    Launch {
        executable: posting.executable.path.clone().into_bytes(),
        arguments: vec![posting.command.clone().into_bytes()],
        directory: b"/".to_vec(),
        ..Launch::default()
    }
}

/// The posting of what a manifest says.
///
/// # Errors
/// There is no random number.
pub fn request(manifest: Vec<u8>) -> Result<pb::PostRequest, Failure> {
    Ok(pb::PostRequest {
        request_id: random()?.to_vec().into(),
        restart: manifest.into(),
        signal: true,
        brings_images: true,
        ..pb::PostRequest::default()
    })
}

/// What differs for an application that replaces one that has lost a host.
pub struct Next {
    /// What its course depends on.
    pub setup: Setup,
    /// What it executes.
    pub programs: Vec<Program>,
    /// What is posted.
    pub request: pb::PostRequest,
    /// The folder.
    pub restart: Restart,
    /// When the checkpoint was made, in nanoseconds since the epoch, and of which application.
    pub made: (u64, crate::apteam::Apid),
    sum: Checksum,
}

/// The folder of `--restart-from`, and the applications of this aprun.
#[derive(Clone, Debug)]
pub struct Recovery {
    dir: PathBuf,
    chain: Chain,
    options: Options,
}

impl Recovery {
    /// The recovery that these options ask for; none: no restart.
    ///
    /// # Errors
    /// No checkpoint of this user can be in the folder. (There need not be one yet.)
    pub fn of(options: &Options) -> Result<Option<Recovery>, Failure> {
        let Some(name) = &options.restart_from else { return Ok(None) };
        let dir = PathBuf::from(OsStr::from_bytes(name));
        let recovery = Recovery { dir, chain: Chain::default(), options: options.clone() };
        let flaw = |why| Failure::failed(format!("--restart-from: {}: {why}", recovery.shown()));
        recovery.fits().map_err(flaw)?;
        Ok(Some(recovery))
    }

    fn fits(&self) -> Result<(), String> {
        let spot = Spot::of(&self.dir).map_err(|flaw| flaw.to_string())?;
        if spot.is_partial() {
            return Err("it has the name of an unfinished checkpoint; name another folder".into());
        }
        let Some(dir) = spot.open().map_err(|flaw| flaw.to_string())? else { return Ok(()) };
        let own = nix::unistd::geteuid().as_raw();
        if dir.uid() != own {
            return Err(format!(
                "the folder belongs to user {}, and you are user {own}; name a folder of yours",
                dir.uid()
            ));
        }
        let device = |of: std::os::fd::BorrowedFd<'_>| fstat(of).map(|found| found.st_dev).ok();
        if device(dir.as_fd()) != device(spot.parent()) {
            return Err(
                "a file system is mounted there, and cpr can't put a checkpoint in its place; \
                        name a folder below it"
                    .into(),
            );
        }
        Ok(())
    }

    /// The name of the folder, for messages.
    pub fn shown(&self) -> String {
        clean(&self.dir.display().to_string())
    }

    /// This is the latest application of this aprun.
    pub fn ran(&mut self, apid: crate::apteam::Apid) {
        self.chain.ran(apid);
    }

    /// It is being restarted.
    pub fn uses(&mut self, next: &Next) {
        self.chain.uses(next.sum);
    }

    /// What takes the place of the latest application, which ran for so long. It takes as long as the file system
    /// with the folder.
    ///
    /// # Errors
    /// It is not restarted; why, to be read after the name of the folder.
    pub fn next(&self, store: &str, ran: Duration) -> Result<Next, String> {
        let uid = nix::unistd::getuid().as_raw();
        let (dir, manifest, text) = opened(&self.dir).map_err(|flaw| flaw.to_string())?;
        let sum = Checksum::of(&text);
        self.chain.may_use(Found { manifest: &manifest, sum }, uid, store, ran)?;
        let images = manifest.kind.is_dumped();
        let options = &self.options;
        // What is executed, is executed as it was; the programs may have been built anew.
        let (programs, launch) = match images {
            true => (Vec::new(), for_show(&manifest)),
            false => {
                let found = program::open_all(options).map_err(|failure| failure.text)?;
                let launch = launch(options, &found).map_err(|failure| failure.text)?;
                (found, launch)
            }
        };
        let setup = Setup {
            launch,
            uid,
            quiet: options.quiet,
            files: options.output.is_some() || options.error.is_some(),
            parallel: super::parallel::folder().is_some(),
            immediate: false,
            restarts: Some(manifest.recovery.apid),
            recovers: true,
            within: within(),
            inside: false,
            patience: psched::patience(&socket_path(), options.wait_for_psched),
            answer_within: options.wait_for_psched,
            spread: super::spread(),
        };
        let restart = Restart {
            name: Some(self.shown()),
            held: Some(Arc::new(dir)),
            images,
            no_stdin: false,
        };
        let request = request(text).map_err(|failure| failure.text)?;
        let made = (manifest.made.at_ns, manifest.recovery.apid);
        Ok(Next { setup, programs, request, restart, made, sum })
    }
}
