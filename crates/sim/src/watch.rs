//! What is watched in simulated trouble beyond the books: what lies at destinations, what was said last, and whether
//! everything that may run does run. Nothing of it asks the engine what it believes, except where its words are checked.

use penstock_decide::destination::Attempts;
use penstock_decide::record_clock::RecordedTime;
use penstock_engine::command::{Command, Submit};
use penstock_engine::{Action, Input, Order};
use penstock_model::{
    Bytes, LinkId, NoSlot, Record, SlotBound, SlotPlace, TransferEvent, TransferId, WaitReason,
};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::time::Duration;

/// Lines that are kept.
const LINES: usize = 60;

/// What lies at a destination.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct FileAtDestination {
    pub(crate) by: TransferId,
    /// All of the file.
    pub(crate) is_whole: bool,
    pub(crate) bytes: f64,
    /// When it last changed.
    pub(crate) modified: f64,
    /// It may stay: it was given over to people, or no evidence tells whose it is.
    pub(crate) is_excused: bool,
}

/// A copy that goes on without its agent. Its destination lets nobody else write there, and removes nothing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Stray {
    pub(crate) by: TransferId,
    pub(crate) bytes: f64,
    /// It replaces what is there when it arrives.
    pub(crate) replaces: bool,
    /// It comes to a good end; else nothing is left of it.
    pub(crate) arrives: bool,
}

/// How long a copy may take: what agents allow by default.
pub(crate) fn copy_limit(size: Option<Bytes>) -> Duration {
    let mib = size.unwrap_or_default().0.div_ceil(1 << 20);
    Duration::from_secs(600 + 2 * mib)
}

#[derive(Debug, Default)]
pub(crate) struct Watch {
    lines: VecDeque<String>,
    /// By URL.
    pub(crate) places: BTreeMap<String, FileAtDestination>,
    /// By URL.
    pub(crate) strays: BTreeMap<String, Stray>,
    /// As agents read them in the record.
    pub(crate) attempts: HashMap<TransferId, Attempts>,
    /// Who works at a place.
    pub(crate) writers: HashMap<String, TransferId>,
    /// Links on which an attempt has failed.
    pub(crate) failed: HashSet<usize>,
    /// Where each transfer goes.
    pub(crate) destinations: HashMap<TransferId, String>,
    /// Transfers that ended well.
    pub(crate) finished: HashSet<TransferId>,
    /// Steps so far.
    pub(crate) steps: u64,
}

impl Watch {
    /// The last lines.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.iter().cloned().collect()
    }

    pub(crate) fn note(&mut self, second: f64, what: &str) {
        if self.lines.len() == LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(format!("{second:10.3}  {what}"));
    }

    pub(crate) fn input(&mut self, second: f64, input: &Input) {
        let text = match input {
            Input::Tick => return,
            Input::Command {
                command: Command::Submit(Submit(job)),
                ..
            } => format!("job {} of {} files", job.id, job.transfers.len()),
            input => format!("{input:?}"),
        };
        self.note(second, &format!("in   {}", shortened(&text)));
    }

    pub(crate) fn record(&mut self, second: f64, record: &Record) {
        if let Record::Happened {
            at,
            transfer,
            event,
            ..
        } = record
        {
            let attempts = self.attempts.entry(*transfer).or_default();
            attempts.note(RecordedTime::exact(*at), event, copy_limit, true);
            if *event != TransferEvent::Submitted {
                let text = format!("kept transfer {transfer}: {event:?}");
                self.note(second, &shortened(&text));
            }
        }
    }

    pub(crate) fn action(&mut self, second: f64, action: &Action) {
        let text = match action {
            Action::Order {
                order: Order::Start(assignment),
                ..
            } => format!(
                "out  start {:?} of transfer {}, attempt {}{}",
                assignment.task,
                assignment.request.id,
                assignment.attempt.0,
                if assignment.unsettled {
                    ", unsettled"
                } else {
                    ""
                }
            ),
            Action::Publish(_) | Action::LockOut(_) => return,
            Action::Order { order, .. } => format!("out  {order:?}"),
            action => format!("out  {action:?}"),
        };
        self.note(second, &shortened(&text));
    }

    /// What lies somewhere that should not, when all is over.
    pub(crate) fn left_behind(&self) -> Option<String> {
        let left = self.places.iter().find(|(_, found)| {
            let is_right = found.is_whole && self.finished.contains(&found.by);
            !is_right && !found.is_excused
        });
        left.map(|(place, found)| {
            let what = if found.is_whole { "the file" } else { "a part" };
            format!(
                "{what} of transfer {}, which did not finish, lies at {place}",
                found.by
            )
        })
    }
}

/// Whether the numbers in a reason are those that are counted here.
pub(crate) fn is_true(reason: &WaitReason, counts: Counts) -> bool {
    match reason {
        WaitReason::NoSlot(NoSlot { place, because }) => match because {
            SlotBound::Limit { active, limit } => {
                let counted = match place {
                    SlotPlace::Link => counts.link,
                    SlotPlace::Source { .. } => counts.out,
                    SlotPlace::Destination { .. } => counts.into,
                    SlotPlace::Agents => counts.all,
                    // Not counted here.
                    SlotPlace::Storage { .. } | SlotPlace::Gfal => return true,
                };
                active.0 == counted && active >= limit
            }
            SlotBound::Kept {
                active,
                kept,
                limit,
            } => {
                let is_there = [counts.out, counts.into, counts.all].contains(&active.0);
                is_there && kept.0 > 0 && active.0 + kept.0 >= limit.0
            }
            SlotBound::Tuned { .. } | SlotBound::Rate { .. } | SlotBound::Draining => true,
        },
        WaitReason::ByShare { because, .. } => is_true(because, counts),
        // It holds only inside a pass, and passes are over when somebody looks.
        WaitReason::Starting => false,
        _ => true,
    }
}

/// What runs where a transfer would.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) link: u32,
    pub(crate) out: u32,
    pub(crate) into: u32,
    pub(crate) all: u32,
}

/// How many may run where, as the service says.
#[derive(Debug, Default)]
pub(crate) struct AllowedNumbers {
    pub(crate) links: HashMap<LinkId, u32>,
    /// By host: out, into.
    pub(crate) storages: HashMap<String, (u32, u32)>,
    pub(crate) all: u32,
}

fn shortened(text: &str) -> String {
    const MOST: usize = 220;
    match text.char_indices().nth(MOST) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}
