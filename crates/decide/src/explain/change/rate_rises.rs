//! Where a rate rose for good.

use super::*;

/// Where a rate rose beyond what was usual before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rise {
    /// The bins of the lower rate.
    pub low: Range<usize>,
    /// The bins of the higher one, which come after them and are usual from then on.
    pub usual: Range<usize>,
}

/// Finds where a rate rose for good: what is low seen from the end, and not among what was found low seen from the begin.
pub fn rises_of(link: &LinkSignals, low: &[LowRate], bin_seconds: u32) -> Vec<Rise> {
    let bins = link.copied_bytes.0.len();
    let reversed = |series: &Series| {
        // Shorter columns end early, so that turned around they begin late.
        Series((0..bins).rev().map(|bin| series.at(bin)).collect())
    };
    let backwards = LinkSignals {
        copied_bytes: reversed(&link.copied_bytes),
        active: reversed(&link.active),
        limit: reversed(&link.limit),
        queued: reversed(&link.queued),
        unfed: reversed(&link.unfed),
        ..LinkSignals::default()
    };
    let forwards = |range: &Range<usize>| bins - range.end..bins - range.start;
    let rises = stretches_of(&backwards, bin_seconds).low.into_iter();
    let rises = rises.filter_map(|stretch| {
        let low_bins = forwards(&stretch.bins);
        let is_known = low.iter().any(|low| overlap(&low.bins, &low_bins) > 0);
        let usual = forwards(stretch.baseline.last()?);
        let is_rise = stretch.has_work
            && low_bins.len() >= USUAL_BINS_MIN
            && usual.len() >= USUAL_BINS_MIN
            && !is_known;
        is_rise.then_some(Rise {
            low: low_bins,
            usual,
        })
    });
    let mut rises: Vec<Rise> = rises.collect();
    rises.sort_by_key(|rise| rise.low.start);
    rises
}
