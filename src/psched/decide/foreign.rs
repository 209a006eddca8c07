//! Nodes that obey another psched: what `psmgr adopt` and `psmgr purge` do.
//!
//! # Problem
//! A psched that is started with an empty, a wrong or an old state directory knows nothing of what
//! runs on its nodes. By the ordinary table it would end all of it. So a node that has obeyed
//! another store, or a later start of this one, does not obey ([`crate::apinit::decide`]): it stays linked
//! and tells what it holds ([`Event::Foreign`](super::Event::Foreign)). Nothing is placed there and
//! nothing is commanded until an administrator has said what it is to be.
//!
//! # Approach
//! What it told when it called is enough to judge an adoption ([`adoption`]). The records are saved
//! first; the command leaves once they are durable, like every effect; the node answers with an
//! ordinary inventory, and with that it is ours.
//!
//! ```text
//!   psmgr adopt 0-1 ->  Keep(Adopted 12: running on 0-1)  Log(adopted)  Command(Adopt)
//!   inventory       ->  Keep(Boot)  Managed("NIDs 0-1 obey this psched now ...")
//! ```
//!
//! A psched that is killed in between finds the record when it starts again, and the node foreign
//! still: the same application, known by the random number of its posting, is adopted again.
//!
//! New applications get numbers above those of foreign ones, so that they don't collide later. But root of one host
//! can have it tell any number: those above [`LEAP_MAX`] are only left out, and don't use up all below them. One
//! that is adopted has a number of at most [`APID_MAX`]; if the number is more than [`LEAP_MAX`]
//! above the next one, psched goes on from its own numbers ([`next_after`]). Else later numbers of
//! this store would be above `APID_MAX`, and no other psched could adopt their applications.

mod adoption;

use super::ends::Said;
use super::postings::refuse;
use super::purged::PurgedEnd;
use super::stranger::{Managed, Order, Stranger, name};
use super::{Effect, Link, LinkId, Manage, Now, Record, Refusal, Scheduler};
use crate::apteam::change::{By, Change};
use crate::apteam::protocol::node::{Command, Foreign, Report};
use crate::apteam::{Apid, Key};
use crate::machine::{Nid, nids_text};
use crate::psched::reason::{Denial, name_list, sees_all};
use crate::variables::raise;
use std::collections::BTreeSet;

/// Up to which numbers psched goes on above those of foreign applications.
pub(super) const LEAP_MAX: u64 = 1_000_000_000;
/// The highest number of an application that is adopted: after it there are more than can ever be given, in a store
/// whose numbers are of 63 bits.
pub(super) const APID_MAX: u64 = 1 << 52;

/// The next number to be given if the next one was `next` and this one is on record.
pub(super) fn next_after(next: u64, on_record: Apid) -> u64 {
    match on_record.0.saturating_sub(next) <= LEAP_MAX {
        true => next.max(on_record.0.saturating_add(1)),
        false => next,
    }
}

/// The next number to be given by a store that has given all its own below `next` and has others on
/// record. `up_to` says which is the highest on record that is not above a number.
///
/// # Errors
/// Those of `up_to`.
pub fn next_of<E>(
    mut next: u64,
    mut up_to: impl FnMut(u64) -> Result<Option<u64>, E>,
) -> Result<u64, E> {
    loop {
        let highest = up_to(next.saturating_add(LEAP_MAX))?.unwrap_or_default();
        let after = next_after(next, Apid(highest));
        if after == next {
            return Ok(next);
        }
        next = after;
    }
}

impl Scheduler {
    /// The nodes that are adopted or purged together with a foreign one; `None`: it is not foreign.
    pub(super) fn foreign_together(&self, nid: Nid) -> Option<&[Nid]> {
        let link = self.links.get(self.offered.get(&nid)?)?;
        link.foreign.as_ref().map(|_| &link.hello.nids[..])
    }

