//! What only looks: List, Turns, Events and dry runs.
//!
//! The loop hands out a copy of its state (a snapshot, [`Input::Snapshot`]), at most so often that it has most of
//! its time for what changes something; all who ask meanwhile share one. Rows are made of it on a thread of
//! their own, within the budget of the user who asks ([`super::budget`]), a page at a time: a page ends when it is
//! large, or has taken long.

use super::clock::now;
use super::committer::Trouble;
use super::input::Input;
use super::names::names;
use super::private::Viewer;
use super::services::{Service, caller, ending};
use super::store::{Reader, StoreError};
use super::{turns_view, views};
use crate::apteam::Apid;
use crate::apteam::record::Apteam;
use crate::machine::Nid;
use crate::os::host::monotonic_ns;
use crate::psched::decide::Scheduler;
use crate::rpc::listen::Peer;
use crate::rpc::pb;
use crate::variables::ShareBy;
use crate::variables::units::nanos;
use prost::Message;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tonic::{Request, Response, Status};

/// Bytes of rows after which a page ends.
const PAGE_BYTES: usize = 512 * 1024;
/// Time after which it does.
const PAGE_TIME: Duration = Duration::from_millis(100);
/// Bytes of each list of the only page that a caller gets who can't ask for another: three such lists are within
/// what every gRPC library takes.
const ONLY_BYTES: usize = 1024 * 1024;
/// Holders of shares in one answer.
const SHARES_MAX: usize = 10_000;
/// Ended applications in one answer, the latest.
const HISTORY_MAX: u32 = 100_000;
/// Rows of the store that are looked at for one page.
const ROWS_MAX: u32 = 2_000;

/// What a caller is told who gets a part of an answer and can't ask for the rest.
const A_PART: &str = "this is a part of the answer, which has become too large for one message: the command is \
                      of an older release, which can't ask for the rest; upgrade it";

/// Where a page begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cursor {
    /// Which list: applications, nodes, history.
    list: u8,
    /// The last row that was told of it: a number, or the time of an end and a number.
    last: (u64, u64),
    /// Rows of history that have been told.
    told: u32,
}

const APPLICATIONS: u8 = 0;
const NODES: u8 = 1;
const HISTORY: u8 = 2;

impl Cursor {
    fn parse(token: &[u8]) -> Result<Cursor, Status> {
        let malformed =
            || Status::invalid_argument("a malformed request: page: it is not a page of psched");
        if token.is_empty() {
            return Ok(Cursor::default());
        }
        let token: &[u8; 21] = token.try_into().map_err(|_| malformed())?;
        let number = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&token[at..at + 8]);
            u64::from_be_bytes(bytes)
        };
        let [.., a, b, c, d] = *token;
        let (list, last, told) =
            (token[0], (number(1), number(9)), u32::from_be_bytes([a, b, c, d]));
        if list > HISTORY {
            return Err(malformed());
        }
        Ok(Cursor { list, last, told })
    }

    fn token(self) -> bytes::Bytes {
        let Cursor { list, last, told } = self;
        let mut token = vec![list];
        token.extend(last.0.to_be_bytes());
        token.extend(last.1.to_be_bytes());
        token.extend(told.to_be_bytes());
        token.into()
    }

    /// The beginning of the next list.
    fn next(self, list: u8) -> Cursor {
        match self.list < list {
            true => Cursor { list, ..Cursor::default() },
            false => self,
        }
    }
}

/// How full a page is.
struct Page {
    /// The caller asks for the next.
    followed: bool,
    began: Instant,
    bytes: usize,
    rows: usize,
}

impl Page {
    fn new(followed: bool) -> Page {
        Page { followed, began: Instant::now(), bytes: 0, rows: 0 }
    }

    /// Whether it is to end here.
    fn is_full(&self) -> bool {
        match self.followed {
            true => self.bytes >= PAGE_BYTES || self.rows > 0 && self.began.elapsed() >= PAGE_TIME,
            false => self.bytes >= ONLY_BYTES,
        }
    }

    fn add<M: Message>(&mut self, row: M, rows: &mut Vec<M>) {
        self.bytes += row.encoded_len();
        self.rows += 1;
        rows.push(row);
    }

