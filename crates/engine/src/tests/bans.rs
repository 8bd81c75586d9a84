//! Bans: what waits, what is canceled, what starts again, and what a restart remembers.

use super::*;
use penstock_model::UserBan;

pub(super) fn step() -> impl Strategy<Value = Step> {
    let effect = prop_oneof![
        Just(BanEffect::Cancel),
        Just(BanEffect::Wait),
        Just(BanEffect::WaitAndAccept)
    ];
    let (vo, patience) = (any::<Option<bool>>(), any::<Option<u8>>());
    (any::<bool>(), any::<u8>(), vo, effect, patience).prop_map(
        |(at_source, host, vo, effect, patience)| Step::Ban {
            at_source,
            host,
            vo,
            effect,
            patience,
        },
    )
}

impl World {
    pub(super) fn ban(
        &mut self,
        storage: &str,
        vo: Option<&str>,
        effect: BanEffect,
        patience: Option<u64>,
    ) -> Vec<JobId> {
        let ban = StorageBan {
            storage: penstock_model::StorageId::new(storage),
            vo: vo.map(VoName::new),
            effect,
            cancel_at: patience.map(|seconds| self.now.at + Duration::from_secs(seconds)),
            since: self.now.at,
            by: UserName::new("op"),
            message: "disks are replaced".to_owned(),
        };
        let ban_of = Ban::Storage(ban.clone());
        self.bans.insert(ban_of.target(), ban);
        let reply = self.reply();
        let ban = Box::new(ban_of);
        self.feed(Input::of_request(ImposeBan(ban), reply));
        match &self.answers[&reply.0] {
            Reply::Banned(jobs) => jobs.clone(),
            answer => panic!("{answer:?}"),
        }
    }

    fn lift(&mut self, target: BanTarget) {
        self.bans.remove(&target);
        let reply = self.reply();
        let by = UserName::new("op");
        self.feed(Input::of_request(LiftBan { target, by }, reply));
        assert_eq!(self.answers[&reply.0], Reply::Done);
    }

    pub(super) fn lift_nth(&mut self, nth: usize) {
        let at = nth.checked_rem(self.bans.len());
        let target = at.and_then(|at| self.bans.keys().nth(at).cloned());
        target.into_iter().for_each(|target| self.lift(target));
    }

    pub(super) fn lift_all(&mut self) {
        while !self.bans.is_empty() {
            self.lift_nth(0);
        }
    }

    /// No copy starts that a ban concerns. What a canceled one has left is removed all the same.
    pub(super) fn check_ban(&self, assignment: &Assignment) {
        if assignment.task == Task::TidyUp {
            return;
        }
        let link = assignment.request.link();
        let covers = |ban: &StorageBan| {
            let covers = |storage| ban.covers(storage, &assignment.vo);
            covers(&link.source) || covers(&link.destination)
        };
        let banned = self.bans.values().find(|ban| covers(ban));
        assert_eq!(banned, None, "it started all the same");
    }

    fn why(&self, job: JobId) -> Vec<Option<WaitReason>> {
        let (job, _) = self
            .journal
            .jobs()
            .find(|(known, _)| known.id == job)
            .expect("known");
        let ids = job.transfers.iter().map(|request| request.id);
        ids.map(|id| self.engine.why_waiting(id, self.now.at))
            .collect()
    }
}

fn reasons_of_cancel(world: &World, job: JobId) -> Vec<String> {
    let jobs = world.journal.jobs();
    let (job, _) = jobs
        .into_iter()
        .find(|(known, _)| known.id == job)
        .expect("known");
    let reason = |id| match world.journal.state(id).expect("known") {
        TransferState::Canceled { reason, .. } => reason.clone(),
        other => panic!("{other:?}"),
    };
    job.transfers
        .iter()
        .map(|request| reason(request.id))
        .collect()
}

fn is_banned(reason: &Option<WaitReason>) -> bool {
    matches!(reason, Some(WaitReason::StorageBanned { message, .. }) if message == "disks are replaced")
}

#[test]
fn what_waits_for_a_banned_storage_waits_on_and_what_runs_goes_on() {
    let mut world = World::new();
    let job = world.submit(4, 0, 0);
    assert_eq!(world.agents.len(), 2, "as many as the link allows");
    assert_eq!(world.ban("https://d0", None, BanEffect::Wait, None), [job]);
    let reasons = world.why(job);
    assert_eq!(reasons[..2], [None, None]);
    assert!(reasons[2..].iter().all(is_banned), "{reasons:?}");
    land(&mut world);
    land(&mut world);
    assert_eq!(
        states(&world, job),
        ["FINISHED", "FINISHED", "SUBMITTED", "SUBMITTED"]
    );
    world.crash();
    assert!(world.agents.is_empty(), "the ban survives a restart");
    assert!(is_banned(&world.why(job)[2]));
    world.lift_all();
    assert_eq!(world.agents.len(), 2);
    world.settle();
    assert_eq!(states(&world, job), ["FINISHED"; 4]);
}

