//! What the library's headers say: its numbers, and its structures, which are laid out here as they are there.
//!
//! This was tried with releases 4.2 and 5.0; the table of upcalls has room for those of later releases, which find zeros there.

use std::ffi::{CString, c_char, c_int, c_void};

/// PMIX_SUCCESS.
pub const SUCCESS: i32 = 0;
/// PMIX_ERROR.
pub const ERROR: i32 = -1;
/// PMIX_ERR_NOT_FOUND.
pub const NOT_FOUND: i32 = -46;
/// PMIX_ERR_NOT_SUPPORTED.
pub(super) const NOT_SUPPORTED: i32 = -47;
/// PMIX_OPERATION_SUCCEEDED: done at once, no callback follows.
pub(super) const DONE_AT_ONCE: i32 = -157;
/// PMIX_ERR_PARTIAL_SUCCESS: some of the keys that were looked up.
pub(super) const SOME: i32 = -52;
/// PMIX_RANK_WILDCARD: all ranks of a namespace.
pub(super) const ALL_RANKS: u32 = u32::MAX - 1;

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Proc {
    pub(super) name: [c_char; 256],
    pub(super) rank: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct DataArray {
    pub(super) kind: u16,
    pub(super) size: usize,
    pub(super) array: *mut c_void,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct ByteObject {
    pub(super) bytes: *mut c_char,
    pub(super) size: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) union Datum {
    pub(super) string: *mut c_char,
    pub(super) small: u16,
    pub(super) number: u32,
    pub(super) array: *mut DataArray,
    pub(super) process: *mut Proc,
    pub(super) object: ByteObject,
    pub(super) room: [u64; 3],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Value {
    pub(super) kind: u16,
    pub(super) datum: Datum,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Info {
    pub(super) key: [c_char; 512],
    pub(super) flags: u32,
    pub(super) value: Value,
}

/// A program that is to be spawned.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct App {
    pub(super) command: *const c_char,
    /// Ends in null, as the environment does.
    pub(super) arguments: *const *const c_char,
    pub(super) environment: *const *const c_char,
    pub(super) folder: *const c_char,
    pub(super) processes: c_int,
    pub(super) infos: *const Info,
    pub(super) count: usize,
}

const _: () = assert!(size_of::<App>() == 56);

/// A key that was looked up, who has published it, and its value.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Published {
    pub(super) publisher: Proc,
    pub(super) key: [c_char; 512],
    pub(super) value: Value,
}

const _: () = assert!(size_of::<Published>() == 808);
const _: () = assert!(std::mem::offset_of!(Published, value) == 776);
const _: () = assert!(size_of::<Proc>() == 260 && size_of::<DataArray>() == 24);
const _: () = assert!(size_of::<Value>() == 32 && size_of::<Info>() == 552);
const _: () = assert!(std::mem::offset_of!(Info, value) == 520);

pub(super) const STRING: u16 = 3;
/// Of scalar types, whose values are all in their datum: the first, and the last of those without gaps but STRING.
pub(super) const BOOL: u16 = 1;
pub(super) const STATUS: u16 = 20;
pub(super) const BYTE_OBJECT: u16 = 27;
pub(super) const PERSIST: u16 = 30;
/// A pointer to a process.
pub(super) const PROC: u16 = 22;
pub(super) const UINT16: u16 = 13;
pub(super) const UINT32: u16 = 14;
pub(super) const INFO: u16 = 24;
pub(super) const DATA_ARRAY: u16 = 39;
pub(super) const PROC_RANK: u16 = 40;
pub(super) const REGEX: u16 = 49;

pub(super) type Done = extern "C" fn(c_int, *mut c_void);
pub(super) type Release = extern "C" fn(*mut c_void);
pub(super) type Modex =
    unsafe extern "C" fn(c_int, *const c_char, usize, *mut c_void, Release, *mut c_void);
pub(super) type FoundIt = extern "C" fn(c_int, *mut c_char, usize, *mut c_void);

pub(super) type Forget = unsafe extern "C" fn(*const Proc, Option<Done>, *mut c_void);
/// With the name of the namespace, of 256 bytes.
pub(super) type SpawnedCall = unsafe extern "C" fn(c_int, *mut c_char, *mut c_void);
pub(super) type LookedUp = unsafe extern "C" fn(c_int, *mut Published, usize, *mut c_void);
pub(super) type Operation =
    extern "C" fn(*const Proc, usize, *const Info, usize, Option<Done>, *mut c_void) -> c_int;

/// Upcalls in the order of the header; 64 in all, so that later ones are zeros.
#[repr(C)]
pub(super) struct Module {
    pub(super) connected:
        Option<extern "C" fn(*const Proc, *mut c_void, Option<Done>, *mut c_void) -> c_int>,
    pub(super) finalized:
        Option<extern "C" fn(*const Proc, *mut c_void, Option<Done>, *mut c_void) -> c_int>,
    pub(super) abort: Option<
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
    pub(super) fence: Option<
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
    pub(super) modex:
        Option<extern "C" fn(*const Proc, *const Info, usize, Modex, *mut c_void) -> c_int>,
    pub(super) publish:
        Option<extern "C" fn(*const Proc, *const Info, usize, Option<Done>, *mut c_void) -> c_int>,
    pub(super) look_up: Option<
        extern "C" fn(
            *const Proc,
            *const *const c_char,
            *const Info,
            usize,
            LookedUp,
            *mut c_void,
        ) -> c_int,
    >,
    pub(super) unpublish: Option<
        extern "C" fn(
            *const Proc,
            *const *const c_char,
            *const Info,
            usize,
            Option<Done>,
            *mut c_void,
        ) -> c_int,
    >,
    pub(super) spawn: Option<
        extern "C" fn(
            *const Proc,
            *const Info,
            usize,
            *const App,
            usize,
            Option<SpawnedCall>,
            *mut c_void,
        ) -> c_int,
    >,
    pub(super) connect: Option<Operation>,
    pub(super) disconnect: Option<Operation>,
    pub(super) others: [usize; 16],
    pub(super) connected2: Option<
        extern "C" fn(
            *const Proc,
            *mut c_void,
            *mut Info,
            usize,
            Option<Done>,
            *mut c_void,
        ) -> c_int,
    >,
    pub(super) later: [usize; 36],
}

const _: () = assert!(std::mem::offset_of!(Module, connected2) == 216);
const _: () = assert!(size_of::<Module>() == 64 * 8);

/// Strings that the library is given live as long as the process, as does the list of its start: some releases keep what
/// they are given.
pub(super) fn kept(text: &str) -> *mut c_char {
    CString::new(text).unwrap_or_default().into_raw()
}

pub(super) fn name_of(name: &str) -> [c_char; 256] {
    let mut bytes = [0; 256];
    for (to, from) in bytes.iter_mut().zip(name.bytes()).take(255) {
        *to = from as c_char;
    }
    bytes
}

/// (511 bytes at most.)
pub(super) fn key_of(key: &[u8]) -> [c_char; 512] {
    let mut bytes = [0; 512];
    for (to, from) in bytes.iter_mut().zip(key).take(511) {
        *to = *from as c_char;
    }
    bytes
}

pub(super) fn info(key: &str, kind: u16, datum: Datum) -> Info {
    Info { key: key_of(key.as_bytes()), flags: 0, value: Value { kind, datum } }
}

/// A datum whose other bytes are zeros.
pub(super) fn datum(set: impl FnOnce(&mut Datum)) -> Datum {
    let mut datum = Datum { room: [0; 3] };
    set(&mut datum);
    datum
}

pub(super) fn string(key: &str, text: &str) -> Info {
    info(key, STRING, datum(|datum| datum.string = kept(text)))
}

pub(super) fn number(key: &str, kind: u16, value: u32) -> Info {
    info(key, kind, datum(|datum| datum.number = value))
}

pub(super) fn small(key: &str, value: u16) -> Info {
    info(key, UINT16, datum(|datum| datum.small = value))
}

/// A list that the library may keep.
pub(super) fn list(infos: Vec<Info>) -> (*mut Info, usize) {
    let infos = infos.leak();
    (infos.as_mut_ptr(), infos.len())
}
