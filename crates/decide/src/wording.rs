//! Reasons as sentences. The only place where a reason becomes prose; nothing here decides anything.

mod explain;
mod incidents;
mod tuning;

pub use explain::{
    cause, evidence, explanation, factor, measure, rate_change, remedy, setting_change, stage,
};
pub use incidents::{
    incident, incident_counts, incident_evidence, incident_request, incident_ticket,
    incident_verification, incident_what, resolved_incident_ticket,
};
pub use tuning::tune_reason;

use crate::destination::Foreign;
use penstock_model::{
    CopySummary, NoSlot, SlotBound, SlotPlace, StorageId, StreamUse, StreamsReason, TapeWait,
    TimeSpan, Timestamp, TransferState, Verification, WaitReason,
};
use std::time::Duration;

/// What speaks against a file's being what an attempt of the transfer left.
pub fn foreign(foreign: Foreign) -> String {
    match foreign {
        Foreign::NothingLost => "the outcome of each attempt is known".to_owned(),
        Foreign::WasThere => {
            "it existed before the first attempt, or this was not checked".to_owned()
        }
        Foreign::Size => "it is larger than the source, or its size is not reported".to_owned(),
        Foreign::Time { modified } => format!(
            "it was changed at {}Z, when no attempt was able to write",
            modified.to_fts()
        ),
        Foreign::OldEvidence { until } => format!(
            "the storage element does not report when it was changed, and no attempt was able to write after {}Z",
            until.to_fts()
        ),
    }
}

/// What stands between a reason and what the last failure said.
pub const LAST_FAILURE: &str = "; the last failure: ";

/// Why a transfer waits, as one sentence without a full stop.
pub fn wait_reason(reason: &WaitReason, now: Timestamp) -> String {
    let text = wait_reason_for_all(reason, now);
    match reason {
        WaitReason::LinkHalted { last, .. }
        | WaitReason::BackingOff { last, .. }
        | WaitReason::Tape(TapeWait::Failing { last, .. }) => {
            format!("{text}{LAST_FAILURE}{last}")
        }
        WaitReason::NoSlot(_)
        | WaitReason::ByShare { .. }
        | WaitReason::SameDestination { .. }
        | WaitReason::StorageBanned { .. }
        | WaitReason::TokenExchange { .. }
        | WaitReason::Tape(_)
        | WaitReason::Starting
        | WaitReason::Draining
        | WaitReason::Drained => text,
    }
}

/// The same without what a failure said, which may name files and is for those to whom the transfers belong.
/// Long because each reason has one arm and one sentence.
pub fn wait_reason_for_all(reason: &WaitReason, now: Timestamp) -> String {
    match reason {
        WaitReason::NoSlot(no_slot) => slot_wait(no_slot),
        WaitReason::LinkHalted {
            until, failures, ..
        } => {
            let trial = match until.since(now).as_secs() {
                0 => "a trial transfer is running".to_owned(),
                wait => format!("a trial transfer starts in {}", TimeSpan::of_seconds(wait)),
            };
            format!("the link is halted after {failures} similar failures in a row; {trial}")
        }
        WaitReason::BackingOff {
            until, failures, ..
        } => {
            let wait = whole_seconds(until.since(now));
            let times = if *failures == 1 {
                "once".to_owned()
            } else {
                format!("{failures} times")
            };
            format!("it failed {times}; retry in {wait}")
        }
        WaitReason::SameDestination { before } => {
            format!("transfer {before} goes to the same destination and has not ended")
        }
        WaitReason::StorageBanned {
            storage,
            since,
            cancel_at,
            message,
        } => {
            let since = since.to_fts();
            let mut text = format!("{storage} has been banned by the operators since {since}Z");
            if !message.is_empty() {
                text.push_str(&format!(": {message}"));
            }
            if let Some(at) = cancel_at {
                let wait = whole_seconds(at.since(now));
                text.push_str(&format!(
                    "; if the ban is not lifted, the file is canceled in {wait}"
                ));
            }
            text
        }
        WaitReason::TokenExchange { since } => {
            let since = since.to_fts();
            format!(
                "the issuer of one of its tokens has been asked for a refresh token since {since}Z"
            )
        }
        WaitReason::ByShare {
            because,
            vo,
            vo_percent,
            activity_percent,
        } => {
            let mut text = wait_reason_for_all(because, now);
            let of_vo = vo_percent.map(|percent| format!("{vo} gets {percent} %"));
            let of_activity = activity_percent
                .as_ref()
                .map(|(activity, percent)| (activity.as_str(), percent));
            text += &match (of_vo, of_activity) {
                (Some(of_vo), Some((activity, percent))) => {
                    format!("; {of_vo} of the next slots, and '{activity}' {percent} % of those")
                }
                (Some(of_vo), None) => format!("; {of_vo} of the next slots"),
                (None, Some((activity, percent))) => {
                    format!("; '{activity}' gets {percent} % of the next slots of {vo}")
                }
                (None, None) => String::new(),
            };
            text
        }
        WaitReason::Tape(wait) => tape_wait(wait, now),
        WaitReason::Starting => "it is about to start".to_owned(),
        WaitReason::Draining => {
            "the service is draining before it stops; it continues after the restart".to_owned()
        }
        WaitReason::Drained => {
            "the service is drained; it continues when an operator ends the drain".to_owned()
        }
    }
}

