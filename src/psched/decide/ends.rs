//! Ends and signals: by whom an application is ended or told something, and what its end leads to.

use super::outbox::COMMITS_MAX;
use super::{Effect, News, Now, Record, Scheduler, retries};
use crate::apteam::Apid;
use crate::apteam::change::By;
use crate::apteam::ending::{Cause, Decisive, HostEnd};
use crate::apteam::protocol::attach::{NumberedSignal, PSCHED_SIGNALS};
use crate::apteam::protocol::node::Command;
use crate::apteam::record::{Apteam, State};
use crate::machine::NidSet;
use crate::variables::Private;
use crate::variables::units::nanos;

/// SIGTERM, SIGKILL, SIGCONT and SIGSTOP on every Linux.
const TERM: i32 = 15;
const KILL: i32 = 9;
const CONT: i32 = 18;
const STOP: i32 = 19;
/// Signals to an application that its nodes are not known to have.
pub const SIGNALS_MAX: usize = 16;
/// Numbers that one start of psched's may give to signals of an application: more than
/// [`COMMITS_MAX`], beyond which it takes no orders before the records are written.
const SIGNALS_OF_A_START: u64 = 1 << 16;
const _: () = assert!(SIGNALS_OF_A_START > COMMITS_MAX as u64);
/// Signals that a posting, which has no process yet, ends by.
const ENDING_SIGNALS: [i32; 6] = [1, 2, 3, 6, KILL, TERM];

/// Whose word the end of an application is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// psched's alone: nobody would say it again.
    ByPsched,
    /// Its nodes', who repeat it until it is acknowledged.
    ByItsNodes,
}

/// Above which number signals to an application that comes now begin: by the clock, so that another
/// store, which may adopt it, goes on above those of this one.
pub(super) fn first_signal(now: Now) -> u64 {
    PSCHED_SIGNALS.saturating_add(now.wall_ns)
}

impl Scheduler {
    /// Ends an application that has not been launched, or tries to.
    pub(super) fn give_up(&mut self, now: Now, apid: Apid, cause: Cause, out: &mut Vec<Effect>) {
        let Some(team) = self.teams.get_mut(&apid) else { return };
        retries::doom(team, Decisive { at_ns: now.mono_ns, cause });
        match team.state {
            State::Posted | State::Lapsed => self.finish(now, apid, Said::ByPsched, out),
            State::Placed => {
                self.take_back(apid, out);
                self.save(apid, false, out);
            }
            _ => self.save(apid, false, out),
        }
    }

