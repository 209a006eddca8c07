//! What this process is called, for ps and pgrep.

use std::ffi::CString;

/// Calls it so. To be called before there are other threads, which are called as the one that starts them.
pub fn set(name: &str) {
    // (An Err: it is called as its program then.)
    let _ = CString::new(name).map(|name| rustix::thread::set_name(&name));
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_name_is_shown() {
        // (A thread's name: that of a process is its first thread's.)
        super::set("apstat");
        let name = std::fs::read_to_string("/proc/thread-self/comm").expect("/proc");
        assert_eq!(name, "apstat\n");
    }
}
