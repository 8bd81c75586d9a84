//! What every journal must do, whatever keeps it.

mod batches;
mod fencing;
mod history;
mod lab;
mod minutes;
mod odd_rows;
mod tape;
mod tokens;
mod upgrading;

use batches::{
    a_batch_that_is_refused_leaves_neither_a_state_nor_an_entry,
    the_state_of_a_job_is_the_roll_up_of_its_files,
};
use history::{
    a_large_job_is_gone_at_once_and_its_files_by_and_by,
    numbers_are_not_given_again_when_all_is_gone,
    samples_and_what_became_of_links_go_with_their_time, what_an_owed_removal_is_judged_by_stays,
    what_ended_before_the_time_goes_and_what_is_open_stays,
    what_somebody_has_not_taken_stays_until_it_is_too_old,
};
use lab::Lab;
use minutes::{minutes_are_found_by_their_time_with_all_parts, minutes_go_with_their_own_time};
use odd_rows::*;
use tape::{samples_are_found_by_their_time, what_tape_systems_did_is_told_of_a_file};
use tokens::{
    a_new_sealing_key_is_used_for_all_that_a_token_is_renewed_with,
    tokens_are_renewed_and_nowhere_in_clear,
    transfers_and_recalls_that_wait_for_a_token_are_told_apart_from_those_that_do_not,
    what_is_owed_at_a_destination_keeps_its_token_and_is_found_until_it_is_done,
};

use super::tunings::PLACES_MAX;
use super::{SqliteJournal, SqliteReader};
use crate::sealing::SealingKeys;
use penstock_journal::{
    JobFilter, JobName, Journal, JournalReader, MemoryJournal, TransferFilter, TuningFilter,
};
use penstock_model::*;

fn job(seed: u128, transfers: std::ops::RangeInclusive<u64>) -> Job {
    let url =
        |host: &str, id: u64| FileUrl::parse(&format!("https://{host}/f{id}")).expect("valid");
    let request = |id| TransferRequest {
        id: TransferId(id),
        index: id as u32,
        source: url("a", id),
        destination: url("b", id),
        size: None,
        checksum: Checksum::parse("adler32:1"),
        checksum_algorithm: ChecksumAlgorithm::Adler32,
        activity: Activity::new("default"),
        scitag: None,
        metadata: serde_json::json!({"request_id": id}).into(),
        source_credential: Some(CredentialId::new("c1")),
        destination_credential: None,
        source_query: None,
        destination_query: None,
        tape: None,
    };
    Job {
        id: JobId(uuid::Uuid::from_u128(seed)),
        user: UserName::new("alice"),
        vo: VoName::new("cms"),
        delegation: CredentialId::new("d1"),
        submitted_at: Timestamp(1000),
        parameters: JobParameters::default(),
        transfers: transfers.map(request).collect(),
    }
}

fn accepted(job: &Job) -> Vec<Record> {
    let tokens = vec![token("c1", "secret")];
    vec![Record::JobAccepted {
        job: Box::new(job.clone()),
        tokens,
    }]
}

fn token(id: &str, text: &str) -> JobToken {
    JobToken {
        id: CredentialId::new(id),
        text: text.to_owned(),
        renewal: None,
    }
}

/// What a restart reads.
fn restart(journal: &mut dyn Journal) -> (RestartFacts, Vec<UnfinishedJob>) {
    let standing = journal.load_standing().expect("readable");
    let mut jobs = Vec::new();
    let loaded = journal.load_unfinished(&mut |job| jobs.push(job));
    loaded.expect("readable");
    (standing, jobs)
}

fn text_of(journal: &mut dyn Journal, id: &str) -> Option<String> {
    let found = journal.token(&CredentialId::new(id)).expect("readable");
    found.map(|token| token.text)
}

fn happened(job: &Job, transfer: u64, state: &mut TransferState, event: TransferEvent) -> Record {
    let at = Timestamp(2000);
    *state = advance(state, at, &event).expect("the test's events fit");
    let (transfer, state) = (TransferId(transfer), state.clone());
    Record::Happened {
        at,
        monotonic_us: 5,
        job: job.id,
        transfer,
        event,
        state,
    }
}