    /// The end of an application: recorded, told, and its processors free.
    pub(super) fn finish(&mut self, now: Now, apid: Apid, said: Said, out: &mut Vec<Effect>) {
        let domain = self.domain_of(apid);
        let Some(mut team) = self.teams.remove(&apid) else { return };
        self.kept_bytes.remove(&team);
        let peak_memory =
            self.measured.peaks(apid).map(|(_, bytes)| bytes).fold(0, u64::saturating_add);
        self.measured.forget(apid);
        self.stuck.remove(&apid);
        // Whether others may fit now: a waiting posting that goes frees nothing, unless nodes were
        // kept for it.
        let frees = team.state.holds_processors() || self.waits_too_long(&team);
        self.queue.remove(&apid);
        self.comes_no_more(apid);
        self.tickets.remove(&(team.ticket_until_ns, apid));
        self.taken_back.remove(&team.key());
        self.failed_launches.over(team.key());
        self.placed_again.remove(&team.key());
        self.migration_blockers.remove(&apid);
        self.requests.remove(&team.posting.request_id);
        self.occupancy.release(apid);
        self.note_left(&team.holds());
        self.relink(apid);
        let ran = team.end.as_ref().map(|end| end.run).filter(|run| !run.is_zero());
        if let Some(ran) = ran {
            self.turns_ended(now, apid, domain, ran, team.hosts.len() == 1);
        }
        self.turns_changed(now, apid);
        let mut end = team.end.take().unwrap_or_default();
        end.key = team.key();
        end.peak_memory = peak_memory.max(end.peak_memory);
        // A decision that came to its nodes when every PE had ended has not made it end.
        let by_themselves =
            end.ends.iter().filter(|e| !e.consequence).map(|e| e.count).sum::<u32>();
        let by_nodes = end.first.clone();
        if by_themselves < team.posting.shape.width {
            end = end.decided(team.doomed.clone());
        }
        // Nodes that say it again do not say what psched has decided, of which there may be no record
        // yet.
        // (When each of them decided so does not matter.)
        let cause = |decisive: &Option<Decisive>| decisive.as_ref().map(|d| d.cause.clone());
        let said = if cause(&end.first) == cause(&by_nodes) { said } else { Said::ByPsched };
        let status = end.status();
        let detail = match &end.first {
            Some(decisive) => format!("status {status}: {}", decisive.cause.words_to(&team.owner)),
            None => format!("status {status}"),
        };
        team.state = State::Ended;
        // What its nodes measured, where psched heard of the end late: it or apinit was away.
        // (Of one that was restored they count what it had run before.)
        let run = end.run.saturating_sub(team.run_before());
        let lasted = nanos(run.saturating_add(end.frozen));
        team.ended_at_ns = match team.running_at_ns {
            began if began > 0 && lasted > 0 => began.saturating_add(lasted).min(now.wall_ns),
            _ => now.wall_ns,
        };
        team.end = Some(end.clone());
        out.push(Effect::Keep(Record::Update { team: Box::new(team), lazy: false }));
        out.push(Effect::Log { apid, name: "ended", detail });
        let end = Box::new(end);
        out.push(if said == Said::ByItsNodes {
            Effect::TellEnd { apid, end }
        } else {
            Effect::Tell { apid, news: News::Ended(end) }
        });
        if frees {
            self.want_decision(domain);
        }
        self.moves_ended(now, apid, out);
    }

    /// # Errors
    /// Why not, in words for the caller.
    pub(super) fn kill(
        &mut self,
        now: Now,
        apid: Apid,
        signal: i32,
        uid: u32,
        administrator: bool,
        out: &mut Vec<Effect>,
    ) -> Result<(), String> {
        let hidden = self.settings.private == Private::All && !administrator;
        let known = self.teams.get(&apid).filter(|team| !hidden || team.owner.uid == uid);
        let team = known.ok_or_else(|| {
            format!("there is no application {apid}, or it has ended (apstat --history)")
        })?;
        if !administrator && team.owner.uid != uid {
            return Err(format!(
                "application {apid} belongs to {}: only its owner and administrators may signal it",
                team.owner.name
            ));
        }
        let ends = signal == 0 || signal == KILL;
        let cause = Cause::Kill { signal: if signal == 0 { TERM } else { signal }, uid };
        let words = cause.words_to(&team.owner);
        let detail = match words.strip_prefix("killed ") {
            Some(by) if !ends => format!("sent {by}"),
            _ => words,
        };
        match team.state {
            State::Launching | State::Running => {
                let links = self.links_of(team);
                let key = team.key();
                // Its nodes know that it is ended, or are told when they are back. KILL goes
                // further than any other end.
                let known = team.doomed.as_ref().is_some_and(|doomed| {
                    !retries::may_be_tried_again(team, doomed)
                        && (signal != KILL
                            || matches!(doomed.cause, Cause::Kill { signal: KILL, .. }))
                });
                if ends && known {
                    return Ok(());
                }
                if ends {
                    let kill_after = self.kill_after(&cause);
                    let doom = Decisive { at_ns: now.mono_ns, cause: cause.clone() };
                    if let Some(team) = self.teams.get_mut(&apid) {
                        // A KILL after a TERM takes its place, so that a node that hears of it only
                        // when it is back does not wait as long as a TERM would have it.
                        let before = team.doomed.take_if(|_| signal == KILL);
                        team.stopped = None;
                        let at_ns = before.map_or(doom.at_ns, |b| b.at_ns.min(doom.at_ns));
                        retries::doom(team, Decisive { at_ns, ..doom });
                    }
                    self.save(apid, false, out);
                    self.turn_to_end(now, apid);
                    for link in links {
                        let cause = cause.clone();
                        let command = Command::Terminate { key, cause, kill_after };
                        out.push(Effect::Command { link, command });
                    }
                } else if links.is_empty() {
                    return Err(format!(
                        "the nodes of application {apid} are not connected; try again when apstat -n shows them"
                    ));
                } else if team.signals.len() >= SIGNALS_MAX {
                    return Err(format!(
                        "{SIGNALS_MAX} signals to application {apid} have not reached all its \
                         nodes; try again when apstat -n shows them connected"
                    ));
                } else if let Some(team) = self.teams.get_mut(&apid) {
                    team.last_signal = team.last_signal.saturating_add(1);
                    let signal = NumberedSignal { number: team.last_signal, signal };
                    team.signals.push(signal);
                    match signal.signal {
                        STOP => {
                            let own = team.owner.uid == uid;
                            let name = if own { team.owner.name.clone() } else { String::new() };
                            team.stopped = Some(By { uid, name, at_ns: now.wall_ns });
                        }
                        // (PEs that get TERM go on, to hear it.)
                        CONT | TERM => team.stopped = None,
                        _ => {}
                    }
                    self.save(apid, false, out);
                    self.say_signals(apid, &[signal], out);
                    self.turn_early(now, apid);
                }
                out.push(Effect::Log { apid, name: "signal", detail });
            }
            State::Ended => {}
            _ if signal != 0 && !ENDING_SIGNALS.contains(&signal) => {
                return Err(format!(
                    "application {apid} has not started: it has no process to signal"
                ));
            }
            _ => {
                out.push(Effect::Log { apid, name: "signal", detail });
                self.give_up(now, apid, cause, out);
            }
        }
        Ok(())
    }

