//! libpmix, loaded at run time: the server side of PMIx, by which programs of Open MPI find one another.
//!
//! # Problem
//! The wire protocol of PMIx has four formats and is documented nowhere but in the library, and the library is not on
//! every machine. So it is no dependency: it is looked for when a program needs it.
//!
//! # Approach
//! Its functions are looked up by name ([`load`]), and five structures are laid out here as its headers do. This was
//! tried with release 4.2; the table of upcalls has room for those of later releases, which find zeros there.
//!
//! The library has threads of its own, which call back. What they say becomes an [`Upcall`] at once, and what they wait
//! for is answered later by its number, from any thread. There is one server in a process ([`Server::start`]).

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::{Condvar, Mutex, OnceLock};

/// The file that is loaded.
pub const LIBRARY: &str = "libpmix.so.2";
/// What Debian calls the package that has it.
pub const PACKAGE: &str = "libpmix2";

/// PMIX_SUCCESS.
pub const SUCCESS: i32 = 0;
/// PMIX_ERROR.
pub const ERROR: i32 = -1;
/// PMIX_ERR_NOT_FOUND.
pub const NOT_FOUND: i32 = -46;
/// PMIX_ERR_NOT_SUPPORTED.
const NOT_SUPPORTED: i32 = -47;
/// PMIX_OPERATION_SUCCEEDED: done at once, no callback follows.
const DONE_AT_ONCE: i32 = -157;
/// PMIX_ERR_PARTIAL_SUCCESS: some of the keys that were looked up.
const SOME: i32 = -52;
/// PMIX_RANK_WILDCARD: all ranks of a namespace.
const ALL_RANKS: u32 = u32::MAX - 1;

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
        /// Who takes part; `None`: all PEs of the application.
        ranks: Option<Vec<u32>>,
        /// What they give to the others.
        data: Vec<u8>,
    },
    /// A PE asks what this one of another server has put. Answered by [`Server::answer`].
    Modex {
        /// By which it is answered.
        number: u64,
        /// Whose.
        rank: u32,
    },
    /// A PE publishes data, looks it up or takes it back. Answered by [`Server::answer_key`], for each key once.
    Data {
        /// By which it is answered.
        number: u64,
        /// What is to be done about each of these keys, which are not empty.
        about: Vec<(Vec<u8>, DataUpcall)>,
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
    },
    /// It is to stand for nothing any more.
    Unpublish,
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
    /// Which host this is.
    pub own: u32,
    /// How many programs the application has.
    pub programs: u32,
    /// All ranks, from 0.
    pub ranks: Vec<Rank>,
    /// A folder for files of the server, and of PEs of this host.
    pub folder: String,
}

// ---- the structures of its headers ----

