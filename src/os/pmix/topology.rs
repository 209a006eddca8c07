//! The processors, caches and devices of this host, as hwloc describes them.
//!
//! # Problem
//! Each PE of Open MPI reads them from hundreds of files of /sys when it begins: 20 ms of a small host, and more of one with
//! more processors and more PEs. The PMIx library does the same for itself, and needs nothing of it here.
//!
//! # Approach
//! Where there are several PEs it is done once, before the library's server begins: PEs find the description among what
//! the server tells them of the application. Then the library is given a host that it needs not look at.

use super::library::symbol;
use std::ffi::{CStr, CString, c_char, c_int, c_ulong, c_void};
use std::ptr::null_mut;

/// What hwloc is to name of devices: those that matter to a program (`HWLOC_TYPE_FILTER_KEEP_IMPORTANT`).
const IMPORTANT: c_int = 3;
/// A description that hwloc 1 reads as well (`HWLOC_TOPOLOGY_EXPORT_XML_FLAG_V1`).
const FOR_ALL: c_ulong = 1;

/// A topology of hwloc's.
type Topology = *mut c_void;

/// The description in XML. `None`: there is no hwloc, or it finds nothing.
///
/// (To be called when the PMIx library is loaded, which is linked with hwloc.)
pub(super) fn described() -> Option<CString> {
    // SAFETY (whole block): functions of these types in the headers of all releases of hwloc 2; a topology is used
    // between its making and its end, and the text is copied before hwloc frees it.
    unsafe {
        type Make = unsafe extern "C" fn(*mut Topology) -> c_int;
        type Export =
            unsafe extern "C" fn(Topology, *mut *mut c_char, *mut c_int, c_ulong) -> c_int;
        let all = libc::RTLD_DEFAULT;
        let make: Make = symbol(all, c"hwloc_topology_init")?;
        let filter: unsafe extern "C" fn(Topology, c_int) -> c_int =
            symbol(all, c"hwloc_topology_set_io_types_filter")?;
        let load: unsafe extern "C" fn(Topology) -> c_int = symbol(all, c"hwloc_topology_load")?;
        let export: Export = symbol(all, c"hwloc_topology_export_xmlbuffer")?;
        let free: unsafe extern "C" fn(Topology, *mut c_char) =
            symbol(all, c"hwloc_free_xmlbuffer")?;
        let end: unsafe extern "C" fn(Topology) = symbol(all, c"hwloc_topology_destroy")?;
        let mut topology = null_mut();
        if make(&mut topology) != 0 {
            return None;
        }
        let (mut text, mut length) = (null_mut(), 0);
        let done = filter(topology, IMPORTANT) == 0
            && load(topology) == 0
            && export(topology, &mut text, &mut length, FOR_ALL) == 0
            && !text.is_null();
        let described = done.then(|| CStr::from_ptr(text).to_owned());
        if done {
            free(topology, text);
        }
        end(topology);
        described
    }
}

/// From here on hwloc finds a plain host, without a look at this one.
///
/// # Safety
/// No other thread is there.
// (The library reads it in this very process: there is no child to give it to.)
#[allow(clippy::disallowed_methods)]
pub(super) unsafe fn hide() {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let plain = format!("pack:1 core:{processors} pu:1");
    // SAFETY: the caller's promise.
    unsafe {
        std::env::set_var("HWLOC_SYNTHETIC", plain);
        std::env::set_var("HWLOC_COMPONENTS", "synthetic,stop");
    }
}
