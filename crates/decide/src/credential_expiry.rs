//! When somebody should look at what ends: certificates, revocation lists, keys. Early enough to get a new one, and
//! not so early that nobody looks any more.

use penstock_model::Timestamp;
use serde::Serialize;
use std::time::Duration;

const DAY: Duration = Duration::from_secs(86_400);
/// A certificate that ends sooner deserves a look: authorities need days to issue one.
pub const CERTIFICATE_WARNING: Duration = Duration::from_secs(30 * 86_400);
/// A revocation list that ends sooner does, once half of its life is over: it should have been fetched again.
pub const REVOCATION_LIST_WARNING: Duration = Duration::from_secs(7 * 86_400);
/// The age at which a signing key should be rotated.
pub const KEY_AGE_MAX: Duration = Duration::from_secs(365 * 86_400);

/// What ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ExpiringItem {
    /// The certificate that the doors show.
    HostCertificate,
    /// The certificate of a trusted authority.
    Authority,
    /// What an authority has taken back.
    RevocationList,
    /// A key that signs tokens. It does not end, but grows old.
    SigningKey,
}

impl ExpiringItem {
    /// As labels and reports write it.
    pub fn name(self) -> &'static str {
        match self {
            ExpiringItem::HostCertificate => "host_certificate",
            ExpiringItem::Authority => "authority",
            ExpiringItem::RevocationList => "revocation_list",
            ExpiringItem::SigningKey => "signing_key",
        }
    }
}

/// How it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CredentialValidity {
    /// Nothing to do.
    Good,
    /// A person should look.
    Soon,
    /// It has ended.
    Over,
}

/// How something stands that began and ends at these times.
pub fn standing(
    what: ExpiringItem,
    begins: Timestamp,
    ends: Timestamp,
    now: Timestamp,
) -> CredentialValidity {
    let left = ends.since(now);
    let life = ends.since(begins);
    let used = now.since(begins).min(life);
    let soon = match what {
        ExpiringItem::HostCertificate | ExpiringItem::Authority => left < CERTIFICATE_WARNING,
        ExpiringItem::RevocationList => {
            used > life * 3 / 4 || (left < REVOCATION_LIST_WARNING && used > life / 2)
        }
        ExpiringItem::SigningKey => false,
    };
    match (left.is_zero(), what, soon) {
        // An old key signs as well as a young one: it is a matter of prudence.
        (true, ExpiringItem::SigningKey, _) => CredentialValidity::Soon,
        (true, ..) => CredentialValidity::Over,
        (false, _, true) => CredentialValidity::Soon,
        (false, _, false) => CredentialValidity::Good,
    }
}

/// Whole days until then; negative when it is over.
pub fn days_left(ends: Timestamp, now: Timestamp) -> i64 {
    let day = i64::try_from(DAY.as_millis()).unwrap_or(i64::MAX);
    ends.0.saturating_sub(now.0).div_euclid(day)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_795_241_992_000);

    /// Days since it began and until it ends.
    fn check(what: ExpiringItem, since: i64, until: i64, expected: CredentialValidity) {
        let day = 86_400_000;
        let (begins, ends) = (
            Timestamp(NOW.0 - since * day),
            Timestamp(NOW.0 + until * day),
        );
        assert_eq!(
            standing(what, begins, ends, NOW),
            expected,
            "{what:?} {since} {until}"
        );
        assert_eq!(days_left(ends, NOW), until);
    }

    #[test]
    fn a_certificate_deserves_a_look_a_month_before_its_end() {
        for what in [ExpiringItem::HostCertificate, ExpiringItem::Authority] {
            check(what, 300, 31, CredentialValidity::Good);
            check(what, 300, 29, CredentialValidity::Soon);
            check(what, 0, 29, CredentialValidity::Soon);
            check(what, 300, 0, CredentialValidity::Over);
            check(what, 300, -1, CredentialValidity::Over);
        }
    }

    #[test]
    fn a_revocation_list_should_have_been_fetched_again_when_most_of_its_life_is_over() {
        let list = ExpiringItem::RevocationList;
        check(list, 1, 29, CredentialValidity::Good);
        check(list, 22, 8, CredentialValidity::Good);
        check(list, 24, 6, CredentialValidity::Soon);
        check(list, 300, 65, CredentialValidity::Soon);
        // A list of a week is not a week from its end for long.
        check(list, 1, 6, CredentialValidity::Good);
        check(list, 4, 3, CredentialValidity::Soon);
        check(list, 7, -1, CredentialValidity::Over);
    }

    #[test]
    fn an_old_key_is_a_warning_and_never_an_error() {
        check(ExpiringItem::SigningKey, 364, 1, CredentialValidity::Good);
        check(ExpiringItem::SigningKey, 400, -35, CredentialValidity::Soon);
    }
}
