//! PEs of an MPI program that do not meet.
//!
//! An MPI library that finds no server makes a world of its own for each PE, and says nothing: `aprun -n 8` then runs the
//! same program eight times. aprun can't always tell which MPI a program will load, or what becomes of its environment. So
//! it is looked from time to time which PEs have loaded one:
//!
//! - One that has loaded Open MPI on a host that can't serve PMIx ends the application, with what is missing.
//! - The user is told once of a PE that has loaded any and has not begun with PMI-1 or PMIx: when it ends by itself, or
//!   when it has had the library for a while. (It may have had a reason not to call MPI_Init, and until then it may still call it.)

use super::pmi::Progress;
use super::{Action, Shepherd, after};
use crate::apteam::ending::Cause;
use crate::apteam::posting::Mpi;
use crate::apteam::protocol::notice::Seen;
use crate::variables::units::nanos;
use std::collections::BTreeMap;
use std::time::Duration;

/// When it is looked, since the PEs went: a library is loaded within milliseconds, or by an interpreter when it comes to
/// that.
const FIRST_LOOKS_MS: [u64; 7] = [4, 12, 25, 50, 100, 200, 500];
/// Then in each second, so often: programs of a script come one after the other, and each lasts for a while.
const SECOND_LOOKS: usize = 30;
/// Then in each minute, so often.
const MINUTE_LOOKS: usize = 10;
/// How long PEs have had a library without beginning with it when they are told of though they go on (at the next look);
/// and where they are ended, perhaps before they could.
const HAD_GOING: Duration = Duration::from_secs(30);
const HAD_ENDED: Duration = Duration::from_secs(5);
/// At how many PEs it is looked at once. The next look is at those behind them.
const PES_MAX: usize = 16;

#[derive(Clone, Debug, Default)]
pub(super) struct Unmet {
    /// It is looked at all, and how often it has been.
    looks: Option<usize>,
    pub look_at: Option<u64>,
    /// PMI-1 is served.
    pmi: bool,
    /// Why this host can't serve PMIx.
    pub no_pmix: Option<String>,
    /// What PEs have loaded, and since when that is known.
    loaded: BTreeMap<u32, (Mpi, u64)>,
    /// From which PE on it is looked next.
    next_rank: u32,
    told: bool,
}

/// When it is looked next, after so many looks, since the PEs went; `None`: no more.
fn since_they_went(looks: usize) -> Option<Duration> {
    if let Some(ms) = FIRST_LOOKS_MS.get(looks) {
        return Some(Duration::from_millis(*ms));
    }
    let seconds = looks - FIRST_LOOKS_MS.len() + 1;
    match seconds.saturating_sub(SECOND_LOOKS) {
        0 => Some(Duration::from_secs(seconds as u64)),
        minutes @ 1..=MINUTE_LOOKS => Some(Duration::from_secs(60 * minutes as u64)),
        _ => None,
    }
}

impl Shepherd {
    /// The PEs will be looked at. `pmi`: they are served PMI-1.
    pub(super) fn watch_for_mpi(&mut self, pmi: bool) {
        self.unmet.looks = Some(0);
        self.unmet.pmi = pmi;
    }

    /// This host can't serve PMIx, which the program may do without.
    pub(super) fn no_pmix(&mut self, why: String) {
        self.unmet.no_pmix = Some(why);
    }

    /// PEs wait at the port of PMI-1, which can't take them.
    pub(super) fn port_shut(&mut self, why: &str) {
        let Some(rank) = self.pes.keys().next().copied() else { return };
        let text = format!(
            "or another PE of its host waits in MPI_Init: the port of PMI can't take it ({why})"
        );
        self.notice(self.nid(rank), Seen::Pmi { rank, text });
    }

    pub(super) fn next_look_for_mpi(&mut self) {
        let Some(looks) = self.unmet.looks else { return };
        let since = since_they_went(looks);
        self.unmet.look_at = since.map(|since| after(self.went_at, since));
        self.unmet.looks = Some(looks + 1);
    }

