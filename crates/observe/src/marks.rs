//! What operators and the service did that may change a rate: marks on its curve.
//!
//! Pure but for the reader of the record that it is given.

use crate::follow::{Record, RecordError};
use penstock_model::{
    Ban, BanChange, LinkEvent, LinkId, Setting, SettingChange, SettingKey, TimeWindow, Timestamp,
};
use serde::Serialize;

/// Latest changes of settings and of bans that are looked at.
const CHANGES_MAX: usize = 2000;
/// Changes of one link that are looked at.
const LINK_CHANGES_MAX: usize = 200;
/// Marks of a window: of more, the latest.
pub const MARKS_MAX: usize = 300;

/// What a mark is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MarkKind {
    /// A process began to lead the service: it was started, or took over.
    Start,
    Ban,
    Drain,
    /// Limits of links or storage elements, and shares.
    Limit,
    Halt,
}

/// Something that happened at an instant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mark {
    pub at: Timestamp,
    pub kind: MarkKind,
    /// For people.
    pub text: String,
    /// Who did it; only for those who may see that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// How much of the marks somebody sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MarkDisclosure {
    Everything,
    /// Neither who did it nor who was banned, nor the words that operators wrote.
    Counts,
}

/// The marks of a window, oldest first.
pub fn marks_of(
    record: &dyn Record,
    window: TimeWindow,
    links: &[LinkId],
    starts: impl Iterator<Item = Timestamp>,
    disclosure: MarkDisclosure,
) -> Result<Vec<Mark>, RecordError> {
    let within = |at: Timestamp| at >= window.from && at < window.to;
    let mut marks: Vec<Mark> = starts
        .filter(|at| within(*at))
        .map(|at| Mark {
            at,
            kind: MarkKind::Start,
            text: "transfer service started or changed its leader".to_owned(),
            by: None,
        })
        .collect();
    let settings = record.setting_changes(CHANGES_MAX)?;
    let settings = settings.iter().filter(|change| within(change.at));
    marks.extend(settings.filter_map(|change| setting_mark(change, disclosure)));
    let bans = record.ban_changes(CHANGES_MAX)?;
    let bans = bans.iter().filter(|change| within(change.at));
    marks.extend(bans.filter_map(|change| ban_mark(change, disclosure)));
    for link in links {
        let changes = record.link_changes(link, window.from, window.to, LINK_CHANGES_MAX)?;
        let halts = changes.iter().filter(|change| within(change.at));
        marks.extend(halts.filter_map(|change| halt_mark(link, change.at, &change.event)));
    }
    marks.sort_by(|a, b| (a.at, a.kind, &a.text).cmp(&(b.at, b.kind, &b.text)));
    let surplus = marks.len().saturating_sub(MARKS_MAX);
    Ok(marks.split_off(surplus))
}

fn setting_mark(change: &SettingChange, disclosure: MarkDisclosure) -> Option<Mark> {
    let is_gone = change.after.is_none();
    let (kind, text) = match &change.key {
        SettingKey::Drain if is_gone => (MarkKind::Drain, "drain of the service ended".to_owned()),
        SettingKey::Drain => (MarkKind::Drain, "drain of the service".to_owned()),
        SettingKey::Link(_) | SettingKey::Storage(_) => {
            let (before, after) = (
                drains(change.before.as_ref()),
                drains(change.after.as_ref()),
            );
            match (before, after) {
                (false, true) => (MarkKind::Drain, format!("drain of {}", change.key)),
                (true, false) => (MarkKind::Drain, format!("drain of {} ended", change.key)),
                _ => (MarkKind::Limit, limit_text(change)),
            }
        }
        SettingKey::VoShare(..) | SettingKey::ActivityShares(_) | SettingKey::Defaults(_) => {
            (MarkKind::Limit, format!("{} changed", change.key))
        }
        // These change no rate.
        SettingKey::Grant(_)
        | SettingKey::CloudStorage(_)
        | SettingKey::CloudKey(..)
        | SettingKey::Mute(_) => return None,
    };
    Some(Mark {
        at: change.at,
        kind,
        text,
        by: shown(disclosure, change.user.as_str()),
    })
}

fn drains(setting: Option<&Setting>) -> bool {
    match setting {
        Some(Setting::Link(rule)) => rule.is_draining,
        Some(Setting::Storage(rule)) => rule.is_draining,
        _ => false,
    }
}

/// Which limit changed, from what to what.
fn limit_text(change: &SettingChange) -> String {
    let limits = |setting: Option<&Setting>| match setting {
        Some(Setting::Link(rule)) => {
            let rate = rule.rate_max.map(|rate| format!(", {rate}"));
            format!("{} files{}", rule.slots_max.0, rate.unwrap_or_default())
        }
        Some(Setting::Storage(rule)) => {
            let slots = [("sends", rule.outbound_max), ("receives", rule.inbound_max)];
            let slots = slots
                .iter()
                .filter_map(|(word, slots)| Some(format!("{word} {} files", (*slots)?.0)));
            let rates = [
                ("sends", rule.outbound_rate_max),
                ("receives", rule.inbound_rate_max),
            ];
            let rates = rates
                .iter()
                .filter_map(|(word, rate)| Some(format!("{word} {}", (*rate)?)));
            let all: Vec<String> = slots.chain(rates).collect();
            if all.is_empty() {
                "none".to_owned()
            } else {
                all.join(", ")
            }
        }
        _ => "none".to_owned(),
    };
    let (before, after) = (
        limits(change.before.as_ref()),
        limits(change.after.as_ref()),
    );
    if before == after {
        return format!("{} changed", change.key);
    }
    format!("limit of {}: {before} → {after}", change.key)
}

fn ban_mark(change: &BanChange, disclosure: MarkDisclosure) -> Option<Mark> {
    let is_lifted = change.after.is_none();
    let ban = change.after.as_ref().or(change.before.as_ref())?;
    let ended = if is_lifted { " lifted" } else { "" };
    let text = match ban {
        Ban::Storage(ban) => {
            let vo = ban
                .vo
                .as_ref()
                .map(|vo| format!(" for {vo}"))
                .unwrap_or_default();
            let why = match disclosure {
                MarkDisclosure::Everything if !is_lifted && !ban.message.is_empty() => {
                    format!(": {}", ban.message)
                }
                _ => String::new(),
            };
            format!("ban of {}{vo}{ended}{why}", ban.storage)
        }
        Ban::User(ban) => match disclosure {
            MarkDisclosure::Everything => format!("ban of user {}{ended}", ban.user),
            MarkDisclosure::Counts => format!("ban of a user{ended}"),
        },
    };
    Some(Mark {
        at: change.at,
        kind: MarkKind::Ban,
        text,
        by: shown(disclosure, change.by.as_str()),
    })
}

fn halt_mark(link: &LinkId, at: Timestamp, event: &LinkEvent) -> Option<Mark> {
    let (source, destination) = (link.source.host(), link.destination.host());
    let text = match event {
        LinkEvent::Halted { failures, .. } => {
            format!("link {source} → {destination} halted after {failures} failures in a row")
        }
        LinkEvent::Reopened { .. } => format!("link {source} → {destination} reopened"),
        LinkEvent::Tried => return None,
    };
    Some(Mark {
        at,
        kind: MarkKind::Halt,
        text,
        by: None,
    })
}

fn shown(disclosure: MarkDisclosure, user: &str) -> Option<String> {
    match disclosure {
        MarkDisclosure::Everything => Some(user.to_owned()),
        MarkDisclosure::Counts => None,
    }
}
