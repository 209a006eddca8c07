//! Values of variables that psmgr has set, over those of psched.yaml.
//!
//! psched.yaml is the administrator's; psmgr's values are on psched's own record, and stand before
//! the file's until they are taken back: through a reload of the file and a restart of psched. What is
//! in force is made anew from both at each change, so that nothing depends on the order in which they
//! came.
//!
//! A few variables are only looked at when psched starts ([`Definition::at_start`]). Of these what was
//! in force then stays so, and whoever changes one is told.

use super::keeping::Record;
use super::set_value::SetValue;
use crate::apteam::change::{By, Change};
use crate::variables::{Definition, Shown, Variables, row};
use std::collections::{BTreeMap, BTreeSet};

/// What somebody wants of variables: a name and its value, none to take psmgr's back.
pub type Wanted = Vec<(String, Option<String>)>;

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Nobody has set it.
    Default,
    /// psched.yaml.
    File,
    /// psmgr, by whom and when.
    Manager(By),
}

/// A variable as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its name and value.
    pub shown: Shown,
    /// Where the value comes from.
    pub source: Source,
    /// What is in force until psched is started again, where that is another value.
    pub until_start: Option<String>,
}

/// What a change means.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// In force now: `kill_grace 5s -> 7s`.
    pub changes: Vec<String>,
    /// At the next start.
    pub waits: Vec<String>,
    /// What whoever has changed it may have got wrong, though it is in force.
    pub notes: Vec<String>,
}

/// What psched.yaml says, and what psmgr has set over it.
#[derive(Clone, Debug)]
pub struct Tuning {
    file: Variables,
    set: BTreeMap<String, SetValue>,
    /// As they were when psched started.
    started: Variables,
}

impl Tuning {
    /// Those of a psched that starts. Values that this release does not take (they are of another
    /// one) have no effect: the second part says which.
    pub fn new(file: Variables, set: BTreeMap<String, SetValue>) -> (Tuning, Vec<String>) {
        let mut started = file.clone();
        let wrong = set.iter().filter_map(|(name, set)| wrong(&mut started, name, set)).collect();
        (Tuning { file, set, started }, wrong)
    }

    /// What is wanted, also where it waits for the next start.
    fn wanted(&self) -> Variables {
        let mut variables = self.file.clone();
        for (name, set) in &self.set {
            // Said when it came, or when psched started.
            let _ = variables.set(name, &set.value);
        }
        variables
    }

    /// What is in force.
    pub fn in_force(&self) -> Variables {
        let mut variables = self.wanted();
        for row in crate::variables::TABLE.iter().filter(|row| row.at_start) {
            if let Some(value) = self.started.get(row.name) {
                let _ = variables.set(row.name, &value);
            }
        }
        variables
    }

    /// psched.yaml was read again.
    pub fn reconfigured(&mut self, file: Variables) -> Told {
        let before = self.wanted();
        let of_file = std::mem::replace(&mut self.file, file);
        let mut told = self.told(&before);
        let mut tried = self.file.clone();
        told.changes.extend(self.set.iter().filter_map(|(name, set)| wrong(&mut tried, name, set)));
        for name in names([&of_file, &self.file]) {
            let (old, new) = (of_file.get(&name), self.file.get(&name));
            if let (Some(old), Some(new), Some(set)) = (old, new, self.set.get(&name))
                && old != new
            {
                told.changes.push(format!(
                    "{name} {old} -> {new} has no effect: psmgr has set it to {}",
                    set.value
                ));
            }
        }
        told
    }

    /// What is another now.
    fn told(&self, before: &Variables) -> Told {
        let after = self.wanted();
        let mut told = Told::default();
        for name in names([before, &after]) {
            // What waits is told again each time.
            let waits = is_at_start(&name);
            let old = if waits { &self.started } else { before };
            // (One that is not there is of a domain which comes or goes.)
            let of = |variables: &Variables| variables.get(&name).unwrap_or_else(|| NONE.into());
            let (old, new) = (of(old), of(&after));
            let default = || row(&name).map(Definition::default_text).unwrap_or_default();
            let unset = old == NONE && new == default() || new == NONE && old == default();
            if old == new || unset {
                continue;
            }
            let change = format!("{name} {old} -> {new}");
            match waits {
                true => told.waits.push(format!("{change} takes effect")),
                false => told.changes.push(change),
            }
        }
        told
    }

