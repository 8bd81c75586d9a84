//! The steps of one attempt, in FTS's order: look at both ends, copy, verify; on failure clean up.

use super::gfal::Process;
use super::http::{End, Stat, Way};
use super::{AgentSetup, Progress};
use crate::engine::{Assignment, Looked, Outcome};
use crate::run::AgentReport;
use crate::run::wall_clock;
use http::HeaderValue;
use penstock_decide::classify::{Observed, classify};
use penstock_model::{
    Access, Bytes, Checksum, ChecksumAlgorithm, ChecksumMode, CopyMode, CredentialId, Errno,
    Failure, FileUrl, FoundFile, LedgerEntry, Locality, MoverReport, Overwrite, Phase, Retry, Side,
    TransferEvent, Verification, WayNotOffered,
};
use penstock_protocol::s3::SINGLE_PUT_MAX;
use penstock_protocol::tape::archive_note;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use url::Url;

/// Characters of the reason for which a copy was streamed.
const REASON_CHARS_MAX: usize = 500;

/// Records of one transfer that are looked through; more are not made by any number of retries that is allowed.
const ENTRIES_MAX: usize = 10_000;

/// What an attempt found at the destination before it moved a byte.
struct Prepared {
    /// Of the file that it was to bring.
    size: Option<Bytes>,
    /// Something was there, and could be replaced.
    replaces: bool,
}

/// One attempt while it runs.
pub(super) struct Attempting<'a> {
    pub(super) setup: &'a AgentSetup,
    pub(super) assignment: &'a Assignment,
    pub(super) progress: &'a Progress,
    /// What is at the destination can only be this attempt's doing: a failure or a stop removes it.
    ours: AtomicBool,
    /// What an earlier attempt may have left at the destination has not been settled yet.
    unsettled: AtomicBool,
    /// What works with gfal2 for this attempt, once it is needed.
    pub(super) gfal: tokio::sync::Mutex<Option<Process>>,
    /// The ends as they were reached first: a token may be gone from the journal when a stopped copy is cleaned up.
    ends: OnceLock<(End, End)>,
}

/// What looking at both ends found.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    /// Size at the source; unknown with `strict_copy` or when the source does not say.
    pub(super) size: Option<Bytes>,
    /// Checksum that the destination must have, if any is known.
    pub(super) checksum: Option<Checksum>,
    /// A destination exists and may be replaced.
    pub(super) replaces: bool,
    /// The destination was looked at and nothing was there. Not so with `strict_copy`, which does not look.
    pub(super) was_absent: bool,
}

/// What is asked of a file. A checksum costs some storage elements a pass over the whole file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Size,
    SizeAndChecksum,
}

/// What the look found: go on, or it is there already.
enum Look {
    Copy(Plan),
    Arrived(Bytes, Option<Checksum>),
}

impl<'a> Attempting<'a> {
    pub(super) fn new(
        setup: &'a AgentSetup,
        assignment: &'a Assignment,
        progress: &'a Progress,
    ) -> Self {
        Attempting {
            setup,
            assignment,
            progress,
            ours: AtomicBool::new(false),
            unsettled: AtomicBool::new(assignment.unsettled),
            gfal: tokio::sync::Mutex::default(),
            ends: OnceLock::new(),
        }
    }

    /// Runs all steps. Cancel-safe: dropped at any point, it leaves `clean_up_after_stop` to be called.
    pub(super) async fn run(
        &self,
        may_proceed: oneshot::Receiver<()>,
        reports: &mpsc::Sender<AgentReport>,
    ) -> Outcome {
        match self.attempt(may_proceed, reports).await {
            Ok(outcome) => outcome,
            Err(mut failure) => {
                self.give_up_macaroons(&mut failure);
                let cleaned = self.clean_up().await;
                Outcome::Failed { failure, cleaned }
            }
        }
    }

    /// Removes what this attempt made at the destination, when it was stopped half-way.
    pub(super) async fn clean_up_after_stop(&self) {
        self.clean_up().await;
    }

