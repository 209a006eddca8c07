//! Folders of checkpoints, on a real file system.

use super::*;
use crate::checkpoint::{
    Checksum, Image, MANIFEST, Manifest, SealKey, example, manifest_of, whole,
};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;
use tempfile::TempDir;

const KEY: SealKey = SealKey([7; 32]);

struct Place(TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().expect("made"))
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn spot(&self, name: &str) -> Spot {
        Spot::of(&self.at(name)).expect("a place")
    }

    /// One with two files in it, not sealed yet.
    fn partial(&self, name: &str) -> Partial {
        let partial = Partial::create(self.spot(name)).expect("made");
        let folder = partial.dir().folder("host-0").expect("made");
        for (folder, name, bytes) in
            [(partial.as_fd(), "core-1.img", "core"), (folder.as_fd(), "pages-1.img", "pages")]
        {
            let create = OFlags::WRONLY | OFlags::CREATE;
            let mut file = File::from(openat(folder, name, create, Mode::RUSR).expect("made"));
            file.write_all(bytes.as_bytes()).expect("written");
        }
        partial
    }

    /// A checkpoint with these files.
    fn made(&self, name: &str) -> Dir {
        let partial = self.partial(name);
        partial.dir().seal(example(), &KEY, None).expect("sealed");
        partial.publish(false).expect("published");
        self.spot(name).open().expect("a folder").expect("there")
    }

    /// What is in the place.
    fn names(&self) -> Vec<String> {
        let all = fs::read_dir(self.0.path()).expect("ours").flatten();
        let mut all: Vec<String> =
            all.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        all.sort();
        all
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// What is sealed is what was written elsewhere, whatever there is of it here.
#[test]
fn what_is_sealed_is_what_was_copied() {
    let place = Place::new();
    let from = place.partial("from");
    let to = Partial::create(place.spot("to")).expect("made");
    let sealed = to.dir().seal_copies(from.dir(), example(), &KEY, None).expect("sealed");
    assert_eq!(sealed, example());
    to.publish(false).expect("published");
    let dir = place.spot("to").open().expect("a folder").expect("there");
    assert_eq!(whole(&dir, Some(&KEY)), Ok(example()));
    let part = Partial::create(place.spot("part")).expect("made");
    let folder = part.dir().folder("host-1").expect("made");
    let (folder, source) = (Dir::new(folder).expect("one"), from.dir().folder("host-0"));
    let source = Dir::new(source.expect("there")).expect("one");
    let files = folder.seal_part(&source, "host-1", None).expect("sealed");
    let pages = Image { name: "host-1/pages-1.img".into(), ..example().files[1].clone() };
    assert_eq!(files, [pages]);
    // A link is no file of a checkpoint.
    symlink("/etc/passwd", place.at("link")).expect("linked");
    fs::rename(place.at("link"), place.at(&place.names()[0]).join("host-0/x.img")).expect("moved");
    let to = Partial::create(place.spot("other")).expect("made");
    let flaw = to.dir().seal_copies(from.dir(), example(), &KEY, None).expect_err("a link");
    assert!(flaw.to_string().contains("symbolic link"), "{flaw}");
}

/// It is told apart without asking the program that it is, which never answers here.
#[test]
fn a_folder_of_fuse_is_refused() {
    use nix::mount::{MntFlags, MsFlags, mount, umount2};
    let place = Place::new();
    let opened = |path: &Path| {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::open(path, flags, Mode::empty()).expect("opened")
    };
    assert_eq!(refuse_fuse(opened(place.0.path()).as_fd()), Ok(()));
    let device = File::options().read(true).write(true).open("/dev/fuse");
    let (true, Ok(device)) = (is_root(), device) else { return };
    let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    let (point, kind) = (place.0.path(), Some("fuse"));
    if mount(Some("test"), point, kind, flags, Some(&options[..])).is_err() {
        return;
    }
    let refused = refuse_fuse(opened(point).as_fd());
    umount2(point, MntFlags::MNT_DETACH).expect("ours");
    drop(device);
    let flaw = refused.expect_err("it is FUSE's").to_string();
    assert!(flaw.contains("a checkpoint can't be in a folder of a FUSE file system"), "{flaw}");
}

#[test]
fn a_checkpoint_appears_when_it_is_whole() {
    let place = Place::new();
    let partial = place.partial("tonight");
    let hidden = place.names();
    assert!(hidden.len() == 1 && hidden[0].starts_with(".tonight.partial-"), "{hidden:?}");
    let sealed = partial.dir().seal(example(), &KEY, None).expect("sealed");
    assert_eq!(sealed, example());
    assert_eq!(place.names(), hidden);
    partial.publish(false).expect("published");
    assert_eq!(place.names(), ["tonight"]);
    let dir = place.spot("tonight").open().expect("a folder").expect("there");
    assert_eq!(whole(&dir, Some(&KEY)), Ok(example()));
    for (name, mode) in [("", 0o700), ("host-0", 0o700), ("core-1.img", 0o600), (MANIFEST, 0o600)] {
        let found = fs::metadata(place.at("tonight").join(name)).expect("there");
        assert_eq!(found.mode() & 0o7777, mode, "{name}");
    }
}

#[test]
fn one_that_fails_leaves_nothing() {
    let place = Place::new();
    drop(place.partial("tonight"));
    assert_eq!(place.names(), [""; 0]);
    // What is no file of a checkpoint is not sealed.
    for (what, said) in [("link", "symbolic link"), ("fifo", "FIFO"), ("a b", "a file named")] {
        let partial = place.partial("tonight");
        let path = place.at(&place.names()[0]).join(what);
        match what {
            "link" => symlink("core-1.img", &path).expect("made"),
            "fifo" => fifo(&path),
            _ => fs::write(&path, "").expect("written"),
        }
        let flaw = partial.dir().seal(example(), &KEY, None).expect_err(what).to_string();
        assert!(flaw.contains(said), "{flaw}");
        drop(partial);
        assert_eq!(place.names(), [""; 0]);
    }
    // Nor what would be no checkpoint of this kind: criu's without images.
    let partial = Partial::create(place.spot("tonight")).expect("made");
    assert!(matches!(partial.dir().seal(example(), &KEY, None), Err(Flaw::Unfit(_))));
    drop(partial);
    assert_eq!(place.names(), [""; 0]);
}

fn fifo(path: &Path) {
    let mode = nix::sys::stat::Mode::S_IRUSR;
    nix::unistd::mkfifo(path, mode).expect("made");
}

#[test]
fn only_a_checkpoint_is_replaced_and_only_with_force() {
    let place = Place::new();
    place.made("tonight");
    let again = |force| {
        let partial = place.partial("tonight");
        let newer = Manifest { made: Default::default(), ..example() };
        partial.dir().seal(newer, &KEY, None).expect("sealed");
        partial.publish(force)
    };
    let said = again(false).expect_err("it is there").to_string();
    assert!(said.contains("tonight exists; -f replaces"), "{said}");
    assert_eq!(place.names(), ["tonight"]);
    // With something in it that is the user's own.
    fs::write(place.at("tonight/notes"), "mine").expect("written");
    let said = again(true).expect_err("not its own").to_string();
    assert!(said.contains("notes is not part of the checkpoint"), "{said}");
    assert_eq!(fs::read_to_string(place.at("tonight/notes")).expect("kept"), "mine");
    fs::remove_file(place.at("tonight/notes")).expect("ours");
    again(true).expect("replaced");
    assert_eq!(place.names(), ["tonight"]);
    let dir = place.spot("tonight").open().expect("a folder").expect("there");
    assert_eq!(whole(&dir, Some(&KEY)).expect("whole").made, Default::default());
    // A folder that is none, an empty one, a file.
    fs::create_dir_all(place.at("work/src")).expect("made");
    fs::create_dir(place.at("empty")).expect("made");
    fs::write(place.at("file"), "text").expect("written");
    for name in ["work", "empty", "file"] {
        let partial = place.partial(name);
        partial.dir().seal(example(), &KEY, None).expect("sealed");
        partial.publish(true).expect_err(name);
    }
    assert_eq!(place.names(), ["empty", "file", "tonight", "work"]);
    assert!(place.at("work/src").exists());
}

#[test]
fn left_to_another_process_it_is_published_there() {
    let place = Place::new();
    let partial = place.partial("tonight");
    partial.dir().seal(example(), &KEY, None).expect("sealed");
    let name = partial.leave();
    publish(&place.spot("tonight"), &name, false).expect("published");
    assert_eq!(place.names(), ["tonight"]);
}

#[test]
fn what_is_sealed_is_its_users() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    let partial = place.partial("tonight");
    partial.dir().seal(example(), &KEY, Some((61_301, 61_401))).expect("sealed");
    partial.publish(false).expect("published");
    for name in ["", "host-0", "core-1.img", "host-0/pages-1.img", MANIFEST] {
        let found = fs::metadata(place.at("tonight").join(name)).expect("there");
        assert_eq!((found.uid(), found.gid()), (61_301, 61_401), "{name}");
    }
}

