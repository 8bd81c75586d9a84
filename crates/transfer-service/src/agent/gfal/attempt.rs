//! The steps of an attempt at ends that gfal2 reaches: what is asked of a gfal process, and what its answers mean.
//! Long because a copy by a plug-in and a copy through this process share how they look, verify and clean up.

use super::process::{Process, Trouble};
use super::{SftpAccount, no_account};
use crate::agent::http::{End, Stat};
use crate::agent::steps::{AttemptRun, PreflightFindings};
use penstock_clock::wall_clock;
use penstock_decide::classify::{ObservedFailure, classify};
use penstock_decide::destination::CopyEnd;
use penstock_decide::gfal_way::{GfalWay, gfal_way, may_stream_instead};
use penstock_model::url::redact;
use penstock_model::{
    Access, Bytes, Checksum, ChecksumAlgorithm, CopyMode, CredentialId, Errno, Failure, FileUrl,
    MoverReport, Phase, Side, StreamUse, StreamsReason, TimeSpan, Timestamp, WayNotOffered,
};
use penstock_protocol::gfal::wire::WhichEnd;
use penstock_protocol::gfal::{CopyOrder, GfalError, Order, OrderResult, Report, Setup, SftpLogin};
use std::time::Duration;
use tokio::sync::MutexGuard;
use url::Url;

/// The library's time limit is shorter than that of its process by this much.
const EARLIER: Duration = Duration::from_secs(5);
/// Bytes of a private key for `sftp`.
const KEY_BYTES_MAX: usize = 64 << 10;
/// Errors that say that a storage element does not do a thing at all.
pub(super) const NOT_DONE: [Errno; 3] = [Errno::ENOSYS, Errno::EPROTONOSUPPORT, Errno::EOPNOTSUPP];

/// The process of an attempt, for as long as somebody speaks with it.
pub(in crate::agent) type LockedProcess<'a> = MutexGuard<'a, Option<Process>>;

