//! Copies between two storage elements: the transfer engine, in this process, for as long as the copy takes.

use super::report::{CopiedFile, IntendedFile};
use super::{Found, Order, VersionThere, make_directories};
use crate::commands::access::Purpose;
use crate::commands::access::{Access, Need, Server, audiences_of};
use crate::commands::own_sources::refuse_own_sources;
use crate::commands::progress::shown;
use crate::exit::CommandError;
use penstock_decide::halting::HaltPolicy;
use penstock_decide::scheduler::SlotLimits;
use penstock_decide::staging::StagingPolicy;
use penstock_engine::EngineConfig;
use penstock_engine::checked_submission::{NewJob, NewTransfer};
use penstock_field_tools::bulk_copy::{
    CopyResult, ExistingCopy, Intention, RemoteCopy, each_of, look_at_remote_copy,
};
use penstock_field_tools::remote::{Remote, below, path_of};
use penstock_field_tools::remote_error::RemoteError;
use penstock_field_tools::remote_tree::{self, RemoteTree};
use penstock_field_tools::server_identity::{ServerIdentity, overlap};
use penstock_model::url::redact;
use penstock_model::{
    Activity, Bytes, ChecksumAlgorithm, ChecksumMode, CredentialId, Failure, FileUrl, JobId,
    JobParameters, JobToken, Overwrite, Slots, TransferState, TuningPolicy, UserName, VoName,
};
use penstock_persistence::sealing::SealingKeys;
use penstock_protocol::hosts::HostPattern;
use penstock_protocol::token::credential_id;
use penstock_protocol::token::without_credentials;
use penstock_transfer_service::Banned;
use penstock_transfer_service::{
    AgentConfig, LinkSampling, Service, ServiceConfig, StoreBackend, TokenClients,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::sync::watch;
use url::Url;
use uuid::Uuid;

/// Files per job of the engine: bounds what one transaction writes.
const FILES_PER_JOB: usize = 10_000;
/// How often the engine is asked how far it is.
const POLL: Duration = Duration::from_millis(100);
/// Retries of one file, and the wait before the first.
const RETRIES: u32 = 2;
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// A file and where its copy goes.
#[derive(Debug, Clone)]
struct Pair {
    source: Url,
    destination: Url,
    size: Option<Bytes>,
    /// What is there may be replaced.
    overwrite: bool,
}

/// The token for each end, if there is any.
struct Ends {
    source: Option<String>,
    destination: Option<String>,
}

pub struct BetweenPlan {
    pub(super) remote: Remote,
    pub(super) to: Url,
    access: Access,
    tokens: Ends,
    from: Url,
    is_tree: bool,
    directories: Vec<Vec<String>>,
    pairs: Vec<Pair>,
    servers: ServerIdentity,
    /// Of the source, where the destination may be at the same server.
    pub(super) versions: BTreeSet<VersionThere>,
    pub(super) found: Found,
}

pub(super) async fn find(
    from: &Url,
    to: &Url,
    order: &Order<'_>,
) -> Result<BetweenPlan, CommandError> {
    if order.bulk.bwlimit.is_some() {
        return Err(CommandError::Usage(
            "--bwlimit limits what passes through this machine, but these files go from server to server; limit a storage \
             element with penstock se set"
                .to_owned(),
        ));
    }
    let parallel = order.parallel();
    let access = Access::open(&order.bulk.access, order.environment, parallel)?;
    let ends = [(from, Purpose::Read), (to, Purpose::Modify)];
    let remote = Remote::new(access.client.clone(), access.for_files(&ends)?);
    let [source_token, destination_token] = ends.map(|(url, purpose)| {
        access.job_token(&Need {
            scope: purpose.scope(&path_of(url)?),
            audiences: audiences_of(url),
        })
    });
    let servers = find_identity(&remote, from, to).await?;
    if servers == ServerIdentity::Same && path_of(to)?.is_within(&path_of(from)?) {
        return Err(CommandError::Usage(format!(
            "{to} is the source itself or is in it{}, so it cannot be the destination",
            aliases(from, to)
        )));
    }
    let tokens = Ends {
        source: source_token?,
        destination: destination_token?,
    };
    let found = remote.stat(from).await?;
    let mut plan = BetweenPlan {
        remote,
        to: to.clone(),
        access,
        tokens,
        from: from.clone(),
        is_tree: found.is_directory,
        directories: Vec::new(),
        pairs: Vec::new(),
        servers,
        versions: BTreeSet::new(),
        found: Found::default(),
    };
    if found.is_directory {
        let tree = remote_tree::walk(&plan.remote, from, parallel, &order.filter).await?;
        plan.add_tree(tree);
        plan.refuse_own_sources()?;
        return Ok(plan);
    }
    plan.pairs.push(Pair {
        source: from.clone(),
        destination: super::place_of_file(&plan.remote, to, found.name).await?,
        size: found.size_bytes,
        overwrite: false,
    });
    plan.refuse_own_sources()?;
    Ok(plan)
}

/// Whether both ends are at one server, as far as that matters: asked is where one is within the other.
async fn find_identity(
    remote: &Remote,
    from: &Url,
    to: &Url,
) -> Result<ServerIdentity, CommandError> {
    if Server::of(from) == Server::of(to) {
        return Ok(ServerIdentity::Same);
    }
    let path = overlap(from, to)?;
    Ok(ServerIdentity::find(remote, [from, to], path.as_ref()).await?)
}

/// What is said of two names of one server.
fn aliases(from: &Url, to: &Url) -> &'static str {
    match Server::of(from) == Server::of(to) {
        true => "",
        false => " (both URLs lead to the same server)",
    }
}