#[test]
fn links_and_the_like_are_refused() {
    let place = Place::new();
    let outside = place.at("outside");
    fs::write(&outside, "core").expect("written");
    let check = |what: &str, put: &dyn Fn(&Path)| {
        let place = Place::new();
        let dir = place.made("c");
        let path = place.at("c/core-1.img");
        fs::remove_file(&path).expect("ours");
        put(&path);
        for found in [whole(&dir, None).map(drop), fetched(&dir)] {
            let Err(Flaw::NotPlain { file, what: found }) = found else { panic!("{found:?}") };
            assert!(file == "core-1.img" && found.contains(what), "{file} is {found}");
        }
    };
    check("symbolic link", &|path| symlink(&outside, path).expect("made"));
    check("FIFO", &|path| fifo(path));
    check("hard link", &|path| fs::hard_link(&outside, path).expect("made"));
    check("folder", &|path| fs::create_dir(path).expect("made"));
    check("socket", &|path| drop(std::os::unix::net::UnixListener::bind(path).expect("made")));
    if is_root() {
        use nix::sys::stat::{Mode, SFlag, makedev, mknod};
        check("device", &|path| {
            mknod(path, SFlag::S_IFCHR, Mode::S_IRUSR, makedev(1, 3)).expect("root may");
        });
    }
    // In place of a folder of it, of the manifest, of the checkpoint.
    let dir = place.made("c");
    fs::rename(place.at("c/host-0"), place.at("elsewhere")).expect("ours");
    symlink(place.at("elsewhere"), place.at("c/host-0")).expect("made");
    for found in [whole(&dir, None).map(drop), fetched(&dir)] {
        let Err(Flaw::NotPlain { file, .. }) = found else { panic!("{found:?}") };
        assert_eq!(file, "host-0");
    }
    let dir = place.made("d");
    fs::rename(place.at("d").join(MANIFEST), place.at("m")).expect("ours");
    symlink(place.at("m"), place.at("d").join(MANIFEST)).expect("made");
    assert!(matches!(whole(&dir, None), Err(Flaw::NotPlain { .. })));
    place.made("e");
    symlink("e", place.at("link")).expect("made");
    for name in ["link", "link/"] {
        let said = place.spot(name).open().expect_err("a link").to_string();
        assert!(said.contains("link is a symbolic link"), "{said}");
    }
    // A folder in a folder of it.
    let dir = place.made("f");
    fs::create_dir(place.at("f/host-0/deep")).expect("made");
    assert_eq!(whole(&dir, None), Err(Flaw::Strange { file: "host-0/deep".into() }));
}

