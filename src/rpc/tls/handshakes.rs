//! Handshakes that are under way, and which of them gives its place to a newcomer.
//!
//! Everybody may connect, and nobody is known before the handshake. Connections that say nothing must keep no host
//! out, also those from its own address: every user of a host has that. So a newcomer is always taken. If the places of
//! its address are full, the oldest handshake from there ends; if all are full, the oldest of the addresses that have
//! most. One on which nothing has been said yet goes before those on which something has.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// A place, by its number. None is used twice.
pub(super) type Id = u64;

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// Nothing has come.
    Silent,
    /// Something has.
    Speaks,
    /// The handshake is over, and the connection waits to be served. It keeps its place.
    Over,
}

#[derive(Debug)]
struct Shaking<T> {
    from: IpAddr,
    stage: Stage,
    /// What ends it.
    end: T,
}

/// All of them, by age.
#[derive(Debug)]
pub(super) struct Handshakes<T> {
    /// Of all addresses, and of one.
    most: (usize, usize),
    all: BTreeMap<Id, Shaking<T>>,
    next: Id,
}

impl<T> Handshakes<T> {
    /// None yet; so many of all addresses and of one.
    pub fn new(most: (usize, usize)) -> Handshakes<T> {
        Handshakes { most, all: BTreeMap::new(), next: 0 }
    }

    /// A place for a newcomer, and the address and the end of the one that had it. None: connections whose handshakes
    /// are over have all places.
    pub fn begin(&mut self, from: IpAddr, end: T) -> Option<(Id, Option<(IpAddr, T)>)> {
        let (all, one) = self.most;
        let own = self.all.values().filter(|shaking| shaking.from == from).count();
        let goes = if own >= one {
            Some(self.first_to_go(|address| address == from)?)
        } else if self.all.len() >= all {
            let fullest = self.fullest();
            Some(self.first_to_go(|address| fullest.contains(&address))?)
        } else {
            None
        };
        let gone = goes.and_then(|id| self.all.remove(&id));
        let id = self.next;
        self.next += 1;
        self.all.insert(id, Shaking { from, stage: Stage::Silent, end });
        Some((id, gone.map(|shaking| (shaking.from, shaking.end))))
    }

    /// Something has come.
    pub fn speaks(&mut self, id: Id) {
        self.at(id, Stage::Speaks);
    }

    /// The handshake is over.
    pub fn over(&mut self, id: Id) {
        self.at(id, Stage::Over);
    }

    fn at(&mut self, id: Id, stage: Stage) {
        if let Some(shaking) = self.all.get_mut(&id) {
            shaking.stage = stage;
        }
    }

    /// The connection is served or closed.
    pub fn gone(&mut self, id: Id) {
        self.all.remove(&id);
    }

    fn unfinished(&self) -> impl Iterator<Item = (Id, &Shaking<T>)> {
        let all = self.all.iter().map(|(id, shaking)| (*id, shaking));
        all.filter(|(_, shaking)| shaking.stage != Stage::Over)
    }

    fn first_to_go(&self, is_of: impl Fn(IpAddr) -> bool) -> Option<Id> {
        let own = self.unfinished().filter(|(_, shaking)| is_of(shaking.from));
        own.min_by_key(|(id, shaking)| (shaking.stage, *id)).map(|(id, _)| id)
    }

    /// The addresses with most of those that are not over.
    fn fullest(&self) -> BTreeSet<IpAddr> {
        let mut counts = BTreeMap::<IpAddr, usize>::new();
        self.unfinished().for_each(|(_, shaking)| *counts.entry(shaking.from).or_default() += 1);
        let most = counts.values().max().copied().unwrap_or(0);
        counts.into_iter().filter(|(_, count)| *count == most).map(|(from, _)| from).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(n: u8) -> IpAddr {
        [10, 0, 0, n].into()
    }

    /// Those that have begun, by their numbers, each of its address.
    fn begun(most: (usize, usize), from: &[u8]) -> (Handshakes<usize>, Vec<Id>) {
        let mut all = Handshakes::new(most);
        let begin = |(n, from): (usize, &u8)| {
            let (id, gone) = all.begin(address(*from), n).expect("a place");
            assert_eq!(gone, None);
            id
        };
        let ids = from.iter().enumerate().map(begin).collect();
        (all, ids)
    }

    #[test]
    fn the_oldest_of_an_address_gives_its_place_to_a_newcomer_from_there() {
        let (mut all, _) = begun((9, 2), &[2, 1, 1]);
        let (third, gone) = all.begin(address(1), 3).expect("a place");
        assert_eq!(gone, Some((address(1), 1)));
        assert_eq!(all.begin(address(1), 4).expect("a place").1, Some((address(1), 2)));
        all.gone(third);
        assert_eq!(all.begin(address(1), 5).expect("a place").1, None);
    }

    #[test]
    fn a_connection_that_says_nothing_goes_first() {
        let (mut all, ids) = begun((9, 3), &[1, 1, 1]);
        all.speaks(ids[0]);
        all.over(ids[1]);
        let gone = |all: &mut Handshakes<usize>, n| {
            let (id, gone) = all.begin(address(1), n)?;
            all.over(id);
            gone.map(|(_, n)| n)
        };
        assert_eq!(gone(&mut all, 3), Some(2));
        assert_eq!(gone(&mut all, 4), Some(0));
        // Whoever has shown a certificate waits to be served.
        assert_eq!(gone(&mut all, 5), None);
        assert_eq!(all.all.len(), 3);
    }

    #[test]
    fn a_full_house_has_room_for_another_address() {
        let (mut all, ids) = begun((4, 3), &[3, 1, 1, 2]);
        assert_eq!(all.begin(address(4), 4).expect("a place").1, Some((address(1), 1)));
        // Of addresses that have as many each the one that says nothing goes, whatever its number.
        all.speaks(ids[3]);
        all.over(ids[1]);
        all.over(ids[0]);
        assert_eq!(all.begin(address(9), 9).expect("a place").1, Some((address(1), 2)));
        ids.iter().for_each(|id| all.over(*id));
        assert_eq!(all.begin(address(5), 5).expect("a place").1, Some((address(4), 4)));
    }
}
