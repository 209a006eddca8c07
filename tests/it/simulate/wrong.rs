//! Logs that are none, not in order, or cut off: which line, and what is wrong.

use super::known::{TIMES, compressed, log, write};
use super::simulate;

/// The known log with a change, under this name; what is said of it.
#[track_caller]
fn said(name: &str, bytes: &[u8]) -> String {
    let folder = tempfile::tempdir().expect("made");
    let path = write(folder.path(), name, bytes);
    let out = folder.path().join("out.tsv");
    let ran = simulate(&path, &["--out", out.to_str().expect("text")]).expect(1);
    assert!(ran.stdout.is_empty() && !out.exists());
    let said = ran.stderr.replace(&format!("{}: ", path.display()), "");
    said.trim_end().strip_prefix("psched simulate: ").expect("its name").to_owned()
}

fn lines() -> Vec<String> {
    log(TIMES).lines().map(str::to_owned).collect()
}

#[test]
fn a_line_that_is_none_is_told_by_number() {
    let mut lines = lines();
    lines[100] = lines[100].replace(" -1 ", " - ");
    assert_eq!(
        said("bad.swf", lines.join("\n").as_bytes()),
        "line 101: field 3: \"-\" is no number"
    );
    lines[100] = "\u{0}".repeat(5_000);
    let long = "line 101: it is longer than 4096 bytes";
    assert_eq!(said("bad.swf", lines.join("\n").as_bytes()), long);
    assert_eq!(said("bad.swf", b"<html>\n"), "line 1: field 1: \"<html>\" is no number");
}

#[test]
fn a_log_that_is_not_sorted_is_told_where() {
    let mut lines = lines();
    lines.swap(50, 60);
    let swapped = said("unsorted.swf", lines.join("\n").as_bytes());
    assert_eq!(
        swapped,
        "line 52: job 50 was submitted at 4020, the one before it at 5000: sort the log by its second \
         field"
    );
}

#[test]
fn jobs_without_a_submit_time_are_left_out_and_told() {
    let mut lines = lines();
    let job = lines[50].split_whitespace().next().expect("a number").to_owned();
    let words: Vec<&str> = lines[50].split_whitespace().collect();
    lines[50] = [&[words[0], "-1"], &words[2..]].concat().join(" ");
    let folder = tempfile::tempdir().expect("made");
    let path = write(folder.path(), "thunder.swf", lines.join("\n").as_bytes());
    let ran = simulate(&path, &[]).expect(0);
    ran.says("psched simulate: left out: 1 jobs without a submit time (first: line 51)");
    let refused = simulate(&path, &["--bad", "refuse"]).expect(1);
    refused.says(&format!("line 51: job {job} has no submit time (-1)")).says("--bad skip");
}

#[test]
fn a_log_that_is_cut_off_is_told_where() {
    let whole = log(TIMES);
    let (before, _) = whole.rsplit_once(" -1 -1 -1\n").expect("a last job");
    let last = whole.lines().count();
    let cut = format!("line {last}: 15 of the 18 numbers of a job");
    assert_eq!(said("cut.swf", before.as_bytes()), cut);
    let packed = compressed(whole.as_bytes());
    let cut = said("cut.swf.gz", &packed[..packed.len() / 2]);
    assert!(cut.starts_with("after line "), "{cut}");
    assert!(cut.ends_with("; is the file cut off or damaged?"), "{cut}");
    // Only its checksum lacks: all lines are there.
    let cut = said("cut.swf.gz", &packed[..packed.len() - 4]);
    assert!(cut.starts_with(&format!("after line {last} it can't be read: ")), "{cut}");
}

#[test]
fn a_log_without_what_is_needed_is_told_the_cure() {
    let nameless = log(1).replace("; MaxProcs: 10\n", "");
    let cure = "the log lacks MaxProcs; give --procs N or --nodes NxP";
    assert_eq!(said("nameless.swf", nameless.as_bytes()), cure);
    assert_eq!(said("empty.swf", b"; MaxProcs: 4\n"), "the log has no jobs");
    assert_eq!(said("empty.swf", b""), "the log has no jobs");
    let wide = log(1).replace("; MaxProcs: 10\n", "; MaxProcs: 0\n");
    let wide = said("wide.swf", wide.as_bytes());
    assert!(wide.starts_with("MaxProcs of the log, 0, is out of range; give --procs"), "{wide}");
    let huge = log(1).replace("; MaxProcs: 10\n", "; MaxProcs: 5000000000\n");
    let huge = said("huge.swf", huge.as_bytes());
    assert!(huge.starts_with("MaxProcs of the log, 4294967295, is out of range; give"), "{huge}");
    let none = "; MaxProcs: 4\n1 0 -1 9 8 -1 -1 8 60 -1 1 1 -1 -1 -1 -1 -1 -1\n";
    let none = said("none.swf", none.as_bytes());
    assert!(none.starts_with("none of 1 jobs counts on 4 processors: "), "{none}");
}

/// Where nothing can be written that is told before anything is replayed.
#[test]
fn a_file_that_can_not_be_written_is_told_at_once() {
    let folder = tempfile::tempdir().expect("made");
    let path = write(folder.path(), "log.swf", b"no log at all");
    for (name, why) in [("not/there.tsv", "No such file or directory"), (".", "Is a directory")] {
        for option in ["--out", "--plot"] {
            let file = folder.path().join(name);
            let ran = simulate(&path, &[option, file.to_str().expect("text")]).expect(1);
            let says = format!("can't write {}: {why}", file.display());
            assert!(ran.says(&says).stdout.is_empty());
        }
    }
}

/// An option that is wrong is told before anything is replayed.
#[test]
fn a_comparison_that_is_none_is_a_wrong_option() {
    let folder = tempfile::tempdir().expect("made");
    let path = write(folder.path(), "log.swf", log(1).as_bytes());
    simulate(&path, &["--procs", "-3"]).expect(2).says("give a number from 1 to 1000000");
    for (compare, says) in
        [("polici=easy", "not one of policy, procs, "), ("easy", "give NAME=VALUE")]
    {
        let ran = simulate(&path, &["--compare", compare]).expect(2);
        assert!(ran.says(says).stdout.is_empty());
    }
}
