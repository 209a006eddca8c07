//! The parts of a checkpoint, and the manifest that is made of them.
//!
//! # Problem
//! An application may be on nodes of several apinits. Each dumps its part, and none knows what the others have
//! written; who carries words from one to the other is a user's cpr, which may say anything. What is sealed in
//! the end must be of one moment: a message that one part has had and that the other has not sent yet would be
//! an application that never was.
//!
//! # Approach
//! Each apinit says, sealed, what it has written, for which draft of psched's, and *from when to when* its part
//! stood still, by the clock of their common host. The images of a part are what it was at any instant between
//! these two. So all of them together are the application at one instant if, and only if, there is one at which
//! all stood:
//!
//! ```text
//!   part 0       |=======stood=======|
//!   part 1                |=======stood=======|
//!                         ^^^^^^^^^^^ any of these
//! ```
//!
//! Whatever cpr has told whom and when, and whether it brings parts of two checkpoints, is found by that.
//!
//! ```
//! # use psched_pure::checkpoint::{Part, SealKey, example, example_parts, join};
//! let key = SealKey([7; 32]);
//! let draft = example().draft(&key);
//! let parts: Vec<String> = example_parts(draft.as_bytes()).iter().map(|part| part.seal(&key)).collect();
//! let manifest = join(draft.as_bytes(), &parts, 1_780_000_000_000_000_009, &key).unwrap();
//! assert!(manifest.lists("host-0/pages-1.img"));
//! assert!(join(draft.as_bytes(), &parts[..0], 0, &key).is_err());
//! ```

use super::form::ImageForm;
use super::lines::text;
use super::{BackEnd, Checksum, FILES_MAX, Flaw, HostImages, Image, Kind, Made, Manifest, SealKey};
use serde::{Deserialize, Serialize};

/// What a part begins with.
const PART: &str = "psched part ";

/// What one apinit has written of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Of the draft for which it was made, all of it.
    pub draft: Checksum,
    /// The folder of its files, as in the draft.
    pub folder: String,
    /// The version of CRIU.
    pub version: String,
    /// The kernel's id of the boot by whose clock it stood.
    pub boot: String,
    /// It has stood still from then to then at least, in nanoseconds of CLOCK_MONOTONIC.
    pub stood_ns: (u64, u64),
    /// Its files, by their names in the folder of the checkpoint.
    pub files: Vec<Image>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PartForm {
    draft: String,
    folder: String,
    version: String,
    boot: String,
    stood_ns: (u64, u64),
    files: Vec<ImageForm>,
}

impl Part {
    /// Its text, sealed.
    pub fn seal(&self, key: &SealKey) -> String {
        let Part { draft, folder, version, boot, stood_ns, files } = self;
        let form = PartForm {
            draft: draft.to_string(),
            folder: folder.clone(),
            version: version.clone(),
            boot: boot.clone(),
            stood_ns: *stood_ns,
            files: files.iter().map(ImageForm::of).collect(),
        };
        key.stamp(PART, &text(&form))
    }

    /// From its text.
    ///
    /// # Errors
    /// No apinit that has this key has said that.
    pub fn read(bytes: &[u8], key: &SealKey) -> Result<Part, Flaw> {
        let text = key.stamped(PART, bytes)?;
        let unread = |e: String| Flaw::manifest(format!("a part of it can't be read: {e}"));
        let form: PartForm = serde_json::from_str(text).map_err(|e| unread(e.to_string()))?;
        let PartForm { draft, folder, version, boot, stood_ns, files } = form;
        let draft = Checksum::parse(&draft).ok_or_else(|| unread("it names no draft".into()))?;
        let files: Result<_, String> = files.into_iter().map(ImageForm::image).collect();
        Ok(Part { draft, folder, version, boot, stood_ns, files: files.map_err(unread)? })
    }
}

/// The manifest of a checkpoint that psched has drafted and whose parts these are, made at this time.
///
/// # Errors
/// They are not, not all of them, or not of one moment.
pub fn join(
    draft: &[u8],
    parts: &[impl AsRef<[u8]>],
    at_ns: u64,
    key: &SealKey,
) -> Result<Manifest, Flaw> {
    let unfit = |what: &str| Flaw::Unfit(what.to_owned());
    let sum = Checksum::of(draft);
    let drafted = Manifest::read_draft(draft, key)?;
    let Kind::Running { places, hosts, .. } = drafted.kind else {
        return Err(unfit("of a posting that waits has no parts"));
    };
    if parts.len() != hosts.len() {
        let (has, brought) = (hosts.len(), parts.len());
        return Err(Flaw::Unfit(format!("has {has} parts here, and {brought} were given")));
    }
    let parts: Result<Vec<Part>, Flaw> =
        parts.iter().map(|part| Part::read(part.as_ref(), key)).collect();
    let parts = parts?;
    if parts.iter().any(|part| part.draft != sum) {
        return Err(unfit(
            "has parts of its own draft only, and a part of another draft was given",
        ));
    }
    let of = |host: &HostImages| parts.iter().any(|part| part.folder == host.folder);
    if let Some(host) = hosts.iter().find(|host| !of(host)) {
        return Err(Flaw::Unfit(format!(
            "has the part {} too, and that was not given",
            host.folder
        )));
    }
    let last = parts.iter().map(|part| part.stood_ns.0).max().unwrap_or(0);
    let first = parts.iter().map(|part| part.stood_ns.1).min().unwrap_or(0);
    if last > first || parts.windows(2).any(|two| two[0].boot != two[1].boot) {
        return Err(unfit(
            "has parts that were frozen at one moment, and these parts were frozen at different \
             moments",
        ));
    }
    let version = parts.first().map(|part| part.version.clone()).unwrap_or_default();
    let mut files: Vec<Image> = Vec::new();
    for Part { folder, files: own, .. } in parts {
        let inside = |file: &Image| file.name.split_once('/').is_some_and(|(of, _)| of == folder);
        if files.len() + own.len() > FILES_MAX {
            return Err(Flaw::Unfit(format!("has at most {FILES_MAX} files")));
        }
        if own.is_empty() || !own.iter().all(inside) {
            return Err(Flaw::Unfit(format!("has the images of each host in a folder: {folder}")));
        }
        files.extend(own);
    }
    files.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(Manifest {
        made: Made { at_ns, ..drafted.made },
        kind: Kind::Running { back_end: BackEnd::Criu { version }, places, hosts },
        files,
        recovery: drafted.recovery,
        launch: drafted.launch,
    })
}