/// What a place does, and with what.
fn use_of(place: &SlotPlace) -> (String, &'static str) {
    match place {
        SlotPlace::Link => ("the link runs".to_owned(), "transfer"),
        SlotPlace::Source { storage } => (format!("{storage} sends"), "file"),
        SlotPlace::Destination { storage } => (format!("{storage} receives"), "file"),
        SlotPlace::Storage { storage } => (format!("{storage} runs"), "transfer"),
        SlotPlace::Agents | SlotPlace::Gfal => ("this service runs".to_owned(), "transfer"),
    }
}

/// Why a transfer gets no slot.
fn slot_wait(NoSlot { place, because }: &NoSlot) -> String {
    let (uses, what) = use_of(place);
    match because {
        SlotBound::Limit { active, limit } => {
            let (active, limit) = (active.0, limit.0);
            match place {
                SlotPlace::Source { storage } => format!(
                    "{storage} already sends {active} of {limit} files allowed at once, over all its links"
                ),
                SlotPlace::Destination { storage } => format!(
                    "{storage} already receives {active} of {limit} files allowed at once, over all its links"
                ),
                SlotPlace::Gfal => {
                    format!("{uses} {active} of {limit} transfers allowed at once that need gfal2")
                }
                SlotPlace::Link | SlotPlace::Storage { .. } | SlotPlace::Agents => {
                    format!("{uses} {active} of {limit} transfers allowed at once")
                }
            }
        }
        SlotBound::Tuned {
            active,
            tuned,
            limit,
        } => {
            let (active, tuned, limit) = (active.0, tuned.0, limit.0);
            let running = counted(u64::from(active), what);
            match active == tuned {
                true => format!(
                    "{uses} {running} at once, the number measured as fastest (limit {limit})"
                ),
                false => format!(
                    "{uses} {running} at once; {tuned} is measured as fastest (limit {limit})"
                ),
            }
        }
        SlotBound::Kept {
            active,
            kept,
            limit,
        } => {
            let (active, kept, limit) = (active.0, kept.0, limit.0);
            format!(
                "{uses} {active} of {limit} transfers allowed at once and reserves {kept} for a link that waits for a \
                 slot at its other end"
            )
        }
        SlotBound::Rate { rate, cap } => {
            let of = match place {
                SlotPlace::Source { storage } | SlotPlace::Storage { storage } => {
                    format!("what {storage} sends")
                }
                SlotPlace::Destination { storage } => format!("what {storage} receives"),
                SlotPlace::Link | SlotPlace::Agents | SlotPlace::Gfal => "the link".to_owned(),
            };
            // Below nine tenths of the cap it is the even pace of starts that a file waits for.
            match rate.0 / 9 < cap.0 / 10 {
                true => format!(
                    "starts are spread evenly to keep the rate limit of {of}: {cap} over any 10 s"
                ),
                false => format!(
                    "held back by the rate limit of {of}: {rate} over 10 s with the files just started, limit {cap}"
                ),
            }
        }
        SlotBound::Draining => {
            let drained = place.storage().map_or("the link", StorageId::as_str);
            format!("{drained} is drained; it continues when an operator ends the drain")
        }
    }
}

