//! What the library calls, in threads of its own: each says what it is about at once ([`Upcall`]), and who waits for an
//! answer is kept.

use super::answers::{Call, Keys, KeysCall, SHARED, Shared, Spawned, packed};
use super::header::*;
use super::{DataUpcall, SpawnedPe, Upcall};
use std::collections::{BTreeMap, BTreeSet};
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
            if let Some(Spawned { number, .. }) = spawned {
                (shared.say)(Upcall::SpawnedAbort { number, code });
            }
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

/// Bytes in which PEs of what was spawned are named that take part in a fence.
const PARTICIPANTS_MAX: usize = 128 * 1024;

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
    let spawned = shared.spawned();
    let taking_part = Participants::of(list, &shared.name, |name| {
        spawned.get(&*String::from_utf8_lossy(name)).map(|one| one.parent)
    });
    drop(spawned);
    let Some(Participants { ranks, spawned }) = taking_part else { return NOT_SUPPORTED };
    let number = shared.keep(call, theirs);
    (shared.say)(Upcall::Fence { number, ranks, spawned, data });
    SUCCESS
}

/// The PEs that take part in a fence.
#[derive(Debug, Default, PartialEq, Eq)]
struct Participants {
    /// PEs of the application, and those that have spawned others that take part; `None`: all.
    ranks: Option<Vec<u32>>,
    /// These others.
    spawned: Vec<Vec<u8>>,
}

impl Participants {
    /// Those of this list, of the application of this name and of what was spawned, whose parents are given. `None`: others
    /// are among them, or they are too many.
    fn of(
        list: Vec<(Vec<u8>, u32)>,
        own: &str,
        parent: impl Fn(&[u8]) -> Option<u32>,
    ) -> Option<Participants> {
        let (mut ranks, mut all) = (Vec::new(), list.is_empty());
        let mut spawned: BTreeMap<Vec<u8>, BTreeSet<u32>> = BTreeMap::new();
        for (name, rank) in list {
            if name == own.as_bytes() {
                all |= rank == ALL_RANKS;
                ranks.push(rank);
            } else {
                ranks.push(parent(&name)?);
                spawned.entry(name).or_default().insert(rank);
            }
        }
        let written = |(name, ranks): (Vec<u8>, BTreeSet<u32>)| {
            let ranks: Vec<String> = ranks.iter().map(u32::to_string).collect();
            [&name[..], b":", ranks.join(",").as_bytes()].concat()
        };
        let spawned: Vec<Vec<u8>> = spawned.into_iter().map(written).collect();
        let size: usize = spawned.iter().map(Vec::len).sum();
        let ranks = (!all).then_some(ranks);
        (size <= PARTICIPANTS_MAX).then_some(Participants { ranks, spawned })
    }
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
/// In which directory a program is to run. (Open MPI says it so, and the library gives its own directory beside.)
const FOLDER: &[u8] = b"pmix.wdir";
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

/// A program that is to be spawned. `None`: it is too long, or of no process.
///
/// # Safety
/// Its pointers are to texts and lists of texts, or null.
unsafe fn program(app: &App, left: &mut usize) -> Option<super::App> {
    // SAFETY: the caller's promise, which holds for the list of what is beside, too.
    let (command, all, environment, folder) = unsafe {
        let beside = keyed(app.infos, app.count);
        let wished = beside.into_iter().find(|(key, value)| key == FOLDER && value.kind == STRING);
        let folder = wished.map_or(app.folder, |(_, value)| value.datum.string);
        (
            text(app.command, left)?,
            texts(app.arguments, left)?,
            texts(app.environment, left)?,
            text(folder, left)?,
        )
    };
    let pes = u32::try_from(app.processes).ok().filter(|pes| *pes > 0)?;
    // (The first is the name again.)
    let arguments = all.into_iter().skip(1).collect();
    Some(super::App { pes, command, arguments, environment, folder })
}

/// A PE of the application; of one that was spawned that on whose processors it runs, and itself. `None`: it is neither.
fn whose(shared: &Shared, name: Vec<u8>, rank: u32) -> Option<(u32, Option<SpawnedPe>)> {
    if name == shared.name.as_bytes() {
        return Some((rank, None));
    }
    let space = String::from_utf8(name).ok()?;
    let parent = shared.spawned().get(&space)?.parent;
    Some((parent, Some(SpawnedPe { space, rank })))
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
    let Some((rank, spawner)) = whose(shared, name, rank) else { return NOT_SUPPORTED };
    let mut left = SPAWN_MAX;
    let programs = match programs.is_null() || count > PROGRAMS_MAX {
        true => None,
        // SAFETY: the library's own list, of so many.
        false => unsafe {
            let apps = std::slice::from_raw_parts(programs, count);
            apps.iter().map(|app| program(app, &mut left)).collect::<Option<Vec<_>>>()
        },
    };
    let programs = programs.unwrap_or_default();
    let number = shared.keep(Call::Spawn(call, Box::new([0; 256])), theirs);
    (shared.say)(Upcall::Spawn { number, rank, spawner, programs });
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
    let Some((rank, spawned)) = whose(shared, name, rank) else { return NOT_FOUND };
    let number = shared.keep(Call::Modex(call), theirs);
    (shared.say)(Upcall::Modex { number, rank, spawned });
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn for_those_who_were_spawned_their_parents_are_in_a_fence() {
        let parent = |name: &[u8]| match name {
            b"a.1" => Some(1),
            b"a.2" => Some(3),
            _ => None,
        };
        let of = |list: &[(&str, u32)]| {
            let list = list.iter().map(|(name, rank)| (name.as_bytes().to_vec(), *rank)).collect();
            Participants::of(list, "a", parent)
        };
        let is = |ranks: Option<&[u32]>, spawned: &[&str]| {
            let ranks = ranks.map(<[u32]>::to_vec);
            let spawned = spawned.iter().map(|pes| pes.as_bytes().to_vec()).collect();
            Some(Participants { ranks, spawned })
        };
        assert_eq!(of(&[]), is(None, &[]));
        assert_eq!(of(&[("a", 2), ("a", 0)]), is(Some(&[2, 0]), &[]));
        assert_eq!(of(&[("a.1", 1), ("a.1", 0)]), is(Some(&[1, 1]), &["a.1:0,1"]));
        let all = [("a.2", ALL_RANKS), ("a", ALL_RANKS), ("a.1", 0)];
        assert_eq!(of(&all), is(None, &["a.1:0", "a.2:4294967294"]));
        assert_eq!(of(&[("a", 0), ("b", 0)]), None);
        let many: Vec<(&str, u32)> = (0..100_000).map(|rank| ("a.1", rank)).collect();
        assert_eq!(of(&many), None);
    }
}
