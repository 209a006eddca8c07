//! What the column heads mean: the help of the live view.

use super::lines::{Line, Role, Span, sentence};
use super::page::Page;

/// A table, and what its columns mean.
type Section = (&'static str, &'static [(&'static str, &'static str)]);

const TURNS: &[Section] = &[
    (
        "Plans",
        &[
            ("Party", "number of a slice of the plan; > marks the slice that is on"),
            ("Slice", "length of the slice"),
            (
                "0 1-3",
                "a node, or neighbours that look alike, and the applications that run there in this \
                 slice: * leads, + is promoted",
            ),
        ],
    ),
    (
        "Applications",
        &[
            ("Apid", "number of the application"),
            ("User", "user who started it"),
            ("PEs", "its processes; after a slash the processors that they share"),
            ("NIDs", "its nodes"),
            (
                "Turn",
                "leads or promoted: it runs in this slice; frozen: it waits for its slice; runs: it \
                 competes with no other application; held: an administrator holds it; stopped: its user \
                 has stopped it; suspect: a node of it does not answer",
            ),
            ("For", "time until Turn changes"),
            ("Had", "part of the time since its start in which it ran"),
            (
                "Due",
                "its user's part by weight among the users it takes turns with, shared evenly among that \
                 user's applications",
            ),
            ("Run", "time that it ran"),
            ("Part", "time in which it ran on some of its nodes and not on others"),
            ("Memory", "memory that psched counts for it on all its nodes"),
        ],
    ),
    CHANGES,
];

const NODES: &[Section] = &[
    (
        "Nodes",
        &[
            ("NID", "number of the node"),
            ("Host", "host of the node"),
            ("State", "state of the node, as in apstat(1)"),
            ("HW", "its processors"),
            ("Pl", "its processors on which applications are placed"),
            ("Stops", "how the node stops an application: freezer, or SIGSTOP, which is weaker"),
            ("Limits", "what the node can limit for each application"),
            ("Checkpoints", "what can checkpoint applications there"),
            (
                "Ahead",
                "seconds by which psched's clock is ahead of the node's, if nodes are on other hosts",
            ),
            ("Clock", "by how much the node's knowledge of psched's clock may be wrong"),
            ("Apids", "applications on the node"),
        ],
    ),
    CHANGES,
];

const CHANGES: Section = (
    "Changes of party, since psched was started; times in ms",
    &[
        ("NIDs", "nodes that measured them; all: every node"),
        ("Changes", "changes that were measured"),
        ("Freeze", "median time until the outgoing applications were frozen"),
        ("Gap", "median time until the incoming applications ran"),
        ("Skew", "median distance from the time in the plan"),
        ("p99", "99th percentile of the column to the left"),
        ("Late", "control groups that were not known to be frozen in time"),
        ("Untold", "changes without figures: too many in one second"),
    ],
);

/// Room for the heads.
const HEAD: usize = 12;
/// The least room for a meaning beside its head.
const MEANING: usize = 20;

/// The column heads of a page, each with its meaning.
pub fn help(page: Page, width: usize) -> Vec<Line> {
    let sections = match page {
        Page::Turns => TURNS,
        Page::Nodes => NODES,
    };
    let mut lines = Vec::new();
    for (at, (title, columns)) in sections.iter().enumerate() {
        if at > 0 {
            lines.push(Line::new());
        }
        lines.extend(sentence(title, Role::Title, width));
        lines.extend(columns.iter().flat_map(|(head, meaning)| entry(head, meaning, width)));
    }
    lines
}

fn entry(head: &str, meaning: &str, width: usize) -> Vec<Line> {
    let room = width.saturating_sub(HEAD);
    if room < MEANING {
        return sentence(&format!("{head}: {meaning}"), Role::Plain, width);
    }
    let mut lines = sentence(meaning, Role::Plain, room);
    for (at, line) in lines.iter_mut().enumerate() {
        let head = if at == 0 { head } else { "" };
        line.insert(0, Span::new(format!("{head:<HEAD$}"), Role::On));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::super::lines::text;
    use super::*;

    #[test]
    fn every_line_fits() {
        for page in [Page::Turns, Page::Nodes] {
            for width in [20, 31, 40, 80, 200] {
                let text = text(&help(page, width));
                assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
            }
        }
        // A terminal of 24 rows has all of it that is about applications.
        let turns = text(&help(Page::Turns, 80));
        assert!(turns.lines().take(23).any(|line| line.starts_with("Memory ")), "{turns}");
        let turns = text(&help(Page::Turns, 40));
        assert!(turns.contains("\nFor         time until Turn changes\n"), "{turns}");
        // A column that is there only if nodes are on other hosts.
        let nodes = text(&help(Page::Nodes, 120));
        let ahead = "\nAhead       seconds by which psched's clock is ahead of the node's, if nodes are on other hosts\n";
        assert!(nodes.contains(ahead), "{nodes}");
    }
}
