//! What is removed of history, and what never is.

use super::*;
use crate::writing::beside_another_writer;
use penstock_journal::{PruneReport, PruneStep};

/// Everything that ended before a time goes, whoever has taken it.
fn step(before: i64) -> PruneStep {
    PruneStep {
        ended_before: Some(Timestamp(before)),
        taken_by_all: u64::MAX,
        ended_long_before: None,
        samples_before: Some(Timestamp(before)),
        minutes_before: None,
        audit_before: None,
        rows_max: 1000,
    }
}

fn ended(job: &Job, at: i64) -> Record {
    Record::JobEnded {
        job: job.id,
        at: Timestamp(at),
        state: JobState::Finished,
    }
}

/// Stores a job of which all files have arrived.
fn keep_ended(journal: &mut dyn Journal, job: &Job, at: i64) -> u64 {
    let mut records = accepted(job);
    let files = job.transfers.iter();
    records.extend(files.flat_map(|file| finish(job, file.id.0)));
    records.push(ended(job, at));
    journal.append(&records).expect("stored")
}

fn counts(pruned: &PruneReport) -> (u64, u64, bool) {
    (pruned.jobs, pruned.transfers, pruned.has_more)
}

pub(super) fn what_ended_before_the_time_goes_and_what_is_open_stays(lab: &Lab) {
    old_goes_open_stays(&mut *lab.open());
    old_goes_open_stays(&mut MemoryJournal::default());
}

fn old_goes_open_stays(journal: &mut dyn Journal) {
    keep_ended(journal, &job(1, 1..=2), 5000);
    keep_ended(journal, &job(2, 3..=3), 6000);
    journal.append(&accepted(&job(3, 4..=4))).expect("stored");
    let pruned = journal.prune(&step(6000)).expect("pruned");
    assert_eq!(counts(&pruned), (1, 2, false));
    assert_eq!(pruned.until, Some(Timestamp(5000)));
    let pruned = journal.prune(&step(i64::MAX)).expect("pruned");
    assert_eq!(counts(&pruned), (1, 1, false));
    let (_, jobs) = restart(journal);
    assert_eq!(jobs.len(), 1);
    assert_eq!(jobs[0].states.len(), 1);
    let pruned = journal.prune(&step(i64::MAX)).expect("pruned");
    assert_eq!(pruned, PruneReport::default());
}

pub(super) fn what_an_owed_removal_is_judged_by_stays(lab: &Lab) {
    owed_stays(&mut *lab.open());
    owed_stays(&mut MemoryJournal::default());
}

fn owed_stays(journal: &mut dyn Journal) {
    let owing = job(1, 1..=2);
    keep_ended(journal, &owing, 5000);
    keep_ended(journal, &job(2, 3..=3), 6000);
    let owed = Record::TidyingOwed(Box::new(super::tokens::owed(&owing, 1)));
    journal.append(&[owed]).expect("stored");
    let pruned = journal.prune(&step(i64::MAX)).expect("pruned");
    assert_eq!(counts(&pruned), (1, 1, false));
    let done = Record::TidiedUp {
        transfer: owing.transfers[0].id,
    };
    journal.append(&[done]).expect("stored");
    let pruned = journal.prune(&step(i64::MAX)).expect("pruned");
    assert_eq!(counts(&pruned), (1, 2, false));
}

pub(super) fn numbers_are_not_given_again_when_all_is_gone(lab: &Lab) {
    numbers_stay_taken(&mut *lab.open());
    numbers_stay_taken(&mut MemoryJournal::default());
    let mut journal = lab.open();
    assert_eq!(restart(&mut *journal).0.transfer_id_max, 8);
}

fn numbers_stay_taken(journal: &mut dyn Journal) {
    let last = keep_ended(journal, &job(1, 1..=7), 5000);
    journal.prune(&step(6000)).expect("pruned");
    assert_eq!(restart(journal).0.transfer_id_max, 7);
    let next = keep_ended(journal, &job(2, 8..=8), 7000);
    assert_eq!(next, last + 2);
}

