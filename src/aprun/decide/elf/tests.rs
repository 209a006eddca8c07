use super::*;
use proptest::prelude::*;

fn look_at(bytes: &[u8]) -> Result<Kind, Problem> {
    examine(&mut |offset, buffer| read_from(bytes, offset, buffer), X86_64)
}

fn read_from(bytes: &[u8], offset: u64, buffer: &mut [u8]) -> Result<usize, String> {
    let rest = usize::try_from(offset).ok().and_then(|o| bytes.get(o..)).unwrap_or_default();
    let n = rest.len().min(buffer.len());
    buffer[..n].copy_from_slice(&rest[..n]);
    Ok(n)
}

/// Builds a small ELF program: 64 bits, or 32; little-endian, or big.
struct Builder {
    wide: bool,
    little: bool,
    machine: u16,
    kind: u16,
    libraries: Vec<&'static str>,
    /// Where they are looked for, by this tag.
    run_path: Option<(u64, &'static str)>,
    /// It names no dynamic loader.
    is_static: bool,
}

impl Default for Builder {
    fn default() -> Builder {
        Builder {
            wide: true,
            little: true,
            machine: X86_64,
            kind: 3,
            libraries: Vec::new(),
            run_path: None,
            is_static: false,
        }
    }
}

/// A program header that says nothing.
const PT_NULL: u32 = 0;
/// Where the load segment lies in memory.
const BASE: u64 = 0x40_0000;

impl Builder {
    fn put(&self, out: &mut Vec<u8>, value: u64, len: usize) {
        let bytes = value.to_le_bytes();
        if self.little {
            out.extend_from_slice(&bytes[..len]);
        } else {
            out.extend(bytes[..len].iter().rev());
        }
    }

