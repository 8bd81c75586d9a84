//! The steps of one attempt, in FTS's order: look at both ends, copy, verify; on failure clean up. Long because they are
//! read in this order, and each tells the next what it may have left at the destination.

use super::cleartext_tokens::say_withheld;
use super::destination_evidence::AttemptHistory;
use super::gfal::{self, Process};
use super::http::{AccessMethod, End, Sighting, Stat, by_our_clock};
use super::{AgentSetup, Progress};
use crate::tokens::token_failure;
use http::HeaderValue;
use penstock_clock::wall_clock;
use penstock_decide::classify::{ObservedFailure, classify};
use penstock_decide::copy_failure::CopyCause;
use penstock_decide::destination::{
    CopyEnd, DestinationPlan, DestinationPlanReason, EndsSeen, Permission, course,
};
use penstock_decide::record_clock::RecordClock;
use penstock_decide::wording;
use penstock_engine::{AgentReport, Assignment, AttemptOutcome, Preflight};
use penstock_model::url::hide_credentials;
use penstock_model::{
    Access, Bytes, Checksum, ChecksumAlgorithm, ChecksumMode, CopyMode, CredentialId, Errno,
    Failure, FileUrl, FoundFile, Locality, MoverReport, Phase, Retry, Side, TimeSpan, Timestamp,
    Verification, WayNotOffered,
};
use penstock_protocol::s3::SINGLE_PUT_MAX;
use penstock_protocol::tape::archive_note;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};
use url::Url;

/// Characters of the reason for which a copy was streamed.
const REASON_CHARS_MAX: usize = 500;

/// How often a destination is asked for a file that it has said it has.
const LOOKS_MAX: u32 = 4;
/// The pause before the second time; it doubles.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// One attempt while it runs.
pub(super) struct AttemptRun<'a> {
    pub(super) setup: &'a AgentSetup,
    pub(super) assignment: &'a Assignment,
    pub(super) progress: &'a Progress,
    /// What is known of this attempt and those before it at the destination.
    pub(super) traces: AttemptHistory,
    /// What works with gfal2 for this attempt, once it is needed.
    pub(super) gfal: tokio::sync::Mutex<Option<Process>>,
    /// The clock of the records, as it was when the attempt began.
    clock: RecordClock,
    /// When it began.
    since: Instant,
    /// The ends as they were reached first: a token may be gone from the journal when a stopped copy is cleaned up.
    pub(super) ends: OnceLock<ReachedEnds>,
}

/// The two ends of a transfer as they were reached.
pub(super) struct ReachedEnds {
    pub(super) source: End,
    pub(super) destination: End,
}

/// What looking at both ends found.
#[derive(Debug, Clone)]
pub(super) struct PreflightFindings {
    /// Size at the source; unknown with `strict_copy` or when the source does not say.
    pub(super) size: Option<Bytes>,
    /// Checksum that the destination must have, if any is known.
    pub(super) checksum: Option<Checksum>,
    /// Who says so.
    pub(super) checksum_from: ChecksumFrom,
    /// A destination exists and may be replaced.
    pub(super) replaces: bool,
    /// The destination was looked at and nothing was there. Not so with `strict_copy`, which does not look.
    pub(super) was_absent: bool,
}

/// Who says which checksum a file has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChecksumFrom {
    /// The source's storage element.
    Source,
    /// The user alone: the source tells none.
    User,
    /// The user, and the source tells another one, which was not to be verified.
    UserAgainstSource,
    /// Both.
    UserAndSource,
}

/// What is asked of a file. A checksum costs some storage elements a pass over the whole file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StatScope {
    Size,
    SizeAndChecksum,
}

/// What the look found: go on, or it is there already.
enum PreflightResult {
    Copy(PreflightFindings),
    Arrived(Bytes, Option<Checksum>),
}

impl<'a> AttemptRun<'a> {
    pub(super) fn new(
        setup: &'a AgentSetup,
        assignment: &'a Assignment,
        progress: &'a Progress,
    ) -> Self {
        let clock = assignment.clock.unwrap_or_else(|| {
            let now = wall_clock();
            RecordClock {
                at: now,
                steady_since: now,
            }
        });
        AttemptRun {
            setup,
            assignment,
            progress,
            traces: AttemptHistory::default(),
            gfal: tokio::sync::Mutex::default(),
            clock,
            since: Instant::now(),
            ends: OnceLock::new(),
        }
    }

