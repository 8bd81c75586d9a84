//! Tokens that are renewed at their issuers.

use super::*;
use penstock_model::{Renewal, RenewedToken, StoredToken, Tidying};

fn renewal(renew_at: i64) -> Renewal {
    Renewal {
        issuer: "https://iam.org/".to_owned(),
        scope: "offline_access storage.read:/".to_owned(),
        audience: "se.org".to_owned(),
        renew_at: Timestamp(renew_at),
    }
}

/// A job of one file that brings a token which is renewed.
fn brings(seed: u128, id: &str) -> Record {
    let mut job = job(seed, seed as u64..=seed as u64);
    job.transfers[0].source_credential = Some(CredentialId::new(id));
    let first = JobToken {
        renewal: Some(renewal(100)),
        ..token(id, "eyJ-first")
    };
    Record::JobAccepted {
        job: Box::new(job),
        tokens: vec![first],
    }
}

fn renewed(id: &str, access: Option<(&str, i64)>, refresh: &str) -> Record {
    let access = access.map(|(text, renew_at)| (text.to_owned(), Timestamp(renew_at)));
    Record::TokenRenewed {
        id: CredentialId::new(id),
        renewed: RenewedToken {
            access,
            refresh: refresh.to_owned(),
        },
    }
}

fn renews(mut journal: Box<dyn Journal>, reopen: impl Fn(Box<dyn Journal>) -> Box<dyn Journal>) {
    let stored = |journal: &mut Box<dyn Journal>, id: &str| {
        let found = journal.token(&CredentialId::new(id));
        found.expect("readable")
    };
    let awaited = |journal: &mut Box<dyn Journal>| {
        let found = journal.load_standing().expect("readable");
        let ids: Vec<String> = found
            .tokens_awaited
            .iter()
            .map(|id| id.as_str().to_owned())
            .collect();
        ids.join(" ")
    };
    let is = |text: &str, renew_at: i64, refresh: Option<&str>| {
        Some(StoredToken {
            text: text.to_owned(),
            renewal: Some((renewal(renew_at), refresh.map(str::to_owned))),
        })
    };
    journal
        .append(&[brings(1, "r1"), brings(2, "r2")])
        .expect("stored");
    assert_eq!(awaited(&mut journal), "r1 r2");
    assert_eq!(stored(&mut journal, "r1"), is("eyJ-first", 100, None));

    journal
        .append(&[renewed("r1", None, "ref-1")])
        .expect("stored");
    assert_eq!(awaited(&mut journal), "r2", "after a restart too");
    assert_eq!(
        stored(&mut journal, "r1"),
        is("eyJ-first", 100, Some("ref-1"))
    );

    let newer = renewed("r1", Some(("eyJ-second", 200)), "ref-2");
    journal.append(&[newer]).expect("stored");
    let mut journal = reopen(journal);
    let second = is("eyJ-second", 200, Some("ref-2"));
    assert_eq!(stored(&mut journal, "r1"), second);

    journal.append(&[brings(3, "r1")]).expect("stored");
    assert_eq!(
        stored(&mut journal, "r1"),
        second,
        "the same token again brings nothing newer"
    );
    let ended = |seed: u128| Record::JobEnded {
        job: JobId(uuid::Uuid::from_u128(seed)),
        at: Timestamp(4000),
        state: JobState::Finished,
    };
    journal.append(&[ended(1)]).expect("stored");
    assert_eq!(stored(&mut journal, "r1"), second, "another job needs it");
    journal.append(&[ended(3)]).expect("stored");
    assert_eq!(stored(&mut journal, "r1"), None);
    let late = renewed("r1", Some(("eyJ-third", 300)), "ref-3");
    journal.append(&[late]).expect("stored");
    assert_eq!(stored(&mut journal, "r1"), None, "nobody needs it any more");
}

#[test]
fn tokens_are_renewed_in_memory() {
    renews(Box::new(MemoryJournal::default()), |journal| journal);
}

pub(super) fn tokens_are_renewed_and_nowhere_in_clear(lab: &Lab) {
    renews(lab.open(), |journal| {
        drop(journal);
        for secret in ["eyJ-first", "eyJ-second", "ref-1", "ref-2"] {
            lab.assert_holds_no(secret);
        }
        lab.open()
    });
}

