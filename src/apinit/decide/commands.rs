//! What psched says.

use super::application::{App, End, Shepherd};
use super::out_stage::OutStage;
use super::streams::Told;
use super::switcher::Event as TurnEvent;
use super::{Action, Agent, Found, Front, Out, Watch, ns, own_nids};
use crate::apteam::Key;
use crate::apteam::ending::{Cause, Decisive, HostEnd, NOT_THE_PROGRAM};
use crate::apteam::fault::Fault;
use crate::apteam::protocol::node::{Command, PlaceCommand, Report, Restoring};
use crate::apteam::protocol::notice::Notice;
use crate::apteam::protocol::shepherd::misfit;
use crate::machine::Nid;
use crate::variables::raise;

impl Agent {
    pub(super) fn command(&mut self, now: u64, seq: u64, command: Command, out: &mut Out) {
        self.last_command = seq;
        if self.stranger.is_some() {
            return self.stranger_says(now, command, out);
        }
        match command {
            Command::Place(place) => self.place(now, *place, out),
            Command::TakeBack { key, number } => self.take_back(now, key, number, out),
            Command::Signal { key, signal } => self.signal(key, signal, out),
            Command::Terminate { key, cause, kill_after } => {
                if cause == Cause::FrontGone {
                    self.front_stays_away(key);
                }
                self.tell_head(now, key, &cause, out);
                self.end_all(now, key, cause, kill_after, None, out);
            }
            Command::AcknowledgeEnd(key) => self.acknowledge(now, key, out),
            Command::Discard(key) => self.discard(now, key, out),
            // What is asked for is so already.
            Command::Adopt | Command::Purge { .. } => {}
            Command::Bounds(bounds) => {
                if let Some(welcome) = &mut self.welcome {
                    welcome.bounds = bounds;
                    out.push(Action::Remember(welcome.clone()));
                }
            }
            Command::Plan(plan) => self.plan(now, *plan, out),
            Command::AgreePlan(generation) => self.agree_plan(now, generation, out),
            Command::WithdrawPlan(generation) => self.withdraw_plan(generation, out),
            Command::Move(order) => self.start_move(*order, out),
            // (Of one that is not here the switcher says so.)
            Command::RollOut(key) => out.push(Action::Turns(TurnEvent::RollOut(key))),
        }
    }

    fn place(&mut self, now: u64, place: PlaceCommand, out: &mut Out) {
        let key = place.key;
        let place = place.narrowed(&self.me.nids);
        if let Some(app) = self.apps.get_mut(&key) {
            // Sent again after a break of the link: only the ticket's time is new. (A psched that starts on
            // an old copy of its store may give a key to another place. The ticket of that place is refused
            // here, and lapses.)
            let same = app.place.places == place.places && app.place.part.map == place.part.map;
            if app.launched_ns.is_none() && same {
                app.ticket_until_ns = now.saturating_add(ns(place.ticket_left));
                app.place.ticket = place.ticket;
            }
            self.report_end(now, key, out);
            return;
        }
        let of_same = |k: &&Key| k.apid == key.apid;
        if self.apps.keys().filter(of_same).any(|k| k.incarnation > key.incarnation) {
            return;
        }
        let older: Vec<Key> = self.apps.keys().filter(of_same).copied().collect();
        for old in older {
            self.discard(now, old, out);
        }
        let nids = own_nids(&place, &self.me.nids);
        let index = place.part.index.filter(|_| nids.len() == place.places.0.len());
        let obstacle = if index.is_none() || !place.fits() {
            let text = "psched's placement does not fit the nodes of this apinit: correct their \
                        processors in psched.yaml, or --nids";
            Some(Cause::NodeLost { nid: self.some_nid(), text: text.into() })
        } else if self.apps.len() as u64 >= self.bounds().applications {
            let most = self.bounds().applications;
            let cure = raise("applications_max", most);
            let text = format!("its host has the maximum number of applications: {cure}");
            let (rank, errno, fault) = (place.first_rank(), NOT_THE_PROGRAM, Fault::Busy);
            Some(Cause::LaunchFailed { rank, nid: nids[0], errno, text, fault })
        } else if self.me.uid != 0 && self.me.uid != place.owner.uid {
            let text = format!(
                "apinit runs as user {} and can't run an application of user {}; start apinit as \
                 root to serve all users",
                self.me.uid, place.owner.uid
            );
            Some(Cause::ShepherdLost { nid: nids[0], text, fault: Fault::Busy })
        } else {
            None
        };
        if let Some(cause) = obstacle {
            let first = Some(Decisive { at_ns: now, cause });
            let end = HostEnd { key, nids, first, ..HostEnd::default() };
            // This end too is reported until it is acknowledged, but not however many there are.
            if (self.apps.len() as u64) < self.bounds().applications.saturating_mul(2) {
                let index = index.unwrap_or(u32::MAX);
                let mut app = App::new(place, index, end.nids.clone(), now);
                app.shepherd = Shepherd::Gone;
                app.end = End::Empty { end, reported_ns: 0, acknowledged: false };
                app.peers.clear();
                self.apps.insert(key, app);
            }
            self.report_end(now, key, out);
            return;
        }
        let ticket_until_ns = now.saturating_add(ns(place.ticket_left));
        let app = App::new(place.clone(), index.unwrap_or(0), nids.clone(), ticket_until_ns);
        self.apps.insert(key, app);
        out.push(Action::MakeAndSpawn { place: Box::new(place), nids });
        self.waiting_launches(now, key, out);
    }

    fn some_nid(&self) -> Nid {
        self.me.nids.first().copied().unwrap_or_default()
    }

