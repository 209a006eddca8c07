//! Long lists of nodes as runs of nodes that follow each other and are alike, so that what is written of an
//! application grows with its runs, and not with its nodes.
//!
//! A list stands in a message either as it is or as runs; whoever reads takes both, and what was written by a
//! release before has no runs.

use super::{Field, Malformed, NODES_MAX};
use crate::apteam::ending::HostEnd;
use crate::apteam::place::{HostPart, Place, PlacementList};
use crate::machine::Nid;
use crate::rpc::pb;

/// Places as runs.
pub fn place_runs(list: &PlacementList) -> Vec<pb::PlaceRun> {
    let follows = |one: &Place, next: &Place| {
        one.nid.0.checked_add(1) == Some(next.nid.0)
            && (one.pes, &one.processors) == (next.pes, &next.processors)
    };
    let run = |alike: &[Place]| pb::PlaceRun {
        first_nid: alike[0].nid.0,
        nodes: alike.len() as u32,
        processors: alike[0].processors.clone(),
        pes: alike[0].pes,
    };
    list.0.chunk_by(follows).map(run).collect()
}

/// The placement list of a message, which has either of the two. Runs of a few bytes may be any placement that
/// psched can have: psched alone writes them, to its store and to front ends, and it has held the same list itself.
///
/// # Errors
/// A place is malformed, or there are too many.
pub fn places_of(
    places: Vec<pb::Place>,
    runs: Vec<pb::PlaceRun>,
) -> Result<PlacementList, Malformed> {
    if runs.is_empty() {
        return super::placement_list(places);
    }
    let of = |field| Field("PlaceRun", field);
    if !places.is_empty() {
        return of("nodes").wrong("there are places beside the runs");
    }
    let nodes = runs.iter().map(|run| u64::from(run.nodes)).sum();
    of("nodes").between(nodes, 1, NODES_MAX as u64)?;
    let mut all = Vec::with_capacity(nodes as usize);
    for pb::PlaceRun { first_nid, nodes, processors, pes } in runs {
        of("nodes").between(nodes, 1, NODES_MAX as u32)?;
        let Some(last) = first_nid.checked_add(nodes - 1) else {
            return of("nodes").wrong(format_args!("there are not {nodes} from {first_nid} on"));
        };
        let first: Place = pb::Place { nid: first_nid, processors, pes }.try_into()?;
        all.extend((first_nid..=last).map(|nid| Place { nid: Nid(nid), ..first.clone() }));
    }
    Ok(PlacementList(all.into()))
}

/// An apinit's part, its nodes as runs.
pub fn host_with_runs(host: &HostPart) -> pb::HostPart {
    let HostPart { nids, socket, host_id, host, address } = host.clone();
    pb::HostPart { nids: Vec::new(), nid_runs: nid_runs(&nids), socket, host_id, host, address }
}

/// An end, its nodes as runs.
pub fn end_with_runs(end: &HostEnd) -> pb::HostEnd {
    let (nid_runs, lost_runs) = (nid_runs(&end.nids), nid_runs(&end.lost));
    let end = HostEnd { nids: Vec::new(), lost: Vec::new(), ..end.clone() };
    pb::HostEnd { nid_runs, lost_runs, ..end.into() }
}

/// Pairs of a first NID and how many follow each other from there.
fn nid_runs(nids: &[Nid]) -> Vec<u32> {
    let runs = nids.chunk_by(|one, next| one.0.checked_add(1) == Some(next.0));
    runs.flat_map(|run| [run[0].0, run.len() as u32]).collect()
}

