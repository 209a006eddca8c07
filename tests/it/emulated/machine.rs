//! The emulated machine: qemu without hardware help, Debian's kernel 6.1, an initramfs of busybox
//! and the programs under test.
//!
//! The host that runs the tests may have no memory controller, a newer kernel, and can't be
//! restarted. This one has every controller of cgroup v2, is the oldest kernel that psched runs on,
//! and boots in a few seconds. A scenario is a shell script that runs in it as root with the
//! functions of `prelude.sh`, and says on the serial console what it found:
//!
//! ```text
//! @@ok a PE ran
//! @@no memory: status 0, expected 137
//! @@end
//! ```

use crate::support::{binaries, skip};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// From power on to power off, on a busy host.
const BOUND: Duration = Duration::from_secs(900);
/// What the kernel says of a processor that has done nothing else for so long that it will not come back: two virtual
/// processors that wait for each other in the kernel, which happens to emulated ones on a busy host.
const HANGS: &str = "watchdog: BUG: soft lockup";
/// So many of these lines, one in about half a minute for each processor.
const HANGS_FOR: usize = 6;
/// Lines of its console that a failure shows, so that a log which keeps the last ones has those of others as well.
const SHOWN: usize = 50;
/// Modules, in the order in which they need each other.
const MODULES: [&str; 12] = [
    "lib/crc16",
    "lib/libcrc32c",
    "crypto/crc32c_generic",
    "drivers/virtio/virtio_ring",
    "drivers/virtio/virtio",
    "drivers/virtio/virtio_pci_legacy_dev",
    "drivers/virtio/virtio_pci_modern_dev",
    "drivers/virtio/virtio_pci",
    "drivers/block/virtio_blk",
    "fs/mbcache",
    "fs/jbd2/jbd2",
    "fs/ext4/ext4",
];

/// What CRIU wants of a kernel beside them, in the same way: to be told of sockets, and to look
/// what there is.
const FOR_CRIU: [&str; 10] = [
    "net/ipv4/inet_diag",
    "net/ipv4/tcp_diag",
    "net/ipv4/udp_diag",
    "net/ipv4/raw_diag",
    "net/unix/unix_diag",
    "net/netlink/netlink_diag",
    "net/packet/af_packet_diag",
    "drivers/net/veth",
    "net/netfilter/nfnetlink",
    "net/netfilter/nf_tables",
];
/// Where it has its CRIU.
const CRIU: &str = "criu";

/// What the machine is made of.
pub struct Machine {
    folder: tempfile::TempDir,
    kernel: PathBuf,
}

/// A qemu that is gone when this is.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    folders.extend(["/usr/sbin".into(), "/sbin".into()]);
    folders.into_iter().map(|folder| folder.join(program)).find(|p| p.is_file())
}

/// The kernel that `fetch` has unpacked, with its modules.
fn kernel() -> Option<(PathBuf, PathBuf)> {
    let kernel = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/emulated/kernel");
    let image = std::fs::read_dir(kernel.join("boot")).ok()?.flatten().find_map(|e| {
        let name = e.file_name().into_string().ok()?;
        Some((e.path(), name.strip_prefix("vmlinuz-")?.to_owned()))
    })?;
    let modules = ["usr/lib", "lib"].map(|lib| kernel.join(lib).join("modules").join(&image.1));
    Some((image.0, modules.into_iter().find(|m| m.is_dir())?.join("kernel")))
}

/// The kernel of emulated machines, and its modules; `None`: there may be no such machine here, and the
/// test is skipped.
pub fn may_be(test: &str) -> Option<(PathBuf, PathBuf)> {
    if !cfg!(target_arch = "x86_64") {
        skip(test, "the emulated machine is an x86_64");
        return None;
    }
    for (program, package) in
        [("qemu-system-x86_64", "qemu-system-x86"), ("busybox", "busybox-static")]
    {
        if find(program).is_none() {
            skip(test, &format!("{program} is not installed (apt-get install {package})"));
            return None;
        }
    }
    if kernel().is_none() {
        skip(test, "there is no kernel for the emulated machine (tests/it/emulated/fetch)");
    }
    kernel()
}

