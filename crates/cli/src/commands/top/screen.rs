//! The picture that `penstock top` draws: lines of text that fit a screen. Everything in it that comes from others is printable.

use super::standing::{LinkStanding, Standing, TransferStanding, WaitingReason};
use penstock_model::text::one_line;
use penstock_model::{Bytes, Rate, TimeSpan, Timestamp};

/// The size of a screen in characters.
#[derive(Debug, Clone, Copy)]
pub struct Frame {
    pub columns: usize,
    pub lines: usize,
}

const STEPS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const CURVE_COLUMNS: usize = 20;
const LINK_COLUMNS_MIN: usize = 24;
const NAME_COLUMNS_MIN: usize = 20;
const LINES_MIN: usize = 8;

/// The lines, from the top. Parts that do not fit are told with their number.
pub fn frame(standing: &Standing, trouble: Option<&str>, size: Frame) -> Vec<String> {
    let lines_max = size.lines.max(LINES_MIN);
    let mut lines = head(standing, trouble);
    // What is left is shared: the files take what links and reasons leave.
    let room = lines_max.saturating_sub(lines.len());
    let reasons = part(&standing.waiting, (room / 5).max(2), waiting_line);
    let link = |link: &LinkStanding| link_line(link, size.columns);
    let links = part(&standing.links, (room * 2 / 5).max(3), link);
    if standing.links.is_empty() {
        lines.push(String::new());
        lines.push("No link has been used yet.".to_owned());
    } else {
        lines.push(String::new());
        lines.push(link_head(size.columns));
        lines.extend(links);
    }
    if !standing.waiting.is_empty() {
        lines.push(String::new());
        lines.push("QUEUED   REASON".to_owned());
        lines.extend(reasons);
    }
    let used = lines.len() + 2;
    let transfer = |one: &TransferStanding| transfer_line(one, size.columns);
    if !standing.transfers.is_empty() && used < lines_max {
        lines.push(String::new());
        lines.push(transfer_head(size.columns));
        lines.extend(part(&standing.transfers, lines_max - used, transfer));
        let hidden = standing
            .totals
            .active
            .saturating_sub(standing.transfers.len() as u64);
        if hidden > 0 && lines.len() < lines_max {
            lines.push(format!("… and {hidden} more not listed by the service"));
        }
    }
    lines.truncate(lines_max);
    lines.iter().map(|line| cut(line, size.columns)).collect()
}

/// At most so many lines for a list; the last one tells of those that have none.
fn part<T>(all: &[T], lines_max: usize, line: impl Fn(&T) -> String) -> Vec<String> {
    if all.len() <= lines_max {
        return all.iter().map(line).collect();
    }
    let shown = lines_max.saturating_sub(1);
    let mut lines: Vec<String> = all.iter().take(shown).map(line).collect();
    lines.push(format!("… and {} more", all.len() - shown));
    lines
}

fn head(standing: &Standing, trouble: Option<&str>) -> Vec<String> {
    let totals = &standing.totals;
    let at = Timestamp(standing.at).to_fts();
    let since = Timestamp(standing.counted_since).to_fts();
    let tape = match totals.staging + totals.archiving {
        0 => String::new(),
        on_tape => format!(", {on_tape} on tape"),
    };
    let mut lines = vec![
        format!(
            "{}  {}  {} of {} running, {} queued{tape}  {at}Z",
            one_line(&standing.site),
            Rate(totals.rate_bytes_per_second),
            standing.agents.active,
            standing.agents.limit,
            totals.submitted,
        ),
        format!(
            "finished {}, failed {}, canceled {}, copied {} since {since}Z",
            totals.finished,
            totals.failed,
            totals.canceled,
            Bytes(totals.moved_bytes)
        ),
    ];
    if let Some(most) = standing.rates.iter().flatten().max() {
        let curve = sparkline(&standing.rates, standing.rates.len());
        lines.push(format!(
            "last {} s  {curve}  maximum {}",
            standing.rates.len(),
            Rate(*most)
        ));
    }
    if let Some(why) = trouble {
        lines.push(format!("NOT UP TO DATE: {}", one_line(why)));
    }
    lines
}