impl BetweenPlan {
    /// Errors: the source is in the destination, so that what is removed there may be of the source.
    pub(super) fn refuse_source_in_destination(&self) -> Result<(), CommandError> {
        let (from, to) = (&self.from, &self.to);
        match self.servers == ServerIdentity::Same && path_of(from)?.is_within(&path_of(to)?) {
            true => Err(CommandError::Usage(format!(
                "the source {from} is in {to}{}, so sync would remove its files; nothing was changed",
                aliases(from, to)
            ))),
            false => Ok(()),
        }
    }

    fn add_tree(&mut self, mut tree: RemoteTree) {
        self.found = Found::take(&mut tree);
        if self.servers == ServerIdentity::Unknown {
            let versions = tree.files.iter();
            self.versions = versions
                .filter_map(|file| VersionThere::of(&file.info))
                .collect();
        }
        for file in tree.files {
            match below(&self.to, &file.names) {
                Ok(destination) => self.pairs.push(Pair {
                    destination,
                    source: file.url,
                    size: file.size,
                    overwrite: false,
                }),
                Err(why) => {
                    let failed = CopiedFile::failed(redact(file.url.as_str()), why.into());
                    self.found.failed.push(failed);
                }
            }
        }
        let directories = tree.directories.into_iter();
        self.directories = directories.map(|directory| directory.names).collect();
    }

    fn refuse_own_sources(&self) -> Result<(), CommandError> {
        let pairs = self.pairs.iter();
        let pairs = pairs.map(|pair| (pair.source.as_str(), pair.destination.as_str()));
        refuse_own_sources(pairs, self.servers)
    }

    pub(super) async fn carry_out(
        self,
        order: &Order<'_>,
    ) -> Result<Vec<CopiedFile>, CommandError> {
        let mut files = match self.is_tree {
            true => make_directories(&self.remote, &self.to, self.directories).await?,
            false => Vec::new(),
        };
        let (done, missing) = split_existing(&self.remote, self.pairs, order).await;
        files.extend(done);
        if missing.is_empty() {
            return Ok(files);
        }
        let directory = tempfile::tempdir()
            .map_err(|why| CommandError::local("cannot make a temporary directory", why))?;
        let (stop, stopping) = watch::channel(false);
        let config = ServiceConfig {
            site: "copy".to_owned(),
            sampling: LinkSampling::Recorded,
            store: StoreBackend::Files {
                journal: directory.path().join("copy.sqlite"),
                delegations: directory.path().join("delegations.sqlite"),
            },
            keys: SealingKeys::of_this_process().map_err(engine_failed)?,
            engine: engine_config(order.parallel()),
            agents: agent_config(&self.access, [&self.from, &self.to]),
            gfal: None,
            token_clients: TokenClients::default(),
            banned: Banned::default(),
            drain_grace: Duration::ZERO,
        };
        let service = Service::start(config, self.access.client, stopping)
            .await
            .map_err(engine_failed)?;
        let sizes = missing.iter().filter_map(|pair| pair.size);
        let bytes = sizes.map(|size| size.0).sum();
        order.progress.expect(missing.len() as u64, Bytes(bytes));
        let moving = move_all(&service, &missing, &self.tokens, order);
        let moved = shown(&order.progress, order.output, moving).await;
        let _ = stop.send(true);
        let ended = service.ended().await;
        files.extend(moved?);
        ended.map_err(engine_failed)?;
        Ok(files)
    }

