//! Pages in a terminal that are brought up to date and that keys scroll: `apstat -w`, `psview -w`.
//!
//! The terminal is put back at any end: q, ^C, a signal, an error, a panic. If it was closed, the
//! command ends as by HUP. While psched is away the last answer stays, with a line that says so.

use crate::os::dispositions::end_by;
use nix::sys::signal::Signal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::style::Stylize;
use ratatui::text::{Line, Text};
use ratatui::widgets::Paragraph;
use ratatui::{DefaultTerminal, Frame};
use std::io;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// How often the reader of keys looks whether its keys are still wanted.
const KEYS: Duration = Duration::from_millis(200);

/// What a command shows in a terminal.
pub trait Screen {
    /// What it shows anew.
    type Answer;

    /// Takes psched's answer, or the reason why there is none.
    fn hear(&mut self, answer: Result<Self::Answer, String>);

    /// The whole page, in lines of at most this many letters.
    fn lines(&self, width: usize) -> Vec<Line<'static>>;

    /// Handles a key of this screen; `true`: another page is shown, from its first line on.
    fn key(&mut self, key: KeyCode) -> bool;

    /// The keys of this screen, in a few words.
    fn keys(&self) -> String;
}

/// The latest answer, and why there has been none since.
pub struct Latest<T> {
    /// The answer, and when it came.
    answer: Option<(T, Instant)>,
    away: Option<String>,
}

impl<T> Default for Latest<T> {
    fn default() -> Latest<T> {
        Latest { answer: None, away: None }
    }
}

impl<T> Latest<T> {
    /// Takes an answer.
    pub fn hear(&mut self, answer: Result<T, String>) {
        match answer {
            Ok(answer) => (self.answer, self.away) = (Some((answer, Instant::now())), None),
            Err(why) => self.away = Some(why),
        }
    }

    /// The answer.
    pub fn answer(&self) -> Option<&T> {
        self.answer.as_ref().map(|(answer, _)| answer)
    }

    /// A sentence on psched's absence.
    pub fn away(&self) -> Option<String> {
        let why = self.away.as_ref()?;
        let since = self.answer.as_ref().map(|(_, at)| at.elapsed().as_secs());
        Some(match since {
            Some(s) => format!("psched does not answer ({why}); below is the state of {s} s ago"),
            None => format!("psched does not answer ({why}); trying again each second"),
        })
    }
}

/// Shows a screen until the user leaves. Answers come from a task that asks psched.
///
/// # Errors
/// The terminal can't be used, or does not take what is written.
pub async fn live<S: Screen>(
    screen: S,
    answers: mpsc::Receiver<Result<S::Answer, String>>,
) -> Result<(), String> {
    let failed = |e: io::Error| format!("can't use the terminal: {e}");
    // Before the terminal is changed: none of them may end the command without putting it back.
    let mut ends = [SignalKind::hangup(), SignalKind::interrupt(), SignalKind::terminate()]
        .map(signal)
        .into_iter()
        .collect::<Result<Vec<_>, _>>()
        .map_err(failed)?;
    let mut terminal = ratatui::try_init().map_err(failed)?;
    let [hangup, interrupt, terminate] = &mut ends[..] else {
        return Err("there are three signals".into());
    };
    let end = tokio::select! {
        end = watch(&mut terminal, View::new(screen), answers) => end.map_err(failed),
        _ = hangup.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
        _ = terminate.recv() => Ok(()),
    };
    if is_gone() {
        // There is nothing to put back, and nobody to tell: ratatui would try, and panic.
        let _stays = std::mem::ManuallyDrop::new(terminal);
        end_by(Signal::SIGHUP);
    }
    let back = ratatui::try_restore().map_err(failed);
    end.and(back)
}

/// Whether the terminal was closed at its other side.
fn is_gone() -> bool {
    rustix::termios::tcgetattr(io::stdout()).is_err_and(|error| error == rustix::io::Errno::IO)
}

async fn watch<S: Screen>(
    terminal: &mut DefaultTerminal,
    mut view: View<S>,
    mut answers: mpsc::Receiver<Result<S::Answer, String>>,
) -> io::Result<()> {
    let mut keys = keys();
    loop {
        terminal.draw(|frame| view.draw(frame))?;
        tokio::select! {
            Some(answer) = answers.recv() => view.screen.hear(answer),
            event = keys.recv() => match event {
                Some(Ok(Event::Key(key))) => {
                    if view.key(key) {
                        return Ok(());
                    }
                }
                // Another size: it is drawn anew.
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error),
                None => return Ok(()),
            },
        }
    }
}

/// Keys and other sizes as they come, read by a thread of their own, which may wait.
fn keys() -> mpsc::Receiver<io::Result<Event>> {
    let (events, heard) = mpsc::channel(16);
    std::thread::spawn(move || {
        loop {
            let event = match event::poll(KEYS) {
                Ok(true) => event::read(),
                Ok(false) if events.is_closed() => return,
                Ok(false) => continue,
                Err(error) => Err(error),
            };
            let failed = event.is_err();
            if events.blocking_send(event).is_err() || failed {
                return;
            }
        }
    });
    heard
}

/// The part of a screen's page that the terminal shows.
pub struct View<S> {
    /// What is shown.
    pub screen: S,
    /// Lines above the terminal's first.
    above: u16,
    /// Rows of the terminal, without the line of keys.
    rows: u16,
}