fn finish(job: &Job, transfer: u64) -> Vec<Record> {
    let mut state = TransferState::submitted();
    let started = happened(
        job,
        transfer,
        &mut state,
        TransferEvent::Started {
            attempt: Attempt(1),
            node: None,
        },
    );
    let landed = TransferEvent::Landed {
        attempt: Attempt(1),
        size: Bytes(7),
        mode: Some(CopyMode::Pull),
        report: Box::default(),
        archives: false,
    };
    vec![started, happened(job, transfer, &mut state, landed)]
}

fn rule(slots_max: u32) -> LinkRule {
    let any = || StorageId::new(ANY);
    LinkRule {
        name: "x".into(),
        ends: LinkId {
            source: any(),
            destination: any(),
        },
        slots_min: Slots(2),
        slots_max: Slots(slots_max),
        tuning: None,
        mode: None,
        rate_max: None,
        is_draining: false,
    }
}

fn configured(key: SettingKey, before: Option<Setting>, after: Option<Setting>) -> Record {
    Record::Configured(Box::new(SettingChange {
        at: Timestamp(2500),
        user: UserName::new("/CN=Admin"),
        action: "link".into(),
        key,
        before,
        after,
    }))
}

fn drained(before: Option<Setting>, after: Option<Setting>) -> Record {
    configured(SettingKey::Drain, before, after)
}

fn limited(before: Option<u32>, after: Option<u32>) -> Record {
    let setting = |slots: Option<u32>| slots.map(|slots| Setting::Link(rule(slots)));
    configured(
        SettingKey::Link("x".into()),
        setting(before),
        setting(after),
    )
}

/// `reopen` gives the journal as a restarted process would find it.
fn conforms(mut journal: Box<dyn Journal>, reopen: impl Fn(Box<dyn Journal>) -> Box<dyn Journal>) {
    let (first, second) = (job(1, 1..=3), job(2, 4..=4));
    journal.append(&accepted(&first)).expect("accepted");
    journal.append(&accepted(&second)).expect("accepted");
    journal.append(&finish(&first, 1)).expect("stored");
    let mut state = TransferState::submitted();
    let started = happened(
        &first,
        2,
        &mut state,
        TransferEvent::Started {
            attempt: Attempt(1),
            node: None,
        },
    );
    journal.append(&[started]).expect("stored");
    let mut ended = finish(&second, 4);
    ended.push(Record::JobEnded {
        job: second.id,
        at: Timestamp(3000),
        state: JobState::Finished,
    });
    journal.append(&ended).expect("stored");

    let higher = Record::Reprioritised {
        job: first.id,
        priority: Priority::clamped(5),
    };
    journal.append(&[higher]).expect("stored");
    let set = [drained(None, Some(Setting::Drain)), limited(None, Some(5))];
    journal.append(&set).expect("stored");
    let changed = [
        drained(Some(Setting::Drain), None),
        limited(Some(5), Some(7)),
    ];
    journal.append(&changed).expect("stored");

    let mut journal = reopen(journal);
    let (found, jobs) = restart(journal.as_mut());
    assert!(!found.settings.is_drained(), "it was taken back");
    assert_eq!(found.settings.link("x"), Some(&rule(7)));
    assert_eq!(found.settings.count(), 1);
    let [only] = jobs.as_slice() else {
        panic!("{jobs:?}")
    };
    assert_eq!(only.job.id, first.id);
    assert_eq!(
        only.job.transfers,
        first.transfers[1..],
        "ended transfers stay away, the rest is unchanged"
    );
    assert_eq!(only.job.parameters.priority, Priority::clamped(5));
    assert_eq!(only.states, [state, TransferState::submitted()]);
    assert!(matches!(only.ended[..], [TransferState::Finished { .. }]));
    assert_eq!(
        found.transfer_id_max, 4,
        "numbers of ended transfers are not used again"
    );
    let token = text_of(journal.as_mut(), "c1");
    assert_eq!(
        token.as_deref(),
        Some("secret"),
        "an open job refers to it, and an ended one did"
    );
    let ended = Record::JobEnded {
        job: first.id,
        at: Timestamp(4000),
        state: JobState::Canceled,
    };
    journal.append(&[ended]).expect("stored");
    let token = text_of(journal.as_mut(), "c1");
    assert_eq!(token, None, "no open job refers to it");
    journal.append(&accepted(&job(3, 5..=5))).expect("accepted");
    let token = text_of(journal.as_mut(), "c1");
    assert_eq!(token.as_deref(), Some("secret"), "it came back");
}

