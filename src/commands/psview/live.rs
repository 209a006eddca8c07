//! The pages in a terminal, brought up to date each second or, where that is sooner, each slice.
//!
//! The terminal is put back at any end: q, ^C, a signal, an error, a panic. Where it was closed,
//! psview ends as by HUP. psched may be away: what it said last stays, with a line that says so,
//! until it answers again.

use super::lines::{Line, Role, sentence};
use super::page::{Page, page};
use super::{Psched, matrix};
use crate::os::dispositions::end_by;
use crate::rpc::pb;
use nix::sys::signal::Signal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::style::{Modifier, Style, Stylize};
use ratatui::text::{Line as Shown, Span as Part, Text};
use ratatui::widgets::Paragraph;
use ratatui::{DefaultTerminal, Frame};
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// From one question to the next, at most and at least.
const REFRESH: Duration = Duration::from_secs(1);
const REFRESH_MIN: Duration = Duration::from_millis(100);
/// How often the reader of keys looks whether anybody still wants them.
const KEYS: Duration = Duration::from_millis(200);

type Answer = Result<pb::TurnsReply, String>;

/// Shows it until the user leaves.
///
/// # Errors
/// There is no terminal, or it does not take what is written.
pub async fn live(what: Page) -> Result<(), String> {
    if !io::stdout().is_terminal() {
        return Err("-w draws on a terminal, and standard output is none: leave -w out, or use \
                    --json"
            .into());
    }
    let failed = |e: io::Error| format!("can't use the terminal: {e}");
    // Before the terminal is changed: none of them may end psview without putting it back.
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
        end = watch(&mut terminal, what) => end.map_err(failed),
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

async fn watch(terminal: &mut DefaultTerminal, what: Page) -> io::Result<()> {
    let mut answers = asking();
    let mut keys = keys();
    let mut screen = Screen { what, ..Screen::default() };
    loop {
        terminal.draw(|frame| screen.draw(frame))?;
        tokio::select! {
            Some(answer) = answers.recv() => screen.hear(answer),
            event = keys.recv() => match event {
                Some(Ok(Event::Key(key))) => {
                    if screen.key(key) {
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

/// psched's answers as they come.
fn asking() -> mpsc::Receiver<Answer> {
    let (answers, heard) = mpsc::channel(1);
    tokio::spawn(async move {
        let mut psched = Psched::default();
        loop {
            let asked = Instant::now();
            let answer = psched.ask(0).await;
            let pause = answer.as_ref().map_or(REFRESH, |reply| pause(reply, asked.elapsed()));
            if answers.send(answer).await.is_err() {
                return;
            }
            tokio::time::sleep(pause).await;
        }
    });
    heard
}

/// Until the next slice begins, within bounds, and so much longer than the answer took that psched has
/// others to serve, however large the machine is.
fn pause(reply: &pb::TurnsReply, took: Duration) -> Duration {
    let on = reply.plans.iter().filter_map(|plan| matrix::present(plan, reply.now_ns));
    let next = on.map(|on| Duration::from_nanos(on.left_ns)).min().unwrap_or(REFRESH);
    next.clamp(REFRESH_MIN, REFRESH).max(took * 10)
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

/// What is shown.
struct Screen {
    what: Page,
    /// psched's last answer, and when it came.
    reply: Option<(pb::TurnsReply, Instant)>,
    /// Why there has been none since.
    away: Option<String>,
    /// Lines above the screen.
    above: u16,
    /// Rows of the screen.
    rows: u16,
}

impl Default for Screen {
    fn default() -> Screen {
        Screen { what: Page::Turns, reply: None, away: None, above: 0, rows: 0 }
    }
}

impl Screen {
    fn hear(&mut self, answer: Answer) {
        match answer {
            Ok(reply) => (self.reply, self.away) = (Some((reply, Instant::now())), None),
            Err(why) => self.away = Some(why),
        }
    }

    /// Whether that is the end.
    fn key(&mut self, key: KeyEvent) -> bool {
        if key.kind == KeyEventKind::Release {
            return false;
        }
        let page = self.rows.saturating_sub(1).max(1);
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return true,
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return true,
            KeyCode::Char('n') => {
                self.above = 0;
                self.what = match self.what {
                    Page::Turns => Page::Nodes,
                    Page::Nodes => Page::Turns,
                };
            }
            KeyCode::Down => self.above = self.above.saturating_add(1),
            KeyCode::Up => self.above = self.above.saturating_sub(1),
            KeyCode::PageDown | KeyCode::Char(' ') => self.above = self.above.saturating_add(page),
            KeyCode::PageUp => self.above = self.above.saturating_sub(page),
            KeyCode::Home => self.above = 0,
            _ => {}
        }
        false
    }

    fn lines(&self, width: usize) -> Vec<Line> {
        let mut lines = Vec::new();
        if let Some(why) = &self.away {
            let since = self.reply.as_ref().map(|(_, at)| at.elapsed().as_secs());
            let text = match since {
                Some(s) => format!("psched is away ({why}); this is as it was {s} s ago"),
                None => format!("psched is away ({why}); it is asked again each second"),
            };
            lines.extend(sentence(&text, Role::Warns, width));
            lines.push(Line::new());
        }
        if let Some((reply, _)) = &self.reply {
            lines.extend(page(reply, self.what, width));
        }
        lines
    }

    fn draw(&mut self, frame: &mut Frame) {
        let area = frame.area();
        let lines = self.lines(area.width.into());
        let count = u16::try_from(lines.len()).unwrap_or(u16::MAX);
        self.rows = area.height.saturating_sub(1);
        self.above = self.above.min(count.saturating_sub(self.rows));
        let below = count.saturating_sub(self.above).saturating_sub(self.rows);
        let shown = lines.iter().skip(self.above.into()).take(self.rows.into());
        let mut text: Text = shown.map(styled).collect();
        text.lines.resize(self.rows.into(), Shown::default());
        let other = match self.what {
            Page::Turns => "nodes",
            Page::Nodes => "turns",
        };
        let mut help = format!("q quits  n {other}");
        if self.above > 0 || below > 0 {
            help += &format!("  arrows scroll ({} above, {below} below)", self.above);
            if help.len() > area.width.into() {
                help = format!("q n arrows: {} above, {below} below", self.above);
            }
        }
        text.lines.push(Shown::from(help).dim());
        frame.render_widget(Paragraph::new(text), area);
    }
}

fn styled(line: &Line) -> Shown<'static> {
    let part = |span: &super::lines::Span| {
        let plain = Style::new();
        let style = match span.role {
            Role::Plain => plain,
            Role::Title => plain.add_modifier(Modifier::BOLD),
            Role::On => plain.green().add_modifier(Modifier::BOLD),
            Role::Leads => plain.green(),
            Role::Promoted => plain.cyan(),
            Role::Waits => plain.yellow(),
            Role::Warns => plain.red(),
        };
        Part::styled(span.text.clone(), style)
    };
    line.iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn shown(screen: &mut Screen, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a screen");
        terminal.draw(|frame| screen.draw(frame)).expect("drawn");
        let buffer = terminal.backend().buffer().clone();
        let cells: Vec<&str> = buffer.content().iter().map(|cell| cell.symbol()).collect();
        let rows = cells.chunks(width.into()).map(|row| row.concat().trim_end().to_owned());
        rows.collect()
    }

    fn press(screen: &mut Screen, code: KeyCode) -> bool {
        screen.key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    fn reply(nodes: u32) -> pb::TurnsReply {
        let node = |nid| pb::NodeRow { nid, state: "free".into(), ..Default::default() };
        pb::TurnsReply { nodes: (0..nodes).map(node).collect(), ..Default::default() }
    }

    #[test]
    fn psched_goes_and_comes_back() {
        let mut screen = Screen::default();
        assert_eq!(shown(&mut screen, 60, 3), ["", "", "q quits  n nodes"]);
        screen.hear(Err("nobody answers".into()));
        let rows = shown(&mut screen, 80, 3);
        assert_eq!(rows[0], "psched is away (nobody answers); it is asked again each second");
        screen.hear(Ok(reply(1)));
        assert!(shown(&mut screen, 80, 4)[0].starts_with("1 node: nothing runs"));
        screen.hear(Err("nobody answers".into()));
        let rows = shown(&mut screen, 80, 6);
        assert_eq!(rows[0], "psched is away (nobody answers); this is as it was 0 s ago");
        assert!(rows[2].starts_with("1 node: nothing runs"), "{rows:?}");
        screen.hear(Ok(reply(1)));
        assert!(shown(&mut screen, 80, 4)[0].starts_with("1 node: nothing runs"));
    }

    #[test]
    fn keys_scroll_change_the_page_and_leave() {
        let mut screen = Screen { what: Page::Nodes, ..Screen::default() };
        screen.hear(Ok(reply(30)));
        let rows = shown(&mut screen, 60, 11);
        assert!(
            rows[0].starts_with("NID") && rows[10].ends_with("(0 above, 21 below)"),
            "{rows:?}"
        );
        press(&mut screen, KeyCode::PageDown);
        press(&mut screen, KeyCode::Down);
        assert!(shown(&mut screen, 60, 11)[10].ends_with("(10 above, 11 below)"));
        for _ in 0..5 {
            press(&mut screen, KeyCode::PageDown);
            shown(&mut screen, 60, 11);
        }
        let rows = shown(&mut screen, 60, 11);
        assert!(rows[9].trim_start().starts_with("29 "), "{rows:?}");
        // A larger screen has nothing above.
        assert!(shown(&mut screen, 60, 50)[0].starts_with("NID"));
        press(&mut screen, KeyCode::Char('n'));
        assert!(shown(&mut screen, 60, 11)[0].starts_with("30 nodes: nothing runs"));
        assert!(press(&mut screen, KeyCode::Char('q')));
        assert!(!press(&mut screen, KeyCode::Char('c')));
        assert!(screen.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)));
        // What is above and below is said also where there is little room.
        let rows = shown(&mut screen, 30, 3);
        assert!(rows[2].starts_with("q n arrows: 0 above, "), "{rows:?}");
        // As small as it gets.
        shown(&mut screen, 1, 1);
    }

    #[test]
    fn each_slice_is_seen_within_bounds() {
        let with = |left_ms: u64| {
            let slice = pb::TurnsSlice { length_ns: left_ms * 1_000_000, party: vec![1] };
            let plan = pb::TurnsPlan { slices: vec![slice], ..Default::default() };
            pb::TurnsReply { plans: vec![plan], ..Default::default() }
        };
        let took = Duration::from_millis(3);
        let pauses = [10, 350, 5_000].map(|ms| pause(&with(ms), took).as_millis());
        assert_eq!(pauses, [100, 350, 1_000]);
        assert_eq!(pause(&reply(1), took).as_millis(), 1_000);
        assert_eq!(pause(&with(10), 70 * took).as_millis(), 2_100);
    }
}
