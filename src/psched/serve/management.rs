//! What psmgr and snflv ask: for administrators only. Who calls is what the kernel said of the connection.

use super::clock::now;
use super::core::status;
use super::input::Input;
use super::names::names;
use super::people::no_users_of;
use super::private::Viewer;
use super::services::{Service, caller, ending};
use crate::apteam::Apid;
use crate::apteam::change::{By, Change, Closed};
use crate::machine::{Flavor, Flavors, Nid};
use crate::psched::decide::outbox::Kept;
use crate::psched::decide::tuning::Wanted;
use crate::psched::decide::{Counters, Event, Manage, NodesTo, ReplyId, Scheduler};
use crate::psched::drive::{self, Refused};
use crate::rpc::pb;
use crate::variables::WEIGHT;
use std::collections::{BTreeMap, BTreeSet};
use tokio::sync::oneshot;
use tonic::{Request, Response, Status};

/// The longest reason, in bytes: it is shown on one line.
const REASON_MAX: usize = 400;
/// Variables in one request: more than there are without those of users, and as many of these.
const WANTED_MAX: usize = 20_000;
/// Applications in one request, which goes through the loop in one piece.
const HOLD_MAX: usize = 10_000;
/// Changes in one answer: as many as are kept.
const CHANGES_MAX: u32 = 10_000;

type Managed = Result<Response<pb::ManageReply>, Status>;

impl Service {
    /// The administrator who is calling.
    ///
    /// # Errors
    /// He is none.
    pub(super) fn administrator<T>(
        &self,
        request: &Request<T>,
    ) -> impl Future<Output = Result<By, Status>> + use<T> {
        let uid = caller(request).map(|peer| peer.uid).and_then(|uid| {
            self.is_administrator(uid).then_some(uid).ok_or_else(|| {
                Status::permission_denied(format!(
                    "user {uid} is not an administrator of this psched; root, the user that \
                     psched runs as and the administrators of psched.yaml may manage it"
                ))
            })
        });
        async move {
            let uid = uid?;
            Ok(By { uid, name: names().user_name(uid).await, at_ns: now().wall_ns })
        }
    }

    /// Has the scheduler do it.
    async fn order(
        &self,
        uid: u32,
        event: impl FnOnce(ReplyId) -> Event + Send + 'static,
    ) -> Managed {
        let (answer, managed) = oneshot::channel();
        self.ask(uid, Input::Manage { event: Box::new(event), answer }).await?;
        self.done(managed.await.map_err(|_| ending())?)
    }

    /// What became of an order, and whether it is on record.
    fn done(&self, managed: Result<drive::Managed, Refused>) -> Managed {
        let drive::Managed { done, mut problems, kept } =
            managed.map_err(|refused| status(&refused, &Viewer::everything()))?;
        if kept == Kept::Waits {
            problems.extend(self.trouble.notice());
        }
        Ok(Response::new(pb::ManageReply { done, problems }))
    }

    /// psmgr adopt, or purge.
    pub(super) async fn manage(&self, request: Request<pb::NodesRequest>, what: Manage) -> Managed {
        let by = self.administrator(&request).await?;
        let nids = nids(request.into_inner().nids);
        let asked = nids.clone();
        let uid = by.uid;
        let apids = self.read_kept(uid, move |s| s.foreign_apids(&asked)).await?;
        let used = self.ask_store(move |s| s.which(apids)).await?;
        let administrator = true;
        self.order(uid, move |reply| Event::Manage { reply, what, nids, by, administrator, used })
            .await
    }

    /// psmgr show.
    pub(super) async fn show_variables(
        &self,
        request: Request<pb::ShowRequest>,
    ) -> Result<Response<pb::ShowReply>, Status> {
        let by = self.administrator(&request).await?;
        let (answer, shown) = oneshot::channel();
        self.ask(by.uid, Input::Show { answer }).await?;
        shown.await.map_err(|_| ending()).map(Response::new)
    }

