//! Minutes of the pools of a storage element as rows that any site can fill: a sample of each pool, and of each work and VO
//! in it, and one of its tape part.

use penstock_model::observation::{Operation, Sample, SubjectKind, Text, View};
use penstock_model::{
    Bytes, PoolName, PoolSample, PoolSamples, PoolTraffic, TapeSample, Timestamp,
};

/// The rows of a minute. `server` is the storage element's name.
pub fn samples_of(minute: &PoolSamples, server: &Option<Text>) -> Vec<Sample> {
    let length_ms = u64::try_from(minute.to.0 - minute.from.0).ok();
    let of_pool = |pool: &PoolSample| {
        let row = Sample {
            at: minute.to,
            view: View::Site,
            subject_kind: SubjectKind::Pool,
            subject: pool.pool.as_str().into(),
            interval_ms: length_ms,
            server: server.clone(),
            ..Sample::default()
        };
        let works = pool.traffic.iter().map(|one| work_row(one, &row));
        let works: Vec<Sample> = works.collect();
        std::iter::once(pool_row(pool, row)).chain(works)
    };
    let tape = minute.tape.iter().map(|tape| {
        let row = Sample {
            at: minute.to,
            view: View::Site,
            subject_kind: SubjectKind::Tape,
            subject: TAPE.into(),
            interval_ms: length_ms,
            server: server.clone(),
            ..Sample::default()
        };
        tape_row(tape, row)
    });
    minute.pools.iter().flat_map(of_pool).chain(tape).collect()
}

/// All of a pool. Running, waiting and allowed are means over the looks.
fn pool_row(pool: &PoolSample, row: Sample) -> Sample {
    let mean = |sum: u64| sum.checked_add(pool.looks / 2)?.checked_div(pool.looks);
    let permille = |looks: u64| looks.saturating_mul(1000).checked_div(pool.looks);
    Sample {
        bytes_free: (pool.looks > 0).then_some(Bytes(pool.free_bytes)),
        active: mean(pool.active),
        limit: mean(pool.limit),
        queued: mean(pool.queued),
        reachable_permille: permille(pool.reachable),
        accepting_permille: permille(pool.accepting),
        drained_permille: permille(pool.drained),
        looks: Some(pool.looks),
        started: pool.started,
        ..with_traffic(
            row,
            &PoolTraffic {
                bytes_in: pool.sum(|one| one.bytes_in),
                bytes_out: pool.sum(|one| one.bytes_out),
                failed_bytes: pool.sum(|one| one.failed_bytes),
                ended: pool.sum(|one| one.ended),
                failed: pool.sum(|one| one.failed),
                left: pool.sum(|one| one.left),
                ..PoolTraffic::new(None, Default::default())
            },
        )
    }
}

/// What a row tells of all of a pool, and when its interval began. `None`: nobody looked at the pool, or nobody knows how often.
pub(crate) fn pool_of(row: &Sample) -> Option<(Timestamp, PoolSample)> {
    let interval_ms = row.interval_ms.filter(|interval| *interval > 0)?;
    let looks = row.looks.filter(|looks| *looks > 0)?;
    let sum = |mean: Option<u64>| mean.unwrap_or(0).saturating_mul(looks);
    let of = |permille: Option<u64>| {
        let part = u128::from(permille.unwrap_or(0)) * u128::from(looks);
        u64::try_from((part + 500) / 1000)
            .unwrap_or(looks)
            .min(looks)
    };
    let bytes = |bytes: Option<Bytes>| bytes.map_or(0, |bytes| bytes.0);
    let failed = row.failed.unwrap_or(0);
    let traffic = PoolTraffic {
        bytes_in: bytes(row.bytes_in),
        bytes_out: bytes(row.bytes_out),
        failed_bytes: bytes(row.bytes_failed),
        ended: row.succeeded.unwrap_or(0).saturating_add(failed),
        failed,
        ..PoolTraffic::new(None, Operation::default())
    };
    let pool = PoolSample {
        looks,
        reachable: of(row.reachable_permille),
        accepting: of(row.accepting_permille),
        drained: of(row.drained_permille),
        free_bytes: row.bytes_free?.0,
        active: sum(row.active),
        queued: sum(row.queued),
        limit: sum(row.limit),
        started: row.started,
        traffic: vec![traffic],
        ..PoolSample::new(PoolName::new(&*row.subject))
    };
    Some((Timestamp(row.at.0.checked_sub_unsigned(interval_ms)?), pool))
}

/// The name of the one tape part that a storage element has.
const TAPE: &str = "tape";

/// States are means over the looks.
fn tape_row(tape: &TapeSample, row: Sample) -> Sample {
    let mean = |sum: u64| sum.checked_add(tape.looks / 2)?.checked_div(tape.looks);
    Sample {
        bytes_in: Some(Bytes(tape.written_bytes)),
        bytes_out: Some(Bytes(tape.recalled_bytes)),
        active: mean(tape.drives_busy),
        limit: mean(tape.drives_max),
        queued: mean(tape.recalls_queued),
        looks: Some(tape.looks),
        started: Some(tape.recalls_started),
        bytes_unwritten: mean(tape.unwritten_bytes).map(Bytes),
        files_written: Some(tape.written_files),
        files_recalled: Some(tape.recalled_files),
        bytes_drives_read: tape.read_bytes.map(Bytes),
        mounts: tape.mounts,
        buffer_used_permille: tape.buffer_used_permille.and_then(mean),
        start_wait_ms: Some(tape.recall_wait_ms),
        oldest_wait_seconds: Some(tape.recall_age_seconds),
        cycle_seconds: tape.write_cycle_seconds,
        ..row
    }
}

