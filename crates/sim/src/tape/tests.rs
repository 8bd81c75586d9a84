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
fn what_is_foretold_of_requests_comes_about() {
    // Nothing fails, and all is asked for at once: what a forecast does not know of is chance in locates and lengths of wraps.
    let calm = SMALL
        .replace(
            r#""hung_mounts_per_million": 20000, "media_errors_per_million": 2000"#,
            "",
        )
        .replace(
            r#""bulks": 6, "begin_hours": 0, "end_hours": 6"#,
            r#""bulks": 6, "begin_hours": 0, "end_hours": 0.001"#,
        )
        .replace(
            r#""bulks": 4, "begin_hours": 0, "end_hours": 4"#,
            r#""bulks": 4, "begin_hours": 0, "end_hours": 0.001"#,
        );
    let calm = run(&calm, ReadPolicy::Serpentine).foretold;
    println!("{calm:?}");
    assert!(
        calm.requests > 500 && (0.75..1.2).contains(&calm.p50),
        "{calm:?}"
    );
    // What is asked for later delays what was asked for before, and the forecast does not know it.
    let busy = run(SMALL, ReadPolicy::Serpentine).foretold;
    println!("{busy:?}");
    assert!((0.6..2.0).contains(&busy.p50) && busy.p90 < 6.0, "{busy:?}");
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

/// Two libraries, of which the first is away for a quarter of a day.
const TWO_LIBRARIES: &str = r#"{
  "name": "two libraries", "seed": 4, "hours_max": 60,
  "library": {"slots": 100, "arms": 2, "move_seconds": 15, "moves_per_hour_max": 300, "count": 2,
              "outages": [{"library": 0, "begin_hours": 2, "end_hours": 8}]},
  "drives": [{"kind": "LTO-8", "count": 4}],
  "recalls": [{"vo": "atlas", "kind": "LTO-8", "files": 400, "file_bytes": 2000000000, "tapes": 8, "copies": 2,
               "bulks": 20, "begin_hours": 0, "end_hours": 10}],
  "archives": [{"vo": "cms", "family": "raw", "kind": "LTO-8", "files": 400, "file_bytes": 4000000000, "copies": 2,
                "bulks": 10, "begin_hours": 0, "end_hours": 10}]
}"#;

#[test]
fn while_a_library_is_away_files_come_from_the_other_and_second_copies_wait() {
    let ours = run(TWO_LIBRARIES, ReadPolicy::Serpentine);
    assert_eq!(
        (ours.recalled, ours.archived, ours.failed, ours.open),
        (400, 400, 0, 0)
    );
    // Two copies of each file were written.
    assert_eq!(ours.written_bytes, 2 * 400 * 4_000_000_000);
    // Whatever is asked for has a copy in the library that works; a copy more has to wait for the one that does not.
    let alone = TWO_LIBRARIES.replace(r#""tapes": 8, "copies": 2"#, r#""tapes": 8"#);
    let alone = run(&alone, ReadPolicy::Serpentine);
    let hours = |seconds: f64| seconds / 3_600.0;
    println!(
        "longest recall: {:.1} h with two copies, {:.1} h with one; longest archive {:.1} h; {} incidents",
        hours(ours.recall_waits.max_seconds),
        hours(alone.recall_waits.max_seconds),
        hours(ours.archive_waits.max_seconds),
        ours.incidents
    );
    assert!(hours(ours.recall_waits.max_seconds) < 2.0);
    assert!(hours(alone.recall_waits.max_seconds) > 4.0);
    assert!(hours(ours.archive_waits.max_seconds) > 4.0);
    assert_eq!((ours.unaccounted_ns, alone.failed + alone.open), (0, 0));
    // One copy is enough: archiving goes on in the library that works.
    let once = TWO_LIBRARIES.replace(r#"4000000000, "copies": 2"#, "4000000000");
    let once = run(&once, ReadPolicy::Serpentine);
    assert!(hours(once.archive_waits.max_seconds) < 2.0);
    assert_eq!((once.archived, once.open), (400, 0));
}

/// Files of a megabyte.
const SMALL_FILES: &str = r#"{
  "name": "small files", "seed": 4, "hours_max": 60,
  "library": {"slots": 100, "arms": 2, "move_seconds": 15, "moves_per_hour_max": 300},
  "drives": [{"kind": "LTO-8", "count": 1}],
  "archives": [{"vo": "cms", "family": "raw", "kind": "LTO-8", "files": 200000, "file_bytes": 1000000, "pack": true,
                "bulks": 1, "begin_hours": 0, "end_hours": 0}]
}"#;

/// Bytes written, divided by what the drive would have written at its native rate while it wrote.
fn writing_efficiency(report: &TapeReport, native_rate: f64) -> f64 {
    let writing = ["stream", "turn", "backhitch", "mark", "locate"];
    let phases = report.phases.iter();
    let phases = phases.filter(|one| writing.contains(&one.phase));
    let seconds: f64 = phases.map(|one| one.seconds).sum();
    report.written_bytes as f64 / (seconds * native_rate)
}

#[test]
fn small_files_are_written_near_the_native_rate_in_aggregates_only() {
    let packed = run(SMALL_FILES, ReadPolicy::Serpentine);
    let single = SMALL_FILES
        .replace(r#", "pack": true"#, "")
        .replace("200000", "20000");
    let single = run(&single, ReadPolicy::Serpentine);
    let [packed_part, single_part] = [&packed, &single].map(|one| writing_efficiency(one, 360e6));
    println!("1 MB files: {packed_part:.3} of native in aggregates, {single_part:.3} one by one");
    assert_eq!(
        (packed.archived, packed.open, single.archived),
        (200_000, 0, 20_000)
    );
    assert!(packed_part > 0.85 && single_part < 0.2);
}

#[test]
fn two_members_of_one_place_in_a_log_both_come() {
    let plan = TapePlan::parse(SMALL).expect("a plan");
    let log = "seconds,vo,kind,tape,begin_bytes,size_bytes\n0,atlas,LTO-8,A1,0,2000000000\n\
               0,atlas,LTO-8,A1,0,1000\n";
    let log = RecallLog::parse(log).expect("a log");
    let report = simulate_tape(&plan, Some(&log), ReadPolicy::Serpentine).expect("it runs");
    assert_eq!((report.recalled, report.read_bytes), (2, 2_000_001_000));
}

#[test]
fn a_drive_is_not_kept_for_a_trickle() {
    // A file of a gigabyte each 20 seconds, for six hours.
    let text = |fed: u32| {
        format!(
            r#"{{"name": "trickle", "hours_max": 20, "trickle": {{"watch_ns": 300000000000, "fed_permille_min": {fed}}},
            "library": {{"slots": 100, "arms": 2, "move_seconds": 15, "moves_per_hour_max": 300}},
            "drives": [{{"kind": "LTO-8", "count": 1}}],
            "archives": [{{"vo": "cms", "family": "raw", "kind": "LTO-8", "files": 1080, "file_bytes": 1000000000,
                          "bulks": 1080, "begin_hours": 0, "end_hours": 6}}]}}"#
        )
    };
    let [kept, ended] = [0, 400].map(|fed| run(&text(fed), ReadPolicy::Serpentine));
    for report in [&kept, &ended] {
        println!(
            "{:.0} s occupied, {} mounts",
            report.occupied_seconds, report.mounts
        );
        assert_eq!((report.archived, report.open), (1_080, 0));
    }
    assert!(ended.occupied_seconds < 0.7 * kept.occupied_seconds);
    assert!(ended.mounts <= 20);
}

