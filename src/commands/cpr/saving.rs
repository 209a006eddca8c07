//! `cpr -c` of an application that saves itself (`aprun --checkpoint`).
//!
//! psched has sealed all that there is to be kept: what is executed, with which arguments, environment and
//! directory. The program has to be told, and to do it: by a signal to all of its PEs, or by the command that its
//! user gave, which runs in the application's directory and environment. Whether the program has saved itself
//! shows in how it ends: with 0. Only then the checkpoint gets its name.
//!
//! ```text
//! $ aprun -n 2 --checkpoint USR1 ./solve &
//! $ cpr -c tonight -p 12
//! application 12 has saved itself and ended: cpr -r tonight starts it again
//! ```
//!
//! A command may save a program that goes on (`-g`); then its own status is the word.

use super::endings::{ANSWER_BOUND, DUMP_BOUND, Ends};
use super::problem;
use super::wanted::{After, Make};
use crate::apteam::Key;
use crate::apteam::saving::Saving;
use crate::checkpoint::{Flaw, Manifest};
use crate::commands::question::answer;
use crate::node::checkpoint::dir::{Partial, Spot};
use crate::rpc::connect::{connect, socket_path};
use crate::rpc::pb;
use pb::psched_client::PschedClient;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};
use tonic::transport::Channel;

/// How often psched is asked whether it has ended, at first and at last.
const ASKED_AGAIN: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];

/// Makes it.
///
/// # Errors
/// There is none, and why; whether the application has been told is told.
pub(super) async fn of_saving(
    spot: Spot,
    saving: &pb::SavingCheckpoint,
    options: &Make,
    client: &mut PschedClient<Channel>,
) -> Result<String, String> {
    let of_dir = |flaw: Flaw| problem(&options.dir, &flaw);
    let key = saving.key.and_then(|key| Key::try_from(key).ok());
    let key = key.ok_or(
        "psched's answer lacks the application: install cpr and psched of one \
                         release",
    )?;
    let manifest = Manifest::read(saving.manifest.as_bytes(), None).map_err(of_dir)?;
    let goes_on = options.after == Some(After::GoOn);
    let by = told_by(&manifest, goes_on, nix::unistd::getuid().as_raw())?;
    // From here on a signal leaves nothing behind.
    let mut ends = Ends::catch().map_err(|e| format!("can't catch signals: {e}"))?;
    let partial = Partial::create(spot).map_err(of_dir)?;
    partial.dir().write_manifest(&saving.manifest).map_err(of_dir)?;
    match &by {
        Saving::Signal(number) => {
            let request = pb::KillRequest { apids: vec![key.apid.0], signal: *number };
            let problems = answer(client.kill(request), ANSWER_BOUND).await?.problems;
            problems.into_iter().find(|problem| !problem.is_empty()).map_or(Ok(()), Err)?;
        }
        Saving::Command(command) => {
            let status = run(command, &manifest, &mut ends).await;
            let status =
                status.map_err(|why| format!("no checkpoint was made: {command}: {why}"))?;
            if !status.success() {
                return Err(format!("no checkpoint was made: {command}: {status}"));
            }
        }
    }
    let (apid, dir) = (key.apid, options.dir.display());
    if goes_on {
        partial.publish(options.force).map_err(of_dir)?;
        // (The command may have made it end all the same.)
        let ended = tokio::select! {
            ended = whether_ended(|| listed(key), key) => ended,
            why = ends.came() => Err(why.to_owned()),
        };
        let then = what_then(&ended);
        return Ok(format!(
            "application {apid} has saved itself ({by}) and {then}: cpr -r {dir} starts it again from there"
        ));
    }
    let untold = |why: String| {
        format!("{why}: no checkpoint was made, but application {apid} was told to save itself")
    };
    let status = until_ended(client, key, &mut ends).await.map_err(untold)?;
    if status != 0 {
        return Err(format!(
            "application {apid} was told to save itself ({by}), and ended with status {status}, \
             not 0: no checkpoint was made; look for its files where it saves them"
        ));
    }
    partial.publish(options.force).map_err(of_dir)?;
    Ok(format!("application {apid} has saved itself and ended: cpr -r {dir} starts it again"))
}

