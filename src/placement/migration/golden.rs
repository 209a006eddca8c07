//! Pictures of the line before and after moves, and refusals, as committed text.
//!
//! The transcript is written as those of placement ([`crate::placement`]'s golden texts), with
//!
//! ```text
//! $ line 0:A... 1:B...             a machine, and who sits there
//! $ order A 2 B 0                  A to the nodes that begin with NID 2, B to those with 0
//! ```

use super::*;
use crate::apteam::place::Place;
use crate::machine::{Nid, format_nids};
use crate::occupancy::{Held, Rules};
use crate::placement::golden::{SHARES, Scene, apid, letter};
use crate::variables::Variables;
use crate::variables::units::format_duration;

fn movers(occupancy: &Occupancy) -> BTreeMap<Apid, Mover> {
    let place = |held: &Held| Place {
        nid: occupancy.line()[held.at].nid,
        processors: held.processors.clone(),
        pes: held.processors.len() as u32,
    };
    let mover = |apid: Apid| Mover {
        places: PlacementList(occupancy.held(apid).iter().map(place).collect()),
        claim: SHARES,
        reach: Reach::ALL,
        bytes: Vec::new(),
        stays: false,
    };
    occupancy.applications().map(|apid| (apid, mover(apid))).collect()
}

/// The moves, made on the scene, or why there are none.
fn ordered(scene: &mut Scene, words: &[&str]) -> String {
    let occupancy = scene.occupancy.clone();
    let movers = movers(&occupancy);
    let gate = MigrationLimits {
        move_cost: Duration::from_secs(30),
        ..MigrationLimits::from(&Variables::default())
    };
    let situation = Situation { occupancy: &occupancy, movers: &movers, gate };
    let target = |pair: &[&str]| {
        let apid = apid(pair[0].chars().next().expect("a letter"));
        let first: u32 = pair[1].parse().expect("a NID");
        let from = (first..).zip(movers[&apid].places.0.iter());
        let place = |(nid, place): (u32, &Place)| Place { nid: Nid(nid), ..place.clone() };
        Target { apid, to: PlacementList(from.map(place).collect()) }
    };
    let targets: Vec<Target> = words.chunks(2).map(target).collect();
    let moves = match order(&situation, &targets) {
        Ok(moves) => moves,
        Err(refusal) => return format!("refused: {}", refusal.explain(letter)),
    };
    let mut text = String::new();
    for Move { apid, to, cost } in moves {
        let (nids, cost) = (format_nids(to.nids()), format_duration(cost));
        text += &format!("{} to {nids}, {cost}\n  ", letter(apid));
        scene.occupancy.release(apid);
        scene.occupancy.take(apid, &to, SHARES).expect("a place");
    }
    text + &scene.picture()
}

#[test]
fn moves_come_in_the_order_drawn() {
    let golden = include_str!("golden/orders.txt");
    let mut scene = Scene::new("", Rules::PLAIN, 0);
    let mut again = String::new();
    for line in golden.lines().filter(|line| !line.starts_with("  ")) {
        again += &format!("{line}\n");
        if let Some(picture) = line.strip_prefix("$ line ") {
            scene = Scene::new(picture, Rules::PLAIN, 0);
            assert_eq!(scene.picture(), picture, "the picture that was given");
        } else if let Some(targets) = line.strip_prefix("$ order ") {
            let words: Vec<&str> = targets.split_whitespace().collect();
            again += &format!("  {}\n", ordered(&mut scene, &words));
        }
    }
    assert!(again == golden, "the golden text is\n{golden}\nand what came of it now\n{again}");
}