impl AttemptRun<'_> {
    /// What gfal2 knows of a file; `None` when it does not exist.
    pub(in crate::agent) async fn gfal_stat(
        &self,
        end: &End,
        checksum: Option<ChecksumAlgorithm>,
        phase: Phase,
    ) -> Result<Option<Stat>, Failure> {
        let url = end.url.as_str().to_owned();
        let order = Order::Stat { url };
        let found = match self.ask(&order, self.question_limit()).await {
            Err(Trouble::Said(error)) if error.errno == Errno::ENOENT.0 => return Ok(None),
            found => found.map_err(|why| self.failure_at(end, phase, why))?,
        };
        if found.is_directory {
            let detail = format!("{} is a directory, not a file", end.url);
            return Err(end.failure(phase, &ObservedFailure::Said(Errno::EISDIR), detail));
        }
        let checksum = match checksum {
            Some(algorithm) => {
                self.gfal_checksum(end, algorithm, found.bytes, phase)
                    .await?
            }
            None => None,
        };
        Ok(Some(Stat {
            size: found.bytes.map(Bytes),
            checksum,
            modified: found
                .modified_seconds
                .map(|seconds| Timestamp(seconds * 1000)),
            version: None,
        }))
    }

    /// The checksum of a file; `None` where the storage element has none.
    async fn gfal_checksum(
        &self,
        end: &End,
        algorithm: ChecksumAlgorithm,
        bytes: Option<u64>,
        phase: Phase,
    ) -> Result<Option<Checksum>, Failure> {
        let order = Order::Checksum {
            url: end.url.as_str().to_owned(),
            algorithm: algorithm.name().to_ascii_uppercase(),
        };
        let limit = self.timeout(bytes.map(Bytes));
        match self.ask(&order, limit).await {
            Ok(answer) => {
                let value = answer.checksum.unwrap_or_default();
                Ok(Checksum::parse(&format!("{}:{value}", algorithm.name())))
            }
            Err(Trouble::Said(error)) if NOT_DONE.contains(&Errno(error.errno)) => {
                tracing::debug!(url = %end.url, why = %error, "no checksum");
                Ok(None)
            }
            Err(why) => Err(self.failure_at(end, phase, why)),
        }
    }

    /// Removes a file; there are no conditions to tell gfal2.
    pub(in crate::agent) async fn gfal_remove(
        &self,
        end: &End,
        phase: Phase,
    ) -> Result<(), Failure> {
        let url = end.url.as_str().to_owned();
        let order = Order::Remove { url };
        match self.ask(&order, self.question_limit()).await {
            Ok(_) => Ok(()),
            Err(Trouble::Said(error)) if error.errno == Errno::ENOENT.0 => Ok(()),
            Err(why) => Err(self.failure_at(end, phase, why)),
        }
    }

    /// Makes the directories above a destination. Errors are left to the copy that follows.
    pub(in crate::agent) async fn gfal_make_directories(&self, end: &End) {
        let Some(url) = directory_of(&end.url) else {
            return;
        };
        if self.setup.memory.knows_directory(&url) {
            return;
        }
        let order = Order::MakeDirectories { url: url.clone() };
        match self.ask(&order, self.question_limit()).await {
            Ok(_) => self.setup.memory.learn_directory(&url),
            Err(Trouble::Said(error)) if error.errno == Errno::EEXIST.0 => {
                self.setup.memory.learn_directory(&url);
            }
            Err(why) => tracing::debug!(url = %redact(&url), ?why, "no directory was made"),
        }
    }

    /// The copy, when an end needs gfal2.
    pub(in crate::agent) async fn copy_by_gfal(
        &self,
        source: &End,
        destination: &End,
        plan: &PreflightFindings,
    ) -> Result<(CopyMode, MoverReport), Failure> {
        self.begin_to_copy(plan);
        match gfal_way(&source.url, &destination.url) {
            GfalWay::ThroughService => {
                let report = self.streamed(source, destination, plan).await?;
                Ok((CopyMode::Streamed, report))
            }
            GfalWay::ThroughChild => {
                let report = self.stream_in_process(source, destination, plan).await?;
                Ok((CopyMode::Streamed, report))
            }
            GfalWay::ByPlugin => self.copy_by_plugin(source, destination, plan).await,
        }
    }

    async fn copy_by_plugin(
        &self,
        source: &End,
        destination: &End,
        plan: &PreflightFindings,
    ) -> Result<(CopyMode, MoverReport), Failure> {
        let parameters = &self.assignment.parameters;
        let order = Order::Copy(Box::new(CopyOrder {
            source: source.url.as_str().to_owned(),
            destination: destination.url.as_str().to_owned(),
            streams: parameters.streams,
            buffer_bytes: parameters.buffer.map(|buffer| buffer.0),
            replace: plan.replaces,
            // GridFTP's plug-in would look at both ends once more; the others need to be told what may be replaced.
            strict: source.url.scheme() == "gsiftp" && destination.url.scheme() == "gsiftp",
            timeout_seconds: self.timeout(plan.size).as_secs(),
            delegate: false,
            source_space: parameters.source_space.clone(),
            destination_space: parameters.destination_space.clone(),
        }));
        let mut way = None;
        let copied =
            self.ask_with_news(
                &order,
                self.setup.config.progress_timeout,
                |report| match report {
                    Report::CopiesBy { way: told } => {
                        way = Some(told);
                        false
                    }
                    Report::Progress { moved, .. } => {
                        let has_moved = moved > self.progress.moved();
                        self.progress.set_moved(moved);
                        has_moved
                    }
                    _ => false,
                },
            );
        let copied = copied.await;
        let mode = match way.as_deref() {
            Some("3rd pull") => CopyMode::Pull,
            Some("3rd push") => CopyMode::Push,
            _ => CopyMode::Streamed,
        };
        let trouble = match copied {
            Ok(_) => {
                let report = MoverReport {
                    moved: Bytes(self.progress.moved()),
                    streams: Some(self.streams_by_plugin(mode)),
                    ..MoverReport::default()
                };
                return Ok((mode, report));
            }
            Err(trouble) => trouble,
        };
        let errno = match &trouble {
            Trouble::Said(error) => Errno(error.errno),
            Trouble::Misdirected(..)
            | Trouble::Died(_)
            | Trouble::Silent(_)
            | Trouble::Refused(_) => Errno::ECANCELED,
        };
        let moved = self.progress.moved();
        let falls_back = may_stream_instead(&source.url, &destination.url, errno, moved);
        let failure = self.copy_failure(trouble);
        if !falls_back {
            return Err(failure);
        }
        // The session that the copy used is not good for reading a file in order.
        self.let_process_go().await;
        self.begin_to_copy(plan);
        let mut report = self.stream_in_process(source, destination, plan).await?;
        let why = failure.detail.chars().take(500).collect();
        report.not_offered.push(WayNotOffered { mode, why });
        Ok((CopyMode::Streamed, report))
    }

    /// From one end to the other through the process.
    async fn stream_in_process(
        &self,
        source: &End,
        destination: &End,
        plan: &PreflightFindings,
    ) -> Result<MoverReport, Failure> {
        let algorithm = self.algorithm();
        let order = Order::Stream {
            source: source.url.as_str().to_owned(),
            destination: destination.url.as_str().to_owned(),
            exclusive: !plan.replaces,
            algorithm: algorithm.name().to_owned(),
        };
        let news = |report| match report {
            Report::Progress { moved, .. } => {
                let has_moved = moved > self.progress.moved();
                self.progress.set_moved(moved);
                has_moved
            }
            _ => false,
        };
        let patience = self.setup.config.progress_timeout;
        let copied = self.ask_with_news(&order, patience, news).await;
        let answer = copied.map_err(|why| self.copy_failure(why))?;
        let moved = Bytes(answer.bytes.unwrap_or_default());
        self.progress.set_moved(moved.0);
        if let Some(size) = plan.size
            && size != moved
        {
            let detail = format!(
                "Source and destination file size mismatch: {} gave {} bytes of {}",
                source.url, moved.0, size.0
            );
            return Err(source.failure(Phase::Transfer, &ObservedFailure::SizeMismatch, detail));
        }
        let value = answer.checksum.unwrap_or_default();
        Ok(MoverReport {
            moved,
            checksum: Checksum::parse(&format!("{}:{value}", algorithm.name())),
            streams: Some(StreamUse {
                asked: self.assignment.parameters.streams,
                used: 1,
                because: vec![StreamsReason::ThroughService],
                ..StreamUse::default()
            }),
            ..MoverReport::default()
        })
    }

    /// Begins to read a file for the service.
    pub(in crate::agent) async fn begin_gfal_read(
        &self,
        source: &End,
    ) -> Result<LockedProcess<'_>, Failure> {
        let failed = |why| self.failure_at(source, Phase::Transfer, why);
        let mut held = self.gfal.lock().await;
        let process = self.ready(&mut held).await.map_err(failed)?;
        let url = source.url.as_str().to_owned();
        process
            .give(&Order::Read { url }, &[])
            .await
            .map_err(failed)?;
        Ok(held)
    }

    /// The next bytes of that file. 0: its end.
    pub(in crate::agent) async fn next_gfal_piece(
        &self,
        held: &mut LockedProcess<'_>,
        into: &mut [u8],
    ) -> Result<usize, Failure> {
        let Some(process) = held.as_mut() else {
            return Ok(0);
        };
        let read = process.next_piece(into, self.setup.config.progress_timeout);
        let read = read.await;
        read.map_err(|why| failure_of(Side::Source, Phase::Transfer, why))
    }

    /// Begins to write a file for the service.
    pub(in crate::agent) async fn begin_gfal_write(
        &self,
        destination: &End,
        plan: &PreflightFindings,
    ) -> Result<LockedProcess<'_>, Failure> {
        let mut held = self.gfal.lock().await;
        let begun = async {
            let process = self.ready(&mut held).await?;
            let order = Order::Write {
                url: destination.url.as_str().to_owned(),
                exclusive: !plan.replaces,
            };
            process.give(&order, &[]).await?;
            let patience = self.question_limit();
            let report = tokio::time::timeout(patience, process.report()).await;
            match report.map_err(|_| process.silence(patience))? {
                Ok(Report::Writing) => Ok(()),
                Ok(Report::Failed(error)) => Err(process.trouble(error)),
                Ok(_) | Err(_) => Err(Trouble::Died(process.how_it_died().await)),
            }
        };
        let begun = begun.await;
        begun.map_err(|why| self.write_failure(why))?;
        Ok(held)
    }

    /// The next bytes of that file. None: it is whole.
    pub(in crate::agent) async fn write_gfal_piece(
        &self,
        held: &mut LockedProcess<'_>,
        piece: Option<&[u8]>,
    ) -> Result<(), Failure> {
        let Some(process) = held.as_mut() else {
            return Ok(());
        };
        let patience = self.setup.config.progress_timeout;
        let written = match piece {
            Some(piece) => process.write_piece(piece, patience).await,
            None => {
                let end = Order::Piece { length: 0 };
                process.carry_out(&end, patience, |_| false).await.map(drop)
            }
        };
        written.map_err(|why| self.write_failure(why))
    }

    /// Resolves when the process that writes that file gives up, while it has nothing to write.
    pub(in crate::agent) async fn gfal_write_gives_up(
        &self,
        held: &mut LockedProcess<'_>,
    ) -> Failure {
        match held.as_mut() {
            Some(process) => self.write_failure(process.gives_up().await),
            None => std::future::pending().await,
        }
    }

    /// Ends the process of this attempt, and waits until it is gone.
    pub(in crate::agent) async fn let_process_go(&self) {
        let process = self.gfal.lock().await.take();
        if let Some(process) = process {
            process.end().await;
        }
    }

    async fn ask(&self, order: &Order, limit: Duration) -> Result<OrderResult, Trouble> {
        self.ask_with_news(order, limit, |_| false).await
    }

    async fn ask_with_news(
        &self,
        order: &Order,
        patience: Duration,
        news: impl FnMut(Report) -> bool,
    ) -> Result<OrderResult, Trouble> {
        let mut held = self.gfal.lock().await;
        let process = self.ready(&mut held).await?;
        let answer = process.carry_out(order, patience, news).await;
        if is_lost(&answer)
            && let Some(process) = held.take()
        {
            process.end().await;
        }
        answer
    }

    /// The process of this attempt, with nothing to do: a fresh one, when there is none or it is in the middle of
    /// something that nobody waits for any more.
    async fn ready<'h>(&self, held: &'h mut LockedProcess<'_>) -> Result<&'h mut Process, Trouble> {
        if let Some(process) = held.take_if(|process| process.is_busy()) {
            process.end().await;
        }
        if held.is_none() {
            **held = Some(self.fresh_process().await?);
        }
        held.as_mut()
            .ok_or_else(|| Trouble::Died("agent is gone".to_owned()))
    }

    async fn fresh_process(&self) -> Result<Process, Trouble> {
        let Some(gfal) = &self.setup.gfal else {
            return Err(Trouble::Died("gfal2 is not used here".to_owned()));
        };
        let refused = |failure| Trouble::Refused(Box::new(failure));
        let setup = self.gfal_setup().await.map_err(refused)?;
        let tokens = setup.tokens.iter().map(|(_, token)| token.clone());
        let mut secrets: Vec<String> = tokens.collect();
        for side in [Side::Source, Side::Destination] {
            let address = self.address(side).await.map_err(refused)?;
            secrets.extend(address.credentials());
        }
        let mut process = gfal.take().await.map_err(Trouble::Died)?;
        process.serve(
            self.assignment.request.id.0,
            gfal.judge(&self.setup.client),
            secrets,
        );
        let order = Order::Setup(Box::new(setup));
        let limit = self.question_limit();
        match process.carry_out(&order, limit, |_| false).await {
            Ok(_) => Ok(process),
            Err(why) => {
                process.kill().await;
                Err(why)
            }
        }
    }

    /// By what the ends are reached that gfal2 reaches.
    async fn gfal_setup(&self) -> Result<Setup, Failure> {
        let (request, parameters) = (&self.assignment.request, &self.assignment.parameters);
        let proxy = match &parameters.proxy {
            Some(id) => Some(self.setup.newest_proxy_text(id, wall_clock()).await?),
            None => None,
        };
        let mut tokens = Vec::new();
        let mut sftp: Option<&SftpAccount> = None;
        for side in [Side::Source, Side::Destination] {
            let (url, credential) = request.end(side);
            if url.access() != Access::Gfal {
                continue;
            }
            let address = self.address(side).await?;
            let shown = Url::parse(url.as_str()).is_ok_and(|url| self.setup.may_show_token(&url));
            if let Some(token) = self.token_for(credential.filter(|_| shown), side).await? {
                tokens.push((address.as_str().to_owned(), token));
            }
            if url.scheme() == "sftp" {
                sftp = Some(self.sftp_account(url, side, sftp)?);
            }
        }
        let sftp = match sftp {
            Some(account) => Some(sftp_login(account).await?),
            None => None,
        };
        let question = self.question_limit().saturating_sub(EARLIER);
        Ok(Setup {
            proxy,
            tokens,
            sftp,
            question_seconds: whole_seconds(question),
            checksum_seconds: whole_seconds(self.timeout(request.size)),
            client_info: vec![
                ("job-id".to_owned(), self.assignment.job.to_string()),
                ("file-id".to_owned(), request.id.to_string()),
            ],
        })
    }

    async fn token_for(
        &self,
        credential: Option<&CredentialId>,
        side: Side,
    ) -> Result<Option<String>, Failure> {
        match credential {
            Some(id) => Ok(Some(self.token(id, side).await?.to_string())),
            None => Ok(None),
        }
    }

    /// The site's account at an `sftp` server. One process has one account.
    fn sftp_account(
        &self,
        url: &FileUrl,
        side: Side,
        other: Option<&SftpAccount>,
    ) -> Result<&SftpAccount, Failure> {
        let refused = |detail| {
            classify(
                side,
                Phase::Preparation,
                &ObservedFailure::Forbidden,
                detail,
            )
        };
        let gfal = self.setup.gfal.as_ref();
        let vo = &self.assignment.vo;
        let account = gfal.and_then(|gfal| gfal.sftp_account(url, vo));
        let account = account.ok_or_else(|| refused(no_account(&url.storage(), vo)))?;
        match other {
            Some(other) if !other.is_same_login(account) => Err(refused(
                "the two sftp servers need different accounts, which gfal2 cannot use in one copy"
                    .to_owned(),
            )),
            Some(_) | None => Ok(account),
        }
    }

    /// How long one question may take.
    fn question_limit(&self) -> Duration {
        let limit = self.setup.config.stall_timeout;
        let asked = self.assignment.parameters.timeout_seconds;
        asked.map_or(limit, |asked| limit.min(Duration::from_secs(asked)))
    }

    fn streams_by_plugin(&self, mode: CopyMode) -> StreamUse {
        let asked = self.assignment.parameters.streams;
        StreamUse {
            asked,
            used: asked.unwrap_or(1),
            because: vec![match (mode, asked) {
                (CopyMode::Streamed, _) => StreamsReason::ThroughService,
                (CopyMode::Pull | CopyMode::Push, Some(_)) => StreamsReason::AsAsked,
                (CopyMode::Pull | CopyMode::Push, None) => StreamsReason::LeftToUs,
            }],
            ..StreamUse::default()
        }
    }

    /// A failure at an end, with its name: libraries often leave that out.
    fn failure_at(&self, end: &End, phase: Phase, trouble: Trouble) -> Failure {
        let is_of_end = matches!(
            trouble,
            Trouble::Said(_) | Trouble::Misdirected(..) | Trouble::Silent(_)
        );
        let mut failure = failure_of(end.side, phase, trouble);
        if is_of_end {
            failure.detail = format!("{} ({})", failure.detail, end.url);
        }
        failure
    }

    /// What an order to write that failed says of the destination.
    fn note_trouble(&self, trouble: &Trouble) {
        let end = match trouble {
            Trouble::Said(error) => match Errno(error.errno) {
                Errno::EEXIST => CopyEnd::Occupied,
                Errno::ETIMEDOUT | Errno::ECOMM | Errno::ECONNREFUSED => CopyEnd::Unknown,
                _ => CopyEnd::Ended,
            },
            Trouble::Refused(_) => CopyEnd::Refused,
            Trouble::Misdirected(..) => CopyEnd::Ended,
            Trouble::Died(_) | Trouble::Silent(_) => CopyEnd::Unknown,
        };
        self.note_end(end);
    }

    fn write_failure(&self, trouble: Trouble) -> Failure {
        self.note_trouble(&trouble);
        let mut failure = failure_of(Side::Destination, Phase::Transfer, trouble);
        let destination = &self.assignment.request.destination;
        failure.detail = format!("{} ({destination})", failure.detail);
        failure
    }

    fn copy_failure(&self, trouble: Trouble) -> Failure {
        self.note_trouble(&trouble);
        let mut failure = failure_of(Side::Network, Phase::Transfer, trouble);
        let request = &self.assignment.request;
        failure.detail = format!(
            "{} ({} to {})",
            failure.detail, request.source, request.destination
        );
        failure
    }
}

