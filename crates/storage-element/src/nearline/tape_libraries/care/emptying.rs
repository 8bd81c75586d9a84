//! Tapes that are emptied, by an operator's order or by themselves, and written anew.

use super::super::TapeLibraries;
use super::super::catalogue::{LiveBytes, live_bytes};
use super::super::copy_uri::CopyUri;
use super::super::request_kind::RequestKind;
use super::listing::prefix_of;
use super::{CareNews, ListPurpose, Stage, blocking, logged};
use crate::nearline::tape_libraries::LibraryTask;
use penstock_model::Timestamp;
use penstock_model::text::plural;
use penstock_persistence::namespace::{Namespace, NamespaceError};
use penstock_tape::locate::SECOND_NS;
use penstock_tape::record::TapeState;
use penstock_tape::relabel::{RelabelOrder, RelabelRefusal, TapeUse, choose_repacks};
use penstock_tape::request::TapeName;
use penstock_tape::request_engine::Input;
use penstock_tape::tape_care::CareStep;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Until a tape that may not be given up yet is asked for again.
const RELABEL_REST_NS: i64 = 60 * SECOND_NS;
/// Names of copies that are looked at to tell how much lives on a tape.
const COUNTED_FILES: usize = 10_000;
/// Until files that could not be moved are tried again.
const REPACK_REST_NS: i64 = 3_600 * SECOND_NS;

/// A repack that waits.
#[derive(Debug)]
pub(super) struct RepackRest {
    pub until_ns: i64,
    pub why: String,
    /// Nothing lives on the tape any more, and removed files can still be restored from it.
    pub waits_for_removed: bool,
}

/// Why a tape is not given up.
#[derive(Debug, thiserror::Error)]
pub(in super::super) enum KeptTape {
    #[error("{}", refusal_words(.0))]
    Refused(RelabelRefusal),
    /// Until then.
    #[error("copies of removed files on it are kept until {}Z (keep_removed); it is relabeled after that", .0.to_fts())]
    Removed(Timestamp),
    #[error("the namespace cannot be asked what lives on it: {0}")]
    Unknown(#[from] NamespaceError),
}

impl TapeLibraries {
    /// Tapes that were not given up although that was ordered: their disk did not take it.
    pub(super) fn relabel_again(&mut self) -> Vec<LibraryTask> {
        let relabeling = self.engine.live().relabeling.iter().cloned();
        let mut orders = Vec::new();
        for tape in relabeling.collect::<Vec<TapeName>>() {
            orders.extend(self.perform_relabel(&tape));
        }
        orders
    }

    pub(in super::super) fn perform_relabel(&mut self, tape: &TapeName) -> Vec<LibraryTask> {
        let facts = self.engine.live().tapes.get(tape);
        let library = facts.and_then(|facts| self.libraries.get(&facts.library));
        let Some(library) = library else {
            return Vec::new();
        };
        match library.relabel(tape) {
            Ok(()) => {
                tracing::info!(tape = %tape.0, "relabeling a tape without live files");
                self.input(Input::Relabeled(tape.clone()))
            }
            Err(why) => {
                tracing::error!(tape = %tape.0, %why, "a tape cannot be relabeled; trying again");
                Vec::new()
            }
        }
    }

    /// What of tapes is needed, to choose those that are worth a repack.
    pub(super) fn find_uses(&mut self, now_ns: i64) {
        if self.care.config.reclaim_live_permille == 0 || now_ns < self.care.uses_due_ns {
            return;
        }
        self.care.uses_due_ns = i64::MAX;
        let namespace = Arc::clone(&self.namespace);
        let what = "what lives on tapes cannot be found out";
        blocking(
            &self.care.sender,
            move || logged(what, live_bytes(&namespace)),
            CareNews::Uses,
        );
    }

