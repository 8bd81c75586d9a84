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
