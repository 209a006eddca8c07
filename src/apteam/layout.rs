//! How many PEs are on each node, where one number for all of them does not say it.
//!
//! `--nodes 4 -n 10` wants PEs as even as can be, and the parts of an application of several programs may
//! differ in `-N` or `-d`. Then the nodes are given one by one, in rows of equal ones, and a window has just so
//! many:
//!
//! ```
//! # use psched_pure::apteam::layout::{Layout, Row};
//! let even = Layout::even(10, 4).unwrap();
//! assert_eq!(even.pes().collect::<Vec<_>>(), [3, 3, 2, 2]);
//! assert_eq!(even.to_string(), "3 on each of 2 nodes, 2 on each of 2 nodes");
//! // One that -N can say is none.
//! assert_eq!(Layout::even(8, 4).unwrap().per_node(), Some(2));
//! let row = |nodes, pes, depth| Row { nodes, pes, depth };
//! let parts = Layout::new(vec![row(1, 1, 0), row(3, 2, 0)]).unwrap();
//! assert_eq!((parts.width(), parts.nodes()), (7, 4));
//! // PEs of a row may be less deep than the shape says.
//! let deep = Layout::new(vec![row(1, 1, 4), row(3, 4, 1)]).unwrap();
//! assert_eq!(deep.to_string(), "1 of depth 4 on a node, 4 of depth 1 on each of 3 nodes");
//! assert_eq!(deep.each(4).next(), Some((1, 4)));
//! ```

use super::place::{Place, PlacementList};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Rows that there may be: two for each part of an application.
pub const ROWS_MAX: usize = 512;

/// Nodes in a row with as many PEs each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// How many nodes, at least 1.
    pub nodes: u32,
    /// PEs on each, at least 1.
    pub pes: u32,
    /// Processors for each of these; 0: as many as the shape says, which is the most.
    pub depth: u32,
}

impl Row {
    /// Processors for each PE, where the shape says so many.
    fn depth_in(&self, shape: u32) -> u32 {
        if self.depth == 0 { shape } else { self.depth }
    }
}

/// PEs of each node, in order of rank; without a row nothing is said.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout(Vec<Row>);

impl Layout {
    /// From its rows.
    ///
    /// # Errors
    /// There are too many, or one is empty; in words.
    pub fn new(rows: Vec<Row>) -> Result<Layout, String> {
        if rows.len() > ROWS_MAX {
            return Err(format!("a layout has at most {ROWS_MAX} rows"));
        }
        if rows.iter().any(|row| row.nodes == 0 || row.pes == 0) {
            return Err("a row of a layout needs at least one node and one PE on each".into());
        }
        Ok(Layout(rows))
    }

    /// So many PEs on so many nodes, as even as can be; the first nodes have one more.
    ///
    /// # Errors
    /// A node would have none; in words.
    pub fn even(width: u32, nodes: u32) -> Result<Layout, String> {
        if nodes == 0 || nodes > width {
            return Err(format!(
                "{width} PEs can't be spread over {nodes} nodes, because a node would have no PE"
            ));
        }
        let (each, more) = (width / nodes, width % nodes);
        let row = |nodes, pes| Row { nodes, pes, depth: 0 };
        let rows = [row(more, each + 1), row(nodes - more, each)];
        Layout::new(rows.into_iter().filter(|row| row.nodes > 0).collect())
    }

    /// Those of parts, each with its width, PEs on each node and depth (0: the shape's), that begin on nodes of
    /// their own.
    ///
    /// # Errors
    /// As [`Layout::new`].
    pub fn of_parts(parts: impl IntoIterator<Item = (u32, u32, u32)>) -> Result<Layout, String> {
        let mut rows = Vec::new();
        for (width, each, depth) in parts {
            let each = each.max(1);
            rows.push(Row { nodes: width / each, pes: each, depth });
            rows.push(Row { nodes: 1, pes: width % each, depth });
        }
        Layout::new(joined(rows))
    }

    /// That of a placement of equally deep PEs, whatever was asked for.
    ///
    /// # Errors
    /// It has too many rows; in words.
    pub fn of_places(places: &PlacementList) -> Result<Layout, String> {
        let row = |place: &Place| Row { nodes: 1, pes: place.pes, depth: 0 };
        Layout::new(joined(places.0.iter().map(row)))
    }

    /// Of a placement in which nodes differ in depth; without a row where they do not.
    pub fn of_depths(places: &PlacementList) -> Layout {
        let row = |place: &Place| Row { nodes: 1, pes: place.pes, depth: place.depth() };
        let rows = joined(places.0.iter().map(row));
        let layout = Layout(rows);
        if layout.one_depth() { Layout::default() } else { layout }
    }

    /// Whether all PEs are equally deep.
    pub fn one_depth(&self) -> bool {
        self.0.windows(2).all(|two| two[0].depth == two[1].depth)
    }

    /// The fewest processors that a PE has, where the shape says so many.
    pub fn least_depth(&self, shape: u32) -> u32 {
        self.0.iter().map(|row| row.depth_in(shape)).min().unwrap_or(shape)
    }

    /// The most, likewise.
    pub fn most_depth(&self, shape: u32) -> u32 {
        self.0.iter().map(|row| row.depth_in(shape)).max().unwrap_or(shape)
    }

    /// PEs and depth of each node, where the shape says so much.
    pub fn each(&self, shape: u32) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.0.iter().flat_map(move |row| {
            let depth = row.depth_in(shape);
            (0..row.nodes).map(move |_| (row.pes, depth))
        })
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
            _ if !self.one_depth() => None,
            [one] => Some(one.pes),
            [first, Row { nodes: 1, pes, .. }] if pes < first.pes => Some(first.pes),
            _ => None,
        }
    }

    /// PEs of each node.
    pub fn pes(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().flat_map(|row| (0..row.nodes).map(|_| row.pes))
    }

    /// PEs in all. (Whoever posts may say any numbers: a sum that begins anew would agree with a
    /// small shape.)
    pub fn width(&self) -> u64 {
        let of = |row: &Row| u64::from(row.nodes) * u64::from(row.pes);
        self.0.iter().map(of).fold(0, u64::saturating_add)
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

/// Rows that are alike in one, and none that is empty.
fn joined(rows: impl IntoIterator<Item = Row>) -> Vec<Row> {
    let mut joined: Vec<Row> = Vec::new();
    for row in rows.into_iter().filter(|row| row.nodes > 0 && row.pes > 0) {
        match joined.last_mut() {
            Some(last) if (last.pes, last.depth) == (row.pes, row.depth) => last.nodes += row.nodes,
            _ => joined.push(row),
        }
    }
    joined
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let depth = |row: &Row| match row.depth {
            0 => String::new(),
            depth => format!(" of depth {depth}"),
        };
        let row = |row: &Row| match row.nodes {
            1 => format!("{}{} on a node", row.pes, depth(row)),
            nodes => format!("{}{} on each of {nodes} nodes", row.pes, depth(row)),
        };
        let rows: Vec<String> = self.0.iter().take(8).map(row).collect();
        let more = if self.0.len() > rows.len() { ", and so on" } else { "" };
        write!(f, "{}{more}", rows.join(", "))
    }
}
