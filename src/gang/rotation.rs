//! Whose turn it is, and for how long.
//!
//! # The problem
//!
//! Nobody may starve, however the gangs of a component overlap: a gang must not have to wait for more
//! than those that it competes with. (The other order, by which a short program comes through at once, is
//! in [`levels`](super::levels).)
//!
//! # The approach
//!
//! *Round robin* on an arbitrary graph: in order of when each ran last, longest ago first, and who has
//! never run before all of them in order of arrival. In a slice in which a gang does not run, a rival
//! that had waited longer runs; that rival has then waited less, and can't do it again before the gang
//! has run. So it runs at least once in as many slices as there are gangs that compete with it, itself
//! counted in. A slice has one length, times the weight of who leads it: the bound above is in slices
//! and holds for everybody.
//!
//! Who has waited `longest_wait` comes before all others. Promoted time counts as time had.
//!
//! # Memory that has to be brought in
//!
//! A gang whose memory was out when it was last let run has a *cost*: so long it took. Its slices are
//! longer by that, and no shorter than the cost divided by `switch_share`, so that bringing memory in
//! takes no more than that share of the time. Everybody else's slices of the component get that least length
//! too: else who has little memory would have little time.
//!
//! ```text
//!   time_slice 1 s, switch_share 5 %, cost of A 0.5 s        A 10 s | B 10 s
//!   time_slice 1 s, switch_share 80 %                        A 1.5 s | B 1 s
//! ```

use super::competition::Competition;
use super::party::Parties;
use super::plan::Slice;
use super::shares::{Holder, REMEMBERED_MAX, Shares};
use crate::apteam::Apid;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The least length of a slice: below it switching would be all that is done.
pub const SLICE_MIN: Duration = Duration::from_millis(10);

/// To how much a slice is lengthened at most because memory has to be brought in, and the most that this
/// is taken to last: others wait for as long.
pub const LENGTHENED_MAX: Duration = Duration::from_secs(3_600);

/// By what rules turns are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// How long one leads.
    pub time_slice: Duration,
    /// Who has waited so long comes first.
    pub longest_wait: Duration,
    /// The share of a slice that bringing memory in may take, in thousandths, at least 1.
    pub switch_share: u64,
}

/// What a gang has had.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Had {
    /// To whose share its time counts, and its processors.
    holder: Option<Holder>,
    width: u64,
    /// The number of the last slice in which it ran; 0: none yet.
    last: u64,
    /// Its place in the order of arrival.
    arrived: u64,
    /// At least 1.
    weight: u32,
    /// Time run.
    attained: Duration,
    /// It is in the party that ran last.
    runs: bool,
    /// Since when it waits, if it does not run.
    since_ns: u64,
    /// How long it takes to bring its memory in.
    cost: Duration,
}

impl Had {
    fn waited(&self, now_ns: u64) -> Duration {
        let since = if self.runs { now_ns } else { self.since_ns };
        Duration::from_nanos(now_ns.saturating_sub(since))
    }

    fn overdue(&self, rules: &Rules, now_ns: u64) -> bool {
        self.waited(now_ns) >= rules.longest_wait
    }

    /// Its place in the order of turn: the least comes first.
    fn place(&self, rules: &Rules, now_ns: u64) -> (u8, u64, u64) {
        match self.overdue(rules, now_ns) {
            // Who leads by that goes on; then who has waited longest.
            true => (0, u64::from(!self.runs), self.since_ns),
            false => (1, self.last, self.arrived),
        }
    }

    /// A slice has been run that began then, with it or without it.
    fn ran(&mut self, in_it: bool, slice: u64, began_ns: u64) {
        if in_it {
            self.last = slice;
        } else if self.runs {
            self.since_ns = began_ns;
        }
        self.runs = in_it;
    }
}

impl Rules {
    /// The least length of a slice by which so much bringing in is no more than its share.
    pub(super) fn amortises(&self, cost: Duration) -> Duration {
        amortised(cost, self.switch_share)
    }
}

/// The least time of which such a cost is no more than this share, in thousandths.
pub fn amortised(cost: Duration, switch_share: u64) -> Duration {
    let share = u32::try_from(switch_share.max(1)).unwrap_or(u32::MAX);
    (cost.saturating_mul(1_000) / share).min(LENGTHENED_MAX)
}

/// The order of turns of all gangs of a machine.
#[derive(Clone, Debug, Default)]
pub struct Rotation {
    slices: u64,
    arrivals: u64,
    had: BTreeMap<Apid, Had>,
    /// What users, or accounts, have had.
    pub shares: Shares,
}

