//! What the explainer would do about a drop, as an alternative that can be replayed.

use super::Alternative;
use penstock_decide::explain::rate_change::Population;
use penstock_decide::explain::signals::DataPathStage;
use penstock_decide::explain::split::{Factor, falls};
use penstock_decide::explain::{Cause, RateChange};
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
                "{} is no link, and only fixes of links are replayed; `penstock explain` without a name lists these",
                drop.population
            ));
        };
        let change = match cause {
            Cause::SlotLimit => limit_of(link, told.usual.limit),
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
