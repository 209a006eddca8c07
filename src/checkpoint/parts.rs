//! The forms in which a manifest writes down what was posted and what is to be executed.
//!
//! Each is taken apart field by field in both directions: a field that is added to a posting or to a
//! launch and forgotten here does not compile.

use super::lines::Escaped;
use super::seal::{hex, unhex};
use crate::apteam::binding::{Binding, Lists};
use crate::apteam::choice::{Choice, Range};
use crate::apteam::launch::{FileIdentity, Launch, Limit, Part, ServePmix, Strace};
use crate::apteam::launcher_variables::Rendezvous;
use crate::apteam::layout::{Layout, Row};
use crate::apteam::oversubscribe::{Oversubscribe, Sharing};
use crate::apteam::posting::{Account, COMMAND_MAX, Executable, Mpi, Owner, Posting, cut};
use crate::apteam::saving::Saving;
use crate::apteam::shape::Shape;
use crate::machine::Nid;
use crate::variables::units::nanos;
use serde::{Deserialize, Serialize};
use std::time::Duration;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OwnerForm {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
    name: String,
    terminal: bool,
}

impl OwnerForm {
    pub fn of(owner: &Owner) -> OwnerForm {
        let Owner { uid, gid, groups, name, terminal } = owner.clone();
        OwnerForm { uid, gid, groups, name, terminal }
    }

    pub fn owner(self) -> Owner {
        let OwnerForm { uid, gid, groups, name, terminal } = self;
        Owner { uid, gid, groups, name, terminal }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PostingForm {
    request_id: String,
    width: u32,
    depth: u32,
    per_node: Option<u32>,
    /// Nodes, PEs on each and their depth.
    layout: Vec<[u32; 3]>,
    only_nids: Vec<[u32; 2]>,
    not_nids: Vec<[u32; 2]>,
    downwards: bool,
    flexible: bool,
    exclusive: bool,
    immediate: bool,
    memory_per_pe: Option<u64>,
    cpu_limit_ns: Option<u64>,
    time_limit_ns: Option<u64>,
    account: Option<String>,
    /// How it saves itself, as it was said.
    saving: Option<SavingForm>,
    /// (A psched of a release before does not take the field: it is there only where it says something.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    oversubscribe: Option<SharingForm>,
    command: String,
    executable: String,
    machine: u16,
    interpreter: String,
    script: bool,
    mpi: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
enum SavingForm {
    Signal(i32),
    Command(String),
}

impl SavingForm {
    fn of(saving: Saving) -> SavingForm {
        match saving {
            Saving::Signal(number) => SavingForm::Signal(number),
            Saving::Command(command) => SavingForm::Command(command),
        }
    }

    fn saving(self) -> Result<Saving, String> {
        match self {
            SavingForm::Signal(number) => Saving::by_signal(number),
            SavingForm::Command(command) => Saving::by_command(&command),
        }
    }
}

fn mpi_name(mpi: Mpi) -> &'static str {
    match mpi {
        Mpi::None => "none",
        Mpi::Mpich => "mpich",
        Mpi::OpenMpi => "openmpi",
    }
}

fn mpi_of(name: &str) -> Result<Mpi, String> {
    let all = [Mpi::None, Mpi::Mpich, Mpi::OpenMpi];
    let found = all.into_iter().find(|mpi| mpi_name(*mpi) == name);
    found.ok_or_else(|| format!("{name:?} is not an MPI"))
}

/// The processors that PEs share; 0: it is not decided how many, or on how many of a node.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SharingForm {
    processors: u32,
    per_node: u32,
}

impl SharingForm {
    fn of(oversubscribe: Oversubscribe) -> Option<SharingForm> {
        match oversubscribe {
            Oversubscribe::No => None,
            Oversubscribe::Allowed => Some(SharingForm { processors: 0, per_node: 0 }),
            Oversubscribe::Shares(Sharing { processors, per_node }) => {
                Some(SharingForm { processors, per_node: per_node.unwrap_or(0) })
            }
        }
    }