    /// Numbers of the applications on these of the nodes that are foreign: whether the store has
    /// given any of them to an application that has ended is to be told with [`super::Event::Manage`].
    pub fn foreign_apids(&self, nids: &BTreeSet<Nid>) -> BTreeSet<Apid> {
        let links: BTreeSet<LinkId> =
            nids.iter().filter_map(|n| self.offered.get(n).copied()).collect();
        links
            .iter()
            .filter_map(|l| self.links.get(l)?.foreign.as_ref())
            .flat_map(|f| f.foreign.applications.iter().map(|a| a.place.key.apid))
            .collect()
    }

    /// Whether a node that obeys another psched has an application of this number.
    pub(super) fn strangers_have(&self, apid: Apid) -> bool {
        let strangers = self.links.values().filter_map(|link| link.foreign.as_ref());
        strangers.into_iter().any(|stranger| stranger.has(apid))
    }

    /// The end of an application of another psched that was purged from its nodes, by the random
    /// number of its posting.
    pub fn purged_end(&self, request_id: &[u8]) -> Option<&PurgedEnd> {
        self.purged.0.iter().find(|purged| purged.request_id == request_id)
    }

    /// The store that psched goes on from has applications whose records can't be read: nodes that obeyed
    /// this store and have one of them are adopted as soon as they call.
    pub fn can_not_read(&mut self, store_id: &str, apids: &[Apid]) {
        self.unreadable = (store_id.to_owned(), apids.iter().copied().collect());
    }

    /// Applications whose records can't be read and that no node has brought back, in ascending order.
    pub fn unreadable(&self) -> impl Iterator<Item = Apid> {
        self.unreadable.1.iter().copied()
    }

    /// Adopts the nodes of this store that have applications whose records can't be read.
    fn bring_back_unreadable(&mut self, now: Now, out: &mut Vec<Effect>) {
        let (store_id, lost) = &self.unreadable;
        let has = |stranger: &Stranger| {
            let Foreign { store_id: theirs, applications, .. } = &stranger.foreign;
            stranger.told.is_none()
                && theirs == store_id
                && applications.iter().any(|found| lost.contains(&found.place.key.apid))
        };
        let its = self.links.iter().filter(|(_, link)| link.foreign.as_ref().is_some_and(has));
        let links: BTreeSet<LinkId> = its.map(|(id, _)| *id).collect();
        let nids = links.iter().filter_map(|id| self.links.get(id)).flat_map(|l| &l.hello.nids);
        let nids: BTreeSet<Nid> = nids.copied().collect();
        if links.is_empty() {
            return;
        }
        let by = By { name: "psched".into(), at_ns: now.wall_ns, ..By::default() };
        let (what, used) = (Manage::Adopt, BTreeSet::new());
        let order = Order { reply: None, what, nids, by, administrator: true, used };
        match self.plan(&order, &links) {
            Ok(plan) => {
                self.carry_out(now, &order, plan, &links, &mut Vec::new(), out);
                self.obeyed_from_now_on(&order, &links, &mut Vec::new(), out);
            }
            // Another of its nodes may call yet; and apstat -n shows what an administrator can do.
            Err(problems) => out.push(Effect::Warn(format!(
                "{} with applications whose records can't be read: {}",
                nids_text(order.nids.iter().copied()),
                problems.join("; ")
            ))),
        }
    }

    pub(super) fn foreign_called(
        &mut self,
        now: Now,
        link: LinkId,
        foreign: Foreign,
        out: &mut Vec<Effect>,
    ) {
        let linked = self.links.get(&link);
        if linked.is_some_and(|link| link.known || link.foreign.is_some()) {
            let why = "it said again that it obeys another psched";
            return self.hang_up(now, link, why, out);
        }
        let numbers = foreign.applications.iter().map(|found| found.place.key.apid.0);
        let newest = numbers.filter(|number| *number <= LEAP_MAX).max().unwrap_or(0);
        let Some(entry) = self.links.get_mut(&link) else { return };
        self.next_apid = self.next_apid.max(newest.saturating_add(1));
        let stranger = Stranger::new(foreign);
        let nids = &entry.hello.nids;
        let text = format!(
            "{}: {}",
            nids_text(nids.iter().copied()),
            stranger.note(nids).words(&sees_all)
        );
        out.push(Effect::Warn(text));
        (entry.known, entry.foreign) = (false, Some(stranger));
        self.bring_back_unreadable(now, out);
    }