    /// Sets values, or takes them back: all of them or none.
    ///
    /// # Errors
    /// All that is wrong with them; nothing is changed then.
    pub fn change(
        &mut self,
        wanted: Wanted,
        by: &By,
    ) -> Result<(Vec<String>, Vec<Record>), Vec<String>> {
        let mut new = self.clone();
        let mut seen = BTreeSet::new();
        let mut problems = Vec::new();
        let mut tried = self.wanted();
        for (name, value) in &wanted {
            if !seen.insert(name.clone()) {
                problems.push(format!("{name} is named twice; name it once"));
                continue;
            }
            let right = match value {
                Some(value) => tried.set(name, value),
                // (Also that of a domain which is not there any more.)
                None if self.set.contains_key(name) => Ok(()),
                None => tried.row(name).map(|_| ()),
            };
            if let Err(error) = right {
                problems.push(error.to_string());
                continue;
            }
            match value.as_ref().and_then(|_| tried.get(name)) {
                Some(value) => {
                    new.set.insert(name.clone(), SetValue { value, by: by.clone() });
                }
                None => {
                    new.set.remove(name);
                }
            }
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let (before, after) = (self.wanted(), new.wanted());
        let (mut done, mut records) = (Vec::new(), Vec::new());
        for (name, _) in wanted {
            let (Some(old), Some(now)) = (before.get(&name), after.get(&name)) else {
                // (The name of a variable of another release has no row.)
                let why = match row(&name) {
                    Ok(_) => "no region is of its domain",
                    Err(_) => "there is no such variable",
                };
                done.push(format!("{name}: psmgr's value is forgotten; {why}"));
                records.push(Record::Variable { name, set: None });
                continue;
            };
            let from = new.origin(&name);
            if !self.set.contains_key(&name) && !new.set.contains_key(&name) {
                done.push(format!("{name}: {now}{from}, not set by psmgr"));
                continue;
            }
            let mut text = format!("{name}: {old} -> {now}{from}");
            if is_at_start(&name) && self.started.get(&name).as_ref() != Some(&now) {
                text += " when psched is started again (applications run on); until then as before";
            }
            done.push(text);
            let set = new.set.get(&name).cloned();
            records.push(Record::Variable { name: name.clone(), set });
            records.push(Record::Change(Change {
                by: by.clone(),
                what: name,
                before: old,
                after: format!("{now}{from}"),
            }));
        }
        *self = new;
        Ok((done, records))
    }

    /// ` (psched.yaml)`, where psmgr has not set it.
    fn origin(&self, name: &str) -> &'static str {
        match self.source(name) {
            Source::Manager(_) => "",
            Source::File => " (psched.yaml)",
            Source::Default => " (default)",
        }
    }

    fn source(&self, name: &str) -> Source {
        if let Some(set) = self.set.get(name) {
            return Source::Manager(set.by.clone());
        }
        let default = row(name).map(Definition::default_text).ok();
        if self.file.get(name) == default { Source::Default } else { Source::File }
    }

    /// All variables.
    pub fn show(&self) -> Vec<Row> {
        let in_force = self.in_force();
        let row = |shown: Shown| Row {
            source: self.source(&shown.name),
            until_start: in_force.get(&shown.name).filter(|value| *value != shown.value),
            shown,
        };
        self.wanted().show().into_iter().map(row).collect()
    }
}

/// The value of a variable of a domain that is not there.
const NONE: &str = "none";

/// Sets what psmgr has set; said: why that has no effect.
fn wrong(variables: &mut Variables, name: &str, set: &SetValue) -> Option<String> {
    let error = variables.set(name, &set.value).err()?;
    Some(format!("{name}={}, set by psmgr, has no effect: {error}", set.value))
}

fn is_at_start(name: &str) -> bool {
    row(name).is_ok_and(|row| row.at_start)
}

