//! Parties and their changes, drawn.
//!
//! Each picture is a line of processors; a letter is a gang (`A` is application 1). The first lines
//! place gangs, one each; what follows the arrow is the plan, a slice a line, with its length.

use super::competition::Competition;
use super::plan::plan;
use super::rotation::{Rotation, Rules};
use super::{Gang, plan::Plan};
use crate::apteam::Apid;
use std::fmt::Write;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

const RULES: Rules =
    Rules { time_slice: SECOND, longest_wait: Duration::from_secs(3_600), switch_share: 50 };

/// A machine of nodes with two processors and ten bytes each.
struct Picture {
    competition: Competition,
    rotation: Rotation,
    width: usize,
    rules: Rules,
}

fn letter(apid: Apid) -> char {
    char::from(b'A' + (apid.0 - 1) as u8)
}

impl Picture {
    /// `AA..` and `BB.. 4` (memory of each processor), `CC.. x2` (weight), `DD.. 70s` (time had),
    /// `EE.. 500ms` (bringing its memory in).
    fn of(gangs: &[&str]) -> Picture {
        let width =
            gangs.iter().map(|g| g.split(' ').next().unwrap_or("").len()).max().unwrap_or(0);
        let competition = Competition::new(width, vec![10; width.div_ceil(2)]);
        let mut picture =
            Picture { competition, rotation: Rotation::default(), width, rules: RULES };
        gangs.iter().for_each(|gang| picture.add(gang));
        picture
    }

    fn add(&mut self, gang: &str) {
        let mut words = gang.split(' ');
        let line = words.next().expect("processors");
        let name = line.chars().find(|c| *c != '.').expect("a letter");
        let apid = Apid(u64::from(name as u8 - b'A') + 1);
        let (mut bytes, mut weight, mut had, mut cost_ms) = (0, 1, 0, 0);
        for word in words {
            let number = word.trim_matches(char::is_alphabetic).parse().expect("a number");
            match word.trim_matches(char::is_numeric) {
                "x" => weight = number as u32,
                "ms" => cost_ms = number,
                "s" => had = number,
                _ => bytes = number,
            }
        }
        let at = |(p, c): (usize, char)| (c == name).then_some(p as u32);
        let processors: Vec<u32> = line.chars().enumerate().filter_map(at).collect();
        let on = |node| processors.iter().filter(|p| **p / 2 == node).count() as u64;
        let nodes = (0..self.width.div_ceil(2) as u32).filter(|node| on(*node) > 0);
        let memory = nodes.map(|node| (node, on(node) * bytes)).collect();
        self.competition.add(apid, Gang { processors, memory });
        self.rotation.add(apid, weight, Duration::from_secs(had), 0);
        self.rotation.set_cost(apid, Duration::from_millis(cost_ms));
    }

    fn go(&mut self, name: char) {
        let apid = Apid(u64::from(name as u8 - b'A') + 1);
        self.competition.remove(apid);
        self.rotation.remove(apid);
    }

    fn plan_of(&self, members: &[Apid]) -> Plan {
        plan(&self.competition, &self.rotation, members, &self.rules, 0, &[])
    }

    /// Every component's plan, drawn.
    fn drawn(&self) -> String {
        let mut text = String::new();
        for members in self.competition.components() {
            let plan = self.plan_of(&members);
            let names: String = members.iter().copied().map(letter).collect();
            let again = if plan.repeats { "" } else { ", then anew" };
            writeln!(text, "{names}{again}").expect("written");
            for slice in &plan.slices {
                let mut line = vec!['.'; self.width];
                for apid in &slice.party {
                    for p in &self.competition.gang(*apid).expect("placed").processors {
                        let name = letter(*apid);
                        let leads = slice.party[0] == *apid;
                        line[*p as usize] = if leads { name } else { name.to_ascii_lowercase() };
                    }
                }
                let line: String = line.into_iter().collect();
                writeln!(text, "  {line} {} s", slice.length.as_secs_f64()).expect("written");
            }
        }
        text
    }
}

#[track_caller]
fn drawn(picture: &Picture, expected: &str) {
    let lines: Vec<&str> = expected.trim_matches('\n').trim_end().lines().collect();
    let indent = lines.first().map_or(0, |l| l.len() - l.trim_start().len());
    let expected: String =
        lines.iter().map(|l| format!("{}\n", l.get(indent..).unwrap_or(""))).collect();
    let drawn = picture.drawn();
    assert_eq!(drawn, expected, "\n{drawn}");
}

#[test]
fn who_is_alone_is_never_stopped() {
    drawn(
        &Picture::of(&["AAAA....", "....BB..", "......CC"]),
        "
        A
          AAAA.... 1 s
        B
          ....BB.. 1 s
        C
          ......CC 1 s
        ",
    );
}

#[test]
fn two_that_want_the_whole_machine_take_turns() {
    drawn(
        &Picture::of(&["AAAA", "BBBB"]),
        "
        AB
          AAAA 1 s
          BBBB 1 s
        ",
    );
}

#[test]
fn who_competes_with_nobody_in_the_party_is_promoted() {
    drawn(
        &Picture::of(&["AAAA..", "BB....", "....CC", "..DDDD"]),
        "
        ABCD
          AAAAcc 1 s
          BBdddd 1 s
        ",
    );
}

