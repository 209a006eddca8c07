//! What an apinit says of its nodes beside their state: one sentence for each subject.

use crate::apteam::Key;
use crate::apteam::protocol::node::{HostNote, NoteAbout};
use std::collections::BTreeMap;

/// What a note is about. Notes are told in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Subject {
    /// Something that this host lacks, by its place among what was found at the start.
    Host(usize),
    /// Applications are not isolated.
    Isolation,
    /// The nodes have more processors than their host.
    Crowded,
    /// Which psched is obeyed can't be written.
    Unwritten,
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
    /// With what was found at the start: what this host lacks, and why applications are not isolated.
    pub fn new(host: Vec<String>, not_isolated: Option<String>) -> Notes {
        let isolation = not_isolated.map(|why| (Subject::Isolation, why));
        Notes((0..).map(Subject::Host).zip(host).chain(isolation).collect())
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
            Subject::Host(_)
            | Subject::Isolation
            | Subject::Crowded
            | Subject::Unwritten
            | Subject::Shared(_)
            | Subject::Unrecorded(_) => true,
        });
        self.0.len() < before
    }

    /// All of them.
    pub fn all(&self) -> Vec<HostNote> {
        let about = |subject| match subject {
            Subject::Host(_) | Subject::Crowded | Subject::Unwritten | Subject::Shared(_) => {
                NoteAbout::Host
            }
            Subject::Isolation => NoteAbout::Isolation,
            Subject::Unrecorded(key)
            | Subject::Unheard(key)
            | Subject::Unfrozen(key)
            | Subject::Strayed(key)
            | Subject::Overran(key) => NoteAbout::App(key),
        };
        let note = |(subject, text): (&Subject, &String)| HostNote {
            about: about(*subject),
            text: text.clone(),
        };
        self.0.iter().map(note).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_note_of_each_subject() {
        let key = Key::parse("12.1").expect("a key");
        let text = |text: &str| Some(text.to_owned());
        let mut notes = Notes::new(vec!["no cgroups".into()], text("not isolated"));
        assert!(notes.set(Subject::Unfrozen(key), text("it does not stop")));
        assert!(!notes.set(Subject::Unfrozen(key), text("it does not stop")));
        assert!(notes.set(Subject::Crowded, text("6 processors for 2")));
        assert!(notes.set(Subject::Crowded, text("4 processors for 2")));
        assert!(notes.set(Subject::Unrecorded(key), text("it was ended")));
        let all = [
            "no cgroups",
            "not isolated",
            "4 processors for 2",
            "application 12.1: it was ended",
            "application 12.1: it does not stop",
        ];
        let said = |notes: &Notes| notes.all().iter().map(HostNote::to_string).collect::<Vec<_>>();
        assert_eq!(said(&notes), all);
        assert_eq!(notes.all()[1].about, NoteAbout::Isolation);
        assert!(notes.set(Subject::Crowded, None) && !notes.set(Subject::Crowded, None));
        assert!(notes.forget(key) && !notes.forget(key));
        assert_eq!(said(&notes), ["no cgroups", "not isolated", "application 12.1: it was ended"]);
    }
}
