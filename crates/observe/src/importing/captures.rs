//! What people paste: `ss -tinm` (iproute2) and `sar` (sysstat). Neither tells its date in each line, `ss` not at all.

use super::{Parser, SourceHints};
use crate::times;
use penstock_model::observation::{Observation, Sample, SubjectKind, Text, View};
use penstock_model::{Bytes, Timestamp};

/// Parses `ss`: a line for each connection, and its details in the next one, which is indented.
#[derive(Debug)]
pub(super) struct Sockets {
    at: Option<Timestamp>,
    server: Option<Text>,
    open: Option<Box<Sample>>,
}

impl Sockets {
    pub(super) fn new(told: &SourceHints) -> Sockets {
        Sockets {
            at: told.at,
            server: told.server.clone(),
            open: None,
        }
    }
}

impl Parser for Sockets {
    fn parse(&mut self, line: &[u8], rows: &mut Vec<Observation>) -> Result<(), String> {
        let line = std::str::from_utf8(line).map_err(|_| "it is not UTF-8")?;
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.is_empty() || words[0] == "State" {
            return Ok(());
        }
        if line.starts_with([' ', '\t']) {
            let open = self
                .open
                .as_mut()
                .ok_or("indented line without a connection before it")?;
            details(open, &words);
            return Ok(());
        }
        self.finish(rows);
        let [state, receive, send, local, peer, rest @ ..] = words.as_slice() else {
            return Err("it is not a line of ss".to_owned());
        };
        let number = |word: &str| word.parse().ok().map(Bytes);
        let (receive, send) = (number(receive), number(send));
        if receive.is_none() || send.is_none() {
            return Err("it is not a line of ss".to_owned());
        }
        let mut row = Box::new(Sample {
            at: self.at.ok_or("ss prints no time: give it with --at")?,
            view: View::Network,
            subject_kind: SubjectKind::Connection,
            subject: format!("{local} → {peer}").into(),
            server: self.server.clone(),
            receive_queue_bytes: receive,
            send_queue_bytes: send,
            note: Some((*state).into()),
            ..Sample::default()
        });
        details(&mut row, rest);
        self.open = Some(row);
        Ok(())
    }

    fn finish(&mut self, rows: &mut Vec<Observation>) {
        rows.extend(self.open.take().map(Observation::Sample));
    }
}

/// Words `name:value`, and names whose value is the next word. What is zero is not printed.
fn details(row: &mut Sample, words: &[&str]) {
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if ["send", "pacing_rate", "delivery_rate"].contains(word) {
            let rate = words.next().and_then(|rate| bytes_per_second(rate));
            if *word == "delivery_rate" {
                row.bytes_per_second = rate;
            }
            continue;
        }
        let Some((name, value)) = word.split_once(':') else {
            continue;
        };
        let number = || value.parse::<u64>().ok();
        match name {
            "rtt" => row.rtt_us = value.split('/').next().and_then(microseconds),
            "minrtt" => row.min_rtt_us = microseconds(value),
            "cwnd" => row.congestion_window_segments = number(),
            "mss" => row.segment_bytes = number(),
            "bytes_sent" => row.bytes_out = number().map(Bytes),
            "bytes_acked" => row.bytes_out = row.bytes_out.or(number().map(Bytes)),
            "bytes_received" => row.bytes_in = number().map(Bytes),
            "data_segs_out" => row.sent_segments = number(),
            "retrans" => {
                let total = value.split('/').nth(1);
                row.retransmitted_segments = total.and_then(|total| total.parse().ok());
            }
            "busy" => row.busy_us = limited(value),
            "rwnd_limited" => row.receiver_limited_us = limited(value),
            "sndbuf_limited" => row.send_buffer_limited_us = limited(value),
            _ => {}
        }
    }
}

/// Milliseconds with a fraction.
fn microseconds(value: &str) -> Option<u64> {
    let value: f64 = value.parse().ok()?;
    (0.0..1e12)
        .contains(&value)
        .then_some((value * 1000.0).round() as u64)
}

/// `6400ms(80.0%)`.
fn limited(value: &str) -> Option<u64> {
    microseconds(value.split("ms").next()?)
}

/// `12.3Mbps`.
fn bytes_per_second(rate: &str) -> Option<u64> {
    let number = rate.strip_suffix("bps")?;
    let (number, factor) = match number.char_indices().next_back()? {
        (at, 'K') => (&number[..at], 1e3),
        (at, 'M') => (&number[..at], 1e6),
        (at, 'G') => (&number[..at], 1e9),
        (at, 'T') => (&number[..at], 1e12),
        _ => (number, 1.0),
    };
    let value: f64 = number.parse().ok()?;
    (0.0..1e6)
        .contains(&value)
        .then_some((value * factor / 8.0) as u64)
}

/// Parses `sar`: a banner with date and host, heads with the names of columns, a line for each device and time.
#[derive(Debug)]
pub(super) struct Activity {
    zone_milliseconds: i64,
    date: Option<times::Date>,
    last: Option<i64>,
    /// Days after the date of the banner: `sar` passes midnight without a word.
    days: i64,
    server: Option<Text>,
    columns: Vec<String>,
    kind: SubjectKind,
    /// The time before, of which intervals are counted, and that of the present lines.
    interval: (Option<Timestamp>, Option<Timestamp>),
}

