//! How a transfer service stands at one moment: its overview and the curves of the last minute, put together.

use penstock_model::{Bytes, Rate};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::time::Duration;

/// What the service says of now. Other members are left out.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Seen {
    at: i64,
    site: String,
    #[serde(default)]
    counted_since: i64,
    totals: Totals,
    agents: Agents,
    #[serde(default)]
    links: Vec<SeenLink>,
    #[serde(default)]
    waiting: Vec<WaitingReason>,
    #[serde(default)]
    active_transfers: Vec<SeenTransfer>,
}

/// Counts over all links.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Totals {
    /// Waiting now.
    pub submitted: u64,
    /// Running now.
    pub active: u64,
    #[serde(default)]
    pub staging: u64,
    #[serde(default)]
    pub archiving: u64,
    pub finished: u64,
    pub failed: u64,
    pub canceled: u64,
    pub moved_bytes: u64,
    pub rate_bytes_per_second: u64,
}

/// Running transfers of the service, and how many may.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Agents {
    pub active: u32,
    pub limit: u32,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct SeenLink {
    source: String,
    destination: String,
    active: u32,
    limit: u32,
    queued: u64,
    /// An earlier version of the service does not tell it.
    #[serde(default)]
    staging: u64,
    rate_bytes_per_second: u64,
    waiting_because: Option<String>,
    last_failure: Option<String>,
}

/// Transfers that wait for one kind of reason.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct WaitingReason {
    pub reason: String,
    pub text: String,
    pub transfers: u64,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct SeenTransfer {
    transfer: u64,
    job: String,
    source: String,
    destination: String,
    moved_bytes: u64,
    size_bytes: Option<u64>,
    seconds: f64,
}

/// The curves. An unknown second is `null`.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Series {
    #[serde(default)]
    total: Vec<Option<u64>>,
    #[serde(default)]
    links: Vec<LinkCurve>,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct LinkCurve {
    source: String,
    destination: String,
    #[serde(default)]
    rates: Vec<Option<u64>>,
}

/// All of it, as `--json` tells it.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Standing {
    /// Milliseconds since 1970.
    pub at: i64,
    pub site: String,
    /// From when on finished, failed, canceled and moved are counted.
    pub counted_since: i64,
    pub totals: Totals,
    pub agents: Agents,
    /// Bytes per second in each second of the last minute; `null`: not known.
    pub rates: Vec<Option<u64>>,
    /// The busiest first.
    pub links: Vec<LinkStanding>,
    /// Why files wait, the most frequent reason first.
    pub waiting: Vec<WaitingReason>,
    /// Files on their way, the oldest first.
    pub transfers: Vec<TransferStanding>,
}

#[derive(Debug, Clone, Default, Serialize)]
pub struct LinkStanding {
    pub source: String,
    pub destination: String,
    pub rate_bytes_per_second: u64,
    /// Bytes per second in each second of the last minute; `null`: not known.
    pub rates: Vec<Option<u64>>,
    pub active: u32,
    pub limit: u32,
    pub queued: u64,
    /// Whose files are to come from tape.
    pub staging: u64,
    pub waiting_because: Option<String>,
    pub last_failure: Option<String>,
}

#[derive(Debug, Clone, Default, Serialize)]
pub struct TransferStanding {
    pub transfer: u64,
    pub job: String,
    pub source: String,
    pub destination: String,
    pub moved_bytes: u64,
    pub size_bytes: Option<u64>,
    pub seconds: f64,
    /// Since the look before, or on average; `None`: no time has passed.
    pub rate_bytes_per_second: Option<u64>,
    /// Until it will have arrived at that rate; `None`: not known.
    pub remaining_seconds: Option<u64>,
}

impl Standing {
    /// Puts together what was seen; rates of files are those since `before` when they ran then.
    pub fn of(seen: Seen, series: Series, before: Option<&Standing>) -> Standing {
        let mut curves: HashMap<(String, String), Vec<Option<u64>>> = series
            .links
            .into_iter()
            .map(|curve| ((curve.source, curve.destination), curve.rates))
            .collect();
        let link = |link: SeenLink| {
            let name = (link.source, link.destination);
            let rates = curves.remove(&name).unwrap_or_default();
            let (source, destination) = name;
            LinkStanding {
                source,
                destination,
                rate_bytes_per_second: link.rate_bytes_per_second,
                rates,
                active: link.active,
                limit: link.limit,
                queued: link.queued,
                staging: link.staging,
                waiting_because: link.waiting_because,
                last_failure: link.last_failure,
            }
        };
        let mut links: Vec<LinkStanding> = seen.links.into_iter().map(link).collect();
        let name = |link: &LinkStanding| (link.source.clone(), link.destination.clone());
        links.sort_by(|one, other| {
            let busy = |link: &LinkStanding| {
                let waiting = (link.queued, link.staging);
                (link.rate_bytes_per_second, link.active, waiting)
            };
            busy(other)
                .cmp(&busy(one))
                .then_with(|| name(one).cmp(&name(other)))
        });
        let mut waiting = seen.waiting;
        waiting.sort_by(|one, other| {
            let by_count = other.transfers.cmp(&one.transfers);
            by_count.then_with(|| one.text.cmp(&other.text))
        });
        let since = before.map(|before| {
            let moved = before.transfers.iter();
            let moved = moved.map(|one| (one.transfer, one.moved_bytes));
            (seen.at - before.at, moved.collect::<HashMap<u64, u64>>())
        });
        let transfer = |one: SeenTransfer| {
            let rate = rate_of(&one, since.as_ref());
            let left = one
                .size_bytes
                .map(|size| size.saturating_sub(one.moved_bytes));
            let remaining = left.zip(rate.filter(|rate| *rate > 0));
            TransferStanding {
                rate_bytes_per_second: rate,
                remaining_seconds: remaining.map(|(left, rate)| left.div_ceil(rate)),
                transfer: one.transfer,
                job: one.job,
                source: one.source,
                destination: one.destination,
                moved_bytes: one.moved_bytes,
                size_bytes: one.size_bytes,
                seconds: one.seconds,
            }
        };
        let transfers = seen.active_transfers.into_iter();
        let mut transfers: Vec<TransferStanding> = transfers.map(transfer).collect();
        transfers.sort_by(|one, other| {
            let oldest_first = other.seconds.total_cmp(&one.seconds);
            oldest_first.then_with(|| one.transfer.cmp(&other.transfer))
        });
        Standing {
            at: seen.at,
            site: seen.site,
            counted_since: seen.counted_since,
            totals: seen.totals,
            agents: seen.agents,
            rates: series.total,
            links,
            waiting,
            transfers,
        }
    }
}

