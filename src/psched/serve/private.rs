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
            && let "posted" | "managed" = row.name.as_str()
        {
            // `-n 4 by anna: ./a.out`
            let before = row.detail.split_once(": ").map_or("", |(before, _)| before);
            row.detail = format!("{before}: {COMMAND}");
        }
        row
    }

    /// A reason, in words.
    pub fn explanation(&self, why: &Reason) -> Explanation {
        why.words(&|uid| self.sees(uid))
    }
}