    /// Removes what an attempt of unknown outcome has left at the destination.
    pub(super) async fn tidy_up(&self) {
        if self.assignment.parameters.disable_cleanup {
            return;
        }
        let _turn = self.setup.memory.tidying.acquire().await;
        let url = &self.assignment.request.destination;
        let Ok(destination) = self.end(url, Side::Destination).await else {
            return;
        };
        if let Some(access) = &destination.cloud {
            self.abort_uploads(access).await;
        }
        let there = self.stat(&destination, Wanted::Size, Phase::Finalization);
        let removed = match there.await {
            Ok(None) => true,
            Ok(Some(there)) if self.is_ours(&there).await => self.remove(&destination).await,
            // Somebody else's.
            Ok(Some(_)) => true,
            Err(_) => false,
        };
        if !removed {
            let transfer = self.assignment.request.id.0;
            tracing::warn!(transfer, destination = %url, "what an interrupted attempt may have left there was not removed");
        }
    }

    /// An attempt that nobody knows the outcome of may have brought the file: the one before, or one after the backup
    /// that the job was brought back from.
    fn may_have_arrived(&self) -> bool {
        self.assignment.unsettled || self.assignment.parameters.restored_at.is_some()
    }

    /// What is at the destination can only come from an attempt of unknown outcome: the journal tells that nothing was
    /// there before it, and there are not more bytes than it was to bring.
    async fn is_ours(&self, there: &Stat) -> bool {
        // With `strict_copy` nobody had looked.
        if !self.assignment.unsettled || self.assignment.parameters.strict_copy {
            return false;
        }
        match self.last_prepared().await {
            Some(Prepared {
                size,
                replaces: false,
            }) => there
                .size
                .is_some_and(|there| size.is_none_or(|size| there <= size)),
            Some(_) | None => false,
        }
    }

    /// What the last attempt that was allowed to move bytes had found. `None` also when the journal cannot tell.
    async fn last_prepared(&self) -> Option<Prepared> {
        let (reader, transfer) = (self.setup.reader.clone(), self.assignment.request.id);
        let entries =
            tokio::task::spawn_blocking(move || reader.entries_of(transfer, ENTRIES_MAX)).await;
        let entries = entries.ok()?.ok()?;
        if entries.len() == ENTRIES_MAX {
            return None;
        }
        // Between a backup and its return others may have written there.
        let restored_at = self.assignment.parameters.restored_at;
        let counts = |entry: &&LedgerEntry| restored_at.is_none_or(|time| entry.at >= time);
        let mut since = entries.iter().filter(counts).rev();
        since.find_map(|entry| match &entry.event {
            TransferEvent::Prepared { size, replaces, .. } => Some(Prepared {
                size: *size,
                replaces: *replaces,
            }),
            _ => None,
        })
    }

    async fn attempt(
        &self,
        may_proceed: oneshot::Receiver<()>,
        reports: &mpsc::Sender<AgentReport>,
    ) -> Result<Outcome, Failure> {
        let (source, destination) = tokio::try_join!(
            self.end(&self.assignment.request.source, Side::Source),
            self.end(&self.assignment.request.destination, Side::Destination),
        )?;
        // Set once: an attempt looks once.
        let _ = self.ends.set((source.clone(), destination.clone()));
        if let Some(access) = &destination.cloud {
            self.abort_uploads(access).await;
        }
        let plan = match self.look(&source, &destination).await? {
            Look::Copy(plan) => plan,
            Look::Arrived(size, checksum) => {
                let report = MoverReport {
                    checksum,
                    ..MoverReport::default()
                };
                return Ok(Outcome::Landed {
                    size,
                    mode: None,
                    report: Box::new(report),
                });
            }
        };
        if plan.was_absent {
            self.make_directories(&destination).await;
        }
        self.announce(&plan, may_proceed, reports).await?;
        let timeout = self.timeout(plan.size);
        let copied = tokio::time::timeout(timeout, self.copy(&source, &destination, &plan)).await;
        let (mode, mut report) = copied.unwrap_or_else(|_| {
            let detail = format!(
                "Connection timed out: the copy took longer than {} s",
                timeout.as_secs()
            );
            Err(classify(
                Side::Network,
                Phase::Transfer,
                &Observed::TimedOut,
                detail,
            ))
        })?;
        // A long copy may have outlived the token or the macaroon that it began with.
        let destination = self.renewed(&destination).await;
        let size = self.verify(&destination, &plan, &mut report).await?;
        Ok(Outcome::Landed {
            size,
            mode: Some(mode),
            report: Box::new(report),
        })
    }

