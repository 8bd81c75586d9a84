//! dCache's billing files (dCache book, "Billing"): text in the default layout, which has neither year nor zone, or JSON.
//!
//! Paths may hold anything, so that a line is taken apart from its right end.

use super::json::{self, Item, Object};
use super::{Parser, SITE, SourceHints, fingerprint_of, host_of};
use crate::times;
use penstock_model::observation::{Attempt, Observation, Operation, Outcome, Text};
use penstock_model::{Bytes, PoolName, Timestamp, UserName, VoName};
use std::time::Duration;

/// Parses them.
#[derive(Debug)]
pub(super) struct BillingParser {
    told: SourceHints,
}

impl BillingParser {
    pub(super) fn new(told: &SourceHints) -> BillingParser {
        BillingParser { told: told.clone() }
    }
}

impl Parser for BillingParser {
    fn parse(&mut self, line: &[u8], rows: &mut Vec<Observation>) -> Result<(), String> {
        let line = std::str::from_utf8(line)
            .map_err(|_| "it is not UTF-8")?
            .trim();
        // A line `## kind template` tells the layout.
        if line.is_empty() || line.starts_with('#') {
            return Ok(());
        }
        let row = match line.starts_with('{') {
            true => self.of_json(line.as_bytes())?,
            false => self.of_text(line)?,
        };
        let server = |row| Attempt {
            server: self.told.server.clone(),
            ..row
        };
        rows.extend(row.map(server).map(Observation::from));
        Ok(())
    }
}

/// Places of a line at which its outcome may begin, at most.
const OUTCOMES_MAX: usize = 20;
/// The longest number is `-9223372036854775808`.
const CODE_BYTES_MAX: usize = 20;
/// Kinds of lines that tell of no bytes and become no rows.
const KINDS_WITHOUT_BYTES: [&str; 3] = ["hit", "check", "warning"];
const LAYOUT: &str = "it is not in the default layout of its kind";

/// `… {rc:"msg"}` at the end of a line. Messages and paths may look like that, too: from the left, each place where it may
/// begin, with what stands before it. How much of the line is looked at for a place does not depend on its length.
fn outcomes(line: &str) -> impl Iterator<Item = (&str, i64, &str)> {
    let inner = line.strip_suffix("\"}").unwrap_or_default();
    let places = inner.match_indices('{').filter_map(move |(at, _)| {
        let behind = &inner[at + 1..];
        let code = behind.bytes().take(CODE_BYTES_MAX);
        let code = code.take_while(|byte| byte.is_ascii_digit() || b"+-".contains(byte));
        let (code, behind) = behind.split_at(code.count());
        let message = behind.strip_prefix(":\"")?;
        Some((inner[..at].trim_end(), code.parse().ok()?, message))
    });
    places.take(OUTCOMES_MAX)
}

/// What is left of a line, taken apart from its right end.
struct Rest<'a>(&'a str);

impl<'a> Rest<'a> {
    /// The last word.
    fn word(&mut self) -> Option<&'a str> {
        let (rest, word) = self.0.rsplit_once(' ')?;
        self.0 = rest;
        Some(word)
    }

    fn number(&mut self) -> Option<u64> {
        self.word()?.parse().ok()
    }

    /// What stands in brackets at the end.
    fn bracket(&mut self, open: &str, close: char) -> Option<&'a str> {
        let inner = self.0.strip_suffix(close)?;
        let at = inner.rfind(open)?;
        self.0 = inner[..at].trim_end();
        Some(&inner[at + open.len()..])
    }

    /// `[pnfsid,size] [path]`, of which the path may be missing.
    fn file(&self) -> Option<(&'a str, Option<u64>, Option<&'a str>)> {
        let inner = self.0.trim().strip_prefix('[')?.strip_suffix(']')?;
        let (file, path) = match inner.split_once("] [") {
            Some((file, path)) => (file, Some(path)),
            None => (inner, None),
        };
        let (id, size) = file.split_once(',')?;
        let path = path.filter(|path| !["Unknown", "<Unknown>", ""].contains(path));
        Some((id, size.parse().ok(), path))
    }
}

impl BillingParser {
    fn of_text(&self, line: &str) -> Result<Option<Attempt>, String> {
        let (date, rest) = line.split_once(" [").ok_or("no '[cell]' after the date")?;
        let (cell, rest) = rest.split_once("] ").ok_or("no ']' after the cell name")?;
        let at = self.time(date)?;
        let mut cell = cell.splitn(3, ':');
        let (_, name) = (cell.next(), cell.next().ok_or(LAYOUT)?);
        let kind = cell.next().ok_or(LAYOUT)?;
        match kind {
            "transfer" | "request" | "remove" | "restore" | "store" => {}
            kind if KINDS_WITHOUT_BYTES.contains(&kind) => return Ok(None),
            kind => return Err(unknown_kind(kind)),
        }
        for (before, code, message) in outcomes(rest) {
            let mut row = attempt(at, code, message);
            let mut rest = Rest(before);
            let fits = match kind {
                "transfer" => self.mover(&mut row, name, &mut rest),
                "request" | "remove" => self.door(&mut row, kind, &mut rest),
                _ => self.storage(&mut row, name, kind, &mut rest),
            };
            if fits.is_some() {
                return Ok(Some(row));
            }
        }
        Err(LAYOUT.to_owned())
    }