fn imposed(ban: &Ban, before: Option<&Ban>) -> Record {
    Record::Banned(Box::new(BanChange {
        at: Timestamp(1),
        by: UserName::new("op"),
        before: before.cloned(),
        after: Some(ban.clone()),
    }))
}

fn ban(vo: Option<&str>, message: &str) -> Ban {
    Ban::Storage(StorageBan {
        storage: StorageId::new("https://se.org"),
        vo: vo.map(VoName::new),
        effect: BanEffect::Wait,
        cancel_at: Some(Timestamp(9)),
        since: Timestamp(1),
        by: UserName::new("op"),
        message: message.to_owned(),
    })
}

/// Of several bans of one target the last one holds, until it is lifted; VOs are different targets.
fn keeps_bans(
    mut journal: Box<dyn Journal>,
    reopen: impl Fn(Box<dyn Journal>) -> Box<dyn Journal>,
) {
    let (all, of_cms, changed) = (ban(None, "a"), ban(Some("cms"), "b"), ban(Some("cms"), "c"));
    let user = Ban::User(UserBan {
        user: UserName::new("/CN=m"),
        since: Timestamp(1),
        by: UserName::new("op"),
        message: String::new(),
    });
    let records = [
        imposed(&all, None),
        imposed(&of_cms, None),
        imposed(&user, None),
        imposed(&changed, Some(&of_cms)),
    ];
    journal.append(&records).expect("stored");
    let mut journal = reopen(journal);
    let found = |journal: &mut Box<dyn Journal>| journal.load_standing().expect("readable").bans;
    assert_eq!(found(&mut journal), [all.clone(), changed, user.clone()]);
    let lifted = Record::Banned(Box::new(BanChange {
        at: Timestamp(2),
        by: UserName::new("op"),
        before: Some(all),
        after: None,
    }));
    journal.append(&[lifted]).expect("stored");
    let mut journal = reopen(journal);
    assert_eq!(found(&mut journal), [ban(Some("cms"), "c"), user]);
}

#[test]
fn the_journal_in_memory_keeps_bans() {
    keeps_bans(Box::new(MemoryJournal::default()), |journal| journal);
}

fn bans_are_kept_and_who_imposed_and_lifted_them(lab: &Lab) {
    keeps_bans(lab.open(), |journal| {
        drop(journal);
        lab.open()
    });
    let changes = lab.reader().ban_changes(2).expect("readable");
    let actions: Vec<&str> = changes.iter().map(BanChange::action).collect();
    assert_eq!(actions, ["unban-se", "ban-se"], "newest first");
    assert_eq!(lab.reader().bans().expect("readable").len(), 2);
}

fn keys() -> SealingKeys {
    SealingKeys::of_this_process().expect("OpenSSL works")
}

#[test]
fn the_journal_in_memory_conforms() {
    conforms(Box::new(MemoryJournal::default()), |journal| journal);
}

fn what_is_stored_is_found_again(lab: &Lab) {
    conforms(lab.open(), |journal| {
        drop(journal);
        lab.open()
    });
}

#[test]
fn a_journal_that_is_full_stores_nothing_of_the_batch() {
    let mut journal = MemoryJournal::default();
    journal.full = true;
    assert!(journal.append(&accepted(&job(1, 1..=2))).is_err());
    assert!(restart(&mut journal).1.is_empty());
}

