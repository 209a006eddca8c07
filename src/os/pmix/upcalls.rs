//! What the library calls, in threads of its own: each says what it is about at once ([`Upcall`]), and who waits for an
//! answer is kept.

use super::answers::{Call, Keys, KeysCall, SHARED, packed};
use super::header::*;
use super::{DataUpcall, Upcall};
use std::ffi::{CStr, c_char, c_int, c_void};

/// The name and rank of a process that the library names.
///
/// # Safety
/// The pointer is to one, or null.
pub(super) unsafe fn named(process: *const Proc) -> Option<(Vec<u8>, u32)> {
    // SAFETY: the caller's promise.
    let process = unsafe { process.as_ref() }?;
    let name = process.name.iter().map(|c| *c as u8).take_while(|c| *c != 0).collect();
    Some((name, process.rank))
}

/// Tells of a PE, and that the library may go on.
///
/// # Safety
/// As the library calls it.
pub(super) unsafe fn told(
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

pub(super) extern "C" fn connected2(
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

pub(super) extern "C" fn connected(
    process: *const Proc,
    _object: *mut c_void,
    done: Option<Done>,
    data: *mut c_void,
) -> c_int {
    // SAFETY: as the library calls it.
    unsafe { told(process, Upcall::Connected, done, data) }
}

pub(super) extern "C" fn finalized(
    process: *const Proc,
    _object: *mut c_void,
    done: Option<Done>,
    data: *mut c_void,
) -> c_int {
    // SAFETY: as the library calls it.
    unsafe { told(process, Upcall::Finalized, done, data) }
}

pub(super) extern "C" fn aborted(
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
    unsafe {
        if let (Some(shared), Some((name, _))) = (SHARED.get(), named(process)) {
            let spawned = shared.spawned().get(&*String::from_utf8_lossy(&name)).copied();
            spawned
                .into_iter()
                .for_each(|number| (shared.say)(Upcall::SpawnedAbort { number, code }));
        }
        told(process, |rank| Upcall::Abort { rank, code }, done, data)
    }
}

pub(super) extern "C" fn fence(
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
pub(super) extern "C" fn met(
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
pub(super) unsafe fn meet(
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
    let own = |name: &[u8]| name == shared.name.as_bytes();
    if list.iter().any(|(name, _)| !own(name)) {
        // (Only applications of one host spawn: all are here.)
        let spawned = shared.spawned();
        let known =
            |name: &[u8]| own(name) || spawned.contains_key(&*String::from_utf8_lossy(name));
        if !list.iter().all(|(name, _)| known(name)) {
            return NOT_SUPPORTED;
        }
        drop(spawned);
        let call = match call {
            Call::Modex(call) => Call::Here(call, data),
            call => call,
        };
        shared.answer_here(call, theirs);
        return SUCCESS;
    }
    let all = list.is_empty() || list.iter().any(|(_, rank)| *rank == ALL_RANKS);
    let ranks = (!all).then(|| list.into_iter().map(|(_, rank)| rank).collect());
    let number = shared.keep(call, theirs);
    (shared.say)(Upcall::Fence { number, ranks, data });
    SUCCESS
}

/// Directives begin so; no key that is published does.
pub(super) const DIRECTIVE: &[u8] = b"pmix.";
/// For how many keys of a lookup the caller waits.
pub(super) const WAIT: &[u8] = b"pmix.wait";
/// For so many seconds at most.
pub(super) const TIMEOUT: &[u8] = b"pmix.timeout";
/// How long something that is published stays, and the word for: until it is read.
pub(super) const PERSISTENCE: &[u8] = b"pmix.persist";
pub(super) const FIRST_READ: u8 = 1;
/// Keys of one question.
pub(super) const KEYS_MAX: usize = 1024;

/// A list that the library gives, with the key of each.
///
/// # Safety
/// There are as many, or the pointer is null.
pub(super) unsafe fn keyed<'a>(infos: *const Info, count: usize) -> Vec<(Vec<u8>, &'a Value)> {
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
pub(super) unsafe fn keys_of(keys: *const *const c_char) -> Option<Vec<Vec<u8>>> {
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
pub(super) fn ask(about: Vec<(Vec<u8>, DataUpcall)>, call: KeysCall, theirs: *mut c_void) -> c_int {
    let Some(shared) = SHARED.get() else { return ERROR };
    let keys = Keys { call, left: about.len(), status: SUCCESS, found: Vec::new() };
    let number = shared.keep(Call::Keys(keys), theirs);
    (shared.say)(Upcall::Data { number, about });
    SUCCESS
}

pub(super) extern "C" fn publish(
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

pub(super) extern "C" fn look_up(
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
    // SAFETY: as above; all bytes of a value may be looked at.
    let number = |value: &Value| unsafe { value.datum.number };
    let timeout = infos.iter().find(|(key, _)| key == TIMEOUT).map(|(_, value)| number(value));
    // (It has a sign: less than none is none.)
    let seconds = timeout.filter(|seconds| *seconds <= i32::MAX as u32).unwrap_or_default();
    let about = keys.into_iter().map(|key| (key, DataUpcall::LookUp { wait, seconds }));
    ask(about.collect(), KeysCall::LookedUp(call), theirs)
}

pub(super) extern "C" fn unpublish(
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

/// Bytes of all that is to be spawned at once, and programs.
const SPAWN_MAX: usize = 1 << 20;
const PROGRAMS_MAX: usize = 256;

/// A list of texts that ends in null, of which `left` bytes may still be taken. `None`: it is longer.
///
/// # Safety
/// It is one, or null.
unsafe fn texts(list: *const *const c_char, left: &mut usize) -> Option<Vec<Vec<u8>>> {
    let mut found = Vec::new();
    // SAFETY: the caller's promise.
    unsafe {
        let mut at = list;
        while !at.is_null() && !(*at).is_null() {
            found.push(text(*at, left)?);
            at = at.add(1);
        }
    }
    Some(found)
}

/// One text, empty if there is none.
///
/// # Safety
/// It is one, or null.
unsafe fn text(at: *const c_char, left: &mut usize) -> Option<Vec<u8>> {
    if at.is_null() {
        return Some(Vec::new());
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { CStr::from_ptr(at) }.to_bytes();
    // (A text takes some memory however short it is.)
    *left = left.checked_sub(bytes.len() + 64)?;
    Some(bytes.to_vec())
}

/// A program that is to be spawned. `None`: it is too long, or none.
///
/// # Safety
/// Its pointers are to texts and lists of texts, or null.
unsafe fn program(app: &App, left: &mut usize) -> Option<super::App> {
    // SAFETY: the caller's promise.
    let (command, all, environment, folder) = unsafe {
        (
            text(app.command, left)?,
            texts(app.arguments, left)?,
            texts(app.environment, left)?,
            text(app.folder, left)?,
        )
    };
    let pes = u32::try_from(app.processes).ok().filter(|pes| *pes > 0)?;
    // (The first is the name again.)
    let arguments = all.into_iter().skip(1).collect();
    (!command.is_empty()).then_some(super::App { pes, command, arguments, environment, folder })
}

/// MPI_Comm_spawn.
pub(super) extern "C" fn spawn(
    process: *const Proc,
    _info: *const Info,
    _infos: usize,
    programs: *const App,
    count: usize,
    call: Option<SpawnedCall>,
    theirs: *mut c_void,
) -> c_int {
    // SAFETY: the library's own process.
    let (Some(shared), Some((name, rank))) = (SHARED.get(), unsafe { named(process) }) else {
        return ERROR;
    };
    if name != shared.name.as_bytes() || programs.is_null() || count > PROGRAMS_MAX {
        return NOT_SUPPORTED;
    }
    let mut left = SPAWN_MAX;
    // SAFETY: the library's own list, of so many.
    let all = unsafe {
        let apps = std::slice::from_raw_parts(programs, count);
        apps.iter().map(|app| program(app, &mut left)).collect::<Option<Vec<_>>>()
    };
    let Some(programs) = all.filter(|all| !all.is_empty()) else { return NOT_SUPPORTED };
    let number = shared.keep(Call::Spawn(call, Box::new([0; 256])), theirs);
    (shared.say)(Upcall::Spawn { number, rank, programs });
    SUCCESS
}

pub(super) extern "C" fn modex(
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

pub(super) extern "C" fn found(
    status: c_int,
    data: *mut c_char,
    length: usize,
    number: *mut c_void,
) {
    let Some(shared) = SHARED.get() else { return };
    let bytes = match data.is_null() {
        true => Vec::new(),
        // SAFETY: the library's data, which lives as long as this call.
        false => unsafe { std::slice::from_raw_parts(data.cast::<u8>(), length) }.to_vec(),
    };
    (shared.say)(Upcall::Found { number: number as usize as u64, status, data: bytes });
}

pub(super) extern "C" fn done(status: c_int, _data: *mut c_void) {
    let Some(shared) = SHARED.get() else { return };
    *shared.done.lock().unwrap_or_else(|broken| broken.into_inner()) = Some(status);
    shared.is_done.notify_one();
}