/// What it is told by, if this caller can do that, and what he wants can be.
fn told_by(manifest: &Manifest, goes_on: bool, caller: u32) -> Result<Saving, String> {
    let (apid, owner) = (manifest.recovery.apid, &manifest.recovery.owner);
    let saving = manifest.recovery.posting.saving.clone();
    let saving = saving.ok_or(
        "psched's answer lacks the way to save it: install cpr and psched \
                               of one release",
    )?;
    match &saving {
        Saving::Signal(_) if goes_on => Err(format!(
            "application {apid} saves itself on {saving}, and ends: it can't go on; leave -g out, and cpr -r \
             starts it again"
        )),
        // Nobody runs with his rights what another has written; root least of all.
        Saving::Command(_) if caller != owner.uid => Err(format!(
            "application {apid} is saved by a command of user {}: only that user can checkpoint it",
            owner.name
        )),
        _ => Ok(saving),
    }
}

/// Runs the command that tells it, to its end.
async fn run(command: &str, manifest: &Manifest, ends: &mut Ends) -> Result<ExitStatus, String> {
    let launch = manifest
        .launch
        .as_ref()
        .ok_or("psched's answer lacks the launch; install cpr and psched of one release")?;
    let variables = launch.environment.iter().filter_map(|variable| {
        let at = variable.iter().position(|b| *b == b'=')?;
        Some((OsStr::from_bytes(&variable[..at]), OsStr::from_bytes(&variable[at + 1..])))
    });
    let mut child = tokio::process::Command::new("/bin/sh")
        .args(["-c", command])
        .current_dir(OsStr::from_bytes(&launch.directory))
        .env_clear()
        .envs(variables)
        .env("ALPS_APP_ID", manifest.recovery.apid.to_string())
        .stdin(std::process::Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|e| e.to_string())?;
    tokio::select! {
        status = child.wait() => status.map_err(|e| e.to_string()),
        why = ends.came() => Err(format!("{why}, and the command was killed")),
        () = tokio::time::sleep(DUMP_BOUND) => {
            Err(format!("the command did not end within {} s, and was killed", DUMP_BOUND.as_secs()))
        }
    }
}

/// Waits for its end, also while psched is away: the status.
async fn until_ended(
    client: &mut PschedClient<Channel>,
    key: Key,
    ends: &mut Ends,
) -> Result<u32, String> {
    let [mut pause, longest] = ASKED_AGAIN;
    let (begun, mut heard) = (Instant::now(), Instant::now());
    loop {
        let asking = client.list(pb::ListRequest { apid: key.apid.0, ..Default::default() });
        match answer(asking, ANSWER_BOUND).await {
            Ok(reply) => {
                heard = Instant::now();
                if let Some(status) = ended(&reply, key)? {
                    return Ok(status);
                }
            }
            Err(why) if heard.elapsed() > ANSWER_BOUND => return Err(why),
            Err(_) => {
                if let Ok(channel) = connect(&socket_path()).await {
                    *client = PschedClient::new(channel);
                }
            }
        }
        if begun.elapsed() > DUMP_BOUND {
            return Err(format!(
                "application {} has not ended within {} s",
                key.apid,
                DUMP_BOUND.as_secs()
            ));
        }
        tokio::select! {
            why = ends.came() => return Err(why.to_owned()),
            () = tokio::time::sleep(pause) => {}
        }
        pause = longest.min(pause * 2);
    }
}

/// What psched says of an application, on a connection of its own.
async fn listed(key: Key) -> Result<pb::ListReply, String> {
    let channel = connect(&socket_path()).await.map_err(|error| error.to_string())?;
    let request = pb::ListRequest { apid: key.apid.0, ..Default::default() };
    answer(PschedClient::new(channel).list(request), ANSWER_BOUND).await
}

