//! Plots as SVG, for a page that needs nothing else: areas on top of each other, and lines.

use super::words::span;
use std::fmt::Write;

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 240.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 10.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 26.0;
/// Told apart also by those who see few colours (Okabe and Ito).
const COLOURS: [&str; 9] = [
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#7f7fbf",
    "#999999",
];

/// Something over time.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Curve {
    pub(super) name: String,
    /// One value for each step.
    pub(super) values: Vec<f64>,
}

/// What is drawn.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Plot<'a> {
    pub(super) title: String,
    /// What the numbers count.
    pub(super) unit: &'a str,
    /// Seconds of a step.
    pub(super) step: f64,
    pub(super) curves: Vec<Curve>,
}

impl Plot<'_> {
    /// Areas on top of each other.
    pub(super) fn stacked(&self) -> String {
        let count = self.points();
        let sums = (0..count).map(|at| self.curves.iter().map(|curve| value(curve, at)).sum());
        let top = round_up(sums.fold(0.0, f64::max));
        let mut below = vec![0.0; count];
        let mut drawn = String::new();
        for (number, curve) in self.curves.iter().enumerate() {
            let above: Vec<f64> = (0..count).map(|at| below[at] + value(curve, at)).collect();
            let there = (0..count).map(|at| self.place(at, above[at], top));
            let back = (0..count).rev().map(|at| self.place(at, below[at], top));
            let path: Vec<String> = there.chain(back).collect();
            let _ = writeln!(
                drawn,
                "<polygon points=\"{}\" fill=\"{}\"><title>{}</title></polygon>",
                path.join(" "),
                colour(number),
                escaped(&curve.name)
            );
            below = above;
        }
        self.framed(top, &drawn)
    }

    /// A line for each.
    pub(super) fn lines(&self) -> String {
        let all = self
            .curves
            .iter()
            .flat_map(|curve| curve.values.iter().copied());
        let top = round_up(all.fold(0.0, f64::max));
        let mut drawn = String::new();
        for (number, curve) in self.curves.iter().enumerate() {
            let places = curve.values.iter().enumerate();
            let path: Vec<String> = places
                .map(|(at, value)| self.place(at, *value, top))
                .collect();
            let _ = writeln!(
                drawn,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.5\"><title>{}</title></polyline>",
                path.join(" "),
                colour(number),
                escaped(&curve.name)
            );
        }
        self.framed(top, &drawn)
    }

    fn points(&self) -> usize {
        self.curves
            .iter()
            .map(|curve| curve.values.len())
            .max()
            .unwrap_or(0)
    }

    fn place(&self, at: usize, value: f64, top: f64) -> String {
        let part = (at as f64 + 1.0) / self.points().max(1) as f64;
        let x = LEFT + part * (WIDTH - LEFT - RIGHT);
        let y = HEIGHT - BOTTOM - (value / top).clamp(0.0, 1.0) * (HEIGHT - TOP - BOTTOM);
        format!("{x:.1},{y:.1}")
    }

    fn framed(&self, top: f64, drawn: &str) -> String {
        let mut out = format!(
            "<figure><figcaption>{} <small>{}</small></figcaption>\n<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">\n",
            escaped(&self.title),
            escaped(self.unit)
        );
        for quarter in 0..=4 {
            let part = f64::from(quarter) / 4.0;
            let y = HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM);
            let _ = writeln!(
                out,
                "<line x1=\"{LEFT}\" x2=\"{:.0}\" y1=\"{y:.1}\" y2=\"{y:.1}\" class=\"grid\"/>\
                 <text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                WIDTH - RIGHT,
                LEFT - 6.0,
                y + 4.0,
                short(top * part)
            );
            let seconds = self.points() as f64 * self.step * part;
            let x = LEFT + part * (WIDTH - LEFT - RIGHT);
            let anchor = ["start", "middle", "middle", "middle", "end"][quarter as usize];
            let _ = writeln!(
                out,
                "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>",
                HEIGHT - 6.0,
                span(seconds)
            );
        }
        out.push_str(drawn);
        out.push_str("</svg>\n<p class=\"legend\">");
        for (number, curve) in self.curves.iter().enumerate() {
            let _ = write!(
                out,
                "<span><i style=\"background:{}\"></i>{}</span> ",
                colour(number),
                escaped(&curve.name)
            );
        }
        out.push_str("</p></figure>\n");
        out
    }
}

fn value(curve: &Curve, at: usize) -> f64 {
    curve.values.get(at).copied().unwrap_or(0.0).max(0.0)
}

fn colour(number: usize) -> &'static str {
    COLOURS[number % COLOURS.len()]
}

/// The next number of the form 1, 2, 4, 6, 8 or 10 × 10^n.
fn round_up(value: f64) -> f64 {
    if !(value > 0.0 && value.is_finite()) {
        return 1.0;
    }
    let magnitude = 10f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 4.0, 6.0, 8.0, 10.0].into_iter();
    let mut found = steps.map(|step| step * magnitude);
    found
        .find(|candidate| *candidate >= value * 0.999)
        .unwrap_or(value)
}

fn short(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{:.1} M", value / 1e6),
        value if value >= 10.0 || value == 0.0 => format!("{value:.0}"),
        value if value >= 1.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

/// As text of a page.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            letter => out.push(letter),
        }
    }
    out
}