    /// What the clock shows by which the transfer's records are written.
    pub(super) fn record_clock(&self) -> RecordClock {
        self.clock.after(self.since.elapsed())
    }

    /// The time by that clock.
    pub(super) fn now(&self) -> Timestamp {
        self.record_clock().at
    }

    /// Runs all steps. Cancel-safe: dropped at any point, it leaves `clean_up` to be called.
    pub(super) async fn run(
        &self,
        may_proceed: oneshot::Receiver<()>,
        reports: &mpsc::Sender<AgentReport>,
    ) -> AttemptOutcome {
        let mut outcome = match self.attempt(may_proceed, reports).await {
            Ok(outcome) => outcome,
            Err(mut failure) => {
                self.give_up_macaroons(&mut failure);
                if let Some(ReachedEnds {
                    source,
                    destination,
                }) = self.ends.get()
                {
                    say_withheld(&mut failure, [source, destination]);
                }
                let cleaned = self.clean_up_after_failure().await;
                self.failed(failure, cleaned)
            }
        };
        self.hide_credentials(&mut outcome);
        outcome
    }

    async fn attempt(
        &self,
        may_proceed: oneshot::Receiver<()>,
        reports: &mpsc::Sender<AgentReport>,
    ) -> Result<AttemptOutcome, Failure> {
        self.recall().await?;
        let (source, destination) =
            tokio::try_join!(self.end(Side::Source), self.end(Side::Destination),)?;
        // Set once: an attempt looks once.
        let _ = self.ends.set(ReachedEnds {
            source: source.clone(),
            destination: destination.clone(),
        });
        if let Some(access) = &destination.cloud {
            self.abort_uploads(access).await;
        }
        let plan = match self.look(&source, &destination).await? {
            PreflightResult::Copy(plan) => plan,
            PreflightResult::Arrived(size, checksum) => {
                let report = MoverReport {
                    checksum,
                    ..MoverReport::default()
                };
                return Ok(AttemptOutcome::Landed {
                    size,
                    mode: None,
                    report: Box::new(report),
                });
            }
        };
        self.setup.refuse_without_tape(self.assignment).await?;
        if plan.was_absent {
            self.make_directories(&destination).await;
        }
        self.announce(&plan, may_proceed, reports).await?;
        let timeout = self.timeout(plan.size);
        let copied = tokio::time::timeout(timeout, self.copy(&source, &destination, &plan)).await;
        let (mode, mut report) = copied.unwrap_or_else(|_| {
            let detail = format!(
                "Connection timed out: the copy took longer than {}",
                TimeSpan(timeout)
            );
            let observed = match self.assignment.parameters.timeout_seconds {
                Some(_) => ObservedFailure::JobTimedOut,
                None => ObservedFailure::TimedOut,
            };
            Err(classify(Side::Network, Phase::Transfer, &observed, detail))
        })?;
        self.note_end(CopyEnd::Arrived);
        // A long copy may have outlived the token or the macaroon that it began with.
        let destination = self.renewed(&destination).await;
        let size = self.verify(&destination, &plan, &mut report).await?;
        Ok(AttemptOutcome::Landed {
            size,
            mode: Some(mode),
            report: Box::new(report),
        })
    }

    pub(super) async fn end(&self, side: Side) -> Result<End, Failure> {
        let request = &self.assignment.request;
        if request.end(side).0.access() == Access::Cloud {
            return self.cloud_end(request.end(side).0, side).await;
        }
        let url = &self.address(side).await?;
        let broken =
            |observed, detail: String| classify(side, Phase::Preparation, &observed, detail);
        let parsed = Url::parse(url.as_str())
            .map_err(|why| broken(ObservedFailure::Malformed, format!("{url}: {why}")))?;
        let credential = self.assignment.request.end(side).1;
        let shown = credential.filter(|_| self.setup.may_show_token(&parsed));
        let token = match shown {
            Some(id) => Some(self.token(id, side).await?),
            None => None,
        };
        let end = End {
            token_withheld: credential.is_some() && shown.is_none(),
            url: url.clone(),
            parsed,
            token,
            proxy: None,
            cloud: None,
            side,
        };
        if url.access() == Access::Gfal
            && let Some(port) = gfal::port_of(&end.parsed)
        {
            let allowed = self.setup.client.may_reach(url.host(), port).await;
            allowed.map_err(|why| end.client_failure(Phase::Preparation, &why))?;
        }
        match (&end.token, &self.assignment.parameters.proxy) {
            (None, Some(id)) if end.speaks_tls() => self.by_proxy(end, id).await,
            _ => Ok(end),
        }
    }

