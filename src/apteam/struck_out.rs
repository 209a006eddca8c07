//! Commands without their arguments, which may hold passwords.

use serde::Serializer;

/// Writes a command with its arguments struck out, each byte of them a `*`: arguments may hold passwords, and
/// nothing is decided by them but by how long they are.
pub(crate) fn without_arguments<S: Serializer>(command: &str, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&struck_out(command))
}

/// The command with its arguments struck out, as long as before.
///
/// ```
/// # use psched_pure::apteam::struck_out::struck_out;
/// assert_eq!(struck_out("./a.out -p ä1"), "./a.out ** ***");
/// ```
pub fn struck_out(command: &str) -> String {
    let program = command.find(char::is_whitespace).unwrap_or(command.len());
    let (program, arguments) = command.split_at(program);
    let mut text = String::with_capacity(command.len());
    text.push_str(program);
    for c in arguments.chars() {
        match c.is_whitespace() {
            true => text.push(c),
            false => text.extend(std::iter::repeat_n('*', c.len_utf8())),
        }
    }
    text
}
