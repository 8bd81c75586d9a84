//! Which write locks exist, which of them stand in the way of a request, and whether a new one may be granted
//! (RFC 4918 §6, §7).
//!
//! Pure: time comes as `now`, tokens are made elsewhere. Knows no files: a lock is on a path.

use penstock_model::{Lock, LockReach, LockScope, LockToken, NamespacePath, Timestamp, UserName};
use std::collections::BTreeMap;
use thiserror::Error;

/// What a request is about to change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteScope {
    /// The content or properties of what stands at a path, or the list of members of a directory there. To
    /// make or remove a member touches its directory (RFC 4918 §7.4).
    Itself(NamespacePath),
    /// What stands at a path with everything below: it is removed or goes elsewhere.
    Tree(NamespacePath),
}

/// Who asks, with the lock tokens that came with the request.
#[derive(Debug, Clone, Copy)]
pub struct LockRequester<'a> {
    /// The user; `None` holds nothing.
    pub user: Option<&'a UserName>,
    /// The macaroon that speaks for the user, when it is one.
    pub macaroon: Option<&'a str>,
    /// Tokens submitted, of whomever.
    pub tokens: &'a [LockToken],
}

/// How many locks may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockLimits {
    pub per_user_max: usize,
    pub total_max: usize,
}

/// Why a lock is not granted.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LockRefusal {
    /// Other locks are in the way: their roots, in order.
    #[error("{} is locked already", .0.first().map_or_else(String::new, ToString::to_string))]
    Conflict(Vec<NamespacePath>),
    /// The user has too many.
    #[error(
        "{user} holds {count} locks, the most that one user may; unlock some, or let them expire"
    )]
    TooManyOfUser { user: UserName, count: usize },
    #[error("this site keeps {0} locks, the most that it may; try again when some have expired")]
    TooMany(usize),
}

#[derive(Debug, Default)]
pub struct LockTable {
    by_root: BTreeMap<NamespacePath, Vec<Lock>>,
    roots: BTreeMap<LockToken, NamespacePath>,
    by_user: BTreeMap<UserName, usize>,
    /// No lock ends before this.
    first_end: Option<Timestamp>,
    /// No lock ends after this.
    last_end: Option<Timestamp>,
}

impl LockTable {
    /// How many there are, with those that have expired and were not swept away yet.
    pub fn len(&self) -> usize {
        self.roots.len()
    }

    /// True when there is none.
    pub fn is_empty(&self) -> bool {
        self.roots.is_empty()
    }

    /// Forgets what has expired and gives back the tokens. Costs one comparison while nothing has.
    pub fn expire(&mut self, now: Timestamp) -> Vec<LockToken> {
        if self.first_end.is_none_or(|end| end > now) {
            return Vec::new();
        }
        let all = self.by_root.values().flatten();
        let ended: Vec<LockToken> = all
            .filter(|lock| lock.expires <= now)
            .map(|lock| lock.token)
            .collect();
        for token in &ended {
            self.release(*token);
        }
        let left = self.by_root.values().flatten();
        self.first_end = left.map(|lock| lock.expires).min();
        ended
    }

    /// Brings locks that end later than any lock may to the latest end that is possible, and gives them back. They were
    /// taken while the clock was ahead. For use while it is believed; costs one comparison while there is none.
    pub fn cap(&mut self, end_max: Timestamp) -> Vec<Lock> {
        if self.last_end.is_none_or(|end| end <= end_max) {
            return Vec::new();
        }
        let all = self.by_root.values().flatten();
        let late = all.filter(|lock| lock.expires > end_max);
        let late: Vec<LockToken> = late.map(|lock| lock.token).collect();
        self.last_end = Some(end_max);
        let tokens = late.into_iter();
        tokens
            .filter_map(|token| self.refresh(token, end_max))
            .collect()
    }

    /// The lock with this token.
    pub fn get(&self, token: LockToken) -> Option<&Lock> {
        let locks = self.by_root.get(self.roots.get(&token)?)?;
        locks.iter().find(|lock| lock.token == token)
    }

    /// The locks that writing at this path needs, from the root down.
    pub fn covering(&self, path: &NamespacePath) -> Vec<&Lock> {
        let mut found = Vec::new();
        let mut at = Some(path.clone());
        while let Some(root) = at {
            let locks = self.by_root.get(&root).into_iter().flatten();
            found.extend(locks.filter(|lock| lock.covers(path)));
            at = root.parent();
        }
        found.reverse();
        found
    }

