//! What a PE inherits: nothing of the daemons', and of the caller's what aprun(1) says.
//!
//! tests/programs/probe.c prints all that a process can inherit, tests/programs/odd.c starts another
//! program with settings that nobody would want to find in a PE.

use crate::support::hand::Hand;
use crate::support::mpi::plain;
use crate::support::users::{ANNA, Bins};
use crate::support::*;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

const ONE: &str = "nodes:\n  - { nids: 0, processors: 1, flavors: [su, os, ap] }\n";

/// What the probe printed: lines by subject.
type Probed = BTreeMap<String, BTreeSet<String>>;

#[track_caller]
fn parse(text: &str) -> Probed {
    let mut probed = Probed::new();
    for line in text.lines() {
        let (subject, detail) = line.split_once(": ").unwrap_or((line.trim_end_matches(':'), ""));
        probed.entry(subject.to_owned()).or_default().insert(detail.to_owned());
    }
    assert!(probed.len() > 20, "the probe has printed {text:?}");
    probed
}

/// Subjects that are not the same in both.
fn differing(one: &Probed, other: &Probed) -> BTreeSet<String> {
    let all = one.keys().chain(other.keys());
    all.filter(|subject| one.get(*subject) != other.get(*subject)).cloned().collect()
}

/// The subjects of aprun(1)'s section.
fn documented() -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("man/aprun.1");
    let text = std::fs::read_to_string(path).expect("the manual");
    let section = text.split_once(".SH WHAT A PE INHERITS\n").expect("the section").1;
    let section = section.split("\n.SH ").next().expect("something");
    let mut lines = section.lines();
    let mut found = BTreeSet::new();
    while let Some(line) = lines.next() {
        if line == ".TP" {
            let subject = lines.next().and_then(|l| l.strip_prefix(".B ")).expect("a subject");
            found.insert(subject.replace('\\', ""));
        }
    }
    found
}

/// The programs and, where they can't be had, why the test is skipped.
struct Programs {
    bins: Bins,
    probe: PathBuf,
    odd: PathBuf,
}

fn programs(test: &str) -> Option<Programs> {
    let test = format!("inherits::{test}");
    if !is_root() {
        skip(&test, "only root can run applications of other users");
        return None;
    }
    let bins = Bins::new();
    let (probe, odd) = (bins.add(&plain(&test, "probe")?), bins.add(&plain(&test, "odd")?));
    Some(Programs { bins, probe, odd })
}

impl Programs {
    /// Daemons that are started as usual, or with odd settings.
    fn daemons(&self, odd: bool) -> Hand {
        let prefix = [self.odd.clone().into(), "daemon".into()];
        let hand = Hand::start_by(if odd { &prefix } else { &[] }, ONE, &[("0", None)]);
        hand.open_to_all();
        hand
    }

    /// The probe as a user's PE.
    #[track_caller]
    fn pe(&self, hand: &Hand, odd_caller: bool, all_limits: bool) -> Probed {
        let aprun = self.bins.path("aprun");
        let aprun = [aprun.as_os_str(), "-q".as_ref(), self.probe.as_os_str()];
        let caller = [self.odd.as_os_str(), "caller".as_ref()];
        let line = caller.iter().filter(|_| odd_caller).chain(&aprun);
        let mut command = ANNA.command("env", line);
        command.env("PSCHED_SOCKET", hand.socket());
        command.env("APRUN_XFER_LIMITS", if all_limits { "1" } else { "0" });
        parse(&run(&mut command).expect(0).out())
    }

    /// The probe from the user's shell.
    #[track_caller]
    fn shell(&self, hand: &Hand, odd: bool) -> Probed {
        let caller = [self.odd.as_os_str(), "caller".as_ref()];
        let line = caller.into_iter().filter(|_| odd).chain([self.probe.as_os_str()]);
        let mut command = ANNA.command("env", line);
        command.env("PSCHED_SOCKET", hand.socket()).env("APRUN_XFER_LIMITS", "1");
        parse(&run(&mut command).expect(0).out())
    }
}

fn limit(probed: &Probed, kind: &str, name: &str) -> String {
    let lines = probed[kind].iter();
    let mut found = lines.filter_map(|l| l.strip_prefix(name)?.strip_prefix(' '));
    found.next().expect("the limit").to_owned()
}