#[test]
fn a_wide_one_takes_turns_with_all_narrow_ones_together() {
    drawn(
        &Picture::of(&["AA......", "..BB....", "....CC..", "......DD", "EEEEEEEE"]),
        "
        ABCDE
          AAbbccdd 1 s
          EEEEEEEE 1 s
        ",
    );
}

#[test]
fn a_chain() {
    drawn(
        &Picture::of(&["AAAA....", "..BBBB..", "....CCCC"]),
        "
        ABC
          AAAAcccc 1 s
          ..BBBB.. 1 s
        ",
    );
}

#[test]
fn a_clique_with_an_appendix() {
    drawn(
        &Picture::of(&["AAAA", "BB..", "CC..", "..DD"]),
        "
        ABCD
          AAAA 1 s
          BBdd 1 s
          CCdd 1 s
        ",
    );
}

#[test]
fn weights_lengthen_what_one_leads() {
    drawn(
        &Picture::of(&["AAAA x3", "BBBB", "CCCC x2"]),
        "
        ABC
          AAAA 3 s
          BBBB 1 s
          CCCC 2 s
        ",
    );
}

#[test]
fn memory_keeps_apart_whom_processors_do_not() {
    drawn(
        &Picture::of(&["A. 6", ".B 6"]),
        "
        AB
          A. 1 s
          .B 1 s
        ",
    );
    drawn(
        &Picture::of(&["A. 5", ".B 5"]),
        "
        A
          A. 1 s
        B
          .B 1 s
        ",
    );
}

#[test]
fn arrivals_lead_next_and_components_part_again() {
    let mut picture = Picture::of(&["AA..", "BB..", "..CC"]);
    drawn(
        &picture,
        "
        AB
          AA.. 1 s
          BB.. 1 s
        C
          ..CC 1 s
        ",
    );
    let ran = picture.plan_of(&[Apid(1), Apid(2)]).slices[0].clone();
    picture.rotation.ran(&[Apid(1), Apid(2)], &ran, 0);
    picture.add("DDDD");
    drawn(
        &picture,
        "
        ABCD
          BBcc 1 s
          DDDD 1 s
          AAcc 1 s
        ",
    );
    picture.go('D');
    drawn(
        &picture,
        "
        AB
          BB.. 1 s
          AA.. 1 s
        C
          ..CC 1 s
        ",
    );
}

#[test]
fn what_is_on_at_a_time() {
    let plan = Picture::of(&["AAAA x3", "BBBB"]).plan_of(&[Apid(1), Apid(2)]);
    let at = |ms| plan.at(Duration::from_millis(ms)).map(|(n, left)| (n, left.as_millis()));
    assert_eq!(at(0), Some((0, 3_000)));
    assert_eq!(at(2_999), Some((0, 1)));
    assert_eq!(at(3_000), Some((1, 1_000)));
    assert_eq!(at(4_000), Some((0, 3_000)));
    assert_eq!(at(4_000_007_500), Some((1, 500)));
    assert_eq!(Plan::default().at(SECOND), None);
}

#[test]
fn slices_have_room_for_memory_that_is_brought_in() {
    // 500 ms are 5 % of ten seconds; who has no memory to bring in has as much time.
    drawn(
        &Picture::of(&["AAAA 500ms", "BBBB", "CCCC x2"]),
        "
        ABC
          AAAA 10 s
          BBBB 10 s
          CCCC 20 s
        ",
    );
    // Little: only the time that it takes.
    drawn(
        &Picture::of(&["AAAA 40ms", "BBBB 10ms"]),
        "
        AB
          AAAA 1.04 s
          BBBB 1.01 s
        ",
    );
    // Once: whoever was in the slice before is in memory. And who is never stopped always is.
    drawn(
        &Picture::of(&["AAAA", "BB..", "CC..", "..DD 40ms", "....EE 500ms"]),
        "
        ABCD
          AAAA.. 1 s
          BBdd.. 1.04 s
          CCdd.. 1 s
        E
          ....EE 1 s
        ",
    );
    // For an hour at the most.
    drawn(
        &Picture::of(&["AAAA 999000ms", "BBBB"]),
        "
        AB
          AAAA 3600 s
          BBBB 3600 s
        ",
    );
}

#[test]
fn who_runs_has_its_memory_in() {
    let mut picture = Picture::of(&["AAAA 500ms", "BBBB 40ms"]);
    let members = [Apid(1), Apid(2)];
    let ran = picture.plan_of(&members).slices[0].clone();
    picture.rotation.ran(&members, &ran, 0);
    // A runs, and is to go on; at the next time round it has to be brought in.
    let plan =
        plan(&picture.competition, &picture.rotation, &members, &picture.rules, 0, &[Apid(1)]);
    assert!(plan.repeats);
    assert_eq!(plan.slices[0].length, Duration::from_secs(10));
}

#[test]
fn those_whose_slice_is_not_over_come_first_in_a_plan() {
    let picture = Picture::of(&["AAAA", "BB..", "..CC"]);
    let members: Vec<Apid> = (1..4).map(Apid).collect();
    let first = [Apid(3)];
    let plan = plan(&picture.competition, &picture.rotation, &members, &picture.rules, 0, &first);
    let parties: Vec<String> =
        plan.slices.iter().map(|s| s.party.iter().copied().map(letter).collect()).collect();
    assert_eq!(parties, ["CB", "A"]);
}
