//! Answers as real tape systems give them, and nonsense.

use super::*;
use penstock_model::tape::path_of;
use proptest::prelude::*;

fn interface(document: &str) -> Result<String, String> {
    let read = TapeInterface::parse(document.as_bytes());
    read.map(|found| found.stage().to_string())
        .map_err(|why| why.to_string())
}

#[test]
fn the_endpoint_of_version_1_is_taken_however_it_is_written() {
    let document = |endpoints: &str| format!(r#"{{"sitename":"S","endpoints":[{endpoints}]}}"#);
    let check = |endpoints: &str, expected: &str| {
        assert_eq!(
            interface(&document(endpoints)),
            Ok(expected.to_owned()),
            "{endpoints}"
        );
    };
    check(
        r#"{"uri":"https://se:8444/api/v1","version":"v1","metadata":{}}"#,
        "https://se:8444/api/v1/stage",
    );
    check(
        r#"{"uri":"https://se/api/v1/","version":"v1"}"#,
        "https://se/api/v1/stage",
    );
    check(
        r#"{"uri":"https://se/v2","version":"v2"},{"uri":"https://se/v1","version":"v1.2"}"#,
        "https://se/v1/stage",
    );
    check(r#"{"uri":"https://se","version":"1"}"#, "https://se/stage");
    let refused = interface(&document(r#"{"uri":"https://se/v2","version":"v2"}"#));
    assert_eq!(
        refused,
        Err("it offers no version 1 of the tape interface".into())
    );
    for uri in [
        "mailto:x",
        "/api",
        "https://u:p@se/",
        "https://:p@se/",
        "ftp://se/api",
        "file:///etc/passwd",
        "gopher://se/",
    ] {
        let refused = interface(&document(&format!(r#"{{"uri":"{uri}","version":"v1"}}"#)));
        assert!(refused.is_err(), "{uri}: {refused:?}");
    }
}

#[test]
fn the_name_of_a_request_stays_one_part_of_a_path() {
    let api = br#"{"sitename":"S","endpoints":[{"uri":"https://se/api","version":"v1"}]}"#;
    let api = TapeInterface::parse(api).expect("valid");
    let id = |text: &str| {
        let body = format!(
            r#"{{"requestId":{}}}"#,
            serde_json::to_string(text).expect("text")
        );
        parse_staged(body.as_bytes())
    };
    let odd = id("a/../b?c#d").expect("a name all the same");
    assert_eq!(
        api.cancel(&odd).as_str(),
        "https://se/api/stage/a%2F..%2Fb%3Fc%23d/cancel"
    );
    for text in ["", ".", "..", "a b", "a\nb", &"x".repeat(300)] {
        assert!(id(text).is_err(), "{text}");
    }
}

fn progress(file: &str) -> String {
    let body = format!(r#"{{"id":"r","createdAt":1,"files":[{{"path":"//a//b",{file}}}]}}"#);
    match parse_progress(body.as_bytes(), &StageRequestId::new("r")) {
        Ok(files) => format!("{files:?}"),
        Err(why) => why.to_string(),
    }
}

#[test]
fn progress_is_understood_as_state_as_flag_and_as_both() {
    let check = |file: &str, expected: &str| {
        assert_eq!(
            progress(file),
            format!(r#"[("/a/b", {expected})]"#),
            "{file}"
        );
    };
    check(r#""state":"SUBMITTED""#, "Pending");
    check(r#""onDisk":false,"state":"STARTED""#, "Pending");
    check(r#""onDisk":false"#, "Pending");
    check(r#""onDisk":true"#, "OnDisk");
    check(r#""state":"COMPLETED""#, "OnDisk");
    check(r#""onDisk":true,"state":"COMPLETED""#, "OnDisk");
    check(
        r#""onDisk":false,"state":"COMPLETED""#,
        r#"Failed("it is no longer on disk")"#,
    );
    check(
        r#""onDisk":false,"error":"no drive""#,
        r#"Failed("no drive")"#,
    );
    check(
        r#""state":"FAILED","error":"bad\ntape""#,
        r#"Failed("bad tape")"#,
    );
    check(
        r#""state":"CANCELLED""#,
        r#"Failed("it was canceled there")"#,
    );
    check(r#""state":"RESTING""#, "Pending");
}

#[test]
fn an_answer_about_another_request_is_not_taken_for_this_one() {
    let answer = parse_progress(br#"{"id":"s","files":[]}"#, &StageRequestId::new("r"));
    assert_eq!(answer, Err(TapeAnswerError::OtherRequest("s".into())));
    assert!(parse_progress(br#"{"files":[]}"#, &StageRequestId::new("r")).is_ok());
}

#[test]
fn where_files_are_is_told_one_by_one() {
    let body =
        br#"[{"path":"/a","locality":"DISK_AND_TAPE"},{"path":"/b","error":"gone"},{"path":"/c"},
                    {"path":"/d","locality":"MOON"}]"#;
    let found = parse_archive_info(body).expect("valid");
    assert_eq!(found[0], ("/a".into(), Ok(Locality::DiskAndTape)));
    assert_eq!(found[1], ("/b".into(), Err("gone".into())));
    assert!(found[2].1.is_err() && found[3].1.is_err());
}

#[test]
fn requests_are_written_as_gfal2_writes_them() {
    let file = |metadata| StageFile {
        path: "/data/t1".into(),
        pin_seconds: None,
        within_seconds: 60,
        targeted_metadata: metadata,
    };
    let metadata = serde_json::json!({"default": {"activity": "x"}});
    assert_eq!(
        stage_body(&[file(Some(metadata)), file(None)]),
        br#"{"files":[{"path":"/data/t1","targetedMetadata":{"default":{"activity":"x"}}},{"path":"/data/t1"}]}"#
    );
    assert_eq!(paths_body(&["/a".into()]), br#"{"paths":["/a"]}"#);
    let url = Url::parse("davs://se:1//a/b%20c/%C3%A9?x=y").expect("valid");
    assert_eq!(path_of(&url), "/a/b c/é");
}

proptest! {
    #[test]
    fn no_answer_makes_a_reader_panic(body in proptest::collection::vec(any::<u8>(), 0..200)) {
        let id = StageRequestId::new("r");
        let _ = TapeInterface::parse(&body);
        let _ = parse_staged(&body);
        let _ = parse_progress(&body, &id);
        let _ = parse_archive_info(&body);
    }

    #[test]
    fn every_path_of_a_url_has_a_name_there(path in "[ -~é]{0,30}") {
        if let Ok(url) = Url::parse(&format!("https://se/{path}")) {
            let name = path_of(&url);
            prop_assert!(!name.contains("//"));
        }
    }
}