/// By both ways, which say the same.
fn fetched(dir: &Dir) -> Result<(), Flaw> {
    let into = [(); 2].map(|()| tempfile::tempdir().expect("made"));
    let [once, twice] = into.each_ref().map(|into| File::open(into.path()).expect("a folder"));
    let files = example().files;
    let fetched = dir.fetch(&files, once.as_fd());
    let unseen = dir.fetch_unseen(&files, twice.as_fd());
    if let Err(flaw @ Flaw::Short { .. }) = &unseen {
        assert_eq!(fetched.as_ref(), Err(flaw), "what is too short is told at once");
    }
    assert_eq!(unseen.and_then(|()| compare_copies(&files, twice.as_fd())), fetched);
    fetched
}

#[test]
fn what_is_fetched_is_what_was_sealed() {
    let place = Place::new();
    let dir = place.made("c");
    let into = tempfile::tempdir().expect("made");
    // Some first, and the others later.
    let opened = File::open(into.path()).expect("a folder");
    for file in &example().files {
        let one = std::slice::from_ref(file);
        dir.fetch(one, opened.as_fd()).expect("as it was");
    }
    assert_eq!(fetched(&dir), Ok(()));
    let read = |name: &str| fs::read_to_string(into.path().join(name)).expect("copied");
    assert_eq!((read("core-1.img"), read("host-0/pages-1.img")), ("core".into(), "pages".into()));
    fs::write(place.at("c/host-0/pages-1.img"), "Pages").expect("written");
    assert!(matches!(fetched(&dir), Err(Flaw::Damaged { .. })));
    fs::write(place.at("c/host-0/pages-1.img"), "pages of another").expect("written");
    assert!(matches!(fetched(&dir), Err(Flaw::Damaged { .. })));
    fs::write(place.at("c/host-0/pages-1.img"), "pag").expect("written");
    assert!(matches!(fetched(&dir), Err(Flaw::Short { found: 3, .. })));
    fs::remove_dir_all(place.at("c/host-0")).expect("ours");
    assert!(matches!(fetched(&dir), Err(Flaw::Missing { .. })));
}

