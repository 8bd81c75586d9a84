//! The live page and its data, to be merged into the router of a service: everything is below `/live`.
//!
//! The page itself is public and holds no data. The data need whatever the service's authorization hook asks
//! for. Everything shown is derived from the record on request, so a page nobody looks at costs nothing.

use crate::follow::{Follower, Record, RecordError, report_with_samples};
use crate::marks::{Mark, MarkDisclosure, marks_of};
use crate::rate_curve::{CURVE_SECONDS_MAX, HourSums, RateCurve};
use crate::report::{BandwidthReport, ReportInput};
use crate::series::{RateSeries, SECONDS_MAX, Snapshot};
use axum::Router;
use axum::extract::{Query, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
    X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use parking_lot::Mutex;
use penstock_clock::wall_clock;
use penstock_model::{JobId, TimeSpan, TimeWindow, Timestamp, Visibility, VoName};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Who may see something.
pub struct Admission {
    /// How much of the data.
    pub visibility: Visibility,
    /// Whether bans and settings are shown with who made them and why, as in the audit.
    pub sees_audit: bool,
    /// The turn of this user, of whom few requests are worked on at once. It is dropped when the work has ended.
    pub turn: Box<dyn Send>,
}

/// What the authorization hook returns.
pub type AuthorizeFuture = Pin<Box<dyn Future<Output = Result<Admission, StatusCode>> + Send>>;
/// Decides from the headers of a request how much of the data it may see, and waits for the user's turn; the status otherwise
/// (401, 403).
pub type Authorize = Arc<dyn Fn(&HeaderMap) -> AuthorizeFuture + Send + Sync>;

/// Reports and readings of samples that may run at once; others wait.
const READS_MAX: usize = 2;
/// A report is made again only when it is older than this, whoever asks.
const REPORT_AGE_MAX_MS: i64 = 2000;
/// Reports that are kept for so long: of several windows and VOs.
const REPORTS_MAX: usize = 8;
/// A rate curve is read again only when it is older than this, whoever asks.
const CURVE_AGE_MAX_MS: i64 = 15_000;
/// Curves that are kept for so long: of several windows.
const CURVES_MAX: usize = 8;
/// Jobs whose VO is remembered.
const VOS_MAX: usize = 20_000;
/// The window when the query names none.
const SECONDS: i64 = 300;

/// The page may load its own script and style and ask its own server, nothing else.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const PAGE: &str = include_str!("../assets/index.html");
const SCRIPT: &str = include_str!("../assets/live.js");
const STYLE: &str = include_str!("../assets/live.css");

/// What the handlers need. Cheap to clone.
#[derive(Clone)]
pub struct LiveState {
    shared: Arc<LiveSources>,
}

struct LiveSources {
    record: Arc<dyn Record>,
    authorize: Authorize,
    series: Mutex<RateSeries>,
    curves: Mutex<Curves>,
    reports: Mutex<Reports>,
    reads: Arc<Semaphore>,
}

/// The ledger as far as it was followed, and the latest report made of it.
#[derive(Default)]
struct Reports {
    follower: Follower,
    /// The youngest last.
    made: Vec<MadeReport>,
    vos: HashMap<JobId, Option<VoName>>,
}

/// Rate curves of long windows: the latest that were read, and the sums of hours that are over.
#[derive(Default)]
struct Curves {
    hours: HourSums,
    /// The youngest last.
    made: Vec<MadeCurve>,
}

struct MadeCurve {
    at: Timestamp,
    asked: CurveQuestion,
    curve: Arc<RateCurve>,
}

struct MadeReport {
    at: Timestamp,
    seconds: i64,
    visibility: Visibility,
    body: Arc<WindowReport>,
}

impl LiveState {
    /// Derives all from the record, so that it shows also what was recorded before this process began.
    pub fn new(record: Arc<dyn Record>, authorize: Authorize) -> LiveState {
        LiveState {
            shared: Arc::new(LiveSources {
                record,
                authorize,
                series: Mutex::new(RateSeries::new()),
                curves: Mutex::default(),
                reports: Mutex::default(),
                reads: Arc::new(Semaphore::new(READS_MAX)),
            }),
        }
    }
}

/// The routes: `/live`, `/live/`, `/live/live.js`, `/live/live.css`, `/live/api/series`, `/live/api/marks` and
/// `/live/api/report`.
pub fn router(state: LiveState) -> Router {
    Router::new()
        .route("/live", get(page))
        .route("/live/", get(page))
        .route("/live/live.js", get(script))
        .route("/live/live.css", get(style))
        .route("/live/api/series", get(series))
        .route("/live/api/marks", get(marks))
        .route("/live/api/report", get(report))
        .with_state(state)
}

async fn page() -> Response {
    asset("text/html; charset=utf-8", PAGE)
}

async fn script() -> Response {
    asset("text/javascript; charset=utf-8", SCRIPT)
}

async fn style() -> Response {
    asset("text/css; charset=utf-8", STYLE)
}

fn asset(media_type: &'static str, body: &'static str) -> Response {
    let headers: [(HeaderName, &'static str); 6] = [
        (CONTENT_TYPE, media_type),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (REFERRER_POLICY, "no-referrer"),
        // The assets change with the binary and have no version in their names.
        (CACHE_CONTROL, "no-cache"),
    ];
    (headers, body).into_response()
}

/// What the routes of curves take.
#[derive(Debug, Deserialize)]
struct CurveQuery {
    /// How far back, 1 to 3456000; 300 when absent.
    seconds: Option<i64>,
    /// Where the window ends, in milliseconds since 1970; now when absent.
    until: Option<i64>,
    /// Only what lies after this time (milliseconds since 1970), for a page that has the rest already. Of the last 900 s only.
    after: Option<i64>,
}

/// A window of a curve, bounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CurveQuestion {
    seconds: i64,
    until: Option<i64>,
}

impl CurveQuery {
    fn question(&self) -> CurveQuestion {
        CurveQuestion {
            seconds: self.seconds.unwrap_or(SECONDS).clamp(1, CURVE_SECONDS_MAX),
            until: self.until,
        }
    }
}

impl CurveQuestion {
    fn window(self, now: Timestamp) -> TimeWindow {
        let to = self.until.map_or(now.0, |until| until.clamp(0, now.0));
        TimeWindow {
            from: Timestamp((to - self.seconds * 1000).max(0)),
            to: Timestamp(to),
        }
    }
}

/// What the report takes.
#[derive(Debug, Deserialize)]
struct WindowQuery {
    /// How far back, 1 to 900; 300 when absent.
    seconds: Option<i64>,
}

impl WindowQuery {
    fn seconds(&self) -> i64 {
        self.seconds.unwrap_or(SECONDS).clamp(1, SECONDS_MAX)
    }
}

/// The answer of `/live/api/marks`.
#[derive(Debug, Serialize)]
struct Marks {
    from: Timestamp,
    to: Timestamp,
    /// Oldest first; of more than 300, the latest.
    marks: Vec<Mark>,
}

/// The answer of `/live/api/report`.
#[derive(Debug, Serialize)]
struct WindowReport {
    /// Whether every entry of the window was looked at; else only the latest ones.
    complete: bool,
    /// From when on every entry was looked at, when that is later than the begin of the window.
    #[serde(skip_serializing_if = "Option::is_none")]
    complete_since: Option<Timestamp>,
    #[serde(flatten)]
    report: BandwidthReport,
}

async fn series(
    State(state): State<LiveState>,
    Query(query): Query<CurveQuery>,
    headers: HeaderMap,
) -> Result<Json<Snapshot>, LiveError> {
    let admission = (state.shared.authorize)(&headers)
        .await
        .map_err(LiveError::Unauthorized)?;
    let now = wall_clock();
    let question = query.question();
    let window = question.window(now);
    let after = Timestamp(
        query
            .after
            .map_or(window.from.0, |after| after.max(window.from.0)),
    );
    let snapshot = read(state, admission.turn, move |shared| {
        if question.seconds > SECONDS_MAX {
            return Ok(shared.curve(question, now)?.snapshot());
        }
        if question.until.is_some() {
            return shared.past_seconds(question, now);
        }
        // Reading under the lock keeps samples in order when two pages ask at once; the task may block.
        let mut ring = shared.series.lock();
        catch_up(&mut ring, shared.record.as_ref(), now)?;
        Ok(ring.snapshot(after, now))
    })
    .await?;
    Ok(Json(snapshot))
}

async fn marks(
    State(state): State<LiveState>,
    Query(query): Query<CurveQuery>,
    headers: HeaderMap,
) -> Result<Json<Marks>, LiveError> {
    let admission = (state.shared.authorize)(&headers)
        .await
        .map_err(LiveError::Unauthorized)?;
    let (turn, disclosure) = match admission.sees_audit {
        true => (admission.turn, MarkDisclosure::Everything),
        false => (admission.turn, MarkDisclosure::Counts),
    };
    let now = wall_clock();
    let question = query.question();
    let marks = read(state, turn, move |shared| {
        let window = question.window(now);
        let curve = shared.curve(question, now)?;
        let record = shared.record.as_ref();
        let marks = marks_of(record, window, &curve.links(), curve.starts(), disclosure)?;
        Ok(Marks {
            from: window.from,
            to: window.to,
            marks,
        })
    })
    .await?;
    Ok(Json(marks))
}

/// Takes the samples that are not in the ring yet. One that is ahead of the clock was filled before the clock was set back: it is
/// filled anew, because what comes now is older than what it has.
fn catch_up(ring: &mut RateSeries, record: &dyn Record, now: Timestamp) -> Result<(), RecordError> {
    if ring.newest().is_some_and(|newest| newest > now) {
        *ring = RateSeries::new();
    }
    let known = ring
        .newest()
        .map_or(now.0 - SECONDS_MAX * 1000, |newest| newest.0 - 1000);
    for sample in record.samples_between(Timestamp(known), Timestamp(now.0 + 1))? {
        ring.push(&sample);
    }
    Ok(())
}

async fn report(
    State(state): State<LiveState>,
    Query(query): Query<WindowQuery>,
    headers: HeaderMap,
) -> Result<Json<Arc<WindowReport>>, LiveError> {
    let Admission {
        visibility, turn, ..
    } = (state.shared.authorize)(&headers)
        .await
        .map_err(LiveError::Unauthorized)?;
    let seconds = query.seconds();
    let report = read(state, turn, move |shared| {
        shared.report(seconds, visibility, wall_clock())
    })
    .await?;
    Ok(Json(report))
}

impl LiveSources {
    /// The curve of the minutes of a window.
    fn curve(&self, asked: CurveQuestion, now: Timestamp) -> Result<Arc<RateCurve>, RecordError> {
        let mut curves = self.curves.lock();
        let curves = &mut *curves;
        let is_young = |made: &MadeCurve| (0..CURVE_AGE_MAX_MS).contains(&(now.0 - made.at.0));
        curves.made.retain(is_young);
        if let Some(made) = curves.made.iter().rev().find(|made| made.asked == asked) {
            return Ok(made.curve.clone());
        }
        let window = asked.window(now);
        let curve = RateCurve::read(self.record.as_ref(), &mut curves.hours, window, now)?;
        let curve = Arc::new(curve);
        if curves.made.len() >= CURVES_MAX {
            curves.made.remove(0);
        }
        curves.made.push(MadeCurve {
            at: now,
            asked,
            curve: curve.clone(),
        });
        Ok(curve)
    }

    /// A short window that is over, second by second; of minutes, when its samples are no longer kept.
    fn past_seconds(&self, asked: CurveQuestion, now: Timestamp) -> Result<Snapshot, RecordError> {
        let TimeWindow { from, to } = asked.window(now);
        let mut ring = RateSeries::new();
        // A sample tells of the seconds before it.
        let samples = (Timestamp(from.0 - 1000), Timestamp(to.0 + 1000));
        for sample in self.record.samples_between(samples.0, samples.1)? {
            ring.push(&sample);
        }
        match ring.newest() {
            Some(_) => Ok(ring.snapshot_between(from, to)),
            None => Ok(self.curve(asked, now)?.snapshot()),
        }
    }

    fn report(
        &self,
        seconds: i64,
        visibility: Visibility,
        now: Timestamp,
    ) -> Result<Arc<WindowReport>, RecordError> {
        let mut reports = self.reports.lock();
        let reports = &mut *reports;
        reports.made.retain(|made| made.is_young(now));
        let known = reports.made.iter();
        if let Some(made) = known
            .rev()
            .find(|made| made.seconds == seconds && made.visibility == visibility)
        {
            return Ok(made.body.clone());
        }
        let record = self.record.as_ref();
        let from = Timestamp(now.0 - seconds * 1000);
        reports.follower.catch_up(record, now)?;
        let (mut transfers, complete_since) = reports.follower.transfers_since(from);
        let whose = match &visibility {
            Visibility::Everything => String::new(),
            Visibility::Vo(vo) => {
                let mut of_vo = Vec::new();
                for facts in transfers {
                    if vo_of(&mut reports.vos, record, facts.job)?.as_ref() == Some(vo) {
                        of_vo.push(facts);
                    }
                }
                transfers = of_vo;
                format!(" of {vo}")
            }
        };
        let input = ReportInput {
            population: format!(
                "all transfers{whose} with an event in the last {}",
                TimeSpan::of_seconds(seconds.unsigned_abs())
            ),
            transfers,
            window: Some((from, now)),
        };
        let report = report_with_samples(record, &input)?;
        let body = Arc::new(WindowReport {
            complete: complete_since.is_none(),
            complete_since,
            report,
        });
        if reports.made.len() >= REPORTS_MAX {
            reports.made.remove(0);
        }
        reports.made.push(MadeReport {
            at: now,
            seconds,
            visibility,
            body: body.clone(),
        });
        Ok(body)
    }
}

fn vo_of(
    known: &mut HashMap<JobId, Option<VoName>>,
    record: &dyn Record,
    job: JobId,
) -> Result<Option<VoName>, RecordError> {
    if let Some(vo) = known.get(&job) {
        return Ok(vo.clone());
    }
    let vo = record.job_vo(job)?;
    if known.len() >= VOS_MAX {
        known.clear();
    }
    known.insert(job, vo.clone());
    Ok(vo)
}

impl MadeReport {
    fn is_young(&self, now: Timestamp) -> bool {
        (0..REPORT_AGE_MAX_MS).contains(&(now.0 - self.at.0))
    }
}

/// Runs `derive` off the async threads, a few at a time.
async fn read<T: Send + 'static>(
    state: LiveState,
    turn: Box<dyn Send>,
    derive: impl FnOnce(&LiveSources) -> Result<T, RecordError> + Send + 'static,
) -> Result<T, LiveError> {
    let shared = state.shared.clone();
    let permit = Arc::clone(&state.shared.reads).acquire_owned().await;
    let permit = permit.map_err(|_| LiveError::Stopping)?;
    // The work holds both, not the request: who asks may leave, and the work goes on.
    let work = move || {
        let _held = (permit, turn);
        derive(&shared)
    };
    match tokio::task::spawn_blocking(work).await {
        Ok(derived) => derived.map_err(LiveError::Record),
        Err(_) => Err(LiveError::Stopping),
    }
}