    pub(super) async fn look(self, order: &Order<'_>) -> Vec<IntendedFile> {
        let (done, missing) = split_existing(&self.remote, self.pairs, order).await;
        let mut files = Vec::new();
        for file in done {
            let (size, intention) = match file.outcome {
                Ok((_, size)) => (Some(size), Ok(Intention::Skip)),
                Err(why) => (None, Err(why)),
            };
            files.push(IntendedFile {
                name: file.name,
                size,
                intention,
            });
        }
        files.extend(missing.into_iter().map(|pair| IntendedFile {
            name: redact(pair.destination.as_str()),
            size: pair.size,
            intention: Ok(match pair.overwrite {
                true => Intention::Replace,
                false => Intention::Copy,
            }),
        }));
        files
    }
}

fn engine_config(parallel: usize) -> EngineConfig {
    let slots = Slots(u32::try_from(parallel).unwrap_or(u32::MAX));
    EngineConfig {
        slots: SlotLimits {
            link: slots,
            agents: slots,
            ..SlotLimits::default()
        },
        retries_max: RETRIES,
        retry_delay: RETRY_DELAY,
        halting: HaltPolicy {
            failures: 0,
            ..HaltPolicy::default()
        },
        open_max: usize::MAX,
        tuning: TuningPolicy::Fixed,
        tape: StagingPolicy::default(),
    }
}

fn engine_failed(why: impl std::fmt::Display) -> CommandError {
    CommandError::local("the transfer engine", why)
}

/// Sets apart what is there already: with the same content it is done, with another it is replaced or an error.
async fn split_existing(
    remote: &Remote,
    pairs: Vec<Pair>,
    order: &Order<'_>,
) -> (Vec<CopiedFile>, Vec<Pair>) {
    let existing = order.existing;
    if existing == ExistingCopy::Replace {
        let replacing = |pair| Pair {
            overwrite: true,
            ..pair
        };
        return (Vec::new(), pairs.into_iter().map(replacing).collect());
    }
    let (remote, checksums) = (remote.clone(), order.checksums());
    let looked = each_of(pairs, order.parallel(), move |pair| {
        let remote = remote.clone();
        async move {
            let ends = (&pair.source, &pair.destination);
            let existing = look_at_remote_copy(&remote, ends, checksums).await;
            (pair, existing)
        }
    })
    .await;
    let (mut done, mut missing) = (Vec::new(), Vec::new());
    for (pair, found) in looked {
        match (found, existing) {
            (Ok(RemoteCopy::Missing), _) => missing.push(pair),
            (Ok(RemoteCopy::Same(size)), _) => {
                done.push(file_of(&pair, Ok((CopyResult::Skipped, size))));
            }
            (Ok(RemoteCopy::Different), ExistingCopy::Keep) => {
                let why = RemoteError::Exists(redact(pair.destination.as_str()));
                done.push(file_of(&pair, Err(why.into())));
            }
            (Ok(RemoteCopy::Different), ExistingCopy::Update | ExistingCopy::Replace) => {
                missing.push(Pair {
                    overwrite: true,
                    ..pair
                });
            }
            (Err(why), _) => done.push(file_of(&pair, Err(why.into()))),
        }
    }
    (done, missing)
}

async fn move_all(
    service: &Service,
    pairs: &[Pair],
    tokens: &Ends,
    order: &Order<'_>,
) -> Result<Vec<CopiedFile>, CommandError> {
    let progress = &order.progress;
    let mut jobs = Vec::new();
    // Whether files may be replaced is said of a whole job.
    let alike = pairs.chunk_by(|a, b| a.overwrite == b.overwrite);
    for part in alike.flat_map(|alike| alike.chunks(FILES_PER_JOB)) {
        // Of two storage elements of the grid, adler32 is what both know.
        let algorithm = order.bulk.checksum.unwrap_or(ChecksumAlgorithm::Adler32);
        let job = new_job(part, tokens, algorithm)?;
        jobs.push((service.submit(job).await.map_err(engine_failed)?, part));
    }
    let mut reported = 0;
    let mut open: Vec<JobId> = jobs.iter().map(|(job, _)| *job).collect();
    while !open.is_empty() {
        tokio::time::sleep(POLL).await;
        let totals = service.overview().totals.clone();
        progress.moved(totals.moved_bytes.saturating_sub(reported));
        reported = reported.max(totals.moved_bytes);
        for _ in progress.read().files_ended..totals.finished + totals.failed + totals.canceled {
            progress.file_ended();
        }
        let ended = |job: &JobId| {
            let row = service.reader().job(*job).map_err(engine_failed)?;
            Ok::<_, CommandError>(row.is_some_and(|row| row.state.is_terminal()))
        };
        while let Some(job) = open.last()
            && ended(job)?
        {
            open.pop();
        }
    }
    let mut files = Vec::new();
    for (job, part) in jobs {
        let rows = service.reader().transfers(job).map_err(engine_failed)?;
        files.extend(
            part.iter()
                .zip(rows)
                .map(|(pair, row)| file_of(pair, outcome_of(&row.state))),
        );
    }
    Ok(files)
}

