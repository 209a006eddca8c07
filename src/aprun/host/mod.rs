//! aprun, mpirun and mpiexec: the shell around [`crate::aprun::decide`].
//!
//! [`run`] reads the command line, checks what can be checked alone (before psched is asked for
//! anything), and enters the loop ([`shell`]). There is one thread, until output or stdin has to wait
//! for somebody: starting an application should cost no more than it must.

pub mod attach;
mod caller;
pub mod door;
mod dry;
mod files;
pub(crate) mod from_checkpoint;
mod hand;
mod images;
mod inside;
mod note;
mod output_writers;
mod parallel;
mod program;
pub(crate) mod psched;
mod report;
pub(crate) mod shell;
pub(crate) mod signals;
mod stdin;

use crate::aprun::decide::containers::advice;
use crate::aprun::decide::options::NODE_FILE_MAX;
use crate::aprun::decide::options::load::{LOAD_MAX, Loading};
use crate::aprun::decide::options::parts::Part;
use crate::aprun::decide::options::{Environment, Options, Parsed, Program, parse};
use crate::aprun::decide::session::{Looked, Setup};
use crate::aprun::decide::wireup::{Wireup, served};
use crate::apteam::Apid;
use crate::apteam::ending::STATUS_FAILED;
use crate::apteam::launch::{self, LAUNCH_MAX, Launch};
use crate::apteam::launcher_variables::{Rendezvous, THREADS, set_for_all};
use crate::apteam::oversubscribe::Oversubscribe;
use crate::apteam::posting::Posting;
use crate::console::stderr::complain;
use crate::console::stdout::write_out;
use crate::os::host::hostname;
use crate::os::{instance, name};
use crate::rpc::connect::socket_path;
use crate::rpc::pb;
use crate::steering::steers;
use from_checkpoint::Recovery;
use inside::Home;
use shell::Restart;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::future::Future;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use tokio::runtime::Runtime;

/// The most of a command that goes with its posting, for display.
const COMMAND_MAX: usize = 1024;

/// Why there is nothing to run: a status and a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Exit status.
    pub status: u8,
    /// What to say, without the program's name.
    pub text: String,
}

impl Failure {
    /// With a status of its own.
    pub fn new(status: u8, text: impl Into<String>) -> Failure {
        Failure { status, text: text.into() }
    }

    /// aprun itself has failed.
    pub fn failed(text: impl Into<String>) -> Failure {
        Failure::new(STATUS_FAILED, text)
    }
}

/// Which of them it is, by the first word of its command line: the programs of mpirun and mpiexec execute aprun's by
/// their own names.
pub fn called(first: Option<OsString>) -> Program {
    let other = match first.as_deref().and_then(|word| Path::new(word).file_name()) {
        Some(name) => [Program::Mpirun, Program::Mpiexec].into_iter().find(|it| name == it.name()),
        None => None,
    };
    // As it was before aprun's program took the place of theirs.
    other.inspect(|program| name::set(program.name())).unwrap_or(Program::Aprun)
}

/// aprun, mpirun or mpiexec, whole: command line in, exit status out.
pub fn run(program: Program) -> u8 {
    match attempt(program) {
        Ok(status) => status,
        Err(failure) => {
            complain(program.name(), &failure.text);
            failure.status
        }
    }
}

