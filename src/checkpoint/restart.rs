//! What is posted of a checkpoint, and which can't be.
//!
//! Whoever restarts an application shows psched its manifest and nothing else. All of the posting is made of
//! the recovery information in there, which psched has sealed: what somebody writes into his request can't
//! widen it, lengthen its time limit or take it to another account.
//!
//! An application that ran keeps its shape. Its images are of so many PEs on its first node, so many on its
//! second, and where they are of several apinits, of so many nodes of the first and so many of the second; where
//! nothing but its width was asked for, that is asked for now:
//!
//! ```
//! # use psched_pure::checkpoint::{example, restarting};
//! let mut manifest = example();
//! manifest.recovery.posting.shape.per_node = None;
//! let posting = restarting(&manifest, [1; 16]).unwrap().posting;
//! assert_eq!(posting.shape.per_node, Some(1));
//! ```

use super::{BackEnd, HostImages, Kind, Manifest};
use crate::apteam::Key;
use crate::apteam::layout::Layout;
use crate::apteam::oversubscribe::{Oversubscribe, Sharing};
use crate::apteam::place::{Place, PlacementList};
use crate::apteam::posting::{Explanation, Posting};
use crate::apteam::protocol::node::Restart;
use crate::apteam::shape::Shape;
use crate::machine::Nid;

/// What is to be posted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restarting {
    /// As what was posted once, under a new random number.
    pub posting: Posting,
    /// Of an application that ran: what is to be restored. None: it is executed, be it that it waited or that
    /// its program has saved itself.
    pub restart: Option<Restart>,
}

/// Why a whole and true checkpoint can't be restarted here, and what to do instead.
fn no<T>(obstacle: impl Into<String>, cure: &str) -> Result<T, Explanation> {
    let (obstacle, cure) = (obstacle.into(), cure.into());
    Err(Explanation { obstacle, holder: String::new(), cure })
}

/// What is to be posted to bring back the application of a manifest, which has been verified.
///
/// # Errors
/// It can't be brought back.
pub fn restarting(manifest: &Manifest, request_id: [u8; 16]) -> Result<Restarting, Explanation> {
    let recovery = &manifest.recovery;
    // It has been let in once, and waits where it finds no room.
    let mut posting = Posting { request_id, immediate: false, ..recovery.posting.clone() };
    let (back_end, places, hosts) = match &manifest.kind {
        Kind::Waiting => {
            again(&mut posting);
            return Ok(Restarting { posting, restart: None });
        }
        Kind::Running { back_end, places, hosts } => (back_end, places, hosts),
    };
    if recovery.time_left().is_some_and(|left| left.is_zero()) {
        let limit = posting.time_limit.unwrap_or_default().as_secs_f64();
        return no(
            format!("it has reached its time limit of {limit} s"),
            "run the program again, with a longer --time-limit",
        );
    }
    if *back_end == BackEnd::Application {
        // Its program begins again, in whatever shape it was asked for, and what it has run is behind it.
        posting.time_limit = recovery.time_left();
        again(&mut posting);
        return Ok(Restarting { posting, restart: None });
    }
    let Some(parts) = parts_of(places, hosts) else {
        return no(
            "its images are of several apinits with interleaved nodes",
            "run the program again on nodes of one apinit",
        );
    };
    let from = Key { apid: recovery.apid, incarnation: recovery.incarnation };
    let restored =
        |posting| Restarting { posting, restart: Some(Restart { from, run: recovery.run, parts }) };
    if let Oversubscribe::Shares(_) = posting.oversubscribe {
        let Some(posting) = shared_again(posting, places) else {
            return no(
                "its PEs shared processors (--oversubscribe), with different numbers of PEs or \
                 processors on its nodes",
                "run the program again",
            );
        };
        return Ok(restored(posting));
    }
    // One that is flexible has the node with fewer PEs anywhere, even where it has asked for so many on each.
    let says_all = posting.shape.per_node.is_some() && !posting.flexible;
    if !says_all && posting.layout.is_empty() {
        let layout = match Layout::of_places(places) {
            Ok(layout) => layout,
            Err(why) => return no(why, "run the program again"),
        };
        let even = |each: &u32| !posting.flexible || posting.shape.width.is_multiple_of(*each);
        posting.shape.per_node = layout.per_node().filter(even);
        if posting.shape.per_node.is_none() {
            posting.layout = layout;
        }
    }
    Ok(restored(posting))
}

/// What is executed once more shares as few processors as the machine of today makes it.
fn again(posting: &mut Posting) {
    if posting.oversubscribe != Oversubscribe::No {
        posting.oversubscribe = Oversubscribe::Allowed;
    }
}

