//! The link to psched while it is open.

use crate::apinit::decide::Agent;
use crate::apinit::drive::Said as FromDriver;
use crate::rpc::pb;
use crate::rpc::pb::from_node::Message as Said;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// The open link, as the shell has it.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub(super) sender: mpsc::Sender<pb::FromNode>,
    pub(super) hang_up: CancellationToken,
    pub(super) last_command: Arc<AtomicU64>,
}

impl Link {
    pub fn send(&self, message: Said) {
        if self.sender.try_send(pb::FromNode { message: Some(message) }).is_err() {
            self.hang_up();
        }
    }

    /// What the driver says.
    pub fn say(&self, said: FromDriver) {
        self.send(match said {
            FromDriver::Inventory(items, last_command) => {
                Said::Inventory(pb::Inventory { last_command, ..pb::Inventory::from(items) })
            }
            FromDriver::Report(report) => Said::Report((*report).into()),
            FromDriver::Foreign(foreign) => Said::Foreign((*foreign).into()),
        });
    }

    pub fn hang_up(&self) {
        self.hang_up.cancel();
    }

    /// What heartbeats tell.
    pub fn seen(&self, agent: &Agent) {
        self.last_command.store(agent.last_command(), Ordering::Relaxed);
    }
}
