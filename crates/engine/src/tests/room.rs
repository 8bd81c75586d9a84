//! Who may still submit when room for transfers gets scarce.

use super::*;

#[test]
fn one_user_and_one_vo_leave_room_for_others() {
    let mut world = World::new();
    let mut seed = 0;
    let mut submit = |world: &mut World, user: &str, vo: &str| {
        seed += 1;
        let mut job = new_job(JobKind::Independent, seed, 200, 1, 2);
        (job.user, job.vo) = (UserName::new(user), VoName::new(vo));
        let reply = world.reply();
        world.feed(Input::of_request(Submit(Box::new(job)), reply));
        world.answers[&reply.0].clone()
    };
    let mut fill = |world: &mut World, user, vo| {
        loop {
            match submit(world, user, vo) {
                Reply::Accepted(_) => {}
                refused => break refused,
            }
        }
    };
    let full = |of, open, open_max| Reply::ShareFull(FullShare { of, open, open_max });
    let (user, vo) = (
        |name: &str| ShareHolder::User(UserName::new(name)),
        |name: &str| ShareHolder::Vo(VoName::new(name)),
    );
    // A service of one user is not left empty.
    let most = OPEN_MAX / 4 * 3;
    assert_eq!(
        fill(&mut world, "mallory", "cms"),
        full(user("mallory"), most, OPEN_MAX / 4)
    );
    assert_eq!(
        fill(&mut world, "bob", "cms"),
        full(vo("cms"), most, OPEN_MAX / 2)
    );
    assert_eq!(fill(&mut world, "carol", "atlas"), Reply::NoRoom(OPEN_MAX));
    assert_eq!(world.engine.open_transfers(), OPEN_MAX);
}
