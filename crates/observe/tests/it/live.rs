use crate::stories;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request, StatusCode, header};
use penstock_model::{
    LinkId, LinkRule, MinuteKey, MinuteRow, MinuteSamples, MinuteSums, Setting, SettingChange,
    SettingKey, Slots, StorageId, Timestamp, TransferEvent, UserName, Visibility, VoName,
};
use penstock_observe::live::{Admission, Authorize, LiveState, router};
use penstock_observe::{MemoryRecord, RateSeries};
use serde_json::Value;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use tower_service::Service;

/// A record whose story began `seconds` ago.
fn record(seconds: i64) -> Arc<MemoryRecord> {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("after 1970")
        .as_millis() as i64;
    let mut story = stories::a_full_disk();
    story.tell(200_000, 99, TransferEvent::Submitted);
    let record = MemoryRecord::new();
    let shift = now - seconds * 1000 - stories::START;
    for mut entry in story.entries {
        record.put_vo(entry.job, VoName::new("atlas"));
        entry.at = Timestamp(entry.at.0 + shift);
        record.push_entry(entry);
    }
    for mut sample in story.samples {
        sample.at = Timestamp(sample.at.0 + shift);
        record.push_sample(sample);
    }
    Arc::new(record)
}

async fn ask(path: &str, token: Option<&str>) -> (StatusCode, HeaderMap, Vec<u8>) {
    ask_of(record(200), path, token).await
}

