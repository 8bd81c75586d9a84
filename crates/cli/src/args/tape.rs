//! What can be typed about tape.

use super::DoorArgs;
use super::records::PointInTime;
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand, ValueEnum};
use penstock_model::quantity::Span;
use std::path::PathBuf;

/// What can be done with tape.
#[derive(Debug, Subcommand)]
pub enum TapeCommand {
    /// Find the best order in which to read files from one tape, and show what it costs.
    ///
    /// The file is JSON:
    ///
    ///   {"files": [{"name": "a", "begin_bytes": 0, "size_bytes": 2000000000, "requests": 1}]}
    ///
    /// `begin_bytes` counts from the beginning of the tape, without tape marks. `requests` (default 1) is the number of
    /// requests for the file, and `head_bytes` (default 0) the position of the head. `drive` describes a drive other than
    /// the built-in models, and `wrap_ends_bytes` where the wraps of this cartridge end, if the drive reports it; for a
    /// `tape` that `--model FILE` contains, it is read from there.
    ///
    /// With `--model linear` the tape is a line without wraps, as in papers about the Linear Tape Scheduling Problem: the
    /// head starts at the right end (`head_bytes`, default: the end of the last file), files are read from left to right,
    /// files do not overlap, and a turn costs the time of `turn_bytes` (default 0). The sum of all waits is minimized.
    ///
    /// Examples:
    ///
    ///   penstock tape order recall.json
    ///   penstock tape order recall.json --model LTO-9 --goal mean-wait
    ///   penstock tape order recall.json --policy position --json
    ///   penstock tape order recall.json --model linear --policy simple-dp
    #[command(verbatim_doc_comment)]
    Order(TapeOrderArgs),
    /// Show the state of a tape system: running commands, queued files and incidents; for a library also drives and tapes.
    #[command(
        after_help = "Examples:\n  penstock tape status --dir cern\n  penstock tape status --dir cern --json\n  penstock tape status --dir cern --html tape.html\n\n\
        Files of a family are collected so that they are written together (collect_files, collect_bytes and collect_time in \
        [storage.tape]). While an HSM is out of service, one command at a time tests it. For a library, the reason why files \
        wait is shown for each tape and family. docs/tape/files-on-tape.md lists the incidents and what to do."
    )]
    Status(TapeStatusArgs),
    /// List the data sets on tape: files present and announced, how much is on tape, and the expected end of a recall.
    #[command(
        name = "data-sets",
        after_help = "Examples:\n  penstock tape data-sets --dir cern\n  penstock tape data-sets data23.00452799.RAW --dir cern --json\n\n\
        A client names the data set of a file in its archive metadata (archive_metadata of a transfer, or gfal2). Without it, \
        the files of one job, or otherwise of one directory, form a data set. Files of an announced data set wait for each \
        other (data_set_wait in [storage.tape]). A second list shows who sends such metadata, and how accurate it is."
    )]
    DataSets(TapeDataSetsArgs),
    /// Report the use of library drives: hours by VO, activity, challenge and kind of drive; tapes of each VO; mount rates.
    #[command(
        after_help = "Examples:\n  penstock tape account --dir cern\n  penstock tape account --since 1d --dir cern\n  penstock tape account --since 2026-11-01T00:00:00Z --dir cern --json\n\n\
        A mount counts when it ends. Mounts older than one day are kept as daily sums for 400 days, so that an older --since \
        includes all of its first day. Payload counts each finished file once; bytes moved also include data that had to be \
        moved again."
    )]
    Account(TapeAccountArgs),
    /// Retry failed files now, and test an HSM or a library that is out of service.
    #[command(after_help = "Example:\n  penstock tape retry --dir cern\n\n\
        Use it after an HSM was repaired, for example. Files that are only being collected are not started earlier.")]
    Retry(DoorArgs),
    /// Take a drive or a tape of a library out of use.
    #[command(
        after_help = "Examples:\n  penstock tape ok-to-stop silo-LTO-8-1 --dir cern\n  penstock tape disable silo-LTO-8-1 --dir cern\n  penstock tape disable silo-LTO-8-0001 --dir cern\n\n\
        Check the consequences first with `penstock tape ok-to-stop`. Data that a drive has written but not synced is written \
        again by another drive. Files on a disabled tape are read from another copy; files without one wait."
    )]
    Disable(TapeNameArgs),
    /// Put a drive or a tape of a library back into use.
    #[command(
        after_help = "Examples:\n  penstock tape enable silo-LTO-8-1 --dir cern\n  penstock tape enable silo-LTO-8-0001 --dir cern\n\n\
        Before a drive is put back into use, make sure that it works and that its tape is back in its slot."
    )]
    Enable(TapeNameArgs),
    /// Make a tape of a library read-only.
    #[command(
        after_help = "Examples:\n  penstock tape read-only silo-LTO-8-0001 --dir cern\n  penstock tape enable silo-LTO-8-0001 --dir cern    # written to again"
    )]
    ReadOnly(TapeNameArgs),
    /// Move all files of a tape to other tapes, then relabel it.
    #[command(
        after_help = "Examples:\n  penstock tape repack silo-LTO-8-0001 --dir cern\n  penstock tape repack silo-LTO-8-0001 --together hints.txt --dir cern\n  penstock tape repack silo-LTO-8-0001 --stop --dir cern\n\n\
        hints.txt has one file or directory per line. The files below each of them are written next to each other, in the \
        order of the lines; all others follow in their order on the tape.\n\
        From now on nothing more is written to the tape. Repack runs in the background: `penstock tape status` shows its \
        progress. The old copy of a file stays valid until the new one is safe. When the tape has no live files left, it is \
        relabeled."
    )]
    Repack(TapeRepackArgs),
    /// Read all files of a tape and compare them with what was written.
    #[command(
        after_help = "Example:\n  penstock tape verify silo-LTO-8-0001 --dir cern\n\n\
        Each tape is also verified automatically, every verify_every of [storage.tape]. A copy that cannot be read is an \
        incident; it is written again if the file is on disk or has another copy. `penstock tape status` shows the result."
    )]
    Verify(TapeNameArgs),
    /// Relabel a tape without live files, so that it can be written from the beginning.
    #[command(
        after_help = "Examples:\n  penstock tape read-only silo-LTO-8-0001 --dir cern\n  penstock tape relabel silo-LTO-8-0001 --dir cern\n\n\
        It is refused while the tape has a file that is live, in the trash or being written, and while the tape is in a \
        drive. `penstock tape repack` moves the files away and then relabels the tape."
    )]
    Relabel(TapeNameArgs),
    /// Pause background work (verification, repack, relabeling), for example during a data challenge.
    #[command(
        after_help = "Examples:\n  penstock tape hold 5d --dir cern\n  penstock tape resume --dir cern\n\n\
        Work that a drive has begun is finished first."
    )]
    Hold(TapeHoldArgs),
    /// Resume background work after `penstock tape hold`.
    #[command(after_help = "Example:\n  penstock tape resume --dir cern")]
    Resume(DoorArgs),
    /// Check whether a drive, a library or a tape can be stopped: what has to wait, and which files have no other copy.
    #[command(
        after_help = "Examples:\n  penstock tape ok-to-stop silo --dir cern\n  penstock tape ok-to-stop silo-LTO-8-0001 --dir cern --json\n\n\
        Exits with 0 if it can be stopped, otherwise with 1 and the reasons."
    )]
    OkToStop(TapeStopArgs),
    /// Fit the locate times of a drive model to measured locates.
    ///
    /// The file has one line for each locate, after the line
    ///
    ///   tape,from_bytes,to_bytes,seconds
    ///
    /// `from_bytes` is the start position of the head and `to_bytes` the target, both counted from the beginning of the tape
    /// without tape marks; `seconds` is the duration. About 200 locates are enough for the coefficients of a kind of drive.
    /// The ends of the wraps of a tape are found from the locates on it, unless `--wrap-ends` gives them.
    ///
    /// With `--json` the output can be used as `penstock tape order --model FILE`.
    ///
    /// Examples:
    ///
    ///   penstock tape calibrate observed.csv
    ///   penstock tape calibrate observed.csv --model LTO-9 --wrap-ends wraps.json --json > our-drives.json
    ///   penstock tape order recall.json --model our-drives.json
    #[command(verbatim_doc_comment)]
    Calibrate(TapeCalibrateArgs),
}