    /// The URL of one end as it was submitted, with the credentials in it, which are kept apart.
    pub(super) async fn address(&self, side: Side) -> Result<FileUrl, Failure> {
        let request = &self.assignment.request;
        let url = request.end(side).0;
        let Some(id) = request.query(side) else {
            return Ok(url.clone());
        };
        let query = self.token(id, side).await?;
        url.with_query(&query).map_err(|why| {
            classify(
                side,
                Phase::Preparation,
                &ObservedFailure::Malformed,
                why.to_string(),
            )
        })
    }

    /// Takes out what the ends have repeated of the credentials in their URLs.
    pub(super) fn hide_credentials(&self, outcome: &mut AttemptOutcome) {
        let Some(ReachedEnds {
            source,
            destination,
        }) = self.ends.get()
        else {
            return;
        };
        let ends = [source, destination].into_iter();
        let credentials: Vec<String> = ends.flat_map(|end| end.url.credentials()).collect();
        if credentials.is_empty() {
            return;
        }
        let hide = |text: &mut String| *text = hide_credentials(text, &credentials);
        match outcome {
            AttemptOutcome::Failed { failure, .. }
            | AttemptOutcome::Blocked { failure, .. }
            | AttemptOutcome::Untidied { failure } => hide(&mut failure.detail),
            AttemptOutcome::Landed { report, .. } => {
                report
                    .not_offered
                    .iter_mut()
                    .for_each(|way| hide(&mut way.why));
            }
            AttemptOutcome::Stopped
            | AttemptOutcome::Unsettled
            | AttemptOutcome::Dropped
            | AttemptOutcome::Tidied => {}
        }
    }

    pub(super) async fn token(&self, id: &CredentialId, side: Side) -> Result<Arc<str>, Failure> {
        let token = self.setup.tokens.usable(id).await;
        token.map_err(|trouble| token_failure(trouble, side, Phase::Preparation))
    }

    /// Reaches an end by a macaroon that it gives for the newest proxy, or by the proxy itself.
    async fn by_proxy(&self, end: End, id: &CredentialId) -> Result<End, Failure> {
        let now = wall_clock();
        let mut proxy = self.setup.newest_proxy(id, now).await?;
        let macaroon = self.setup.macaroon(&end.parsed, end.side, &proxy, now);
        let token = match macaroon.await {
            Ok(macaroon) => Some(macaroon),
            Err(why) => {
                tracing::debug!(url = %end.url, %why, "no macaroon");
                proxy.no_macaroon = Some(why);
                None
            }
        };
        Ok(End {
            token,
            proxy: Some(proxy),
            ..end
        })
    }

    /// The same end with the credentials that are valid now; unchanged if there are none.
    pub(super) async fn renewed(&self, end: &End) -> End {
        match (&end.proxy, &self.assignment.parameters.proxy) {
            (Some(_), Some(id)) => {
                let bare = End {
                    token: None,
                    proxy: None,
                    ..end.clone()
                };
                self.by_proxy(bare, id)
                    .await
                    .unwrap_or_else(|_| end.clone())
            }
            _ => self.with_newest_token(end).await,
        }
    }

    async fn with_newest_token(&self, end: &End) -> End {
        let token = match self.assignment.request.end(end.side).1 {
            Some(id) if !end.token_withheld => self.token(id, end.side).await.ok(),
            Some(_) | None => None,
        };
        End {
            token: token.or_else(|| end.token.clone()),
            ..end.clone()
        }
    }

    /// A macaroon that is accepted no longer (401) says nothing of the user: its storage element has changed its keys.
    /// It is forgotten, and the next attempt asks for another one.
    fn give_up_macaroons(&self, failure: &mut Failure) {
        let Some(ReachedEnds {
            source,
            destination,
        }) = self.ends.get()
        else {
            return;
        };
        if failure.errno != Errno::EACCES {
            return;
        }
        for end in [source, destination] {
            if let (Some(macaroon), Some(_)) = (&end.token, &end.proxy) {
                self.setup.memory.macaroons.forget(macaroon);
                failure.retry = Retry::Later;
            }
        }
    }

