//! Pictures of the line before and after a plan, and refusals, as committed text.
//!
//! The transcripts are written as those of placement ([`crate::placement`]'s golden texts), with
//!
//! ```text
//! $ line 0:A... 1:b...             a small letter: an application whose processors were named
//! $ set moves_max 2                application.load_balance.moves_max; all defaults at first
//! $ bytes 1024                     each processor's part of an application has so many megabytes
//! $ ran A 10m                      it has run so long; two hours at first
//! $ moved A 10m                    it was moved so long ago
//! $ out                            from now on applications can be rolled out
//! $ C -n 4                         C waits: the plan for it, and what comes of it
//! $ order A 2 B 0                  A to the nodes that begin with NID 2, B to those with 0
//! ```

use super::*;
use crate::apteam::place::Place;
use crate::apteam::posting::Shape;
use crate::machine::format_nids;
use crate::occupancy::Rules;
use crate::placement::golden::{SHARES, Scene, apid, letter};
use crate::variables::Variables;
use crate::variables::units::{format_duration, parse_duration};

struct Play {
    scene: Scene,
    rules: Rules,
    memory: u64,
    variables: Variables,
    bytes: u64,
    ran: BTreeMap<Apid, Duration>,
    moved: BTreeMap<Apid, Duration>,
    out: bool,
}

/// The nodes of a list, and its processors where nodes have several: `3-4`, `3.01-4.0`.
fn places(list: &PlacementList) -> String {
    format_nids(list.nids())
}

impl Play {
    fn movers(&self) -> BTreeMap<Apid, Mover> {
        let occupancy = &self.scene.occupancy;
        let mover = |apid: Apid| {
            let held = occupancy.held(apid);
            let place = |held: &crate::occupancy::Held| Place {
                nid: occupancy.line()[held.at].nid,
                processors: held.processors.clone(),
                pes: held.processors.len() as u32,
            };
            Mover {
                places: PlacementList(held.iter().map(place).collect()),
                claim: SHARES,
                reach: Reach::ALL,
                bytes: held.iter().map(|h| self.bytes * h.processors.len() as u64).collect(),
                wall: letter(apid).chars().all(char::is_lowercase).then_some(Wall::Pinned),
                since_move: self.moved.get(&apid).copied(),
                attained: self.ran.get(&apid).copied().unwrap_or(Duration::from_secs(7_200)),
            }
        };
        occupancy.applications().map(|apid| (apid, mover(apid))).collect()
    }

    /// The steps, made on the scene.
    fn make(&mut self, steps: &[Step]) -> String {
        let mut text = String::new();
        for step in steps {
            let apid = step.apid();
            let cost = format_duration(step.cost());
            text += &match step {
                Step::Move { to, .. } => format!("{} to {}, {cost}\n  ", letter(apid), places(to)),
                Step::RollOut { .. } => format!("{} out\n  ", letter(apid)),
                Step::RollIn { to, .. } => {
                    format!("{} in to {}, {cost}\n  ", letter(apid), places(to))
                }
            };
            self.scene.occupancy.release(apid);
            if let Step::Move { to, .. } | Step::RollIn { to, .. } = step {
                self.scene.occupancy.take(apid, to, SHARES).expect("a place");
            }
        }
        text
    }

