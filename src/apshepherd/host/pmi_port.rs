//! PMI-1 by a port of this host: for PEs whose wrapper closes descriptors that it was not told of.
//!
//! A PE connects to PMI_PORT and says by its PMI_ID which it is; from then on its connection is as one that it was born
//! with.
//!
//! ```text
//! PE                               shepherd
//! cmd=initack pmiid=1804289383
//!                                  cmd=initack rc=0
//!                                  cmd=set size=4
//!                                  cmd=set rank=2
//!                                  cmd=set debug=0
//! cmd=init pmi_version=1 ...
//! ```
//!
//! Any process of this host may connect. The numbers are drawn at random, which keeps others off cheaply; whose socket it
//! is says the kernel. A bounded number may be connected without having said who they are, of which the oldest makes room
//! for the next: a stranger who connects all the time can keep PEs out, and does no more.

use super::pes::{Got, Pe, nonblocking, read_some, write_some};
use super::{Shell, TURNS, Token, monotonic_ns, watch};
use crate::apshepherd::decide::Event;
use crate::node::connection_owner::owner_of_connection;
use crate::os::fork::high;
use crate::variables::units::nanos;
use bytes::Bytes;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::epoll::EpollFlags;
use nix::unistd::Uid;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ffi::CString;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// Connections whose PE is not known yet, for each PE, and at least.
const CALLERS_PER_PE: usize = 4;
const CALLERS_MIN: usize = 256;
/// How long the port pauses after a connection could not be accepted.
const PAUSE: Duration = Duration::from_millis(100);
/// Pauses with no more than this between them are one lack; after so long without a PE that was taken the user is told.
const GOES_ON: Duration = Duration::from_secs(1);
const TOLD_AFTER: Duration = Duration::from_secs(5);
/// Bytes of what one says of itself.
const INTRODUCTION_MAX: usize = 128;
/// Why none is there, or the one that was has gone.
const PASSES: [io::ErrorKind; 3] =
    [io::ErrorKind::WouldBlock, io::ErrorKind::ConnectionAborted, io::ErrorKind::Interrupted];
/// (PMI_ID is read by atoi.)
const ID_MASK: u32 = i32::MAX as u32;

/// A connection whose PE is not known yet.
#[derive(Debug)]
struct Caller {
    fd: OwnedFd,
    from: SocketAddr,
    said: Vec<u8>,
}

/// The port, and who comes.
#[derive(Debug)]
pub struct PmiPort {
    listener: TcpListener,
    at: SocketAddr,
    /// The number of each PE, and PEs by their numbers.
    numbers: Vec<u32>,
    ids: BTreeMap<u32, usize>,
    callers: Vec<Option<Caller>>,
    next: usize,
    /// The port pauses until this time, because there was no descriptor or no memory for a connection.
    paused_until_ns: Option<u64>,
    /// That is in the log.
    told: bool,
    /// It has paused again and again since then, the last time then; and whether the user was told.
    shut_ns: Option<(u64, u64)>,
    user_told: bool,
    /// A descriptor that is free for what the kernel is asked during a pause.
    reserve: Option<OwnedFd>,
}

