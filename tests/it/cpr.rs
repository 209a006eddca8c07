//! cpr on checkpoints: what is in them, whether they are whole, and how they go.

use crate::support::users::{ANNA, BERT, Bins};
use crate::support::*;
use nix::pty::{OpenptyResult, Winsize, openpty};
use psched::checkpoint::{Kind, MANIFEST, Manifest, SealKey, example};
use psched::node::checkpoint::dir::{Partial, Spot, load_or_make_key};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// A folder with checkpoints in it, of a machine with this key.
struct Place {
    folder: tempfile::TempDir,
    key: SealKey,
}

impl Place {
    fn new() -> Place {
        let folder = tempfile::tempdir().expect("made");
        let key = load_or_make_key(&folder.path().join("key")).expect("made");
        Place { folder, key }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The images of the example, not sealed yet.
    fn partial(&self, name: &str) -> Partial {
        let partial = Partial::create(Spot::of(&self.at(name)).expect("a place")).expect("made");
        let folder = partial.dir().folder("host-0").expect("made");
        for (folder, name, bytes) in
            [(partial.as_fd(), "core-1.img", "core"), (folder.as_fd(), "pages-1.img", "pages")]
        {
            use rustix::fs::{Mode, OFlags, openat};
            let create = OFlags::WRONLY | OFlags::CREATE;
            let file = openat(folder, name, create, Mode::RUSR).expect("made");
            std::fs::File::from(file).write_all(bytes.as_bytes()).expect("written");
        }
        partial
    }

    /// The example as a checkpoint, sealed by this key.
    fn made_with(&self, name: &str, key: &SealKey) {
        let partial = self.partial(name);
        partial.dir().seal(example(), key, None).expect("sealed");
        partial.publish(false).expect("published");
    }

    fn made(&self, name: &str) {
        self.made_with(name, &self.key);
    }

    /// One of a posting that waited.
    fn waiting(&self, name: &str) {
        let partial = Partial::create(Spot::of(&self.at(name)).expect("a place")).expect("made");
        let manifest = Manifest { kind: Kind::Waiting, ..example() };
        partial.dir().seal(manifest, &self.key, None).expect("sealed");
        partial.publish(false).expect("published");
    }

    /// cpr in this folder, with the key; UTC.
    fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(binaries().join("cpr"));
        command.args(words(arguments)).current_dir(self.folder.path()).env("TZ", "UTC");
        command.env("PSCHED_CHECKPOINT_KEY", self.at("key"));
        command
    }

    fn cpr(&self, arguments: &str) -> Run {
        run(&mut self.command(arguments))
    }

    /// What is in the folder but the key.
    fn names(&self) -> Vec<String> {
        let all = std::fs::read_dir(self.folder.path()).expect("ours").flatten();
        let all = all.map(|entry| entry.file_name().into_string().expect("text"));
        let mut all: Vec<String> = all.filter(|name| name != "key").collect();
        all.sort();
        all
    }
}

#[test]
fn good_ones_are_told() {
    let place = Place::new();
    place.made("tonight");
    place.waiting("queued");
    let told = place.cpr("-i tonight queued").expect(0);
    assert_eq!(
        told.out(),
        "Checkpoint Whole Seal     Kind    Apid User  PEs Size Made                    Host \
         Back-end Command\n\
         tonight    yes   verified running   12 alice   2    9 2026-05-28 20:26:40.000 n0   criu \
         4.2 ./ring 1000\n\
         queued     yes   verified waiting   12 alice   2    0 2026-05-28 20:26:40.000 n0   \
         -        ./ring 1000\n"
    );
    assert_eq!(told.stderr, "");
    let told = place.cpr("--json -i tonight").expect(0).out();
    let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    let row = &told["checkpoints"][0];
    assert_eq!((&row["whole"], &row["seal"]), (&true.into(), &"verified".into()));
    assert_eq!(row["nids"], serde_json::json!([3, 4]));
    assert_eq!(row["time_left_ms"], 2_699_500);
    // Nothing is done to them.
    assert_eq!(place.names(), ["queued", "tonight"]);
}

/// The key is that of the psched that is asked, wherever its state is.
#[test]
fn the_key_is_of_the_psched_that_is_asked() {
    let instance = instance(1, 1);
    let key = instance.folder().join("state/checkpoint.key");
    let mut place = Place::new();
    place.key = psched::node::checkpoint::dir::load_key(&key).expect("read").expect("there");
    place.made("tonight");
    let mut command = place.command("-i --json tonight");
    command.env_remove("PSCHED_CHECKPOINT_KEY").env("PSCHED_SOCKET", &instance.socket);
    let told = run(&mut command).expect(0).out();
    let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!(told["checkpoints"][0]["seal"], "verified", "{told}");
    // Without one it is looked for where a machine's is.
    let socket = place.at("none.sock");
    let told = run(command.env("PSCHED_SOCKET", socket)).expect(0).out();
    assert!(told.contains("not_verified"), "{told}");
}