    fn answer(&mut self, command: &str) -> String {
        let movers = self.movers();
        let occupancy = self.scene.occupancy.clone();
        let situation = Situation {
            occupancy: &occupancy,
            movers: &movers,
            kept: &self.scene.kept.clone(),
            gate: Gate::from(&self.variables),
            can_roll_out: self.out,
        };
        let words: Vec<&str> = command.split_whitespace().collect();
        let refused = |refusal: Refusal| format!("refused: {}", refusal.explain(letter));
        if words[0] == "order" {
            let target = |pair: &[&str]| {
                let apid = apid(pair[0].chars().next().expect("a letter"));
                let first: u32 = pair[1].parse().expect("a NID");
                let from = (first..).zip(movers[&apid].places.0.iter());
                let place = |(nid, place): (u32, &Place)| Place { nid: Nid(nid), ..place.clone() };
                Target { apid, to: PlacementList(from.map(place).collect()) }
            };
            let targets: Vec<Target> = words[1..].chunks(2).map(target).collect();
            return match order(&situation, &targets) {
                Ok(steps) => self.make(&steps) + &self.scene.picture(),
                Err(refusal) => refused(refusal),
            };
        }
        let option = |name: &str| {
            let at = words.iter().position(|word| *word == name)?;
            Some(words[at + 1].parse().expect("a number"))
        };
        let exclusive = words.contains(&"exclusive");
        let shape = Shape {
            width: option("-n").unwrap_or(1),
            depth: option("-d").unwrap_or(1),
            per_node: option("-N"),
        };
        let waiting = Waiting {
            wanted: Wanted {
                shape,
                memory_per_pe: None,
                exclusive,
                flexible: false,
                reach: Reach::ALL,
            },
            attained: Duration::from_secs(7_200),
        };
        let planned = plan(&situation, &waiting);
        assert_eq!(planned.clone().ok(), try_plan(&situation, &waiting));
        match planned {
            Ok(plan) => {
                assert!(plan.window.fits(&shape), "{plan:?}");
                let steps = self.make(&plan.steps);
                let name = apid(words[0].chars().next().expect("a letter"));
                let claim = Claim { exclusive, shares: SHARES.shares && !exclusive, ..SHARES };
                self.scene.occupancy.take(name, &plan.window, claim).expect("the window");
                steps + &self.scene.picture()
            }
            Err(refusal) => refused(refusal),
        }
    }

    fn command(&mut self, line: &str) -> String {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (what, rest) = line.split_once(' ').unwrap_or((line, ""));
        let who = || apid(words[1].chars().next().expect("a letter"));
        match what {
            "line" => {
                self.scene = Scene::new(rest, self.rules, self.memory);
                assert_eq!(self.scene.picture(), rest, "the picture that was given");
            }
            "over" => self.scene.seat(rest),
            "resident" => {
                self.rules.max_resident = rest.parse().expect("a number");
                self.scene.occupancy.set_rules(self.rules);
            }
            "memory" => self.memory = rest.parse::<u64>().expect("a number") << 20,
            "set" => {
                let name = format!("application.load_balance.{}", words[1]);
                self.variables.set(&name, words[2]).expect("a value");
            }
            "bytes" => self.bytes = rest.parse::<u64>().expect("a number") << 20,
            "ran" => drop(self.ran.insert(who(), parse_duration(words[2]).expect("a time"))),
            "moved" => drop(self.moved.insert(who(), parse_duration(words[2]).expect("a time"))),
            "out" => self.out = true,
            _ => return format!("  {}\n", self.answer(line)),
        }
        String::new()
    }
}

fn replay(golden: &str) {
    let rules = Rules::PLAIN;
    let mut play = Play {
        scene: Scene::new("", rules, 0),
        rules,
        memory: 0,
        variables: {
            let mut variables = Variables::default();
            let set = variables.set("application.load_balance.move_cost", "30s");
            set.expect("a time");
            variables
        },
        bytes: 0,
        ran: BTreeMap::new(),
        moved: BTreeMap::new(),
        out: false,
    };
    let mut again = String::new();
    for line in golden.lines().filter(|line| !line.starts_with("  ")) {
        let out = line.strip_prefix("$ ").map_or_else(String::new, |line| play.command(line));
        again += &format!("{line}\n{out}");
    }
    assert!(again == golden, "the golden text is\n{golden}\nand what came of it now\n{again}");
}

#[test]
fn plans_are_made_as_drawn() {
    replay(include_str!("golden/plans.txt"));
}

#[test]
fn moves_come_in_the_order_drawn() {
    replay(include_str!("golden/orders.txt"));
}

#[test]
fn refusals_are_worded_as_written() {
    replay(include_str!("golden/refusals.txt"));
}
