//! What can be typed to ask what a change would have brought.

use super::records::{DAY, PointInTime, link_name, row_view};
use crate::exit::CommandError;
use clap::Args;
use penstock_decide::explain::RateChangeId;
use penstock_model::TimeWindow;
use penstock_model::observation::View;
use penstock_model::quantity::Span;
use penstock_sim::what_if::Alternative;
use std::path::PathBuf;

/// Options of `what-if`.
#[derive(Debug, Args)]
pub struct WhatIfArgs {
    /// The site whose record is replayed. Its service may run or not.
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Replay a directory of records that `penstock ingest` has made. Without --since, all of it.
    #[arg(long, value_name = "DIR", conflicts_with = "dir")]
    pub records: Option<PathBuf>,
    /// Which view of the records: vo or site. Default: that which names both ends of more attempts.
    #[arg(long, value_name = "VIEW", requires = "records", value_parser = row_view)]
    pub view: Option<View>,
    /// From this time on: a moment, or so long ago. Default: 24 h ago; with --fix, the begin of the drop.
    #[arg(long, value_name = "TIME")]
    pub since: Option<PointInTime>,
    /// Before this time. Default: now; with --fix, the end of the drop.
    #[arg(long, value_name = "TIME")]
    pub until: Option<PointInTime>,
    /// Replay only this link: SOURCE-DESTINATION, each by its host or with its scheme, or `*`.
    #[arg(long, value_name = "LINK", value_parser = link_name)]
    pub link: Option<String>,
    /// An alternative: one change or several with commas between. Repeat it to compare alternatives.
    #[arg(long = "set", value_name = "CHANGES")]
    pub alternatives: Vec<Alternative>,
    /// As a further alternative, what `penstock explain drop` names as the fix of this drop.
    #[arg(long, value_name = "DROP")]
    pub fix: Option<RateChangeId>,
    /// Length of an interval in which the drop was found: that of `penstock explain` when it told of the drop.
    #[arg(long, value_name = "DURATION", requires = "fix")]
    pub resolution: Option<Span>,
    /// Of chance. Equal questions with equal seeds have equal answers.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

impl WhatIfArgs {
    /// `None`: no time was named.
    pub fn window(&self) -> Result<Option<TimeWindow>, CommandError> {
        PointInTime::window(self.since, self.until, DAY)
    }
}