/// One to look at: the only part of [`super::example`].
pub fn example_parts(draft: &[u8]) -> Vec<Part> {
    let image = |name: &str| Image { name: name.into(), size: 5, sum: Checksum::of(b"pages") };
    vec![Part {
        draft: Checksum::of(draft),
        folder: "host-0".into(),
        version: "4.2".into(),
        boot: "6c9e8f0e-0000-4000-8000-000000000001".into(),
        stood_ns: (100, 200),
        files: vec![image("host-0/core-1.img"), image("host-0/pages-1.img")],
    }]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::example;
    use crate::machine::Nid;

    const KEY: SealKey = SealKey([7; 32]);

    /// Of two hosts, with a node each.
    fn wide() -> Manifest {
        let mut manifest = example();
        let Kind::Running { hosts, .. } = &mut manifest.kind else { unreachable!() };
        *hosts = [3, 4].map(|nid| (format!("host-{}", nid - 3), nid)).map(host).into();
        manifest
    }

    fn host((folder, nid): (String, u32)) -> HostImages {
        HostImages { folder, host_id: "n0".into(), nids: vec![Nid(nid)] }
    }

    fn parts(draft: &str) -> [Part; 2] {
        let [first] = &example_parts(draft.as_bytes())[..] else { unreachable!() };
        let sum = Checksum::of(b"x");
        let image = Image { name: "host-1/core-1.img".into(), size: 1, sum };
        let (folder, files) = ("host-1".to_owned(), vec![image]);
        [first.clone(), Part { folder, files, stood_ns: (150, 260), ..first.clone() }]
    }

    fn joined(draft: &str, parts: &[Part]) -> Result<Manifest, String> {
        let sealed: Vec<String> = parts.iter().map(|part| part.seal(&KEY)).collect();
        join(draft.as_bytes(), &sealed, 9, &KEY).map_err(|flaw| flaw.to_string())
    }

    #[test]
    fn parts_that_stood_at_one_instant_are_a_checkpoint() {
        let draft = wide().draft(&KEY);
        let [one, other] = parts(&draft);
        let manifest = joined(&draft, &[other.clone(), one.clone()]).expect("whole");
        let names: Vec<&str> = manifest.files.iter().map(|file| &file.name[..]).collect();
        assert_eq!(names, ["host-0/core-1.img", "host-0/pages-1.img", "host-1/core-1.img"]);
        assert_eq!((manifest.made.at_ns, &manifest.recovery), (9, &wide().recovery));
        let text = manifest.seal(&KEY).expect("sound");
        assert_eq!(Manifest::read(text.as_bytes(), Some(&KEY)), Ok(manifest));
        // To the nanosecond.
        let touching = Part { stood_ns: (200, 300), ..other.clone() };
        assert!(joined(&draft, &[one.clone(), touching]).is_ok());
        let late = Part { stood_ns: (201, 300), ..other };
        let why = joined(&draft, &[one, late]).expect_err("never together");
        assert!(why.contains("frozen at different moments"), "{why}");
    }

    #[test]
    fn what_is_no_checkpoint() {
        let draft = wide().draft(&KEY);
        let [one, other] = parts(&draft);
        let refused = |parts: &[Part], words: &str| {
            let why = joined(&draft, parts).expect_err(words);
            assert!(why.contains(words), "{why}");
        };
        refused(std::slice::from_ref(&one), "2 parts here, and 1 were given");
        refused(&[one.clone(), one.clone()], "has the part host-1 too, and that was not given");
        let boot = Part { boot: "another".into(), ..other.clone() };
        refused(&[one.clone(), boot], "frozen at different moments");
        let later = Checksum::of(b"a later draft");
        refused(&[one.clone(), Part { draft: later, ..other.clone() }], "a part of another draft");
        refused(&[one.clone(), Part { files: Vec::new(), ..other.clone() }], "in a folder: host-1");
        let files = one.files.clone();
        refused(&[one.clone(), Part { files, ..other.clone() }], "in a folder: host-1");
        // Nobody else's word counts, nor a draft for a part.
        let forged = [one.seal(&KEY), other.seal(&SealKey([8; 32]))];
        assert_eq!(join(draft.as_bytes(), &forged, 9, &KEY), Err(Flaw::Foreign));
        let drafts = [one.seal(&KEY), draft.clone()];
        assert_eq!(join(draft.as_bytes(), &drafts, 9, &KEY), Err(Flaw::Foreign));
        let changed = [one.seal(&KEY), other.seal(&KEY).replace("150", "151")];
        assert_eq!(join(draft.as_bytes(), &changed, 9, &KEY), Err(Flaw::Foreign));
        let parts = [one.seal(&KEY), other.seal(&KEY)];
        assert_eq!(join(parts[0].as_bytes(), &parts, 9, &KEY), Err(Flaw::Foreign));
    }
}
