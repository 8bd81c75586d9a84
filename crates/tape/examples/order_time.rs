//! How long it takes to order the files of one tape: `cargo run --release -p penstock-tape --example order_time`. It fails when
//! 20,000 files take two seconds or more.

use penstock_tape::chance::Chance;
use penstock_tape::drive::DriveModel;
use penstock_tape::order::{OrderEffort, OrderGoal, OrderPolicy, RecallPlan};
use penstock_tape::recall::RecallFile;
use std::process::ExitCode;
use std::time::Instant;

const LIMIT_SECONDS: f64 = 2.0;

fn main() -> ExitCode {
    let mut is_late = false;
    println!("files   goal        ordered in s   locate by position / in this order");
    for count in [100, 300, 1_000, 5_000, 20_000] {
        for goal in [OrderGoal::DriveTime, OrderGoal::MeanWait] {
            // A tape so long that files lie apart however many they are.
            let drive = DriveModel {
                capacity_bytes: 12_000_000_000_000 * count.max(100) / 100,
                ..DriveModel::LTO_8
            };
            let geometry = drive.geometry();
            let mut chance = Chance::new(count);
            let cell = drive.capacity_bytes / count;
            let file = |number: u64| RecallFile {
                name: String::new(),
                begin_bytes: number * cell + chance.below(cell - 1_300_000_000),
                size_bytes: 1_300_000_000,
                requests: 1,
            };
            let files: Vec<RecallFile> = (0..count).map(file).collect();
            let plan = RecallPlan {
                drive: &drive,
                geometry: &geometry,
                head: geometry.begin_of_tape(),
                files: &files,
                goal,
            };
            let begun = Instant::now();
            let best = plan.order(OrderPolicy::Best, OrderEffort::USUAL);
            let seconds = begun.elapsed().as_secs_f64();
            let position = plan.order(OrderPolicy::Position, OrderEffort::USUAL);
            println!(
                "{count:6}  {:10}  {seconds:12.2}   {:.2}",
                format!("{goal:?}"),
                position.locate_ns as f64 / best.locate_ns as f64
            );
            is_late |= seconds >= LIMIT_SECONDS;
        }
    }
    match is_late {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    }
}
