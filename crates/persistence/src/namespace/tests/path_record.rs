//! What is known of one path.

use super::*;
use penstock_model::TimeWindow;
use penstock_model::observation::EntryChange;

fn mover(name: &str, at: Timestamp) -> MoverRecord {
    MoverRecord {
        at,
        kind: MoverKind::Get,
        path: path(name),
        peer: "192.0.2.1:4711".to_owned(),
        copy: None,
        challenge: None,
        file_size: None,
        user: None,
        vo: None,
        pool: None,
        moved: Bytes(5),
        duration_us: 12,
        stages: StageClocks::default(),
        tcp: None,
        selection: serde_json::Value::Null,
        outcome: MoverOutcome::Done,
    }
}

#[test]
fn events_of_a_path_are_its_own_and_the_latest_come_first() {
    let lab = Lab::new();
    // The same name elsewhere is another path.
    for name in ["/d/f", "/other/f", "/d/f2"] {
        let file = lab.new_file(name, 10);
        lab.make(Change::Publish(file)).expect("published");
    }
    let reads = [("/d/f", 1), ("/d/f2", 2), ("/d/f", 3), ("/d/f", 4)];
    let reads = reads.map(|(name, second)| mover(name, Timestamp(NOW.0 + second * 1000)));
    lab.make(Change::RecordMovers(reads.to_vec()))
        .expect("recorded");
    lab.rename("/d/f", "/d/g", Replace::Refused).expect("moved");

    let reader = LedgerReader::open(&lab.file()).expect("opens");
    let told = |name: &str, window, limit| {
        let found = reader.path_record(&path(name), window, limit);
        found.expect("readable")
    };
    let kinds = |record: &PathRecord| -> Vec<EntryChange> {
        let kind = |event: &ElementRecord| match &event.event {
            ElementEvent::Changed(changed) => changed.kind,
            other => panic!("{other:?}"),
        };
        record.events.iter().map(kind).collect()
    };
    let gone = told("/d/f", TimeWindow::ALL, 10);
    assert_eq!(gone.entry, None);
    assert_eq!(
        kinds(&gone),
        [EntryChange::Rename, EntryChange::Creation],
        "the latest first"
    );
    let seconds = |record: &PathRecord| -> Vec<i64> {
        let of = |mover: &MoverRecord| (mover.at.0 - NOW.0) / 1000;
        record.movers.iter().map(of).collect()
    };
    assert_eq!(seconds(&gone), [4, 3, 1]);
    assert_eq!((gone.events_left_out, gone.movers_left_out), (0, 0));
    let there = told("/d/g", TimeWindow::ALL, 10);
    assert!(there.entry.is_some_and(|entry| !entry.is_directory()));

    let few = told("/d/f", TimeWindow::ALL, 1);
    assert_eq!(kinds(&few), [EntryChange::Rename]);
    assert_eq!(seconds(&few), [4]);
    assert_eq!((few.events_left_out, few.movers_left_out), (1, 2));
    let early = TimeWindow {
        from: Timestamp(NOW.0 + 2000),
        to: Timestamp(NOW.0 + 4000),
    };
    assert_eq!(seconds(&told("/d/f", early, 10)), [3]);
    assert_eq!(told("/nothing", TimeWindow::ALL, 10).events, []);
}
