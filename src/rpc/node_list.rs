//! The nodes of a machine, each with its host, as psched lists them: a page at a time.

use super::pb;
use crate::machine::Nid;

/// More nodes than a machine has.
const NODES_MAX: usize = 1 << 20;

/// All nodes; `page` asks psched for one page of the list.
///
/// # Errors
/// The errors of `page`.
pub async fn nodes_by_pages<E>(
    mut page: impl AsyncFnMut(pb::ListRequest) -> Result<pb::ListReply, E>,
) -> Result<Vec<(Nid, String)>, E> {
    // (Of no application: there is none of this number.)
    let mut request = pb::ListRequest { apid: u64::MAX >> 1, pages: true, ..Default::default() };
    let mut nodes = Vec::new();
    loop {
        let reply = page(request.clone()).await?;
        let before = nodes.len();
        nodes.extend(reply.nodes.into_iter().map(|node| (Nid(node.nid), node.host)));
        // (A page that brings none would be asked for forever.)
        if reply.next_page.is_empty() || nodes.len() == before || nodes.len() > NODES_MAX {
            return Ok(nodes);
        }
        request.page = reply.next_page;
    }
}