    /// Another list begins.
    fn list(&mut self) {
        if !self.followed {
            self.bytes = 0;
        }
    }
}

/// What of psched goes into an answer beside its state.
struct About {
    store: PathBuf,
    store_id: String,
    epoch: u64,
    /// Why records wait for the disk, if they do.
    trouble: Trouble,
}

impl Service {
    /// The state, as it is now or will be in a moment, when all that it rests on is durable.
    /// (`follows`: or as it was a moment ago, for a page after the first.)
    async fn snapshot(&self, peer: &Peer, follows: bool) -> Result<Arc<Scheduler>, Status> {
        let (answer, snapshot) = oneshot::channel();
        self.ask(peer.uid, Input::Snapshot { answer, follows }).await?;
        snapshot.await.map_err(|_| ending())
    }

    /// Who asks, and what is hidden from him.
    pub(super) fn viewer(&self, peer: &Peer) -> Viewer {
        Viewer::new(peer.uid, self.is_administrator(peer.uid), *self.private.borrow())
    }

    /// Has an answer made of a snapshot, on a thread that may take its time, within the caller's budget.
    pub(super) async fn look_up<M: Message + 'static>(
        &self,
        peer: &Peer,
        follows: bool,
        make: impl FnOnce(&Scheduler, &Viewer) -> Result<M, Status> + Send + 'static,
    ) -> Result<Response<M>, Status> {
        let turn = self.budgets.enter(peer).await?;
        let snapshot = self.snapshot(peer, follows).await?;
        let viewer = self.viewer(peer);
        // (The snapshot goes there too, which takes its time.)
        let reply = turn.build(move || make(&snapshot, &viewer)).await?;
        turn.answer(reply).await
    }

    fn about(&self) -> About {
        let (store_id, epoch) = (self.identity.store_id.clone(), self.identity.epoch);
        About { store: self.store.clone(), store_id, epoch, trouble: self.trouble.clone() }
    }

    pub(super) async fn list_page(
        &self,
        request: Request<pb::ListRequest>,
    ) -> Result<Response<pb::ListReply>, Status> {
        let peer = caller(&request)?;
        let request = request.into_inner();
        let (from, follows) = (Cursor::parse(&request.page)?, !request.page.is_empty());
        let about = self.about();
        self.look_up(&peer, follows, move |s, viewer| list(s, viewer, &request, from, about)).await
    }

    pub(super) async fn turns_page(
        &self,
        request: Request<pb::TurnsRequest>,
    ) -> Result<Response<pb::TurnsReply>, Status> {
        let peer = caller(&request)?;
        let request = request.into_inner();
        let (from, follows) = (Cursor::parse(&request.page)?, !request.page.is_empty());
        self.look_up(&peer, follows, move |s, viewer| Ok(who_runs(s, viewer, &request, from))).await
    }

    pub(super) async fn shares_page(
        &self,
        request: Request<pb::SharesRequest>,
    ) -> Result<Response<pb::SharesReply>, Status> {
        let peer = caller(&request)?;
        let name = names().user_name(peer.uid).await;
        let trouble = self.trouble.clone();
        let make = move |s: &Scheduler, viewer: &Viewer| {
            let notices = trouble.notice().into_iter().collect();
            Ok(pb::SharesReply { notices, ..shares(s, viewer, &name) })
        };
        self.look_up(&peer, false, make).await
    }

    pub(super) async fn events_page(
        &self,
        request: Request<pb::EventsRequest>,
    ) -> Result<Response<pb::EventsReply>, Status> {
        let peer = caller(&request)?;
        let request = request.into_inner();
        let (from, follows) = (Cursor::parse(&request.page)?, !request.page.is_empty());
        let about = self.about();
        self.look_up(&peer, follows, move |s, viewer| events(s, viewer, &request, from, &about))
            .await
    }
}

fn store_said(error: StoreError) -> Status {
    Status::unavailable(error.to_string())
}

