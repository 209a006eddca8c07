//! What one search leaves to the next.

/// What one search leaves to the next.
#[derive(Clone, Debug, Default)]
pub(super) struct Scratch {
    /// By candidate: in which walk it was met last.
    pub(super) met: Vec<u32>,
    pub(super) walk: u32,
    /// Blocks looked at by this decision.
    pub steps: usize,
    /// Who is on a node that is cut, and who of them is hit.
    pub(super) on: Vec<(u64, u32, u32)>,
    pub(super) who: Vec<u32>,
}

impl Scratch {
    /// For another decision.
    pub fn clear(&mut self) {
        self.met.clear();
        (self.walk, self.steps) = (0, 0);
    }
}
