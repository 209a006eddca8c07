//! Logs in the Standard Workload Format of the Parallel Workloads Archive.
//!
//! A line a job, in order of submission: eighteen numbers between blanks, -1 where one is not known.
//! Lines that begin with a semicolon are remarks; those before the first job say in words like
//! `MaxProcs: 128` what machine it was.
//!
//! ```text
//!   field   1    2       3     4     5          6    7       8          9          10      11 ...
//!           job  submit  wait  run   allocated  cpu  memory  requested  estimate   memory  status
//! ```
//!
//! A log is read line by line: one of any length takes no more memory than a short one. A line that
//! is none is an error with its number, not a guess.
//!
//! ```
//! use psched_worlds::simulate::swf::Log;
//!
//! let text = "; MaxProcs: 128\n 1 0 -1 10 4 -1 -1 4 60 -1 1 7 -1 -1 -1 -1 -1 -1\n";
//! let mut log = Log::new(text.as_bytes()).unwrap();
//! assert_eq!(log.processors(), Some(128));
//! let record = log.next().unwrap().unwrap();
//! assert_eq!((record.job, record.run, record.requested, record.user), (1, 10, 4, 7));
//! ```

use std::io::{BufRead, Read};

/// Bytes of one line, at most.
const LINE_MAX: u64 = 4096;
/// When a job can be submitted at the latest, and how long it can run, in seconds: what is over would not fit
/// on a clock of nanoseconds.
const TIME_MAX: i64 = u32::MAX as i64;
/// Numbers on a line.
const FIELDS: usize = 18;

/// Why a log can't be read on.
#[derive(Debug, thiserror::Error)]
pub enum SwfError {
    /// A line that is none.
    #[error("line {line}: {what}")]
    Line {
        /// Counted from 1.
        line: u64,
        /// What is wrong with it, in words.
        what: String,
    },
    /// It can't be read to its end; of a compressed one: it is not whole.
    #[error("after line {line} it can't be read: {error}; is the file cut off or damaged?")]
    Read {
        /// The last that was read.
        line: u64,
        /// Of the system, or of the decompression.
        error: std::io::Error,
    },
}

/// A job as it was recorded: times in seconds, -1 where something is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// On which line of the log, from 1.
    pub line: u64,
    /// Its number.
    pub job: i64,
    /// When it was submitted, since the beginning of the log.
    pub submit: i64,
    /// How long it ran.
    pub run: i64,
    /// Processors that it got.
    pub allocated: i64,
    /// Processors that it asked for.
    pub requested: i64,
    /// How long its user said that it would run.
    pub estimate: i64,
    /// KB for each processor that it used.
    pub used: i64,
    /// KB for each processor that it asked for.
    pub memory: i64,
    /// Whose it was, as a number.
    pub user: i64,
}

/// A log, of which the remarks at its beginning have been read.
#[derive(Debug)]
pub struct Log<R> {
    from: R,
    line: u64,
    processors: Option<u32>,
    nodes: Option<u32>,
    /// Read already: the first job.
    first: Option<Record>,
    last_submit: i64,
    over: bool,
}

impl Record {
    /// That it has no submit time, as an error for a log from which nothing is to be left out.
    pub fn without_time(&self) -> SwfError {
        let what = format!(
            "job {} has no submit time ({}): correct the log, or give --bad skip",
            self.job, self.submit
        );
        SwfError::Line { line: self.line, what }
    }
}

impl<R: BufRead> Log<R> {
    /// Reads the remarks before the first job.
    ///
    /// # Errors
    /// Those of reading, and a line that is too long; a first job that is none.
    pub fn new(from: R) -> Result<Log<R>, SwfError> {
        let (processors, nodes, first, last_submit) = (None, None, None, i64::MIN);
        let mut log = Log { from, line: 0, processors, nodes, first, last_submit, over: false };
        while let Some(text) = log.read()? {
            match text.trim().strip_prefix(';') {
                Some(remark) => log.remark(remark),
                None if text.trim().is_empty() => {}
                None => {
                    log.first = Some(log.record(&text)?);
                    break;
                }
            }
        }
        Ok(log)
    }

    /// It has no job at all.
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Processors of the machine (MaxProcs, else MaxNodes), where the log says so.
    pub fn processors(&self) -> Option<u32> {
        self.processors.or(self.nodes)
    }

    fn remark(&mut self, remark: &str) {
        let Some((name, value)) = remark.split_once(':') else { return };
        let value = value.split_whitespace().next().and_then(|word| word.parse::<u64>().ok());
        // (Whoever makes a machine of it says what is too large.)
        let value = value.map(|number| u32::try_from(number).unwrap_or(u32::MAX));
        match name.trim() {
            "MaxProcs" if self.processors.is_none() => self.processors = value,
            "MaxNodes" if self.nodes.is_none() => self.nodes = value,
            _ => {}
        }
    }

    /// The next line; none at the end.
    fn read(&mut self) -> Result<Option<String>, SwfError> {
        let mut bytes = Vec::new();
        let read = (&mut self.from).take(LINE_MAX + 1).read_until(b'\n', &mut bytes);
        let read = read.map_err(|error| SwfError::Read { line: self.line, error })?;
        if read == 0 {
            return Ok(None);
        }
        self.line += 1;
        if bytes.len() as u64 > LINE_MAX {
            return Err(self.wrong(format!("it is longer than {LINE_MAX} bytes")));
        }
        // Names in remarks are in whatever their authors wrote them.
        Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
    }