    /// One tape at a time is emptied by itself, the one from which least has to be moved.
    pub(super) fn reclaim(&mut self, uses: BTreeMap<TapeName, LiveBytes>) -> Vec<LibraryTask> {
        let live = self.engine.live();
        let automatic = RelabelOrder::Automatic;
        // One on which nothing lives only waits for time to pass.
        let waits = |tape: &TapeName| {
            let rest = self.care.resting.get(tape);
            rest.is_some_and(|rest| rest.waits_for_removed)
        };
        let mut tasks = live.care.iter().filter_map(|(tape, care)| {
            let task = care.repack.as_ref()?;
            (task.order == automatic && !waits(tape)).then_some(task)
        });
        if tasks.next().is_some() {
            return Vec::new();
        }
        let permille = u64::from(self.care.config.reclaim_live_permille);
        let known = live.tapes.keys().map(|tape| {
            let found = uses.get(tape).copied().unwrap_or_default();
            let found = TapeUse {
                live_files: found.files,
                live_bytes: found.bytes,
            };
            (tape.clone(), found)
        });
        let chosen = choose_repacks(live, known, permille);
        let is_new = |tape: &&TapeName| {
            let care = live.care.get(*tape);
            care.is_none_or(|care| care.repack.is_none())
        };
        let Some(tape) = chosen.iter().find(is_new).cloned() else {
            return Vec::new();
        };
        tracing::info!(tape = %tape.0, "little of a tape is needed: it is emptied");
        self.order_repack(tape, automatic, Vec::new())
    }

    /// From now on nothing is written to the tape, and what lives on it is moved.
    pub(in super::super) fn order_repack(
        &mut self,
        tape: TapeName,
        order: RelabelOrder,
        together: Vec<String>,
    ) -> Vec<LibraryTask> {
        let facts = self.engine.live().tapes.get(&tape);
        let is_broken = facts.is_some_and(|facts| facts.state == TapeState::Broken);
        self.care.resting.remove(&tape);
        let step = CareStep::RepackBegun { order, together };
        let mut orders = self.care_step(tape.clone(), step);
        if !is_broken {
            let state = TapeState::ReadOnly;
            orders.extend(self.input(Input::TapeChanged { tape, state }));
        }
        self.care.is_due = true;
        orders
    }

    pub(super) fn begin_repack(&mut self, now_ns: i64) {
        if self.care.repack.is_some() {
            return;
        }
        self.care.resting.retain(|_, rest| rest.until_ns > now_ns);
        let live = self.engine.live();
        let tasks = live.care.iter().filter_map(|(tape, care)| {
            let task = care.repack.as_ref()?;
            let is_open = !self.care.resting.contains_key(tape) && !live.relabeling.contains(tape);
            is_open.then_some((task.since_ns, tape, task))
        });
        let Some((_, tape, task)) = tasks.min_by_key(|(since_ns, tape, _)| (*since_ns, *tape))
        else {
            return;
        };
        let (tape, together) = (tape.clone(), task.together.clone());
        self.list(ListPurpose::Repack, &tape, together);
        self.care.repack = Some((tape, Stage::Listing));
    }

    /// All that could be moved is. A tape on which nothing lives is given up.
    pub(super) fn end_repack_pass(&mut self, now_ns: i64, tape: &TapeName) -> Vec<LibraryTask> {
        let Some(order) = self.repack_order(tape) else {
            return Vec::new();
        };
        let rest = match self.give_up(tape, order) {
            Ok(orders) => return orders,
            Err(why) => why,
        };
        let until_ns = match &rest {
            KeptTape::Refused(RelabelRefusal::DayIsFull { free_ns, .. }) => *free_ns,
            KeptTape::Refused(RelabelRefusal::LiveFiles { .. }) | KeptTape::Removed(_) => {
                now_ns.saturating_add(REPACK_REST_NS)
            }
            KeptTape::Refused(_) | KeptTape::Unknown(_) => now_ns.saturating_add(RELABEL_REST_NS),
        };
        let rest = RepackRest {
            until_ns,
            why: rest.to_string(),
            waits_for_removed: matches!(rest, KeptTape::Removed(_)),
        };
        self.care.resting.insert(tape.clone(), rest);
        Vec::new()
    }