/// Names that either has.
fn names(both: [&Variables; 2]) -> BTreeSet<String> {
    both.into_iter().flat_map(Variables::show).map(|shown| shown.name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by(name: &str) -> By {
        By { uid: 7, name: name.into(), at_ns: 5 }
    }

    fn file(values: &[(&str, &str)]) -> Variables {
        let mut file = Variables::default();
        for (name, value) in values {
            file.set(name, value).expect("good");
        }
        file
    }

    fn wanted(pairs: &[(&str, Option<&str>)]) -> Wanted {
        pairs.iter().map(|(name, value)| ((*name).into(), value.map(str::to_owned))).collect()
    }

    fn shown(tuning: &Tuning, name: &str) -> Row {
        tuning.show().into_iter().find(|row| row.shown.name == name).expect("there")
    }

    #[test]
    fn what_psmgr_sets_stands_before_the_file_until_it_is_reset() {
        let (mut t, wrong) = Tuning::new(file(&[("kill_grace", "7s")]), BTreeMap::new());
        assert!(wrong.is_empty());
        assert_eq!(shown(&t, "kill_grace").source, Source::File);
        let (done, records) = t
            .change(
                wanted(&[("kill_grace", Some("9000ms")), ("weight.user.al", Some("3"))]),
                &by("al"),
            )
            .unwrap_or_else(|problems| panic!("{problems:?}"));
        assert_eq!(done, ["kill_grace: 7s -> 9s", "weight.user.al: 1 -> 3"]);
        let set = Some(SetValue { value: "9s".into(), by: by("al") });
        assert_eq!(records[0], Record::Variable { name: "kill_grace".into(), set });
        let change = Change {
            by: by("al"),
            what: "kill_grace".into(),
            before: "7s".into(),
            after: "9s".into(),
        };
        assert_eq!(records[1], Record::Change(change));
        assert_eq!(shown(&t, "kill_grace").source, Source::Manager(by("al")));
        assert_eq!(t.in_force().weights().get("al"), Some(&3));
        // The file says something else, and something new.
        let told = t.reconfigured(file(&[("kill_grace", "8s"), ("pids_max", "99")]));
        assert_eq!(
            told.changes,
            ["pids_max 16384 -> 99", "kill_grace 7s -> 8s has no effect: psmgr has set it to 9s"]
        );
        assert_eq!(t.in_force().kill_grace().as_secs(), 9);
        // A psched that is started again has the record.
        let (again, _) = Tuning::new(t.file.clone(), t.set.clone());
        assert_eq!(again.show(), t.show());
        let (done, records) = t
            .change(wanted(&[("kill_grace", None), ("ticket_time", None)]), &by("bo"))
            .unwrap_or_else(|problems| panic!("{problems:?}"));
        assert_eq!(
            done,
            ["kill_grace: 9s -> 8s (psched.yaml)", "ticket_time: 1m (default), not set by psmgr"]
        );
        assert_eq!(records[0], Record::Variable { name: "kill_grace".into(), set: None });
        assert_eq!((records.len(), t.in_force().kill_grace().as_secs()), (2, 8));
    }

    #[test]
    fn all_or_none() {
        let (mut t, _) = Tuning::new(Variables::default(), BTreeMap::new());
        let before = t.show();
        let problems = t.change(
            wanted(&[
                ("kill_grace", Some("9s")),
                ("kill_grase", Some("1s")),
                ("pids_max", Some("1")),
                ("kill_grace", None),
                ("colour", None),
            ]),
            &by("al"),
        );
        let problems = problems.expect_err("refused");
        assert_eq!(
            problems[..3],
            [
                "there is no variable kill_grase; did you mean kill_grace?",
                "1 is out of the range of pids_max; give a whole number, 16 to 4194304",
                "kill_grace is named twice; name it once",
            ]
        );
        assert!(problems[3].starts_with("there is no variable colour; "), "{}", problems[3]);
        assert_eq!((problems.len(), t.show()), (4, before));
    }

    #[test]
    fn what_is_read_at_the_start_waits_for_the_next() {
        let (mut t, _) = Tuning::new(Variables::default(), BTreeMap::new());
        let told = t.reconfigured(file(&[("history_max", "5"), ("kill_grace", "7s")]));
        assert_eq!(told.changes, ["kill_grace 5s -> 7s"]);
        assert_eq!(told.waits, ["history_max 10000 -> 5 takes effect"]);
        assert_eq!(t.in_force().history_max(), 10_000);
        let (done, _) = t
            .change(wanted(&[("history_max", Some("6"))]), &by("al"))
            .unwrap_or_else(|problems| panic!("{problems:?}"));
        assert_eq!(
            done,
            ["history_max: 5 -> 6 when psched is started again (applications run on); until then \
              as before"]
        );
        assert_eq!(shown(&t, "history_max").until_start.as_deref(), Some("10000"));
        let (again, _) = Tuning::new(t.file.clone(), t.set.clone());
        assert_eq!(again.in_force().history_max(), 6);
        assert_eq!(shown(&again, "history_max").until_start, None);
    }

    #[test]
    fn a_domain_that_goes_leaves_its_value_on_record() {
        let mut with = Variables::default();
        with.set_domains(["quick"]);
        let (mut t, _) = Tuning::new(with.clone(), BTreeMap::new());
        let set = wanted(&[("quick.time_slice", Some("2s"))]);
        let (done, _) = t.change(set, &by("al")).unwrap_or_else(|problems| panic!("{problems:?}"));
        assert_eq!(done, ["quick.time_slice: 1s -> 2s"]);
        assert_eq!(shown(&t, "quick.time_slice").source, Source::Manager(by("al")));
        assert_eq!(t.in_force().of_domain("quick").application_time_slice().as_secs(), 2);
        // No region is of it any more.
        let told = t.reconfigured(Variables::default());
        let no_effect = "quick.time_slice=2s, set by psmgr, has no effect: no region of this \
                         machine has the domain quick; give a region the key domain, or use one of: \
                         application";
        assert_eq!(told.changes, ["quick.time_slice 2s -> none", no_effect]);
        assert!(t.show().iter().all(|row| !row.shown.name.starts_with("quick.")));
        let (mut gone, wrong) = Tuning::new(Variables::default(), t.set.clone());
        assert_eq!(wrong, [no_effect]);
        let reset = wanted(&[("quick.time_slice", None)]);
        let (done, records) =
            gone.change(reset.clone(), &by("al")).unwrap_or_else(|problems| panic!("{problems:?}"));
        assert_eq!(
            done,
            ["quick.time_slice: psmgr's value is forgotten; no region is of its domain"]
        );
        assert_eq!(records, [Record::Variable { name: "quick.time_slice".into(), set: None }]);
        assert!(gone.change(reset, &by("al")).is_err());
        // It is there again, and so is the value.
        let told = t.reconfigured(with);
        assert_eq!(told.changes, ["quick.time_slice none -> 2s"]);
        assert_eq!(t.in_force().of_domain("quick").application_time_slice().as_secs(), 2);
    }

    #[test]
    fn values_of_another_release_are_named() {
        let set = [("passed_over_max", "1"), ("kill_grace", "9h"), ("pids_max", "99")];
        let set = set
            .map(|(name, value)| (name.to_owned(), SetValue { value: value.into(), by: by("al") }));
        let (mut t, wrong) = Tuning::new(Variables::default(), set.into());
        assert_eq!((wrong.len(), t.in_force().pids_max()), (2, 99), "{wrong:?}");
        assert!(wrong[0].starts_with("kill_grace=9h, set by psmgr, has no effect: 9h is out of"));
        assert!(wrong[1].starts_with(
            "passed_over_max=1, set by psmgr, has no effect: variable passed_over_max was removed"
        ));
        let reset = wanted(&[("passed_over_max", None)]);
        let (done, records) =
            t.change(reset, &by("al")).unwrap_or_else(|problems| panic!("{problems:?}"));
        assert_eq!(
            done,
            ["passed_over_max: psmgr's value is forgotten; there is no such variable"]
        );
        assert_eq!(records, [Record::Variable { name: "passed_over_max".into(), set: None }]);
    }
}
