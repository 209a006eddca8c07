//! How many PEs are on each node, where one number for all of them does not say it.
//!
//! `--nodes 4 -n 10` wants PEs as even as can be, and the parts of an application of several programs may
//! differ in `-N`. Then the nodes are given one by one, in rows of equal ones, and a window has just so many:
//!
//! ```
//! # use psched::apteam::layout::{Layout, Row};
//! let even = Layout::even(10, 4).unwrap();
//! assert_eq!(even.pes().collect::<Vec<_>>(), [3, 3, 2, 2]);
//! assert_eq!(even.to_string(), "3 on each of 2 nodes, 2 on each of 2 nodes");
//! // One that -N can say is none.
//! assert_eq!(Layout::even(8, 4).unwrap().per_node(), Some(2));
//! let parts = Layout::new(vec![Row { nodes: 1, pes: 1 }, Row { nodes: 3, pes: 2 }]).unwrap();
//! assert_eq!((parts.width(), parts.nodes()), (7, 4));
//! ```

use std::fmt;

/// Rows that there may be: two for each part of an application.
pub const ROWS_MAX: usize = 512;

/// Nodes in a row with as many PEs each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// How many nodes, at least 1.
    pub nodes: u32,
    /// PEs on each, at least 1.
    pub pes: u32,
}

/// PEs of each node, in order of rank; without a row nothing is said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout(Vec<Row>);

impl Layout {
    /// From its rows.
    ///
    /// # Errors
    /// There are too many, or one is empty; in words.
    pub fn new(rows: Vec<Row>) -> Result<Layout, String> {
        if rows.len() > ROWS_MAX {
            return Err(format!("a layout has {ROWS_MAX} rows at most"));
        }
        if rows.iter().any(|row| row.nodes == 0 || row.pes == 0) {
            return Err("a row of a layout has no node, or no PE on a node".into());
        }
        Ok(Layout(rows))
    }

    /// So many PEs on so many nodes, as even as can be; the first nodes have one more.
    ///
    /// # Errors
    /// A node would have none; in words.
    pub fn even(width: u32, nodes: u32) -> Result<Layout, String> {
        if nodes == 0 || nodes > width {
            return Err(format!("{width} PEs can't be spread over {nodes} nodes: one has none"));
        }
        let (each, more) = (width / nodes, width % nodes);
        let rows = [Row { nodes: more, pes: each + 1 }, Row { nodes: nodes - more, pes: each }];
        Layout::new(rows.into_iter().filter(|row| row.nodes > 0).collect())
    }

    /// Those of parts, each with its width and PEs on each node, that begin on nodes of their own.
    ///
    /// # Errors
    /// As [`Layout::new`].
    pub fn of_parts(parts: impl IntoIterator<Item = (u32, u32)>) -> Result<Layout, String> {
        let mut rows: Vec<Row> = Vec::new();
        for (width, each) in parts {
            let each = each.max(1);
            let full = Row { nodes: width / each, pes: each };
            let rest = Row { nodes: 1, pes: width % each };
            for row in [full, rest].into_iter().filter(|row| row.nodes > 0 && row.pes > 0) {
                match rows.last_mut() {
                    Some(last) if last.pes == row.pes => last.nodes += row.nodes,
                    _ => rows.push(row),
                }
            }
        }
        Layout::new(rows)
    }

    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Its rows.
    pub fn rows(&self) -> &[Row] {
        &self.0
    }

    /// The -N that says the same: all nodes alike, but for a last one with fewer.
    pub fn per_node(&self) -> Option<u32> {
        match self.0[..] {
            [one] => Some(one.pes),
            [first, Row { nodes: 1, pes }] if pes < first.pes => Some(first.pes),
            _ => None,
        }
    }

    /// PEs of each node.
    pub fn pes(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().flat_map(|row| (0..row.nodes).map(|_| row.pes))
    }

    /// PEs in all.
    pub fn width(&self) -> u64 {
        self.0.iter().map(|row| u64::from(row.nodes) * u64::from(row.pes)).sum()
    }

    /// Nodes in all.
    pub fn nodes(&self) -> u64 {
        self.0.iter().map(|row| u64::from(row.nodes)).sum()
    }

    /// The most PEs on a node.
    pub fn most(&self) -> u32 {
        self.0.iter().map(|row| row.pes).max().unwrap_or(0)
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = |row: &Row| match row.nodes {
            1 => format!("{} on a node", row.pes),
            nodes => format!("{} on each of {nodes} nodes", row.pes),
        };
        let rows: Vec<String> = self.0.iter().take(8).map(row).collect();
        let more = if self.0.len() > rows.len() { ", and so on" } else { "" };
        write!(f, "{}{more}", rows.join(", "))
    }
}