async fn ask_of(
    record: Arc<MemoryRecord>,
    path: &str,
    token: Option<&str>,
) -> (StatusCode, HeaderMap, Vec<u8>) {
    let authorize: Authorize = Arc::new(|headers| {
        let shown = headers.get(header::AUTHORIZATION).cloned();
        Box::pin(async move {
            let shown = shown.as_ref().and_then(|value| value.to_str().ok());
            let visibility = match shown {
                Some("Bearer good" | "Bearer transfers") => Visibility::Everything,
                Some("Bearer atlas") => Visibility::Vo(VoName::new("atlas")),
                Some("Bearer cms") => Visibility::Vo(VoName::new("cms")),
                _ => return Err(StatusCode::UNAUTHORIZED),
            };
            let turn = Box::new(());
            Ok(Admission {
                visibility,
                sees_audit: shown == Some("Bearer good"),
                turn,
            })
        })
    });
    let mut router = router(LiveState::new(record, authorize));
    let mut request = Request::get(path);
    if let Some(token) = token {
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    let request = request.body(Body::empty()).expect("a request");
    let response = router.call(request).await.expect("infallible");
    let (head, body) = response.into_parts();
    let body = to_bytes(body, 1 << 24).await.expect("a body");
    (head.status, head.headers, body.to_vec())
}

async fn ask_json(path: &str) -> Value {
    let (status, _, body) = ask(path, Some("good")).await;
    assert_eq!(status, StatusCode::OK, "{}", String::from_utf8_lossy(&body));
    serde_json::from_slice(&body).expect("JSON")
}

#[tokio::test]
async fn the_page_is_public_and_may_load_nothing_from_elsewhere() {
    for path in ["/live", "/live/", "/live/live.js", "/live/live.css"] {
        let (status, headers, body) = ask(path, None).await;
        assert_eq!(status, StatusCode::OK, "{path}");
        assert!(!body.is_empty());
        let policy = headers[header::CONTENT_SECURITY_POLICY]
            .to_str()
            .expect("text");
        for rule in [
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "connect-src 'self'",
        ] {
            assert!(policy.contains(rule), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
    }
}

#[tokio::test]
async fn data_need_a_token_and_the_refusal_says_which() {
    for path in ["/live/api/series", "/live/api/marks", "/live/api/report"] {
        for token in [None, Some("bad")] {
            let (status, headers, body) = ask(path, token).await;
            assert_eq!(status, StatusCode::UNAUTHORIZED);
            assert!(headers.contains_key(header::WWW_AUTHENTICATE));
            assert!(String::from_utf8_lossy(&body).contains("Authorization: Bearer"));
        }
    }
}

#[tokio::test]
async fn the_series_tells_each_second_of_each_link() {
    let series = ask_json("/live/api/series?seconds=300").await;
    let total = series["total"].as_array().expect("a list");
    let moved: u64 = total.iter().filter_map(Value::as_u64).sum();
    assert!(
        (34 * 9_000_000..=35 * 9_000_000).contains(&moved),
        "{moved}"
    );
    assert!(
        total.contains(&Value::Null),
        "seconds without a sample are unknown"
    );
    let link = &series["links"][0];
    assert_eq!(link["source"], "https://cern.example");
    assert_eq!(link["rates"].as_array().map(Vec::len), Some(total.len()));
    assert_eq!(series["unit"], "bytes per second");
}

#[tokio::test]
async fn a_page_that_has_the_beginning_asks_only_for_the_rest() {
    let whole = ask_json("/live/api/series?seconds=300").await;
    let to = whole["to"].as_i64().expect("a time");
    let rest = ask_json(&format!("/live/api/series?seconds=300&after={}", to - 5000)).await;
    assert!(
        rest["total"].as_array().expect("a list").len() <= 7,
        "{rest}"
    );
}

#[tokio::test]
async fn the_report_covers_the_transfers_of_the_window() {
    let report = ask_json("/live/api/report?seconds=900").await;
    assert_eq!(report["complete"], true);
    assert_eq!(report["transfers"]["total"], 56);
    assert_eq!(
        report["bandwidth"]["unit"],
        "Mb/s (10^6 bits per second of file data)"
    );
    assert_eq!(
        report["quality"]["incidents"].as_array().map(Vec::len),
        Some(1)
    );
    // Only the last transfer was heard of in the last seconds.
    let report = ask_json("/live/api/report?seconds=10").await;
    assert_eq!(report["transfers"]["total"], 1);
}

#[tokio::test]
async fn nonsense_in_the_query_is_refused_or_bounded() {
    let (status, _, _) = ask("/live/api/series?seconds=many", Some("good")).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    for query in [
        "seconds=-5",
        "seconds=9223372036854775807",
        "after=-9223372036854775808",
        "after=9223372036854775807",
        "until=-9223372036854775808",
        "until=9223372036854775807&seconds=9223372036854775807",
    ] {
        ask_json(&format!("/live/api/series?{query}")).await;
        ask_json(&format!("/live/api/report?{query}")).await;
        ask_json(&format!("/live/api/marks?{query}")).await;
    }
    let empty = RateSeries::new().snapshot(Timestamp(i64::MAX), Timestamp(i64::MAX));
    assert!(empty.total.is_empty());
}

#[tokio::test]
async fn a_report_tells_a_member_of_a_vo_about_that_vo_alone() {
    let report = async |who: &str| -> Value {
        let (status, _, body) = ask("/live/api/report?seconds=300", Some(who)).await;
        assert_eq!(status, StatusCode::OK);
        serde_json::from_slice(&body).expect("JSON")
    };
    let total = |report: &Value| report["transfers"]["total"].as_u64().expect("a number");
    let (all, own, others) = (
        report("good").await,
        report("atlas").await,
        report("cms").await,
    );
    assert!(total(&all) > 0);
    assert_eq!((total(&own), total(&others)), (total(&all), 0));
    assert_eq!(
        own["population"],
        "all transfers of atlas with an event in the last 5 min"
    );
    assert_eq!(
        others["quality"]["incidents"].as_array().map(Vec::len),
        Some(0),
        "{others}"
    );
}

/// A record of minutes: the last eight days, and a limit that was lowered six hours ago.
fn long_record() -> Arc<MemoryRecord> {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("after 1970")
        .as_millis() as i64;
    let minute = now / 60_000;
    let record = MemoryRecord::new();
    let link = LinkId {
        source: StorageId::new("https://cern.example"),
        destination: StorageId::new("https://in2p3.example"),
    };
    for number in minute - 8 * 1440..minute {
        let from = Timestamp(number * 60_000);
        record.push_minute(MinuteSamples {
            from,
            to: Timestamp(from.0 + 60_000),
            rows: vec![MinuteRow {
                key: MinuteKey::Link(link.clone()),
                sums: MinuteSums {
                    samples: 60,
                    moved_bytes: 600_000,
                    ..MinuteSums::default()
                },
                failures: Vec::new(),
            }],
        });
    }
    let rule = |slots| {
        Setting::Link(LinkRule {
            name: "night".to_owned(),
            ends: link.clone(),
            slots_min: Slots(1),
            slots_max: Slots(slots),
            tuning: None,
            mode: None,
            rate_max: None,
            is_draining: false,
        })
    };
    record.push_setting_change(SettingChange {
        at: Timestamp(now - 6 * 3_600_000),
        user: UserName::new("olga"),
        action: "link".to_owned(),
        key: SettingKey::Link("night".to_owned()),
        before: Some(rule(50)),
        after: Some(rule(5)),
    });
    Arc::new(record)
}

async fn ask_long(path: &str, token: &str) -> Value {
    let (status, _, body) = ask_of(long_record(), path, Some(token)).await;
    assert_eq!(status, StatusCode::OK, "{}", String::from_utf8_lossy(&body));
    serde_json::from_slice(&body).expect("JSON")
}

#[tokio::test]
async fn a_curve_reaches_back_forty_days_in_a_bounded_number_of_steps() {
    for (seconds, step) in [
        (3600, 60),
        (86_400, 300),
        (7 * 86_400, 900),
        (40 * 86_400, 7200),
    ] {
        let series = ask_long(&format!("/live/api/series?seconds={seconds}"), "cms").await;
        assert_eq!(series["step_seconds"], step, "{seconds}");
        let total = series["total"].as_array().expect("a list");
        assert!(total.len() <= 720, "{seconds}");
        assert!(total.contains(&10_000.into()), "{seconds}: {total:?}");
        let is_known_whole = seconds <= 7 * 86_400;
        assert_eq!(
            total.iter().filter(|one| one.is_null()).count() > 1,
            !is_known_whole
        );
    }
}

#[tokio::test]
async fn a_window_that_is_over_is_told_of_minutes_when_its_samples_are_gone() {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("after 1970")
        .as_millis() as i64;
    let until = now - 2 * 86_400_000;
    let series = ask_long(
        &format!("/live/api/series?seconds=600&until={until}"),
        "good",
    )
    .await;
    assert_eq!(series["step_seconds"], 60);
    assert!(series["to"].as_i64().expect("a time") <= until + 60_000);
    // Where samples are kept, each second is told.
    let until = now - 60_000;
    let series = ask_json(&format!("/live/api/series?seconds=120&until={until}")).await;
    assert_eq!(series["step_seconds"], 1);
    assert_eq!(series["total"].as_array().map(Vec::len), Some(120));
    assert!(
        series["total"]
            .as_array()
            .expect("a list")
            .iter()
            .any(|one| one.as_u64() > Some(0))
    );
}

#[tokio::test]
async fn marks_tell_what_changed_and_only_administrators_who_did_it() {
    let marks = ask_long("/live/api/marks?seconds=86400", "good").await;
    let mark = &marks["marks"][0];
    assert_eq!(mark["kind"], "limit");
    assert_eq!(mark["text"], "limit of link night: 50 files → 5 files");
    assert_eq!(mark["by"], "olga");
    // "transfers" sees all transfers, and may not read the audit.
    for who in ["cms", "transfers"] {
        let marks = ask_long("/live/api/marks?seconds=86400", who).await;
        assert_eq!(marks["marks"][0]["kind"], "limit");
        assert!(!marks.to_string().contains("olga"), "{who}: {marks}");
    }
    let marks = ask_long("/live/api/marks?seconds=3600", "good").await;
    assert_eq!(marks["marks"].as_array().map(Vec::len), Some(0));
    let (status, _, _) = ask("/live/api/marks", None).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
}
