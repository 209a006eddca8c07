//! What the driver does, on this host.

use super::{Shell, apps, listening};
use crate::apinit::decide::switcher::{Event as TurnEvent, Ran};
use crate::apinit::decide::{Action, Agent, Conn, Event};
use crate::apinit::drive::{Heard, Outside, Record, Said, Work};
use crate::apinit::host::peers::Peer;
use crate::apinit::host::places;
use crate::apinit::host::shepherd_handle::Shepherd;
use crate::apinit::host::stream_sender::tell;
use crate::apteam::ending::Cause;
use crate::apteam::launch::ServePmix;
use crate::apteam::place::HostAddress;
use crate::apteam::protocol::attach::FromApinit;
use crate::apteam::protocol::node::{PlaceCommand, Report, Welcome};
use crate::apteam::protocol::peers::{FromPeer, ToPeer};
use crate::apteam::protocol::programs::WantedProgram;
use crate::apteam::protocol::shepherd::ToShepherd;
use crate::apteam::protocol::turns::Switches;
use crate::apteam::{Key, Ticket};
use crate::machine::Nid;
use crate::node::checkpoint::break_off;
use crate::node::checkpoint::fd_channel::Answer;
use crate::node::groups::AppGroups;
use crate::os::host::monotonic_ns;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

impl Outside for Shell {
    fn now_ns(&self) -> u64 {
        monotonic_ns()
    }

    fn happened(&mut self) -> Vec<Heard> {
        std::mem::take(&mut self.own)
    }

    fn hears(&mut self, _event: &Event) {}

    fn does(&mut self, _agent: &Agent, action: &Action) {
        let Some(key) = of(action) else { return };
        let Some(app) = self.apps.get(&key) else { return };
        app.span.in_scope(|| match action {
            Action::KeepGoing(..) => tracing::info!("going"),
            Action::KeepFront(_, conn) => {
                let pid = self.fronts.get(conn).and_then(|front| front.process).map(|p| p.pid);
                tracing::info!(pid, "front end attached");
            }
            Action::SendShepherd(_, ToShepherd::Launch(_)) => tracing::info!("launched"),
            Action::SendShepherd(_, ToShepherd::Terminate { .. }) => tracing::info!("to be ended"),
            Action::Report(Report::Ended(end)) => {
                let cause = end.first.as_ref().map(|first| first.cause.to_string());
                tracing::info!(
                    status = end.status(),
                    cause = cause.as_deref(),
                    "ended, telling psched"
                );
            }
            Action::Remove(_) => tracing::info!("forgotten"),
            _ => {}
        });
    }

    // ---- records ----

    fn keep(&mut self, record: Record) -> Result<(), String> {
        let kept = self.try_keep(record);
        kept.inspect_err(|why| tracing::warn!("{why:#}")).map_err(|why| format!("{why:#}"))
    }

    fn obey(&mut self, agent: &Agent, welcome: Welcome) {
        let (store_id, epoch) = (welcome.store_id.clone(), welcome.epoch);
        self.bounds.send_replace(listening(welcome.bounds, self.files, self.network.is_some()));
        self.switching.obey(&welcome.bounds);
        self.programs_room = welcome.bounds.into();
        self.programs.bound(self.programs_room);
        self.sealing.clone_from(&welcome.checkpoint_key);
        tracing::info!(store = store_id, epoch, "obeying psched");
        self.hello.send_modify(|hello| (hello.store_id, hello.epoch) = (store_id, epoch));
        self.note_crowded(&welcome.nodes);
        self.runtime.obeyed.remember(welcome);
        self.catch_up();
        self.end_unrecorded(agent);
    }

    // ---- an application ----

    fn make_folder(
        &mut self,
        agent: &Agent,
        place: &PlaceCommand,
        nids: &[Nid],
    ) -> Result<(), String> {
        self.folder(agent, place, nids).map_err(|why| format!("{why:#}"))
    }

    fn make_groups(
        &mut self,
        agent: &Agent,
        place: &PlaceCommand,
        nids: &[Nid],
    ) -> Result<(), String> {
        self.groups(agent, place, nids).map_err(|why| format!("{why:#}"))
    }

    fn start_shepherd(&mut self, place: &PlaceCommand) -> Result<(), String> {
        self.shepherd(place).map_err(|why| format!("{why:#}"))
    }

    fn verify_places(&mut self, key: Key, pes: &[(Nid, u32)]) -> Option<Result<(), String>> {
        let Some(app) = self.apps.get_mut(&key) else { return Some(Ok(())) };
        let looked = match (&app.groups, &app.shepherd) {
            // apinit itself has put a restored application there, which may have any processes.
            (Some(groups), Some(shepherd)) if app.first.is_none() => {
                let pid = shepherd.process.pid;
                let looked = places::verify(groups, pid, pes, &mut places::lock(&app.seating));
                if looked.is_err() && shepherd.has_ended() {
                    return None;
                }
                looked
            }
            _ => Ok(()),
        };
        app.forms = looked.is_err();
        if let Err(found) = &looked {
            app.span.in_scope(|| tracing::warn!("not started: {found}"));
        }
        Some(looked)
    }