/// The posting of PEs that shared processors, for as many PEs on as many processors of each node as they had.
/// `None`: `-N` can't say that.
fn shared_again(posting: Posting, had: &PlacementList) -> Option<Posting> {
    let (first, (last, but_last)) = (had.0.first()?, had.0.split_last()?);
    let processors = had.0.iter().map(Place::placed).sum();
    let sharing = Sharing { processors, per_node: Some(first.placed()) };
    let shape = Shape { per_node: Some(first.pes), ..posting.shape };
    let placed = |place: &Place| Place { pes: place.placed(), ..place.clone() };
    let given = PlacementList(had.0.iter().map(placed).collect());
    // (All nodes are alike, but for a last one with less.)
    let alike = but_last.iter().all(|p| (p.pes, p.placed()) == (first.pes, first.placed()));
    let oversubscribe = Oversubscribe::Shares(sharing);
    let same = alike
        && last.pes <= first.pes
        && !posting.flexible
        && sharing.spread(&shape, &given) == *had;
    same.then_some(Posting { shape, oversubscribe, ..posting })
}

/// How many nodes each of several hosts had, in the order of the places; none of one. `None`: what one of them
/// had is not together.
fn parts_of(places: &PlacementList, hosts: &[HostImages]) -> Option<Vec<u32>> {
    if hosts.len() < 2 {
        return Some(Vec::new());
    }
    let of = |nid: Nid| hosts.iter().position(|host| host.nids.contains(&nid));
    let mut runs: Vec<(usize, u32)> = Vec::new();
    for nid in places.nids() {
        let host = of(nid)?;
        match runs.iter().position(|(known, _)| *known == host) {
            None => runs.push((host, 1)),
            Some(at) if at + 1 == runs.len() => runs[at].1 += 1,
            Some(_) => return None,
        }
    }
    Some(runs.into_iter().map(|(_, nodes)| nodes).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apteam::layout::Row;
    use crate::checkpoint::example;
    use std::time::Duration;

    const NUMBER: [u8; 16] = [9; 16];

    fn refused(manifest: &Manifest) -> String {
        restarting(manifest, NUMBER).expect_err("refused").to_string()
    }

    /// PEs on each node, and what is asked for of them.
    fn shape_of(pes: &[u32], per_node: Option<u32>) -> (Shape, Vec<Row>) {
        let mut manifest = example();
        let Kind::Running { places, .. } = &mut manifest.kind else { unreachable!() };
        let place = |(nid, pes): (u32, &u32)| Place {
            nid: Nid(nid),
            processors: (0..*pes).collect(),
            pes: *pes,
        };
        *places = PlacementList((0..).zip(pes).map(place).collect());
        let width = pes.iter().sum();
        manifest.recovery.posting.shape = Shape { width, depth: 1, per_node };
        let posting = restarting(&manifest, NUMBER).expect("good").posting;
        (posting.shape, posting.layout.rows().to_vec())
    }

    #[test]
    fn a_posting_is_what_it_was() {
        let mut manifest = example();
        manifest.recovery.posting.immediate = true;
        let Restarting { posting, restart } = restarting(&manifest, NUMBER).expect("good");
        let shape = Shape { per_node: Some(1), ..manifest.recovery.posting.shape };
        let was = manifest.recovery.posting.clone();
        assert_eq!(posting, Posting { request_id: NUMBER, immediate: false, shape, ..was });
        let restart = restart.expect("it ran");
        assert_eq!((restart.from.to_string(), restart.run.as_millis()), ("12.1".into(), 900_500));
        // One that waited asks for what it asked for.
        manifest.kind = Kind::Waiting;
        let Restarting { posting, restart } = restarting(&manifest, NUMBER).expect("good");
        assert_eq!((posting.shape, restart), (manifest.recovery.posting.shape, None));
    }

    /// A program that saved itself is executed again, as it was asked for, in the time that is left.
    #[test]
    fn what_has_saved_itself_is_executed() {
        let mut saved = example();
        let Kind::Running { back_end, .. } = &mut saved.kind else { unreachable!() };
        *back_end = BackEnd::Application;
        saved.recovery.posting.shape.per_node = None;
        let was = saved.recovery.posting.clone();
        let found = restarting(&saved, NUMBER).expect("good");
        let time_limit = Some(Duration::from_millis(3_600_000 - 900_500));
        let posting = Posting { request_id: NUMBER, time_limit, ..was };
        assert_eq!(found, Restarting { posting, restart: None });
        saved.recovery.run = Duration::from_secs(3600);
        assert!(refused(&saved).contains("it has reached its time limit of 3600 s"));
    }

    #[test]
    fn the_shape_that_it_had_is_kept() {
        assert_eq!(shape_of(&[2, 2, 1], None).0.per_node, Some(2));
        assert_eq!(shape_of(&[3], None).0.per_node, Some(3));
        assert_eq!(shape_of(&[2, 2], Some(2)), shape_of(&[2, 2], None));
        let row = |nodes, pes| Row { nodes, pes, depth: 0 };
        let (shape, rows) = shape_of(&[1, 2, 2], None);
        assert_eq!((shape.per_node, rows), (None, vec![row(1, 1), row(2, 2)]));
    }

    #[test]
    fn pes_that_shared_processors_have_as_many_again() {
        let posted = |on: &[(u32, u32)]| {
            let mut manifest = example();
            let Kind::Running { places, hosts, .. } = &mut manifest.kind else { unreachable!() };
            let place = |(nid, (pes, processors)): (u32, &(u32, u32))| Place {
                nid: Nid(nid),
                processors: (0..*processors).collect(),
                pes: *pes,
            };
            *places = PlacementList((0..).zip(on).map(place).collect());
            hosts[0].nids = places.nids().collect();
            let posting = &mut manifest.recovery.posting;
            let width = on.iter().map(|(pes, _)| pes).sum();
            posting.shape = Shape { width, depth: 1, per_node: None };
            let processors = on.iter().map(|(_, processors)| processors).sum();
            posting.oversubscribe = Oversubscribe::Shares(Sharing { processors, per_node: None });
            manifest
        };
        let shared = |on: &[(u32, u32)]| {
            let posting = restarting(&posted(on), NUMBER).expect("good").posting;
            (posting.shape.per_node, posting.oversubscribe)
        };
        let sharing = |processors, per_node| {
            Oversubscribe::Shares(Sharing { processors, per_node: Some(per_node) })
        };
        assert_eq!(shared(&[(5, 2)]), (Some(5), sharing(2, 2)));
        assert_eq!(shared(&[(5, 2), (4, 2)]), (Some(5), sharing(4, 2)));
        assert_eq!(shared(&[(5, 2), (5, 2), (1, 1)]), (Some(5), sharing(5, 2)));
        let uneven = posted(&[(4, 2), (5, 2)]);
        assert!(refused(&uneven).contains(
            "with different numbers of PEs or processors on its \
                                           nodes"
        ));
        // One that waited is decided about anew.
        let waited = Manifest { kind: Kind::Waiting, ..uneven };
        let posting = restarting(&waited, NUMBER).expect("good").posting;
        assert_eq!(posting.oversubscribe, Oversubscribe::Allowed);
    }

    #[test]
    fn one_in_pieces_keeps_the_order_of_its_nodes() {
        let posted = |pes: &[u32], per_node| {
            let mut manifest = on_hosts(pes, &[&[0, 1, 2][..pes.len()]]);
            manifest.recovery.posting.shape.per_node = per_node;
            manifest.recovery.posting.flexible = true;
            let posting = restarting(&manifest, NUMBER).expect("good").posting;
            let rows = posting.layout.rows().iter().map(|row| (row.nodes, row.pes));
            (posting.shape.per_node, rows.collect::<Vec<_>>())
        };
        for asked in [None, Some(4)] {
            assert_eq!(posted(&[4, 1], asked), (None, vec![(1, 4), (1, 1)]));
            assert_eq!(posted(&[1, 4], asked), (None, vec![(1, 1), (1, 4)]));
            assert_eq!(posted(&[4, 4], asked), (Some(4), vec![]));
        }
    }

    /// PEs on each node, and which nodes were of which apinit.
    fn on_hosts(pes: &[u32], hosts: &[&[u32]]) -> Manifest {
        let mut manifest = example();
        let width = pes.iter().sum();
        manifest.recovery.posting.shape = Shape { width, depth: 1, per_node: None };
        let Kind::Running { places, hosts: parts, .. } = &mut manifest.kind else { unreachable!() };
        let place = |(nid, pes): (u32, &u32)| Place {
            nid: Nid(nid),
            processors: (0..*pes).collect(),
            pes: *pes,
        };
        *places = PlacementList((0..).zip(pes).map(place).collect());
        let part = |(n, nids): (usize, &&[u32])| HostImages {
            folder: Kind::folder(n),
            host_id: "n0".into(),
            nids: nids.iter().map(|nid| Nid(*nid)).collect(),
        };
        *parts = hosts.iter().enumerate().map(part).collect();
        manifest
    }

    #[test]
    fn each_part_comes_back_together() {
        let parts = |pes: &[u32], hosts: &[&[u32]]| {
            let restarting = restarting(&on_hosts(pes, hosts), NUMBER).expect("good");
            restarting.restart.expect("it ran").parts
        };
        assert_eq!(parts(&[2, 2, 1], &[&[0, 1, 2]]), [0; 0]);
        assert_eq!(parts(&[2, 2, 1], &[&[0], &[1, 2]]), [1, 2]);
        assert_eq!(parts(&[1, 1, 1, 1], &[&[0, 1], &[3], &[2]]), [2, 1, 1]);
    }

    #[test]
    fn what_can_not_be_restarted_says_why() {
        let among = on_hosts(&[1, 1, 1], &[&[0, 2], &[1]]);
        assert_eq!(
            refused(&among),
            "its images are of several apinits with interleaved nodes; run the program again on \
             nodes of one apinit"
        );
        let mut over = example();
        over.recovery.run = Duration::from_secs(3600);
        assert!(refused(&over).contains("it has reached its time limit of 3600 s"));
        over.recovery.posting.time_limit = None;
        assert!(restarting(&over, NUMBER).is_ok());
    }
}
