//! `--dry-run`: where each PE would go now.

use crate::aprun::decide::session::Placement;
use std::fmt::Write;

/// A line for each PE: rank, NID, processors of that node.
pub fn table(placement: &Placement) -> String {
    let mut text = format!("{:>5} {:>5} {}\n", "Rank", "NID", "Processors");
    for pe in placement.places.pes() {
        let processors: Vec<String> = pe.processors.iter().map(u32::to_string).collect();
        // Writing to a String does not fail.
        let _ = writeln!(text, "{:>5} {:>5} {}", pe.rank, pe.nid, processors.join(","));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apteam::place::{Place, PlacementList};
    use crate::machine::Nid;

    #[test]
    fn a_table() {
        let places = PlacementList(
            [
                Place { nid: Nid(3), processors: vec![0, 1, 2, 3], pes: 2 },
                Place { nid: Nid(4), processors: vec![6, 7], pes: 1 },
            ]
            .into(),
        );
        let placement = Placement { places, ..Placement::default() };
        let expected =
            " Rank   NID Processors\n    0     3 0,1\n    1     3 2,3\n    2     4 6,7\n";
        assert_eq!(table(&placement), expected);
    }
}
