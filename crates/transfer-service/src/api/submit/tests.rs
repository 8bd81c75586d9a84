use super::document::{FILE_BYTES_MAX, FILES_MAX};
use super::file::{FILE_METADATA_MAX, PAIRS_BYTES_MAX, TAPE_METADATA_MAX};
use super::job::JOB_METADATA_MAX;
use super::*;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use penstock_engine::checked_submission::NewTransfer;
use penstock_model::{
    Bytes, Checksum, ChecksumAlgorithm, ChecksumMode, IpVersion, JobId, Selection,
};
use penstock_protocol::oauth::ClientCredentials;
use penstock_protocol::token::{credential_id, job_token_id};
use proptest::prelude::*;
use serde_json::json;
use std::sync::Arc;

fn read(body: &[u8]) -> Result<(NewJob, bool), InvalidSubmission> {
    let (user, vo, delegation) = (
        UserName::new("alice"),
        VoName::new("cms"),
        CredentialId::new("d"),
    );
    let submitter = Submitter {
        user: &user,
        vo: &vo,
        delegation: &delegation,
        means: Means::Token("submit-token"),
        clients: &clients(),
    };
    parse_submission(body, &submitter, Uuid::nil(), Timestamp(0))
}

fn clients() -> TokenClients {
    let clients = TokenClients::default();
    let client = ClientCredentials {
        id: "penstock".to_owned(),
        secret: "s".to_owned(),
    };
    clients.replace(BTreeMap::from([("https://iam/".to_owned(), client)]));
    clients
}

/// Begins as macaroons do.
const MACAROON: &str = "MDAxMWxvY2F0aW9uIHNlCjAwMTFpZGVudGlmaWVyIGE";

#[test]
fn credentials_in_urls_are_kept_apart_and_each_once() {
    let body = r#"{"files":[
        {"sources":["https://a/1?authz=SECRETSOURCE"],"destinations":["root://b//1?x=1&authz=SECRETEND"]},
        {"sources":["https://a/2?authz=SECRETSOURCE"],"destinations":["https://b/2"]}]}"#;
    let (job, _) = read(body.as_bytes()).expect("valid");
    assert_eq!(job.transfers[0].source.as_str(), "https://a/1");
    assert_eq!(job.transfers[0].destination.as_str(), "root://b//1?x=1");
    let query = |text: &str| Some(credential_id(text));
    for transfer in &job.transfers {
        assert_eq!(transfer.source_query, query("?authz=SECRETSOURCE"));
    }
    assert_eq!(
        job.transfers[0].destination_query,
        query("?x=1&authz=SECRETEND")
    );
    assert_eq!(job.transfers[1].destination_query, None);
    // The request's own token is the third.
    assert_eq!(job.tokens.len(), 3);
    let (accepted, _) = job.into_job(1, Timestamp(0));
    let stored = serde_json::to_string(&accepted).expect("JSON");
    assert!(!stored.contains("SECRET"), "{stored}");
}

