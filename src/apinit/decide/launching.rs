//! From the launch to the go.

use super::application::{App, Shepherd};
use super::streams::Told;
use super::{Action, Agent, Out};
use crate::apteam::binding::Binding;
use crate::apteam::ending::{Cause, Decisive, NOT_THE_PROGRAM};
use crate::apteam::fault::Fault;
use crate::apteam::launch::HostLaunch;
use crate::apteam::launch::LocalPe;
use crate::apteam::part::RankMap;
use crate::apteam::protocol::node::NodeSpec;
use crate::apteam::protocol::node::Report;
use crate::apteam::protocol::peers::{FromPeer, ToPeer};
use crate::apteam::protocol::shepherd::ToShepherd;
use crate::apteam::{Key, Ticket};
use crate::machine::Nid;
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::time::Duration;

impl Agent {
    /// [`Agent::try_start`], where the launch or its shepherd's hello has just come. An apshepherd
    /// of the release before would skip what it doesn't know, and is not given that.
    pub(super) fn start_or_refuse(&mut self, now: u64, key: Key, out: &mut Out) {
        let Some(app) = self.apps.get(&key) else { return };
        let skipped = app.skipped_by_the_release_before().filter(|_| app.several == Some(false));
        if let Some(skipped) = skipped
            && app.running()
            && !app.sent
            && app.doom.is_none()
        {
            let text = format!(
                "the apshepherd on this host is too old for {skipped}: install the apshepherd of \
                 apinit's release"
            );
            let (rank, nid) = (app.first_rank(), app.nid());
            let (errno, fault) = (NOT_THE_PROGRAM, Fault::Node);
            let cause = Cause::LaunchFailed { rank, nid, errno, text, fault };
            return self.own_decisive(now, key, Decisive { at_ns: now, cause }, out);
        }
        self.try_start(key, out);
    }

    /// Gives the shepherd its launch, if it is there and the processors are free of everybody else
    /// with whom it does not share them.
    pub(super) fn try_start(&mut self, key: Key, out: &mut Out) {
        let Some(app) = self.apps.get(&key) else { return };
        let ready = app.shepherd == Shepherd::Up && app.running() && !app.sent;
        // Before its hello it is not known whether it can.
        let can = !app.has_several() || app.several == Some(true) || app.place.restart.is_some();
        if !ready || !can || app.doom.is_some() || self.held_by_another(app) {
            return;
        }
        if app.place.restart.is_some() {
            return if app.launch.is_some() {
                self.restore(key, out)
            };
        }
        let Some(launch) = self.host_launch(app) else { return };
        self.note_binding(key, out);
        if let Some(app) = self.apps.get_mut(&key) {
            app.sent = true;
        }
        out.push(Action::SendShepherd(key, ToShepherd::Launch(Box::new(launch))));
        self.drop_launch(key);
    }

    /// Whether a processor of this one still has another's processes. Those who share may.
    fn held_by_another(&self, app: &App) -> bool {
        let others = self.apps.values().filter(|other| other.key() != app.key());
        others
            .filter(|o| o.occupies() && !(o.place.shares && app.place.shares))
            .any(|o| !o.processors.is_disjoint(&app.processors))
    }

    /// Something has become empty: who waited for its processors may start.
    pub(super) fn start_others(&mut self, out: &mut Out) {
        let waits = |app: &&App| app.launch.is_some() && !app.sent;
        let keys: Vec<Key> = self.apps.values().filter(waits).map(App::key).collect();
        for key in keys {
            self.try_start(key, out);
        }
    }

    /// This host's part of the launch: its own PEs, from the placement list.
    fn host_launch(&self, app: &App) -> Option<HostLaunch> {
        let mut launch = app.launch.as_deref()?.clone();
        let place = &app.place;
        let pes = self.local_pes(app, &launch.binding)?;
        if launch.binding != Binding::None {
            launch.binding = Binding::Cpu;
        }
        Some(HostLaunch {
            key: app.key(),
            width: place.shape.width,
            // (For an apshepherd that knows no other: where all here are alike it is right.)
            depth: pes.iter().map(|pe| pe.depth).max().unwrap_or(place.shape.depth),
            launch,
            pes,
            process_mapping: place.part.process_mapping.clone(),
            alone: place.host_count() == 1,
            others: others_than(place.part.index.unwrap_or_default(), &place.part.map),
            cpu_limit: place.cpu_limit,
            stdin: app.head(),
            kill_grace: place.kill_grace,
            // The shell's to fill in: it keeps under which store the application was made, and the folder.
            marker: String::new(),
            pmix_folder: String::new(),
            spawned: None,
            memory_per_pe: place.memory_per_pe,
            pids_max: place.pids_max,
            bounds: place.bounds,
            pmix_name: pmix_name(app.key(), &place.ticket),
            host_index: place.part.index.unwrap_or_default(),
        })
    }

    /// The PEs of this host, each with its real processors. `None`: the binding names some that the
    /// application does not have (with which no launch is taken).
    fn local_pes(&self, app: &App, binding: &Binding) -> Option<Vec<LocalPe>> {
        let mut pes = Vec::new();
        for (part, mapped) in app.place.mapped() {
            let node = self.node(part.nid);
            let nice = app.place.yields.on(part.nid);
            let real = |p: u32| node.and_then(|node| node.cpu(p, &self.me.cpus));
            let numa = |p: u32| self.me.numa.get(&real(p)?).copied();
            let depth = part.depth();
            let sets = binding.sets(&part.processors, part.pes, depth, numa).ok()?;
            let all: BTreeSet<u32> = self.cpus_at(part).into_iter().collect();
            pes.extend((mapped.first_rank..).zip(sets).map(|(rank, set)| {
                let cpus: BTreeSet<u32> = set.into_iter().filter_map(real).collect();
                // One that is bound to none has those of its application, and nobody else's.
                let cpus = if cpus.is_empty() { all.clone() } else { cpus };
                let cpus = cpus.into_iter().collect();
                LocalPe { rank, nid: part.nid, cpus, nice, depth }
            }));
        }
        Some(pes)
    }

