//! libpmix, loaded at run time: the server side of PMIx, by which programs of Open MPI find one another.
//!
//! # Problem
//! The wire protocol of PMIx has four formats and is documented nowhere but in the library, and the library is not on
//! every machine. So it is no dependency: it is looked for when a program needs it.
//!
//! # Approach
//! Its functions are looked up by name (`library`), and some structures are laid out as its headers do (`header`).
//!
//! The library has threads of its own, which call back (`upcalls`). What they say becomes an [`Upcall`] at once, and what
//! they wait for is answered later by its number, from any thread (`answers`). There is one server in a process ([`Server::start`]).

mod answers;
mod header;
mod library;
mod topology;
mod upcalls;

use answers::{SHARED, Shared, Spawned};
use header::*;
pub use header::{ERROR, NOT_FOUND, SUCCESS};
use library::{Functions, load};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use upcalls::*;

/// The file that is loaded.
pub const LIBRARY: &str = "libpmix.so.2";
/// The variable that has a PE's rank, which is set for each.
const RANK: &[u8] = b"PMIX_RANK=";
/// What Debian calls the package that has it.
pub const PACKAGE: &str = "libpmix2";

/// What a library's thread says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Upcall {
    /// A PE has called PMIx_Init.
    Connected(u32),
    /// A PE has called PMIx_Finalize.
    Finalized(u32),
    /// A PE has called PMIx_Abort.
    Abort {
        /// Its rank.
        rank: u32,
        /// What it gave for a status.
        code: i32,
    },
    /// All PEs of this server that take part in a fence are in it. Answered by [`Server::answer`].
    Fence {
        /// By which it is answered.
        number: u64,
        /// The PEs that take part, and those on whose processors others run that do; `None`: all of the application.
        ranks: Option<Vec<u32>>,
        /// These others, those of each program in one: its namespace, a colon, its ranks.
        spawned: Vec<Vec<u8>>,
        /// What they give to the others.
        data: Vec<u8>,
    },
    /// A PE asks what this one of another server has put. Answered by [`Server::answer`].
    Modex {
        /// By which it is answered.
        number: u64,
        /// Whose.
        rank: u32,
        /// Given: the data of this spawned PE, which runs on the processors of that one, is meant.
        spawned: Option<SpawnedPe>,
    },
    /// A PE publishes data, looks it up or takes it back. Answered by [`Server::answer_key`], for each key once.
    Data {
        /// By which it is answered.
        number: u64,
        /// What is to be done about each of these keys, which are not empty.
        about: Vec<(Vec<u8>, DataUpcall)>,
    },
    /// A PE has called MPI_Comm_spawn. Answered by [`Server::spawned`].
    Spawn {
        /// By which it is answered.
        number: u64,
        /// Its rank.
        rank: u32,
        /// Given: this spawned PE, which runs on the processors of that one, has called.
        spawner: Option<SpawnedPe>,
        /// What it wants; nothing: more than can be.
        programs: Vec<App>,
    },
    /// A PE of what was spawned under this number ([`Server::add`]) has called PMIx_Abort.
    SpawnedAbort {
        /// Which.
        number: u64,
        /// What it gave for a status.
        code: i32,
    },
    /// The answer to [`Server::look_up`].
    Found {
        /// Of which question.
        number: u64,
        /// [`SUCCESS`], or the library's error.
        status: i32,
        /// What the PE has put.
        data: Vec<u8>,
    },
}

/// A PE of a program that was spawned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpawnedPe {
    /// The namespace of its program, of at most 255 bytes.
    pub space: String,
    /// Its rank there.
    pub rank: u32,
}

/// What a PE wants with a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DataUpcall {
    /// It is to stand for this.
    Publish {
        /// The value and who publishes it, as [`Server::answer_key`] takes it.
        data: Vec<u8>,
        /// Only the first who looks it up is to have it.
        once: bool,
    },
    /// What does it stand for?
    LookUp {
        /// If it stands for nothing yet, that is waited for.
        wait: bool,
        /// For at most so many seconds; 0: for ever.
        seconds: u32,
    },
    /// It is to stand for nothing any more.
    Unpublish,
}