    fn wrong(&self, what: String) -> SwfError {
        SwfError::Line { line: self.line, what }
    }

    fn record(&mut self, text: &str) -> Result<Record, SwfError> {
        let mut numbers = [0i64; FIELDS];
        let mut words = text.split_ascii_whitespace();
        for (at, number) in numbers.iter_mut().enumerate() {
            let Some(word) = words.next() else {
                return Err(self.wrong(format!("{at} of the {FIELDS} numbers of a job")));
            };
            // Some logs have fractions of seconds.
            *number = match (word.parse::<i64>(), word.parse::<f64>()) {
                (Ok(whole), _) => whole,
                (_, Ok(number)) if number.is_finite() && number.abs() < 9e15 => number as i64,
                _ => return Err(self.wrong(format!("field {}: {word:?} is no number", at + 1))),
            };
        }
        if words.next().is_some() {
            return Err(self.wrong(format!("more than the {FIELDS} numbers of a job")));
        }
        let [job, submit, _, run, allocated, _, used, requested, estimate, memory, _, user, ..] =
            numbers;
        for (field, time) in [(2, submit), (4, run)] {
            if time > TIME_MAX {
                let over = format!("field {field}: {time} s are over {TIME_MAX}, 136 years");
                return Err(self.wrong(over));
            }
        }
        // One without a time stands anywhere, as some logs of the archive have it.
        if (0..self.last_submit).contains(&submit) {
            let before = self.last_submit;
            return Err(self.wrong(format!(
                "job {job} was submitted at {submit}, the one before it at {before}: sort the log by \
                 its second field"
            )));
        }
        self.last_submit = submit.max(self.last_submit);
        let line = self.line;
        Ok(Record { line, job, submit, run, allocated, used, requested, estimate, memory, user })
    }
}

impl<R: BufRead> Iterator for Log<R> {
    type Item = Result<Record, SwfError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(first) = self.first.take() {
            return Some(Ok(first));
        }
        while !self.over {
            let text = match self.read() {
                Ok(Some(text)) => text,
                Ok(None) => break,
                Err(error) => {
                    self.over = true;
                    return Some(Err(error));
                }
            };
            if text.trim().is_empty() || text.trim_start().starts_with(';') {
                continue;
            }
            let record = self.record(&text);
            self.over = record.is_err();
            return Some(record);
        }
        self.over = true;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Result<Vec<Record>, String> {
        let log = Log::new(text.as_bytes()).map_err(|e| e.to_string())?;
        log.collect::<Result<_, _>>().map_err(|e| e.to_string())
    }

    fn line(job: u32, submit: i64) -> String {
        format!("{job} {submit} -1 10 4 -1 -1 4 60 512 1 7 -1 -1 -1 -1 -1 -1\n")
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        let head = "; Computer: X1 \u{e9}\n;\n\n; MaxNodes: 9\n";
        let ok = all(&format!("{head}{}; a remark\n\n{}", line(1, 5), line(2, 5)));
        let ok = ok.expect("two jobs");
        assert_eq!((ok.len(), ok[1].line, ok[1].memory), (2, 8, 512));
        let unsorted = all(&format!("{head}{}{}", line(1, 5), line(2, 4))).expect_err("unsorted");
        assert_eq!(
            unsorted,
            "line 6: job 2 was submitted at 4, the one before it at 5: sort the log by its second field"
        );
        let none = all(&format!("{}{}{}", line(1, 5), line(2, -1), line(3, 5))).expect("in order");
        assert_eq!(none.iter().map(|record| record.submit).collect::<Vec<_>>(), [5, -1, 5]);
        let far = all(&line(1, 4_294_967_296)).expect_err("far");
        assert_eq!(far, "line 1: field 2: 4294967296 s are over 4294967295, 136 years");
        let long = all(&line(1, 5).replace(" 10 ", " 9e18 ")).expect_err("no number");
        assert_eq!(long, "line 1: field 4: \"9e18\" is no number");
        assert!(all(&line(1, 5).replace(" 10 ", " 4294967296 ")).is_err());
        assert_eq!(all("1 2 3\n").expect_err("short"), "line 1: 3 of the 18 numbers of a job");
        let word = line(1, 5).replace("60", "soon");
        assert_eq!(all(&word).expect_err("no number"), "line 1: field 9: \"soon\" is no number");
        let long = format!("{} 19\n", line(1, 5).trim());
        assert_eq!(all(&long).expect_err("long"), "line 1: more than the 18 numbers of a job");
        let endless = "7".repeat(5000);
        assert_eq!(all(&endless).expect_err("endless"), "line 1: it is longer than 4096 bytes");
    }

    #[test]
    fn fractions_and_missing_heads_are_read() {
        let log = all(&line(1, 5).replace(" 10 ", " 10.75 ")).expect("read");
        assert_eq!(log[0].run, 10);
        assert_eq!(Log::new(&b""[..]).expect("empty").processors(), None);
        let nodes = Log::new("; MaxNodes: 9\n; MaxProcs: 36 (4 each)\n".as_bytes()).expect("read");
        assert_eq!(nodes.processors(), Some(36));
    }
}
