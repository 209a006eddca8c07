//! An application under aprun, and cpr.

use crate::support::{client, worded};
use crate::{Round, ended_well, has_written, held, size, until};
use anyhow::{Context, bail};
use psched::rpc::pb;
use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Checkpoints it twice, and restarts it, in a folder that is made for that and removed.
pub fn round(program: &Path, width: u32, folder: &Path) -> anyhow::Result<Round> {
    std::fs::create_dir(folder).context("a folder")?;
    let (goal, first, second) = (folder.join("goal"), folder.join("first"), folder.join("second"));
    let mut aprun = Command::new("aprun");
    aprun.args(["-q", "-n", &width.to_string()]).arg(program).arg(&goal);
    let mut aprun = Ended::start(&mut aprun, &first)?;
    until("its tenth lap", || has_written(&first, "lap 10\n"))?;
    let apid = until("an application that runs", || running().ok().flatten())?;

    let (go_on, said) = cpr(&["-c", "go", "-g", "-p", &apid.to_string()], folder)?;
    let stood = said.rsplit_once("it stood for ").and_then(|(_, rest)| rest.split_once(" s"));
    let stood = stood.and_then(|(seconds, _)| seconds.parse().ok());
    let stood = Duration::from_secs_f64(stood.with_context(|| format!("cpr says {said}"))?);
    let frozen = held(&folder.join("go/host-0"))?;
    let (end, _) = cpr(&["-c", "end", "-k", "-p", &apid.to_string()], folder)?;
    aprun.ended()?;
    let size = size(&folder.join("end"))?;

    let mut command = Command::new("cpr");
    command.arg("-r").arg(folder.join("end"));
    let called_ns = now_ns();
    let mut cpr = Ended::start(&mut command, &second)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (recovering_ns, unlocked_ns) = runtime.block_on(unlocked(apid))?;
    std::fs::write(&goal, "").context("the goal")?;
    if !cpr.ended()? {
        bail!("the restarted program has not ended well");
    }
    ended_well(&second)?;
    std::fs::remove_dir_all(folder).context("its folder")?;
    let back = Duration::from_nanos(unlocked_ns.saturating_sub(called_ns));
    let back_proper = Duration::from_nanos(unlocked_ns.saturating_sub(recovering_ns));
    let (go_on_sealed, end_sealed) = Default::default();
    Ok(Round { size, stood, frozen, go_on, go_on_sealed, end, end_sealed, back, back_proper })
}

fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// How long it took, and what it said.
fn cpr(arguments: &[&str], folder: &Path) -> anyhow::Result<(Duration, String)> {
    let mut command = Command::new("cpr");
    command.args(arguments).current_dir(folder).stdin(Stdio::null());
    let clock = Instant::now();
    let output = command.output().context("cpr")?;
    let took = clock.elapsed();
    if !output.status.success() {
        bail!("cpr {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok((took, String::from_utf8_lossy(&output.stdout).into_owned()))
}

/// The application that runs, if it is one.
fn running() -> anyhow::Result<Option<u64>> {
    let output = Command::new("apstat").args(["-a", "--json"]).output().context("apstat")?;
    let view: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let rows = view["applications"].as_array().context("no list")?;
    let runs = rows.iter().find(|row| row["state"] == "running");
    Ok(runs.and_then(|row| row["apid"].as_u64()))
}

/// When the one that comes after this one was launched, and when it ran, by psched's log.
async fn unlocked(before: u64) -> anyhow::Result<(u64, u64)> {
    let mut psched = client().await?;
    let begun = Instant::now();
    while begun.elapsed() < crate::BOUND {
        let request = pb::EventsRequest { apid: before + 1, ..Default::default() };
        // Until it is posted there is none of this number.
        if let Ok(reply) = psched.events(request).await.map_err(worded) {
            let events = reply.into_inner().events;
            let at = |name: &str| events.iter().find(|e| e.name == name).map(|e| e.at_ns);
            if let Some(times) = at("recovering").zip(at("unlocked")) {
                return Ok(times);
            }
        }
        tokio::time::sleep(crate::LOOK).await;
    }
    bail!("the restarted application does not run")
}

/// A process that is not left behind.
struct Ended(Child);

impl Ended {
    fn start(command: &mut Command, output: &Path) -> anyhow::Result<Ended> {
        let output = File::create(output).context("a file")?;
        command.stdin(Stdio::null()).stdout(output).stderr(Stdio::null());
        Ok(Ended(command.spawn().context("a program of psched's")?))
    }

    /// Waits for its end; whether that was a good one.
    fn ended(&mut self) -> anyhow::Result<bool> {
        let status = until("its end", || self.0.try_wait().ok().flatten())?;
        Ok(status.success())
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        // An Err: it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