/// Agents report every now and then, so of a file that has not moved since the last look the mean is told.
fn rate_of(one: &SeenTransfer, since: Option<&(i64, HashMap<u64, u64>)>) -> Option<u64> {
    let mean = || {
        let elapsed = Duration::try_from_secs_f64(one.seconds).ok()?;
        Rate::over(Bytes(one.moved_bytes), elapsed).map(|rate| rate.0)
    };
    let recent = since.and_then(|(milliseconds, moved)| {
        let before = moved.get(&one.transfer)?;
        let moved = one
            .moved_bytes
            .checked_sub(*before)
            .filter(|moved| *moved > 0)?;
        let elapsed = Duration::from_millis(u64::try_from(*milliseconds).ok()?);
        Rate::over(Bytes(moved), elapsed).map(|rate| rate.0)
    });
    recent.or_else(mean)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn seen(at: i64, moved: u64) -> Seen {
        let link = |host: &str, rate: u64, queued: u64| {
            let staging = if host == "b" { 2 } else { 0 };
            json!({"source": format!("https://{host}"), "destination": "https://z", "active": 1, "limit": 5,
                   "queued": queued, "staging": staging, "rate_bytes_per_second": rate, "waiting_because": null, "last_failure": null})
        };
        let value = json!({
            "at": at, "site": "here", "counted_since": 1,
            "totals": {"submitted": 3, "active": 1, "finished": 2, "failed": 0, "canceled": 0,
                       "moved_bytes": 10, "rate_bytes_per_second": 7},
            "agents": {"active": 1, "limit": 500},
            "links": [link("d", 0, 0), link("b", 0, 0), link("a", 0, 3), link("c", 7, 0)],
            "waiting": [{"reason": "x", "text": "few", "transfers": 1}, {"reason": "y", "text": "many", "transfers": 2}],
            "active_transfers": [{"transfer": 4, "job": "j", "source": "https://c/f", "destination": "https://z/f",
                                  "moved_bytes": moved, "size_bytes": 1000, "seconds": 10.0}],
            "of a later version": {},
        });
        serde_json::from_value(value).expect("an overview")
    }

    #[test]
    fn the_busiest_comes_first_and_rates_are_those_since_the_look_before() {
        let curves = json!({"total": [1, null, 7], "links": [
            {"source": "https://c", "destination": "https://z", "rates": [1, null, 7]}]});
        let series: Series = serde_json::from_value(curves).expect("curves");
        let first = Standing::of(seen(10_000, 100), series, None);
        let names: Vec<&str> = first
            .links
            .iter()
            .map(|link| link.source.as_str())
            .collect();
        assert_eq!(names, ["https://c", "https://a", "https://b", "https://d"]);
        assert_eq!(first.links[0].rates, [Some(1), None, Some(7)]);
        assert_eq!(first.waiting[0].text, "many");
        let rates = |standing: &Standing| {
            let one = &standing.transfers[0];
            (one.rate_bytes_per_second, one.remaining_seconds)
        };
        assert_eq!(rates(&first), (Some(10), Some(90)));
        let second = Standing::of(seen(12_000, 500), Series::default(), Some(&first));
        assert_eq!(rates(&second), (Some(200), Some(3)));
        let idle = Standing::of(seen(13_000, 500), Series::default(), Some(&second));
        assert_eq!(rates(&idle), (Some(50), Some(10)), "the mean");
        let again = Standing::of(seen(14_000, 100), Series::default(), Some(&idle));
        assert_eq!(rates(&again).0, Some(10), "another attempt begins anew");
        let back = Standing::of(seen(1, 900), Series::default(), Some(&again));
        assert_eq!(rates(&back).0, Some(90), "a clock that was set back");
    }
}
