//! What can be typed to bring files from tape and to let them go again.

use super::files::parse_url;
use super::{AccessArgs, DoorArgs};
use clap::{Args, Subcommand};
use penstock_model::StageRequestId;
use penstock_model::quantity::Span;
use std::path::PathBuf;
use url::Url;

/// Options of `stage`.
#[derive(Debug, Args)]
pub struct StageArgs {
    /// Look at a stage request, or cancel it.
    #[command(subcommand)]
    pub command: Option<StageCommand>,
    /// Which files.
    #[command(flatten)]
    pub files: FileListArgs,
    /// How long the files are kept on disk (pinned). Default: as the storage element decides.
    #[arg(long, value_name = "SPAN", value_parser = tape_span)]
    pub lifetime: Option<Span>,
    /// Wait until all files are on disk or have failed, and show progress.
    #[arg(long)]
    pub wait: bool,
    /// Tokens and trust.
    #[command(flatten)]
    pub access: AccessArgs,
}

/// Files of storage elements.
#[derive(Debug, Args)]
pub struct FileListArgs {
    /// The files.
    #[arg(value_parser = parse_url)]
    pub urls: Vec<Url>,
    /// A list of files: one URL per line. Blank lines and lines that begin with # are ignored; `-` reads standard input.
    #[arg(long = "from", value_name = "FILE")]
    pub list: Option<PathBuf>,
}

/// What can be done with a stage request.
#[derive(Debug, Subcommand)]
pub enum StageCommand {
    /// Show how far stage requests are: the state of each file, and why it waits or failed.
    #[command(after_help = "Examples:\n  \
        penstock stage status --dir cern 0192d3a4-…\n  \
        penstock stage status --door https://se.example.org:8443 --token-file token 0192d3a4-… --json")]
    Status(StageRequestArgs),
    /// Cancel stage requests: their files are recalled and pinned no longer.
    #[command(after_help = "Example:\n  penstock stage cancel --dir cern 0192d3a4-…")]
    Cancel(StageRequestArgs),
}

/// Options of `stage status` and `stage cancel`.
#[derive(Debug, Args)]
pub struct StageRequestArgs {
    /// The requests, as `penstock stage` shows them.
    #[arg(required = true, value_parser = request_id)]
    pub ids: Vec<StageRequestId>,
    /// The storage element.
    #[command(flatten)]
    pub door: DoorArgs,
}

/// Options of `release`.
#[derive(Debug, Args)]
pub struct ReleaseArgs {
    /// Which files.
    #[command(flatten)]
    pub files: FileListArgs,
    /// The stage request. Without files, all of its files are released. Default: the files are released in all of your
    /// requests, if the storage element supports that.
    #[arg(long, value_name = "ID", value_parser = request_id)]
    pub request: Option<StageRequestId>,
    /// The storage element.
    #[command(flatten)]
    pub door: DoorArgs,
}

/// Reads the name of a stage request, which becomes a part of a path.
fn request_id(text: &str) -> Result<StageRequestId, String> {
    let is_plain = text.len() <= 256 && text.bytes().all(|byte| byte.is_ascii_graphic());
    match is_plain && !text.is_empty() && text != "." && text != ".." && !text.contains("://") {
        true => Ok(StageRequestId::new(text)),
        false => Err("expected the id of a stage request, as `penstock stage` shows it".to_owned()),
    }
}

/// Reads whole seconds, as FTS has them, or a span of time.
pub(super) fn tape_span(text: &str) -> Result<Span, String> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let span: Span = match is_number {
        true => format!("{text}s").parse()?,
        false => text.parse()?,
    };
    match (span.0.as_secs(), span.0.subsec_nanos()) {
        (1.., 0) => Ok(span),
        _ => Err("expected whole seconds, at least 1, or a span such as 30m, 6h or 2d".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_number_of_seconds_or_a_span() {
        let seconds = |text| tape_span(text).map(|span| span.0.as_secs()).ok();
        assert_eq!(seconds("90"), Some(90));
        assert_eq!(seconds("1h30m"), Some(5_400));
        for wrong in ["0", "", "-1", "500ms", "soon"] {
            assert_eq!(seconds(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_request_is_named_and_no_url_or_path() {
        assert!(request_id("0192d3a4-abcd").is_ok());
        for wrong in ["", "..", "https://se/f", "a b"] {
            assert!(request_id(wrong).is_err(), "{wrong}");
        }
    }
}