    /// Source and destination at the same time: neither answer depends on the other.
    async fn look(&self, source: &End, destination: &End) -> Result<PreflightResult, Failure> {
        let parameters = &self.assignment.parameters;
        let request = &self.assignment.request;
        let permission = Permission::of(parameters.overwrite, self.assignment.attempt);
        let now = self.now();
        if parameters.strict_copy {
            if let Some(arrived) = self.arrived_unseen(source, destination).await {
                return Ok(arrived);
            }
            self.traces.note_look(now);
            let plan = PreflightFindings {
                size: request.size,
                checksum: None,
                checksum_from: ChecksumFrom::Source,
                replaces: permission == Permission::Replace,
                was_absent: false,
            };
            return Ok(PreflightResult::Copy(plan));
        }
        let (at_source, at_destination) = tokio::join!(
            self.stat(source, self.wanted_of_source(), Phase::Preparation),
            self.stat(
                destination,
                self.wanted_of_destination(),
                Phase::Preparation
            ),
        );
        self.traces.note_look(now);
        let Some(at_source) = at_source? else {
            let detail = format!("No such file or directory: {}", source.url);
            return Err(source.failure(Phase::Preparation, &ObservedFailure::Status(404), detail));
        };
        let (expected, checksum_from) = self.expected_checksum(source, &at_source)?;
        let there = match at_destination? {
            Some(there) => Some(self.examine(destination, there, Phase::Preparation).await?),
            None => None,
        };
        let attempts = self.traces.attempts();
        let told = there.as_ref().map(Stat::told);
        let decision = course(&EndsSeen {
            now: self.now(),
            source: &at_source.told(),
            there: told.as_ref(),
            attempts: &attempts,
            was_restored: parameters.restored_at.is_some(),
            permission,
        });
        let replaces = match (decision.choice, &there) {
            (DestinationPlan::Arrived(size), there) => {
                let checksum = there.as_ref().and_then(|there| there.checksum.clone());
                return Ok(PreflightResult::Arrived(size, checksum));
            }
            (DestinationPlan::Write, _) | (_, None) => false,
            (DestinationPlan::Replace, Some(_)) => true,
            (DestinationPlan::AskTape, Some(there)) => {
                self.is_only_on_disk(destination, there).await?
            }
            (DestinationPlan::RemoveFirst, Some(there)) => {
                self.remove_own(destination, there, Phase::Preparation)
                    .await?;
                false
            }
            (DestinationPlan::Wait, Some(there)) => {
                self.meet_something();
                let because = decision.because.first();
                return Err(self.exists(destination, there, because).await);
            }
            (DestinationPlan::Refuse, Some(there)) => {
                let because = decision.because.first();
                return Err(self.exists(destination, there, because).await);
            }
        };
        Ok(PreflightResult::Copy(PreflightFindings {
            size: at_source.size,
            checksum: expected,
            checksum_from,
            replaces,
            was_absent: !replaces,
        }))
    }

    /// Copies without checks do not look; only where an attempt may have brought the file, both ends are asked whether
    /// it has.
    async fn arrived_unseen(&self, source: &End, destination: &End) -> Option<PreflightResult> {
        if !self.may_have_arrived() {
            return None;
        }
        let (wanted, phase) = (StatScope::SizeAndChecksum, Phase::Preparation);
        let (at_source, there) = tokio::join!(
            self.stat(source, wanted, phase),
            self.stat(destination, wanted, phase),
        );
        let (at_source, there) = (at_source.ok()??, there.ok()??);
        let size = at_source.told().is_same(&there.told())?;
        Some(PreflightResult::Arrived(size, there.checksum))
    }

    /// A destination that exists and may not be replaced.
    async fn exists(
        &self,
        destination: &End,
        there: &Stat,
        because: Option<&DestinationPlanReason>,
    ) -> Failure {
        let mut detail = "Destination file exists and overwrite is not enabled".to_owned();
        if let Some(DestinationPlanReason::Foreign(foreign)) = because
            && self.may_have_arrived()
        {
            let why = wording::foreign(*foreign);
            detail += &format!("; it is not taken for what an earlier attempt left: {why}");
        }
        let mut failure = destination.failure(Phase::Preparation, &ObservedFailure::Exists, detail);
        if self.assignment.parameters.report_existing {
            let on_tape = self.assignment.parameters.archive_seconds.is_some();
            let locality = match on_tape {
                true => self.setup.locality(self.assignment).await.ok(),
                false => None,
            };
            failure.found = Some(Box::new(found(there, locality)));
        }
        failure
    }

