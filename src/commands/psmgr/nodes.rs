//! What becomes of nodes: foreign ones, and those that are taken out or put back.

use super::{ANSWER_BOUND, Client, done};
use crate::commands::question::{Does, again, answer_again, ask};
use crate::machine::{Nid, names_hosts, parse_nids, with_numbers};
use crate::rpc::node_list::nodes_by_pages;
use crate::rpc::pb;
use clap::Args;
use std::collections::BTreeSet;

/// Nodes.
#[derive(Args, Clone, Debug)]
pub struct Nodes {
    /// The nodes, by numbers or by their hosts: 0-3,7 or h1,n[004-007]
    #[arg(value_name = "NIDS", value_parser = node_list)]
    nids: NodeList,
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

/// A list of nodes on the command line.
#[derive(Clone, Debug)]
enum NodeList {
    /// Their numbers.
    Numbers(BTreeSet<Nid>),
    /// A list with names of hosts, whose nodes psched knows.
    Hosts(String),
}

fn node_list(text: &str) -> Result<NodeList, String> {
    match names_hosts(text) {
        true => Ok(NodeList::Hosts(text.to_owned())),
        false => nids(text).map(|Nids(nids)| NodeList::Numbers(nids)),
    }
}

/// A list of NIDs on the command line.
#[derive(Clone, Debug)]
pub(in crate::commands) struct Nids(pub(in crate::commands) BTreeSet<Nid>);

pub(in crate::commands) fn nids(text: &str) -> Result<Nids, String> {
    parse_nids(text).map(Nids).map_err(|e| e.to_string())
}

/// All nodes, each with its host.
async fn hosts(client: &Client) -> Result<Vec<(Nid, String)>, Vec<String>> {
    let page = async |request: pb::ListRequest| {
        answer_again(ask!(client.list, request), Does::Read, ANSWER_BOUND).await
    };
    nodes_by_pages(page).await.map_err(|why| vec![why])
}

impl Nodes {
    /// Their numbers; psched is asked for those of hosts.
    pub(super) async fn numbers(self, client: &Client) -> Result<Vec<u32>, Vec<String>> {
        let nids = match self.nids {
            NodeList::Hosts(list) => {
                let nodes = hosts(client).await?;
                let list =
                    with_numbers(&list, &nodes, None).map_err(|error| vec![error.to_string()])?;
                parse_nids(&list).map_err(|error| vec![error.to_string()])?
            }
            NodeList::Numbers(nids) => nids,
        };
        Ok(nids.into_iter().map(|nid| nid.0).collect())
    }

    pub(super) async fn request(self, client: &Client) -> Result<pb::NodesRequest, Vec<String>> {
        Ok(pb::NodesRequest { nids: self.numbers(client).await? })
    }

    #[cfg(test)]
    pub(super) fn nids(&self) -> BTreeSet<Nid> {
        match &self.nids {
            NodeList::Numbers(nids) => nids.clone(),
            NodeList::Hosts(_) => BTreeSet::new(),
        }
    }
}

impl Order {
    pub(super) async fn run(
        self,
        client: &mut Client,
        to: pb::NodesTo,
    ) -> Result<String, Vec<String>> {
        let nids = self.nodes.numbers(client).await?;
        let request = pb::SetNodesRequest { nids, to: to.into(), reason: self.reason.join(" ") };
        done(again(ask!(client.set_nodes, request), Does::Change, ANSWER_BOUND)).await
    }
}
