//! Which of an application's processors each of its PEs is bound to (`-cc`).
//!
//! The placement list says which processors of a node an application has there, `depth` for each PE.
//! They are the application's: how its PEs share them is for its user to say, and takes no part in
//! placement. [`Binding::sets`] is the whole of it: placed processors in, a set for each PE out. Each
//! apinit works it out for its own nodes and gives each PE's set to its apshepherd, which need not know
//! what it comes from, and may be older than a kind of binding.
//!
//! A list counts the processors that the application has on the node, so that the same list means the
//! same on each node, wherever there was room:
//!
//! ```
//! use psched_pure::apteam::binding::{Binding, Lists};
//! // -d 2 -cc 0-1:3, on a node where the application was given processors 4 to 7:
//! let binding = Binding::Lists(Lists::new(vec![vec![(0, 1)], vec![(3, 3)]]).unwrap());
//! let sets: Vec<_> = binding.sets(&[4, 5, 6, 7], 2, 2, |_| None).unwrap().collect();
//! assert_eq!(sets, [vec![4, 5], vec![7]]);
//! ```

use super::place::{self, PlacementList};
use super::shape::Shape;
use std::collections::BTreeMap;
use std::fmt;

/// The most lists, as many as a node can have PEs.
pub const LISTS_MAX: usize = 4096;
/// The most numbers and ranges in all lists.
pub const RANGES_MAX: usize = 65_536;
/// The highest number in a list: a node has no more processors.
pub const NUMBER_MAX: u32 = 4095;

/// How PEs are bound to processors.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Binding {
    /// What holds where the user says nothing: each PE to its own processors, or to none where PEs share processors. (If
    /// each of those is bound, the kernel can't balance PEs with more threads against PEs with fewer. Other launchers
    /// don't bind them either.)
    #[default]
    Usual,
    /// Each PE to its own processors.
    Cpu,
    /// The same, said by who wants its threads to float among them.
    Depth,
    /// Each PE to those processors of the application on its node that lie in the NUMA node of its own
    /// first one.
    NumaNode,
    /// Not at all.
    None,
    /// By PE on each node.
    Lists(Lists),
}

impl Binding {
    /// About how many bytes of memory it takes.
    pub fn footprint(&self) -> usize {
        let Binding::Lists(Lists(lists)) = self else { return 0 };
        lists.iter().map(|list| 48 + list.len() * size_of::<(u32, u32)>()).sum()
    }
}

/// Explicit lists: the first one is for the first PE on each node, and so on. A PE beyond the last
/// list begins again with the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lists(Vec<Vec<(u32, u32)>>);

/// A list names a processor that the application does not have there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beyond {
    /// Which list, counted from 1.
    pub list: usize,
    /// The number in it.
    pub number: u32,
}

impl Beyond {
    /// The same for the user: how many processors there are, and `place` says where.
    fn explain(self, processors: u64, place: impl fmt::Display) -> String {
        let Beyond { list, number } = self;
        let numbers = match processors {
            0 | 1 => "1 processor, number 0,".to_owned(),
            n => format!("{n} processors, numbers 0 to {},", n - 1),
        };
        format!(
            "-cc: list {list} names processor {number}, and the application has {numbers} {place}: \
             name one of those, or ask for more (-n, -N, -d)"
        )
    }
}

impl Lists {
    /// Lists of first and last numbers; an empty list does not bind. In which order a list has its
    /// numbers means nothing: they are a set.
    ///
    /// # Errors
    /// There is none, there are too many, or a number is too high; in words.
    pub fn new(lists: Vec<Vec<(u32, u32)>>) -> Result<Lists, String> {
        if lists.is_empty() || lists.len() > LISTS_MAX {
            return Err(format!("the binding has {} lists: give 1 to {LISTS_MAX}", lists.len()));
        }
        let ranges: usize = lists.iter().map(Vec::len).sum();
        if ranges > RANGES_MAX {
            return Err(format!(
                "the lists have {ranges} numbers and ranges: give at most {RANGES_MAX}"
            ));
        }
        Ok(Lists(lists.into_iter().map(in_order).collect::<Result<_, _>>()?))
    }

    /// The lists, each with its ranges (first and last number) in order and apart.
    pub fn ranges(&self) -> &[Vec<(u32, u32)>] {
        &self.0
    }

