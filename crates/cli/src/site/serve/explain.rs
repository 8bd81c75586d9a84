//! Explains where rates fell and rose, from the record of the transfer service: for its REST interface and for
//! `penstock explain --offline`.

use penstock_clock::wall_clock;
use penstock_decide::explain::RateChangeId;
use penstock_model::{TimeWindow, Timestamp};
use penstock_observe::Record;
use penstock_observe::explanations::reading::{
    ExplainWindow, ExplainedWindow, Wanted, read_record,
};
use penstock_observe::explanations::{Disclosure, RateChangeDetail, RateChanges, detail};
use penstock_transfer_service::api::explain::{ExplainError, ExplainQuestion, ExplainView};
use std::sync::Arc;
use std::time::Duration;

/// The window when none is asked for, and how much is read before and after the begin of a change that is named.
const DAY: Duration = Duration::from_secs(86_400);

/// Answers from a record.
pub struct View(pub Arc<dyn Record>);

impl View {
    /// What fell and rose.
    pub fn rate_changes(&self, question: &ExplainQuestion) -> Result<RateChanges, ExplainError> {
        let now = wall_clock();
        let window = question.window.unwrap_or(TimeWindow {
            from: now - DAY,
            to: now,
        });
        let read = self.read(window, question)?;
        Ok(RateChanges::of(&read.changes(), &read))
    }

    /// One of them.
    pub fn rate_change(
        &self,
        id: RateChangeId,
        question: &ExplainQuestion,
    ) -> Result<Option<RateChangeDetail>, ExplainError> {
        let window = question.window.unwrap_or(TimeWindow {
            from: id.begin() - DAY,
            to: (id.begin() + DAY).min(wall_clock()),
        });
        let read = self.read(window, question)?;
        let disclosure = match question.sees_everything {
            true => Disclosure::Everything,
            false => Disclosure::Counts,
        };
        let bin_seconds = read.signals.bin_seconds;
        Ok(detail(&read.changes(), id, bin_seconds, disclosure))
    }

    fn read(
        &self,
        window: TimeWindow,
        question: &ExplainQuestion,
    ) -> Result<ExplainedWindow, ExplainError> {
        let wanted = match &question.link {
            None => Wanted::Links,
            Some(text) => Wanted::Link(text.clone()),
        };
        // Nothing was recorded before.
        let from = window.from.max(Timestamp(0));
        let window = ExplainWindow::new(from, window.to, question.resolution_seconds);
        let read = read_record(self.0.as_ref(), window, &wanted);
        read.map_err(|why| ExplainError(Box::new(why)))
    }
}

impl ExplainView for View {
    fn changes(&self, question: &ExplainQuestion) -> Result<String, ExplainError> {
        json(&self.rate_changes(question)?)
    }

    fn change(&self, id: &str, question: &ExplainQuestion) -> Result<Option<String>, ExplainError> {
        let Ok(id) = id.parse() else {
            return Ok(None);
        };
        let told = self.rate_change(id, question)?;
        told.map(|told| json(&told)).transpose()
    }
}

fn json(value: &impl serde::Serialize) -> Result<String, ExplainError> {
    serde_json::to_string(value).map_err(|why| ExplainError(Box::new(why)))
}
