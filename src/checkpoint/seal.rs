//! Checksums, and the key of the seal.

use super::Flaw;
pub use crate::apteam::SealKey;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use std::fmt;

/// The SHA-256 of some bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Checksum(pub [u8; 32]);

impl Checksum {
    /// That of these bytes.
    pub fn of(bytes: &[u8]) -> Checksum {
        let mut sum = Summing::default();
        sum.add(bytes);
        sum.done()
    }

    /// From its text, 64 hexadecimal digits in small letters.
    pub fn parse(text: &str) -> Option<Checksum> {
        unhex(text).map(Checksum)
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A checksum of bytes that come piece by piece.
#[derive(Clone, Default)]
pub struct Summing(Sha256);

impl Summing {
    /// These come next.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// That of all.
    pub fn done(self) -> Checksum {
        Checksum(self.0.finalize().into())
    }
}

impl SealKey {
    fn over(&self, text: &str) -> Hmac<Sha256> {
        // A key shorter than a block is filled up with zeros.
        let mut block = [0; 64];
        block[..32].copy_from_slice(&self.0);
        let mut mac = Hmac::<Sha256>::new(&block.into());
        mac.update(text.as_bytes());
        mac
    }

    /// The seal of a text.
    pub(super) fn seal(&self, text: &str) -> [u8; 32] {
        self.over(text).finalize().into_bytes().into()
    }

    /// Whether this is the seal of a text; in a time that does not tell how much of it is right.
    pub(super) fn sealed(&self, text: &str, seal: &[u8; 32]) -> bool {
        self.over(text).verify_slice(seal).is_ok()
    }

    /// A text that one daemon gives a user for another: what it is, its seal, a line's end and itself. The seal
    /// is over what it is, too, so that none is taken for another.
    pub(super) fn stamp(&self, what: &str, text: &str) -> String {
        format!("{what}{}\n{text}", hex(&self.seal(&format!("{what}{text}"))))
    }

    /// The text in there.
    ///
    /// # Errors
    /// Nobody who has this key has said that.
    pub(super) fn stamped<'t>(&self, what: &str, bytes: &'t [u8]) -> Result<&'t str, Flaw> {
        let text = std::str::from_utf8(bytes).ok().and_then(|text| text.strip_prefix(what));
        let (seal, text) = text.and_then(|text| text.split_once('\n')).ok_or(Flaw::Foreign)?;
        let seal = unhex(seal).ok_or(Flaw::Foreign)?;
        match self.sealed(&format!("{what}{text}"), &seal) {
            true => Ok(text),
            false => Err(Flaw::Foreign),
        }
    }
}

/// Bytes as hexadecimal digits, in small letters.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// So many bytes from their digits, in small letters.
pub(super) fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |b: u8| match b {
        b'0'..=b'9' => Some(b - b'0'),
        b'a'..=b'f' => Some(b - b'a' + 10),
        _ => None,
    };
    let text = text.as_bytes();
    if text.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, two) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(two[0])? << 4 | digit(two[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first of RFC 4231, and FIPS 180-2's "abc".
    #[test]
    fn the_standards_examples() {
        let sum = Checksum::of(b"abc").to_string();
        assert_eq!(sum, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(Checksum::parse(&sum), Some(Checksum::of(b"abc")));
        assert_eq!(Checksum::parse(&sum.to_uppercase()), None);
        assert_eq!(Checksum::parse(&sum[1..]), None);
        // A key of 20 bytes is as one that zeros fill up.
        let mut key = [0; 32];
        key[..20].fill(0x0b);
        assert_eq!(
            hex(&SealKey(key).seal("Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"
        );
    }
}