/// A program that a PE wants to spawn.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct App {
    /// How many PEs run it, at least 1.
    pub pes: u32,
    /// Its name.
    pub command: Vec<u8>,
    /// What follows it.
    pub arguments: Vec<Vec<u8>>,
    /// NAME=VALUE, beside the environment that there is.
    pub environment: Vec<Vec<u8>>,
    /// Its working directory; empty: as it is.
    pub folder: Vec<u8>,
}

/// One rank and where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rank {
    /// Its rank in the application.
    pub rank: u32,
    /// Its rank among those of its host.
    pub local: u16,
    /// The number of its host.
    pub host: u32,
    /// Which of the application's programs it runs, from 0.
    pub program: u32,
}

/// What the server tells its PEs of the application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The name of the namespace, of at most 255 bytes.
    pub name: String,
    /// The name of each host, by its number.
    pub hosts: Vec<String>,
    /// Which host this is. (Of a program that runs on another one: none of these.)
    pub own: u32,
    /// How many programs the application has.
    pub programs: u32,
    /// All ranks, from 0.
    pub ranks: Vec<Rank>,
    /// MPI_UNIVERSE_SIZE.
    pub universe: u32,
    /// A folder for files of the server, and of PEs of this host.
    pub folder: String,
    /// A folder for files of PEs of this namespace on this host; empty: it has none here.
    pub own_folder: String,
    /// PEs are told what this host is made of, which they would look for.
    pub describes_host: bool,
}

impl Job {
    /// Whether ranks are on this host.
    pub fn is_here(&self) -> bool {
        self.ranks.iter().any(|rank| rank.host == self.own)
    }
}

/// A server that runs.
pub struct Server {
    functions: Functions,
    shared: &'static Shared,
}

/// Why there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The library is not here, or lacks something: in the words of the dynamic loader.
    NoLibrary(String),
    /// It can't serve, in its own words.
    Refused(String),
}

impl Server {
    /// Loads the library, starts its server and tells it of the application. `say` has what its threads say; it is
    /// called by them.
    ///
    /// # Errors
    /// The library is not here, or it refuses.
    pub fn start(
        job: &Job,
        say: impl Fn(Upcall) + Send + Sync + 'static,
    ) -> Result<Server, Failure> {
        let functions = load().map_err(Failure::NoLibrary)?;
        let shared = Shared::new(Box::new(say), &job.name, functions.forget);
        let refused = |text: &str| Failure::Refused(text.to_owned());
        let mut first = false;
        let shared = SHARED.get_or_init(|| {
            first = true;
            shared
        });
        if !first {
            return Err(refused("there is a server in this process already"));
        }
        let described = job.describes_host.then(topology::described).flatten();
        // SAFETY: the library has not begun with its threads, and there are no others.
        unsafe { topology::hide() }
        let server = Server { functions, shared };
        let module = Box::new(Module {
            connected: Some(connected),
            finalized: Some(finalized),
            abort: Some(aborted),
            fence: Some(fence),
            modex: Some(modex),
            publish: Some(publish),
            look_up: Some(look_up),
            unpublish: Some(unpublish),
            spawn: Some(spawn),
            // (Each appmix knows all namespaces, and the library tells its PEs of those that they meet.)
            connect: Some(met),
            disconnect: Some(met),
            others: [0; 16],
            connected2: Some(connected2),
            later: [0; 36],
        });
        let (infos, count) = list(vec![
            string("pmix.srvr.tmpdir", &job.folder),
            string("pmix.sys.tmpdir", &job.folder),
            string("pmix.srv.nspace", "psched"),
            number("pmix.srv.rank", PROC_RANK, job.own),
        ]);
        // SAFETY: the table and the list live as long as the process.
        let status = unsafe { (server.functions.init)(Box::leak(module), infos, count) };
        server.check("PMIx_server_init", status)?;
        server.register(job, described, None)?;
        Ok(server)
    }