    fn take_back(&mut self, now: u64, key: Key, number: u64, out: &mut Out) {
        match self.apps.get(&key) {
            None => self.report(Report::TakenBack { key, number }, out),
            Some(app) if app.empty() => self.report_end(now, key, out),
            Some(app) if app.launched_ns.is_some() => self.report(Report::Launched(key), out),
            Some(_) => {
                self.forget(key, out);
                self.report(Report::TakenBack { key, number }, out);
            }
        }
    }

    pub(super) fn acknowledge(&mut self, now: u64, key: Key, out: &mut Out) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        let End::Empty { acknowledged, .. } = &mut app.end else { return };
        *acknowledged = true;
        // Its shepherd stays as long as the rest is waited for: an apinit that is killed meanwhile
        // finds by it that this part has ended well.
        self.settle(now, key, out);
    }

    /// Ends it and forgets it: nobody wants to hear of it.
    fn discard(&mut self, now: u64, key: Key, out: &mut Out) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        app.discarded = true;
        let grace = app.place.kill_grace;
        if app.running() {
            if let Some(stream) = app.open_front() {
                out.push(stream.tell(Told::Notice(Notice::NoRecord)));
            }
            self.end_all(now, key, Cause::NoRecord, grace, None, out);
        }
        self.settle(now, key, out);
    }

    /// An application of a former life of this apinit.
    pub(super) fn found(&mut self, now: u64, found: Found, out: &mut Out) {
        let Found { place, going_ns, ran_ns, hello, silent, away, front, gone, adopted } = found;
        // Its shepherd says nothing until it is back.
        let silent = silent || away.is_some();
        let key = place.key;
        if self.apps.contains_key(&key) {
            return;
        }
        let place = place.narrowed(&self.me.nids);
        let nids = own_nids(&place, &self.me.nids);
        let index = place.part.index.filter(|_| !nids.is_empty());
        let Some(index) = index else {
            // apinit has been started with other nodes: what is on the old ones is nobody's.
            out.push(Action::KillGroups { key, shepherd: true });
            out.push(Action::Remove(key));
            return;
        };
        // Of several parts none goes before all are back, and the others may not be.
        let parted = place.restart.is_some() && place.host_count() > 1;
        let undone = match place.moved.restoring {
            Restoring::No => false,
            Restoring::Begun => true,
            Restoring::Done(_) => parted && going_ns.is_none(),
        };
        let hello = hello.filter(|_| !undone);
        let mut app = App::new(place, index, nids, 0);
        (app.was_found, app.adopted) = (true, adopted);
        // How much of the ticket's time is left was known to the one who died: all of it, at most.
        app.ticket_until_ns = now.saturating_add(ns(app.place.ticket_left));
        if let Some(hello) = &hello {
            if hello.going && going_ns.is_none() {
                // The next apinit may find it without its apshepherd (with its memory out), and has to know.
                out.push(Action::KeepGoing(key, now));
            }
            app.sent = hello.launched;
            app.launched_ns = hello.launched.then_some(now);
            app.going_ns = hello.going.then(|| going_ns.unwrap_or(now));
            app.ready = hello.going;
            app.heard_of(hello);
        } else if app.is_to_be_restored() {
            app.shepherd = Shepherd::Up;
        } else {
            app.going_ns = going_ns;
            app.launched_ns = going_ns;
            app.sent = true;
            if undone {
                // Its launch had come, and its front end hears of its end here.
                app.launched_ns = Some(now);
            }
            // Where its PEs don't go yet nothing is lost with it.
            if silent && going_ns.is_some() {
                app.shepherd = Shepherd::Silent;
                app.ready = true;
                app.away = away.map(OutStage::Gone);
            }
        }
        if gone {
            // How much was thrown away is not known: some, most likely.
            (app.front, app.output_lost) = (Front::Gone, true);
            if hello.is_none() && !silent {
                // The former apinit has ended it for that.
                app.first = Some(Decisive { at_ns: now, cause: Cause::FrontGone });
            }
        } else if let Some(conn) = front {
            app.front = Front::Away {
                conn,
                since_ns: now,
                watch: if app.head() { Watch::Here } else { Watch::No },
            };
        } else if app.launched_ns.is_some() {
            app.front = Front::Away { conn: super::NO_CONN, since_ns: now, watch: Watch::No };
        }
        app.ran = ran_ns.filter(|_| app.going_ns.is_some()).map(|ran| (ran, now));
        if app.going_ns.is_some() {
            self.comes(now, &app, true, out);
        }
        for peer in &mut app.peers {
            peer.accepted = app.going_ns.is_some();
            peer.ready = app.going_ns.is_some();
        }
        // Before the PEs go the other hosts are reached when the front end has said the launch again.
        let resume = app.going_ns.is_some();
        let peers: Vec<u32> = app.peers.iter().filter(|_| resume).map(|p| p.index).collect();
        let misfit = hello.as_ref().and_then(|hello| misfit(hello.protocol));
        let (going, silent) = (app.ready, app.shepherd == Shepherd::Silent);
        if let Some(misfit) = misfit.as_ref().filter(|_| going) {
            app.shepherd = Shepherd::Strange;
            app.lost = Some(Notice::Unheard(misfit.clone()));
        }
        self.apps.insert(key, app);
        let waits = self.apps.get(&key).is_some_and(App::is_to_be_restored);
        match misfit {
            _ if undone => {
                self.not_restored(now, key, super::restores::INTERRUPTED.into(), out);
            }
            _ if silent || waits => {}
            _ if hello.is_none() => {
                let text = "it died while apinit was being restarted";
                self.shepherd_lost(now, key, text.into(), Fault::User, out);
            }
            // Nothing of the program has run.
            Some(misfit) if !going => {
                self.shepherd_lost(now, key, misfit, Fault::User, out);
            }
            _ => {}
        }
        self.open_peers(now, key, peers, out);
    }
}
