//! Login hosts: front ends on other hosts than psched's, whose apinits pass on what they say.
//!
//! A front end there talks to a socket of its own host. The apinit of that host has a connection
//! for it to psched, or to the apinit of PE 0, and says what it hears on one on the other. Another
//! connection of it, the login link, tells psched of the ends of these processes. Either may be cut
//! while the other is whole.
//!
//! In the class `logins` of faults there are hosts without nodes as well, whose apinit does nothing
//! else. Its deaths and absences are the faults of this class.

use super::host::Host;
use super::wire::{Msg, Pid, Target, Who, WireId};
use super::world::{Ev, World};
use super::{MS, SECOND, US};
use crate::apinit::decide::login::{LoginWatch, Opened, ProcessId};
use crate::apteam::Apid;
use crate::apteam::record::FrontProcess;
use crate::psched::decide::login_hosts::{Heard, LoginHosts, LoginSays, Nudge, Task};
use crate::psched::decide::{Event, LinkId};
use fastrand::Rng;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// The variable `login_host_away`: its least value.
pub const AWAY_MAX: u64 = 60 * SECOND;
/// What a process takes to come back at most after it was killed, and what it then takes to be in touch.
pub const DOWN: u64 = 20 * SECOND;
pub const BACK: u64 = 10 * SECOND;
/// What hosts that can hear each other again take at most to notice that a connection is dead, and for another.
pub const UNHEARD: u64 = 30 * SECOND;
/// When a front end started, by its host's clock: no number is used twice here.
const STARTED: u64 = 1;

/// All of it.
#[derive(Debug)]
pub struct Logins {
    chance: Rng,
    /// By number of the host; none: front ends are on psched's host.
    hosts: BTreeMap<usize, LoginHost>,
    /// What is passed on for users.
    passages: BTreeMap<u64, Passage>,
    /// Where each front end is that is not on psched's host, and in which boot.
    fronts: BTreeMap<Pid, (usize, Arc<str>)>,
    /// Those that write slowly what they are given.
    slow: BTreeSet<Pid>,
    /// Until when the certificate of a host is revoked.
    revoked: BTreeMap<usize, u64>,
}

/// What of an apinit is for the users of its host.
#[derive(Debug, Default)]
struct LoginHost {
    /// How many times it has been started.
    life: u64,
    up: bool,
    link: Option<WireId>,
    back_off: u64,
    /// Processes that psched has named on the link.
    named: LoginWatch<()>,
    stopped_until: u64,
}

/// A connection that is passed on: to the front end, and to psched or an apinit.
#[derive(Clone, Debug)]
struct Passage {
    host: usize,
    wires: [WireId; 2],
    /// What it has not taken from psched or the apinit, since the front end does not read.
    held: VecDeque<Msg>,
}

/// Bytes that wait for a front end at its host's apinit before that one reads no more for it: the
/// windows of HTTP/2.
const RELAY_WINDOW: u64 = 128 * 1024;

/// psched's side.
#[derive(Debug, Default)]
pub struct PschedLogins {
    pub hosts: LoginHosts,
    /// Connections of login hosts: whose, and its boot once it has said that.
    links: BTreeMap<u64, (WireId, usize, Option<String>)>,
}

impl Logins {
    pub fn new(seed: u64) -> Logins {
        Logins {
            // (Of its own, so that histories without this class are those of before.)
            chance: Rng::with_seed(seed ^ 0x1061_0057),
            hosts: BTreeMap::new(),
            passages: BTreeMap::new(),
            fronts: BTreeMap::new(),
            slow: BTreeSet::new(),
            revoked: BTreeMap::new(),
        }
    }

    /// How many hosts there are on which front ends can be, beside psched's.
    pub fn count(&self) -> usize {
        self.hosts.len()
    }

    /// The host of a front end, which may have ended.
    pub fn host_of(&self, front: Pid) -> usize {
        self.fronts.get(&front).map_or(0, |(host, _)| *host)
    }

    /// A front end's process, as psched knows it.
    pub fn process(&self, front: Pid) -> FrontProcess {
        let host = self.fronts.get(&front).map(|(_, host)| Arc::clone(host)).unwrap_or_default();
        FrontProcess { host, ..FrontProcess::here(front, STARTED) }
    }

