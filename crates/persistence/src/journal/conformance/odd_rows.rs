//! What users may write that databases treat in ways of their own, and rows that nobody should have written.

use super::tokens::owed;
use super::{Lab, accepted, decision, job, restart};
use penstock_model::{JobParameters, Priority, Record, StorageId, TunedPlace};

/// PostgreSQL's `jsonb` refuses the first and would change the others.
const ODD: &str = r#"{"nul":"a\u0000b","number":1.0,"twice":{"z":1,"a":2}}"#;

pub(super) fn another_priority_changes_nothing_that_a_user_wrote(lab: &Lab) {
    let mut journal = lab.open();
    let mut odd = job(1, 1..=1);
    odd.parameters = JobParameters {
        metadata: serde_json::from_str(ODD).expect("JSON"),
        ..odd.parameters
    };
    journal.append(&accepted(&odd)).expect("stored");
    for priority in [5, 4] {
        let record = Record::Reprioritised {
            job: odd.id,
            priority: Priority::clamped(priority),
        };
        journal.append(&[record]).expect("stored");
    }
    let unknown = Record::Reprioritised {
        job: job(9, 9..=9).id,
        priority: Priority::clamped(4),
    };
    journal.append(&[unknown]).expect("nothing to change");
    let (_, jobs) = restart(journal.as_mut());
    odd.parameters.priority = Priority::clamped(4);
    assert_eq!(jobs[0].job.parameters, odd.parameters);
}

pub(super) fn a_job_that_cannot_be_read_is_left_alone_and_keeps_no_other_back(lab: &Lab) {
    for column in ["parameters", "state", "request"] {
        let lab = &lab.another();
        let mut journal = lab.open();
        for seed in 1..=3 {
            let job = job(seed, seed as u64 * 2..=seed as u64 * 2 + 1);
            journal.append(&accepted(&job)).expect("stored");
        }
        lab.execute(&match column {
            "parameters" => format!(
                "UPDATE job SET parameters = 'odd' WHERE job_id = '{}'",
                uuid::Uuid::from_u128(2)
            ),
            _ => format!("UPDATE transfer SET {column} = 'odd' WHERE transfer_id = 5"),
        });
        let (_, jobs) = restart(journal.as_mut());
        let read: Vec<u128> = jobs.iter().map(|found| found.job.id.0.as_u128()).collect();
        assert_eq!(read, [1, 3], "{column}");
    }
}

pub(super) fn no_other_row_that_cannot_be_read_keeps_a_service_from_starting(lab: &Lab) {
    let mut journal = lab.open();
    for number in 1..=3 {
        let owed = owed(&job(number.into(), number..=number), 1);
        let into = TunedPlace::Inbound {
            storage: StorageId::new(format!("https://d{number}")),
        };
        let decision = decision(number as i64, &into, 7);
        let records = [
            Record::TidyingOwed(Box::new(owed)),
            Record::Tuned(Box::new(decision)),
        ];
        journal.append(&records).expect("stored");
    }
    drop(journal);
    let found = || {
        let (standing, _) = restart(lab.open().as_mut());
        let owed = standing.tidyings.iter().map(|owed| owed.request.id.0);
        let decided = standing.tunings.iter().map(|decision| decision.at.0 as u64);
        (owed.collect::<Vec<_>>(), decided.collect::<Vec<_>>())
    };
    lab.execute("UPDATE tidying SET tidying = 'odd' || tidying WHERE transfer_id = 2");
    assert_eq!(found(), (vec![1, 3], vec![1, 2, 3]));
    lab.execute("UPDATE tuning SET decision = 'odd' || decision WHERE destination = 'https://d3'");
    assert_eq!(found(), (vec![1, 3], vec![1, 2]));
    // They are as they were, for somebody who can mend them.
    lab.execute("UPDATE tidying SET tidying = substr(tidying, 4) WHERE transfer_id = 2");
    lab.execute(
        "UPDATE tuning SET decision = substr(decision, 4) WHERE destination = 'https://d3'",
    );
    assert_eq!(found(), (vec![1, 2, 3], vec![1, 2, 3]));
}
