//! What psched says, and looking.

use super::*;
use crate::aprun::decide::after_loss::lost;

impl Front {
    pub(super) fn psched_up(&mut self, pid: i32) {
        // That it answers is said when it does: one that has other records says no to all.
        (self.psched.up, self.psched.retry_at) = (true, None);
        if !self.psched_pids.contains(&pid) {
            const PIDS_MAX: usize = 8;
            if self.psched_pids.len() == PIDS_MAX {
                self.psched_pids.remove(0);
            }
            self.psched_pids.push(pid);
        }
        // Now it is known who sent what is kept. (Its own USR1 needs no look: the new stream
        // begins with the present state.)
        if self.step == Step::Going {
            self.pass_on();
        }
    }

    pub(super) fn psched_down(&mut self, now_ns: u64, text: String, absent: bool, answered: bool) {
        self.unlaunched = false;
        self.psched.up = false;
        if self.ended.is_some() {
            // The stream ends with the application.
            return;
        }
        // (It may have answered for a while, and taken its time.)
        let since = self.psched.down_since.unwrap_or(now_ns);
        let waited = now_ns >= since.saturating_add(self.setup.patience_ns());
        if self.first_try_at.is_some() && (absent || waited) {
            return self.fail(&text);
        }
        self.psched.down(now_ns, text, self.setup.spread);
        self.psched.answered = answered;
        if self.step == Step::Looking {
            self.step = Step::Waiting;
        }
        if let Some(withdrawal) = self.withdrawal
            && self.step < Step::Attaching
        {
            self.exit(by_signal(withdrawal.signal));
        }
    }

    pub(super) fn psched_refused(&mut self, now_ns: u64, text: String) {
        match self.apid {
            None => self.fail(&text),
            // What runs is not ended by the word of a psched that may have the wrong records: its
            // nodes know whether that one is to be obeyed.
            Some(_) if self.is_launched() && !self.done => {
                self.psched.down(now_ns, text, self.setup.spread);
                self.psched.answered = true;
            }
            Some(apid) => self.fail(&format!("application {apid}: its record is lost: {text}")),
        }
    }

    pub(super) fn event(&mut self, now_ns: u64, event: PschedEvent) {
        let answered = self.psched.answered;
        if self.psched.down_since.is_some() && self.psched.answers(now_ns) {
            match (answered, self.apid) {
                (false, _) => self.tell("psched answers again"),
                (true, None) => self.tell("psched accepts the posting now"),
                (true, Some(_)) => self.tell(format!("psched reports {} again", self.named())),
            }
        }
        match event {
            PschedEvent::Accepted(apid) => {
                self.first_try_at = None;
                if self.apid.is_none() {
                    self.apid = Some(apid);
                    self.step = Step::Waiting;
                    self.wait_say_at = Some(now_ns + SILENCE_NS);
                    // (-q of an aprun: what has become of the lost application was said before.)
                    match self.setup.restarts.filter(|_| !self.setup.quiet) {
                        None => {}
                        Some(from) if from == apid => {
                            self.tell(format!("application {apid} is posted again"));
                        }
                        Some(from) => {
                            self.tell(format!("application {from} is restarted as {apid}"));
                        }
                    }
                }
            }
            PschedEvent::Placed(incarnation) => match self.step {
                Step::Waiting => self.look(),
                Step::Looking => self.look_again = true,
                // The place that this launch was for has been taken back.
                Step::Opening | Step::Attaching
                    if self
                        .placement
                        .as_ref()
                        .is_some_and(|p| incarnation > p.key.incarnation.0) =>
                {
                    self.apinit = Peer::default();
                    self.look();
                }
                Step::Launched | Step::Going => {
                    self.unlaunched = true;
                    // The apinit has said that it has ended. Whether that can still be told to psched is
                    // its to say: its host may have been switched off since.
                    if self.done && !self.apinit.up && self.apinit.retry_at.is_none() {
                        self.resume();
                    }
                }
                _ => {}
            },
            PschedEvent::AskLaunch => {
                if let Some(apid) = self.apid.filter(|_| self.ended.is_none()) {
                    self.act(Action::Deposit(apid));
                }
            }
            // By a launch whose answer never came here: the look gives it back.
            PschedEvent::Launched if self.step == Step::Waiting => self.look(),
            PschedEvent::Launched => self.unlaunched = false,
            PschedEvent::Waiting(why) => self.waits(why),
            PschedEvent::Retried(retried) => self.launch_retried(now_ns, retried),
            PschedEvent::Ended(ended) => self.has_ended(now_ns, ended),
        }
    }

    pub(super) fn waits(&mut self, why: Explanation) {
        self.waiting = Some(why);
    }

    pub(super) fn has_ended(&mut self, now_ns: u64, mut ended: Box<Ended>) {
        if self.ended.is_none() {
            // (A restarted application has no launch of its own.)
            let Setup { launch, restarts, .. } = &self.setup;
            let no_copies = !launch.copies && restarts.is_none();
            let (host, no_copies) = match ended.end.first.as_ref().map(|first| &first.cause) {
                Some(Cause::LaunchFailed { nid, .. }) => (self.other_host_of(*nid), no_copies),
                _ => (lost(&ended).and_then(|(nid, _)| self.host_of(nid)), false),
            };
            ended.no_copy = host.is_some() && no_copies;
            ended.host = host.map(str::to_owned).unwrap_or_default();
            self.quiet_since = now_ns;
            self.ended = Some(ended);
        }
    }

    pub(super) fn look(&mut self) {
        self.look_at = None;
        self.look_again = false;
        match self.apid {
            Some(apid) if self.psched.up && self.withdrawal.is_none() => {
                self.step = Step::Looking;
                self.act(Action::Look(apid));
            }
            _ => self.step = Step::Waiting,
        }
    }

    pub(super) fn looked(&mut self, now_ns: u64, looked: Looked) {
        if let Looked::Ended(ended) = looked {
            return self.has_ended(now_ns, ended);
        }
        if self.step != Step::Looking {
            return;
        }
        self.step = Step::Waiting;
        match looked {
            // Withdrawn in the meantime: the place goes back with the posting.
            Looked::Placement(_) if self.withdrawal.is_some() => {}
            Looked::Placement(placement) if placement.hosts.is_empty() => {
                self.fail(
                    "psched's placement names no apinit: install psched and aprun of one release",
                );
            }
            Looked::Placement(placement)
                if let Err(text) = self.setup.launch.binding.fits(&placement.places) =>
            {
                self.fail(&text);
            }
            Looked::Placement(placement) => {
                self.placement = Some(placement.clone());
                if self.setup.files {
                    self.step = Step::Opening;
                    self.act(Action::OpenFiles(placement));
                } else {
                    self.launch(now_ns);
                }
            }
            Looked::Waiting(why) => {
                // Nobody is to be reached before there is another place.
                self.apinit = Peer::default();
                self.waits(why);
                if self.say_why {
                    self.say_what_is_waited_for();
                }
                if self.look_again {
                    self.look();
                }
            }
            Looked::Failed(text) => {
                if self.psched.up {
                    self.look_at = Some(now_ns + 2 * RETRY_MIN_NS);
                }
                self.waits(Explanation { obstacle: text, ..Explanation::default() });
            }
            Looked::Ended(_) => {}
        }
    }
}
