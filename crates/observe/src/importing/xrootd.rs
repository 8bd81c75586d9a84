//! XRootD's monitoring: datagrams of a server to rows (XRootD "System Monitoring Reference"; `XrdXrootd/XrdXrootdMonData.hh`).
//!
//! A server says in some datagrams who its users are and in others what they did, each by number; they may come in any
//! order or not at all. What is lost is told as an incident of the kind `gap`. Which servers are followed is the matter of
//! `sources`.

mod allowance;
mod held;
mod provider;
mod sources;
mod streams;

use super::fingerprint_of;
use super::pcap::Datagram;
pub use allowance::{ROWS_AT_ONCE_MAX, ROWS_PER_SECOND_MAX, RowAllowances};
use held::{HeldRecords, Users};
use penstock_model::observation::{
    Attempt, Incident, IncidentKind, Observation, Operation, Outcome, Sample, SubjectKind, Text,
    View,
};
use penstock_model::{Bytes, Timestamp, UserName, VoName};
use provider::{ProvidedDatagram, Provider};
use sources::Sources;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;
use streams::{FileRecord, OpenFileBytes};

/// Users and open files of one server that are held at most: then they are forgotten, and it is told.
const USERS_MAX: usize = 500_000;
const FILES_MAX: usize = 500_000;
/// A name of a host is no longer (RFC 1035, 2.3.4).
const HOST_NAME_BYTES_MAX: usize = 255;
/// How far the time of a row may be before or after the arrival of its datagram for a listener to take it: a time is what a
/// sender says, and each day of them is a file.
pub const BEFORE_ARRIVAL_MAX: Duration = Duration::from_secs(2 * 86_400);
pub const AFTER_ARRIVAL_MAX: Duration = Duration::from_secs(600);
const HEAD_BYTES: usize = 8;
/// A step back by less is another order on the way, not a loss.
const REORDERED_MAX: u8 = 128;

/// Follows the servers that send.
#[derive(Debug, Default)]
pub struct MonitoringStreams {
    sources: Sources,
}

/// One life of a server.
#[derive(Debug, Default)]
struct Server {
    name: Option<Text>,
    users: Users,
    files: HeldRecords<OpenFile>,
    sequences: BTreeMap<u8, u8>,
}

#[derive(Debug, Clone, Default)]
struct User {
    /// By which a server names it in maps: `prot/user.pid:sid@host`.
    id: Text,
    protocol: Option<Text>,
    name: Option<Text>,
    client: Option<Text>,
    vo: Option<Text>,
    activity: Option<Text>,
}

#[derive(Debug, Clone)]
struct OpenFile {
    path: Option<Text>,
    user: u32,
    size: i64,
    may_write: bool,
    opened: Timestamp,
    seen: OpenFileBytes,
    seen_at: Timestamp,
}

/// A datagram that is none of XRootD's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidDatagram(&'static str);

impl MonitoringStreams {
    /// Nothing is known yet.
    pub fn new() -> MonitoringStreams {
        MonitoringStreams::default()
    }

    /// Files that are open, as far as is known.
    pub fn open_files(&self) -> usize {
        self.sources.open_files()
    }

    /// Takes a datagram. Its time is when it came: what the servers say of time is used where they say it.
    pub fn take(
        &mut self,
        datagram: Datagram<'_>,
        rows: &mut Vec<Observation>,
    ) -> Result<(), InvalidDatagram> {
        self.take_some(datagram, usize::MAX, rows).map(drop)
    }