fn new_job(
    pairs: &[Pair],
    tokens: &Ends,
    algorithm: ChecksumAlgorithm,
) -> Result<NewJob, CommandError> {
    let name = |token: &Option<String>| token.as_deref().map(credential_id);
    let (source_token, destination_token) = (name(&tokens.source), name(&tokens.destination));
    let url = |url: &Url| {
        FileUrl::parse(url.as_str()).map_err(|why| CommandError::Usage(why.to_string()))
    };
    let mut secrets = BTreeMap::new();
    let mut end = |given: &Url| {
        let apart = without_credentials(url(given)?);
        let (url, query) = apart.map_err(|why| CommandError::Usage(why.to_string()))?;
        let query = query.map(|query| {
            let id = query.id.clone();
            secrets.insert(id.clone(), query);
            id
        });
        Ok::<_, CommandError>((url, query))
    };
    let mut transfer = |pair: &Pair| {
        let (source, source_query) = end(&pair.source)?;
        let (destination, destination_query) = end(&pair.destination)?;
        Ok(NewTransfer {
            source,
            destination,
            size: pair.size,
            checksum: None,
            checksum_algorithm: algorithm,
            activity: Activity::new("default"),
            scitag: None,
            metadata: Default::default(),
            source_credential: source_token.clone(),
            destination_credential: destination_token.clone(),
            source_query,
            destination_query,
            tape: None,
        })
    };
    let transfers = pairs.iter().map(&mut transfer);
    let transfers = transfers.collect::<Result<_, CommandError>>()?;
    Ok(NewJob {
        id: JobId(Uuid::now_v7()),
        user: UserName::new("copy"),
        vo: VoName::new("copy"),
        delegation: CredentialId::new("0000000000000000"),
        parameters: JobParameters {
            verify_checksum: ChecksumMode::Both,
            overwrite: match pairs.iter().all(|pair| pair.overwrite) {
                true => Overwrite::Always,
                false => Overwrite::Never,
            },
            ..JobParameters::default()
        },
        transfers,
        tokens: job_tokens(tokens)
            .into_iter()
            .chain(secrets.into_values())
            .collect(),
    })
}

/// The token of each end, once when it is the same.
fn job_tokens(tokens: &Ends) -> Vec<JobToken> {
    let texts = [&tokens.source, &tokens.destination];
    let distinct: BTreeSet<&String> = texts.into_iter().flatten().collect();
    let job_token = |text: &String| JobToken {
        id: credential_id(text),
        text: text.clone(),
        renewal: None,
    };
    distinct.into_iter().map(job_token).collect()
}

/// Tokens cross unencrypted lines to these places when the user said so.
fn agent_config(access: &Access, ends: [&Url; 2]) -> AgentConfig {
    let hosts = ends
        .iter()
        .filter_map(|url| HostPattern::parse(url.host_str()?).ok());
    AgentConfig {
        tokens_unencrypted: match access.is_over_http() {
            true => hosts.collect(),
            false => Vec::new(),
        },
        ..AgentConfig::default()
    }
}

fn outcome_of(state: &TransferState) -> Result<(CopyResult, Bytes), CommandError> {
    match state {
        TransferState::Finished { size, .. } => Ok((CopyResult::Copied, *size)),
        TransferState::Failed { failure, .. } => Err(error_of(failure)),
        TransferState::Canceled { reason, .. } => Err(CommandError::SomeFailed(reason.clone())),
        TransferState::NotUsed
        | TransferState::Staging { .. }
        | TransferState::Recalling { .. }
        | TransferState::Submitted { .. }
        | TransferState::Active { .. }
        | TransferState::Archiving { .. } => {
            Err(CommandError::SomeFailed("it has not finished".to_owned()))
        }
    }
}

fn error_of(failure: &Failure) -> CommandError {
    CommandError::Remote {
        text: failure.to_string(),
        problem: Box::new(failure.problem()),
    }
}

fn file_of(pair: &Pair, outcome: Result<(CopyResult, Bytes), CommandError>) -> CopiedFile {
    CopiedFile {
        name: redact(pair.destination.as_str()),
        outcome,
    }
}
