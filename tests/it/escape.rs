//! Processes that try to get away from their application, with control groups and without.

use crate::support::*;

/// Ends what a failed test has let escape.
struct Sweep(String);

impl Drop for Sweep {
    fn drop(&mut self) {
        for (pid, line) in processes_with(&format!("sleep\0{}", self.0)) {
            if line.starts_with("sleep ") {
                kill(pid, 9);
            }
        }
    }
}

/// The instance of root, which has groups where there are any, and that of a user without the right
/// to make one.
///
/// `number` is the test's own: by it the processes are known on a machine where others run too.
fn both(test: &str, number: u32, check: impl Fn(&Instance, &str)) {
    let [of_root, of_user] = [1, 2].map(|mode| format!("{number}{mode}"));
    let _sweep = [&of_root, &of_user].map(|number| Sweep(number.clone()));
    check(&instance(2, 2), &of_root);
    if !is_root() {
        return skip(test, "only root can become another user, who has no groups");
    }
    let instance = Plan::new().nodes(2, 2).for_user().start();
    let notices = instance.run("apstat", ["-n"]).expect(0).out();
    assert!(notices.contains("no cgroups"), "{notices}");
    check(&instance, &of_user);
}

/// A script whose child has another parent, another session and no environment, and sleeps for so
/// many seconds and a fraction of its own.
fn escape(instance: &Instance, number: &str) -> (String, String) {
    let sleep = format!("{number}.{}", instance.child.as_ref().expect("it runs").pid());
    (format!("setsid env -i sh -c 'sleep {sleep} & exit'"), format!("sleep\0{sleep}"))
}

fn is_there(command_line: &str) -> bool {
    !processes_with(command_line).is_empty()
}

#[test]
fn who_leaves_his_parent_and_session_is_ended_with_the_application() {
    both(
        "escape::who_leaves_his_parent_and_session_is_ended_with_the_application",
        701,
        |i, number| {
            let (script, sleep) = escape(i, number);
            let run = i.script("-n 1", &script).expect(0);
            run.says("Application 1 left 1 process behind, which was ended");
            assert!(!is_there(&sleep));
        },
    );
}

#[test]
fn without_a_shepherd_what_escaped_is_ended_too() {
    both("escape::without_a_shepherd_what_escaped_is_ended_too", 702, |i, number| {
        let (script, sleep) = escape(i, number);
        // One keeps its session, one its environment, one nothing.
        let others = format!("env -i sleep {number} & setsid sleep {number} & {script}");
        let app = i.start_script("-n 1", &format!("{others}; exec sleep {number}"));
        i.wait_for("running", 1);
        // A second application on the other node is nobody's orphan.
        let other = i.start_script("-q -n 1 -N 1", "sleep 1000; true");
        i.wait_for("running", 2);
        eventually(BOUND, "it has escaped", || is_there(&sleep));
        let apinit = i.daemon("apinit");
        let shepherds = || -> Vec<i32> {
            let all = children(apinit).into_iter().filter(|(_, name)| name == "apshepherd");
            all.map(|(pid, _)| pid).collect()
        };
        let of_first = shepherds().into_iter().find(|pid| {
            std::fs::read_to_string(format!("/proc/{pid}/cmdline"))
                .is_ok_and(|line| line.contains("\u{0}1.1\u{0}"))
        });
        kill(of_first.expect("it has one"), 9);
        app.wait(BOUND).expect(125);
        let left = processes_with(&format!("sleep\0{number}"));
        assert!(left.is_empty(), "{left:?}");
        assert_eq!((shepherds().len(), i.apids("running")), (1, vec![2]));
        i.run("apkill", ["-9", "2"]).expect(0);
        other.wait(BOUND).expect(137);
    });
}

#[test]
fn a_restarted_apinit_finds_what_kept_its_session() {
    both("escape::a_restarted_apinit_finds_what_kept_its_session", 703, |i, number| {
        let app = i.start_script("-n 1", &format!("env -i sleep {number} & exec sleep {number}"));
        i.wait_for("running", 1);
        let shepherd = children(i.daemon("apinit"));
        let shepherd = shepherd.into_iter().find(|(_, name)| name == "apshepherd").expect("one").0;
        kill(i.daemon("apinit"), 9);
        // The next one has taken it up when it is told of its death.
        kill(shepherd, 9);
        app.wait(BOUND).expect(125);
        let left = processes_with(&format!("sleep\0{number}"));
        assert!(left.is_empty(), "{left:?}");
    });
}