    /// The same; of lines of JSON, which are short and each a row, so many at most become rows. Gives how many were left out.
    pub fn take_some(
        &mut self,
        datagram: Datagram<'_>,
        rows_max: usize,
        rows: &mut Vec<Observation>,
    ) -> Result<u64, InvalidDatagram> {
        let mut left_out = 0;
        let Datagram {
            at,
            sender,
            payload: datagram,
        } = datagram;
        if datagram.first() == Some(&b'{') {
            let provided = ProvidedDatagram::parse(datagram)?;
            let take = |server: &mut Server, rows: &mut Vec<Observation>| {
                if server.name.is_none() {
                    server.name.clone_from(&provided.host);
                }
                left_out = provided.rows(server.name(&sender), rows_max, rows);
                Ok(())
            };
            let heard = self.sources.hear(sender, provided.started, at, rows, take);
            return heard.map(|()| left_out);
        }
        let (head, body) = datagram
            .split_at_checked(HEAD_BYTES)
            .ok_or(InvalidDatagram("it is shorter than a head"))?;
        let length = usize::from(u16::from_be_bytes([head[2], head[3]]));
        if length != datagram.len() {
            return Err(InvalidDatagram("it is not as long as its head says"));
        }
        let (code, sequence) = (head[0], head[1]);
        let started = i32::from_be_bytes([head[4], head[5], head[6], head[7]]);
        let take = |server: &mut Server, rows: &mut Vec<Observation>| {
            let lost = server.lost_before(sequence, stream_of(code, body));
            if lost > 0 {
                let what = "datagrams of a stream did not come";
                rows.push(gap(at, server.name(&sender), what, lost.into()));
            }
            match code {
                b'g' => {
                    let text = body.get(16..).ok_or(InvalidDatagram("its window is cut"))?;
                    let about = Provider {
                        server: server.name(&sender),
                        code: body[8],
                        at,
                    };
                    left_out = about.lines(text, rows_max, rows);
                    Ok(())
                }
                code => server.take(code, &sender, at, body, rows),
            }
        };
        let heard = self.sources.hear(sender, Some(started), at, rows, take);
        heard.map(|()| left_out)
    }
}

/// The stream whose counter a datagram has. All maps share one; files have one of their own, and so has each provider.
fn stream_of(code: u8, body: &[u8]) -> u8 {
    match code {
        b'f' => b'f',
        b'g' => body.get(8).copied().unwrap_or(b'g') | 0x80,
        _ => b'm',
    }
}

/// Whether a listener takes a row of the time `at`.
pub fn is_near_arrival(at: Timestamp, arrival: Timestamp) -> bool {
    arrival.since(at) <= BEFORE_ARRIVAL_MAX && at.since(arrival) <= AFTER_ARRIVAL_MAX
}

/// What a server calls itself, unless it is no name.
fn host_name(text: &str) -> Option<Text> {
    let lengths = 1..=HOST_NAME_BYTES_MAX;
    lengths.contains(&text.len()).then(|| text.into())
}

fn gap(at: Timestamp, subject: Text, what: &str, count: u64) -> Observation {
    Incident {
        at,
        view: View::Site,
        kind: IncidentKind::Gap,
        subject: Some(subject),
        detail: Some(what.into()),
        count: Some(count),
        ..Incident::default()
    }
    .into()
}

impl Server {
    fn name(&self, sender: &SocketAddr) -> Text {
        let name = self.name.clone();
        name.unwrap_or_else(|| sender.ip().to_string().into())
    }

    /// Takes what a datagram holds behind its head.
    fn take(
        &mut self,
        code: u8,
        sender: &SocketAddr,
        at: Timestamp,
        body: &[u8],
        rows: &mut Vec<Observation>,
    ) -> Result<(), InvalidDatagram> {
        match code {
            b'=' | b'u' | b'T' | b'U' | b'd' | b'i' | b'x' | b'p' => {
                self.map(code, sender, at, body, rows)
            }
            b'f' => self.file_stream(sender, at, body, rows),
            // Traces of single reads, and redirections.
            b't' | b'r' => Ok(()),
            _ => Err(InvalidDatagram("it is of no stream that is known")),
        }
    }

    /// Memory that its users and files take.
    fn held_bytes(&self) -> usize {
        self.users.bytes() + self.files.bytes()
    }

    /// How many datagrams of a stream did not come before this one.
    fn lost_before(&mut self, sequence: u8, stream: u8) -> u8 {
        let Some(last) = self.sequences.insert(stream, sequence) else {
            return 0;
        };
        let lost = sequence.wrapping_sub(last).wrapping_sub(1);
        if lost >= REORDERED_MAX {
            self.sequences.insert(stream, last);
            return 0;
        }
        lost
    }