    /// The list of a PE, which is the `pe`th on its node from 0.
    fn of(&self, pe: usize) -> &[(u32, u32)] {
        self.0.get(pe % self.0.len().max(1)).map_or(&[], Vec::as_slice)
    }

    /// Whether so many PEs on a node, which have so many processors there, have all that their lists
    /// name.
    fn check(&self, pes: u64, processors: u64) -> Result<(), Beyond> {
        let used = usize::try_from(pes).unwrap_or(usize::MAX).min(self.0.len());
        for (index, list) in self.0.iter().enumerate().take(used) {
            let beyond = list.iter().find(|(_, last)| u64::from(*last) >= processors);
            if let Some((first, _)) = beyond {
                let missing = u32::try_from(processors).unwrap_or(u32::MAX);
                return Err(Beyond { list: index + 1, number: missing.max(*first) });
            }
        }
        Ok(())
    }
}

/// A list's ranges, sorted, and joined where they meet.
fn in_order(mut list: Vec<(u32, u32)>) -> Result<Vec<(u32, u32)>, String> {
    list.sort_unstable();
    let mut joined: Vec<(u32, u32)> = Vec::new();
    for (first, last) in list {
        if first > last || last > NUMBER_MAX {
            return Err(format!(
                "{first}-{last}: a list counts processors of a node from 0, up to {NUMBER_MAX}"
            ));
        }
        match joined.last_mut() {
            Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
            _ => joined.push((first, last)),
        }
    }
    Ok(joined)
}

