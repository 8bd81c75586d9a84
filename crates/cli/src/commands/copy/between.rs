//! Copies between two storage elements: the transfer engine, in this process, for as long as the copy takes.

use super::CopiedFile;
use crate::args::CopyArgs;
use crate::commands::access::Purpose;
use crate::commands::access::{Access, Need, audiences_of};
use crate::commands::progress::shown;
use crate::environment::Environment;
use crate::exit::CommandError;
use crate::output::Output;
use penstock_decide::halting::HaltPolicy;
use penstock_decide::scheduler::SlotLimits;
use penstock_decide::staging::StagingPolicy;
use penstock_engine::EngineConfig;
use penstock_engine::checked_submission::{NewJob, NewTransfer};
use penstock_field_tools::bulk_copy::{CopyResult, each_of};
use penstock_field_tools::progress::Progress;
use penstock_field_tools::remote::{Remote, below, path_of};
use penstock_field_tools::remote_error::RemoteError;
use penstock_field_tools::remote_tree;
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
use std::sync::Arc;
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
}

/// The token for each end, if there is any.
struct Ends {
    source: Option<String>,
    destination: Option<String>,
}

pub(super) async fn run(
    from: &Url,
    to: &Url,
    args: &CopyArgs,
    environment: &Environment,
    output: Output,
) -> Result<Vec<CopiedFile>, CommandError> {
    let parallel = usize::from(args.parallel);
    let access = Access::open(&args.access, environment, parallel)?;
    let ends = [(from, Purpose::Read), (to, Purpose::Modify)];
    let remote = Remote::new(access.client.clone(), access.for_files(&ends)?);
    let [source_token, destination_token] = ends.map(|(url, purpose)| {
        access.job_token(&Need {
            scope: purpose.scope(&path_of(url)?),
            audiences: audiences_of(url),
        })
    });
    let tokens = Ends {
        source: source_token?,
        destination: destination_token?,
    };
    let pairs = find_pairs(&remote, from, to, parallel).await?;
    let (mut files, missing) = match args.overwrite {
        true => (Vec::new(), pairs),
        false => split_existing(&remote, pairs, args).await,
    };
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
        engine: engine_config(parallel),
        agents: agent_config(&access, [from, to]),
        gfal: None,
        token_clients: TokenClients::default(),
        banned: Banned::default(),
        drain_grace: Duration::ZERO,
    };
    let service = Service::start(config, access.client, stopping)
        .await
        .map_err(engine_failed)?;
    let progress = Arc::new(Progress::new());
    let bytes = missing
        .iter()
        .filter_map(|pair| pair.size)
        .map(|size| size.0)
        .sum();
    progress.expect(missing.len() as u64, Bytes(bytes));
    let moved = shown(
        &progress,
        output,
        move_all(&service, &missing, &tokens, args, &progress),
    )
    .await;
    let _ = stop.send(true);
    let ended = service.ended().await;
    files.extend(moved?);
    ended.map_err(engine_failed)?;
    Ok(files)
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

async fn find_pairs(
    remote: &Remote,
    from: &Url,
    to: &Url,
    parallel: usize,
) -> Result<Vec<Pair>, CommandError> {
    let found = remote.stat(from).await?;
    if !found.is_directory {
        let destination = super::place_of_file(remote, to, Some(found.name)).await?;
        return Ok(vec![Pair {
            source: from.clone(),
            destination,
            size: found.size_bytes,
        }]);
    }
    let tree = remote_tree::walk(remote, from, parallel).await?;
    remote.make_directories(to).await?;
    for names in &tree.directories {
        remote.make_directory(&below(to, names)?).await?;
    }
    let pair = |file: remote_tree::RemoteFile| {
        Ok(Pair {
            destination: below(to, &file.names)?,
            source: file.url,
            size: file.size,
        })
    };
    tree.files.into_iter().map(pair).collect()
}

/// Sets apart what is there already: with the same content it is done, with another it is an error.
async fn split_existing(
    remote: &Remote,
    pairs: Vec<Pair>,
    args: &CopyArgs,
) -> (Vec<CopiedFile>, Vec<Pair>) {
    let (remote, algorithm) = (remote.clone(), args.checksum);
    let looked = each_of(pairs, usize::from(args.parallel), move |pair| {
        let remote = remote.clone();
        async move {
            let existing = look_for_copy(&remote, &pair, algorithm).await;
            (pair, existing)
        }
    })
    .await;
    let (mut done, mut missing) = (Vec::new(), Vec::new());
    for (pair, existing) in looked {
        match existing {
            Ok(None) => missing.push(pair),
            Ok(Some(size)) => done.push(file_of(&pair, Ok((CopyResult::Skipped, size)))),
            Err(why) => done.push(file_of(&pair, Err(why.into()))),
        }
    }
    (done, missing)
}

async fn look_for_copy(
    remote: &Remote,
    pair: &Pair,
    algorithm: ChecksumAlgorithm,
) -> Result<Option<Bytes>, RemoteError> {
    let Some(copy) = remote.head(&pair.destination, algorithm).await? else {
        return Ok(None);
    };
    let original = remote.head(&pair.source, algorithm).await?;
    let original = original.ok_or_else(|| RemoteError::not_found(pair.source.to_string()))?;
    let same = copy.size == original.size
        && copy
            .checksums
            .iter()
            .any(|checksum| original.checksums.contains(checksum));
    match same {
        true => Ok(Some(copy.size.unwrap_or_default())),
        false => Err(RemoteError::Exists(pair.destination.to_string())),
    }
}

async fn move_all(
    service: &Service,
    pairs: &[Pair],
    tokens: &Ends,
    args: &CopyArgs,
    progress: &Progress,
) -> Result<Vec<CopiedFile>, CommandError> {
    let mut jobs = Vec::new();
    for part in pairs.chunks(FILES_PER_JOB) {
        let job = new_job(part, tokens, args)?;
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

fn new_job(pairs: &[Pair], tokens: &Ends, args: &CopyArgs) -> Result<NewJob, CommandError> {
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
            checksum_algorithm: args.checksum,
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
            overwrite: if args.overwrite {
                Overwrite::Always
            } else {
                Overwrite::Never
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
        name: pair.destination.to_string(),
        outcome,
    }
}