fn readers_see_the_job_its_roll_up_and_its_ledger_of_one_instant(lab: &Lab) {
    let mut journal = lab.open();
    let reader = lab.reader();
    let first = job(1, 1..=2);
    journal.append(&accepted(&first)).expect("stored");
    let state = |reader: &dyn JournalReader| {
        reader
            .job(first.id)
            .expect("readable")
            .expect("known")
            .state
    };
    assert_eq!(state(reader.as_ref()), JobState::Submitted);
    let sequence = journal.append(&finish(&first, 1)).expect("stored");
    assert_eq!(state(reader.as_ref()), JobState::Active);
    let mut second = TransferState::submitted();
    let canceled = TransferEvent::Canceled {
        reason: "Job canceled by the user".into(),
    };
    let mut records = vec![happened(&first, 2, &mut second, canceled)];
    records.push(Record::JobEnded {
        job: first.id,
        at: Timestamp(3000),
        state: JobState::FinishedDirty,
    });
    journal.append(&records).expect("stored");
    let row = reader.job(first.id).expect("readable").expect("known");
    let transfers = reader.transfers(first.id).expect("readable");
    assert_eq!((row.state, transfers.len()), (JobState::FinishedDirty, 2));
    assert_eq!(row.reason.as_deref(), Some("Job canceled by the user"));
    assert_eq!(transfers[0].size_bytes, Some(7));
    assert_eq!(transfers[0].request, first.transfers[0]);
    let entries = reader.entries_after(0, 10).expect("readable");
    assert_eq!(entries.len(), 3);
    assert_eq!(entries[1].sequence, sequence);
    assert_eq!(
        reader.entries_after(sequence, 10).expect("readable").len(),
        1
    );
    let filter = JobFilter {
        limit: 10,
        ..JobFilter::default()
    };
    assert!(
        reader.jobs(&filter).expect("readable").is_empty(),
        "only open jobs unless asked"
    );
    let filter = JobFilter {
        ended_since: Some(Timestamp(0)),
        user: Some(UserName::new("alice")),
        ..filter
    };
    assert_eq!(reader.jobs(&filter).expect("readable").len(), 1);
}

fn a_job_of_any_size_is_read_in_pages(lab: &Lab) {
    let mut journal = lab.open();
    let reader = lab.reader();
    let (first, other) = (job(1, 1..=5), job(2, 6..=9));
    journal.append(&accepted(&first)).expect("stored");
    journal.append(&accepted(&other)).expect("stored");
    journal.append(&finish(&first, 4)).expect("stored");
    let page = |after| {
        let rows = reader.transfers_after(first.id, TransferId(after), 2);
        let rows = rows.expect("readable");
        rows.iter().map(|row| row.id.0).collect::<Vec<_>>()
    };
    assert_eq!(
        [page(0), page(2), page(4), page(5)],
        [vec![1, 2], vec![3, 4], vec![5], vec![]]
    );
    let counts = reader.state_counts(first.id).expect("readable");
    assert_eq!(
        counts,
        [("FINISHED".to_owned(), 1), ("SUBMITTED".to_owned(), 4)]
    );
}

/// A journal with open, running, finished and failed jobs in turns: job `n` has the one transfer `n`.
fn journal_of_many(lab: &Lab, count: u64) -> Box<dyn Journal> {
    let mut journal = lab.open();
    let mut records = Vec::new();
    for number in 1..=count {
        let mut job = job(number.into(), number..=number);
        job.submitted_at = Timestamp(number as i64);
        records.extend(accepted(&job));
        let events = finish(&job, number);
        let (state, taken) = match number % 4 {
            0 => continue,
            1 => (None, 1),
            2 => (Some(JobState::Finished), 2),
            _ => (Some(JobState::Canceled), 0),
        };
        records.extend(events.into_iter().take(taken));
        if taken == 0 {
            let reason = "not wanted".to_owned();
            let event = TransferEvent::Canceled { reason };
            let mut submitted = TransferState::submitted();
            records.push(happened(&job, number, &mut submitted, event));
        }
        let ended = |state| Record::JobEnded {
            job: job.id,
            at: Timestamp(5000),
            state,
        };
        records.extend(state.map(ended));
    }
    journal.append(&records).expect("stored");
    journal
}

