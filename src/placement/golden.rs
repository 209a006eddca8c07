//! Pictures of the line, before and after, and explanations, as committed text.
//!
//! A golden file is a transcript: lines that begin with `$` are what is done, the lines after them
//! are what came of it. The test does it all again and compares the whole text.
//!
//! ```text
//! $ line 0!.... 1:A... 2~....      a machine: NID, sign, processors; a letter: an application's
//!                                  signs: open `:`, closed `~`, kept `*`, not flavor ap `!`
//! $ over   .... B... ....          more applications on its processors, as many lines as need be
//! $ resident 4                     so many may share a processor from now on; 1 at first
//! $ allocator first-fit          which window is taken from now on; best-fit at first. A number behind
//!                                  it: the PEs from which on an application is wide
//! $ memory 64                      each node has so much, as -m in megabytes; unknown at first
//! $ C -n 3 -d 1 -N 2 -m 16         application C asks
//! $ E! -n 2                        the same, and would share with nobody
//! $ F -n 2 --flexible              its nodes need not be contiguous
//! $ end A                          application A ends
//! ```
//!
//! Who shares a processor stands one above the other.

use super::*;
use crate::machine::{Flavor, Flavors, Machine, Node};
use crate::occupancy::Claim;
use crate::variables::Allocator;

pub(super) struct Scene {
    machine: Machine,
    pub occupancy: Occupancy,
    pub kept: BTreeSet<Nid>,
}

pub(super) fn apid(letter: char) -> Apid {
    Apid(u64::from(letter))
}

pub(super) fn letter(apid: Apid) -> String {
    char::from_u32(apid.0 as u32).expect("a letter").to_string()
}

pub(super) const SHARES: Claim = Claim { shares: true, memory_per_pe: None, exclusive: false };

impl Scene {
    pub fn new(line: &str, rules: Rules, memory: u64) -> Scene {
        let mut machine = Machine::default();
        let mut kept = BTreeSet::new();
        let mut closed = BTreeSet::new();
        let mut rows = Vec::new();
        for node in line.split_whitespace() {
            let sign = node.find([':', '~', '*', '!']).expect("a sign after the NID");
            let nid = Nid(node[..sign].parse().expect("a NID"));
            let processors = &node[sign + 1..];
            let flavor = if &node[sign..=sign] == "!" { Flavor::Os } else { Flavor::Ap };
            match &node[sign..=sign] {
                "~" => drop(closed.insert(nid)),
                "*" => drop(kept.insert(nid)),
                _ => {}
            }
            rows.push(processors);
            let node = Node {
                memory,
                flavors: Flavors::default().with(flavor),
                ..Node::plain(nid, processors.len() as u32)
            };
            machine.nodes.insert(nid, node);
        }
        let mut occupancy = Occupancy::new(&machine, rules);
        for nid in machine.nodes.keys() {
            occupancy.set_open(*nid, !closed.contains(nid));
        }
        let mut scene = Scene { machine, occupancy, kept };
        scene.seat(&rows.join(" "));
        scene
    }

    /// More applications on the nodes.
    pub fn seat(&mut self, rows: &str) {
        let nids: Vec<Nid> = self.machine.nodes.keys().copied().collect();
        for (nid, processors) in nids.into_iter().zip(rows.split_whitespace()) {
            for (i, c) in (0..).zip(processors.chars()).filter(|(_, c)| *c != '.') {
                let place = Place { nid, processors: vec![i], pes: 1 };
                let list = PlacementList([place].into());
                self.occupancy.take_found(apid(c), &list, SHARES).expect("each processor once");
            }
        }
    }

    pub fn picture(&self) -> String {
        let mut owners: std::collections::BTreeMap<(usize, u32), Vec<Apid>> = Default::default();
        for apid in self.occupancy.applications() {
            for held in self.occupancy.held(apid) {
                for p in &held.processors {
                    owners.entry((held.at, *p)).or_default().push(apid);
                }
            }
        }
        let line = self.occupancy.line();
        let rows = owners.values().map(Vec::len).max().unwrap_or(0).max(1);
        let row = |row: usize| {
            let node = |(at, slot): (usize, &Slot)| {
                let sign = match slot {
                    s if !s.application => '!',
                    s if !s.open => '~',
                    s if self.kept.contains(&s.nid) => '*',
                    _ => ':',
                };
                let name = format!("{}{sign}", slot.nid);
                let name = if row == 0 { name } else { " ".repeat(name.len()) };
                let owner = |p| match owners.get(&(at, p)).and_then(|all| all.get(row)) {
                    Some(apid) => letter(*apid),
                    None => ".".into(),
                };
                format!("{name}{}", (0..slot.processors).map(owner).collect::<String>())
            };
            line.iter().enumerate().map(node).collect::<Vec<_>>().join(" ")
        };
        (0..rows).map(row).collect::<Vec<_>>().join("\n  ")
    }