    /// Numbers to texts.
    fn map(
        &mut self,
        code: u8,
        sender: &SocketAddr,
        at: Timestamp,
        body: &[u8],
        rows: &mut Vec<Observation>,
    ) -> Result<(), InvalidDatagram> {
        let (number, text) = body
            .split_first_chunk()
            .ok_or(InvalidDatagram("its map is cut"))?;
        let number = u32::from_be_bytes(*number);
        let text = String::from_utf8_lossy(text);
        let text = text.trim_end_matches('\0');
        let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
        match code {
            b'=' => {
                let host = first.rsplit_once('@').map(|(_, host)| host);
                self.name = host.and_then(host_name);
            }
            b'u' => {
                let user = User::parse(first, rest);
                self.keep_user(number, user, sender, at, rows);
            }
            b'T' => self.amend(rest, |user, told| {
                user.name = told("n").or(told("s")).or(user.name.take());
                user.vo = told("o").or(user.vo.take());
            }),
            b'U' => self.amend(rest, |user, told| {
                user.activity = told("Ac").or(user.activity.take());
            }),
            b'd' => {
                let user = self.users.number_of(first).unwrap_or(0);
                let file = OpenFile {
                    path: Some(rest.into()),
                    user,
                    size: 0,
                    may_write: false,
                    opened: at,
                    seen: OpenFileBytes::default(),
                    seen_at: at,
                };
                // Its open, in the stream of files, tells the rest.
                if self.files.len() < FILES_MAX && self.files.get(number).is_none() {
                    self.files.insert(number, file);
                }
            }
            b'x' => rows.extend(staged(rest, self.name(sender))),
            _ => {}
        }
        Ok(())
    }

    fn keep_user(
        &mut self,
        number: u32,
        user: User,
        sender: &SocketAddr,
        at: Timestamp,
        rows: &mut Vec<Observation>,
    ) {
        if self.users.len() >= USERS_MAX {
            let what = "too many users are known: their names are forgotten";
            let count = self.users.clear();
            rows.push(gap(at, self.name(sender), what, count));
        }
        self.users.insert(number, user);
    }

    /// Completes a user that was told before.
    fn amend(&mut self, text: &str, change: impl Fn(&mut User, &dyn Fn(&str) -> Option<Text>)) {
        let told = |key: &str| pair(text, key).map(Text::from);
        let number = pair(text, "Uc").and_then(|number| number.parse().ok());
        if let Some(number) = number {
            self.users.update(number, |user| change(user, &told));
        }
    }

    fn file_stream(
        &mut self,
        sender: &SocketAddr,
        at: Timestamp,
        body: &[u8],
        rows: &mut Vec<Observation>,
    ) -> Result<(), InvalidDatagram> {
        let records = streams::parse(body).ok_or(InvalidDatagram("its records are cut"))?;
        let (from, to) = (records.begins.unwrap_or(at), records.ends.unwrap_or(at));
        for record in records.records {
            match record {
                FileRecord::Open {
                    file,
                    size,
                    may_write,
                    user,
                    path,
                } => {
                    if self.files.len() >= FILES_MAX {
                        let what = "too many files are open: they are forgotten";
                        let count = self.files.clear();
                        rows.push(gap(to, self.name(sender), what, count));
                    }
                    let known = self.files.get(file);
                    let path = path.or_else(|| known.and_then(|file| file.path.clone()));
                    let user = user.or(known.map(|file| file.user)).unwrap_or(0);
                    let open = OpenFile {
                        path,
                        user,
                        size,
                        may_write,
                        opened: from,
                        seen: OpenFileBytes::default(),
                        seen_at: from,
                    };
                    self.files.insert(file, open);
                }
                FileRecord::Progress { file, moved } => {
                    rows.extend(self.progress(file, moved, to, sender));
                }
                FileRecord::Close {
                    file,
                    moved,
                    is_forced,
                } => {
                    let open = self.files.remove(file);
                    let name = self.name(sender);
                    rows.push(self.closed(open, moved, is_forced, to, name));
                }
                FileRecord::Disconnect { user } => {
                    self.users.remove(user);
                }
            }
        }
        Ok(())
    }

    /// What moved of an open file since it was told last.
    fn progress(
        &mut self,
        file: u32,
        moved: OpenFileBytes,
        to: Timestamp,
        sender: &SocketAddr,
    ) -> Option<Observation> {
        let name = self.name(sender);
        let (path, before, since) = self.files.update(file, |open| {
            let before = std::mem::replace(&mut open.seen, moved);
            (
                open.path.clone(),
                before,
                std::mem::replace(&mut open.seen_at, to),
            )
        })?;
        let delta = |now: i64, then: i64| u64::try_from(now.checked_sub(then)?).ok().map(Bytes);
        let row = Sample {
            at: to,
            view: View::Site,
            subject_kind: SubjectKind::Connection,
            subject: path.unwrap_or_else(|| file.to_string().into()),
            interval_ms: Some(to.since(since).as_millis() as u64),
            server: Some(name),
            bytes_in: delta(moved.written, before.written),
            bytes_out: delta(moved.sent(), before.sent()),
            ..Sample::default()
        };
        Some(row.into())
    }