    fn yields(&mut self, key: Key, nids: &[Nid], nice: u32) {
        self.give_way(key, nids, nice);
    }

    fn kill(&mut self, key: Key, shepherd: bool) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        app.killed = true;
        if let Some(coming) = &app.coming {
            coming.ends(Err("it is being ended".to_owned()));
        }
        if let Some(wanted) = &app.comes {
            wanted.store(false, Ordering::Relaxed);
        }
        if let Some(groups) = &app.groups {
            groups.kill(shepherd);
        }
        if let Some(known) = app.shepherd.as_ref().filter(|_| shepherd) {
            known.kill();
        }
        if app.groups.is_none() {
            app.trail(&self.shepherds).kill();
        }
        // Last: what had stopped it is dead.
        if let Some(known) = app.shepherd.as_ref().filter(|_| !shepherd) {
            known.resume();
        }
    }

    fn drop_images(&mut self, key: Key) {
        let Some(app) = self.apps.get(&key) else { return };
        if let Some(images) = app.directory.away() {
            let _ = std::fs::remove_dir_all(images);
        }
        app.directory.drop_away();
    }

    /// Where there are no groups an apshepherd's word counts, which has waited for all its
    /// descendants.
    fn is_empty(&self, key: Key) -> bool {
        self.apps.get(&key).is_some_and(|app| {
            let trusted = app.groups.is_none() && app.shepherd.is_some() && !app.silent;
            trusted || app.groups.as_ref().is_some_and(AppGroups::empty)
        })
    }

    fn used(&self, key: Key) -> Option<(Duration, Duration)> {
        self.apps.get(&key)?.groups.as_ref()?.cpu()
    }

    fn begin(&mut self, agent: &Agent, work: Work) {
        match work {
            Work::Empties(key) => self.wait_until_empty(key),
            Work::Rebind { key, parts, place } => self.rebind(agent, key, parts, *place),
            Work::Restore { place, cpus } => self.restore(agent, *place, cpus),
            Work::Dump { key, number, output_received, stdin_taken } => {
                self.dump(key, number, output_received, stdin_taken);
            }
            Work::TakeOut(key) => self.take_out(key),
            Work::BringBack { place, cpus } => self.bring_back(*place, cpus),
            Work::FindShepherd(key) => self.find_shepherd(key),
            Work::Remove(key) => self.remove(key),
        }
    }

    // ---- connections ----

    fn tell_shepherd(&mut self, key: Key, mut message: ToShepherd) -> bool {
        let Some(app) = self.apps.get(&key) else { return true };
        let Some(shepherd) = &app.shepherd else { return true };
        if let ToShepherd::Launch(launch) = &mut message {
            launch.marker.clone_from(&app.marker);
            if launch.launch.pmix != ServePmix::No {
                // (Without it the apshepherd draws one, and removes that if it can.)
                let given = app.directory.new_pmix_folder(app.owner.uid);
                let given = given.inspect_err(|error| tracing::warn!("{error:#}"));
                launch.pmix_folder = given.unwrap_or_default();
            }
            if app.busless {
                apps::without_bus(&mut launch.launch.environment);
            }
        }
        if let (ToShepherd::Terminate { cause: Cause::Checkpointed { .. }, .. }, Some(groups)) =
            (&message, &app.groups)
        {
            // It goes on where it is restored, and its connections with it.
            break_off(groups);
        }
        shepherd.send(message)
    }

    fn hang_up_shepherd(&mut self, key: Key) -> bool {
        let Some(app) = self.apps.get_mut(&key) else { return false };
        app.stands_since = Some(Instant::now());
        app.shepherd.as_mut().map(Shepherd::hang_up).is_some()
    }

    fn fate(&mut self, key: Key, text: String) -> String {
        let Some(app) = self.apps.get_mut(&key) else { return text };
        app.silent = true;
        if !text.is_empty() {
            return text;
        }
        let failure = app.shepherd.as_mut().and_then(Shepherd::failure);
        failure.or(app.exit.take()).unwrap_or_else(|| "it has closed its connection".into())
    }

    fn tell_front(&mut self, conn: Conn, message: FromApinit, room: u64) -> bool {
        self.fronts.get_mut(&conn).is_none_or(|front| tell(&mut front.sender, message, room))
    }

    fn tell_head(&mut self, conn: Conn, message: FromPeer, room: u64) -> bool {
        self.heads.get_mut(&conn).is_none_or(|head| tell(&mut head.sender, message, room))
    }

    fn close_stream(&mut self, conn: Conn) {
        self.fronts.remove(&conn);
        self.heads.remove(&conn);
    }

    fn open_peer(&mut self, key: Key, index: u32, generation: u64, at: HostAddress, room: u64) {
        let network = self.network.clone();
        let peer = Peer::open(key, index, generation, network, at, room, self.events.clone());
        self.peers.insert((key, index), peer);
    }

    fn tell_peer(&mut self, key: Key, index: u32, message: ToPeer) {
        if let Some(peer) = self.peers.get(&(key, index)) {
            peer.send(message);
        }
    }

    fn close_peer(&mut self, key: Key, index: u32) {
        self.peers.remove(&(key, index));
    }

    fn take_program(
        &mut self,
        key: Key,
        program: WantedProgram,
        from: Vec<HostAddress>,
        of: (u32, Ticket),
    ) {
        self.take_program_from(key, program, from, of);
    }

    fn tell_psched(&mut self, said: Said) {
        if let Said::Foreign(foreign) = &said {
            tracing::warn!(
                applications = foreign.applications.len(),
                "this apinit does not obey this psched: {}; use psmgr adopt or psmgr purge \
                 (psmgr(8))",
                foreign.why
            );
        }
        if let Some(link) = &self.link {
            link.say(said);
        }
    }

    fn answer_dump(&mut self, number: u64, refused: Option<String>) {
        self.answer(number, refused.map_or(Answer::Ended, Answer::Refused));
    }

    // ---- time ----

    fn set_timer(&mut self, at_ns: Option<u64>) {
        self.timer_ns = at_ns;
    }

    fn turns(&mut self, event: TurnEvent) {
        self.tell_switcher(event);
    }

    fn is_away(&mut self, key: Key) {
        self.switching.away(key);
    }

    fn ran(&self, key: Key) -> Option<Ran> {
        Some(self.apps.get(&key)?.meter.as_ref()?.read())
    }

    fn had(&mut self, all: bool) -> Option<Switches> {
        self.memory_had(all)
    }

    fn warn(&mut self, key: Key, text: &str) {
        match self.apps.get(&key) {
            Some(app) => app.span.in_scope(|| tracing::warn!("{text}")),
            None => tracing::warn!(%key, "{text}"),
        }
    }
}

