//! Where postings go on machines with regions and gates, as transcripts: `$` begins what is done, the lines after
//! it are what came of it.
//!
//! ```text
//! $ machine x1                 a machine of this name, nobody on it, noon
//! $ post -n 4 -N 2 account=a user=bob groups=71,72 limit=1h memory=1G terminal
//! $ post -n 10 nodes 4          --nodes 4; post rows 1x4,4x2: one node with 4 PEs, four with 2
//! $ post -d 4 rows 2x1d4,1x3d1   the PEs of the first two nodes have four processors each, the others one
//! $ post -n 6 --flexible        on nodes that need not be contiguous
//! $ end 1                      application 1 ends
//! $ gate night                 another psched.yaml: only dave is let into this region
//! $ why 2                      what apstat --why says
//! $ drain 1-8                  these nodes take nothing new
//! $ time 20:00                 it is so late
//! ```

use super::*;
use crate::apteam::Apid;
use crate::apteam::change::Closed;
use crate::apteam::layout::{Layout, Row};
use crate::apteam::posting::Account;
use crate::apteam::record::State;
use crate::config;
use crate::machine::Nid;
use crate::machine::gates::{People, Who};
use crate::machine::parse_nids;
use crate::variables::units::{parse_duration, parse_size};

const X1: &str = include_str!("../../../../config/x1.yaml");
const GATES: &str = "
nodes:
  - { nids: 0, processors: 2, memory: 4G, flavors: [su, os, ap] }
  - { nids: 1-7, processors: 2, memory: 4G }
accounts:
  - { name: ocean, groups: [71] }
  - { name: ice, users: [carol] }
regions:
  - { name: all, nids: 0-1 }
  - { name: ocean, nids: 2-3, gates: { accounts: [ocean], groups: [71] } }
  - { name: night, nids: 4-5, gates: { hours: '20:00-06:00' } }
  - { name: test, nids: 6-7, gates: { mode: interactive, time_limit: -1h } }
";
const NIGHT: &str = "
nodes:
  - { nids: 0, processors: 2, flavors: [su, os, ap] }
  - { nids: 2-3, processors: 2 }
regions:
  - { name: day, nids: 0 }
  - { name: night, nids: 2-3, gates: { hours: '22:00-06:00' } }
";
const CLOSED: &str = "
nodes:
  - { nids: 0, processors: 2, flavors: [su, os, ap] }
  - { nids: 2-3, processors: 2 }
regions:
  - { name: bob, nids: 0, gates: { users: [bob] } }
  - { name: wide, nids: 2-3, gates: { width: too wide for bob, users: [carol] } }
";

/// NIDs with a hole, in a region; and two nodes for those who are too wide for it.
const HOLES: &str = "
nodes:
  - { nids: 0, processors: 2, flavors: [su, os] }
  - { nids: 1-2, processors: 2 }
  - { nids: 4-5, processors: 2 }
  - { nids: 6-7, processors: 2, flavors: [os, su, ap] }
regions:
  - { name: holes, flavors: [ap] }
  - { name: overflow, flavors: [os, su, ap], gates: { width: too wide for holes } }
";

struct Player {
    s: Scheduler,
    now: Now,
    posted: u8,
}

impl Player {
    fn new(name: &str) -> Player {
        let text = match name {
            "x1" => X1,
            "gates" => GATES,
            "night" => NIGHT,
            "closed" => CLOSED,
            "holes" => HOLES,
            _ => panic!("there is no machine {name}"),
        };
        let machine = config::read(text).expect("a good file").machine;
        let nids: Vec<u32> = machine.nodes.keys().map(|nid| nid.0).collect();
        // An hour east.
        let settings = Settings { utc_offset: 3600, ..alone() };
        let mut s = Scheduler::new(machine, settings);
        let now = at(11 * 3600);
        s.apply(now, Event::LinkOpened { link: LinkId(1), hello: hello(&nids) });
        s.apply(now, Event::Inventory { link: LinkId(1), items: Vec::new() });
        Player { s, now, posted: 0 }
    }

    fn post(&mut self, words: &[&str]) -> Vec<Effect> {
        let number = |name: &str| {
            let at = words.iter().position(|word| *word == name)?;
            Some(words[at + 1].parse::<u32>().expect("a number"))
        };
        let value =
            |name: &str| words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        self.posted += 1;
        let shape = Shape {
            width: number("-n").unwrap_or(1),
            depth: number("-d").unwrap_or(1),
            per_node: number("-N"),
        };
        let mut event = posted(self.posted, 1);
        let Event::Posted { posting, owner, .. } = &mut event else { unreachable!() };
        posting.shape = shape;
        posting.account = value("account").map(|name| Account::parse(name).expect("an account"));
        posting.time_limit = value("limit").map(|text| parse_duration(text).expect("a time"));
        let list = |name: &str| {
            let at = words.iter().position(|word| *word == name)?;
            Some(words[at + 1])
        };
        if let Some(nodes) = list("nodes") {
            let nodes = nodes.parse().expect("a number");
            posting.layout = Layout::even(posting.shape.width, nodes).expect("a layout");
        }
        if let Some(rows) = list("rows") {
            let rows = rows.split(',').map(|row| {
                let (nodes, pes) = row.split_once('x').expect("NODESxPES");
                let (pes, depth) = pes.split_once('d').unwrap_or((pes, "0"));
                let number = |text: &str| text.parse().expect("a number");
                Row { nodes: number(nodes), pes: number(pes), depth: number(depth) }
            });
            posting.layout = Layout::new(rows.collect()).expect("a layout");
            posting.shape.width = posting.layout.width() as u32;
        }
        for (name, only) in [("-L", true), ("-E", false)] {
            if let Some(list) = list(name) {
                let choice = std::mem::take(&mut posting.choice);
                let chosen = if only { choice.only(list) } else { choice.not(list) };
                posting.choice = chosen.expect("a list");
            }
        }
        posting.flexible = words.contains(&"--flexible");
        posting.immediate = words.contains(&"--immediate");
        posting.memory_per_pe = value("memory").map(|text| parse_size(text).expect("a size"));
        owner.terminal = words.contains(&"terminal");
        owner.groups = value("groups")
            .into_iter()
            .flat_map(|list| list.split(',').map(|gid| gid.parse().expect("a group")))
            .collect();
        if let Some(user) = value("user") {
            owner.name = user.into();
            owner.uid = 1001;
        }
        if words.contains(&"--dry-run") {
            let (posting, owner) = (posting.clone(), owner.clone());
            let (refusal, reason) = self.s.dry_run(&posting, &owner).expect_err("no place");
            let reply = ReplyId(98);
            return vec![Effect::Refuse { reply, refusal, reason }];
        }
        self.s.apply(self.now, event)
    }

