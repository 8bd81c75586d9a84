//! Explains where rates fell and rose, from the record of the transfer service: for its REST interface and for
//! `penstock explain --offline`.

use crate::site::element_record::ElementRecord;
use penstock_clock::wall_clock;
use penstock_decide::explain::{PopulationChoice, RateChangeId};
use penstock_decide::incidents::IncidentId;
use penstock_model::{IncidentClass, NamespacePath, TimeWindow, Timestamp};
use penstock_observe::explanations::reading::{
    ExplainWindow, ExplainedWindow, read_record, read_record_to_its_end,
};
use penstock_observe::explanations::{Disclosure, RateChangeDetail, RateChanges, detail};
use penstock_observe::incidents::{
    IncidentDetail, IncidentList, incident_detail, incidents_of_service,
};
use penstock_observe::{Record, RecordError};
use penstock_transfer_service::api::explain::{ExplainError, ExplainQuestion, ExplainView};
use std::sync::Arc;
use std::time::Duration;

/// The window when none is asked for, and how much is read before and after the begin of a change that is named.
const DAY: Duration = Duration::from_secs(86_400);

/// The window of incidents when none is asked for.
const INCIDENTS_WINDOW: Duration = Duration::from_secs(30 * 86_400);
/// Of an incident that began earlier, so much of the record is read.
const INCIDENT_AGE_MAX: Duration = Duration::from_secs(39 * 86_400);

/// How a window of a record is read.
type ReadWindow =
    fn(&dyn Record, ExplainWindow, &PopulationChoice) -> Result<ExplainedWindow, RecordError>;

/// Answers from a record.
pub struct View {
    pub record: Arc<dyn Record>,
    /// What is known of the site's own end of links.
    pub element: ElementRecord,
}

impl View {
    /// What fell and rose.
    pub fn rate_changes(&self, question: &ExplainQuestion) -> Result<RateChanges, ExplainError> {
        let now = wall_clock();
        let window = question.window.unwrap_or(TimeWindow {
            from: now - DAY,
            to: now,
        });
        let read = self.read(window, question, &question.wanted, read_record)?;
        Ok(RateChanges::of(&read.changes(), &read))
    }

    pub fn rate_change(
        &self,
        id: RateChangeId,
        question: &ExplainQuestion,
    ) -> Result<Option<RateChangeDetail>, ExplainError> {
        let window = question.window.unwrap_or(TimeWindow {
            from: id.begin() - DAY,
            to: (id.begin() + DAY).min(wall_clock()),
        });
        let wanted = PopulationChoice::OfChange(id);
        let read = self.read(window, question, &wanted, read_record)?;
        let bin_seconds = read.signals.bin_seconds;
        let disclosure = disclosure_of(question);
        Ok(detail(&read.changes(), id, bin_seconds, disclosure))
    }

    /// The incidents of a window, those of one class or all.
    pub fn incident_list(
        &self,
        question: &ExplainQuestion,
        class: Option<IncidentClass>,
    ) -> Result<IncidentList, ExplainError> {
        let now = wall_clock();
        let window = question.window.unwrap_or(TimeWindow {
            from: now - INCIDENTS_WINDOW,
            to: now,
        });
        let read = self.read(window, question, &question.wanted, read_record_to_its_end)?;
        let incidents = incidents_of_service(&read);
        let disclosure = disclosure_of(question);
        Ok(IncidentList::of(&incidents, &read, class, disclosure))
    }

    pub fn incident_detail(
        &self,
        id: IncidentId,
        question: &ExplainQuestion,
    ) -> Result<Option<IncidentDetail>, ExplainError> {
        let now = wall_clock();
        // As the list shows it; then with the shorter intervals of a shorter window, in which an alert may have told it.
        // It may go on until now, and no longer window is explained.
        let since = [
            now - INCIDENTS_WINDOW,
            id.begin().max(now - INCIDENT_AGE_MAX) - DAY,
        ];
        let windows = match question.window {
            Some(window) => vec![window],
            None => since.map(|from| TimeWindow { from, to: now }).to_vec(),
        };
        for window in windows {
            let read = self.read(window, question, &question.wanted, read_record_to_its_end)?;
            let incidents = incidents_of_service(&read);
            if let Some(told) = incident_detail(&incidents, id, disclosure_of(question)) {
                return Ok(Some(told));
            }
        }
        Ok(None)
    }

    fn read(
        &self,
        window: TimeWindow,
        question: &ExplainQuestion,
        wanted: &PopulationChoice,
        read: ReadWindow,
    ) -> Result<ExplainedWindow, ExplainError> {
        // Nothing was recorded before.
        let from = window.from.max(Timestamp(0));
        let window = ExplainWindow::new(from, window.to, question.resolution_seconds);
        read(self.record.as_ref(), window, wanted)
            .and_then(|read| self.element.add_to(read))
            .map_err(|why| ExplainError(Box::new(why)))
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

    fn incidents(
        &self,
        question: &ExplainQuestion,
        class: Option<IncidentClass>,
    ) -> Result<String, ExplainError> {
        json(&self.incident_list(question, class)?)
    }

    fn incident(
        &self,
        id: &str,
        question: &ExplainQuestion,
    ) -> Result<Option<String>, ExplainError> {
        let Ok(id) = id.parse() else {
            return Ok(None);
        };
        let told = self.incident_detail(id, question)?;
        told.map(|told| json(&told)).transpose()
    }

    fn path(
        &self,
        path: &NamespacePath,
        window: Option<TimeWindow>,
    ) -> Result<Option<String>, ExplainError> {
        let Some(source) = &self.element.paths else {
            return Ok(None);
        };
        let story = source.story(path, window);
        let story = story.map_err(|why| ExplainError(Box::new(why)))?;
        Ok(Some(json(&story)?))
    }
}

fn disclosure_of(question: &ExplainQuestion) -> Disclosure {
    match question.sees_everything {
        true => Disclosure::Everything,
        false => Disclosure::Counts,
    }
}

fn json(value: &impl serde::Serialize) -> Result<String, ExplainError> {
    serde_json::to_string(value).map_err(|why| ExplainError(Box::new(why)))
}