impl Rotation {
    /// A gang takes its place, having had so much already: under round robin it leads next in its
    /// component. No effect where it has one.
    pub fn add(&mut self, apid: Apid, weight: u32, had: Duration, now_ns: u64) {
        self.arrivals += 1;
        let had = Had {
            holder: None,
            width: 1,
            last: 0,
            arrived: self.arrivals,
            weight: weight.max(1),
            attained: had,
            runs: false,
            since_ns: now_ns,
            cost: Duration::ZERO,
        };
        self.had.entry(apid).or_insert(had);
    }

    /// To whose share its time counts, and how many processors it has.
    pub fn set_share(&mut self, apid: Apid, holder: Option<Holder>, width: u64) {
        if let Some(had) = self.had.get_mut(&apid) {
            (had.holder, had.width) = (holder, width.max(1));
        }
    }

    /// To whose share its time counts.
    pub fn holder(&self, apid: Apid) -> Option<&Holder> {
        self.had.get(&apid)?.holder.as_ref()
    }

    /// Its processors.
    pub fn width(&self, apid: Apid) -> u64 {
        self.had.get(&apid).map_or(0, |had| had.width)
    }

    /// Since when it waits, in nanoseconds; now, where it runs.
    pub fn waits_since(&self, apid: Apid, now_ns: u64) -> u64 {
        let waits = self.had.get(&apid).filter(|had| !had.runs);
        waits.map_or(now_ns, |had| had.since_ns.min(now_ns))
    }

    /// Whether it was in the party that ran last.
    pub fn runs(&self, apid: Apid) -> bool {
        self.had.get(&apid).is_some_and(|had| had.runs)
    }

    /// A gang has gone.
    pub fn remove(&mut self, apid: Apid) {
        self.had.remove(&apid);
    }

    /// Another weight, from the next plan on.
    pub fn set_weight(&mut self, apid: Apid, weight: u32) {
        if let Some(had) = self.had.get_mut(&apid) {
            had.weight = weight.max(1);
        }
    }

    /// Whether a gang has a place.
    pub fn contains(&self, apid: Apid) -> bool {
        self.had.contains_key(&apid)
    }

    /// The weight of a gang; 1 where it has no place.
    pub fn weight(&self, apid: Apid) -> u32 {
        self.had.get(&apid).map_or(1, |had| had.weight)
    }

    /// So long it takes to bring its memory in, from the next plan on; more than [`LENGTHENED_MAX`]
    /// counts as that. Whether that is another cost than before.
    pub fn set_cost(&mut self, apid: Apid, cost: Duration) -> bool {
        let Some(had) = self.had.get_mut(&apid) else { return false };
        let cost = cost.min(LENGTHENED_MAX);
        std::mem::replace(&mut had.cost, cost) != cost
    }

    /// How long it takes to bring the memory of a gang in; nothing where it is never out.
    pub fn cost(&self, apid: Apid) -> Duration {
        self.had.get(&apid).map_or(Duration::ZERO, |had| had.cost)
    }

    /// How long a gang has run; nothing where it has no place.
    pub fn attained(&self, apid: Apid) -> Duration {
        self.had.get(&apid).map_or(Duration::ZERO, |had| had.attained)
    }

    /// The next slice of a component.
    pub fn next(
        &self,
        competition: &Competition,
        members: &[Apid],
        rules: &Rules,
        now_ns: u64,
    ) -> Slice {
        let mut ahead = Ahead::new(self, competition, members);
        let (party, length) = ahead.next(rules, now_ns, &[]);
        let party = party.into_iter().map(|member| members[member as usize]).collect();
        Slice { party, length, floor: false }
    }

    /// So much more time has been had by then, which says nothing of whose turn it is.
    pub fn credit(&mut self, apid: Apid, time: Duration, now_ns: u64) {
        if let Some(had) = self.had.get_mut(&apid) {
            had.attained = had.attained.saturating_add(time);
            if let Some(holder) = had.holder.as_ref().filter(|_| !time.is_zero()) {
                self.shares.charge(holder, time.as_nanos() as f64 * had.width as f64, now_ns);
            }
        }
    }

    /// From one time to another a gang has had so much, and ran last until then, if it ran at all.
    pub fn had(&mut self, apid: Apid, time: Duration, last_ns: Option<u64>, of: (u64, u64)) {
        let (from_ns, until_ns) = of;
        self.credit(apid, time, until_ns);
        let Some(had) = self.had.get_mut(&apid) else { return };
        match last_ns {
            Some(last_ns) => had.since_ns = last_ns,
            None if had.runs => had.since_ns = from_ns,
            None => {}
        }
        had.runs = last_ns == Some(until_ns);
    }

    /// A gang has had so much in all: somebody knows better than what was taken for it.
    pub fn set_attained(&mut self, apid: Apid, time: Duration) {
        if let Some(had) = self.had.get_mut(&apid) {
            had.attained = time;
        }
    }