    /// What comes of one application asking.
    fn ask(&mut self, name: char, options: &str) -> String {
        let words: Vec<&str> = options.split_whitespace().collect();
        let option = |name: &str| {
            let at = words.iter().position(|w| *w == name)?;
            Some(words[at + 1].parse().expect("a number"))
        };
        let exclusive = words.windows(2).any(|w| w == ["-F", "exclusive"]);
        let shape = Shape {
            width: option("-n").unwrap_or(1),
            depth: option("-d").unwrap_or(1),
            per_node: option("-N"),
        };
        let wanted = Wanted {
            shape,
            memory_per_pe: option("-m").map(|m| u64::from(m) << 20),
            exclusive,
            flexible: words.contains(&"--flexible"),
            reach: Reach::ALL,
        };
        if let Err(impossible) = possible(self.occupancy.line(), &wanted) {
            return format!("impossible: {}", impossible.explain());
        }
        match place(&mut self.occupancy, &wanted, &self.kept) {
            Ok(list) => {
                assert!(list.fits(&shape), "{list:?}");
                let shares = self.occupancy.rules_in(crate::machine::RegionSet::ALL).max_resident
                    > 1
                    && !options.starts_with('!')
                    && !exclusive;
                let claim = Claim { shares, memory_per_pe: wanted.memory_per_pe, exclusive };
                self.occupancy.take(apid(name), &list, claim).expect("what was free");
                self.picture()
            }
            Err(no_room) => {
                let silent = no_room.closed.clone();
                let shut = crate::placement::Shut { silent, ..Default::default() };
                let Explanation { obstacle, holder, cure } =
                    no_room.explain("application", letter, &shut, None);
                format!("waits: {obstacle}\n  because {holder}\n  cure: {cure}")
            }
        }
    }
}

use crate::apteam::posting::Explanation;

/// `wide-from-one-end 4`
pub(super) fn with_allocator(rules: Rules, words: &str) -> Rules {
    let (name, wide) = words.split_once(' ').unwrap_or((words, "64"));
    let known = Allocator::ALL.into_iter().find(|(_, known)| *known == name);
    let allocator_wide = wide.parse().expect("a number");
    Rules { allocator: known.expect("an allocator").0, allocator_wide, ..rules }
}

fn replay(golden: &str) {
    let mut rules = Rules::PLAIN;
    let mut memory = 0;
    let mut scene = Scene::new("", rules, memory);
    let mut again = String::new();
    for line in golden.lines() {
        let out = if let Some(nodes) = line.strip_prefix("$ line ") {
            scene = Scene::new(nodes, rules, memory);
            assert_eq!(scene.picture(), nodes, "the picture that was given");
            String::new()
        } else if let Some(rows) = line.strip_prefix("$ over") {
            scene.seat(rows);
            String::new()
        } else if let Some(most) = line.strip_prefix("$ resident ") {
            rules.max_resident = most.parse().expect("a number");
            scene.occupancy.set_rules(rules);
            String::new()
        } else if let Some(words) = line.strip_prefix("$ allocator ") {
            rules = with_allocator(rules, words);
            scene.occupancy.set_rules(rules);
            String::new()
        } else if let Some(megabytes) = line.strip_prefix("$ memory ") {
            memory = megabytes.parse::<u64>().expect("a number") << 20;
            String::new()
        } else if let Some(who) = line.strip_prefix("$ end ") {
            scene.occupancy.release(apid(who.chars().next().expect("a letter")));
            format!("  {}\n", scene.picture())
        } else if let Some(asks) = line.strip_prefix("$ ") {
            let name = asks.chars().next().expect("a letter");
            format!("  {}\n", scene.ask(name, &asks[1..]))
        } else if line.starts_with("  ") {
            continue;
        } else {
            String::new()
        };
        again += &format!("{line}\n{out}");
    }
    assert!(again == golden, "the golden text is\n{golden}\nand what came of it now\n{again}");
}

#[test]
fn windows_are_chosen_as_drawn() {
    replay(include_str!("golden/windows.txt"));
}

#[test]
fn allocators_choose_as_drawn() {
    replay(include_str!("golden/allocators.txt"));
}

#[test]
fn pieces_are_put_as_drawn() {
    replay(include_str!("golden/pieces.txt"));
}

#[test]
fn refusals_are_worded_as_written() {
    replay(include_str!("golden/refusals.txt"));
}

#[test]
fn others_are_sat_upon_as_drawn() {
    replay(include_str!("golden/over.txt"));
}