#[test]
fn bad_ones_are_explained() {
    let place = Place::new();
    for name in ["good", "damaged", "short", "less", "partial", "newer", "torn", "more"] {
        place.made(name);
    }
    place.made_with("foreign", &SealKey([3; 32]));
    let image = |name: &str| place.at(name).join("host-0/pages-1.img");
    std::fs::write(image("damaged"), "Pages").expect("ours");
    std::fs::write(image("short"), "pag").expect("ours");
    std::fs::remove_file(image("less")).expect("ours");
    std::fs::remove_file(place.at("partial").join(MANIFEST)).expect("ours");
    let manifest = place.at("newer").join(MANIFEST);
    std::fs::write(&manifest, "{\"version\": 7, \"all\": \"else\"}\n").expect("ours");
    let manifest = place.at("torn").join(MANIFEST);
    let text = std::fs::read(&manifest).expect("there");
    std::fs::write(&manifest, &text[..text.len() / 2]).expect("ours");
    std::fs::write(place.at("more/seccomp.img"), "").expect("ours");
    symlink("good", place.at("link")).expect("made");
    std::fs::write(place.at("file"), "").expect("ours");
    for (name, said) in [
        (
            "damaged",
            "host-0/pages-1.img is damaged: its checksum differs from that in the manifest; \
             replace",
        ),
        ("short", "it is incomplete: host-0/pages-1.img has 3 bytes of 5; replace"),
        ("less", "it is incomplete: host-0/pages-1.img is missing; replace"),
        ("partial", "it has no manifest.json: it is not a checkpoint, or was never finished"),
        ("newer", "its manifest has version 7, and this cpr reads up to 1: use the cpr of"),
        ("torn", "manifest.json is damaged: it can't be read: EOF"),
        ("more", "seccomp.img is not part of the checkpoint: move it elsewhere"),
        (
            "foreign",
            "it is not sealed by the key of this machine: it was made on another \
                     machine, or",
        ),
        ("link", "a checkpoint is a folder, and link is a symbolic link"),
        ("link/", "a checkpoint is a folder, and link is a symbolic link"),
        ("file", "a checkpoint is a folder, and file is a file"),
        ("nothing", "there is no such folder"),
        ("nowhere/nothing", "opening nowhere: No such file or directory"),
    ] {
        // The good one is told all the same.
        let told = place.cpr(&format!("-i {name} good")).expect(1);
        let lines: Vec<&str> = told.stderr.lines().collect();
        let head = format!("cpr: {name}: ");
        assert!(
            lines.len() == 1 && lines[0].starts_with(&head) && lines[0].contains(said),
            "{name}: {}",
            told.stderr
        );
        let told = told.out();
        let row = |name: &str| {
            let row = told.lines().find(|line| line.starts_with(&format!("{name} ")));
            row.unwrap_or_else(|| panic!("{name}: {told}")).to_owned()
        };
        assert!(row(name).contains(" no "), "{told}");
        assert!(row("good").contains(" yes   verified "), "{told}");
        let told = place.cpr(&format!("--json -i {name}")).expect(1).out();
        let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
        let problem = told["checkpoints"][0]["problem"].as_str().expect("a reason");
        assert!(problem.contains(said), "{problem}");
    }
    // Who is sealed by another is still told what it says of itself.
    let told = place.cpr("-i foreign");
    assert!(told.out().contains(" no    foreign running   12 alice "), "{}", told.out());
}

#[test]
fn links_in_one_are_refused() {
    let place = Place::new();
    place.made("c");
    std::fs::rename(place.at("c/core-1.img"), place.at("core")).expect("ours");
    symlink(place.at("core"), place.at("c/core-1.img")).expect("made");
    place.cpr("-i c").expect(1).says("core-1.img is a symbolic link, and a checkpoint has plain");
    std::fs::remove_file(place.at("c/core-1.img")).expect("ours");
    std::fs::hard_link(place.at("core"), place.at("c/core-1.img")).expect("made");
    place.cpr("-i c").expect(1).says("another name too (hard link)");
    // What goes is the name in it, not what else has it.
    place.cpr("-D c").expect(0);
    assert_eq!(place.names(), ["core"]);
    // A link for the folder is not followed.
    place.made("d");
    symlink("d", place.at("e")).expect("made");
    for name in ["e", "e/"] {
        place.cpr(&format!("-D {name}")).expect(1).says("e is a symbolic link");
    }
    assert_eq!(place.names(), ["core", "d", "e"]);
    assert!(place.at("d/core-1.img").exists());
}

