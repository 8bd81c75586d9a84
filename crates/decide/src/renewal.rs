//! When tokens are renewed, and what an issuer's refusal means.

use penstock_model::Timestamp;
use std::time::Duration;

/// How long before its end a token is renewed at the latest; FTS's margin.
const MARGIN_MAX: Duration = Duration::from_secs(300);
/// The wait before an issuer is asked again for the first time, and the longest one.
const DELAY: Duration = Duration::from_secs(2);
const DELAY_MAX: Duration = Duration::from_secs(120);
/// OAuth error codes (RFC 6749 §5.2, RFC 8693 §2.2.2) that tell of the site's registration with the issuer and not of
/// the token: operators can mend it while transfers wait.
const OF_CLIENT: [&str; 2] = ["invalid_client", "unauthorized_client"];

/// When a token that was obtained at one time and ends at another is renewed: with a third of its life left, but not
/// more than five minutes.
pub fn renew_at(obtained: Timestamp, expires: Timestamp) -> Timestamp {
    let life = expires.since(obtained);
    let margin = (life / 3).min(MARGIN_MAX);
    obtained + (life - margin)
}

/// How long to wait before an issuer is asked again that failed to answer so many times. Doubles, and takes between
/// 75 % and 125 % of that by `seed`.
pub fn next_try(failures: u32, seed: u64) -> Duration {
    let doubled = DELAY.saturating_mul(1 << failures.min(16)).min(DELAY_MAX);
    let percent = 75 + (seed ^ u64::from(failures)) % 51;
    doubled * percent as u32 / 100
}

/// Whether a token endpoint that answered so may give what it was asked for later.
pub fn may_change_its_mind(status: u16, error: &str) -> bool {
    match status {
        408 | 429 | 500.. => true,
        _ => OF_CLIENT.contains(&error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_renewed_some_time_before_it_ends() {
        let check = |life: u64, expected: u64| {
            let begin = Timestamp(1_000_000);
            let at = renew_at(begin, begin + Duration::from_secs(life));
            assert_eq!(at, begin + Duration::from_secs(expected), "{life}");
        };
        check(3600, 3300);
        check(600, 400);
        check(30, 20);
        check(0, 0);
        let ended = renew_at(Timestamp(5000), Timestamp(1000));
        assert_eq!(ended, Timestamp(5000), "at once");
    }

    #[test]
    fn an_issuer_that_fails_is_asked_less_and_less_often() {
        let waits: Vec<u64> = (0..9).map(|n| next_try(n, 25).as_secs()).collect();
        assert!(
            waits.windows(2).all(|two| two[1] + 60 >= two[0]),
            "{waits:?}"
        );
        assert!(
            waits[0] <= 2 && waits[8] >= 90 && waits[8] <= 150,
            "{waits:?}"
        );
        assert!(next_try(u32::MAX, u64::MAX) <= DELAY_MAX * 2);
    }

    #[test]
    fn what_operators_can_mend_is_waited_for() {
        let check = |status, error: &str, expected| {
            assert_eq!(
                may_change_its_mind(status, error),
                expected,
                "{status} {error}"
            );
        };
        check(401, "invalid_client", true);
        check(503, "", true);
        check(429, "slow_down", true);
        check(400, "invalid_grant", false);
        check(403, "access_denied", false);
        check(400, "invalid_scope", false);
    }
}