pub(super) fn transfers_and_recalls_that_wait_for_a_token_are_told_apart_from_those_that_do_not(
    lab: &Lab,
) {
    let mut journal = lab.open();
    let Record::JobAccepted { mut job, tokens } = brings(2, "r2") else {
        unreachable!("made so")
    };
    job.parameters.staging = Some(Staging {
        within_seconds: 60,
        pin_seconds: None,
    });
    let staged = Record::JobAccepted { job, tokens };
    journal.append(&[brings(1, "r1"), staged]).expect("stored");
    let reader = lab.reader();
    let states = || {
        [1, 2].map(|seed| {
            let id = JobId(uuid::Uuid::from_u128(seed));
            reader.transfers(id).expect("readable")[0].fts_state()
        })
    };
    assert_eq!(states(), ["TOKEN_PREP", "TOKEN_PREP"]);
    let both = [renewed("r1", None, "ref-1"), renewed("r2", None, "ref-2")];
    journal.append(&both).expect("stored");
    assert_eq!(states(), ["SUBMITTED", "STAGING"]);
}

pub(super) fn a_new_sealing_key_is_used_for_all_that_a_token_is_renewed_with(lab: &Lab) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("keys");
    let with = |lines: &[&str]| {
        std::fs::remove_file(&file).ok();
        SealingKeys::create(&file).expect("made");
        std::fs::write(&file, lines.join("\n")).expect("written");
        lab.open_with(SealingKeys::load_or_create(&file).expect("valid"))
    };
    let (old, new) = ("0a".repeat(32), "0b".repeat(32));
    let mut journal = with(&[&old]);
    let first = [
        brings(1, "r1"),
        brings(2, "r2"),
        renewed("r1", None, "ref-1"),
    ];
    journal.append(&first).expect("stored");
    drop(journal);
    drop(with(&[&new, &old]));
    let mut journal = with(&[&new]);
    let found = journal.token(&CredentialId::new("r1")).expect("readable");
    let refresh = found.and_then(|token| token.renewal?.1);
    assert_eq!(refresh.as_deref(), Some("ref-1"));
}

pub(super) fn what_is_owed_at_a_destination_keeps_its_token_and_is_found_until_it_is_done(
    lab: &Lab,
) {
    keeps_tidyings(lab.open(), |journal| {
        drop(journal);
        lab.open()
    });
}

#[test]
fn the_journal_in_memory_keeps_what_is_owed_at_destinations() {
    keeps_tidyings(Box::<MemoryJournal>::default(), |journal| journal);
}

/// What is owed at the destination of a job's first file.
pub(super) fn owed(job: &Job, attempt: u32) -> Tidying {
    Tidying {
        job: job.id,
        vo: job.vo.clone(),
        request: job.transfers[0].clone(),
        parameters: job.parameters.clone(),
        attempt: Attempt(attempt),
        node: None,
        copies: false,
        is_due: true,
        ended: Some(Timestamp(3)),
        since: Some(Timestamp(4)),
        tries: attempt,
        next_at: Some(Timestamp(5)),
    }
}

fn keeps_tidyings(
    mut journal: Box<dyn Journal>,
    reopen: impl Fn(Box<dyn Journal>) -> Box<dyn Journal>,
) {
    let mut job = job(7, 7..=7);
    job.transfers[0].source_credential = Some(CredentialId::new("from"));
    job.transfers[0].destination_credential = Some(CredentialId::new("to"));
    let accepted = Record::JobAccepted {
        job: Box::new(job.clone()),
        tokens: vec![token("from", "eyJ-from"), token("to", "eyJ-to")],
    };
    let owed = |attempt| owed(&job, attempt);
    // As the version before stored it.
    let mut old = serde_json::to_value(owed(1)).expect("written");
    let fields = old.as_object_mut().expect("an object");
    for name in ["ended", "since", "tries", "next_at"] {
        assert!(fields.remove(name).is_some(), "{name}");
    }
    let read: Tidying = serde_json::from_value(old).expect("read");
    let untried = Tidying {
        ended: None,
        since: None,
        tries: 0,
        next_at: None,
        ..owed(1)
    };
    assert_eq!(read, untried);
    let ended = Record::JobEnded {
        job: job.id,
        at: Timestamp(9),
        state: JobState::Canceled,
    };
    let owe = |attempt| Record::TidyingOwed(Box::new(owed(attempt)));
    journal.append(&[accepted]).expect("stored");
    journal.append(&[owe(1), ended]).expect("stored");
    journal.append(&[owe(2)]).expect("stored");
    let mut journal = reopen(journal);
    let (standing, _) = super::restart(&mut *journal);
    assert_eq!(standing.tidyings, [owed(2)]);
    assert_eq!(
        super::text_of(&mut *journal, "to").as_deref(),
        Some("eyJ-to")
    );
    assert_eq!(super::text_of(&mut *journal, "from"), None);

    let transfer = TransferId(7);
    journal
        .append(&[owe(3), Record::TidiedUp { transfer }])
        .expect("stored");
    let mut journal = reopen(journal);
    assert_eq!(super::restart(&mut *journal).0.tidyings, []);
    assert_eq!(super::text_of(&mut *journal, "to"), None);
}
