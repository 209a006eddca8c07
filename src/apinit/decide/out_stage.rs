//! How far an application is whose memory goes out by a checkpoint.

/// How far one is whose memory goes out by a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutStage {
    /// It is brought to a stand and dumped.
    Leaves,
    /// No process of it is left, and its images have so many bytes.
    Gone(u64),
    /// It is being brought back.
    Comes,
}
