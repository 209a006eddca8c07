//! Records first, then effects: the order on which "nothing is lost" rests.
//!
//! # Problem
//! Whatever anybody outside has seen of psched must be on the disk, or a psched that is killed
//! promises things that its successor knows nothing of. But the loop must not wait for the disk,
//! and the disk must not be asked once for each event.
//!
//! # Approach
//! Two small machines without clock, thread or disk, one for each side of the queue between the
//! loop and the store thread:
//!
//! - [`Outbox`] is the loop's: it splits the effects of an event into a [`Commit`] (what is to be
//!   kept, and what may leave psched once it is) and the few that may leave at once.
//! - [`Keeper`] is the store's: it gathers commits into transactions, puts off what nobody waits
//!   for, and says what comes back when a transaction was written, or when it failed.
//!
//! ```text
//!   scheduler --effects--> Outbox --Commit--> Keeper --records--> disk
//!                            |                  |
//!                      leave at once       Outcome: leave now, or refused
//! ```
//!
//! Lazy commits (an application's progress, which its node would tell again) are not waited for:
//! their releases come back at once and they are written with the next others, or after
//! [`LAZY_TIME`].
//!
//! When a transaction fails (disk full, say), new postings are taken out of it and refused, since
//! nobody has been told of them; the rest, ends of applications for example, is tried again until
//! it succeeds. Until then:
//!
//! - What ends an application, and signals, leave before their records: they have left already
//!   ([`Effect::may_precede_its_record`]). A psched that is killed in between has not confirmed
//!   them, and its successor finds an application that has ended, as after any other end. Placements
//!   wait, for a placement without a record could be given twice.
//! - Answers that only look, and those to orders whose record waits, are given back as [`Kept::Waits`]
//!   ([`Outbox::unheld`]): with word that a restart may undo what they say.
//! - No more than [`COMMITS_MAX`] commits wait. Beyond that psched takes no postings and orders, and
//!   leaves out reports of its nodes, which say them again ([`Outbox::leaves_out`]).

use super::keeping::Record;
use super::{Effect, Event, LinkId};
use crate::apteam::protocol::node::Command;
use crate::apteam::{Apid, Key};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// How long a lazy record may stay unwritten.
pub const LAZY_TIME: Duration = Duration::from_millis(50);
/// Commits that one transaction takes at most.
pub const BATCH_MAX: usize = 512;
/// Between two tries of what could not be written.
pub const RETRY_TIME: Duration = Duration::from_millis(250);
/// Commits that may wait for the disk: one for each event in which something has changed.
pub const COMMITS_MAX: usize = 4_096;

/// Something that waits for records to be durable.
#[derive(Clone, Debug, PartialEq)]
pub enum Release<A> {
    /// An effect of the scheduler.
    Effect(Effect),
    /// An answer to a question that was asked after them.
    Answer(A),
}

/// What one event left to be done.
#[derive(Clone, Debug, PartialEq)]
pub struct Commit<A> {
    /// To be kept.
    pub records: Vec<Record>,
    /// To be done once they are.
    pub releases: Vec<Release<A>>,
    /// Nobody waits for these records.
    pub lazy: bool,
    /// The posting that this is about: it may be refused.
    pub posting: Option<Apid>,
}

impl<A> Default for Commit<A> {
    fn default() -> Commit<A> {
        Commit { records: Vec::new(), releases: Vec::new(), lazy: false, posting: None }
    }
}

/// What comes back from the store.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome<A> {
    /// Durable: do these.
    Release(Vec<Release<A>>),
    /// This posting could not be kept, and why; its releases are given back undone.
    Refused { apid: Apid, why: String, releases: Vec<Release<A>> },
}

/// What of one event is to be done at once, and what goes to the store.
#[derive(Clone, Debug, PartialEq)]
pub struct Leaving<A> {
    /// To be done at once, in this order.
    pub now: Vec<Effect>,
    /// For the store; its outcome comes back to [`Outbox::came_back`].
    pub commit: Option<Commit<A>>,
}