    fn passes(&self, number: u64, host: usize) -> bool {
        self.passages.get(&number).is_some_and(|passage| passage.host == host)
    }
}

impl World {
    /// Users are on these hosts too.
    pub fn have_login_hosts(&mut self, without_nodes: usize) {
        for number in 1..=without_nodes {
            let name = format!("front{number}");
            let host = Host::new(name, &mut self.logins.chance);
            self.hosts.push(host);
        }
        for host in 1..self.hosts.len() {
            self.logins.hosts.insert(host, LoginHost { back_off: 20 * MS, ..Default::default() });
            let slot = self.first_slot(host);
            // (Otherwise it begins with the apinit of its nodes.)
            if slot.is_none_or(|slot| self.slots[slot].proc.is_some()) {
                let late = self.logins.chance.u64(0..50 * MS);
                self.after(late, Ev::LoginStart(host));
            }
        }
    }

    /// The hosts without nodes.
    fn mere_login_hosts(&self) -> Vec<usize> {
        let mere = |host: &&usize| self.first_slot(**host).is_none();
        self.logins.hosts.keys().filter(mere).copied().collect()
    }

    /// The apinit of a host that is there for its users, if it has nodes.
    fn first_slot(&self, host: usize) -> Option<usize> {
        self.slots.iter().position(|slot| slot.host == host)
    }

    /// Where somebody types aprun.
    pub fn somebodys_host(&mut self) -> usize {
        let hosts: Vec<usize> = self.logins.hosts.keys().copied().collect();
        if hosts.is_empty() || self.logins.chance.u32(0..4) == 0 {
            return 0;
        }
        self.logins.chance.choice(&hosts).copied().unwrap_or(0)
    }

    /// A front end of this number is to be on this host.
    pub fn front_is_on(&mut self, front: Pid, host: usize) {
        if host > 0 {
            let boot = format!("{}/{}", self.hosts[host].name, self.hosts[host].boot_id());
            self.logins.fronts.insert(front, (host, boot.into()));
            self.checks.front_is_on(front, host, self.hosts[host].boots);
        }
    }

    /// The name of the host of a front end, by which psched and aprun know it.
    pub fn front_host(&self, front: Pid) -> String {
        match self.logins.count() {
            0 => String::new(),
            _ => self.hosts[self.logins.host_of(front)].name.clone(),
        }
    }

    // ---- an apinit, for its users ----

    /// An apinit of this host starts or ends: so does what it does for users, if it is the one.
    pub fn apinit_serves_users(&mut self, slot: usize, starts: bool) {
        let host = self.slots[slot].host;
        if self.first_slot(host) == Some(slot) {
            if starts { self.login_start(host) } else { self.login_gone(host) }
        }
    }

    /// It serves the users of its host.
    pub fn login_start(&mut self, host: usize) {
        if !self.hosts[host].up {
            return;
        }
        let Some(login) = self.logins.hosts.get_mut(&host).filter(|login| !login.up) else {
            return;
        };
        login.up = true;
        self.checks.host_is_disturbed(host, self.now + BACK);
        self.checks.login_serves(host, self.now);
        login.life += 1;
        (login.link, login.back_off, login.stopped_until) = (None, 20 * MS, 0);
        login.named = LoginWatch::default();
        let life = login.life;
        self.note(|| format!("the apinit of host {host} serves its users"));
        self.after(0, Ev::LoginDial(host, life));
    }

    /// It is dead.
    pub fn login_gone(&mut self, host: usize) {
        let Some(login) = self.logins.hosts.get_mut(&host).filter(|login| login.up) else { return };
        (login.up, login.link) = (false, None);
        self.checks.host_is_disturbed(host, self.now + DOWN);
        self.checks.login_serves(host, u64::MAX);
        let own: BTreeSet<u64> =
            self.logins.passages.keys().copied().filter(|n| self.logins.passes(*n, host)).collect();
        self.close_ends(|who| match who {
            Who::Login(of) => of == host,
            Who::Relay(number) => own.contains(&number),
            _ => false,
        });
        self.logins.passages.retain(|_, passage| passage.host != host);
    }

    /// A host has been switched on again.
    pub fn login_host_up(&mut self, host: usize) {
        if self.logins.hosts.contains_key(&host) && self.first_slot(host).is_none() {
            self.after(100 * MS, Ev::LoginStart(host));
        }
    }

