//! Manifests of checkpoints, as root reads them from a user's folder.
//!
//! - Bytes of anything are refused or taken; nothing else happens.
//! - With the key only what was sealed by it is taken, and as it was.
//! - Without it a manifest that somebody has changed, and its checksum with it, is refused, or is one that
//!   could be: it is sealed without a word, and read as the same.

use arbitrary::{Result, Unstructured};
use psched::checkpoint::{Checksum, Manifest, SealKey, example};

pub fn fuzz(data: &[u8]) {
    let key = SealKey([1; 32]);
    assert!(Manifest::read(data, Some(&key)).is_err());
    understood(data, &key);
    // An Err: the bytes are used up.
    let text = example().seal(&SealKey([2; 32])).expect("sound");
    let Ok(text) = changed(text, &mut Unstructured::new(data)) else { return };
    assert!(Manifest::read(text.as_bytes(), Some(&key)).is_err());
    understood(text.as_bytes(), &key);
}

fn understood(bytes: &[u8], key: &SealKey) {
    let Ok(manifest) = Manifest::read(bytes, None) else { return };
    let text = manifest.seal(key).expect("what is read can be");
    assert_eq!(Manifest::read(text.as_bytes(), Some(key)), Ok(manifest));
}

/// A few values of it are others of their kind, as a rule, and its checksum is its own again.
fn changed(text: String, u: &mut Unstructured<'_>) -> Result<String> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for _ in 0..u.int_in_range(1..=4)? {
        let line = u.choose_index(lines.len())?;
        let line = &mut lines[line];
        let Some((key, value)) = line.split_once("\": ") else { continue };
        let (value, comma) = value.strip_suffix(',').map_or((value, ""), |value| (value, ","));
        let alike: &[&str] = match value.as_bytes() {
            // What goes on in the lines below.
            [b'{' | b'['] => continue,
            [b'[', ..] => &["[]", "[[3, 1, 0]]", "[[0, 9]]", "[[[0, 9]]]", "[\"%FF\"]", "[1]"],
            [b'"', ..] => {
                &["\"\"", "\"a%0\"", "\"lists\"", "\"numa_node\"", "\"mpich\"", "\"waiting\""]
            }
            [b't' | b'f', ..] => &["true", "false"],
            _ => &["0", "1", "3", "4294967295", "18446744073709551615", "null"],
        };
        *line = format!("{key}\": {}{comma}", u.choose(alike)?);
    }
    let text = lines.join("\n");
    let Some((before, _)) = text.rsplit_once("\"sha256\": ") else { return Ok(text) };
    let sum = Checksum::of(format!("{before}\"sha256\": \"\"\n}}\n").as_bytes());
    Ok(format!("{before}\"sha256\": \"{sum}\"\n}}\n"))
}
