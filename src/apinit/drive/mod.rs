//! apinit's driver: what happens goes to the pure [`Agent`], and what the agent wants is done through
//! [`Outside`], in an order that outlives the death of apinit.
//!
//! # Problem
//! An apinit may be killed between any two steps, and its next life has only records to go by. So the
//! order of steps decides whether an application is lost, ends twice, or runs without a record:
//! a group that is made before its record is never removed; an application whose folder goes before
//! its processes is forgotten while it runs. And an apshepherd that is being dumped hears nothing:
//! what is said to it meanwhile must wait, in order, until it is there again.
//!
//! # Approach
//! One driver, generic over the world outside: apinit and the simulated cluster run it. The cluster may kill it
//! before each call of [`Outside`].
//!
//! ```text
//!   made       folder, record of groups, groups, apshepherd, record of it, placement: now it counts
//!   removed    placement: it counts no more; the apshepherd may go; groups, folder
//!   dumped     hang up, silent, dump, connect again, what has waited is said
//!   taken out  hang up, silent, dump and end, away ... bring back, what has waited is said
//! ```
//!
//! | file | subject |
//! | --- | --- |
//! | [`mod@outside`] | the trait, and what is said through it |
//! | `making` | what is made, found again and removed |
//! | `relay` | streams to other apinits, and from one to the next |
//! | `shepherd` | an apshepherd that does not hear, because it is dumped or away |

mod making;
pub mod outside;
mod relay;
mod shepherd;

pub use making::Left;
pub use outside::{Heard, Outside, Record, Said, Work};

use crate::apinit::decide::switcher::{Event as TurnEvent, News};
use crate::apinit::decide::{Action, Agent, Event};
use crate::apteam::Key;
use crate::apteam::protocol::attach::FromApinit;
use crate::apteam::protocol::node::Command;
use crate::apteam::protocol::peers::Onward;
use crate::apteam::protocol::turns::SlicePlan;
use relay::{Relay, Whose};
use shepherd::App;
use std::collections::{BTreeMap, VecDeque};

/// apinit around its agent.
#[derive(Debug)]
pub struct Driver {
    agent: Agent,
    apps: BTreeMap<Key, App>,
    relay: Relay,
    /// What has happened while something was done.
    pending: VecDeque<Heard>,
    /// Slice plans that are still to be kept.
    plans: Option<Vec<SlicePlan>>,
}

impl Driver {
    /// Around an agent to which nothing has happened yet. [`Driver::left`] and [`Driver::begin`] are to
    /// follow.
    pub fn new(agent: Agent) -> Driver {
        Driver {
            agent,
            apps: BTreeMap::new(),
            relay: Relay::default(),
            pending: VecDeque::new(),
            plans: None,
        }
    }

    /// The agent.
    pub fn agent(&self) -> &Agent {
        &self.agent
    }

    /// Hears something, and carries out everything that follows from it at once.
    pub fn hears(&mut self, out: &mut impl Outside, heard: Heard) {
        self.pending.push_back(heard);
        self.settle(out);
    }

    /// Hears the results of calls, and carries out everything that follows from them.
    pub fn settle(&mut self, out: &mut impl Outside) {
        loop {
            self.pending.extend(out.happened());
            let Some(heard) = self.pending.pop_front() else { return };
            self.hear(out, heard);
        }
    }

    /// Keeps slice plans that have changed. (Where hundreds of applications end at once each would have the file of
    /// all plans written anew: so the host says when.)
    pub fn keep_plans(&mut self, out: &mut impl Outside) {
        if let Some(plans) = self.plans.take() {
            self.keep(out, Record::Plans(plans));
        }
    }

    fn hear(&mut self, out: &mut impl Outside, heard: Heard) {
        let event = match heard {
            Heard::Happens(Event::HeadMessage(conn, message)) => {
                return self.head_says(out, conn, message);
            }
            Heard::Happens(Event::StreamClosed(conn)) => return self.stream_closed(out, conn),
            Heard::Happens(event) => event,
            Heard::PeerSaid(key, index, generation, message) => {
                return self.peer_says(out, (key, index), generation, message);
            }
            Heard::PeerLost(key, index, generation, text) => {
                return self.peer_lost(out, (key, index), generation, &text);
            }
            Heard::ShepherdSilent(key, text) => return self.silent(out, key, text),
            Heard::GroupsEmpty(key) => return self.groups_empty(out, key),
            Heard::Imaged(key, number, made) => {
                return self.find(out, key, Event::Dumped { key, number, made });
            }
            Heard::TookOut(key, result) => return self.took_out(out, key, result),
            Heard::CameBack(key, result) => return self.came_back(out, key, result),
            Heard::HeardAgain(key, found) => return self.heard_again(out, key, found),
            Heard::Thawed(key) => return self.thawed(out, key),
        };
        let obeys_anew = matches!(event, Event::Linked(_) | Event::Command(_, Command::Adopt));
        let places = matches!(event, Event::Command(_, Command::Place(_)));
        self.apply(out, event);
        if places {
            // Launches have waited for it, on streams that lead on.
            self.lead_on(out);
        }
        if obeys_anew {
            self.tell_had(out);
        }
    }

    fn apply(&mut self, out: &mut impl Outside, event: Event) {
        out.hears(&event);
        for action in self.agent.apply(out.now_ns(), event) {
            self.act(out, action);
        }
    }

    /// The agent hears this after what is under way.
    fn later(&mut self, event: Event) {
        self.pending.push_back(Heard::Happens(event));
    }