/// Why a transfer waits for a tape system.
fn tape_wait(wait: &TapeWait, now: Timestamp) -> String {
    let soon = |at: &Timestamp| match at.since(now).as_secs() {
        0 => "next check now".to_owned(),
        wait => format!("next check in {}", TimeSpan::of_seconds(wait)),
    };
    match wait {
        TapeWait::Gathering { storage, files } => {
            let files = counted(*files, "file");
            format!("a request to the tape system of {storage} for {files} is being prepared")
        }
        TapeWait::Full {
            storage,
            requests,
            files,
        } => {
            let (requests, files) = (counted(*requests, "request"), counted(*files, "file"));
            format!(
                "the tape system of {storage} has {requests} open for {files}, which is the limit"
            )
        }
        TapeWait::Failing {
            storage,
            until,
            failures,
            ..
        } => {
            let times = if *failures == 1 {
                "once".to_owned()
            } else {
                format!("{failures} times")
            };
            let soon = soon(until);
            format!("requests to the tape system of {storage} failed {times}; {soon}")
        }
        TapeWait::Recalling {
            storage,
            request,
            on_disk,
            files,
            since,
            look_at,
        } => {
            let (wait, soon) = (whole_seconds(now.since(*since)), soon(look_at));
            format!(
                "the tape system of {storage} has worked on request {request} for {wait}: {on_disk} of {files} files are \
                 on disk; {soon}"
            )
        }
        TapeWait::Archiving {
            storage,
            since,
            until,
            look_at,
        } => {
            let (wait, rest) = (now.since(*since), until.since(now));
            let (wait, rest) = (whole_seconds(wait), whole_seconds(rest));
            let soon = soon(look_at);
            format!(
                "it arrived {wait} ago, and the tape system of {storage} has {rest} left to write it to tape; {soon}"
            )
        }
        TapeWait::RemovingSource { storage, failures } => {
            let failed = match failures {
                0 => String::new(),
                _ => {
                    let times = counted(u64::from(*failures), "time");
                    format!("; this failed {times} and will be retried")
                }
            };
            format!("its copy is on tape, and its source at {storage} is being deleted{failed}")
        }
    }
}

/// What is told of a moment changes with each second: parts of one would be noise.
fn whole_seconds(span: Duration) -> TimeSpan {
    TimeSpan::of_seconds(span.as_secs())
}

fn counted(number: u64, what: &str) -> String {
    match number {
        1 => format!("1 {what}"),
        _ => format!("{number} {what}s"),
    }
}