#[test]
fn a_token_for_one_end_does_not_let_the_requests_own_go_to_the_other() {
    let why = |tokens: &str| one("{}", tokens).map(|_| ()).map_err(|why| why.to_string());
    let both = "files[0]: Both source_tokens and destination_tokens are required if one of them is present";
    for key in ["source_tokens", "destination_tokens"] {
        let one_sided = why(&format!(r#","{key}":["{MACAROON}"]"#));
        assert_eq!(one_sided, Err(both.to_owned()), "{key}");
    }
    let noise = why(r#","source_tokens":["noise"],"destination_tokens":["noise"]"#);
    let text =
        "files[0]: 'source_tokens' must hold JSON Web Tokens with 'iss' and 'exp', or macaroons";
    assert_eq!(noise, Err(text.to_owned()));
    let body = format!(
        r#"{{"files":[{{"sources":["https://a/f"],"destinations":["s3s://b/c/f"],"source_tokens":["{MACAROON}"]}}]}}"#
    );
    assert!(read(body.as_bytes()).is_ok(), "a cloud storage needs none");
}

#[test]
fn what_could_forge_a_line_is_refused() {
    for body in [
        r#"{"files":[{"sources":["https://a/f
2026-01-01 WARN forged"],"destinations":["https://b/f"]}]}"#,
        r#"{"files":[{"sources":["https://a/f"],"destinations":["https://b/[31mf"]}]}"#,
        r#"{"files":[{"sources":["https://a/f"],"destinations":["https://b/f"],"activity":"a
b"}]}"#,
    ] {
        let why = read(body.as_bytes()).expect_err(body).to_string();
        assert!(why.contains("control character"), "{why}");
        assert!(!why.contains(char::is_control), "{why:?}");
    }
}

#[test]
fn only_so_many_tokens_of_one_job_are_renewed() {
    let token = |number: usize| {
        let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let claims = json!({"iss": "https://iam/", "scope": "offline_access", "exp": 60, "jti": number.to_string()});
        format!("{}.{}.x", part(json!({"alg": "RS256"})), part(claims))
    };
    let job = |params: &str, tokens: usize| {
        let file = |number| {
            let token = token(number);
            format!(
                r#"{{"sources":["https://a/{number}"],"destinations":["https://b/{number}"],
                "source_tokens":["{token}"],"destination_tokens":["{MACAROON}"]}}"#
            )
        };
        let files: Vec<String> = (0..tokens).map(file).collect();
        whole(&format!(
            r#"{{"params":{params},"files":[{}]}}"#,
            files.join(",")
        ))
    };
    assert_eq!(job("{}", RENEWED_TOKENS_MAX), Ok(RENEWED_TOKENS_MAX));
    let why = job("{}", RENEWED_TOKENS_MAX + 1).expect_err("too many");
    assert!(
        why.starts_with("its files bring 1001 different tokens that are to be renewed"),
        "{why}"
    );
    assert!(job(r#"{"unmanaged_tokens":true}"#, RENEWED_TOKENS_MAX + 1).is_ok());
}

#[test]
fn a_token_is_renewed_when_its_user_its_scope_and_its_issuer_allow_it() {
    let token = |issuer: &str, scope: &str| {
        let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let claims =
            json!({"iss": issuer, "scope": scope, "aud": ["se"], "nbf": 1000, "exp": 4600});
        format!("{}.{}.x", part(json!({"alg": "RS256"})), part(claims))
    };
    let check = |params: &str, token: &str, renew_at: Option<i64>| {
        let tokens = format!(r#","source_tokens":["{token}"],"destination_tokens":["{MACAROON}"]"#);
        let job = one(params, &tokens).expect("valid");
        let renewals: Vec<i64> = job
            .tokens
            .iter()
            .filter_map(|token| Some(token.renewal.as_ref()?.renew_at.0))
            .collect();
        assert_eq!(renewals, Vec::from_iter(renew_at), "{params} {token}");
    };
    let lasting = token("https://iam/", "storage.read:/ offline_access");
    check("{}", &lasting, Some(4_300_000));
    check(r#"{"unmanaged_tokens":false}"#, &lasting, Some(4_300_000));
    check(r#"{"unmanaged_tokens":true}"#, &lasting, None);
    check("{}", &token("https://iam/", "storage.read:/"), None);
    check("{}", &token("https://other/", "offline_access"), None);
    let claims = json!({"iss": "https://iam/", "exp": 0});
    let ended = URL_SAFE_NO_PAD.encode(claims.to_string());
    let tokens =
        format!(r#","source_tokens":["e30.{ended}.x"],"destination_tokens":["{MACAROON}"]"#);
    let why = one("{}", &tokens).expect_err("ended");
    assert_eq!(
        why,
        "a token of https://iam/ for the files expired at 1970-01-01T00:00:00Z; get a new one"
    );
}

fn one(params: &str, file: &str) -> Result<NewJob, String> {
    let ends = r#""sources":["https://a/f"],"destinations":["https://b/g"]"#;
    let body = format!(r#"{{"params":{params},"files":[{{{ends}{file}}}]}}"#);
    read(body.as_bytes())
        .map(|(job, _)| job)
        .map_err(|why| why.to_string())
}

fn whole(body: &str) -> Result<usize, String> {
    let read = read(body.as_bytes());
    read.map(|(job, _)| job.transfers.len())
        .map_err(|why| why.to_string())
}

const FILE: &str = r#"{"sources":["https://a/f"],"destinations":["https://b/g"]}"#;

#[test]
fn what_is_too_large_is_refused_before_it_takes_memory() {
    let files =
        |file: &str, count: usize| format!(r#"{{"files":[{}]}}"#, vec![file; count].join(","));
    assert_eq!(whole(&files(FILE, 1000)), Ok(1000));
    assert_eq!(
        whole(&files("0", FILES_MAX + 1)),
        Err(
            "'files': one job can hold 200000 files; submit several jobs at line 1 column 400003"
                .into()
        )
    );
    let numbers = "0,".repeat(FILE_BYTES_MAX) + "0";
    assert_eq!(
        whole(&files(&format!(r#"{{"metadata":[{numbers}]}}"#), 1)),
        Err("files[0]: it is longer than 1048576 bytes".into())
    );
    assert_eq!(
        whole(&format!(
            r#"{{"params":{{"job_metadata":[{numbers}]}},"files":[{FILE}]}}"#
        )),
        Err("'params': it is longer than 65536 bytes".into())
    );
}

#[test]
fn what_nobody_reads_is_skipped_however_deep_it_is() {
    let (open, close) = ("[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(
        whole(&format!(r#"{{"new":{open}{close},"files":[{FILE}]}}"#)),
        Ok(1)
    );
    let deep = format!(r#"{{"files":[{{"new":{open}{close}}}]}}"#);
    let refused = whole(&deep).expect_err("a file is read whole");
    assert!(
        refused.starts_with("files[0]: it is not valid JSON: recursion limit"),
        "{refused}"
    );
    assert!(whole(&format!(r#"{{"files":[{FILE}],"new":{open}"#)).is_err());
}

#[test]
fn a_key_that_stands_twice_is_refused() {
    let refused = whole(&format!(r#"{{"files":[{FILE}],"files":[{FILE}]}}"#));
    assert_eq!(
        refused,
        Err("the body is not valid JSON: duplicate field `files` at line 1 column 77".into())
    );
}

fn refused(params: &str, file: &str, expected: &str) {
    assert_eq!(one(params, file).expect_err("must be refused"), expected);
}

#[test]
fn defaults_are_those_of_fts() {
    let job = one("null", "").expect("valid");
    assert_eq!(job.parameters.retries_max, None);
    assert_eq!(job.parameters.priority.get(), 3);
    assert_eq!(job.parameters.verify_checksum, ChecksumMode::None);
    assert_eq!(job.parameters.metadata, json!({"auth_method": "oauth2"}));
    assert_eq!(
        job.transfers[0].checksum_algorithm,
        ChecksumAlgorithm::Adler32
    );
    assert_eq!(
        job.transfers[0].source_credential,
        Some(job_token_id(&CredentialId::new("d"), "submit-token"))
    );
}

#[test]
fn the_many_ways_to_say_a_thing_are_understood() {
    let other = MACAROON.to_ascii_lowercase().replacen("mda", "MDA", 1);
    let job = one(
        r#"{"retry":-1,"nostreams":"4","priority":9,"verify_checksum":"b","max_time_in_queue":"2m","reuse":false,
            "job_metadata":"x","timeout":100,"account":"unknown keys are tolerated"}"#,
        &format!(
            r#","filesize":5e6,"checksum":"ADLER32:1a","metadata":"m","scitag":65.0,"activity":null,
           "source_tokens":["{MACAROON}"],"destination_tokens":["{other}"]"#
        ),
    );
    let job = job.expect("valid");
    assert_eq!(job.parameters.retries_max, Some(0));
    assert_eq!(job.parameters.streams, Some(4));
    assert_eq!(job.parameters.priority.get(), 5);
    assert_eq!(job.parameters.verify_checksum, ChecksumMode::Both);
    assert_eq!(job.parameters.expires_at, Some(Timestamp(120_000)));
    assert_eq!(job.parameters.metadata["label"], "x");
    let file = &job.transfers[0];
    assert_eq!(file.size, Some(Bytes(5_000_000)));
    assert_eq!(file.checksum.as_ref().map(Checksum::hex), Some("0000001a"));
    assert_eq!(*file.metadata, json!({"label": "m"}));
    assert_eq!(job.tokens.len(), 2);
}

/// What a job's parameters are, in FTS's words, when `value` is given for `key`.
fn shown(key: &str, value: &str) -> Result<String, String> {
    let job = one(&format!("{{\"{key}\":{value}}}"), "")?;
    let default = one("{}", "")?.parameters;
    let differs = job.parameters != default || job.id != JobId(Uuid::nil());
    Ok(match differs {
        false => "default".to_owned(),
        true => format!("{:?}", job.parameters),
    })
}

#[test]
fn null_and_what_switches_off_mean_the_default_for_every_parameter_of_a_job() {
    let check = |key: &str, values: &[&str]| {
        for value in values.iter().chain(&["null"]) {
            assert_eq!(
                shown(key, value).as_deref(),
                Ok("default"),
                "{key}: {value}"
            );
        }
    };
    check("verify_checksum", &["false", "\"none\"", "\"n\""]);
    for switch in [
        "overwrite",
        "overwrite_on_retry",
        "overwrite_hop",
        "overwrite_when_only_on_disk",
        "reuse",
        "multihop",
        "dst_file_report",
        "strict_copy",
        "disable_cleanup",
        "ipv4",
        "ipv6",
    ] {
        check(switch, &["false", "0", "\"N\"", "\"false\"", "\"\""]);
        let on = shown(switch, "true");
        for yes in ["1", "\"Y\"", "\"yes\"", "\"true\""] {
            assert_eq!(shown(switch, yes), on, "{switch} {yes}");
        }
        let refused = shown(switch, "\"perhaps\"").expect_err("no switch");
        assert_eq!(refused, format!("'{switch}' must be true or false"));
    }
    for off in ["bring_online", "copy_pin_lifetime", "archive_timeout"] {
        check(off, &["-1"]);
    }
    for number in [
        "retry",
        "retry_delay",
        "timeout",
        "nostreams",
        "buffer_size",
    ] {
        check(number, &["0", "\"0\"", "\"\""]);
        assert!(shown(number, "[]").is_err(), "{number}");
    }
    check("priority", &["3", "\"3\""]);
    check("max_time_in_queue", &["0", "\"0\"", "\"0s\""]);
    check("id_generator", &["\"standard\""]);
    check("target_qos", &["\"\""]);
    check("job_metadata", &["{}"]);
    // Sent by clients, without a meaning here.
    for ignored in [
        "account",
        "fail_nearline",
        "gridftp",
        "credential",
        "credentials",
        "sid",
        "new",
    ] {
        check(ignored, &["\"x\"", "5", "{}", "true"]);
    }
}

#[test]
fn every_parameter_of_a_job_is_understood() {
    let check = |key: &str, value: &str, expected: &str| {
        let shown = shown(key, value).unwrap_or_else(|why| why);
        assert!(shown.contains(expected), "{key}: {value}: {shown}");
    };
    check("verify_checksum", "true", "verify_checksum: Both");
    check("verify_checksum", "\"Source\"", "verify_checksum: Source");
    check("verify_checksum", "\"t\"", "verify_checksum: Target");
    check(
        "verify_checksum",
        "\"x\"",
        "use none, source, target or both",
    );
    check("overwrite", "true", "overwrite: Always");
    check("overwrite_on_retry", "true", "overwrite: OnRetry");
    check("dst_file_report", "true", "report_existing: true");
    check("reuse", "true", "kind: Session");
    check("multihop", "true", "kind: Hops");
    check("strict_copy", "true", "strict_copy: true");
    check("disable_cleanup", "true", "disable_cleanup: true");
    check("retry", "-1", "retries_max: Some(0)");
    check("retry", "\"5\"", "retries_max: Some(5)");
    check("retry_delay", "30", "retry_delay_seconds: Some(30)");
    check("priority", "0", "priority: Priority(1)");
    check("priority", "77", "priority: Priority(5)");
    check("timeout", "60", "timeout_seconds: Some(60)");
    check("nostreams", "500", "streams: Some(100)");
    check("buffer_size", "1024", "buffer: Some(Bytes(1024))");
    check("bring_online", "3600", "within_seconds: 3600");
    check("copy_pin_lifetime", "\"60\"", "pin_seconds: Some(60)");
    check("archive_timeout", "0", "archive_seconds: Some(0)");
    check("ipv4", "true", "ip_version: Some(V4)");
    check("ipv6", "true", "ip_version: Some(V6)");
    for (value, milliseconds) in [
        ("2", "7200000"),
        ("\"2\"", "7200000"),
        ("0.5", "1800000"),
        ("\"90s\"", "90000"),
        ("\"90m\"", "5400000"),
        ("\"2h\"", "7200000"),
        ("\" 1 d \"", "86400000"),
    ] {
        check(
            "max_time_in_queue",
            value,
            &format!("expires_at: Some(Timestamp({milliseconds}))"),
        );
    }
    for wrong in ["-1", "\"2w\"", "\"\"", "true", "\"nan\"", "[]"] {
        check(
            "max_time_in_queue",
            wrong,
            "must be hours, or a number with the suffix",
        );
    }
    check(
        "id_generator",
        "\"random\"",
        "use 'standard' or 'deterministic'",
    );
    check("id_generator", "5", "use 'standard' or 'deterministic'");
    check("target_qos", "\"disk\"", "is not offered");
    check("job_metadata", "[1]", "\"label\": Array [Number(1)]");
    let long = format!("\"{}\"", "x".repeat(JOB_METADATA_MAX));
    check(
        "job_metadata",
        &long,
        "'job_metadata' is longer than 2048 bytes",
    );
    let both = one(r#"{"ipv4":true,"ipv6":true}"#, "").expect("valid");
    assert_eq!(both.parameters.ip_version, Some(IpVersion::V4), "as in FTS");
}

#[test]
fn every_key_of_a_file_is_understood_and_null_means_its_default() {
    let file = |key: &str, value: &str| {
        one("{}", &format!(",\"{key}\":{value}")).map(|job| format!("{:?}", job.transfers[0]))
    };
    let default = one("{}", "").map(|job| format!("{:?}", job.transfers[0]));
    let off = |key: &str, values: &[&str]| {
        for value in values.iter().chain(&["null"]) {
            assert_eq!(file(key, value), default, "{key}: {value}");
        }
    };
    off("source_tokens", &[]);
    off("destination_tokens", &[]);
    off("filesize", &["0", "0.0"]);
    off("checksum", &["\"\"", "\"ADLER32\"", "\"adler32:\""]);
    off("activity", &["\"\"", "\"default\""]);
    off("scitag", &[]);
    off("metadata", &[]);
    off("staging_metadata", &["{}"]);
    off("archive_metadata", &["{}"]);
    off("selection_strategy", &["\"auto\"", "\"orderly\""]);
    off("unheard_of", &["1", "[[]]"]);
    let check = |key: &str, value: &str, expected: &str| {
        let shown = file(key, value).unwrap_or_else(|why| why);
        assert!(shown.contains(expected), "{key}: {value}: {shown}");
    };
    check("filesize", "5", "size: Some(Bytes(5))");
    check("filesize", "-1", "must be a number of bytes, not negative");
    check("filesize", "\"5\"", "must be a number of bytes");
    check(
        "activity",
        "\"User Subscriptions\"",
        "Activity(\"User Subscriptions\")",
    );
    check("activity", "5", "must be text of at most 255 characters");
    check(
        "activity",
        &format!("\"{}\"", "x".repeat(256)),
        "at most 255 characters",
    );
    check("scitag", "65535", "scitag: Some(65535)");
    for wrong in ["64", "65536", "-1", "65.5", "\"70\""] {
        check(
            "scitag",
            wrong,
            "'scitag' must be an integer from 65 to 65535",
        );
    }
    check("metadata", "[1]", "metadata: Array [Number(1)]");
    let long = format!("\"{}\"", "x".repeat(FILE_METADATA_MAX));
    check("metadata", &long, "'metadata' is longer than 4096 bytes");
    for tape in ["staging_metadata", "archive_metadata"] {
        check(tape, "\"x\"", &format!("'{tape}' must be an object"));
        let long = format!("{{\"k\":\"{}\"}}", "x".repeat(TAPE_METADATA_MAX));
        check(tape, &long, &format!("'{tape}' is longer than 1024 bytes"));
    }
    check("checksum", "5", "'checksum' must be text");
    check("checksum", "\"ADLER32:A\"", "hex: \"0000000a\"");
    check("selection_strategy", "\"\"", "'selection_strategy' is \"\"");
}

#[test]
fn a_checksum_that_the_user_gives_is_verified_even_if_nothing_else_is_asked() {
    let job = one(r#"{"verify_checksum":false}"#, r#","checksum":"md5:00""#).expect("valid");
    assert_eq!(job.parameters.verify_checksum, ChecksumMode::Target);
}

#[test]
fn a_deterministic_id_follows_from_vo_and_sid() {
    let job = one(r#"{"id_generator":"deterministic","sid":"abc"}"#, "").expect("valid");
    let of_vo = Uuid::new_v5(&BASE_ID, b"cms");
    assert_eq!(job.id, JobId(Uuid::new_v5(&of_vo, b"abc")));
}

#[test]
fn what_cannot_be_done_is_refused_by_name() {
    refused(
        "{}",
        r#","scitag":1"#,
        "files[0]: 'scitag' must be an integer from 65 to 65535",
    );
    refused(
        "{}",
        r#","checksum":"sha512:1""#,
        "files[0]: the checksum algorithm 'sha512' is not known; use one of adler32, crc32c, md5, sha-256",
    );
    refused(
        "{}",
        r#","checksum":"adler32:xyz""#,
        "files[0]: 'adler32:xyz' is not a valid adler32 checksum",
    );
    refused(
        "{}",
        r#","source_tokens":["a","b"],"destination_tokens":["c"]"#,
        "files[0]: 'source_tokens' must hold one token for each URL",
    );
    refused(
        r#"{"overwrite_hop":true}"#,
        "",
        "'overwrite_hop' needs a multihop job",
    );
    refused(
        "{}",
        r#","selection_strategy":"best""#,
        "files[0]: 'selection_strategy' is \"best\"; use auto, orderly, queue, success, throughput, \
         file-throughput, pending-data, waiting-time, waiting-time-with-error, duration",
    );
    refused(
        r#"{"overwrite_when_only_on_disk":true}"#,
        "",
        "'overwrite_when_only_on_disk' needs a tape destination: 'archive_timeout' above 0",
    );
    refused(
        r#"{"overwrite_when_only_on_disk":true,"archive_timeout":60,"strict_copy":true}"#,
        "",
        "'overwrite_when_only_on_disk' asks the destination where its file is, and with 'strict_copy' nothing is asked: \
         leave one of them out",
    );
    refused(
        r#"{"delete_source":true}"#,
        "",
        "'delete_source' needs 'archive_timeout': a source is deleted only when its copy is on tape",
    );
    refused(
        r#"{"delete_source":true,"archive_timeout":60,"multihop":true}"#,
        "",
        "'delete_source' is for files with one source each, not for replicas or hops",
    );
    refused(
        r#"{"delete_source":true,"archive_timeout":60,"overwrite":true}"#,
        "",
        "'delete_source' cannot be combined with overwriting: under another name of its server, a source could replace itself and be deleted",
    );
    let same = json!({
        "params": { "delete_source": true, "archive_timeout": 60 },
        "files": [{ "sources": ["https://a:8443/f"], "destinations": ["davs://a/f"] }],
    });
    assert_eq!(
        whole(&same.to_string()).expect_err("must be refused"),
        "source and destination are the same, and 'delete_source' would delete the only copy: https://a:8443/f"
    );
    refused(r#"{"retry":"many"}"#, "", "'retry' must be an integer");
    refused(
        r#"{"overwrite":true,"overwrite_on_retry":true}"#,
        "",
        "at most one of 'overwrite', 'overwrite_on_retry', 'overwrite_hop' and 'overwrite_when_only_on_disk' may \
         be true, or the last two",
    );
    refused(
        r#"{"id_generator":"deterministic"}"#,
        "",
        "'id_generator' is 'deterministic', so 'sid' must be given",
    );
}

#[test]
fn several_sources_of_one_file_are_replicas_each_with_its_token() {
    let [ta, tb, tc] = ["a", "b", "c"].map(|end| format!("{MACAROON}{end}"));
    let body = format!(
        r#"{{"files":[{{"sources":["https://a/f","https://c/f"],"destinations":["https://b/f"],
        "source_tokens":["{ta}","{tc}"],"destination_tokens":["{tb}"],"selection_strategy":"orderly"}}]}}"#
    );
    let (job, _) = read(body.as_bytes()).expect("valid");
    assert_eq!(job.parameters.kind, JobKind::Replicas(Selection::Orderly));
    let tokens: Vec<_> = job
        .transfers
        .iter()
        .map(|pair| (pair.source.as_str(), pair.source_credential.clone()))
        .collect();
    let of = |token| Some(job_token_id(&CredentialId::new("d"), token));
    assert_eq!(tokens, [("https://a/f", of(&ta)), ("https://c/f", of(&tc))]);
    assert_eq!(job.transfers[1].destination_credential, of(&tb));
    let (accepted, _) = job.into_job(1, Timestamp(0));
    let indices: Vec<u32> = accepted.transfers.iter().map(|one| one.index).collect();
    assert_eq!(indices, [0, 0], "FTS counts files, not replicas");
}

fn urls(host: char, count: usize, path: &str) -> String {
    let url = |number| format!("\"https://{host}/{number}{path}\"");
    (0..count).map(url).collect::<Vec<_>>().join(",")
}

#[test]
fn pairs_of_a_file_share_what_they_have_in_common_and_only_one_file_of_a_job_has_them() {
    let file = |destinations: usize, path: &str, metadata: &str| {
        let (sources, destinations) = (urls('a', 31, ""), urls('b', destinations, path));
        format!(
            r#"{{"sources":[{sources}],"destinations":[{destinations}],"metadata":[{metadata}0],
            "staging_metadata":{{"a":"b"}}}}"#
        )
    };
    let of = |files: &[String]| {
        let job = read(format!(r#"{{"files":[{}]}}"#, files.join(",")).as_bytes());
        job.map(|(job, _)| job).map_err(|why| why.to_string())
    };
    let small = file(32, "", &"0,".repeat(20));
    let job = of(std::slice::from_ref(&small)).expect("valid");
    let first = &job.transfers[0];
    assert_eq!(job.transfers.len(), 992);
    let shared = |pair: &NewTransfer| {
        Arc::ptr_eq(&pair.metadata, &first.metadata)
            && Arc::ptr_eq(
                pair.tape.as_ref().expect("told"),
                first.tape.as_ref().expect("told"),
            )
    };
    assert!(job.transfers.iter().all(shared));
    // Refused at the second entry: of the third nothing is looked at, and no pairs are made of either.
    let why = of(&[FILE.to_owned(), small, "0".to_owned()]).expect_err("several");
    assert!(why.contains("can hold that file only"), "{why}");
    for large in [
        file(32, "", &"0,".repeat(2000)),
        file(32, &"x".repeat(4000), ""),
    ] {
        let why = of(&[large]).expect_err("large");
        let bound =
            format!("in 992 pairs of sources and destinations, more than {PAIRS_BYTES_MAX}");
        assert!(why.ends_with(&bound), "{why}");
    }
}

#[test]
fn hops_and_replicas_do_not_mix_and_replicas_come_alone() {
    let text = |params: &str, files: &str| {
        let body = format!(r#"{{"params":{params},"files":[{files}]}}"#);
        read(body.as_bytes())
            .map(|(job, _)| job.parameters.kind)
            .map_err(|why| why.to_string())
    };
    let hop = r#"{"sources":["https://a/f"],"destinations":["https://b/f"]}"#;
    let replicas = r#"{"sources":["https://a/f","https://c/f"],"destinations":["https://b/f"]}"#;
    let session = r#"{"reuse":true}"#;
    assert_eq!(text(session, hop), Ok(JobKind::Session));
    let elsewhere = r#"{"sources":["https://c/f"],"destinations":["https://b/g"]}"#;
    let mixed = text(session, &format!("{hop},{elsewhere}"));
    assert!(mixed.is_err_and(|why| why.contains("same source and destination storage")));
    let hops = r#"{"multihop":true}"#;
    assert_eq!(text(hops, &format!("{hop},{hop}")), Ok(JobKind::Hops));
    assert!(text(hops, replicas).is_err_and(|why| why.contains("multihop")));
    let two = format!("{replicas},{hop}");
    assert!(text("{}", &two).is_err_and(|why| why.contains("that file only")));
    assert!(text(r#"{"reuse":true}"#, replicas).is_err_and(|why| why.contains("'reuse'")));
}

#[test]
fn documents_that_are_no_submissions_are_refused() {
    let text = |body: &str| {
        read(body.as_bytes())
            .expect_err("must be refused")
            .to_string()
    };
    assert!(text("{").starts_with("the body is not valid JSON"));
    assert_eq!(text("[]"), "the body must be a JSON object with 'files'");
    assert!(text(r#"{"files":[]}"#).starts_with("No transfers have been specified"));
    assert_eq!(text(r#"{"delete":{}}"#), "'delete' must be a list");
    assert_eq!(
        text(r#"{"delete":["https://a/f"]}"#),
        "Deletion jobs are no longer supported by FTS"
    );
    let gopher = r#"{"files":[{"sources":["gopher://a/f"],"destinations":["https://b/g"]}]}"#;
    assert!(text(gopher).starts_with(
        "files[0]: 'gopher://a/f': scheme 'gopher' is not supported; use one of https, davs,"
    ));
}

proptest! {
    #[test]
    fn no_body_makes_it_panic(body in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = read(&body);
    }

    #[test]
    fn no_value_in_a_known_place_makes_it_panic(key in "[a-z_]{3,20}", value in "[-0-9a-z\"{}\\[\\],.: ]{0,20}") {
        let _ = one(&format!("{{\"{key}\":{value}}}"), &format!(",\"{key}\":{value}"));
        for known in ["retry", "max_time_in_queue", "job_metadata", "nostreams"] {
            let _ = one(&format!("{{\"{known}\":{value}}}"), "");
        }
        for known in ["filesize", "checksum", "scitag", "metadata"] {
            let _ = one("{}", &format!(",\"{known}\":{value}"));
        }
    }
}