    /// Its release, in its own words.
    pub fn version(&self) -> String {
        // SAFETY: a text that lives as long as the library.
        unsafe { CStr::from_ptr((self.functions.version)()) }.to_string_lossy().into_owned()
    }

    fn check(&self, what: &str, status: c_int) -> Result<(), Failure> {
        match status {
            SUCCESS | DONE_AT_ONCE => Ok(()),
            _ => {
                // SAFETY: a text that lives as long as the library.
                let text = unsafe { CStr::from_ptr((self.functions.text)(status)) };
                Err(Failure::Refused(format!("{what}: {}", text.to_string_lossy())))
            }
        }
    }

    /// Calls something that says later how it went, and waits for that.
    fn call(&self, what: &str, call: impl FnOnce() -> c_int) -> Result<(), Failure> {
        let lock = || self.shared.done.lock().unwrap_or_else(|broken| broken.into_inner());
        *lock() = None;
        let mut status = call();
        if status == SUCCESS {
            let waits = self.shared.is_done.wait_while(lock(), |done| done.is_none());
            let done = waits.unwrap_or_else(|broken| broken.into_inner());
            status = done.unwrap_or(ERROR);
        }
        self.check(what, status)
    }

    /// Tells the server of a program that will run on the processors of PE `parent`, as its namespace is in `job`: that PE
    /// spawns it, or `spawner`, which runs there, too. It is known by `number`.
    ///
    /// # Errors
    /// The library refuses.
    pub fn add(
        &self,
        number: u64,
        job: &Job,
        parent: u32,
        spawner: Option<&SpawnedPe>,
    ) -> Result<(), Failure> {
        self.shared.spawned().insert(job.name.clone(), Spawned { number, parent });
        let mut spawner = self.process(parent, spawner);
        self.register(job, None, Some(&mut spawner))
    }

    /// What was spawned has ended.
    pub fn forget(&self, name: &str) {
        if self.shared.spawned().remove(name).is_none() {
            return;
        }
        let text = kept(name);
        // SAFETY: a name that lives as long as the process.
        // (An Err: the library still has it.)
        let _ = self.call("PMIx_server_deregister_nspace", || unsafe {
            (self.functions.forget_all)(text, Some(done), std::ptr::null_mut());
            SUCCESS
        });
    }

    /// Answers an [`Upcall::Spawn`]: how it went, and the namespace of what was spawned.
    pub fn spawned(&self, number: u64, status: i32, name: &str) {
        self.shared.answer_spawn(number, status, name);
    }

