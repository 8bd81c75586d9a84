//! `penstock what-if`: replays what was recorded in the simulator, and tells what other limits or faster parts would have
//! brought.

use super::records::local;
use crate::args::WhatIfArgs;
use crate::exit::CommandError;
use crate::output::Output;
use crate::site::record::OfflineRecord;
use penstock_clock::wall_clock;
use penstock_decide::explain::PopulationChoice;
use penstock_decide::explain::RateChangeId;
use penstock_decide::explain::rate_change::{RateChange, named};
use penstock_model::observation::View;
use penstock_model::{Slots, TimeWindow, Timestamp};
use penstock_observe::explanations::reading::{ExplainWindow, ExplainedWindow, read_record};
use penstock_observe::explanations::rows::{RecordExtent, extent_of, read_rows};
use penstock_observe::recorded::{
    RecordedWindow, StorageSlotLimits, rate_limits, read_journal, read_store, storage_limits,
};
use penstock_observe::store::Reader;
use penstock_sim::what_if::{Alternative, LimitsInForce, WhatIfError, what_if, words};
use std::path::Path;
use std::time::Duration;

/// The window without `--since`, and how much is read before and after the begin of a drop.
const DAY: Duration = Duration::from_secs(86_400);

/// `penstock what-if`.
pub fn run(args: &WhatIfArgs, output: Output) -> Result<(), CommandError> {
    let mut source = Source::open(args)?;
    let mut alternatives = args.alternatives.clone();
    let mut window = args.window()?;
    if let Some(id) = args.fix {
        let drop = source.drop(id, args)?;
        let told = &drop.explanation;
        window = window.or(Some(TimeWindow {
            from: told.from,
            to: told.to,
        }));
        alternatives.push(Alternative::fix_of(&drop).map_err(CommandError::Usage)?);
    }
    let (recorded, limits) = source.window(window, args)?;
    let answer = what_if(&recorded, &limits, &alternatives, args.seed).map_err(failed)?;
    output.show(&answer, || words::told(&answer));
    Ok(())
}

fn failed(why: WhatIfError) -> CommandError {
    match why {
        WhatIfError::TooFewTransfers { .. } => CommandError::NotInRecord(why.to_string()),
        WhatIfError::TooLong
        | WhatIfError::TooManyAlternatives
        | WhatIfError::Alternative { .. } => CommandError::Usage(why.to_string()),
        WhatIfError::RateLimited(_) | WhatIfError::Unfit { .. } | WhatIfError::Broken(_) => {
            CommandError::CannotReplay(why.to_string())
        }
    }
}

/// Where the record is.
enum Source {
    Site(Box<OfflineRecord>),
    Rows(Reader, RecordExtent),
}

impl Source {
    fn open(args: &WhatIfArgs) -> Result<Source, CommandError> {
        match (&args.records, &args.dir) {
            (Some(records), _) => Source::rows(records, args.view),
            (None, Some(dir)) => Ok(Source::Site(Box::new(OfflineRecord::open(dir)?))),
            (None, None) => Err(CommandError::Usage(
                "name a site with --dir, or a directory of records with --records".into(),
            )),
        }
    }

    fn rows(records: &Path, view: Option<View>) -> Result<Source, CommandError> {
        let mut reader = Reader::open(records).map_err(local)?;
        let extent = extent_of(&mut reader, TimeWindow::ALL, view).map_err(local)?;
        let extent = extent.ok_or_else(|| {
            CommandError::NotInRecord(format!(
                "{} contains no transfer attempts; import some with `penstock ingest`",
                records.display()
            ))
        })?;
        Ok(Source::Rows(reader, extent))
    }

