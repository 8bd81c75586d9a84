//! `GET /api/v1/explain` and `/api/v1/explain/{id}`: where rates fell and rose, and why; `/api/v1/explain/path`: the story of
//! a path of the site's own storage element; `/api/v1/incidents` and
//! `/api/v1/incidents/{id}`: what went wrong, by cause. What reads the record and explains it is given by whoever runs the
//! service.

use super::caller::{Caller, Credentials};
use super::extract::Query;
use super::query::{blocking, whole_number};
use super::{Api, ApiConfig, ApiError, ApiResult};
use crate::service::Service;
use axum::Router;
use axum::extract::{Extension, Path, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use penstock_decide::explain::PopulationChoice;
use penstock_model::text::one_line;
use penstock_model::{
    CredentialId, IncidentClass, LinkId, NamespacePath, ProblemCode, TimeWindow, Timestamp,
};
use penstock_protocol::fair_turns::FairTurns;
use serde::Deserialize;
use std::sync::Arc;
use thiserror::Error;

/// The window when the query names its end only: a day.
const SECONDS: i64 = 86_400;
/// The same of incidents: thirty days.
const INCIDENTS_SECONDS: i64 = 30 * 86_400;
/// The same of a path: a week.
const PATH_SECONDS: i64 = 7 * 86_400;
/// Forty days.
const SECONDS_MAX: i64 = 40 * 86_400;
/// A day.
const RESOLUTION_MAX: i64 = 86_400;
/// The last millisecond of the year 9999.
const UNTIL_MAX: i64 = 253_402_300_799_999;
/// Windows that are explained at once; others wait.
const AT_ONCE: usize = 2;
const AT_ONCE_OF_USER: usize = 1;
/// One more for administrators of the whole service: no user keeps them from an explanation.
const AT_ONCE_OF_ADMINISTRATORS: usize = 1;

/// Which changes of rates are asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExplainQuestion {
    /// When; `None`: the query names no time.
    pub window: Option<TimeWindow>,
    /// Length of an interval in seconds; `None`: whatever fits the window.
    pub resolution_seconds: Option<u32>,
    /// Whose rates.
    pub wanted: PopulationChoice,
    /// Whether the caller sees what is not only counted: texts of failures, and who set something.
    pub sees_everything: bool,
}

/// The record cannot be read.
#[derive(Debug, Error)]
#[error(transparent)]
pub struct ExplainError(pub Box<dyn std::error::Error + Send + Sync>);

/// Explains what is recorded. May read for seconds.
pub trait ExplainView: Send + Sync {
    /// A JSON document: all that fell or rose in a window.
    fn changes(&self, question: &ExplainQuestion) -> Result<String, ExplainError>;
    /// A JSON document: one change by its id, with all that is known of it; `None`: nothing has this id.
    fn change(&self, id: &str, question: &ExplainQuestion) -> Result<Option<String>, ExplainError>;
    /// A JSON document: the incidents of a window, those of one class or all.
    fn incidents(
        &self,
        question: &ExplainQuestion,
        class: Option<IncidentClass>,
    ) -> Result<String, ExplainError>;
    /// A JSON document: one incident by its id, with all that is known of it; `None`: nothing has this id.
    fn incident(
        &self,
        id: &str,
        question: &ExplainQuestion,
    ) -> Result<Option<String>, ExplainError>;
    /// A JSON document: the story of a path of the site's own storage element; `None`: the site has none.
    fn path(
        &self,
        path: &NamespacePath,
        window: Option<TimeWindow>,
    ) -> Result<Option<String>, ExplainError>;
}

#[derive(Clone)]
struct Explainer {
    view: Arc<dyn ExplainView>,
    turns: Arc<FairTurns<CredentialId>>,
    turns_of_administrators: Arc<FairTurns<CredentialId>>,
}

/// The routes, to be merged into [`super::router`], whose rights they ask for.
pub fn routes(service: Arc<Service>, config: ApiConfig, view: Arc<dyn ExplainView>) -> Router {
    let explainer = Explainer::new(view);
    Router::new()
        .route("/api/v1/explain", get(changes))
        .route("/api/v1/explain/path", get(path_story))
        .route("/api/v1/explain/{id}", get(change))
        .route("/api/v1/incidents", get(incidents))
        .route("/api/v1/incidents/{id}", get(incident))
        .layer(Extension(explainer))
        .with_state(Api::new(service, config))
}