    /// psmgr set.
    pub(super) async fn set_variables(&self, request: Request<pb::SetRequest>) -> Managed {
        let by = self.administrator(&request).await?;
        let values = request.into_inner().values;
        if values.len() > WANTED_MAX {
            return Err(Status::invalid_argument(format!(
                "{} variables in one call, and at most {WANTED_MAX} are taken: name fewer at a time",
                values.len()
            )));
        }
        let wanted: Wanted = values.into_iter().map(|v| (v.name, v.value)).collect();
        let problems = no_users(&wanted).await;
        if !problems.is_empty() {
            return Ok(Response::new(pb::ManageReply { done: Vec::new(), problems }));
        }
        let (answer, set) = oneshot::channel();
        self.ask(by.uid, Input::Set { wanted, by, answer }).await?;
        self.done(set.await.map_err(|_| ending())?)
    }

    /// psmgr drain, down, or resume.
    pub(super) async fn order_nodes(&self, request: Request<pb::SetNodesRequest>) -> Managed {
        let by = self.administrator(&request).await?;
        let pb::SetNodesRequest { nids: list, to, reason } = request.into_inner();
        if reason.len() > REASON_MAX {
            return Err(Status::invalid_argument(format!(
                "the reason has {} bytes: give one of {REASON_MAX} at most",
                reason.len()
            )));
        }
        // It is shown on one line of somebody's terminal.
        let reason = reason.trim().replace(crate::steering::steers, " ");
        let to = match pb::NodesTo::try_from(to) {
            Ok(pb::NodesTo::Open) => NodesTo::Resume,
            Ok(pb::NodesTo::Drained) => NodesTo::Close(Closed::Drained),
            Ok(pb::NodesTo::Down) => NodesTo::Close(Closed::Down),
            Err(_) => {
                return Err(Status::invalid_argument(format!(
                    "nodes can't be set to the unknown state {to}"
                )));
            }
        };
        let nids = nids(list);
        self.order(by.uid, move |reply| Event::Nodes { reply, to, nids, reason, by }).await
    }

    /// snflv.
    pub(super) async fn order_flavors(&self, request: Request<pb::SetFlavorsRequest>) -> Managed {
        let by = self.administrator(&request).await?;
        let pb::SetFlavorsRequest { nids: list, flavors, reset, dry_run } = request.into_inner();
        let wrong = |text: String| Err(Status::invalid_argument(text));
        let mut to = Flavors::default();
        for name in &flavors {
            match Flavor::parse(name) {
                Some(flavor) => to = to.with(flavor),
                None => return wrong(format!("{name:?} is not a flavor: they are su, os and ap")),
            }
        }
        if reset != to.is_empty() {
            return wrong("give either flavors or --reset".into());
        }
        let (nids, to) = (nids(list), (!reset).then_some(to));
        let uid = by.uid;
        let event = move |reply| Event::Flavors { reply, nids, to, by };
        if !dry_run {
            return self.order(uid, event).await;
        }
        let (done, problems) = self.read(uid, move |s| s.would(now(), event(ReplyId(0)))).await?;
        Ok(Response::new(pb::ManageReply { done, problems }))
    }

    /// psmgr hold, or release.
    pub(super) async fn hold_applications(&self, request: Request<pb::HoldRequest>) -> Managed {
        let by = self.administrator(&request).await?;
        let pb::HoldRequest { apids, hold } = request.into_inner();
        if apids.len() > HOLD_MAX {
            return Err(Status::invalid_argument(format!(
                "{} applications in one call, and at most {HOLD_MAX} are taken: name fewer at a time",
                apids.len()
            )));
        }
        let apids = apids.into_iter().map(Apid).collect();
        self.order(by.uid, move |reply| Event::Hold { reply, apids, hold, by }).await
    }

