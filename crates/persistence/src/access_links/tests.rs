use super::*;
use penstock_model::share_link::LINK_SECRET_CHARS;
use tempfile::TempDir;

const HOUR: Duration = Duration::from_secs(3600);
const NOW: Timestamp = Timestamp(1_795_000_000_000);

fn opened(directory: &TempDir) -> AccessLinks {
    AccessLinks::open(&directory.path().join("links.sqlite"), NOW).expect("opens")
}

fn new(kind: AccessLinkKind, owner: &str) -> NewAccessLink {
    NewAccessLink {
        kind,
        owner: owner.to_owned(),
        user: "Alice".to_owned(),
        opens: "/data".to_owned(),
        access: "read".to_owned(),
        expires: NOW + HOUR,
        grant: b"what it gives".to_vec(),
    }
}

fn temporary() -> TempDir {
    tempfile::tempdir().expect("a directory")
}

#[test]
fn a_link_survives_a_restart_and_ends_at_its_time() {
    let directory = temporary();
    let (link, secret) = opened(&directory)
        .make(new(AccessLinkKind::Share, "a"), NOW)
        .expect("made");
    assert_eq!(secret.reveal().len(), LINK_SECRET_CHARS);
    let url = format!("https://se/s/{}", secret.reveal());
    assert_eq!(penstock_model::url::redact(&url), "https://se/s/…");
    let links = opened(&directory);
    let secret = LinkSecret::parse(AccessLinkKind::Share, secret.reveal()).expect("a secret");
    let found = links
        .find(AccessLinkKind::Share, &secret, NOW)
        .expect("valid");
    assert_eq!((found.grant, found.link), (b"what it gives".to_vec(), link));
    let late = links.find(AccessLinkKind::Share, &secret, NOW + HOUR);
    assert_eq!(late, Err(LinkEnd::Expired(NOW + HOUR)));
}

#[test]
fn a_login_link_gives_one_session_whoever_asks_and_after_a_restart_none() {
    let directory = temporary();
    let links = opened(&directory);
    let (_, secret) = links
        .make(new(AccessLinkKind::Login, "a"), NOW)
        .expect("made");
    let taken: Vec<bool> = std::thread::scope(|scope| {
        let take = || links.take(&secret, NOW).is_ok();
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(take)).collect();
        let ended = threads.into_iter().map(|thread| thread.join());
        ended.map(|taken| taken.expect("no panic")).collect()
    });
    assert_eq!(taken.iter().filter(|taken| **taken).count(), 1);
    drop(links);
    let again = opened(&directory).take(&secret, NOW);
    assert!(matches!(
        again,
        Err(AccessLinkError::Ended(LinkEnd::Used(_)))
    ));
}

#[test]
fn a_revoked_link_opens_nothing_and_only_its_owner_or_an_administrator_revokes_it() {
    let directory = temporary();
    let links = opened(&directory);
    let (link, secret) = links
        .make(new(AccessLinkKind::View, "a"), NOW)
        .expect("made");
    let revoke = |owner| links.revoke(&link.id, owner, "Bob", NOW).expect("writable");
    assert_eq!(revoke(Some("b")), None);
    assert!(links.find(AccessLinkKind::View, &secret, NOW).is_ok());
    assert!(revoke(Some("a")).is_some());
    let revoked = Err(LinkEnd::Revoked(NOW));
    assert_eq!(links.find(AccessLinkKind::View, &secret, NOW), revoked);
    assert_eq!(
        opened(&directory).find(AccessLinkKind::View, &secret, NOW),
        revoked
    );
    let (link, _) = links
        .make(new(AccessLinkKind::View, "a"), NOW)
        .expect("made");
    let by_administrator = links.revoke(&link.id, None, "Bob", NOW).expect("writable");
    assert!(by_administrator.is_some_and(|link| link.end(NOW).is_some()));
}

