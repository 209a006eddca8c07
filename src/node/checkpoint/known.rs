//! What is known of the CRIU of this host.
//!
//! CRIU tells its version, and whether it works on this kernel, by being started and trying: that takes as
//! long as a small checkpoint, or a small restart. Neither changes while the program and the kernel are the same.
//! So what was found once is kept as long as the program is the same file.

use super::criu::{Criu, CriuError};
use std::os::unix::fs::MetadataExt;
use std::sync::{Mutex, PoisonError};

/// A file as it is: another one in its place has another number or another time.
type Same = (u64, u64, u64, (i64, i64), (i64, i64));

/// What is known of the CRIU of this host, which may not have been looked for yet.
#[derive(Debug, Default)]
pub struct Known {
    good: Mutex<Option<(Same, Criu)>>,
}

impl Known {
    /// The CRIU of this host ([`Criu::here`]), which has told its version and does what is needed; it is
    /// started only if it is not the one that has done so before.
    ///
    /// # Errors
    /// There is none, or what is missing, as [`Criu::check`] says it. It is asked anew then the next time.
    pub fn good(&self) -> Result<Criu, CriuError> {
        self.checked(Criu::here()?)
    }

    fn checked(&self, criu: Criu) -> Result<Criu, CriuError> {
        let found = std::fs::metadata(criu.program());
        let found = found.map_err(|e| CriuError::Start(criu.program().display().to_string(), e))?;
        let times = ((found.mtime(), found.mtime_nsec()), (found.ctime(), found.ctime_nsec()));
        let same = (found.dev(), found.ino(), found.size(), times.0, times.1);
        let mut good = self.good.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, known)) = good.as_ref()
            && (of, known.program()) == (&same, criu.program())
        {
            return Ok(known.clone());
        }
        let version = criu.check()?;
        let known = criu.of_version(version);
        *good = Some((same, known.clone()));
        Ok(known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::process::Command;

    /// Notes each request, by a line in a file, and answers the odd ones with its version, the others with
    /// yes.
    const SCRIPT: &str = r#"#!/bin/bash
dd bs=65536 count=1 <&$2 >/dev/null 2>&1
here=${0%/*}
echo >>$here/asked
if [ $(($(wc -l <$here/asked) % 2)) = 1 ]; then cat $here/version >&$2; else cat $here/yes >&$2; fi
"#;

    /// By another process: nobody else's fork holds the file open for writing then (ETXTBSY).
    fn put(folder: &Path, script: &str) {
        let put = "printf %s \"$1\" >$0.new && chmod 755 $0.new && mv $0.new $0";
        let mut command = Command::new("sh");
        let status = command.args(["-c", put]).arg(folder.join("criu")).arg(script).status();
        assert!(status.expect("sh").success());
    }

    #[test]
    fn one_that_is_good_is_not_asked_again_until_it_is_another() {
        let folder = tempfile::tempdir().expect("made");
        let at = |name: &str| folder.path().join(name);
        // {type: VERSION, success: true, version: {4, 2}}, and {type: CHECK, success: true}.
        std::fs::write(at("version"), b"\x08\x0a\x10\x01\x52\x04\x08\x04\x10\x02")
            .expect("written");
        std::fs::write(at("yes"), b"\x08\x03\x10\x01").expect("written");
        put(folder.path(), SCRIPT);
        let asked = || std::fs::read(at("asked")).unwrap_or_default().len();
        let known = Known::default();
        let good = || Criu::find(Some(&at("criu"))).and_then(|criu| known.checked(criu));
        let version = good().expect("good").version().expect("known");
        assert_eq!((version.to_string().as_str(), asked()), ("4.2", 2));
        good().expect("good").version().expect("known");
        assert_eq!(asked(), 2);
        put(folder.path(), SCRIPT);
        good().expect("good");
        assert_eq!(asked(), 4);
        // A bad one is asked each time: what it lacks may be there by now.
        std::fs::write(at("yes"), b"\x08\x03\x10\x00").expect("written");
        put(folder.path(), SCRIPT);
        for n in [6, 8] {
            good().expect_err("it says no");
            assert_eq!(asked(), n);
        }
    }
}