impl PmiPort {
    /// For so many PEs.
    ///
    /// # Errors
    /// No port can be had.
    pub fn open(pes: usize) -> io::Result<PmiPort> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from(high(listener.into())?);
        let (mut numbers, mut ids) = (Vec::new(), BTreeMap::new());
        while numbers.len() < pes {
            let mut random = [0u8; 4];
            rustix::rand::getrandom(&mut random[..], rustix::rand::GetRandomFlags::empty())?;
            let number = u32::from_ne_bytes(random) & ID_MASK;
            if let Entry::Vacant(free) = ids.entry(number) {
                free.insert(numbers.len());
                numbers.push(number);
            }
        }
        let at = listener.local_addr()?;
        let count = (CALLERS_PER_PE * pes).max(CALLERS_MIN);
        let callers = (0..count).map(|_| None).collect();
        Ok(PmiPort {
            listener,
            at,
            numbers,
            ids,
            callers,
            next: 0,
            paused_until_ns: None,
            told: false,
            shut_ns: None,
            user_told: false,
            reserve: reserve(),
        })
    }

    /// Whether a connection waits to be accepted.
    fn is_called(&self) -> bool {
        let mut ready = [PollFd::new(self.listener.as_fd(), PollFlags::POLLIN)];
        !matches!(poll(&mut ready, PollTimeout::ZERO), Ok(0))
    }

    /// It pauses, from now on. Whether it has done so again and again for too long.
    fn pauses(&mut self, now_ns: u64) -> bool {
        self.paused_until_ns = Some(now_ns.saturating_add(nanos(PAUSE)));
        let goes_on = |(_, last): &(u64, u64)| now_ns.saturating_sub(*last) <= nanos(GOES_ON);
        let (since_ns, _) = self.shut_ns.filter(goes_on).unwrap_or((now_ns, now_ns));
        self.shut_ns = Some((since_ns, now_ns));
        now_ns.saturating_sub(since_ns) >= nanos(TOLD_AFTER)
    }

    /// When it has to be looked at.
    pub fn due_ns(&self) -> Option<u64> {
        self.paused_until_ns
    }

    /// By what the PE of this index finds it.
    pub fn environment(&self, index: usize) -> Vec<CString> {
        let id = self.numbers.get(index).copied().unwrap_or_default();
        let all = [format!("PMI_PORT={}", self.at), format!("PMI_ID={id}")];
        all.into_iter().filter_map(|item| CString::new(item).ok()).collect()
    }

    /// Which PE says this of itself.
    fn introduced(&self, line: &[u8]) -> Option<usize> {
        let line = std::str::from_utf8(line).ok()?;
        let mut words = line.split_ascii_whitespace();
        let id =
            (words.next()? == "cmd=initack").then(|| words.next()?.strip_prefix("pmiid="))??;
        self.ids.get(&id.parse().ok()?).copied()
    }
}

/// A descriptor that can be given back.
fn reserve() -> Option<OwnedFd> {
    std::fs::File::open("/dev/null").ok().map(OwnedFd::from)
}

impl Shell {
    /// Opens the port for a launch whose PEs are about to be made.
    pub(super) fn open_pmi_port(&mut self, pes: usize) -> io::Result<()> {
        let port = PmiPort::open(pes)?;
        watch(&self.epoll, port.listener.as_fd(), Token::PmiPort, EpollFlags::EPOLLIN)?;
        self.pmi_port = Some(port);
        Ok(())
    }

    pub(super) fn pmi_calls(&mut self) {
        for _ in 0..TURNS {
            let Some(port) = &mut self.pmi_port else { return };
            // (A connection needs two descriptors for a moment: one of accept's, and one behind those of PEs.)
            let spare = port.listener.try_clone().and_then(|spare| high(spare.into()));
            let (stream, from) = match spare.and_then(|_| port.listener.accept()) {
                Ok(came) => came,
                Err(e) if PASSES.contains(&e.kind()) || !port.is_called() => return,
                Err(e) => return self.pause_pmi_port(&e),
            };
            let fd = OwnedFd::from(stream);
            let Ok(fd) = nonblocking(&fd).and_then(|()| high(fd)) else { continue };
            let slot = port.next;
            port.next = (slot + 1) % port.callers.len();
            if let Some(before) = port.callers[slot].take() {
                let _ = self.epoll.delete(before.fd);
            }
            if watch(&self.epoll, fd.as_fd(), Token::PmiCaller(slot), EpollFlags::EPOLLIN).is_ok() {
                port.callers[slot] = Some(Caller { fd, from, said: Vec::new() });
                self.pmi_caller_ready(slot);
            }
        }
    }

    /// Takes no connections for a moment: without descriptors each try would fail at once.
    fn pause_pmi_port(&mut self, why: &io::Error) {
        // (Some may have said who they are in the meantime; strangers may have all others.)
        drop(self.pmi_port.as_mut().and_then(|port| port.reserve.take()));
        for slot in 0..self.pmi_port.as_ref().map_or(0, |port| port.callers.len()) {
            self.pmi_caller_ready(slot);
        }
        let Some(port) = &mut self.pmi_port else { return };
        let _ = self.epoll.delete(&port.listener);
        port.callers.iter_mut().for_each(|caller| drop(caller.take()));
        port.reserve = reserve();
        let tells = port.pauses(monotonic_ns()) && !std::mem::replace(&mut port.user_told, true);
        if !std::mem::replace(&mut port.told, true) {
            self.log(format_args!("the port of PMI takes no PE for a while: {why}"));
        }
        if tells {
            self.happens(Event::PortShut(why.to_string()));
        }
    }