    /// The roots of locks that forbid the request to this holder: none means go on. Of several locks on one
    /// thing, which are then all shared, one token suffices (RFC 4918 §6.2).
    pub fn in_the_way(
        &self,
        touched: &[WriteScope],
        holder: &LockRequester<'_>,
    ) -> Vec<NamespacePath> {
        let mut forbidding = Vec::new();
        for touched in touched {
            let path = match touched {
                WriteScope::Itself(path) | WriteScope::Tree(path) => path,
            };
            forbidding.extend(self.unheld(path, holder));
            if let WriteScope::Tree(path) = touched {
                let below = self.rooted_below(path);
                forbidding.extend(below.filter_map(|(root, _)| self.unheld(root, holder)));
            }
        }
        forbidding.sort();
        forbidding.dedup();
        forbidding
    }

    /// The root of a lock on this path of which the holder has no token, when there is one and no other
    /// token helps.
    fn unheld(&self, path: &NamespacePath, holder: &LockRequester<'_>) -> Option<NamespacePath> {
        let covering = self.covering(path);
        let held = |lock: &&Lock| {
            let is_theirs = |user| lock.is_usable_by(user, holder.macaroon);
            holder.user.is_some_and(is_theirs) && holder.tokens.contains(&lock.token)
        };
        match covering.iter().copied().any(|lock| held(&lock)) {
            true => None,
            false => covering.last().map(|lock| lock.root.clone()),
        }
    }

