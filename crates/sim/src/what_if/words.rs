//! The answer for people.

use super::measured::Place;
use super::{AlternativeAnswer, LinkGain, RateBound, SlotBound, WhatIf};
use penstock_model::Rate;
use penstock_model::text::{one_line, plural};

/// Links that are listed below an alternative; `--json` has all.
const LINKS_LISTED: usize = 10;
/// A gain that is smaller is none, in percent.
const GAIN_MIN: f64 = 0.5;

/// Bytes per second, for people.
pub fn rate(bytes_per_second: f64) -> String {
    Rate(bytes_per_second.max(0.0).round() as u64).to_string()
}

/// `+18 %`, `±0 %`, `+2 to +18 %`.
fn gain(least: f64, most: f64) -> String {
    let one = |percent: f64| match percent.abs() < GAIN_MIN {
        true => "±0".to_owned(),
        false => format!("{percent:+.0}"),
    };
    match most - least < 1.0 {
        true => format!("{} %", one(least)),
        false => format!("{} to {} %", one(least), one(most)),
    }
}

/// What limits a link.
pub(super) fn limiting(
    slots: SlotBound,
    limit: Option<f64>,
    rate: RateBound,
    stage: Option<Place>,
) -> String {
    let slots = match slots {
        SlotBound::NothingQueued => "no files were queued".to_owned(),
        SlotBound::Link => format!("no more than {:.0} run at once", limit.unwrap_or(0.0)),
        SlotBound::Source => "limit of the source".to_owned(),
        SlotBound::Destination => "limit of the destination".to_owned(),
        SlotBound::Service => "limit of the service".to_owned(),
        SlotBound::Other => "transfers wait after failures".to_owned(),
    };
    let rate = match (rate, stage) {
        (RateBound::EachTransfer, Some(Place::Source)) => {
            "each transfer is as fast as the source reads one file"
        }
        (RateBound::EachTransfer, Some(Place::Destination)) => {
            "each transfer is as fast as the destination writes one file"
        }
        (RateBound::EachTransfer, Some(Place::Network)) => {
            "each transfer is as fast as the network carries one file"
        }
        (RateBound::EachTransfer, None) => "each transfer is as fast as one can be",
        (RateBound::Source, _) => "the transfers share what the source can read",
        (RateBound::Link, _) => "the transfers share what the link can carry",
        (RateBound::Destination, _) => "the transfers share what the destination can write",
    };
    format!("{slots}; {rate}")
}

pub fn told(answer: &WhatIf) -> String {
    let mut text = format!(
        "{}Z to {}Z: {} on {}, {}\n",
        answer.from.to_fts(),
        answer.to.to_fts(),
        plural(answer.transfers as u64, "transfer"),
        plural(answer.links.len() as u64, "link"),
        penstock_model::Bytes(answer.bytes),
    );
    if answer.is_shortened {
        text += "the window begins later than asked for: there are more transfers, or entries of the record, than are read\n";
    }
    if answer.transfers_passed_over > 0 {
        let count = plural(answer.transfers_passed_over, "transfer");
        text += &format!("{count} left out: too many links; ask for one with --link\n");
    }
    text += &format!(
        "recorded {}; replayed within {:.0} % of the recorded rate (at most {:.0} %)\n",
        rate(answer.recorded_bytes_per_second),
        answer.error_percent.ceil(),
        answer.error_percent_max
    );
    for link in answer.links.iter().take(LINKS_LISTED) {
        text += &format!(
            "  {} → {}  {}  {}\n",
            one_line(&link.source),
            one_line(&link.destination),
            rate(link.recorded_bytes_per_second),
            one_line(&link.limiting.text)
        );
    }
    text += &left_out(answer.links.len());
    for alternative in &answer.alternatives {
        text += &one(alternative);
    }
    let is_open = |it: &AlternativeAnswer| it.gain_percent_max - it.gain_percent >= 1.0;
    if answer.alternatives.iter().any(is_open) {
        text += "\nA gain is given as a range when the record cannot decide: the number of concurrent transfers hardly \
                 changed, or no transfer ever ran alone.\n";
    }
    text
}

fn left_out(links: usize) -> String {
    match links > LINKS_LISTED {
        true => format!("  … and {} more\n", links - LINKS_LISTED),
        false => String::new(),
    }
}

fn one(alternative: &AlternativeAnswer) -> String {
    let mut text = format!(
        "\n{}: {}, {}\n",
        one_line(&alternative.change),
        gain(alternative.gain_percent, alternative.gain_percent_max),
        rate(alternative.bytes_per_second)
    );
    if alternative.open > 0 {
        let files = plural(alternative.open, "file");
        text += &format!("  {files} had not arrived when the simulation was cut off\n");
    }
    for link in alternative.links.iter().take(LINKS_LISTED) {
        text += &of_link(link);
    }
    text + &left_out(alternative.links.len())
}

fn of_link(link: &LinkGain) -> String {
    let beyond = match link.is_beyond_record {
        true => "; more concurrent transfers than were ever recorded: the real gain may be smaller",
        false => "",
    };
    format!(
        "  {} → {}  {}, {}  then: {}{beyond}\n",
        one_line(&link.source),
        one_line(&link.destination),
        gain(link.gain_percent, link.gain_percent_max),
        rate(link.bytes_per_second),
        one_line(&link.limiting.text)
    )
}