    /// psmgr migrate.
    pub(super) async fn order_migration(&self, request: Request<pb::MigrateRequest>) -> Managed {
        let by = self.administrator(&request).await?;
        let pb::MigrateRequest { apid, nids: list, dry_run } = request.into_inner();
        let nids = (!list.is_empty()).then(|| nids(list));
        let apid = Apid(apid);
        self.order(by.uid, move |reply| Event::Migrate { reply, apid, nids, dry_run, by }).await
    }

    /// psmgr compact.
    pub(super) async fn order_compaction(&self, request: Request<pb::CompactRequest>) -> Managed {
        let by = self.administrator(&request).await?;
        let pb::CompactRequest { region, dry_run } = request.into_inner();
        self.order(by.uid, move |reply| Event::Compact { reply, region, dry_run, by }).await
    }

    /// psmgr reload.
    pub(super) async fn read_again(&self, request: Request<pb::ReloadRequest>) -> Managed {
        let by = self.administrator(&request).await?;
        // One after the other, and with SIGHUP's.
        let read = self.reload.lock().await.again(Some(by)).await;
        Ok(Response::new(match read {
            Ok((told, unrecorded)) => {
                let mut done = vec![match told.changes.is_empty() {
                    true => "psched.yaml was read again: nothing to change".to_owned(),
                    false => format!("psched.yaml was read again: {}", told.changes.join(", ")),
                }];
                let waits = |line| format!("{line} when psched is restarted (applications run on)");
                done.extend(told.waits.into_iter().map(waits));
                done.extend(told.notes);
                pb::ManageReply { done, problems: unrecorded.into_iter().collect() }
            }
            // (Each problem of the file has a line.)
            Err(text) => {
                let problems = text.lines().map(str::to_owned).collect();
                pb::ManageReply { done: Vec::new(), problems }
            }
        }))
    }

    /// psmgr log.
    pub(super) async fn changes(
        &self,
        request: Request<pb::LogRequest>,
    ) -> Result<Response<pb::LogReply>, Status> {
        self.administrator(&request).await?;
        let most = request.into_inner().count.min(CHANGES_MAX);
        let changes = self.ask_store(move |s| s.changes(most)).await?;
        let row = |change: Change| {
            let Change { by, what, before, after } = change;
            pb::ChangeRow { by: Some(by.into()), what, before, after }
        };
        Ok(Response::new(pb::LogReply { changes: changes.into_iter().map(row).collect() }))
    }

    /// psmgr counters.
    pub(super) async fn counters_page(
        &self,
        request: Request<pb::CountersRequest>,
    ) -> Result<Response<pb::CountersReply>, Status> {
        self.administrator(&request).await?;
        let peer = caller(&request)?;
        let rows = |counts: &BTreeMap<&'static str, u64>| {
            let row = |(kind, count): (&&str, &u64)| pb::CounterRow {
                kind: (*kind).to_owned(),
                count: *count,
            };
            counts.iter().map(row).collect()
        };
        let make = move |scheduler: &Scheduler, _: &Viewer| {
            let Counters { since_ns, events, effects } = scheduler.counters();
            let (events, effects) = (rows(events), rows(effects));
            Ok(pb::CountersReply { since_ns: *since_ns, events, effects })
        };
        self.look_up(&peer, false, make).await
    }
}

/// A sentence for each weight of a name that no user has. (Such a weight may be taken away.)
async fn no_users(wanted: &Wanted) -> Vec<String> {
    let given = wanted.iter().filter(|(_, value)| value.is_some());
    let names = given.filter_map(|(name, _)| name.strip_prefix(WEIGHT).map(str::to_owned));
    let names: Vec<String> = names.collect();
    if names.is_empty() {
        return names;
    }
    // An Err: psched is ending.
    tokio::task::spawn_blocking(move || no_users_of(&names)).await.unwrap_or_default()
}

fn nids(list: Vec<u32>) -> BTreeSet<Nid> {
    list.into_iter().map(Nid).collect()
}