fn attempt(program: Program) -> Result<u8, Failure> {
    let arguments: Vec<Vec<u8>> = std::env::args_os().skip(1).map(OsStringExt::into_vec).collect();
    let mut options = match parse(program, &arguments, &variables()).map_err(Failure::failed)? {
        Parsed::Run(options) => options,
        Parsed::Load(loading) => loaded(*loading)?,
        Parsed::Help(text) => return print(&text),
        Parsed::Version => {
            return print(&format!("{} (psched) {}\n", program.name(), env!("CARGO_PKG_VERSION")));
        }
    };
    start_log("aprun");
    if let Some(file) = options.node_file.take() {
        let path = Path::new(OsStr::from_bytes(&file.path));
        let text = text_of(path, NODE_FILE_MAX).map_err(|failure| {
            let about = match file.of_hosts {
                true => "give the name of a file with a host on each line",
                false => {
                    "-l names a file with a list of NIDs; --label puts the rank before each line"
                }
            };
            Failure::failed(format!("{}: {}; {about}", file.option, failure.text))
        })?;
        let name = path.display().to_string();
        options.listed(&name, file.of_hosts, &text).map_err(Failure::failed)?;
    }
    are_set(&options.exported)?;
    let socket = socket_path();
    let runtime = runtime()?;
    if options.names_hosts() {
        let patience = psched::patience(&socket, options.wait_for_psched);
        let nodes = runtime.block_on(psched::hosts(&socket, patience)).map_err(Failure::failed)?;
        options.with_hosts(&nodes, &hostname()).map_err(Failure::failed)?;
    }
    let recovery = Recovery::of(&options)?;
    let found = program::open_all(&options)?;
    let executable = found.first().map(|first| first.executable.clone()).unwrap_or_default();
    let several = options.posting.shape.width > 1;
    for advice in options.parts.iter().filter_map(|part| advice(&part.command, several)) {
        complain(program.name(), &advice);
    }
    let launch = launch(&options, &found)?;
    let asked = [&options.environment[..], &options.exported].concat();
    if several && let Some(name) = set_for_all(&launch, &asked) {
        let text = format!(
            "{name} is set in the environment, so all PEs get its value and not their own: unset it, or give -x {name} \
             if that is meant"
        );
        complain(program.name(), &text);
    }
    let (request_id, command) = (random()?, shown(&options.parts));
    let tries_again = true;
    let posting =
        Posting { request_id, command, executable, tries_again, ..options.posting.clone() };
    let home = options.inside.then(|| Home::find(&options)).transpose()?;
    let request = pb::PostRequest { signal: true, ..posting.into() };
    if let Some(home) = home.as_ref().filter(|_| options.dry_run) {
        return dry_inside(home, &options);
    }
    if options.dry_run {
        return runtime.block_on(dry_run(&socket, request, &options));
    }
    let setup = Setup {
        launch,
        uid: nix::unistd::getuid().as_raw(),
        quiet: options.quiet,
        files: options.output.is_some() || options.error.is_some(),
        parallel: parallel::folder().is_some(),
        immediate: options.posting.immediate,
        restarts: None,
        recovers: false,
        within: within().filter(|_| home.is_none()),
        inside: home.is_some(),
        patience: psched::patience(&socket, options.wait_for_psched),
        answer_within: options.wait_for_psched,
        spread: spread(),
    };
    let begins = shell::Begins {
        setup,
        programs: found,
        request,
        restart: Restart::default(),
        home,
        recovery,
    };
    driven(runtime, shell::run(begins, &options, socket))
}

/// The application in which this process runs.
pub(crate) fn within() -> Option<Apid> {
    caller::within(std::env::var(instance::APPLICATION).ok().as_deref())
}

/// The course of an application, on a runtime of its own.
fn driven(
    runtime: Runtime,
    course: impl Future<Output = Result<u8, Failure>>,
) -> Result<u8, Failure> {
    let status = runtime.block_on(course);
    // A thread that waits for a reader is not waited for.
    runtime.shutdown_background();
    status
}

fn runtime() -> Result<Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Failure::failed(format!("can't start: {}", program::plain(&e))))
}

/// The same course for `cpr -r`: what is posted, and launched, comes from a checkpoint. Gives the exit status.
///
/// # Errors
/// This process can't begin it.
pub(crate) fn restart(
    setup: Setup,
    options: &Options,
    manifest: Vec<u8>,
    from: Restart,
) -> Result<u8, Failure> {
    let request = from_checkpoint::request(manifest)?;
    start_log("cpr");
    let begins = shell::Begins {
        setup,
        programs: Vec::new(),
        request,
        restart: from,
        home: None,
        recovery: None,
    };
    driven(runtime()?, shell::run(begins, options, socket_path()))
}

/// The variables that the command line's meaning depends on.
fn variables() -> Environment {
    let of = |name: &str| std::env::var_os(name).map(OsStringExt::into_vec);
    Environment {
        transfer_limits: of("APRUN_XFER_LIMITS"),
        default_memory: of("APRUN_DEFAULT_MEMORY"),
        sync_tty: of("APRUN_SYNC_TTY"),
        label: of("APRUN_LABEL"),
        timeout: of("MPIEXEC_TIMEOUT"),
        reservation: of("BATCH_PARTITION_ID"),
    }
}