fn jobs_in_a_state_are_found_however_many_others_are_newer(lab: &Lab) {
    let _journal = journal_of_many(lab, 40);
    let reader = lab.reader();
    let check = |states: &[&str], limit: usize, since: Option<i64>, expected: &[u128]| {
        let filter = JobFilter {
            states: states.iter().map(|state| (*state).to_owned()).collect(),
            ended_since: since.map(Timestamp),
            limit,
            ..JobFilter::default()
        };
        let rows = reader.jobs(&filter).expect("readable");
        let found: Vec<u128> = rows.iter().map(|row| row.id.0.as_u128()).collect();
        assert_eq!(found, expected, "{states:?} {limit} {since:?}");
    };
    check(&["FINISHED"], 3, Some(0), &[38, 34, 30]);
    check(&["CANCELED"], 2, Some(0), &[39, 35]);
    check(&["SUBMITTED"], 2, Some(0), &[40, 36]);
    check(&["ACTIVE"], 2, None, &[37, 33]);
    check(&["ACTIVE", "FINISHED"], 3, Some(0), &[38, 37, 34]);
    check(&["FINISHED"], 3, None, &[]);
    check(&["FINISHED"], 3, Some(5001), &[]);
    check(&["FIN", "ISHED", "%"], 3, Some(0), &[]);
    check(&[], 3, Some(0), &[40, 39, 38]);
    check(&[], 3, None, &[40, 37, 36]);
    check(&[], 0, Some(0), &[]);
}

fn the_record_of_settings_tells_who_changed_what_newest_first(lab: &Lab) {
    let mut journal = lab.open();
    let reader = lab.reader();
    journal.append(&[limited(None, Some(5))]).expect("stored");
    journal.append(&[limited(Some(5), None)]).expect("stored");
    let changes = reader.setting_changes(10).expect("readable");
    let records: Vec<Record> = changes
        .into_iter()
        .map(|change| Record::Configured(Box::new(change)))
        .collect();
    assert_eq!(records, [limited(Some(5), None), limited(None, Some(5))]);
    assert_eq!(reader.setting_changes(1).expect("readable").len(), 1);
}

#[test]
fn tokens_are_readable_by_the_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("transfer.sqlite");
    let mut journal = SqliteJournal::open(&path, keys()).expect("opens");
    journal.append(&accepted(&job(1, 1..=1))).expect("stored");
    for entry in std::fs::read_dir(directory.path()).expect("readable") {
        let entry = entry.expect("readable");
        let mode = entry.metadata().expect("readable").permissions().mode();
        assert_eq!(mode & 0o077, 0, "{:?} is open to others", entry.path());
    }
}

/// The numbers of what is found, and where the next page begins.
fn found(reader: &dyn JournalReader, filter: TransferFilter) -> (Vec<u64>, Option<u64>) {
    let limited = TransferFilter {
        limit: if filter.limit == 0 { 100 } else { filter.limit },
        examined_max: if filter.examined_max == 0 {
            1000
        } else {
            filter.examined_max
        },
        ..filter
    };
    let page = reader.find(&limited).expect("readable");
    assert!(page.examined <= limited.examined_max);
    let ids = page.transfers.iter().map(|found| found.transfer.id.0);
    (ids.collect(), page.before.map(|before| before.0))
}

fn transfers_are_found_by_what_is_known_of_them_newest_first(lab: &Lab) {
    let mut journal = lab.open();
    let (first, mut second) = (job(1, 1..=3), job(2, 4..=5));
    second.vo = VoName::new("atlas");
    second.submitted_at = Timestamp(5000);
    journal.append(&accepted(&first)).expect("stored");
    journal.append(&finish(&first, 2)).expect("stored");
    journal.append(&accepted(&second)).expect("stored");
    let reader = lab.reader();
    let check = |filter: TransferFilter, expected: &[u64]| {
        let (ids, next) = found(reader.as_ref(), filter.clone());
        assert_eq!((ids.as_slice(), next), (expected, None), "{filter:?}");
    };
    let any = TransferFilter::default;
    check(any(), &[5, 4, 3, 2, 1]);
    check(
        TransferFilter {
            job: Some(first.id),
            ..any()
        },
        &[3, 2, 1],
    );
    check(
        TransferFilter {
            vo: Some(VoName::new("atlas")),
            ..any()
        },
        &[5, 4],
    );
    check(
        TransferFilter {
            states: vec!["FINISHED".into()],
            ..any()
        },
        &[2],
    );
    check(
        TransferFilter {
            states: vec!["FAILED".into()],
            ..any()
        },
        &[],
    );
    let open = vec!["SUBMITTED".to_owned(), "ACTIVE".to_owned()];
    check(
        TransferFilter {
            states: open,
            ..any()
        },
        &[5, 4, 3, 1],
    );
    check(
        TransferFilter {
            submitted_since: Some(Timestamp(5000)),
            ..any()
        },
        &[5, 4],
    );
    check(
        TransferFilter {
            submitted_since: Some(Timestamp(5001)),
            ..any()
        },
        &[],
    );
    check(
        TransferFilter {
            ended_since: Some(Timestamp(2001)),
            ..any()
        },
        &[5, 4, 3, 1],
    );
    check(
        TransferFilter {
            parts: vec!["//B".into(), "F4".into()],
            ..any()
        },
        &[4],
    );
    check(
        TransferFilter {
            parts: vec!["a/f9".into()],
            ..any()
        },
        &[],
    );
    check(
        TransferFilter {
            host: Some("B".into()),
            ..any()
        },
        &[5, 4, 3, 2, 1],
    );
    check(
        TransferFilter {
            host: Some("c".into()),
            ..any()
        },
        &[],
    );
    check(
        TransferFilter {
            source: Some(StorageId::new("https://b")),
            ..any()
        },
        &[],
    );
    check(
        TransferFilter {
            destination_url: Some("https://b/f3".into()),
            ..any()
        },
        &[3],
    );
    let mut names = reader.recent_names(JobName::Vo).expect("readable");
    names.sort();
    assert_eq!(names, ["atlas", "cms"]);
}

