//! How a field is written in a message, and judged when it is read.
//!
//! Each kind of field is a [`Codec`]: both directions of one conversion, with its bound. The tables of this folder
//! ([`message`](super::table)) name one for each field.

use super::{
    COUNT_MAX, DATA_MAX, Field, LIST_MAX, LONG_LIST_MAX, Malformed, NODES_MAX, all, given, ms,
    nanos,
};
use crate::apteam::posting::cut;
use crate::apteam::protocol::node::{NICE_MAX, SAID_MAX};
use crate::apteam::{Apid, Ticket};
use crate::machine::Nid;
use bytes::Bytes;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

/// Both directions of the conversion of one kind of field; `W` may be a tuple of several fields.
pub(super) trait Codec<P, W> {
    /// As the message has it.
    fn write(self, plain: P) -> W;
    /// As it was meant; an error where it can't be. Of several fields, `field` is the first.
    fn read(self, field: Field, wire: W) -> Result<P, Malformed>;
}

/// The value is the same on both sides, and every value is allowed.
pub(super) struct Same;

impl<T> Codec<T, T> for Same {
    fn write(self, plain: T) -> T {
        plain
    }
    fn read(self, _: Field, wire: T) -> Result<T, Malformed> {
        Ok(wire)
    }
}

/// A message that has its own table, where nothing can be absent: the variant of a `oneof`.
pub(super) struct Inner;

impl<P: TryFrom<W, Error = Malformed>, W: From<P>> Codec<P, W> for Inner {
    fn write(self, plain: P) -> W {
        plain.into()
    }
    fn read(self, _: Field, wire: W) -> Result<P, Malformed> {
        wire.try_into()
    }
}

/// [`Inner`] in a box.
pub(super) struct Boxed;

impl<P: TryFrom<W, Error = Malformed>, W: From<P>> Codec<Box<P>, W> for Boxed {
    fn write(self, plain: Box<P>) -> W {
        (*plain).into()
    }
    fn read(self, _: Field, wire: W) -> Result<Box<P>, Malformed> {
        wire.try_into().map(Box::new)
    }
}

/// A message that has to be there.
pub(super) struct Required;

impl<P: TryFrom<W, Error = Malformed>, W: From<P>> Codec<P, Option<W>> for Required {
    fn write(self, plain: P) -> Option<W> {
        Some(plain.into())
    }
    fn read(self, field: Field, wire: Option<W>) -> Result<P, Malformed> {
        field.need(wire)
    }
}

/// [`Required`] in a box.
pub(super) struct RequiredBox;

impl<P: TryFrom<W, Error = Malformed>, W: From<P>> Codec<Box<P>, Option<W>> for RequiredBox {
    fn write(self, plain: Box<P>) -> Option<W> {
        Some((*plain).into())
    }
    fn read(self, field: Field, wire: Option<W>) -> Result<Box<P>, Malformed> {
        field.need(wire).map(Box::new)
    }
}

/// A message that may be absent.
pub(super) struct Optional;

impl<P: TryFrom<W, Error = Malformed>, W: From<P>> Codec<Option<P>, Option<W>> for Optional {
    fn write(self, plain: Option<P>) -> Option<W> {
        plain.map(W::from)
    }
    fn read(self, field: Field, wire: Option<W>) -> Result<Option<P>, Malformed> {
        field.maybe(wire)
    }
}

/// A message that, where it is absent, is read as its default.
pub(super) struct OrDefault;

impl<P: TryFrom<W, Error = Malformed> + Default, W: From<P>> Codec<P, Option<W>> for OrDefault {
    fn write(self, plain: P) -> Option<W> {
        Some(plain.into())
    }
    fn read(self, field: Field, wire: Option<W>) -> Result<P, Malformed> {
        Ok(field.maybe(wire)?.unwrap_or_default())
    }
}

/// Messages, at most this many.
pub(super) struct List(pub usize);

impl<P: TryFrom<W, Error = Malformed>, W: From<P>> Codec<Vec<P>, Vec<W>> for List {
    fn write(self, plain: Vec<P>) -> Vec<W> {
        all(plain)
    }
    fn read(self, field: Field, wire: Vec<W>) -> Result<Vec<P>, Malformed> {
        field.list(wire, self.0)
    }
}

impl<P, W> Codec<Arc<[P]>, Vec<W>> for List
where
    P: TryFrom<W, Error = Malformed> + Clone,
    W: From<P>,
{
    fn write(self, plain: Arc<[P]>) -> Vec<W> {
        plain.iter().cloned().map(W::from).collect()
    }
    fn read(self, field: Field, wire: Vec<W>) -> Result<Arc<[P]>, Malformed> {
        field.list(wire, self.0).map(Vec::into)
    }
}

