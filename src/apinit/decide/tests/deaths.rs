//! Apinits that are killed again and again, on each host of an application and at any moment: real
//! agents and real shepherds, with the sockets, the PEs and the front end simulated.
//!
//! Each PE puts a key of its own before each of [`BARRIERS`] barriers and asks for everybody's after
//! it: one that is let out early misses some. The front end sends stdin and signals. In the end all
//! barriers are passed, and every byte and every signal has come once.

use super::*;

use crate::apshepherd::decide::{Action as Deed, Event as ShepherdEvent, Shepherd};
use std::collections::{BTreeMap, VecDeque};

const HOSTS: usize = 3;
const BARRIERS: u32 = 6;
const SIGNALS: u64 = 5;
const STDIN: usize = 3000;
const STEP: u64 = 10_000_000;

/// A generator of numbers that are the same for the same seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % n.max(1)
    }
}

/// A PE: how many barriers it has left, and what it waits for.
#[derive(Clone, Default)]
struct Pe {
    passed: u32,
    gets: VecDeque<u32>,
}

/// What the front end says, or the head.
enum Ask {
    Front(ToApinit),
    Head(ToPeer),
}

/// What either is told.
enum Answer {
    Front(FromApinit),
    Head(FromPeer),
}

struct Host {
    agent: Agent,
    timer: Option<u64>,
    shepherd: Shepherd,
    launch: Option<HostLaunch>,
    going_ns: Option<u64>,
    down: VecDeque<ToShepherd>,
    up: VecDeque<FromShepherd>,
    pes: BTreeMap<u32, Pe>,
    signals: u64,
    stdin: Vec<u8>,
    stdin_closed: bool,
    /// The stream of the front end (host 0) or of the head.
    conn: Option<Conn>,
    asks: VecDeque<Ask>,
    answers: VecDeque<Answer>,
}

struct World {
    now: u64,
    conns: u64,
    hosts: Vec<Host>,
    key: Key,
    /// The front end's.
    front_again: Option<u64>,
    /// Its stream has been accepted.
    front_up: bool,
    launched: bool,
    going: bool,
    signals: VecDeque<NumberedSignal>,
    signals_sent: u64,
    stdin: VecDeque<StdinPiece>,
    stdin_sent: usize,
    stdin_credit: u64,
}

fn word() -> PlaceCommand {
    place(key(12, 1), &[&[0], &[1], &[2]])
}

fn input() -> Vec<u8> {
    (0..STDIN).map(|i| (i % 251) as u8).collect()
}

impl World {
    fn new() -> World {
        let key = key(12, 1);
        let host = |nid: u32| Host {
            agent: linked(&[nid]),
            timer: None,
            shepherd: Shepherd::new(0, key),
            launch: None,
            going_ns: None,
            down: VecDeque::new(),
            up: VecDeque::new(),
            pes: BTreeMap::new(),
            signals: 0,
            stdin: Vec::new(),
            stdin_closed: false,
            conn: None,
            asks: VecDeque::new(),
            answers: VecDeque::new(),
        };
        let mut world = World {
            now: S,
            conns: 100,
            hosts: (0..HOSTS as u32).map(host).collect(),
            key,
            front_again: Some(S),
            front_up: false,
            launched: false,
            going: false,
            signals: VecDeque::new(),
            signals_sent: 0,
            stdin: VecDeque::new(),
            stdin_sent: 0,
            stdin_credit: 0,
        };
        for at in 0..HOSTS {
            world.shepherd(at, ShepherdEvent::Connected);
            world.hosts[at].up.clear();
            let hello = Hello { key, ..Hello::default() };
            world.hosts[at].down.push_back(ToShepherd::Hello(hello));
            world.agent(at, placed(word()));
        }
        world
    }

    fn agent(&mut self, at: usize, event: Event) {
        for action in all_well(&mut self.hosts[at].agent, self.now, event) {
            self.act(at, action);
        }
    }