    /// A gang has had so much in all by then, its node says: of what plans gave it others may have had a part.
    pub fn correct(&mut self, apid: Apid, time: Duration, now_ns: u64) {
        let Some(had) = self.had.get_mut(&apid) else { return };
        let more = time.as_nanos() as f64 - had.attained.as_nanos() as f64;
        had.attained = time;
        if let Some(holder) = &had.holder {
            self.shares.charge(holder, more * had.width as f64, now_ns);
        }
    }

    /// A slice of these has been run, or is taken as run, which began then.
    pub fn ran(&mut self, members: &[Apid], slice: &Slice, began_ns: u64) {
        self.slices += 1;
        let party: BTreeSet<&Apid> = slice.party.iter().collect();
        for apid in members {
            let Some(had) = self.had.get_mut(apid) else { continue };
            let in_it = party.contains(apid);
            had.ran(in_it, self.slices, began_ns);
        }
        let length = u64::try_from(slice.length.as_nanos()).unwrap_or(u64::MAX);
        let end_ns = began_ns.saturating_add(length);
        slice.party.iter().for_each(|apid| self.credit(*apid, slice.length, end_ns));
    }

    /// Forgets users who have no gang here, if they are too many; an eighth at a time, since all are gone through.
    pub fn forget(&mut self, now_ns: u64) {
        if self.shares.len() <= REMEMBERED_MAX / 8 * 9 {
            return;
        }
        let here: BTreeSet<&str> =
            self.had.values().filter_map(|had| had.holder.as_deref()).collect();
        self.shares.forget(now_ns, |holder| here.contains(holder));
    }
}

/// The rotation of one component, run ahead: nothing of it is on anybody's account. Members are named by
/// their place in the component.
#[derive(Debug)]
pub(super) struct Ahead<'a> {
    pub parties: Parties<'a>,
    had: Vec<Option<Had>>,
    /// Those who have a place, in order of turn when it was looked at last.
    order: Vec<u32>,
    places: Vec<((u8, u64, u64), Apid)>,
    /// Who runs, ascending.
    running: Vec<u32>,
    slices: u64,
}

impl<'a> Ahead<'a> {
    pub fn new(rotation: &Rotation, competition: &'a Competition, members: &[Apid]) -> Ahead<'a> {
        let had: Vec<Option<Had>> =
            members.iter().map(|apid| rotation.had.get(apid).cloned()).collect();
        let runs = |(i, had): (u32, &Option<Had>)| had.as_ref().filter(|h| h.runs).map(|_| i);
        Ahead {
            running: (0..).zip(&had).filter_map(runs).collect(),
            parties: Parties::new(competition, members),
            order: (0..).zip(&had).filter(|(_, had)| had.is_some()).map(|(i, _)| i).collect(),
            places: members.iter().map(|apid| ((0, 0, 0), *apid)).collect(),
            had,
            slices: rotation.slices,
        }
    }

    pub fn weight(&self, member: u32) -> u32 {
        self.had[member as usize].as_ref().map_or(1, |had| had.weight)
    }

    pub fn cost(&self, member: u32) -> Duration {
        self.had[member as usize].as_ref().map_or(Duration::ZERO, |had| had.cost)
    }

    pub fn runs(&self, member: u32) -> bool {
        self.had[member as usize].as_ref().is_some_and(|had| had.runs)
    }

    /// Who runs in the next slice, and its length. With `first`, these come before all others, in that
    /// order. Its length has no room yet for memory that has to be brought in: that depends on the other slices
    /// of a plan, which sees to it.
    pub fn next(&mut self, rules: &Rules, now_ns: u64, first: &[u32]) -> (Vec<u32>, Duration) {
        for (had, (place, _)) in self.had.iter().zip(&mut self.places) {
            if let Some(had) = had {
                *place = had.place(rules, now_ns);
            }
        }
        // (Those who ran have gone to the end, mostly: what is nearly in order costs this sort one pass.)
        self.order.sort_by_key(|member| self.places[*member as usize]);
        let others = self.order.iter().filter(|member| !first.contains(member));
        let party = self.parties.party(first.iter().chain(others).copied());
        let weight = party.first().map_or(1, |leader| self.weight(*leader));
        let length = rules.time_slice.saturating_mul(weight);
        (party, length.max(SLICE_MIN))
    }

    /// A slice of these is taken as run, which began then.
    pub fn ran(&mut self, party: &[u32], began_ns: u64) {
        self.slices += 1;
        let ran = std::mem::replace(&mut self.running, party.to_vec());
        self.running.sort_unstable();
        let out = ran.iter().filter(|member| self.running.binary_search(member).is_err());
        let all = out.map(|member| (member, false)).chain(party.iter().map(|m| (m, true)));
        for (member, in_it) in all {
            if let Some(had) = &mut self.had[*member as usize] {
                had.ran(in_it, self.slices, began_ns);
            }
        }
    }
}