    /// Until when it is stopped, if it is.
    pub fn login_paused(&self, host: usize) -> u64 {
        let own = self.logins.hosts.get(&host).map_or(0, |login| login.stopped_until);
        let slot = self.first_slot(host);
        own.max(slot.and_then(|slot| self.apinit_stopped_until(slot)).unwrap_or(0))
    }

    /// The same of what passes on a connection.
    pub fn relay_paused(&self, number: u64) -> u64 {
        self.logins.passages.get(&number).map_or(0, |passage| self.login_paused(passage.host))
    }

    /// It dials psched for its users.
    pub fn login_dial(&mut self, host: usize, life: u64) {
        if let Some(pause) = self.paused_until(Who::Login(host)) {
            return self.at(pause, Ev::LoginDial(host, life));
        }
        let there = |login: &LoginHost| login.up && login.life == life && login.link.is_none();
        if !self.logins.hosts.get(&host).is_some_and(there) {
            return;
        }
        let wire = self.dial_psched(Who::Login(host), host, Target::PschedLogin(host));
        self.send(wire, 0, Msg::LoginHello(self.hosts[host].boot_id()));
        if let Some(login) = self.logins.hosts.get_mut(&host) {
            login.link = Some(wire);
            login.named = LoginWatch::default();
        }
    }

    /// psched says something on the login link.
    pub fn login_hears(&mut self, wire: WireId, host: usize, msg: Msg) {
        let Some(login) = self.logins.hosts.get_mut(&host) else { return };
        if login.link != Some(wire) {
            return;
        }
        match msg {
            Msg::LoginWatched(processes) => {
                login.back_off = 20 * MS;
                self.login_opens(host, |named, open| named.watch(processes, open));
            }
            Msg::LoginNudge(process) => {
                let alive = login.named.handle(process).is_some();
                if alive && self.fronts.contains_key(&process.0) {
                    self.after(0, Ev::FrontNudged(process.0));
                }
            }
            Msg::Eof => {
                login.link = None;
                let (wait, life) = (login.back_off, login.life);
                login.back_off = (wait * 2).min(2 * SECOND);
                self.after(wait, Ev::LoginDial(host, life));
            }
            _ => {}
        }
    }

    /// Processes that could not be opened are tried again.
    pub fn login_again(&mut self, host: usize, life: u64) {
        if let Some(pause) = self.paused_until(Who::Login(host)) {
            return self.at(pause, Ev::LoginAgain(host, life));
        }
        if self.logins.hosts.get(&host).is_some_and(|login| login.up && login.life == life) {
            self.login_opens(host, |named, open| named.again(open));
        }
    }

    fn login_opens(
        &mut self,
        host: usize,
        look: impl FnOnce(
            &mut LoginWatch<()>,
            &mut dyn FnMut(ProcessId) -> Opened<()>,
        ) -> Vec<ProcessId>,
    ) {
        let Logins { hosts, fronts, chance, .. } = &mut self.logins;
        let Some(login) = hosts.get_mut(&host) else { return };
        let (alive, before) = (&self.fronts, login.named.counts().1);
        let mut open = |(pid, _): ProcessId| {
            let here = fronts.get(&pid).is_some_and(|(of, _)| *of == host);
            match here && alive.contains_key(&pid) {
                // (No descriptor is left.)
                _ if chance.u32(0..20) == 0 => Opened::NotNow,
                true => Opened::Watched(()),
                false => Opened::Ended,
            }
        };
        let ended = look(&mut login.named, &mut open);
        let (unsure, life, link) = (login.named.counts().1, login.life, login.link);
        if unsure > 0 && (before == 0 || ended.is_empty()) {
            self.after(SECOND, Ev::LoginAgain(host, life));
        }
        if let Some(wire) = link.filter(|_| !ended.is_empty()) {
            self.send(wire, 0, Msg::LoginGone(ended));
        }
    }

    /// A process of a login host has ended: its apinit sees that, if it watches it.
    pub fn login_front_died(&mut self, host: usize, life: u64, front: Pid) {
        if let Some(pause) = self.paused_until(Who::Login(host)) {
            return self.at(pause, Ev::LoginFrontDied(host, life, front));
        }
        let id = (front, STARTED);
        let Some(login) = self.logins.hosts.get_mut(&host) else { return };
        if login.up
            && login.life == life
            && login.named.ended(id)
            && let Some(wire) = login.link
        {
            self.send(wire, 0, Msg::LoginGone(vec![id]));
        }
    }