/// The nodes of a message that has them as a list or as runs.
pub(super) fn nids_of(of: Field, nids: Vec<u32>, runs: &[u32]) -> Result<Vec<Nid>, Malformed> {
    let (pairs, odd) = runs.as_chunks::<2>();
    if !odd.is_empty() || !nids.is_empty() && !pairs.is_empty() {
        return of.wrong("runs that are not pairs, or stand beside a list");
    }
    of.bounded(pairs, NODES_MAX)?;
    let all = pairs.iter().map(|[_, count]| u64::from(*count)).sum();
    of.between(all, 0, NODES_MAX as u64)?;
    of.bounded(&nids, NODES_MAX)?;
    let mut all: Vec<Nid> = nids.into_iter().map(Nid).collect();
    for [first, count] in pairs {
        match count.checked_sub(1).map(|more| first.checked_add(more)) {
            Some(Some(last)) => all.extend((*first..=last).map(Nid)),
            Some(None) => return of.wrong(format_args!("there are not {count} from {first} on")),
            None => return of.wrong("a run of no node"),
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn place(nid: u32, processors: &[u32], pes: u32) -> Place {
        Place { nid: Nid(nid), processors: processors.to_vec(), pes }
    }

    #[test]
    fn a_million_nodes_that_are_alike_are_a_few_bytes_and_can_be_read_again() {
        use prost::Message;
        let nodes = 1_000_000;
        let all = PlacementList((0..nodes).map(|nid| place(nid, &[0, 1], 2)).collect());
        let runs = place_runs(&all);
        assert_eq!(runs.len(), 1);
        assert!(runs[0].encoded_len() < 32);
        assert_eq!(places_of(vec![], runs), Ok(all));
        let host = HostPart {
            nids: (0..nodes).map(Nid).collect(),
            socket: "s".into(),
            ..Default::default()
        };
        let wire = host_with_runs(&host);
        assert!(wire.encoded_len() < 32);
        assert_eq!(HostPart::try_from(wire), Ok(host));
    }

    #[test]
    fn what_a_few_bytes_can_ask_for_is_bounded() {
        let run = |first_nid, nodes, processors: usize| {
            let processors = vec![7; processors];
            pb::PlaceRun { first_nid, nodes, processors, pes: 1 }
        };
        let why = |runs: Vec<pb::PlaceRun>| {
            places_of(vec![], runs).expect_err("it is refused").to_string()
        };
        let said = [
            why(vec![run(0, u32::MAX, 0)]),
            why(vec![run(0, 1 << 20, 0), run(0, 1, 0)]),
            why(vec![run(u32::MAX, 2, 1)]),
            why(vec![run(0, 1, 1), run(0, 0, 1)]),
        ];
        assert_eq!(
            said,
            [
                "PlaceRun.nodes: 4294967295 is too large, at most 1048576 is allowed",
                "PlaceRun.nodes: 1048577 is too large, at most 1048576 is allowed",
                "PlaceRun.nodes: there are not 2 from 4294967295 on",
                "PlaceRun.nodes: 0 is too small, at least 1 is needed",
            ]
        );
        let nids =
            |runs: &[u32]| nids_of(Field("HostPart", "nids"), vec![], runs).map(|nids| nids.len());
        assert_eq!((nids(&[3, 2, 9, 1]), nids(&[u32::MAX, 1])), (Ok(3), Ok(1)));
        assert!(
            nids(&[3]).is_err() && nids(&[0, u32::MAX]).is_err() && nids(&[u32::MAX, 2]).is_err()
        );
        assert!(nids_of(Field("HostPart", "nids"), vec![1], &[3, 2]).is_err());
    }

    proptest! {
        #[test]
        fn runs_are_the_same_list(
            list in prop::collection::vec((0u32..12, prop::collection::vec(0u32..3, 1..3)), 1..20)
        ) {
            let all = list.iter().map(|(nid, processors)| {
                place(*nid, processors, processors.len() as u32)
            });
            let all = PlacementList(all.collect());
            let runs = place_runs(&all);
            prop_assert!(runs.len() <= all.0.len());
            prop_assert_eq!(places_of(vec![], runs), Ok(all.clone()));
            let host = HostPart { nids: all.nids().collect(), ..HostPart::default() };
            prop_assert_eq!(HostPart::try_from(host_with_runs(&host)), Ok(host.clone()));
            let end = HostEnd { lost: host.nids.clone(), nids: host.nids, ..HostEnd::default() };
            prop_assert_eq!(HostEnd::try_from(end_with_runs(&end)), Ok(end));
        }
    }
}