    fn act(&mut self, at: usize, action: Action) {
        match action {
            Action::MakeAndSpawn { .. } => self.agent(at, Event::ShepherdSpawned(self.key)),
            Action::SendShepherd(_, message) => self.hosts[at].down.push_back(message),
            Action::SendFront(conn, message) if self.hosts[at].conn == Some(conn) => {
                self.hosts[at].answers.push_back(Answer::Front(message));
            }
            Action::SendHead(conn, message) if self.hosts[at].conn == Some(conn) => {
                self.hosts[at].answers.push_back(Answer::Head(message));
            }
            Action::OpenPeer { index, .. } => {
                let conn = self.open(index as usize);
                self.agent(index as usize, head_opened(conn));
            }
            Action::SendPeers(_, to, message) => {
                for index in to {
                    self.hosts[index as usize].asks.push_back(Ask::Head(message.clone()));
                }
            }
            Action::KeepGoing(_, ns) => self.hosts[at].going_ns = Some(ns),
            Action::SetTimer(timer) => self.hosts[at].timer = timer,
            Action::KillGroups { .. } | Action::Remove(_) => panic!("{action:?} on host {at}"),
            _ => {}
        }
    }

    fn open(&mut self, to: usize) -> Conn {
        self.conns += 1;
        let host = &mut self.hosts[to];
        host.asks.clear();
        host.answers.clear();
        host.conn = Some(Conn(self.conns));
        Conn(self.conns)
    }

    fn shepherd(&mut self, at: usize, event: ShepherdEvent) {
        for deed in self.hosts[at].shepherd.apply(self.now, event) {
            match deed {
                Deed::Send(message) => self.hosts[at].up.push_back(message),
                Deed::Fork(launch) => {
                    let ranks: Vec<u32> = launch.pes.iter().map(|pe| pe.rank).collect();
                    self.hosts[at].launch = Some(*launch);
                    for rank in ranks {
                        self.hosts[at].pes.insert(rank, Pe::default());
                        self.shepherd(at, ShepherdEvent::Stopped { rank });
                    }
                }
                Deed::Go => {
                    let ranks: Vec<u32> = self.hosts[at].pes.keys().copied().collect();
                    for rank in ranks {
                        self.say(at, rank, "cmd=init pmi_version=1\n".into());
                        self.arrive(at, rank);
                    }
                }
                Deed::Signal(signal) => {
                    assert_eq!(signal, 10);
                    self.hosts[at].signals += 1;
                }
                Deed::WriteStdin(data) => {
                    self.hosts[at].stdin.extend_from_slice(&data);
                    self.shepherd(at, ShepherdEvent::StdinWritten(data.len() as u64));
                }
                Deed::CloseStdin => self.hosts[at].stdin_closed = true,
                Deed::PmiSend { rank, data } => self.answered(at, rank, &data),
                Deed::SetTimer(_) => {}
                other => panic!("{other:?} on host {at}"),
            }
        }
    }

    fn say(&mut self, at: usize, rank: u32, text: String) {
        self.shepherd(at, ShepherdEvent::Pmi { rank, data: text.into() });
    }

    fn arrive(&mut self, at: usize, rank: u32) {
        let passed = self.hosts[at].pes[&rank].passed;
        if passed < BARRIERS {
            self.say(at, rank, format!("cmd=put key=b{passed}r{rank} value=v\n"));
            self.say(at, rank, "cmd=barrier_in\n".into());
        }
    }

    fn answered(&mut self, at: usize, rank: u32, data: &[u8]) {
        let pe = self.hosts[at].pes.get_mut(&rank).expect("a PE");
        if data.starts_with(b"cmd=barrier_out") {
            // What anybody has put is here now.
            pe.gets = (0..2 * HOSTS as u32).collect();
        } else if data.starts_with(b"cmd=get_result") {
            let text = String::from_utf8_lossy(data);
            assert!(text.contains("rc=0"), "PE {rank}, out of barrier {}: {text}", pe.passed);
            pe.gets.pop_front();
            if pe.gets.is_empty() {
                pe.passed += 1;
                return self.arrive(at, rank);
            }
        } else {
            return;
        }
        let (passed, other) = (pe.passed, pe.gets[0]);
        self.say(at, rank, format!("cmd=get key=b{passed}r{other}\n"));
    }

