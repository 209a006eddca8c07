//! The launch, what the apinit says, and what goes there.

use super::output::Came;
use super::*;
use crate::apteam::launcher_variables::Rendezvous;
use crate::apteam::protocol::attach::Output;
use crate::apteam::protocol::programs::ProgramOf;
use crate::machine::nids_text;

/// Refusals of a launch before it is given up.
pub(super) const REFUSALS_MAX: u32 = 5;
/// Resumptions for output that has a hole, before what is missing is given up.
pub(super) const HOLES_MAX: u32 = 5;

impl Front {
    pub(super) fn launch(&mut self, now_ns: u64) {
        let Some(placement) = &self.placement else { return };
        let mut launch = Box::new(self.setup.launch.clone());
        if let Some(rendezvous) = &mut launch.rendezvous {
            *rendezvous = Rendezvous::of(placement.key.apid, &placement.hosts);
        }
        let (key, ticket) = (placement.key, placement.ticket);
        let first = ToApinit::Launch { key, ticket, launch };
        self.step = Step::Attaching;
        self.wait_say_at = Some(now_ns + SILENCE_NS);
        self.resuming = false;
        self.launch_again = false;
        self.attach(first);
    }

    pub(super) fn resume(&mut self) {
        let Some(placement) = &self.placement else { return };
        let first = ToApinit::Resume {
            key: placement.key,
            ticket: placement.ticket,
            taken: self.received.taken(),
        };
        self.resuming = true;
        self.attach(first);
    }

    pub(super) fn attach(&mut self, first: ToApinit) {
        self.apinit.retry_at = None;
        let head = self.placement.as_ref().and_then(|p| p.hosts.first());
        let Some((placement, head)) = self.placement.as_ref().zip(head) else { return };
        let at = head.reached_from(&placement.front_host);
        self.act(Action::Attach { at, first: Box::new(first) });
    }

    /// Says it if the apinit is there. What must not be lost is said again after a resumption.
    pub(super) fn send(&mut self, message: ToApinit) {
        if self.apinit.up {
            self.act(Action::Send(message));
        }
    }

    pub(super) fn apinit_down(&mut self, now_ns: u64, text: String, connected: bool) {
        if self.step < Step::Attaching || self.step == Step::Refused {
            return;
        }
        if self.done {
            // Nothing more is wanted of it, unless psched knows of no launch.
            self.apinit.up = false;
            if self.unlaunched {
                self.apinit.retry_at = Some(now_ns + RETRY_MAX_NS);
            }
            return;
        }
        // (A stream that says that it can't be had now is closed just after.)
        if self.apinit.retry_at.is_none() {
            let said = format!("the connection to apinit breaks each time ({text}); trying again");
            let breaks = self.apinit.breaks;
            self.apinit.down(now_ns, text, self.setup.spread);
            if breaks < BREAKS_SAID && self.apinit.breaks == BREAKS_SAID {
                self.tell(said);
            }
            self.head_is_away(connected);
        }
        // Whether the launch has come there is not known: a resumption tells.
        self.resuming |= connected;
    }

    pub(super) fn apinit_says(&mut self, now_ns: u64, message: FromApinit) {
        if self.step < Step::Attaching {
            return;
        }
        if !matches!(message, FromApinit::Refused { .. } | FromApinit::NotNow(_)) {
            self.quiet_since = now_ns;
        }
        match message {
            FromApinit::Accepted => self.accepted(now_ns),
            FromApinit::Going => {
                self.accepted(now_ns);
                self.step = Step::Going;
                self.wait_say_at = None;
                self.pass_on();
                self.read_stdin();
            }
            FromApinit::Refused { text, cause } => self.apinit_refused(now_ns, text, cause),
            FromApinit::NotNow(text) => self.not_now(now_ns, text),
            FromApinit::Output(output) => self.output_came(output),
            FromApinit::StdinCredit(credit) => {
                self.stdin.credit(credit);
                self.read_stdin();
            }
            FromApinit::SignalsTaken(number) => self.signals.retain(|s| s.number > number),
            FromApinit::Notice(notice) => self.notice(now_ns, notice),
            FromApinit::ProgramWanted(part) => self.hand(part),
            FromApinit::Done => self.done = true,
        }
    }

    /// Hosts want copies of a program, which this process has open.
    fn hand(&mut self, part: u32) {
        let Some(placement) = &self.placement else { return };
        let of = ProgramOf { key: placement.key, ticket: placement.ticket, part };
        if (part as usize) < self.setup.launch.parts() {
            self.act(Action::Hand(of));
        }
    }

    /// A piece of output. Those of a host come in order and without a gap, so that one after a hole
    /// is the sign of a fault, ours or an apinit's: taken as it is, it would have what lies before
    /// it count as written, and nobody would ever say that again.
    fn output_came(&mut self, output: Output) {
        let (source, offset) = (output.source, output.offset);
        match self.received.take(output.clone()) {
            Came::New(new) => {
                self.holes = 0;
                match new.report {
                    Some(report) => self.reported(&new, report),
                    None => self.act(Action::Write(new)),
                }
            }
            Came::Known => {}
            Came::Written(taken) => self.send(ToApinit::OutputTaken(taken)),
            Came::Hole(missing) => {
                let nids = self.nids_of(source);
                self.act(Action::Warn(format!(
                    "{missing} bytes of output before byte {offset} of {nids} did not come"
                )));
                if self.holes < HOLES_MAX {
                    // Once more from where it is known.
                    self.holes += 1;
                    self.apinit = Peer::default();
                    return self.resume();
                }
                // The rest is still worth having.
                self.incomplete = true;
                self.tell(format!(
                    "{}: {missing} bytes of output of its PEs on {nids} are lost",
                    self.named()
                ));
                self.received.give_up(source, offset);
                self.output_came(output);
            }
        }
    }

