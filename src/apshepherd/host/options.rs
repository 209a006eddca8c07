//! apshepherd's command line. apinit writes it, nobody types it.

use crate::apteam::Key;
use crate::machine::Nid;
use std::os::fd::RawFd;

/// What apinit says when it starts a shepherd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The application.
    pub key: Key,
    /// The socket to listen on, bound already.
    pub listen: RawFd,
    /// The pipe at whose end everything ends.
    pub lifeline: Option<RawFd>,
    /// Whose it is to be; `None`: it is its owner's already.
    pub uid: Option<u32>,
    /// Directories of the nodes' control groups.
    pub groups: Vec<(Nid, RawFd)>,
}

/// How it is called.
pub const USAGE: &str = "usage: apshepherd APID.INCARNATION --listen FD [--lifeline FD] [--uid UID]\n       \
     [--groups NID:FD,...] [--help]\n\
     (started by apinit, which gives it its descriptors)";

impl Options {
    /// From the arguments after the program's name.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Options, String> {
        let mut arguments = arguments.into_iter();
        let first = arguments.next().ok_or("no application is named")?;
        let key = Key::parse(&first).ok_or_else(|| format!("{first} is not APID.INCARNATION"))?;
        let (mut listen, mut lifeline, mut uid, mut groups) = (None, None, None, Vec::new());
        while let Some(name) = arguments.next() {
            let value = arguments.next().ok_or_else(|| format!("{name} lacks its value"))?;
            match name.as_str() {
                "--listen" => listen = Some(number(&value)?),
                "--lifeline" => lifeline = Some(number(&value)?).filter(|fd| *fd >= 0),
                "--uid" => uid = Some(number(&value)?),
                "--groups" => groups = parse_groups(&value)?,
                _ => return Err(format!("unknown option {name}")),
            }
        }
        let listen = listen.ok_or("--listen is missing")?;
        Ok(Options { key, listen, lifeline, uid, groups })
    }
}

fn parse_groups(text: &str) -> Result<Vec<(Nid, RawFd)>, String> {
    let pair = |item: &str| -> Result<(Nid, RawFd), String> {
        let (nid, fd) = item.split_once(':').ok_or_else(|| format!("{item} is not NID:FD"))?;
        Ok((Nid(number(nid)?), number(fd)?))
    };
    text.split(',').filter(|item| !item.is_empty()).map(pair).collect()
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text} is not a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        Options::parse(line.split(' ').map(str::to_owned))
    }

    #[test]
    fn whole_and_least() {
        let key = Key::parse("12.1").expect("a key");
        let groups = vec![(Nid(0), 7), (Nid(3), 8)];
        assert_eq!(
            parse("12.1 --listen 5 --lifeline 6 --uid 1000 --groups 0:7,3:8"),
            Ok(Options { key, listen: 5, lifeline: Some(6), uid: Some(1000), groups })
        );
        let least = Options { key, listen: 5, lifeline: None, uid: None, groups: vec![] };
        assert_eq!(parse("12.1 --listen 5 --lifeline -1 --groups "), Ok(least.clone()));
        assert_eq!(parse("12.1 --listen 5"), Ok(least));
    }

    #[test]
    fn what_is_wrong_is_said() {
        assert_eq!(parse("x --listen 5"), Err("x is not APID.INCARNATION".into()));
        assert_eq!(parse("12.1"), Err("--listen is missing".into()));
        assert_eq!(parse("12.1 --listen"), Err("--listen lacks its value".into()));
        assert_eq!(parse("12.1 --listen 5 --groups 3"), Err("3 is not NID:FD".into()));
    }
}