    /// kill -9 of an apinit, and its next life at once: of what was under way some has arrived.
    fn kill(&mut self, at: usize, dice: &mut Dice) {
        let key = self.key;
        let sent = self.hosts[at].answers.len();
        for _ in 0..dice.below(sent + 1) {
            self.answer(at);
        }
        self.hosts[at].answers.clear();
        self.hosts[at].asks.clear();
        while !self.hosts[at].down.is_empty() {
            self.frame(at);
        }
        self.hosts[at].up.clear();
        if self.hosts[at].conn.take().is_some() {
            if at == 0 {
                self.front_again = Some(self.now + 5 * STEP);
                self.front_up = false;
            } else {
                let text = "killed".to_string();
                self.agent(0, Event::PeerLost { key, index: at as u32, text });
            }
        }
        if at == 0 {
            for other in 1..HOSTS {
                let asks = self.hosts[other].asks.len();
                for _ in 0..dice.below(asks + 1) {
                    self.ask(other);
                }
                if let Some(conn) = self.hosts[other].conn.take() {
                    self.hosts[other].asks.clear();
                    self.hosts[other].answers.clear();
                    self.agent(other, Event::StreamClosed(conn));
                }
            }
        }
        self.hosts[at].agent = linked(&[at as u32]);
        self.hosts[at].timer = None;
        self.shepherd(at, ShepherdEvent::Disconnected);
        self.shepherd(at, ShepherdEvent::Connected);
        let Some(FromShepherd::Hello(hello)) = self.hosts[at].up.pop_front() else {
            panic!("no hello")
        };
        self.hosts[at].down.push_back(ToShepherd::Hello(Hello { key, ..Hello::default() }));
        // The front end's process lives: its death would be told under this number.
        self.conns += 1;
        let front = (at == 0 && self.launched).then_some(Conn(self.conns));
        let going_ns = self.hosts[at].going_ns;
        let found = Found {
            ran_ns: None,
            place: word(),
            going_ns,
            hello: Some(hello),
            silent: false,
            away: None,
            front,
            gone: false,
            adopted: false,
        };
        self.agent(at, Event::Found(Box::new(found)));
    }

    fn frame(&mut self, at: usize) {
        if let Some(frame) = self.hosts[at].down.pop_front() {
            self.shepherd(at, ShepherdEvent::Frame(frame));
        }
    }

    fn ask(&mut self, at: usize) {
        let conn = self.hosts[at].conn;
        if let (Some(conn), Some(message)) = (conn, self.hosts[at].asks.pop_front()) {
            self.agent(
                at,
                match message {
                    Ask::Front(message) => Event::FrontMessage(conn, message),
                    Ask::Head(message) => Event::HeadMessage(conn, message),
                },
            );
        }
    }

    fn answer(&mut self, at: usize) {
        let message = match self.hosts[at].answers.pop_front() {
            None => return,
            Some(Answer::Head(message)) => {
                return self.agent(0, Event::PeerMessage(self.key, at as u32, message));
            }
            Some(Answer::Front(message)) => message,
        };
        match message {
            FromApinit::Accepted => {
                self.launched = true;
                self.front_up = true;
                let signals = self.signals.iter().map(|s| ToApinit::Signal(*s));
                let stdin = self.stdin.iter().map(|p| ToApinit::Stdin(p.clone()));
                let end = (self.stdin_sent == STDIN).then_some(ToApinit::StdinEnd(STDIN as u64));
                let all: Vec<ToApinit> = signals.chain(stdin).chain(end).collect();
                self.hosts[0].asks.extend(all.into_iter().map(Ask::Front));
            }
            FromApinit::Going => self.going = true,
            FromApinit::StdinCredit(credit) => {
                self.stdin_credit = self.stdin_credit.max(credit.credit);
                self.stdin.retain(|piece| piece.end() > credit.received);
            }
            FromApinit::SignalsTaken(number) => self.signals.retain(|s| s.number > number),
            FromApinit::Refused { .. } => {
                self.hosts[0].conn = None;
                self.front_up = false;
                self.launched = false;
                self.front_again = Some(self.now + 5 * STEP);
            }
            _ => {}
        }
    }

