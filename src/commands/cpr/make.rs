//! `cpr -c`: a checkpoint is made.
//!
//! Of an application that runs: psched says, sealed, what it knows of it; an empty folder beside the place
//! where the checkpoint is to be goes to the apinit that has the application, which fills and seals it; and
//! then it gets its name. Of one that waits for a place psched seals all there is, and cpr writes it down; of one
//! that saves itself, too ([`super::saving`]).
//!
//! A signal (^C) gives it up: the folder is removed once nobody writes into it any more, and the application
//! is as it was.

use super::saving::of_saving;
use super::{parts, problem};
use crate::apteam::{Apid, Key};
use crate::checkpoint::Flaw;
use crate::commands::question::{answer, asked, write_out};
use crate::commands::table::clean;
use crate::node::checkpoint::CheckpointError;
use crate::node::checkpoint::dir::{Partial, Spot};
use crate::node::checkpoint::fd_channel::{self, Answer, Ask, Door};
use crate::rpc::connect::{connect, socket_path};
use crate::rpc::pb;
use crate::variables::units::about;
use pb::checkpoint_reply::Found;
use pb::psched_client::PschedClient;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tonic::transport::Channel;

/// How long psched may take to answer.
pub(super) const ANSWER_BOUND: Duration = Duration::from_secs(30);
/// The largest answer of psched's: a manifest with the largest environment.
const ANSWER_MAX: usize = 64 * 1024 * 1024;
/// How long the dump and the seal may take: longer than apinit gives CRIU. Or a program to save itself.
pub(super) const DUMP_BOUND: Duration = Duration::from_secs(2 * 3600);
/// How long the end of the application may take to be begun.
const END_BOUND: Duration = Duration::from_secs(60);

/// What becomes of an application that has been checkpointed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// It goes on as if nothing had been (`-g`).
    GoOn,
    /// It is ended (`-k`).
    End,
}

/// What is to be checkpointed, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Make {
    /// The folder that is to be the checkpoint.
    pub dir: PathBuf,
    /// The application.
    pub apid: Apid,
    /// An older checkpoint there is replaced (`-f`).
    pub force: bool,
    /// What becomes of it. None: nobody said; it goes on, unless it ends by saving itself.
    pub after: Option<After>,
}

/// Makes it, and gives the status to exit with.
pub fn checkpoint(options: Make) -> ExitCode {
    asked("cpr", async move { make(options).await.map_err(|problem| vec![problem]) })
}

async fn make(options: Make) -> Result<(), String> {
    let of_dir = |flaw: Flaw| problem(&options.dir, &flaw);
    let spot = Spot::of(&options.dir).map_err(of_dir)?;
    // Before anybody is stopped for it.
    spot.free(options.force).map_err(of_dir)?;
    let channel = connect(&socket_path()).await.map_err(|e| e.to_string())?;
    let mut client = PschedClient::new(channel).max_decoding_message_size(ANSWER_MAX);
    let asking = client.checkpoint(pb::CheckpointRequest { apid: options.apid.0 });
    let found = answer(asking, ANSWER_BOUND).await?.found;
    let done = match found.ok_or("psched sent what cpr does not understand: no checkpoint")? {
        Found::Running(running) => of_running(spot, running, &options).await?,
        Found::Waiting(text) => of_waiting(spot, &text, &options, &mut client).await?,
        Found::Saving(saving) => of_saving(spot, &saving, &options, &mut client).await?,
    };
    write_out(&clean(&done)).and_then(|()| write_out("\n"))
}