    fn oversubscribe(form: Option<SharingForm>) -> Oversubscribe {
        match form {
            None => Oversubscribe::No,
            Some(SharingForm { processors: 0, .. }) => Oversubscribe::Allowed,
            Some(SharingForm { processors, per_node }) => {
                let per_node = Some(per_node).filter(|count| *count > 0);
                Oversubscribe::Shares(Sharing { processors, per_node })
            }
        }
    }
}

impl PostingForm {
    pub fn of(posting: &Posting) -> PostingForm {
        let Posting {
            request_id,
            shape,
            memory_per_pe,
            command,
            cpu_limit,
            time_limit,
            immediate,
            // (It is the front end's, and cpr says it anew.)
            tries_again: _,
            brings_images: _,
            exclusive,
            account,
            choice,
            flexible,
            layout,
            oversubscribe,
            saving,
            executable,
        } = posting.clone();
        let Shape { width, depth, per_node } = shape;
        let Executable { path, machine, interpreter, script, mpi } = executable;
        let (only, not, downwards) = choice.parts();
        let ranges = |list: Vec<Range>| list.into_iter().map(|(a, b)| [a.0, b.0]).collect();
        PostingForm {
            request_id: hex(&request_id),
            width,
            depth,
            per_node,
            layout: layout.rows().iter().map(|row| [row.nodes, row.pes, row.depth]).collect(),
            only_nids: ranges(only),
            not_nids: ranges(not),
            downwards,
            flexible,
            exclusive,
            immediate,
            memory_per_pe,
            cpu_limit_ns: cpu_limit.map(nanos),
            time_limit_ns: time_limit.map(nanos),
            account: account.map(|account| account.as_str().to_owned()),
            saving: saving.map(SavingForm::of),
            oversubscribe: SharingForm::of(oversubscribe),
            command,
            executable: path,
            machine,
            interpreter,
            script,
            mpi: mpi_name(mpi).into(),
        }
    }

    pub fn posting(self) -> Result<Posting, String> {
        let ranges =
            |list: Vec<[u32; 2]>| list.into_iter().map(|[a, b]| (Nid(a), Nid(b))).collect();
        let row = |[nodes, pes, depth]: [u32; 3]| Row { nodes, pes, depth };
        Ok(Posting {
            request_id: unhex(&self.request_id).ok_or("the number of the request is malformed")?,
            shape: Shape { width: self.width, depth: self.depth, per_node: self.per_node },
            memory_per_pe: self.memory_per_pe,
            command: cut(self.command, COMMAND_MAX),
            cpu_limit: self.cpu_limit_ns.map(Duration::from_nanos),
            time_limit: self.time_limit_ns.map(Duration::from_nanos),
            immediate: self.immediate,
            tries_again: false,
            brings_images: false,
            exclusive: self.exclusive,
            account: self.account.as_deref().map(Account::parse).transpose()?,
            saving: self.saving.map(SavingForm::saving).transpose()?,
            oversubscribe: SharingForm::oversubscribe(self.oversubscribe),
            choice: Choice::new(ranges(self.only_nids), ranges(self.not_nids), self.downwards)?,
            flexible: self.flexible,
            layout: Layout::new(self.layout.into_iter().map(row).collect())?,
            executable: Executable {
                path: self.executable,
                machine: self.machine,
                interpreter: self.interpreter,
                script: self.script,
                mpi: mpi_of(&self.mpi)?,
            },
        })
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct IdentityForm {
    device: u64,
    inode: u64,
    size: u64,
    mtime_ns: i64,
}

impl IdentityForm {
    fn of(identity: FileIdentity) -> IdentityForm {
        // (What is restored is not executed again.)
        let FileIdentity { device, inode, size, mtime_ns, digest: _ } = identity;
        IdentityForm { device, inode, size, mtime_ns }
    }

    fn identity(self) -> FileIdentity {
        let IdentityForm { device, inode, size, mtime_ns } = self;
        FileIdentity { device, inode, size, mtime_ns, digest: None }
    }
}

/// One program of a launch.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PartForm {
    first: u32,
    executable: Escaped,
    arguments: Vec<Escaped>,
    identity: Option<IdentityForm>,
}

impl PartForm {
    fn of(part: &Part) -> PartForm {
        let Part { first, executable, arguments, identity } = part;
        PartForm {
            first: *first,
            executable: Escaped::of(executable),
            arguments: escaped(arguments),
            identity: identity.map(IdentityForm::of),
        }
    }