fn pages_follow_each_other_however_little_is_looked_at_for_one(lab: &Lab) {
    let mut journal = lab.open();
    journal.append(&accepted(&job(1, 1..=10))).expect("stored");
    let reader = lab.reader();
    for (limit, examined_max) in [(2, 100), (100, 3), (1, 1)] {
        let (mut all, mut before) = (Vec::new(), None);
        loop {
            let filter = TransferFilter {
                before,
                limit,
                examined_max,
                ..TransferFilter::default()
            };
            let (ids, next) = found(reader.as_ref(), filter);
            assert!(ids.len() <= limit);
            all.extend(ids);
            match next {
                Some(next) => before = Some(TransferId(next)),
                None => break,
            }
        }
        assert_eq!(
            all,
            [10, 9, 8, 7, 6, 5, 4, 3, 2, 1],
            "{limit} {examined_max}"
        );
    }
}

fn what_became_of_a_link_is_kept(lab: &Lab) {
    let mut journal = lab.open();
    let link = rule(1).ends;
    let change = |at, event| LinkChange {
        at: Timestamp(at),
        link: link.clone(),
        event,
    };
    let changes = [
        change(1, LinkEvent::Tried),
        change(9, LinkEvent::Reopened { by: TransferId(4) }),
    ];
    let records = changes
        .iter()
        .map(|one| Record::LinkChanged(Box::new(one.clone())));
    journal
        .append(&records.collect::<Vec<_>>())
        .expect("stored");
    let reader = lab.reader();
    let read = |from, to, limit| {
        let changes = reader.link_changes(&link, Timestamp(from), Timestamp(to), limit);
        changes.expect("readable")
    };
    assert_eq!(read(0, 9, 10), changes);
    assert_eq!(read(2, 9, 10), changes[1..]);
    assert_eq!(read(0, 9, 1), changes[1..], "the latest");
}

fn decision(at: i64, place: &TunedPlace, slots: u32) -> TuningDecision {
    TuningDecision {
        at: Timestamp(at),
        place: place.clone(),
        policy: TuningPolicy::Measured,
        slots_before: Slots(2),
        slots: Slots(slots),
        streams: None,
        seen: TuningSeen::default(),
        candidates: Vec::new(),
        because: TuneReason::Probes,
    }
}