async fn of_running(
    spot: Spot,
    running: pb::RunningCheckpoint,
    options: &Make,
) -> Result<String, String> {
    let of_dir = |flaw: Flaw| problem(&options.dir, &flaw);
    let pb::RunningCheckpoint { key, socket, draft, more_sockets } = running;
    let key = key.and_then(|key| Key::try_from(key).ok());
    let key = key.ok_or("psched sent what cpr does not understand: no application")?;
    // From here on a signal leaves nothing behind.
    let mut ends = Ends::catch().map_err(|e| format!("signals can't be caught: {e}"))?;
    let end = options.after == Some(After::End);
    if !more_sockets.is_empty() {
        let sockets: Vec<PathBuf> =
            std::iter::once(socket).chain(more_sockets).map(PathBuf::from).collect();
        return parts::checkpoint(spot, &sockets, key, &draft, options, &mut ends).await;
    }
    let partial = Partial::create(spot).map_err(of_dir)?;
    let ask = Ask::Dump { key, draft, end };
    let door = fd_channel::ask(Path::new(&socket), &ask, partial.as_fd());
    let door = door.map_err(|e| e.to_string())?;
    let (door, dumped) = until_dumped(door, &mut ends).await?;
    let Answer::Dumped { bytes, frozen, total, .. } = dumped else {
        return Err(match dumped {
            Answer::Refused(why) => why,
            _ => "apinit's answer is none to this question".to_owned(),
        });
    };
    // On a failure the door closes, and one that was to end goes on.
    partial.publish(options.force).map_err(of_dir)?;
    let made = made(options, bytes, total);
    if !end {
        return Ok(format!(
            "{made}, of which it stood for {:.3} s; it goes on",
            frozen.as_secs_f64()
        ));
    }
    match tokio::task::spawn_blocking(move || ended(door)).await {
        Ok(Ok(())) => Ok(format!("{made}; it is ended")),
        Ok(Err(why)) => Err(format!("{made}, and is not known to be ended: {why}")),
        Err(error) => Err(format!("{made}, and is not known to be ended: {error}")),
    }
}

/// What there is now.
pub(super) fn made(options: &Make, bytes: u64, total: Duration) -> String {
    format!(
        "application {} is checkpointed in {}: {}, in {:.2} s",
        options.apid,
        options.dir.display(),
        about(bytes),
        total.as_secs_f64()
    )
}

/// The signals that give it up.
pub(super) struct Ends {
    int: Signal,
    term: Signal,
    hup: Signal,
}

impl Ends {
    pub fn catch() -> std::io::Result<Ends> {
        Ok(Ends {
            int: signal(SignalKind::interrupt())?,
            term: signal(SignalKind::terminate())?,
            hup: signal(SignalKind::hangup())?,
        })
    }

    /// One has come: in words.
    pub async fn came(&mut self) -> &'static str {
        tokio::select! {
            _ = self.int.recv() => "interrupted",
            _ = self.term.recv() => "asked to end",
            _ = self.hup.recv() => "hung up on",
        }
    }
}

/// It was given up.
pub(super) fn no_checkpoint(why: &str) -> String {
    format!("{why}: no checkpoint was made, and the application goes on")
}

/// Has it ended.
pub(super) fn ended(mut door: Door) -> Result<(), String> {
    let answer = door.say(&Ask::Published).and_then(|()| door.answer(END_BOUND));
    match answer.map_err(|e: CheckpointError| e.to_string())? {
        Answer::Ended => Ok(()),
        Answer::Refused(why) => Err(why),
        _ => Err("apinit's answer is none to this question".to_owned()),
    }
}

/// What apinit answers; a signal gives it up, and is answered too.
async fn until_dumped(mut door: Door, ends: &mut Ends) -> Result<(Door, Answer), String> {
    let leaver = door.leaver().map_err(|e| e.to_string())?;
    let mut waits = tokio::task::spawn_blocking(move || {
        let answer = door.answer(DUMP_BOUND);
        (door, answer)
    });
    let given_up = tokio::select! {
        done = &mut waits => {
            let (door, answer) = done.map_err(|e| e.to_string())?;
            return Ok((door, answer.map_err(|e| e.to_string())?));
        }
        given_up = ends.came() => given_up,
    };
    leaver.leave();
    // Until nobody writes into the folder any more.
    let _ = waits.await;
    Err(no_checkpoint(given_up))
}

async fn of_waiting(
    spot: Spot,
    text: &str,
    options: &Make,
    client: &mut PschedClient<Channel>,
) -> Result<String, String> {
    let of_dir = |flaw: Flaw| problem(&options.dir, &flaw);
    let partial = Partial::create(spot).map_err(of_dir)?;
    partial.dir().write_manifest(text).map_err(of_dir)?;
    partial.publish(options.force).map_err(of_dir)?;
    let made = format!(
        "application {}, which waits for a place, is checkpointed in {} as it was posted",
        options.apid,
        options.dir.display()
    );
    if options.after != Some(After::End) {
        return Ok(format!("{made}; it waits on"));
    }
    // As for one that runs: its aprun ends with 137.
    let request = pb::KillRequest { apids: vec![options.apid.0], signal: libc::SIGKILL };
    let problems = answer(client.kill(request), ANSWER_BOUND).await?.problems;
    match problems.into_iter().find(|problem| !problem.is_empty()) {
        None => Ok(format!("{made}; it is ended")),
        Some(why) => Err(format!("{made}, and is not ended: {why}")),
    }
}
