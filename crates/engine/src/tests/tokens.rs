//! Whatever issuers answer and when: nothing starts with a token that may end before its turn comes.

use super::*;
use penstock_model::{JobToken, Renewal, RenewedToken};

/// Gives all files of a job one of a few tokens that are renewed, half of them another one for the destination.
pub(super) fn bring(job: &mut NewJob) {
    let seed = job.id.0.as_u128();
    let name = |number: u128| CredentialId::new(format!("t{}", number % 3));
    let (one, other) = (name(seed), name(seed / 3));
    for (at, transfer) in job.transfers.iter_mut().enumerate() {
        transfer.source_credential = Some(one.clone());
        transfer.destination_credential = at.is_multiple_of(2).then(|| other.clone());
    }
    let token = |id: &CredentialId| JobToken {
        id: id.clone(),
        text: "secret".to_owned(),
        renewal: Some(Renewal {
            issuer: "https://iam/".to_owned(),
            scope: "offline_access".to_owned(),
            audience: String::new(),
            renew_at: Timestamp(5_000),
        }),
    };
    job.tokens = BTreeSet::from([&one, &other])
        .into_iter()
        .map(token)
        .collect();
}

impl World {
    pub(super) fn prepare_token(&mut self, id: CredentialId) {
        let stored = self.journal.token(&id).expect("readable");
        assert!(
            stored.is_some(),
            "{id} is durable before its issuer is asked"
        );
        assert!(self.asked.insert(id), "nobody is asked twice at once");
    }

    pub(super) fn submit_with_tokens(&mut self, kind: JobKind, files: u8, to: u8) -> JobId {
        self.jobs += 1;
        let mut job = new_job(kind, self.jobs, files, 0, to);
        bring(&mut job);
        self.submit_job(job)
    }

    /// One whose issuer is asked again, for a later job, may have been given what it is renewed with before.
    pub(super) fn check_tokens(&mut self, assignment: &Assignment) {
        let request = &assignment.request;
        let tokens = [&request.source_credential, &request.destination_credential];
        for id in tokens.into_iter().flatten() {
            let stored = self.journal.token(id).expect("readable");
            let renewal = stored.and_then(|stored| stored.renewal);
            let is_bare = renewal.is_some_and(|(_, refresh)| refresh.is_none());
            // Of several replicas, the next one is tried with what there is.
            let is_awaited = self.asked.contains(id) && !self.denied.contains(id);
            let awaits = is_awaited && is_bare && assignment.task == Task::Copy;
            assert!(!awaits, "{request:?} waits for its token");
        }
    }

    pub(super) fn answer_nth(&mut self, nth: usize, given: bool) {
        let Some(nth) = nth.checked_rem(self.asked.len()) else {
            return;
        };
        let id = self
            .asked
            .iter()
            .nth(nth)
            .expect("there are so many")
            .clone();
        self.asked.remove(&id);
        if !given {
            self.denied.insert(id.clone());
            let failure = Box::new(failure(Retry::Never));
            return self.feed(Input::TokenRefused { id, failure });
        }
        self.denied.remove(&id);
        let reply = self.reply();
        let renewed = RenewedToken {
            access: None,
            refresh: "refresh".to_owned(),
        };
        self.feed(Input::of_request(
            KeepToken {
                id: id.clone(),
                renewed,
            },
            reply,
        ));
        assert_eq!(self.answers.get(&reply.0), Some(&Reply::Done));
        self.feed(Input::TokenReady { id });
    }

    pub(super) fn answer_all(&mut self) {
        while !self.asked.is_empty() {
            self.answer_nth(0, true);
        }
    }
}

/// A world with one job of two files that bring tokens.
fn one_job() -> (World, JobId) {
    let mut world = World::new();
    let mut job = new_job(JobKind::Independent, 1, 2, 0, 0);
    bring(&mut job);
    let id = world.submit_job(job);
    (world, id)
}

#[test]
fn a_transfer_waits_for_all_its_tokens_and_says_so() {
    let (mut world, _) = one_job();
    assert_eq!((world.asked.len(), world.agents.len()), (2, 0));
    let why = world.engine.why_waiting(TransferId(1), world.now.at);
    assert!(
        matches!(why, Some(WaitReason::TokenExchange { .. })),
        "{why:?}"
    );
    assert_eq!(world.engine.held_by_tokens(), 2);
    world.answer_nth(1, true);
    let started: Vec<TransferId> = world.agents.keys().copied().collect();
    assert_eq!(
        started,
        [TransferId(2)],
        "the first one has another token still"
    );
    world.answer_nth(0, true);
    assert_eq!(world.agents.len(), 2);
    world.settle();
    world.check_record();
}

#[test]
fn a_refused_token_fails_what_waits_for_it_with_the_issuers_words() {
    let (mut world, _) = one_job();
    world.answer_nth(1, false);
    world.answer_nth(0, true);
    let state = |id| world.journal.state(TransferId(id)).expect("known");
    for id in [1, 2] {
        let TransferState::Failed {
            failure, attempts, ..
        } = state(id)
        else {
            panic!("{:?}", state(id))
        };
        assert_eq!((failure.detail.as_str(), *attempts), ("a test says so", 0));
    }
    world.settle();
    world.check_record();
}

#[test]
fn a_restart_asks_again_for_what_was_not_answered_and_for_nothing_else() {
    let (mut world, _) = one_job();
    world.answer_nth(1, true);
    world.settle_one();
    world.crash();
    assert_eq!(world.asked.len(), 1);
    assert!(world.agents.is_empty(), "the other one still waits");
    world.settle();
    world.check_record();
}

impl World {
    fn settle_one(&mut self) {
        let transfer = self.nth_agent(0).expect("one runs");
        self.end(transfer, landed());
    }
}