/// The application of which an action is logged.
fn of(action: &Action) -> Option<Key> {
    match action {
        Action::KeepGoing(key, _)
        | Action::KeepFront(key, _)
        | Action::SendShepherd(key, _)
        | Action::Remove(key) => Some(*key),
        Action::Report(Report::Ended(end)) => Some(end.key),
        _ => None,
    }
}

impl Shell {
    fn try_keep(&mut self, record: Record) -> anyhow::Result<()> {
        let app = |key: Key| self.apps.get(&key);
        match record {
            Record::Commits(commits) => self.runtime.obeyed.remember_commits(commits),
            Record::Distrusted(starts) => self.runtime.obeyed.distrust(&starts),
            Record::Plans(plans) => self.runtime.keep_plans(plans),
            Record::Groups { key, nids, alone } => {
                let Some(app) = app(key) else { return Ok(()) };
                match &self.groups {
                    Some(groups) => {
                        let path = groups.path_of(&app.mark, key, &nids, alone);
                        app.directory.keep_groups(&path)?;
                    }
                    None => app.directory.keep_marker(&app.marker)?,
                }
            }
            Record::Shepherd(key) => {
                if let Some((app, shepherd)) =
                    app(key).and_then(|a| Some((a, a.shepherd.as_ref()?)))
                {
                    app.directory.keep_shepherd(shepherd.process)?;
                }
            }
            Record::Place(place) => {
                if let Some(app) = app(place.key) {
                    app.directory.keep_place(*place)?;
                }
            }
            Record::NoPlace(key) => {
                if let Some(app) = app(key) {
                    app.directory.drop_place();
                }
            }
            Record::Front(key, conn) => {
                let process = self.fronts.get(&conn).and_then(|front| front.process);
                if let Some((app, process)) = app(key).zip(process) {
                    app.directory.keep_front(process)?;
                }
            }
            Record::Gone(key) => {
                if let Some(app) = app(key) {
                    app.directory.keep_gone()?;
                }
            }
            Record::Adopted(key) => {
                if let Some(app) = app(key) {
                    app.directory.keep_adopted()?;
                }
            }
            Record::Going(key, at_ns) => {
                if let Some(app) = self.apps.get_mut(&key) {
                    app.directory.keep_going(at_ns)?;
                    app.keep_sessions();
                }
            }
            Record::Ran(key, ran_ns, at_ns) => {
                if let Some(app) = app(key) {
                    app.directory.keep_ran(ran_ns, at_ns);
                }
            }
        }
        Ok(())
    }
}