    pub(super) fn node(&self, nid: Nid) -> Option<&NodeSpec> {
        self.welcome.as_ref()?.nodes.iter().find(|n| n.nid == nid)
    }

    /// Every PE here stands before its first instruction.
    pub(super) fn own_ready(&self, key: Key, out: &mut Out) {
        let Some(app) = self.apps.get(&key).filter(|app| app.may_be_ready()) else { return };
        let own = app.place.places.0.iter();
        let pes = own.map(|place| (place.nid, place.pes)).collect();
        out.push(Action::VerifyPlaces { key, pes });
    }

    /// Each of them is held by the group of its node, or one is not: then none runs an instruction.
    pub(super) fn places_verified(
        &mut self,
        now: u64,
        key: Key,
        result: Result<(), String>,
        out: &mut Out,
    ) {
        let Some(app) = self.apps.get_mut(&key).filter(|app| app.may_be_ready()) else { return };
        if let Err(text) = result {
            let (rank, nid) = (app.first_rank(), app.nid());
            // (One may have been taken elsewhere by what its user runs there.)
            let (errno, fault) = (NOT_THE_PROGRAM, Fault::Busy);
            let cause = Cause::LaunchFailed { rank, nid, errno, text, fault };
            let found = Decisive { at_ns: now, cause: cause.clone() };
            app.first = Decisive::earlier(app.first.take(), Some(found.clone()));
            self.tell_head_of(key, found, out);
            // They stand, and could not end by themselves.
            return self.end_all(now, key, cause, Duration::ZERO, None, out);
        }
        app.ready = true;
        let yields = &app.place.yields;
        let nids: Vec<Nid> = app.nids.iter().copied().filter(|n| yields.on(*n) > 0).collect();
        // Before user code runs, and for good.
        if !nids.is_empty() {
            out.push(Action::Yield { key, nids, nice: yields.nice });
        }
        if app.head() {
            self.try_go(now, key, out);
        } else if let Some(head) = app.open_front() {
            out.extend(head.tell_head(FromPeer::Ready));
        }
    }

    /// (Head.) Lets all hosts go when they are ready and answer. One that can't be reached has
    /// perhaps lost its PEs since it said that they are ready. It says so again when it is back.
    pub(super) fn try_go(&mut self, now: u64, key: Key, out: &mut Out) {
        let Some(app) = self.apps.get(&key) else { return };
        if !app.ready || !app.may_tell_all() {
            return;
        }
        match app.turn_came {
            false => self.enter(now, key, out),
            true => self.may_go(now, key, out),
        }
    }

    /// The PEs here are to go: at once where they have their processors to themselves, else when the
    /// switcher says that they may.
    pub(super) fn enter(&mut self, now: u64, key: Key, out: &mut Out) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        let may = app.ready && app.going_ns.is_none() && app.doom.is_none() && app.running();
        if !may || app.entered {
            return;
        }
        app.entered = true;
        let alone = !app.place.shares;
        if let Some(app) = self.apps.get(&key) {
            self.comes(now, app, alone, out);
        }
        if alone {
            self.may_go(now, key, out);
        }
    }

    /// Lets the PEs here go; the head tells everybody.
    pub(super) fn may_go(&mut self, now: u64, key: Key, out: &mut Out) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        let ready = app.ready && app.entered;
        if !ready || app.going_ns.is_some() || app.doom.is_some() || !app.running() {
            return;
        }
        app.turn_came = true;
        // (A host may have gone while the turn was waited for.)
        if app.head() && !app.may_tell_all() {
            return;
        }
        app.going_ns = Some(now);
        // (One that was brought back goes already, and takes no notice.)
        out.push(Action::SendShepherd(key, ToShepherd::Go));
        out.push(Action::KeepGoing(key, now));
        if !app.head() {
            return;
        }
        let front = app.open_front();
        self.tell_peers(key, None, &ToPeer::Go, out);
        if let Some(front) = front {
            out.push(front.tell(Told::Going));
        }
        self.report(Report::Running(key), out);
        self.report_movable(key, out);
    }
}

impl App {
    /// (Head.) All other hosts are ready and answer.
    fn may_tell_all(&self) -> bool {
        self.head() && self.peers.iter().all(|p| p.ready && p.answers())
    }

    /// Its launch was sent, and its PEs have not been ready yet.
    fn may_be_ready(&self) -> bool {
        !self.ready && self.sent && self.running()
    }
}

/// The first PE of each host but this one; none, if these are too many.
fn others_than(own: u32, map: &RankMap) -> Vec<u32> {
    let mut first = map.first_pes();
    first.remove(&own);
    match first.len() {
        0..=HostLaunch::OTHERS_MAX => first.into_values().collect(),
        _ => Vec::new(),
    }
}

/// The name of an application's PMIx namespace: the same on all hosts, which have its ticket, and for others not to be
/// guessed.
pub(super) fn pmix_name(key: Key, ticket: &Ticket) -> String {
    let mut digest = Sha256::new();
    digest.update(b"pmix");
    digest.update(ticket.0);
    let secret: String = digest.finalize()[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("psched.{}.{}.{secret}", key.apid, key.incarnation.0)
}