/// Whether what an answer says is on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// All of it.
    Yes,
    /// Some of it waits for a disk that does not take it: a psched that is killed now forgets that.
    Waits,
}

/// An answer that is held until all before it is durable, or the disk is known not to take it.
#[derive(Clone, Debug, PartialEq)]
pub enum Held<L> {
    /// To a question that only looks.
    Look(L),
    /// To an order: an [`Effect::Killed`] or [`Effect::Managed`].
    Reply(Effect),
}

/// A commit whose outcome has not come back.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    number: u64,
    posting: Option<Apid>,
}

/// The loop's side. `L` is what answers a question that only looks.
#[derive(Clone, Debug)]
pub struct Outbox<L> {
    /// Commits whose outcome has not come back.
    waiting: VecDeque<Waiting>,
    /// The number of the next commit.
    next: u64,
    /// Answers, each behind the commits with lower numbers.
    held: VecDeque<(u64, Held<L>)>,
    /// Applications whose placement leaves with the commit of this number: what ends one of them
    /// leaves behind that too.
    placing: VecDeque<(u64, Key)>,
    /// Postings that were refused while one of these may still say that they are taken, and why.
    refused: BTreeMap<Apid, String>,
    /// Links of which a message was left out.
    missed: BTreeSet<LinkId>,
    /// Commits that may wait.
    most: usize,
}

impl<L> Default for Outbox<L> {
    fn default() -> Outbox<L> {
        Outbox::bounded(COMMITS_MAX)
    }
}

impl<L> Outbox<L> {
    /// One in which at most so many commits may wait for a disk that fails.
    pub fn bounded(most: usize) -> Outbox<L> {
        Outbox {
            waiting: VecDeque::new(),
            next: 1,
            held: VecDeque::new(),
            placing: VecDeque::new(),
            refused: BTreeMap::new(),
            missed: BTreeSet::new(),
            most,
        }
    }

    /// Splits the effects of an event into what leaves at once and what waits for records.
    pub fn take<A>(&mut self, at_ns: u64, effects: Vec<Effect>) -> Leaving<A> {
        if self.waiting.is_empty() {
            self.refused.clear();
        }
        let posting = effects.iter().find_map(|effect| match effect {
            Effect::Keep(Record::Posted(team)) => Some(team.apid),
            _ => None,
        });
        let mut commit = Commit { lazy: true, posting, ..Commit::default() };
        let mut now = Vec::new();
        let mut replies = Vec::new();
        let mut last: BTreeMap<Apid, usize> = BTreeMap::new();
        for effect in effects {
            match effect {
                Effect::Keep(record) => {
                    commit.lazy &= record.is_lazy();
                    // Only the last state of one event's several is written.
                    match record.team().and_then(|team| last.get(&team.apid)) {
                        Some(i) => commit.records[*i].update(record),
                        None => {
                            last.extend(
                                record.team().map(|team| (team.apid, commit.records.len())),
                            );
                            commit.records.push(record);
                        }
                    }
                }
                Effect::Log { apid, name, detail } => {
                    commit.records.push(Record::Log { apid, at_ns, name, detail });
                }
                at_once if at_once.waits_for_nothing() => now.push(at_once),
                early if let Some(key) = early.may_precede_its_record() => {
                    // A node that has not heard of its place does not know what is to end.
                    if self.placing.iter().any(|(_, placing)| *placing == key) {
                        commit.releases.push(Release::Effect(early.clone()));
                    }
                    now.push(early);
                }
                reply @ (Effect::Killed { .. } | Effect::Managed { .. }) => replies.push(reply),
                other => commit.releases.push(Release::Effect(other)),
            }
        }
        if commit.records.is_empty() && self.waiting.is_empty() {
            let effects = commit.releases.into_iter().filter_map(|release| match release {
                Release::Effect(effect) => Some(effect),
                Release::Answer(_) => None,
            });
            now.extend(effects);
            now.extend(replies);
            return Leaving { now, commit: None };
        }
        let empty = commit.records.is_empty() && commit.releases.is_empty();
        if !empty {
            let number = self.under_way_with(posting);
            self.placing.extend(commit.releases.iter().filter_map(|release| match release {
                Release::Effect(Effect::Command { command: Command::Place(place), .. }) => {
                    Some((number, place.key))
                }
                _ => None,
            }));
        }
        self.held.extend(replies.into_iter().map(|reply| (self.next, Held::Reply(reply))));
        Leaving { now, commit: (!empty).then_some(commit) }
    }

