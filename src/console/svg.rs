//! What pictures have in common: an SVG that can be read on a light and on a dark background.
//!
//! `psched simulate --plot` draws lines over days, `psview --svg` areas over seconds.

use super::table::clean;
use std::fmt::Write;

/// Colours on a light and on a dark background; the first is used again after the last.
const COLOURS: [(&str, &str); 6] = [
    ("#1764ab", "#6cb2f5"),
    ("#c2410c", "#fb923c"),
    ("#15803d", "#4ade80"),
    ("#7e22ce", "#c792ff"),
    ("#a16207", "#facc15"),
    ("#be185d", "#f472b6"),
];

/// The height of a line of text, in pixels.
pub const LINE: f64 = 18.0;

/// The number of the colour of the thing that has this number.
pub fn colour(at: usize) -> usize {
    at % COLOURS.len()
}

/// Round values from 0 to this one, six at most.
pub fn ticks(most: f64) -> Vec<f64> {
    let rough = most.max(1e-3) / 5.0;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|n| n * power).into_iter().find(|step| *step >= rough);
    let step = step.unwrap_or(rough);
    (0..=(most / step + 1e-9) as usize).map(|n| n as f64 * step).collect()
}

/// A tick's value without digits that it does not need.
pub fn round(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A text as it stands in XML; control characters become question marks.
pub fn escaped(text: &str) -> String {
    clean(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// A picture that is being drawn.
pub struct Picture {
    text: String,
}

impl Picture {
    /// An empty sheet of this size, in pixels, with a title in its first line.
    pub fn new(width: f64, height: f64, left: f64, title: &str) -> Picture {
        let mut text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             width=\"{width}\" height=\"{height}\">\n{}",
            style()
        );
        let _ = writeln!(text, "<rect class=\"paper\" width=\"{width}\" height=\"{height}\"/>");
        let _ =
            writeln!(text, "<text x=\"{left}\" y=\"20\" class=\"title\">{}</text>", escaped(title));
        Picture { text }
    }

    /// Adds a line of SVG. Names in it must be [`escaped`].
    pub fn add(&mut self, line: std::fmt::Arguments) {
        let _ = writeln!(self.text, "{line}");
    }

    /// The file's text.
    pub fn finish(self) -> String {
        self.text + "</svg>\n"
    }
}

/// Classes: `c0` and so on colour a `line`, `f0` and so on fill an area.
fn style() -> String {
    let mut light = String::new();
    let mut dark = String::new();
    for (at, (on_light, on_dark)) in COLOURS.iter().enumerate() {
        let _ = writeln!(light, ".c{at} {{ stroke: {on_light} }} .f{at} {{ fill: {on_light} }}");
        let _ = writeln!(dark, ".c{at} {{ stroke: {on_dark} }} .f{at} {{ fill: {on_dark} }}");
    }
    format!(
        "<style>\n\
         .paper {{ fill: #ffffff }}\n\
         text {{ font: 12px sans-serif; fill: #24292f }}\n\
         .title {{ font-weight: bold }}\n\
         .left {{ text-anchor: end }}\n\
         .below {{ text-anchor: middle }}\n\
         .in {{ text-anchor: middle; fill: #ffffff }}\n\
         .grid {{ stroke: #d8dee4; stroke-width: 1 }}\n\
         .idle {{ fill: #eef1f4 }}\n\
         .line {{ fill: none; stroke-width: 1.5 }}\n\
         {light}\
         @media (prefers-color-scheme: dark) {{\n\
         .paper {{ fill: #14181d }}\n\
         text {{ fill: #d5dbe1 }}\n\
         .in {{ fill: #14181d }}\n\
         .grid {{ stroke: #343b43 }}\n\
         .idle {{ fill: #232a31 }}\n\
         {dark}}}\n\
         </style>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round() {
        assert_eq!(ticks(100.0), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(ticks(734.9), [0.0, 200.0, 400.0, 600.0]);
        assert_eq!(ticks(0.9).len(), 5);
        assert_eq!([0.2, 1.0, 1_000.0, 0.0].map(round), ["0.2", "1", "1000", "0"]);
    }

    #[test]
    fn nothing_of_a_name_becomes_markup() {
        assert_eq!(escaped("a<b>&\u{1b}.swf"), "a&lt;b&gt;&amp;?.swf");
        let picture = Picture::new(10.0, 20.0, 1.0, "</svg>").finish();
        assert!(picture.contains(">&lt;/svg&gt;</text>"), "{picture}");
        assert!(picture.ends_with("</svg>\n"), "{picture}");
    }
}