/// A text of [`TEXT_MAX`] bytes at most.
pub(super) struct Text;

impl Codec<String, String> for Text {
    fn write(self, plain: String) -> String {
        plain
    }
    fn read(self, field: Field, wire: String) -> Result<String, Malformed> {
        field.text(wire)
    }
}

/// Empty is none.
impl Codec<Option<String>, String> for Text {
    fn write(self, plain: Option<String>) -> String {
        plain.unwrap_or_default()
    }
    fn read(self, field: Field, wire: String) -> Result<Option<String>, Malformed> {
        Ok(Some(field.text(wire)?).filter(|text| !text.is_empty()))
    }
}

/// A text that is cut to this many bytes on both sides.
pub(super) struct Cut(pub usize);

impl Codec<String, String> for Cut {
    fn write(self, plain: String) -> String {
        cut(plain, self.0)
    }
    fn read(self, field: Field, wire: String) -> Result<String, Malformed> {
        Ok(cut(field.text(wire)?, self.0))
    }
}

/// Empty is none.
impl Codec<Option<String>, String> for Cut {
    fn write(self, plain: Option<String>) -> String {
        cut(plain.unwrap_or_default(), self.0)
    }
    fn read(self, field: Field, wire: String) -> Result<Option<String>, Malformed> {
        let text: String = self.read(field, wire)?;
        Ok(Some(text).filter(|text| !text.is_empty()))
    }
}

/// What a host says of itself in words: so many texts at most, each of [`SAID_MAX`] bytes at most.
/// Both sides leave out the rest, because psched keeps these texts and shows them to all users.
pub(super) struct Said(pub usize);

impl Codec<Vec<String>, Vec<String>> for Said {
    fn write(self, plain: Vec<String>) -> Vec<String> {
        plain.into_iter().take(self.0).map(|text| cut(text, SAID_MAX)).collect()
    }
    fn read(self, field: Field, wire: Vec<String>) -> Result<Vec<String>, Malformed> {
        let some = wire.into_iter().take(self.0);
        some.map(|text| Cut(SAID_MAX).read(field, text)).collect()
    }
}

/// Messages as [`Said`] has texts.
pub(super) struct First(pub usize);

impl<P: TryFrom<W, Error = Malformed>, W: From<P>> Codec<Vec<P>, Vec<W>> for First {
    fn write(self, plain: Vec<P>) -> Vec<W> {
        plain.into_iter().take(self.0).map(W::from).collect()
    }
    fn read(self, field: Field, mut wire: Vec<W>) -> Result<Vec<P>, Malformed> {
        wire.truncate(self.0);
        field.list(wire, self.0)
    }
}

/// [`DATA_MAX`] bytes at most. They are not copied.
pub(super) struct Data;

impl Codec<Bytes, Bytes> for Data {
    fn write(self, plain: Bytes) -> Bytes {
        plain
    }
    fn read(self, field: Field, wire: Bytes) -> Result<Bytes, Malformed> {
        match wire.len() {
            n if n > DATA_MAX => field.wrong(format_args!("{n} bytes, more than {DATA_MAX}")),
            _ => Ok(wire),
        }
    }
}

/// Bytes for the kernel, which end at the first NUL there.
pub(super) struct CString;

impl Codec<Vec<u8>, Bytes> for CString {
    fn write(self, plain: Vec<u8>) -> Bytes {
        plain.into()
    }
    fn read(self, field: Field, wire: Bytes) -> Result<Vec<u8>, Malformed> {
        match wire.contains(&0) {
            true => field.wrong("it holds a NUL byte"),
            false => Ok(Vec::from(Data.read(field, wire)?)),
        }
    }
}

/// The name of a file: as [`CString`], and not empty.
pub(super) struct FileName;

impl Codec<Vec<u8>, Bytes> for FileName {
    fn write(self, plain: Vec<u8>) -> Bytes {
        plain.into()
    }
    fn read(self, field: Field, wire: Bytes) -> Result<Vec<u8>, Malformed> {
        match wire.is_empty() {
            true => field.wrong("it is missing"),
            false => CString.read(field, wire),
        }
    }
}

/// A SHA-256. None at all, or one of another length, can't be compared.
pub(super) struct Digest;

impl Codec<Option<[u8; 32]>, Bytes> for Digest {
    fn write(self, plain: Option<[u8; 32]>) -> Bytes {
        plain.map_or_else(Bytes::new, |digest| Bytes::copy_from_slice(&digest))
    }
    fn read(self, _: Field, wire: Bytes) -> Result<Option<[u8; 32]>, Malformed> {
        Ok(<[u8; 32]>::try_from(&wire[..]).ok())
    }
}

/// [`LONG_LIST_MAX`] of these at most.
pub(super) struct CStrings;

