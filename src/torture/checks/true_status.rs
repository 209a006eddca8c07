//! The true status: the one that the real ends of its PEs imply.

use super::Checks;
use crate::apteam::record::Apteam;
use crate::torture::MS;

/// The status of one that is ended for its checkpoint.
const ENDED_BY_CPR: u8 = 137;

impl Checks {
    /// An application was recorded as ended with this status.
    pub(super) fn check_status(&mut self, team: &Apteam, status: u8) {
        let apid = team.apid;
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
        let first = team.end.as_ref().and_then(|end| end.first.as_ref());
        let justified =
            status == 125 && first.is_some_and(|first| self.is_justified(team, &first.cause));
        let earlier = !bad.is_empty() || !course.why.is_empty() || course.excused.len() > 1;
        let limited = life.posting.time_limit.is_some();
        if course.checkpointed && status != ENDED_BY_CPR && !earlier && !limited {
            let text = format!("application {apid} was ended for its checkpoint, and has {status}");
            return self.broken(text);
        }
        let excused = course.excused.contains(&status) || justified;
        let limited = status == 124 && life.posting.time_limit.is_some();
        if excused || limited {
            return;
        }
        if !bad.iter().any(|(_, s)| *s == status) {
            let text = format!(
                "application {apid} has status {status}, for {first:?}: its PEs ended with {bad:?}, \
                 excused are {:?}, what happened is {:?}",
                course.excused, course.why
            );
            return self.broken(text);
        }
        // The first bad end decides, where one host's clock tells which it was.
        let one_host = course.ends.values().all(|(_, slot, _)| {
            course.ends.values().next().is_some_and(|(_, first, _)| first == slot)
        });
        // (An abort is a message to its apshepherd, which reads it when it runs; so a later end on that
        // host may be the first that is seen. An abort decides all the same where it was seen first.)
        let ended = course.ends.values().filter_map(|(at, _, status)| status.map(|_| *at));
        let first = ended.min().or_else(|| bad.iter().map(|(at, _)| *at).min()).unwrap_or(0);
        let decides = |(at, s): &(u64, u8)| *s == status && *at <= first + MS;
        let alone = course.excused.is_empty() && course.why.is_empty();
        if one_host && alone && !bad.iter().any(decides) {
            self.broken(format!(
                "application {apid} has status {status}, and not of its first: {bad:?}"
            ));
        }
    }
}
