//! Output: what PEs wrote comes to aprun's stdout once, whole and in order. And what was typed to
//! PE 0.

use super::Checks;
use crate::apteam::protocol::attach::Output;
use crate::apteam::{Apid, Key};
use crate::torture::program;
use std::collections::BTreeMap;

/// What aprun has written out of each rank.
#[derive(Clone, Debug, Default)]
pub struct Shown(pub(super) BTreeMap<u32, u64>);

impl Shown {
    /// Bytes of a rank.
    pub fn of(&self, rank: u32) -> u64 {
        self.0.get(&rank).copied().unwrap_or(0)
    }
}

impl Checks {
    /// A PE has written.
    pub fn wrote(&mut self, key: Key, rank: u32, count: u64) {
        let course = self.course(key.apid);
        *course.wrote.entry(rank).or_default() += count;
        course.stream.push((rank, count));
    }

    /// PE 0 is given this to read.
    pub fn read(&mut self, key: Key, data: &[u8]) {
        let course = self.course(key.apid);
        let from = course.read;
        course.read += data.len() as u64;
        let same = |i: usize| data.get(i) == Some(&program::byte(program::STDIN, from + i as u64));
        if data.is_empty() || ![0, data.len() - 1].into_iter().all(same) {
            self.broken(format!("PE 0 of {key} reads from {from} what was not typed there"));
        }
    }

    /// PE 0 has come to the end of its stdin.
    pub fn read_all(&mut self, key: Key) {
        let read = self.course(key.apid).read;
        let front = self.course(key.apid).front;
        let typed = self.plan(front).map_or(0, |plan| plan.stdin);
        if read != typed {
            self.broken(format!("PE 0 of {key} has read {read} bytes, and {typed} were typed"));
        }
    }

    /// aprun writes a piece out.
    pub fn shown(&mut self, apid: Option<Apid>, output: &Output) {
        let Some(apid) = apid else { return self.broken("output of no application".into()) };
        let rank = output.rank;
        let course = self.course(apid);
        let from = course.shown.of(rank);
        let wrote = course.wrote.get(&rank).copied().unwrap_or(0);
        let end = from + output.data.len() as u64;
        course.shown.0.insert(rank, end);
        let ends = [0, output.data.len().saturating_sub(1)];
        let same = |i: usize| output.data.get(i) == Some(&program::byte(rank, from + i as u64));
        if end > wrote || !ends.into_iter().all(same) {
            self.broken(format!(
                "aprun of {apid} shows bytes {from} to {end} of PE {rank}, which wrote {wrote}, and \
                 they are not those"
            ));
        }
    }
}