pub(super) fn what_somebody_has_not_taken_stays_until_it_is_too_old(lab: &Lab) {
    untaken_stays(&mut *lab.open());
    untaken_stays(&mut MemoryJournal::default());
}

fn untaken_stays(journal: &mut dyn Journal) {
    let first = keep_ended(journal, &job(1, 1..=1), 5000);
    let second = keep_ended(journal, &job(2, 2..=2), 5001);
    assert!(second > first);
    let mut held = PruneStep {
        taken_by_all: first - 1,
        ..step(9000)
    };
    let mut pruned = |held: &PruneStep| {
        let pruned = journal.prune(held).expect("pruned");
        (pruned.jobs, pruned.untaken)
    };
    assert_eq!(pruned(&held), (0, 0));
    held.taken_by_all = first;
    assert_eq!(pruned(&held), (1, 0));
    held.ended_long_before = Some(Timestamp(5001));
    assert_eq!(pruned(&held), (0, 0));
    held.ended_long_before = Some(Timestamp(5002));
    assert_eq!(pruned(&held), (1, 1));
}

pub(super) fn a_large_job_is_gone_at_once_and_its_files_by_and_by(lab: &Lab) {
    let mut journal = lab.open();
    let large = job(1, 1..=100);
    keep_ended(&mut *journal, &large, 5000);
    keep_ended(&mut *journal, &job(2, 101..=101), 5001);
    let reader = lab.reader();
    let small = PruneStep {
        rows_max: 40,
        ..step(6000)
    };
    let (mut steps, mut transfers) = (0, 0);
    loop {
        let pruned = journal.prune(&small).expect("pruned");
        assert!(pruned.jobs + pruned.transfers <= 45, "{pruned:?}");
        assert_eq!(reader.job(large.id).expect("readable"), None);
        let seen = TransferFilter {
            limit: 1000,
            examined_max: 1000,
            ..TransferFilter::default()
        };
        let page = reader.find(&seen).expect("readable");
        assert!(
            page.transfers
                .iter()
                .all(|one| one.transfer.job != large.id)
        );
        transfers += pruned.transfers;
        steps += 1;
        if !pruned.has_more {
            break;
        }
        // A restart in the middle goes on where it was.
        drop(journal);
        journal = lab.open();
    }
    assert_eq!(transfers, 101);
    assert!(steps >= 3, "{steps}");
    let facts = reader.history().expect("readable");
    assert_eq!((facts.pruned.jobs, facts.pruned.transfers), (2, 101));
    assert_eq!(facts.pruned.until, Some(Timestamp(5001)));
    assert_eq!(facts.ended_oldest, None);
    assert_eq!(facts.sequence_last, 202);
    assert_eq!(reader.last_sequence().expect("readable"), 202);
}

const DAY: i64 = 86_400_000;

pub(super) fn samples_and_what_became_of_links_go_with_their_time(lab: &Lab) {
    let mut journal = lab.open();
    let link = rule(1).ends;
    let sample = |at| LinkSample {
        at: Timestamp(at),
        link: link.clone(),
        moved: Bytes(1),
        active: Slots(1),
        limit: Slots(1),
        queued: 0,
    };
    let change = |at| {
        Record::LinkChanged(Box::new(LinkChange {
            at: Timestamp(at),
            link: link.clone(),
            event: LinkEvent::Tried,
        }))
    };
    let samples = (0..10).map(|day| Record::Sampled(sample(day * DAY)));
    let records: Vec<Record> = samples.chain([change(DAY), change(5 * DAY)]).collect();
    journal.append(&records).expect("stored");
    let pruned = journal.prune(&step(5 * DAY)).expect("pruned");
    assert_eq!((pruned.samples, pruned.changes), (5, 1));
    let facts = lab.reader().history().expect("readable");
    assert_eq!(facts.sample_oldest, Some(Timestamp(5 * DAY)));
    let forever = PruneStep {
        ended_before: None,
        samples_before: None,
        ..step(0)
    };
    assert_eq!(journal.prune(&forever).expect("pruned").rows(), 0);
    // What comes again has a place, also where there was none any more.
    journal.append(&records).expect("stored");
}

