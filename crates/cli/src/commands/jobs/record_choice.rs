//! Which record a command looks at, and which time of it: that of a running service, of a site that is stopped, or a
//! directory of records.

use crate::args::RecordArgs;
use crate::args::population::NamedPopulation;
use crate::args::records::PointInTime;
use crate::exit::CommandError;
use crate::site::record::OfflineRecord;
use crate::site::serve::explain::View;
use penstock_clock::wall_clock;
use penstock_decide::explain::PopulationChoice;
use penstock_field_tools::remote_error::RemoteError;
use penstock_field_tools::transfer_api::ExplainedTimes;
use penstock_model::observation::View as RowView;
use penstock_model::problem::ProblemCode;
use penstock_model::{TimeWindow, Timestamp};
use penstock_observe::explanations::reading::{ExplainWindow, ExplainedWindow};
use penstock_observe::explanations::rows::{extent_of, read_rows};
use penstock_observe::store::{Reader, StoreError};
use penstock_transfer_service::api::explain::{ExplainError, ExplainQuestion};
use serde::Serialize;
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

/// The last so long.
pub(super) fn last(span: Duration) -> TimeWindow {
    let now = wall_clock();
    TimeWindow {
        from: now - span,
        to: now,
    }
}

/// What a directory of records tells, of the view that was named or else of that which names the ends of most attempts.
pub(super) fn read_records(
    args: &RecordArgs,
    records: &Path,
    window: Option<TimeWindow>,
    wanted: &PopulationChoice,
) -> Result<ExplainedWindow, CommandError> {
    let failed = |why: StoreError| CommandError::local(records.display(), why);
    let mut reader = Reader::open(records).map_err(failed)?;
    // Most of a long record lies outside of a window that was named.
    let mut extent = match window {
        Some(window) => extent_of(&mut reader, window, args.view).map_err(failed)?,
        None => None,
    };
    if extent.is_none() {
        extent = extent_of(&mut reader, TimeWindow::ALL, args.view).map_err(failed)?;
    }
    let extent = extent.ok_or_else(|| {
        let view = args
            .view
            .map(|view| format!(" of the view '{}'", view.word()));
        CommandError::NotInRecord(format!(
            "{} contains no transfer attempts{}; import some with `penstock ingest`",
            records.display(),
            view.unwrap_or_default()
        ))
    })?;
    let window = window.unwrap_or(extent.window);
    let window = ExplainWindow::new(window.from, window.to, resolution(args));
    read_rows(&mut reader, window, &extent.view, wanted).map_err(failed)
}

/// What a service tells of one entry of its record. That it has none is told as it is of a record that is read here.
pub(super) fn known_to_service(
    told: Result<Value, RemoteError>,
    unknown: impl FnOnce() -> CommandError,
) -> Result<Value, CommandError> {
    match told {
        Err(RemoteError::NotFound {
            told: Some(problem),
            ..
        }) if problem.code == ProblemCode::ResourceNotFound => Err(unknown()),
        told => Ok(told?),
    }
}

/// That nothing is known of what an option names, which is no all-clear: it is a filter, which may leave nothing.
pub(super) fn nothing_known(named: &NamedPopulation, from: Timestamp, to: Timestamp) -> String {
    let unknown = named.unknown();
    format!("{}Z to {}Z: {unknown}\n", from.to_fts(), to.to_fts())
}

/// Which view of rows was read, for people.
pub(super) fn view_line(view: Option<RowView>) -> String {
    let line = |view: RowView| {
        let word = view.word();
        format!("view '{word}' of these records; select another with --view\n")
    };
    view.map(line).unwrap_or_default()
}

/// From what was typed; `None`: no time was named. `usual` is the length of a window whose end alone was named.
pub(super) fn window(
    args: &RecordArgs,
    usual: Duration,
) -> Result<Option<TimeWindow>, CommandError> {
    PointInTime::window(args.since, args.until, usual)
}

pub(super) fn resolution(args: &RecordArgs) -> Option<u32> {
    let seconds = args.resolution.map(|span| span.0.as_secs().max(1));
    seconds.map(|seconds| u32::try_from(seconds).unwrap_or(u32::MAX))
}

pub(super) fn times(
    args: &RecordArgs,
    window: Option<TimeWindow>,
    named: Option<&NamedPopulation>,
) -> ExplainedTimes {
    let seconds = window.map(|window| window.to.since(window.from).as_secs().max(1));
    ExplainedTimes {
        seconds,
        until: window.map(|window| window.to),
        resolution_seconds: resolution(args),
        population: named.map(NamedPopulation::parameter),
    }
}

pub(super) fn question(
    args: &RecordArgs,
    window: Option<TimeWindow>,
    wanted: PopulationChoice,
) -> Result<ExplainQuestion, CommandError> {
    Ok(ExplainQuestion {
        window,
        resolution_seconds: resolution(args),
        wanted,
        sees_everything: true,
    })
}

/// The record of the site at `--dir`.
pub(super) fn view(args: &RecordArgs) -> Result<View, CommandError> {
    let Some(dir) = &args.service.access.dir else {
        return Err(CommandError::Usage("--offline needs --dir".into()));
    };
    let OfflineRecord {
        record, element, ..
    } = OfflineRecord::open(dir)?;
    Ok(View { record, element })
}

pub(super) fn failed(why: ExplainError) -> CommandError {
    CommandError::Local(why.to_string())
}

pub(super) fn json(told: &impl Serialize) -> Result<Value, CommandError> {
    serde_json::to_value(told).map_err(|why| CommandError::Local(why.to_string()))
}