    /// A front end has ended: the kernel of its host tells who watches it.
    pub fn front_end_is_seen(&mut self, front: Pid) {
        let host = self.logins.host_of(front);
        let late = self.net.u64(10 * US..400 * US);
        if host == 0 {
            if let Some(psched) = self.psched.as_ref().map(|p| p.pid) {
                self.after(late, Ev::PschedFrontDied(psched, front));
            }
        } else if let Some(life) = self.logins.hosts.get(&host).map(|login| login.life) {
            self.after(late, Ev::LoginFrontDied(host, life, front));
        }
    }

    // ---- what is passed on ----

    /// A front end dials psched, or an apinit of another host, by way of its own host's apinit.
    pub fn dial_through(
        &mut self,
        from: Who,
        host: usize,
        to: usize,
        slot: Option<usize>,
    ) -> WireId {
        let (Who::FrontPsched(front) | Who::FrontApinit(front)) = from else {
            return self.connect(from, [host, host], Target::PschedLink);
        };
        let uid = self.fronts.get(&front).map_or(0, |aprun| aprun.posting.1.uid);
        self.connect(from, [host, host], Target::Relay { host, to, slot, front, uid })
    }

    /// A front end has connected to its host's apinit, which connects for it.
    pub fn relay_opened(&mut self, wire: WireId, target: Target) -> Option<Who> {
        let Target::Relay { host, to, slot, front, uid } = target else { return None };
        self.logins.hosts.get(&host).filter(|login| login.up)?;
        let number = self.number();
        let onward = match slot {
            Some(slot) => Target::Apinit { slot, front, uid },
            None => Target::PschedFront(front),
        };
        let onward = self.connect(Who::Relay(number), [host, to], onward);
        self.logins
            .passages
            .insert(number, Passage { host, wires: [wire, onward], held: VecDeque::new() });
        Some(Who::Relay(number))
    }

    /// What is heard at one end is said at the other.
    pub fn relay_hears(&mut self, wire: WireId, number: u64, msg: Msg) {
        let Some(passage) = self.logins.passages.get(&number) else { return };
        // (It was dialled by the front end, and has dialled the other.)
        let (other, side) = match wire == passage.wires[0] {
            true => (passage.wires[1], 0),
            false => (passage.wires[0], 1),
        };
        match msg {
            Msg::Eof => {
                self.logins.passages.remove(&number);
                self.hang_up(other, side);
            }
            msg => self.send(other, side, msg),
        }
    }

    /// The number under which a front end's stream to an apinit is passed on.
    pub fn passes_for(&self, front: Pid) -> Option<u64> {
        let (wire, _) = self.fronts.get(&front)?.apinit?;
        let found = self.logins.passages.iter().find(|(_, passage)| passage.wires[0] == wire);
        found.map(|(number, _)| *number)
    }

    /// Whether what comes for a front end that does not read is left where it is, in order.
    pub fn relay_holds(&mut self, wire: WireId, number: u64, msg: &Msg) -> bool {
        let Some(passage) = self.logins.passages.get_mut(&number) else { return false };
        let unread = self.wires.get(&passage.wires[0]).map_or(0, |wire| wire.unread[0]);
        let comes = wire == passage.wires[1];
        let holds = comes && (!passage.held.is_empty() || unread > RELAY_WINDOW);
        if holds {
            passage.held.push_back(msg.clone());
        }
        holds
    }

    /// A connection that has broken takes with it what has not come.
    pub fn relay_breaks(&mut self, number: u64) {
        if let Some(passage) = self.logins.passages.get_mut(&number) {
            passage.held.clear();
        }
    }

    /// A front end has read something: more of what waits is taken for it.
    pub fn relay_goes_on(&mut self, number: u64) {
        while let Some(passage) = self.logins.passages.get_mut(&number) {
            let [to, from] = passage.wires;
            let unread = self.wires.get(&to).map_or(0, |wire| wire.unread[0]);
            if unread > RELAY_WINDOW {
                return;
            }
            let Some(msg) = passage.held.pop_front() else { return };
            self.has_read(from, 0, &msg);
            self.relay_hears(from, number, msg);
        }
    }

