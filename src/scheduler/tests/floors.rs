//! Plans with floors, as events follow each other.

use super::decided::Play;
use super::*;

/// As shipped.
fn settings() -> Settings {
    (&crate::variables::Variables::default()).into()
}

/// For how long each of these stood at most, in milliseconds, while something was done again and again.
fn longest(
    play: &mut Play,
    apids: &[u64],
    times: u32,
    mut does: impl FnMut(&mut Play, u32),
) -> Vec<u64> {
    const STEP: u64 = 50;
    let mut stands = vec![(0, 0); apids.len()];
    for time in 0..times {
        does(play, time);
        play.pass_ms(STEP);
        for (apid, (now, most)) in apids.iter().zip(&mut stands) {
            *now = if play.is_on(*apid) { 0 } else { *now + STEP };
            *most = (*most).max(*now);
        }
    }
    stands.into_iter().map(|(_, most)| most).collect()
}

/// Each of them leads when it comes, and ends in its lead.
#[test]
fn a_stream_of_short_ones_puts_off_no_floor() {
    for (comes, ends) in [(14, 6), (14, 1), (10, 9), (20, 16), (7, 3)] {
        let mut play = Play::new(1, 2, settings());
        play.post(1, 2);
        play.post(2, 2);
        play.post(3, 2);
        play.pass(100);
        let mut next = 4;
        let longest = longest(&mut play, &[1, 2, 3], 600, |play, time| match time % comes {
            0 => play.post(next, 2),
            n if n == ends => {
                play.ends(next.into());
                next += 1;
            }
            _ => {}
        });
        // One user, and three other programs of his.
        assert!(longest.iter().all(|ms| *ms <= 4_000), "{comes} {ends}: {longest:?}");
    }
}
