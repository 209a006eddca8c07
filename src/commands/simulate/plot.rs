//! Utilisation, queue and slowdown over time, drawn: an SVG that can be read on light and on dark.
//!
//! Three panels share the days since the first submission. The slowdown of a day is that of the jobs that were
//! submitted then.

use super::{Drawn, Told};
use crate::console::svg::{LINE, Picture, colour, escaped, round, ticks};
use crate::simulate::series::Stretch;

/// Of the picture, in pixels, as are all that follow.
const WIDTH: f64 = 960.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 20.0;
const PANEL: f64 = 150.0;
const GAP: f64 = 44.0;
/// Stretches into which the days are cut for slowdowns.
const STRETCHES: usize = 160;

/// One of the three.
struct Panel {
    title: &'static str,
    /// A line of (day, value) for each setting.
    lines: Vec<Vec<(f64, f64)>>,
    scale: Scale,
}

/// What stands at the left.
#[derive(Clone, Copy)]
enum Scale {
    /// From nothing to this.
    Linear(f64),
    /// From one to this power of ten.
    Log(i32),
}

impl Scale {
    /// From 0 at the bottom to 1.
    fn height(self, value: f64) -> f64 {
        match self {
            Scale::Linear(most) => value / most,
            Scale::Log(power) => value.max(1.0).log10() / f64::from(power),
        }
        .clamp(0.0, 1.0)
    }

    fn ticks(self) -> Vec<f64> {
        match self {
            Scale::Linear(most) => ticks(most),
            Scale::Log(power) => (0..=power).map(|power| 10f64.powi(power)).collect(),
        }
    }
}

/// The picture of all that were drawn.
pub fn svg(log: &str, all: &[Told]) -> String {
    let drawn: Vec<(&Told, &Drawn)> =
        all.iter().filter_map(|told| Some((told, told.drawn.as_ref()?))).collect();
    let days = drawn.iter().map(|(_, drawn)| drawn.series.days()).fold(1e-3, f64::max);
    let over_time = |value: fn(&Told, Stretch) -> f64| -> Vec<Vec<(f64, f64)>> {
        let line = |(told, drawn): &(&Told, &Drawn)| {
            drawn.series.stretches().map(|stretch| (stretch.day, value(told, stretch))).collect()
        };
        drawn.iter().map(line).collect()
    };
    let held = |told: &Told, stretch: Stretch| {
        100.0 * stretch.held / f64::from(told.summary.processors.max(1))
    };
    let queue = over_time(|_, stretch| stretch.waiting);
    let slowdowns: Vec<_> = drawn.iter().map(|(_, drawn)| means(&drawn.slowdowns, days)).collect();
    let largest = |lines: &[Vec<(f64, f64)>]| {
        lines.iter().flatten().map(|(_, value)| *value).fold(1.0, f64::max)
    };
    let power = (largest(&slowdowns).log10().ceil() as i32).max(1);
    let panels = [
        Panel { title: "Processors held, %", lines: over_time(held), scale: Scale::Linear(100.0) },
        Panel {
            title: "Jobs that wait",
            scale: Scale::Linear(largest(&queue) * 1.05),
            lines: queue,
        },
        Panel {
            title: "Mean bounded slowdown of the jobs submitted then",
            lines: slowdowns,
            scale: Scale::Log(power),
        },
    ];
    let labels: Vec<String> = drawn.iter().map(|(told, _)| told.setting.label()).collect();
    picture(log, &labels, &panels, days)
}

/// The mean of the values of each stretch that has any.
fn means(values: &[(f64, f64)], days: f64) -> Vec<(f64, f64)> {
    let mut sums = vec![(0.0, 0u64); STRETCHES];
    let long = days / STRETCHES as f64;
    for (day, value) in values {
        let (sum, count) = &mut sums[((day / long) as usize).min(STRETCHES - 1)];
        *sum += value;
        *count += 1;
    }
    let means = sums.iter().enumerate().filter(|(_, (_, count))| *count > 0);
    means.map(|(at, (sum, count))| ((at as f64 + 0.5) * long, sum / *count as f64)).collect()
}

