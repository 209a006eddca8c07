//! What becomes of nodes: foreign ones, and those that are taken out or put back.

use super::{Client, done};
use crate::machine::{Nid, parse_nids};
use crate::rpc::pb;
use clap::Args;
use std::collections::BTreeSet;

/// Nodes.
#[derive(Args, Clone, Debug)]
pub struct Nodes {
    /// The nodes: 0-3,7
    #[arg(value_name = "NIDS", value_parser = nids)]
    nids: Nids,
}

/// Nodes, and why.
#[derive(Args, Clone, Debug)]
pub struct Order {
    #[command(flatten)]
    nodes: Nodes,
    /// Why: shown by apstat -n and in the log
    #[arg(value_name = "REASON")]
    reason: Vec<String>,
}

/// A list of NIDs on the command line.
#[derive(Clone, Debug)]
pub(in crate::commands) struct Nids(pub(in crate::commands) BTreeSet<Nid>);

pub(in crate::commands) fn nids(text: &str) -> Result<Nids, String> {
    parse_nids(text).map(Nids).map_err(|e| e.to_string())
}

impl Nodes {
    pub(super) fn request(self) -> pb::NodesRequest {
        pb::NodesRequest { nids: self.nids.0.into_iter().map(|n| n.0).collect() }
    }

    #[cfg(test)]
    pub(super) fn nids(&self) -> &BTreeSet<Nid> {
        &self.nids.0
    }
}

impl Order {
    pub(super) async fn run(
        self,
        client: &mut Client,
        to: pb::NodesTo,
    ) -> Result<String, Vec<String>> {
        let nids = self.nodes.request().nids;
        let request = pb::SetNodesRequest { nids, to: to.into(), reason: self.reason.join(" ") };
        done(client.set_nodes(request)).await
    }
}