impl<S: Screen> View<S> {
    /// Shows a screen from its first line on.
    pub fn new(screen: S) -> View<S> {
        View { screen, above: 0, rows: 0 }
    }

    /// Handles a key; `true`: the user leaves.
    pub fn key(&mut self, key: KeyEvent) -> bool {
        if key.kind == KeyEventKind::Release {
            return false;
        }
        let page = self.rows.saturating_sub(1).max(1);
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return true,
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return true,
            KeyCode::Down | KeyCode::Char('j') => self.above = self.above.saturating_add(1),
            KeyCode::Up | KeyCode::Char('k') => self.above = self.above.saturating_sub(1),
            KeyCode::PageDown | KeyCode::Char(' ') => self.above = self.above.saturating_add(page),
            KeyCode::PageUp => self.above = self.above.saturating_sub(page),
            KeyCode::Home | KeyCode::Char('g') => self.above = 0,
            KeyCode::End | KeyCode::Char('G') => self.above = u16::MAX,
            other => {
                if self.screen.key(other) {
                    self.above = 0;
                }
            }
        }
        false
    }

    /// Draws as much as the terminal has room for, and the keys below it.
    pub fn draw(&mut self, frame: &mut Frame) {
        let area = frame.area();
        let lines = self.screen.lines(area.width.into());
        let count = u16::try_from(lines.len()).unwrap_or(u16::MAX);
        self.rows = area.height.saturating_sub(1);
        self.above = self.above.min(count.saturating_sub(self.rows));
        let below = count.saturating_sub(self.above).saturating_sub(self.rows);
        let shown = lines.into_iter().skip(self.above.into()).take(self.rows.into());
        let mut text: Text = shown.collect();
        text.lines.resize(self.rows.into(), Line::default());
        let mut help = format!("q quits  {}", self.screen.keys()).trim_end().to_owned();
        if self.above > 0 || below > 0 {
            help += &format!("  arrows scroll ({} above, {below} below)", self.above);
            if help.len() > area.width.into() {
                help = format!("q, arrows: {} above, {below} below", self.above);
            }
        }
        text.lines.push(Line::from(help).dim());
        frame.render_widget(Paragraph::new(text), area);
    }
}

/// What a terminal of this size shows of a screen, a line a row.
#[cfg(test)]
pub fn drawn<S: Screen>(view: &mut View<S>, width: u16, height: u16) -> Vec<String> {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a screen");
    terminal.draw(|frame| view.draw(frame)).expect("drawn");
    let buffer = terminal.backend().buffer().clone();
    let cells: Vec<&str> = buffer.content().iter().map(|cell| cell.symbol()).collect();
    let rows = cells.chunks(width.into()).map(|row| row.concat().trim_end().to_owned());
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Lines(usize);

    impl Screen for Lines {
        type Answer = usize;

        fn hear(&mut self, answer: Result<usize, String>) {
            self.0 = answer.unwrap_or(0);
        }

        fn lines(&self, _width: usize) -> Vec<Line<'static>> {
            (0..self.0).map(|n| Line::from(format!("line {n}"))).collect()
        }

        fn key(&mut self, key: KeyCode) -> bool {
            key == KeyCode::Char('n')
        }

        fn keys(&self) -> String {
            "n again".into()
        }
    }

    #[test]
    fn keys_scroll() {
        let mut view = View::new(Lines(30));
        let first = |view: &mut View<Lines>| drawn(view, 60, 11)[0].clone();
        assert_eq!(
            drawn(&mut view, 60, 11)[10],
            "q quits  n again  arrows scroll (0 above, 20 below)"
        );
        let mut press = |code: KeyCode| {
            assert!(!view.key(KeyEvent::new(code, KeyModifiers::NONE)));
            first(&mut view)
        };
        assert_eq!(press(KeyCode::Down), "line 1");
        assert_eq!(press(KeyCode::Char('j')), "line 2");
        assert_eq!(press(KeyCode::Char('k')), "line 1");
        assert_eq!(press(KeyCode::Up), "line 0");
        assert_eq!(press(KeyCode::Up), "line 0");
        assert_eq!(press(KeyCode::PageDown), "line 9");
        assert_eq!(press(KeyCode::Char('G')), "line 20");
        assert_eq!(press(KeyCode::Char('j')), "line 20");
        assert_eq!(press(KeyCode::PageUp), "line 11");
        assert_eq!(press(KeyCode::Char('n')), "line 0");
        // A page that became shorter is shown to its end.
        press(KeyCode::End);
        view.screen.hear(Ok(3));
        assert_eq!(drawn(&mut view, 60, 11)[..4], ["line 0", "line 1", "line 2", ""]);
        assert_eq!(drawn(&mut view, 60, 11)[10], "q quits  n again");
        for (width, height) in [(1, 1), (40, 2), (2, 40)] {
            drawn(&mut view, width, height);
        }
    }

    #[test]
    fn the_latest_answer_stays() {
        let mut latest = Latest::default();
        latest.hear(Err("why".into()));
        let sentence = "psched does not answer (why); trying again each second";
        assert_eq!((latest.away().as_deref(), latest.answer()), (Some(sentence), None));
        latest.hear(Ok(7));
        assert_eq!((latest.away(), latest.answer()), (None, Some(&7)));
        latest.hear(Err("why".into()));
        let sentence = "psched does not answer (why); below is the state of 0 s ago";
        assert_eq!((latest.away().as_deref(), latest.answer()), (Some(sentence), Some(&7)));
    }
}
