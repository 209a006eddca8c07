//! `cpr -c`: a checkpoint is made.
//!
//! Of an application that runs: psched says, sealed, what it knows of it; an empty folder beside the place
//! where the checkpoint is to be goes to the apinit that has the application, which fills and seals it; and
//! then it gets its name. Of one that waits for a place psched seals all there is, and cpr writes it down; of one
//! that saves itself, too ([`super::saving`]).
//!
//! A signal (^C) gives it up: the folder is removed once nobody writes into it any more, and the application
//! is as it was.

use super::endings::{ANSWER_BOUND, DUMP_BOUND, Ends, ended, no_checkpoint};
use super::saving::of_saving;
use super::wanted::{After, Make, made};
use super::{parts, problem};
use crate::aprun::host::attach::Target;
use crate::aprun::host::door;
use crate::apteam::Key;
use crate::apteam::place::HostAddress;
use crate::checkpoint::Flaw;
use crate::commands::question::{answer, asked};
use crate::console::stdout::write_out;
use crate::console::table::clean;
use crate::node::checkpoint::dir::{Partial, Spot};
use crate::node::checkpoint::fd_channel::{Answer, Ask, Door};
use crate::rpc::connect::{connect, socket_path};
use crate::rpc::pb;
use pb::checkpoint_reply::Found;
use pb::psched_client::PschedClient;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;
use tonic::transport::Channel;

/// The largest answer of psched's: a manifest with the largest environment.
const ANSWER_MAX: usize = 64 * 1024 * 1024;
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
    let done = match found.ok_or(
        "psched's answer lacks the checkpoint: install cpr and psched \
                                  of one release",
    )? {
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
    let pb::RunningCheckpoint { key, socket, draft, more_sockets, host, address } = running;
    let key = key.and_then(|key| Key::try_from(key).ok());
    let key = key.ok_or(
        "psched's answer lacks the application: install cpr and psched of one \
                         release",
    )?;
    // From here on a signal leaves nothing behind.
    let mut ends = Ends::catch().map_err(|e| format!("can't catch signals: {e}"))?;
    let end = options.after == Some(After::End);
    if !more_sockets.is_empty() {
        let sockets: Vec<PathBuf> =
            std::iter::once(socket).chain(more_sockets).map(PathBuf::from).collect();
        return parts::checkpoint(spot, &sockets, key, &draft, options, &mut ends).await;
    }
    let partial = Partial::create(spot).map_err(of_dir)?;
    let ask = Ask::Dump { key, draft, end };
    let at = HostAddress { host, address, socket };
    let door = door::ask(&Target::new(at, &socket_path()), &ask, partial.as_fd()).await;
    let door = door.map_err(|why| why.text)?;
    let (door, dumped) = until_dumped(door, &mut ends).await?;
    let Answer::Dumped { bytes, frozen, total, .. } = dumped else {
        return Err(match dumped {
            Answer::Refused(why) => why,
            _ => {
                "apinit gave an unexpected answer; install cpr and apinit of one release".to_owned()
            }
        });
    };
    // On a failure the door closes, and one that was to end goes on.
    partial.publish(options.force).map_err(of_dir)?;
    let made = made(options, bytes, total);
    if !end {
        return Ok(format!("{made}, frozen for {:.3} s; it goes on", frozen.as_secs_f64()));
    }
    match tokio::task::spawn_blocking(move || ended(door)).await {
        Ok(Ok(())) => Ok(format!("{made}; it was ended")),
        Ok(Err(why)) => Err(format!("{made}; whether it has ended is unknown: {why}")),
        Err(error) => Err(format!("{made}; whether it has ended is unknown: {error}")),
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
        None => Ok(format!("{made}; it was ended")),
        Some(why) => Err(format!("{made}; it was not ended: {why}")),
    }
}
