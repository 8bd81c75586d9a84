//! `penstock submit`: one pair of URLs or a list of them, as jobs of bounded size.

mod tree;

use self::tree::FoundFiles;
use super::{Intent, connect_by, end_tokens, wait};
use crate::args::{SubmitArgs, Verify};
use crate::commands::access::{Access, read_token};
use crate::commands::progress::shown;
use crate::environment::Environment;
use crate::exit::CommandError;
use crate::output::Output;
use penstock_field_tools::job_list::{self, Entry};
use penstock_field_tools::progress::Progress;
use penstock_field_tools::transfer_api::{EndTokens, JobTokens, SubmitOptions, TapeOptions};
use penstock_model::Bytes;
use penstock_model::text::one_line;
use serde::Serialize;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

/// Bytes of a job list.
const LIST_BYTES_MAX: u64 = 1 << 30;

#[derive(Serialize)]
struct SubmitReport<'a> {
    jobs: &'a [String],
    files: usize,
    /// Of a tree: what could not be listed, and why.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    not_listed: &'a [String],
}

/// `penstock submit`.
pub async fn run(
    args: SubmitArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let options = submit_options(&args);
    let [source_token, destination_token] = [&args.source_token_file, &args.destination_token_file]
        .map(|path| given_token(path.as_deref()));
    let (source_token, destination_token) = (source_token?, destination_token?);
    let access = Access::open(&args.service.access, environment, 4)?;
    let FoundFiles {
        entries,
        not_listed,
    } = find_files(&args, &access).await?;
    for why in &not_listed {
        eprintln!("skipped: {}", one_line(why));
    }
    let service = connect_by(&access, &args.service, Intent::Submit, environment)?;
    let mut ids = Vec::new();
    for part in entries.chunks(args.files_per_job as usize) {
        let mut tokens = match (&source_token, &destination_token) {
            (Some(source), Some(destination)) => JobTokens {
                sources: EndTokens::One(source.clone()),
                destinations: EndTokens::One(destination.clone()),
            },
            _ => end_tokens::for_job(&access, part, options.tape)?,
        };
        if let Some(token) = &source_token {
            tokens.sources = EndTokens::One(token.clone());
        }
        if let Some(token) = &destination_token {
            tokens.destinations = EndTokens::One(token.clone());
        }
        let options = SubmitOptions {
            tokens,
            ..options.clone()
        };
        match service.submit(part, &options).await {
            Ok(id) => ids.push(id),
            Err(why) if ids.is_empty() => return Err(why.into()),
            Err(why) => {
                for id in ids.iter().filter(|_| !output.json) {
                    eprintln!("submitted before the error: {}", one_line(id));
                }
                let report = SubmitReport {
                    jobs: &ids,
                    files: ids.len() * args.files_per_job as usize,
                    not_listed: &not_listed,
                };
                return Err(output.failure(&report, String::new, why.into()));
            }
        }
    }
    if !args.wait {
        let report = SubmitReport {
            jobs: &ids,
            files: entries.len(),
            not_listed: &not_listed,
        };
        let text = || ids.iter().map(|id| format!("{id}\n")).collect();
        return output.conclude(&report, text, wait::all_listed(not_listed.len()));
    }
    for id in &ids {
        output.say(id);
    }
    let progress = Arc::new(Progress::new());
    progress.expect(entries.len() as u64, Bytes(0));
    let ended = tokio::select! {
        ended = shown(&progress, output, wait::for_end(&service, &ids, &progress)) => ended?,
        _ = tokio::signal::ctrl_c() => {
            let text = "no longer waiting; the jobs continue (stop them with penstock cancel)";
            return Err(CommandError::Interrupted(text.to_owned()));
        }
    };
    wait::conclude(&ended, not_listed.len(), output)
}

/// What is to be submitted.
async fn find_files(args: &SubmitArgs, access: &Access) -> Result<FoundFiles, CommandError> {
    match (&args.source, &args.destination) {
        (Some(source), Some(destination)) if args.recursive => {
            tree::find(args, source, destination, access).await
        }
        _ => Ok(FoundFiles {
            entries: read_entries(args)?,
            not_listed: Vec::new(),
        }),
    }
}

fn read_entries(args: &SubmitArgs) -> Result<Vec<Entry>, CommandError> {
    let text = match (&args.jobfile, &args.source, &args.destination) {
        (Some(path), _, _) => read_list(path)?,
        (None, Some(source), Some(destination)) => {
            // One way to read a pair: a list of one line. Its errors name line 1, which is what was typed.
            let words = [Some(source), Some(destination), args.checksum.as_ref()];
            words
                .into_iter()
                .flatten()
                .cloned()
                .collect::<Vec<_>>()
                .join(" ")
        }
        (None, _, _) => {
            return Err(CommandError::Usage(
                "give SOURCE and DESTINATION, or --jobfile FILE".into(),
            ));
        }
    };
    Ok(job_list::parse(&text)?)
}

fn read_list(path: &Path) -> Result<String, CommandError> {
    let unreadable = |why| {
        CommandError::Usage(format!(
            "cannot read the job file {}: {why}",
            path.display()
        ))
    };
    let mut text = String::new();
    match path.as_os_str() == "-" {
        true => std::io::stdin()
            .take(LIST_BYTES_MAX)
            .read_to_string(&mut text)
            .map_err(unreadable)?,
        false => {
            let file = std::fs::File::open(path).map_err(unreadable)?;
            file.take(LIST_BYTES_MAX)
                .read_to_string(&mut text)
                .map_err(unreadable)?
        }
    };
    Ok(text)
}

fn given_token(path: Option<&Path>) -> Result<Option<String>, CommandError> {
    let read = |path| read_token(path).map(|text| text.trim().to_owned());
    path.map(read).transpose()
}

fn tape_options(args: &SubmitArgs) -> TapeOptions {
    TapeOptions {
        bring_online: args.bring_online.map(|span| span.0),
        copy_pin_lifetime: args.copy_pin_lifetime.map(|span| span.0),
        archive_timeout: args.archive_timeout.map(|span| span.0),
        delete_source: args.delete_source,
    }
}

fn submit_options(args: &SubmitArgs) -> SubmitOptions {
    SubmitOptions {
        verify: match args.verify {
            Verify::Both => "both",
            Verify::Source => "source",
            Verify::Target => "target",
            Verify::None => "none",
        },
        overwrite: args.overwrite,
        retries: args.retries,
        priority: args.priority,
        activity: args.activity.clone(),
        label: None,
        tape: tape_options(args),
        tokens: JobTokens::default(),
    }
}