#[test]
fn what_the_manifest_lists_is_removed_and_no_more() {
    let place = Place::new();
    place.made("c");
    let kept = place.at("kept");
    fs::write(&kept, "mine").expect("written");
    let refused = |what: &str| {
        let flaw = remove(&place.spot("c")).expect_err(what);
        assert!(place.at("c/core-1.img").exists(), "{what}");
        flaw
    };
    fs::write(place.at("c/notes"), "mine").expect("written");
    assert_eq!(refused("more"), Flaw::Strange { file: "notes".into() });
    fs::remove_file(place.at("c/notes")).expect("ours");
    fs::create_dir(place.at("c/empty")).expect("made");
    assert_eq!(refused("a folder"), Flaw::Strange { file: "empty".into() });
    fs::remove_dir(place.at("c/empty")).expect("ours");
    // A file that is not whole is no reason to keep it; a link that has its name goes, not what it means.
    fs::remove_file(place.at("c/host-0/pages-1.img")).expect("ours");
    symlink(&kept, place.at("c/host-0/pages-1.img")).expect("made");
    assert_eq!(remove(&place.spot("c")), Ok(example()));
    assert_eq!(
        (place.names(), fs::read_to_string(&kept).expect("there")),
        (vec!["kept".to_owned()], "mine".into())
    );
    // A folder of it that is a link now.
    place.made("c");
    fs::rename(place.at("c/host-0"), place.at("moved")).expect("ours");
    symlink(place.at("moved"), place.at("c/host-0")).expect("made");
    assert_eq!(refused("a link"), Flaw::Strange { file: "host-0".into() });
    assert!(place.at("moved/pages-1.img").exists());
    // What is none.
    let text = fs::read_to_string(place.at("c").join(MANIFEST)).expect("there");
    for (text, said) in [
        (text.replace("alice", "mallory"), "manifest.json is damaged"),
        (
            text.replace("\"version\": 1", "\"version\": 2"),
            "its manifest has version 2, and this cpr reads up to",
        ),
    ] {
        fs::write(place.at("c").join(MANIFEST), text).expect("written");
        let flaw = refused("another").to_string();
        assert!(flaw.starts_with(said), "{flaw}");
    }
    fs::remove_file(place.at("c").join(MANIFEST)).expect("ours");
    assert_eq!(refused("no manifest"), Flaw::NoManifest);
    assert_eq!(remove(&place.spot("nothing")), Err(Flaw::NoFolder));
}

