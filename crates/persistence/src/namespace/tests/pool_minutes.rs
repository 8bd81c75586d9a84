//! The minutes of pools.

use super::*;
use penstock_model::observation::Operation;
use penstock_model::{PoolName, PoolSample, PoolSamples, PoolTraffic, TapeSample, VoName};

fn minute(number: i64) -> PoolSamples {
    let traffic = PoolTraffic {
        bytes_in: u64::MAX,
        failed_bytes: 3,
        ended: 2,
        failed: 1,
        left: 1,
        ..PoolTraffic::new(Some(VoName::new("cms")), Operation::Copy)
    };
    PoolSamples {
        from: Timestamp(number * 60_000),
        to: Timestamp(number * 60_000 + 60_000),
        pools: vec![
            PoolSample {
                looks: 60,
                reachable: 59,
                accepting: 58,
                drained: 1,
                free_bytes: 7,
                active: 120,
                queued: 6,
                limit: 600,
                started: Some(4),
                read_wait_us: Some(5),
                traffic: vec![traffic, PoolTraffic::new(None, Operation::Read)],
                ..PoolSample::new(PoolName::new("a"))
            },
            PoolSample::new(PoolName::new("b")),
        ],
        // Of some minutes nothing is known of tapes, of others not all.
        tape: (number > 0).then(|| TapeSample {
            looks: 60,
            written_files: 1,
            written_bytes: 2,
            unwritten_bytes: 3,
            recalled_files: 4,
            recalled_bytes: 5,
            read_bytes: (number > 1).then_some(6),
            mounts: (number > 1).then_some(7),
            recalls_queued: 8,
            recall_age_seconds: 9,
            recalls_started: 10,
            recall_wait_ms: 11,
            drives_busy: 12,
            drives_max: 13,
            buffer_used_permille: (number > 2).then_some(14),
            write_cycle_seconds: Some(15),
        }),
    }
}

fn stored(lab: &Lab) -> Vec<PoolSamples> {
    let reader = LedgerReader::open(&lab.file()).expect("opens");
    let all = reader.pool_minutes_between(Timestamp(0), Timestamp(i64::MAX));
    all.expect("readable")
}

#[test]
fn a_minute_is_read_as_it_was_written_by_its_time_and_by_its_number() {
    let lab = Lab::new();
    for number in 0..4 {
        lab.make(Change::RecordPoolMinute(minute(number)))
            .expect("recorded");
    }
    assert_eq!(stored(&lab), (0..4).map(minute).collect::<Vec<_>>());
    let reader = LedgerReader::open(&lab.file()).expect("opens");
    let some = reader.pool_minutes_between(Timestamp(60_000), Timestamp(120_000));
    assert_eq!(some.expect("readable"), [minute(1)]);
    assert_eq!(reader.last_pool_minute().expect("readable"), 4);
    let later = reader.pool_minutes_after(2, 1).expect("readable");
    assert_eq!(later, [(3, minute(2))]);
}

#[test]
fn old_minutes_go_with_the_ledger_and_their_numbers_are_not_given_again() {
    let lab = Lab::new();
    for number in 0..4 {
        lab.make(Change::RecordPoolMinute(minute(number)))
            .expect("recorded");
    }
    let bound = LedgerBound {
        before: Some(Timestamp(200_000)),
        records_max: 1000,
    };
    let pruned = lab.make(Change::PruneLedger(bound)).expect("pruned");
    assert_eq!((pruned.pruned, stored(&lab)), (3, vec![minute(3)]));
    let reader = LedgerReader::open(&lab.file()).expect("opens");
    assert_eq!(reader.last_pool_minute().expect("readable"), 4);
}
