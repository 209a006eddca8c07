//! Regions and gates: where each application may go, and what keeps it out elsewhere.
//!
//! # Problem
//! A posting, a gang that is moved and an application that is restarted all ask the same: which regions let
//! this one in, and may it span them? The answer depends on who asks, on the time of day, and on what a region
//! could hold if it were empty; the last is a question of the whole line, and is asked again and again.
//!
//! # Approach
//! [`Scheduler::wanted`] answers it for all of them, as the [`Reach`] of what is wanted. What regions hold is
//! found once for each kind of PEs, and kept until the machine or the rules change. Hours are looked at when
//! time goes on: when a gate opens or closes, who waits is looked at again.

use super::domain::DomainId;
use super::known_regions::Kind;
use super::{Now, Refusal, Scheduler, flavor_orders};
use crate::apteam::choice::Choice;
use crate::apteam::oversubscribe::{Oversubscribe, Sharing};
use crate::apteam::posting::{Owner, Posting};
use crate::apteam::record::Apteam;
use crate::machine::Nid;
use crate::machine::gates::{Applicant, Bar, DAY, Person};
use crate::machine::{Reach, RegionSet};
use crate::occupancy::{Slot, empty_line};
use crate::placement::{self, Unshared, Wanted};
use crate::psched::reason::{Barred, Denial, Reason, Wait};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Kinds of PEs, each in some regions, of which it is kept how many there is room for.
const HOLDS_MAX: usize = 4_096;

/// Seconds.
const HOUR: u32 = 3_600;

impl Scheduler {
    /// What an application wants, and where it may go now.
    pub(super) fn wanted(&self, team: &Apteam) -> Wanted {
        let any_time = self.wanted_at_any_time(team);
        Wanted { reach: self.now_open(any_time.reach), ..any_time }
    }

    /// The same of a posting that has come to this domain.
    pub(super) fn wanted_by(&self, posting: &Posting, owner: &Owner, domain: DomainId) -> Wanted {
        let reach = self.reach_in(self.domain(domain).regions, posting, owner);
        Wanted { reach: self.now_open(reach), ..Wanted::from(posting) }
    }

    /// Those of the regions of which the gates are open at this time of day.
    pub(super) fn now_open(&self, reach: Reach) -> Reach {
        match self.regions.open == RegionSet::ALL {
            true => reach,
            false => Reach { passes: reach.passes.and(self.regions.open), ..reach },
        }
    }

    /// The same, whatever the time of day.
    pub(super) fn wanted_at_any_time(&self, team: &Apteam) -> Wanted {
        let domain = self.domain(self.domain_named(&team.domain)).regions;
        let reach = self.reach_in(domain, &team.posting, &team.owner);
        Wanted { reach, ..Wanted::from(&team.posting) }
    }

    /// Where a posting may go of some regions, whatever the time of day.
    pub(super) fn reach_in(&self, regions: RegionSet, posting: &Posting, owner: &Owner) -> Reach {
        if self.machine.regions.is_empty() {
            return Reach::ALL;
        }
        let wanted = Wanted::from(posting);
        let passes = self
            .asked(posting, owner)
            .filter(|(_, answer)| answer.is_ok())
            .fold(RegionSet::default(), |passes, (at, _)| passes.with(at))
            .and(regions);
        let spans = passes.iter().nth(1).is_some()
            && !passes.iter().any(|i| self.fits_if_empty(&wanted, RegionSet::of(i)));
        Reach { passes, spans }
    }