/// (Who may not read it can be no owner of it, and needs no folder to write to.)
#[test]
fn who_may_not_open_one_is_told_whose_it_is() {
    let said = unopened("s1", Some(1_001), Errno::ACCESS).to_string();
    assert_eq!(
        said,
        "opening s1: Permission denied (os error 13): it belongs to user 1001, and you may not \
         read it: ask its owner, or root"
    );
    let said = unopened("s1", None, Errno::MFILE).to_string();
    assert_eq!(said, "opening s1: Too many open files (os error 24)");
}

#[test]
fn leftovers_are_found_and_removed_unless_they_are_written() {
    let place = Place::new();
    let busy = place.partial("c");
    let left = place.partial("c");
    // As of a process that was killed: there, and not locked.
    let name = left.leave();
    let others = [".c.partial-0123", ".c.partial-0123456789abcdeX", ".d.partial-0123456789abcdef"];
    others.iter().for_each(|name| fs::create_dir(place.at(name)).expect("made"));
    symlink("x", place.at(".c.partial-0123456789abcdef")).expect("made");
    let found = leftovers(&place.spot("c")).expect("read");
    assert_eq!(found.len(), 2);
    for leftover in &found {
        assert_eq!(leftover.busy, leftover.name != name);
        let spot = place.spot(leftover.name.to_str().expect("text"));
        assert_eq!((spot.is_partial(), leftovers(&spot)), (true, Ok(vec![leftover.clone()])));
        match remove_leftover(&place.spot("c"), leftover) {
            Ok(()) => assert_eq!(leftover.name, name),
            Err(flaw) => assert_eq!(flaw, Flaw::Busy),
        }
    }
    assert!(!place.spot("c").is_partial());
    let found = leftovers(&place.spot("c")).expect("read");
    assert!(found.len() == 1 && found[0].busy, "{found:?}");
    busy.dir().seal(example(), &KEY, None).expect("nothing of it has gone");
    busy.publish(false).expect("published");
    assert_eq!(leftovers(&place.spot("c")), Ok(vec![]));
    others.iter().for_each(|name| assert!(place.at(name).exists()));
}

/// As by two restarts, or by one and who removes it.
#[test]
fn only_one_holds_it() {
    let place = Place::new();
    let (one, other) = (place.made("c"), place.spot("c").open().expect("a folder").expect("there"));
    assert_eq!((one.hold(), other.hold()), (Ok(()), Err(Flaw::Busy)));
    assert_eq!(remove(&place.spot("c")), Err(Flaw::Busy));
    assert_eq!(whole(&other, Some(&KEY)), Ok(example()));
    // Who lets go a little later is waited for.
    let going = std::thread::spawn(move || {
        std::thread::yield_now();
        drop(one);
    });
    assert_eq!(other.hold(), Ok(()));
    going.join().expect("no panic");
}

#[test]
fn another_users_is_not_removed() {
    if !is_root() {
        return;
    }
    use rustix::thread::set_thread_res_uid;
    let place = Place::new();
    place.made("c");
    place.partial("c").leave();
    // Everybody may write there, and so could remove it.
    for path in [place.0.path().to_owned(), place.at("c")] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).expect("ours");
    }
    for entry in ["c/core-1.img", "c/manifest.json"] {
        fs::set_permissions(place.at(entry), fs::Permissions::from_mode(0o666)).expect("ours");
    }
    let (spot, left) = (place.spot("c"), leftovers(&place.spot("c")).expect("read"));
    let said = std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let uid = Uid::from_raw(61_301);
            set_thread_res_uid(uid, uid, uid).expect("root may");
            [remove(&spot).map(drop), remove_leftover(&spot, &left[0])]
        });
        other.join().expect("no panic")
    });
    use rustix::fs::Uid;
    let said = said.map(|done| done.expect_err("another's").to_string());
    assert!(said[0].contains("it belongs to user 0, and you are user 61301"), "{}", said[0]);
    // That one can't even be opened.
    assert!(said[1].contains("Permission denied"), "{}", said[1]);
    assert!(place.at("c/core-1.img").exists());
    // Root may.
    remove(&spot).expect("root");
}

