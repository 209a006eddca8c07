//! Promises 1 and 3 (and of 2 that nobody is frozen for longer than turns take), and "nothing runs that
//! no record names": who runs where. That no gang runs in part is looked at in `parts.rs`.

use super::Checks;
use crate::apteam::Key;
use crate::apteam::record::State;
use crate::torture::MS;
use crate::torture::host::{Proc, ProcId};
use crate::torture::store::Disk;

impl Checks {
    /// A process runs instructions of the user's from now on, until it is frozen or no more.
    pub fn occupies(&mut self, now: u64, host: usize, id: ProcId, proc: &Proc) {
        self.now = now;
        let apid = proc.key.apid;
        for cpu in &proc.cpus {
            let (who, count) = self.busy.entry((host, *cpu)).or_insert((apid, 0));
            if *who != apid && *count > 0 {
                let text = format!(
                    "processor {cpu} of host {host} runs application {who}, and now {apid} too"
                );
                return self.broken(text);
            }
            *who = apid;
            *count += 1;
        }
        self.host_of.insert(id, (host, proc.cpus.clone()));
    }

    /// A process begins, or would if it were not frozen.
    pub fn begins(&mut self, now: u64, disk: &Disk, host: usize, proc: &Proc) {
        self.now = now;
        let (key, apid) = (proc.key, proc.key.apid);
        let Some(rank) = proc.rank else { return };
        let recorded = disk.teams.get(&apid);
        if recorded.is_none_or(|t| t.key() != key || !t.state.holds_processors()) {
            let found = recorded.map(|t| (t.key().to_string(), t.state.name()));
            let text =
                format!("a PE of {key} runs on NID {}, and the record is {found:?}", proc.nid);
            return self.broken(text);
        }
        debug_assert!(recorded.is_some_and(|t| t.state != State::Ended));
        let life = self.courses.get(&apid).and_then(|c| self.lives.get(&c.front));
        let Some((shape, flexible)) = life.map(|l| (l.posting.shape, l.posting.flexible)) else {
            return self.broken(format!("a PE of {key} runs that nobody posted"));
        };
        if proc.cpus.len() != shape.depth as usize {
            let text =
                format!("PE {rank} of {key} has processors {:?}, depth {}", proc.cpus, shape.depth);
            return self.broken(text);
        }
        let course = self.course(apid);
        if course.incarnation != 0 && course.incarnation != key.incarnation.0 {
            let text = format!("{key} runs, and incarnation {} ran before", course.incarnation);
            return self.broken(text);
        }
        course.incarnation = key.incarnation.0;
        if course.ran.insert(rank, (proc.nid, host)).is_some() {
            return self.broken(format!("PE {rank} of {key} runs a second time"));
        }
        if course.ran.len() == shape.width as usize {
            let mut nids: Vec<u32> = course.ran.values().map(|(nid, _)| nid.0).collect();
            let per_node = shape.per_node;
            let most = nids.chunk_by(|a, b| a == b).map(<[u32]>::len).max().unwrap_or(0);
            nids.dedup();
            // (Ranks go up in any case.)
            if nids.windows(2).any(|w| w[1] <= w[0] || !flexible && w[1] != w[0] + 1) {
                return self
                    .broken(format!("{key} runs on NIDs {nids:?}, which are not contiguous"));
            }
            if per_node.is_some_and(|n| most > n as usize) {
                self.broken(format!("{key} has {most} PEs on a node, and asked for {per_node:?}"));
            }
        }
    }

    /// A process is no more, or is frozen.
    pub fn leaves(&mut self, id: ProcId) {
        let Some((host, cpus)) = self.host_of.remove(&id) else { return };
        for cpu in cpus {
            if let Some((_, count)) = self.busy.get_mut(&(host, cpu)) {
                *count -= 1;
            }
        }
    }

    /// How many applications have begun to run, and how many have ended.
    pub fn changes(&self) -> u64 {
        self.courses.values().map(|c| u64::from(!c.ran.is_empty()) + u64::from(c.ended)).sum()
    }

    /// A gang that was frozen since then is let run again. `bound`: how long that may take at most, when
    /// nothing disturbs.
    pub fn thawed(&mut self, now: u64, key: Key, since: u64, bound: u64) {
        self.now = now;
        if now.saturating_sub(since) > bound {
            self.broken(format!(
                "{key} was frozen for {} ms, and turns take at most {} ms",
                (now - since) / MS,
                bound / MS
            ));
        }
    }
}