    fn register(
        &self,
        job: &Job,
        described: Option<CString>,
        parent: Option<&mut Proc>,
    ) -> Result<(), Failure> {
        let name = kept(&job.name);
        let own: Vec<&Rank> = job.ranks.iter().filter(|rank| rank.host == job.own).collect();
        let commas = |list: &mut dyn Iterator<Item = u32>| -> String {
            list.map(|rank| rank.to_string()).collect::<Vec<_>>().join(",")
        };
        let mut by_host = vec![Vec::new(); job.hosts.len()];
        for rank in &job.ranks {
            if let Some(host) = by_host.get_mut(rank.host as usize) {
                host.push(rank.rank);
            }
        }
        let ranks: Vec<String> =
            by_host.iter().map(|ranks| commas(&mut ranks.iter().copied())).collect();
        let peers = commas(&mut own.iter().map(|rank| rank.rank));
        let nodes =
            self.regex("PMIx_generate_regex", self.functions.regex, &job.hosts.join(","))?;
        let pes = self.regex("PMIx_generate_ppn", self.functions.ppn, &ranks.join(";"))?;
        let width = job.ranks.len() as u32;
        let of_host = |number: u32| job.hosts.get(number as usize).map_or("", String::as_str);
        let mut all = vec![
            number("pmix.univ.size", UINT32, job.universe),
            number("pmix.job.size", UINT32, width),
            number("pmix.max.size", UINT32, width),
            info("pmix.nmap", REGEX, nodes),
            info("pmix.pmap", REGEX, pes),
            string("pmix.jobid", &job.name),
            number("pmix.num.nodes", UINT32, job.hosts.len() as u32),
            number("pmix.job.napps", UINT32, job.programs),
            string("pmix.tmpdir", &job.folder),
        ];
        if let Some(first) = own.first() {
            all.extend([
                string("pmix.nsdir", &job.own_folder),
                number("pmix.local.size", UINT32, own.len() as u32),
                number("pmix.node.size", UINT32, own.len() as u32),
                string("pmix.lpeers", &peers),
                number("pmix.nodeid", UINT32, job.own),
                string("pmix.hname", of_host(job.own)),
                number("pmix.lldr", PROC_RANK, first.rank),
            ]);
        }
        if let Some(parent) = parent {
            all.push(info("pmix.parent", PROC, datum(|datum| datum.process = parent)));
            // (A byte that is not 0.)
            all.push(info("pmix.spawned", BOOL, datum(|datum| datum.number = 1)));
        }
        if let Some(described) = described {
            let text = described.into_raw();
            all.push(info("pmix.ltopo", STRING, datum(|datum| datum.string = text)));
        }
        // (One of each PE is much for an application of many: the library copies them, and they go when it has.)
        let of_hosts: Vec<*mut c_char> = job.hosts.iter().map(|host| kept(host)).collect();
        let mut of_ranks: Vec<[Info; 7]> = job
            .ranks
            .iter()
            .map(|rank| {
                let host = of_hosts.get(rank.host as usize).copied();
                let host = host.unwrap_or_else(|| kept(""));
                [
                    number("pmix.rank", PROC_RANK, rank.rank),
                    small("pmix.lrank", rank.local),
                    small("pmix.nrank", rank.local),
                    number("pmix.grank", PROC_RANK, rank.rank),
                    info("pmix.hname", STRING, datum(|datum| datum.string = host)),
                    number("pmix.nodeid", UINT32, rank.host),
                    number("pmix.appnum", UINT32, rank.program),
                ]
            })
            .collect();
        let mut arrays: Vec<DataArray> = of_ranks
            .iter_mut()
            .map(|list| DataArray { kind: INFO, size: list.len(), array: list.as_mut_ptr().cast() })
            .collect();
        all.extend(
            arrays
                .iter_mut()
                .map(|array| info("pmix.pdata", DATA_ARRAY, datum(|datum| datum.array = array))),
        );
        // SAFETY: the name lives as long as the process, and the list until the library has said that it is done.
        self.call("PMIx_server_register_nspace", || unsafe {
            let local = own.len() as c_int;
            let (infos, count) = (all.as_mut_ptr(), all.len());
            (self.functions.register)(name, local, infos, count, Some(done), std::ptr::null_mut())
        })?;
        drop((all, arrays, of_ranks));
        if own.is_empty() {
            return Ok(());
        }
        // SAFETY: a name that lives as long as the process.
        self.call("PMIx_server_setup_local_support", || unsafe {
            let none = std::ptr::null_mut();
            (self.functions.local)(name, none, 0, Some(done), std::ptr::null_mut())
        })?;
        for rank in own {
            let process = Proc { name: name_of(&job.name), rank: rank.rank };
            // SAFETY: the process is copied by the library; getuid and getgid have no preconditions.
            self.call("PMIx_server_register_client", || unsafe {
                let none = std::ptr::null_mut();
                let (uid, gid) = (libc::getuid(), libc::getgid());
                (self.functions.client)(&process, uid, gid, none, Some(done), none)
            })?;
        }
        Ok(())
    }