    pub(super) fn manage(&mut self, now: Now, order: &Order, out: &mut Vec<Effect>) {
        let Some(reply) = order.reply else { return };
        let (what, uid) = (order.what, order.by.uid);
        if !order.administrator {
            refuse(out, reply, Refusal::NotAllowed, Denial::NoAdministrator { uid });
            return;
        }
        let mut done = Vec::new();
        let found = self.ordered(order, &mut done).and_then(|links| match what {
            Manage::Adopt => self.plan(order, &links).map(|plan| (links, Some(plan))),
            Manage::Purge => Ok((links, None)),
        });
        let (links, plan) = match found {
            Ok(found) => found,
            Err(problems) => {
                out.push(Effect::Managed { reply, done: Vec::new(), problems });
                return;
            }
        };
        if let Some(plan) = plan {
            self.carry_out(now, order, plan, &links, &mut done, out);
        }
        self.obeyed_from_now_on(order, &links, &mut done, out);
        if links.is_empty() {
            out.push(Effect::Managed { reply, done, problems: Vec::new() });
        } else {
            self.managed.push(Managed { reply, what, waits: links, done });
        }
    }

    /// Tells these nodes whom they obey, and keeps that.
    fn obeyed_from_now_on(
        &mut self,
        order: &Order,
        links: &BTreeSet<LinkId>,
        done: &mut Vec<String>,
        out: &mut Vec<Effect>,
    ) {
        let (what, uid) = (order.what, order.by.uid);
        for link in links {
            let Some(stranger) = self.links.get_mut(link).and_then(|l| l.foreign.as_mut()) else {
                continue;
            };
            stranger.told = Some(what);
            let names = name_list(stranger.names());
            let nids = self.links.get(link).map(|l| l.hello.nids.clone()).unwrap_or_default();
            let nids = nids_text(nids);
            let after = match (what, names.is_empty()) {
                (Manage::Adopt, true) => "adopted".into(),
                (Manage::Adopt, false) => format!("adopted, with {names}"),
                (Manage::Purge, true) => "purged".into(),
                (Manage::Purge, false) => format!("purged of {names}"),
            };
            out.push(Effect::Keep(Record::Change(Change {
                by: order.by.clone(),
                what: nids.clone(),
                before: "foreign".into(),
                after,
            })));
            let command = match what {
                Manage::Adopt => Command::Adopt,
                Manage::Purge => {
                    let of = if names.is_empty() { "" } else { " of " };
                    out.push(Effect::Warn(format!("user {uid} purged {nids}{of}{names}")));
                    done.push(match names.is_empty() {
                        true => format!(
                            "{nids}: its apinit obeys this psched now; no \
                                         application ran there"
                        ),
                        false => format!("{nids}: its apinit obeys this psched now; {names} ended"),
                    });
                    Command::Purge { uid }
                }
            };
            out.push(Effect::Command { link: *link, command });
        }
    }

