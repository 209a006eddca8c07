//! `cpr -c` of an application that is on nodes of several apinits.
//!
//! Each of them dumps its part into a folder of its own in that of the checkpoint, and cpr carries the word from
//! one to the others: no part is dumped before all stand, none goes on before all are dumped, and only of all of
//! them one apinit makes the manifest. (What comes of it is true whatever cpr says: [`crate::checkpoint::join`].)
//!
//! ```text
//!   Dump       -> Stands     each part, and then
//!   AllStand   -> Imaged     each part, and then
//!   AllImaged  -> Dumped     each part: with -g it goes on
//!   Join       -> Joined     by the first of them; the manifest is written, and the folder gets its name
//!   Published  -> Ended      each part (-k)
//! ```
//!
//! Where one refuses, is killed, or a signal comes, all are hung up on, which lets each part go on, and the folder
//! is removed when the last of them does not write into it any more. So does a cpr that is killed itself, but for
//! the folder.

use super::endings::{DUMP_BOUND, Ends, ended, no_checkpoint};
use super::problem;
use super::wanted::{After, Make, made};
use crate::apteam::Key;
use crate::checkpoint::{Flaw, Kind};
use crate::node::checkpoint::CheckpointError;
use crate::node::checkpoint::dir::{Partial, Spot};
use crate::node::checkpoint::fd_channel::{self, Answer, Ask, Door, beside};
use bytes::Bytes;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// How long the manifest may take to be made, which is of names and checksums only.
const JOIN_BOUND: Duration = Duration::from_secs(60);

/// Makes it.
///
/// # Errors
/// What stood in the way; the application goes on.
pub(super) async fn checkpoint(
    spot: Spot,
    sockets: &[PathBuf],
    key: Key,
    draft: &Bytes,
    options: &Make,
    ends: &mut Ends,
) -> Result<String, String> {
    let of_dir = |flaw: Flaw| problem(&options.dir, &flaw);
    let end = options.after == Some(After::End);
    // Before anybody is stopped.
    if let Some(socket) = sockets.iter().find(|socket| !beside(socket).exists()) {
        return Err(format!(
            "application {} is on nodes of several apinits, and the apinit of {} can't be reached on this \
             host: run cpr on the host of all these apinits, in the same release",
            options.apid,
            socket.display()
        ));
    }
    let partial = Partial::create(spot).map_err(of_dir)?;
    let folders: Result<Vec<OwnedFd>, Flaw> =
        (0..sockets.len()).map(|n| partial.dir().folder(&Kind::folder(n))).collect();
    let folders = folders.map_err(of_dir)?;
    let began = Instant::now();
    let mut asked = Parts(Vec::new());
    for (socket, folder) in sockets.iter().zip(&folders) {
        let ask = Ask::Dump { key, draft: draft.clone(), end };
        match fd_channel::ask(socket, &ask, folder.as_fd()) {
            Ok(door) => asked.0.push(door),
            Err(error) => {
                asked.give_up().await;
                return Err(error.to_string());
            }
        }
    }
    asked.round(None, DUMP_BOUND, ends, |answer| answer == Answer::Stands).await?;
    let imaged = |answer| answer == Answer::Imaged;
    asked.round(Some(Ask::AllStand), DUMP_BOUND, ends, imaged).await?;
    let frozen = began.elapsed();
    let (mut bytes, mut parts) = (0, Vec::new());
    let dumped = |answer| match answer {
        Answer::Dumped { bytes: own, part, .. } => {
            bytes += own;
            parts.push(part);
            true
        }
        _ => false,
    };
    asked.round(Some(Ask::AllImaged), DUMP_BOUND, ends, dumped).await?;
    let manifest = asked.join(parts).await?;
    let written = partial.dir().write_manifest(&manifest).and_then(|()| partial.dir().sync());
    // On a failure the doors close, and one that was to end goes on.
    written.and_then(|()| partial.publish(options.force)).map_err(of_dir)?;
    let made = made(options, bytes, began.elapsed());
    if !end {
        let frozen = frozen.as_secs_f64();
        return Ok(format!("{made}, frozen for {frozen:.3} s; it goes on"));
    }
    match asked.end().await {
        Ok(()) => Ok(format!("{made}; it was ended")),
        Err(why) => Err(format!("{made}; whether it has ended is unknown: {why}")),
    }
}