#[test]
fn large_files_are_written_near_the_native_rate_with_buffered_marks() {
    let large = SMALL_FILES.replace(r#", "pack": true"#, "");
    for (bytes, files) in [
        (100_000_000_u64, 4_000),
        (1_000_000_000, 800),
        (4_000_000_000, 300),
    ] {
        let text = large.replace("1000000,", &format!("{bytes},"));
        let text = text.replace("200000", &files.to_string());
        let report = run(&text, ReadPolicy::Serpentine);
        let part = writing_efficiency(&report, 360e6);
        println!("files of {} MB: {part:.3} of native", bytes / 1_000_000);
        assert_eq!((report.archived, report.open), (files, 0));
        assert!(part >= 0.9, "{part}");
    }
}

/// Runs of eight files of 2 GB, a hundred of them on one tape.
const COLLOCATED: &str = r#"{
  "name": "collocated", "seed": 4, "hours_max": 60,
  "library": {"slots": 100, "arms": 2, "move_seconds": 15, "moves_per_hour_max": 300},
  "drives": [{"kind": "LTO-8", "count": 1}],
  "recalls": [{"vo": "cms", "kind": "LTO-8", "files": 800, "file_bytes": 2000000000, "tapes": 1, "run_files": 8,
               "bulks": 1, "begin_hours": 0, "end_hours": 0}]
}"#;

#[test]
fn recalls_collocated_at_16_gb_take_what_their_runs_allow() {
    use penstock_tape::drive::DriveModel;
    use penstock_tape::order::{OrderEffort, OrderGoal, OrderPolicy, RecallPlan};
    use penstock_tape::recall::RecallFile;
    for seed in 1..=3 {
        let text = COLLOCATED.replace(r#""seed": 4"#, &format!(r#""seed": {seed}"#));
        let plan = TapePlan::parse(&text).expect("a plan");
        // What the runs allow: all files read once, in the best order that is known, on a tape as its label says.
        let demand = demand::Demand::new(&plan, None).expect("demand");
        let mut files = std::collections::BTreeMap::new();
        for (_, arrival) in &demand.arrivals {
            if let demand::Arrival::Recall(requests) = arrival {
                for request in requests {
                    let file = RecallFile {
                        name: String::new(),
                        begin_bytes: request.copies[0].begin_bytes,
                        size_bytes: request.size_bytes,
                        requests: 1,
                    };
                    files.insert(request.file, file);
                }
            }
        }
        let files: Vec<RecallFile> = files.into_values().collect();
        let (drive, geometry) = (DriveModel::LTO_8, DriveModel::LTO_8.geometry());
        let best = RecallPlan {
            drive: &drive,
            geometry: &geometry,
            head: geometry.begin_of_tape(),
            files: &files,
            goal: OrderGoal::DriveTime,
        };
        let best = best.order(OrderPolicy::Best, OrderEffort(1_000_000));
        let allowed_seconds = best.drive_ns() as f64 / 1e9;
        let report = simulate_tape(&plan, None, ReadPolicy::Serpentine).expect("it runs");
        let reading = ["stream", "turn", "locate"];
        let phases = report.phases.iter();
        let phases = phases.filter(|one| reading.contains(&one.phase));
        let seconds: f64 = phases.map(|one| one.seconds).sum();
        let part = report.read_bytes as f64 / (seconds * 360e6);
        println!(
            "seed {seed}: {} mounts, {part:.3} of native, {:.3} of what the runs allow",
            report.mounts,
            allowed_seconds / seconds
        );
        assert_eq!((report.open, report.failed), (0, 0));
        assert!(
            seconds <= 1.05 * allowed_seconds,
            "{seconds} {allowed_seconds}"
        );
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