    fn front(&mut self, dice: &mut Dice) {
        if self.front_again.is_some_and(|at| at <= self.now) {
            self.front_again = None;
            let conn = self.open(0);
            self.agent(0, opened(conn, OWNER));
            let (key, ticket) = (self.key, TICKET);
            self.hosts[0].asks.push_back(Ask::Front(match self.launched {
                true => ToApinit::Resume { key, ticket, taken: vec![] },
                false => ToApinit::Launch { key, ticket, launch: program() },
            }));
        }
        if !self.going || !self.front_up {
            return;
        }
        if self.signals_sent < SIGNALS && dice.below(20) == 0 {
            self.signals_sent += 1;
            let signal = numbered(self.signals_sent, 10);
            self.signals.push_back(signal);
            self.hosts[0].asks.push_back(Ask::Front(ToApinit::Signal(signal)));
        }
        let room = self.stdin_credit as usize - self.stdin_sent.min(self.stdin_credit as usize);
        if self.stdin_sent < STDIN && room > 0 && dice.below(3) == 0 {
            let end = self.stdin_sent + room.min(1 + dice.below(300)).min(STDIN - self.stdin_sent);
            let data = Bytes::copy_from_slice(&input()[self.stdin_sent..end]);
            let piece = StdinPiece { offset: self.stdin_sent as u64, data };
            self.stdin_sent = end;
            self.stdin.push_back(piece.clone());
            self.hosts[0].asks.push_back(Ask::Front(ToApinit::Stdin(piece)));
            if end == STDIN {
                self.hosts[0].asks.push_back(Ask::Front(ToApinit::StdinEnd(STDIN as u64)));
            }
        }
    }

    /// Something comes forward by one, or a little time goes by.
    fn step(&mut self, dice: &mut Dice) {
        self.front(dice);
        let at = dice.below(HOSTS);
        match dice.below(5) {
            0 => self.frame(at),
            1 => {
                if let Some(message) = self.hosts[at].up.pop_front() {
                    self.agent(at, from_shepherd(self.key, message));
                }
            }
            2 => self.ask(at),
            3 => self.answer(at),
            _ => {
                self.now += STEP;
                for at in 0..HOSTS {
                    if self.hosts[at].timer.is_some_and(|due| due <= self.now) {
                        self.agent(at, Event::Tick);
                    }
                }
            }
        }
    }

    fn is_over(&self) -> bool {
        let passed = |pe: &Pe| pe.passed == BARRIERS;
        self.hosts
            .iter()
            .all(|h| h.pes.len() == 2 && h.pes.values().all(passed) && h.signals == SIGNALS)
            && self.hosts[0].stdin_closed
            && self.signals.is_empty()
    }
}

fn survives(seed: u64, kills: usize) {
    let mut dice = Dice(seed);
    let mut world = World::new();
    for _ in 0..kills {
        for _ in 0..dice.below(120) {
            world.step(&mut dice);
        }
        let at = dice.below(HOSTS);
        world.kill(at, &mut dice);
    }
    for _ in 0..20_000 {
        if world.is_over() {
            break;
        }
        world.step(&mut dice);
    }
    let passed: Vec<u32> =
        world.hosts.iter().flat_map(|h| h.pes.values().map(|pe| pe.passed)).collect();
    let signals: Vec<u64> = world.hosts.iter().map(|h| h.signals).collect();
    let unacknowledged = world.signals.len();
    assert!(
        world.is_over(),
        "seed {seed}: barriers passed {passed:?}, signals {signals:?}, {unacknowledged} of them not \
         acknowledged, stdin closed {}",
        world.hosts[0].stdin_closed
    );
    assert!(world.hosts[0].stdin == input(), "seed {seed}: stdin is not what was sent");
}

#[test]
fn nothing_is_lost_or_doubled_however_often_apinits_die() {
    for seed in 0..300 {
        survives(seed, (seed % 13) as usize);
    }
}