    /// Locks strictly below a path, by root.
    fn rooted_below<'a>(
        &'a self,
        path: &'a NamespacePath,
    ) -> impl Iterator<Item = (&'a NamespacePath, &'a Vec<Lock>)> {
        // Paths are ordered name by name, so what is below a path follows it without a gap.
        let from = self.by_root.range(path..);
        from.take_while(move |(root, _)| root.is_within(path))
            .filter(move |(root, _)| *root != path)
    }

    /// Adds a lock, or says what is in its way.
    pub fn grant(&mut self, lock: Lock, limits: &LockLimits) -> Result<(), LockRefusal> {
        self.check(&lock, limits)?;
        self.restore(lock);
        Ok(())
    }

    /// Whether a lock would be granted, or what is in its way.
    pub fn check(&self, lock: &Lock, limits: &LockLimits) -> Result<(), LockRefusal> {
        let excludes = |other: &Lock| {
            LockScope::Exclusive == lock.scope || other.scope == LockScope::Exclusive
        };
        let covering = self.covering(&lock.root).into_iter();
        let mut conflicts: Vec<NamespacePath> = covering
            .filter(|other| excludes(other))
            .map(|other| other.root.clone())
            .collect();
        if lock.reach == LockReach::Tree {
            let below = self.rooted_below(&lock.root);
            let excluding = below.filter(|(_, locks)| locks.iter().any(excludes));
            conflicts.extend(excluding.map(|(root, _)| root.clone()));
        }
        if !conflicts.is_empty() {
            conflicts.sort();
            conflicts.dedup();
            return Err(LockRefusal::Conflict(conflicts));
        }
        if self.len() >= limits.total_max {
            return Err(LockRefusal::TooMany(self.len()));
        }
        let count = self.by_user.get(&lock.user).copied().unwrap_or(0);
        if count >= limits.per_user_max {
            let user = lock.user.clone();
            return Err(LockRefusal::TooManyOfUser { user, count });
        }
        Ok(())
    }

    /// Puts a lock back that was granted before, as after a restart.
    pub fn restore(&mut self, lock: Lock) {
        self.release(lock.token);
        *self.by_user.entry(lock.user.clone()).or_default() += 1;
        let ends = self
            .first_end
            .map_or(lock.expires, |end| end.min(lock.expires));
        self.first_end = Some(ends);
        self.last_end = self.last_end.max(Some(lock.expires));
        self.roots.insert(lock.token, lock.root.clone());
        self.by_root
            .entry(lock.root.clone())
            .or_default()
            .push(lock);
    }

    /// Gives a lock a new end, and gives it back with it; `None` when there is no such lock.
    pub fn refresh(&mut self, token: LockToken, expires: Timestamp) -> Option<Lock> {
        let mut lock = self.release(token)?;
        lock.expires = expires;
        self.restore(lock.clone());
        Some(lock)
    }

    /// Removes a lock, and gives it back; `None` when there is no such lock.
    pub fn release(&mut self, token: LockToken) -> Option<Lock> {
        let root = self.roots.remove(&token)?;
        let locks = self.by_root.get_mut(&root)?;
        let at = locks.iter().position(|lock| lock.token == token)?;
        let lock = locks.swap_remove(at);
        if locks.is_empty() {
            self.by_root.remove(&root);
        }
        if let Some(count) = self.by_user.get_mut(&lock.user) {
            *count -= 1;
            if *count == 0 {
                self.by_user.remove(&lock.user);
            }
        }
        Some(lock)
    }

    /// Removes the locks whose root is this path or below it, because nothing stands there any more.
    pub fn release_within(&mut self, path: &NamespacePath) -> Vec<LockToken> {
        let mut tokens: Vec<LockToken> = self.below_tokens(path);
        if let Some(locks) = self.by_root.get(path) {
            tokens.extend(locks.iter().map(|lock| lock.token));
        }
        for token in &tokens {
            self.release(*token);
        }
        tokens
    }

    /// The same for locks strictly below it.
    pub fn release_below(&mut self, path: &NamespacePath) -> Vec<LockToken> {
        let tokens = self.below_tokens(path);
        for token in &tokens {
            self.release(*token);
        }
        tokens
    }

    fn below_tokens(&self, path: &NamespacePath) -> Vec<LockToken> {
        let below = self.rooted_below(path);
        below
            .flat_map(|(_, locks)| locks.iter().map(|lock| lock.token))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    const LIMITS: LockLimits = LockLimits {
        per_user_max: 3,
        total_max: 5,
    };

    fn path(text: &str) -> NamespacePath {
        NamespacePath::parse(text).expect("a valid path")
    }

    fn token(number: u128) -> LockToken {
        LockToken(Uuid::from_u128(number))
    }

    /// `1 alice /d tree exclusive`.
    fn lock(text: &str) -> Lock {
        let words: Vec<&str> = text.split(' ').collect();
        Lock {
            token: token(words[0].parse().expect("a number")),
            user: UserName::new(words[1]),
            root: path(words[2]),
            reach: match words[3] {
                "tree" => LockReach::Tree,
                _ => LockReach::Itself,
            },
            scope: match words[4] {
                "shared" => LockScope::Shared,
                _ => LockScope::Exclusive,
            },
            macaroon: None,
            owner: String::new(),
            expires: Timestamp(1000),
        }
    }

    fn table(locks: &[&str]) -> LockTable {
        let mut table = LockTable::default();
        for text in locks {
            table.grant(lock(text), &LIMITS).expect("granted");
        }
        table
    }

    fn shown(paths: &[NamespacePath]) -> String {
        let shown: Vec<String> = paths.iter().map(ToString::to_string).collect();
        shown.join(" ")
    }

    /// `tokens` of `user` against touching `what`: `/f` itself, `/d/**` with all below.
    fn check(locks: &[&str], user: &str, tokens: &[u128], what: &str, expected: &str) {
        let touched = match what.strip_suffix("/**") {
            Some(tree) => WriteScope::Tree(path(if tree.is_empty() { "/" } else { tree })),
            None => WriteScope::Itself(path(what)),
        };
        let user = UserName::new(user);
        let tokens: Vec<LockToken> = tokens.iter().copied().map(token).collect();
        let holder = LockRequester {
            user: Some(&user),
            macaroon: None,
            tokens: &tokens,
        };
        let got = table(locks).in_the_way(&[touched], &holder);
        assert_eq!(shown(&got), expected, "{locks:?} {user} {tokens:?} {what}");
    }

    #[test]
    fn a_lock_stops_whoever_does_not_hold_it() {
        let locks = ["1 alice /d/f itself exclusive"];
        check(&locks, "alice", &[], "/d/f", "/d/f");
        check(&locks, "alice", &[1], "/d/f", "");
        check(&locks, "bob", &[1], "/d/f", "/d/f");
        check(&locks, "alice", &[2], "/d/f", "/d/f");
        check(&locks, "bob", &[], "/d", "");
        check(&locks, "bob", &[], "/d/**", "/d/f");
        check(&locks, "bob", &[], "/d/f/x", "");
        check(&locks, "bob", &[], "/d/fx", "");
        check(&locks, "bob", &[], "/**", "/d/f");
    }

    #[test]
    fn a_deep_lock_reaches_what_does_not_exist_yet() {
        let locks = ["1 alice /d tree exclusive"];
        check(&locks, "bob", &[], "/d/new/file", "/d");
        check(&locks, "alice", &[1], "/d/new/file", "");
        check(&locks, "bob", &[], "/dd", "");
        let shallow = ["1 alice /d itself exclusive"];
        check(&shallow, "bob", &[], "/d/file", "");
        check(&shallow, "bob", &[], "/d", "/d");
    }

    #[test]
    fn one_of_several_shared_tokens_suffices() {
        let locks = [
            "1 alice /f itself shared",
            "2 bob /f itself shared",
            "3 bob / tree shared",
        ];
        check(&locks, "alice", &[1], "/f", "");
        check(&locks, "bob", &[3], "/f", "");
        check(&locks, "alice", &[2, 3], "/f", "/f");
        check(&locks, "bob", &[3], "/**", "");
        check(&locks, "bob", &[2], "/**", "/");
    }

    #[test]
    fn exclusive_locks_do_not_meet_others() {
        let mut locks = table(&["1 alice /d/f itself exclusive", "2 alice /e itself shared"]);
        let mut grant = |text: &str| match locks.grant(lock(text), &LIMITS) {
            Ok(()) => "granted".to_owned(),
            Err(LockRefusal::Conflict(roots)) => shown(&roots),
            Err(other) => other.to_string(),
        };
        assert_eq!(grant("3 bob /d/f itself shared"), "/d/f");
        assert_eq!(grant("3 bob /d tree shared"), "/d/f");
        assert_eq!(grant("3 bob / tree exclusive"), "/d/f /e");
        assert_eq!(grant("3 bob /d itself exclusive"), "granted");
        assert_eq!(grant("4 bob /e itself shared"), "granted");
        assert_eq!(grant("5 carol /e/x tree exclusive"), "granted");
        assert_eq!(
            grant("6 carol /g itself shared"),
            "this site keeps 5 locks, the most that it may; try again when some have expired"
        );
    }

    #[test]
    fn one_user_cannot_take_all_locks() {
        let mut locks = table(&[
            "1 a /1 itself shared",
            "2 a /2 itself shared",
            "3 a /3 itself shared",
        ]);
        assert_eq!(
            locks.grant(lock("4 a /4 itself shared"), &LIMITS),
            Err(LockRefusal::TooManyOfUser {
                user: UserName::new("a"),
                count: 3
            })
        );
        assert!(
            locks
                .release(token(2))
                .is_some_and(|lock| lock.root == path("/2"))
        );
        assert_eq!(locks.grant(lock("4 a /4 itself shared"), &LIMITS), Ok(()));
    }

    #[test]
    fn a_lock_ends_at_its_time_unless_it_is_refreshed() {
        let mut locks = table(&["1 a /1 itself shared", "2 a /2 itself shared"]);
        assert!(locks.expire(Timestamp(999)).is_empty());
        assert!(locks.refresh(token(2), Timestamp(2000)).is_some());
        assert_eq!(locks.expire(Timestamp(1000)), [token(1)]);
        assert_eq!((locks.len(), locks.get(token(1))), (1, None));
        assert_eq!(locks.expire(Timestamp(2000)), [token(2)]);
        assert!(locks.is_empty() && locks.refresh(token(2), Timestamp(3000)).is_none());
    }

    #[test]
    fn a_lock_of_a_clock_that_was_ahead_ends_when_the_longest_lock_would() {
        let mut locks = table(&["1 a /1 itself shared", "2 a /2 itself shared"]);
        locks.refresh(token(2), Timestamp(9_000_000));
        let capped = locks.cap(Timestamp(5000));
        let ends: Vec<_> = capped
            .iter()
            .map(|lock| (lock.token, lock.expires))
            .collect();
        assert_eq!(ends, [(token(2), Timestamp(5000))]);
        assert!(locks.cap(Timestamp(6000)).is_empty());
        assert_eq!(locks.expire(Timestamp(5000)), [token(1), token(2)]);
    }

    #[test]
    fn locks_go_with_what_they_lock() {
        let of = || {
            table(&[
                "1 a /d tree shared",
                "2 a /d/x itself shared",
                "3 b /dd itself shared",
            ])
        };
        assert_eq!(of().release_within(&path("/d")), [token(2), token(1)]);
        assert_eq!(of().release_below(&path("/d")), [token(2)]);
        assert_eq!(of().release_below(&path("/")).len(), 3);
    }
}