    pub(super) fn look_for_mpi(&mut self) {
        let alone = |rank: &u32| self.met(*rank) == Progress::Outside;
        let (before, behind) =
            (self.pes.range(..self.unmet.next_rank), self.pes.range(self.unmet.next_rank..));
        let alive = behind.chain(before).filter(|(_, pe)| !pe.ended).map(|(rank, _)| *rank);
        let ranks: Vec<u32> = alive.filter(alone).take(PES_MAX).collect();
        if let Some(last) = ranks.last()
            && !self.ending
        {
            self.unmet.next_rank = last.saturating_add(1);
            self.actions.push(Action::LookForMpi(ranks));
        }
        self.next_look_for_mpi();
    }

    /// The user is told why this PE does not meet the others, if it does not.
    pub(super) fn unmet_is_told(&mut self, rank: u32) {
        self.unmet.told |= self.met(rank) == Progress::Outside;
    }

    /// How far a PE is with PMI-1 or PMIx.
    pub(super) fn met(&self, rank: u32) -> Progress {
        let pmi = self.pmi.as_ref().map_or(Progress::Outside, |pmi| pmi.progress(rank));
        let pmix = || self.pmix.as_ref().map_or(Progress::Outside, |pmix| pmix.progress(rank));
        // (A PE of both is a launcher of others, which each end as they like.)
        if pmi == Progress::Outside { pmix() } else { pmi }
    }

    pub(super) fn mpi_found(&mut self, now_ns: u64, loaded: BTreeMap<u32, Mpi>) {
        let open = loaded.iter().find(|(_, mpi)| **mpi == Mpi::OpenMpi).map(|(rank, _)| *rank);
        for (rank, mpi) in loaded {
            let known = self.unmet.loaded.entry(rank).or_insert((mpi, now_ns));
            // (A script's next program can have another one.)
            if known.0 != mpi {
                *known = (mpi, now_ns);
            }
            self.tell_unmet(now_ns, rank, HAD_GOING);
        }
        if let (Some(rank), Some(text)) = (open, self.unmet.no_pmix.clone()) {
            let text = format!("has loaded Open MPI (libmpi.so.40 or .20), and {text}");
            self.bad(now_ns, Cause::NotMet { rank, nid: self.nid(rank), text });
        }
    }

    /// A PE has ended; `by_itself`: by an exit, while nothing ended the application.
    pub(super) fn ended_unmet(&mut self, now_ns: u64, rank: u32, by_itself: bool) {
        self.tell_unmet(now_ns, rank, if by_itself { Duration::ZERO } else { HAD_ENDED });
    }

    /// Tells of a PE that has had a library for so long and not begun with it.
    fn tell_unmet(&mut self, now_ns: u64, rank: u32, for_at_least: Duration) {
        let Some((mpi, since)) = self.unmet.loaded.get(&rank) else { return };
        let long = now_ns.saturating_sub(*since) >= nanos(for_at_least);
        if self.unmet.told || !long || self.met(rank) != Progress::Outside {
            return;
        }
        let library = match mpi {
            Mpi::OpenMpi => "Open MPI (libmpi.so.40 or .20)",
            Mpi::Mpich | Mpi::None => "MPICH or a relative of it (libmpi.so.12 or libmpi_abi.so.0)",
        };
        let why = match &self.unmet.no_pmix {
            Some(why) if *mpi == Mpi::OpenMpi => why.clone(),
            None if *mpi == Mpi::OpenMpi && self.pmix.is_none() => {
                "PMIx is not served to it: give --pmi=all".to_owned()
            }
            _ if *mpi == Mpi::Mpich && !self.unmet.pmi => {
                "PMI-1 is not served to it: give --pmi=all".to_owned()
            }
            _ if *mpi == Mpi::Mpich => "does something between aprun and the program take away its environment (env -i) or \
                  its descriptors? A library that was built for PMIx alone may need --pmi=pmix -e MPIR_CVAR_PMI_VERSION=x"
                .to_owned(),
            _ => "does something between aprun and the program take away its environment (env -i) or its \
                  descriptors?"
                .to_owned(),
        };
        let text = format!(
            "had loaded {library} and never met the other PEs: if it called MPI_Init, it was a world of its own ({why})"
        );
        self.unmet.told = true;
        self.notice(self.nid(rank), Seen::Pmi { rank, text });
    }
}
