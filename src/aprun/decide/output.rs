//! Where output goes and how it looks there: file names with `%r`, and labelled lines.
//!
//! `--output out.%r` gives each rank a file of its own; a name without `%r` and `%n` is one file
//! for all. Under `--label` each line begins with the rank that wrote it:
//!
//! ```
//! use psched_pure::aprun::decide::output::Labels;
//! let mut labels = Labels::default();
//! let mut out = Vec::new();
//! labels.label(3, b"one\ntw", &mut out);
//! labels.label(4, b"three\n", &mut out);
//! labels.label(3, b"o\n", &mut out);
//! assert_eq!(out, b"3: one\n3: tw\n4: three\n3: o\n");
//! ```

use crate::apteam::Apid;
use crate::machine::Nid;

/// The name of an output file, with its `%` directions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(Vec<u8>),
    Rank,
    Nid,
    Apid,
}

impl Template {
    /// Reads a name with `%r` (rank), `%n` (NID), `%a` (apid) and `%%` (a percent sign).
    pub fn parse(name: &[u8]) -> Result<Template, String> {
        if name.is_empty() {
            return Err("the name of the file is empty".to_owned());
        }
        let mut parts = Vec::new();
        let mut text = Vec::new();
        let mut bytes = name.iter();
        while let Some(byte) = bytes.next() {
            if *byte != b'%' {
                text.push(*byte);
                continue;
            }
            let part = match bytes.next() {
                Some(b'%') => {
                    text.push(b'%');
                    continue;
                }
                Some(b'r') => Part::Rank,
                Some(b'n') => Part::Nid,
                Some(b'a') => Part::Apid,
                other => {
                    let shown = other.map(|b| (*b as char).to_string()).unwrap_or_default();
                    return Err(format!(
                        "%{shown} means nothing: %r is the rank, %n the NID, %a the apid, %% a \
                         percent sign"
                    ));
                }
            };
            if !text.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut text)));
            }
            parts.push(part);
        }
        if !text.is_empty() {
            parts.push(Part::Text(text));
        }
        Ok(Template(parts))
    }

    /// The name for one rank.
    pub fn expand(&self, rank: u32, nid: Nid, apid: Apid) -> Vec<u8> {
        let mut name = Vec::new();
        for part in &self.0 {
            match part {
                Part::Text(text) => name.extend_from_slice(text),
                Part::Rank => name.extend_from_slice(rank.to_string().as_bytes()),
                Part::Nid => name.extend_from_slice(nid.to_string().as_bytes()),
                Part::Apid => name.extend_from_slice(apid.to_string().as_bytes()),
            }
        }
        name
    }

    /// Whether ranks on different nodes, or all ranks, have files of their own.
    pub fn is_for_one(&self) -> bool {
        !self.0.iter().any(|p| matches!(p, Part::Rank | Part::Nid))
    }
}

/// Puts the rank in front of each line of one stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels {
    /// The rank whose line is not at its end.
    open: Option<u32>,
}

impl Labels {
    /// Adds what a rank wrote to `out`. A line that another rank's has cut short is ended, and goes
    /// on, labelled again, on a line of its own.
    pub fn label(&mut self, rank: u32, data: &[u8], out: &mut Vec<u8>) {
        for line in data.split_inclusive(|b| *b == b'\n') {
            if self.open != Some(rank) {
                if self.open.is_some() {
                    out.push(b'\n');
                }
                out.extend_from_slice(rank.to_string().as_bytes());
                out.extend_from_slice(b": ");
            }
            out.extend_from_slice(line);
            self.open = (line.last() != Some(&b'\n')).then_some(rank);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names() {
        let expand = |name: &[u8]| {
            Template::parse(name).map(|t| t.expand(5, Nid(2), Apid(12))).expect("a good name")
        };
        assert_eq!(expand(b"out"), b"out");
        assert_eq!(expand(b"%a/out.%r-%n.100%%"), b"12/out.5-2.100%");
        assert_eq!(expand(b"%%r"), b"%r");
        assert!(Template::parse(b"out.%a").expect("good").is_for_one());
        assert!(!Template::parse(b"out.%n").expect("good").is_for_one());
        let means = "%r is the rank, %n the NID, %a the apid, %% a percent sign";
        assert_eq!(Template::parse(b"a%x"), Err(format!("%x means nothing: {means}")));
        assert_eq!(Template::parse(b"a%"), Err(format!("% means nothing: {means}")));
        assert!(Template::parse(b"").is_err());
    }

    fn labelled(pieces: &[(u32, &[u8])]) -> String {
        let mut labels = Labels::default();
        let mut out = Vec::new();
        for (rank, data) in pieces {
            labels.label(*rank, data, &mut out);
        }
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn labels() {
        assert_eq!(labelled(&[(0, b"a\nb\n"), (1, b"c\n")]), "0: a\n0: b\n1: c\n");
        assert_eq!(labelled(&[(0, b"a"), (0, b"b\n")]), "0: ab\n");
        assert_eq!(labelled(&[(0, b"a"), (1, b"b\n"), (0, b"c\n")]), "0: a\n1: b\n0: c\n");
        assert_eq!(labelled(&[(0, b"\n\n")]), "0: \n0: \n");
        assert_eq!(labelled(&[(0, b"")]), "");
        assert_eq!(labelled(&[(0, b"no end")]), "0: no end");
    }

    proptest! {
        #[test]
        fn each_line_is_labelled_once(
            pieces in proptest::collection::vec((0u32..3, "[ab\n]{0,6}"), 0..12))
        {
            let parts: Vec<(u32, &[u8])> =
                pieces.iter().map(|(rank, text)| (*rank, text.as_bytes())).collect();
            let out = labelled(&parts);
            for rank in 0..3 {
                // Without labels and without the ends of lines that were put in, each rank's
                // bytes are what it wrote.
                let label = format!("{rank}: ");
                let own: String = out.lines().filter_map(|l| l.strip_prefix(&label)).collect();
                let wrote: String =
                    pieces.iter().filter(|(r, _)| *r == rank).map(|(_, t)| t.as_str()).collect();
                prop_assert_eq!(own, wrote.replace('\n', ""));
            }
        }
    }
}
