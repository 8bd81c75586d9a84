//! The ledger: what it tells of changes, that it tells it in their transactions, and what is missing in it.

use super::*;
use penstock_model::observation::{EntryChange, EntryChangeReason};

impl Lab {
    fn ledger(&self) -> Vec<(u64, ElementRecord)> {
        let (mut all, mut last) = (Vec::new(), 0);
        loop {
            let some = self.namespace().ledger_after(last).expect("readable");
            let Some((newest, _)) = some.last() else {
                return all;
            };
            last = *newest;
            all.extend(some);
        }
    }

    /// A line for each thing that the ledger tells.
    fn told(&self) -> Vec<String> {
        let ledger = self.ledger();
        ledger.iter().map(|(_, record)| line(record)).collect()
    }

    fn rows(&self) -> i64 {
        let reader = Connection::open(self.file()).expect("opens");
        let rows = reader.query_row("SELECT count(*) FROM ledger", [], |row| row.get(0));
        rows.expect("counted")
    }
}

fn line(record: &ElementRecord) -> String {
    match &record.event {
        ElementEvent::Changed(changed) => {
            let shown = |path: &Option<NamespacePath>| path.as_ref().map(ToString::to_string);
            let reason = changed.reason.map(EntryChangeReason::word);
            let rest = [shown(&changed.path), shown(&changed.new_path)];
            let rest = rest.into_iter().flatten();
            let rest = rest.chain(reason.map(|reason| format!("({reason})")));
            let words = std::iter::once(changed.kind.word().to_owned()).chain(rest);
            words.collect::<Vec<_>>().join(" ")
        }
        ElementEvent::Refused(refusal) => format!("refused {}", refusal.status),
        ElementEvent::Gap(gap) => {
            let from = gap.from.map_or(-1, |from| from.0 - NOW.0);
            format!("gap {} {from}..{}", gap.cause.word(), record.at.0 - NOW.0)
        }
    }
}

#[test]
fn each_change_is_told_with_who_asked_and_why() {
    let lab = Lab::new();
    let origin = RequestOrigin {
        user: Some(UserName::new("alice")),
        vo: Some(VoName::new("atlas")),
        client: Some("192.0.2.1:4711".to_owned()),
        copy: Some("7-1-1".to_owned()),
        challenge: Some("scitag:66".to_owned()),
    };
    let file = lab.new_file("/d/e/f", 10);
    let first = file.id;
    let change = Change::Publish(file).asked_by(Arc::new(origin.clone()));
    lab.namespace().apply(change).expect("published");
    let file = NewFile {
        replace: Replace::Allowed,
        ..lab.new_file("/d/e/f", 11)
    };
    let second = file.id;
    lab.make(Change::Publish(file)).expect("replaced");
    lab.mkdir("/m").expect("made");
    lab.patch("/m", vec![set("a", "1")]).expect("set");
    lab.rename("/d", "/m/d", Replace::Refused).expect("moved");
    lab.remove("/m", 10).expect("removed");
    lab.make(Change::RestoreTrash {
        file: second,
        to: path("/again/f"),
        at: LATER,
    })
    .expect("restored");
    let forget = Change::ForgetTrash {
        files: vec![first, EntryId(999)],
        at: Timestamp(1),
    };
    let forget = forget.because(EntryChangeReason::TrashExpired);
    lab.namespace().apply(forget).expect("forgotten");
    assert_eq!(
        lab.told(),
        [
            "directory_creation /d (parent_missing)",
            "directory_creation /d/e (parent_missing)",
            "creation /d/e/f",
            "removal /d/e/f (replaced)",
            "replacement /d/e/f",
            "directory_creation /m",
            "property_update /m",
            "rename /d /m/d",
            "directory_removal /m/d (directory_removed)",
            "directory_removal /m/d/e (directory_removed)",
            "removal /m/d/e/f (directory_removed)",
            "directory_removal /m",
            "directory_creation /again (parent_missing)",
            "restoration /again/f",
            "purge /d/e/f (trash_expired)",
        ]
    );
    let ledger = lab.ledger();
    let numbers: Vec<u64> = ledger.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, (1..=15).collect::<Vec<_>>());
    let created = &ledger[2].1;
    assert_eq!((created.at, &*created.origin), (NOW, &origin));
    let ElementEvent::Changed(changed) = &created.event else {
        panic!("a change: {created:?}");
    };
    assert_eq!(
        (changed.kind, changed.entry, changed.size),
        (EntryChange::Creation, first, Some(Bytes(10)))
    );
    assert_eq!(changed.pool, Some(PoolName::new("p1")));
    // From any number on, each thing comes once.
    for number in 0..15 {
        let rest = lab.namespace().ledger_after(number).expect("readable");
        assert_eq!(rest.len() as u64, 15 - number, "{number}");
    }
}

