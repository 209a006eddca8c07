//! What aprun's driver needs of the world: one trait.

use crate::aprun::decide::closing::Ended;
use crate::aprun::decide::session::{Action, Ask, Event, Front, Placement, ReportRow};
use crate::apteam::Apid;
use crate::apteam::place::HostAddress;
use crate::apteam::protocol::attach::{Output, ToApinit};
use crate::apteam::protocol::programs::ProgramOf;
use crate::machine::Nid;

/// Where else the application is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Others {
    /// Where its apinits are reached but the first.
    pub hosts: Vec<HostAddress>,
    /// Some of its PEs are on other hosts than this one: these know a program by its digest.
    pub elsewhere: bool,
}

/// The world outside of the driver: connections, files and the terminal. aprun may be killed between
/// any two calls; only psched keeps records.
///
/// The events that a method returns are heard after the actions that are under way. Everything
/// else is passed to [`super::Driver`] later, with the number of the conversation if psched or an
/// apinit said it.
pub trait Outside {
    /// Nanoseconds since some moment; never fall.
    fn now_ns(&self) -> u64;

    /// For the log: this is heard now.
    fn hears(&mut self, event: &Event);

    /// For the log: this is done about it next.
    fn decides(&mut self, front: &Front, actions: &[Action]);

    /// Begins a conversation with psched, of this number, in place of the one before. `again`: psched
    /// may have the posting already.
    fn converse(&mut self, link: u32, ask: Ask, again: bool) -> Vec<Event>;

    /// Asks psched for the placement, in this conversation: [`Event::Looked`].
    fn look(&mut self, link: u32, apid: Apid) -> Vec<Event>;

    /// Asks it to send a signal to the application: [`Event::Killed`].
    fn kill(&mut self, link: u32, apid: Apid, signal: i32) -> Vec<Event>;

    /// Says to it what would be launched. No answer is waited for.
    fn deposit(&mut self, apid: Apid);

    /// Makes the files of --output and --error.
    ///
    /// # Errors
    /// In words, with the file's name.
    fn make_files(&mut self, placement: &Placement) -> Result<(), String>;

    /// Begins a conversation with this apinit, in place of the one before, with this
    /// message.
    fn attach(&mut self, link: u32, at: HostAddress, first: Box<ToApinit>, others: Others);

    /// Says this to the apinit. A conversation that has broken tells so itself.
    fn send(&mut self, message: ToApinit);

    /// Sends the bytes of this program to the apinit of this conversation. If that breaks, they are asked for again.
    fn hand(&mut self, link: u32, of: ProgramOf);

    /// The PEs run: what was held for their launch is let go.
    fn let_go(&mut self);

    /// Reads at most so many bytes from stdin.
    fn read_stdin(&mut self, most: usize) -> Vec<Event>;

    /// Writes a piece of output: [`Event::Written`], or that it is lost.
    fn write(&mut self, output: Output) -> Vec<Event>;

    /// A line for stderr, after all output that was to be written before.
    fn say(&mut self, line: String) -> Vec<Event>;

    /// Writes a line about a node to stderr, with the local time of `at_ns` (since the epoch).
    fn say_of_node(&mut self, nid: Nid, at_ns: u64, text: &str) -> Vec<Event>;

    /// For the log: something that should not be.
    fn warn(&mut self, text: String);

    /// Tells on stderr how each PE ended.
    fn report(&mut self, rows: Vec<ReportRow>) -> Vec<Event>;

    /// Tells on stderr how the application ended.
    fn close(&mut self, ended: Box<Ended>) -> Vec<Event>;
}