    fn closed(
        &self,
        open: Option<OpenFile>,
        moved: OpenFileBytes,
        is_forced: bool,
        to: Timestamp,
        server: Text,
    ) -> Observation {
        let user = open.as_ref().and_then(|open| self.users.get(open.user));
        let user = user.cloned().unwrap_or_default();
        let bytes = |count: i64| u64::try_from(count).ok().map(Bytes);
        let writes = moved.written > 0
            || open
                .as_ref()
                .is_some_and(|open| open.may_write && moved.sent() == 0);
        let path = open.as_ref().and_then(|open| open.path.clone());
        let (source_path, destination_path) = match writes {
            true => (None, path),
            false => (path, None),
        };
        let detail = "the connection ended before the file was closed";
        Attempt {
            at: to,
            view: View::Site,
            operation: match writes {
                true => Operation::Write,
                false => Operation::Read,
            },
            source_path,
            destination_path,
            vo: user.vo.map(VoName::new),
            activity: user.activity.map(penstock_model::Activity::new),
            user: user.name.map(UserName::new),
            protocol: user.protocol,
            client: user.client,
            server: Some(server),
            bytes_moved: bytes(moved.sent().saturating_add(moved.written)),
            // Its size when it was opened: of a file that is written that is not its size.
            file_bytes: open
                .as_ref()
                .filter(|_| !writes)
                .and_then(|open| bytes(open.size)),
            bytes_read: bytes(moved.sent()),
            bytes_written: bytes(moved.written),
            started: open.as_ref().map(|open| open.opened),
            ended: Some(to),
            derived: Some("started,ended".into()),
            outcome: Some(match is_forced {
                true => Outcome::Failure,
                false => Outcome::Success,
            }),
            fingerprint: is_forced.then(|| fingerprint_of(None, None, detail)),
            detail: is_forced.then(|| detail.into()),
            ..Attempt::default()
        }
        .into()
    }
}

impl User {
    /// `prot/user.pid:sid@host`, then `&p=…&n=…&h=…&o=…`.
    fn parse(id: &str, text: &str) -> User {
        let (protocol, rest) = id.split_once('/').unwrap_or(("", id));
        let (login, host) = rest.rsplit_once('@').unwrap_or((rest, ""));
        let login = login.split('.').next().unwrap_or(login);
        let known = |text: &str| Some(text).filter(|text| !text.is_empty()).map(Text::from);
        User {
            id: id.into(),
            protocol: known(protocol),
            name: pair(text, "n").and_then(known).or_else(|| known(login)),
            client: pair(text, "h").and_then(known).or_else(|| known(host)),
            vo: pair(text, "o").and_then(known),
            activity: None,
        }
    }
}

/// The value of a key in `&key=value&…`.
fn pair<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let mut pairs = text.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(|(name, _)| *name == key).map(|(_, value)| value)
}

/// A file came from tape or went there: `lfn`, then `&tod=&sz=&qt=&tm=&op=&rc=`.
fn staged(text: &str, server: Text) -> Option<Observation> {
    let (path, told) = text.split_once('\n')?;
    let number = |key: &str| pair(told, key).and_then(|number| number.parse::<i64>().ok());
    let at = Timestamp(number("tod")?.checked_mul(1000)?);
    let code = number("rc");
    let microseconds = |key: &str| {
        number(key).and_then(|seconds| u64::try_from(seconds).ok()?.checked_mul(1_000_000))
    };
    let row = Attempt {
        at,
        view: View::Site,
        operation: match pair(told, "op") {
            Some(op) if op.starts_with(['m', 'p', '1']) => Operation::Migration,
            _ => Operation::Recall,
        },
        source_path: Some(path.into()),
        server: Some(server),
        file_bytes: number("sz")
            .and_then(|size| u64::try_from(size).ok())
            .map(Bytes),
        wait_us: microseconds("qt"),
        network_us: None,
        source_read_us: microseconds("tm"),
        ended: Some(at),
        outcome: code.map(|code| match code {
            0 => Outcome::Success,
            _ => Outcome::Failure,
        }),
        error_code: code.filter(|code| *code != 0),
        ..Attempt::default()
    };
    Some(row.into())
}

#[cfg(test)]
mod tests;
