//! psched.yaml in; machine and variables out, or all problems.
//!
//! # The problem
//!
//! An administrator who has made five mistakes wants to hear of five, each with its place and its
//! cure, before anything of the running system has changed.
//!
//! # The approach
//!
//! Three passes. [`tree`] reads what is YAML, with the place of each part. [`form`] compares it with the keys that
//! there are; what does not fit is a problem and is left out, and serde_yaml makes of the rest what [`syntax`]
//! says. [`meaning`] then reads the single values, and looks whether they go together; it names each by its key
//! path (`nodes[1].processors`), by which its place is found in the tree again. So all problems are found but
//! those behind a place that is no YAML.
//!
//! ```
//! # use psched_pure::config;
//! let problems = config::read("
//! nodes:
//!   - { nids: 0-3, processors: 0 }
//!   - { nids: 3, processors: 2, flavors: [su, so] }
//! variables:
//!   kill_grase: 5s
//! ").unwrap_err();
//! let said: Vec<String> = problems.iter().map(ToString::to_string).collect();
//! assert_eq!(said, [
//!     "3:30: nodes[0].processors: \"0\" is not a number of processors; give 1 to 4096",
//!     "4:13: nodes[1].nids: NID 3 is already in nodes[0]; give each node once",
//!     "4:31: nodes[1].flavors: \"so\" is not a flavor; the flavors are su, os, ap",
//!     "6:15: variables.kill_grase: there is no variable kill_grase; did you mean kill_grace?",
//! ]);
//! ```
//!
//! The grammar is in psched.yaml(5).

mod contents;
mod form;
mod meaning;
mod names;
mod problems;
mod regions;
mod syntax;
#[cfg(test)]
mod tests;
mod tree;

use crate::machine::{Flavor, Flavors, Nid, Node};
pub use contents::{Administrator, Config, NODES_MAX, PROCESSORS_MAX};
pub use problems::{At, PROBLEMS_MAX, Problem};

/// The largest file that is read, in bytes: a million nodes, each on a line of its own, would take
/// a tenth of it per word.
pub const SIZE_MAX: usize = 10 << 20;
/// Reads the text of a psched.yaml.
///
/// # Errors
/// All its problems, at most [`PROBLEMS_MAX`]; at least one.
pub fn read(text: &str) -> Result<Config, Vec<Problem>> {
    if text.len() > SIZE_MAX {
        return Err(vec![Problem {
            at: None,
            key: String::new(),
            what: format!("the file has more than {SIZE_MAX} bytes"),
            cure: "write nodes that are alike as one entry with a range of NIDs".into(),
        }]);
    }
    let tree = tree::read(text).map_err(|problem| vec![problem])?;
    let (fitting, problems) = form::fitting(&tree);
    let file = syntax::read(fitting).map_err(|problem| vec![problem])?;
    meaning::check(file, problems).map_err(|problems| in_order(&tree, problems))
}

/// With their places, from the top of the file to its end.
fn in_order(tree: &tree::Tree, mut problems: Vec<Problem>) -> Vec<Problem> {
    let all = problems.clone();
    problems.retain(|problem| !form::says_no_more(problem, &all));
    for problem in &mut problems {
        problem.at.get_or_insert_with(|| tree.place(&problem.key));
    }
    problems.sort_by_key(|problem| problem.at);
    problems
}

/// What `psched start --nodes N --processors P` means: NIDs from 0 on this host, node 0 with all
/// three flavors, the rest `ap`; their memory is not said (0). Numbers are brought into their
/// ranges, 1 to [`NODES_MAX`] and 1 to [`PROCESSORS_MAX`].
pub fn embedded(nodes: u32, processors: u32) -> Config {
    let nodes = nodes.clamp(1, NODES_MAX as u32);
    let node = |nid| Node {
        flavors: if nid == 0 { Flavors::all() } else { Flavors::default().with(Flavor::Ap) },
        ..Node::plain(Nid(nid), processors.clamp(1, PROCESSORS_MAX))
    };
    let machine = (0..nodes).map(node).collect();
    Config { machine, ..Config::default() }
}
