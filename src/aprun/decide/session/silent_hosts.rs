//! Hosts of the application that do not answer, as the user is told.

use super::*;
use crate::machine::{Nid, format_nids};

/// Hosts that a line names; of more it says how many.
const NAMED_MAX: usize = 8;
/// Between two lines that the apinit of PE 0 does not answer, at least: it may come and go.
const OWN_PAUSE_NS: u64 = 10 * SECOND_NS;

/// What the user was told.
#[derive(Debug, Default)]
pub(super) struct SilentHosts {
    /// By their index in the placement; the first is that of PE 0, to which this process has a
    /// connection.
    hosts: BTreeSet<u32>,
    /// The host of PE 0 is not reached.
    head_is_away: bool,
    /// From when on a message about the host of PE 0 may be written again.
    own_not_before_ns: u64,
}

impl Front {
    /// The head says which of the other hosts do not answer.
    pub(super) fn silent_hosts(&mut self, nids: &[Nid]) {
        let nids: BTreeSet<Nid> = nids.iter().copied().collect();
        let hosts = self.placement.iter().flat_map(|placement| &placement.hosts);
        let silent = |(_, host): &(u32, &HostPart)| host.nids.iter().any(|nid| nids.contains(nid));
        let mut now: BTreeSet<u32> =
            (0..).zip(hosts).skip(1).filter(silent).map(|(index, _)| index).collect();
        // (Of its own host it says nothing.)
        now.extend(self.silent_hosts.hosts.get(&0));
        let before = std::mem::replace(&mut self.silent_hosts.hosts, now.clone());
        self.tell_silent(&(&now - &before), "");
        self.tell_back(&(&before - &now));
    }

    /// Notes whether what keeps the apinit of PE 0 away is its host, and not an apinit that has
    /// said why, nor the one of this host.
    pub(super) fn head_is_away(&mut self, away: bool) {
        self.silent_hosts.head_is_away = away;
    }

    /// When the user is to be told that the apinit of PE 0 does not answer.
    pub(super) fn apinit_say_at(&self) -> Option<u64> {
        Some(self.apinit.say_at()?.max(self.silent_hosts.own_not_before_ns))
    }

    /// The apinit of PE 0 does not answer.
    pub(super) fn tell_apinit_silent(&mut self, now_ns: u64) {
        self.silent_hosts.own_not_before_ns = now_ns + OWN_PAUSE_NS;
        let text = self.apinit.text.clone();
        let elsewhere = self.nid().is_some_and(|nid| self.other_host_of(nid).is_some());
        if self.is_launched() && elsewhere && self.silent_hosts.head_is_away {
            self.silent_hosts.hosts.insert(0);
            return self.tell_silent(&BTreeSet::from([0]), &format!(" ({text})"));
        }
        self.tell(format!("apinit does not answer ({text}); trying again"));
    }

    /// The user was told of the host of PE 0, whatever has become of the attempts to reach it.
    pub(super) fn is_told_of_head(&self) -> bool {
        self.silent_hosts.hosts.contains(&0)
    }

    /// It answers again, of which the user was told.
    pub(super) fn tell_apinit_answers(&mut self) {
        match self.silent_hosts.hosts.remove(&0) {
            true => self.tell_back(&BTreeSet::from([0])),
            false => self.tell("apinit answers again"),
        }
    }

    fn tell_silent(&mut self, hosts: &BTreeSet<u32>, why: &str) {
        let (named, several) = self.named_hosts(hosts);
        let (verb, whose) = if several { ("do", "their ") } else { ("does", "its ") };
        // (By the host of PE 0 that of all others comes.)
        let whose = if hosts.contains(&0) { "" } else { whose };
        let text = format!("{named} {verb} not answer{why}; {whose}output comes later");
        self.tell_of_hosts(hosts, text);
    }

    fn tell_back(&mut self, hosts: &BTreeSet<u32>) {
        let (named, several) = self.named_hosts(hosts);
        let verb = if several { "answer" } else { "answers" };
        self.tell_of_hosts(hosts, format!("{named} {verb} again"));
    }

    fn tell_of_hosts(&mut self, hosts: &BTreeSet<u32>, text: String) {
        if !hosts.is_empty() && !self.setup.quiet {
            self.tell(text);
        }
    }

    /// `NIDs 2-5 (hosts h3, h4)`, and whether it is several nodes.
    fn named_hosts(&self, indices: &BTreeSet<u32>) -> (String, bool) {
        let hosts = self.placement.iter().flat_map(|placement| &placement.hosts);
        let hosts = (0..).zip(hosts).filter(|(index, _)| indices.contains(index));
        let hosts: Vec<&HostPart> = hosts.map(|(_, host)| host).collect();
        let nids: BTreeSet<Nid> = hosts.iter().flat_map(|host| host.nids.iter().copied()).collect();
        let several = nids.len() > 1;
        let mut names: Vec<&str> = hosts.iter().map(|host| host.host_name()).collect();
        names.retain(|name| !name.is_empty());
        names.sort_unstable();
        names.dedup();
        let more = match names.len().saturating_sub(NAMED_MAX) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let kind = if names.len() > 1 { "hosts" } else { "host" };
        names.truncate(NAMED_MAX);
        let named = match names.is_empty() {
            true => String::new(),
            false => format!(" ({kind} {}{more})", names.join(", ")),
        };
        let nid = if several { "NIDs" } else { "NID" };
        (format!("{nid} {}{named}", format_nids(nids)), several)
    }
}