    async fn end(&self, url: &FileUrl, side: Side) -> Result<End, Failure> {
        if url.access() == Access::Cloud {
            return self.cloud_end(url, side).await;
        }
        let broken =
            |observed, detail: String| classify(side, Phase::Preparation, &observed, detail);
        let parsed = Url::parse(url.as_str())
            .map_err(|why| broken(Observed::Malformed, format!("{url}: {why}")))?;
        let token = match self.assignment.request.end(side).1 {
            Some(id) => Some(self.token(id, side).await?),
            None => None,
        };
        let end = End {
            url: url.clone(),
            parsed,
            token,
            proxy: None,
            cloud: None,
            side,
        };
        if url.access() == Access::Gfal {
            let allowed = self.setup.client.may_reach(url.host()).await;
            allowed.map_err(|why| end.client_failure(Phase::Preparation, &why))?;
        }
        match (&end.token, &self.assignment.parameters.proxy) {
            (None, Some(id)) if end.speaks_tls() => self.by_proxy(end, id).await,
            _ => Ok(end),
        }
    }

    pub(super) async fn token(&self, id: &CredentialId, side: Side) -> Result<Arc<str>, Failure> {
        let token = self.setup.tokens.usable(id).await;
        token.map_err(|trouble| trouble.into_failure(side, Phase::Preparation))
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

    /// The same end by what is valid now; as it was when that fails.
    async fn renewed(&self, end: &End) -> End {
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
            Some(id) => self.token(id, end.side).await.ok(),
            None => None,
        };
        End {
            token: token.or_else(|| end.token.clone()),
            ..end.clone()
        }
    }