/// A curve in so many characters, as high as its highest step. A blank is not known.
fn sparkline(rates: &[Option<u64>], columns: usize) -> String {
    if rates.is_empty() || columns == 0 {
        return String::new();
    }
    let columns = columns.min(rates.len());
    let steps: Vec<Option<u64>> = (0..columns)
        .map(|column| {
            let range = column * rates.len() / columns..(column + 1) * rates.len() / columns;
            let known: Vec<u64> = rates[range].iter().flatten().copied().collect();
            let count = known.len() as u64;
            let sum = known
                .iter()
                .fold(0_u64, |sum, rate| sum.saturating_add(*rate));
            (count > 0).then(|| sum / count)
        })
        .collect();
    let most = steps.iter().flatten().max().copied().unwrap_or(0);
    let symbol = |step: &Option<u64>| match step {
        None => ' ',
        Some(0) => STEPS[0],
        // 1 to 7, the highest for the most.
        Some(rate) => {
            let top = STEPS.len() as u128 - 1;
            let height = (u128::from(*rate) * top).div_ceil(u128::from(most.max(1)));
            STEPS[usize::try_from(height.min(top)).unwrap_or(0)]
        }
    };
    steps.iter().map(symbol).collect()
}

/// `se1.cern.ch` of `https://se1.cern.ch`, and the scheme where it is another one.
fn host(storage: &str) -> String {
    let short = storage
        .strip_prefix("https://")
        .or(storage.strip_prefix("davs://"));
    one_line(short.unwrap_or(storage)).into_owned()
}

fn link_columns(columns: usize) -> usize {
    (columns / 3).clamp(LINK_COLUMNS_MIN, 60)
}

fn link_head(columns: usize) -> String {
    let width = link_columns(columns);
    format!(
        "{:width$} {:>11} {:CURVE_COLUMNS$} {:>9} {:>8} {:>8}  REASON FOR WAITING",
        "LINK", "RATE", " LAST 60 S", "RUNNING", "QUEUED", "STAGING"
    )
}

fn link_line(link: &LinkStanding, columns: usize) -> String {
    let width = link_columns(columns);
    let name = format!("{} → {}", host(&link.source), host(&link.destination));
    let curve = sparkline(&link.rates, CURVE_COLUMNS);
    let why = match (&link.waiting_because, &link.last_failure) {
        (Some(why), _) => why.clone(),
        (None, Some(why)) => format!("last failure: {why}"),
        (None, None) => String::new(),
    };
    format!(
        "{:width$} {:>11} {curve:CURVE_COLUMNS$} {:>9} {:>8} {:>8}  {}",
        cut(&name, width),
        Rate(link.rate_bytes_per_second).to_string(),
        format!("{}/{}", link.active, link.limit),
        link.queued,
        link.staging,
        one_line(&why)
    )
}

fn waiting_line(reason: &WaitingReason) -> String {
    format!("{:>7}  {}", reason.transfers, one_line(&reason.text))
}

fn name_columns(columns: usize) -> usize {
    (columns / 4).clamp(NAME_COLUMNS_MIN, 50)
}

fn transfer_head(columns: usize) -> String {
    let width = name_columns(columns);
    format!(
        "{:width$} {:>9} {:>9} {:>5} {:>11} {:>10}  {}",
        "FILE", "COPIED", "SIZE", "", "RATE", "LEFT", "ROUTE"
    )
}

fn transfer_line(one: &TransferStanding, columns: usize) -> String {
    let width = name_columns(columns);
    let name = one.destination.split(['?', '#']).next().unwrap_or_default();
    let name = name.trim_end_matches('/').rsplit('/').next();
    let size = one.size_bytes.map(|size| Bytes(size).to_string());
    let percent = one.size_bytes.filter(|size| *size > 0).map(|size| {
        let percent = u128::from(one.moved_bytes) * 100 / u128::from(size);
        format!("{}%", percent.min(100))
    });
    let rate = one.rate_bytes_per_second.map(|rate| Rate(rate).to_string());
    let left = one
        .remaining_seconds
        .map(|left| TimeSpan::of_seconds(left).to_string());
    let unknown = || "?".to_owned();
    format!(
        "{:width$} {:>9} {:>9} {:>5} {:>11} {:>10}  {} → {}",
        cut(&one_line(name.unwrap_or_default()), width),
        Bytes(one.moved_bytes).to_string(),
        size.unwrap_or_else(unknown),
        percent.unwrap_or_default(),
        rate.unwrap_or_else(unknown),
        left.unwrap_or_else(unknown),
        server(&one.source),
        server(&one.destination),
    )
}