    /// A front end writes this slowly, in nanoseconds more.
    pub fn writes_late(&mut self, front: Pid) -> u64 {
        match self.logins.slow.contains(&front) {
            true => self.logins.chance.u64(20 * MS..400 * MS),
            false => 0,
        }
    }

    /// Some front ends write slowly what they are given.
    pub fn may_be_slow(&mut self, front: Pid) {
        if self.logins.count() > 0 && self.logins.chance.u32(0..8) == 0 {
            self.logins.slow.insert(front);
            self.counts.add("slow readers");
        }
    }

    /// Whether hosts refuse a connection between these, since the certificate of one of them is
    /// revoked.
    pub fn is_revoked(&self, hosts: [usize; 2]) -> bool {
        let revoked = |host| self.logins.revoked.get(&host).is_some_and(|until| *until > self.now);
        hosts[0] != hosts[1] && hosts.into_iter().any(revoked)
    }

    /// The certificate of a host is revoked, and it gets another one then.
    pub fn revoke(&mut self, host: usize, time: u64) {
        self.counts.add("revoked certificates");
        let until = self.now + time;
        self.logins.revoked.insert(host, until);
        self.checks.host_is_disturbed(host, until + BACK);
        (0..self.hosts.len()).for_each(|other| self.checks.cut(host, other, until));
        let of = |hosts: [usize; 2]| hosts[0] != hosts[1] && hosts.contains(&host);
        let ids: Vec<WireId> =
            self.wires.iter().filter(|(_, w)| of(w.hosts)).map(|(id, _)| *id).collect();
        ids.into_iter().for_each(|id| self.break_wire(id));
    }

    // ---- psched ----

    /// A login host has connected.
    pub fn psched_login_opened(&mut self, wire: WireId, host: usize) -> Option<Who> {
        let number = self.number();
        self.psched.as_ref()?;
        self.around.logins.links.insert(number, (wire, host, None));
        Some(Who::PschedLogin(number))
    }

    /// psched is dead.
    pub fn psched_forgets_logins(&mut self) {
        for (number, (_, host, _)) in std::mem::take(&mut self.around.logins.links) {
            self.checks.login_unlinked(host, number, self.now);
        }
    }

    /// It says something.
    pub fn psched_login_says(&mut self, number: u64, msg: Msg) {
        let links = &mut self.around.logins.links;
        let Some((_, host, boot)) = links.get_mut(&number) else { return };
        let (index, host) = (*host, Arc::from(self.hosts[*host].name.as_str()));
        let says = match (msg, boot.clone()) {
            (Msg::LoginHello(boot_id), None) => {
                *boot = Some(boot_id.clone());
                self.checks.login_linked(index, number, self.now);
                LoginSays::Opened { number, host, boot_id, folder: "/run/psched".into() }
            }
            (Msg::LoginGone(processes), Some(boot_id)) => {
                LoginSays::Gone { host, boot_id, processes }
            }
            (Msg::Eof, _) => {
                links.remove(&number);
                self.checks.login_unlinked(index, number, self.now);
                LoginSays::Closed { number }
            }
            _ => return,
        };
        self.psched_hears_login(says);
    }

    fn psched_hears_login(&mut self, says: LoginSays) {
        self.note(|| format!("psched: {}", super::trace::cut(&says)));
        let named = matches!(says, LoginSays::Gone { .. });
        let Heard { gone, tasks, left_behind, .. } = self.around.logins.hosts.hear(says);
        tasks.into_iter().for_each(|task| self.psched_login_task(task));
        if !named {
            self.checks.left_behind(left_behind.as_ref(), &gone, &self.hosts);
        }
        if let Some(left) = left_behind {
            self.checks.warned(&left.words(Duration::from_nanos(AWAY_MAX)));
        }
        self.checks.fronts_count_as_gone(&gone, self.now);
        self.fronts_gone(gone);
    }

    /// Front ends of these applications have ended.
    pub fn fronts_gone(&mut self, apids: Vec<Apid>) {
        for apid in apids {
            self.psched_event(Event::FrontGone { apid });
        }
    }