    /// A destination that exists is replaced when it is on disk and not on tape. The tape system may put it there in
    /// the next moment: there is no way to have both in one step. The words are FTS's.
    async fn is_only_on_disk(&self, destination: &End, there: &Stat) -> Result<bool, Failure> {
        const ASKED: &str = "(overwrite-when-only-on-disk requested)";
        let located = self.setup.locality(self.assignment).await;
        let locality = located.map_err(|why| Failure {
            detail: format!(
                "Could not check destination file locality {ASKED}: {}",
                why.detail
            ),
            side: destination.side,
            phase: Phase::Preparation,
            ..why
        })?;
        if locality == Locality::Disk {
            return Ok(true);
        }
        let detail = match locality.is_on_tape() {
            true => format!("Destination file exists and is on tape {ASKED}"),
            false => format!("Destination file location unknown: {locality} {ASKED}"),
        };
        let mut failure = destination.failure(Phase::Preparation, &ObservedFailure::Exists, detail);
        if locality.is_on_tape() {
            failure.errno = Errno::EROFS;
        }
        if self.assignment.parameters.report_existing {
            failure.found = Some(Box::new(found(there, Some(locality))));
        }
        Err(failure)
    }

    /// The checksum that the file must have everywhere: the user's, else the source's. In the modes that look at the
    /// source, the two must agree before a byte moves.
    fn expected_checksum(
        &self,
        source: &End,
        at_source: &Stat,
    ) -> Result<(Option<Checksum>, ChecksumFrom), Failure> {
        let user = self.assignment.request.checksum.clone();
        let verify_source = match self.assignment.parameters.verify_checksum {
            ChecksumMode::Source | ChecksumMode::Both => true,
            ChecksumMode::None | ChecksumMode::Target => false,
        };
        if let (true, Some(user), Some(there)) = (verify_source, &user, &at_source.checksum)
            && user != there
        {
            let detail = format!(
                "Source and user-defined {} checksum do not match ({} != {})",
                there.algorithm(),
                there.hex(),
                user.hex()
            );
            return Err(source.failure(
                Phase::Preparation,
                &ObservedFailure::ChecksumMismatch,
                detail,
            ));
        }
        let from = match &user {
            None => ChecksumFrom::Source,
            Some(_) if user == at_source.checksum => ChecksumFrom::UserAndSource,
            Some(_) if at_source.checksum.is_some() => ChecksumFrom::UserAgainstSource,
            Some(_) => ChecksumFrom::User,
        };
        Ok((user.or_else(|| at_source.checksum.clone()), from))
    }

    /// Tells the engine what was found and waits until that is durable.
    async fn announce(
        &self,
        plan: &PreflightFindings,
        may_proceed: oneshot::Receiver<()>,
        reports: &mpsc::Sender<AgentReport>,
    ) -> Result<(), Failure> {
        if let Some(size) = plan.size {
            self.progress.set_size(size.0);
        }
        let report = AgentReport::Prepared {
            transfer: self.assignment.request.id,
            attempt: self.assignment.attempt,
            preflight: Preflight {
                size: plan.size,
                checksum: plan.checksum.clone(),
                replaces: plan.replaces,
            },
        };
        let told = reports.send(report).await;
        if told.is_err() || may_proceed.await.is_err() {
            // The engine has let this attempt go: a stop is on its way.
            std::future::pending::<()>().await;
        }
        Ok(())
    }