/// Options of `tape status`.
#[derive(Debug, Args)]
pub struct TapeStatusArgs {
    #[command(flatten)]
    pub door: DoorArgs,
    /// Write a self-contained page to this file: the mounts of each drive as bars, and the queue of each tape.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// Options of `tape data-sets`.
#[derive(Debug, Args)]
pub struct TapeDataSetsArgs {
    /// Only data sets with this name at one of their levels.
    pub name: Option<String>,
    /// Maximum number of data sets; those with the newest files come first.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub limit: u16,
    #[command(flatten)]
    pub door: DoorArgs,
}

/// Options of `tape account`.
#[derive(Debug, Args)]
pub struct TapeAccountArgs {
    /// Count mounts that ended since this time: a time such as 2026-11-24T03:00:00Z, or an age such as 1d. Default: all.
    #[arg(long, value_name = "TIME")]
    pub since: Option<PointInTime>,
    #[command(flatten)]
    pub door: DoorArgs,
}

/// Options of `tape repack`.
#[derive(Debug, Args)]
pub struct TapeRepackArgs {
    /// Its name, as `penstock tape status` shows it.
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub name: String,
    /// A list of files and directories, one per line, each of which is written in one place.
    #[arg(long, value_name = "FILE")]
    pub together: Option<PathBuf>,
    /// Stop a repack. Files that were already moved stay on their new tapes.
    #[arg(long, conflicts_with = "together")]
    pub stop: bool,
    #[command(flatten)]
    pub door: DoorArgs,
}

/// A tape, or a drive.
#[derive(Debug, Args)]
pub struct TapeNameArgs {
    /// Its name, as `penstock tape status` shows it.
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub name: String,
    #[command(flatten)]
    pub door: DoorArgs,
}

/// Options of `tape hold`.
#[derive(Debug, Args)]
pub struct TapeHoldArgs {
    /// How long to pause, such as 5d or 12h.
    pub span: Span,
    #[command(flatten)]
    pub door: DoorArgs,
}

/// Options of `tape ok-to-stop`.
#[derive(Debug, Args)]
pub struct TapeStopArgs {
    /// The name of a drive, a library or a tape.
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub name: String,
    #[command(flatten)]
    pub door: DoorArgs,
}

/// Options of `tape calibrate`.
#[derive(Debug, Args)]
pub struct TapeCalibrateArgs {
    /// The measured locates.
    pub file: PathBuf,
    /// The kind of drive, such as LTO-8 or TS1160, or a file written by this command.
    #[arg(long, default_value = "LTO-8")]
    pub model: String,
    /// The measured ends of the wraps of tapes, as JSON: {"A00001": [57692307692, …]}
    #[arg(long)]
    pub wrap_ends: Option<PathBuf>,
}

/// Options of `tape order`.
#[derive(Debug, Args)]
pub struct TapeOrderArgs {
    /// The files to read, as JSON.
    pub file: PathBuf,
    /// The kind of drive, such as LTO-8 or TS1160, with its usual cartridge; a file written by `penstock tape calibrate
    /// --json`; or linear. Default: the drive that the file describes, otherwise LTO-8.
    #[arg(long)]
    pub model: Option<String>,
    /// The method.
    #[arg(long, value_enum, default_value_t = OrderPolicyArg::Best)]
    pub policy: OrderPolicyArg,
    /// What to minimize.
    #[arg(long, value_enum, default_value_t = OrderGoalArg::DriveTime)]
    pub goal: OrderGoalArg,
}

/// How an order is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OrderPolicyArg {
    /// In the order of the list.
    Fifo,
    /// From the beginning of the tape to its end.
    Position,
    /// Even wraps on the way there, odd wraps on the way back.
    Scan,
    /// Next the file that is reached soonest.
    NearestLocate,
    /// Next the file that is reached and read soonest.
    NearestService,
    /// The best of these, improved; exact for a few files. With linear: the best order, if it is found soon.
    Best,
    /// With linear: each file when the head first reaches it.
    EachFile,
    /// With linear: the best detours that are not nested (SimpleDP, arXiv 2112.09384).
    SimpleDp,
    /// With linear: the optimal order (DP, arXiv 2112.09384).
    ExactDp,
}

/// What an order is to make small.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OrderGoalArg {
    /// The drive time.
    DriveTime,
    /// The mean waiting time of requests.
    MeanWait,
}
