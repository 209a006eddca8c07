//! Decisions, drawn: a line with who sits there, an order of turn, and who runs where by that.
//!
//! ```text
//! $ line 0:AAAA 1:BB..          a machine, as in the pictures of placement
//! $ over   .... CCCC            more who sit there
//! $ resident 4                  so many may share a processor from now on; 4 at first
//! $ allocator first-fit         which window is taken on idle processors from now on
//! $ memory 64                   each node of the next line has so much, as -m in megabytes
//! $ rules rollout stay compactions=4 moved=8 searches=256       what may be done; this at first,
//!                                                          no rollout, and nobody who must stay
//! $ pack C -n 4, A moves, B     these want to run, in this order
//! ```
//!
//! Who sits somewhere `runs`, unless it `stands` or `comes`; it may be moved if it `moves`, be moved aside
//! at a cost of `aside=COST`, and others be moved for it for a `budget=COST`. Displacing it costs its
//! processors, or `costs=COST`. What is drawn then is who runs where; small letters: in another place, or
//! for the first time.

use super::*;
use crate::apteam::shape::Shape;
use crate::machine::Reach;
use crate::occupancy::Rules as OccupancyRules;
use crate::placement::golden::{Scene, apid, letter, with_allocator};

struct Asks {
    apid: Apid,
    wanted: Wanted,
    home: Option<Seat>,
    pes: Option<Vec<u32>>,
    words: Vec<String>,
}

impl Asks {
    fn of(occupancy: &Occupancy, text: &str) -> Asks {
        let words: Vec<String> = text.split_whitespace().map(Into::into).collect();
        let apid = apid(words[0].chars().next().expect("a letter"));
        let option = |name: &str| {
            let at = words.iter().position(|w| w == name)?;
            Some(words[at + 1].parse().expect("a number"))
        };
        let depth = option("-d").unwrap_or(1);
        let held = occupancy.held(apid);
        let pes: Vec<u32> = held.iter().map(|h| h.processors.len() as u32 / depth).collect();
        let width = option("-n").unwrap_or_else(|| pes.iter().sum());
        let home = (!held.is_empty()).then(|| Seat::of(occupancy, apid, &pes));
        let wanted = Wanted {
            shape: Shape { width, depth, per_node: option("-N") },
            memory_per_pe: option("-m").map(|m| u64::from(m) << 20),
            exclusive: words.iter().any(|w| w == "exclusive"),
            flexible: false,
            reach: Reach::ALL,
        };
        let pes = home.is_some().then_some(pes);
        Asks { apid, wanted, home, pes, words }
    }

    fn is(&self, word: &str) -> bool {
        self.words.iter().any(|w| w == word)
    }

    fn number(&self, name: &str) -> Option<u64> {
        let of = |w: &String| w.strip_prefix(name)?.strip_prefix('=')?.parse().ok();
        self.words.iter().find_map(of)
    }

    fn candidate(&self) -> Candidate<'_> {
        let now = match self.home {
            _ if self.is("comes") => Now::Comes,
            Some(_) if !self.is("stands") => Now::Runs,
            _ => Now::Stands,
        };
        Candidate {
            apid: self.apid,
            wanted: self.wanted,
            home: self.home.as_ref(),
            shape: self.pes.as_deref(),
            now,
            keeps: self.is("keeps"),
            chosen: false,
            may_move: self.is("moves"),
            may_be_moved: self.number("aside").is_some(),
            may_move_others: self.number("budget"),
            gives_way: false,
            displaced: self.number("costs").unwrap_or(self.wanted.shape.processors()),
        }
    }
}