/// The connections to all apinits, in the order of the draft's hosts.
struct Parts(Vec<Door>);

impl Parts {
    /// Says it to all, if anything, and hears what each answers; `takes` says whether that is what is to follow.
    ///
    /// # Errors
    /// One has answered something else, or nothing, or a signal has come. All have been given up then.
    async fn round(
        &mut self,
        word: Option<Ask>,
        bound: Duration,
        ends: &mut Ends,
        mut takes: impl FnMut(Answer) -> bool,
    ) -> Result<(), String> {
        let leavers: Result<Vec<_>, _> = self.0.iter().map(Door::leaver).collect();
        let leavers = leavers.map_err(|e| e.to_string())?;
        let mut tasks = JoinSet::new();
        for (n, mut door) in std::mem::take(&mut self.0).into_iter().enumerate() {
            let word = word.clone();
            tasks.spawn_blocking(move || {
                let said = word.map_or(Ok(()), |word| door.say(&word));
                let answer = said.and_then(|()| door.answer(bound));
                (n, door, answer)
            });
        }
        let mut heard: Vec<(usize, Door)> = Vec::new();
        let mut failed: Option<String> = None;
        while !tasks.is_empty() {
            let done = tokio::select! {
                done = tasks.join_next() => done,
                given_up = ends.came(), if failed.is_none() => {
                    failed = Some(no_checkpoint(given_up));
                    leavers.iter().for_each(|leaver| leaver.leave());
                    continue;
                }
            };
            let why = match done {
                None => break,
                Some(Err(lost)) => Some(lost.to_string()),
                Some(Ok((n, door, answer))) => {
                    heard.push((n, door));
                    match answer {
                        Ok(Answer::Refused(why)) => Some(why),
                        Ok(answer) if takes(answer.clone()) => None,
                        Ok(_) => Some(
                            "apinit gave an unexpected answer; install cpr and apinit \
                                       of one release"
                                .to_owned(),
                        ),
                        Err(error) => Some(no_checkpoint(&error.to_string())),
                    }
                }
            };
            if failed.is_none() && why.is_some() {
                failed = why;
                leavers.iter().for_each(|leaver| leaver.leave());
            }
        }
        heard.sort_by_key(|(n, _)| *n);
        self.0 = heard.into_iter().map(|(_, door)| door).collect();
        match failed {
            None => Ok(()),
            Some(why) => {
                self.give_up().await;
                Err(why)
            }
        }
    }

    /// Lets all go on, and waits until none of them writes into the folder any more.
    async fn give_up(&mut self) {
        let doors = std::mem::take(&mut self.0);
        doors.iter().filter_map(|door| door.leaver().ok()).for_each(|leaver| leaver.leave());
        let closed = move || {
            for mut door in doors {
                // An Err: it has hung up, which it does when it is done.
                while door.answer(DUMP_BOUND).is_ok() {}
            }
        };
        let _ = tokio::task::spawn_blocking(closed).await;
    }

    /// Has the manifest made.
    async fn join(&mut self, parts: Vec<Bytes>) -> Result<String, String> {
        let mut doors = std::mem::take(&mut self.0);
        let asking = tokio::task::spawn_blocking(move || {
            let first =
                doors.first_mut().ok_or_else(|| "psched's answer names no apinit".to_owned())?;
            let answer = first.say(&Ask::Join { parts }).and_then(|()| first.answer(JOIN_BOUND));
            let text = match answer.map_err(|e: CheckpointError| e.to_string())? {
                Answer::Joined(text) => text,
                Answer::Refused(why) => return Err(why),
                _ => {
                    return Err("apinit gave an unexpected answer; install cpr and apinit of one \
                                 release"
                        .to_owned());
                }
            };
            Ok((doors, text))
        });
        let (doors, text) = asking.await.map_err(|e| e.to_string())??;
        self.0 = doors;
        Ok(text)
    }

    /// Has all parts ended.
    async fn end(&mut self) -> Result<(), String> {
        let mut tasks = JoinSet::new();
        for door in std::mem::take(&mut self.0) {
            tasks.spawn_blocking(move || ended(door));
        }
        let mut result = Ok(());
        while let Some(done) = tasks.join_next().await {
            result = result.and(done.unwrap_or_else(|error| Err(error.to_string())));
        }
        result
    }
}
