//! What one who asks may see of others' applications: the variable `private`.
//!
//! Administrators see all, and everybody what is his own. Of the rest goes, with `commands`, the command line;
//! with `all`, that there is anything: rows, numbers on nodes and in plans, and who is named in texts.

use crate::apteam::Apid;
use crate::apteam::posting::{Explanation, Owner};
use crate::apteam::record::Apteam;
use crate::psched::decide::Scheduler;
use crate::psched::reason::Reason;
use crate::rpc::pb;
use crate::rpc::pb::cause::Kind;
use crate::variables::Private;

/// What stands for a command that is not shown.
const COMMAND: &str = "(private)";

/// One who asks.
#[derive(Clone, Copy, Debug)]
pub struct Viewer {
    uid: u32,
    hidden: Private,
}

impl Viewer {
    /// This user, of whom so much is hidden that is not his.
    pub fn new(uid: u32, administrator: bool, private: Private) -> Viewer {
        Viewer { uid, hidden: if administrator { Private::Off } else { private } }
    }

    /// One from whom nothing is hidden.
    pub fn everything() -> Viewer {
        Viewer { uid: 0, hidden: Private::Off }
    }

    /// Whether he may know that there is an application of this user's.
    pub fn sees(&self, owner: u32) -> bool {
        self.hidden != Private::All || owner == self.uid
    }

    /// The only user whose applications he sees, if there is one.
    pub fn only(&self) -> Option<u32> {
        (self.hidden == Private::All).then_some(self.uid)
    }

    fn sees_command(&self, owner: u32) -> bool {
        self.hidden == Private::Off || owner == self.uid
    }

    /// Whether he may know of the application with this number.
    pub fn sees_apid(&self, scheduler: &Scheduler, apid: u64) -> bool {
        let team = scheduler.team(Apid(apid));
        self.hidden != Private::All || team.is_some_and(|team| self.sees(team.owner.uid))
    }

    /// The row of an application that he sees.
    pub fn application(&self, team: &Apteam, mut row: pb::ApplicationRow) -> pb::ApplicationRow {
        if !self.sees_command(team.owner.uid) {
            COMMAND.clone_into(&mut row.command);
            if !row.saving.is_empty() {
                COMMAND.clone_into(&mut row.saving);
            }
            // A file that could not be executed, or what a program has sent.
            let cause = row.decisive.as_mut().and_then(|decisive| decisive.cause.as_mut());
            if let Some(cause) = cause
                && let Kind::LaunchFailed | Kind::Garbage = cause.kind()
            {
                COMMAND.clone_into(&mut cause.text);
            }
        }
        row
    }

    /// What psview is told of plans and changes.
    pub fn turns(&self, scheduler: &Scheduler, reply: &mut pb::TurnsReply) {
        if self.hidden != Private::All {
            return;
        }
        let sees = |apid: &u64| self.sees_apid(scheduler, *apid);
        for plan in &mut reply.plans {
            plan.members.retain(sees);
            plan.slices.iter_mut().for_each(|slice| slice.party.retain(sees));
        }
        reply.plans.retain(|plan| !plan.members.is_empty());
        for switch in &mut reply.switches {
            switch.stopped.retain(sees);
            switch.started.retain(sees);
        }
        reply.switches.retain(|switch| !(switch.stopped.is_empty() && switch.started.is_empty()));
    }

    /// An event of an application that he sees.
    pub fn event(&self, owner: &Owner, mut row: pb::EventRow) -> pb::EventRow {
        if !self.sees_command(owner.uid)
            && let "posted" | "managed" | "retried" | "ended" = row.name.as_str()
        {
            // `-n 4 by anna: ./a.out`, `status 127: PE 0 on NID 1 could not be started: ./a.out ...`
            let before = row.detail.split_once(": ").map(|(before, _)| before);
            // (`status 0` has no cause. Any other detail without a command is not known to be without one.)
            if before.is_some() || row.name != "ended" {
                row.detail = format!("{}: {COMMAND}", before.unwrap_or_default());
            }
        }
        row
    }

    /// A reason, in words.
    pub fn explanation(&self, why: &Reason) -> Explanation {
        why.words(&|uid| self.sees(uid))
    }

    /// A reason in the words of a list.
    pub fn listed(&self, why: &Reason) -> Explanation {
        why.listed(&|uid| self.sees(uid))
    }

    /// A reason in one short line, for the aprun of this application.
    pub fn brief(&self, apid: Apid, why: &Reason) -> Explanation {
        why.brief(apid, &|uid| self.sees(uid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apteam::record::State;
    use crate::psched::serve::tests::team;

    /// A file's name is part of a command, also where it stands in a cause.
    #[test]
    fn a_cause_names_no_file_to_who_sees_no_command() {
        let owner = Owner { uid: 1, ..Owner::default() };
        let team = Apteam { owner: owner.clone(), ..team(1, State::Ended) };
        let text = "/home/anna/secret: no such file";
        let row = |kind: Kind| {
            let cause = pb::Cause { kind: kind.into(), text: text.into(), ..Default::default() };
            let decisive = Some(pb::Decisive { at_mono_ns: 1, cause: Some(cause) });
            pb::ApplicationRow { command: text.into(), decisive, ..Default::default() }
        };
        let event = |name: &str| pb::EventRow {
            name: name.into(),
            detail: format!("status 127: PE 0 on NID 0 could not be started: {text}"),
            ..Default::default()
        };
        for (hidden, _) in Private::ALL {
            for (uid, administrator) in [(1, false), (2, false), (2, true)] {
                let viewer = Viewer::new(uid, administrator, hidden);
                let seen = hidden == Private::Off || uid == 1 || administrator;
                for kind in [Kind::LaunchFailed, Kind::Garbage] {
                    let shown = format!("{:?}", viewer.application(&team, row(kind)));
                    assert_eq!(shown.contains("secret"), seen, "{shown}");
                }
                for name in ["posted", "managed", "retried", "ended"] {
                    let shown = viewer.event(&owner, event(name)).detail;
                    assert_eq!(shown.contains("secret"), seen, "{shown}");
                    assert!(shown.starts_with("status 127: "), "{shown}");
                }
            }
        }
        // What is not of a known form is not shown.
        let odd = pb::EventRow { name: "posted".into(), detail: "secret".into(), at_ns: 1 };
        assert_eq!(
            Viewer::new(2, false, Private::Commands).event(&owner, odd).detail,
            ": (private)"
        );
        let plain = pb::EventRow { name: "ended".into(), detail: "status 0".into(), at_ns: 1 };
        assert_eq!(
            Viewer::new(2, false, Private::Commands).event(&owner, plain).detail,
            "status 0"
        );
    }
}
