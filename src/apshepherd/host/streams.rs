//! The loop's dealings with what PEs read and write: output, stdin, PMI.

use super::*;

impl Shell {
    // ---- output ----

    pub(super) fn set_reading(&mut self, on: bool) {
        if self.reading == on {
            return;
        }
        self.reading = on;
        let done = match on {
            true => watch(&self.epoll, self.outputs.0.as_fd(), Token::Outputs, EpollFlags::EPOLLIN),
            false => self.epoll.delete(self.outputs.0.as_fd()),
        };
        if let Err(e) = done {
            self.log(format_args!("output can't be switched: {e}"));
        }
    }

    pub(super) fn outputs_ready(&mut self) {
        let mut events = [EpollEvent::empty(); EVENTS];
        let count = self.outputs.wait(&mut events, EpollTimeout::ZERO).unwrap_or(0);
        for event in &events[..count] {
            if !self.reading {
                break;
            }
            match Token::parse(event.data()) {
                Some(Token::Stdout(index)) => self.output_ready(index, false),
                Some(Token::Stderr(index)) => self.output_ready(index, true),
                _ => {}
            }
        }
    }

    /// Reads one piece, so that each PE has its turn.
    pub(super) fn output_ready(&mut self, index: usize, stderr: bool) {
        self.read_pipe(index, stderr, false);
        self.settle();
    }

    /// Reads one piece. `childless`: nothing more is waited for.
    pub(super) fn read_pipe(&mut self, index: usize, stderr: bool, childless: bool) {
        let Some(pe) = self.pes.all.get_mut(index) else { return };
        let rank = pe.rank;
        let pipe = &mut pe.output[usize::from(stderr)];
        if pipe.fd.is_none() {
            return;
        }
        match pipe.read(&mut self.buffer[..READ]) {
            Got::Some(count) => {
                let data = Bytes::copy_from_slice(&self.buffer[..count]);
                self.happened.push(Event::Output { rank, stderr, data });
            }
            Got::Nothing if !childless => {}
            // Without children what is left of writers is none of the application's: somebody whom
            // a PE has handed its stdout. He is not waited for.
            Got::Nothing | Got::End => {
                if let Some(fd) = pipe.fd.take() {
                    let _ = self.outputs.delete(fd);
                }
                self.happened.push(Event::OutputEof { rank, stderr });
            }
        }
    }

    // ---- stdin ----

    /// Writes what waits for PE 0's stdin, as far as the pipe takes it.
    pub(super) fn pour_stdin(&mut self) {
        let Some(pipe) = &self.stdin.pipe else {
            self.stdin.waiting.clear();
            return;
        };
        let mut written = 0;
        let mut lost = false;
        while let Some(first) = self.stdin.waiting.front_mut() {
            match write_some(pipe.as_fd(), first) {
                Ok(0) if !first.is_empty() => break,
                Ok(count) => {
                    first.advance(count);
                    written += count as u64;
                    if first.is_empty() {
                        self.stdin.waiting.pop_front();
                    }
                }
                Err(_) => {
                    lost = true;
                    break;
                }
            }
        }
        let full = !lost && !self.stdin.waiting.is_empty();
        if lost || self.stdin.closing && !full {
            if self.stdin.watched {
                let _ = self.epoll.delete(pipe);
            }
            self.stdin = Stdin::default();
        } else if full != self.stdin.watched {
            let done = match full {
                true => watch(&self.epoll, pipe.as_fd(), Token::Stdin, EpollFlags::EPOLLOUT),
                false => self.epoll.delete(pipe),
            };
            self.stdin.watched = full && done.is_ok();
        }
        if written > 0 {
            self.happened.push(Event::StdinWritten(written));
        }
        if lost {
            self.happened.push(Event::StdinClosed);
        }
    }

    // ---- PMI ----

    pub(super) fn pmi_ready(&mut self, index: usize, flags: EpollFlags) {
        if flags.contains(EpollFlags::EPOLLOUT) {
            self.answer(index);
        }
        self.read_pmi(index, TURNS);
        self.flush();
    }

    pub(super) fn read_pmi(&mut self, index: usize, turns: usize) {
        for _ in 0..turns {
            let Some(pe) = self.pes.all.get(index) else { return };
            // A PE that does not take its answers is not asked for more questions.
            let (rank, Some(fd), true) = (pe.rank, &pe.pmi, pe.answers.is_empty()) else { return };
            match read_some(fd.as_fd(), &mut self.buffer[..READ]) {
                Got::Some(count) => {
                    let data = Bytes::copy_from_slice(&self.buffer[..count]);
                    self.happens(Event::Pmi { rank, data });
                }
                Got::Nothing => return,
                Got::End => return self.close_pmi_of(index),
            }
        }
    }

    /// Sends what a PE is to be answered, as far as it takes it.
    pub(super) fn answer(&mut self, index: usize) {
        let Some(pe) = self.pes.all.get_mut(index) else { return };
        let Some(fd) = &pe.pmi else {
            pe.answers.clear();
            return;
        };
        while !pe.answers.is_empty() {
            let (part, _) = pe.answers.as_slices();
            match write_some(fd.as_fd(), part) {
                Ok(0) => break,
                Ok(count) => drop(pe.answers.drain(..count)),
                Err(_) => return self.close_pmi_of(index),
            }
        }
        let flags = match pe.answers.is_empty() {
            true => EpollFlags::EPOLLIN,
            false => EpollFlags::EPOLLOUT,
        };
        let mut event = EpollEvent::new(flags, Token::Pmi(index).number());
        let _ = self.epoll.modify(fd, &mut event);
    }

    pub(super) fn close_pmi_of(&mut self, index: usize) {
        if let Some(pe) = self.pes.all.get_mut(index) {
            pe.answers.clear();
            if let Some(fd) = pe.pmi.take() {
                let _ = self.epoll.delete(fd);
            }
        }
    }
}