/// The status with which it has ended, if it has. While psched gives no answer it is asked again,
/// for as long as an answer may take.
async fn whether_ended<F>(mut ask: impl FnMut() -> F, key: Key) -> Result<Option<u32>, String>
where
    F: Future<Output = Result<pb::ListReply, String>>,
{
    let [mut pause, longest] = ASKED_AGAIN;
    let begun = tokio::time::Instant::now();
    loop {
        match ask().await {
            Ok(reply) => return ended(&reply, key),
            Err(why) if begun.elapsed() >= ANSWER_BOUND => return Err(why),
            Err(_) => tokio::time::sleep(pause).await,
        }
        pause = longest.min(pause * 2);
    }
}

/// What an application does that has saved itself and was to go on, by the status with which it has
/// ended, if it has.
fn what_then(ended: &Result<Option<u32>, String>) -> String {
    match ended {
        Ok(None) => "goes on".to_owned(),
        Ok(Some(status)) => format!("has ended with status {status}, in spite of -g"),
        Err(why) => format!("may go on or not ({why})"),
    }
}

/// The status with which it has ended, if it has.
fn ended(reply: &pb::ListReply, key: Key) -> Result<Option<u32>, String> {
    let mut rows = reply.applications.iter().chain(&reply.history);
    let row = rows.find(|row| row.key == Some(key.into()));
    let row = row.ok_or("psched has no record of the application")?;
    Ok((row.state == "ended").then_some(row.status))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::example;

    fn saved_by(word: &str) -> Manifest {
        let mut manifest = example();
        manifest.recovery.posting.saving = Some(Saving::parse(word).expect("good"));
        manifest
    }

    #[test]
    fn one_that_ended_is_not_said_to_go_on() {
        let key = pb::ApplicationKey::from(example_key());
        let row = |state: &str| pb::ApplicationRow {
            key: Some(key),
            state: state.to_owned(),
            ..Default::default()
        };
        let then = |running: &[pb::ApplicationRow], history: &[pb::ApplicationRow]| {
            let reply = pb::ListReply {
                applications: running.to_vec(),
                history: history.to_vec(),
                ..Default::default()
            };
            what_then(&ended(&reply, example_key()))
        };
        assert_eq!(then(&[row("running")], &[]), "goes on");
        assert_eq!(then(&[], &[row("ended")]), "has ended with status 0, in spite of -g");
        assert!(then(&[], &[]).starts_with("may go on or not (psched has no record"));
    }

    #[tokio::test(start_paused = true)]
    async fn whether_it_goes_on_is_asked_until_psched_answers() {
        let running = pb::ApplicationRow {
            key: Some(example_key().into()),
            state: "running".to_owned(),
            ..Default::default()
        };
        let reply = pb::ListReply { applications: vec![running], ..Default::default() };
        let mut away = 3;
        let ended = whether_ended(
            || {
                let answers = away == 0;
                away -= i32::from(!answers);
                let away = Err("psched is away".to_owned());
                std::future::ready(if answers { Ok(reply.clone()) } else { away })
            },
            example_key(),
        );
        assert_eq!(ended.await, Ok(None));
        // Not for ever.
        let begun = tokio::time::Instant::now();
        let never = || std::future::ready(Err("psched is away".to_owned()));
        assert_eq!(whether_ended(never, example_key()).await, Err("psched is away".to_owned()));
        assert!(begun.elapsed() < 2 * ANSWER_BOUND);
    }

    fn example_key() -> Key {
        Key { apid: crate::apteam::Apid(12), incarnation: crate::apteam::Incarnation(1) }
    }

    #[test]
    fn who_tells_it() {
        let owner = example().recovery.owner.uid;
        assert_eq!(told_by(&saved_by("USR1"), false, 0), Ok(Saving::Signal(10)));
        let said = told_by(&saved_by("USR1"), true, owner).expect_err("it ends");
        assert!(said.contains("saves itself on SIGUSR1, and ends: it can't go on"), "{said}");
        assert!(told_by(&saved_by("./save"), true, owner).is_ok());
        let said = told_by(&saved_by("./save"), false, 0).expect_err("root does not");
        assert!(said.contains("a command of user alice"), "{said}");
        assert!(told_by(&example(), false, owner).is_err());
    }
}
