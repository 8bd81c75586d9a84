//! Plots as files of their own (SVG) for pages in Markdown: lines over time with spans that are marked, and bars.

use std::fmt::Write;

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 46.0;
const BOTTOM: f64 = 30.0;
/// Told apart also by those who see few colours (Okabe and Ito).
const COLOURS: [&str; 5] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#999999"];

/// Something over time.
pub(super) struct Curve {
    pub(super) name: &'static str,
    /// One value for each step; `None`: not known.
    pub(super) values: Vec<Option<f64>>,
}

/// A part of the time that has a name.
pub(super) struct Mark {
    /// In steps.
    pub(super) from: f64,
    pub(super) to: f64,
    pub(super) name: String,
}

/// Lines over time.
pub(super) struct Lines {
    pub(super) title: &'static str,
    pub(super) unit: &'static str,
    pub(super) curves: Vec<Curve>,
    pub(super) marks: Vec<Mark>,
    /// Words under the axis, at a step each.
    pub(super) ticks: Vec<(f64, String)>,
}

/// Bars beside each other.
pub(super) struct Bars {
    pub(super) title: &'static str,
    pub(super) unit: &'static str,
    /// Name, value, and the number of its colour.
    pub(super) bars: Vec<(String, f64, usize)>,
}

impl Lines {
    pub(super) fn svg(&self) -> String {
        let steps = self
            .curves
            .iter()
            .map(|curve| curve.values.len())
            .max()
            .unwrap_or(0)
            .max(1) as f64;
        let all = self
            .curves
            .iter()
            .flat_map(|curve| curve.values.iter().flatten());
        let top = round_up(all.copied().fold(0.0, f64::max));
        let x = |step: f64| LEFT + step / steps * (WIDTH - LEFT - RIGHT);
        let mut out = head(self.title, self.unit);
        for (number, mark) in self.marks.iter().enumerate() {
            let (from, to) = (x(mark.from), x(mark.to).max(x(mark.from) + 1.5));
            let _ = writeln!(
                out,
                "<rect x=\"{from:.1}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"#f0c674\" fill-opacity=\"0.45\"><title>{}</title></rect>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" font-size=\"9\">{}</text>",
                to - from,
                HEIGHT - TOP - BOTTOM,
                escaped(&mark.name),
                (from + to) / 2.0,
                TOP - 3.0 - 9.0 * f64::from(number as u32 % 2),
                escaped(&mark.name)
            );
        }
        grid(&mut out, top);
        for (step, words) in &self.ticks {
            let anchor = match x(*step) > WIDTH - 3.0 * RIGHT {
                true => "end",
                false => "middle",
            };
            let _ = writeln!(
                out,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>",
                x(*step),
                HEIGHT - 12.0,
                escaped(words)
            );
        }
        for (number, curve) in self.curves.iter().enumerate() {
            draw(&mut out, curve, COLOURS[number % COLOURS.len()], x, top);
        }
        legend(&mut out, &self.curves);
        out + "</svg>\n"
    }
}

/// A line with gaps where nothing is known.
fn draw(out: &mut String, curve: &Curve, colour: &str, x: impl Fn(f64) -> f64, top: f64) {
    let mut piece: Vec<String> = Vec::new();
    let mut finish = |piece: &mut Vec<String>| {
        if piece.len() > 1 {
            let _ = writeln!(
                out,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.3\"/>",
                piece.join(" ")
            );
        }
        piece.clear();
    };
    for (step, value) in curve.values.iter().enumerate() {
        match value {
            Some(value) => piece.push(format!("{:.1},{:.1}", x(step as f64 + 0.5), y(*value, top))),
            None => finish(&mut piece),
        }
    }
    finish(&mut piece);
}

fn legend(out: &mut String, curves: &[Curve]) {
    let mut at = WIDTH - RIGHT;
    for (number, curve) in curves.iter().enumerate().rev() {
        let _ = writeln!(
            out,
            "<text x=\"{at:.1}\" y=\"16\" text-anchor=\"end\" fill=\"{}\">{}</text>",
            COLOURS[number % COLOURS.len()],
            escaped(curve.name)
        );
        at -= 16.0 + 6.6 * curve.name.chars().count() as f64;
    }
}

impl Bars {
    pub(super) fn svg(&self) -> String {
        let top = round_up(self.bars.iter().map(|bar| bar.1).fold(0.0, f64::max));
        let each = (WIDTH - LEFT - RIGHT) / self.bars.len().max(1) as f64;
        let mut out = head(self.title, self.unit);
        grid(&mut out, top);
        for (number, (name, value, colour)) in self.bars.iter().enumerate() {
            let x = LEFT + each * number as f64;
            let _ = writeln!(
                out,
                "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                x + each * 0.15,
                y(*value, top),
                each * 0.7,
                HEIGHT - BOTTOM - y(*value, top),
                COLOURS[colour % COLOURS.len()],
                x + each * 0.5,
                y(*value, top) - 4.0,
                short(*value),
                x + each * 0.5,
                HEIGHT - 12.0,
                escaped(name)
            );
        }
        out + "</svg>\n"
    }
}

fn head(title: &str, unit: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" font-family=\"sans-serif\" \
         font-size=\"11\">\n<title>{0}</title>\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#ffffff\"/>\n\
         <text x=\"8\" y=\"16\" font-weight=\"bold\">{0} <tspan font-weight=\"normal\">({1})</tspan></text>\n",
        escaped(title),
        escaped(unit)
    )
}

fn grid(out: &mut String, top: f64) {
    for quarter in 0..=4 {
        let value = top * f64::from(quarter) / 4.0;
        let _ = writeln!(
            out,
            "<line x1=\"{LEFT}\" x2=\"{:.0}\" y1=\"{1:.1}\" y2=\"{1:.1}\" stroke=\"#dddddd\"/>\
             <text x=\"{2:.0}\" y=\"{3:.1}\" text-anchor=\"end\">{4}</text>",
            WIDTH - RIGHT,
            y(value, top),
            LEFT - 6.0,
            y(value, top) + 4.0,
            short(value)
        );
    }
}

fn y(value: f64, top: f64) -> f64 {
    HEIGHT - BOTTOM - (value / top).clamp(0.0, 1.0) * (HEIGHT - TOP - BOTTOM)
}

/// The next number of the form 1, 2, 3, 4, 6, 8 or 10 × 10^n.
fn round_up(value: f64) -> f64 {
    if !(value > 0.0 && value.is_finite()) {
        return 1.0;
    }
    let magnitude = 10f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0];
    let mut found = steps.iter().map(|step| step * magnitude);
    found
        .find(|candidate| *candidate >= value * 0.999)
        .unwrap_or(value)
}

fn short(value: f64) -> String {
    match value {
        value if value >= 100.0 || value == 0.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