    fn build(&self) -> Vec<u8> {
        let word = if self.wide { 8 } else { 4 };
        let (header, entry) = if self.wide { (64u64, 56u64) } else { (52, 32) };
        let interpreter = b"/lib64/ld.so\0";
        let interpreter_at = header + 3 * entry;
        let strings_at = interpreter_at + interpreter.len() as u64;
        let mut strings = vec![0u8];
        let mut dynamic = Vec::new();
        let needed = self.libraries.iter().map(|library| (DT_NEEDED, *library));
        for (tag, text) in needed.chain(self.run_path) {
            self.put(&mut dynamic, tag, word);
            self.put(&mut dynamic, strings.len() as u64, word);
            strings.extend_from_slice(text.as_bytes());
            strings.push(0);
        }
        self.put(&mut dynamic, DT_STRTAB, word);
        self.put(&mut dynamic, BASE + strings_at, word);
        self.put(&mut dynamic, DT_NULL, word);
        self.put(&mut dynamic, 0, word);
        let dynamic_at = strings_at + strings.len() as u64;
        let total = dynamic_at + dynamic.len() as u64;

        let mut out = vec![0x7f, b'E', b'L', b'F'];
        out.extend([if self.wide { 2 } else { 1 }, if self.little { 1 } else { 2 }, 1]);
        out.resize(16, 0);
        self.put(&mut out, u64::from(self.kind), 2);
        self.put(&mut out, u64::from(self.machine), 2);
        self.put(&mut out, 1, 4);
        self.put(&mut out, BASE, word);
        self.put(&mut out, header, word);
        self.put(&mut out, 0, word);
        self.put(&mut out, 0, 4);
        self.put(&mut out, header, 2);
        self.put(&mut out, entry, 2);
        self.put(&mut out, 3, 2);
        out.resize(header as usize, 0);
        for (kind, at, len) in [
            (
                if self.is_static { PT_NULL } else { PT_INTERP },
                interpreter_at,
                interpreter.len() as u64,
            ),
            (PT_LOAD, 0, total),
            (PT_DYNAMIC, dynamic_at, dynamic.len() as u64),
        ] {
            self.put(&mut out, u64::from(kind), 4);
            if self.wide {
                self.put(&mut out, 4, 4);
            }
            self.put(&mut out, at, word);
            self.put(&mut out, BASE + at, word);
            self.put(&mut out, BASE + at, word);
            self.put(&mut out, len, word);
            self.put(&mut out, len, word);
            if !self.wide {
                self.put(&mut out, 4, 4);
            }
            self.put(&mut out, 8, word);
        }
        out.extend_from_slice(interpreter);
        out.extend_from_slice(&strings);
        out.extend_from_slice(&dynamic);
        out
    }
}

fn elf(machine: u16, mpi: Mpi) -> Result<Kind, Problem> {
    Ok(Kind::Elf(Elf {
        machine,
        interpreter: Some(b"/lib64/ld.so".to_vec()),
        mpi,
        may_have_mpi: false,
        beside: false,
    }))
}

#[test]
fn what_finds_its_libraries_beside_itself_is_known() {
    for (run_path, expected) in [
        (Some((DT_RUNPATH, "$ORIGIN/../lib")), true),
        (Some((DT_RPATH, "/opt/lib:${ORIGIN}")), true),
        (Some((DT_RUNPATH, "/opt/lib")), false),
        (None, false),
    ] {
        for wide in [true, false] {
            let machine = if wide { X86_64 } else { 3 };
            let program = Builder { run_path, wide, machine, ..Builder::default() }.build();
            let Ok(Kind::Elf(found)) = look_at(&program) else {
                panic!("{run_path:?}: no program")
            };
            assert_eq!(found.beside, expected, "{run_path:?}, {wide}");
        }
    }
}

#[test]
fn libraries_that_may_have_an_mpi_are_known() {
    for (libraries, is_static, expected) in [
        (vec!["libc.so.6"], false, false),
        (vec!["libstdc++.so.6", "libm.so.6", "libc.so.6"], false, false),
        (vec!["liblammps.so.0", "libc.so.6"], false, true),
        (vec!["libz.so.1"], false, true),
        (vec![], true, true),
    ] {
        let file =
            Builder { libraries: libraries.clone(), is_static, ..Builder::default() }.build();
        let Ok(Kind::Elf(found)) = look_at(&file) else { panic!("no program") };
        assert_eq!((found.mpi, found.may_have_mpi), (Mpi::None, expected), "{libraries:?}");
    }
}

#[test]
fn libraries_tell_the_mpi() {
    for (libraries, mpi) in [
        (vec![], Mpi::None),
        (vec!["libc.so.6"], Mpi::None),
        (vec!["libm.so.6", "libmpich.so.12", "libc.so.6"], Mpi::Mpich),
        (vec!["libmpichfort.so.12", "libmpich.so.12"], Mpi::Mpich),
        (vec!["libmpi.so.12"], Mpi::Mpich),
        (vec!["libmpifort.so.12", "libmpi.so.12"], Mpi::Mpich),
        (vec!["libc.so.6", "libmpi.so.40"], Mpi::OpenMpi),
        (vec!["libmpi_mpifh.so.40", "libmpi.so.40"], Mpi::OpenMpi),
        (vec!["libmpi.so.20"], Mpi::OpenMpi),
        (vec!["libmpires.so.1"], Mpi::None),
        (vec!["libmpi"], Mpi::None),
        // (Of MPICH, or of Open MPI.)
        (vec!["libmpi_abi.so.0"], Mpi::None),
    ] {
        for (wide, little) in [(true, true), (true, false), (false, true), (false, false)] {
            let libraries = libraries.clone();
            let file = Builder { wide, little, libraries, ..Builder::default() }.build();
            let Ok(Kind::Elf(found)) = look_at(&file) else { panic!("no program") };
            assert_eq!(found.mpi, mpi, "{wide} {little}");
        }
    }
}

#[test]
fn machines() {
    let of = |machine| look_at(&Builder { machine, ..Builder::default() }.build());
    assert_eq!(of(X86_64), elf(X86_64, Mpi::None));
    assert_eq!(of(3), elf(3, Mpi::None));
    let wrong = of(AARCH64).expect_err("another machine");
    assert_eq!(
        wrong.to_string(),
        "not executable: it is built for AArch64, this machine is x86-64; build it here"
    );
    assert_eq!(of(40), Err(Problem::WrongMachine { theirs: 40, own: X86_64 }));
    assert_eq!(of(9999), Err(Problem::WrongMachine { theirs: 9999, own: X86_64 }));
    let any = Builder { machine: 9999, ..Builder::default() }.build();
    let looked = examine(&mut |offset, buffer| read_from(&any, offset, buffer), 0);
    assert_eq!(looked, elf(9999, Mpi::None));
}

#[test]
fn other_elf_files() {
    let of = |kind| look_at(&Builder { kind, ..Builder::default() }.build());
    assert_eq!(of(1), Err(Problem::NoProgram("an object file; link it")));
    assert_eq!(of(4), Err(Problem::NoProgram("a core dump")));
}

#[test]
fn scripts() {
    let script =
        |path: &[u8]| -> Result<Kind, Problem> { Ok(Kind::Script { interpreter: path.to_vec() }) };
    assert_eq!(look_at(b"#!/bin/sh\necho"), script(b"/bin/sh"));
    assert_eq!(look_at(b"#! \t/usr/bin/env python3\n"), script(b"/usr/bin/env"));
    assert_eq!(look_at(b"#!/bin/sh"), script(b"/bin/sh"));
    assert_eq!(look_at(b"#!"), Err(Problem::EmptyInterpreterLine));
    assert_eq!(look_at(b"#!  \nx"), Err(Problem::EmptyInterpreterLine));
    let long = [b"#!/", "x".repeat(300).as_bytes()].concat();
    assert_eq!(look_at(&long), Err(Problem::LongInterpreterLine));
    let long_argument = [b"#!/x ", "x".repeat(300).as_bytes()].concat();
    assert_eq!(look_at(&long_argument), script(b"/x"));
}

#[test]
fn what_is_nothing() {
    assert_eq!(look_at(b""), Err(Problem::Empty));
    assert_eq!(look_at(b"echo hello\n"), Err(Problem::NoInterpreterLine));
    assert_eq!(look_at("größe\n".as_bytes()), Err(Problem::NoInterpreterLine));
    assert_eq!(look_at(b"\0\x01\x02"), Err(Problem::Unknown));
    assert_eq!(look_at(b"\x7fELF"), Err(Problem::Truncated));
    assert_eq!(look_at(b"\x7fELF\x02\x01"), Err(Problem::Truncated));
    assert_eq!(look_at(b"\x7fELF\x05\x01"), Err(Problem::Damaged("neither 32 nor 64 bits")));
    let unreadable = examine(&mut |_, _| Err("is a directory".to_owned()), X86_64);
    assert_eq!(unreadable, Err(Problem::Unreadable("is a directory".to_owned())));
}

#[test]
fn cut_short() {
    let file = Builder { libraries: vec!["libmpi.so.40"], ..Builder::default() }.build();
    let headers = 64 + 3 * 56 + "/lib64/ld.so\0".len();
    for end in 4..headers {
        assert_eq!(look_at(&file[..end]), Err(Problem::Truncated), "{end}");
    }
    // What the kernel does not look at may be missing.
    for end in headers..file.len() {
        assert!(look_at(&file[..end]).is_ok(), "{end}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_answered(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        let _ = look_at(&bytes);
        let _ = look_at(&[b"\x7fELF\x02\x01", bytes.as_slice()].concat());
    }

    #[test]
    fn a_damaged_program_is_answered_after_bounded_reads(
        wide in any::<bool>(),
        little in any::<bool>(),
        damage in proptest::collection::vec((0usize..500, any::<u8>()), 0..8))
    {
        let libraries = vec!["libc.so.6", "libmpi.so.40"];
        let mut file = Builder { wide, little, libraries, ..Builder::default() }.build();
        for (at, byte) in damage {
            let len = file.len();
            file[at % len] = byte;
        }
        let mut asked = 0u64;
        let _ = examine(&mut |offset, buffer| {
            asked += buffer.len() as u64;
            read_from(&file, offset, buffer)
        }, X86_64);
        // Each read is asked for once more at the end of the file.
        let most = 256 + PHDRS_MAX as u64 * 56 + 4096 + DYNAMIC_MAX + NEEDED_MAX as u64 * 128;
        prop_assert!(asked <= 2 * most, "{asked}");
    }
}