fn decisions_about_numbers_are_kept_and_the_last_of_each_place_is_found_at_a_restart(lab: &Lab) {
    let mut journal = lab.open();
    let link = |source: &str| {
        TunedPlace::Link(LinkId {
            source: StorageId::new(source),
            destination: StorageId::new("https://d"),
        })
    };
    let into = TunedPlace::Inbound {
        storage: StorageId::new("https://d"),
    };
    let (one, other) = (link("https://a"), link("https://b"));
    let mut all: Vec<_> = (0..600).map(|at| decision(at, &one, at as u32)).collect();
    all.push(decision(600, &into, 7));
    all.push(decision(601, &other, 8));
    let records = all.iter().map(|one| Record::Tuned(Box::new(one.clone())));
    journal
        .append(&records.collect::<Vec<_>>())
        .expect("stored");
    let found = journal.load_standing().expect("readable").tunings;
    assert_eq!(found, all[599..], "the last of each place");
    let reader = lab.reader();
    let read = |source: Option<&str>, links_only, limit| {
        let filter = TuningFilter {
            source: source.map(StorageId::new),
            links_only,
            limit,
            ..TuningFilter::default()
        };
        reader.tunings(&filter).expect("readable")
    };
    assert_eq!(read(None, false, 2), [all[601].clone(), all[600].clone()]);
    assert_eq!(read(None, true, 2), [all[601].clone(), all[599].clone()]);
    assert_eq!(read(Some("https://a"), true, 1000).len(), 500, "the latest");
    // As of many places that users have named since.
    let max = PLACES_MAX;
    lab.execute(&format!(
        "INSERT INTO tuning (at_ms, source, destination, version, decision)
         WITH RECURSIVE named (number) AS (SELECT 1 UNION ALL SELECT number + 1 FROM named WHERE number < {max})
         SELECT 0, 'https://s' || number, '', 1, (SELECT max(decision) FROM tuning WHERE source = 'https://b') FROM named"
    ));
    let found = journal.load_standing().expect("readable").tunings;
    assert_eq!(
        found,
        vec![all[601].clone(); max as usize],
        "of the latest places"
    );
}

#[test]
fn a_database_of_a_later_version_is_left_alone() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("transfer.sqlite");
    drop(SqliteJournal::open(&path, keys()).expect("opens"));
    let connection = rusqlite::Connection::open(&path).expect("opens");
    connection
        .pragma_update(None, "user_version", 99)
        .expect("written");
    drop(connection);
    let error = SqliteJournal::open(&path, keys()).expect_err("too new");
    assert!(
        error.to_string().contains("written by a later version"),
        "{error}"
    );
}

/// The first schema with a job that is open and one that has ended, each with a token of its own.
const FIRST_SCHEMA: &str = r#"
    CREATE TABLE job (job_id TEXT PRIMARY KEY, user TEXT NOT NULL, vo TEXT NOT NULL, delegation TEXT NOT NULL,
        submitted_ms INTEGER NOT NULL, finished_ms INTEGER, final_state TEXT, priority INTEGER NOT NULL,
        parameters TEXT NOT NULL, source_se TEXT NOT NULL, destination_se TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE transfer (transfer_id INTEGER PRIMARY KEY, job_id TEXT NOT NULL, request TEXT NOT NULL,
        state_name TEXT NOT NULL, state TEXT NOT NULL, size_bytes INTEGER, started_ms INTEGER, finished_ms INTEGER);
    CREATE TABLE ledger (sequence INTEGER PRIMARY KEY AUTOINCREMENT, at_ms INTEGER NOT NULL,
        monotonic_us INTEGER NOT NULL, job_id TEXT NOT NULL, transfer_id INTEGER NOT NULL,
        version INTEGER NOT NULL, event TEXT NOT NULL);
    CREATE TABLE credential (credential_id TEXT PRIMARY KEY, token TEXT NOT NULL) WITHOUT ROWID;
    INSERT INTO job VALUES ('open', 'alice', 'cms', 'd', 1, NULL, NULL, 3, '{}', 'a', 'b'),
        ('over', 'alice', 'cms', 'd', 1, 2, 'FINISHED', 3, '{}', 'a', 'b');
    INSERT INTO transfer VALUES (1, 'open', '{"source_credential":"c1","destination_credential":null}', 'X', '{}',
        NULL, NULL, NULL), (2, 'over', '{"source_credential":"c2","destination_credential":"c2"}', 'X', '{}',
        NULL, NULL, 2);
    INSERT INTO credential VALUES ('c1', 'eyJ-the-open-token'), ('c2', 'eyJ-the-old-token');
    PRAGMA user_version = 1;"#;

#[test]
fn tokens_of_the_first_schema_are_sealed_or_gone_and_nowhere_in_the_files() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("transfer.sqlite");
    let connection = rusqlite::Connection::open(&path).expect("opens");
    connection
        .pragma_update(None, "journal_mode", "WAL")
        .expect("set");
    connection.execute_batch(FIRST_SCHEMA).expect("made");
    // Deleted without being wiped, as that version did.
    connection
        .execute_batch("INSERT INTO credential VALUES ('c3', 'eyJ-the-lost-token'); DELETE FROM credential WHERE credential_id = 'c3'")
        .expect("made");
    drop(connection);
    let keys = keys();
    let mut journal = SqliteJournal::open(&path, keys.clone()).expect("migrates");
    let mut token = |id| text_of(&mut journal, id);
    assert_eq!(token("c1").as_deref(), Some("eyJ-the-open-token"));
    assert_eq!(token("c2"), None, "no open job refers to it");
    let reader = SqliteReader::open(&path, 1).expect("opens").with_keys(keys);
    let read = reader.token(&CredentialId::new("c1")).expect("readable");
    let read = read.map(|token| token.text);
    assert_eq!(read.as_deref(), Some("eyJ-the-open-token"));
    assert_holds_no_token(directory.path(), "eyJ-the");
}

