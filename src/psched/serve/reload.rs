//! psched.yaml, read when psched starts and again at SIGHUP or for `psmgr reload`.
//!
//! What is valid takes effect at once: nodes, administrators, variables. A few things are only
//! looked at when psched starts (`at start` in the table of variables, and where it listens and keeps
//! its state): what
//! the file says of them is named in the log and waits for a restart, which no application notices.
//! A file with any problem changes nothing, and all its problems are in the log.

use super::Arguments;
use super::clock::now;
use super::input::Input;
use super::people::{administrators, groups_looked_up, warn_of_unknown};
use super::tuner::{Answer, Reconfigured};
use crate::apteam::change::By;
use crate::config::Config;
use crate::machine::{Machine, Nid, nids_text};
use crate::os::regular::open_regular;
use crate::psched::decide::tuning::Told;
use crate::variables::units::count;
use std::collections::BTreeSet;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use tokio::sync::{mpsc, oneshot};

/// The largest psched.yaml that is read, in bytes: a line for each of as many nodes as there may be
/// is less.
const CONFIGURATION_MAX: u64 = crate::config::SIZE_MAX as u64;

/// What is needed to read the configuration again.
pub struct Reload {
    pub arguments: Arguments,
    /// What is in force.
    pub running: Arc<RwLock<Config>>,
    pub administrators: Arc<RwLock<BTreeSet<u32>>>,
    pub inputs: mpsc::Sender<Input>,
}

impl Reload {
    /// SIGHUP has come: the log has all that is to be said.
    pub async fn hup(&mut self) {
        let uid = rustix::process::geteuid().as_raw();
        let by = By { uid, name: "SIGHUP".into(), at_ns: now().wall_ns };
        let _ = self.again(Some(by)).await;
    }

    /// Names of users or groups that were not known are looked for again: no change of an administrator's.
    pub async fn names_again(&mut self) {
        let _ = self.again(None).await;
    }

    /// Reads it, and puts it in force or says why not. A disk or a directory of users that does not
    /// answer holds up nothing but this.
    ///
    /// # Errors
    /// What is wrong with it, or that the disk takes no record of it. Nothing has changed.
    pub async fn again(&mut self, by: Option<By>) -> Answer {
        let ending = || "psched is ending".to_owned();
        let arguments = self.arguments.clone();
        let told = by.is_some();
        let read = tokio::task::spawn_blocking(move || {
            let config = configuration_of(
                &path(&arguments),
                "put it there again, or start psched with another",
            )?;
            let administrators = administrators(&config);
            let unknown = if told { warn_of_unknown(&config) } else { Vec::new() };
            anyhow::Ok((config, administrators, unknown))
        });
        let (new, administrators, unknown) = match read.await {
            Ok(Ok(read)) => read,
            Ok(Err(error)) => {
                let text = format!("the former configuration stays in force: {error:#}");
                // (An event is one line of the log, whatever is in it.)
                text.lines().for_each(|line| tracing::error!("{line}"));
                return Err(text);
            }
            Err(_) => return Err(ending()),
        };
        let running = self.running.read().unwrap_or_else(PoisonError::into_inner).clone();
        let (new, told) = merged(&running, new);
        let (answer, tuned) = oneshot::channel();
        let (variables, machine) = (new.variables.clone(), Box::new(new.machine.clone()));
        let read = Box::new(Reconfigured { variables, machine, by, told });
        // Nobody answers where psched just ends.
        let input = Input::Reconfigured { new: read, answer };
        self.inputs.send(input).await.map_err(|_| ending())?;
        let (mut told, unrecorded) = match tuned.await.map_err(|_| ending())? {
            Ok(told) => told,
            Err(text) => {
                tracing::error!("the configuration was not read again: {text}");
                return Err(text);
            }
        };
        told.notes = unknown;
        for line in &told.waits {
            tracing::warn!(
                "{line} when psched is restarted (applications run on); until then as before"
            );
        }
        if told.changes.is_empty() {
            tracing::info!("the configuration was read again: nothing to change");
        } else {
            tracing::info!("the configuration was read again: {}", told.changes.join(", "));
        }
        *self.administrators.write().unwrap_or_else(PoisonError::into_inner) = administrators;
        *self.running.write().unwrap_or_else(PoisonError::into_inner) = new;
        Ok((told, unrecorded))
    }
}

