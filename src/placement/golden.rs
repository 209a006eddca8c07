//! Pictures of the line, before and after, and explanations, as committed text.
//!
//! A golden file is a transcript: lines that begin with `$` are what is done, the lines after them
//! are what came of it. The test does it all again and compares the whole text.
//!
//! ```text
//! $ line 0!.... 1:A... 2~....      a machine: NID, sign, processors; a letter: an application's
//!                                  signs: open `:`, closed `~`, kept `*`, not flavor ap `!`
//! $ C -n 3 -d 1 -N 2               application C asks
//! $ end A                          application A ends
//! ```

use super::*;
use crate::machine::{Flavor, Flavors, Node};

struct Scene {
    machine: Machine,
    occupancy: Occupancy,
    kept: BTreeSet<Nid>,
}

fn apid(letter: char) -> Apid {
    Apid(u64::from(letter))
}

fn letter(apid: Apid) -> String {
    char::from_u32(apid.0 as u32).expect("a letter").to_string()
}

impl Scene {
    fn new(line: &str) -> Scene {
        let mut machine = Machine::default();
        let mut kept = BTreeSet::new();
        let mut closed = BTreeSet::new();
        let mut held: Vec<(Apid, Nid, u32)> = Vec::new();
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
            for (i, c) in (0..).zip(processors.chars()).filter(|(_, c)| *c != '.') {
                held.push((apid(c), nid, i));
            }
            let node = Node {
                nid,
                processors: processors.len() as u32,
                cpus: Vec::new(),
                memory: 0,
                flavors: Flavors::default().with(flavor),
                host: String::new(),
            };
            machine.nodes.insert(nid, node);
        }
        let mut occupancy = Occupancy::new(&machine);
        for nid in machine.nodes.keys() {
            occupancy.set_open(*nid, !closed.contains(nid));
        }
        for (apid, nid, processor) in held {
            let place = Place { nid, processors: vec![processor], pes: 1 };
            occupancy.take(apid, &PlacementList(vec![place])).expect("each processor once");
        }
        Scene { machine, occupancy, kept }
    }

    fn picture(&self) -> String {
        let mut owners = std::collections::BTreeMap::new();
        for apid in self.occupancy.applications() {
            let mut alone = self.occupancy.clone();
            for (at, slot) in self.occupancy.line().iter().enumerate() {
                alone.release(apid);
                let free_without: BTreeSet<u32> = alone.free_processors(at).collect();
                let free_with: BTreeSet<u32> = self.occupancy.free_processors(at).collect();
                for p in free_without.difference(&free_with) {
                    owners.insert((slot.nid, *p), letter(apid));
                }
            }
        }
        let node = |slot: &Slot| {
            let sign = match slot {
                s if !s.application => '!',
                s if !s.open => '~',
                s if self.kept.contains(&s.nid) => '*',
                _ => ':',
            };
            let owner = |p| owners.get(&(slot.nid, p)).map_or(".", String::as_str);
            format!("{}{sign}{}", slot.nid, (0..slot.processors).map(owner).collect::<String>())
        };
        self.occupancy.line().iter().map(node).collect::<Vec<_>>().join(" ")
    }

    /// What comes of one application asking.
    fn ask(&mut self, name: char, options: &str) -> String {
        let words: Vec<&str> = options.split_whitespace().collect();
        let option = |name: &str| {
            let at = words.iter().position(|w| *w == name)?;
            Some(words[at + 1].parse().expect("a number"))
        };
        let shape = Shape {
            width: option("-n").unwrap_or(1),
            depth: option("-d").unwrap_or(1),
            per_node: option("-N"),
        };
        if let Err(impossible) = possible(&self.machine, &shape) {
            return format!("impossible: {}", impossible.explain());
        }
        match place(&self.occupancy, &shape, &self.kept) {
            Ok(list) => {
                assert!(list.fits(&shape), "{list:?}");
                self.occupancy.take(apid(name), &list).expect("what was free");
                self.picture()
            }
            Err(no_room) => {
                let Explanation { obstacle, holder, cure } =
                    no_room.explain(letter, |_| false, |_| None);
                format!("waits: {obstacle}\n  because {holder}\n  cure: {cure}")
            }
        }
    }
}

use crate::apteam::posting::Explanation;

fn replay(golden: &str) {
    let mut scene = Scene::new("");
    let mut again = String::new();
    for line in golden.lines() {
        let out = if let Some(nodes) = line.strip_prefix("$ line ") {
            scene = Scene::new(nodes);
            assert_eq!(scene.picture(), nodes, "the picture that was given");
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
fn refusals_are_worded_as_written() {
    replay(include_str!("golden/refusals.txt"));
}
