//! Letters from one host of an application to another: passed on, through the head, and not kept.
//!
//! What can't be delivered now is thrown away: whoever asks asks again ([`crate::apteam::protocol::letters`]). For a host
//! whose part has ended the head answers.

use super::{Action, Agent, Out};
use crate::apshepherd::decide::pmix::NOT_FOUND;
use crate::apteam::Key;
use crate::apteam::protocol::letters::{Letter, LetterText};
use crate::apteam::protocol::peers::{FromPeer, ToPeer};
use crate::apteam::protocol::shepherd::ToShepherd;
use bytes::Bytes;

impl Agent {
    /// The shepherd here has one for another host.
    pub(super) fn own_letter(&mut self, key: Key, letter: Letter, out: &mut Out) {
        let Some(app) = self.apps.get(&key).filter(|_| letter.fits()) else { return };
        if app.head() {
            self.pass_letter(key, letter, out);
        } else if let Some(head) = app.open_front() {
            out.extend(head.tell_head(FromPeer::Letter(letter)));
        }
    }

    /// (Head.) One is for the host of its PE: this one, or another.
    pub(super) fn pass_letter(&mut self, key: Key, letter: Letter, out: &mut Out) {
        let Some(app) = self.apps.get(&key).filter(|_| letter.fits()) else { return };
        let Some(index) = app.place.part.map.host_of(letter.to) else { return };
        let peer = app.peers.iter().find(|peer| peer.index == index);
        let ended = if index == 0 { !app.running() } else { peer.is_some_and(|peer| peer.done) };
        match index {
            // Its PEs have ended: nobody there will answer.
            _ if ended && letter.is_question() => {
                let Letter { to, from, number, .. } = letter;
                let text = LetterText::Answer { status: NOT_FOUND, data: Bytes::new() };
                self.pass_letter(key, Letter { to: from, from: to, number, text }, out);
            }
            0 => self.letter_arrives(key, letter, out),
            _ => app.tell_peers(|peer| peer.index == index, &ToPeer::Letter(letter), out),
        }
    }

    /// One is for the shepherd here.
    pub(super) fn letter_arrives(&mut self, key: Key, letter: Letter, out: &mut Out) {
        if self.apps.get(&key).is_some_and(|app| app.sent && app.running()) {
            out.push(Action::SendShepherd(key, ToShepherd::Letter(letter)));
        }
    }
}