impl Codec<Vec<Vec<u8>>, Vec<Bytes>> for CStrings {
    fn write(self, plain: Vec<Vec<u8>>) -> Vec<Bytes> {
        all(plain)
    }
    fn read(self, field: Field, wire: Vec<Bytes>) -> Result<Vec<Vec<u8>>, Malformed> {
        field.bounded(&wire, LONG_LIST_MAX)?;
        wire.into_iter().map(|bytes| CString.read(field, bytes)).collect()
    }
}

/// A random number of 16 bytes.
pub(super) struct Secret;

impl Codec<[u8; 16], Bytes> for Secret {
    fn write(self, plain: [u8; 16]) -> Bytes {
        Bytes::copy_from_slice(&plain)
    }
    fn read(self, field: Field, wire: Bytes) -> Result<[u8; 16], Malformed> {
        match <[u8; 16]>::try_from(&wire[..]) {
            Ok(secret) => Ok(secret),
            Err(_) => field.wrong(format_args!("{} bytes, it has to be 16", wire.len())),
        }
    }
}

impl Codec<Ticket, Bytes> for Secret {
    fn write(self, plain: Ticket) -> Bytes {
        Secret.write(plain.0)
    }
    fn read(self, field: Field, wire: Bytes) -> Result<Ticket, Malformed> {
        Secret.read(field, wire).map(Ticket)
    }
}

/// Numbers of processors, of groups: [`LIST_MAX`] at most.
pub(super) struct Numbers;

impl Codec<Vec<u32>, Vec<u32>> for Numbers {
    fn write(self, plain: Vec<u32>) -> Vec<u32> {
        plain
    }
    fn read(self, field: Field, wire: Vec<u32>) -> Result<Vec<u32>, Malformed> {
        field.bounded(&wire, LIST_MAX)?;
        Ok(wire)
    }
}

/// The number of a node, or of [`NODES_MAX`] nodes at most.
pub(super) struct NodeId;

impl Codec<Nid, u32> for NodeId {
    fn write(self, plain: Nid) -> u32 {
        plain.0
    }
    fn read(self, _: Field, wire: u32) -> Result<Nid, Malformed> {
        Ok(Nid(wire))
    }
}

impl Codec<Vec<Nid>, Vec<u32>> for NodeId {
    fn write(self, plain: Vec<Nid>) -> Vec<u32> {
        plain.into_iter().map(|nid| nid.0).collect()
    }
    fn read(self, field: Field, wire: Vec<u32>) -> Result<Vec<Nid>, Malformed> {
        field.bounded(&wire, NODES_MAX)?;
        Ok(wire.into_iter().map(Nid).collect())
    }
}

/// Numbers of applications.
pub(super) struct Apids;

impl Codec<Vec<Apid>, Vec<u64>> for Apids {
    fn write(self, plain: Vec<Apid>) -> Vec<u64> {
        plain.into_iter().map(|apid| apid.0).collect()
    }
    fn read(self, _: Field, wire: Vec<u64>) -> Result<Vec<Apid>, Malformed> {
        Ok(wire.into_iter().map(Apid).collect())
    }
}

/// A number from the first to the second one.
pub(super) struct Between<T>(pub T, pub T);

impl<T: PartialOrd + std::fmt::Display> Codec<T, T> for Between<T> {
    fn write(self, plain: T) -> T {
        plain
    }
    fn read(self, field: Field, wire: T) -> Result<T, Malformed> {
        field.between(wire, self.0, self.1)
    }
}

/// 1 or more.
pub(super) const POSITIVE: Between<u32> = Between(1, u32::MAX);

/// The number of a signal: Linux has 1 to 64.
pub(super) const SIGNAL: Between<i32> = Between(1, 64);

/// A count or a sum: above this much it is written as this much, and refused when it is read.
pub(super) struct AtMost<T>(pub T);

/// A count of processes.
pub(super) const COUNT: AtMost<u32> = AtMost(COUNT_MAX);

impl<T: Ord + Default + std::fmt::Display> Codec<T, T> for AtMost<T> {
    fn write(self, plain: T) -> T {
        plain.min(self.0)
    }
    fn read(self, field: Field, wire: T) -> Result<T, Malformed> {
        field.between(wire, T::default(), self.0)
    }
}

/// In microseconds, likewise.
impl Codec<Duration, u64> for AtMost<u64> {
    fn write(self, plain: Duration) -> u64 {
        Micros.write(plain).min(self.0)
    }
    fn read(self, field: Field, wire: u64) -> Result<Duration, Malformed> {
        field.between(wire, 0, self.0).map(Duration::from_micros)
    }
}

/// How much PEs give way: more than the most is the most.
pub(super) struct Nice;

