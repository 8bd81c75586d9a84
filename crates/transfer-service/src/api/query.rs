//! What parameters of requests mean, in several places alike, and reads that leave the runtime alone.

use super::ApiError;
use super::caller::Caller;
use penstock_model::{CredentialId, ProblemCode, Timestamp, VoName};
use penstock_protocol::fair_turns::{FairTurns, Turn};
use std::sync::LazyLock;
use std::time::Duration;

/// How many a list shall have at most. Errors: 400 for what is no number.
pub(super) fn limit_of(text: Option<&str>, max: usize) -> Result<usize, ApiError> {
    let Some(text) = text.filter(|text| !text.is_empty()) else {
        return Ok(max);
    };
    let limit: Option<usize> = text.parse().ok();
    limit.map(|limit| limit.min(max)).ok_or_else(|| {
        ApiError::new(
            ProblemCode::RequestMalformed,
            format!("'limit' is '{text}'; it must be 0 to {max}"),
        )
    })
}

/// Whether a host is a name or an address: of schemes that are not the web's, URLs take any text, also a pattern that
/// would match nothing.
pub(super) fn is_plain_host(host: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
    !host.is_empty() && host.bytes().all(is_plain)
}

/// Whose files and jobs a list shall show; `None`: everybody's. Errors: 403 for a VO that is not the caller's to see.
pub(super) fn vo_to_look_at(
    caller: &Caller,
    asked: Option<&str>,
) -> Result<Option<VoName>, ApiError> {
    let asked = asked.filter(|vo| !vo.is_empty()).map(VoName::new);
    if asked.as_ref().is_some_and(|vo| !caller.may_look_at(vo)) {
        return Err(ApiError::new(
            ProblemCode::PermissionDenied,
            "'vo_name' names another VO",
        ));
    }
    Ok(match caller.may_touch_everything() {
        true => asked,
        false => Some(asked.unwrap_or_else(|| caller.vo.clone())),
    })
}

/// Since when something may have ended to be listed, from FTS's `time_window`. Errors: 400 for another form.
pub(super) fn ended_since(
    window: Option<&str>,
    now: Timestamp,
) -> Result<Option<Timestamp>, ApiError> {
    let Some(text) = window.filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let window = time_window(text).ok_or_else(|| {
        ApiError::new(
            ProblemCode::RequestMalformed,
            "'time_window' must be H or H:M",
        )
    })?;
    let window = i64::try_from(window.as_millis()).unwrap_or(i64::MAX);
    Ok(Some(Timestamp(now.0.saturating_sub(window))))
}

pub(super) fn split(text: Option<&str>) -> impl Iterator<Item = &str> {
    text.unwrap_or_default()
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
}

/// `H` or `H:M`.
fn time_window(text: &str) -> Option<Duration> {
    let (hours, minutes) = text.split_once(':').unwrap_or((text, "0"));
    let (hours, minutes): (u64, u64) = (hours.parse().ok()?, minutes.parse().ok()?);
    Some(Duration::from_secs(
        hours
            .checked_mul(3600)?
            .checked_add(minutes.checked_mul(60)?)?,
    ))
}

/// Clients name storage elements with or without port; jobs know them without.
pub(super) fn without_port(text: &str) -> String {
    let url = url::Url::parse(text).ok();
    // Not by `port()`, which hides a scheme's default port.
    match url
        .as_ref()
        .and_then(|url| Some((url.scheme(), url.host_str()?)))
    {
        Some((scheme, host)) => format!("{scheme}://{}", host.to_ascii_lowercase()),
        None => text.trim_end_matches('/').to_owned(),
    }
}

/// Questions that are answered at once. All parts of the process share the threads for work that blocks: without a bound,
/// the questions of one user would keep the storage element from reading its files.
const BLOCKING_AT_ONCE: usize = 64;
/// Of one user, so that slow questions hold up nobody else's.
const BLOCKING_AT_ONCE_OF_USER: usize = 16;
static BLOCKING_TURNS: LazyLock<FairTurns<CredentialId>> =
    LazyLock::new(|| FairTurns::new(BLOCKING_AT_ONCE, BLOCKING_AT_ONCE_OF_USER));

/// Reads that may take long do not hold up other requests; each user has a share of those that are done at once.
pub(super) async fn blocking<T: Send + 'static>(
    of: &CredentialId,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ApiError> {
    in_turn(turn_to_block(of).await, work).await
}

/// A turn of a user, for [`in_turn`].
pub(super) async fn turn_to_block(of: &CredentialId) -> Turn {
    BLOCKING_TURNS.turn(of).await
}

/// The same as [`blocking`] for whoever has waited for the turn already.
pub(super) async fn in_turn<T: Send + 'static>(
    turn: Turn,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ApiError> {
    let work = move || {
        let _turn = turn;
        work()
    };
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| unexpected(&error))
}

pub(super) fn unexpected(error: &tokio::task::JoinError) -> ApiError {
    tracing::error!(%error, "a part of a request ended unexpectedly");
    ApiError::new(
        ProblemCode::InternalError,
        "the request could not be completed; see the service's log",
    )
}

/// A whole number of a query. Errors: 400, which says what is allowed.
pub(super) fn whole_number(
    name: &str,
    text: Option<&str>,
    min: i64,
    max: i64,
) -> Result<Option<i64>, ApiError> {
    let Some(text) = text else {
        return Ok(None);
    };
    let number: Option<i64> = text.parse().ok();
    let within = number.filter(|number| (min..=max).contains(number));
    within.map(Some).ok_or_else(|| {
        let text = format!("'{name}' is '{text}'; it must be a whole number from {min} to {max}");
        ApiError::new(ProblemCode::RequestMalformed, text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use tokio::time::timeout;

    #[tokio::test]
    async fn slow_questions_of_one_user_do_not_hold_up_anothers() {
        let (mallory, alice) = (CredentialId::new("mallory"), CredentialId::new("alice"));
        let (leave, left) = mpsc::channel::<()>();
        let left = std::sync::Arc::new(parking_lot::Mutex::new(left));
        let slow = (0..BLOCKING_AT_ONCE).map(|_| {
            let (mallory, left) = (mallory.clone(), std::sync::Arc::clone(&left));
            tokio::spawn(
                async move { blocking(&mallory, move || left.lock().recv().is_err()).await },
            )
        });
        let slow: Vec<_> = slow.collect();
        tokio::task::yield_now().await;
        let quick = timeout(Duration::from_secs(10), blocking(&alice, || "answered")).await;
        drop(leave);
        assert!(
            matches!(quick, Ok(Ok("answered"))),
            "alice waits for nobody"
        );
        for task in slow {
            assert!(matches!(task.await, Ok(Ok(true))));
        }
    }
}