#[test]
fn no_token_is_in_the_files_of_a_journal() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("transfer.sqlite");
    let mut journal = SqliteJournal::open(&path, keys()).expect("opens");
    let first = job(1, 1..=1);
    let tokens = vec![token("c1", "eyJ-a-token")];
    let job = Box::new(first);
    journal
        .append(&[Record::JobAccepted { job, tokens }])
        .expect("stored");
    assert_holds_no_token(directory.path(), "eyJ-a-token");
}

fn assert_holds_no_token(directory: &std::path::Path, token: &str) {
    for entry in std::fs::read_dir(directory).expect("readable") {
        let path = entry.expect("readable").path();
        let bytes = std::fs::read(&path).expect("readable");
        let found = bytes
            .windows(token.len())
            .any(|part| part == token.as_bytes());
        assert!(!found, "{} holds a token", path.display());
    }
}

macro_rules! on_each_back_end {
    ($($name:ident),* $(,)?) => {
        mod in_sqlite {
            $(#[test] fn $name() { super::$name(&super::Lab::sqlite()); })*
        }
        mod in_postgres {
            $(#[test] fn $name() { super::$name(&super::Lab::postgres()); })*
        }
    };
}

on_each_back_end! {
    minutes_are_found_by_their_time_with_all_parts,
    minutes_go_with_their_own_time,
    samples_are_found_by_their_time,
    what_tape_systems_did_is_told_of_a_file,
    what_is_stored_is_found_again,
    bans_are_kept_and_who_imposed_and_lifted_them,
    readers_see_the_job_its_roll_up_and_its_ledger_of_one_instant,
    a_batch_that_is_refused_leaves_neither_a_state_nor_an_entry,
    the_state_of_a_job_is_the_roll_up_of_its_files,
    a_job_of_any_size_is_read_in_pages,
    jobs_in_a_state_are_found_however_many_others_are_newer,
    the_record_of_settings_tells_who_changed_what_newest_first,
    transfers_are_found_by_what_is_known_of_them_newest_first,
    pages_follow_each_other_however_little_is_looked_at_for_one,
    what_became_of_a_link_is_kept,
    decisions_about_numbers_are_kept_and_the_last_of_each_place_is_found_at_a_restart,
    tokens_are_renewed_and_nowhere_in_clear,
    what_is_owed_at_a_destination_keeps_its_token_and_is_found_until_it_is_done,
    transfers_and_recalls_that_wait_for_a_token_are_told_apart_from_those_that_do_not,
    a_new_sealing_key_is_used_for_all_that_a_token_is_renewed_with,
    what_an_owed_removal_is_judged_by_stays,
    what_ended_before_the_time_goes_and_what_is_open_stays,
    numbers_are_not_given_again_when_all_is_gone,
    what_somebody_has_not_taken_stays_until_it_is_too_old,
    a_large_job_is_gone_at_once_and_its_files_by_and_by,
    samples_and_what_became_of_links_go_with_their_time,
    another_priority_changes_nothing_that_a_user_wrote,
    a_job_that_cannot_be_read_is_left_alone_and_keeps_no_other_back,
    no_other_row_that_cannot_be_read_keeps_a_service_from_starting,
}