/// The host of a URL.
fn server(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    // What stands before '@' may be a secret.
    let host = host.rsplit('@').next().unwrap_or_default();
    one_line(host).into_owned()
}

/// At most so many characters; what was longer ends with '…'.
fn cut(text: &str, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(columns.saturating_sub(1)).collect();
    short.push('…');
    short
}

#[cfg(test)]
mod tests {
    use super::super::standing::{Agents, Totals};
    use super::*;

    fn standing(links: usize, transfers: usize) -> Standing {
        let link = |number: usize| LinkStanding {
            source: format!("https://se{number}.cern.ch"),
            destination: "root://eos.example.org".to_owned(),
            rate_bytes_per_second: 1_500_000,
            rates: (0..60).map(Some).collect(),
            active: 3,
            limit: 10,
            queued: 7,
            staging: 12,
            waiting_because: Some("rate limit\x1b[2J".to_owned()),
            last_failure: None,
        };
        let transfer = |number: usize| TransferStanding {
            transfer: number as u64,
            destination: format!("https://user:secret@se.org/data/f{number}?authz=hidden"),
            source: "https://se1.cern.ch:8443/f".to_owned(),
            moved_bytes: 500,
            size_bytes: number.is_multiple_of(2).then_some(1000),
            rate_bytes_per_second: Some(100),
            remaining_seconds: number.is_multiple_of(2).then_some(5),
            ..TransferStanding::default()
        };
        Standing {
            site: "here".to_owned(),
            totals: Totals {
                active: transfers as u64 + 2,
                submitted: 7,
                ..Totals::default()
            },
            agents: Agents {
                active: 5,
                limit: 500,
            },
            rates: vec![Some(0), None, Some(8_000_000)],
            links: (0..links).map(link).collect(),
            waiting: vec![WaitingReason {
                reason: "x".to_owned(),
                text: "all slots are taken".to_owned(),
                transfers: 7,
            }],
            transfers: (0..transfers).map(transfer).collect(),
            ..Standing::default()
        }
    }

    #[test]
    fn it_fits_every_screen_and_commands_no_terminal() {
        for (columns, lines) in [(20, 1), (80, 24), (200, 60), (0, 0)] {
            for (links, transfers) in [(0, 0), (1, 1), (50, 500)] {
                let size = Frame { columns, lines };
                let drawn = frame(&standing(links, transfers), Some("no answer\x07"), size);
                assert!(drawn.len() <= lines.max(LINES_MIN), "{drawn:?}");
                for line in drawn {
                    assert!(line.chars().count() <= columns.max(1), "{line}");
                    assert!(!line.chars().any(char::is_control), "{line:?}");
                    assert!(
                        !line.contains("secret") && !line.contains("hidden"),
                        "{line}"
                    );
                }
            }
        }
    }

    #[test]
    fn it_says_what_moves_how_fast_and_why_the_rest_waits() {
        let size = Frame {
            columns: 160,
            lines: 60,
        };
        let text = frame(&standing(1, 2), None, size).join("\n");
        for told in [
            "5 of 500 running, 7 queued",
            "last 3 s  ▁ █  maximum 8.0 MB/s",
            "se0.cern.ch → root://eos.example.org",
            "1.5 MB/s",
            "     3/10        7       12  rate limit",
            "7  all slots are taken",
            "500 B    1.0 kB   50%     100 B/s        5 s  se1.cern.ch:8443 → se.org",
            "? ",
            "… and 2 more not listed by the service",
        ] {
            assert!(text.contains(told), "{told}\n{text}");
        }
    }

    #[test]
    fn a_curve_is_as_high_as_its_highest_step() {
        assert_eq!(sparkline(&[], 20), "");
        assert_eq!(sparkline(&[Some(0), Some(0)], 20), "▁▁");
        assert_eq!(sparkline(&[Some(1), Some(700)], 20), "▂█");
        assert_eq!(sparkline(&[None, Some(u64::MAX)], 20), " █");
        let rising: Vec<Option<u64>> = (0..60).map(Some).collect();
        assert_eq!(sparkline(&rising, 20).chars().count(), 20);
    }
}
