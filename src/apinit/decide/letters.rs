//! Letters from one host of an application to another: passed on, through the head, and not kept.
//!
//! What can't be delivered now is thrown away: whoever asks asks again ([`crate::apteam::protocol::letters`]).

use super::{Action, Agent, Out};
use crate::apteam::Key;
use crate::apteam::protocol::letters::Letter;
use crate::apteam::protocol::peers::{FromPeer, ToPeer};
use crate::apteam::protocol::shepherd::ToShepherd;

impl Agent {
    /// The shepherd here has one for another host.
    pub(super) fn own_letter(&mut self, key: Key, letter: Letter, out: &mut Out) {
        let Some(app) = self.apps.get(&key) else { return };
        if app.head() {
            self.pass_letter(key, letter, out);
        } else if let Some(head) = app.open_front() {
            out.extend(head.tell_head(FromPeer::Letter(letter)));
        }
    }

    /// (Head.) One is for the host of its PE: this one, or another.
    pub(super) fn pass_letter(&mut self, key: Key, letter: Letter, out: &mut Out) {
        let Some(app) = self.apps.get(&key) else { return };
        match app.place.part.map.host_of(letter.to) {
            Some(0) => self.letter_arrives(key, letter, out),
            Some(index) => app.tell_peers(|peer| peer.index == index, &ToPeer::Letter(letter), out),
            None => {}
        }
    }

    /// One is for the shepherd here.
    pub(super) fn letter_arrives(&mut self, key: Key, letter: Letter, out: &mut Out) {
        if self.apps.get(&key).is_some_and(|app| app.sent && app.running()) {
            out.push(Action::SendShepherd(key, ToShepherd::Letter(letter)));
        }
    }
}
