//! What is posted of a checkpoint, and which can't be.
//!
//! Whoever restarts an application shows psched its manifest and nothing else. All of the posting is made of
//! the recovery information in there, which psched has sealed: what somebody writes into his request can't
//! widen it, lengthen its time limit or take it to another account.
//!
//! An application that ran keeps its shape. Its images are of so many PEs on its first node, so many on its
//! second; where nothing but its width was asked for, that is asked for now:
//!
//! ```
//! # use psched::checkpoint::{example, restarting};
//! let mut manifest = example();
//! manifest.recovery.posting.shape.per_node = None;
//! let posting = restarting(&manifest, [1; 16]).unwrap().posting;
//! assert_eq!(posting.shape.per_node, Some(1));
//! ```

use super::{BackEnd, Kind, Manifest};
use crate::apteam::Key;
use crate::apteam::layout::Layout;
use crate::apteam::posting::{Explanation, Posting};
use crate::apteam::talk::node::Restart;

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
        Kind::Waiting => return Ok(Restarting { posting, restart: None }),
        Kind::Running { back_end, places, hosts } => (back_end, places, hosts),
    };
    if recovery.time_left().is_some_and(|left| left.is_zero()) {
        let limit = posting.time_limit.unwrap_or_default().as_secs_f64();
        return no(
            format!("it has used up its time limit of {limit} s"),
            "run the program again, with a longer --time-limit",
        );
    }
    if *back_end == BackEnd::Application {
        // Its program begins again, in whatever shape it was asked for, and what it has run is behind it.
        posting.time_limit = recovery.time_left();
        return Ok(Restarting { posting, restart: None });
    }
    if hosts.len() != 1 {
        return no(
            format!(
                "its images are of {} hosts, and this psched restarts applications of one",
                hosts.len()
            ),
            "run the program again, on nodes of one host",
        );
    }
    if posting.shape.per_node.is_none() && posting.layout.is_empty() {
        let layout = match Layout::of_places(places) {
            Ok(layout) => layout,
            Err(why) => return no(why, "run the program again"),
        };
        match layout.per_node() {
            Some(each) => posting.shape.per_node = Some(each),
            None => posting.layout = layout,
        }
    }
    let from = Key { apid: recovery.apid, incarnation: recovery.incarnation };
    Ok(Restarting { posting, restart: Some(Restart { from, run: recovery.run }) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apteam::layout::Row;
    use crate::apteam::place::{Place, PlacementList};
    use crate::apteam::posting::Shape;
    use crate::checkpoint::{HostImages, example};
    use crate::machine::Nid;
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
        assert!(refused(&saved).contains("it has used up its time limit of 3600 s"));
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
    fn what_can_not_be_restarted_says_why() {
        let mut wide = example();
        let Kind::Running { hosts, .. } = &mut wide.kind else { unreachable!() };
        hosts.push(HostImages { folder: "host-1".into(), ..hosts[0].clone() });
        assert_eq!(
            refused(&wide),
            "its images are of 2 hosts, and this psched restarts applications of one; run the program \
             again, on nodes of one host"
        );
        let mut over = example();
        over.recovery.run = Duration::from_secs(3600);
        assert!(refused(&over).contains("it has used up its time limit of 3600 s"));
        over.recovery.posting.time_limit = None;
        assert!(restarting(&over, NUMBER).is_ok());
    }
}
