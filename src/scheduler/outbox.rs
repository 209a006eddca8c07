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
//! it succeeds.

use super::Effect;
use super::tuning::SetValue;
use crate::apteam::Apid;
use crate::apteam::change::{Change, FlavorOrder, NodeOrder};
use crate::apteam::record::Apteam;
use crate::machine::Nid;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a lazy record may stay unwritten.
pub const LAZY_TIME: Duration = Duration::from_millis(50);
/// Commits that one transaction takes at most.
pub const BATCH_MAX: usize = 512;
/// Between two tries of what could not be written.
pub const RETRY_TIME: Duration = Duration::from_millis(250);

/// One thing to be kept.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    /// A new application.
    New(Box<Apteam>),
    /// A later state of one that is there; no effect where it is not.
    Update(Box<Apteam>),
    /// Its count of starts past it.
    PassedOver(Apid, u32),
    /// A line of its event log.
    Log { apid: Apid, at_ns: u64, name: &'static str, detail: String },
    /// Nodes and the boot of their host.
    Boot(Vec<Nid>, String),
    /// Nodes that an administrator has closed, and how; none: he has opened them again.
    Nodes(Vec<Nid>, Option<Box<NodeOrder>>),
    /// Nodes that an administrator has given flavors, and which; none: he has taken that back.
    Flavors(Vec<Nid>, Option<Box<FlavorOrder>>),
    /// A variable that psmgr has set; none: it has taken that back.
    Variable { name: String, set: Option<SetValue> },
    /// A line of the log of changes.
    Change(Change),
}

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

/// The loop's side.
#[derive(Clone, Debug, Default)]
pub struct Outbox {
    /// Commits whose outcome has not come back.
    under_way: usize,
    /// Postings that were refused while one of these may still say that they are taken, and why.
    refused: BTreeMap<Apid, String>,
}

impl Outbox {
    /// Splits the effects of an event into what leaves at once and what waits for records. `new` is
    /// the number that a posting would get if this event is one: it is a posting if its record is
    /// among the effects (one that came a second time makes no new application).
    pub fn take<A>(&mut self, at_ns: u64, effects: Vec<Effect>, new: Option<Apid>) -> Leaving<A> {
        if self.under_way == 0 {
            self.refused.clear();
        }
        let saves = |apid: Apid| {
            effects.iter().any(|e| matches!(e, Effect::Save { team, .. } if team.apid == apid))
        };
        let posting = new.filter(|apid| saves(*apid));
        let mut commit = Commit { lazy: true, posting, ..Commit::default() };
        let mut now = Vec::new();
        let mut last: BTreeMap<Apid, usize> = BTreeMap::new();
        for effect in effects {
            match effect {
                Effect::Save { team, lazy } => {
                    commit.lazy &= lazy;
                    let apid = team.apid;
                    let record = match posting == Some(apid) {
                        true => Record::New(team),
                        false => Record::Update(team),
                    };
                    // Only the last state of one event's several is written.
                    match last.get(&apid) {
                        Some(i) => commit.records[*i] = record,
                        None => {
                            last.insert(apid, commit.records.len());
                            commit.records.push(record);
                        }
                    }
                }
                Effect::SaveAdopted { team } => {
                    commit.lazy = false;
                    last.insert(team.apid, commit.records.len());
                    commit.records.push(Record::New(team));
                }
                Effect::SavePassedOver { apid, passed_over } => {
                    commit.records.push(Record::PassedOver(apid, passed_over));
                }
                Effect::Log { apid, name, detail } => {
                    commit.records.push(Record::Log { apid, at_ns, name, detail });
                }
                Effect::SaveBoot { nids, boot_id } => {
                    commit.lazy = false;
                    commit.records.push(Record::Boot(nids, boot_id));
                }
                Effect::SaveNodes { nids, order } => {
                    commit.lazy = false;
                    commit.records.push(Record::Nodes(nids, order));
                }
                Effect::SaveFlavors { nids, order } => {
                    commit.lazy = false;
                    commit.records.push(Record::Flavors(nids, order));
                }
                Effect::SaveChange(change) => {
                    commit.lazy = false;
                    commit.records.push(Record::Change(change));
                }
                at_once if at_once.waits_for_nothing() => now.push(at_once),
                other => commit.releases.push(Release::Effect(other)),
            }
        }
        if commit.records.is_empty() && self.under_way == 0 {
            let effects = commit.releases.into_iter().filter_map(|release| match release {
                Release::Effect(effect) => Some(effect),
                Release::Answer(_) => None,
            });
            now.extend(effects);
            return Leaving { now, commit: None };
        }
        let empty = commit.records.is_empty() && commit.releases.is_empty();
        self.under_way += usize::from(!empty);
        Leaving { now, commit: (!empty).then_some(commit) }
    }

