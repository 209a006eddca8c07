//! Whether all files of a checkpoint are there, as they were.

use super::{FILES_MAX, Flaw, Image, MANIFEST, MANIFEST_MAX, Manifest, SealKey, Summing};
use std::collections::BTreeSet;

/// The files of a checkpoint, wherever they are.
pub trait Files {
    /// Names of all that is there, in any order, those in a folder as `FOLDER/NAME`, a folder with nothing
    /// in it as itself: at most [`FILES_MAX`] and the manifest.
    ///
    /// # Errors
    /// Something there is a link or the like, there is more, or the system refuses.
    fn names(&self) -> Result<Vec<String>, Flaw>;

    /// Gives what is in one to `each`, piece by piece, up to so many bytes, and says how many there were;
    /// none: it is not there.
    ///
    /// # Errors
    /// It is no plain file, or the system refuses.
    fn read(
        &self,
        name: &str,
        at_most: u64,
        each: &mut dyn FnMut(&[u8]),
    ) -> Result<Option<u64>, Flaw>;
}

/// The manifest of a checkpoint all of which is there as it was made.
///
/// # Errors
/// What is not so.
pub fn whole(files: &dyn Files, key: Option<&SealKey>) -> Result<Manifest, Flaw> {
    let manifest = manifest(files, key)?;
    verify(&manifest, files)?;
    Ok(manifest)
}

/// The manifest of a checkpoint; its files are not looked at.
///
/// # Errors
/// There is none, or what is wrong with it.
pub fn manifest(files: &dyn Files, key: Option<&SealKey>) -> Result<Manifest, Flaw> {
    let mut text = Vec::new();
    let read = files.read(MANIFEST, MANIFEST_MAX as u64 + 1, &mut |piece| {
        text.extend_from_slice(piece);
    })?;
    match read {
        None => Err(Flaw::NoManifest),
        Some(_) => Manifest::read(&text, key),
    }
}

/// Whether the names of the files are those of the manifest, and no others. What is in them is not looked at,
/// which takes no time.
///
/// # Errors
/// What is not so, of the first by name.
pub fn listed(manifest: &Manifest, files: &dyn Files) -> Result<(), Flaw> {
    let there: BTreeSet<String> = files.names()?.into_iter().take(FILES_MAX + 2).collect();
    if let Some(missing) = manifest.files.iter().find(|file| !there.contains(&file.name)) {
        return Err(Flaw::Missing { file: missing.name.clone() });
    }
    let strange = |name: &&String| *name != MANIFEST && !manifest.lists(name);
    if let Some(strange) = there.iter().find(strange) {
        return Err(Flaw::Strange { file: strange.clone() });
    }
    Ok(())
}

/// Whether the files are those of the manifest, and no others.
///
/// # Errors
/// What is not so, of the first by name.
pub fn verify(manifest: &Manifest, files: &dyn Files) -> Result<(), Flaw> {
    // What is missing is found before many bytes are read.
    listed(manifest, files)?;
    manifest.files.iter().try_for_each(|file| {
        let mut sum = Summing::default();
        let read =
            files.read(&file.name, file.size.saturating_add(1), &mut |piece| sum.add(piece))?;
        file.compare(read, sum)
    })
}

impl Image {
    /// Whether what was read is what there was: so many bytes (none: the file is not there), one more
    /// being read where there are more, and their checksum.
    ///
    /// # Errors
    /// It is not.
    pub fn compare(&self, read: Option<u64>, sum: Summing) -> Result<(), Flaw> {
        self.has_size(read)?;
        if sum.done() != self.sum {
            let how = "its checksum differs from that in the manifest".into();
            return Err(Flaw::Damaged { file: self.name.clone(), how });
        }
        Ok(())
    }

    /// The same of the bytes alone.
    ///
    /// # Errors
    /// It is shorter, longer or not there.
    pub fn has_size(&self, read: Option<u64>) -> Result<(), Flaw> {
        let Image { name, size, .. } = self;
        let file = name.clone();
        match read {
            None => Err(Flaw::Missing { file }),
            Some(found) if found < *size => Err(Flaw::Short { file, size: *size, found }),
            Some(found) if found > *size => Err(Flaw::Damaged {
                file,
                how: format!("it has more bytes than the {size} in the manifest"),
            }),
            Some(_) => Ok(()),
        }
    }
}
