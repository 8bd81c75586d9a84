//! Plots as SVG, for a page that needs nothing else: areas on top of each other, and lines. A value holds during its step.

use std::fmt::Write;

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 240.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 10.0;
const TOP: f64 = 18.0;
const BOTTOM: f64 = 26.0;
/// Told apart also by those who see few colours (Okabe and Ito).
const COLOURS: [&str; 9] = [
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#7f7fbf",
    "#999999",
];

/// Something over time.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    pub name: String,
    /// One value for each step. `None`: it is not known.
    pub values: Vec<Option<f64>>,
}

impl Curve {
    /// Of which every value is known.
    pub fn known(name: impl Into<String>, values: impl IntoIterator<Item = f64>) -> Curve {
        Curve {
            name: name.into(),
            values: values.into_iter().map(Some).collect(),
        }
    }
}

/// What is drawn.
#[derive(Debug, Clone, PartialEq)]
pub struct Plot<'a> {
    pub title: String,
    /// What the numbers count.
    pub unit: &'a str,
    /// Below the axis: its begin, its quarters, its end.
    pub ticks: [String; 5],
    pub curves: Vec<Curve>,
    /// What stands below the plot, as HTML.
    pub note: String,
}

impl Plot<'_> {
    /// Areas on top of each other. What is not known counts as nothing.
    pub fn stacked(&self) -> String {
        let count = self.steps();
        let sums = (0..count).map(|at| self.curves.iter().map(|curve| value(curve, at)).sum());
        let top = round_up(sums.fold(0.0, f64::max));
        let mut below = vec![0.0; count];
        let mut drawn = String::new();
        for (number, curve) in self.curves.iter().enumerate() {
            let above: Vec<f64> = (0..count).map(|at| below[at] + value(curve, at)).collect();
            let there = (0..count).flat_map(|at| self.step(at, above[at], top));
            let back = (0..count).rev().flat_map(|at| {
                let [begin, end] = self.step(at, below[at], top);
                [end, begin]
            });
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

    /// A line for each, with gaps where nothing is known.
    pub fn lines(&self) -> String {
        let all = self.curves.iter().flat_map(|curve| curve.values.iter());
        let top = round_up(all.flatten().copied().fold(0.0, f64::max));
        let mut drawn = String::new();
        for (number, curve) in self.curves.iter().enumerate() {
            let places: Vec<usize> = (0..curve.values.len()).collect();
            for known in places.split(|at| curve.values[*at].is_none()) {
                if known.is_empty() {
                    continue;
                }
                let steps = known.iter();
                let path: Vec<String> = steps
                    .flat_map(|at| self.step(*at, value(curve, *at), top))
                    .collect();
                let _ = writeln!(
                    drawn,
                    "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.5\"><title>{}</title></polyline>",
                    path.join(" "),
                    colour(number),
                    escaped(&curve.name)
                );
            }
        }
        self.framed(top, &drawn)
    }

    fn steps(&self) -> usize {
        let lengths = self.curves.iter().map(|curve| curve.values.len());
        lengths.max().unwrap_or(0)
    }

    /// Both ends of a step at its value.
    fn step(&self, at: usize, value: f64, top: f64) -> [String; 2] {
        let y = HEIGHT - BOTTOM - (value / top).clamp(0.0, 1.0) * (HEIGHT - TOP - BOTTOM);
        [at, at + 1].map(|edge| {
            let part = edge as f64 / self.steps().max(1) as f64;
            let x = LEFT + part * (WIDTH - LEFT - RIGHT);
            format!("{x:.1},{y:.1}")
        })
    }

    fn framed(&self, top: f64, drawn: &str) -> String {
        let title = escaped(&self.title);
        let mut out = format!(
            "<figure><figcaption>{title} <small>{}</small></figcaption>\n\
             <svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title}\">\n",
            escaped(self.unit)
        );
        for (quarter, tick) in (0_u8..).zip(&self.ticks) {
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
            let x = LEFT + part * (WIDTH - LEFT - RIGHT);
            let anchor = ["start", "middle", "middle", "middle", "end"][usize::from(quarter)];
            let _ = writeln!(
                out,
                "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>",
                HEIGHT - 6.0,
                escaped(tick)
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
        let _ = writeln!(out, "</p>{}</figure>", self.note);
        out
    }
}

fn value(curve: &Curve, at: usize) -> f64 {
    let known = curve.values.get(at).copied().flatten();
    known.unwrap_or(0.0).max(0.0)
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
pub fn escaped(text: &str) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(curves: Vec<Curve>) -> Plot<'static> {
        Plot {
            title: "<t>".into(),
            unit: "Mb/s",
            ticks: ["a", "b", "c", "d", "e"].map(str::to_owned),
            curves,
            note: String::new(),
        }
    }

    #[test]
    fn a_single_step_is_as_wide_as_the_plot() {
        let drawn = plot(vec![Curve::known("<one>", [5.0])]).stacked();
        let points = "points=\"70.0,50.7 890.0,50.7 890.0,214.0 70.0,214.0\"";
        assert!(
            drawn.contains(points) && drawn.contains("&lt;one&gt;"),
            "{drawn}"
        );
        assert!(!drawn.contains("<t>") && !drawn.contains("<one>"));
    }

    #[test]
    fn what_is_not_known_is_a_gap_and_no_zero() {
        let values = vec![Some(1.0), None, Some(1.0), Some(2.0)];
        let drawn = plot(vec![Curve {
            name: "x".into(),
            values,
        }])
        .lines();
        assert_eq!(drawn.matches("<polyline").count(), 2, "{drawn}");
    }
}