    /// `11.22 19:04:51`, or with the year before.
    fn time(&self, text: &str) -> Result<Timestamp, String> {
        let wrong = || format!("'{text}' is not a date and time");
        if let Some(at) = times::iso(text) {
            return Ok(at);
        }
        let (date, time) = text.split_once(' ').ok_or_else(wrong)?;
        let numbers: Option<Vec<u32>> = date.split('.').map(|part| part.parse().ok()).collect();
        let (year, month, day) = match numbers.ok_or_else(wrong)?[..] {
            [month, day] => (self.told.year, month, day),
            [year, month, day] => (Some(i64::from(year)), month, day),
            _ => return Err(wrong()),
        };
        let year = year.ok_or("the date has no year: give it with --year")?;
        let date = times::Date::new(year, month, day).ok_or_else(wrong)?;
        let local = date.at(times::time_of_day(time).ok_or_else(wrong)?);
        Ok(Timestamp(local.0 - self.told.zone_milliseconds))
    }

    /// `[pnfsid,size] [path] S transferred connectionTime created {protocol} [initiator]`.
    fn mover(&self, row: &mut Attempt, pool: &str, rest: &mut Rest<'_>) -> Option<()> {
        let initiator = rest.bracket(" [", ']')?;
        let protocol = rest.bracket(" {", '}')?;
        let created = rest.word()?;
        let (milliseconds, moved) = (rest.number()?, rest.number()?);
        let class = rest.word()?;
        let (id, size, path) = rest.file()?;
        row.operation = match (created, initiator.starts_with("pool:")) {
            (_, true) => Operation::PoolCopy,
            ("true", false) => Operation::Write,
            ("false", false) => Operation::Read,
            _ => return None,
        };
        row.pool = Some(PoolName::new(pool));
        row.session = Some(initiator.into());
        self.file(row, id, size, path, class);
        moved_bytes(row, moved);
        lasted(row, milliseconds);
        let mut parts = protocol.split(':');
        row.protocol = parts.next().map(Text::from);
        row.client = parts.next().filter(|host| !host.is_empty()).map(Text::from);
        Some(())
    }

    /// `["owner":uid:gid:clientChain] [pnfsid,size] [path] S transactionTime queuingTime`; a removal has no times.
    fn door(&self, row: &mut Attempt, kind: &str, rest: &mut Rest<'_>) -> Option<()> {
        row.operation = match kind {
            "remove" => Operation::Removal,
            _ => Operation::Request,
        };
        if let Some(owner) = rest.0.strip_prefix("[\"") {
            let (user, behind) = owner.split_once("\":")?;
            let (ids, behind) = behind.split_once("] ")?;
            let clients = ids.splitn(3, ':').nth(2);
            row.user = Some(user)
                .filter(|user| !user.is_empty())
                .map(UserName::new);
            row.client = clients
                .and_then(|chain| chain.split(',').next())
                .map(Text::from);
            rest.0 = behind;
        }
        let is_bare = rest
            .0
            .rsplit(' ')
            .next()
            .is_some_and(|word| word.parse::<u64>().is_err());
        if !is_bare {
            let (queued, whole) = (rest.number()?, rest.number()?);
            row.wait_us = queued.checked_mul(1000);
            lasted(row, whole);
        }
        let class = rest.word()?;
        let (id, size, path) = rest.file()?;
        self.file(row, id, size, path, class);
        Some(())
    }

    /// `[pnfsid,size] [path] S transferTime queuingTime`.
    fn storage(
        &self,
        row: &mut Attempt,
        pool: &str,
        kind: &str,
        rest: &mut Rest<'_>,
    ) -> Option<()> {
        let (queued, ran) = (rest.number()?, rest.number()?);
        let class = rest.word()?;
        row.pool = Some(PoolName::new(pool));
        let (id, size, path) = rest.file()?;
        self.file(row, id, size, path, class);
        of_tape(row, kind, queued, ran);
        Some(())
    }

    fn file(
        &self,
        row: &mut Attempt,
        id: &str,
        size: Option<u64>,
        path: Option<&str>,
        class: &str,
    ) {
        row.file = Some(id.into());
        row.file_bytes = size.map(Bytes);
        match row.operation {
            Operation::Write | Operation::Migration => row.destination_path = path.map(Text::from),
            _ => row.source_path = path.map(Text::from),
        }
        let vo = class.split([':', '.', '@']).next();
        let vo = vo.filter(|vo| self.told.storage_class_is_vo && !vo.is_empty());
        row.vo = vo.filter(|vo| !vo.starts_with('<')).map(VoName::new);
    }

