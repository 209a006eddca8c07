//! Whether the scheduler's state is as it always must be, once a minute.

use super::{Driver, Note, Outside};

/// Nanoseconds from one look to the next.
const EVERY_NS: u64 = 60_000_000_000;

impl<O: Outside> Driver<O> {
    /// Looks, if it is time. What is found is said once.
    pub(super) fn look_at_invariants(&mut self, out: &mut O) {
        let Some(due_ns) = self.looks_ns else { return };
        let now_ns = out.now().mono_ns;
        if now_ns < due_ns {
            return;
        }
        self.looks_ns = Some(now_ns.saturating_add(EVERY_NS));
        if let Some(broken) = self.scheduler.broken() {
            self.looks_ns = None;
            out.keep_recording(self.recorder.recording(), broken.clone());
            out.note(Note::Warning(format!(
                "a fault in psched: {broken}. Applications run on. Restart psched, and report this with its log and the \
                 newest recording in its state directory"
            )));
        }
    }
}