impl Codec<u32, u32> for Nice {
    fn write(self, plain: u32) -> u32 {
        plain
    }
    fn read(self, _: Field, wire: u32) -> Result<u32, Malformed> {
        Ok(wire.min(NICE_MAX))
    }
}

/// The code of an exit.
pub(super) struct ExitCode;

impl Codec<u8, i32> for ExitCode {
    fn write(self, plain: u8) -> i32 {
        plain.into()
    }
    fn read(self, field: Field, wire: i32) -> Result<u8, Malformed> {
        Ok(field.between(wire, 0, 255)? as u8)
    }
}

/// A number that is not given where it is 0.
pub(super) struct Given;

impl<T: Default + PartialEq> Codec<Option<T>, T> for Given {
    fn write(self, plain: Option<T>) -> T {
        plain.unwrap_or_default()
    }
    fn read(self, _: Field, wire: T) -> Result<Option<T>, Malformed> {
        Ok(Some(wire).filter(|n| *n != T::default()))
    }
}

/// A number that has this value where it is not given.
pub(super) struct Else<T>(pub T);

impl<T: Default + PartialEq> Codec<T, T> for Else<T> {
    fn write(self, plain: T) -> T {
        plain
    }
    fn read(self, field: Field, wire: T) -> Result<T, Malformed> {
        Ok(Given.read(field, wire)?.unwrap_or(self.0))
    }
}

/// In whole milliseconds.
pub(super) struct Millis;

impl Codec<Duration, u64> for Millis {
    fn write(self, plain: Duration) -> u64 {
        ms(plain)
    }
    fn read(self, _: Field, wire: u64) -> Result<Duration, Malformed> {
        Ok(Duration::from_millis(wire))
    }
}

/// In whole microseconds.
pub(super) struct Micros;

impl Codec<Duration, u64> for Micros {
    fn write(self, plain: Duration) -> u64 {
        u64::try_from(plain.as_micros()).unwrap_or(u64::MAX)
    }
    fn read(self, _: Field, wire: u64) -> Result<Duration, Malformed> {
        Ok(Duration::from_micros(wire))
    }
}

/// In nanoseconds.
pub(super) struct Nanos;

impl Codec<Duration, u64> for Nanos {
    fn write(self, plain: Duration) -> u64 {
        nanos(plain)
    }
    fn read(self, _: Field, wire: u64) -> Result<Duration, Malformed> {
        Ok(Duration::from_nanos(wire))
    }
}

/// A limit of time in milliseconds: 0 is none, so that the shortest one is 1 ms.
pub(super) struct LimitMillis;

impl Codec<Option<Duration>, u64> for LimitMillis {
    fn write(self, plain: Option<Duration>) -> u64 {
        plain.map_or(0, |limit| ms(limit).max(1))
    }
    fn read(self, _: Field, wire: u64) -> Result<Option<Duration>, Malformed> {
        Ok(given(wire).map(Duration::from_millis))
    }
}

/// The variant of an `enum`; one that this release does not know is refused.
pub(super) struct Kind<W>(PhantomData<W>);

/// See [`Kind`].
pub(super) fn kind<W>() -> Kind<W> {
    Kind(PhantomData)
}

impl<P: From<W>, W: From<P> + Into<i32> + TryFrom<i32>> Codec<P, i32> for Kind<W> {
    fn write(self, plain: P) -> i32 {
        W::from(plain).into()
    }
    fn read(self, field: Field, wire: i32) -> Result<P, Malformed> {
        match W::try_from(wire) {
            Ok(kind) => Ok(P::from(kind)),
            Err(_) => field.wrong(format_args!("{wire} is an unknown kind")),
        }
    }
}

/// The variant of an `enum`; one that this release does not know is its default.
pub(super) struct KindOrDefault<W>(PhantomData<W>);

/// See [`KindOrDefault`].
pub(super) fn kind_or_default<W>() -> KindOrDefault<W> {
    KindOrDefault(PhantomData)
}

impl<P: From<W>, W> Codec<P, i32> for KindOrDefault<W>
where
    W: From<P> + Into<i32> + TryFrom<i32> + Default,
{
    fn write(self, plain: P) -> i32 {
        W::from(plain).into()
    }
    fn read(self, _: Field, wire: i32) -> Result<P, Malformed> {
        Ok(P::from(W::try_from(wire).unwrap_or_default()))
    }
}

/// One that only this field has: how it is written, and how it is read.
pub(super) struct Via<A, B>(pub A, pub B);

impl<P, W, A, B> Codec<P, W> for Via<A, B>
where
    A: FnOnce(P) -> W,
    B: FnOnce(Field, W) -> Result<P, Malformed>,
{
    fn write(self, plain: P) -> W {
        (self.0)(plain)
    }
    fn read(self, field: Field, wire: W) -> Result<P, Malformed> {
        (self.1)(field, wire)
    }
}