    /// The connections of the foreign ones of these nodes.
    ///
    /// # Errors
    /// What is wrong with the list.
    fn ordered(
        &self,
        order: &Order,
        done: &mut Vec<String>,
    ) -> Result<BTreeSet<LinkId>, Vec<String>> {
        let mut problems = Vec::new();
        let mut links: BTreeSet<LinkId> = BTreeSet::new();
        let (mut unknown, mut absent, mut new, mut ours) = (vec![], vec![], vec![], vec![]);
        for nid in order.nids.iter().copied() {
            let id = self.offered.get(&nid).copied();
            let link = id.and_then(|l| Some((l, self.links.get(&l)?)));
            match link {
                _ if !self.machine.nodes.contains_key(&nid) => unknown.push(nid),
                None => absent.push(nid),
                Some((id, Link { foreign: Some(_), .. })) => {
                    links.insert(id);
                }
                Some((_, Link { known: true, .. })) => ours.push(nid),
                Some(_) => new.push(nid),
            }
        }
        for (nids, text) in [
            (unknown, "not in psched.yaml (apstat -n lists the nodes)"),
            (absent, "no apinit offers it: start apinit there, and try again"),
            (new, "its apinit has just connected: try again in a moment"),
        ] {
            if !nids.is_empty() {
                problems.push(format!("{}: {text}", nids_text(nids)));
            }
        }
        for link in links.iter().filter_map(|l| self.links.get(l)) {
            let nids = &link.hello.nids;
            if !nids.iter().all(|n| order.nids.contains(n)) {
                problems.push(format!(
                    "{} belong to one apinit: name them all",
                    nids_text(nids.iter().copied())
                ));
            }
            let told = link.foreign.as_ref().and_then(|f| f.told);
            if told.is_some_and(|told| told != order.what) {
                let now = match order.what {
                    Manage::Adopt => "purged: wait until that is done",
                    Manage::Purge => "adopted: try again",
                };
                problems.push(format!("{}: already being {now}", nids_text(nids.iter().copied())));
            }
        }
        let most = self.settings.orders_max;
        if self.managed.len() >= most {
            let cure = raise("orders_max", most);
            problems.push(format!(
                "{most} such orders wait for their nodes: try again later, or {cure}"
            ));
        }
        if !ours.is_empty() {
            done.push(format!("{}: its apinit obeys this psched already", nids_text(ours)));
        }
        if problems.is_empty() { Ok(links) } else { Err(problems) }
    }

    /// An end on a node that is being purged.
    pub(super) fn foreign_report(
        &mut self,
        now: Now,
        link: LinkId,
        report: Report,
        out: &mut Vec<Effect>,
    ) {
        let Report::Ended(end) = report else { return };
        let key: Key = end.key;
        let applications = self
            .links
            .get(&link)
            .and_then(|l| l.foreign.as_ref())
            .map(|f| f.foreign.applications.as_slice())
            .unwrap_or_default();
        let Some(found) = applications.iter().find(|a| a.place.key == key) else { return };
        let place = found.place.clone();
        let nids = self.links.get(&link).map_or(&[][..], |link| &link.hello.nids);
        // (Unless it has been placed anew meanwhile, elsewhere.)
        let same = self.teams.get(&key.apid).is_some_and(|team| {
            team.key() == key
                && team.posting.request_id == place.request_id
                && team.places.nids().any(|nid| nids.contains(&nid))
        });
        let first = end.first.as_ref().map_or_else(|| "by itself".into(), |d| d.cause.to_string());
        out.push(Effect::Warn(format!(
            "foreign application {} has ended on {}: {first}",
            name(&place),
            nids_text(end.nids.iter().copied())
        )));
        if same {
            // It is on an old copy of the records.
            self.part_ended(now, *end, Said::ByItsNodes, out);
        } else {
            self.purged.add(&place, *end);
        }
        out.push(Effect::Command { link, command: Command::AcknowledgeEnd(key) });
    }

    /// A node has an inventory for us: who waits for that is told.
    pub(super) fn managed_link_known(&mut self, link: LinkId, out: &mut Vec<Effect>) {
        for managed in &mut self.managed {
            managed.waits.remove(&link);
        }
        let (over, wait): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.managed).into_iter().partition(|m| m.waits.is_empty());
        self.managed = wait;
        out.extend(over.into_iter().map(|Managed { reply, done, .. }| Effect::Managed {
            reply,
            done,
            problems: Vec::new(),
        }));
    }

    pub(super) fn managed_link_closed(&mut self, link: LinkId, out: &mut Vec<Effect>) {
        let (cut, wait): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.managed).into_iter().partition(|m| m.waits.contains(&link));
        self.managed = wait;
        out.extend(cut.into_iter().map(|Managed { reply, what, .. }| {
            let what = if what == Manage::Adopt { "adopt" } else { "purge" };
            Effect::Managed {
                reply,
                done: Vec::new(),
                problems: vec![format!(
                    "the connection of an apinit broke before it had answered: look at apstat -n, \
                     and repeat psmgr {what}"
                )],
            }
        }));
    }
}