    /// What the gate of each region says, the time of day aside.
    fn asked<'a>(
        &'a self,
        posting: &'a Posting,
        owner: &'a Owner,
    ) -> impl Iterator<Item = (usize, Result<(), Bar<'a>>)> {
        let wanted = Wanted::from(posting);
        let applicant = applicant(posting, owner);
        self.machine.regions.iter().enumerate().map(move |(at, region)| {
            let holds = |other| self.holds(&wanted, RegionSet::of(other));
            (at, region.gate.lets(&applicant, holds))
        })
    }

    /// The regions that do not let it in.
    fn barred(&self, posting: &Posting, owner: &Owner) -> Vec<Barred> {
        let says_no = |(at, answer): (usize, Result<(), Bar<'_>>)| {
            let region = self.region_name(at).to_owned();
            Some(Barred { region, rule: answer.err()?.only() })
        };
        self.asked(posting, owner).filter_map(says_no).collect()
    }

    fn fits_if_empty(&self, wanted: &Wanted, regions: RegionSet) -> bool {
        self.holds(wanted, regions) >= wanted.shape.width
    }

    /// How many PEs of a kind some regions could hold if nobody sat there.
    fn holds(&self, wanted: &Wanted, regions: RegionSet) -> u32 {
        match self.regions.holds.get(&kind(wanted, regions)) {
            Some(holds) => *holds,
            None => placement::holds(&self.empty_line(), wanted, regions, u32::MAX),
        }
    }

    /// The machine as it is configured, with nobody on it.
    fn empty_line(&self) -> Cow<'_, [Slot]> {
        // What is scheduled is what is configured, where nothing is retired.
        match self.retired.is_empty() {
            true => Cow::Borrowed(self.occupancy.line()),
            false => {
                let (machine, _) = flavor_orders::in_force(self.configured.clone(), &self.flavors);
                Cow::Owned(empty_line(&machine, self.occupancy.rules()))
            }
        }
    }

    /// Finds out, once for all of its kind, how many PEs there is room for where it might go.
    pub(super) fn learn(&mut self, posting: &Posting, owner: &Owner) {
        let wanted = Wanted::from(posting);
        self.learn_each(&wanted);
        for domain in self.domain_ids() {
            let reach = self.reach_in(self.domain(domain).regions, posting, owner);
            for set in reach.sets() {
                self.learn_in(&wanted, set);
            }
        }
    }

    fn learn_in(&mut self, wanted: &Wanted, regions: RegionSet) {
        let kind = kind(wanted, regions);
        if !self.regions.holds.contains_key(&kind) {
            let holds = self.holds(wanted, regions);
            if self.regions.holds.len() >= HOLDS_MAX {
                self.regions.holds.clear();
            }
            self.regions.holds.insert(kind, holds);
        }
    }

    /// The machine is another one, or how many may sit where.
    pub(super) fn learn_anew(&mut self, now: Now) {
        self.regions.holds.clear();
        self.hours(now);
        // The line is often many postings of few kinds.
        let kinds = self.teams.values().map(|team| Wanted::from(&team.posting));
        let kinds: BTreeMap<Kind, Wanted> =
            kinds.map(|wanted| (kind(&wanted, RegionSet::ALL), wanted)).collect();
        for wanted in kinds.values().take(HOLDS_MAX / self.machine.regions.len().max(1)) {
            self.learn_each(wanted);
        }
    }

    /// How many of a kind each region alone could hold, or the machine where there are none.
    fn learn_each(&mut self, wanted: &Wanted) {
        match self.machine.regions.len() {
            0 => self.learn_in(wanted, RegionSet::ALL),
            regions => (0..regions).for_each(|i| self.learn_in(wanted, RegionSet::of(i))),
        }
    }

    /// Whether the time of day counts.
    pub fn has_hours(&self) -> bool {
        self.regions.deadline().is_some()
    }

    /// Looks at the clock on the wall; returned: whether a gate has opened or closed by it.
    pub(super) fn hours(&mut self, now: Now) -> bool {
        let hours = || self.machine.regions.iter().filter_map(|region| region.gate.hours);
        if hours().next().is_none() {
            let was = std::mem::replace(&mut self.regions.open, RegionSet::ALL);
            self.regions.change_ns = None;
            return was != RegionSet::ALL;
        }
        let local =
            (now.wall_ns / 1_000_000_000).saturating_add_signed(self.settings.utc_offset.into());
        let second = (local % u64::from(DAY)) as u32;
        let mut open = RegionSet::default();
        for (at, region) in self.machine.regions.iter().enumerate() {
            if region.gate.open_at(second) {
                open = open.with(at);
            }
        }
        let next = hours().map(|hours| hours.next_change(second)).min();
        // The second in which it changes has begun by then. Clocks are put forward and back: it is looked
        // again after an hour.
        let next = next.map(|next| u64::from(next.min(HOUR)));
        let left = next.map(|next| next * 1_000_000_000 - now.wall_ns % 1_000_000_000);
        self.regions.change_ns = left.map(|left| now.mono_ns.saturating_add(left));
        std::mem::replace(&mut self.regions.open, open) != open
    }

    /// The name of a region, by its place.
    fn region_name(&self, at: usize) -> &str {
        self.machine.regions.get(at).map_or("", |region| &region.name)
    }

    /// A posting as it is placed: with `--oversubscribe`, on how many processors.
    ///
    /// # Errors
    /// Its PEs can't share processors so.
    pub(super) fn shared(
        &self,
        posting: Posting,
        owner: &Owner,
    ) -> Result<Posting, (Refusal, Box<Reason>)> {
        if posting.oversubscribe == Oversubscribe::No {
            return Ok(posting);
        }
        // (What is decided is psched's to say, and not a client's.)
        let posting = Posting { oversubscribe: Oversubscribe::Allowed, ..posting };
        if posting.shape.depth > 1 || !posting.layout.is_empty() {
            return Err((Refusal::Impossible, Denial::CantShare.into()));
        }
        let sharing = self.sharing(&posting, owner);
        let sharing = sharing.map_err(|why| (Refusal::Impossible, Denial::Unshared(why).into()))?;
        let oversubscribe = sharing.map_or(posting.oversubscribe, Oversubscribe::Shares);
        Ok(Posting { oversubscribe, ..posting })
    }

    /// On how many processors its PEs would share.
    fn sharing(&self, posting: &Posting, owner: &Owner) -> Result<Option<Sharing>, Unshared> {
        let most = self.settings.oversubscribe_max;
        let domain = self.domain(self.domain_for(posting, owner));
        let reach = self.reach_in(domain.regions, posting, owner);
        let wanted = Wanted { reach, ..Wanted::from(posting) };
        let line = self.empty_line();
        match posting.choice.is_any() {
            true if self.could_hold(posting, reach) => Ok(None),
            true => placement::shared(&line, &wanted, most),
            false => {
                placement::shared(&placement::only_among(&line, &posting.choice), &wanted, most)
            }
        }
    }

    /// The refusal of a posting that is too wide, which names `--oversubscribe` where that is a cure.
    pub(super) fn or_shares(&self, mut why: Reason, posting: &Posting, owner: &Owner) -> Reason {
        let plain = posting.layout.is_empty() && posting.shape.depth == 1;
        if plain && posting.oversubscribe == Oversubscribe::No {
            let sharing = self.sharing(posting, owner).ok().flatten();
            why.could_share = sharing.map(|sharing| sharing.processors);
        }
        why
    }

    /// Whether it may be placed at all, some day.
    ///
    /// # Errors
    /// Why not.
    pub(super) fn may_ever(
        &self,
        posting: &Posting,
        owner: &Owner,
    ) -> Result<(), (Refusal, Box<Reason>)> {
        self.account_allowed(posting, owner)?;
        self.room_ever(posting, owner)
            .map_err(|(refusal, why)| (refusal, Box::new(of_shared(posting, *why))))
    }

    fn room_ever(&self, posting: &Posting, owner: &Owner) -> Result<(), (Refusal, Box<Reason>)> {
        let domain = self.domain(self.domain_for(posting, owner));
        let reach = self.reach_in(domain.regions, posting, owner);
        let wanted = Wanted { reach, ..Wanted::from(posting) };
        if !posting.layout.is_empty() {
            return self.may_laid(&wanted, posting);
        }
        if !posting.choice.is_any() {
            return self.may_among(&wanted, &posting.choice);
        }
        if self.could_hold(posting, wanted.reach) {
            return Ok(());
        }
        let (refusal, denial) = if wanted.reach.passes.is_empty() {
            (Refusal::NotAllowed, Denial::NoRegion)
        } else {
            match placement::possible(&self.empty_line(), &wanted) {
                Ok(()) => return Ok(()),
                Err(impossible) => (Refusal::Impossible, Denial::Impossible(impossible)),
            }
        };
        Err((refusal, Box::new(Reason { barred: self.barred(posting, owner), ..denial.into() })))
    }

    /// Whether regions could hold a posting if nobody sat there.
    pub(super) fn could_hold(&self, posting: &Posting, reach: Reach) -> bool {
        let wanted = Wanted { reach, ..Wanted::from(posting) };
        if !posting.layout.is_empty() {
            return self.may_laid(&wanted, posting).is_ok();
        }
        if !posting.choice.is_any() {
            return self.may_among(&wanted, &posting.choice).is_ok();
        }
        reach.sets().any(|set| self.fits_if_empty(&wanted, set))
    }

    /// Whether its PEs could be laid out so some day.
    fn may_laid(&self, wanted: &Wanted, posting: &Posting) -> Result<(), (Refusal, Box<Reason>)> {
        let Posting { choice, layout, .. } = posting;
        let line = self.empty_line();
        if placement::nearest_laid(&self.occupancy, &line, wanted, choice, layout).is_some() {
            return Ok(());
        }
        let denial = Denial::LayoutImpossible {
            choice: choice.clone(),
            layout: layout.clone(),
            flexible: wanted.flexible,
        };
        Err((Refusal::Impossible, denial.into()))
    }

    /// Whether the nodes that it has chosen could hold it some day.
    fn may_among(&self, wanted: &Wanted, choice: &Choice) -> Result<(), (Refusal, Box<Reason>)> {
        let line = self.empty_line();
        let among = placement::only_among(&line, choice);
        let is_among = |slot: &Slot| slot.application && wanted.reach.passes.has(slot.region);
        if !among.iter().any(is_among) {
            let all = || line.iter().map(|slot| slot.nid).collect();
            let unknown = choice.names_some() && !line.iter().any(|slot| choice.asks_for(slot.nid));
            let denial =
                Denial::NoNodeChosen { choice: choice.clone(), instead: unknown.then(all) };
            return Err((Refusal::Impossible, denial.into()));
        }
        placement::possible(&among, wanted).map_err(|impossible| {
            let why: Reason = Denial::Impossible(impossible).into();
            (Refusal::Impossible, Box::new(why.among(choice)))
        })
    }

    /// Why it waits, with what keeps it out of other regions.
    pub(super) fn with_bars(&self, mut why: Reason, team: &Apteam) -> Reason {
        why.barred = self.barred(&team.posting, &team.owner);
        why
    }

    fn account_allowed(
        &self,
        posting: &Posting,
        owner: &Owner,
    ) -> Result<(), (Refusal, Box<Reason>)> {
        let accounts = &self.machine.accounts;
        let Some(account) = posting.account.as_ref().filter(|_| !accounts.is_empty()) else {
            return Ok(());
        };
        let person = person(owner);
        let known = accounts.iter().find(|known| known.name == account.as_str());
        if known.is_some_and(|known| known.lets(&person)) {
            return Ok(());
        }
        let own = accounts.iter().filter(|known| known.lets(&person));
        let denial = Denial::Account {
            name: account.as_str().to_owned(),
            people: known.map(|known| known.people.to_string()),
            own: own.map(|known| known.name.clone()).collect(),
        };
        Err((Refusal::NotAllowed, denial.into()))
    }

    /// It waits for the time of day at which a region that could hold it lets it in; none: that is not what
    /// it waits for.
    pub(super) fn waits_for_hours(&self, team: &Apteam) -> Option<Reason> {
        self.outside_hours(self.wanted_at_any_time(team).reach, &team.posting)
    }

    /// The same of a posting that may go there at any time.
    fn outside_hours(&self, any_time: Reach, posting: &Posting) -> Option<Reason> {
        let open = self.now_open(any_time);
        if open == any_time || self.could_hold(posting, open) {
            return None;
        }
        let closed = any_time.passes.iter().filter(|i| !open.passes.iter().any(|o| o == *i));
        let hours = |at: usize| {
            let hours = self.machine.regions.get(at)?.gate.hours?;
            let region = self.region_name(at).to_owned();
            Some(Barred { region, rule: Bar::Hours(hours).only() })
        };
        Some(Wait::Hours(closed.filter_map(hours).collect()).into())
    }
}

