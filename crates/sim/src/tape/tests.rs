use super::*;

const SMALL: &str = r#"{
  "name": "small", "seed": 3, "hours_max": 200,
  "library": {"slots": 100, "arms": 2, "move_seconds": 15, "moves_per_hour_max": 300},
  "drives": [{"kind": "LTO-8", "count": 3}],
  "recalls": [{"vo": "atlas", "kind": "LTO-8", "files": 600, "file_bytes": 1300000000, "tapes": 6,
               "bulks": 6, "begin_hours": 0, "end_hours": 6}],
  "archives": [{"vo": "cms", "family": "raw", "kind": "LTO-8", "files": 300, "file_bytes": 4000000000,
                "bulks": 4, "begin_hours": 0, "end_hours": 4}],
  "faults": {"hung_mounts_per_million": 20000, "media_errors_per_million": 2000}
}"#;

fn run(text: &str, policy: ReadPolicy) -> TapeReport {
    let plan = TapePlan::parse(text).expect("a plan");
    simulate_tape(&plan, None, policy).expect("it runs")
}

#[test]
fn phases_are_all_of_the_time_and_every_request_has_an_end() {
    for policy in ReadPolicy::ALL {
        let report = run(SMALL, policy);
        assert_eq!(report.unaccounted_ns, 0, "{policy}");
        let sum: f64 = report.phases.iter().map(|one| one.seconds).sum();
        assert!((sum - report.occupied_seconds).abs() < 1e-3, "{policy}");
        assert_eq!(report.requests, 900);
        let ended = report.recalled + report.archived + report.failed;
        assert_eq!((ended, report.open), (900, 0), "{policy}: {report:?}");
        assert!(report.efficiency > 0.0 && report.efficiency < 1.0);
        assert_eq!(report, run(SMALL, policy), "equal seeds give equal runs");
    }
}

#[test]
fn the_engine_mounts_less_and_moves_more_than_the_simple_rules() {
    let [fifo, position, ours] = ReadPolicy::ALL.map(|policy| run(SMALL, policy));
    for report in [&fifo, &position, &ours] {
        println!(
            "{}: {} mounts, {:.1} %, p95 {:.0} s",
            report.policy,
            report.mounts,
            report.efficiency * 100.0,
            report.recall_waits.p95_seconds
        );
    }
    assert!(ours.mounts * 5 < fifo.mounts);
    assert!(ours.efficiency > position.efficiency && position.efficiency > fifo.efficiency);
    assert!(ours.recall_waits.p95_seconds < fifo.recall_waits.p95_seconds);
}