fn list(
    s: &Scheduler,
    viewer: &Viewer,
    request: &pb::ListRequest,
    from: Cursor,
    about: About,
) -> Result<pb::ListReply, Status> {
    let mut page = Page::new(request.pages);
    let mut reply = pb::ListReply {
        version: env!("CARGO_PKG_VERSION").into(),
        store_id: about.store_id,
        epoch: about.epoch,
        now_ns: now().wall_ns,
        // (With the first of its pages.)
        notices: about.trouble.notice().filter(|_| request.page.is_empty()).into_iter().collect(),
        ..Default::default()
    };
    let now_ns = monotonic_ns();
    let only = (request.apid != 0).then_some(Apid(request.apid));
    let (mut at, mut cut) = (from, false);
    if at.list == APPLICATIONS {
        let teams = s.teams_after(Apid(at.last.0)).filter(|t| only.is_none_or(|a| a == t.apid));
        for team in teams.filter(|t| viewer.sees(t.owner.uid)) {
            if page.is_full() {
                if page.followed {
                    reply.next_page = at.token();
                    return Ok(reply);
                }
                cut = true;
                break;
            }
            let row = views::application(s, team, now_ns, viewer, only.is_some());
            page.add(row, &mut reply.applications);
            at.last.0 = team.apid.0;
        }
        page.list();
    }
    at = at.next(NODES);
    if at.list == NODES {
        for view in s.nodes_from(Nid(u32::try_from(at.last.0).unwrap_or(u32::MAX))) {
            if page.is_full() {
                if page.followed {
                    reply.next_page = at.token();
                    return Ok(reply);
                }
                cut = true;
                break;
            }
            at.last.0 = u64::from(view.node.nid.0) + 1;
            page.add(views::node(s, view, viewer), &mut reply.nodes);
        }
        page.list();
    }
    at = at.next(HISTORY);
    match only {
        // One that has ended is looked for by its number, however long ago that was.
        Some(apid) if s.team(apid).is_none() => {
            let reader = Reader::open(&about.store).map_err(store_said)?;
            let team = reader.team(apid).map_err(store_said)?;
            let row = |team: &Apteam| viewer.application(team, views::ended_application(team));
            let team = team.filter(|team| viewer.sees(team.owner.uid));
            reply.history = team.iter().map(row).collect();
        }
        None if request.history > 0 => {
            let more = past(&mut page, viewer, request, &mut at, &about.store, &mut reply)?;
            match more && page.followed {
                true => reply.next_page = at.token(),
                false => cut |= more,
            }
        }
        _ => {}
    }
    if cut {
        reply.notices.push(A_PART.into());
    }
    Ok(reply)
}

/// Those that have ended, the newest first. Whether there are more.
fn past(
    page: &mut Page,
    viewer: &Viewer,
    request: &pb::ListRequest,
    at: &mut Cursor,
    store: &Path,
    reply: &mut pb::ListReply,
) -> Result<bool, Status> {
    let reader = Reader::open(store).map_err(store_said)?;
    loop {
        let left = request.history.min(HISTORY_MAX).saturating_sub(at.told);
        if left == 0 {
            return Ok(false);
        }
        let before = (at.told > 0).then_some(at.last);
        let most = left.min(ROWS_MAX);
        let teams = reader.history_before(before, viewer.only(), most).map_err(store_said)?;
        if teams.is_empty() {
            return Ok(false);
        }
        for team in &teams {
            if page.is_full() {
                return Ok(true);
            }
            page.add(viewer.application(team, views::ended_application(team)), &mut reply.history);
            *at = Cursor { last: (team.ended_at_ns, team.apid.0), told: at.told + 1, ..*at };
        }
    }
}

/// Who has had most comes first. `name` is that of the user who asks.
fn shares(s: &Scheduler, viewer: &Viewer, name: &str) -> pb::SharesReply {
    let (by, half_life) = s.share_rules();
    let own = viewer.only().map(|uid| s.accounts_of(uid));
    let sees = |holder: &str| {
        own.as_ref().is_none_or(|accounts| holder == name || accounts.contains(holder))
    };
    let mut rows: Vec<pb::ShareRow> = s
        .shares(now())
        .into_iter()
        .filter(|of| sees(&of.holder))
        .map(|of| pb::ShareRow {
            holder: of.holder.to_string(),
            weight: of.weight,
            applications: of.applications,
            had_s: of.had_s,
            due_s: of.due_s,
        })
        .collect();
    rows.sort_by(|a, b| b.had_s.total_cmp(&a.had_s));
    rows.truncate(SHARES_MAX);
    let by = ShareBy::ALL.iter().find(|(of, _)| *of == by).map_or("", |(_, word)| *word).into();
    pb::SharesReply { by, half_life_ns: nanos(half_life), rows, notices: Vec::new() }
}