/// Whether the variables of -x are there to travel. A name that is none may be a host, which srun leaves out by -x.
fn are_set(names: &[Vec<u8>]) -> Result<(), Failure> {
    let is_set = |name: &&Vec<u8>| std::env::var_os(OsStr::from_bytes(name)).is_some();
    match names.iter().find(|name| !is_set(name)) {
        None => Ok(()),
        Some(name) => {
            let name = String::from_utf8_lossy(name);
            Err(Failure::failed(format!(
                "-x: the variable {name:?} is not set: leave it out, or give it a value, as in -x NAME=1 (to leave out a \
                 host, give -E)"
            )))
        }
    }
}

/// The command line with what its load file says.
fn loaded(loading: Loading) -> Result<Box<Options>, Failure> {
    let text = text_of(Path::new(OsStr::from_bytes(&loading.path)), LOAD_MAX)?;
    loading.read(&text).map_err(Failure::failed)
}

/// What is in a file, of which one byte more than may be tells that it is too long.
fn text_of(path: &Path, most: usize) -> Result<Vec<u8>, Failure> {
    let mut text = Vec::new();
    File::open(path).and_then(|file| file.take(most as u64 + 1).read_to_end(&mut text)).map_err(
        |e| Failure::failed(format!("{} can't be read: {}", path.display(), program::plain(&e))),
    )?;
    Ok(text)
}

/// What each PE is to execute. `found` are the executables of the parts.
fn launch(options: &Options, found: &[program::Program]) -> Result<Launch, Failure> {
    let mut first = 0u32;
    let directory = caller::directory_of_pes(options.chdir.as_deref())?;
    let mut variables = Vec::new();
    // A program is named from here, wherever it runs.
    let here = match options.chdir {
        None => Vec::new(),
        Some(_) => {
            variables.push([b"PWD=", &directory[..]].concat());
            caller::directory()?
        }
    };
    variables.extend_from_slice(&options.environment);
    let mut parts = options.parts.iter().zip(found).map(|(part, found)| {
        let path = Path::new(OsStr::from_bytes(&here)).join(&found.path);
        let own = launch::Part {
            first,
            executable: path.into_os_string().into_vec(),
            arguments: part.command.clone(),
            identity: Some(found.identity),
        };
        first = first.saturating_add(part.shape.width);
        own
    });
    let launch::Part { executable, arguments, identity, .. } = parts.next().unwrap_or_default();
    let (pmi, pmix) = served(options.pmi, found.iter().map(|program| program.seen));
    let mut launch = Launch {
        executable,
        arguments,
        identity,
        more: parts.collect(),
        environment: caller::environment(std::env::vars_os(), &variables, &options.exported),
        directory,
        umask: caller::mask(),
        limits: caller::limits(options.all_limits),
        binding: options.binding.clone(),
        pmi,
        pmi_port: options.pmi == Wireup::Port,
        pmix,
        // A label belongs to a line, so lines have to be whole.
        whole_lines: options.whole_lines || options.label,
        report: options.report,
        strace: options.strace.clone(),
        stacks: options.stacks,
        copies: !options.bypass,
        instead: Vec::new(),
        shares: options.posting.oversubscribe != Oversubscribe::No,
        // (Where PEs meet is known with their places.)
        rendezvous: options.launcher_variables.then(Rendezvous::default),
    };
    // (Where PEs have more than one processor, each host says how many its own have.)
    if options.one_thread_each() && !launch.sets(THREADS.as_bytes()) {
        launch.environment.push(format!("{THREADS}=1").into_bytes());
    }
    match launch.bytes() {
        bytes if launch.parts() > 1 && bytes > LAUNCH_MAX => Err(Failure::failed(format!(
            "the programs' arguments and the environment have {bytes} bytes, and the maximum of a launch is \
             {LAUNCH_MAX}: put long arguments into files"
        ))),
        _ => Ok(launch),
    }
}