fn drawn(scene: &Scene, asks: &[Asks], rules: &Rules) -> String {
    let order: Vec<Candidate> = asks.iter().map(Asks::candidate).collect();
    let loses = |one: &Candidate| {
        let asks = asks.iter().find(|asks| asks.apid == one.apid);
        asks.and_then(|asks| asks.number("aside")).unwrap_or(u64::MAX / 2)
    };
    let packing =
        pack(&scene.occupancy, &order, rules, &loses, &|_| Vec::new(), &mut Room::default());
    let first = scene.occupancy.first();
    let mut line: Vec<Vec<char>> =
        scene.occupancy.line().iter().map(|slot| vec!['.'; slot.processors as usize]).collect();
    for one in asks.iter().filter(|one| packing.party.contains(&one.apid)) {
        let new = packing.seats.get(&one.apid);
        let seat = new.or(one.home.as_ref()).expect("who runs sits somewhere");
        let mut name = letter(one.apid).chars().next().expect("a letter");
        if new.is_some() {
            name = name.to_ascii_lowercase();
        }
        for p in seat.runs.iter().flat_map(Clone::clone) {
            let at = first.partition_point(|first| *first <= p as usize) - 1;
            let here = &mut line[at][p as usize - first[at]];
            assert_eq!(*here, '.', "processor {p} twice");
            *here = name;
        }
    }
    let node = |(slot, here): (&crate::occupancy::Slot, &Vec<char>)| {
        format!("{}:{}", slot.nid, here.iter().collect::<String>())
    };
    let nodes: Vec<String> = scene.occupancy.line().iter().zip(&line).map(node).collect();
    let waits = asks.iter().filter(|one| !packing.party.contains(&one.apid));
    let waits: Vec<String> = waits.map(|one| letter(one.apid)).collect();
    let waits =
        if waits.is_empty() { String::new() } else { format!("   not {}", waits.join(" ")) };
    format!("{}{waits}", nodes.join(" "))
}

fn replay(golden: &str) {
    let mut occupancy = OccupancyRules { max_resident: 4, ..OccupancyRules::PLAIN };
    let mut memory = 0;
    let mut rules = Rules {
        domain: crate::machine::RegionSet::ALL,
        roll_out: false,
        stay: false,
        compactions_max: 4,
        moved_max: 8,
        searches_max: 256,
    };
    let mut scene = Scene::new("", occupancy, memory);
    let mut again = String::new();
    for line in golden.lines() {
        if line.starts_with("  ") {
            continue;
        }
        again += &format!("{line}\n");
        if let Some(nodes) = line.strip_prefix("$ line ") {
            scene = Scene::new(nodes, occupancy, memory);
        } else if let Some(rows) = line.strip_prefix("$ over") {
            scene.seat(rows);
        } else if let Some(most) = line.strip_prefix("$ resident ") {
            occupancy.max_resident = most.parse().expect("a number");
            scene.occupancy.set_rules(occupancy);
        } else if let Some(words) = line.strip_prefix("$ allocator ") {
            occupancy = with_allocator(occupancy, words);
            scene.occupancy.set_rules(occupancy);
        } else if let Some(megabytes) = line.strip_prefix("$ memory ") {
            memory = megabytes.parse::<u64>().expect("a number") << 20;
        } else if let Some(words) = line.strip_prefix("$ rules") {
            let of = |name: &str| {
                let word = words.split_whitespace().find_map(|w| w.strip_prefix(name));
                word.map(|number| number.parse().expect("a number"))
            };
            rules = Rules {
                domain: RegionSet::ALL,
                roll_out: words.contains("rollout"),
                stay: words.contains("stay"),
                compactions_max: of("compactions=").unwrap_or(4),
                moved_max: of("moved=").unwrap_or(8),
                searches_max: of("searches=").unwrap_or(256),
            };
        } else if let Some(asks) = line.strip_prefix("$ pack ") {
            let asks: Vec<Asks> =
                asks.split(", ").map(|text| Asks::of(&scene.occupancy, text)).collect();
            again += &format!("  {}\n", drawn(&scene, &asks, &rules));
        }
    }
    assert!(again == golden, "the golden text is\n{golden}\nand what came of it now\n{again}");
}

#[test]
fn decisions_are_as_drawn() {
    replay(include_str!("../golden/packing.txt"));
}
