//! `penstock mv`: another name at the same storage element, in one step.

use crate::args::MvArgs;
use crate::commands::access::{Purpose, Server};
use crate::commands::files::open;
use crate::environment::Environment;
use crate::exit::CommandError;
use crate::output::Output;
use http::StatusCode;
use penstock_field_tools::remote::{Occupied, Remote, below};
use penstock_field_tools::remote_error::RemoteError;
use penstock_model::url::redact;
use serde::Serialize;
use url::Url;

#[derive(Serialize)]
struct MvReport {
    source: String,
    destination: String,
}

/// `penstock mv`.
pub async fn run(
    args: MvArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let (from, to) = (&args.source, &args.destination);
    if Server::of(from) != Server::of(to) {
        return Err(CommandError::Usage(format!(
            "{from} and {to} are at different servers; copy the file, then delete it: \
             penstock copy {from} {to} && penstock rm {from}"
        )));
    }
    let ends = [from.clone(), to.clone()];
    let remote = open(&ends, Purpose::Modify, &args.access, environment, 1)?;
    let destination = place(&remote, from, to).await?;
    let occupied = match args.overwrite {
        true => Occupied::Replaced,
        false => Occupied::Refused,
    };
    remote
        .rename(from, &destination, occupied)
        .await
        .map_err(|why| match why.status() {
            Some(StatusCode::PRECONDITION_FAILED) => CommandError::SomeFailed(format!(
                "{} already exists; use --overwrite to replace it",
                redact(destination.as_str())
            )),
            _ => why.into(),
        })?;
    let report = MvReport {
        source: redact(from.as_str()),
        destination: redact(destination.as_str()),
    };
    output.show(&report, String::new);
    Ok(())
}

/// Into the destination when that is a directory, else that very name.
async fn place(remote: &Remote, from: &Url, to: &Url) -> Result<Url, CommandError> {
    let found = remote.stat(from).await?;
    let into_directory = match remote.stat(to).await {
        Ok(there) => there.is_directory,
        Err(RemoteError::NotFound { .. } | RemoteError::NotAuthorised { .. }) => {
            to.path().ends_with('/')
        }
        Err(why) => return Err(why.into()),
    };
    match into_directory {
        true => Ok(below(to, &[found.name])?),
        false => Ok(to.clone()),
    }
}
