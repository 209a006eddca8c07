//! The true status: the one that the real ends of its PEs imply.

use super::Checks;
use crate::apteam::Apid;
use crate::torture::MS;

impl Checks {
    /// An application was recorded as ended with this status.
    pub(super) fn check_status(&mut self, apid: Apid, status: u8) {
        let Some(course) = self.courses.get(&apid) else { return };
        let Some(life) = self.lives.get(&course.front) else { return };
        let width = life.posting.shape.width;
        let bad: Vec<(u64, u8)> = course
            .ends
            .values()
            .filter_map(|(at, _, status)| Some((*at, (*status)?)))
            .chain(course.other.iter().copied())
            .collect();
        if status == 0 {
            let well = course.ends.values().filter(|(_, _, s)| s.is_none()).count();
            if well != width as usize || !course.other.is_empty() {
                let text = format!(
                    "application {apid} has status 0: {well} of its {width} PEs ended well, {bad:?}"
                );
                self.broken(text);
            }
            return;
        }
        // An aprun that has gone, for whatever reason, takes its application with it.
        let gone = life.exit.is_some() || life.napped;
        let waited = self.now < self.trouble_until && course.ran.len() < width as usize;
        let excused = course.excused.contains(&status) || status == 125 && (gone || waited);
        let limited = status == 124 && life.posting.time_limit.is_some();
        if excused || limited {
            return;
        }
        if !bad.iter().any(|(_, s)| *s == status) {
            let text = format!(
                "application {apid} has status {status}: its PEs ended with {bad:?}, excused are {:?}",
                course.excused
            );
            return self.broken(text);
        }
        // The first bad end decides, where one host's clock tells which it was.
        let one_host = course.ends.values().all(|(_, slot, _)| {
            course.ends.values().next().is_some_and(|(_, first, _)| first == slot)
        });
        let first = bad.iter().map(|(at, _)| *at).min().unwrap_or(0);
        let decides = |(at, s): &(u64, u8)| *s == status && *at <= first + MS;
        if one_host && course.excused.is_empty() && !bad.iter().any(decides) {
            self.broken(format!(
                "application {apid} has status {status}, and not of its first: {bad:?}"
            ));
        }
    }
}