    /// Pull, then push, then through this agent: the next way only when the one before is not offered.
    async fn copy(
        &self,
        source: &End,
        destination: &End,
        plan: &PreflightFindings,
    ) -> Result<(CopyMode, MoverReport), Failure> {
        use super::third_party::CopyError;
        if [source, destination]
            .iter()
            .any(|end| end.url.access() == Access::Gfal)
        {
            return self.copy_by_gfal(source, destination, plan).await;
        }
        let mut not_offered = Vec::new();
        for mode in [CopyMode::Pull, CopyMode::Push] {
            if let Some(why) = self.why_closed(mode, source, destination, plan) {
                let why = shortened(&why);
                not_offered.push(WayNotOffered { mode, why });
                continue;
            }
            self.begin_to_copy(plan);
            match self.third_party(mode, source, destination, plan).await {
                Ok(mut report) => {
                    report.not_offered = not_offered;
                    return Ok((mode, report));
                }
                Err(CopyError::NotOffered(why)) => {
                    tracing::debug!(transfer = self.assignment.request.id.0, mode = mode.name(), %why, "not offered");
                    let why = shortened(&why);
                    not_offered.push(WayNotOffered { mode, why });
                }
                Err(CopyError::Failed(failure)) => return Err(after(&not_offered, failure)),
            }
        }
        self.begin_to_copy(plan);
        let streamed = self.streamed(source, destination, plan).await;
        let mut report = streamed.map_err(|failure| after(&not_offered, failure))?;
        report.not_offered = not_offered;
        Ok((CopyMode::Streamed, report))
    }

    /// Why the ends cannot copy that way between themselves, if it is known before they are asked.
    fn why_closed(
        &self,
        mode: CopyMode,
        source: &End,
        destination: &End,
        plan: &PreflightFindings,
    ) -> Option<String> {
        let (active, passive) = match mode {
            CopyMode::Pull | CopyMode::Streamed => (destination, source),
            CopyMode::Push => (source, destination),
        };
        if active.cloud.is_some() {
            return Some(format!(
                "{} is in a cloud storage, which copies nothing from or to others",
                active.url
            ));
        }
        if passive.cloud.is_none() || mode != CopyMode::Push {
            return passive.admits_nobody_else();
        }
        match plan.size {
            None => {
                return Some(
                    "the size is not known, and a cloud storage wants it before".to_owned(),
                );
            }
            Some(Bytes(size)) if size > SINGLE_PUT_MAX => {
                let limit = SINGLE_PUT_MAX;
                return Some(format!(
                    "{size} bytes are more than a cloud storage takes in one piece ({limit})"
                ));
            }
            Some(_) => {}
        }
        // Some tell the MD5 of what came in one piece; none says beforehand whether it will.
        match self.verifies_target() {
            true => Some(format!(
                "a cloud storage need not tell the {} of what others bring, and the job wants it verified",
                self.algorithm()
            )),
            false => None,
        }
    }

    /// Whether the job wants the destination's checksum compared.
    pub(super) fn verifies_target(&self) -> bool {
        match self.assignment.parameters.verify_checksum {
            ChecksumMode::Target | ChecksumMode::Both => !self.assignment.parameters.strict_copy,
            ChecksumMode::None | ChecksumMode::Source => false,
        }
    }

    /// Compares size and checksum at the destination with what was expected.
    async fn verify(
        &self,
        destination: &End,
        plan: &PreflightFindings,
        report: &mut MoverReport,
    ) -> Result<Bytes, Failure> {
        if self.assignment.parameters.strict_copy {
            return Ok(plan.size.unwrap_or(report.moved));
        }
        let wanted = match self.verifies_target() {
            true => StatScope::SizeAndChecksum,
            false => StatScope::Size,
        };
        let there = self.look_at_arrived(destination, wanted).await?;
        if let (Some(expected), Some(size)) = (plan.size, there.size)
            && expected != size
        {
            self.contradict_arrival();
            let detail = format!(
                "Source and destination file size mismatch ({} != {})",
                expected.0, size.0
            );
            return Err(destination.failure(
                Phase::Finalization,
                &ObservedFailure::SizeMismatch,
                detail,
            ));
        }
        // The storage checked each part; what it then tells of the whole is our own word.
        let passed = match report.verified {
            Some(Verification::InPassing) => report.checksum.clone(),
            Some(Verification::SizeOnly) | None => None,
        };
        let found = passed.or_else(|| there.checksum.clone());
        if self.verifies_target() {
            let Some(expected) = &plan.checksum else {
                let source = &self.assignment.request.source;
                let why = format!("neither the job nor {source} has one");
                return Err(self.not_verified(destination, &why));
            };
            let Some(found) = &found else {
                let why = format!("{} tells none", destination.url);
                return Err(self.not_verified(destination, &why));
            };
            if found != expected {
                self.contradict_arrival();
                let (observed, detail) = checksum_differs(plan.checksum_from, expected, found);
                return Err(destination.failure(Phase::Finalization, &observed, detail));
            }
        }
        if destination.cloud.is_some() && report.verified.is_none() && found.is_none() {
            report.verified = Some(Verification::SizeOnly);
        }
        if report.checksum.is_none() {
            report.checksum = there.checksum;
        }
        let size = there.size.or(plan.size).unwrap_or(report.moved);
        // Markers round down; the whole file is there now.
        report.moved = size;
        Ok(size)
    }

