//! What is stored of a batch, and what a job's state is made of.

use super::*;

/// With every file of it by itself.
fn states_of(reader: &dyn JournalReader, job: JobId) -> Vec<TransferState> {
    let rows = reader.transfers(job).expect("readable");
    rows.into_iter().map(|row| row.state).collect()
}

pub(super) fn a_batch_that_is_refused_leaves_neither_a_state_nor_an_entry(lab: &Lab) {
    let mut journal = lab.open();
    let reader = lab.reader();
    let (first, second) = (job(1, 1..=1), job(2, 2..=2));
    journal.append(&accepted(&first)).expect("stored");
    let entries = || reader.entries_after(0, 100).expect("readable");
    let before = (states_of(reader.as_ref(), first.id), entries());
    // There is such a job already, so the last record is refused.
    let batch = [finish(&first, 1), accepted(&second), accepted(&first)].concat();
    journal.append(&batch).expect_err("refused");
    let after = (states_of(reader.as_ref(), first.id), entries());
    assert_eq!(after, before);
    assert!(reader.job(second.id).expect("readable").is_none());
    // Without that record all of it is stored: the state with the entry that made it.
    let batch = [finish(&first, 1), accepted(&second)].concat();
    journal.append(&batch).expect("stored");
    let states = states_of(reader.as_ref(), first.id);
    assert!(matches!(states[..], [TransferState::Finished { .. }]));
    let last = entries().pop().map(|entry| (entry.transfer, entry.event));
    assert!(
        matches!(last, Some((TransferId(1), TransferEvent::Landed { .. }))),
        "{last:?}"
    );
}

pub(super) fn the_state_of_a_job_is_the_roll_up_of_its_files(lab: &Lab) {
    let mut journal = lab.open();
    let reader = lab.reader();
    let first = job(1, 1..=2);
    journal.append(&accepted(&first)).expect("stored");
    let mut states = [TransferState::submitted(), TransferState::submitted()];
    let started = || TransferEvent::Started {
        attempt: Attempt(1),
        node: None,
    };
    let landed = TransferEvent::Landed {
        attempt: Attempt(1),
        size: Bytes(7),
        mode: Some(CopyMode::Pull),
        report: Box::default(),
        archives: false,
    };
    let canceled = TransferEvent::Canceled {
        reason: "by the user".into(),
    };
    for (file, event) in [(0, started()), (1, started()), (0, landed), (1, canceled)] {
        let record = happened(&first, file as u64 + 1, &mut states[file], event);
        journal.append(&[record]).expect("stored");
        assert_eq!(states_of(reader.as_ref(), first.id), states);
        let row = reader.job(first.id).expect("readable").expect("known");
        assert_eq!(row.state, job_state(first.parameters.kind, &states));
    }
}