    /// The nodes of a host, in words.
    fn nids_of(&self, source: u32) -> String {
        let host = self.placement.as_ref().and_then(|p| p.hosts.get(source as usize));
        nids_text(host.iter().flat_map(|host| host.nids.iter().copied()))
    }

    pub(super) fn accepted(&mut self, now_ns: u64) {
        if self.apinit.up {
            return;
        }
        let said = self.apinit.answers(now_ns);
        if said || self.is_told_of_head() {
            self.tell_apinit_answers();
        }
        self.step = self.step.max(Step::Launched);
        self.unknown_there = false;
        if let Some(withdrawal) = self.withdrawal
            && self.step < Step::Going
        {
            let reason = FrontReason::Withdrawn { signal: withdrawal.signal };
            self.send(ToApinit::Terminate { reason, kill_after: KILL_AFTER });
        }
        if let Some(reason) = self.terminate {
            self.send(ToApinit::Terminate { reason, kill_after: KILL_AFTER });
        }
        // Written since the resumption was asked for.
        for taken in self.received.unreported() {
            self.send(ToApinit::OutputTaken(taken));
        }
        // What was in the hands of the one before may be lost.
        for signal in self.signals.clone() {
            self.send(ToApinit::Signal(signal));
        }
        for piece in self.stdin.again() {
            self.send(ToApinit::Stdin(piece));
        }
        if self.stdin_over {
            self.send(ToApinit::StdinEnd(self.stdin.length()));
        }
        if self.step == Step::Going {
            self.pass_on();
        }
        self.read_stdin();
    }

    /// The apinit may say another thing later. Of a launch it has not taken psched knows more: whether
    /// it still has its place, and where.
    fn not_now(&mut self, now_ns: u64, text: String) {
        let looks = self.step == Step::Attaching && !self.resuming;
        self.apinit_down(now_ns, text, true);
        self.head_is_away(false);
        if looks {
            self.resuming = false;
            self.apinit.retry_at = None;
            self.step = Step::Waiting;
            self.look_at = Some(now_ns + RETRY_MAX_NS);
        }
    }

    pub(super) fn apinit_refused(&mut self, now_ns: u64, text: String, cause: Option<Cause>) {
        self.apinit.up = false;
        self.head_is_away(false);
        // Its silence was taken for its death, and what had not been written was thrown away.
        // (Also where its word that it took the launch never came here.)
        self.given_up |= cause == Some(Cause::FrontGone);
        match (self.step, self.resuming, cause) {
            // The launch never came there.
            (Step::Attaching, true, None) => self.launch(now_ns),
            (Step::Attaching, _, Some(cause)) => {
                self.step = Step::Refused;
                let until = now_ns + DONE_PATIENCE_NS;
                self.refused = Some(Refused { text, status: cause.status(), until });
                self.apinit = Peer::default();
            }
            (Step::Attaching, false, None) => {
                self.refusals += 1;
                if self.refusals > REFUSALS_MAX {
                    let named = self.named();
                    return self.fail(&format!("{named} was not launched: {text}"));
                }
                // Its place may have been taken back: psched knows.
                self.step = Step::Waiting;
                self.apinit = Peer::default();
                self.look_at = Some(now_ns + u64::from(self.refusals) * 2 * RETRY_MIN_NS);
            }
            // It has forgotten the application, which has ended: nothing more comes. Whether all has
            // come it would have said.
            (_, true, _) if self.ended.is_some() => (self.done, self.given_up) = (true, true),
            // It was killed before its apshepherd had the launch, and knows only of the placement.
            (Step::Launched, true, None) if !self.done => {
                self.launch_again = true;
                self.apinit.down(now_ns, text, self.setup.spread);
            }
            (_, _, cause) => {
                self.unknown_there |= cause.is_none();
                self.apinit.down(now_ns, text, self.setup.spread);
                self.apinit.retry_at = Some(now_ns + RETRY_MAX_NS);
            }
        }
    }

    /// Reads on where there is credit. Not before the PEs go: what an apshepherd has of a launch that fails
    /// is lost with it, and the next launch is to have it.
    pub(super) fn read_stdin(&mut self) {
        let credit = self.stdin.room();
        let goes = self.step == Step::Going;
        if goes
            && credit > 0
            && !self.stdin_busy
            && !self.stdin_over
            && self.apinit.up
            && !self.done
        {
            self.stdin_busy = true;
            self.act(Action::ReadStdin(credit.min(STDIN_PIECE) as usize));
        }
    }

    pub(super) fn output_lost(&mut self, loss: Loss) {
        if self.output_status.is_some() {
            return;
        }
        let reason = match loss {
            Loss::StdoutClosed => {
                self.output_status = Some(STATUS_STDOUT_CLOSED);
                FrontReason::StdoutClosed
            }
            Loss::Failed(text) => {
                self.tell(format!("{text}; {} is ended", self.named()));
                self.output_status = Some(STATUS_FAILED);
                FrontReason::Gone
            }
        };
        if !self.done {
            self.send(ToApinit::Terminate { reason, kill_after: KILL_AFTER });
            self.terminate = Some(reason);
        }
    }
}