#[test]
fn a_secret_of_one_kind_is_none_of_another() {
    let directory = temporary();
    let links = opened(&directory);
    let (_, secret) = links
        .make(new(AccessLinkKind::View, "a"), NOW)
        .expect("made");
    for other in [
        AccessLinkKind::Login,
        AccessLinkKind::Session,
        AccessLinkKind::Share,
    ] {
        assert_eq!(LinkSecret::parse(other, secret.reveal()), None);
        assert_eq!(links.find(other, &secret, NOW), Err(LinkEnd::Unknown));
        // The same characters behind the mark of another kind are another secret.
        let forged = format!("{}{}", other.mark(), &secret.reveal()[1..]);
        let forged = LinkSecret::parse(other, &forged).expect("the form of one");
        assert_eq!(links.find(other, &forged, NOW), Err(LinkEnd::Unknown));
    }
    for bad in [
        "",
        "V",
        "V/../../../../etc/passwd",
        "Vxxxxxxxxxxxxxxxxxxxxx%",
        &"V".repeat(24),
    ] {
        assert_eq!(LinkSecret::parse(AccessLinkKind::View, bad), None, "{bad}");
    }
}

#[test]
fn neither_a_secret_nor_what_it_gives_is_in_the_files() {
    let directory = temporary();
    let links = opened(&directory);
    let (_, secret) = links
        .make(new(AccessLinkKind::Share, "a"), NOW)
        .expect("made");
    let mut looked_at = 0;
    for file in std::fs::read_dir(directory.path()).expect("readable") {
        let content = std::fs::read(file.expect("a file").path()).expect("readable");
        let has = |text: &str| {
            content
                .windows(text.len())
                .any(|part| part == text.as_bytes())
        };
        assert!(!has(&secret.reveal()[1..]) && !has("what it gives"));
        looked_at += content.len();
    }
    assert!(looked_at > 4096, "{looked_at} bytes");
    assert!(!format!("{secret:?}").contains(&secret.reveal()[1..]));
}

#[test]
fn one_owner_has_a_bounded_number_of_valid_links() {
    let directory = temporary();
    let links = opened(&directory);
    let mut made = Vec::new();
    for _ in 0..VALID_PER_OWNER_MAX {
        made.push(
            links
                .make(new(AccessLinkKind::Share, "a"), NOW)
                .expect("made")
                .0,
        );
    }
    let refused = links.make(new(AccessLinkKind::Share, "a"), NOW);
    assert!(matches!(refused, Err(AccessLinkError::TooManyOfOwner)));
    assert!(links.make(new(AccessLinkKind::Share, "b"), NOW).is_ok());
    links
        .revoke(&made[0].id, Some("a"), "Bob", NOW)
        .expect("writable");
    assert!(links.make(new(AccessLinkKind::Share, "a"), NOW).is_ok());
    assert_eq!(links.list(Some("b")).len(), 1);
    assert_eq!(links.list(None).len(), VALID_PER_OWNER_MAX + 2);
}

#[test]
fn what_ended_a_week_ago_is_forgotten() {
    let directory = temporary();
    let links = opened(&directory);
    let (_, secret) = links
        .make(new(AccessLinkKind::Share, "a"), NOW)
        .expect("made");
    let later = NOW + HOUR + ENDED_KEPT + HOUR;
    links
        .make(new(AccessLinkKind::Share, "b"), later)
        .expect("made");
    let found = links.find(AccessLinkKind::Share, &secret, later);
    assert_eq!(found, Err(LinkEnd::Unknown));
    assert_eq!(opened(&directory).list(None).len(), 1);
}

#[test]
fn the_first_use_is_told_once_and_the_last_one_each_minute() {
    let directory = temporary();
    let links = opened(&directory);
    let (link, _) = links
        .make(new(AccessLinkKind::View, "a"), NOW)
        .expect("made");
    let note = |seconds| links.note_use(&link.id, NOW + Duration::from_secs(seconds));
    let first: Vec<bool> = [1, 2, 90].map(|at| note(at).expect("writable")).to_vec();
    assert_eq!(first, [true, false, false]);
    let told = &opened(&directory).list(None)[0];
    let at = |seconds| Some(NOW + Duration::from_secs(seconds));
    assert_eq!((told.first_used, told.last_used), (at(1), at(90)));
}

#[test]
fn a_database_of_a_later_version_is_left_alone() {
    let directory = temporary();
    drop(opened(&directory));
    let path = directory.path().join("links.sqlite");
    let connection = rusqlite::Connection::open(&path).expect("opens");
    connection
        .pragma_update(None, "user_version", 2)
        .expect("written");
    drop(connection);
    let refused = AccessLinks::open(&path, NOW);
    assert!(matches!(
        refused,
        Err(AccessLinkError::TooNew { found: 2, .. })
    ));
}