    /// Has all of a tape given up, if nothing speaks against it. What the namespace says of it is asked at this moment: this thread
    /// alone tells it of new copies.
    pub(in super::super) fn give_up(
        &mut self,
        tape: &TapeName,
        order: RelabelOrder,
    ) -> Result<Vec<LibraryTask>, KeptTape> {
        let Some(facts) = self.engine.live().tapes.get(tape) else {
            return Err(KeptTape::Refused(RelabelRefusal::Unknown));
        };
        let prefix = prefix_of(&facts.library, tape);
        let found = found_on(&self.namespace, &prefix)?;
        if found.live_files == 0
            && let Some(last) = self.namespace.tape_removal_with(&prefix)?
        {
            return Err(KeptTape::Removed(self.care.removal_of(last)));
        }
        self.care.refusal = None;
        let tape = tape.clone();
        let orders = self.input(Input::Relabel { tape, found, order });
        match self.care.refusal.take() {
            None => Ok(orders),
            Some(refusal) => Err(KeptTape::Refused(refusal)),
        }
    }

    /// Nothing more of this tape is moved; what was asked for it is canceled.
    pub(in super::super) fn forget_repack(&mut self, tape: &TapeName) -> Vec<LibraryTask> {
        self.care.resting.remove(tape);
        let repack = self.care.repack.take_if(|(of, _)| of == tape);
        let Some((_, Stage::Running(moves))) = repack else {
            return Vec::new();
        };
        let kinds = [RequestKind::MoveRead, RequestKind::MoveWrite];
        let files = moves.open_files();
        let requests = files.flat_map(|file| kinds.map(|kind| kind.of_file(file)));
        self.input(Input::Cancel(requests.collect()))
    }

    fn repack_order(&self, tape: &TapeName) -> Option<RelabelOrder> {
        let care = self.engine.live().care.get(tape)?;
        care.repack.as_ref().map(|task| task.order)
    }
}

/// What the namespace says lives on a tape; of very many files not all are counted. Blocks for a moment.
fn found_on(namespace: &Namespace, prefix: &str) -> Result<TapeUse, NamespaceError> {
    let copies = namespace.tape_copies_with(prefix, "", COUNTED_FILES)?;
    let sizes = copies.iter().filter_map(|(_, uri)| CopyUri::parse(uri));
    Ok(TapeUse {
        live_files: copies.len() as u64,
        live_bytes: sizes.map(|uri| uri.size_bytes).sum(),
    })
}

/// For an administrator.
fn refusal_words(refusal: &RelabelRefusal) -> String {
    match refusal {
        RelabelRefusal::Unknown => "there is no tape of this name".to_owned(),
        RelabelRefusal::Retired => "it is no longer configured".to_owned(),
        RelabelRefusal::InUse { state } => match state {
            TapeState::Active => "it is written to; make it read-only first".to_owned(),
            TapeState::ReadOnly => "it is being relabeled".to_owned(),
            TapeState::Disabled => "it is out of use; make it read-only first".to_owned(),
            TapeState::Broken => "it is broken; make it read-only first".to_owned(),
        },
        RelabelRefusal::InDrive { drive } => format!("it is in drive {}", drive.0),
        RelabelRefusal::LiveFiles { files, .. } => {
            let files = plural(*files, "file");
            format!("{files} still on it (penstock tape repack moves what can be moved)")
        }
        RelabelRefusal::ArchivesOpen { files } => {
            format!("{} on the way to it", plural(*files, "file"))
        }
        RelabelRefusal::RecallsOpen { files } => {
            format!("{} asked for from it", plural(*files, "file"))
        }
        RelabelRefusal::DayIsFull { max, .. } => {
            let tapes = plural(*max as u64, "tape");
            format!("the site relabels {tapes} in a day by itself (reclaims_per_day)")
        }
    }
}