    /// For a psched that has just come: the memory of all, and how long they have run.
    fn tell_had(&mut self, out: &mut impl Outside) {
        if let Some(had) = out.had(true) {
            self.later(Event::Turns(News::Switches(Box::new(had))));
        }
    }

    /// Keeps a record of an application that runs already.
    fn keep(&mut self, out: &mut impl Outside, record: Record) {
        // (The log has it. Nothing else is lost by it.)
        let _ = out.keep(record);
    }

    fn act(&mut self, out: &mut impl Outside, action: Action) {
        out.does(&self.agent, &action);
        match action {
            Action::MakeAndSpawn { place, nids } => self.make(out, *place, &nids),
            Action::SendShepherd(key, message) => self.tell_shepherd(out, key, message),
            Action::SendFront(conn, message) => {
                let room = match message {
                    FromApinit::Output(_) => self.agent.output_room(conn),
                    _ => u64::MAX,
                };
                if !out.tell_front(conn, message, room) {
                    self.later(Event::StreamClosed(conn));
                }
            }
            Action::SendHead(conn, message) => self.tell_head(out, conn, message),
            Action::CloseStream(conn) => self.close_stream(out, conn),
            Action::KeepFront(key, conn) => self.keep(out, Record::Front(key, conn)),
            Action::KeepGone(key) => self.keep(out, Record::Gone(key)),
            Action::KeepAdopted(key) => self.keep(out, Record::Adopted(key)),
            Action::KeepGoing(key, at_ns) => self.keep(out, Record::Going(key, at_ns)),
            Action::KeepPlace(place) => self.keep(out, Record::Place(place)),
            Action::KeepPlans(plans) => self.plans = Some(plans),
            Action::Distrust(starts) => self.keep(out, Record::Distrusted(starts)),
            Action::RememberCommits(commits) => self.keep(out, Record::Commits(commits)),
            Action::Remember(welcome) => out.obey(&self.agent, welcome),
            Action::Dump { key, .. } | Action::TakeOut(key) if self.is_thawing(key) => {
                self.after_thaw(key, action);
            }
            Action::Dump { key, number } => self.hang_up(out, key, Some(number)),
            Action::TakeOut(key) => self.hang_up(out, key, None),
            Action::BringBack { place, cpus } => self.bring_back(out, place, cpus),
            Action::RefuseDump(number, why) => out.answer_dump(number, Some(why)),
            Action::DumpEnds(number) => out.answer_dump(number, None),
            Action::Restore { place, cpus } => {
                let key = place.key;
                // The record comes first: by it the next apinit ends a restore that was not finished.
                match out.keep(Record::Place(place.clone())) {
                    Ok(()) => out.begin(&self.agent, Work::Restore { place, cpus }),
                    Err(why) => self.later(Event::Restored(key, Err(why))),
                }
            }
            Action::Rebind { key, parts, place } => {
                out.begin(&self.agent, Work::Rebind { key, parts, place });
            }
            Action::Turns(event) => self.turns(out, event),
            Action::TellRan(key) => self.tell_ran(out, key),
            Action::OpenPeer { key, index, at, beyond, fan_out } => {
                self.open_way(out, Whose::Agent, key, Onward { index, at }, beyond, fan_out);
            }
            Action::SendPeers(key, to, message) => {
                let among = |index: u32| to.binary_search(&index).is_ok();
                self.pass_on(out, Whose::Agent, key, &among, &message);
            }
            Action::TakeProgram { key, program, from } => {
                if let Some(of) = self.agent.owner_and_ticket(key) {
                    out.take_program(key, program, from, of);
                }
            }
            Action::Inventory { items, last_command } => {
                out.tell_psched(Said::Inventory(items, last_command));
            }
            Action::Report(report) => out.tell_psched(Said::Report(Box::new(report))),
            Action::Foreign(foreign) => out.tell_psched(Said::Foreign(foreign)),
            Action::VerifyPlaces { key, pes } => {
                if let Some(looked) = out.verify_places(key, &pes) {
                    self.later(Event::PlacesVerified(key, looked));
                }
            }
            Action::Yield { key, nids, nice } => out.yields(key, &nids, nice),
            Action::KillGroups { key, shepherd } => self.kill(out, key, shepherd),
            Action::CheckGroupsEmpty(key) => match out.is_empty(key) {
                true => self.groups_empty(out, key),
                false => out.begin(&self.agent, Work::Empties(key)),
            },
            Action::Warn(key, text) => out.warn(key, &text),
            Action::Remove(key) => self.remove(out, key),
            Action::SetTimer(at_ns) => out.set_timer(at_ns),
        }
    }

    fn turns(&mut self, out: &mut impl Outside, event: TurnEvent) {
        let comes = match &event {
            TurnEvent::Comes { gang, .. } => Some(gang.key),
            _ => None,
        };
        out.turns(event);
        if let Some(key) = comes.filter(|key| self.apps.get(key).is_some_and(|app| app.away)) {
            out.is_away(key);
        }
    }

    /// Says what it has run, and keeps it: the next life of this apinit begins with that.
    fn tell_ran(&mut self, out: &mut impl Outside, key: Key) {
        let Some(ran) = out.ran(key) else { return };
        let now = out.now_ns();
        self.keep(out, Record::Ran(key, ran.by(now), now));
        self.later(Event::Ran(key, ran));
    }

    /// Nothing is left in its groups: what was used there is known.
    fn groups_empty(&mut self, out: &mut impl Outside, key: Key) {
        if let Some((utime, stime)) = out.used(key) {
            self.later(Event::GroupsUsed { key, utime, stime });
        }
        self.tell_ran(out, key);
        self.later(Event::GroupsEmpty(key));
    }
}
