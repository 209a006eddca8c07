//! A real CRIU.

use psched::node::checkpoint::criu::Criu;
use std::path::{Path, PathBuf};

/// The one that PSCHED_CRIU names, else what `tests/it/checkpoint/fetch` has fetched, else `criu` in PATH;
/// `None`: there is none, or it does not work here, or this is not root: the test is skipped, by name.
pub fn criu(test: &str) -> Option<Criu> {
    if !super::is_root() {
        super::skip(test, "only root can dump and restore with CRIU");
        return None;
    }
    let fetched = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/criu/criu");
    let named = std::env::var_os("PSCHED_CRIU").map(PathBuf::from);
    let named = named.or_else(|| fetched.is_file().then_some(fetched));
    let found = Criu::find(named.as_deref()).and_then(|criu| criu.check().map(|_| criu));
    match found {
        Ok(criu) => Some(criu),
        Err(why) => {
            super::skip(test, &format!("{why} (tests/it/checkpoint/fetch fetches one)"));
            None
        }
    }
}