async fn dry_run(
    socket: &Path,
    request: pb::PostRequest,
    options: &Options,
) -> Result<u8, Failure> {
    match psched::dry_run(socket, request).await.map_err(Failure::failed)? {
        Looked::Placement(placement) => {
            options.binding.fits(&placement.places).map_err(Failure::failed)?;
            print(&dry::table(&placement))
        }
        Looked::Waiting(why) => Err(Failure::failed(format!("the application would wait: {why}"))),
        Looked::Ended(_) | Looked::Failed(_) => {
            let text = "psched gave an unexpected answer; install aprun and psched of one release";
            Err(Failure::failed(text.to_owned()))
        }
    }
}

/// The same of `--inside`.
fn dry_inside(home: &Home, options: &Options) -> Result<u8, Failure> {
    let placement = home.placement();
    options.binding.fits(&placement.places).map_err(Failure::failed)?;
    print(&dry::table(&placement))
}

/// Prints on stdout what was asked for.
fn print(text: &str) -> Result<u8, Failure> {
    write_out(text).map(|()| 0).map_err(Failure::failed)
}

/// The command as typed, for display, in one line: programs with a colon between them.
fn shown(parts: &[Part]) -> String {
    let of = |part: &Part| {
        let words: Vec<_> = part.command.iter().map(|w| String::from_utf8_lossy(w)).collect();
        words.join(" ")
    };
    let text = parts.iter().map(of).collect::<Vec<String>>().join(" : ");
    text.chars().take(COMMAND_MAX).map(|c| if steers(c) { ' ' } else { c }).collect()
}

fn random() -> Result<[u8; 16], Failure> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(|e| Failure::failed(format!("can't read /dev/urandom: {}", program::plain(&e))))?;
    Ok(bytes)
}

/// By how much longer than others this process waits before it tries again, in 256ths.
pub(crate) fn spread() -> u8 {
    // (Err: it waits no longer.)
    random().map_or(0, |bytes| bytes[0])
}

/// What it does, on stderr, where somebody asks for it: setting that up takes time.
fn start_log(program: &'static str) {
    if std::env::var_os(crate::logging::FILTER_VARIABLE).is_some_and(|filter| !filter.is_empty()) {
        crate::logging::init(program);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apteam::shape::Shape;

    fn options(commands: &[&str]) -> Options {
        let shape = Shape { width: 2, depth: 1, per_node: None };
        let command = |text: &str| text.split(' ').map(|word| word.as_bytes().to_vec()).collect();
        let part = |text: &&str| Part {
            name: "part".to_owned(),
            shape,
            depth_given: false,
            command: command(text),
        };
        Options { parts: commands.iter().map(part).collect(), ..Options::default() }
    }

    #[test]
    fn parts_begin_where_the_ones_before_end() {
        let options = options(&["/bin/sh a", "/bin/true", "/bin/sh b"]);
        let found = program::open_all(&options).expect("they are there");
        let launch = launch(&options, &found).expect("small");
        let run_by = |rank| launch.program(launch.part_of(rank));
        let words: Vec<&[u8]> =
            (0..6).filter_map(|r| run_by(r).arguments.last()).map(|w| &w[..]).collect();
        assert_eq!(words, [&b"a"[..], b"a", b"/bin/true", b"/bin/true", b"b", b"b"]);
        let files: Vec<_> = [0, 2, 4].map(|rank| run_by(rank).identity.map(|i| i.inode)).into();
        assert!(files[0] == files[2] && files[0] != files[1], "{files:?}");
        assert_eq!(shown(&options.parts), "/bin/sh a : /bin/true : /bin/sh b");
    }

    #[test]
    fn several_programs_have_a_bound_together() {
        let mut several = options(&["/bin/sh", "/bin/true"]);
        several.environment = vec![[&b"A="[..], &vec![b'x'; LAUNCH_MAX]].concat()];
        let found = program::open_all(&several).expect("they are there");
        let refused = launch(&several, &found).expect_err("too much");
        assert!(refused.text.contains("the maximum of a launch is 7340032"), "{refused:?}");
        assert_eq!(refused.status, STATUS_FAILED);
        // What the kernel has let through for one is not asked about.
        several.parts.truncate(1);
        assert!(launch(&several, &found[..1]).is_ok());
    }
}
