//! What the explainer would do about a drop, as an alternative that can be replayed.

use super::Alternative;
use penstock_decide::explain::rate_change::Population;
use penstock_decide::explain::signals::{Change, DataPathStage, Setting};
use penstock_decide::explain::split::{Factor, falls};
use penstock_decide::explain::{Cause, Evidence, RateChange};
use penstock_decide::wording;
use penstock_model::LinkId;

impl Alternative {
    /// The fix of a drop: the limit that there was before, no failures, or the rate that a stage of the copies had.
    ///
    /// Errors: its first cause has a fix that no replay knows.
    pub fn fix_of(drop: &RateChange) -> Result<Alternative, String> {
        let told = &drop.explanation;
        let cause = drop
            .first_cause()
            .ok_or("no cause of this drop is known, so it has no fix")?;
        let Population::Link(link) = &drop.population else {
            return Err(format!(
                "only the fix of a drop of one link can be replayed, and this is a drop of {}; `penstock explain` without a name lists links",
                drop.population
            ));
        };
        let change = match cause {
            Cause::SlotLimit => storage_limit_of(drop).or_else(|| limit_of(link, told.usual.limit)),
            Cause::RateLimit => None,
            Cause::SourceErrors => Some(format!("storage {} failures=0", link.source.as_str())),
            Cause::DestinationErrors => {
                Some(format!("storage {} failures=0", link.destination.as_str()))
            }
            _ => falls(&told.parts).first().and_then(|(part, _)| {
                let is_rate = part.factors == [Factor::StageRate];
                is_rate.then(|| rate_of(link, told.stage, part.from / part.to.max(1e-9)))
            }),
        };
        let change = change.ok_or_else(|| {
            format!(
                "the fix of this drop cannot be replayed: {} ({})",
                wording::cause(cause),
                cause.code()
            )
        })?;
        change.parse()
    }
}

/// The limit that a storage element had before it was lowered, where that is why the rate fell.
fn storage_limit_of(drop: &RateChange) -> Option<String> {
    let cause = drop.explanation.causes.first()?;
    let mut changes = cause.evidence.iter().filter_map(|evidence| match evidence {
        Evidence::Change(change) => Some(change),
        _ => None,
    });
    let is_of_storage = |change: &&Change| {
        matches!(
            change.setting,
            Setting::InboundLimit | Setting::OutboundLimit
        )
    };
    let change = changes.find(is_of_storage)?;
    // Where none was set, what moved ran at once at least.
    let usual = || {
        drop.explanation
            .usual
            .active
            .map(|active| active.ceil().max(1.0))
    };
    let old = change.old.clone();
    let old = old.or_else(|| usual().map(|active| active.to_string()))?;
    Some(format!("storage {} active={old}", change.place))
}

fn limit_of(link: &LinkId, usual: Option<f64>) -> Option<String> {
    let usual = usual?.round().max(1.0);
    Some(format!(
        "link {} {} active={usual}",
        link.source.as_str(),
        link.destination.as_str()
    ))
}

fn rate_of(link: &LinkId, stage: Option<DataPathStage>, times: f64) -> String {
    let times = times.clamp(1.0, 1000.0);
    let (source, destination) = (link.source.as_str(), link.destination.as_str());
    match stage {
        Some(DataPathStage::SourceRead) => format!("storage {source} rate=x{times:.2}"),
        Some(DataPathStage::DestinationWrite | DataPathStage::Checksum | DataPathStage::Commit) => {
            format!("storage {destination} rate=x{times:.2}")
        }
        _ => format!("link {source} {destination} rate=x{times:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_decide::explain::rate_changes;
    use penstock_decide::explain::signals::{LinkSignals, Series, Signals};
    use penstock_model::{StorageId, Timestamp};

    /// The fix of a drop to a third of the slots, at the begin of which a limit of the destination was lowered.
    fn fix(old: Option<&str>) -> String {
        let link = LinkId {
            source: StorageId::new("https://far.org"),
            destination: StorageId::new("https://here.org"),
        };
        let (bins, begin) = (60, 30);
        let step = |before: f64, after: f64| {
            Series::known((0..bins).map(|bin| if bin < begin { before } else { after }))
        };
        let mut signals = Signals::unknown(Timestamp(0), 60, bins);
        let of_link = LinkSignals {
            copied_bytes: step(900e6, 300e6),
            active: step(9.0, 3.0),
            limit: step(10.0, 10.0),
            queued: step(50.0, 50.0),
            unfed: step(1.0, 7.0),
            ..LinkSignals::default()
        };
        signals.links.insert(link.clone(), of_link);
        signals.changes.push(Change {
            at: signals.begin_of(begin),
            who: "root".to_owned(),
            place: link.destination.as_str().to_owned(),
            setting: Setting::InboundLimit,
            old: old.map(str::to_owned),
            new: Some("3".to_owned()),
        });
        let of_link = (Population::Link(link.clone()), vec![link]);
        let drops = rate_changes(&signals, &[of_link]);
        assert_eq!(drops[0].first_cause(), Some(Cause::SlotLimit), "{drops:?}");
        Alternative::fix_of(&drops[0]).expect("a fix").to_string()
    }

    #[test]
    fn a_lowered_limit_of_a_storage_element_is_raised_there() {
        assert_eq!(fix(Some("20")), "storage https://here.org active=20");
        assert_eq!(fix(None), "storage https://here.org active=9");
    }
}
