//! A clock that is not believed, and one that goes back.

use super::*;

fn expired(world: &World) -> usize {
    let events = world.journal.ledger().iter();
    events
        .filter(|(_, _, event)| matches!(event, TransferEvent::Expired { .. }))
        .count()
}

#[test]
fn nothing_expires_on_the_word_of_a_clock_that_is_not_believed() {
    let mut world = World::new();
    let mut job = new_job(JobKind::Independent, 77, 3, 0, 0);
    job.parameters.expires_at = Some(world.now.at + Duration::from_secs(60));
    let reply = world.reply();
    world.feed(Input::of_request(Submit(Box::new(job)), reply));
    world.feed(Input::Clock { is_credible: false });
    world.sleep(86_400);
    assert_eq!(expired(&world), 0);
    let wakes = world.engine.wake_at();
    assert!(
        wakes.is_none_or(|at| at > world.now.at),
        "it does not ask for a time that is over: {wakes:?}"
    );
    world.feed(Input::Clock { is_credible: true });
    world.sleep(1);
    assert_eq!(expired(&world), 1, "the two that run may end");
    world.settle();
    world.check_record();
}

#[test]
fn a_back_off_does_not_stand_still_when_the_clock_goes_back() {
    let mut world = World::new();
    world.submit(1, 0, 0);
    let transfer = world.nth_agent(0).expect("runs");
    let failed = AttemptOutcome::Failed {
        failure: failure(Retry::Later),
        cleaned: true,
        moved: Bytes(0),
    };
    world.end(transfer, failed);
    assert_eq!(world.nth_agent(0), None, "it backs off");
    world.now.at = world.now.at - Duration::from_secs(600);
    world.feed(Input::Tick);
    assert_eq!(world.nth_agent(0), None, "it backs off as long as before");
    world.sleep(60);
    assert_eq!(world.nth_agent(0), Some(transfer));
}

#[test]
fn agents_are_told_since_when_the_clock_has_gone_as_time_passes() {
    let mut world = World::new();
    let begun = world.now.at;
    let mut steady_since = begun;
    // Seconds that pass, and by which the clock leaps then.
    for (pass, leap) in [(3600, 0), (60, 1200), (600, 0), (60, -1200), (60, 5)] {
        world.now.monotonic_us += pass * 1_000_000;
        let expected = world.now.at + Duration::from_secs(pass);
        world.now.at = Timestamp(expected.0 + leap * 1000);
        if leap.abs() > 60 {
            steady_since = world.now.at;
        }
        world.submit(1, 0, 0);
        let transfer = world.nth_agent(0).expect("runs");
        let told = world.agents[&transfer].clock.expect("told");
        assert_eq!((told.at, told.steady_since), (world.now.at, steady_since));
        let failed = AttemptOutcome::Failed {
            failure: failure(Retry::Never),
            cleaned: true,
            moved: Bytes(0),
        };
        world.end(transfer, failed);
    }
}

#[test]
fn no_ban_loses_its_patience_on_the_word_of_a_clock_that_is_not_believed() {
    let mut world = World::new();
    world.submit(4, 0, 0);
    world.ban("https://d0", None, BanEffect::Wait, Some(60));
    world.feed(Input::Clock { is_credible: false });
    world.sleep(86_400);
    let canceled = |world: &World| {
        let events = world.journal.ledger().iter();
        events
            .filter(|(_, _, event)| matches!(event, TransferEvent::Canceled { .. }))
            .count()
    };
    assert_eq!(canceled(&world), 0);
    let wakes = world.engine.wake_at();
    assert!(wakes.is_none_or(|at| at > world.now.at), "{wakes:?}");
    world.feed(Input::Clock { is_credible: true });
    world.sleep(1);
    assert_eq!(canceled(&world), 2, "the two that run may end");
}
