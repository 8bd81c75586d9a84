//! When tape systems were at files, and what links did: whether records come in one batch or one by one.

use super::{Lab, Record, accepted, job};
use penstock_journal::TapeTimes;
use penstock_model::*;

fn times_of(lab: &Lab, job: &Job) -> TapeTimes {
    let rows = lab.reader().transfers(job.id).expect("readable");
    rows[0].tape.clone()
}

pub(super) fn what_tape_systems_did_is_told_of_a_file(lab: &Lab) {
    let failure = Failure {
        side: Side::Source,
        retry: Retry::Later,
        concern: Concern::StorageElement,
        phase: Phase::Staging,
        errno: Errno(5),
        detail: "no tape".into(),
        found: None,
        busy: None,
        code: None,
    };
    let steps = [
        (
            10,
            TransferEvent::StageRequested {
                request: StageRequestId::new("r1"),
            },
        ),
        (
            20,
            TransferEvent::StageFailed {
                failure,
                retry_at: Some(Timestamp(25)),
                excused: false,
            },
        ),
        (
            30,
            TransferEvent::StageRequested {
                request: StageRequestId::new("r2"),
            },
        ),
        (40, TransferEvent::Archived { source: None }),
    ];
    let mut journal = lab.open();
    let (whole, single) = (job(1, 1..=1), job(2, 2..=2));
    let record = |job: &Job, (at, event): &(i64, TransferEvent)| Record::Happened {
        at: Timestamp(*at),
        monotonic_us: 1,
        job: job.id,
        transfer: job.transfers[0].id,
        event: event.clone(),
        state: TransferState::submitted(),
    };
    let mut batch = accepted(&whole);
    batch.extend(steps.iter().map(|step| record(&whole, step)));
    journal.append(&batch).expect("stored");
    journal.append(&accepted(&single)).expect("stored");
    for step in &steps {
        journal.append(&[record(&single, step)]).expect("stored");
    }
    let expected = TapeTimes {
        request: Some(StageRequestId::new("r2")),
        staging_started_at: Some(Timestamp(30)),
        staging_finished_at: None,
        archiving_started_at: None,
        archiving_finished_at: Some(Timestamp(40)),
    };
    assert_eq!(times_of(lab, &whole), expected);
    assert_eq!(times_of(lab, &single), expected);
}

pub(super) fn samples_are_found_by_their_time(lab: &Lab) {
    const DAY: i64 = 86_400_000;
    let sample = |at: i64| LinkSample {
        at: Timestamp(at),
        link: LinkId {
            source: StorageId::new("https://a"),
            destination: StorageId::new("https://b"),
        },
        moved: Bytes(at as u64),
        active: Slots(1),
        limit: Slots(2),
        queued: 3,
    };
    let all = [sample(5), sample(DAY - 1), sample(DAY), sample(40 * DAY)];
    let mut journal = lab.open();
    let records = all.iter().cloned().map(Record::Sampled);
    journal
        .append(&records.collect::<Vec<_>>())
        .expect("stored");
    let between = |from, to| {
        let found = lab.reader().samples_between(Timestamp(from), Timestamp(to));
        found.expect("readable")
    };
    assert_eq!(between(0, 41 * DAY), all);
    assert_eq!(between(6, DAY), all[1..2]);
}
