//! Frames of nodes that are of another version, broken, or not what they say.

use super::*;
use proptest::prelude::*;

/// What comes of these bytes when nothing follows.
async fn heard_of<T: DeserializeOwned>(mut bytes: &[u8]) -> io::Result<ReceivedFrame<T>> {
    receive(&mut bytes).await
}

fn framed(text: &str) -> Vec<u8> {
    let length = u32::try_from(text.len()).expect("short");
    [&length.to_be_bytes(), text.as_bytes()].concat()
}

async fn heard<T: DeserializeOwned>(text: &str) -> io::Result<ReceivedFrame<T>> {
    heard_of(&framed(text)).await
}

#[tokio::test]
async fn what_is_sent_is_what_is_received() {
    let mut sent = Vec::new();
    for number in [1, u64::MAX] {
        send(&mut sent, &NodeMessage::Ping { number })
            .await
            .expect("sent");
    }
    let mut from = &*sent;
    for expected in [1, u64::MAX] {
        match receive(&mut from).await.expect("a frame") {
            ReceivedFrame::Known(NodeMessage::Ping { number }) => assert_eq!(number, expected),
            other => panic!("{other:?}"),
        }
    }
    assert!(matches!(
        receive::<NodeMessage>(&mut from).await,
        Ok(ReceivedFrame::Nothing)
    ));
}

#[tokio::test]
async fn what_a_later_version_adds_is_passed_over() {
    let later = r#"{"welcome":{"protocol":1,"epoch":3,"certain":true,"more":[1]}}"#;
    assert!(matches!(
        heard(later).await,
        Ok(ReceivedFrame::Known(LeaderMessage::Welcome {
            certain: true,
            epoch: Epoch(3),
            ..
        }))
    ));
    let earlier = r#"{"welcome":{"protocol":1,"epoch":3}}"#;
    assert!(matches!(
        heard(earlier).await,
        Ok(ReceivedFrame::Known(LeaderMessage::Welcome {
            certain: false,
            ..
        }))
    ));
    for unknown in [r#"{"sing":{"song":"la"}}"#, r#""dance""#, r#"{"ping":{}}"#] {
        let said = heard::<NodeMessage>(unknown).await;
        assert!(
            matches!(said, Ok(ReceivedFrame::Unknown)),
            "{unknown}: {said:?}"
        );
    }
}

#[tokio::test]
async fn replies_are_sent_as_the_first_version_sent_them() {
    let job = penstock_model::JobId(uuid::Uuid::nil());
    for (reply, expected) in [
        (Reply::Done, r#"{"engine":"done"}"#),
        (
            Reply::Accepted(job),
            r#"{"engine":{"accepted":"00000000-0000-0000-0000-000000000000"}}"#,
        ),
        (Reply::Waiting(vec![None]), r#"{"why":[null]}"#),
        (Reply::Start(None), r#"{"starts":null}"#),
        (Reply::Refreshed(Ok(())), r#"{"refreshed":{"Ok":null}}"#),
    ] {
        let sent = LeaderMessage::Reply {
            number: 7,
            reply: Some(Box::new(reply.clone().into())),
        };
        let text = serde_json::to_string(&sent).expect("is JSON");
        let whole = format!(r#"{{"answered":{{"number":7,"answered":{expected}}}}}"#);
        assert_eq!(text, whole);
        let Ok(ReceivedFrame::Known(LeaderMessage::Reply {
            reply: Some(read), ..
        })) = heard(&whole).await
        else {
            panic!("{whole}")
        };
        assert_eq!(Reply::from(*read), reply);
    }
}

#[tokio::test]
async fn a_frame_that_is_too_long_is_refused_by_its_length() {
    for length in [FRAME_MAX + 1, u32::MAX] {
        let said = heard_of::<NodeMessage>(&length.to_be_bytes()).await;
        let why = said.expect_err("refused").to_string();
        assert!(why.contains(&length.to_string()), "{why}");
    }
}

#[tokio::test]
async fn a_frame_that_ends_early_is_an_error_and_takes_no_more_memory_than_came() {
    let mut bytes = FRAME_MAX.to_be_bytes().to_vec();
    bytes.extend_from_slice(br#"{"ping""#);
    let said = heard_of::<NodeMessage>(&bytes).await;
    let why = said.expect_err("it is not whole");
    assert_eq!(why.kind(), io::ErrorKind::UnexpectedEof);
}

#[tokio::test]
async fn what_is_no_json_ends_the_connection_and_is_not_repeated() {
    let deep = "[".repeat(100_000);
    for rubbish in ["", "{", "7", "GET / HTTP/1.1\r\n\r\n", "s3cret", &*deep] {
        let why = heard::<NodeMessage>(rubbish).await.expect_err("no JSON");
        assert!(!why.to_string().contains("s3cret"), "{why}");
    }
    let said = LeaderMessage::Keys(RedactedText("s3cret".to_owned()));
    assert!(!format!("{said:?}").contains("s3cret"));
}

proptest! {
    #[test]
    fn whatever_comes_is_a_frame_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        // Either is well.
        let _ = runtime.block_on(heard_of::<NodeMessage>(&bytes));
        let _ = runtime.block_on(heard_of::<LeaderMessage>(&framed(&String::from_utf8_lossy(&bytes))));
    }
}