impl Scheduler {
    /// Why a posting that does not wait has no room now: the time of day, or what stands in the way.
    pub(super) fn why_not_now(
        &self,
        wanted: &Wanted,
        posting: &Posting,
        owner: &Owner,
        kept: &std::collections::BTreeSet<Nid>,
    ) -> Option<Reason> {
        let regions = self.domain(self.domain_for(posting, owner)).regions;
        self.outside_hours(self.reach_in(regions, posting, owner), posting)
            .or_else(|| self.why_no_room(wanted, posting, kept))
    }
}

/// What is said of placement, which knows one PE on each processor, to the user of PEs that share them.
pub(super) fn of_shared(posting: &Posting, mut why: Reason) -> Reason {
    if let Oversubscribe::Shares(sharing) = posting.oversubscribe {
        why.scope.shares = Some((posting.shape.width, sharing.processors));
    }
    why
}

fn kind(wanted: &Wanted, regions: RegionSet) -> Kind {
    (wanted.terms_if_empty(regions), wanted.flexible)
}

fn person(owner: &Owner) -> Person<'_> {
    Person { uid: owner.uid, gid: owner.gid, groups: &owner.groups, name: &owner.name }
}

fn applicant<'a>(posting: &'a Posting, owner: &'a Owner) -> Applicant<'a> {
    Applicant {
        person: person(owner),
        terminal: owner.terminal,
        width: posting.shape.width,
        account: posting.account.as_ref().map(|account| account.as_str()),
        time_limit: posting.time_limit,
        memory_per_pe: posting.memory_per_pe,
    }
}
