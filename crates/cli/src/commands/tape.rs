//! `penstock tape`: orders of recalls, how drives locate, and what the tape system of a storage element does.

mod accounts;
mod calibrate;
mod care;
mod linear;
mod page;
mod system;

use crate::args::{OrderGoalArg, OrderPolicyArg, TapeCommand, TapeOrderArgs};
use crate::environment::Environment;
use crate::exit::CommandError;
use crate::output::Output;
use calibrate::KnownDrive;
use penstock_model::TimeSpan;
use penstock_tape::drive::DriveModel;
use penstock_tape::geometry::Geometry;
use penstock_tape::locate::SECOND_NS;
use penstock_tape::order::{OrderEffort, OrderGoal, OrderPolicy, RecallOrder, RecallPlan};
use penstock_tape::recall::RecallFile;
use serde::{Deserialize, Serialize};
use std::fs;
use std::time::Duration;
use system::Use;

/// The form of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecallList {
    files: Vec<RecallFile>,
    /// Its name, for what a calibration tells of it.
    tape: Option<String>,
    #[serde(default)]
    head_bytes: Option<u64>,
    /// Of a line.
    #[serde(default)]
    turn_bytes: u64,
    drive: Option<DriveModel>,
    wrap_ends_bytes: Option<Vec<u64>>,
}

#[derive(Debug, Serialize)]
struct OrderReport<'a> {
    policy: OrderPolicy,
    goal: OrderGoal,
    /// By name, in their order.
    files: Vec<OrderedFile<'a>>,
    locate_seconds: f64,
    read_seconds: f64,
    drive_seconds: f64,
    mean_wait_seconds: f64,
    /// Of the time of the drive, the part in which it streams.
    efficiency: f64,
    is_optimal: bool,
    /// The goal's figure of this order above that of the best order known, in per cent. The best known is what a search of
    /// five times the usual effort finds.
    above_best_known_percent: f64,
    /// The goal's figure of the order of positions, divided by that of this order.
    position_order_ratio: f64,
}

#[derive(Debug, Serialize)]
struct OrderedFile<'a> {
    name: &'a str,
    locate_seconds: f64,
    read_at_seconds: f64,
}

/// `penstock tape`.
pub async fn run(
    command: TapeCommand,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    match command {
        TapeCommand::Order(args) => order(&args, output),
        TapeCommand::Status(args) => system::status(&args, environment, output).await,
        TapeCommand::DataSets(args) => accounts::data_sets(&args, environment, output).await,
        TapeCommand::Account(args) => accounts::account(&args, environment, output).await,
        TapeCommand::Retry(args) => system::retry(&args, environment, output).await,
        TapeCommand::Disable(args) => system::change(&args, Use::None, environment, output).await,
        TapeCommand::Enable(args) => system::change(&args, Use::Full, environment, output).await,
        TapeCommand::ReadOnly(args) => {
            system::change(&args, Use::ReadOnly, environment, output).await
        }
        TapeCommand::Repack(args) => care::repack(&args, environment, output).await,
        TapeCommand::Verify(args) => care::verify(&args, environment, output).await,
        TapeCommand::Relabel(args) => care::relabel(&args, environment, output).await,
        TapeCommand::Hold(args) => care::hold(&args, environment, output).await,
        TapeCommand::Resume(args) => care::resume(&args, environment, output).await,
        TapeCommand::OkToStop(args) => system::ok_to_stop(&args, environment, output).await,
        TapeCommand::Calibrate(args) => calibrate::run(&args, output),
    }
}

fn order(args: &TapeOrderArgs, output: Output) -> Result<(), CommandError> {
    let path = args.file.display();
    let text = fs::read(&args.file).map_err(|why| CommandError::local(&path, why))?;
    let list: RecallList = serde_json::from_slice(&text).map_err(|why| {
        CommandError::Usage(format!("{path}: {why}; see `penstock tape order --help`"))
    })?;
    if list.files.is_empty() {
        return Err(CommandError::Usage(format!(
            "{path}: the list \"files\" is empty; expected at least one file with name, begin_bytes and size_bytes; see \
             `penstock tape order --help`"
        )));
    }
    if args.model.as_deref() == Some("linear") {
        return linear::order(args, list, output);
    }
    let known = match &args.model {
        Some(name) => calibrate::known_drive(name)?,
        None => KnownDrive::of(list.drive.unwrap_or(DriveModel::LTO_8)),
    };
    let geometry = geometry(args, &list, &known)?;
    let drive = known.drive;
    let capacity = geometry.capacity_bytes();
    if let Some(file) = list
        .files
        .iter()
        .find(|file| file.end_bytes() > capacity || file.requests == 0)
    {
        return Err(CommandError::Usage(format!(
            "{path}: '{}' ends at {} B, the tape at {capacity} B, and each file needs a request",
            file.name,
            file.end_bytes()
        )));
    }
    let goal = match args.goal {
        OrderGoalArg::DriveTime => OrderGoal::DriveTime,
        OrderGoalArg::MeanWait => OrderGoal::MeanWait,
    };
    let policy = match args.policy {
        OrderPolicyArg::Fifo => OrderPolicy::Fifo,
        OrderPolicyArg::Position => OrderPolicy::Position,
        OrderPolicyArg::Scan => OrderPolicy::Scan,
        OrderPolicyArg::NearestLocate => OrderPolicy::NearestLocate,
        OrderPolicyArg::NearestService => OrderPolicy::NearestService,
        OrderPolicyArg::Best => OrderPolicy::Best,
        OrderPolicyArg::EachFile | OrderPolicyArg::SimpleDp | OrderPolicyArg::ExactDp => {
            let what = "this --policy is for a tape without wraps; add --model linear";
            return Err(CommandError::Usage(what.to_owned()));
        }
    };
    let plan = RecallPlan {
        drive: &drive,
        geometry: &geometry,
        head: geometry.position(list.head_bytes.unwrap_or(0)),
        files: &list.files,
        goal,
    };
    let found = plan.order(policy, OrderEffort::USUAL);
    let best = match found.is_optimal {
        true => found.clone(),
        false => plan.order(OrderPolicy::Best, OrderEffort::THOROUGH),
    };
    let position = plan.order(OrderPolicy::Position, OrderEffort::USUAL);
    let report = report(&plan, policy, &found, [&best, &position]);
    output.show(&report, || table(&report));
    Ok(())
}