/// Why there is no answer.
enum LiveError {
    Unauthorized(StatusCode),
    Record(RecordError),
    Stopping,
}

impl IntoResponse for LiveError {
    fn into_response(self) -> Response {
        match self {
            LiveError::Unauthorized(status) => {
                let text =
                    "send a valid token: 'Authorization: Bearer …' (see admin.token of the site)\n";
                (status, [("www-authenticate", "Bearer")], text).into_response()
            }
            LiveError::Record(error) => {
                tracing::warn!(%error, "the live page has no data");
                (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")).into_response()
            }
            LiveError::Stopping => {
                (StatusCode::SERVICE_UNAVAILABLE, "the service is stopping\n").into_response()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::follow::MemoryRecord;
    use penstock_model::{Bytes, LinkId, LinkSample, Slots, StorageId};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    #[test]
    fn a_clock_that_was_set_back_leaves_no_page_without_rates() {
        let record = MemoryRecord::new();
        let mut ring = RateSeries::new();
        let sample = |at: i64| LinkSample {
            at: Timestamp(at),
            link: LinkId {
                source: StorageId::new("https://a"),
                destination: StorageId::new("https://b"),
            },
            moved: Bytes(1_000),
            active: Slots(1),
            limit: Slots(2),
            queued: 0,
        };
        let ahead = 7_200_000;
        record.push_sample(sample(ahead - 1_000));
        catch_up(&mut ring, &record, Timestamp(ahead)).expect("readable");
        assert_eq!(ring.newest(), Some(Timestamp(ahead - 1_000)));
        // An hour is taken back.
        let later = MemoryRecord::new();
        let right = ahead - 3_600_000;
        later.push_sample(sample(right - 2_000));
        later.push_sample(sample(right - 1_000));
        for _ in 0..2 {
            catch_up(&mut ring, &later, Timestamp(right)).expect("readable");
            assert_eq!(ring.newest(), Some(Timestamp(right - 1_000)));
        }
    }

    #[tokio::test]
    async fn whoever_asks_and_leaves_starts_no_more_work_than_others() {
        let authorize: Authorize = Arc::new(|_| Box::pin(async { Err(StatusCode::FORBIDDEN) }));
        let state = LiveState::new(Arc::new(MemoryRecord::new()), authorize);
        static RUNNING: AtomicUsize = AtomicUsize::new(0);
        static MOST: AtomicUsize = AtomicUsize::new(0);
        for _ in 0..30 {
            let work = |_: &LiveSources| {
                let running = RUNNING.fetch_add(1, Ordering::SeqCst) + 1;
                MOST.fetch_max(running, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(50));
                RUNNING.fetch_sub(1, Ordering::SeqCst);
                Ok(())
            };
            let asked = read(state.clone(), Box::new(()), work);
            let left = tokio::time::timeout(Duration::from_millis(5), asked);
            assert!(left.await.is_err(), "it leaves before its answer");
        }
        let most = MOST.load(Ordering::SeqCst);
        assert!((1..=READS_MAX).contains(&most), "{most} at once");
    }

    /// A page whose users, named by their tokens, have a turn each.
    fn page_of_users() -> LiveState {
        let turns: Mutex<HashMap<String, Arc<Semaphore>>> = Mutex::default();
        let authorize: Authorize = Arc::new(move |headers| {
            let user = headers.get("authorization").cloned();
            let user = user.and_then(|user| Some(user.to_str().ok()?.to_owned()));
            let mut turns = turns.lock();
            let own = turns.entry(user.unwrap_or_default());
            let own = own.or_insert_with(|| Arc::new(Semaphore::new(1)));
            let own = Arc::clone(own).acquire_owned();
            Box::pin(async move {
                Ok(Admission {
                    visibility: Visibility::Everything,
                    sees_audit: true,
                    turn: Box::new(own.await),
                })
            })
        });
        LiveState::new(Arc::new(MemoryRecord::new()), authorize)
    }

    #[tokio::test]
    async fn a_hundred_slow_questions_of_one_user_leave_room_for_anothers() {
        let state = page_of_users();
        let (leave, left) = std::sync::mpsc::channel::<()>();
        let left = Arc::new(Mutex::new(left));
        let ask = |user: &'static str, left: Arc<Mutex<std::sync::mpsc::Receiver<()>>>| {
            let state = state.clone();
            let mut headers = HeaderMap::new();
            headers.insert("authorization", user.parse().expect("a header"));
            async move {
                let admission = (state.shared.authorize)(&headers).await;
                let turn = admission.expect("known").turn;
                let work = move |_: &LiveSources| {
                    let slow = user == "mallory";
                    Ok(slow && left.lock().recv().is_err())
                };
                read(state, turn, work).await.is_ok()
            }
        };
        let slow = (0..100).map(|_| tokio::spawn(ask("mallory", left.clone())));
        let slow: Vec<_> = slow.collect();
        tokio::task::yield_now().await;
        let quick = tokio::time::timeout(Duration::from_secs(10), ask("alice", left.clone()));
        assert_eq!(quick.await, Ok(true), "alice waits for nobody");
        drop(leave);
        for task in slow {
            assert!(task.await.expect("ended"));
        }
    }
}
