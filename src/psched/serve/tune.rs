//! Variables in force: what psched.yaml says, and what psmgr has set over it.
//!
//! The loop owns them, so that two who set at once come one after the other. What a variable changes
//! inside psched is so at once; whoever set it is answered when it is on the record, and so is
//! everything that leaves psched because of it.

use super::clock::now;
use super::core::Core;
use super::settings;
use super::tuner::{Answer, Reconfigured};
use crate::apteam::change::{By, Change};
use crate::machine::Machine;
use crate::psched::decide::Record;
use crate::psched::decide::outbox::Kept;
use crate::psched::decide::tuning::{Source, Told, Wanted};
use crate::psched::decide::{Event, Settings};
use crate::psched::drive::{Managed, Refused};
use crate::rpc::pb;
use crate::variables::Variables;
use std::sync::Arc;
use tokio::sync::oneshot;

impl Core {
    /// psmgr set.
    pub(super) fn set_variables(
        &mut self,
        wanted: Wanted,
        by: &By,
        answer: oneshot::Sender<Result<Managed, Refused>>,
    ) {
        if let Some(reason) = self.driver.takes_nothing(&self.out) {
            let _ = answer.send(Err(Refused::Now(format!("nothing was changed: {reason}"))));
            return;
        }
        let (done, records) = match self.tuner.tuning.change(wanted, by) {
            Ok(changed) => changed,
            Err(problems) => {
                let (done, kept) = (Vec::new(), Kept::Yes);
                let _ = answer.send(Ok(Managed { done, problems, kept }));
                return;
            }
        };
        for line in &done {
            tracing::info!("{line}, by {by}");
        }
        self.driver.keep(&mut self.out, records);
        self.look(Box::new(move |kept| {
            let _ = answer.send(Ok(Managed { done, problems: Vec::new(), kept }));
        }));
        self.tuned();
    }

    /// psched.yaml was read again.
    pub(super) fn reconfigured(&mut self, new: Reconfigured, answer: oneshot::Sender<Answer>) {
        let Reconfigured { variables, machine, by, told: others } = new;
        if by.is_some()
            && let Some(why) = self.driver.takes_nothing(&self.out)
        {
            let _ = answer.send(Err(format!("nothing was changed: {why}")));
            return;
        }
        let mut told = self.tuner.tuning.reconfigured(variables);
        told.changes.extend(others.changes);
        told.changes.extend(self.driver.scheduler().flavors_without_effect(&machine));
        told.changes.extend(self.driver.scheduler().nodes_that_stay_closed(&machine));
        told.changes.extend(self.driver.scheduler().apinits_refused_by(&machine));
        told.waits.splice(0..0, others.waits);
        self.event(Event::Machine(machine));
        self.tuned();
        if let Some(by) = by {
            let after = match told.changes.is_empty() {
                true => "nothing changed".to_owned(),
                false => told.changes.join(", "),
            };
            let change =
                Change { by, what: "psched.yaml".into(), before: "in force".into(), after };
            self.driver.keep(&mut self.out, vec![Record::Change(change)]);
        }
        let trouble = self.out.trouble.clone();
        self.look(Box::new(move |kept| {
            let notice = (kept == Kept::Waits).then(|| trouble.notice()).flatten();
            let _ = answer.send(Ok((told, notice)));
        }));
    }

    /// What would that change, were it read? Nothing is changed.
    pub(super) fn compare(
        &mut self,
        variables: Variables,
        machine: Machine,
        answer: oneshot::Sender<(Told, Vec<String>)>,
    ) {
        let mut tuning = self.tuner.tuning.clone();
        let mut told = tuning.reconfigured(variables);
        told.changes.extend(self.driver.scheduler().flavors_without_effect(&machine));
        told.changes.extend(self.driver.scheduler().nodes_that_stay_closed(&machine));
        told.changes.extend(self.driver.scheduler().apinits_refused_by(&machine));
        let settings = settings(&tuning.in_force());
        let applications = self.driver.scheduler().compared(now(), machine, settings);
        self.look(Box::new(move |_| {
            let _ = answer.send((told, applications));
        }));
    }

    /// What is in force takes effect.
    fn tuned(&mut self) {
        let variables = self.tuner.tuning.in_force();
        let settings = settings(&variables);
        self.driver.set_kill_grace(settings.kill_grace);
        self.event(Event::Settings(Box::new(settings)));
        let tuned = Arc::clone(&self.tuner.tuned);
        self.look(Box::new(move |_| tuned(&variables)));
    }

    /// Where gates open and close by the time of day, the scheduler asks for the time every hour: summer may
    /// have begun.
    pub(super) fn look_at_offset(&mut self) {
        let known = self.driver.scheduler().settings();
        let utc_offset = super::utc_offset();
        if self.driver.scheduler().has_hours() && known.utc_offset != utc_offset {
            let settings = Settings { utc_offset, ..known.clone() };
            self.event(Event::Settings(Box::new(settings)));
        }
    }

    /// psmgr show, when all before it is durable.
    pub(super) fn show_variables(&mut self, answer: oneshot::Sender<pb::ShowReply>) {
        let row = |row: crate::psched::decide::tuning::Row| {
            let (source, by) = match row.source {
                Source::Default => ("default", None),
                Source::File => ("psched.yaml", None),
                Source::Manager(by) => ("psmgr", Some(by.into())),
            };
            pb::VariableRow {
                name: row.shown.name,
                value: row.shown.value,
                default: row.shown.row.default_text(),
                range: row.shown.row.range(),
                meaning: row.shown.row.meaning.into(),
                source: source.into(),
                by,
                until_start: row.until_start.unwrap_or_default(),
            }
        };
        let variables = self.tuner.tuning.show().into_iter().map(row).collect();
        let trouble = self.out.trouble.clone();
        let state_directory = self.state.to_string_lossy().into_owned();
        self.look(Box::new(move |_| {
            let notices = trouble.notice().into_iter().collect();
            let _ = answer.send(pb::ShowReply { variables, notices, state_directory });
        }));
    }
}
