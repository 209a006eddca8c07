//! Signals by their names: `USR1`, `SIGUSR1`, `10`.
//!
//! (How a closing line names them is told by [`super::ending::signal_name`].)

/// The highest number.
pub const SIGNAL_MAX: i32 = 64;
/// SIGKILL.
pub const KILL: i32 = 9;
/// SIGSTOP.
pub const STOP: i32 = 19;

/// Names of the signals from 1 on; numbers on every architecture but alpha, mips, parisc and sparc. Those that
/// follow, up to [`SIGNAL_MAX`], have none.
pub const NAMES: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
    "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG",
    "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];

/// Whether there is one of that number.
pub fn is_one(number: i32) -> bool {
    (1..=SIGNAL_MAX).contains(&number)
}

/// The signal of a number, or of a name with or without SIG, in capitals or not.
pub fn parse(text: &str) -> Option<i32> {
    if let Ok(number) = text.parse::<i32>() {
        return is_one(number).then_some(number);
    }
    let name = text.to_ascii_uppercase();
    let name = name.strip_prefix("SIG").unwrap_or(&name);
    (1..).zip(NAMES).find(|(_, n)| *n == name).map(|(number, _)| number)
}

/// Its name, `SIGUSR1`; of one that has none the number.
pub fn shown(number: i32) -> String {
    let at = usize::try_from(number).ok().and_then(|n| n.checked_sub(1));
    match at.and_then(|at| NAMES.get(at)) {
        Some(name) => format!("SIG{name}"),
        None => number.to_string(),
    }
}
