//! A launch that has failed by a node's fault, and is tried again elsewhere.

use super::*;
use crate::apteam::place::HostPart;
use crate::machine::Nid;

impl Front {
    /// psched says so: no PE has run, and the application waits for another place. It says it again to
    /// whoever watches the application anew.
    pub(super) fn launch_retried(&mut self, now_ns: u64, retried: Retried) {
        let known = retried.incarnation <= self.retried;
        if known || self.step == Step::Going || self.ended.is_some() {
            return;
        }
        self.retried = retried.incarnation;
        if !self.setup.quiet {
            let line = self.retry_line(&retried);
            self.tell(line);
        }
        let its = |placement: &Placement| placement.key.incarnation.0 <= retried.incarnation;
        if self.step < Step::Opening || !self.placement.as_deref().is_some_and(its) {
            return;
        }
        // As before the launch: what the apinits of that place still say is nobody's.
        self.step = Step::Waiting;
        self.placement = None;
        self.apinit = Peer::default();
        self.refused = None;
        self.refusals = 0;
        self.received = Received::default();
        self.silent_hosts = SilentHosts::default();
        // (Nothing has been read: what the next apshepherd allows is its own to say.)
        self.stdin = stdin::Unreceived::default();
        (self.resuming, self.launch_again, self.done, self.given_up) = (false, false, false, false);
        (self.unknown_there, self.unlaunched) = (false, false);
        self.wait_say_at = Some(now_ns + SILENCE_NS);
        match (self.withdrawal, self.apid) {
            // The apinits had nothing left to end.
            (Some(Withdrawal { signal, .. }), Some(apid)) if self.psched.up => {
                self.act(Action::Kill { apid, signal });
            }
            _ => {}
        }
    }

    /// `PE 3 of application 12 could not be started on NID 2 (host n7): ...; tried again elsewhere, 1 of 3`.
    fn retry_line(&self, retried: &Retried) -> String {
        let Retried { cause, attempt, most, .. } = retried;
        let named = self.named();
        let what = match cause {
            Cause::LaunchFailed { rank, .. } => format!("PE {rank} of {named}"),
            _ => named,
        };
        let why = match cause.failed_launch() {
            Some((nid, text)) => format!(" on NID {nid}{}: {text}", self.host_named(nid)),
            None => format!(": {cause}"),
        };
        format!("{what} could not be started{why}; tried again elsewhere, {attempt} of {most}")
    }

    /// ` (host n7)` of a node in this place, if its host has a name.
    fn host_named(&self, nid: Nid) -> String {
        let hosts = self.placement.iter().flat_map(|placement| &placement.hosts);
        let host = hosts.into_iter().find(|host| host.nids.contains(&nid));
        match host.map_or("", HostPart::host_name) {
            "" => String::new(),
            name => format!(" (host {name})"),
        }
    }
}