/// What an order without an answer means.
pub(super) fn failure_of(side: Side, phase: Phase, trouble: Trouble) -> Failure {
    match trouble {
        Trouble::Said(error) => {
            let side = side_of(&error, side);
            let observed = ObservedFailure::Said(Errno(error.errno));
            classify(side, phase, &observed, error.message)
        }
        Trouble::Misdirected(error, refused) => {
            let side = side_of(&error, side);
            let detail = format!(
                "a server sent this transfer on to {}, where this service may not connect: {}; gfal2 said: {}",
                refused.address, refused.why, error.message
            );
            classify(side, phase, &ObservedFailure::Forbidden, detail)
        }
        Trouble::Refused(failure) => *failure,
        Trouble::Died(why) => classify(Side::Service, phase, &ObservedFailure::Broken, why),
        Trouble::Silent(limit) => {
            let detail = format!(
                "Connection timed out: gfal2 did not get on for {}; its process was ended",
                TimeSpan(limit)
            );
            classify(side, phase, &ObservedFailure::TimedOut, detail)
        }
    }
}

fn side_of(error: &GfalError, otherwise: Side) -> Side {
    match error.end {
        Some(WhichEnd::Source) => Side::Source,
        Some(WhichEnd::Destination) => Side::Destination,
        None => otherwise,
    }
}