/// Where a transfer stands, as one sentence without a full stop. `waiting` is the scheduler's reason, if it waits.
pub fn transfer_state(
    state: &TransferState,
    waiting: Option<&WaitReason>,
    now: Timestamp,
) -> String {
    match state {
        TransferState::NotUsed => {
            "is held in reserve: another replica or hop comes first".to_owned()
        }
        TransferState::Staging { recall, .. } | TransferState::Recalling { recall, .. } => {
            let wait = whole_seconds(now.since(recall.since));
            let why = waiting.map(|reason| wait_reason(reason, now));
            let why = why.map_or_else(String::new, |why| format!(": {why}"));
            format!("is being recalled from tape, for {wait}{why}")
        }
        TransferState::Archiving { size, .. } => {
            let why = waiting.map(|reason| wait_reason(reason, now));
            let why = why.map_or_else(String::new, |why| format!(": {why}"));
            format!("arrived ({size}), but is not on tape yet{why}")
        }
        TransferState::Submitted { .. } => match waiting {
            Some(reason) => format!("waits: {}", wait_reason(reason, now)),
            None => "waits".to_owned(),
        },
        TransferState::Active { attempt, since, .. } => {
            format!(
                "is being moved (attempt {}, for {})",
                attempt.0,
                whole_seconds(now.since(*since))
            )
        }
        TransferState::Finished {
            at,
            started_at,
            attempt,
            size,
            mode,
            report,
        } => {
            let took = TimeSpan(at.since(*started_at));
            match mode {
                _ if attempt.0 == 0 => format!("is on disk, after {took:.0}"),
                Some(mode) => format!(
                    "arrived: {size} in {took:.2}, {}{}",
                    mode.name(),
                    how_it_was_copied(report)
                ),
                None => {
                    format!("arrived: {size}, by an attempt that was interrupted by a restart")
                }
            }
        }
        TransferState::Failed {
            attempts, failure, ..
        } => {
            let times = if *attempts == 1 {
                "1 attempt".to_owned()
            } else {
                format!("{attempts} attempts")
            };
            format!("failed after {times}: {failure}")
        }
        TransferState::Canceled { reason, .. } => format!("was canceled: {reason}"),
    }
}

/// The connections of a copy and the ways that were not open to it, to follow the name of the way that was.
fn how_it_was_copied(report: &CopySummary) -> String {
    let mut text = String::new();
    if let Some(streams) = &report.streams {
        text += &format!(", {}", stream_use(streams));
    }
    for way in &report.not_offered {
        text += &format!("; {} was not offered: {}", way.mode.name(), way.why);
    }
    if let Some(verified) = report.verified {
        text += &format!("; {}", verification(verified));
    }
    text
}

/// What a destination that tells no checksum was compared by.
pub fn verification(verified: Verification) -> &'static str {
    match verified {
        Verification::InPassing => {
            "the destination reports no checksum of its own: it checked the MD5 of each part, and the file's checksum \
             was computed during the transfer"
        }
        Verification::SizeOnly => {
            "the destination reports no checksum to compare: only the size was verified"
        }
    }
}

/// How many connections were used of how many asked for, and why not as many.
pub fn stream_use(streams: &StreamUse) -> String {
    let used = match streams.used {
        1 => "1 stream".to_owned(),
        used => format!("{used} streams"),
    };
    let asked = match streams.asked {
        Some(asked) if asked != streams.used => format!(" of {asked} requested"),
        Some(_) | None => String::new(),
    };
    let reasons: Vec<&str> = streams
        .because
        .iter()
        .filter_map(|reason| streams_reason(*reason))
        .collect();
    match reasons.is_empty() {
        true => format!("{used}{asked}"),
        false => format!("{used}{asked} ({})", reasons.join("; ")),
    }
}

/// What kept a copy from using the connections that were asked for; `None` when nothing did.
pub fn streams_reason(reason: StreamsReason) -> Option<&'static str> {
    match reason {
        StreamsReason::AsAsked | StreamsReason::Tuned | StreamsReason::LeftToUs => None,
        StreamsReason::SiteLimit => Some("the storage element allows no more"),
        StreamsReason::Push => Some("a push is one request"),
        StreamsReason::SmallFile => Some("the file is too small for more"),
        StreamsReason::NoRanges => Some("the source sends whole files only"),
        StreamsReason::SizeUnknown => Some("the source does not report the size"),
        StreamsReason::NoVersion => Some("the source reports neither a version nor a checksum"),
        StreamsReason::NoMemory => Some("other copies use the memory for it"),
        StreamsReason::SourceBusy => Some("the source did not accept more connections"),
        StreamsReason::ThroughService => Some("the bytes passed through the transfer service"),
    }
}

