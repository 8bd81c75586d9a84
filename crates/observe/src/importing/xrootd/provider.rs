//! What a server's plugins tell as JSON: third-party copies, caches, throttles (`xrootd.mongstream`).

use super::super::{host_of, json, storage_and_path};
use super::{InvalidDatagram, host_name};
use crate::times;
use penstock_model::observation::{
    Attempt, Observation, Operation, Outcome, Sample, SubjectKind, Text, View,
};
use penstock_model::{Bytes, Timestamp};

/// Who tells JSON.
pub(super) struct Provider {
    pub(super) server: Text,
    pub(super) code: u8,
    pub(super) at: Timestamp,
}

/// What a plugin tells with `send json`: the first line tells what the binary head would.
pub(super) struct ProvidedDatagram<'a> {
    pub(super) host: Option<Text>,
    /// When its server was started, in seconds since 1970.
    pub(super) started: Option<i32>,
    code: u8,
    at: Timestamp,
    lines: &'a [u8],
}

impl<'a> ProvidedDatagram<'a> {
    pub(super) fn parse(datagram: &'a [u8]) -> Result<ProvidedDatagram<'a>, InvalidDatagram> {
        let end = datagram.iter().position(|byte| *byte == b'\n');
        let (head, lines) = datagram.split_at(end.unwrap_or(datagram.len()));
        let head = json::object(head).map_err(|_| InvalidDatagram("its head is no JSON"))?;
        let head = json::Object(&head);
        let about = head
            .object("gs")
            .ok_or(InvalidDatagram("its head has no provider"))?;
        let kind = about.str("type").and_then(|kind| kind.bytes().next());
        let source = head.object("src");
        let at = about.signed("tend").and_then(|at| at.checked_mul(1000));
        let started = head.unsigned("stod");
        Ok(ProvidedDatagram {
            host: source.and_then(|source| host_name(source.str("host")?)),
            // The binary head has the same 32 bits.
            started: started.and_then(|at| Some(u32::try_from(at).ok()?.cast_signed())),
            code: kind.ok_or(InvalidDatagram("its head has no provider"))?,
            at: Timestamp(at.ok_or(InvalidDatagram("its head has no time"))?),
            lines,
        })
    }

    /// `server`: its name when the head does not tell it. Gives the lines that were left out.
    pub(super) fn rows(&self, server: Text, rows_max: usize, rows: &mut Vec<Observation>) -> u64 {
        let about = Provider {
            server: self.host.clone().unwrap_or(server),
            code: self.code,
            at: self.at,
        };
        about.lines(self.lines, rows_max, rows)
    }
}

impl Provider {
    /// Makes so many rows of lines at most. Gives how many lines were left out: they were not looked at.
    pub(super) fn lines(&self, lines: &[u8], rows_max: usize, rows: &mut Vec<Observation>) -> u64 {
        let before = rows.len();
        let mut left_out = 0;
        for line in lines.split(|byte| *byte == b'\n') {
            match rows.len() - before < rows_max {
                true => self.line(line, rows),
                false => left_out += u64::from(line.len() > 1),
            }
        }
        left_out
    }

    fn line(&self, line: &[u8], rows: &mut Vec<Observation>) {
        let line = line.strip_suffix(&[0]).unwrap_or(line);
        let Ok(object) = json::object(line) else {
            return;
        };
        let object = json::Object(&object);
        rows.extend(match self.code {
            b'P' => self.copied(&object),
            b'C' => self.cached(&object),
            b'R' => self.throttled(&object),
            _ => None,
        });
    }

    /// A third-party copy.
    fn copied(&self, told: &json::Object<'_>) -> Option<Observation> {
        let run = told.object("Xeq")?;
        let time = |key: &str| run.str(key).and_then(padded_time);
        let ended = time("End");
        let code = run.signed("RC");
        let is_success = code == Some(0);
        let end = |key: &str| told.str(key).and_then(storage_and_path).unzip();
        let (source, destination) = (end("Src"), end("Dst"));
        let size = told.unsigned("Size").map(Bytes);
        let row = Attempt {
            at: ended.unwrap_or(self.at),
            view: View::Site,
            operation: Operation::Copy,
            source_host: source.0,
            source_path: source.1,
            destination_host: destination.0,
            destination_path: destination.1,
            protocol: told.text("TPC"),
            client: told
                .str("Client")
                .map(|client| host_of(client.rsplit('@').next().unwrap_or(client)).into()),
            server: Some(self.server.clone()),
            file_bytes: size,
            bytes_moved: size.filter(|_| is_success),
            started: time("Beg"),
            ended,
            streams: run
                .unsigned("Strm")
                .and_then(|streams| u32::try_from(streams).ok()),
            ip_version: run
                .unsigned("IPv")
                .and_then(|version| u32::try_from(version).ok()),
            outcome: code.map(|code| match code {
                0 => Outcome::Success,
                _ => Outcome::Failure,
            }),
            error_code: code.filter(|code| *code != 0),
            ..Attempt::default()
        };
        Some(row.into())
    }

    /// A file of a cache was closed: what came over the network is on the side of its origin.
    fn cached(&self, told: &json::Object<'_>) -> Option<Observation> {
        let sum = |keys: [&str; 3]| {
            let parts = keys.map(|key| told.unsigned(key).unwrap_or(0));
            Bytes(
                parts
                    .iter()
                    .fold(0, |sum: u64, part| sum.saturating_add(*part)),
            )
        };
        let seconds = |key: &str| {
            told.signed(key)
                .and_then(|at| at.checked_mul(1000))
                .map(Timestamp)
        };
        let path = told.text("lfn")?;
        let ended = seconds("detach_t");
        let row = Attempt {
            at: ended.unwrap_or(self.at),
            view: View::Site,
            operation: Operation::Read,
            source_path: Some(path),
            server: Some(self.server.clone()),
            file_bytes: told.unsigned("size").map(Bytes),
            bytes_read: Some(sum(["b_hit", "b_miss", "b_bypass"])),
            bytes_moved: Some(sum(["b_miss", "b_bypass", "b_prefetch"])),
            started: seconds("attach_t"),
            ended,
            outcome: None,
            state: Some("cache".into()),
            ..Attempt::default()
        };
        Some(row.into())
    }

    fn throttled(&self, told: &json::Object<'_>) -> Option<Observation> {
        let (active, queued) = (told.unsigned("io_active"), told.unsigned("io_wait"));
        active.or(queued)?;
        let row = Sample {
            at: self.at,
            view: View::Site,
            subject_kind: SubjectKind::Server,
            subject: self.server.clone(),
            active,
            queued,
            ..Sample::default()
        };
        Some(row.into())
    }
}

/// The fraction of these times is a number of microseconds without the zeros before it, padded to three digits
/// (`XrdXrootdTpcMon.cc`): `.4512` is 4.512 ms.
fn padded_time(text: &str) -> Option<Timestamp> {
    let whole = text.strip_suffix('Z').unwrap_or(text);
    let (whole, fraction) = whole.split_once('.').unwrap_or((whole, "0"));
    let microseconds: i64 = fraction
        .parse()
        .ok()
        .filter(|value| (0..1_000_000).contains(value))?;
    Some(Timestamp(times::iso(whole)?.0 + microseconds / 1000))
}
