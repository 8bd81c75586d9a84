//! Minutes of a transfer service as rows that any site can fill: a sample of each link, and of each VO on it.
//!
//! Activities have no rows, as no column names them; links beyond the bound of a minute have none either.

use penstock_model::observation::{Sample, SubjectKind, Text, View};
use penstock_model::{
    Bytes, LinkId, MinuteKey, MinuteRow, MinuteSamples, MinuteSums, StorageId, VoName,
};

/// The rows of a minute. Each is known by its place in the minute.
pub fn samples_of(minute: &MinuteSamples, source: &Text) -> Vec<Sample> {
    let row = |(line, row): (usize, &MinuteRow)| {
        let (link, vo) = match &row.key {
            MinuteKey::Link(link) => (link, None),
            MinuteKey::VoOnLink(link, vo) => (link, Some(vo)),
            MinuteKey::OtherLinks
            | MinuteKey::OtherVosOnLinks
            | MinuteKey::Activity(..)
            | MinuteKey::OtherActivities
            | MinuteKey::Service => return None,
        };
        let seconds = minute.to.since(minute.from).as_secs_f64();
        Some(Sample {
            at: minute.to,
            source: source.clone(),
            line: line as u64,
            interval_ms: u64::try_from(minute.to.0 - minute.from.0).ok(),
            ..sample_of(link, vo, &row.sums, seconds)
        })
    };
    minute.rows.iter().enumerate().filter_map(row).collect()
}

/// Running and waiting are means over the minute. How many may run is known only while there is work: the mean of these seconds.
fn sample_of(link: &LinkId, vo: Option<&VoName>, sums: &MinuteSums, seconds: f64) -> Sample {
    let mean = |sum: u64| Some((sum as f64 / seconds.max(1.0)).round() as u64);
    let of_seconds =
        |sum: u64| (sums.samples > 0).then(|| (sum as f64 / sums.samples as f64).round() as u64);
    let end = |storage: &StorageId| Some(Text::from(storage.as_str()));
    let copies = &sums.copies;
    // Of VOs sockets and limits are not known.
    let of_sockets = |value: u64| (copies.sockets > 0).then_some(value);
    Sample {
        view: View::Vo,
        subject_kind: SubjectKind::Link,
        subject: format!("{} → {}", link.source, link.destination).into(),
        source_host: end(&link.source),
        destination_host: end(&link.destination),
        vo: vo.cloned(),
        bytes_in: Some(Bytes(sums.moved_bytes)),
        active: mean(sums.active),
        limit: of_seconds(sums.limit).filter(|_| vo.is_none()),
        queued: mean(sums.queued),
        succeeded: Some(copies.files),
        failed: Some(sums.failed),
        rtt_us: copies.socket.rtt_us.checked_div(copies.sockets),
        min_rtt_us: copies.socket.rtt_min_us.checked_div(copies.sockets),
        retransmitted_segments: of_sockets(copies.socket.retransmitted_segments),
        sent_segments: of_sockets(copies.socket.sent_segments),
        busy_us: of_sockets(copies.socket.busy_us),
        receiver_limited_us: of_sockets(copies.socket.receiver_limited_us),
        send_buffer_limited_us: of_sockets(copies.socket.buffer_limited_us),
        received_segments: of_sockets(copies.socket.received_segments),
        out_of_order_segments: of_sockets(copies.socket.out_of_order_segments),
        ..Sample::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_model::{Activity, Timestamp};

    #[test]
    fn links_and_vos_on_them_become_samples_with_means_over_the_minute() {
        let link = LinkId {
            source: StorageId::new("https://a"),
            destination: StorageId::new("https://b"),
        };
        let vo = VoName::new("cms");
        let sums = MinuteSums {
            samples: 60,
            moved_bytes: 7,
            active: 150,
            limit: 600,
            queued: 29,
            failed: 1,
            ..MinuteSums::default()
        };
        let row = |key| MinuteRow {
            key,
            sums: sums.clone(),
            failures: Vec::new(),
        };
        let minute = MinuteSamples {
            from: Timestamp(60_000),
            to: Timestamp(120_000),
            rows: vec![
                row(MinuteKey::Link(link.clone())),
                row(MinuteKey::OtherLinks),
                row(MinuteKey::VoOnLink(link, vo.clone())),
                row(MinuteKey::Activity(vo.clone(), Activity::new("default"))),
            ],
        };
        let rows = samples_of(&minute, &"site".into());
        let [of_link, of_vo] = &rows[..] else {
            panic!("two rows: {rows:?}");
        };
        assert_eq!(
            (of_link.at, of_link.interval_ms),
            (Timestamp(120_000), Some(60_000))
        );
        assert_eq!((of_link.active, of_link.limit), (Some(3), Some(10)));
        assert_eq!((of_link.queued, of_link.failed), (Some(0), Some(1)));
        assert_eq!(
            (of_link.bytes_in, of_link.sent_segments),
            (Some(Bytes(7)), None)
        );
        assert_eq!((of_vo.line, of_vo.limit, &of_vo.vo), (2, None, &Some(vo)));
    }

    #[test]
    fn a_limit_is_told_whole_of_a_link_that_had_work_for_some_seconds() {
        let sums = MinuteSums {
            samples: 6,
            active: 60,
            limit: 300,
            ..MinuteSums::default()
        };
        let minute = MinuteSamples {
            from: Timestamp(0),
            to: Timestamp(60_000),
            rows: vec![MinuteRow {
                key: MinuteKey::Link(LinkId {
                    source: StorageId::new("https://a"),
                    destination: StorageId::new("https://b"),
                }),
                sums,
                failures: Vec::new(),
            }],
        };
        let rows = samples_of(&minute, &"site".into());
        assert_eq!((rows[0].active, rows[0].limit), (Some(1), Some(50)));
    }
}