/// The new configuration with what can't change while psched runs as it was. Variables are
/// [`Tuning`](crate::psched::decide::tuning::Tuning)'s.
pub(super) fn merged(old: &Config, mut new: Config) -> (Config, Told) {
    let mut told = Told::default();
    if new.listen != old.listen {
        told.waits.push("listening changes".into());
        new.listen.clone_from(&old.listen);
    }
    if new.state != old.state {
        told.waits.push("state changes".into());
        new.state.clone_from(&old.state);
    }
    if new.network != old.network {
        told.waits.push("network changes".into());
        new.network = old.network;
    }
    if new.certificates != old.certificates {
        told.waits.push("certificates changes".into());
        new.certificates.clone_from(&old.certificates);
    }
    if new.administrators != old.administrators {
        told.changes.push("administrators".into());
    }
    told.changes.extend(nodes_changed(&old.machine, &new.machine));
    if new.machine.regions != old.machine.regions {
        told.changes.push("regions".into());
    }
    if new.machine.accounts != old.machine.accounts {
        told.changes.push("accounts".into());
    }
    (new, told)
}

/// `NIDs 2-3 added`.
fn nodes_changed(old: &Machine, new: &Machine) -> Vec<String> {
    let list =
        |nids: Vec<Nid>, what| (!nids.is_empty()).then(|| format!("{} {what}", nids_text(nids)));
    let lacks = |a: &Machine, b: &Machine| -> Vec<Nid> {
        a.nodes.keys().filter(|n| !b.nodes.contains_key(n)).copied().collect()
    };
    let differs = |nid: &Nid| old.nodes.get(nid).is_some_and(|n| new.nodes.get(nid) != Some(n));
    let changed = new.nodes.keys().copied().filter(differs).collect();
    [list(lacks(new, old), "added"), list(lacks(old, new), "removed"), list(changed, "changed")]
        .into_iter()
        .flatten()
        .collect()
}

/// What psched.yaml says.
///
/// # Errors
/// Why it can't be read, or all its problems.
pub fn configuration(arguments: &Arguments) -> anyhow::Result<Config> {
    configuration_of(&path(arguments), "name one with --config, or use `psched start`")
}

/// Where that is.
pub(super) fn path(arguments: &Arguments) -> PathBuf {
    arguments.config.clone().unwrap_or_else(|| PathBuf::from("/etc/psched/psched.yaml"))
}

/// The text of a regular file, unless it is too large.
fn text_of(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    open_regular(path)?.take(CONFIGURATION_MAX + 1).read_to_string(&mut text)?;
    match text.len() as u64 > CONFIGURATION_MAX {
        true => Err(io::Error::other("it is larger than 10 MiB")),
        false => Ok(text),
    }
}

/// What this psched.yaml says; `cure`: what to do where it can't be read.
///
/// # Errors
/// Why it can't be read, or all its problems.
pub fn configuration_of(path: &Path, cure: &str) -> anyhow::Result<Config> {
    let text = text_of(path).map_err(|e| {
        anyhow::anyhow!("the configuration {} can't be read: {e}; {cure}", path.display())
    })?;
    let mut config = crate::config::read(&text).map_err(|problems| {
        let lines: Vec<String> = problems.iter().map(|problem| problem.of_file(path)).collect();
        anyhow::anyhow!(
            "the configuration {} has {}:\n  {}",
            path.display(),
            count(lines.len(), "problem"),
            lines.join("\n  ")
        )
    })?;
    groups_looked_up(&mut config);
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        let nodes = "nodes:\n  - { nids: 0-1, processors: 2, flavors: [su, os, ap] }\n";
        crate::config::read(&text.replace("NODES", nodes)).expect("valid")
    }

    #[test]
    fn what_has_no_end_is_not_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let fifo = folder.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).expect("made");
        for path in [&fifo, Path::new("/dev/zero")] {
            let refused = configuration_of(path, "").expect_err("it is not a file");
            assert!(refused.to_string().contains("not a regular file"), "{refused}");
        }
        let large = folder.path().join("large");
        let file = std::fs::File::create(&large).expect("made");
        file.set_len(CONFIGURATION_MAX + 2).expect("set");
        let refused = configuration_of(&large, "").expect_err("it is too large");
        assert!(refused.to_string().contains("larger than"), "{refused}");
    }

    #[test]
    fn what_changes_now_and_what_waits() {
        let old = config("NODES");
        let (_, told) = merged(&old, config("NODES"));
        assert_eq!(told, Told::default());
        let new = config(
            "nodes:\n  - { nids: 1, processors: 1, flavors: [su, os, ap] }\n  - { nids: 7, \
             processors: 1 }\nlistening: /run/x.sock\nadministrators: [7]\n",
        );
        let (new, told) = merged(&old, new);
        assert_eq!(
            told.changes,
            ["administrators", "NID 7 added", "NID 0 removed", "NID 1 changed"]
        );
        assert_eq!(told.waits, ["listening changes"]);
        // What waits is not in force, and is told again the next time.
        assert_eq!(new.listen, None);
    }
}