/// A short key that groups waiting transfers with the same kind of reason.
pub fn wait_kind(reason: &WaitReason) -> &'static str {
    match reason {
        WaitReason::ByShare { because, .. } => wait_kind(because),
        WaitReason::NoSlot(no_slot) => slot_kind(no_slot),
        WaitReason::LinkHalted { .. } => "link_halted",
        WaitReason::BackingOff { .. } => "backing_off",
        WaitReason::SameDestination { .. } => "same_destination",
        WaitReason::StorageBanned { .. } => "storage_banned",
        WaitReason::TokenExchange { .. } => "token_exchange",
        WaitReason::Tape(TapeWait::Gathering { .. }) => "tape_gathering",
        WaitReason::Tape(TapeWait::Full { .. }) => "tape_full",
        WaitReason::Tape(TapeWait::Failing { .. }) => "tape_failing",
        WaitReason::Tape(TapeWait::Recalling { .. }) => "tape_recalling",
        WaitReason::Tape(TapeWait::Archiving { .. }) => "tape_archiving",
        WaitReason::Tape(TapeWait::RemovingSource { .. }) => "tape_removing_source",
        WaitReason::Starting => "starting",
        WaitReason::Draining => "draining",
        WaitReason::Drained => "drained",
    }
}

fn slot_kind(NoSlot { place, because }: &NoSlot) -> &'static str {
    match because {
        SlotBound::Limit { .. } => match place {
            SlotPlace::Link => "link_full",
            SlotPlace::Source { .. } | SlotPlace::Storage { .. } => "source_full",
            SlotPlace::Destination { .. } => "destination_full",
            SlotPlace::Agents => "agents_full",
            SlotPlace::Gfal => "gfal_full",
        },
        SlotBound::Tuned { .. } => match place {
            SlotPlace::Link | SlotPlace::Agents | SlotPlace::Gfal => "link_tuned",
            SlotPlace::Source { .. } | SlotPlace::Storage { .. } => "source_tuned",
            SlotPlace::Destination { .. } => "destination_tuned",
        },
        SlotBound::Kept { .. } => "slot_kept",
        SlotBound::Rate { .. } => "rate_capped",
        SlotBound::Draining => match place {
            SlotPlace::Link | SlotPlace::Agents | SlotPlace::Gfal => "link_draining",
            SlotPlace::Source { .. } | SlotPlace::Destination { .. } => "storage_draining",
            SlotPlace::Storage { .. } => "storage_draining",
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_model::{Concern, Errno, Failure, Phase, Retry, Side, Slots};

    #[test]
    fn a_waiting_file_is_explained_in_one_sentence() {
        let last = Failure {
            side: Side::Destination,
            retry: Retry::Later,
            concern: Concern::StorageElement,
            phase: Phase::Preparation,
            errno: Errno::EAGAIN,
            detail: "https://se2 answered 503: all movers busy".into(),
            found: None,
            busy: None,
            code: None,
        };
        let reason = WaitReason::BackingOff {
            until: Timestamp(42_000),
            failures: 2,
            last,
        };
        assert_eq!(
            wait_reason(&reason, Timestamp(2_000)),
            "it failed 2 times; retry in 40 s; the last failure: \
             DESTINATION [11] https://se2 answered 503: all movers busy"
        );
        assert_eq!(
            wait_reason_for_all(&reason, Timestamp(2_000)),
            "it failed 2 times; retry in 40 s"
        );
        let full = WaitReason::NoSlot(NoSlot {
            place: SlotPlace::Link,
            because: SlotBound::Limit {
                active: Slots(30),
                limit: Slots(30),
            },
        });
        assert_eq!(
            wait_reason(&full, Timestamp(0)),
            "the link runs 30 of 30 transfers allowed at once"
        );
    }
}
