//! Answers to what the library has asked for its PEs: by the number of the question, from any thread. (But for that to a
//! modex, the library gets them in its own.)

use super::Upcall;
use super::header::*;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::{Condvar, Mutex, OnceLock};

/// A call of the library that waits for its answer.
pub(super) struct Waiting {
    pub(super) call: Call,
    pub(super) data: *mut c_void,
}

/// By which the library is answered.
pub(super) enum Call {
    /// With bytes.
    Modex(Modex),
    /// That PEs have met.
    Met(Option<Done>),
    /// About keys.
    Keys(Keys),
    /// With the name of what was spawned.
    Spawn(Option<SpawnedCall>, Box<[c_char; 256]>),
}

/// A question about keys, of which some are answered.
pub(super) struct Keys {
    pub(super) call: KeysCall,
    /// How many are not.
    pub(super) left: usize,
    /// The first bad answer.
    pub(super) status: i32,
    pub(super) found: Vec<(Vec<u8>, Vec<u8>)>,
}

pub(super) enum KeysCall {
    Done(Option<Done>),
    LookedUp(LookedUp),
}

// SAFETY: nothing is done with the pointer here but to give it back to the library, in a thread that may.
unsafe impl Send for Waiting {}

/// A program that was spawned.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spawned {
    /// By which it is known ([`super::Server::add`]).
    pub(super) number: u64,
    /// The PE of the application on whose processors it runs.
    pub(super) parent: u32,
}

/// The state that the library's threads find: there is one server in a process.
pub(super) struct Shared {
    pub(super) say: Box<dyn Fn(Upcall) + Send + Sync>,
    pub(super) name: String,
    /// What was spawned, by its namespace.
    spawned: Mutex<BTreeMap<String, Spawned>>,
    waiting: Mutex<(u64, BTreeMap<u64, Waiting>)>,
    /// Calls with their results, which the library's own thread is to answer.
    ended: Mutex<BTreeMap<u64, (Waiting, i32)>>,
    forget: Forget,
    /// What the last operation has come to, once it has.
    pub(super) done: Mutex<Option<i32>>,
    pub(super) is_done: Condvar,
}

pub(super) static SHARED: OnceLock<Shared> = OnceLock::new();

impl Shared {
    /// For the application of this name.
    pub(super) fn new(
        say: Box<dyn Fn(Upcall) + Send + Sync>,
        name: &str,
        forget: Forget,
    ) -> Shared {
        Shared {
            say,
            name: name.to_owned(),
            spawned: Mutex::new(BTreeMap::new()),
            waiting: Mutex::new((0, BTreeMap::new())),
            ended: Mutex::new(BTreeMap::new()),
            forget,
            done: Mutex::new(None),
            is_done: Condvar::new(),
        }
    }

    pub(super) fn spawned(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Spawned>> {
        self.spawned.lock().unwrap_or_else(|broken| broken.into_inner())
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, (u64, BTreeMap<u64, Waiting>)> {
        self.waiting.lock().unwrap_or_else(|broken| broken.into_inner())
    }

    /// Keeps a call that waits, under a new number.
    pub(super) fn keep(&self, call: Call, data: *mut c_void) -> u64 {
        let mut waiting = self.waiting();
        waiting.0 += 1;
        let number = waiting.0;
        waiting.1.insert(number, Waiting { call, data });
        number
    }

    pub(super) fn answer(&self, number: u64, status: i32, data: &[u8]) {
        let waiting = self.waiting().1.remove(&number);
        match waiting {
            Some(Waiting { call: Call::Modex(call), data: theirs }) => {
                give(call, theirs, status, data);
            }
            Some(met) => self.end(number, met, status),
            None => {}
        }
    }

    pub(super) fn answer_spawn(&self, number: u64, status: i32, name: &str) {
        let mut waiting = self.waiting();
        let Some(Waiting { call: Call::Spawn(_, given), .. }) = waiting.1.get_mut(&number) else {
            return;
        };
        **given = name_of(name);
        let ended = waiting.1.remove(&number);
        drop(waiting);
        if let Some(ended) = ended {
            self.end(number, ended, status);
        }
    }

    pub(super) fn answer_key(&self, number: u64, key: &[u8], status: i32, data: &[u8]) {
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
            // SAFETY: a name that lives as long as this call, which copies it.
            Call::Spawn(Some(call), mut name) => unsafe { call(status, name.as_mut_ptr(), theirs) },
            Call::Spawn(None, _) => {}
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
        let value = Value { kind, datum: value };
        Some(Published { publisher, key: key_of(key), value })
    }
}

/// Answers with these bytes.
fn give(call: Modex, theirs: *mut c_void, status: i32, data: &[u8]) {
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

/// Types of values that hold no pointer.
pub(super) fn is_scalar(kind: u16) -> bool {
    (BOOL..=STATUS).contains(&kind) && kind != STRING || [PERSIST, PROC_RANK].contains(&kind)
}

/// A value and who publishes it, as [`Shared::published`] takes it. `None`: one of a type that is not known here.
///
/// # Safety
/// The value is as its type says.
pub(super) unsafe fn packed(rank: u32, value: &Value) -> Option<Vec<u8>> {
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
pub(super) extern "C" fn tell(_status: c_int, number: *mut c_void) {
    if let Some(shared) = SHARED.get() {
        shared.tell(number as usize as u64);
    }
}

pub(super) extern "C" fn free(what: *mut c_void) {
    // SAFETY: it is what `answer` has from malloc, or null.
    unsafe { libc::free(what) }
}
