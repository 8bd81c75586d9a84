//! What a node tells of attempts that it does not take, or does not go on with. Where it tells nothing, its leader waits
//! for ever.

use super::*;
use crate::agent::tests::{assignment, setup};
use penstock_model::{FileUrl, JobParameters};
use tokio::net::TcpListener;

/// A node whose agents wait for a source that never answers, and what its leader hears.
struct Lab {
    host: Arc<AgentHost>,
    heard: mpsc::Receiver<AgentReport>,
    source: FileUrl,
    _silent: TcpListener,
    _directory: tempfile::TempDir,
}

impl Lab {
    async fn new(term: Duration) -> Lab {
        let silent = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = silent.local_addr().expect("bound");
        let source = FileUrl::parse(&format!("http://{address}/from")).expect("valid");
        let (setup, directory) = setup();
        let host = AgentHost::start(Arc::new(setup), Some(term));
        let (teller, heard) = mpsc::channel(8);
        host.join(Teller::There(teller), Epoch(7));
        Lab {
            host,
            heard,
            source,
            _silent: silent,
            _directory: directory,
        }
    }

    /// A leader of this epoch has the node run an attempt.
    fn start(&self, epoch: u64) {
        let destination = self.source.clone();
        let mut assignment = assignment(self.source.clone(), destination, JobParameters::default());
        assignment.to.epoch = Epoch(epoch);
        self.host.take(Order::Start(Box::new(assignment)), None);
    }

    fn forget(&self) {
        let (transfer, attempt) = (TransferId(1), Attempt(1));
        self.host.take(Order::Forget { transfer, attempt }, None);
    }

    /// What is claimed, and what has ended, when a leader comes.
    fn rejoin(&mut self, epoch: u64) -> (usize, usize) {
        let (teller, heard) = mpsc::channel(8);
        self.heard = heard;
        let told = self.host.join(Teller::There(teller), Epoch(epoch));
        (told.claims.len(), told.ends.len())
    }

    async fn hears_that_it_was_dropped(&mut self) {
        let heard = tokio::time::timeout(Duration::from_secs(20), self.heard.recv()).await;
        match heard.expect("something is told in time") {
            Some(AgentReport::Ended {
                transfer: TransferId(1),
                attempt: Attempt(1),
                outcome: Outcome::Dropped,
            }) => {}
            other => panic!("{other:?}"),
        }
    }
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
