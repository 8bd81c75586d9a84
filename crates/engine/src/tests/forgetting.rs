//! Links that nothing uses are forgotten, so that who names ever new ones makes nothing grow.

use super::*;
use crate::unused_links::UNUSED_LINKS_MAX;

fn invented(side: &str, number: u64) -> FileUrl {
    FileUrl::parse(&format!("https://{side}{number}.invented/f")).expect("valid")
}

/// A job with a file for a link that nobody else uses.
fn submit_invented(world: &mut World, number: u64) -> JobId {
    world.jobs += 1;
    let mut job = new_job(JobKind::Independent, world.jobs, 1, 0, 0);
    job.transfers[0].source = invented("s", number);
    job.transfers[0].destination = invented("d", number);
    job.transfers[0].size = Some(Bytes(7));
    world.submit_job(job)
}

/// How many links an engine remembers something of.
fn rows_by_link(engine: &Engine) -> [usize; 7] {
    [
        engine.links_known(),
        engine.history.links.len(),
        engine.halting.health.len(),
        engine.halting.trials.len(),
        engine.tuning.rules.len(),
        engine.last_failure.len(),
        engine.failed_files.len(),
    ]
}

#[test]
fn links_that_a_user_invents_are_forgotten_and_those_in_use_are_not() {
    const LINKS: u64 = 20_000;
    let mut world = World::new();
    // One waits for a slot, and one for the end of its back-off.
    let waits = world.submit(3, 0, 0);
    let retried = world.submit(1, 1, 1);
    let first = world.engine.jobs[&retried].open.first().expect("one");
    let failed = |retry| AttemptOutcome::Failed {
        failure: failure(retry),
        cleaned: true,
        moved: Bytes(0),
    };
    world.end(first, failed(Retry::Later));
    for number in 0..LINKS {
        let job = submit_invented(&mut world, number);
        let transfer = world.engine.jobs[&job].open.first().expect("one");
        let outcome = match number % 3 {
            0 => failed(Retry::Never),
            1 => landed(),
            _ => AttemptOutcome::Stopped,
        };
        if number % 3 == 2 {
            cancel(&mut world, job);
        }
        world.end(transfer, outcome);
        if number % 1_000 == 0 || number + 1 == LINKS {
            let rows = rows_by_link(&world.engine);
            assert!(
                rows.iter().all(|rows| *rows <= UNUSED_LINKS_MAX + 3),
                "{rows:?}"
            );
        }
    }
    let link = |number: u64| LinkId {
        source: invented("s", number).storage(),
        destination: invented("d", number).storage(),
    };
    let is_tuned = |world: &World, number| world.engine.tuning(&link(number)).is_some();
    let tuned = (0..LINKS).filter(|number| is_tuned(&world, *number));
    let tuned = tuned.count();
    assert!(tuned <= UNUSED_LINKS_MAX, "{tuned}");
    assert!(!is_tuned(&world, 1) && is_tuned(&world, LINKS - 1));
    submit_invented(&mut world, 1);
    assert!(is_tuned(&world, 1), "it is as new");
    assert_eq!(world.engine.jobs[&waits].open.len(), 3);
    assert!(world.engine.jobs.contains_key(&retried));
    world.settle();
    world.check_record();
}