    /// What the destination tells of the file that it has said it has. One that does not answer, or whose other servers
    /// do not know of the file yet, is asked again.
    async fn look_at_arrived(&self, destination: &End, wanted: StatScope) -> Result<Stat, Failure> {
        let mut pause = LOOK_PAUSE;
        for looked in 1.. {
            let there = self.stat(destination, wanted, Phase::Finalization).await;
            let failure = match there {
                Ok(Some(there)) => return Ok(there),
                Ok(None) => {
                    let detail = format!(
                        "{} is not there although its copy was reported as done",
                        destination.url
                    );
                    let observed = ObservedFailure::CopyFailed(CopyCause::Unknown);
                    destination.failure(Phase::Finalization, &observed, detail)
                }
                Err(failure) => failure,
            };
            if looked == LOOKS_MAX || failure.retry == Retry::Never {
                return Err(failure);
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
        unreachable!("it returns before it has looked for ever")
    }

    /// There is nothing to compare a checksum with. What has arrived is as large as it should be, and stays.
    fn not_verified(&self, destination: &End, why: &str) -> Failure {
        self.leave_what_is_there();
        let detail = format!(
            "the {} checksum of the copy cannot be verified: {why}; the copy was left at its destination: submit with \
             another checksum algorithm, or verify the source only",
            self.algorithm()
        );
        destination.failure(
            Phase::Finalization,
            &ObservedFailure::ChecksumUnavailable,
            detail,
        )
    }

    /// The destination has refused what arrived for its checksum; `found` is what was sent, where that is known.
    pub(super) fn checksum_refused(
        &self,
        plan: &PreflightFindings,
        found: Option<&Checksum>,
        said: &str,
    ) -> Failure {
        let expected = plan.checksum.as_ref();
        let (observed, words) = match (expected, found.filter(|found| Some(*found) != expected)) {
            (Some(expected), Some(found)) => checksum_differs(plan.checksum_from, expected, found),
            // It changed behind this service, or it is not known where.
            (Some(_) | None, _) => {
                let (observed, ends) = words_of_mismatch(plan.checksum_from);
                (observed, format!("{ends} checksum do not match"))
            }
        };
        let observed = match found.is_some() && found == expected {
            true => ObservedFailure::ChecksumMismatch,
            false => observed,
        };
        let detail = format!("{words}: {said}");
        classify(Side::Destination, Phase::Transfer, &observed, detail)
    }

    /// What a storage element says of a file; `None` when it does not exist. This,
    /// [`AttemptRun::remove_own`], [`AttemptRun::make_directories`] and [`AttemptRun::copy`] are where the way to speak
    /// is chosen.
    pub(super) async fn stat(
        &self,
        end: &End,
        wanted: StatScope,
        phase: Phase,
    ) -> Result<Option<Stat>, Failure> {
        let algorithm = self.algorithm();
        let seen = match (end.way(), wanted) {
            // With HTTP the checksum comes in the same answer.
            (AccessMethod::Http, _) => self.setup.stat(end, algorithm, phase).await?,
            (AccessMethod::Cloud(access), _) => {
                let seen = self.setup.stat_object(end, access, algorithm, phase);
                seen.await?
            }
            (AccessMethod::Gfal, wanted) => {
                let checksum = (wanted == StatScope::SizeAndChecksum).then_some(algorithm);
                let there = self.gfal_stat(end, checksum, phase).await?;
                Sighting { there, date: None }
            }
        };
        if end.side == Side::Destination {
            self.compare_clocks(seen.date);
        }
        let now = self.now();
        Ok(seen.there.map(|there| Stat {
            modified: there
                .modified
                .map(|modified| by_our_clock(modified, seen.date, now)),
            ..there
        }))
    }

    async fn make_directories(&self, end: &End) {
        match end.way() {
            AccessMethod::Http => self.setup.make_directories(end).await,
            // It has none.
            AccessMethod::Cloud(_) => {}
            AccessMethod::Gfal => self.gfal_make_directories(end).await,
        }
    }

    /// The source's checksum is to be compared, or stands in for one that the user does not know.
    fn wanted_of_source(&self) -> StatScope {
        let stands_in = self.assignment.request.checksum.is_none();
        match self.assignment.parameters.verify_checksum {
            ChecksumMode::Source | ChecksumMode::Both => StatScope::SizeAndChecksum,
            ChecksumMode::Target if stands_in => StatScope::SizeAndChecksum,
            ChecksumMode::Target | ChecksumMode::None if self.may_have_arrived() => {
                StatScope::SizeAndChecksum
            }
            ChecksumMode::Target | ChecksumMode::None => StatScope::Size,
        }
    }

    /// Before the copy a destination's checksum matters only where it may have arrived already, or is in the way and
    /// the user wants to know of it.
    fn wanted_of_destination(&self) -> StatScope {
        match self.may_have_arrived() || self.assignment.parameters.report_existing {
            true => StatScope::SizeAndChecksum,
            false => StatScope::Size,
        }
    }

    /// A failure that neither end is to blame for.
    pub(super) fn network_failure(&self, observed: &ObservedFailure, detail: String) -> Failure {
        classify(Side::Network, Phase::Transfer, observed, detail)
    }

    /// What the destination's storage element is told of the file for tape.
    pub(super) fn archive_note(&self) -> Option<HeaderValue> {
        let notes = self.assignment.request.tape.as_ref()?;
        notes.archive.as_ref().map(archive_note)
    }

    pub(super) fn algorithm(&self) -> ChecksumAlgorithm {
        let request = &self.assignment.request;
        request
            .checksum
            .as_ref()
            .map_or(request.checksum_algorithm, Checksum::algorithm)
    }

    pub(super) fn timeout(&self, size: Option<Bytes>) -> Duration {
        let config = &self.setup.config;
        let by_size = || {
            let mib = size.unwrap_or_default().0.div_ceil(1 << 20);
            config.timeout_base
                + config
                    .timeout_per_mib
                    .saturating_mul(u32::try_from(mib).unwrap_or(u32::MAX))
        };
        self.assignment
            .parameters
            .timeout_seconds
            .map_or_else(by_size, Duration::from_secs)
    }
}

/// What a mismatch means, and between whom it is, in FTS's words. Where the source itself tells another checksum than the
/// user, the next copy would have it again. Otherwise the bytes may have been damaged on their way.
fn words_of_mismatch(from: ChecksumFrom) -> (ObservedFailure, &'static str) {
    let by_user = "User-defined and destination";
    match from {
        ChecksumFrom::Source => (ObservedFailure::ChecksumMismatch, "Source and destination"),
        ChecksumFrom::User | ChecksumFrom::UserAndSource => {
            (ObservedFailure::ChecksumMismatch, by_user)
        }
        ChecksumFrom::UserAgainstSource => (ObservedFailure::UserChecksumMismatch, by_user),
    }
}

fn checksum_differs(
    from: ChecksumFrom,
    expected: &Checksum,
    found: &Checksum,
) -> (ObservedFailure, String) {
    let (observed, ends) = words_of_mismatch(from);
    let algorithm = match from {
        ChecksumFrom::Source => String::new(),
        ChecksumFrom::User | ChecksumFrom::UserAgainstSource | ChecksumFrom::UserAndSource => {
            format!(" {}", expected.algorithm())
        }
    };
    let (expected, found) = (expected.hex(), found.hex());
    let detail = format!("{ends}{algorithm} checksum do not match ({expected} != {found})");
    (observed, detail)
}

/// A failure that came after others ways were refused, which it tells as well.
fn after(not_offered: &[WayNotOffered], failure: Failure) -> Failure {
    let before = not_offered.iter().map(|way| {
        let (mode, why) = (way.mode.name(), &way.why);
        format!("; {mode} was not offered before: {why}")
    });
    let before: String = before.collect();
    Failure {
        detail: format!("{}{before}", failure.detail),
        ..failure
    }
}

fn found(there: &Stat, locality: Option<Locality>) -> FoundFile {
    FoundFile {
        size: there.size,
        checksum: there.checksum.clone(),
        locality,
    }
}

/// At most [`REASON_CHARS_MAX`], because each record is kept for good.
fn shortened(reason: &str) -> String {
    reason.chars().take(REASON_CHARS_MAX).collect()
}