    fn part(self) -> Result<Part, String> {
        Ok(Part {
            first: self.first,
            executable: self.executable.bytes()?,
            arguments: bytes(&self.arguments)?,
            identity: self.identity.map(IdentityForm::identity),
        })
    }
}

fn escaped(list: &[Vec<u8>]) -> Vec<Escaped> {
    list.iter().map(|item| Escaped::of(item)).collect()
}

fn bytes(list: &[Escaped]) -> Result<Vec<Vec<u8>>, String> {
    list.iter().map(Escaped::bytes).collect()
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LaunchForm {
    directory: Escaped,
    umask: u32,
    environment: Vec<Escaped>,
    /// Numbers of limits, and the soft ones.
    limits: Vec<(u32, u64)>,
    binding: String,
    /// Of a binding by lists: first and last numbers.
    lists: Vec<Vec<[u32; 2]>>,
    pmi: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pmi_port: bool,
    whole_lines: bool,
    report: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    strace: Option<Vec<Escaped>>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    stacks: bool,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pmix: String,
    /// PEs get no variables of other launchers.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    no_variables: bool,
    /// The first begins with PE 0.
    programs: Vec<PartForm>,
}

impl LaunchForm {
    pub fn of(launch: &Launch) -> LaunchForm {
        let Launch { executable, arguments, environment, directory, umask, .. } = launch;
        let Launch {
            limits,
            binding,
            pmi,
            pmi_port,
            pmix,
            whole_lines,
            report,
            strace,
            stacks,
            rendezvous,
            identity,
            more,
            ..
        } = launch;
        let lists = match binding {
            Binding::Lists(lists) => lists.ranges(),
            _ => &[],
        };
        let first = PartForm {
            first: 0,
            executable: Escaped::of(executable),
            arguments: escaped(arguments),
            identity: identity.map(IdentityForm::of),
        };
        LaunchForm {
            directory: Escaped::of(directory),
            umask: *umask,
            environment: escaped(environment),
            limits: limits.iter().map(|limit| (limit.resource, limit.soft)).collect(),
            binding: binding_name(binding).into(),
            lists: lists.iter().map(|l| l.iter().map(|(a, b)| [*a, *b]).collect()).collect(),
            pmi: *pmi,
            pmi_port: *pmi_port,
            whole_lines: *whole_lines,
            report: *report,
            strace: strace.as_ref().map(|strace| escaped(&strace.options)),
            stacks: *stacks,
            pmix: pmix_name(*pmix).into(),
            no_variables: rendezvous.is_none(),
            programs: std::iter::once(first).chain(more.iter().map(PartForm::of)).collect(),
        }
    }

    pub fn launch(self) -> Result<Launch, String> {
        let lists = |lists: Vec<Vec<[u32; 2]>>| {
            let list = |l: Vec<[u32; 2]>| l.into_iter().map(|[a, b]| (a, b)).collect();
            Lists::new(lists.into_iter().map(list).collect())
        };
        let binding = match &self.binding[..] {
            "lists" => Binding::Lists(lists(self.lists)?),
            name => {
                let all = [
                    Binding::Usual,
                    Binding::Cpu,
                    Binding::Depth,
                    Binding::NumaNode,
                    Binding::None,
                ];
                let found = all.into_iter().find(|binding| binding_name(binding) == name);
                found.ok_or_else(|| format!("{name:?} is not a binding"))?
            }
        };
        let mut programs = self.programs.into_iter().map(PartForm::part);
        let first = programs.next().ok_or("a launch has no program")??;
        let limit = |(resource, soft)| Limit { resource, soft };
        Ok(Launch {
            executable: first.executable,
            arguments: first.arguments,
            environment: bytes(&self.environment)?,
            directory: self.directory.bytes()?,
            umask: self.umask,
            limits: self.limits.into_iter().map(limit).collect(),
            binding,
            pmi: self.pmi,
            pmi_port: self.pmi_port,
            pmix: {
                let all = [ServePmix::No, ServePmix::Offered, ServePmix::Needed];
                let found = all.into_iter().find(|pmix| pmix_name(*pmix) == self.pmix);
                found.ok_or_else(|| format!("{:?} is no way to serve PMIx", self.pmix))?
            },
            whole_lines: self.whole_lines,
            report: self.report,
            stacks: self.stacks,
            // (Where they meet is known when they have a place.)
            rendezvous: (!self.no_variables).then(Rendezvous::default),
            // (It is restored on the hosts that have it.)
            copies: false,
            instead: Vec::new(),
            // (What runs knows it.)
            shares: false,
            strace: match self.strace {
                Some(options) => Some(Strace { options: bytes(&options)? }),
                None => None,
            },
            identity: first.identity,
            more: programs.collect::<Result<_, _>>()?,
        })
    }
}

fn pmix_name(pmix: ServePmix) -> &'static str {
    match pmix {
        ServePmix::No => "",
        ServePmix::Offered => "offered",
        ServePmix::Needed => "needed",
    }
}

fn binding_name(binding: &Binding) -> &'static str {
    match binding {
        Binding::Usual => "usual",
        Binding::Cpu => "cpu",
        Binding::Depth => "depth",
        Binding::NumaNode => "numa_node",
        Binding::None => "none",
        Binding::Lists(_) => "lists",
    }
}