#[derive(Debug, Default, Deserialize)]
struct ExplainQuery {
    /// How far back.
    seconds: Option<String>,
    /// Where the window ends, in milliseconds since 1970.
    until: Option<String>,
    /// Seconds of an interval.
    resolution: Option<String>,
    /// `SOURCE-DESTINATION`.
    link: Option<String>,
    /// Each link with files of a VO.
    vo: Option<String>,
    /// A storage element, by its host.
    server: Option<String>,
    /// A pool of the site's own storage element.
    pool: Option<String>,
    /// Of incidents: those of one class.
    class: Option<String>,
}

async fn changes(
    State(api): State<Api>,
    Extension(explainer): Extension<Explainer>,
    credentials: Credentials,
    Query(query): Query<ExplainQuery>,
) -> ApiResult {
    let caller = api.caller(&credentials).await?;
    let question = question_of(&query, &caller, SECONDS)?;
    let body = explainer
        .ask(&caller, question, |view, question| view.changes(question))
        .await?;
    Ok(document(body))
}

async fn change(
    State(api): State<Api>,
    Extension(explainer): Extension<Explainer>,
    credentials: Credentials,
    Path(id): Path<String>,
    Query(query): Query<ExplainQuery>,
) -> ApiResult {
    let caller = api.caller(&credentials).await?;
    let question = question_of(&query, &caller, SECONDS)?;
    let asked = id.clone();
    let body = explainer
        .ask(&caller, question, move |view, question| {
            view.change(&asked, question)
        })
        .await?;
    found(body, || {
        format!(
            "no rate fell or rose with the id '{id}' as far as the record goes; `penstock explain --since` and \
             GET /api/v1/explain list those of a window"
        )
    })
}

#[derive(Debug, Default, Deserialize)]
struct PathQuery {
    /// From the root of the storage element's namespace on.
    path: Option<String>,
    /// How far back.
    seconds: Option<String>,
    /// Where the window ends, in milliseconds since 1970.
    until: Option<String>,
}

/// Users and addresses of clients are in it: for administrators of the service.
async fn path_story(
    State(api): State<Api>,
    Extension(explainer): Extension<Explainer>,
    credentials: Credentials,
    Query(query): Query<PathQuery>,
) -> ApiResult {
    let caller = api.caller(&credentials).await?;
    caller.may_configure()?;
    let text = query.path.unwrap_or_default();
    let path = NamespacePath::parse(&text).map_err(|why| {
        let text = format!("'path' is '{}': {why}", one_line(&text));
        ApiError::new(ProblemCode::RequestMalformed, text)
    })?;
    let times = ExplainQuery {
        seconds: query.seconds,
        until: query.until,
        ..ExplainQuery::default()
    };
    let window = window_of(&times, penstock_clock::wall_clock(), PATH_SECONDS)?;
    let question = ExplainQuestion {
        window,
        resolution_seconds: None,
        wanted: PopulationChoice::Links,
        sees_everything: true,
    };
    let body = explainer
        .ask(&caller, question, move |view, question| {
            view.path(&path, question.window)
        })
        .await?;
    found(body, || {
        "this site has no storage element; ask the site that has the path".to_owned()
    })
}

async fn incidents(
    State(api): State<Api>,
    Extension(explainer): Extension<Explainer>,
    credentials: Credentials,
    Query(query): Query<ExplainQuery>,
) -> ApiResult {
    let caller = api.caller(&credentials).await?;
    let class = class_of(&query)?;
    let question = question_of(&query, &caller, INCIDENTS_SECONDS)?;
    let body = explainer
        .ask(&caller, question, move |view, question| {
            view.incidents(question, class)
        })
        .await?;
    Ok(document(body))
}

async fn incident(
    State(api): State<Api>,
    Extension(explainer): Extension<Explainer>,
    credentials: Credentials,
    Path(id): Path<String>,
    Query(query): Query<ExplainQuery>,
) -> ApiResult {
    let caller = api.caller(&credentials).await?;
    let question = question_of(&query, &caller, INCIDENTS_SECONDS)?;
    let asked = id.clone();
    let body = explainer
        .ask(&caller, question, move |view, question| {
            view.incident(&asked, question)
        })
        .await?;
    found(body, || {
        format!(
            "no incident has the id '{id}' as far as the record goes; `penstock incidents` and GET /api/v1/incidents list \
             those of a window"
        )
    })
}

/// The document, or 404 with the text where there is none.
fn found(body: Option<String>, missing: impl FnOnce() -> String) -> ApiResult {
    let body = body.ok_or_else(|| ApiError::new(ProblemCode::ResourceNotFound, missing()))?;
    Ok(document(body))
}

