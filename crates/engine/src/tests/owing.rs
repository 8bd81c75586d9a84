//! What is owed at destinations of transfers that have ended, and attempts that meet earlier copies of their own.

use super::*;

fn denied() -> Failure {
    Failure {
        errno: Errno::EACCES,
        ..failure(Retry::Later)
    }
}

/// Whoever tidies up for this transfer could not.
fn leave(world: &mut World, transfer: TransferId, failure: Failure) {
    let assignment = world.agents.remove(&transfer).expect("somebody tidies up");
    assert_eq!(assignment.task, Task::TidyUp);
    world.feed(Input::Agent(AgentReport::Ended {
        transfer,
        attempt: assignment.attempt,
        outcome: AttemptOutcome::Untidied { failure },
    }));
}

/// A world in which a transfer was canceled whose agent could not clean up.
fn world_that_owes() -> (World, TransferId, TransferId) {
    let (mut world, job, first, second) = world_with_something_left();
    cancel(&mut world, job);
    world.stopping.clear();
    world.end(first, AttemptOutcome::Unsettled);
    let tidying = &world.agents[&first];
    assert_eq!(tidying.task, Task::TidyUp);
    assert_eq!(tidying.ended, Some(world.now.at), "its agent has ended");
    (world, first, second)
}

#[test]
fn a_removal_that_did_not_succeed_is_tried_again_also_by_the_next_process() {
    let (mut world, first, second) = world_that_owes();
    for round in 0..6 {
        leave(&mut world, first, failure(Retry::Later));
        assert!(world.agents.is_empty(), "it waits, and keeps its place");
        assert_eq!((world.owed(), world.engine.removals_owed()), (1, 1));
        if round % 2 == 1 {
            world.crash();
            assert!(world.agents.is_empty(), "it goes on waiting");
        }
        let wake = world.engine.wake_at().expect("something is due");
        assert!(wake.since(world.now.at) <= Duration::from_secs(1 << (round + 1)));
        world.now.at = wake;
        world.feed(Input::Tick);
        assert_eq!(world.agents[&first].task, Task::TidyUp);
        assert!(world.agents[&first].ended.is_some());
    }
    assert!(!world.agents.contains_key(&second));
    world.end(first, AttemptOutcome::Tidied);
    assert!(world.agents.contains_key(&second));
    assert_eq!((world.owed(), world.engine.removals_owed()), (0, 0));
    world.settle();
    world.check_record();
}

#[test]
fn what_cannot_be_removed_for_long_is_peoples() {
    for (failure, hours) in [(failure(Retry::Later), 24), (denied(), 1)] {
        let (mut world, first, second) = world_that_owes();
        let begun = world.now.at;
        while world.given_over.is_empty() {
            leave(&mut world, first, failure.clone());
            world.now.at = world.engine.wake_at().unwrap_or(world.now.at);
            world.feed(Input::Tick);
        }
        let took = world.now.at.since(begun).as_secs();
        assert!((3600 * hours..3600 * (hours + 2)).contains(&took), "{took}");
        assert_eq!(world.given_over, [first]);
        assert_eq!(world.engine.removals_given_over(), 1);
        assert!(world.agents.contains_key(&second), "its place is free");
        assert_eq!(world.owed(), 0);
        world.settle();
        world.check_record();
    }
}

#[test]
fn what_arrives_while_its_transfer_is_canceled_does_not_stay() {
    let (mut world, job, first, _) = world_with_something_left();
    cancel(&mut world, job);
    world.stopping.clear();
    world.end(first, landed());
    assert_eq!(world.agents[&first].task, Task::TidyUp);
    world.settle();
    world.check_record();
}

fn blocked(until: Timestamp) -> AttemptOutcome {
    AttemptOutcome::Blocked {
        failure: failure(Retry::Later),
        until,
        moved: Bytes(0),
    }
}

#[test]
fn an_attempt_that_meets_an_earlier_copy_of_its_own_costs_no_retry_as_long_as_that_may_run() {
    let mut world = World::new();
    world.submit(1, 0, 0);
    let transfer = world.nth_agent(0).expect("runs");
    let until = world.now.at + Duration::from_secs(7200);
    let mut attempts = 0;
    while world.now.at < until {
        let attempt = world.agents[&transfer].attempt;
        world.feed(Input::Agent(AgentReport::Prepared {
            transfer,
            attempt,
            preflight: Preflight {
                size: Some(Bytes(1)),
                checksum: None,
                replaces: false,
            },
        }));
        world.end(transfer, blocked(until));
        let entry = &world.engine.transfers[&transfer];
        let TransferState::Submitted {
            failures,
            unsettled,
            not_before,
            ..
        } = entry.state()
        else {
            panic!("{:?}", entry.state())
        };
        assert_eq!((*failures, *unsettled), (0, true));
        world.now.at = not_before.expect("it waits").max(world.now.at);
        world.feed(Input::Tick);
        attempts += 1;
    }
    assert!(attempts < 60, "{attempts} attempts in two hours");
    // After that it is a failure like others.
    for _ in 0..20 {
        world.end(transfer, blocked(until));
        world.sleep(3600);
    }
    assert!(!world.engine.transfers.contains_key(&transfer));
    world.settle();
    world.check_record();
}
