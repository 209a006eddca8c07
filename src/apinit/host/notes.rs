//! What an apinit says of its nodes beside their state: one sentence for each subject.

use crate::apteam::Key;
use std::collections::BTreeMap;

/// What a note is about. Notes are told in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Subject {
    /// Something that this host lacks, by its place among what was found at the start.
    Host(usize),
    /// The nodes have more processors than their host.
    Crowded,
    /// Processors that another psched's nodes use too, by their place among those.
    Shared(usize),
    /// An application without a record, whose processes were ended.
    Unrecorded(Key),
    /// An application whose apshepherd can't be heard.
    Unheard(Key),
    /// An application whose processes do not stop.
    Unfrozen(Key),
    /// An application of which a process was outside of its group.
    Strayed(Key),
    /// An application for which the kernel works in turns of others.
    Overran(Key),
}

/// All notes.
#[derive(Debug)]
pub(super) struct Notes(BTreeMap<Subject, String>);

impl Notes {
    /// With what was found at the start.
    pub fn new(host: Vec<String>) -> Notes {
        Notes((0..).map(Subject::Host).zip(host).collect())
    }

    /// What is said of this subject.
    pub fn get(&self, subject: Subject) -> Option<&String> {
        self.0.get(&subject)
    }

    /// This is said of it from now on; none: nothing. Whether that is new.
    pub fn set(&mut self, subject: Subject, text: Option<String>) -> bool {
        let before = match text.clone() {
            Some(text) => self.0.insert(subject, text),
            None => self.0.remove(&subject),
        };
        before != text
    }

    /// Nothing is said of this application any more. Whether that is new. (That its processes were ended
    /// without a record stays true.)
    pub fn forget(&mut self, key: Key) -> bool {
        let before = self.0.len();
        self.0.retain(|subject, _| match subject {
            Subject::Unheard(of)
            | Subject::Unfrozen(of)
            | Subject::Strayed(of)
            | Subject::Overran(of) => *of != key,
            Subject::Host(_) | Subject::Crowded | Subject::Shared(_) | Subject::Unrecorded(_) => {
                true
            }
        });
        self.0.len() < before
    }

    /// All of them.
    pub fn all(&self) -> Vec<String> {
        self.0.values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_note_of_each_subject() {
        let key = Key::parse("12.1").expect("a key");
        let mut notes = Notes::new(vec!["no cgroups".into(), "not isolated".into()]);
        let text = |text: &str| Some(text.to_owned());
        assert!(notes.set(Subject::Unfrozen(key), text("it does not stop")));
        assert!(!notes.set(Subject::Unfrozen(key), text("it does not stop")));
        assert!(notes.set(Subject::Crowded, text("6 processors for 2")));
        assert!(notes.set(Subject::Crowded, text("4 processors for 2")));
        assert!(notes.set(Subject::Unrecorded(key), text("it was ended")));
        let all = [
            "no cgroups",
            "not isolated",
            "4 processors for 2",
            "it was ended",
            "it does not stop",
        ];
        assert_eq!(notes.all(), all);
        assert!(notes.set(Subject::Crowded, None) && !notes.set(Subject::Crowded, None));
        assert!(notes.forget(key) && !notes.forget(key));
        assert_eq!(notes.all(), ["no cgroups", "not isolated", "it was ended"]);
    }
}