    /// Records that are not of an event, and the answer that waits for them.
    pub fn keep<A>(&mut self, records: Vec<Record>, answer: A) -> Commit<A> {
        self.under_way += 1;
        Commit { records, releases: vec![Release::Answer(answer)], ..Commit::default() }
    }

    /// An answer that may say what is not on record yet: it waits for all before it.
    ///
    /// # Errors
    /// The answer itself where nothing is under way: it may be given at once.
    pub fn answer<A>(&mut self, answer: A) -> Result<Commit<A>, A> {
        if self.under_way == 0 {
            return Err(answer);
        }
        self.under_way += 1;
        Ok(Commit { releases: vec![Release::Answer(answer)], lazy: true, ..Commit::default() })
    }

    /// The outcome of a commit has come back.
    pub fn came_back(&mut self) {
        self.under_way = self.under_way.saturating_sub(1);
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
        self.under_way
    }
}

/// What is to be done after a transaction that failed.
#[derive(Clone, Debug, PartialEq)]
pub struct Failed<A> {
    /// To be sent back at once: postings that are refused.
    pub outcomes: Vec<Outcome<A>>,
    /// When the rest is to be tried: `None`: when the next commits come, or after
    /// [`Keeper::patience`].
    pub again: Option<Duration>,
}

/// The store's side.
#[derive(Clone, Debug)]
pub struct Keeper<A> {
    /// Records that nobody waits for.
    lazy: Vec<Record>,
    /// The transaction under way.
    batch: Vec<Commit<A>>,
    /// The last transaction failed.
    trouble: bool,
}

impl<A> Default for Keeper<A> {
    fn default() -> Keeper<A> {
        Keeper { lazy: Vec::new(), batch: Vec::new(), trouble: false }
    }
}

impl<A> Keeper<A> {
    /// How long the next commit is waited for before [`Keeper::take`] is called with none; `None`:
    /// for ever.
    pub fn patience(&self) -> Option<Duration> {
        match (self.trouble, self.lazy.is_empty()) {
            (true, _) => Some(RETRY_TIME),
            (false, false) => Some(LAZY_TIME),
            (false, true) => None,
        }
    }

    /// Takes the commits that have gathered, at most [`BATCH_MAX`], none after [`Keeper::patience`].
    /// With `Some`, these come back at once and nothing is to be written; with `None`,
    /// [`Keeper::records`] are to be written now, as one transaction.
    pub fn take(&mut self, commits: Vec<Commit<A>>) -> Option<Vec<Outcome<A>>> {
        if commits.is_empty() || !commits.iter().all(|c| c.lazy) {
            self.batch = commits;
            return None;
        }
        let put_off = |commit: Commit<A>| {
            self.lazy.extend(commit.records);
            Outcome::Release(commit.releases)
        };
        Some(commits.into_iter().map(put_off).collect())
    }

    /// What the transaction is made of. With nothing to write, writing tries whether the store works
    /// again.
    pub fn records(&self) -> Vec<&Record> {
        self.lazy.iter().chain(self.batch.iter().flat_map(|c| &c.records)).collect()
    }

    /// The transaction is durable: what comes back.
    pub fn written(&mut self) -> Vec<Outcome<A>> {
        self.trouble = false;
        self.lazy.clear();
        self.batch.drain(..).map(|c| Outcome::Release(c.releases)).collect()
    }