impl Machine {
    /// Lays out the machine; `None`: it is skipped, because something is missing here. `programs`
    /// are more files for /bin.
    pub fn build(test: &str, programs: &[&Path]) -> Option<Machine> {
        Machine::built(test, programs, None)
    }

    /// One with a CRIU, /criu/criu, for root and everybody: root may do there what root of a
    /// container may not.
    pub fn with_criu(test: &str, programs: &[&Path]) -> Option<Machine> {
        let fetched = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/criu");
        if !fetched.join("criu").is_file() {
            skip(test, "there is no CRIU for the emulated machine (tests/it/checkpoint/fetch)");
            return None;
        }
        Machine::built(test, programs, Some(&fetched))
    }

    fn built(test: &str, programs: &[&Path], criu: Option<&Path>) -> Option<Machine> {
        let (kernel, modules) = may_be(test)?;
        let folder = tempfile::Builder::new().prefix("it").tempdir_in("/tmp").expect("a folder");
        let mut archive = Archive::create(&folder.path().join("base.cpio"));
        for directory in
            ["bin", "dev", "etc", "lib", "lib64", "modules", "mnt", "proc", "run", "sys", "tmp"]
        {
            archive.directory(directory);
        }
        let busybox = find("busybox").expect("found before");
        archive.file("bin/busybox", &std::fs::read(&busybox).expect("read"), 0o755);
        let for_criu = FOR_CRIU.iter().filter(|_| criu.is_some());
        for (number, module) in MODULES.iter().chain(for_criu).enumerate() {
            // What a kernel has built in is no module.
            if let Ok(bytes) = std::fs::read(modules.join(format!("{module}.ko"))) {
                let name = module.rsplit('/').next().expect("a name");
                archive.file(&format!("modules/{number:02}-{name}.ko"), &bytes, 0o644);
            }
        }
        let own =
            ["psched", "apinit", "apshepherd", "aprun", "apstat", "apkill", "psched-commands"];
        let own = own.map(|name| binaries().join(name));
        let mut libraries: Vec<PathBuf> = Vec::new();
        for program in own.iter().map(PathBuf::as_path).chain(programs.iter().copied()) {
            let name = program.file_name().expect("a file").to_str().expect("text");
            libraries.extend(libraries_of(program));
            archive.file(&format!("bin/{name}"), &stripped(program, folder.path()), 0o755);
        }
        libraries.sort();
        libraries.dedup();
        for library in libraries {
            let name = library.to_str().expect("text").trim_start_matches('/').to_owned();
            archive.directories_above(&name);
            archive.file(&name, &std::fs::read(&library).expect("read"), 0o755);
        }
        if let Some(criu) = criu {
            add_criu(&mut archive, criu, folder.path());
        }
        archive.file(
            "etc/passwd",
            b"root:x:0:0::/:/bin/sh\nalice:x:1000:1000::/tmp:/bin/sh\n",
            0o644,
        );
        archive.file("etc/group", b"root:x:0:\nalice:x:1000:\n", 0o644);
        archive.file("prelude.sh", include_bytes!("prelude.sh"), 0o644);
        archive.file("init", include_bytes!("init.sh"), 0o755);
        archive.end();
        Some(Machine { folder, kernel })
    }

    /// A disk with an empty ext4, which boots share; `None`: it is skipped.
    pub fn disk(&self, test: &str) -> Option<PathBuf> {
        let Some(mke2fs) = find("mke2fs") else {
            skip(test, "mke2fs is not installed (apt-get install e2fsprogs)");
            return None;
        };
        let disk = self.folder.path().join("disk");
        let file = std::fs::File::create(&disk).expect("made");
        file.set_len(64 << 20).expect("a size");
        let made = Command::new(mke2fs).args(["-q", "-t", "ext4"]).arg(&disk).status();
        assert!(made.expect("it runs").success());
        Some(disk)
    }

    /// A disk with nothing on it, for 2 GB of swap.
    pub fn swap(&self) -> PathBuf {
        let disk = self.folder.path().join("swap");
        let file = std::fs::File::create(&disk).expect("made");
        file.set_len(2 << 30).expect("a size");
        disk
    }