#[test]
fn a_longer_dismount_delay_mounts_less() {
    let mounts = |seconds: &str| {
        let changed = format!(r#""dismount_delay_seconds": {seconds}, "hours_max""#);
        run(
            &SMALL.replace(r#""hours_max""#, &changed),
            ReadPolicy::Serpentine,
        )
        .mounts
    };
    assert!(mounts("7200") < mounts("0"));
}

#[test]
fn a_log_takes_the_place_of_the_recalls() {
    let plan = TapePlan::parse(SMALL).expect("a plan");
    let log = "seconds,vo,kind,tape,begin_bytes,size_bytes\n0,atlas,LTO-8,A1,0,2000000000\n\
               5,cms,LTO-8,A1,0,2000000000\n9.5,cms,LTO-8,A2,4000000000,2000000000\n";
    let log = RecallLog::parse(log).expect("a log");
    let report = simulate_tape(&plan, Some(&log), ReadPolicy::Serpentine).expect("it runs");
    assert_eq!((report.requests, report.recalled), (303, 3));
    assert_eq!(
        report.read_bytes, 4_000_000_000,
        "one file is read for two requests"
    );
    let wrong = RecallLog::parse("seconds,vo,kind,tape,begin_bytes,size_bytes\n1,a,LTO-8,t,x,1\n");
    let why = "begin_bytes and size_bytes must be whole numbers".to_owned();
    assert_eq!(wrong, Err(LogError { line: 2, why }));
    assert!(RecallLog::parse("").is_err());
}

#[test]
fn a_plan_that_makes_no_sense_is_refused() {
    for (from, to) in [
        (r#""seed": 3"#, r#""sead": 3"#),
        (r#""kind": "LTO-8", "count""#, r#""kind": "DLT", "count""#),
        (r#""count": 3"#, r#""count": 0"#),
        (
            r#""begin_hours": 0, "end_hours": 6"#,
            r#""begin_hours": 7, "end_hours": 6"#,
        ),
    ] {
        assert!(TapePlan::parse(&SMALL.replace(from, to)).is_err(), "{to}");
    }
    TapePlan::parse(EXAMPLE).expect("the example is a plan");
}

/// A week in which files are asked for all the time, each within a day.
const WEEK: &str = r#"{
  "name": "week", "seed": 5, "hours_max": 240,
  "library": {"slots": 1000, "arms": 2, "move_seconds": 15, "moves_per_hour_max": 300},
  "drives": [{"kind": "LTO-8", "count": 6}],
  "recalls": [
    {"vo": "atlas", "kind": "LTO-8", "files": 10080, "file_bytes": 2000000000, "tapes": 80, "bulks": 168,
     "run_files": 4, "begin_hours": 0, "end_hours": 168, "deadline_hours": 24},
    {"vo": "cms", "kind": "LTO-8", "files": 2016, "file_bytes": 8000000000, "tapes": 40, "bulks": 84,
     "run_files": 2, "begin_hours": 0, "end_hours": 168, "deadline_hours": 24}
  ],
  "mount": {"bytes_min": 500000000000, "files_min": 10000, "age_ns": 900000000000, "deadline_lead_ns": 7200000000000,
            "remount_ns": 86400000000000, "family_drives_max": 4}
}"#;

#[test]
fn over_a_week_a_tape_is_mounted_once_a_day_where_deadlines_allow() {
    let ours = run(WEEK, ReadPolicy::Serpentine);
    let eager = WEEK.replace(r#""remount_ns": 86400000000000"#, r#""remount_ns": 0"#);
    let eager = run(&eager, ReadPolicy::Serpentine);
    for report in [&eager, &ours] {
        println!(
            "{}: {} mounts, {:.2} of a tape and day, {:.1} % of native, longest wait {:.1} h",
            report.policy,
            report.mounts,
            report.mounts_per_tape_day,
            report.efficiency * 100.0,
            report.recall_waits.max_seconds / 3_600.0
        );
        assert_eq!((report.failed, report.open), (0, 0));
    }
    assert!(
        ours.mounts_per_tape_day <= 1.1,
        "{}",
        ours.mounts_per_tape_day
    );
    // And nobody waits beyond the deadline for it.
    assert!(ours.recall_waits.max_seconds <= 24.0 * 3_600.0);
    assert!(eager.mounts > 2 * ours.mounts);
}

/// A dataset that is asked for at once, beside what another VO asks for all the time. Its tapes hold unequal parts of it.
const DATASET: &str = r#"{
  "name": "dataset", "seed": 8, "hours_max": 400,
  "library": {"slots": 1000, "arms": 2, "move_seconds": 15, "moves_per_hour_max": 300},
  "drives": [{"kind": "LTO-8", "count": 4}],
  "recalls": [
    {"vo": "atlas", "kind": "LTO-8", "files": 4000, "file_bytes": 2000000000, "tapes": 40, "bulks": 1,
     "run_files": 60, "begin_hours": 1, "end_hours": 1}
  ]
}"#;

#[test]
fn the_last_twentieth_of_a_dataset_takes_at_most_a_tenth_of_its_time() {
    let beside = r#""begin_hours": 1, "end_hours": 1},
    {"vo": "cms", "kind": "LTO-8", "files": 600, "file_bytes": 3000000000, "tapes": 30, "bulks": 60,
     "begin_hours": 0, "end_hours": 20}"#;
    let busy = DATASET.replace(r#""begin_hours": 1, "end_hours": 1}"#, beside);
    for (name, text) in [("alone", DATASET), ("beside another VO", &busy)] {
        for seed in 1..=5 {
            let seeded = format!(r#""seed": {seed}"#);
            let report = run(
                &text.replace(r#""seed": 8"#, &seeded),
                ReadPolicy::Serpentine,
            );
            let waits = report.vo_waits["atlas"];
            let tail = (waits.max_seconds - waits.p95_seconds) / waits.max_seconds;
            println!(
                "{name}, seed {seed}: {:.1} h, the last twentieth {:.1} % of it",
                waits.max_seconds / 3_600.0,
                tail * 100.0
            );
            assert!(tail <= 0.1, "{name}, {seed}: {tail}");
        }
    }
}

#[test]
fn with_too_few_drives_recalls_are_late_but_never_beside_an_idle_drive() {
    let hurried = WEEK.replace(r#""deadline_hours": 24"#, r#""deadline_hours": 1"#);
    let scarce = hurried.replace(r#""count": 6"#, r#""count": 1"#);
    let report = run(&scarce, ReadPolicy::Serpentine);
    println!("{:?} of {}", report.late, report.recalled);
    assert!(report.late.all > report.recalled / 10);
    assert_eq!(report.late.beside_idle_drives, 0);
    // The measure sees it where rules look at no deadline.
    let lazy = hurried.replace(
        r#""deadline_lead_ns": 7200000000000"#,
        r#""deadline_lead_ns": -1"#,
    );
    let lazy = lazy.replace(r#""age_ns": 900000000000"#, r#""age_ns": 36000000000000"#);
    let report = run(&lazy, ReadPolicy::Serpentine);
    println!("{:?} of {}", report.late, report.recalled);
    assert!(report.late.beside_idle_drives > report.recalled / 10);
}
