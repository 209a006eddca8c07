//! One replay of a log: read, replayed, and summed up.

use super::progress::Progress;
use super::setting::{Policy, Setting, of_processors, processors};
use super::{Drawn, Told};
use crate::simulate::gang::{self, Stopped};
use crate::simulate::load::Offered;
use crate::simulate::series::Series;
use crate::simulate::summary::Summary;
use crate::simulate::swf::{Log, Record, SwfError};
use crate::simulate::workload::{Bad, Job, Rules};
use crate::simulate::{Capacity, Outcome, Watch, baseline, ideal};
use anyhow::{Context, bail};
use flate2::bufread::MultiGzDecoder;
use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

/// Bytes that are read at once.
const CHUNK: usize = 1 << 16;

/// What came of it.
pub struct Ran {
    /// In the order of the log.
    pub outcomes: Vec<Outcome>,
    capacity: Capacity,
    series: Option<Series>,
    processors: u32,
    nodes: usize,
    left_out: u64,
    /// Jobs without a submit time, which are among these, and the line of the first.
    pub without_time: Option<(u64, u64)>,
}

/// Replays this log like that; `over_time`: for a plot too.
pub fn replay(path: &Path, setting: &Setting, over_time: bool) -> anyhow::Result<Ran> {
    let scale = match setting.load {
        None => None,
        Some(target) => {
            // How busy the log keeps the machine is known at its end.
            let opened = Opened::new(path, setting)?;
            let (rules, mut offered) = (opened.rules, Offered::default());
            for record in opened.log {
                if let Some(job) = rules.job(&record?) {
                    offered.add(&job);
                }
            }
            let scale = offered.scale(rules.processors, target, rules.unit);
            Some(scale.context("all jobs are submitted at once: leave --load out")?)
        }
    };
    let Opened { log, rules, mut setup, read, size } = Opened::new(path, setting)?;
    let (mut left_out, mut without_time) = (0, None);
    let jobs = log.filter_map(|record: Result<Record, SwfError>| {
        let record = record.and_then(|record| {
            if record.submit < 0 {
                if setting.bad == Bad::Refuse {
                    return Err(record.without_time());
                }
                without_time.get_or_insert((0, record.line)).0 += 1;
            }
            Ok(record)
        });
        let job = record.map(|record| rules.job(&record)).transpose();
        left_out += u64::from(job.is_none());
        Some(job?.map(|job: Job| match scale {
            Some(scale) => scale.job(job),
            None => job,
        }))
    });
    let progress = Progress::new(setting.label(), read, size);
    let series = over_time.then(Series::default);
    let mut results = Results { outcomes: Vec::new(), series, progress };
    let capacity = match setting.policy {
        Policy::Gang => gang::replay(&setup, jobs, &mut results).map_err(|stopped| match stopped {
            Stopped::Jobs(error) => error.into(),
            Stopped::Refused { line, job, why } => anyhow::anyhow!(
                "line {line}: psched refuses job {job}: {why}; change the machine or the variables, or \
                 take the job out of the log"
            ),
        }),
        Policy::Fcfs => {
            baseline::replay(rules.processors, baseline::Policy::Fcfs, jobs, &mut results)
                .map_err(anyhow::Error::from)
        }
        Policy::Easy => {
            baseline::replay(rules.processors, baseline::Policy::Easy, jobs, &mut results)
                .map_err(anyhow::Error::from)
        }
        Policy::Ideal => {
            ideal::replay(rules.processors, jobs, &mut results).map_err(anyhow::Error::from)
        }
    }?;
    let Results { mut outcomes, series, .. } = results;
    if outcomes.is_empty() {
        bail!(
            "none of {left_out} jobs counts on {} processors: all are wider, did not run, or have no \
             estimate; give --procs, or --no-estimate runtime",
            rules.processors
        );
    }
    outcomes.sort_unstable_by_key(|outcome| outcome.job.line);
    let nodes = std::mem::take(&mut setup.machine).nodes.len();
    Ok(Ran {
        outcomes,
        capacity,
        series,
        processors: rules.processors,
        nodes,
        left_out,
        without_time,
    })
}

impl Ran {
    /// What is told of it: compared with EASY, where it is not that.
    pub fn told(self, path: &Path, setting: Setting) -> anyhow::Result<Told> {
        let Ran { outcomes, capacity, series, processors, nodes, left_out, .. } = self;
        let there: Option<Vec<Duration>> = match setting.policy {
            Policy::Easy => None,
            _ => {
                let easy = replay(path, &setting.under(Policy::Easy), false)?;
                Some(easy.outcomes.iter().map(Outcome::response).collect())
            }
        };
        let bound = setting.bound;
        let summary = Summary::of(&outcomes, processors, capacity, bound, there.as_deref());
        let drawn = series.map(|series| {
            let slowdown = |o: &Outcome| (series.day(o.job.submit), o.bounded_slowdown(bound));
            let slowdowns = outcomes.iter().map(slowdown).collect();
            Drawn { series, slowdowns }
        });
        Ok(Told { setting, nodes, left_out, summary, drawn })
    }
}

/// What is kept of a replay.
struct Results {
    outcomes: Vec<Outcome>,
    series: Option<Series>,
    progress: Option<Progress>,
}

impl Watch for Results {
    fn done(&mut self, outcome: Outcome) {
        self.outcomes.push(outcome);
    }

    fn at(&mut self, now: Duration, held: u32, waiting: usize) {
        if let Some(series) = &mut self.series {
            series.at(now, held, waiting);
        }
        if let Some(progress) = &mut self.progress {
            progress.at(now, waiting);
        }
    }
}

/// A log whose remarks have been read, and how it is taken.
struct Opened {
    log: Log<Box<dyn BufRead>>,
    rules: Rules,
    setup: crate::simulate::Setup,
    /// Bytes of the file that have been read.
    read: Rc<Cell<u64>>,
    /// Bytes of the file.
    size: u64,
}

impl Opened {
    fn new(path: &Path, setting: &Setting) -> anyhow::Result<Opened> {
        let file = File::open(path)?;
        let size = file.metadata()?.len();
        let read = Rc::new(Cell::new(0));
        let mut file = BufReader::with_capacity(CHUNK, Counted { file, read: Rc::clone(&read) });
        let compressed = file.fill_buf()?.starts_with(&[0x1f, 0x8b]);
        let from: Box<dyn BufRead> = match compressed {
            true => Box::new(BufReader::with_capacity(CHUNK, MultiGzDecoder::new(file))),
            false => Box::new(file),
        };
        let log = Log::new(from)?;
        if log.is_empty() {
            bail!("the log has no jobs");
        }
        let mut setup = setting.setup.clone();
        if setup.machine.nodes.is_empty() {
            let said = log.processors();
            let said = said.context("the log lacks MaxProcs; give --procs N or --nodes NxP")?;
            setup.machine = of_processors(said).map_err(anyhow::Error::msg)?;
        }
        let rules = Rules {
            processors: processors(&setup.machine),
            no_estimate: setting.no_estimate,
            overrun: setting.overrun,
            unit: setting.unit,
        };
        Ok(Opened { log, rules, setup, read, size })
    }
}

/// A file, and how much of it has been read.
struct Counted {
    file: File,
    read: Rc<Cell<u64>>,
}

impl Read for Counted {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let bytes = self.file.read(into)?;
        self.read.set(self.read.get() + bytes as u64);
        Ok(bytes)
    }
}
