//! Output on its way: kept until the front end has written it.
//!
//! The shepherd sends no more than a window of bytes (variable `output_max`) ahead of what the front end has
//! written. Whatever of that has passed through here is kept (by reference: nothing is copied) so
//! that a front end whose stream broke can be given it again. So the window also bounds what is
//! kept here, and what waits in the shell to be sent to a front end that does not read.

use super::application::App;
use super::streams::{Purpose, Told};
use super::{Action, Agent, Conn, Front, Out};
use crate::apteam::Key;
use crate::apteam::bounds::{Bounds, whole_windows};
use crate::apteam::fault::Fault;
use crate::apteam::protocol::attach::{Output, OutputTaken};
use crate::apteam::protocol::peers::ToPeer;
use crate::apteam::protocol::shepherd::{FRAME_MAX, ToShepherd};

/// How often another host is asked for output that did not come, before the front end is given what
/// there is.
pub const HOLES_MAX: u32 = 5;

impl App {
    /// Whether output at this offset is in the images that the application is to end with (`cpr
    /// -k`). The restored application prints it, so this one must not.
    pub(super) fn is_imaged(&self, offset: u64) -> bool {
        self.imaged.is_some_and(|from| offset >= from)
    }

    /// Output counts as written up to there, and the shepherd is told so. Says whether that is news
    /// to one that runs.
    fn take_output(&mut self, offset: u64, out: &mut Out) -> bool {
        let news = self.output.take(offset) && self.running();
        if news {
            let taken = ToShepherd::OutputTaken(self.output.taken);
            out.push(Action::SendShepherd(self.key(), taken));
        }
        news
    }

    /// Output of the shepherd here, as its front end counts.
    pub(super) fn as_front_counts(&self, output: Output) -> Output {
        let offset = output.offset.saturating_sub(self.shift().output);
        Output { offset, ..output }
    }

    /// Whether a front end can't have written so much: not even of what it had from a former life of
    /// this apinit, and what nobody has said again yet. It would have a shepherd send without bound.
    pub(super) fn is_claimed_too_much(&self, claim: OutputTaken) -> bool {
        let peer = self.peers.iter().find(|p| p.index == claim.source);
        let taken = peer.map_or(self.output.taken, |peer| peer.taken);
        let most = taken.saturating_add(self.output_window()).saturating_add(FRAME_MAX as u64);
        claim.offset > most
    }
}

impl Agent {
    /// Output of the shepherd here.
    pub(super) fn own_output(&mut self, now: u64, key: Key, mut output: Output, out: &mut Out) {
        let Some(app) = self.apps.get_mut(&key).filter(|app| app.running()) else { return };
        output.source = app.index;
        let (end, taken) = (output.end(), app.output.taken);
        match app.output.add(output, app.output_window()) {
            Err(text) => {
                self.shepherd_lost(now, key, format!("{text}, and was ended"), Fault::User, out);
            }
            // It has not heard that this is written: the apinit that was to say so has died.
            Ok(None) if end <= taken => {
                out.push(Action::SendShepherd(key, ToShepherd::OutputTaken(taken)));
            }
            Ok(None) => {}
            Ok(Some(output)) if app.is_imaged(output.offset) && app.front != Front::Gone => {
                self.drop_imaged(key, out);
            }
            Ok(Some(output)) => match app.front {
                Front::Open(stream) => {
                    out.push(stream.tell(Told::Output(app.as_front_counts(output))));
                }
                Front::Gone => self.drop_output(key, out),
                Front::None | Front::Away { .. } => {}
            },
        }
    }

