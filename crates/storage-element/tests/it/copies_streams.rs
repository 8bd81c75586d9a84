//! Pulls over several connections: what is asked for, what is in effect, and sources that make it hard.

use crate::copies::{failure, pull, succeeded};
use crate::ranged::{Ranged, Ways};
use crate::site::{Response, Site, content, quick_limits};
use penstock_model::{Bytes, StreamUse};
use penstock_storage_element::{StorageLimits, StreamsLimits};
use std::time::{Duration, Instant};

const KIB: u64 = 1 << 10;

fn limits() -> StorageLimits {
    StorageLimits {
        streams: StreamsLimits {
            streams_max: 6,
            range_min: Bytes(64 * KIB),
            range_max: Bytes(256 * KIB),
        },
        // Connections that stand still are replaced after a quarter of it.
        stall_timeout: Duration::from_secs(8),
        first_byte_timeout: Duration::from_secs(8),
        ..quick_limits()
    }
}

async fn site() -> Site {
    Site::with(|config| config.limits = limits()).await
}

fn etag(value: &str) -> String {
    format!("ETag: \"{value}\"\r\n")
}

fn tagged() -> Ways {
    Ways {
        headers: etag("one"),
        ..Ways::default()
    }
}

async fn pull_with(site: &Site, path: &str, source: &Ranged, streams: &str) -> Response {
    pull(
        site,
        path,
        &source.url(),
        &[("x-number-of-streams", streams)],
    )
    .await
}

fn streams(response: &Response) -> StreamUse {
    let report = succeeded(response).report.expect("a report");
    report.streams.expect("streams are told")
}

