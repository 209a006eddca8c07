//! Values that are names: of flavors, users and groups.

use super::problems::{Problems, quoted};
use super::syntax::Text;
use crate::machine::gates::Who;
use crate::machine::{Flavor, Flavors};

pub(super) fn flavors(key: &str, names: Vec<Text>, problems: &mut Problems) -> Flavors {
    let mut flavors = Flavors::default();
    for Text(name) in names {
        match Flavor::parse(&name) {
            Some(flavor) => flavors = flavors.with(flavor),
            None => {
                let what = format!("{} is not a flavor", quoted(&name));
                problems.add(format!("{key}.flavors"), what, "the flavors are su, os, ap");
            }
        }
    }
    flavors
}

/// A user or a group; none: it can be neither.
pub(super) fn who(text: &str) -> Option<Who> {
    // Number -1 stands for "none" in system calls, so it is nobody's.
    let id = text.parse().ok().filter(|id| *id != u32::MAX);
    let is_number = text.starts_with(|c: char| c.is_ascii_digit() || c == '-');
    let odd = |c: char| c.is_whitespace() || c.is_control() || c == ':' || c == '/';
    match id {
        Some(id) => Some(Who::Id(id)),
        None if is_number || text.is_empty() || text.len() > 256 || text.contains(odd) => None,
        None => Some(Who::Name(text.to_owned())),
    }
}