/// Without the key the seal can't be judged; and one that others read is none.
#[test]
fn seals_need_the_key() {
    let place = Place::new();
    place.made("c");
    place.made_with("f", &SealKey([3; 32]));
    let with = |key: &str| {
        let mut command = place.command("-i c f");
        run(command.env("PSCHED_CHECKPOINT_KEY", place.at(key)))
    };
    let told = with("none").expect(0).out();
    assert_eq!(told.matches("yes   not verified ").count(), 2, "{told}");
    let said = format!("not verified: there is no key in {}\n", place.at("none").display());
    assert!(told.ends_with(&said), "{told}");
    let mode = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(place.at("key"), mode).expect("ours");
    let told = with("key").expect(0).out();
    assert!(told.contains("other users may read or change it (mode 0644)"), "{told}");
    assert_eq!(told.matches("yes   not verified ").count(), 2, "{told}");
    if is_root() {
        let bins = Bins::new();
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(place.folder.path(), open).expect("ours");
        for name in ["c", "c/host-0", "c/core-1.img", "c/host-0/pages-1.img", "c/manifest.json"] {
            chown(place.at(name), Some(ANNA.uid), Some(ANNA.gid)).expect("root may");
        }
        let told =
            run(&mut ANNA.command(bins.path("cpr"), ["-i".as_ref(), place.at("c").as_os_str()]));
        let told = told.expect(0).out();
        assert!(told.ends_with("not verified: only root can read the key\n"), "{told}");
    }
}

#[test]
fn one_is_removed_whole_or_not_at_all() {
    let place = Place::new();
    place.made("c");
    place.waiting("w");
    place.made("keeps");
    std::fs::write(place.at("keeps/notes"), "mine").expect("ours");
    std::fs::create_dir(place.at("folder")).expect("made");
    // What can't be removed keeps nobody else.
    let said = place.cpr("-D c keeps folder nothing w").expect(1).stderr;
    let said: Vec<&str> = said.lines().collect();
    assert_eq!(said.len(), 3, "{said:?}");
    assert!(said[0].starts_with("cpr: keeps: notes is not part of the checkpoint"), "{said:?}");
    assert!(said[1].starts_with("cpr: folder: it has no manifest.json"), "{said:?}");
    assert!(said[2].starts_with("cpr: nothing: there is no such folder"), "{said:?}");
    assert_eq!(place.names(), ["folder", "keeps"]);
    assert_eq!(std::fs::read(place.at("keeps/core-1.img")).expect("there"), b"core");
}

#[test]
fn leftovers_are_named_and_removed() {
    let place = Place::new();
    place.made("c");
    let busy = place.partial("c");
    let left = place.partial("c").leave().into_string().expect("text");
    let only = place.partial("d").leave().into_string().expect("text");
    let told = place.cpr("-i c").expect(0).out();
    assert!(
        told.contains(&format!("c: {left}, beside it, is of an unfinished checkpoint")),
        "{told}"
    );
    assert!(told.contains(", beside it, is being written or removed\n"), "{told}");
    // Where there is no checkpoint yet it is named too.
    let told = place.cpr("-i d").expect(1).says("there is no such folder").out();
    assert!(told.contains(&format!("d: {only}, beside it, ")), "{told}");
    place.cpr(&format!("-i {only}")).expect(1).says("it is an unfinished checkpoint");
    place.cpr("-D d").expect(0);
    assert!(!place.at(&only).exists());
    // By its own name, alone; and what is written is left alone.
    place.cpr(&format!("-D {left}")).expect(0);
    assert!(!place.at(&left).exists() && place.at("c").exists());
    place.cpr("-D c").expect(1).says("it; wait until that process has ended");
    drop(busy);
    assert_eq!(place.names(), [""; 0]);
}