#[test]
fn a_pe_has_nothing_of_the_daemons() {
    let Some(programs) = programs("a_pe_has_nothing_of_the_daemons") else { return };
    let plain = programs.daemons(false);
    let usual = programs.pe(&plain, false, true);
    let usual_few = programs.pe(&plain, false, false);
    plain.end();
    let hand = programs.daemons(true);
    let odd = programs.pe(&hand, false, true);
    let odd_few = programs.pe(&hand, false, false);
    hand.end();
    for (usual, odd) in [(&usual, &odd), (&usual_few, &odd_few)] {
        for subject in differing(usual, odd) {
            // The hard ones are the site's; the names of what is one's own differ.
            let own = ["hard limits", "soft limits", "session keyring", "environment"];
            let space = subject.ends_with(" namespace");
            let (usual, odd) = (usual.get(&subject), odd.get(&subject));
            assert!(own.contains(&&*subject) || space, "{subject}: {usual:?}, now {odd:?}");
        }
        let names = |probed: &Probed| -> Vec<String> {
            let names = probed["environment"].iter().map(|l| l.split('=').next().unwrap_or(l));
            names.map(str::to_owned).collect()
        };
        assert_eq!(names(usual), names(odd));
    }
    // Each application has a new one. (-1: the kernel has no keys.)
    let keyrings = [&usual, &usual_few, &odd, &odd_few].map(|probed| &probed["session keyring"]);
    let some = keyrings.into_iter().filter(|k| !k.contains("-1"));
    assert_eq!(some.clone().collect::<BTreeSet<_>>().len(), some.count(), "{keyrings:?}");
    // With all limits of the caller's, the soft ones are his, as far as the site's go.
    for (name, most) in [("CORE", 4096), ("STACK", 64 << 20), ("NOFILE", 4096)] {
        let most: u64 = most;
        let had: u64 = limit(&usual, "soft limits", name).parse().unwrap_or(u64::MAX);
        assert_eq!(limit(&odd, "soft limits", name), had.min(most).to_string(), "{name}");
        assert_eq!(limit(&odd, "hard limits", name), most.to_string(), "{name}");
    }
    // Else they are those with which apinit was started, which raises its own.
    assert_eq!(limit(&odd_few, "soft limits", "NOFILE"), "777");
    assert_eq!(limit(&odd_few, "soft limits", "STACK"), (16 << 20).to_string());
}

#[test]
fn a_pe_differs_from_the_shell_as_the_manual_says() {
    let Some(programs) = programs("a_pe_differs_from_the_shell_as_the_manual_says") else { return };
    let hand = programs.daemons(false);
    let (shell, plain_shell) = (programs.shell(&hand, true), programs.shell(&hand, false));
    let (pe, pe_few) = (programs.pe(&hand, true, true), programs.pe(&hand, true, false));
    hand.end();
    let mut differing: BTreeSet<String> = differing(&shell, &pe);
    // All soft limits travel when that is wanted, else some.
    assert!(
        !differing.contains("soft limits"),
        "{:?}, {:?}",
        shell["soft limits"],
        pe["soft limits"]
    );
    assert_ne!(shell["soft limits"], pe_few["soft limits"]);
    for same in ["CORE", "CPU"] {
        let of = |probed| limit(probed, "soft limits", same);
        assert_eq!(of(&shell), of(&pe_few));
    }
    differing.insert("soft limits".into());
    let documented = documented();
    let undocumented: Vec<_> = differing.difference(&documented).collect();
    assert!(undocumented.is_empty(), "not in aprun(1): {undocumented:?}\n{shell:#?}\n{pe:#?}");
    // What this machine doesn't let a caller change can't be seen to differ.
    let unprovoked = |subject: &&String| shell.get(*subject) == plain_shell.get(*subject);
    let needless: Vec<_> = documented.difference(&differing).filter(|s| !unprovoked(s)).collect();
    assert!(needless.is_empty(), "in aprun(1), and the same: {needless:?}");
    for subject in &documented {
        assert!(shell.contains_key(subject), "{subject} is nothing that the probe prints");
    }
}