    /// What is replayed, and the limits that held.
    fn window(
        &mut self,
        window: Option<TimeWindow>,
        args: &WhatIfArgs,
    ) -> Result<(RecordedWindow, LimitsInForce), CommandError> {
        let wanted = args
            .link
            .clone()
            .map_or(PopulationChoice::Links, PopulationChoice::Link);
        match self {
            Source::Site(site) => {
                let window = window.unwrap_or_else(last_day);
                let record = site.record.as_ref();
                let read = read_journal(record, window, &wanted);
                let read = read.map_err(|why| CommandError::Local(why.to_string()))?;
                let rates = rate_limits(record, read.window, &read.links);
                let rates = rates.map_err(|why| CommandError::Local(why.to_string()))?;
                let limits = LimitsInForce {
                    rates,
                    ..limits(site, window.to)?
                };
                Ok((read, limits))
            }
            Source::Rows(reader, extent) => {
                let window = window.unwrap_or(TimeWindow::ALL);
                let read = read_store(reader, window, &extent.view, &wanted).map_err(local)?;
                Ok((read, LimitsInForce::default()))
            }
        }
    }

    /// The drop that an id names.
    fn drop(&mut self, id: RateChangeId, args: &WhatIfArgs) -> Result<RateChange, CommandError> {
        let seconds = args.resolution.map(|span| span.0.as_secs().max(1));
        let seconds = seconds.map(|seconds| u32::try_from(seconds).unwrap_or(u32::MAX));
        // In a longer window intervals would be longer than asked for, and a short drop would not be found.
        let longest = seconds.map_or(DAY, |seconds| ExplainWindow::longest(seconds) / 2);
        let half = longest.min(DAY);
        let around = TimeWindow {
            from: (id.begin() - half).max(Timestamp(0)),
            to: (id.begin() + half).min(wall_clock()),
        };
        let around = args.window()?.unwrap_or(around);
        let wanted = PopulationChoice::OfChange(id);
        let read: ExplainedWindow = match self {
            Source::Site(site) => {
                let window = ExplainWindow::new(around.from, around.to, seconds);
                read_record(site.record.as_ref(), window, &wanted)
                    .and_then(|read| site.element.add_to(read))
                    .map_err(|why| CommandError::Local(why.to_string()))?
            }
            Source::Rows(reader, extent) => {
                let window = ExplainWindow::new(around.from, around.to, seconds);
                read_rows(reader, window, &extent.view, &wanted).map_err(local)?
            }
        };
        let changes = read.changes();
        let found = named(&changes, id, read.signals.bin_seconds);
        found.cloned().ok_or_else(|| {
            CommandError::NotInRecord(format!(
                "no drop '{id}' in the record of this time, looked at in intervals of {} s; give --resolution, --since and \
                 --until as `penstock explain` had them when it told of the drop",
                read.signals.bin_seconds
            ))
        })
    }
}

fn last_day() -> TimeWindow {
    let now = wall_clock();
    TimeWindow {
        from: now - DAY,
        to: now,
    }
}

/// What the configuration says now, and what operators had set at the end of the window.
fn limits(site: &OfflineRecord, at: Timestamp) -> Result<LimitsInForce, CommandError> {
    let set = storage_limits(site.record.as_ref(), at);
    let set = set.map_err(|why| CommandError::Local(why.to_string()))?;
    let of_each = Some(Slots(site.config.active_max_per_storage));
    Ok(LimitsInForce {
        storage: StorageSlotLimits {
            outbound: of_each,
            inbound: of_each,
        },
        storages: set,
        agents: Some(Slots(site.config.active_max)),
        rates: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_model::ProblemCode;

    #[test]
    fn what_is_not_in_the_record_and_what_cannot_be_replayed_are_told_apart() {
        let told = |why: WhatIfError| {
            let why = failed(why);
            (why.problem().code, why.exit_code())
        };
        let few = WhatIfError::TooFewTransfers { found: 3 };
        assert_eq!(told(few), (ProblemCode::ResourceNotFound, 4));
        let unfit = WhatIfError::Unfit {
            recorded: 2.0,
            replayed: 1.0,
            error_percent: 50.0,
        };
        assert_eq!(told(unfit), (ProblemCode::ReplayFailed, 6));
        assert_eq!(told(WhatIfError::TooLong), (ProblemCode::CommandInvalid, 2));
    }
}
