use super::*;

const GB: u64 = 1_000_000_000;

struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

fn scattered(chance: &mut Chance, count: usize, size: u64) -> Vec<RecallFile> {
    let file = |index: usize| RecallFile {
        name: format!("f{index}"),
        begin_bytes: chance.below(11_900) * GB + chance.below(GB),
        size_bytes: size,
        requests: 1 + chance.below(3),
    };
    (0..count).map(file).collect()
}

fn plan<'a>(
    drive: &'a DriveModel,
    geometry: &'a Geometry,
    files: &'a [RecallFile],
    goal: OrderGoal,
) -> RecallPlan<'a> {
    RecallPlan {
        drive,
        geometry,
        head: geometry.begin_of_tape(),
        files,
        goal,
    }
}

fn files_of(order: &RecallOrder) -> Vec<usize> {
    order.turns.iter().map(|turn| turn.file).collect()
}

#[test]
fn every_policy_reads_every_file_once() {
    let drive = DriveModel::LTO_8;
    let geometry = drive.geometry();
    let mut chance = Chance(1);
    let mut files = scattered(&mut chance, 60, 2 * GB);
    files.push(files[3].clone());
    for goal in [OrderGoal::DriveTime, OrderGoal::MeanWait] {
        for policy in [
            OrderPolicy::Fifo,
            OrderPolicy::Position,
            OrderPolicy::Scan,
            OrderPolicy::NearestLocate,
            OrderPolicy::NearestService,
            OrderPolicy::Best,
        ] {
            let order = plan(&drive, &geometry, &files, goal).order(policy, OrderEffort(100_000));
            let mut read = files_of(&order);
            read.sort_unstable();
            assert_eq!(read, (0..61).collect::<Vec<_>>(), "{policy:?}");
            assert!(order.turns.is_sorted_by_key(|turn| turn.read_at_ns));
        }
    }
}

#[test]
fn small_sets_are_ordered_exactly() {
    let drive = DriveModel::LTO_8;
    let geometry = drive.geometry();
    let mut chance = Chance(2);
    for goal in [OrderGoal::DriveTime, OrderGoal::MeanWait] {
        for count in 1..=7 {
            let files = scattered(&mut chance, count, 2 * GB);
            let plan = plan(&drive, &geometry, &files, goal);
            let found = plan.order(OrderPolicy::Best, OrderEffort::USUAL);
            let extents = extents(&drive, &geometry, &files);
            let costs = Costs {
                plan: &plan,
                extents: &extents,
            };
            let mut best = i128::MAX;
            permutations(&mut (0..extents.len()).collect(), 0, &mut |order| {
                best = best.min(costs.of(order));
            });
            let sequence = exact::sequence(&costs);
            assert_eq!(costs.of(&sequence), best, "{count} files, {goal:?}");
            assert!(found.is_optimal);
        }
    }
}

fn permutations(order: &mut Vec<usize>, from: usize, each: &mut impl FnMut(&[usize])) {
    if from + 1 >= order.len() {
        return each(order);
    }
    for other in from..order.len() {
        order.swap(from, other);
        permutations(order, from + 1, each);
        order.swap(from, other);
    }
}

#[test]
fn moving_runs_makes_an_order_better() {
    let drive = DriveModel::LTO_8;
    let geometry = drive.geometry();
    let mut chance = Chance(3);
    let files = scattered(&mut chance, 40, 2 * GB);
    for goal in [OrderGoal::DriveTime, OrderGoal::MeanWait] {
        let plan = plan(&drive, &geometry, &files, goal);
        let extents = extents(&drive, &geometry, &files);
        let costs = Costs {
            plan: &plan,
            extents: &extents,
        };
        let begun = scan(&extents);
        let improved = improving::improve(&costs, begun.clone(), OrderEffort(200_000));
        assert!(costs.of(&improved) < costs.of(&begun));
    }
}

#[test]
fn a_usual_order_is_near_the_best_known() {
    let drive = DriveModel::LTO_8;
    let geometry = drive.geometry();
    let mut chance = Chance(7);
    for count in [30, 100, 300] {
        for goal in [OrderGoal::DriveTime, OrderGoal::MeanWait] {
            let files = scattered(&mut chance, count, GB * 13 / 10);
            let plan = plan(&drive, &geometry, &files, goal);
            let cost = |policy, effort| plan.order(policy, effort).cost_ns(goal) as f64;
            let usual = cost(OrderPolicy::Best, OrderEffort::USUAL);
            let thorough = cost(OrderPolicy::Best, OrderEffort(40_000_000));
            let position = cost(OrderPolicy::Position, OrderEffort::USUAL);
            let nearest = cost(OrderPolicy::NearestLocate, OrderEffort::USUAL);
            println!(
                "{count} {goal:?}: usual / best known {:.3}, nearest {:.3}, position {:.2}",
                usual / thorough,
                nearest / thorough,
                position / thorough
            );
            assert!(
                usual <= thorough * 1.05,
                "{count} files, {goal:?}: {usual} {thorough}"
            );
        }
    }
}

