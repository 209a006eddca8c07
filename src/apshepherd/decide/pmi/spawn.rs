//! A request to spawn programs (MPI_Comm_spawn, MPI_Comm_spawn_multiple), as PMI-1 has it: a block of lines for each
//! program.
//!
//! ```text
//! mcmd=spawn
//! nprocs=4
//! execname=./worker
//! totspawns=1                  blocks of this request
//! spawnssofar=1                and which one this is, from 1
//! arg1=an argument
//! argcnt=1
//! preput_num=1                 what the new PEs find in their key-value space
//! preput_key_0=PARENT_ROOT_PORT_NAME
//! preput_val_0=tag#0$...
//! info_num=1
//! info_key_0=wdir
//! info_val_0=/scratch
//! endcmd
//! ```
//!
//! A value is everything behind the first equals sign: it may hold blanks and equals signs.

use super::super::spawn::{Program, Request};
use super::shown;
use crate::apteam::launch::{PARTS_MAX, Spawned};
use crate::apteam::protocol::peers::PmiEntry;
use bytes::Bytes;

/// Bytes of a whole request, names and values: a command line that the kernel takes has at most 2 MiB.
pub const BYTES_MAX: usize = 2 << 20;
/// What a line takes in memory beside its bytes, rounded up.
const LINE_COST: usize = 64;

/// Whether more is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reads {
    More,
    /// That was the last line of the request.
    All,
}

/// A request, as far as it has been read.
#[derive(Clone, Debug, Default)]
pub(super) struct Reading {
    request: Request,
    bytes: usize,
    block: Block,
    /// A block has ended, and another one has to follow.
    between: bool,
}

#[derive(Clone, Debug)]
struct Block {
    program: Program,
    /// The name of what comes next: a key, of which the value follows.
    key: Option<Vec<u8>>,
    total: u32,
    so_far: u32,
}

impl Default for Block {
    fn default() -> Block {
        Block { program: Program::default(), key: None, total: 1, so_far: 1 }
    }
}

impl Reading {
    /// Takes a line.
    ///
    /// # Errors
    /// It does not belong there; in words.
    pub fn line(&mut self, line: &[u8]) -> Result<Reads, String> {
        self.bytes += line.len() + LINE_COST;
        if self.bytes > BYTES_MAX {
            return Err(format!("a spawn of more than {BYTES_MAX} bytes"));
        }
        if std::mem::take(&mut self.between) {
            return match line {
                b"mcmd=spawn" => Ok(Reads::More),
                _ => Err(format!("{} between two parts of a spawn", shown(line))),
            };
        }
        if line == b"endcmd" {
            return self.end_of_block();
        }
        let cut = line.iter().position(|b| *b == b'=');
        let Some(cut) = cut else { return Err(format!("{} within a spawn", shown(line))) };
        let (name, value) = (&line[..cut], &line[cut + 1..]);
        let number = || {
            let number = std::str::from_utf8(value).ok().and_then(|v| v.trim().parse().ok());
            number.ok_or_else(|| format!("{} is not a number, in a spawn", shown(line)))
        };
        let block = &mut self.block;
        match name {
            b"nprocs" => block.program.pes = number()?,
            b"execname" => block.program.command = value.to_vec(),
            b"totspawns" => block.total = number()?,
            b"spawnssofar" => block.so_far = number()?,
            _ if numbered(name, b"arg") => block.program.arguments.push(value.to_vec()),
            _ if numbered(name, b"preput_key_") || numbered(name, b"info_key_") => {
                block.key = Some(value.to_vec());
            }
            _ if numbered(name, b"preput_val_") => {
                let (Some(key), value) = (block.key.take(), Bytes::copy_from_slice(value)) else {
                    return Err("a value without its key, in a spawn".into());
                };
                let entry = PmiEntry { key: key.into(), value };
                // (Each part of a request brings them.)
                if !self.request.entries.contains(&entry) {
                    self.request.entries.push(entry);
                }
                if self.request.entries.len() > Spawned::ENTRIES_MAX {
                    return Err(format!("a spawn with more than {} keys", Spawned::ENTRIES_MAX));
                }
            }
            _ if numbered(name, b"info_val_") => {
                let Some(key) = block.key.take() else {
                    return Err("a value without its key, in a spawn".into());
                };
                match &key[..] {
                    b"wdir" | b"wd" => block.program.folder = value.to_vec(),
                    b"path" => block.program.path = value.to_vec(),
                    _ => {}
                }
            }
            _ => {}
        }
        Ok(Reads::More)
    }