    fn under_way_with(&mut self, posting: Option<Apid>) -> u64 {
        let number = self.next;
        self.next += 1;
        self.waiting.push_back(Waiting { number, posting });
        number
    }

    /// Records that are not of an event.
    pub fn keep<A>(&mut self, records: Vec<Record>) -> Commit<A> {
        self.under_way_with(None);
        Commit { records, ..Commit::default() }
    }

    /// An answer that may say what is not on record yet: it is held until all before it is durable.
    ///
    /// # Errors
    /// The answer itself where nothing is under way: it may be given at once.
    pub fn hold(&mut self, look: L) -> Result<(), L> {
        if self.waiting.is_empty() {
            return Err(look);
        }
        self.held.push_back((self.next, Held::Look(look)));
        Ok(())
    }

    /// The outcome of a commit has come back.
    pub fn came_back<A>(&mut self, outcome: &Outcome<A>) {
        match outcome {
            Outcome::Release(_) => drop(self.waiting.pop_front()),
            // It overtakes what the disk does not take.
            Outcome::Refused { apid, .. } => {
                self.waiting.retain(|waiting| waiting.posting != Some(*apid));
            }
        }
        let first = self.waiting.front().map_or(self.next, |waiting| waiting.number);
        while self.placing.front().is_some_and(|(number, _)| *number < first) {
            self.placing.pop_front();
        }
    }

    /// An answer before which all is durable now, if there is one.
    pub fn kept(&mut self) -> Option<Held<L>> {
        let first = self.waiting.front().map_or(self.next, |waiting| waiting.number);
        let ready = self.held.front().is_some_and(|(behind, _)| *behind <= first);
        ready.then(|| self.held.pop_front()).flatten().map(|(_, held)| held)
    }

    /// All answers that are held: the disk is known not to take what they wait for.
    pub fn unheld(&mut self) -> Vec<Held<L>> {
        self.held.drain(..).map(|(_, held)| held).collect()
    }

    /// This posting could not be kept. It may have come a second time meanwhile: what then waits for
    /// its turn to be said is not true any more.
    pub fn refused(&mut self, apid: Apid, why: &str) {
        self.refused.insert(apid, why.to_owned());
    }

    /// Why this posting is not accepted after all, if so.
    pub fn why_refused(&self, apid: Apid) -> Option<&str> {
        self.refused.get(&apid).map(String::as_str)
    }

    /// Commits whose outcome has not come back.
    pub fn under_way(&self) -> usize {
        self.waiting.len()
    }

    /// As many commits wait as may.
    pub fn is_full(&self) -> bool {
        self.waiting.len() >= self.most
    }

    /// Whether this is to be left out because too much waits for a disk that `fails`. A link of which
    /// anything was left out is not listened to any more, and is to be hung up on when there is room
    /// again ([`Outbox::to_hang_up`]): its next inventory tells everything.
    pub fn leaves_out(&mut self, event: &Event, fails: bool) -> bool {
        let link = match event {
            Event::LinkClosed { link } => {
                self.missed.remove(link);
                return false;
            }
            Event::LinkOpened { link, .. }
            | Event::Inventory { link, .. }
            | Event::Foreign { link, .. }
            | Event::Noted { link, .. }
            | Event::Report { link, .. } => *link,
            _ => return false,
        };
        if fails && self.is_full() {
            self.missed.insert(link);
        }
        self.missed.contains(&link)
    }