    fn play(&mut self, line: &str) -> String {
        let words: Vec<&str> = line.split_whitespace().collect();
        let apid = || Apid(words[1].parse().expect("a number"));
        let effects = match words[0] {
            "machine" => {
                *self = Player::new(words[1]);
                Vec::new()
            }
            "post" => self.post(&words[1..]),
            "end" => {
                let key = self.s.team(apid()).expect("it is there").key();
                let nids: Vec<u32> =
                    self.s.team(apid()).expect("it is there").places.nids().map(|n| n.0).collect();
                let end = Report::Ended(Box::new(HostEnd {
                    key,
                    nids: nids.into_iter().map(Nid).collect(),
                    launched: true,
                    ..HostEnd::default()
                }));
                self.s.apply(self.now, Event::Report { link: LinkId(1), report: Box::new(end) })
            }
            "drain" => {
                let nids = parse_nids(words[1]).expect("NIDs");
                let by = By { uid: 0, name: "root".into(), at_ns: 0 };
                let (reply, to) = (ReplyId(99), NodesTo::Close(Closed::Drained));
                let reason = String::new();
                self.s.apply(self.now, Event::Nodes { reply, to, nids, reason, by })
            }
            "time" => {
                let (hour, minute) = words[1].split_once(':').expect("a time");
                let number = |text: &str| text.parse::<u64>().expect("a number");
                let local = number(hour) * 3600 + number(minute) * 60;
                let day = 24 * 3600;
                let second = self.now.mono_ns / SECOND;
                let ahead = (local + 2 * day - 3600 - second % day) % day;
                let mut effects = Vec::new();
                let until = at(second + ahead);
                while self.now != until {
                    // Only when it asks for it, which is every hour.
                    let due = self.s.deadline().expect("a time of day counts");
                    let next = Now { mono_ns: due, wall_ns: due + 7 };
                    self.now = if due < until.mono_ns { next } else { until };
                    effects.extend(self.s.apply(self.now, Event::Tick));
                }
                effects
            }
            "gate" => {
                // Only dave is let into a region from now on.
                let mut machine = self.s.machine().clone();
                let gate = &mut machine.regions.iter_mut().find(|r| r.name == words[1]);
                let gate = &mut gate.as_mut().expect("a region").gate;
                let users = [Who::Name("dave".into())].into();
                gate.people = Some(People { users, ..People::default() });
                self.s.apply(self.now, Event::Machine(Box::new(machine)))
            }
            "why" => return format!("  {}\n", self.s.why(apid()).expect("it is there")),
            other => panic!("what is {other}?"),
        };
        let mut said = String::new();
        for effect in effects {
            let line = match effect {
                Effect::Refuse { refusal, reason, .. } => {
                    format!("refused ({refusal:?}): {reason}")
                }
                Effect::Accept { apid, .. } => match self.s.team(apid).map(|t| t.state) {
                    Some(State::Posted) => format!("{apid} waits"),
                    _ => continue,
                },
                Effect::Tell { apid, news: News::Placed } => {
                    let team = self.s.team(apid).expect("it is placed");
                    let place = |place: &crate::apteam::place::Place| {
                        let list = format_nids(place.processors.iter().copied().map(Nid));
                        format!("{}[{list}]", place.nid)
                    };
                    let places: Vec<String> = team.places.0.iter().map(place).collect();
                    match &places[..] {
                        [first, .., last] if places.len() > 4 => {
                            format!("{apid} on {} nodes, {first} to {last}", places.len())
                        }
                        _ => format!("{apid} on {}", places.join(" ")),
                    }
                }
                _ => continue,
            };
            said.push_str(&format!("  {line}\n"));
        }
        said
    }
}

#[track_caller]
fn golden(text: &str) {
    let mut player = Player::new("x1");
    let mut played = String::new();
    for line in text.lines().filter(|line| !line.starts_with("  ")) {
        played.push_str(line);
        played.push('\n');
        if let Some(what) = line.strip_prefix("$ ") {
            played.push_str(&player.play(what));
        }
    }
    assert!(played == text, "it is now:\n{played}");
}

#[test]
fn a_machine_of_the_x1s_shape() {
    golden(include_str!("golden/x1.txt"));
}

#[test]
fn lists_of_nodes() {
    golden(include_str!("golden/lists.txt"));
}

#[test]
fn nodes_that_need_not_be_contiguous() {
    golden(include_str!("golden/flexible.txt"));
}

#[test]
fn layouts_node_by_node() {
    golden(include_str!("golden/layouts.txt"));
}

#[test]
fn gates_let_in_and_keep_out() {
    golden(include_str!("golden/gates.txt"));
}
