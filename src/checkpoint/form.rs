//! The manifest as text.

use super::lines::text;
use super::parts::{LaunchForm, OwnerForm, PostingForm};
use super::seal::{hex, unhex};
use super::{
    BackEnd, Checksum, Flaw, HostImages, Image, Kind, MANIFEST_MAX, Made, Manifest, Recovery,
    SealKey, VERSION,
};
use crate::apteam::place::{Place, PlacementList};
use crate::apteam::{Apid, Incarnation};
use crate::machine::Nid;
use crate::variables::units::nanos;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What a draft begins with; its seal, a line's end and its text follow.
const DRAFT: &str = "psched draft ";

/// What every version begins with, whatever follows.
#[derive(Deserialize)]
struct Version {
    version: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Form {
    version: u64,
    kind: String,
    back_end: Option<BackEndForm>,
    made: MadeForm,
    application: ApplicationForm,
    owner: OwnerForm,
    posting: PostingForm,
    places: Vec<PlaceForm>,
    hosts: Vec<HostForm>,
    launch: Option<LaunchForm>,
    files: Vec<ImageForm>,
    /// Over the text in which this and the next are empty.
    seal: String,
    /// Over the text in which this is empty.
    sha256: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BackEndForm {
    name: String,
    version: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MadeForm {
    at_ns: u64,
    host: String,
    boot: String,
    store: String,
    psched: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ApplicationForm {
    apid: u64,
    incarnation: u32,
    domain: String,
    posted_at_ns: u64,
    running_at_ns: u64,
    run_ns: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PlaceForm {
    nid: u32,
    pes: u32,
    processors: Vec<u32>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct HostForm {
    folder: String,
    host_id: String,
    nids: Vec<u32>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ImageForm {
    name: String,
    size: u64,
    sha256: String,
}

impl ImageForm {
    pub fn of(Image { name, size, sum }: &Image) -> ImageForm {
        ImageForm { name: name.clone(), size: *size, sha256: sum.to_string() }
    }

    pub fn image(self) -> Result<Image, String> {
        let ImageForm { name, size, sha256 } = self;
        let sum = Checksum::parse(&sha256);
        let sum = sum.ok_or_else(|| format!("the checksum of {name} is malformed"))?;
        Ok(Image { name, size, sum })
    }
}

impl Form {
    fn of(manifest: &Manifest) -> Form {
        let Manifest { made, kind, recovery, launch, files } = manifest;
        let Made { at_ns, host, boot, store, psched } = made.clone();
        let Recovery { apid, incarnation, owner, posting, domain, .. } = recovery;
        let Recovery { posted_at_ns, running_at_ns, run, .. } = recovery;
        let (back_end, places, hosts) = match kind {
            Kind::Waiting => (None, &[][..], &[][..]),
            Kind::Running { back_end, places, hosts } => {
                let version = match back_end {
                    BackEnd::Criu { version } => version.clone(),
                    BackEnd::Application => String::new(),
                };
                let name = back_end.name().to_owned();
                (Some(BackEndForm { name, version }), &places.0[..], &hosts[..])
            }
        };
        let place = |Place { nid, processors, pes }: &Place| PlaceForm {
            nid: nid.0,
            pes: *pes,
            processors: processors.clone(),
        };
        let part = |HostImages { folder, host_id, nids }: &HostImages| HostForm {
            folder: folder.clone(),
            host_id: host_id.clone(),
            nids: nids.iter().map(|nid| nid.0).collect(),
        };
        Form {
            version: VERSION,
            kind: kind.name().into(),
            back_end,
            made: MadeForm { at_ns, host, boot, store, psched },
            application: ApplicationForm {
                apid: apid.0,
                incarnation: incarnation.0,
                domain: domain.clone(),
                posted_at_ns: *posted_at_ns,
                running_at_ns: *running_at_ns,
                run_ns: nanos(*run),
            },
            owner: OwnerForm::of(owner),
            posting: PostingForm::of(posting),
            places: places.iter().map(place).collect(),
            hosts: hosts.iter().map(part).collect(),
            launch: launch.as_ref().map(LaunchForm::of),
            files: files.iter().map(ImageForm::of).collect(),
            seal: String::new(),
            sha256: String::new(),
        }
    }

    fn manifest(self) -> Result<Manifest, String> {
        let place = |PlaceForm { nid, pes, processors }| Place { nid: Nid(nid), processors, pes };
        let places = PlacementList(self.places.into_iter().map(place).collect());
        let part = |HostForm { folder, host_id, nids }| {
            let nids = Vec::into_iter(nids).map(Nid).collect();
            HostImages { folder, host_id, nids }
        };
        let hosts: Vec<HostImages> = self.hosts.into_iter().map(part).collect();
        let back_end = |BackEndForm { name, version }| match &name[..] {
            "criu" => Ok(BackEnd::Criu { version }),
            "application" if version.is_empty() => Ok(BackEnd::Application),
            _ => Err(format!("there is no back end {name} {version}")),
        };
        let kind = match (&self.kind[..], self.back_end) {
            ("running", Some(form)) => Kind::Running { back_end: back_end(form)?, places, hosts },
            ("waiting", None) if places.0.is_empty() && hosts.is_empty() => Kind::Waiting,
            (kind, _) => return Err(format!("it has the unknown kind {kind}")),
        };
        let MadeForm { at_ns, host, boot, store, psched } = self.made;
        let ApplicationForm { apid, incarnation, domain, posted_at_ns, running_at_ns, run_ns } =
            self.application;
        Ok(Manifest {
            made: Made { at_ns, host, boot, store, psched },
            kind,
            recovery: Recovery {
                apid: Apid(apid),
                incarnation: Incarnation(incarnation),
                owner: self.owner.owner(),
                posting: self.posting.posting()?,
                domain,
                posted_at_ns,
                running_at_ns,
                run: Duration::from_nanos(run_ns),
            },
            launch: self.launch.map(LaunchForm::launch).transpose()?,
            files: self.files.into_iter().map(ImageForm::image).collect::<Result<_, String>>()?,
        })
    }
}

impl Manifest {
    /// Its text, sealed.
    ///
    /// # Errors
    /// It would not be read: too long, or it says what can't be.
    pub fn seal(&self, key: &SealKey) -> Result<String, Flaw> {
        self.check().map_err(Flaw::Unfit)?;
        let mut form = Form::of(self);
        form.seal = hex(&key.seal(&text(&form)));
        form.sha256 = Checksum::of(text(&form).as_bytes()).to_string();
        let text = text(&form);
        match text.len() <= MANIFEST_MAX {
            true => Ok(text),
            false => Err(Flaw::Unfit(format!("has a manifest of at most {MANIFEST_MAX} bytes"))),
        }
    }

    /// From its text. Without the key whoever wrote it is not known.
    ///
    /// # Errors
    /// It is of another version, damaged or foreign.
    pub fn read(bytes: &[u8], key: Option<&SealKey>) -> Result<Manifest, Flaw> {
        if bytes.len() > MANIFEST_MAX {
            return Err(Flaw::manifest(format!("it is longer than {MANIFEST_MAX} bytes")));
        }
        let broken = |e: serde_json::Error| Flaw::manifest(format!("it can't be read: {e}"));
        let Version { version } = serde_json::from_slice(bytes).map_err(broken)?;
        if version > VERSION {
            return Err(Flaw::Newer { version });
        }
        let mut form: Form = serde_json::from_slice(bytes).map_err(broken)?;
        let other = || Flaw::manifest("its checksum is wrong");
        if text(&form).as_bytes() != bytes || version != VERSION {
            return Err(other());
        }
        let sum = std::mem::take(&mut form.sha256);
        if Checksum::parse(&sum) != Some(Checksum::of(text(&form).as_bytes())) {
            return Err(other());
        }
        let seal = std::mem::take(&mut form.seal);
        if let Some(key) = key {
            let seal = unhex(&seal).ok_or(Flaw::Foreign)?;
            if !key.sealed(&text(&form), &seal) {
                return Err(Flaw::Foreign);
            }
        }
        let manifest = form.manifest().map_err(Flaw::manifest)?;
        let wrong = |what| Flaw::manifest(format!("a checkpoint {what}"));
        manifest.check().map_err(wrong)?;
        Ok(manifest)
    }

    /// What psched says of an application that is to be checkpointed, for the apinit that does it: what the
    /// checkpoint's manifest will say, but for images and back end. It is no manifest, and the seal of one is
    /// not the other's.
    pub fn draft(&self, key: &SealKey) -> String {
        key.stamp(DRAFT, &text(&Form::of(self)))
    }

    /// From the text of a draft.
    ///
    /// # Errors
    /// psched, which has this key, did not say that.
    pub fn read_draft(bytes: &[u8], key: &SealKey) -> Result<Manifest, Flaw> {
        let text = key.stamped(DRAFT, bytes)?;
        let broken = |e: serde_json::Error| Flaw::manifest(format!("it can't be read: {e}"));
        let form: Form = serde_json::from_str(text).map_err(broken)?;
        form.manifest().map_err(Flaw::manifest)
    }
}