fn who_runs(
    s: &Scheduler,
    viewer: &Viewer,
    request: &pb::TurnsRequest,
    from: Cursor,
) -> pb::TurnsReply {
    let now = now();
    let mut page = Page::new(request.pages);
    let mut reply = match request.page.is_empty() {
        true => turns_view::head(s, now, request.switches),
        false => pb::TurnsReply::default(),
    };
    viewer.turns(s, &mut reply);
    if request.page.is_empty() {
        page.bytes = reply.encoded_len();
    }
    page.list();
    let (mut at, mut cut) = (from, false);
    if at.list == APPLICATIONS {
        let placed = s.teams_after(Apid(at.last.0)).filter(|team| !team.places.0.is_empty());
        for team in placed.filter(|t| viewer.sees(t.owner.uid)) {
            if page.is_full() {
                if page.followed {
                    reply.next_page = at.token();
                    return reply;
                }
                cut = true;
                break;
            }
            let row = turns_view::application(s, team, now.mono_ns, viewer);
            page.add(row, &mut reply.applications);
            at.last.0 = team.apid.0;
        }
        page.list();
    }
    at = at.next(NODES);
    for view in s.nodes_from(Nid(u32::try_from(at.last.0).unwrap_or(u32::MAX))) {
        if page.is_full() {
            if page.followed {
                reply.next_page = at.token();
                return reply;
            }
            cut = true;
            break;
        }
        at.last.0 = u64::from(view.node.nid.0) + 1;
        page.add(views::node(s, view, viewer), &mut reply.nodes);
    }
    if cut {
        reply.notices.push(A_PART.into());
    }
    reply
}

fn events(
    s: &Scheduler,
    viewer: &Viewer,
    request: &pb::EventsRequest,
    from: Cursor,
    about: &About,
) -> Result<pb::EventsReply, Status> {
    let apid = Apid(request.apid);
    let reader = Reader::open(&about.store).map_err(store_said)?;
    let ended = match s.team(apid) {
        Some(_) => None,
        None => reader.team(apid).map_err(store_said)?,
    };
    let team = s.team(apid).or(ended.as_ref()).filter(|team| viewer.sees(team.owner.uid));
    let team = team.ok_or_else(|| Status::not_found(format!("there is no application {apid}")))?;
    let mut page = Page::new(request.pages);
    let (mut at, mut reply) = (from, pb::EventsReply::default());
    // (With the first of its pages.)
    reply.notices.extend(about.trouble.notice().filter(|_| request.page.is_empty()));
    loop {
        let lines = reader.events_after(apid, at.last.0, ROWS_MAX).map_err(store_said)?;
        if lines.is_empty() {
            return Ok(reply);
        }
        for line in lines {
            if page.is_full() {
                match page.followed {
                    true => reply.next_page = at.token(),
                    false => reply.notices.push(A_PART.into()),
                }
                return Ok(reply);
            }
            at.last.0 = line.number;
            let row = pb::EventRow { at_ns: line.at_ns, name: line.name, detail: line.detail };
            page.add(viewer.event(&team.owner, row), &mut reply.events);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_of_pages_come_back_or_are_refused() {
        let from = Cursor { list: HISTORY, last: (u64::MAX, 7), told: 9 };
        assert_eq!(Cursor::parse(&from.token()).expect("ours"), from);
        assert_eq!(Cursor::parse(b"").expect("the first"), Cursor::default());
        for bad in [&b"x"[..], &[0; 20], &[9; 21]] {
            assert!(Cursor::parse(bad).is_err(), "{bad:?}");
        }
    }
}
