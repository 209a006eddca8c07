//! `apstat -w` in a terminal: the same report each second, in a page that keys scroll.

use super::{Cli, Psched, REFRESH};
use crate::console::live::{self, Latest};
use crate::console::table::Report;
use ratatui::crossterm::event::KeyCode;
use ratatui::style::Stylize;
use ratatui::text::Line;
use tokio::sync::mpsc;

/// Shows it until the user leaves.
///
/// # Errors
/// The terminal can't be used, or does not take what is written.
pub async fn live(cli: &Cli) -> Result<(), String> {
    live::live(Screen { json: cli.json, report: Latest::default() }, asking(cli.clone())).await
}

/// psched's answers as they come.
fn asking(cli: Cli) -> mpsc::Receiver<Result<Report, String>> {
    let (answers, heard) = mpsc::channel(1);
    tokio::spawn(async move {
        let mut psched = Psched::default();
        while answers.send(psched.ask(&cli).await).await.is_ok() {
            tokio::time::sleep(REFRESH).await;
        }
    });
    heard
}

/// What is shown.
struct Screen {
    json: bool,
    report: Latest<Report>,
}

impl live::Screen for Screen {
    type Answer = Report;

    fn hear(&mut self, answer: Result<Report, String>) {
        self.report.hear(answer);
    }

    fn lines(&self, width: usize) -> Vec<Line<'static>> {
        let away =
            Report { notices: self.report.away().into_iter().collect(), ..Report::default() };
        let mut lines: Vec<Line> =
            away.text_within(width).lines().map(|line| Line::from(line.to_owned()).red()).collect();
        if let Some(report) = self.report.answer() {
            let text = if self.json { report.json() } else { report.text_within(width) };
            if !lines.is_empty() {
                lines.push(Line::default());
            }
            lines.extend(text.lines().map(|line| Line::from(line.to_owned())));
        }
        lines
    }

    fn key(&mut self, _key: KeyCode) -> bool {
        false
    }

    fn keys(&self) -> String {
        String::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::console::live::{Screen as _, View, drawn};
    use crate::console::table::{Cell, Table};

    #[test]
    fn a_long_table_scrolls() {
        let mut view = View::new(Screen { json: false, report: Latest::default() });
        view.screen.hear(Err("no socket".into()));
        let rows = drawn(&mut view, 80, 5);
        assert_eq!(rows[0], "psched does not answer (no socket); trying again each second");
        let mut table = Table::new("things", "", ">Apid");
        table.rows = (0..20).map(|n| vec![Cell::Number(n)]).collect();
        view.screen.hear(Ok(Report { tables: vec![table], ..Report::default() }));
        let rows = drawn(&mut view, 60, 5);
        assert_eq!(rows[..2], ["Apid", "   0"]);
        assert_eq!(rows[4], "q quits  arrows scroll (0 above, 17 below)");
        view.screen.hear(Err("no socket".into()));
        let rows = drawn(&mut view, 80, 5);
        assert_eq!(
            rows[..3],
            ["psched does not answer (no socket); below is the state of 0 s ago", "", "Apid"]
        );
    }
}