    /// Nobody will write the output here: it counts as written.
    pub(super) fn drop_output(&mut self, key: Key, out: &mut Out) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        app.output_lost |= app.take_output(app.output.end, out);
    }

    /// To be called right before images are made: how many bytes of the shepherd's output have come
    /// here, all of which the front end is given, and how many bytes of stdin the shepherd has been
    /// given.
    ///
    /// The shepherd is not frozen with its application and goes on reading what PEs have left in
    /// their pipes. The images have that output too.
    pub fn resume_point(&mut self, key: Key) -> (u64, u64) {
        let Some(app) = self.apps.get_mut(&key) else { return (0, 0) };
        if app.dumping.is_some_and(|dumping| dumping.ends()) {
            app.imaged = Some(app.output.end);
        }
        (app.output.end, app.stdin_passed)
    }

    /// The application goes on after its images: the front end is given the output that was kept
    /// from it.
    pub(super) fn pass_imaged(&mut self, key: Key, out: &mut Out) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        let Some(from) = app.imaged.take() else { return };
        if let Front::Open(stream) = app.front {
            let imaged = app.output.messages.iter().filter(|output| output.offset >= from);
            let told = |o: &Output| stream.tell(Told::Output(app.as_front_counts(o.clone())));
            out.extend(imaged.map(told));
        }
    }

    /// The application ends with its images: once the front end has written the output from before
    /// them, the rest counts as written, because the shepherd waits for that before it ends.
    pub(super) fn drop_imaged(&mut self, key: Key, out: &mut Out) {
        let Some(app) = self.apps.get_mut(&key).filter(|app| app.ends_by_dump()) else { return };
        if app.is_imaged(app.output.taken) {
            app.take_output(app.output.end, out);
        }
    }

    /// The most that waits for a front end that does as it should, in bytes: nothing is put twice
    /// into what is sent to it, and the rest each shepherd keeps.
    pub fn output_room(&self, conn: Conn) -> u64 {
        let purpose = self.fronts.get(&conn).map(|front| &front.opening.purpose);
        let Some(Purpose::Has(key)) = purpose else { return u64::MAX };
        let Some(app) = self.apps.get(key) else { return u64::MAX };
        let (hosts, whole) = (app.place.host_count(), whole_windows(app.place.fan_out));
        let each = app.output_window().saturating_add(FRAME_MAX as u64);
        // More hosts share these windows, or have one each that is smaller than a frame (`Bounds::among`).
        let more = 2 * FRAME_MAX as u64 * u64::from(hosts.saturating_sub(whole));
        each.saturating_mul(hosts.min(whole).into()).saturating_add(more)
    }

    /// The most that waits for a head that does as it should, in bytes for each host from which output goes to it: what
    /// a host keeps, once more if the head has asked for it anew.
    pub fn output_room_of_host(&self, key: Key) -> u64 {
        let window = self.apps.get(&key).map_or(0, App::output_window);
        window.max(Bounds::default().output).saturating_add(FRAME_MAX as u64).saturating_mul(2)
    }

    /// The front end has written output of a source.
    pub(super) fn output_taken(&mut self, key: Key, taken: OutputTaken, out: &mut Out) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        if taken.source == app.index {
            app.take_output(taken.offset, out);
            self.drop_imaged(key, out);
        } else if let Some(peer) = app.peers.iter_mut().find(|p| p.index == taken.source) {
            let offset = taken.offset.min(peer.forwarded);
            if offset > peer.taken {
                peer.taken = offset;
                if peer.open && !peer.done {
                    let taken = OutputTaken { source: taken.source, offset };
                    out.push(Action::SendPeers(key, vec![peer.index], ToPeer::OutputTaken(taken)));
                }
            }
        }
    }

    /// Output of another host, on its way to the front end of this head. The other host keeps it;
    /// here only its place in the order is known, so that the front end sees no gap.
    pub(super) fn peer_output(&mut self, key: Key, index: u32, mut output: Output, out: &mut Out) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        let (front, nid, ticket) = (app.front, app.nid_of(index), app.place.ticket);
        let Some(peer) = app.peers.iter_mut().find(|p| p.index == index) else { return };
        let end = output.end();
        if end <= peer.taken {
            // It has not heard that this is written: its apinit was restarted.
            let taken = OutputTaken { source: index, offset: peer.taken };
            out.push(Action::SendPeers(key, vec![index], ToPeer::OutputTaken(taken)));
            return;
        }
        if end <= peer.forwarded {
            return;
        }
        // What nobody will write any more may begin anywhere: a head that was started again does not
        // know how far it had been written.
        if output.offset > peer.forwarded && matches!(front, Front::Open(_)) {
            if peer.asked_again {
                // Said before it heard that.
                return;
            }
            let missing = output.offset - peer.forwarded;
            let text = format!(
                "{missing} bytes of output of NID {nid} before byte {} were not received",
                output.offset
            );
            out.push(Action::Warn(key, text));
            if peer.holes < HOLES_MAX {
                peer.holes += 1;
                peer.asked_again = true;
                let taken = vec![OutputTaken { source: index, offset: peer.taken }];
                out.push(Action::SendPeers(
                    key,
                    vec![index],
                    ToPeer::Resume { key, ticket, taken },
                ));
                return;
            }
            // The front end, which sees the hole too, decides about it.
        } else {
            peer.holes = 0;
        }
        output.source = index;
        match front {
            Front::Open(stream) => {
                peer.forwarded = end;
                out.push(stream.tell(Told::Output(output)));
            }
            Front::Gone => {
                peer.forwarded = end;
                self.output_taken(key, OutputTaken { source: index, offset: end }, out);
            }
            Front::None | Front::Away { .. } => {}
        }
    }
}