impl Activity {
    pub(super) fn new(told: &SourceHints) -> Activity {
        Activity {
            zone_milliseconds: told.zone_milliseconds,
            date: None,
            last: None,
            days: 0,
            server: told.server.clone(),
            columns: Vec::new(),
            kind: SubjectKind::Interface,
            interval: (None, None),
        }
    }

    /// `Linux 6.1.0 (host)  2026-11-22  _x86_64_  (8 CPU)`.
    fn banner(&mut self, words: &[&str]) -> Result<(), String> {
        let host = words
            .iter()
            .find_map(|word| word.strip_prefix('(')?.strip_suffix(')'));
        if self.server.is_none() {
            self.server = host.map(Text::from);
        }
        let date = words.iter().find_map(|word| banner_date(word));
        self.date = Some(date.ok_or("its banner has no date")?);
        self.last = None;
        self.days = 0;
        self.columns.clear();
        self.interval = (None, None);
        Ok(())
    }

    fn at(&mut self, time: i64) -> Result<Timestamp, String> {
        if self.last.is_some_and(|last| time < last) {
            self.days += 1;
        }
        self.last = Some(time);
        let date = self.date.ok_or("no banner with a date came before")?;
        Ok(Timestamp(
            date.at(time).0 + self.days * 86_400_000 - self.zone_milliseconds,
        ))
    }

    fn row(&mut self, at: Timestamp, values: &[&str]) -> Result<Sample, String> {
        if values.len() != self.columns.len() {
            return Err("the number of columns differs from the header".to_owned());
        }
        if self.interval.1 != Some(at) {
            self.interval = (self.interval.1, Some(at));
        }
        let milliseconds = self
            .interval
            .0
            .map(|before| at.since(before).as_millis() as u64);
        let mut row = Sample {
            at,
            view: View::Site,
            subject_kind: self.kind,
            subject: values[0].into(),
            server: self.server.clone(),
            interval_ms: milliseconds.filter(|interval| *interval > 0),
            ..Sample::default()
        };
        if self.kind == SubjectKind::Interface {
            row.view = View::Network;
        }
        for (column, value) in self.columns.iter().zip(values).skip(1) {
            let Ok(value) = value.replace(',', ".").parse::<f64>() else {
                return Err(format!("'{value}' is not a number"));
            };
            set_activity(&mut row, column, value);
        }
        Ok(row)
    }
}

/// Rates are turned to bytes of the interval where that is known.
fn set_activity(row: &mut Sample, column: &str, value: f64) {
    if !(0.0..1e15).contains(&value) {
        return;
    }
    let seconds = row.interval_ms.map(|interval| interval as f64 / 1000.0);
    let bytes = |unit: f64| seconds.map(|seconds| Bytes((value * unit * seconds).round() as u64));
    let count = seconds.map(|seconds| (value * seconds).round() as u64);
    match column {
        "rxkB/s" | "wkB/s" => row.bytes_in = bytes(1024.0),
        "txkB/s" | "rkB/s" => row.bytes_out = bytes(1024.0),
        "wr_sec/s" => row.bytes_in = bytes(512.0),
        "rd_sec/s" => row.bytes_out = bytes(512.0),
        "rxpck/s" => row.operations_in = count,
        "txpck/s" => row.operations_out = count,
        "%util" | "%ifutil" => row.busy_permille = Some((value * 10.0).round() as u64),
        "aqu-sz" | "avgqu-sz" => row.queued = Some(value.round() as u64),
        _ => {}
    }
}

impl Parser for Activity {
    fn parse(&mut self, line: &[u8], rows: &mut Vec<Observation>) -> Result<(), String> {
        let line = std::str::from_utf8(line).map_err(|_| "it is not UTF-8")?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let Some(first) = words.first() else {
            return Ok(());
        };
        if *first == "Linux" {
            return self.banner(&words);
        }
        if first.starts_with("Average") {
            return Ok(());
        }
        if line.contains("LINUX RESTART") {
            // What comes next counts from its own head on.
            self.interval = (None, None);
            return Ok(());
        }
        let time = times::time_of_day(first).ok_or("it begins with no time")?;
        let (time, values) = match words.get(1) {
            Some(&"AM") => (time % 43_200_000, &words[2..]),
            Some(&"PM") => (time % 43_200_000 + 43_200_000, &words[2..]),
            _ => (time, &words[1..]),
        };
        match values.first() {
            Some(&"IFACE") => self.kind = SubjectKind::Interface,
            Some(&"DEV") => self.kind = SubjectKind::Device,
            Some(_) if !self.columns.is_empty() => {
                let at = self.at(time)?;
                rows.push(self.row(at, values)?.into());
                return Ok(());
            }
            Some(_) => return Err("not a table of sar -n DEV or sar -d".to_owned()),
            None => return Err("nothing follows the time".to_owned()),
        }
        self.columns = values.iter().map(|column| (*column).to_owned()).collect();
        let at = self.at(time)?;
        if self.interval.1.is_none() {
            self.interval.1 = Some(at);
        }
        Ok(())
    }
}

/// `2026-11-22`, or `11/22/2026` as in the C locale, month first.
fn banner_date(word: &str) -> Option<times::Date> {
    if let Some(date) = times::Date::parse(word) {
        return Some(date);
    }
    let numbers: Option<Vec<u32>> = word.split('/').map(|part| part.parse().ok()).collect();
    let [month, day, year] = numbers?[..] else {
        return None;
    };
    let century = if year < 100 { 2000 } else { 0 };
    times::Date::new(i64::from(year + century), month, day)
}
