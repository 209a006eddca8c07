//! Answers that come in pages, put together again.

use super::question::{Does, answer_again, ask};
use crate::rpc::pb;
use crate::rpc::pb::psched_client::PschedClient;
use std::collections::BTreeSet;
use std::time::Duration;
use tonic::transport::Channel;

/// Pages of one answer, at most: more than psched has rows.
const PAGES_MAX: usize = 1_000_000;

/// What is there; each page within so long.
///
/// # Errors
/// What psched says instead, or that it says nothing.
pub async fn list(
    client: &mut PschedClient<Channel>,
    request: pb::ListRequest,
    bound: Duration,
) -> Result<pb::ListReply, String> {
    let mut request = pb::ListRequest { pages: true, ..request };
    let mut whole = answer_again(ask!(client.list, request), Does::Read, bound).await?;
    for _ in 0..PAGES_MAX {
        request.page = std::mem::take(&mut whole.next_page);
        if request.page.is_empty() {
            break;
        }
        let more = answer_again(ask!(client.list, request), Does::Read, bound).await?;
        whole.applications.extend(more.applications);
        whole.nodes.extend(more.nodes);
        whole.history.extend(more.history);
        for notice in more.notices {
            if !whole.notices.contains(&notice) {
                whole.notices.push(notice);
            }
        }
        whole.next_page = more.next_page;
    }
    // One that has ended between two pages is in both lists.
    let apid = |row: &pb::ApplicationRow| row.key.map(|key| key.apid);
    let ended: BTreeSet<Option<u64>> = whole.history.iter().map(apid).collect();
    whole.applications.retain(|row| !ended.contains(&apid(row)));
    Ok(whole)
}

/// The log of an application's events; each page within so long.
///
/// # Errors
/// What psched says instead, or that it says nothing.
pub async fn events(
    client: &mut PschedClient<Channel>,
    apid: u64,
    bound: Duration,
) -> Result<pb::EventsReply, String> {
    let mut request = pb::EventsRequest { apid, pages: true, ..Default::default() };
    let mut whole = answer_again(ask!(client.events, request), Does::Read, bound).await?;
    for _ in 0..PAGES_MAX {
        request.page = std::mem::take(&mut whole.next_page);
        if request.page.is_empty() {
            break;
        }
        let more = answer_again(ask!(client.events, request), Does::Read, bound).await?;
        whole.events.extend(more.events);
        whole.next_page = more.next_page;
    }
    Ok(whole)
}

/// Who runs when, with so many of the latest changes; each page within so long.
///
/// # Errors
/// What psched says instead, or that it says nothing.
pub async fn turns(
    client: &mut PschedClient<Channel>,
    switches: u32,
    bound: Duration,
) -> Result<pb::TurnsReply, String> {
    let mut request = pb::TurnsRequest { switches, pages: true, ..Default::default() };
    let mut whole = answer_again(ask!(client.turns, request), Does::Read, bound).await?;
    for _ in 0..PAGES_MAX {
        request.page = std::mem::take(&mut whole.next_page);
        if request.page.is_empty() {
            break;
        }
        let more = answer_again(ask!(client.turns, request), Does::Read, bound).await?;
        whole.applications.extend(more.applications);
        whole.nodes.extend(more.nodes);
        whole.next_page = more.next_page;
    }
    Ok(whole)
}

/// Which process is which PE; each page within so long.
///
/// # Errors
/// What psched says instead, or that it says nothing.
pub async fn processes(
    client: &mut PschedClient<Channel>,
    apid: u64,
    bound: Duration,
) -> Result<pb::ProcessesReply, String> {
    let mut whole = pb::ProcessesReply::default();
    for _ in 0..PAGES_MAX {
        let request = pb::ProcessesRequest { apid, first: whole.next };
        let more = answer_again(ask!(client.processes, request), Does::Read, bound).await?;
        whole.processes.extend(more.processes);
        for notice in more.notices {
            if !whole.notices.contains(&notice) {
                whole.notices.push(notice);
            }
        }
        // (One that does not go on would be asked for ever.)
        if more.next <= whole.next {
            break;
        }
        whole.next = more.next;
    }
    Ok(whole)
}

/// Stacks of the PEs from this rank on, and where the next question begins; `None`: there are no more. A page
/// within so long.
///
/// # Errors
/// What psched says instead, or that it says nothing.
pub async fn stacks(
    client: &mut PschedClient<Channel>,
    apid: u64,
    first: u32,
    bound: Duration,
) -> Result<(Vec<pb::StacksRow>, Option<u32>), String> {
    // (Debuggers look once more at PEs of which nothing has come: that changes nothing there.)
    let request = pb::StacksRequest { apid, first };
    let reply = answer_again(ask!(client.stacks, request), Does::Read, bound).await?;
    // (One that does not go on would be asked for ever.)
    Ok((reply.pes, Some(reply.next).filter(|next| *next > first)))
}

/// What each user, or account, has had.
///
/// # Errors
/// What psched says instead, or that it says nothing.
pub async fn shares(
    client: &mut PschedClient<Channel>,
    bound: Duration,
) -> Result<pb::SharesReply, String> {
    answer_again(ask!(client.shares, pb::SharesRequest {}), Does::Read, bound).await
}