fn picture(log: &str, labels: &[String], panels: &[Panel], days: f64) -> String {
    let top = 2.0 * LINE + LINE * labels.len() as f64;
    let height = top + panels.len() as f64 * (PANEL + GAP) + LINE;
    let mut out = Picture::new(WIDTH, height, LEFT, log);
    for (at, label) in labels.iter().enumerate() {
        let y = 2.0 * LINE + LINE * at as f64;
        let (colour, label, end) = (colour(at), escaped(label), LEFT + 22.0);
        out.add(format_args!(
            "<path class=\"line c{colour}\" d=\"M{LEFT} {}H{end}\"/>\
             <text x=\"{}\" y=\"{y}\">{label}</text>",
            y - 4.0,
            end + 6.0
        ));
    }
    for (at, panel) in panels.iter().enumerate() {
        let bottom = top + LINE + PANEL + at as f64 * (PANEL + GAP);
        draw(&mut out, panel, bottom, days);
    }
    out.finish()
}

fn draw(out: &mut Picture, panel: &Panel, bottom: f64, days: f64) {
    let across = WIDTH - LEFT - RIGHT;
    let x = |day: f64| LEFT + across * (day / days).clamp(0.0, 1.0);
    let y = |value: f64| bottom - PANEL * panel.scale.height(value);
    let (title, right) = (panel.title, WIDTH - RIGHT);
    out.add(format_args!("<text x=\"{LEFT}\" y=\"{}\">{title}</text>", bottom - PANEL - 8.0));
    for tick in panel.scale.ticks() {
        out.add(format_args!(
            "<path class=\"grid\" d=\"M{LEFT} {0:.1}H{right}\"/>\
             <text class=\"left\" x=\"{1}\" y=\"{2:.1}\">{3}</text>",
            y(tick),
            LEFT - 6.0,
            y(tick) + 4.0,
            round(tick)
        ));
    }
    for tick in ticks(days) {
        out.add(format_args!(
            "<path class=\"grid\" d=\"M{0:.1} {1:.1}V{bottom}\"/>\
             <text class=\"below\" x=\"{0:.1}\" y=\"{2}\">{3}</text>",
            x(tick),
            bottom - PANEL,
            bottom + 15.0,
            format_args!("day {}", round(tick))
        ));
    }
    for (at, line) in panel.lines.iter().enumerate() {
        let points: Vec<String> =
            line.iter().map(|(day, value)| format!("{:.1},{:.1}", x(*day), y(*value))).collect();
        let (colour, points) = (colour(at), points.join(" "));
        out.add(format_args!("<polyline class=\"line c{colour}\" points=\"{points}\"/>"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slowdowns_stand_where_their_jobs_came() {
        let scale = Scale::Log(3);
        assert_eq!([0.5, 1.0, 1_000.0, 1e9].map(|v| scale.height(v)), [0.0, 0.0, 1.0, 1.0]);
        let days = STRETCHES as f64;
        let means = means(&[(0.0, 1.0), (0.9, 3.0), (days, 8.0)], days);
        assert_eq!(means, [(0.5, 2.0), (days - 0.5, 8.0)]);
    }

    #[test]
    fn nothing_of_a_name_becomes_markup() {
        let panel = Panel { title: "x", lines: vec![vec![(0.0, 0.5)]], scale: Scale::Linear(1.0) };
        let svg = picture("a<b>&\u{1b}.swf", &["p=<q>".into()], &[panel], 2.0);
        assert!(svg.contains("a&lt;b&gt;&amp;?.swf") && svg.contains("p=&lt;q&gt;"), "{svg}");
        assert!(svg.contains("points=\"64.0,") && svg.ends_with("</svg>\n"), "{svg}");
    }
}