    /// The transaction has failed, and nothing of it was kept.
    pub fn failed(&mut self, why: &str) -> Failed<A> {
        self.trouble = true;
        let batch = std::mem::take(&mut self.batch);
        let before = batch.len();
        let mut outcomes = Vec::new();
        for commit in batch {
            match commit.posting {
                Some(apid) => {
                    let releases = commit.releases;
                    outcomes.push(Outcome::Refused { apid, why: why.to_owned(), releases });
                }
                None => self.batch.push(commit),
            }
        }
        let again = match (self.batch.is_empty(), self.batch.len() == before) {
            (true, _) => None,
            (false, true) => Some(RETRY_TIME),
            (false, false) => Some(Duration::ZERO),
        };
        Failed { outcomes, again }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::posted;
    use super::super::{ReplyId, Scheduler, Settings};
    use super::*;

    type Out = Leaving<u32>;

    /// The effects of a posting that waits.
    fn posting(outbox: &mut Outbox, s: &mut Scheduler, number: u8) -> Commit<u32> {
        let new = Some(Apid(s.next_apid()));
        let effects = s.apply(Default::default(), posted(number, 1));
        let Out { now, commit } = outbox.take(5, effects, new);
        assert!(now.is_empty(), "nothing leaves before the record: {now:?}");
        commit.expect("a record")
    }

    fn scheduler() -> Scheduler {
        Scheduler::new(super::super::tests::machine(1, 1), Settings::default())
    }

    #[test]
    fn what_is_not_kept_does_not_leave() {
        let (mut outbox, mut s) = (Outbox::default(), scheduler());
        let commit = posting(&mut outbox, &mut s, 1);
        assert!(matches!(&commit.records[..], [Record::New(_), Record::Log { at_ns: 5, .. }]));
        assert_eq!((commit.posting, commit.lazy), (Some(Apid(1)), false));
        // The same posting again has nothing to keep, and waits for the first all the same.
        let again = s.apply(Default::default(), posted(1, 1));
        let Out { now, commit } = outbox.take(6, again, Some(Apid(s.next_apid())));
        assert!(now.is_empty());
        assert_eq!(commit.expect("it waits").posting, None);
        // So does an answer; once all has come back, neither does.
        assert!(outbox.answer(3).is_ok());
        assert_eq!(outbox.under_way(), 3);
        (0..3).for_each(|_| outbox.came_back());
        assert_eq!(outbox.answer(3), Err(3));
        let again = s.apply(Default::default(), posted(1, 1));
        let Out { now, commit } = outbox.take(6, again, None);
        assert_eq!(now, [Effect::Accept { reply: ReplyId(1), apid: Apid(1) }]);
        assert_eq!(commit, None);
    }

    #[test]
    fn a_full_disk_refuses_postings_and_keeps_the_rest() {
        let (mut outbox, mut s) = (Outbox::default(), scheduler());
        let mut keeper = Keeper::default();
        let new = posting(&mut outbox, &mut s, 1);
        let end = Commit::<u32> { records: new.records.clone(), ..Commit::default() };
        assert_eq!(keeper.patience(), None);
        assert_eq!(keeper.take(vec![new.clone(), end]), None);
        assert_eq!(keeper.records().len(), 4);
        let Failed { outcomes, again } = keeper.failed("full");
        assert!(matches!(&outcomes[..], [Outcome::Refused { apid: Apid(1), releases, .. }]
            if *releases == new.releases));
        assert_eq!((again, keeper.records().len()), (Some(Duration::ZERO), 2));
        assert_eq!(keeper.failed("full"), Failed { outcomes: vec![], again: Some(RETRY_TIME) });
        assert_eq!(keeper.written(), [Outcome::Release(vec![])]);
        assert_eq!(keeper.take(vec![new]), None);
        assert_eq!(keeper.failed("full").again, None);
        assert_eq!(keeper.patience(), Some(RETRY_TIME), "it is tried whether it works again");
        assert_eq!(keeper.take(vec![]), None);
        assert!(keeper.records().is_empty());
        assert!(keeper.written().is_empty());
        assert_eq!(keeper.patience(), None);
    }

    /// It came twice; the word that it is on record waits for its turn behind the record, which the
    /// disk did not take.
    #[test]
    fn what_was_refused_is_not_accepted_for_its_repetition() {
        let (mut outbox, mut s) = (Outbox::default(), scheduler());
        posting(&mut outbox, &mut s, 1);
        let again = s.apply(Default::default(), posted(1, 1));
        let Out { now, commit } = outbox.take(6, again, Some(Apid(s.next_apid())));
        let accept = Release::Effect(Effect::Accept { reply: ReplyId(1), apid: Apid(1) });
        assert_eq!((now, commit.expect("it waits").releases), (vec![], vec![accept]));
        outbox.came_back();
        outbox.refused(Apid(1), "full");
        let undone = s.apply(
            Default::default(),
            super::super::Event::StoreRefused { apid: Apid(1), why: "full".into() },
        );
        outbox.take::<u32>(7, undone, None);
        assert_eq!(outbox.why_refused(Apid(1)), Some("full"));
        while outbox.under_way() > 0 {
            outbox.came_back();
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
        assert_eq!(back, Some(vec![Outcome::Release(vec![Release::Answer(7)])]));
        assert_eq!(keeper.patience(), Some(LAZY_TIME));
        assert_eq!(keeper.take(vec![]), None);
        assert_eq!(keeper.records(), [&boot]);
        assert!(keeper.written().is_empty() && keeper.records().is_empty());
    }
}