impl Binding {
    /// The processors of each PE on a node, where the application has the `placed` ones, `depth` for
    /// each of its PEs; if that are too few, PEs share them in turn. An empty set: this one is not bound. `numa` gives the NUMA node of one of
    /// them; those for which it gives none are one NUMA node.
    ///
    /// # Errors
    /// A list names one that is not there.
    pub fn sets<'a>(
        &'a self,
        placed: &'a [u32],
        pes: u32,
        depth: u32,
        numa: impl Fn(u32) -> Option<u32> + 'a,
    ) -> Result<impl Iterator<Item = Vec<u32>> + 'a, Beyond> {
        if let Binding::Lists(lists) = self {
            lists.check(pes.into(), placed.len() as u64)?;
        }
        let mut together: BTreeMap<Option<u32>, Vec<u32>> = BTreeMap::new();
        if *self == Binding::NumaNode {
            placed.iter().for_each(|p| together.entry(numa(*p)).or_default().push(*p));
        }
        let depth = depth.max(1) as usize;
        let own = move |pe: usize| place::own(placed, pe, depth);
        Ok((0..pes as usize).map(move |pe| match self {
            Binding::Usual if placed.len() < pes as usize => Vec::new(),
            Binding::Usual | Binding::Cpu | Binding::Depth => own(pe).collect(),
            Binding::NumaNode => {
                let first = own(pe).next();
                first.and_then(|p| together.get(&numa(p))).cloned().unwrap_or_default()
            }
            Binding::None => Vec::new(),
            Binding::Lists(lists) => {
                let numbers = lists.of(pe).iter().flat_map(|(first, last)| *first..=*last);
                numbers.filter_map(|n| placed.get(n as usize).copied()).collect()
            }
        }))
    }

    /// Whether every PE of this placement can be bound so.
    ///
    /// # Errors
    /// It can't; for the user.
    pub fn fits(&self, places: &PlacementList) -> Result<(), String> {
        let Binding::Lists(lists) = self else { return Ok(()) };
        for place in places.0.iter() {
            let processors = place.processors.len() as u64;
            lists.check(place.pes.into(), processors).map_err(|beyond| {
                beyond.explain(processors, format_args!("on NID {}", place.nid))
            })?;
        }
        Ok(())
    }

    /// Whether there can be a placement of this shape that it fits.
    ///
    /// # Errors
    /// There can't; for the user.
    pub fn fits_shape(&self, shape: &Shape) -> Result<(), String> {
        let Binding::Lists(lists) = self else { return Ok(()) };
        // An application has a node with so many PEs, whatever the others have; with more only if the
        // shape is left open.
        let least = shape.per_node.map_or(1, |n| n.min(shape.width));
        let most = u64::from(shape.per_node.unwrap_or(shape.width).min(shape.width));
        let processors = most.saturating_mul(shape.depth.into());
        lists
            .check(least.into(), processors)
            .map_err(|beyond| beyond.explain(processors, "on a node at most"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::place::Place;
    use super::*;
    use crate::machine::Nid;
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// Processors 10, 11, ... of a machine where each three are a NUMA node.
    fn placed(pes: u32, depth: u32) -> Vec<u32> {
        (10..10 + pes * depth).collect()
    }

    fn domain(processor: u32) -> Option<u32> {
        Some(processor / 3)
    }

    fn sets(binding: &Binding, pes: u32, depth: u32) -> Result<Vec<Vec<u32>>, Beyond> {
        let placed = placed(pes, depth);
        binding.sets(&placed, pes, depth, domain).map(Iterator::collect)
    }

    fn lists(lists: &[&[(u32, u32)]]) -> Binding {
        Binding::Lists(Lists::new(lists.iter().map(|l| l.to_vec()).collect()).expect("good"))
    }

    /// Every small shape against what the manual says of each kind.
    #[test]
    fn each_kind_gives_each_pe_its_set() {
        for (pes, depth) in (1..6).flat_map(|pes| (1..5).map(move |depth| (pes, depth))) {
            let own = |pe: u32| (10 + pe * depth..10 + (pe + 1) * depth).collect::<Vec<u32>>();
            let owned: Vec<Vec<u32>> = (0..pes).map(own).collect();
            for binding in [Binding::Usual, Binding::Cpu, Binding::Depth] {
                assert_eq!(sets(&binding, pes, depth).as_ref(), Ok(&owned));
            }
            assert_eq!(sets(&Binding::None, pes, depth), Ok(vec![vec![]; pes as usize]));
            let near = |pe: u32| {
                let all = placed(pes, depth);
                all.into_iter().filter(|p| domain(*p) == domain(10 + pe * depth)).collect()
            };
            let expected: Vec<Vec<u32>> = (0..pes).map(near).collect();
            assert_eq!(sets(&Binding::NumaNode, pes, depth), Ok(expected));
            // A host that does not say is one NUMA node.
            let placed = placed(pes, depth);
            let unknown = Binding::NumaNode.sets(&placed, pes, depth, |_| None);
            let unknown: Vec<Vec<u32>> = unknown.expect("no lists").collect();
            assert_eq!(unknown, vec![placed.clone(); pes as usize]);
        }
    }

    #[test]
    fn pes_that_share_processors_are_bound_to_none_as_a_rule() {
        let usual = |processors: u32, pes: u32| -> Vec<Vec<u32>> {
            let placed = placed(processors, 1);
            Binding::Usual.sets(&placed, pes, 1, domain).expect("no lists").collect()
        };
        assert_eq!(usual(2, 5), vec![Vec::<u32>::new(); 5]);
        assert_eq!(usual(2, 2), [[10], [11]]);
    }

    #[test]
    fn lists_count_what_the_application_has_there() {
        let first = lists(&[&[(0, 0)], &[(3, 3), (1, 1)], &[]]);
        let expected = vec![vec![10], vec![11, 13], vec![], vec![10], vec![11, 13]];
        assert_eq!(sets(&first, 5, 1), Ok(expected));
        // A list that no PE has may name what it likes.
        assert_eq!(sets(&first, 1, 1), Ok(vec![vec![10]]));
        assert_eq!(sets(&first, 2, 1), Err(Beyond { list: 2, number: 3 }));
        let range = lists(&[&[(1, 9)]]);
        assert_eq!(sets(&range, 2, 2), Err(Beyond { list: 1, number: 4 }));
    }

    #[test]
    fn lists_are_bounded() {
        let said = |lists| Lists::new(lists).expect_err("refused");
        assert_eq!(said(vec![]), "the binding has 0 lists: give 1 to 4096");
        assert_eq!(said(vec![vec![]; 4097]), "the binding has 4097 lists: give 1 to 4096");
        let many = vec![vec![(0, 0); 40_000]; 2];
        assert_eq!(said(many), "the lists have 80000 numbers and ranges: give at most 65536");
        let high = "0-4096: a list counts processors of a node from 0, up to 4095";
        assert_eq!(said(vec![vec![(0, 4096)]]), high);
        assert!(said(vec![vec![(2, 1)]]).starts_with("2-1: "));
        // What is said twice counts once.
        let same = Lists::new(vec![vec![(4, 5), (0, 2), (1, 3), (9, 9)]]).expect("good");
        assert_eq!(same.ranges(), [[(0, 5), (9, 9)]]);
    }

    #[test]
    fn what_does_not_fit_is_explained() {
        let place = |nid, pes: u32| Place { nid: Nid(nid), processors: placed(pes, 2), pes };
        let places = PlacementList([place(3, 2), place(4, 1)].into());
        let binding = lists(&[&[(2, 3)], &[(0, 0)]]);
        assert_eq!(
            binding.fits(&places),
            Err("-cc: list 1 names processor 2, and the application has 2 processors, numbers 0 to \
                 1, on NID 4: name one of those, or ask for more (-n, -N, -d)"
                .into())
        );
        assert_eq!(lists(&[&[(0, 1)], &[(2, 3)]]).fits(&places), Ok(()));
        assert_eq!(Binding::NumaNode.fits(&places), Ok(()));
        let shape = |width, per_node| Shape { width, depth: 1, per_node };
        assert_eq!(binding.fits_shape(&shape(4, None)), Ok(()));
        assert_eq!(
            binding.fits_shape(&shape(1, None)),
            Err("-cc: list 1 names processor 2, and the application has 1 processor, number 0, on a \
                 node at most: name one of those, or ask for more (-n, -N, -d)"
                .into())
        );
        assert!(binding.fits_shape(&shape(8, Some(3))).is_err_and(|e| e.contains("processor 3,")));
        // How many PEs are on a node is not known: that the second list is used is not, either.
        assert_eq!(lists(&[&[(0, 0)], &[(9, 9)]]).fits_shape(&shape(4, None)), Ok(()));
        assert!(lists(&[&[(0, 0)], &[(9, 9)]]).fits_shape(&shape(4, Some(2))).is_err());
    }

    proptest! {
        /// Whatever is asked for: a PE for each, none has what the application has not, and what does
        /// not fit is refused and not made to fit.
        #[test]
        fn sets_are_of_the_applications_processors(
            kind in 0..5usize,
            wanted in vec(vec((0..40u32, 0..4u32), 0..4), 1..6),
            pes in 1..9u32,
            depth in 1..5u32,
        ) {
            let wanted: Vec<Vec<(u32, u32)>> = wanted
                .into_iter()
                .map(|list| list.into_iter().map(|(first, more)| (first, first + more)).collect())
                .collect();
            let binding = match kind {
                0 => Binding::Cpu,
                1 => Binding::Depth,
                2 => Binding::NumaNode,
                3 => Binding::None,
                _ => Binding::Lists(Lists::new(wanted.clone()).expect("small")),
            };
            let list = |pe: usize| &wanted[pe % wanted.len()];
            let highest = (0..pes as usize).flat_map(list).map(|(_, last)| *last).max();
            let fits = kind < 4 || highest.is_none_or(|n| n < pes * depth);
            let place = Place { nid: Nid(0), processors: placed(pes, depth), pes };
            prop_assert_eq!(binding.fits(&PlacementList([place].into())).is_ok(), fits);
            let shape = Shape { width: pes, depth, per_node: Some(pes) };
            prop_assert_eq!(binding.fits_shape(&shape).is_ok(), fits);
            let Ok(sets) = sets(&binding, pes, depth) else {
                prop_assert!(!fits);
                return Ok(());
            };
            prop_assert!(fits);
            prop_assert_eq!(sets.len(), pes as usize);
            for (pe, set) in sets.iter().enumerate() {
                prop_assert!(set.is_sorted_by(|a, b| a < b));
                prop_assert!(set.iter().all(|p| (10..10 + pes * depth).contains(p)));
                let named = |n: u32| list(pe).iter().any(|(a, b)| (*a..=*b).contains(&n));
                match kind {
                    3 => prop_assert!(set.is_empty()),
                    4 => {
                        let expected = (0..pes * depth).filter(|n| named(*n)).map(|n| n + 10);
                        prop_assert_eq!(set, &expected.collect::<Vec<u32>>());
                    }
                    _ => prop_assert!(set.contains(&(10 + pe as u32 * depth))),
                }
            }
        }
    }
}