    /// Boots it, runs the scenario, and checks its verdicts. A machine whose kernel hangs is booted once more, unless it
    /// has said by then that something is wrong.
    #[track_caller]
    pub fn run(&self, scenario: &str, disk: Option<&Path>) {
        let initrd = self.folder.path().join("initrd.cpio");
        // The kernel takes several archives one after the other.
        std::fs::copy(self.folder.path().join("base.cpio"), &initrd).expect("copied");
        let mut archive = Archive::append(&initrd);
        archive.file("scenario.sh", scenario.as_bytes(), 0o755);
        archive.end();
        let before = disk.map(|disk| (disk, self.folder.path().join("disk.before")));
        if let Some((disk, before)) = &before {
            copy_disk(disk, before);
        }
        let mut console = self.boot(&initrd, disk);
        let bad = |console: &str| console.lines().any(|line| line.starts_with("@@no"));
        if hangs(&console) && !bad(&console) {
            let text = format!(
                "the kernel of the machine hangs; it is booted once more:\n{}\n",
                last_lines(&console)
            );
            let _ = std::io::stderr().write_all(text.as_bytes());
            if let Some((disk, before)) = &before {
                copy_disk(before, disk);
            }
            console = self.boot(&initrd, disk);
        }
        let ended = console.lines().any(|line| line == "@@end");
        let verdicts = |what: &str| console.lines().filter(|l| l.starts_with(what)).count();
        let good = ended && verdicts("@@no") == 0 && verdicts("@@ok") > 0;
        if !good {
            // Not only among the failures at the end, of which a log may keep the last lines only.
            let said: Vec<&str> =
                console.lines().filter(|line| !line.starts_with("@@ok")).take(40).collect();
            let text =
                format!("the machine has not ended well (ended: {ended}): {}\n", said.join("\n"));
            let _ = std::io::stderr().write_all(text.as_bytes());
        }
        assert!(good, "the machine said at last:\n{}", last_lines(&console));
        println!("{console}");
    }

    /// From power on to power off, or as long as makes sense: what it has said on its console.
    fn boot(&self, initrd: &Path, disk: Option<&Path>) -> String {
        let mut command = Command::new("qemu-system-x86_64");
        command
            .args(["-accel", "tcg,thread=multi", "-cpu", "max", "-m", "1536", "-smp", "2"])
            .args(["-nographic", "-no-reboot", "-nodefaults", "-serial", "stdio"])
            .args(["-append", "console=ttyS0 panic=-1 quiet loglevel=3 no_timer_check"])
            .arg("-kernel")
            .arg(&self.kernel)
            .arg("-initrd")
            .arg(initrd);
        if let Some(disk) = disk {
            // What the machine has written is on the disk even if it is switched off.
            let drive = format!("file={},if=virtio,format=raw,cache=writethrough", disk.display());
            command.args(["-drive", &drive]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut qemu = Running(command.spawn().expect("qemu starts"));
        let stdout = qemu.0.stdout.take().expect("piped");
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).trim_end().to_owned();
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let until = Instant::now() + BOUND;
        let mut console = String::new();
        while let Ok(line) = lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            console += &line;
            console.push('\n');
            if line.contains(HANGS) && hangs(&console) {
                break;
            }
        }
        console
    }
}

fn last_lines(console: &str) -> String {
    let before = console.lines().count().saturating_sub(SHOWN);
    console.lines().skip(before).collect::<Vec<_>>().join("\n")
}

/// Whether the machine's kernel has done nothing else for so long that it will do nothing more.
fn hangs(console: &str) -> bool {
    let last = console.lines().rev().take_while(|line| !line.starts_with("@@"));
    last.filter(|line| line.contains(HANGS)).count() >= HANGS_FOR
}

/// The same disk once more, with its holes.
fn copy_disk(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("--sparse=always").args([from, to]).status();
    assert!(copied.expect("it runs").success(), "{} could not be copied", from.display());
}

