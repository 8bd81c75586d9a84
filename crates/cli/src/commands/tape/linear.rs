//! `penstock tape order --model linear`: orders of a tape without wraps, as references.

use super::RecallList;
use crate::args::{OrderPolicyArg, TapeOrderArgs};
use crate::exit::CommandError;
use crate::output::Output;
use penstock_tape::drive::DriveModel;
use penstock_tape::linear::{LinearFile, LinearOrder, LinearPolicy, LinearTape, LinearTapeError};
use penstock_tape::recall::RecallFile;
use serde::Serialize;

#[derive(Debug, Serialize)]
struct LinearReport<'a> {
    policy: &'static str,
    files: Vec<LinearFileTurn<'a>>,
    /// The sum of all waits.
    cost_seconds: f64,
    mean_wait_seconds: f64,
    lower_bound_seconds: f64,
    /// Whether what it is compared with is the best order there is.
    is_optimum_known: bool,
    above_best_percent: f64,
}

#[derive(Debug, Serialize)]
struct LinearFileTurn<'a> {
    name: &'a str,
    read_at_seconds: f64,
}

pub(super) fn order(
    args: &TapeOrderArgs,
    list: RecallList,
    output: Output,
) -> Result<(), CommandError> {
    let path = args.file.display();
    let mut files = list.files;
    files.sort_by_key(|file| file.begin_bytes);
    let rate = list.drive.unwrap_or(DriveModel::LTO_8).native_rate.max(1) as f64;
    let linear_file = |file: &RecallFile| LinearFile {
        begin: file.begin_bytes,
        size: file.size_bytes,
        requests: file.requests,
    };
    let end = files.iter().map(RecallFile::end_bytes).max().unwrap_or(0);
    let head = list.head_bytes.unwrap_or(end);
    let tape = LinearTape::new(
        files.iter().map(linear_file).collect(),
        head,
        list.turn_bytes,
    );
    let tape = tape.map_err(|why| CommandError::Usage(format!("{path}: {}", told(why, &files))))?;
    let exact = tape.order(LinearPolicy::ExactDp);
    let simple = || tape.order(LinearPolicy::SimpleDp);
    let (policy, found) = match args.policy {
        OrderPolicyArg::Position => ("position", tape.order(LinearPolicy::NoDetour)),
        OrderPolicyArg::EachFile => ("each-file", tape.order(LinearPolicy::EachFile)),
        OrderPolicyArg::SimpleDp => ("simple-dp", simple()),
        OrderPolicyArg::ExactDp => ("exact-dp", exact.clone()),
        OrderPolicyArg::Best => ("best", exact.clone().or_else(simple)),
        OrderPolicyArg::Fifo
        | OrderPolicyArg::Scan
        | OrderPolicyArg::NearestLocate
        | OrderPolicyArg::NearestService => {
            let what =
                "with --model linear, --policy is position, each-file, simple-dp, exact-dp or best";
            return Err(CommandError::Usage(what.to_owned()));
        }
    };
    let found = found.ok_or_else(|| {
        let what = "too many files and requests for the exact order; use --policy simple-dp";
        CommandError::Usage(what.to_owned())
    })?;
    let best = exact.as_ref().map(|exact| exact.cost);
    let best_cost = best
        .or_else(|| simple().map(|order| order.cost))
        .unwrap_or(found.cost);
    let requests: u64 = files.iter().map(|file| file.requests).sum();
    let turn = |read: &penstock_tape::linear::LinearRead| LinearFileTurn {
        name: &files[read.file].name,
        read_at_seconds: read.read_at as f64 / rate,
    };
    let LinearOrder { reads, cost } = &found;
    let report = LinearReport {
        policy,
        files: reads.iter().map(turn).collect(),
        cost_seconds: *cost as f64 / rate,
        mean_wait_seconds: *cost as f64 / rate / requests.max(1) as f64,
        lower_bound_seconds: tape.lower_bound() as f64 / rate,
        is_optimum_known: exact.is_some(),
        above_best_percent: (*cost as f64 / (best_cost.min(*cost) as f64).max(1.0) - 1.0) * 100.0,
    };
    output.show(&report, || table(&report));
    Ok(())
}

fn told(why: LinearTapeError, files: &[RecallFile]) -> String {
    let name = |place: usize| files.get(place).map_or("", |file| &file.name);
    match why {
        LinearTapeError::NoFiles => "the list \"files\" is empty".to_owned(),
        LinearTapeError::Overlap(place) => {
            format!("'{}' begins before the file before it ends", name(place))
        }
        LinearTapeError::HeadBeforeEnd => {
            "head_bytes must not be before the end of the last file".to_owned()
        }
        LinearTapeError::NoRequests(place) => format!("'{}' needs a request", name(place)),
    }
}

fn table(report: &LinearReport<'_>) -> String {
    let mut text = String::from(" read at s  file\n");
    for file in &report.files {
        text += &format!("{:10.1}  {}\n", file.read_at_seconds, file.name);
    }
    let of = match report.is_optimum_known {
        true => "the optimum",
        false => "the best order known",
    };
    text += &format!(
        "{}: sum of waits {:.1} s, mean wait {:.1} s, {:.2} % above {of}; no order is below {:.1} s\n",
        report.policy,
        report.cost_seconds,
        report.mean_wait_seconds,
        report.above_best_percent,
        report.lower_bound_seconds
    );
    text
}