#[test]
fn removing_waits_for_whoever_writes_and_does_not_fail() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("transfer.sqlite");
    let mut journal = SqliteJournal::open(&path, keys()).expect("opens");
    keep_ended(&mut journal, &job(1, 1..=3), 5000);
    let prune = || journal.prune(&step(6000)).expect("pruned").jobs;
    assert_eq!(beside_another_writer(&path, prune), 1);
}

#[test]
fn sqlite_fills_room_that_became_free_again() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("transfer.sqlite");
    let mut journal = SqliteJournal::open(&path, keys()).expect("opens");
    let reader = SqliteReader::open(&path, 1).expect("opens");
    let mut sizes = Vec::new();
    for round in 0..6_u64 {
        for part in 0..20 {
            let first = round * 2000 + part * 100 + 1;
            let seed = u128::from(round * 20 + part + 1);
            keep_ended(&mut journal, &job(seed, first..=first + 99), 5000);
        }
        while journal.prune(&step(6000)).expect("pruned").has_more {}
        let facts = reader.history().expect("readable");
        assert_eq!(facts.entry_oldest, None);
        assert!(facts.free_bytes > Some(0));
        sizes.push(pages(&path));
    }
    assert!(sizes[5] <= sizes[1] + sizes[1] / 5, "{sizes:?}");
}

fn pages(path: &std::path::Path) -> i64 {
    let connection = rusqlite::Connection::open(path).expect("opens");
    connection
        .pragma_query_value(None, "page_count", |row| row.get(0))
        .expect("readable")
}

/// As if so many entries had been made before.
fn jump(lab: &Lab, sequence: i64) -> Box<dyn Journal> {
    drop(lab.open());
    let sql = format!("UPDATE journal_writer SET last_sequence = {sequence}");
    lab.execute_in_postgres(&sql);
    lab.open()
}

#[test]
fn postgres_drops_parts_of_the_ledger_that_no_job_needs_any_more() {
    const PART: i64 = 10_000_000;
    let lab = Lab::postgres();
    let mut journal = jump(&lab, PART - 3);
    // The first job's entries lie on both sides of the border, those of the others behind it.
    keep_ended(&mut *journal, &job(1, 1..=3), 5000);
    keep_ended(&mut *journal, &job(2, 4..=4), 6000);
    let reader = lab.reader();
    let oldest = || reader.history().expect("readable").entry_oldest;
    assert_eq!(journal.prune(&step(5000)).expect("pruned").jobs, 0);
    assert_eq!(oldest().map(|(first, _)| first), Some(PART as u64 - 2));
    let pruned = journal.prune(&step(5001)).expect("pruned");
    assert_eq!((pruned.jobs, pruned.entries), (1, 2));
    assert_eq!(oldest().map(|(first, _)| first), Some(PART as u64));
    assert_eq!(reader.last_sequence().expect("readable"), PART as u64 + 5);
    let next = keep_ended(&mut *journal, &job(3, 5..=5), 7000);
    assert_eq!(next, PART as u64 + 7);
}

/// Numbers of transfers and of entries grow together: without an entry of the first, nobody knows which entries are needed.
#[test]
fn postgres_drops_no_part_of_the_ledger_while_an_open_transfer_has_no_entry() {
    const PART: i64 = 10_000_000;
    let lab = Lab::postgres();
    let mut journal = jump(&lab, PART - 3);
    journal.append(&accepted(&job(1, 1..=1))).expect("stored");
    keep_ended(&mut *journal, &job(2, 2..=9), 5000);
    lab.execute_in_postgres("DELETE FROM ledger WHERE transfer_id = 1");
    let oldest = || lab.reader().history().expect("readable").entry_oldest;
    let before = oldest();
    assert!(before.is_some_and(|(first, _)| first < PART as u64));
    let pruned = journal.prune(&step(i64::MAX)).expect("pruned");
    assert_eq!((pruned.jobs, pruned.entries), (1, 0));
    assert_eq!(oldest(), before);
}