    /// psched has started on its store for so many times: signals that it gives now are numbered
    /// above those that it gave before. With a full disk these may have left before their records
    /// ([`Effect::may_precede_its_record`]), so that no record has their numbers.
    pub(super) fn number_signals_from(&mut self, epoch: u64) {
        for team in self.teams.values_mut() {
            let before = team.last_signal.max(PSCHED_SIGNALS);
            team.last_signal = before.saturating_add(epoch.saturating_mul(SIGNALS_OF_A_START));
        }
    }

    /// Tells the head, which passes signals on to the other hosts. One that is away is told when it is
    /// back, and before the PEs go there is nobody to be told.
    pub(super) fn say_signals(
        &self,
        apid: Apid,
        signals: &[NumberedSignal],
        out: &mut Vec<Effect>,
    ) {
        let running = |team: &&Apteam| team.state == State::Running;
        let Some(team) = self.teams.get(&apid).filter(running) else { return };
        let link = team.places.nids().next().and_then(|nid| self.offered.get(&nid).copied());
        let Some(link) = link.filter(|l| self.links.get(l).is_some_and(|l| l.known)) else {
            return;
        };
        let key = team.key();
        let command = |signal: &NumberedSignal| Command::Signal { key, signal: *signal };
        out.extend(signals.iter().map(|s| Effect::Command { link, command: command(s) }));
    }

    /// All its apshepherds have psched's signals up to this number.
    pub(super) fn signals_taken(&mut self, apid: Apid, number: u64, out: &mut Vec<Effect>) {
        let Some(team) = self.teams.get_mut(&apid) else { return };
        let before = team.signals.len();
        team.signals.retain(|signal| signal.number > number);
        if team.signals.len() < before {
            self.save(apid, true, out);
        }
    }
}

/// Hosts that have said how their part ended.
pub(super) fn covered(team: &Apteam, end: &HostEnd) -> bool {
    // The last of its hosts mostly tells all that is left: before that they are fewer.
    if team.places.0.len() > end.nids.len() {
        return false;
    }
    let ended = NidSet::of(&end.nids);
    team.places.nids().all(|nid| ended.contains(nid))
}