#[test]
fn spots_are_names_in_folders() {
    let place = Place::new();
    place.made("c");
    for path in [place.at("c/."), place.at("c/host-0/.."), place.at("c//")] {
        assert_eq!(Spot::of(&path).expect("a place").name(), "c", "{path:?}");
    }
    for path in ["/", "/.."] {
        let said = Spot::of(path.as_ref()).expect_err("in none").to_string();
        assert!(said.contains("in none"), "{said}");
    }
    assert!(Spot::of(&place.at("none/c")).is_err());
    let folder = || OwnedFd::from(File::open(place.0.path()).expect("a folder"));
    for name in ["", ".", "..", "a/b", "a\0"] {
        assert!(Spot::new(folder(), OsStr::new(name)).is_err(), "{name:?}");
    }
    let file = File::open(place.at("c/core-1.img")).expect("a file");
    assert!(Spot::new(file.into(), OsStr::new("c")).is_err());
    let file = File::open(place.at("c/core-1.img")).expect("a file");
    assert!(Dir::new(file.into()).is_err());
}

#[test]
fn a_key_is_made_once_and_kept_from_others() {
    let place = Place::new();
    let path = place.at("key");
    assert_eq!(load_key(&path), Ok(None));
    // All who come at once have the same.
    let keys: Vec<_> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..8).map(|_| scope.spawn(|| load_or_make_key(&path))).collect();
        all.into_iter().map(|one| one.join().expect("no panic").expect("made")).collect()
    });
    assert!(keys.iter().all(|key| *key == keys[0]) && keys[0] != SealKey([0; 32]));
    assert_eq!(place.names(), ["key"]);
    assert_eq!(fs::metadata(&path).expect("there").mode() & 0o7777, 0o600);
    assert_eq!(load_key(&path), Ok(Some(keys[0].clone())));
    let refused = |words: &str| {
        for found in [load_key(&path).map(drop), load_or_make_key(&path).map(drop)] {
            let said = found.expect_err(words).to_string();
            assert!(said.contains(words), "{said}");
        }
    };
    for mode in [0o640, 0o604, 0o620] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("ours");
        refused("other users may read or change it");
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("ours");
    fs::hard_link(&path, place.at("other")).expect("made");
    refused("one name");
    fs::remove_file(place.at("other")).expect("ours");
    let text = fs::read_to_string(&path).expect("ours");
    for other in ["", "x", &text[1..], &text.replace('\n', "0\n"), &text.repeat(2)] {
        fs::write(&path, other).expect("ours");
        refused("64 hexadecimal digits");
    }
    fs::rename(&path, place.at("moved")).expect("ours");
    symlink("moved", &path).expect("made");
    assert!(load_key(&path).is_err() && load_or_make_key(&path).is_err());
    if is_root() {
        fs::remove_file(&path).expect("ours");
        fs::write(&path, &text).expect("ours");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("ours");
        std::os::unix::fs::chown(&path, Some(61_301), None).expect("root may");
        refused("belongs to user 61301");
    }
    assert!(load_or_make_key(&place.at("none/key")).is_err());
}

#[test]
fn images_are_compared_by_the_byte() {
    let image = Image { name: "x".into(), size: 2, sum: Checksum::of(b"ab") };
    let sum = |bytes: &[u8]| {
        let mut sum = Summing::default();
        sum.add(bytes);
        sum
    };
    assert_eq!(image.compare(Some(2), sum(b"ab")), Ok(()));
    assert!(image.compare(Some(2), sum(b"ba")).is_err());
    assert!(manifest_of(&Place::new().made("c"), Some(&SealKey([1; 32]))) == Err(Flaw::Foreign));
}
