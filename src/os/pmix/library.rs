//! The library's functions, which are looked up by name.

use super::LIBRARY;
use super::header::{Done, Forget, FoundIt, Info, Module, Proc};
use std::ffi::{CStr, CString, c_char, c_int, c_void};

/// Its functions.
pub(super) struct Functions {
    pub(super) init: unsafe extern "C" fn(*mut Module, *mut Info, usize) -> c_int,
    pub(super) register: unsafe extern "C" fn(
        *const c_char,
        c_int,
        *mut Info,
        usize,
        Option<Done>,
        *mut c_void,
    ) -> c_int,
    pub(super) local:
        unsafe extern "C" fn(*const c_char, *mut Info, usize, Option<Done>, *mut c_void) -> c_int,
    pub(super) client: unsafe extern "C" fn(
        *const Proc,
        libc::uid_t,
        libc::gid_t,
        *mut c_void,
        Option<Done>,
        *mut c_void,
    ) -> c_int,
    pub(super) environment: unsafe extern "C" fn(*const Proc, *mut *mut *mut c_char) -> c_int,
    pub(super) regex: unsafe extern "C" fn(*const c_char, *mut *mut c_char) -> c_int,
    pub(super) ppn: unsafe extern "C" fn(*const c_char, *mut *mut c_char) -> c_int,
    pub(super) look_up: unsafe extern "C" fn(*const Proc, FoundIt, *mut c_void) -> c_int,
    pub(super) forget: Forget,
    pub(super) forget_all: unsafe extern "C" fn(*const c_char, Option<Done>, *mut c_void),
    pub(super) text: unsafe extern "C" fn(c_int) -> *const c_char,
    pub(super) version: unsafe extern "C" fn() -> *const c_char,
}

/// Loads the library and finds its functions.
pub(super) fn load() -> Result<Functions, String> {
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
            forget_all: symbol(library, c"PMIx_server_deregister_nspace").ok_or_else(error)?,
            text: symbol(library, c"PMIx_Error_string").ok_or_else(error)?,
            version: symbol(library, c"PMIx_Get_version").ok_or_else(error)?,
        })
    }
}

/// A function of an open library.
///
/// # Safety
/// `F` is the type of a function, and it has this one.
pub(super) unsafe fn symbol<F: Copy>(library: *mut c_void, name: &CStr) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) }
    // SAFETY: an open library and a text.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    // SAFETY: the caller's promise: a pointer to a function, and not null.
    (!found.is_null()).then(|| unsafe { std::mem::transmute_copy(&found) })
}