#[test]
fn late_arrivals_are_ordered_from_where_the_head_stands() {
    let drive = DriveModel::LTO_8;
    let geometry = drive.geometry();
    let mut chance = Chance(5);
    let files = scattered(&mut chance, 8, 2 * GB);
    let mut plan = plan(&drive, &geometry, &files, OrderGoal::DriveTime);
    let from_begin = plan.order(OrderPolicy::Best, OrderEffort::USUAL);
    let last = from_begin.turns.last().expect("eight files").file;
    plan.head = geometry.position(files[last].begin_bytes);
    let from_there = plan.order(OrderPolicy::Best, OrderEffort::USUAL);
    assert_eq!(from_there.turns[0].file, last);
    assert!(plan.cost_of(&files_of(&from_begin)).drive_ns() > from_there.drive_ns());
}

#[test]
fn twenty_thousand_files_are_ordered_soon() {
    // A tape so long that no two files are read in one go.
    let drive = DriveModel {
        capacity_bytes: 1_200_000 * GB,
        ..DriveModel::LTO_8
    };
    let geometry = drive.geometry();
    let mut chance = Chance(6);
    let mut files = scattered(&mut chance, 20_000, GB / 10);
    for file in &mut files {
        file.begin_bytes = file.begin_bytes * 100 + chance.below(100 * GB);
    }
    let plan = plan(&drive, &geometry, &files, OrderGoal::DriveTime);
    let position = plan.order(OrderPolicy::Position, OrderEffort::USUAL);
    let begun = std::time::Instant::now();
    let best = plan.order(OrderPolicy::Best, OrderEffort::USUAL);
    println!(
        "ordered in {:?}: {:.2} of the order of positions",
        begun.elapsed(),
        best.locate_ns as f64 / position.locate_ns as f64
    );
    assert!(best.drive_ns() < position.drive_ns());
}

#[test]
fn a_small_file_that_many_wait_for_goes_before_the_large_one_before_it() {
    let drive = DriveModel::LTO_8;
    let geometry = drive.geometry();
    let file = |begin_bytes, size_bytes, requests| RecallFile {
        name: format!("f{requests}"),
        begin_bytes,
        size_bytes,
        requests,
    };
    let mut files = vec![file(0, 1000 * GB, 1), file(1000 * GB, 2 * GB, 1000)];
    for count in [2, 40] {
        while files.len() < count {
            let last = files[files.len() - 1].end_bytes();
            files.push(file(last, GB, 1));
        }
        let plan = plan(&drive, &geometry, &files, OrderGoal::MeanWait);
        let best = plan.order(OrderPolicy::Best, OrderEffort::USUAL);
        let mut small_first: Vec<usize> = (0..count).collect();
        small_first.swap(0, 1);
        assert!(best.waits_ns <= plan.cost_of(&small_first).waits_ns);
        assert_eq!(best.is_optimal, count == 2);
    }
}

#[test]
fn of_an_aggregate_members_are_read_or_all_of_it_whichever_costs_less() {
    const MB: u64 = 1_000_000;
    // Ten gigabytes of small files, in the middle of a wrap, far from the head.
    let (members, begin) = (1_000, 20_000 * MB);
    let drive = DriveModel::LTO_8;
    let geometry = drive.geometry();
    let cost_of = |every: u64| {
        let wanted = (0..members).step_by(every as usize);
        let files: Vec<RecallFile> = wanted
            .map(|member| RecallFile {
                name: String::new(),
                begin_bytes: begin + member * 10 * MB,
                size_bytes: 10 * MB,
                requests: 1,
            })
            .collect();
        let plan = RecallPlan {
            drive: &drive,
            geometry: &geometry,
            head: geometry.position(0),
            files: &files,
            goal: OrderGoal::DriveTime,
        };
        let order = plan.order(OrderPolicy::Best, OrderEffort::USUAL);
        let locate = |from, to| {
            drive
                .locate
                .cost_ns(geometry.position(from), geometry.position(to))
        };
        let (first, last) = (&files[0], &files[files.len() - 1]);
        let to_first = locate(0, first.begin_bytes);
        let whole = to_first + drive.read_ns(&geometry, first.begin_bytes, last.end_bytes());
        let apart = files
            .windows(2)
            .map(|pair| locate(pair[0].end_bytes(), pair[1].begin_bytes));
        let read = files
            .iter()
            .map(|file| drive.read_ns(&geometry, file.begin_bytes, file.end_bytes()));
        let apart = to_first + apart.sum::<i64>() + read.sum::<i64>();
        (order.drive_ns(), whole, apart)
    };
    let (mut wholes, mut aparts) = (0, 0);
    for every in [1, 2, 10, 50, 100, 333, 500, 999] {
        let (cost, whole, apart) = cost_of(every);
        // A thousandth for sums of rounded times.
        let best = whole.min(apart);
        assert!(
            cost <= best + best / 1_000,
            "every {every}: {cost} {whole} {apart}"
        );
        wholes += u32::from(whole < apart);
        aparts += u32::from(apart < whole);
    }
    assert!(wholes >= 2 && aparts >= 2, "{wholes} {aparts}");
}
