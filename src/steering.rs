//! Which characters of a text that others have written must not reach a terminal.
//!
//! Control characters begin lines and escape sequences (colours among them). The controls of
//! bidirectional text show a text in another order than it is read by programs:
//! `evil\u{202e}txt.sh` looks like `evilhs.txt`. U+2028 and U+2029 begin a line for some readers of
//! a log.

/// Whether it steers a terminal, or what a person takes the text for.
///
/// ```
/// # use psched_pure::steering::steers;
/// assert!(['\x1b', '\n', '\u{9b}', '\u{202e}', '\u{2066}', '\u{200f}'].into_iter().all(steers));
/// assert!(!"Grüße, שלום \u{200d}".chars().any(steers));
/// ```
pub fn steers(c: char) -> bool {
    c.is_control() || is_bidi_control(c) || matches!(c, '\u{2028}' | '\u{2029}')
}

/// Whether it is one of Unicode's Bidi_Control characters.
pub fn is_bidi_control(c: char) -> bool {
    matches!(
        c,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    )
}