    /// A macaroon that is accepted no longer (401) says nothing of the user: its storage element has changed its keys.
    /// It is forgotten, and the next attempt asks for another one.
    fn give_up_macaroons(&self, failure: &mut Failure) {
        let Some((source, destination)) = self.ends.get() else {
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
    async fn look(&self, source: &End, destination: &End) -> Result<Look, Failure> {
        let parameters = &self.assignment.parameters;
        let request = &self.assignment.request;
        if parameters.strict_copy {
            let plan = Plan {
                size: request.size,
                checksum: None,
                replaces: parameters.overwrite != Overwrite::Never,
                was_absent: false,
            };
            return Ok(Look::Copy(plan));
        }
        let (at_source, at_destination) = tokio::join!(
            self.stat(source, self.wanted_of_source(), Phase::Preparation),
            self.stat(
                destination,
                self.wanted_of_destination(),
                Phase::Preparation
            ),
        );
        let Some(at_source) = at_source? else {
            let detail = format!("No such file or directory: {}", source.url);
            return Err(source.failure(Phase::Preparation, &Observed::Status(404), detail));
        };
        let expected = self.expected_checksum(source, &at_source)?;
        let replaces = match at_destination? {
            None => false,
            Some(there) => {
                if self.may_have_arrived()
                    && let Some(size) = same_file(&at_source, &there)
                {
                    return Ok(Look::Arrived(size, there.checksum));
                }
                self.make_way(destination, &there).await?
            }
        };
        self.unsettled.store(false, Ordering::Relaxed);
        Ok(Look::Copy(Plan {
            size: at_source.size,
            checksum: expected,
            replaces,
            was_absent: !replaces,
        }))
    }

    /// Decides about a destination that exists. True: it is to be replaced. False: it was removed, because it was
    /// left by our own attempt, whose outcome was not known and before which nothing was there. What may be replaced
    /// is not removed for that: it stays until the new file is whole.
    async fn make_way(&self, destination: &End, there: &Stat) -> Result<bool, Failure> {
        let is_ours = self.is_ours(there).await;
        if self.may_overwrite() && !is_ours {
            return Ok(true);
        }
        if self.assignment.parameters.overwrite == Overwrite::OnlyOnDisk && !is_ours {
            return self.is_only_on_disk(destination, there).await;
        }
        if !is_ours {
            let detail = "Destination file exists and overwrite is not enabled";
            let mut failure = destination.failure(Phase::Preparation, &Observed::Exists, detail);
            if self.assignment.parameters.report_existing {
                let on_tape = self.assignment.parameters.archive_seconds.is_some();
                let locality = match on_tape {
                    true => self.setup.locality(self.assignment).await.ok(),
                    false => None,
                };
                failure.found = Some(Box::new(found(there, locality)));
            }
            return Err(failure);
        }
        if !self.remove(destination).await {
            let detail = format!(
                "cannot remove what an interrupted attempt left at {}",
                destination.url
            );
            return Err(destination.failure(Phase::Preparation, &Observed::Broken, detail));
        }
        Ok(false)
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
        let mut failure = destination.failure(Phase::Preparation, &Observed::Exists, detail);
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
    ) -> Result<Option<Checksum>, Failure> {
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
            return Err(source.failure(Phase::Preparation, &Observed::ChecksumMismatch, detail));
        }
        Ok(user.or_else(|| at_source.checksum.clone()))
    }

    /// Tells the engine what was found and waits until that is durable.
    async fn announce(
        &self,
        plan: &Plan,
        may_proceed: oneshot::Receiver<()>,
        reports: &mpsc::Sender<AgentReport>,
    ) -> Result<(), Failure> {
        if let Some(size) = plan.size {
            self.progress.set_size(size.0);
        }
        let report = AgentReport::Prepared {
            transfer: self.assignment.request.id,
            attempt: self.assignment.attempt,
            looked: Looked {
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
        plan: &Plan,
    ) -> Result<(CopyMode, MoverReport), Failure> {
        use super::third_party::Refusal;
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
                Err(Refusal::NotOffered(why)) => {
                    tracing::debug!(transfer = self.assignment.request.id.0, mode = mode.name(), %why, "not offered");
                    let why = shortened(&why);
                    not_offered.push(WayNotOffered { mode, why });
                }
                Err(Refusal::Failed(failure)) => return Err(failure),
            }
        }
        self.begin_to_copy(plan);
        let mut report = self.streamed(source, destination, plan).await?;
        report.not_offered = not_offered;
        Ok((CopyMode::Streamed, report))
    }

    /// Why the ends cannot copy that way between themselves, if it is known before they are asked.
    fn why_closed(
        &self,
        mode: CopyMode,
        source: &End,
        destination: &End,
        plan: &Plan,
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
    fn verifies_target(&self) -> bool {
        match self.assignment.parameters.verify_checksum {
            ChecksumMode::Target | ChecksumMode::Both => !self.assignment.parameters.strict_copy,
            ChecksumMode::None | ChecksumMode::Source => false,
        }
    }

    /// Compares size and checksum at the destination with what was expected.
    async fn verify(
        &self,
        destination: &End,
        plan: &Plan,
        report: &mut MoverReport,
    ) -> Result<Bytes, Failure> {
        if self.assignment.parameters.strict_copy {
            return Ok(plan.size.unwrap_or(report.moved));
        }
        let algorithm = self.algorithm();
        let wanted = match self.verifies_target() {
            true => Wanted::SizeAndChecksum,
            false => Wanted::Size,
        };
        let Some(there) = self.stat(destination, wanted, Phase::Finalization).await? else {
            let detail = format!(
                "{} is not there although its copy was reported as done",
                destination.url
            );
            return Err(destination.failure(Phase::Finalization, &Observed::CopyFailed, detail));
        };
        if let (Some(expected), Some(size)) = (plan.size, there.size)
            && expected != size
        {
            let detail = format!(
                "Source and destination file size mismatch ({} != {})",
                expected.0, size.0
            );
            return Err(destination.failure(Phase::Finalization, &Observed::SizeMismatch, detail));
        }
        // The storage checked each part; what it then tells of the whole is our own word.
        let passed = match report.verified {
            Some(Verification::InPassing) => report.checksum.clone(),
            Some(Verification::SizeOnly) | None => None,
        };
        let found = passed.or_else(|| there.checksum.clone());
        if self.verifies_target() {
            let Some(expected) = &plan.checksum else {
                let detail = format!(
                    "the {algorithm} checksum cannot be verified: neither the job nor {} tells one",
                    self.assignment.request.source
                );
                return Err(destination.failure(
                    Phase::Finalization,
                    &Observed::ChecksumMismatch,
                    detail,
                ));
            };
            let found = found.as_ref().map_or("none", Checksum::hex);
            if found != expected.hex() {
                let detail = format!(
                    "Source and destination checksum do not match ({} != {found})",
                    expected.hex()
                );
                return Err(destination.failure(
                    Phase::Finalization,
                    &Observed::ChecksumMismatch,
                    detail,
                ));
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

    /// A way of copying begins: what it leaves at an empty destination is ours.
    pub(super) fn begin_to_copy(&self, plan: &Plan) {
        self.progress.set_moved(0);
        self.ours.store(plan.was_absent, Ordering::Relaxed);
    }

    /// What a storage element says of a file; `None` when it does not exist. This, [`Attempting::remove`],
    /// [`Attempting::make_directories`] and [`Attempting::copy`] are where the way to speak is chosen.
    async fn stat(&self, end: &End, wanted: Wanted, phase: Phase) -> Result<Option<Stat>, Failure> {
        let algorithm = self.algorithm();
        match (end.way(), wanted) {
            // With HTTP the checksum comes in the same answer.
            (Way::Http, _) => self.setup.stat(end, algorithm, phase).await,
            (Way::Cloud(access), _) => {
                let there = self.setup.stat_object(end, access, algorithm, phase);
                there.await
            }
            (Way::Gfal, Wanted::Size) => self.gfal_stat(end, None, phase).await,
            (Way::Gfal, Wanted::SizeAndChecksum) => {
                self.gfal_stat(end, Some(algorithm), phase).await
            }
        }
    }

    /// True when the file is known to be gone.
    async fn remove(&self, end: &End) -> bool {
        match end.way() {
            Way::Http => self.setup.remove(end).await,
            Way::Cloud(access) => self.setup.remove_object(access).await,
            Way::Gfal => self.gfal_remove(end).await,
        }
    }

    async fn make_directories(&self, end: &End) {
        match end.way() {
            Way::Http => self.setup.make_directories(end).await,
            // It has none.
            Way::Cloud(_) => {}
            Way::Gfal => self.gfal_make_directories(end).await,
        }
    }

    /// The source's checksum is to be compared, or stands in for one that the user does not know.
    fn wanted_of_source(&self) -> Wanted {
        let stands_in = self.assignment.request.checksum.is_none();
        match self.assignment.parameters.verify_checksum {
            ChecksumMode::Source | ChecksumMode::Both => Wanted::SizeAndChecksum,
            ChecksumMode::Target if stands_in => Wanted::SizeAndChecksum,
            ChecksumMode::Target | ChecksumMode::None if self.may_have_arrived() => {
                Wanted::SizeAndChecksum
            }
            ChecksumMode::Target | ChecksumMode::None => Wanted::Size,
        }
    }

    /// Before the copy a destination's checksum matters only where it may have arrived already, or is in the way and
    /// the user wants to know of it.
    fn wanted_of_destination(&self) -> Wanted {
        match self.may_have_arrived() || self.assignment.parameters.report_existing {
            true => Wanted::SizeAndChecksum,
            false => Wanted::Size,
        }
    }

    /// The destination refused before it took a byte. What is there, if anything, came from somebody else since we
    /// looked, and is not ours to remove.
    pub(super) fn nothing_was_written(&self) {
        self.ours.store(false, Ordering::Relaxed);
    }

    /// True when nothing of this attempt, or of those before it, is left at the destination.
    async fn clean_up(&self) -> bool {
        if let Some((_, destination)) = self.ends.get()
            && let Some(access) = &destination.cloud
        {
            // Nobody sees it, but it takes room.
            self.abort_uploads(access).await;
        }
        if !self.ours.load(Ordering::Relaxed) {
            // This attempt left nothing; whether an earlier one did may be as unknown as before.
            return !self.unsettled.load(Ordering::Relaxed);
        }
        if self.assignment.parameters.disable_cleanup {
            return false;
        }
        match self.ends.get() {
            Some((_, destination)) => {
                let destination = self.renewed(destination).await;
                self.remove(&destination).await
            }
            None => false,
        }
    }

    /// A failure that neither end is to blame for.
    pub(super) fn network_failure(&self, observed: &Observed, detail: String) -> Failure {
        classify(Side::Network, Phase::Transfer, observed, detail)
    }

    fn may_overwrite(&self) -> bool {
        match self.assignment.parameters.overwrite {
            // The engine has decided which hop is an intermediate one.
            Overwrite::Never
            | Overwrite::IntermediateHops
            | Overwrite::OnlyOnDisk
            | Overwrite::IntermediateHopsAndOnlyOnDisk => false,
            Overwrite::Always => true,
            Overwrite::OnRetry => self.assignment.attempt.0 > 1,
        }
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

/// The common size when both ends hold the same file as far as they tell: sizes known and equal, checksums equal
/// where both tell one.
fn same_file(one: &Stat, other: &Stat) -> Option<Bytes> {
    let size = one.size.filter(|size| Some(*size) == other.size)?;
    match (&one.checksum, &other.checksum) {
        (Some(one), Some(other)) if one == other => Some(size),
        _ => None,
    }
}