    /// What is to be done for front ends that psched watches.
    pub fn psched_login_task(&mut self, task: Task) {
        match task {
            Task::WatchHere(process) => {
                if !self.fronts.contains_key(&process.pid) {
                    let psched = self.around.pid;
                    self.after(50 * US, Ev::PschedFrontDied(psched, process.pid));
                }
            }
            Task::Name { link, processes } => {
                let processes = processes.iter().map(|p| (p.pid, p.started)).collect();
                self.tell_login(link, Msg::LoginWatched(processes));
            }
            Task::GiveUpLater { host, absence } => {
                let psched = self.around.pid;
                self.after(AWAY_MAX, Ev::LoginLost { psched, host, absence });
            }
            // (Its event is known by its number.)
            Task::EndAbsence { .. } | Task::UnwatchHere(_) => {}
        }
    }

    fn tell_login(&mut self, link: u64, msg: Msg) {
        if let Some((wire, ..)) = self.around.logins.links.get(&link) {
            self.send(*wire, 1, msg);
        }
    }

    /// A login host has been away for too long, unless it has been there since.
    pub fn psched_login_lost(&mut self, psched: Pid, host: Arc<str>, absence: u64) {
        if let Some(pause) = self.paused_until(Who::PschedLink(LinkId(0))) {
            return self.at(pause, Ev::LoginLost { psched, host, absence });
        }
        if self.around.pid == psched && self.psched.is_some() {
            self.psched_hears_login(LoginSays::Lost { host, absence });
        }
    }

    /// psched signals a front end on another host.
    pub fn nudge_by_login(&mut self, apid: Apid, process: &FrontProcess) {
        if let Some(Nudge::Login { link, .. }) = self.around.logins.hosts.nudge(apid, process) {
            self.tell_login(link, Msg::LoginNudge((process.pid, process.started)));
        }
    }

    /// Login hosts that psched knows to be there.
    pub fn login_links(&self) -> usize {
        self.around.logins.links.values().filter(|(.., boot)| boot.is_some()).count()
    }

    // ---- faults ----

    /// An apinit that is there for users only is killed, stopped, or cut off from psched.
    pub fn login_fault(&mut self) {
        let mere = self.mere_login_hosts();
        let Some(host) = self.logins.chance.choice(&mere).copied() else { return };
        self.counts.add("logins");
        match self.logins.chance.u32(0..5) {
            4 => {
                let time = self.logins.chance.u64(SECOND..AWAY_MAX * 2);
                self.revoke(host, time);
            }
            0 => {
                self.login_gone(host);
                let wait = self.logins.chance.u64(5 * MS..15 * SECOND);
                self.after(wait, Ev::LoginStart(host));
            }
            1 => {
                let until = self.now + self.logins.chance.u64(MS..15 * SECOND);
                self.stop_login(host, until);
            }
            // Away for less than the bound, above all.
            2 => {
                let time = self.logins.chance.u64(SECOND..AWAY_MAX * 3 / 4);
                self.cut_off_login(host, time);
            }
            _ => {
                let time = self.logins.chance.u64(SECOND..AWAY_MAX * 2);
                self.cut_off_login(host, time);
            }
        }
    }

    /// It is stopped until then.
    pub fn stop_login(&mut self, host: usize, until: u64) {
        self.checks.login_serves(host, until);
        self.checks.host_is_disturbed(host, until + BACK);
        if let Some(login) = self.logins.hosts.get_mut(&host).filter(|l| l.stopped_until <= until) {
            login.stopped_until = until;
        }
    }

    /// Nothing goes between psched's host and another for so long.
    pub fn cut_off_login(&mut self, host: usize, time: u64) {
        let until = self.now + time;
        self.cuts.insert((0, host), until);
        self.cuts.insert((host, 0), until);
        self.checks.cut(0, host, until);
        self.checks.host_is_disturbed(host, until + UNHEARD);
        let between = |hosts: [usize; 2]| hosts == [0, host] || hosts == [host, 0];
        let ids: Vec<WireId> =
            self.wires.iter().filter(|(_, w)| between(w.hosts)).map(|(id, _)| *id).collect();
        for id in ids {
            self.cut_wire(id, 0);
            self.cut_wire(id, 1);
        }
    }

    /// Faults are over: nobody is stopped any more.
    pub fn logins_go_on(&mut self) {
        self.logins.hosts.values_mut().for_each(|login| login.stopped_until = 0);
        self.logins.revoked.clear();
    }
}