fn document(body: String) -> Response {
    let headers = [
        (CONTENT_TYPE, "application/json"),
        (CACHE_CONTROL, "no-store"),
    ];
    (headers, body).into_response()
}

impl Explainer {
    fn new(view: Arc<dyn ExplainView>) -> Explainer {
        let turns = |at_once| Arc::new(FairTurns::new(at_once, AT_ONCE_OF_USER));
        Explainer {
            view,
            turns: turns(AT_ONCE),
            turns_of_administrators: turns(AT_ONCE_OF_ADMINISTRATORS),
        }
    }

    async fn ask<T: Send + 'static>(
        &self,
        caller: &Caller,
        question: ExplainQuestion,
        ask: impl FnOnce(&dyn ExplainView, &ExplainQuestion) -> Result<T, ExplainError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let turn = self.turns_for(&question).turn(caller.credential()).await;
        let view = self.view.clone();
        let work = move || {
            let _turn = turn;
            ask(view.as_ref(), &question)
        };
        let told = blocking(caller.credential(), work).await?;
        told.map_err(|why| {
            tracing::error!(%why, "the record of transfers cannot be read");
            let text = "the record of transfers cannot be read; see the service's log";
            ApiError::new(ProblemCode::InternalError, text).told()
        })
    }

    /// Who waits with whom.
    fn turns_for(&self, question: &ExplainQuestion) -> &FairTurns<CredentialId> {
        match question.sees_everything {
            true => &self.turns_of_administrators,
            false => &self.turns,
        }
    }
}

fn question_of(
    query: &ExplainQuery,
    caller: &Caller,
    seconds_usual: i64,
) -> Result<ExplainQuestion, ApiError> {
    Ok(ExplainQuestion {
        window: window_of(query, penstock_clock::wall_clock(), seconds_usual)?,
        resolution_seconds: resolution_of(query)?,
        wanted: wanted_of(query, caller)?,
        sees_everything: caller.may_configure_everything(),
    })
}

/// Whose rates are asked for. Errors: 400 for a link that none can be called; 403 for a VO that is not the caller's to see.
fn wanted_of(query: &ExplainQuery, caller: &Caller) -> Result<PopulationChoice, ApiError> {
    let wanted = choice_of(query)?;
    match &wanted {
        PopulationChoice::Vo(vo) if !caller.may_look_at(vo) => Err(ApiError::new(
            ProblemCode::PermissionDenied,
            "'vo' names another VO",
        )),
        _ => Ok(wanted),
    }
}

fn choice_of(query: &ExplainQuery) -> Result<PopulationChoice, ApiError> {
    if let Some(link) = &query.link
        && !LinkId::is_name(link)
    {
        return Err(ApiError::new(
            ProblemCode::RequestMalformed,
            "'link' is not valid; write a link as SOURCE-DESTINATION; either may be *",
        ));
    }
    let texts = [&query.link, &query.vo, &query.server, &query.pool];
    let wanted = PopulationChoice::WORDS.into_iter().zip(texts);
    let wanted = wanted.map(|(word, name)| PopulationChoice::named(word, name.as_deref()?));
    let mut wanted = wanted.flatten();
    match (wanted.next(), wanted.next()) {
        (wanted, None) => Ok(wanted.unwrap_or_default()),
        (_, Some(_)) => Err(ApiError::new(
            ProblemCode::RequestMalformed,
            "only one of 'link', 'vo', 'server' and 'pool' may be given",
        )),
    }
}

fn resolution_of(query: &ExplainQuery) -> Result<Option<u32>, ApiError> {
    let seconds = whole_number("resolution", query.resolution.as_deref(), 1, RESOLUTION_MAX)?;
    Ok(seconds.and_then(|seconds| u32::try_from(seconds).ok()))
}

fn class_of(query: &ExplainQuery) -> Result<Option<IncidentClass>, ApiError> {
    let Some(word) = &query.class else {
        return Ok(None);
    };
    let class = IncidentClass::from_word(word).ok_or_else(|| {
        let words: Vec<&str> = IncidentClass::ALL
            .iter()
            .map(|class| class.word())
            .collect();
        let text = format!(
            "'class' is '{word}'; it must be one of {}",
            words.join(", ")
        );
        ApiError::new(ProblemCode::RequestMalformed, text)
    })?;
    Ok(Some(class))
}

