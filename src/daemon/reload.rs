//! psched.yaml, read when psched starts and again at SIGHUP.
//!
//! What is valid takes effect at once: nodes, administrators, variables. A few things are only
//! looked at when psched starts (`at start` in the table of variables, and where it listens and keeps
//! its state): what
//! the file says of them is named in the log and waits for a restart, which no application notices.
//! A file with any problem changes nothing, and all its problems are in the log.

use super::core::Input;
use super::{Arguments, bounds, settings};
use crate::config::Config;
use crate::machine::{Machine, Nid, format_nids};
use crate::rpc::listen::Bounds;
use crate::variables::{Variables, row};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use tokio::sync::{mpsc, watch};

/// What is needed to read the configuration again.
pub struct Reload<'a> {
    pub arguments: &'a Arguments,
    /// What is in force.
    pub running: Config,
    pub administrators: Arc<RwLock<BTreeSet<u32>>>,
    /// The limit of open files.
    pub files: u64,
    /// How many connections there may be.
    pub bounds: watch::Sender<Bounds>,
    pub inputs: &'a mpsc::Sender<Input>,
}

impl Reload<'_> {
    /// Reads it, and puts it in force or says why not. A disk or a directory of users that does not
    /// answer holds up nothing but this.
    pub async fn again(&mut self) {
        let arguments = self.arguments.clone();
        let read = tokio::task::spawn_blocking(move || {
            let config = configuration(&arguments)?;
            let administrators = administrators(&config);
            anyhow::Ok((config, administrators))
        });
        let (new, administrators) = match read.await {
            Ok(Ok(read)) => read,
            Ok(Err(error)) => {
                tracing::error!("{error:#}; what was in force stays so");
                return;
            }
            Err(_) => return,
        };
        let (new, told) = merged(&self.running, new);
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
        self.bounds.send_replace(bounds(&new, self.files));
        let settings = Box::new(settings(&new));
        let machine = Box::new(new.machine.clone());
        self.running = new;
        let _ = self.inputs.send(Input::Reconfigured { settings, machine }).await;
    }
}

/// What a new configuration means.
#[derive(Debug, Default, PartialEq)]
struct Told {
    /// In force now.
    changes: Vec<String>,
    /// At the next start.
    waits: Vec<String>,
}

/// The new configuration with what can't change while psched runs as it was.
fn merged(old: &Config, mut new: Config) -> (Config, Told) {
    let mut told = Told::default();
    if new.listen != old.listen {
        told.waits.push("listening changes".into());
        new.listen.clone_from(&old.listen);
    }
    if new.state != old.state {
        told.waits.push("state changes".into());
        new.state.clone_from(&old.state);
    }
    let names: BTreeSet<String> =
        old.variables.show().into_iter().chain(new.variables.show()).map(|s| s.name).collect();
    for name in names {
        let (before, after) = (old.variables.get(&name), new.variables.get(&name));
        let (Some(before), Some(after)) = (before, after) else { continue };
        if before == after {
            continue;
        }
        let change = format!("{name} {before} -> {after}");
        if row(&name).is_ok_and(|row| row.at_start) {
            told.waits.push(format!("{change} takes effect"));
            keep(&mut new.variables, &name, &before);
        } else {
            told.changes.push(change);
        }
    }
    if new.administrators != old.administrators {
        told.changes.push("administrators".into());
    }
    told.changes.extend(nodes_changed(&old.machine, &new.machine));
    (new, told)
}

fn keep(variables: &mut Variables, name: &str, value: &str) {
    if let Err(error) = variables.set(name, value) {
        tracing::error!(%error, "a value that was in force is not taken again");
    }
}

/// `nodes 2-3 added`.
fn nodes_changed(old: &Machine, new: &Machine) -> Vec<String> {
    let list = |nids: Vec<Nid>, what| {
        (!nids.is_empty()).then(|| format!("nodes {} {what}", format_nids(nids)))
    };
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
    let path = arguments.config.clone().unwrap_or_else(|| PathBuf::from("/etc/psched/psched.yaml"));
    let text = std::fs::read_to_string(&path).map_err(|e| {
        anyhow::anyhow!(
            "the configuration {} can't be read: {e}; name one with --config, or use `psched start`",
            path.display()
        )
    })?;
    crate::config::read(&text).map_err(|problems| {
        let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
        anyhow::anyhow!(
            "the configuration {} has {} problem(s):\n  {}",
            path.display(),
            lines.len(),
            lines.join("\n  ")
        )
    })
}

/// User ids of the configured administrators; a name without a user is said and left out.
pub fn administrators(config: &Config) -> BTreeSet<u32> {
    let mut ids = BTreeSet::new();
    for name in &config.administrators {
        let name = name.to_string();
        let known = name
            .parse()
            .ok()
            .or_else(|| nix::unistd::User::from_name(&name).ok().flatten().map(|u| u.uid.as_raw()));
        match known {
            Some(uid) => {
                ids.insert(uid);
            }
            None => tracing::warn!("the administrator {name} is not a user of this host"),
        }
    }
    ids
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        let nodes = "nodes:\n  - { nids: 0-1, processors: 2, flavors: [su, os, ap] }\n";
        crate::config::read(&text.replace("NODES", nodes)).expect("valid")
    }

    #[test]
    fn what_changes_now_and_what_waits() {
        let old = config("NODES");
        let (_, told) = merged(&old, config("NODES"));
        assert_eq!(told, Told::default());
        let new = config(
            "nodes:\n  - { nids: 1, processors: 1, flavors: [su, os, ap] }\n  - { nids: 7, \
             processors: 1 }\nlistening: /run/x.sock\nadministrators: [7]\nvariables:\n  \
             kill_grace: 7s\n  history_max: 5\n",
        );
        let (new, told) = merged(&old, new);
        assert_eq!(
            told.changes,
            [
                "kill_grace 5s -> 7s",
                "administrators",
                "nodes 7 added",
                "nodes 0 removed",
                "nodes 1 changed"
            ]
        );
        assert_eq!(told.waits, ["listening changes", "history_max 10000 -> 5 takes effect"]);
        // What waits is not in force, and is told again the next time.
        assert_eq!((new.listen, new.variables.history_max()), (None, 10_000));
        assert_eq!(new.variables.kill_grace().as_secs(), 7);
    }
}