#[test]
fn another_users_are_left_alone() {
    if !is_root() {
        return skip("cpr::another_users_are_left_alone", "only root can be two users");
    }
    let (place, bins) = (Place::new(), Bins::new());
    place.made("hers");
    for name in ["hers", "hers/host-0", "hers/core-1.img", "hers/host-0/pages-1.img"] {
        chown(place.at(name), Some(ANNA.uid), Some(ANNA.gid)).expect("root may");
    }
    chown(place.at("hers/manifest.json"), Some(ANNA.uid), Some(ANNA.gid)).expect("root may");
    // Everybody may write beside it and in it.
    for name in [".", "hers", "hers/host-0"] {
        let mode = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(place.at(name), mode).expect("ours");
    }
    for name in ["hers/core-1.img", "hers/host-0/pages-1.img", "hers/manifest.json"] {
        let mode = std::fs::Permissions::from_mode(0o666);
        std::fs::set_permissions(place.at(name), mode).expect("ours");
    }
    let hers = place.at("hers");
    let by = |user: users::User| {
        run(&mut user.command(bins.path("cpr"), ["-D".as_ref(), hers.as_os_str()]))
    };
    let said = format!("it belongs to user {}, and you are user {}: ask", ANNA.uid, BERT.uid);
    by(BERT).expect(1).says(&said);
    assert!(place.at("hers/core-1.img").exists());
    by(ANNA).expect(0);
    assert!(!hers.exists());
}

/// Rows end where the terminal does; what is wrong is said whole.
#[test]
fn on_a_narrow_terminal_lines_are_cut() {
    let place = Place::new();
    place.made("c");
    place.made("bad");
    std::fs::remove_file(place.at("bad/core-1.img")).expect("ours");
    let size = Winsize { ws_row: 5, ws_col: 30, ws_xpixel: 0, ws_ypixel: 0 };
    let OpenptyResult { master, slave } = openpty(&size, None).expect("a terminal");
    let mut command = place.command("-i c bad");
    let child = command.stdout(slave).stderr(Stdio::piped()).spawn().expect("it runs");
    drop(command);
    let said = child.wait_with_output().expect("it ends");
    assert_eq!(said.status.code(), Some(1));
    let said = String::from_utf8(said.stderr).expect("text");
    assert!(
        said.contains("it is incomplete: core-1.img is missing; replace it from an undamaged copy"),
        "{said}"
    );
    let mut told = Vec::new();
    let mut screen = std::fs::File::from(master);
    // A terminal that nobody holds any more is at its end with an error.
    let _ = screen.read_to_end(&mut told);
    let told = String::from_utf8(told).expect("text");
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines, ["Checkpoint Whole Apid", "c          yes     12", "bad        no      12"]);
}

/// A disk that fills while one is written leaves nothing that looks like one, and nothing else.
#[test]
fn a_full_disk_leaves_no_checkpoint() {
    let folder = tempfile::tempdir().expect("made");
    let flags = nix::mount::MsFlags::empty();
    let size = Some("size=64k,nr_inodes=100");
    if nix::mount::mount(Some("none"), folder.path(), Some("tmpfs"), flags, size).is_err() {
        return skip("cpr::a_full_disk_leaves_no_checkpoint", "no file system can be mounted");
    }
    let place = Place { folder, key: SealKey([7; 32]) };
    place.made("older");
    let partial = place.partial("tonight");
    let ballast = std::fs::File::create(place.at("ballast")).expect("made");
    while (&ballast).write_all(&[0; 512]).is_ok() {}
    let flaw = partial.dir().seal(example(), &place.key, None).expect_err("full").to_string();
    let words = "writing manifest.json: No space left on device (os error 28); make room there";
    assert!(flaw.starts_with(words), "{flaw}");
    drop(partial);
    let left = place.names();
    place.cpr("-i older").expect(0);
    // And there is a way out.
    place.cpr("-D older").expect(0);
    let lazily = nix::mount::MntFlags::MNT_DETACH;
    nix::mount::umount2(place.folder.path(), lazily).expect("ours");
    assert_eq!(left, ["ballast", "older"]);
}

#[test]
fn wrong_lines_and_no_psched() {
    let place = Place::new();
    place.made("c");
    for (line, said) in [
        ("", "--checkpoint <DIR>"),
        ("-c d", "--apid <APID>"),
        ("-c d -p x", "not the number of an application"),
        ("-c d -p 1 -g -k", "cannot be used with"),
        ("-i c -D c", "cannot be used with"),
        ("-i c -p 1", "cannot be used with"),
        ("-r c --json", "cannot be used with"),
        ("--output o", "--restart <DIR>"),
    ] {
        place.cpr(line).expect(2).says(said);
    }
    for (line, status) in [("-c d -p 1 -k", 1), ("-r c --output o", 125)] {
        let mut command = place.command(line);
        let run = run(command.env("PSCHED_SOCKET", "/nonexistent/psched.sock"));
        run.expect(status)
            .says("cpr: no psched answers on /nonexistent/psched.sock: check PSCHED_SOCKET");
    }
    assert_eq!(place.names(), ["c"]);
}