#[test]
fn what_is_refused_or_rolled_back_is_not_told() {
    let lab = Lab::new();
    lab.write("/d/f");
    let before = (lab.told(), lab.rows());
    lab.mkdir("/d").expect_err("it exists");
    lab.remove("/d", 1).expect_err("too much is below it");
    lab.rename("/d", "/none/d", Replace::Refused)
        .expect_err("there is no such directory");
    assert_eq!((lab.told(), lab.rows()), before);
    let other = Connection::open(lab.file()).expect("opens");
    other.execute_batch("BEGIN IMMEDIATE").expect("locked");
    lab.mkdir("/g").expect_err("the database is locked");
    other.execute_batch("ROLLBACK").expect("free again");
    assert_eq!((lab.told(), lab.rows()), before);
    assert!(lab.find("/g").is_none());
}

#[test]
fn the_changes_of_one_transaction_are_one_row() {
    let lab = Lab::new();
    let other = Connection::open(lab.file()).expect("opens");
    other.execute_batch("BEGIN IMMEDIATE").expect("locked");
    let (sender, answers) = mpsc::channel();
    // The first waits for the lock, and the others for it.
    for number in 0..20 {
        let sender = sender.clone();
        let change = Change::MakeDirectory {
            path: path(&format!("/d{number}")),
            owner: None,
            at: NOW,
        };
        let reply = move |made: Result<ChangeReport, ChangeError>| drop(sender.send(made));
        lab.namespace().submit(change, reply);
        if number == 0 {
            let deadline = Instant::now() + Duration::from_secs(20);
            while lab.namespace().writer_counts().writes_for.is_none() {
                assert!(Instant::now() < deadline, "nothing is written");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
    other.execute_batch("ROLLBACK").expect("free again");
    for answer in answers.iter().take(20) {
        answer.expect("made");
    }
    assert_eq!(lab.told().len(), 20);
    let batches = lab.namespace().writer_counts().batches;
    assert_eq!((lab.rows(), batches), (2, 2), "one for each transaction");
}

#[test]
fn a_run_that_did_not_end_leaves_a_gap_and_one_that_ended_leaves_none() {
    let mut lab = Lab::new();
    lab.make(Change::BeginLedger(NOW)).expect("begun");
    lab.write("/f");
    lab.make(Change::EndLedger).expect("ended");
    lab.restart();
    lab.make(Change::BeginLedger(LATER)).expect("begun");
    assert_eq!(lab.told(), ["creation /f"]);
    // A second later it has written nothing and is killed; the next starts after a minute.
    lab.restart();
    let much_later = Timestamp(LATER.0 + 60_000);
    lab.make(Change::BeginLedger(much_later)).expect("begun");
    assert_eq!(lab.told(), ["creation /f", "gap crash 1000..61000"]);
    // By a clock that was set back it is no time.
    lab.restart();
    lab.make(Change::BeginLedger(NOW)).expect("begun");
    assert_eq!(lab.told()[2..], ["gap crash 0..0"]);
}

#[test]
fn a_gap_begins_before_the_last_change_because_other_things_wait_for_their_batch() {
    let mut lab = Lab::new();
    let begun = Timestamp(NOW.0 - 60_000);
    lab.make(Change::BeginLedger(begun)).expect("begun");
    lab.write("/f");
    // A read that ended before the change was to be written a moment after it.
    lab.restart();
    lab.make(Change::BeginLedger(LATER)).expect("begun");
    assert_eq!(lab.told(), ["creation /f", "gap crash -5000..1000"]);
}

#[test]
fn the_oldest_goes_in_steps_and_numbers_go_on() {
    let mut lab = Lab::new();
    let refusal = |at: i64| ElementRecord {
        at: Timestamp(NOW.0 + at),
        origin: Arc::default(),
        event: ElementEvent::Refused(Refusal {
            method: "PUT".to_owned(),
            path: None,
            status: 403,
            code: "permission_denied".to_owned(),
            detail: String::new(),
        }),
    };
    for at in 0..200 {
        let records = vec![refusal(at), refusal(at)];
        lab.make(Change::AppendLedger(records)).expect("taken");
    }
    let prune = |lab: &Lab, before: Option<i64>, records_max| {
        let before = before.map(|at| Timestamp(NOW.0 + at));
        let bound = LedgerBound {
            before,
            records_max,
        };
        lab.make(Change::PruneLedger(bound)).expect("pruned").pruned
    };
    assert_eq!(prune(&lab, None, 400), 0);
    assert_eq!(prune(&lab, Some(10), 1_000), 20);
    assert_eq!(lab.ledger()[0].0, 21);
    // By number, in steps.
    assert_eq!(
        [
            prune(&lab, None, 100),
            prune(&lab, None, 100),
            prune(&lab, None, 100)
        ],
        [128, 128, 24]
    );
    assert_eq!(prune(&lab, None, 100), 0);
    assert_eq!(lab.ledger().len(), 100);
    // The last row stays, so that no number is given again.
    while prune(&lab, Some(10_000), 0) > 0 {}
    lab.restart();
    lab.make(Change::AppendLedger(vec![refusal(0)]))
        .expect("taken");
    let numbers: Vec<u64> = lab.ledger().iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, [399, 400, 401]);
    assert_eq!(
        lab.namespace().ledger_after(399).expect("readable").len(),
        2
    );
}

#[test]
fn old_movers_go_with_the_ledger() {
    let lab = Lab::new();
    let mover = |at: i64| MoverRecord {
        at: Timestamp(NOW.0 + at),
        kind: MoverKind::Get,
        path: NamespacePath::root(),
        peer: String::new(),
        copy: None,
        challenge: None,
        file_size: None,
        user: None,
        vo: None,
        pool: None,
        moved: Bytes(0),
        duration_us: 0,
        stages: StageClocks::default(),
        tcp: None,
        selection: serde_json::Value::Null,
        outcome: MoverOutcome::Done,
    };
    lab.make(Change::RecordMovers((0..10).map(mover).collect()))
        .expect("recorded");
    let bound = LedgerBound {
        before: Some(Timestamp(NOW.0 + 4)),
        records_max: 10,
    };
    let pruned = lab.make(Change::PruneLedger(bound)).expect("pruned").pruned;
    let left = lab.namespace().mover_records(0, 100).expect("readable");
    assert_eq!((pruned, left.len(), left[0].0), (4, 6, 5));
}

#[test]
fn a_damaged_row_is_told_as_a_gap_and_holds_up_nothing() {
    let lab = Lab::new();
    for name in ["/a", "/b", "/c"] {
        lab.mkdir(name).expect("made");
    }
    let other = Connection::open(lab.file()).expect("opens");
    let damage =
        "UPDATE ledger SET packed = substr(packed, 1, length(packed) - 1) WHERE sequence = 2";
    assert_eq!(other.execute(damage, []).expect("damaged"), 1);
    let told = lab.told();
    assert_eq!(
        [&told[0], &told[2]],
        ["directory_creation /a", "directory_creation /c"]
    );
    assert!(told[1].starts_with("gap damaged"), "{told:?}");
    let ElementEvent::Gap(gap) = &lab.ledger()[1].1.event else {
        panic!("a gap");
    };
    assert_eq!(gap.lost, Some(1));
}