    fn of_json(&self, line: &[u8]) -> Result<Option<Attempt>, String> {
        let whole = json::object(line)?;
        let record = Object(&whole);
        let at = record
            .str("date")
            .and_then(times::iso)
            .ok_or("it has no date")?;
        let status = record.object("status");
        let code = status.as_ref().and_then(|status| status.signed("code"));
        let message = status.as_ref().and_then(|status| status.str("msg"));
        let mut row = attempt(at, code.unwrap_or(0), message.unwrap_or_default());
        let kind = record.str("msgType").ok_or("it has no msgType")?;
        row.operation = match kind {
            "transfer" => match (record.str("isWrite"), record.truth("isP2p")) {
                (_, Some(true)) => Operation::PoolCopy,
                (Some("write"), _) => Operation::Write,
                _ => Operation::Read,
            },
            "request" => Operation::Request,
            "remove" => Operation::Removal,
            "store" => Operation::Migration,
            "restore" => Operation::Recall,
            kind if KINDS_WITHOUT_BYTES.contains(&kind) => return Ok(None),
            kind => return Err(unknown_kind(kind)),
        };
        let path = record
            .str("transferPath")
            .or_else(|| record.str("billingPath"));
        let id = record.str("pnfsid").unwrap_or_default();
        let class = record.str("storageInfo").unwrap_or_default();
        self.file(&mut row, id, record.unsigned("fileSize"), path, class);
        row.session = record.text("initiator").or_else(|| record.text("session"));
        row.vo = row.vo.or_else(|| vo_of(record.list("subject")));
        row.user = record.str("owner").map(UserName::new);
        row.client = record.text("client");
        let queued = record.unsigned("queuingTime").unwrap_or(0);
        match row.operation {
            Operation::Recall | Operation::Migration => {
                row.pool = record.str("cellName").map(PoolName::new);
                of_tape(
                    &mut row,
                    kind,
                    queued,
                    record.unsigned("transferTime").unwrap_or(0),
                );
            }
            Operation::Request | Operation::Removal => {
                row.wait_us = record
                    .has("queuingTime")
                    .then_some(queued.saturating_mul(1000));
                if let Some(lasted_ms) = record.unsigned("sessionDuration") {
                    lasted(&mut row, lasted_ms);
                }
            }
            Operation::Read | Operation::Write | Operation::PoolCopy | Operation::Copy => {
                row.pool = record.str("cellName").map(PoolName::new);
                if let Some(moved) = record.unsigned("transferSize") {
                    moved_bytes(&mut row, moved);
                }
                if let Some(lasted_ms) = record.unsigned("transferTime") {
                    lasted(&mut row, lasted_ms);
                }
                if let Some(protocol) = record.object("protocolInfo") {
                    row.protocol = protocol.text("protocol");
                    row.client = protocol.str("host").map(|host| host_of(host).into());
                }
            }
        }
        Ok(Some(row))
    }
}

fn unknown_kind(kind: &str) -> String {
    format!("its kind '{kind}' is none that dCache is known to write")
}

/// The first FQAN's group.
fn vo_of(subject: &[Item<'_>]) -> Option<VoName> {
    let principals = subject.iter().filter_map(Item::as_str);
    let mut fqans = principals.filter_map(|principal| {
        let (_, name) = principal.split_once("FQAN")?;
        let (_, group) = name.split_once('/')?;
        group.split(['/', ',', ']']).next()
    });
    fqans.find(|vo| !vo.is_empty()).map(VoName::new)
}

fn attempt(at: Timestamp, code: i64, message: &str) -> Attempt {
    let is_success = code == 0;
    let mut row = Attempt {
        at,
        view: SITE,
        ended: Some(at),
        outcome: Some(match is_success {
            true => Outcome::Success,
            false => Outcome::Failure,
        }),
        ..Attempt::default()
    };
    if !is_success {
        row.error_code = Some(code);
        row.fingerprint = Some(fingerprint_of(None, Some(code), message));
        row.detail = Some(message.into());
    }
    row
}

fn moved_bytes(row: &mut Attempt, moved: u64) {
    row.bytes_moved = Some(Bytes(moved));
    match row.operation {
        Operation::Write => row.bytes_written = Some(Bytes(moved)),
        Operation::Read => row.bytes_read = Some(Bytes(moved)),
        _ => {}
    }
}

/// dCache tells the end and how long it took.
fn lasted(row: &mut Attempt, milliseconds: u64) {
    row.started = Some(row.at - Duration::from_millis(milliseconds));
    row.derived = Some("started".into());
}

fn of_tape(row: &mut Attempt, kind: &str, queued: u64, ran: u64) {
    row.operation = match kind {
        "restore" => Operation::Recall,
        _ => Operation::Migration,
    };
    if row.operation == Operation::Migration {
        row.destination_path = row.destination_path.take().or(row.source_path.take());
    }
    lasted(row, ran);
    row.submitted = row.started.map(|at| at - Duration::from_millis(queued));
    row.derived = Some("submitted,started".into());
    row.wait_us = queued.checked_mul(1000);
    if row.outcome == Some(Outcome::Success) {
        row.bytes_moved = row.file_bytes;
    }
}
