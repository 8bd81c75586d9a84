//! Turns for what a process can only do a few times at once: a bound for all users together, and a smaller one for each
//! user, so that nobody's slow requests hold up everybody's.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Who may go on now. Others wait.
pub struct FairTurns<User> {
    all: Arc<Semaphore>,
    of_user_max: usize,
    /// Of those who have a turn or wait for one, by what names all credentials of a user.
    by_user: Mutex<HashMap<User, Arc<Semaphore>>>,
}

/// One turn, of its user and of all. It belongs into the work that it is for: a client that leaves gives nothing free
/// that is still in use.
pub struct Turn {
    _of_user: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl<User: Eq + Hash + Clone> FairTurns<User> {
    /// So many turns at once, and so many of them for one user.
    pub fn new(at_once: usize, of_user_max: usize) -> FairTurns<User> {
        FairTurns {
            all: Arc::new(Semaphore::new(at_once)),
            of_user_max,
            by_user: Mutex::default(),
        }
    }

    /// Waits for a turn. The own one comes first: who waits for it keeps none of everybody's.
    pub async fn turn(&self, of: &User) -> Turn {
        let own = {
            let mut by_user = self.by_user.lock();
            by_user.retain(|_, used| Arc::strong_count(used) > 1);
            let own = by_user
                .entry(of.clone())
                .or_insert_with(|| Arc::new(Semaphore::new(self.of_user_max)));
            Arc::clone(own)
        };
        const OPEN: &str = "these semaphores are never closed";
        Turn {
            _of_user: own.acquire_owned().await.expect(OPEN),
            _of_all: Arc::clone(&self.all).acquire_owned().await.expect(OPEN),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;
    use std::time::Duration;
    use tokio::time::timeout;

    #[tokio::test]
    async fn turns_of_one_user_hold_up_nobody_else_and_who_has_none_is_forgotten() {
        let turns = Arc::new(FairTurns::new(4, 2));
        let user = |name: &str| name.to_owned();
        let held = (0..4).map(|_| {
            let turns = Arc::clone(&turns);
            let mallory = user("mallory");
            tokio::spawn(async move {
                let _turn = turns.turn(&mallory).await;
                pending::<()>().await;
            })
        });
        let held: Vec<_> = held.collect();
        tokio::task::yield_now().await;
        assert_eq!(turns.all.available_permits(), 2);
        let turn = timeout(Duration::from_secs(5), turns.turn(&user("alice"))).await;
        drop(turn.expect("alice waits for nobody"));
        for task in held {
            task.abort();
            let _ = task.await;
        }
        let _alone = turns.turn(&user("bob")).await;
        assert_eq!(turns.by_user.lock().len(), 1);
        assert_eq!(turns.all.available_permits(), 3);
    }
}