/// By what a process logs in: it cannot read the site's files itself.
async fn sftp_login(account: &SftpAccount) -> Result<SftpLogin, Failure> {
    let failed = |why: String| {
        let detail = format!("transfer.gfal.sftp: {}: {why}", account.key.display());
        classify(
            Side::Service,
            Phase::Preparation,
            &ObservedFailure::Broken,
            detail,
        )
    };
    let key = tokio::fs::read(&account.key).await;
    let key = key.map_err(|why| failed(why.to_string()))?;
    let key =
        String::from_utf8(key).map_err(|_| failed("it is not a private key in PEM".into()))?;
    if key.len() > KEY_BYTES_MAX {
        return Err(failed("it is too large for a private key".to_owned()));
    }
    Ok(SftpLogin {
        user: account.user.clone(),
        key,
    })
}

/// The process takes no further order.
fn is_lost(answer: &Result<OrderResult, Trouble>) -> bool {
    matches!(answer, Err(Trouble::Died(_) | Trouble::Silent(_)))
}

pub(super) fn whole_seconds(span: Duration) -> u32 {
    u32::try_from(span.as_secs()).unwrap_or(u32::MAX).max(1)
}

/// The directory of a file, as a URL; `None` for one at the root.
fn directory_of(url: &FileUrl) -> Option<String> {
    let text = url.as_str();
    // SRM's long form has the file in the query.
    let text = match text.contains("?SFN=") {
        true => text,
        false => text.split_once('?').map_or(text, |(path, _)| path),
    };
    let (directory, _) = text.trim_end_matches('/').rsplit_once('/')?;
    let (_, after_scheme) = directory.split_once("://")?;
    let path = after_scheme.split_once('/')?.1;
    (!path.trim_matches('/').is_empty() && !path.ends_with("?SFN=")).then(|| directory.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_of_a_file_is_found_in_all_kinds_of_urls() {
        let check = |url: &str, expected: Option<&str>| {
            let url = FileUrl::parse(url).expect("valid");
            assert_eq!(directory_of(&url).as_deref(), expected, "{url}");
        };
        check("gsiftp://se:2811/a/b/f", Some("gsiftp://se:2811/a/b"));
        check("root://se//a/f?authz=x/y", Some("root://se//a"));
        check("root://se//f", None);
        check("sftp://se/f", None);
        check(
            "srm://se:8443/srm/managerv2?SFN=/a/f",
            Some("srm://se:8443/srm/managerv2?SFN=/a"),
        );
        check("srm://se:8443/srm/managerv2?SFN=/f", None);
    }
}