fn window_of(
    query: &ExplainQuery,
    now: Timestamp,
    seconds_usual: i64,
) -> Result<Option<TimeWindow>, ApiError> {
    let to = whole_number("until", query.until.as_deref(), 0, UNTIL_MAX)?;
    let seconds = whole_number("seconds", query.seconds.as_deref(), 1, SECONDS_MAX)?;
    if to.is_none() && seconds.is_none() {
        return Ok(None);
    }
    let to = to.map_or(now, Timestamp);
    Ok(Some(TimeWindow {
        from: Timestamp(to.0 - seconds.unwrap_or(seconds_usual) * 1000),
        to,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_model::CredentialId;

    fn check(seconds: Option<&str>, until: Option<&str>) -> String {
        let own = |text: Option<&str>| text.map(str::to_owned);
        let query = ExplainQuery {
            seconds: own(seconds),
            until: own(until),
            ..ExplainQuery::default()
        };
        match window_of(&query, Timestamp(100_000_000), SECONDS) {
            Ok(None) => "none".to_owned(),
            Ok(Some(window)) => format!("{} {}", window.from.0, window.to.0),
            Err(why) => why.problem.message,
        }
    }

    #[test]
    fn whose_rates_are_asked_for_is_said_once() {
        let query = |vo: Option<&str>, server: Option<&str>| ExplainQuery {
            vo: vo.map(str::to_owned),
            server: server.map(str::to_owned),
            ..ExplainQuery::default()
        };
        let wanted = |vo, server| choice_of(&query(vo, server)).map_err(|why| why.problem.message);
        assert_eq!(wanted(None, None), Ok(PopulationChoice::Links));
        assert_eq!(
            wanted(None, Some("SE1.cern.ch")),
            Ok(PopulationChoice::Server("se1.cern.ch".to_owned()))
        );
        let refused = wanted(Some("cms"), Some("se1.cern.ch"));
        assert!(refused.is_err_and(|why| why.contains("only one of")));
    }

    #[test]
    fn a_link_is_asked_for_by_what_some_link_may_be_called() {
        let wanted = |link: &str| {
            let query = ExplainQuery {
                link: Some(link.to_owned()),
                ..ExplainQuery::default()
            };
            choice_of(&query).map_err(|why| why.problem.code)
        };
        assert_eq!(wanted("a-*"), Ok(PopulationChoice::Link("a-*".to_owned())));
        for link in ["-", "nothing", &"-".repeat(60_000)] {
            assert_eq!(
                wanted(link),
                Err(ProblemCode::RequestMalformed),
                "{link:.20}"
            );
        }
    }

    struct NothingRecorded;

    impl ExplainView for NothingRecorded {
        fn changes(&self, _: &ExplainQuestion) -> Result<String, ExplainError> {
            Ok(String::new())
        }

        fn change(&self, _: &str, _: &ExplainQuestion) -> Result<Option<String>, ExplainError> {
            Ok(None)
        }

        fn incidents(
            &self,
            _: &ExplainQuestion,
            _: Option<IncidentClass>,
        ) -> Result<String, ExplainError> {
            Ok(String::new())
        }

        fn incident(&self, _: &str, _: &ExplainQuestion) -> Result<Option<String>, ExplainError> {
            Ok(None)
        }

        fn path(
            &self,
            _: &NamespacePath,
            _: Option<TimeWindow>,
        ) -> Result<Option<String>, ExplainError> {
            Ok(None)
        }
    }

    #[tokio::test]
    async fn two_users_who_ask_all_the_time_hold_up_no_administrator() {
        let explainer = Explainer::new(Arc::new(NothingRecorded));
        let asked_by = |sees_everything| {
            let question = ExplainQuestion {
                window: None,
                resolution_seconds: None,
                wanted: PopulationChoice::Links,
                sees_everything,
            };
            explainer.turns_for(&question)
        };
        let name = CredentialId::new;
        let _mallory = asked_by(false).turn(&name("mallory")).await;
        let _twin = asked_by(false).turn(&name("twin")).await;
        let root = name("root");
        let own = asked_by(true).turn(&root);
        let own = tokio::time::timeout(std::time::Duration::from_secs(5), own).await;
        assert!(own.is_ok(), "nobody else asks as an administrator");
    }

    #[test]
    fn a_window_is_what_the_query_says() {
        assert_eq!(check(None, None), "none");
        assert_eq!(check(Some("60"), None), "99940000 100000000");
        assert_eq!(check(None, Some("90000000")), "3600000 90000000");
        assert_eq!(
            check(Some("0"), None),
            "'seconds' is '0'; it must be a whole number from 1 to 3456000"
        );
    }
}