    /// Links of which something was left out, once there is room for what they have to say.
    pub fn to_hang_up(&mut self) -> BTreeSet<LinkId> {
        match self.waiting.len() <= self.most / 2 {
            true => std::mem::take(&mut self.missed),
            false => BTreeSet::new(),
        }
    }
}

/// What is to be done after a transaction that failed.
#[derive(Clone, Debug, PartialEq)]
pub struct Failed<A> {
    /// To be sent back at once: postings that are refused.
    pub outcomes: Vec<Outcome<A>>,
    /// When the rest is to be tried.
    pub again: Duration,
}

/// The store's side.
#[derive(Clone, Debug)]
pub struct Keeper<A> {
    /// Records that nobody waits for.
    lazy: Vec<Record>,
    /// The transaction under way; while the store fails, all that wait for it.
    batch: VecDeque<Commit<A>>,
    /// Why the last transaction failed, if it did.
    trouble: Option<String>,
}

impl<A> Default for Keeper<A> {
    fn default() -> Keeper<A> {
        Keeper { lazy: Vec::new(), batch: VecDeque::new(), trouble: None }
    }
}

impl<A> Keeper<A> {
    /// How long the next commit is waited for before [`Keeper::take`] is called with none; `None`:
    /// for ever. While the store fails this is what [`Keeper::failed`] has said.
    pub fn patience(&self) -> Option<Duration> {
        (!self.lazy.is_empty()).then_some(LAZY_TIME)
    }

    /// The last transaction has failed, or something of it is still to be written.
    pub fn is_in_trouble(&self) -> bool {
        self.trouble.is_some()
    }

    /// Takes the commits that have gathered, at most [`BATCH_MAX`], none after [`Keeper::patience`]:
    /// what comes back at once, and whether [`Keeper::records`] are to be written, as one
    /// transaction: now, or when it is time where the last one has failed.
    pub fn take(&mut self, commits: Vec<Commit<A>>) -> (Vec<Outcome<A>>, bool) {
        if let Some(why) = self.trouble.clone() {
            self.batch.extend(commits);
            return (self.refuse(&why), true);
        }
        if commits.is_empty() || !commits.iter().all(|c| c.lazy) {
            self.batch = commits.into();
            return (Vec::new(), true);
        }
        let put_off = |commit: Commit<A>| {
            self.lazy.extend(commit.records);
            Outcome::Release(commit.releases)
        };
        (commits.into_iter().map(put_off).collect(), false)
    }

    /// What the transaction is made of. With nothing to write, writing tries whether the store works
    /// again.
    pub fn records(&self) -> Vec<&Record> {
        let batch = self.batch.iter().take(BATCH_MAX);
        self.lazy.iter().chain(batch.flat_map(|c| &c.records)).collect()
    }

    /// The transaction is durable: what comes back. While [`Keeper::is_in_trouble`] there is more to
    /// be written at once.
    pub fn written(&mut self) -> Vec<Outcome<A>> {
        self.lazy.clear();
        let count = self.batch.len().min(BATCH_MAX);
        let outcomes = self.batch.drain(..count).map(|c| Outcome::Release(c.releases)).collect();
        if self.batch.is_empty() {
            self.trouble = None;
        }
        outcomes
    }

    /// The transaction has failed, and nothing of it was kept.
    pub fn failed(&mut self, why: &str) -> Failed<A> {
        self.trouble = Some(why.to_owned());
        let outcomes = self.refuse(why);
        // What is left may fit where a posting did not.
        let again = match outcomes.is_empty() || self.batch.is_empty() {
            true => RETRY_TIME,
            false => Duration::ZERO,
        };
        Failed { outcomes, again }
    }

