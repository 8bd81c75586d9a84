//! What a node tells of attempts that it does not take, or does not go on with. Where it tells nothing, its leader waits
//! for ever.

use super::*;
use crate::agent::tests::{assignment, setup};
use penstock_model::{Epoch, FileUrl, JobParameters};
use tokio::net::TcpListener;

/// A node whose agents wait for a source that never answers, and what its leader hears.
struct Lab {
    host: Arc<AgentHost>,
    heard: mpsc::Receiver<AgentReport>,
    source: FileUrl,
    silent: TcpListener,
    _directory: tempfile::TempDir,
}

impl Lab {
    async fn new(term: Duration) -> Lab {
        let silent = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = silent.local_addr().expect("bound");
        let source = FileUrl::parse(&format!("http://{address}/from")).expect("valid");
        let (setup, directory) = setup();
        let host = AgentHost::start(Arc::new(setup), Some(term));
        let (reports, heard) = mpsc::channel(8);
        host.join(ReportSink::There(reports), tenure(7, 1));
        Lab {
            host,
            heard,
            source,
            silent,
            _directory: directory,
        }
    }

    /// A leader of this epoch has the node run an attempt.
    fn start(&self, epoch: u64) {
        self.start_in(tenure(epoch, 1));
    }

    fn start_in(&self, tenure: Tenure) {
        let destination = self.source.clone();
        let mut assignment = assignment(self.source.clone(), destination, JobParameters::default());
        assignment.to.tenure = tenure;
        self.host.take(Order::Start(Box::new(assignment)), None);
    }

    fn forget(&self) {
        let (transfer, attempt) = (TransferId(1), Attempt(1));
        self.host.take(Order::Forget { transfer, attempt }, None);
    }

    /// What is claimed, and what has ended, when a leader comes.
    fn rejoin(&mut self, epoch: u64) -> (usize, usize) {
        let (reports, heard) = mpsc::channel(8);
        self.heard = heard;
        let told = self.host.join(ReportSink::There(reports), tenure(epoch, 1));
        (told.claims.len(), told.ends.len())
    }

    async fn hears_that_it_was_dropped(&mut self) {
        let heard = tokio::time::timeout(Duration::from_secs(20), self.heard.recv()).await;
        match heard.expect("something is told in time") {
            Some(AgentReport::Ended {
                transfer: TransferId(1),
                attempt: Attempt(1),
                outcome: AttemptOutcome::Dropped,
            }) => {}
            other => panic!("{other:?}"),
        }
    }
}

fn tenure(epoch: u64, holder: u64) -> Tenure {
    let epoch = Epoch(epoch);
    Tenure { epoch, holder }
}

const LONG: Duration = Duration::from_secs(600);

#[tokio::test]
async fn an_attempt_that_comes_before_any_answer_of_the_leader_is_told_as_dropped() {
    let mut lab = Lab::new(LONG).await;
    lab.start(7);
    lab.hears_that_it_was_dropped().await;
    assert_eq!(lab.rejoin(7), (0, 1), "until its end is durable");
    lab.forget();
    assert_eq!(lab.rejoin(7), (0, 0));
}

#[tokio::test]
async fn an_attempt_of_an_earlier_leader_is_told_as_dropped() {
    let mut lab = Lab::new(LONG).await;
    lab.host.hear(Instant::now());
    lab.start(6);
    lab.hears_that_it_was_dropped().await;
    lab.start(7);
    assert_eq!(lab.rejoin(7), (0, 1), "not run after its end either");
}

#[tokio::test]
async fn attempts_that_are_dropped_for_want_of_a_leader_are_told_as_dropped() {
    let mut lab = Lab::new(Duration::from_millis(300)).await;
    lab.host.hear(Instant::now());
    lab.start(7);
    assert_eq!(lab.rejoin(7), (1, 0));
    lab.hears_that_it_was_dropped().await;
    assert_eq!(lab.rejoin(7), (0, 1));
}

#[tokio::test]
async fn attempts_go_on_while_a_leader_is_heard_of() {
    let mut lab = Lab::new(LONG).await;
    lab.host.hear(Instant::now());
    lab.start(7);
    assert_eq!(lab.rejoin(8), (1, 0), "and outlive it");
    lab.start(8);
    assert_eq!(lab.rejoin(8), (1, 0), "once each");
}

#[tokio::test]
async fn after_a_restore_of_the_database_a_lower_epoch_is_followed() {
    let mut lab = Lab::new(LONG).await;
    lab.host.hear(Instant::now());
    assert_eq!(lab.rejoin(3), (0, 0));
    lab.start(3);
    assert_eq!(lab.rejoin(3), (1, 0));
}

#[tokio::test]
async fn of_two_leaders_with_one_epoch_that_is_taken_which_the_database_names() {
    let mut lab = Lab::new(LONG).await;
    lab.host.hear(Instant::now());
    lab.start_in(tenure(7, 2));
    lab.hears_that_it_was_dropped().await;
    lab.forget();
    lab.start_in(tenure(7, 0));
    assert_eq!(
        lab.rejoin(7),
        (1, 0),
        "one of an earlier version does not tell more"
    );
}

#[tokio::test]
async fn no_byte_moves_by_the_word_of_a_leader_that_was_silent_for_too_long() {
    let mut lab = Lab::new(LONG).await;
    lab.host.hear(Instant::now());
    lab.start(7);
    let asked = tokio::time::timeout(Duration::from_secs(20), lab.silent.accept()).await;
    let _connection = asked.expect("it asks its source").expect("connected");
    lab.host.held().heard = Instant::now().checked_sub(LONG);
    let (transfer, attempt) = (TransferId(1), Attempt(1));
    let proceed = Order::Proceed { transfer, attempt };
    lab.host.take(proceed, None);
    // At once, and not when it is looked at next who leads.
    assert!(lab.host.held().agents.values().all(|it| it.is_orphan));
    lab.hears_that_it_was_dropped().await;
}

#[tokio::test]
async fn when_all_are_dropped_nothing_of_them_is_left_to_run_or_to_tell() {
    let mut lab = Lab::new(LONG).await;
    lab.host.hear(Instant::now());
    lab.start(7);
    lab.host.drop_all().await;
    assert_eq!(lab.rejoin(7), (0, 0));
    lab.start(7);
    assert_eq!(lab.rejoin(7), (1, 0), "it may be begun anew");
}