#[test]
fn a_ban_that_cancels_ends_what_waits_and_what_runs_and_refuses_the_next() {
    let mut world = World::new();
    let (job, other) = (world.submit(3, 0, 0), world.submit(1, 1, 1));
    assert_eq!(
        world.ban("https://s0", None, BanEffect::Cancel, None),
        [job]
    );
    assert_eq!(states(&world, job), ["CANCELED"; 3]);
    assert_eq!(
        reasons_of_cancel(&world, job),
        ["Storage banned: disks are replaced"; 3]
    );
    assert_eq!(world.stopping.len(), 2, "its two agents are stopped");
    assert_eq!(states(&world, other), ["ACTIVE"]);
    let (job, reply) = (new_job(JobKind::Independent, 9, 1, 0, 0), world.reply());
    world.feed(Input::of_request(Submit(Box::new(job)), reply));
    let refused = penstock_model::StorageId::new("https://s0");
    assert_eq!(world.answers[&reply.0], Reply::StorageBanned(refused));
    world.settle();
    world.check_record();
}

#[test]
fn a_ban_of_one_vo_leaves_the_others_alone() {
    let mut world = World::new();
    let (atlas, cms) = (world.submit(1, 0, 0), world.submit(1, 0, 0));
    world.ban("https://s0", Some("cms"), BanEffect::Cancel, None);
    assert_eq!(states(&world, atlas), ["ACTIVE"]);
    assert_eq!(states(&world, cms), ["CANCELED"]);
    world.take(Step::Stopped);
    let next = world.submit(1, 0, 0);
    assert_eq!(states(&world, next), ["ACTIVE"], "of atlas");
    world.settle();
}

#[test]
fn submissions_are_accepted_where_the_ban_says_so_and_wait() {
    let mut world = World::new();
    world.ban("davs://d0", None, BanEffect::WaitAndAccept, None);
    let job = world.submit(1, 0, 0);
    assert!(is_banned(&world.why(job)[0]));
    world.settle();
    assert_eq!(states(&world, job), ["FINISHED"]);
}

#[test]
fn another_replica_takes_the_place_of_a_banned_one() {
    let mut world = World::new();
    let job = world.submit_job(new_job(JobKind::Replicas(Selection::Orderly), 1, 3, 0, 0));
    assert_eq!(states(&world, job), ["ACTIVE", "NOT_USED", "NOT_USED"]);
    world.ban("https://s0", None, BanEffect::Cancel, None);
    world.take(Step::Stopped);
    assert_eq!(states(&world, job), ["CANCELED", "ACTIVE", "NOT_USED"]);
    world.settle();
}

#[test]
fn what_has_waited_for_as_long_as_allowed_is_canceled_also_across_a_restart() {
    let mut world = World::new();
    world.ban("https://d0", None, BanEffect::WaitAndAccept, Some(60));
    let job = world.submit(1, 0, 0);
    world.sleep(59);
    assert_eq!(states(&world, job), ["SUBMITTED"]);
    world.crash();
    assert_eq!(
        world.engine.wake_at(),
        Some(world.now.at + Duration::from_secs(1))
    );
    world.sleep(1);
    assert_eq!(states(&world, job), ["CANCELED"]);
    let later = world.submit(1, 0, 0);
    world.sleep(3600);
    assert_eq!(states(&world, later), ["SUBMITTED"], "patience ends once");
    world.settle();
}

#[test]
fn a_banned_user_loses_the_jobs_and_is_locked_out_also_after_a_restart() {
    let mut world = World::new();
    let job = world.submit(3, 0, 0);
    let user = UserName::new("alice");
    let ban = UserBan {
        user: user.clone(),
        since: world.now.at,
        by: UserName::new("op"),
        message: String::new(),
    };
    let (ban, reply) = (Box::new(Ban::User(ban)), world.reply());
    world.feed(Input::of_request(ImposeBan(ban), reply));
    assert_eq!(world.answers[&reply.0], Reply::Banned(vec![job]));
    assert_eq!(states(&world, job), ["CANCELED"; 3]);
    world.locked_out.clear();
    world.crash();
    assert!(world.locked_out.contains("alice"));
    world.lift(BanTarget::User(user));
    assert!(world.locked_out.is_empty());
    world.settle();
}