/// `used/asked because…`
fn told(streams: &StreamUse) -> String {
    let because: Vec<&str> = streams.because.iter().map(|reason| reason.name()).collect();
    let asked = streams.asked.unwrap_or(0);
    format!("{}/{asked} {}", streams.used, because.join(" "))
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_all_sizes_arrive_whole_over_several_streams() {
    let (here, there) = (site().await, site().await);
    for length in [0, 1, 64 << 10, (64 << 10) + 1, 200_000, 3_000_001] {
        let data = content(length);
        there.put("/f", &data).await;
        let bearer = format!("Bearer {}", there.token("storage.read:/"));
        let extra = [
            ("x-number-of-streams", "4"),
            ("transferheaderauthorization", &bearer),
        ];
        let ours = format!("Bearer {}", here.token("storage.modify:/"));
        let url = there.url("/f");
        let all = [
            &extra[..],
            &[("source", url.as_str()), ("authorization", &ours)],
        ]
        .concat();
        let response = here.send_bare("COPY", "/g", &all, b"").await;
        let used = streams(&response);
        assert!(here.get("/g").await.body == data, "{length}");
        assert_eq!(
            (used.asked, used.writes_elsewhere),
            (Some(4), 0),
            "{used:?}"
        );
        // How many of them get a part is a race here, how the file is cut is not.
        let several = used.buffer.0 > 64 * KIB && used.writes >= 2;
        assert_eq!(several, length > 64 << 10, "{length}: {used:?}");
        assert_eq!(succeeded(&response).moved, Some(Bytes(length as u64)));
    }
    here.settles_with(1).await;
    there.settles_with(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_add_up_where_each_connection_is_slow() {
    let here = site().await;
    let data = content(6 << 20);
    let slow = Ways {
        rate: Some(4 << 20),
        ..tagged()
    };
    let source = Ranged::new(data.clone(), slow).await;
    let mut seconds = Vec::new();
    for count in ["1", "4"] {
        let started = Instant::now();
        let used = streams(&pull_with(&here, "/g", &source, count).await);
        seconds.push(started.elapsed().as_secs_f64());
        assert_eq!(told(&used), format!("{count}/{count} as_asked"));
        assert!(here.get("/g").await.body == data);
    }
    assert!(
        seconds[0] > 1.7 * seconds[1],
        "one stream took {} s, four took {} s",
        seconds[0],
        seconds[1]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_asked_and_what_was_in_effect_is_told_with_the_reason() {
    let here = site().await;
    let data = content(1 << 20);
    let check = async |streams_asked: &str, length: usize, ways: Ways, expected: &str| {
        let source = Ranged::new(data[..length].to_vec(), ways).await;
        let used = streams(&pull_with(&here, "/g", &source, streams_asked).await);
        assert_eq!(told(&used), expected);
        assert!(here.get("/g").await.body == data[..length]);
    };
    let (all, small) = (data.len(), 50_000);
    check("0", all, tagged(), "1/0 left_to_us").await;
    check("1", all, tagged(), "1/1 as_asked").await;
    let slow = Ways {
        rate: Some(1 << 20),
        ..tagged()
    };
    check("100", all, slow.clone(), "6/100 as_asked site_limit").await;
    check("6", 150_000, slow, "3/6 as_asked small_file").await;
    check("3", small, tagged(), "1/3 as_asked small_file").await;
    check("3", 0, tagged(), "1/3 as_asked small_file").await;
    let whole_only = Ways {
        whole_only: true,
        ..tagged()
    };
    check("3", all, whole_only, "1/3 as_asked no_ranges").await;
    let hides_size = Ways {
        hides_size: true,
        ..tagged()
    };
    check("3", all, hides_size, "1/3 as_asked size_unknown").await;
    check("3", all, Ways::default(), "1/3 as_asked no_version").await;
    let busy = Ways {
        at_once_max: Some(1),
        rate: Some(1 << 20),
        ..tagged()
    };
    check("3", all, busy, "1/3 as_asked source_busy").await;
    here.settles_with(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_that_find_the_memory_in_use_go_on_with_one_stream() {
    let here = Site::with(|config| {
        config.limits = StorageLimits {
            streams_memory: Bytes(100 * KIB),
            ..limits()
        };
    })
    .await;
    let source = Ranged::new(content(1 << 20), tagged()).await;
    let used = streams(&pull_with(&here, "/g", &source, "4").await);
    assert_eq!(told(&used), "1/4 as_asked no_memory");
    assert!(here.get("/g").await.body == content(1 << 20));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_stands_still_or_breaks_costs_only_its_own_rest() {
    let here = site().await;
    let data = content(2 << 20);
    for (ways, again) in [
        (
            Ways {
                stands_still_at: vec![4],
                ..tagged()
            },
            1,
        ),
        (
            Ways {
                breaks_at: vec![1, 3, 5],
                ..tagged()
            },
            3,
        ),
    ] {
        let source = Ranged::new(data.clone(), ways).await;
        let used = streams(&pull_with(&here, "/g", &source, "3").await);
        assert_eq!(used.ranges_again, again, "{used:?}");
        assert!(here.get("/g").await.body == data);
    }
    here.settles_with(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_never_answered_is_given_up() {
    let here = site().await;
    let data = content(2 << 20);
    let ways = Ways {
        ignores_at: vec![3],
        ..tagged()
    };
    let source = Ranged::new(data.clone(), ways).await;
    let used = streams(&pull_with(&here, "/g", &source, "3").await);
    assert!(told(&used).ends_with("as_asked source_busy"), "{used:?}");
    assert!(here.get("/g").await.body == data);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_always_breaks_is_given_up_and_nothing_stays() {
    let here = site().await;
    let ways = Ways {
        breaks_at: (1..1000).collect(),
        rate: Some(1),
        ..tagged()
    };
    let source = Ranged::new(content(64 << 20), ways).await;
    let text = failure(&pull_with(&here, "/g", &source, "3").await);
    assert!(text.contains("it was tried 6 times"), "{text}");
    here.settles_with(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_changes_between_two_parts_is_never_mixed() {
    let here = site().await;
    let modified = |second: u32| format!("Last-Modified: Sat, 21 Nov 2026 06:19:0{second} GMT\r\n");
    for (before, after) in [(etag("one"), etag("two")), (modified(1), modified(2))] {
        let ways = Ways {
            headers: before,
            changes_at: Some((4, after)),
            ..Ways::default()
        };
        let source = Ranged::new(content(2 << 20), ways).await;
        let text = failure(&pull_with(&here, "/g", &source, "3").await);
        assert!(text.contains("changed while it was copied"), "{text}");
    }
    here.settles_with(0).await;
    let source = Ranged::new(content(1 << 20), tagged()).await;
    streams(&pull_with(&here, "/g", &source, "3").await);
    let heads = source.heads();
    let later = heads.iter().skip(1).filter(|head| head.starts_with("get "));
    for head in later {
        assert!(head.contains("if-match: \"one\""), "{head}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_checksum_of_the_whole_file_is_compared_over_parts_too() {
    let here = site().await;
    let digest = |value: &str| Ways {
        headers: format!("Digest: adler32={value}\r\nContent-MD5: 1B2M2Y8AsgTpgAmY7PhCfg==\r\n"),
        ..Ways::default()
    };
    // Adler-32 of zeros: a = 1, b = their number.
    let zeros = vec![0; 200_000];
    let right = format!("{:04x}0001", 200_000 % 65_521);
    let source = Ranged::new(zeros.clone(), digest(&right)).await;
    let used = streams(&pull_with(&here, "/g", &source, "3").await);
    assert_eq!(used.because.len(), 1, "{used:?}");
    assert!(source.ranges() > 1);
    let source = Ranged::new(zeros, digest("00000002")).await;
    let text = failure(&pull_with(&here, "/h", &source, "3").await);
    assert!(
        text.contains("checksum mismatch: expected adler32:00000002"),
        "{text}"
    );
    here.settles_with(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_closes_all_connections() {
    let here = site().await;
    let slow = Ways {
        rate: Some(64 << 10),
        ..tagged()
    };
    let source = Ranged::new(content(16 << 20), slow).await;
    let request = crate::copies::request(
        &here,
        "/g",
        "source",
        &source.url(),
        "t",
        &[("x-number-of-streams", "4")],
    );
    let response = crate::copies::begin(request).await;
    crate::site::eventually("four parts are asked for", || source.ranges() >= 4).await;
    drop(response);
    here.settles_with(0).await;
}
