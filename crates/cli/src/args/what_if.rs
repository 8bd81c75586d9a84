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
    /// The site whose record is replayed. Its service does not have to run.
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Replay a directory of records made by `penstock ingest`. Without --since, all of it.
    #[arg(long, value_name = "DIR", conflicts_with = "dir")]
    pub records: Option<PathBuf>,
    /// Which view of the records: vo or site. Default: the one that names both ends of more attempts.
    #[arg(long, value_name = "VIEW", requires = "records", value_parser = row_view)]
    pub view: Option<View>,
    /// Start of the time window: a time such as 2026-11-24T03:00:00Z, or an age such as 2h. Default: 24 h ago; with --fix,
    /// the start of the drop.
    #[arg(long, value_name = "TIME")]
    pub since: Option<PointInTime>,
    /// End of the time window. Default: now; with --fix, the end of the drop.
    #[arg(long, value_name = "TIME")]
    pub until: Option<PointInTime>,
    /// Replay only this link: SOURCE-DESTINATION, each as host, with or without scheme, or `*`.
    #[arg(long, value_name = "LINK", value_parser = link_name)]
    pub link: Option<String>,
    /// An alternative: one or more changes, separated by commas. Repeat it to compare alternatives.
    #[arg(long = "set", value_name = "CHANGES")]
    pub alternatives: Vec<Alternative>,
    /// Add the fix that `penstock explain drop` suggests for this drop as an alternative.
    #[arg(long, value_name = "DROP")]
    pub fix: Option<RateChangeId>,
    /// Interval length with which the drop was found: the --resolution of `penstock explain` that listed it.
    #[arg(long, value_name = "DURATION", requires = "fix")]
    pub resolution: Option<Span>,
    /// The random seed. The same arguments with the same seed give the same result.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

impl WhatIfArgs {
    /// `None`: no time was named.
    pub fn window(&self) -> Result<Option<TimeWindow>, CommandError> {
        PointInTime::window(self.since, self.until, DAY)
    }
}