#[repr(C)]
#[derive(Clone, Copy)]
struct Proc {
    name: [c_char; 256],
    rank: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct DataArray {
    kind: u16,
    size: usize,
    array: *mut c_void,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct ByteObject {
    bytes: *mut c_char,
    size: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
union Datum {
    string: *mut c_char,
    small: u16,
    number: u32,
    array: *mut DataArray,
    object: ByteObject,
    room: [u64; 3],
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Value {
    kind: u16,
    datum: Datum,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Info {
    key: [c_char; 512],
    flags: u32,
    value: Value,
}

/// A key that was looked up, who has published it, and its value.
#[repr(C)]
#[derive(Clone, Copy)]
struct Published {
    publisher: Proc,
    key: [c_char; 512],
    value: Value,
}

const _: () = assert!(size_of::<Published>() == 808);
const _: () = assert!(std::mem::offset_of!(Published, value) == 776);
const _: () = assert!(size_of::<Proc>() == 260 && size_of::<DataArray>() == 24);
const _: () = assert!(size_of::<Value>() == 32 && size_of::<Info>() == 552);
const _: () = assert!(std::mem::offset_of!(Info, value) == 520);

const STRING: u16 = 3;
/// Of scalar types, whose values are all in their datum: the first, and the last of those without gaps but STRING.
const BOOL: u16 = 1;
const STATUS: u16 = 20;
const BYTE_OBJECT: u16 = 27;
const PERSIST: u16 = 30;
const UINT16: u16 = 13;
const UINT32: u16 = 14;
const INFO: u16 = 24;
const DATA_ARRAY: u16 = 39;
const PROC_RANK: u16 = 40;
const REGEX: u16 = 49;

type Done = extern "C" fn(c_int, *mut c_void);
type Release = extern "C" fn(*mut c_void);
type Modex = unsafe extern "C" fn(c_int, *const c_char, usize, *mut c_void, Release, *mut c_void);
type FoundIt = extern "C" fn(c_int, *mut c_char, usize, *mut c_void);

type Forget = unsafe extern "C" fn(*const Proc, Option<Done>, *mut c_void);
type LookedUp = unsafe extern "C" fn(c_int, *mut Published, usize, *mut c_void);
type Operation =
    extern "C" fn(*const Proc, usize, *const Info, usize, Option<Done>, *mut c_void) -> c_int;

/// Upcalls in the order of the header; 64 in all, so that later ones are zeros.
#[repr(C)]
struct Module {
    connected: Option<extern "C" fn(*const Proc, *mut c_void, Option<Done>, *mut c_void) -> c_int>,
    finalized: Option<extern "C" fn(*const Proc, *mut c_void, Option<Done>, *mut c_void) -> c_int>,
    abort: Option<
        extern "C" fn(
            *const Proc,
            *mut c_void,
            c_int,
            *const c_char,
            *mut Proc,
            usize,
            Option<Done>,
            *mut c_void,
        ) -> c_int,
    >,
    fence: Option<
        extern "C" fn(
            *const Proc,
            usize,
            *const Info,
            usize,
            *mut c_char,
            usize,
            Modex,
            *mut c_void,
        ) -> c_int,
    >,
    modex: Option<extern "C" fn(*const Proc, *const Info, usize, Modex, *mut c_void) -> c_int>,
    publish:
        Option<extern "C" fn(*const Proc, *const Info, usize, Option<Done>, *mut c_void) -> c_int>,
    look_up: Option<
        extern "C" fn(
            *const Proc,
            *const *const c_char,
            *const Info,
            usize,
            LookedUp,
            *mut c_void,
        ) -> c_int,
    >,
    unpublish: Option<
        extern "C" fn(
            *const Proc,
            *const *const c_char,
            *const Info,
            usize,
            Option<Done>,
            *mut c_void,
        ) -> c_int,
    >,
    spawn: usize,
    connect: Option<Operation>,
    disconnect: Option<Operation>,
    others: [usize; 16],
    connected2: Option<
        extern "C" fn(
            *const Proc,
            *mut c_void,
            *mut Info,
            usize,
            Option<Done>,
            *mut c_void,
        ) -> c_int,
    >,
    later: [usize; 36],
}

const _: () = assert!(std::mem::offset_of!(Module, connected2) == 216);
const _: () = assert!(size_of::<Module>() == 64 * 8);

/// Its functions.
struct Functions {
    init: unsafe extern "C" fn(*mut Module, *mut Info, usize) -> c_int,
    register: unsafe extern "C" fn(
        *const c_char,
        c_int,
        *mut Info,
        usize,
        Option<Done>,
        *mut c_void,
    ) -> c_int,
    local:
        unsafe extern "C" fn(*const c_char, *mut Info, usize, Option<Done>, *mut c_void) -> c_int,
    client: unsafe extern "C" fn(
        *const Proc,
        libc::uid_t,
        libc::gid_t,
        *mut c_void,
        Option<Done>,
        *mut c_void,
    ) -> c_int,
    environment: unsafe extern "C" fn(*const Proc, *mut *mut *mut c_char) -> c_int,
    regex: unsafe extern "C" fn(*const c_char, *mut *mut c_char) -> c_int,
    ppn: unsafe extern "C" fn(*const c_char, *mut *mut c_char) -> c_int,
    look_up: unsafe extern "C" fn(*const Proc, FoundIt, *mut c_void) -> c_int,
    forget: Forget,
    text: unsafe extern "C" fn(c_int) -> *const c_char,
    version: unsafe extern "C" fn() -> *const c_char,
}

/// Whoever waits for an answer.
struct Waiting {
    call: Call,
    data: *mut c_void,
}

/// By which the library is answered.
enum Call {
    /// With bytes.
    Modex(Modex),
    /// That PEs have met.
    Met(Option<Done>),
    /// About keys.
    Keys(Keys),
}

/// A question about keys, of which some are answered.
struct Keys {
    call: KeysCall,
    /// How many are not.
    left: usize,
    /// The first bad answer.
    status: i32,
    found: Vec<(Vec<u8>, Vec<u8>)>,
}

enum KeysCall {
    Done(Option<Done>),
    LookedUp(LookedUp),
}

// SAFETY: the library takes an answer on any thread, and nothing is done with the pointer here.
unsafe impl Send for Waiting {}

/// The state that the library's threads find: there is one server in a process.
struct Shared {
    say: Box<dyn Fn(Upcall) + Send + Sync>,
    name: String,
    waiting: Mutex<(u64, BTreeMap<u64, Waiting>)>,
    /// Calls with their results, which the library's own thread is to answer.
    ended: Mutex<BTreeMap<u64, (Waiting, i32)>>,
    forget: Forget,
    /// What the last operation has come to, once it has.
    done: Mutex<Option<i32>>,
    is_done: Condvar,
}

static SHARED: OnceLock<Shared> = OnceLock::new();

impl Shared {
    fn waiting(&self) -> std::sync::MutexGuard<'_, (u64, BTreeMap<u64, Waiting>)> {
        self.waiting.lock().unwrap_or_else(|broken| broken.into_inner())
    }

    /// Keeps whoever waits, under a new number.
    fn keep(&self, call: Call, data: *mut c_void) -> u64 {
        let mut waiting = self.waiting();
        waiting.0 += 1;
        let number = waiting.0;
        waiting.1.insert(number, Waiting { call, data });
        number
    }

    fn answer(&self, number: u64, status: i32, data: &[u8]) {
        let waiting = self.waiting().1.remove(&number);
        let (call, theirs) = match waiting {
            Some(Waiting { call: Call::Modex(call), data }) => (call, data),
            Some(met) => return self.end(number, met, status),
            None => return,
        };
        // SAFETY: malloc of at least one byte, which is looked at before it is written to; the library frees it by the
        // function that it is given for that, once.
        unsafe {
            let copy: *mut c_char = libc::malloc(data.len().max(1)).cast();
            if copy.is_null() {
                return call(ERROR, std::ptr::null(), 0, theirs, free, std::ptr::null_mut());
            }
            std::ptr::copy_nonoverlapping(data.as_ptr().cast(), copy, data.len());
            call(status, copy, data.len(), theirs, free, copy.cast());
        }
    }

    fn answer_key(&self, number: u64, key: &[u8], status: i32, data: &[u8]) {
        let mut waiting = self.waiting();
        let Some(Waiting { call: Call::Keys(keys), .. }) = waiting.1.get_mut(&number) else {
            return;
        };
        match status {
            SUCCESS => keys.found.push((key.to_vec(), data.to_vec())),
            _ if keys.status == SUCCESS => keys.status = status,
            _ => {}
        }
        keys.left = keys.left.saturating_sub(1);
        if keys.left > 0 {
            return;
        }
        let status = keys.status;
        let ended = waiting.1.remove(&number);
        drop(waiting);
        if let Some(ended) = ended {
            self.end(number, ended, status);
        }
    }

    /// Has the library's own thread answer a call. Releases 3 and 4.2 expect other answers than that of a modex in that
    /// thread. To get there, the library is told to deregister a client that does not exist: it calls back from there.
    fn end(&self, number: u64, waiting: Waiting, status: i32) {
        let mut ended = self.ended.lock().unwrap_or_else(|broken| broken.into_inner());
        ended.insert(number, (waiting, status));
        drop(ended);
        let nobody = Proc { name: name_of("nobody"), rank: 0 };
        // SAFETY: the process is copied by the library, and the number is none that it looks at.
        unsafe { (self.forget)(&nobody, Some(tell), number as usize as *mut c_void) }
    }

    fn tell(&self, number: u64) {
        let ended = {
            let mut ended = self.ended.lock().unwrap_or_else(|broken| broken.into_inner());
            ended.remove(&number)
        };
        let Some((Waiting { call, data: theirs }, status)) = ended else { return };
        match call {
            Call::Modex(_) => {}
            Call::Met(done) | Call::Keys(Keys { call: KeysCall::Done(done), .. }) => {
                if let Some(done) = done {
                    done(status, theirs);
                }
            }
            Call::Keys(Keys { call: KeysCall::LookedUp(call), found, .. }) => {
                let mut all: Vec<Published> =
                    found.iter().filter_map(|(key, data)| self.published(key, data)).collect();
                let status = if status != SUCCESS && !all.is_empty() { SOME } else { status };
                // SAFETY: a list that lives as long as this call, which packs it. Texts and bytes are in `found`.
                unsafe { call(status, all.as_mut_ptr(), all.len(), theirs) }
            }
        }
    }

    /// A key and its value as they were packed by [`packed`]; the value's bytes are those of `data`. `None`: they were not.
    fn published(&self, key: &[u8], data: &[u8]) -> Option<Published> {
        let (rank, rest) = data.split_first_chunk::<4>()?;
        let (kind, bytes) = rest.split_first_chunk::<2>()?;
        let kind = u16::from_ne_bytes(*kind);
        let pointer = bytes.as_ptr().cast::<c_char>().cast_mut();
        let value = match kind {
            // (It has its zero byte.)
            STRING if bytes.last() == Some(&0) => datum(|datum| datum.string = pointer),
            BYTE_OBJECT => datum(|datum| {
                datum.object = ByteObject { bytes: pointer, size: bytes.len() };
            }),
            _ if is_scalar(kind) => {
                let room: [u8; 24] = bytes.try_into().ok()?;
                let (words, _) = room.as_chunks::<8>();
                let word = |at: usize| words.get(at).map_or(0, |word| u64::from_ne_bytes(*word));
                Datum { room: [word(0), word(1), word(2)] }
            }
            _ => return None,
        };
        let publisher = Proc { name: name_of(&self.name), rank: u32::from_ne_bytes(*rank) };
        let key = info(&String::from_utf8_lossy(key), kind, value).key;
        Some(Published { publisher, key, value: Value { kind, datum: value } })
    }
}

/// Types of values that hold no pointer.
fn is_scalar(kind: u16) -> bool {
    (BOOL..=STATUS).contains(&kind) && kind != STRING || [PERSIST, PROC_RANK].contains(&kind)
}

/// A value and who publishes it, as [`Shared::published`] takes it. `None`: one of a type that is not known here.
///
/// # Safety
/// The value is as its type says.
unsafe fn packed(rank: u32, value: &Value) -> Option<Vec<u8>> {
    let mut bytes = [&rank.to_ne_bytes()[..], &value.kind.to_ne_bytes()].concat();
    // SAFETY: the caller's promise.
    unsafe {
        match value.kind {
            STRING if !value.datum.string.is_null() => {
                bytes.extend(CStr::from_ptr(value.datum.string).to_bytes_with_nul());
            }
            BYTE_OBJECT if value.datum.object.size == 0 => {}
            BYTE_OBJECT if !value.datum.object.bytes.is_null() => {
                let object = value.datum.object;
                bytes.extend(std::slice::from_raw_parts(object.bytes.cast::<u8>(), object.size));
            }
            kind if is_scalar(kind) => {
                value.datum.room.iter().for_each(|word| bytes.extend(word.to_ne_bytes()));
            }
            _ => return None,
        }
    }
    Some(bytes)
}

/// Runs in the library's own thread: answers the call of this number.
extern "C" fn tell(_status: c_int, number: *mut c_void) {
    if let Some(shared) = SHARED.get() {
        shared.tell(number as usize as u64);
    }
}

extern "C" fn free(what: *mut c_void) {
    // SAFETY: it is what `answer` has from malloc, or null.
    unsafe { libc::free(what) }
}

/// The name and rank of a process that the library names.
///
/// # Safety
/// The pointer is to one, or null.
unsafe fn named(process: *const Proc) -> Option<(Vec<u8>, u32)> {
    // SAFETY: the caller's promise.
    let process = unsafe { process.as_ref() }?;
    let name = process.name.iter().map(|c| *c as u8).take_while(|c| *c != 0).collect();
    Some((name, process.rank))
}

/// Tells of a PE, and that the library may go on.
///
/// # Safety
/// As the library calls it.
unsafe fn told(
    process: *const Proc,
    what: impl FnOnce(u32) -> Upcall,
    done: Option<Done>,
    data: *mut c_void,
) -> c_int {
    // SAFETY: the library's own process.
    if let (Some(shared), Some((name, rank))) = (SHARED.get(), unsafe { named(process) })
        && name == shared.name.as_bytes()
    {
        (shared.say)(what(rank));
    }
    if let Some(done) = done {
        done(SUCCESS, data);
    }
    SUCCESS
}

extern "C" fn connected2(
    process: *const Proc,
    _object: *mut c_void,
    _info: *mut Info,
    _count: usize,
    done: Option<Done>,
    data: *mut c_void,
) -> c_int {
    // SAFETY: as the library calls it.
    unsafe { told(process, Upcall::Connected, done, data) }
}

extern "C" fn connected(
    process: *const Proc,
    _object: *mut c_void,
    done: Option<Done>,
    data: *mut c_void,
) -> c_int {
    // SAFETY: as the library calls it.
    unsafe { told(process, Upcall::Connected, done, data) }
}

extern "C" fn finalized(
    process: *const Proc,
    _object: *mut c_void,
    done: Option<Done>,
    data: *mut c_void,
) -> c_int {
    // SAFETY: as the library calls it.
    unsafe { told(process, Upcall::Finalized, done, data) }
}

extern "C" fn aborted(
    process: *const Proc,
    _object: *mut c_void,
    code: c_int,
    _text: *const c_char,
    _whom: *mut Proc,
    _count: usize,
    done: Option<Done>,
    data: *mut c_void,
) -> c_int {
    // SAFETY: as the library calls it.
    unsafe { told(process, |rank| Upcall::Abort { rank, code }, done, data) }
}

extern "C" fn fence(
    processes: *const Proc,
    count: usize,
    _info: *const Info,
    _infos: usize,
    data: *mut c_char,
    length: usize,
    call: Modex,
    theirs: *mut c_void,
) -> c_int {
    // SAFETY: the library's own list, and data that is ours from here on, from malloc.
    unsafe {
        let bytes = match data.is_null() {
            true => Vec::new(),
            false => std::slice::from_raw_parts(data.cast::<u8>(), length).to_vec(),
        };
        libc::free(data.cast());
        meet(processes, count, bytes, Call::Modex(call), theirs)
    }
}

/// PEs connect, or part: a fence without data.
extern "C" fn met(
    processes: *const Proc,
    count: usize,
    _info: *const Info,
    _infos: usize,
    done: Option<Done>,
    theirs: *mut c_void,
) -> c_int {
    // SAFETY: the library's own list.
    unsafe { meet(processes, count, Vec::new(), Call::Met(done), theirs) }
}

/// PEs of this server that take part in a fence are in it.
///
/// # Safety
/// The list is of as many processes as is said.
unsafe fn meet(
    processes: *const Proc,
    count: usize,
    data: Vec<u8>,
    call: Call,
    theirs: *mut c_void,
) -> c_int {
    let Some(shared) = SHARED.get() else { return ERROR };
    // SAFETY: the caller's promise.
    let list = unsafe {
        (0..count).map(|at| named(processes.wrapping_add(at))).collect::<Option<Vec<_>>>()
    };
    let Some(list) = list else { return ERROR };
    if list.iter().any(|(name, _)| *name != shared.name.as_bytes()) {
        return NOT_SUPPORTED;
    }
    let all = list.is_empty() || list.iter().any(|(_, rank)| *rank == ALL_RANKS);
    let ranks = (!all).then(|| list.into_iter().map(|(_, rank)| rank).collect());
    let number = shared.keep(call, theirs);
    (shared.say)(Upcall::Fence { number, ranks, data });
    SUCCESS
}

/// Directives begin so; no key that is published does.
const DIRECTIVE: &[u8] = b"pmix.";
/// For how many keys of a lookup the caller waits.
const WAIT: &[u8] = b"pmix.wait";
/// How long something that is published stays, and the word for: until it is read.
const PERSISTENCE: &[u8] = b"pmix.persist";
const FIRST_READ: u8 = 1;
/// Keys of one question.
const KEYS_MAX: usize = 1024;

/// A list that the library gives, with the key of each.
///
/// # Safety
/// There are as many, or the pointer is null.
unsafe fn keyed<'a>(infos: *const Info, count: usize) -> Vec<(Vec<u8>, &'a Value)> {
    if infos.is_null() {
        return Vec::new();
    }
    // SAFETY: the caller's promise.
    let infos = unsafe { std::slice::from_raw_parts(infos, count) };
    let key = |info: &Info| info.key.iter().map(|c| *c as u8).take_while(|c| *c != 0).collect();
    infos.iter().map(|info| (key(info), &info.value)).collect()
}

/// A list of keys that ends in null. `None`: there is no list, or it is too long.
///
/// # Safety
/// It is one, or null.
unsafe fn keys_of(keys: *const *const c_char) -> Option<Vec<Vec<u8>>> {
    let mut found = Vec::new();
    // SAFETY: the caller's promise.
    unsafe {
        let mut at = keys;
        while !at.is_null() && !(*at).is_null() && found.len() <= KEYS_MAX {
            found.push(CStr::from_ptr(*at).to_bytes().to_vec());
            at = at.add(1);
        }
    }
    (1..=KEYS_MAX).contains(&found.len()).then_some(found)
}

/// Asks about keys.
fn ask(about: Vec<(Vec<u8>, DataUpcall)>, call: KeysCall, theirs: *mut c_void) -> c_int {
    let Some(shared) = SHARED.get() else { return ERROR };
    let keys = Keys { call, left: about.len(), status: SUCCESS, found: Vec::new() };
    let number = shared.keep(Call::Keys(keys), theirs);
    (shared.say)(Upcall::Data { number, about });
    SUCCESS
}

extern "C" fn publish(
    process: *const Proc,
    infos: *const Info,
    count: usize,
    done: Option<Done>,
    theirs: *mut c_void,
) -> c_int {
    // SAFETY: the library's own process and list, whose values are as their types say.
    let (process, infos) = unsafe { (named(process), keyed(infos, count)) };
    let Some((_, rank)) = process else { return ERROR };
    // SAFETY: as above.
    let until_read = |value: &Value| unsafe { value.datum.room }[0].to_ne_bytes()[0] == FIRST_READ;
    let once = infos.iter().any(|(key, value)| key == PERSISTENCE && until_read(value));
    let items = infos.into_iter().filter(|(key, _)| !key.starts_with(DIRECTIVE));
    // SAFETY: as above.
    let pack = |value: &Value| unsafe { packed(rank, value) };
    let about =
        items.map(|(key, value)| Some((key, DataUpcall::Publish { data: pack(value)?, once })));
    match about.collect::<Option<Vec<_>>>() {
        Some(about) if (1..=KEYS_MAX).contains(&about.len()) => {
            ask(about, KeysCall::Done(done), theirs)
        }
        _ => NOT_SUPPORTED,
    }
}

extern "C" fn look_up(
    _process: *const Proc,
    keys: *const *const c_char,
    infos: *const Info,
    count: usize,
    call: LookedUp,
    theirs: *mut c_void,
) -> c_int {
    // SAFETY: the library's own lists.
    let (keys, infos) = unsafe { (keys_of(keys), keyed(infos, count)) };
    let Some(keys) = keys else { return NOT_SUPPORTED };
    let wait = infos.iter().any(|(key, _)| key == WAIT);
    let about = keys.into_iter().map(|key| (key, DataUpcall::LookUp { wait }));
    ask(about.collect(), KeysCall::LookedUp(call), theirs)
}

extern "C" fn unpublish(
    _process: *const Proc,
    keys: *const *const c_char,
    _infos: *const Info,
    _count: usize,
    done: Option<Done>,
    theirs: *mut c_void,
) -> c_int {
    // SAFETY: the library's own list.
    let Some(keys) = (unsafe { keys_of(keys) }) else { return NOT_SUPPORTED };
    let about = keys.into_iter().map(|key| (key, DataUpcall::Unpublish));
    ask(about.collect(), KeysCall::Done(done), theirs)
}

extern "C" fn modex(
    process: *const Proc,
    _info: *const Info,
    _infos: usize,
    call: Modex,
    theirs: *mut c_void,
) -> c_int {
    // SAFETY: the library's own process.
    let (Some(shared), Some((name, rank))) = (SHARED.get(), unsafe { named(process) }) else {
        return ERROR;
    };
    if name != shared.name.as_bytes() {
        return NOT_FOUND;
    }
    let number = shared.keep(Call::Modex(call), theirs);
    (shared.say)(Upcall::Modex { number, rank });
    SUCCESS
}

extern "C" fn found(status: c_int, data: *mut c_char, length: usize, number: *mut c_void) {
    let Some(shared) = SHARED.get() else { return };
    let bytes = match data.is_null() {
        true => Vec::new(),
        // SAFETY: the library's data, which lives as long as this call.
        false => unsafe { std::slice::from_raw_parts(data.cast::<u8>(), length) }.to_vec(),
    };
    (shared.say)(Upcall::Found { number: number as usize as u64, status, data: bytes });
}

extern "C" fn done(status: c_int, _data: *mut c_void) {
    let Some(shared) = SHARED.get() else { return };
    *shared.done.lock().unwrap_or_else(|broken| broken.into_inner()) = Some(status);
    shared.is_done.notify_one();
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

/// Strings and lists that the library is given live as long as the process: some releases keep what they are given.
fn kept(text: &str) -> *mut c_char {
    CString::new(text).unwrap_or_default().into_raw()
}

fn name_of(name: &str) -> [c_char; 256] {
    let mut bytes = [0; 256];
    for (to, from) in bytes.iter_mut().zip(name.bytes()).take(255) {
        *to = from as c_char;
    }
    bytes
}

fn info(key: &str, kind: u16, datum: Datum) -> Info {
    let mut bytes = [0; 512];
    for (to, from) in bytes.iter_mut().zip(key.bytes()).take(511) {
        *to = from as c_char;
    }
    Info { key: bytes, flags: 0, value: Value { kind, datum } }
}

/// A datum whose other bytes are zeros.
fn datum(set: impl FnOnce(&mut Datum)) -> Datum {
    let mut datum = Datum { room: [0; 3] };
    set(&mut datum);
    datum
}

fn string(key: &str, text: &str) -> Info {
    info(key, STRING, datum(|datum| datum.string = kept(text)))
}

fn number(key: &str, kind: u16, value: u32) -> Info {
    info(key, kind, datum(|datum| datum.number = value))
}

fn small(key: &str, value: u16) -> Info {
    info(key, UINT16, datum(|datum| datum.small = value))
}

/// A list that the library may keep.
fn list(infos: Vec<Info>) -> (*mut Info, usize) {
    let infos = infos.leak();
    (infos.as_mut_ptr(), infos.len())
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
        let shared = Shared {
            say: Box::new(say),
            name: job.name.clone(),
            waiting: Mutex::new((0, BTreeMap::new())),
            ended: Mutex::new(BTreeMap::new()),
            forget: functions.forget,
            done: Mutex::new(None),
            is_done: Condvar::new(),
        };
        let refused = |text: &str| Failure::Refused(text.to_owned());
        let mut first = false;
        let shared = SHARED.get_or_init(|| {
            first = true;
            shared
        });
        if !first {
            return Err(refused("there is a server in this process already"));
        }
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
            spawn: 0,
            // (All belong to one namespace, of which each has been told: there is nothing more to exchange.)
            connect: Some(met),
            disconnect: Some(met),
            others: [0; 16],
            connected2: Some(connected2),
            later: [0; 36],
        });
        let (infos, count) = list(vec![
            string("pmix.srvr.tmpdir", &job.folder),
            string("pmix.srv.nspace", "psched"),
            number("pmix.srv.rank", PROC_RANK, job.own),
        ]);
        // SAFETY: the table and the list live as long as the process.
        let status = unsafe { (server.functions.init)(Box::leak(module), infos, count) };
        server.check("PMIx_server_init", status)?;
        server.register(job)?;
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

    fn register(&self, job: &Job) -> Result<(), Failure> {
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
            number("pmix.univ.size", UINT32, width),
            number("pmix.job.size", UINT32, width),
            number("pmix.max.size", UINT32, width),
            number("pmix.local.size", UINT32, own.len() as u32),
            number("pmix.node.size", UINT32, own.len() as u32),
            string("pmix.lpeers", &peers),
            info("pmix.nmap", REGEX, nodes),
            info("pmix.pmap", REGEX, pes),
            string("pmix.jobid", &job.name),
            number("pmix.num.nodes", UINT32, job.hosts.len() as u32),
            number("pmix.job.napps", UINT32, job.programs),
            number("pmix.nodeid", UINT32, job.own),
            string("pmix.hname", of_host(job.own)),
            number("pmix.lldr", PROC_RANK, own.first().map_or(0, |rank| rank.rank)),
            string("pmix.tmpdir", &job.folder),
            string("pmix.nsdir", &job.folder),
        ];
        for rank in &job.ranks {
            let (array, size) = list(vec![
                number("pmix.rank", PROC_RANK, rank.rank),
                small("pmix.lrank", rank.local),
                small("pmix.nrank", rank.local),
                number("pmix.grank", PROC_RANK, rank.rank),
                string("pmix.hname", of_host(rank.host)),
                number("pmix.nodeid", UINT32, rank.host),
                number("pmix.appnum", UINT32, rank.program),
            ]);
            let array = Box::leak(Box::new(DataArray { kind: INFO, size, array: array.cast() }));
            all.push(info("pmix.pdata", DATA_ARRAY, datum(|datum| datum.array = array)));
        }
        let (infos, count) = list(all);
        // SAFETY: the name and the list live as long as the process.
        self.call("PMIx_server_register_nspace", || unsafe {
            let local = own.len() as c_int;
            (self.functions.register)(name, local, infos, count, Some(done), std::ptr::null_mut())
        })?;
        // SAFETY: as above.
        self.call("PMIx_server_setup_local_support", || unsafe {
            let none = std::ptr::null_mut();
            (self.functions.local)(name, none, 0, Some(done), std::ptr::null_mut())
        })?;
        for rank in own {
            let process = self.process(rank.rank);
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

    fn process(&self, rank: u32) -> Proc {
        Proc { name: name_of(&self.shared.name), rank }
    }

    /// The variables (NAME=VALUE) by which a PE finds the server.
    ///
    /// # Errors
    /// The library refuses.
    pub fn environment(&self, rank: u32) -> Result<Vec<Vec<u8>>, Failure> {
        let process = self.process(rank);
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
    pub fn look_up(&self, number: u64, rank: u32) {
        let process = self.process(rank);
        let cookie = number as usize as *mut c_void;
        // SAFETY: the process is copied by the library, and the number is none that it looks at.
        let status = unsafe { (self.functions.look_up)(&process, found, cookie) };
        if status != SUCCESS {
            found(status, std::ptr::null_mut(), 0, cookie);
        }
    }
}

/// Loads the library and finds its functions.
fn load() -> Result<Functions, String> {
    let error = || {
        // SAFETY: a text of this thread, or null; it is copied at once.
        let text = unsafe { libc::dlerror() };
        match text.is_null() {
            true => "unknown error".to_owned(),
            // SAFETY: see above.
            false => unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned(),
        }
    };
    let name = CString::new(LIBRARY).map_err(|e| e.to_string())?;
    // (Global: what it loads in its turn looks for its symbols.)
    // SAFETY: the library's own constructors run, before any other thread is there.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    if library.is_null() {
        return Err(error());
    }
    // SAFETY (all): an open library, and functions of these types in the headers of all releases since 3.2.
    unsafe {
        Ok(Functions {
            init: symbol(library, c"PMIx_server_init").ok_or_else(error)?,
            register: symbol(library, c"PMIx_server_register_nspace").ok_or_else(error)?,
            local: symbol(library, c"PMIx_server_setup_local_support").ok_or_else(error)?,
            client: symbol(library, c"PMIx_server_register_client").ok_or_else(error)?,
            environment: symbol(library, c"PMIx_server_setup_fork").ok_or_else(error)?,
            regex: symbol(library, c"PMIx_generate_regex").ok_or_else(error)?,
            ppn: symbol(library, c"PMIx_generate_ppn").ok_or_else(error)?,
            look_up: symbol(library, c"PMIx_server_dmodex_request").ok_or_else(error)?,
            forget: symbol(library, c"PMIx_server_deregister_client").ok_or_else(error)?,
            text: symbol(library, c"PMIx_Error_string").ok_or_else(error)?,
            version: symbol(library, c"PMIx_Get_version").ok_or_else(error)?,
        })
    }
}

/// A function of an open library.
///
/// # Safety
/// `F` is the type of a function, and it has this one.
unsafe fn symbol<F: Copy>(library: *mut c_void, name: &CStr) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) }
    // SAFETY: an open library and a text.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    // SAFETY: the caller's promise: a pointer to a function, and not null.
    (!found.is_null()).then(|| unsafe { std::mem::transmute_copy(&found) })
}