    /// Takes postings out of what waits.
    fn refuse(&mut self, why: &str) -> Vec<Outcome<A>> {
        let mut outcomes = Vec::new();
        for commit in std::mem::take(&mut self.batch) {
            match commit.posting {
                Some(apid) => {
                    let releases = commit.releases;
                    outcomes.push(Outcome::Refused { apid, why: why.to_owned(), releases });
                }
                None => self.batch.push_back(commit),
            }
        }
        outcomes
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::posted;
    use super::super::{ReplyId, Scheduler, Settings};
    use super::*;

    type Out = Leaving<u32>;

    /// The effects of a posting that waits.
    fn posting(outbox: &mut Outbox<u32>, s: &mut Scheduler, number: u8) -> Commit<u32> {
        let effects = s.apply(Default::default(), posted(number, 1));
        let Out { now, commit } = outbox.take(5, effects);
        assert!(now.is_empty(), "nothing leaves before the record: {now:?}");
        commit.expect("a record")
    }

    fn scheduler() -> Scheduler {
        Scheduler::new(super::super::tests::machine(1, 1), Settings::default())
    }

    fn released() -> Outcome<u32> {
        Outcome::Release(vec![])
    }

    #[test]
    fn what_is_not_kept_does_not_leave() {
        let (mut outbox, mut s) = (Outbox::<u32>::default(), scheduler());
        let commit = posting(&mut outbox, &mut s, 1);
        assert!(matches!(&commit.records[..], [Record::Posted(_), Record::Log { at_ns: 5, .. }]));
        assert_eq!((commit.posting, commit.lazy), (Some(Apid(1)), false));
        // The same posting again has nothing to keep, and waits for the first all the same.
        let again = s.apply(Default::default(), posted(1, 1));
        let Out { now, commit } = outbox.take(6, again);
        assert!(now.is_empty());
        assert_eq!(commit.expect("it waits").posting, None);
        // So does an answer; once all has come back, neither does.
        assert_eq!(outbox.hold(3), Ok(()));
        assert_eq!(outbox.under_way(), 2);
        outbox.came_back(&released());
        assert_eq!(outbox.kept(), None);
        outbox.came_back(&released());
        assert_eq!((outbox.kept(), outbox.kept()), (Some(Held::Look(3)), None));
        assert_eq!(outbox.hold(3), Err(3));
        let again = s.apply(Default::default(), posted(1, 1));
        let Out { now, commit } = outbox.take(6, again);
        assert_eq!(now, [Effect::Accept { reply: ReplyId(1), apid: Apid(1) }]);
        assert_eq!(commit, None);
    }

    #[test]
    fn a_refusal_that_comes_back_early_confirms_nothing_else() {
        let (mut outbox, mut s) = (Outbox::<u32>::default(), scheduler());
        outbox.keep::<u32>(vec![]);
        let commit = posting(&mut outbox, &mut s, 1);
        assert_eq!(outbox.hold(3), Ok(()));
        let (apid, releases) = (Apid(1), commit.releases);
        outbox.came_back(&Outcome::Refused { apid, why: "full".into(), releases });
        assert_eq!((outbox.kept(), outbox.under_way()), (None, 1));
        assert_eq!(outbox.hold(4), Ok(()));
        assert_eq!(outbox.unheld(), [Held::Look(3), Held::Look(4)]);
        outbox.came_back(&released());
        assert_eq!((outbox.kept(), outbox.under_way()), (None, 0));
    }

    #[test]
    fn what_ends_an_application_leaves_before_its_record() {
        let mut outbox = Outbox::<u32>::default();
        let (link, key) = (LinkId(1), Key { apid: Apid(7), ..Key::default() });
        let cause = crate::apteam::ending::Cause::Kill { signal: 9, uid: 0 };
        let command = Command::Terminate { key, cause, kill_after: Duration::ZERO };
        let end = Effect::Command { link, command };
        let killed = Effect::Killed { reply: ReplyId(2), problems: vec![None] };
        let log = Effect::Log { apid: key.apid, name: "signal", detail: String::new() };
        let Out { now, commit } = outbox.take(5, vec![end.clone(), log.clone(), killed.clone()]);
        assert_eq!(now, std::slice::from_ref(&end));
        assert_eq!(commit.expect("a record").releases, []);
        // Whoever asked for it is told when that is on record, or that it is not.
        assert_eq!(outbox.kept(), None);
        assert_eq!(outbox.unheld(), [Held::Reply(killed)]);
        // Where its placement waits too, a node may hear of it only afterwards: it is said again.
        let mut s = scheduler();
        s.apply(
            Default::default(),
            Event::LinkOpened { link, hello: super::super::tests::hello(&[0]) },
        );
        s.apply(Default::default(), Event::Inventory { link, items: vec![] });
        let mut placed = s.apply(Default::default(), posted(1, 1));
        for effect in &mut placed {
            if let Effect::Command { command: Command::Place(place), .. } = effect {
                place.key = key;
            }
        }
        placed.retain(|e| matches!(e, Effect::Command { command: Command::Place(_), .. }));
        placed.push(log.clone());
        let Out { now, commit } = outbox.take(5, placed);
        assert_eq!((now, commit.map(|c| c.releases.len())), (vec![], Some(1)));
        let Out { now, commit } = outbox.take(5, vec![end.clone(), log.clone()]);
        assert_eq!(now, std::slice::from_ref(&end));
        assert_eq!(commit.expect("a record").releases, [Release::Effect(end.clone())]);
        (0..2).for_each(|_| outbox.came_back(&released()));
        let Out { now, commit } = outbox.take(5, vec![end.clone(), log]);
        assert_eq!((now, commit.map(|c| c.releases.len())), (vec![end], Some(0)));
    }

    #[test]
    fn what_waits_has_a_bound() {
        let mut outbox = Outbox::<u32>::bounded(2);
        let report = |link| Event::LinkClosed { link: LinkId(link) };
        let noted = |link| Event::Noted {
            link: LinkId(link),
            notes: vec![],
            roll_out: Default::default(),
            clock: Default::default(),
        };
        outbox.keep::<u32>(vec![]);
        assert!(!outbox.is_full() && !outbox.leaves_out(&noted(1), true));
        outbox.keep::<u32>(vec![]);
        assert!(outbox.is_full() && !outbox.leaves_out(&noted(1), false));
        assert!(outbox.leaves_out(&noted(1), true) && outbox.leaves_out(&noted(2), true));
        assert!(!outbox.leaves_out(&report(2), true) && !outbox.leaves_out(&Event::Tick, true));
        assert!(outbox.to_hang_up().is_empty());
        outbox.came_back(&released());
        assert!(!outbox.leaves_out(&noted(2), true) && outbox.leaves_out(&noted(1), true));
        assert_eq!(outbox.to_hang_up(), [LinkId(1)].into());
        assert!(!outbox.leaves_out(&noted(1), true) && outbox.to_hang_up().is_empty());
    }

    #[test]
    fn a_full_disk_refuses_postings_and_keeps_the_rest() {
        let (mut outbox, mut s) = (Outbox::default(), scheduler());
        let mut keeper = Keeper::default();
        let new = posting(&mut outbox, &mut s, 1);
        let end = Commit::<u32> { records: new.records.clone(), ..Commit::default() };
        assert_eq!(keeper.patience(), None);
        assert_eq!(keeper.take(vec![new.clone(), end.clone()]), (vec![], true));
        assert_eq!(keeper.records().len(), 4);
        let Failed { outcomes, again } = keeper.failed("full");
        let is_refused = |outcomes: &[Outcome<u32>]| {
            matches!(outcomes, [Outcome::Refused { apid: Apid(1), releases, .. }]
                if *releases == new.releases)
        };
        assert!(is_refused(&outcomes));
        assert_eq!((again, keeper.records().len()), (Duration::ZERO, 2));
        assert_eq!(keeper.failed("full"), Failed { outcomes: vec![], again: RETRY_TIME });
        // What comes meanwhile waits behind it, lazy or not; postings do not.
        let lazy = Commit { lazy: true, ..end.clone() };
        let (outcomes, to_write) = keeper.take(vec![new.clone(), lazy, end]);
        assert!(is_refused(&outcomes) && to_write);
        assert_eq!((keeper.records().len(), keeper.is_in_trouble()), (6, true));
        assert_eq!(keeper.written(), [released(), released(), released()]);
        assert!(!keeper.is_in_trouble());
        assert_eq!(keeper.take(vec![new]), (vec![], true));
        assert_eq!(keeper.failed("full").again, RETRY_TIME);
        assert!(keeper.is_in_trouble(), "it is tried whether it works again");
        assert_eq!(keeper.take(vec![]), (vec![], true));
        assert!(keeper.records().is_empty());
        assert!(keeper.written().is_empty() && !keeper.is_in_trouble());
    }

    #[test]
    fn what_has_waited_is_written_in_parts() {
        let mut keeper = Keeper::<u32>::default();
        let commit =
            || Commit { records: vec![Record::Boot(vec![], "b".into())], ..Commit::default() };
        assert_eq!(keeper.take(vec![commit()]), (vec![], true));
        keeper.failed("full");
        keeper.take((0..BATCH_MAX).map(|_| commit()).collect());
        assert_eq!((keeper.records().len(), keeper.written().len()), (BATCH_MAX, BATCH_MAX));
        assert!(keeper.is_in_trouble());
        assert_eq!((keeper.records().len(), keeper.written().len()), (1, 1));
        assert!(!keeper.is_in_trouble());
    }

    /// It came twice; the word that it is on record waits for its turn behind the record, which the
    /// disk did not take.
    #[test]
    fn what_was_refused_is_not_accepted_for_its_repetition() {
        let (mut outbox, mut s) = (Outbox::<u32>::default(), scheduler());
        let Commit { releases, .. } = posting(&mut outbox, &mut s, 1);
        let again = s.apply(Default::default(), posted(1, 1));
        let Out { now, commit } = outbox.take(6, again);
        let accept = Release::Effect(Effect::Accept { reply: ReplyId(1), apid: Apid(1) });
        assert_eq!((now, commit.expect("it waits").releases), (vec![], vec![accept]));
        outbox.came_back(&Outcome::Refused { apid: Apid(1), why: "full".into(), releases });
        outbox.refused(Apid(1), "full");
        let undone = s.apply(
            Default::default(),
            super::super::Event::StoreRefused { apid: Apid(1), why: "full".into() },
        );
        outbox.take::<u32>(7, undone);
        assert_eq!(outbox.why_refused(Apid(1)), Some("full"));
        while outbox.under_way() > 0 {
            outbox.came_back(&released());
        }
        // Its turn comes after that.
        assert_eq!(outbox.why_refused(Apid(1)), Some("full"));
        posting(&mut outbox, &mut s, 2);
        assert_eq!(outbox.why_refused(Apid(1)), None);
    }

    #[test]
    fn progress_is_put_off() {
        let mut keeper = Keeper::<u32>::default();
        let boot = Record::Boot(vec![], "b".into());
        let lazy = Commit {
            records: vec![boot.clone()],
            releases: vec![Release::Answer(7)],
            lazy: true,
            posting: None,
        };
        let back = keeper.take(vec![lazy]);
        assert_eq!(back, (vec![Outcome::Release(vec![Release::Answer(7)])], false));
        assert_eq!(keeper.patience(), Some(LAZY_TIME));
        assert_eq!(keeper.take(vec![]), (vec![], true));
        assert_eq!(keeper.records(), [&boot]);
        assert!(keeper.written().is_empty() && keeper.records().is_empty());
    }
}