/// The CRIU that was fetched, with the libraries that it is started with.
fn add_criu(archive: &mut Archive, fetched: &Path, folder: &Path) {
    let root = fetched.join("root/usr");
    let (program, libraries) = (root.join("sbin/criu"), root.join("lib/x86_64-linux-gnu"));
    let loader = libraries.join("ld-linux-x86-64.so.2");
    let mut files = vec![fetched.join("criu"), loader.clone()];
    let listed = Command::new(&loader)
        .arg("--library-path")
        .arg(&libraries)
        .arg("--list")
        .arg(&program)
        .output()
        .expect("its loader runs");
    for line in String::from_utf8_lossy(&listed.stdout).lines() {
        let found = line.split_once(" => ").and_then(|(_, rest)| rest.split_once(" ("));
        let found = found.map(|(path, _)| PathBuf::from(path));
        files.extend(found.filter(|path| path.starts_with(&root)));
    }
    files.sort();
    files.dedup();
    let mut put = |path: &Path, bytes: &[u8]| {
        let name = path.strip_prefix(fetched).expect("below it").to_str().expect("text");
        let name = format!("{CRIU}/{name}");
        archive.directories_above(&name);
        archive.file(&name, bytes, 0o755);
    };
    for path in files {
        put(&path, &std::fs::read(&path).expect("read"));
    }
    put(&program, &stripped(&program, folder));
}

/// A program without what is only for debuggers, which is nine tenths of it.
fn stripped(program: &Path, folder: &Path) -> Vec<u8> {
    let to = folder.join("stripped");
    let done = Command::new("strip").arg("-o").arg(&to).arg(program).status();
    let from = if done.is_ok_and(|s| s.success()) { &to } else { program };
    std::fs::read(from).expect("read")
}

/// The shared libraries that a program is started with, the loader with them.
fn libraries_of(program: &Path) -> Vec<PathBuf> {
    let out = Command::new("ldd").arg(program).output().expect("ldd");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let path = |line: &str| line.split_whitespace().find(|w| w.starts_with('/')).map(PathBuf::from);
    text.lines().filter_map(path).collect()
}

/// An archive as the kernel unpacks it (cpio, `newc`).
struct Archive {
    file: std::io::BufWriter<std::fs::File>,
    inode: u32,
    made: Vec<String>,
}

impl Archive {
    fn create(path: &Path) -> Archive {
        let file = std::fs::File::create(path).expect("made");
        Archive { file: std::io::BufWriter::new(file), inode: 1, made: Vec::new() }
    }

    fn append(path: &Path) -> Archive {
        let file = std::fs::File::options().append(true).open(path).expect("opened");
        // Inodes of another archive must not look like links of its files.
        let inode = file.metadata().expect("known").size() as u32 | 1 << 31;
        Archive { file: std::io::BufWriter::new(file), inode, made: Vec::new() }
    }

    fn entry(&mut self, name: &str, mode: u32, bytes: &[u8]) {
        self.inode += 1;
        let numbers = [self.inode, mode, 0, 0, 1, 0, bytes.len() as u32, 0, 0, 0, 0];
        let mut header = String::from("070701");
        for number in numbers.into_iter().chain([name.len() as u32 + 1, 0]) {
            header += &format!("{number:08X}");
        }
        header += name;
        header.push('\0');
        while header.len() % 4 != 0 {
            header.push('\0');
        }
        let rest = bytes.len().next_multiple_of(4) - bytes.len();
        for part in [header.as_bytes(), bytes, &[0; 3][..rest]] {
            self.file.write_all(part).expect("written");
        }
    }

    fn directory(&mut self, name: &str) {
        if !self.made.iter().any(|made| made == name) {
            self.entry(name, 0o040_755, b"");
            self.made.push(name.to_owned());
        }
    }

    fn directories_above(&mut self, name: &str) {
        for (at, _) in name.match_indices('/') {
            self.directory(&name[..at]);
        }
    }

    fn file(&mut self, name: &str, bytes: &[u8], mode: u32) {
        self.entry(name, 0o100_000 | mode, bytes);
    }

    fn end(mut self) {
        self.entry("TRAILER!!!", 0, b"");
        self.file.flush().expect("written");
    }
}
