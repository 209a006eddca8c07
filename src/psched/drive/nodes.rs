//! Connections of apinits.

use super::{Driver, Note, Outside, Sent, ToNode};
use crate::apteam::protocol::node::{Hello, NodeSpec, Welcome};
use crate::machine::Nid;
use crate::psched::decide::{Event, LinkId};

/// The way out to an apinit.
pub(super) struct LinkOut<L> {
    link: L,
    /// Messages so far.
    seq: u64,
    /// The commits that it was told of last.
    commits: u64,
}

/// What has come that may be decided about together.
pub enum Came<L> {
    /// An event of which nobody waits for an answer.
    Event(Event),
    /// An apinit has called, and introduces itself.
    Link {
        /// By this number.
        id: LinkId,
        /// What it says.
        hello: Box<Hello>,
        /// The way out to it.
        link: L,
    },
}

impl<O: Outside> Driver<O> {
    /// Applies what came together. What it leaves to be kept is one commit: none of it is seen outside before all of
    /// it is durable.
    pub fn come(&mut self, out: &mut O, all: impl IntoIterator<Item = Came<O::Link>>) {
        let fails = out.waits().is_some();
        let mut events = Vec::new();
        for came in all {
            let event = match came {
                Came::Event(event) => event,
                Came::Link { id, hello, link } => {
                    self.links.insert(id, LinkOut { link, seq: 0, commits: 0 });
                    Event::LinkOpened { link: id, hello }
                }
            };
            match (&event, self.outbox.leaves_out(&event, fails)) {
                (Event::LinkOpened { link, .. }, true) => {
                    let why = self.takes_nothing(out).unwrap_or_default();
                    self.refuse_link(out, *link, why);
                }
                (_, true) => {}
                (Event::LinkClosed { link }, false) => {
                    self.links.remove(link);
                    events.push(event);
                }
                (_, false) => events.push(event),
            }
        }
        if !events.is_empty() {
            self.decide(out, events);
        }
    }

    /// An apinit has called, and introduces itself.
    pub fn link_opened(&mut self, out: &mut O, id: LinkId, hello: Box<Hello>, link: O::Link) {
        self.come(out, [Came::Link { id, hello, link }]);
    }

    /// An apinit's heartbeat is answered with the commits that have become durable, if there are new
    /// ones.
    pub fn beat(&mut self, out: &mut O, link: LinkId) {
        let commits = out.commits();
        if self.links.get(&link).is_some_and(|out| out.commits < commits) {
            self.send_message(out, link, None);
        }
    }

    pub(super) fn refuse_link(&mut self, out: &mut O, link: LinkId, why: String) {
        out.note(Note::Refused(why.clone()));
        self.send(out, link, ToNode::Refused(why));
        self.close(out, link);
    }

    pub(super) fn close(&mut self, out: &mut O, link: LinkId) {
        if let Some(LinkOut { link, .. }) = self.links.remove(&link) {
            out.hang_up(link);
        }
    }

    pub(super) fn welcome(&mut self, out: &mut O, link: LinkId, nids: &[Nid]) {
        let machine = self.scheduler.machine();
        let spec = |nid| {
            let node = machine.nodes.get(nid)?;
            Some(NodeSpec::of(node, self.scheduler.first_processor(node.nid)))
        };
        let welcome = Welcome {
            store_id: self.identity.store_id.clone(),
            epoch: self.identity.epoch,
            nodes: nids.iter().filter_map(spec).collect(),
            kill_grace: self.identity.kill_grace,
            mono_ns: out.now().mono_ns,
            boot_id: self.identity.boot_id.clone(),
            next_apid: self.scheduler.apids_below(),
            starts: self.identity.starts.clone(),
            commits: out.commits(),
            unreadable: self.scheduler.unreadable().collect(),
            bounds: self.scheduler.settings().host_bounds,
            checkpoint_key: self.identity.checkpoint_key.clone(),
        };
        self.send(out, link, ToNode::Welcome(Box::new(welcome)));
    }

    pub(super) fn send(&mut self, out: &mut O, link: LinkId, message: ToNode) {
        self.send_message(out, link, Some(message));
    }

    fn send_message(&mut self, out: &mut O, id: LinkId, message: Option<ToNode>) {
        let commits = out.commits();
        let Some(link) = self.links.get_mut(&id) else { return };
        let seq = match message {
            None | Some(ToNode::Welcome(_)) => 0,
            Some(_) => {
                link.seq += 1;
                link.seq
            }
        };
        link.commits = commits;
        if !out.send(&mut link.link, Sent { seq, commits, message }) {
            // After its next connection inventories are exchanged, so that nothing is lost by this.
            out.note(Note::TooSlow(id));
            self.close(out, id);
            self.event(out, Event::LinkClosed { link: id });
        }
    }
}
