//! What the scheduler is told: events, and when they came.

use super::{NodesTo, Origin, Settings};
use crate::apteam::change::By;
use crate::apteam::posting::{Owner, Posting};
use crate::apteam::protocol::node::{ClockTold, Foreign, Hello, HostNote, Phase, Report, RollOut};
use crate::apteam::record::FrontProcess;
use crate::apteam::{Apid, Key, Ticket};
use crate::machine::{Flavors, Machine, Nid};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Who waits for an answer. The shell hands these out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ReplyId(pub u64);

/// One connection of an apinit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LinkId(pub u64);

/// What comes from outside.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// A posting. `secret` is random; tickets are derived from it.
    Posted {
        reply: ReplyId,
        posting: Box<Posting>,
        owner: Owner,
        front: FrontProcess,
        secret: Ticket,
    },
    /// A posting that comes from a checkpoint.
    Restarted {
        reply: ReplyId,
        posting: Box<Posting>,
        owner: Owner,
        front: FrontProcess,
        secret: Ticket,
        origin: Origin,
    },
    /// A front end looks for its placement.
    Looked { reply: ReplyId, apid: Apid },
    /// The process of a front end has gone.
    FrontGone { apid: Apid },
    /// apkill. `signal` 0: TERM, and KILL after [`Settings::apkill_grace`].
    Kill { reply: ReplyId, apids: Vec<Apid>, signal: i32, uid: u32, administrator: bool },
    /// An apinit has introduced itself.
    LinkOpened { link: LinkId, hello: Box<Hello> },
    /// What it has.
    Inventory { link: LinkId, items: Vec<(Key, Phase)> },
    /// It does not obey this psched, and has this: in place of an inventory.
    Foreign { link: LinkId, foreign: Box<Foreign> },
    /// psmgr adopt, or purge, by this user.
    Manage {
        reply: ReplyId,
        what: Manage,
        nids: BTreeSet<Nid>,
        by: By,
        administrator: bool,
        /// Numbers of [`Scheduler::foreign_apids`] that the store has given to other applications,
        /// which have ended.
        used: BTreeSet<Apid>,
    },
    /// psmgr drain, down, or resume, by this administrator.
    Nodes { reply: ReplyId, to: NodesTo, nids: BTreeSet<Nid>, reason: String, by: By },
    /// snflv, by this administrator: these nodes have these flavors from now on; none: those of
    /// psched.yaml.
    Flavors { reply: ReplyId, nids: BTreeSet<Nid>, to: Option<Flavors>, by: By },
    /// psmgr hold, or release, by this administrator.
    Hold { reply: ReplyId, apids: BTreeSet<Apid>, hold: bool, by: By },
    /// What it can't do is this now, whether it can bring memory to swap, and what it knows of
    /// psched's clock.
    Noted {
        link: LinkId,
        notes: Vec<HostNote>,
        roll_out: RollOut,
        #[serde(default)]
        clock: ClockTold,
    },
    /// The certificate of its host has been revoked, and its connection is about to close.
    Revoked { link: LinkId },
    /// Its connection has gone.
    LinkClosed { link: LinkId },
    /// It reports.
    Report { link: LinkId, report: Box<Report> },
    /// The store can't take a new posting: it is as if it had not come.
    StoreRefused { apid: Apid, why: String },
    /// A gang that was brought in is where it was to be.
    RolledIn {
        /// Which.
        key: Key,
    },
    /// psmgr migrate, by this administrator: onto these nodes, or anywhere else. `dry_run`: only says what
    /// would be done.
    Migrate { reply: ReplyId, apid: Apid, nids: Option<BTreeSet<Nid>>, dry_run: bool, by: By },
    /// psmgr compact: the applications of a region together, so that what is free is in one piece.
    Compact { reply: ReplyId, region: String, dry_run: bool, by: By },
    /// Time has passed: see [`Scheduler::deadline`].
    Tick,
    /// Settings have been changed.
    Settings(Box<Settings>),
    /// The configuration has these nodes now.
    Machine(Box<Machine>),
}

/// What is to become of a foreign node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Manage {
    /// It obeys this psched, its applications run on.
    Adopt,
    /// Its applications are ended, then it obeys this psched.
    Purge,
}