    fn end_of_block(&mut self) -> Result<Reads, String> {
        let Block { program, total, so_far, .. } = std::mem::take(&mut self.block);
        // (A program without a name is for the program to hear of.)
        if program.pes == 0 {
            return Err("a spawn of no process".into());
        }
        if self.request.programs.len() >= PARTS_MAX {
            return Err(format!("a spawn of more than {PARTS_MAX} programs"));
        }
        self.request.programs.push(program);
        self.between = so_far < total;
        Ok(if self.between { Reads::More } else { Reads::All })
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// All of it.
    pub fn end(self) -> Request {
        self.request
    }
}

/// Whether a name is this one with a number behind it.
fn numbered(name: &[u8], stem: &[u8]) -> bool {
    name.strip_prefix(stem)
        .is_some_and(|rest| !rest.is_empty() && rest.iter().all(u8::is_ascii_digit))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Option<Request>, String> {
        let mut reading = Reading::default();
        for line in text.lines() {
            if reading.line(line.as_bytes())? == Reads::All {
                return Ok(Some(reading.end()));
            }
        }
        Ok(None)
    }

    const ONE: &str = "nprocs=2\nexecname=./a b\ntotspawns=2\nspawnssofar=1\narg1=-x\narg2=a = b\nargcnt=2\n\
                       preput_num=1\npreput_key_0=PORT\npreput_val_0=tag#0$x=y\ninfo_num=1\ninfo_key_0=wdir\n\
                       info_val_0=/tmp\nendcmd\n";

    #[test]
    fn a_request_has_a_block_for_each_program() {
        let two = ONE.replace("sofar=1", "sofar=2").replace("nprocs=2", "nprocs=3");
        let all = read(&format!("{ONE}mcmd=spawn\n{two}")).expect("good").expect("whole");
        let program = |pes| Program {
            pes,
            command: b"./a b".to_vec(),
            arguments: vec![b"-x".to_vec(), b"a = b".to_vec()],
            folder: b"/tmp".to_vec(),
            ..Program::default()
        };
        let entries = vec![PmiEntry { key: "PORT".into(), value: "tag#0$x=y".into() }];
        assert_eq!(all.pes(), 5);
        assert_eq!(
            all,
            Request { programs: vec![program(2), program(3)], entries, ..Request::default() }
        );
        assert_eq!(read(ONE), Ok(None), "another block follows");
        let alone = read("nprocs=1\nexecname=a\nendcmd\n").expect("good").expect("whole");
        assert_eq!(alone.programs.len(), 1);
    }

    #[test]
    fn what_is_none_is_named() {
        for (text, said) in [
            ("nprocs=x\n", "\"nprocs=x\" is not a number, in a spawn"),
            ("hello\n", "\"hello\" within a spawn"),
            ("execname=a\nnprocs=0\nendcmd\n", "a spawn of no process"),
            ("preput_val_0=a\n", "a value without its key, in a spawn"),
            ("info_val_0=a\n", "a value without its key, in a spawn"),
        ] {
            assert_eq!(read(text), Err(said.into()), "{text}");
        }
        let cut = read(&format!("{ONE}cmd=finalize\n")).expect_err("no block");
        assert_eq!(cut, "\"cmd=finalize\" between two parts of a spawn");
    }

    #[test]
    fn a_request_has_bounds() {
        let long = "arg1=".to_owned() + &"x".repeat(1 << 14) + "\n";
        let said = read(&long.repeat(200)).expect_err("too long");
        assert_eq!(said, format!("a spawn of more than {BYTES_MAX} bytes"));
        let keys: String =
            (0..100).map(|i| format!("preput_key_{i}=k{i}\npreput_val_{i}=v\n")).collect();
        assert_eq!(read(&keys), Err("a spawn with more than 64 keys".into()));
        let blocks =
            "execname=a\nnprocs=1\ntotspawns=4000000000\nspawnssofar=1\nendcmd\nmcmd=spawn\n";
        let said = read(&blocks.repeat(PARTS_MAX + 1)).expect_err("too many");
        assert_eq!(said, format!("a spawn of more than {PARTS_MAX} programs"));
    }
}