    /// The pause is over.
    pub(super) fn look_after_pmi_port(&mut self) {
        let now_ns = monotonic_ns();
        let Some(port) = &mut self.pmi_port else { return };
        if port.paused_until_ns.take_if(|at| *at <= now_ns).is_none() {
            return;
        }
        if let Err(e) =
            watch(&self.epoll, port.listener.as_fd(), Token::PmiPort, EpollFlags::EPOLLIN)
        {
            self.pause_pmi_port(&e.into());
        }
    }

    /// One says who it is, or a part of that.
    pub(super) fn pmi_caller_ready(&mut self, slot: usize) {
        let Some(port) = &mut self.pmi_port else { return };
        let Some(mut caller) = port.callers.get_mut(slot).and_then(Option::take) else { return };
        let mut buffer = [0; INTRODUCTION_MAX];
        let got = read_some(caller.fd.as_fd(), &mut buffer);
        let Got::Some(count) = got else {
            match got {
                Got::Nothing => port.callers[slot] = Some(caller),
                _ => drop(self.epoll.delete(caller.fd)),
            }
            return;
        };
        caller.said.extend_from_slice(&buffer[..count]);
        let Some(end) = caller.said.iter().position(|byte| *byte == b'\n') else {
            match caller.said.len() {
                ..INTRODUCTION_MAX => port.callers[slot] = Some(caller),
                _ => drop(self.epoll.delete(caller.fd)),
            }
            return;
        };
        let at = port.at;
        let index = port.introduced(&caller.said[..end]);
        let _ = self.epoll.delete(&caller.fd);
        let free = |pe: &Pe| pe.pmi.is_none() && !pe.ended;
        let pe = index.and_then(|index| self.pes.all.get_mut(index)).filter(|pe| free(pe));
        let (Some(index), Some(pe)) = (index, pe) else { return };
        // (Last: the kernel is asked only about who knows a PE's number.)
        if owner_of_connection(caller.from, at) != Some(Uid::effective().as_raw()) {
            return;
        }
        let width = self.launch.as_ref().map_or(0, |launch| launch.width);
        let rank = pe.rank;
        let words = format!(
            "cmd=initack rc=0\ncmd=set size={width}\ncmd=set rank={rank}\ncmd=set debug=0\n"
        );
        // (Nothing was sent before: there is room.)
        let written = write_some(caller.fd.as_fd(), words.as_bytes());
        if written != Ok(words.len())
            || watch(&self.epoll, caller.fd.as_fd(), Token::Pmi(index), EpollFlags::EPOLLIN)
                .is_err()
        {
            return;
        }
        pe.pmi = Some(caller.fd);
        port.shut_ns = None;
        if caller.said.len() > end + 1 {
            let data = Bytes::copy_from_slice(&caller.said[end + 1..]);
            self.happens(Event::Pmi { rank, data });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_lack_that_goes_on_is_told() {
        let mut port = PmiPort::open(1).expect("a port");
        let at = |ms: u64| nanos(Duration::from_millis(ms));
        let told: Vec<bool> = (0..60).map(|tenth| port.pauses(at(100 * tenth))).collect();
        assert_eq!(told.iter().position(|told| *told), Some(50));
        // (An hour later.)
        assert!(!port.pauses(at(3_600_000)));
        assert!(!port.is_called());
        let _caller = std::net::TcpStream::connect(port.at).expect("connected");
        assert!(port.is_called());
    }

    #[test]
    fn a_pe_is_known_by_its_number() {
        let port = PmiPort::open(3).expect("a port");
        for index in 0..3 {
            let environment = port.environment(index);
            let text = |at: usize| environment[at].to_str().expect("text").to_owned();
            assert_eq!(text(0), format!("PMI_PORT=127.0.0.1:{}", port.at.port()));
            let id = text(1).strip_prefix("PMI_ID=").expect("a number").to_owned();
            assert!(id.parse::<i32>().expect("for atoi") >= 0);
            let line = format!("cmd=initack pmiid={id}");
            assert_eq!(port.introduced(line.as_bytes()), Some(index));
        }
        for line in ["", "cmd=initack", "cmd=initack pmiid=", "cmd=init pmiid=1", "\u{e4}"] {
            assert_eq!(port.introduced(line.as_bytes()), None, "{line}");
        }
    }
}
