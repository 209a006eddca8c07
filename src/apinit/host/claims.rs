//! Which processors this apinit binds to, for the pscheds of others to see; and who else does.
//!
//! A private instance says it itself, before it starts anything ([`crate::commands::start`]); its apinits don't.
//! Other apinits say it from their start on. One that has nothing running takes processors that no other psched
//! takes, where there are any: by them it counts those of its nodes for which psched.yaml names none. All apinits
//! of one psched count by the same, and one that has something running by those it counted by before.

use super::runtime::Runtime;
use crate::apteam::protocol::node::NodeSpec;
use crate::os::claims::{self, Claim, Other, Says, spare};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// What it says, and what it has said.
#[derive(Debug, Default)]
pub(super) struct Claims {
    folder: Option<PathBuf>,
    claim: Option<Claim>,
    says: Says,
    told: BTreeSet<String>,
}

impl Claims {
    /// From the start on; and the processors by which it counts, of those that it may use.
    pub fn begin(
        psched: &str,
        name: String,
        runtime: &Runtime,
        cpus: Vec<u32>,
    ) -> (Claims, Vec<u32>) {
        let Some(folder) = claims::folder() else { return (Claims::default(), cpus) };
        let psched = psched.to_owned();
        let mut claims = Claims {
            says: Says { name, psched, ..Says::default() },
            folder: Some(folder),
            ..Claims::default()
        };
        let may = |list: &Vec<u32>| !list.is_empty() && list.iter().all(|cpu| cpus.contains(cpu));
        let uid = rustix::process::geteuid().as_raw();
        let others = claims.all();
        let friend = others.iter().find(|other| claims.is_friend(other) && may(&other.says.among));
        let among = match (runtime.applications().is_empty(), runtime.cpus().filter(may), friend) {
            (false, Some(kept), _) => kept,
            (false, None, _) => cpus,
            (true, _, Some(friend)) => friend.says.among.clone(),
            (true, _, None) => spare(&cpus, &claims.strangers(), uid, None).cpus,
        };
        runtime.keep_cpus(&among);
        claims.says.among.clone_from(&among);
        claims.say();
        (claims, among)
    }

    /// It is linked, and knows its nodes. Returned: what is to be told of others, once each.
    pub fn linked(&mut self, nodes: &[NodeSpec]) -> Vec<String> {
        if self.folder.is_none() {
            return Vec::new();
        }
        let mut cpus = BTreeSet::new();
        for node in nodes {
            // (After one round all are.)
            let most = node.processors.min(self.says.among.len().max(node.cpus.len()) as u32);
            cpus.extend((0..most).filter_map(|p| node.cpu(p, &self.says.among)));
        }
        self.says.cpus = cpus;
        self.say();
        let cpus: Vec<u32> = self.says.cpus.iter().copied().collect();
        let mut warnings = claims::shared(&cpus, &self.strangers());
        warnings.retain(|text| self.told.len() < TOLD_MAX && self.told.insert(text.clone()));
        warnings
    }

    fn say(&mut self) {
        let Some(folder) = &self.folder else { return };
        let said = match &self.claim {
            Some(claim) => claim.say(&self.says),
            None => Claim::new(folder, &self.says).map(|claim| self.claim = Some(claim)),
        };
        if let Err(error) = said {
            // It works all the same.
            tracing::info!("other pscheds can't see which processors are used here: {error}");
        }
    }

    fn all(&self) -> Vec<Other> {
        self.folder.as_deref().map(claims::others).unwrap_or_default()
    }

    /// Of the same psched: each has nodes of its own.
    fn is_friend(&self, other: &Other) -> bool {
        other.says.psched == self.says.psched && other.uid == rustix::process::geteuid().as_raw()
    }

    fn strangers(&self) -> Vec<Other> {
        self.all().into_iter().filter(|other| !self.is_friend(other)).collect()
    }
}

/// Sentences that are remembered: after so many no more are told.
const TOLD_MAX: usize = 64;
