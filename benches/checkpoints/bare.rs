//! The same program under mpiexec, and CRIU as one would call it.

use crate::{Round, ended_well, has_written, held, size, until};
use anyhow::{Context, bail};
use psched::checkpoint::Summing;
use psched::node::checkpoint::criu::Criu;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What a dump and a restore are given alike: what leads out of the tree is nobody's here either.
const OPTIONS: &[&str] = &[
    "--shell-job",
    "--tcp-established",
    "--network-lock=skip",
    "--file-locks",
    "--link-remap",
    "--ghost-limit=64M",
    "--manage-cgroups=ignore",
    "-v2",
];

/// Dumps it twice and restores it, in a folder that is made for that and removed.
pub fn round(criu: &Criu, program: &Path, width: u32, folder: &Path) -> anyhow::Result<Round> {
    std::fs::create_dir(folder).context("a folder")?;
    let (goal, written) = (folder.join("goal"), folder.join("written"));
    // A session of its own: its terminal, if there is one, leads out of the tree. (It takes the place of
    // setsid, which forks only where it leads a group.)
    let mut command = Command::new("setsid");
    command.args(["mpiexec.hydra", "-n", &width.to_string()]).arg(program).arg(&goal);
    let output = File::create(&written).context("a file")?;
    command.stdin(Stdio::null()).stdout(output).stderr(Stdio::null());
    let mut mpiexec = command.spawn().context("mpiexec.hydra")?;
    let mut tree = Tree { root: Some(mpiexec.id()) };
    until("its tenth lap", || has_written(&written, "lap 10\n"))?;

    let pid = mpiexec.id().to_string();
    let go = folder.join("go");
    let go_on = called(criu, &["dump", "--leave-running", "-t", &pid], &go)?;
    let go_on_sealed = sealed(&go)?;
    let frozen = held(&go)?;
    let there = tree.pids();
    let images = folder.join("end");
    let end = called(criu, &["dump", "-t", &pid], &images)?;
    let end_sealed = sealed(&images)?;
    ended(&mut mpiexec, &there)?;
    let size = size(&images)?;

    let back = called(criu, &["restore", "--restore-detached"], &images)?;
    std::fs::write(&goal, "").context("the goal")?;
    ended_well(&written)?;
    tree.gone()?;
    std::fs::remove_dir_all(folder).context("its folder")?;
    let (stood, back_proper) = (frozen, back);
    Ok(Round { size, stood, frozen, go_on, go_on_sealed, end, end_sealed, back, back_proper })
}

/// Runs CRIU with a folder of images: how long it took.
fn called(criu: &Criu, arguments: &[&str], images: &Path) -> anyhow::Result<Duration> {
    if arguments[0] == "dump" {
        std::fs::create_dir(images).context("a folder")?;
    }
    let mut command = Command::new(criu.program());
    command.args(arguments).args(OPTIONS).arg("-D").arg(images);
    let log = format!("{}.log", arguments[0]);
    command.arg("-o").arg(&log).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let clock = Instant::now();
    let status = command.status().context("criu")?;
    let took = clock.elapsed();
    if !status.success() {
        let log = std::fs::read_to_string(images.join(&log)).unwrap_or_default();
        let last: Vec<&str> = log.lines().rev().take(5).collect();
        bail!("criu {arguments:?}: {status}: {}", last.join(" / "));
    }
    Ok(took)
}

/// Sums up all files and puts them on disk, one after the other: how long it took.
fn sealed(images: &Path) -> anyhow::Result<Duration> {
    let clock = Instant::now();
    let mut piece = vec![0; 1 << 18];
    for entry in std::fs::read_dir(images).context("the images")? {
        let mut file = File::open(entry?.path()).context("an image")?;
        let mut sum = Summing::default();
        loop {
            match file.read(&mut piece).context("an image")? {
                0 => break,
                count => sum.add(&piece[..count]),
            }
        }
        std::hint::black_box(sum.done());
        file.sync_all().context("an image")?;
    }
    File::open(images).and_then(|folder| folder.sync_all()).context("the folder")?;
    Ok(clock.elapsed())
}

/// Waits until everybody of a tree that CRIU has killed is gone, so that their pids are free.
fn ended(mpiexec: &mut Child, pids: &[u32]) -> anyhow::Result<()> {
    until("the end of mpiexec", || mpiexec.try_wait().ok().flatten())?;
    let there = |pid: &u32| Path::new(&format!("/proc/{pid}")).exists();
    until("free pids", || (!pids.iter().any(there)).then_some(()))
}

/// mpiexec and all below it, which are not left behind.
struct Tree {
    root: Option<u32>,
}

impl Tree {
    fn pids(&self) -> Vec<u32> {
        let mut found: Vec<u32> = self.root.into_iter().collect();
        let mut at = 0;
        while let Some(pid) = found.get(at).copied() {
            let path = format!("/proc/{pid}/task/{pid}/children");
            let text = std::fs::read_to_string(path).unwrap_or_default();
            found.extend(text.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
            at += 1;
        }
        found
    }

    /// Waits until it has ended by itself. Its parent, after a restore, is nobody's that can be asked.
    fn gone(&mut self) -> anyhow::Result<()> {
        let stat = format!("/proc/{}/stat", self.root.unwrap_or(0));
        let ended =
            |text: String| text.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z'));
        until("the end of mpiexec", || {
            std::fs::read_to_string(&stat).map_or(true, ended).then_some(())
        })?;
        self.root = None;
        Ok(())
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        for pid in self.pids() {
            if let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) {
                // An Err: it has ended.
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
    }
}
