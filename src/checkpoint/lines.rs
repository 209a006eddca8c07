//! The text of a manifest: JSON that a person can read, written in one way only.
//!
//! What lies deep, the environment or the processors of a node, stays on one line; what lies above has a
//! line each. Bytes that are no text (an argument need not be) are escaped as in a URL.
//!
//! ```text
//! {
//!   "version": 1,
//!   "launch": {
//!     "arguments": ["./ring", "100%25"],
//! ```

use serde::{Deserialize, Serialize};
use serde_json::ser::{Formatter, Serializer};
use std::io::{self, Write};

/// What lies deeper has no lines of its own.
const DEEPEST: usize = 2;

/// As the text that it is written in.
pub(super) fn text(value: &impl Serialize) -> String {
    let mut bytes = Vec::new();
    let mut serializer = Serializer::with_formatter(&mut bytes, Lines::default());
    // Maps of text, written to memory: neither can fail. What would be missing is found by who reads it.
    let _ = value.serialize(&mut serializer);
    bytes.push(b'\n');
    String::from_utf8_lossy(&bytes).into_owned()
}

#[derive(Default)]
struct Lines {
    depth: usize,
    /// The innermost list or object that is open has something in it.
    filled: bool,
}

impl Lines {
    fn open<W: Write + ?Sized>(&mut self, to: &mut W, sign: &[u8]) -> io::Result<()> {
        self.depth += 1;
        self.filled = false;
        to.write_all(sign)
    }

    fn close<W: Write + ?Sized>(&mut self, to: &mut W, sign: &[u8]) -> io::Result<()> {
        self.depth -= 1;
        if self.filled && self.depth < DEEPEST {
            self.line(to)?;
        }
        self.filled = true;
        to.write_all(sign)
    }

    fn next<W: Write + ?Sized>(&mut self, to: &mut W, first: bool) -> io::Result<()> {
        if !first {
            to.write_all(if self.depth > DEEPEST { b", " } else { b"," })?;
        }
        if self.depth <= DEEPEST { self.line(to) } else { Ok(()) }
    }

    fn line<W: Write + ?Sized>(&self, to: &mut W) -> io::Result<()> {
        to.write_all(b"\n")?;
        (0..self.depth).try_for_each(|_| to.write_all(b"  "))
    }
}

impl Formatter for Lines {
    fn begin_array<W: Write + ?Sized>(&mut self, to: &mut W) -> io::Result<()> {
        self.open(to, b"[")
    }

    fn end_array<W: Write + ?Sized>(&mut self, to: &mut W) -> io::Result<()> {
        self.close(to, b"]")
    }

    fn begin_array_value<W: Write + ?Sized>(&mut self, to: &mut W, first: bool) -> io::Result<()> {
        self.next(to, first)
    }

    fn end_array_value<W: Write + ?Sized>(&mut self, _: &mut W) -> io::Result<()> {
        self.filled = true;
        Ok(())
    }

    fn begin_object<W: Write + ?Sized>(&mut self, to: &mut W) -> io::Result<()> {
        self.open(to, b"{")
    }

    fn end_object<W: Write + ?Sized>(&mut self, to: &mut W) -> io::Result<()> {
        self.close(to, b"}")
    }

    fn begin_object_key<W: Write + ?Sized>(&mut self, to: &mut W, first: bool) -> io::Result<()> {
        self.next(to, first)
    }

    fn begin_object_value<W: Write + ?Sized>(&mut self, to: &mut W) -> io::Result<()> {
        to.write_all(b": ")
    }

    fn end_object_value<W: Write + ?Sized>(&mut self, _: &mut W) -> io::Result<()> {
        self.filled = true;
        Ok(())
    }
}

/// Bytes as text: what is no text, `%` and control characters are `%` and two hexadecimal digits each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Escaped(String);

impl Escaped {
    /// These bytes.
    pub fn of(bytes: &[u8]) -> Escaped {
        let mut out = String::with_capacity(bytes.len());
        let byte = |out: &mut String, b: u8| out.push_str(&format!("%{b:02X}"));
        for chunk in bytes.utf8_chunks() {
            for c in chunk.valid().chars() {
                match c.is_control() || c == '%' {
                    true => {
                        let mut own = [0; 4];
                        c.encode_utf8(&mut own).bytes().for_each(|b| byte(&mut out, b));
                    }
                    false => out.push(c),
                }
            }
            chunk.invalid().iter().for_each(|b| byte(&mut out, *b));
        }
        Escaped(out)
    }

    /// The bytes.
    ///
    /// # Errors
    /// Something after a `%` is no byte; in words.
    pub fn bytes(&self) -> Result<Vec<u8>, String> {
        let mut out = Vec::with_capacity(self.0.len());
        let mut rest = self.0.as_bytes();
        while let Some((first, after)) = rest.split_first() {
            rest = after;
            if *first != b'%' {
                out.push(*first);
                continue;
            }
            let two = after.get(..2).and_then(|two| std::str::from_utf8(two).ok());
            let byte = two.and_then(|two| u8::from_str_radix(two, 16).ok());
            out.push(byte.ok_or("a % in a text is not followed by two hexadecimal digits")?);
            rest = &after[2..];
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn examples() {
        for (bytes, text) in [
            (&b"./ring"[..], "./ring"),
            (b"100%", "100%25"),
            ("Küche\n".as_bytes(), "Küche%0A"),
            (b"a\xffb", "a%FFb"),
            (b"", ""),
        ] {
            assert_eq!(Escaped::of(bytes), Escaped(text.into()));
        }
        for text in ["%", "%2", "%zz", "a%é"] {
            assert!(Escaped(text.into()).bytes().is_err(), "{text}");
        }
        let value = serde_json::json!({"a": [], "b": {}, "c": [[1, [2, 3]], []], "d": {"e": [1]}});
        assert_eq!(
            text(&value),
            "{\n  \"a\": [],\n  \"b\": {},\n  \"c\": [\n    [1, [2, 3]],\n    []\n  ],\n  \
             \"d\": {\n    \"e\": [1]\n  }\n}\n"
        );
    }

    proptest! {
        #[test]
        fn every_byte_comes_back(bytes: Vec<u8>) {
            prop_assert_eq!(Escaped::of(&bytes).bytes(), Ok(bytes));
        }
    }
}