    /// A list as the library packs it, which begins with the name of a format and has no zero byte as long as the
    /// format that compresses is switched off.
    fn regex(
        &self,
        what: &str,
        function: unsafe extern "C" fn(*const c_char, *mut *mut c_char) -> c_int,
        text: &str,
    ) -> Result<Datum, Failure> {
        let mut packed = std::ptr::null_mut();
        // SAFETY: a text, and a live pointer that is set to another one, which nobody frees.
        let status = unsafe { function(kept(text), &mut packed) };
        self.check(what, status)?;
        if packed.is_null() {
            return Err(Failure::Refused(format!("{what}: nothing")));
        }
        // SAFETY: see above.
        let size = unsafe { CStr::from_ptr(packed) }.to_bytes_with_nul().len();
        Ok(datum(|datum| datum.object = ByteObject { bytes: packed, size }))
    }

    /// A PE of the application, or one that was spawned.
    fn process(&self, rank: u32, spawned: Option<&SpawnedPe>) -> Proc {
        match spawned {
            Some(SpawnedPe { space, rank }) => Proc { name: name_of(space), rank: *rank },
            None => Proc { name: name_of(&self.shared.name), rank },
        }
    }

    /// The variables (NAME=VALUE) by which PEs of this namespace find the server, that of the rank apart.
    ///
    /// # Errors
    /// The library refuses.
    pub fn environment(&self, name: &str, rank: u32) -> Result<Vec<Vec<u8>>, Failure> {
        let process = Proc { name: name_of(name), rank };
        // The library adds to a list that it makes longer: an empty one, from malloc.
        // SAFETY: zeroed memory for one null pointer, which is the end of the list.
        let mut list: *mut *mut c_char =
            unsafe { libc::calloc(1, size_of::<*mut c_char>()).cast::<*mut c_char>() };
        if list.is_null() {
            return Err(Failure::Refused("no memory".into()));
        }
        // SAFETY: a live process and a list that ends in null.
        let status = unsafe { (self.functions.environment)(&process, &mut list) };
        self.check("PMIx_server_setup_fork", status)?;
        let mut found = Vec::new();
        // SAFETY: a list of texts that ends in null; nobody frees it.
        unsafe {
            let mut at = list;
            while !at.is_null() && !(*at).is_null() {
                found.push(CStr::from_ptr(*at).to_bytes().to_vec());
                at = at.add(1);
            }
        }
        found.retain(|item| !item.starts_with(RANK));
        Ok(found)
    }

    /// Answers an [`Upcall::Fence`] with what all have given, or an [`Upcall::Modex`] with what that PE has put.
    pub fn answer(&self, number: u64, status: i32, data: &[u8]) {
        self.shared.answer(number, status, data);
    }

    /// Answers an [`Upcall::Data`] about one of its keys: how it went, and the data that was published for it.
    pub fn answer_key(&self, number: u64, key: &[u8], status: i32, data: &[u8]) {
        self.shared.answer_key(number, key, status, data);
    }

    /// Looks up what a PE of this server has put, and waits for it if it has not yet: [`Upcall::Found`] follows.
    pub fn look_up(&self, number: u64, rank: u32, spawned: Option<&SpawnedPe>) {
        let known = |one: &SpawnedPe| self.shared.spawned().contains_key(&one.space);
        if !spawned.is_none_or(known) {
            // (The library would wait for it.)
            let (status, data) = (NOT_FOUND, Vec::new());
            return (self.shared.say)(Upcall::Found { number, status, data });
        }
        let process = self.process(rank, spawned);
        let cookie = number as usize as *mut c_void;
        // SAFETY: the process is copied by the library, and the number is none that it looks at.
        let status = unsafe { (self.functions.look_up)(&process, found, cookie) };
        if status != SUCCESS {
            found(status, std::ptr::null_mut(), 0, cookie);
        }
    }
}