/// What a row tells of a tape part, and when its interval began. `None`: nobody looked at it, or nobody knows how often.
pub(crate) fn tape_of(row: &Sample) -> Option<(Timestamp, TapeSample)> {
    let interval_ms = row.interval_ms.filter(|interval| *interval > 0)?;
    let looks = row.looks.filter(|looks| *looks > 0)?;
    let sum = |mean: u64| mean.saturating_mul(looks);
    let tape = TapeSample {
        looks,
        written_files: row.files_written?,
        written_bytes: row.bytes_in?.0,
        unwritten_bytes: sum(row.bytes_unwritten?.0),
        recalled_files: row.files_recalled?,
        recalled_bytes: row.bytes_out?.0,
        read_bytes: row.bytes_drives_read.map(|bytes| bytes.0),
        mounts: row.mounts,
        recalls_queued: sum(row.queued?),
        recall_age_seconds: row.oldest_wait_seconds.unwrap_or(0),
        recalls_started: row.started?,
        recall_wait_ms: row.start_wait_ms?,
        drives_busy: sum(row.active?),
        drives_max: sum(row.limit?),
        buffer_used_permille: row.buffer_used_permille.map(sum),
        write_cycle_seconds: row.cycle_seconds,
    };
    Some((Timestamp(row.at.0.checked_sub_unsigned(interval_ms)?), tape))
}

fn work_row(traffic: &PoolTraffic, row: &Sample) -> Sample {
    Sample {
        vo: traffic.vo.clone(),
        operation: Some(traffic.operation),
        ..with_traffic(row.clone(), traffic)
    }
}

fn with_traffic(row: Sample, traffic: &PoolTraffic) -> Sample {
    Sample {
        bytes_in: Some(Bytes(traffic.bytes_in)),
        bytes_out: Some(Bytes(traffic.bytes_out)),
        bytes_failed: Some(Bytes(traffic.failed_bytes)),
        succeeded: Some(traffic.ended.saturating_sub(traffic.failed + traffic.left)),
        failed: Some(traffic.failed),
        ..row
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_model::VoName;

    #[test]
    fn a_pool_has_a_row_of_its_own_and_one_for_each_work_and_vo() {
        let of_vo = |operation, bytes_in| PoolTraffic {
            bytes_in,
            failed_bytes: 1,
            ended: 3,
            failed: 1,
            ..PoolTraffic::new(Some(VoName::new("cms")), operation)
        };
        let minute = PoolSamples {
            from: Timestamp(0),
            to: Timestamp(60_000),
            pools: vec![PoolSample {
                looks: 60,
                reachable: 60,
                accepting: 30,
                free_bytes: 9,
                active: 150,
                limit: 600,
                traffic: vec![of_vo(Operation::Copy, 7), of_vo(Operation::Write, 5)],
                ..PoolSample::new(PoolName::new("a"))
            }],
            tape: Some(TapeSample {
                looks: 60,
                written_files: 1,
                written_bytes: 2,
                unwritten_bytes: 180,
                recalled_files: 4,
                recalled_bytes: 5,
                read_bytes: None,
                mounts: Some(7),
                recalls_queued: 120,
                recall_age_seconds: 9,
                recalls_started: 10,
                recall_wait_ms: 11,
                drives_busy: 60,
                drives_max: 240,
                buffer_used_permille: Some(30_000),
                write_cycle_seconds: Some(15),
            }),
        };
        let rows = samples_of(&minute, &Some("here.org".into()));
        let [all, copies, writes, of_tape] = &rows[..] else {
            panic!("four rows: {rows:?}");
        };
        assert_eq!(of_tape.subject_kind, SubjectKind::Tape);
        assert_eq!((of_tape.active, of_tape.limit), (Some(1), Some(4)));
        let read = tape_of(of_tape).expect("it was looked at");
        assert_eq!((read.0, Some(read.1)), (minute.from, minute.tape.clone()));
        assert_eq!(
            (all.active, all.limit, all.queued),
            (Some(3), Some(10), Some(0))
        );
        assert_eq!(
            (all.bytes_in, all.bytes_failed),
            (Some(Bytes(12)), Some(Bytes(2)))
        );
        assert_eq!(
            (all.succeeded, all.failed, all.vo.clone()),
            (Some(4), Some(2), None)
        );
        let states = (
            all.reachable_permille,
            all.accepting_permille,
            all.bytes_free,
        );
        assert_eq!(states, (Some(1000), Some(500), Some(Bytes(9))));
        let read = pool_of(all).expect("it was looked at");
        let mut known = minute.pools[0].clone();
        // Means over the looks are whole numbers, and works are put together.
        (known.active, known.traffic) = (180, read.1.traffic.clone());
        assert_eq!(read, (minute.from, known));
        assert_eq!(read.1.sum(|one| one.bytes_in), 12);
        assert_eq!(
            (copies.operation, copies.bytes_in),
            (Some(Operation::Copy), Some(Bytes(7)))
        );
        assert_eq!(copies.bytes_free, None);
        assert_eq!(
            (writes.operation, writes.vo.clone()),
            (Some(Operation::Write), Some(VoName::new("cms")))
        );
    }
}