/// The cartridge as the list describes it, else as the calibration knows it.
fn geometry(
    args: &TapeOrderArgs,
    list: &RecallList,
    known: &KnownDrive,
) -> Result<Geometry, CommandError> {
    let mut geometry = known.drive.geometry();
    let of_tape = list.tape.as_ref();
    let of_tape = of_tape.and_then(|tape| known.wrap_ends_bytes.get(tape));
    if let Some(ends) = list.wrap_ends_bytes.as_ref().or(of_tape) {
        let is_rising = ends.windows(2).all(|pair| pair[0] < pair[1]);
        if ends.first().is_none_or(|end| *end == 0) || !is_rising {
            return Err(CommandError::Usage(format!(
                "{}: wrap_ends_bytes must rise from wrap to wrap",
                args.file.display()
            )));
        }
        geometry.wrap_ends_bytes.clone_from(ends);
    }
    Ok(geometry)
}

fn report<'a>(
    plan: &RecallPlan<'a>,
    policy: OrderPolicy,
    found: &RecallOrder,
    [best, position]: [&RecallOrder; 2],
) -> OrderReport<'a> {
    let goal = plan.goal;
    let cost = |order: &RecallOrder| order.cost_ns(goal) as f64;
    let best = cost(best).min(cost(found));
    let ratio = |above: f64, below: f64| if below > 0.0 { above / below } else { 1.0 };
    let requests: u64 = plan.files.iter().map(|file| file.requests).sum();
    let bytes: u64 = plan.files.iter().map(|file| file.size_bytes).sum();
    let drive_seconds = seconds(found.drive_ns());
    let file = |turn: &penstock_tape::order::FileTurn| OrderedFile {
        name: &plan.files[turn.file].name,
        locate_seconds: seconds(turn.locate_ns),
        read_at_seconds: seconds(turn.read_at_ns),
    };
    OrderReport {
        policy,
        goal,
        files: found.turns.iter().map(file).collect(),
        locate_seconds: seconds(found.locate_ns),
        read_seconds: seconds(found.read_ns),
        drive_seconds,
        mean_wait_seconds: ratio(found.waits_ns as f64 / SECOND_NS as f64, requests as f64),
        efficiency: ratio(bytes as f64 / plan.drive.native_rate as f64, drive_seconds),
        is_optimal: found.is_optimal,
        above_best_known_percent: (ratio(cost(found), best) - 1.0) * 100.0,
        position_order_ratio: ratio(cost(position), cost(found)),
    }
}

fn seconds(nanoseconds: i64) -> f64 {
    nanoseconds as f64 / SECOND_NS as f64
}

fn span(seconds: f64) -> TimeSpan {
    TimeSpan(Duration::from_secs_f64(seconds.max(0.0)))
}

fn table(report: &OrderReport<'_>) -> String {
    let mut text = String::from("  locate s  read at s  file\n");
    for file in &report.files {
        let (locate, read_at) = (file.locate_seconds, file.read_at_seconds);
        text += &format!("{locate:10.1} {read_at:10.1}  {}\n", file.name);
    }
    let compared = match report.is_optimal {
        true => "no order is better".to_owned(),
        false => format!(
            "{:.1} % above the best order known",
            report.above_best_known_percent
        ),
    };
    text += &format!(
        "drive {:.0} (locate {:.0}, read {:.0}), mean wait {:.0}, {:.0} % of the native rate\n{compared}; the order of \
         positions costs {:.2} times as much\n",
        span(report.drive_seconds),
        span(report.locate_seconds),
        span(report.read_seconds),
        span(report.mean_wait_seconds),
        report.efficiency * 100.0,
        report.position_order_ratio
    );
    text
}
