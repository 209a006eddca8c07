//! The pages in a terminal, brought up to date each second or, where that is sooner, each slice.

use super::help::help;
use super::lines::{Line, Role, Span, sentence};
use super::page::{Page, page};
use super::{Psched, matrix};
use crate::console::live::{self, Latest};
use crate::rpc::pb;
use ratatui::crossterm::event::KeyCode;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line as Shown, Span as Part};
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// From one question to the next, at most and at least.
const REFRESH: Duration = Duration::from_secs(1);
const REFRESH_MIN: Duration = Duration::from_millis(100);

type Answer = Result<pb::TurnsReply, String>;

/// Shows it until the user leaves.
///
/// # Errors
/// There is no terminal, or it does not take what is written.
pub async fn live(what: Page) -> Result<(), String> {
    if !io::stdout().is_terminal() {
        return Err("-w needs a terminal, and standard output is not one: leave -w out, or use \
                    --json"
            .into());
    }
    live::live(Screen { what, ..Screen::default() }, asking()).await
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

/// What is shown.
struct Screen {
    what: Page,
    /// Whether the help is shown in place of the page.
    help: bool,
    reply: Latest<pb::TurnsReply>,
}

impl Default for Screen {
    fn default() -> Screen {
        Screen { what: Page::Turns, help: false, reply: Latest::default() }
    }
}

impl live::Screen for Screen {
    type Answer = pb::TurnsReply;

    fn hear(&mut self, answer: Answer) {
        self.reply.hear(answer);
    }

    fn key(&mut self, key: KeyCode) -> bool {
        match key {
            KeyCode::Char('?' | 'h') => self.help = !self.help,
            KeyCode::Char('n') => {
                // (From the help back to the page that it explains.)
                if !std::mem::take(&mut self.help) {
                    self.what = match self.what {
                        Page::Turns => Page::Nodes,
                        Page::Nodes => Page::Turns,
                    };
                }
            }
            _ => return false,
        }
        true
    }

    fn lines(&self, width: usize) -> Vec<Shown<'static>> {
        let mut lines = Vec::new();
        if let Some(text) = self.reply.away() {
            lines.extend(sentence(&text, Role::Warns, width));
            lines.push(Line::new());
        }
        match self.reply.answer() {
            _ if self.help => lines.extend(help(self.what, width)),
            Some(reply) => lines.extend(page(reply, self.what, width)),
            None => {}
        }
        lines.iter().map(styled).collect()
    }

    fn keys(&self) -> String {
        match (self.help, self.what) {
            (true, Page::Turns) => "? turns",
            (true, Page::Nodes) => "? nodes",
            (false, Page::Turns) => "n nodes  ? help",
            (false, Page::Nodes) => "n turns  ? help",
        }
        .into()
    }
}

fn styled(line: &Line) -> Shown<'static> {
    let part = |span: &Span| {
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
    use crate::console::live::{Screen as _, View, drawn as shown};
    use ratatui::crossterm::event::{KeyEvent, KeyModifiers};

    fn press(view: &mut View<Screen>, code: KeyCode) -> bool {
        view.key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    fn reply(nodes: u32) -> pb::TurnsReply {
        let node = |nid| pb::NodeRow { nid, state: "free".into(), ..Default::default() };
        pb::TurnsReply { nodes: (0..nodes).map(node).collect(), ..Default::default() }
    }

    #[test]
    fn psched_goes_and_comes_back() {
        let mut view = View::new(Screen::default());
        assert_eq!(shown(&mut view, 60, 3), ["", "", "q quits  n nodes  ? help"]);
        view.screen.hear(Err("nobody answers".into()));
        let rows = shown(&mut view, 80, 3);
        assert_eq!(rows[0], "psched does not answer (nobody answers); trying again each second");
        view.screen.hear(Ok(reply(1)));
        assert!(shown(&mut view, 80, 4)[0].starts_with("1 node: nothing runs"));
        view.screen.hear(Err("nobody answers".into()));
        let rows = shown(&mut view, 80, 6);
        assert_eq!(
            rows[0],
            "psched does not answer (nobody answers); below is the state of 0 s ago"
        );
        assert!(rows[2].starts_with("1 node: nothing runs"), "{rows:?}");
        view.screen.hear(Ok(reply(1)));
        assert!(shown(&mut view, 80, 4)[0].starts_with("1 node: nothing runs"));
    }

    #[test]
    fn keys_scroll_change_the_page_and_leave() {
        let mut view = View::new(Screen { what: Page::Nodes, ..Screen::default() });
        view.screen.hear(Ok(reply(30)));
        let rows = shown(&mut view, 60, 11);
        assert!(
            rows[0].starts_with("NID") && rows[10].ends_with("(0 above, 21 below)"),
            "{rows:?}"
        );
        press(&mut view, KeyCode::PageDown);
        press(&mut view, KeyCode::Down);
        assert!(shown(&mut view, 60, 11)[10].ends_with("(10 above, 11 below)"));
        for _ in 0..5 {
            press(&mut view, KeyCode::PageDown);
            shown(&mut view, 60, 11);
        }
        let rows = shown(&mut view, 60, 11);
        assert!(rows[9].trim_start().starts_with("29 "), "{rows:?}");
        // A larger screen has nothing above.
        assert!(shown(&mut view, 60, 50)[0].starts_with("NID"));
        press(&mut view, KeyCode::Char('n'));
        assert!(shown(&mut view, 60, 11)[0].starts_with("30 nodes: nothing runs"));
        assert!(press(&mut view, KeyCode::Char('q')));
        assert!(!press(&mut view, KeyCode::Char('c')));
        assert!(view.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)));
        // What is above and below is said also where there is little room.
        let rows = shown(&mut view, 30, 3);
        assert!(rows[2].starts_with("q, arrows: 0 above, "), "{rows:?}");
        // As small as it gets.
        shown(&mut view, 1, 1);
    }

    #[test]
    fn a_key_explains_the_columns() {
        let mut view = View::new(Screen::default());
        view.screen.hear(Ok(reply(30)));
        press(&mut view, KeyCode::Char('?'));
        let rows = shown(&mut view, 80, 60);
        assert!(rows.iter().any(|row| row.starts_with("Skew ")), "{rows:?}");
        assert!(rows[59].starts_with("q quits  ? turns"), "{rows:?}");
        press(&mut view, KeyCode::Char('?'));
        assert!(shown(&mut view, 80, 60)[0].starts_with("30 nodes: nothing runs"));
        for key in ['n', '?'] {
            press(&mut view, KeyCode::Char(key));
        }
        let rows = shown(&mut view, 80, 60);
        assert!(rows.iter().any(|row| row.starts_with("Stops ")), "{rows:?}");
        press(&mut view, KeyCode::Char('n'));
        assert!(shown(&mut view, 80, 60)[0].starts_with("NID"));
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
