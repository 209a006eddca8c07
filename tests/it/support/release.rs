//! Later releases of psched, made here: a copy of the tree whose shepherd protocol has the next
//! version, one field more in the hello and in the launch, one less, and one under another number.
//!
//! It is compiled once for all tests, in `target/later-release`, with the dependencies that these tests
//! were compiled with; the copy stays, so that the next run compiles only what has changed.

use super::*;
use psched::apteam::protocol::shepherd::{OLDEST, PROTOCOL};
use std::sync::OnceLock;

/// Folders with the apinit and the apshepherd of each.
pub struct Later {
    pub next: PathBuf,
    /// One that does not understand the shepherds of this one any more. To psched its apinit is as one of a
    /// release before: it wants whole placements, leads to no other hosts, and is asked for no stacks.
    pub much_later: PathBuf,
}

/// An Err says why they can't be had here.
pub fn later() -> Result<&'static Later, &'static str> {
    static BUILT: OnceLock<Result<Later, String>> = OnceLock::new();
    BUILT.get_or_init(build).as_ref().map_err(String::as_str)
}

const SHEPHERD: &str = "src/apteam/protocol/shepherd.rs";
/// Where an apinit says what it can.
const SHELL: &str = "src/apinit/host/shell.rs";

/// What differs: file, text (found once), other text.
fn edits() -> [(&'static str, String, String); 8] {
    let version = |n| format!("pub const PROTOCOL: u32 = {n};");
    let edit = |file, from: &str, to: &str| (file, from.to_owned(), to.to_owned());
    let (proto, convert) = ("proto/shepherd.proto", "src/rpc/convert/shepherd.rs");
    [
        (SHEPHERD, version(PROTOCOL), version(PROTOCOL + 1)),
        // One more in the hello: what the shepherd of this release does not say has a default.
        edit(proto, "uint64 stdin_taken = 7;", "uint64 stdin_taken = 7; string release = 99;"),
        edit(
            convert,
            "several: Same,",
            "several = (several, release): Via(\
                 |several: bool| (several, String::from(\"next\")), \
                 |_, (several, release): (bool, String)| {\
                     tracing::info!(\"a shepherd of the {} release\", \
                     if release.is_empty() { \"first\" } else { &release });\
                     Ok(several)\
                 }),",
        ),
        // To it those of this one are as those before they could execute several programs.
        edit(proto, "bool several = 8;", "bool several = 98;"),
        // One more in the launch.
        edit(proto, "uint64 memory_per_pe = 12;", "uint64 memory_per_pe = 12; string more = 99;"),
        edit(
            convert,
            "memory_per_pe: Given,",
            "memory_per_pe = (memory_per_pe, more): Via(\
                 |bytes: Option<u64>| (bytes.unwrap_or(0), String::from(\"more\")), \
                 |_, (bytes, _): (u64, String)| Ok(Some(bytes).filter(|bytes| *bytes > 0))),",
        ),
        // And one less.
        edit(proto, "uint64 pids_max = 13;", ""),
        edit(convert, "pids_max: Given,", "here pids_max: None,"),
    ]
}

/// Writes it where it is not so already, and says whether it did: what is untouched is not compiled
/// again.
fn write(path: &Path, bytes: &[u8]) -> bool {
    if std::fs::read(path).is_ok_and(|there| there == bytes) {
        return false;
    }
    std::fs::create_dir_all(path.parent().expect("below the copy")).expect("made");
    std::fs::write(path, bytes).expect("written");
    true
}

/// Copies files of the tree, edited; whether anything is new.
fn copy(
    tree: &Path,
    name: &Path,
    to: &Path,
    edits: &mut Vec<(&'static str, String, String)>,
) -> bool {
    let path = tree.join(name);
    if path.is_dir() {
        let below = std::fs::read_dir(&path).expect("read").flatten();
        let names = below.map(|entry| name.join(entry.file_name()));
        return names.fold(false, |new, name| copy(tree, &name, to, edits) | new);
    }
    let mut text = std::fs::read(&path).expect("read");
    edits.retain(|(file, from, other)| {
        if name != Path::new(file) {
            return true;
        }
        let whole = String::from_utf8(std::mem::take(&mut text)).expect("text");
        assert_eq!(whole.matches(from.as_str()).count(), 1, "{file} has {from:?} once");
        text = whole.replace(from.as_str(), other).into_bytes();
        false
    });
    write(&to.join(name), &text)
}

fn build() -> Result<Later, String> {
    let tree = Path::new(env!("CARGO_MANIFEST_DIR"));
    let own = binaries();
    let profile = own.file_name().and_then(OsStr::to_str).expect("a name");
    let target = own.parent().expect("the target folder").join("later-release");
    let (to, built) = (target.join("tree"), target.join(profile));
    let kept = target.join(format!("{profile}-kept"));
    let later = Later { next: kept.join("next"), much_later: kept.join("much-later") };
    let mut left = Vec::from(edits());
    // With the example cargo wants the features that the dependencies have been compiled with for
    // tests.
    let mut new = write(&to.join("examples/as_for_tests.rs"), b"fn main() {}\n");
    for name in ["Cargo.toml", "Cargo.lock", "build.rs", "proto", "src"] {
        new |= copy(tree, Path::new(name), &to, &mut left);
    }
    assert!(left.is_empty(), "{left:?}");
    let done = kept.join("done");
    if !new && done.exists() {
        return Ok(later);
    }
    let began = Instant::now();
    let _ = std::fs::remove_file(&done);
    if !built.exists() {
        // What is written later must not be written into the originals: only what is never written
        // again is linked.
        let script = "mkdir -p \"$1\" && cd \"$0\" && cp -a .fingerprint build \"$1\" && \
                      { cp -al deps \"$1\" || cp -a deps \"$1\"; }";
        let copied = Command::new("sh").args(["-c", script]).args([own, &built]).status();
        assert!(copied.is_ok_and(|status| status.success()), "{}", built.display());
    }
    const PROGRAMS: [&str; 2] = ["apinit", "apshepherd"];
    let compile = |folder: &Path| -> Result<(), String> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command.args(["build", "--locked", "--offline", "--example", "as_for_tests"]);
        command.args(PROGRAMS.iter().flat_map(|program| ["--bin", program]));
        command.args((profile == "release").then_some("--release"));
        command.current_dir(&to).env("CARGO_TARGET_DIR", &target);
        let output = command.output().map_err(|error| format!("no cargo: {error}"))?;
        let said = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            assert!(said.contains("offline"), "a later release does not compile: {said}");
            return Err(format!("its dependencies are not here: {}", tail(&said, 3)));
        }
        std::fs::create_dir_all(folder).expect("made");
        for program in PROGRAMS {
            let _ = std::fs::remove_file(folder.join(program));
            super::copy_program(built.join(program), folder.join(program));
        }
        let compiled = said.lines().filter(|line| line.contains("Compiling")).count();
        eprintln!("a later release: {compiled} crates compiled after {:?}", began.elapsed());
        Ok(())
    };
    compile(&later.next)?;
    let next = std::fs::read_to_string(to.join(SHEPHERD)).expect("text");
    let oldest = |n| format!("pub const OLDEST: u32 = {n};");
    let much_later = next.replace(&oldest(OLDEST), &oldest(PROTOCOL + 1));
    let shell = std::fs::read_to_string(to.join(SHELL)).expect("text");
    let said = "parts: true,\n            leads_on: true,\n            stacks: true,\n            images: true,";
    assert_eq!(shell.matches(said).count(), 1, "{SHELL} has {said:?} once");
    write(&to.join(SHEPHERD), much_later.as_bytes());
    write(&to.join(SHELL), shell.replace(said, &said.replace("true", "false")).as_bytes());
    let outcome = compile(&later.much_later);
    write(&to.join(SHEPHERD), next.as_bytes());
    write(&to.join(SHELL), shell.as_bytes());
    outcome?;
    std::fs::write(done, "").expect("written");
    Ok(later)
}
