//! What can be typed about tape.

use super::DoorArgs;
use super::records::PointInTime;
use clap::{Args, Subcommand, ValueEnum};
use penstock_model::quantity::Span;
use std::path::PathBuf;

/// What can be done with tape.
#[derive(Debug, Subcommand)]
pub enum TapeCommand {
    /// Order the files that are to be read from one tape, and tell what the order costs.
    ///
    /// The file is JSON:
    ///
    ///   {"files": [{"name": "a", "begin_bytes": 0, "size_bytes": 2000000000, "requests": 1}]}
    ///
    /// `begin_bytes` counts from the beginning of the tape, without tape marks. `requests` (1) says how many ask for the
    /// file. `head_bytes` (0) says where the head stands, `drive` describes a drive that is none of the models, and
    /// `wrap_ends_bytes` where the wraps of this cartridge end, if the drive tells; of a `tape` that `--model FILE` knows, it
    /// is known from there.
    ///
    /// With `--model linear` the tape is a line without wraps, as in papers about the Linear Tape Scheduling Problem: the head
    /// stands at the right end (`head_bytes`, default: the end of the last file), files are read from left to right, files do
    /// not overlap, and a turn costs the time of `turn_bytes` (0). The sum of all waits is made small.
    ///
    /// Examples:
    ///
    ///   penstock tape order recall.json
    ///   penstock tape order recall.json --model LTO-9 --goal mean-wait
    ///   penstock tape order recall.json --policy position --json
    ///   penstock tape order recall.json --model linear --policy simple-dp
    #[command(verbatim_doc_comment)]
    Order(TapeOrderArgs),
    /// Tell what the tape system of a storage element does: commands that run, files that wait, incidents; of libraries drives,
    /// tapes and what waits for them.
    #[command(
        after_help = "Examples:\n  penstock tape status --dir cern\n  penstock tape status --dir cern --json\n  penstock tape status --dir cern --html tape.html\n\n\
        A family's files wait for others, so that they are put together (collect_files, collect_bytes and collect_time of \
        [storage.tape]). While an HSM is out of service, one command at a time tests it. Of libraries it is told for each tape and \
        family what its files wait for. Incidents and what to do: docs/tape/files-on-tape.md."
    )]
    Status(TapeStatusArgs),
    /// List the data sets on tape: files there and announced, what is on tape, when a recall of them will be done.
    #[command(
        name = "data-sets",
        after_help = "Examples:\n  penstock tape data-sets --dir cern\n  penstock tape data-sets data23.00452799.RAW --dir cern --json\n\n\
        Which files belong together the client says in its archive metadata (archive_metadata of a transfer, gfal2); where it says \
        nothing, the files of one job, else of one directory belong together. Files of a data set that was announced wait for each \
        other (data_set_wait of [storage.tape]). Below the list stands who sends such hints, and what they are worth."
    )]
    DataSets(TapeDataSetsArgs),
    /// Tell what the drives of libraries did: hours by VO, activity, challenge and kind of drive; tapes of each VO; speed of mounts.
    #[command(
        after_help = "Examples:\n  penstock tape account --dir cern\n  penstock tape account --since 1d --dir cern\n  penstock tape account --since 2026-11-01T00:00:00Z --dir cern --json\n\n\
        Mounts count when they end. Of longer ago than a day they are kept by day, for 400 days: then all of the first day counts. \
        Payload is what files had of a drive's time, bytes moved with those that had to be moved again."
    )]
    Account(TapeAccountArgs),
    /// Retry now what failed and waits for its next try, and test an HSM or a library that is out of service.
    #[command(after_help = "Example:\n  penstock tape retry --dir cern\n\n\
        For example after the HSM was repaired. Files that only wait for others, so that they are put on tape together, go on waiting.")]
    Retry(DoorArgs),
    /// Take a drive or a tape of a library out of use.
    #[command(
        after_help = "Examples:\n  penstock tape ok-to-stop silo-LTO-8-1 --dir cern\n  penstock tape disable silo-LTO-8-1 --dir cern\n  penstock tape disable silo-LTO-8-0001 --dir cern\n\n\
        Ask first what that would mean: `penstock tape ok-to-stop`. What a drive has written and not synced is written again by \
        another one. Files on a tape that is out of use are read from another copy; those without one wait."
    )]
    Disable(TapeNameArgs),
    /// Put a drive or a tape of a library back into use.
    #[command(
        after_help = "Examples:\n  penstock tape enable silo-LTO-8-1 --dir cern\n  penstock tape enable silo-LTO-8-0001 --dir cern\n\n\
        Before a drive is put back into use, make sure that it works and that its tape is back in its slot."
    )]
    Enable(TapeNameArgs),
    /// Have a tape of a library read, and not written to any more.
    #[command(
        after_help = "Examples:\n  penstock tape read-only silo-LTO-8-0001 --dir cern\n  penstock tape enable silo-LTO-8-0001 --dir cern    # written to again"
    )]
    ReadOnly(TapeNameArgs),
    /// Empty a tape of a library, and write it anew: its files are moved to other tapes.
    #[command(
        after_help = "Examples:\n  penstock tape repack silo-LTO-8-0001 --dir cern\n  penstock tape repack silo-LTO-8-0001 --together hints.txt --dir cern\n  penstock tape repack silo-LTO-8-0001 --stop --dir cern\n\n\
        hints.txt has one file or directory a line. What is below one of them is written beside each other, in the order of the lines; \
        all others follow as they lie on the tape.\n\
        Nothing more is written to the tape from now on. It is done as background: `penstock tape status` tells how far it is. The old \
        place of a file counts until the new one is safe. When nothing lives on the tape any more, it is relabeled."
    )]
    Repack(TapeRepackArgs),
    /// Have all files of a tape read and compared with what was written.
    #[command(
        after_help = "Example:\n  penstock tape verify silo-LTO-8-0001 --dir cern\n\n\
        Each tape is verified by itself every verify_every of [storage.tape]. A copy that cannot be read is an incident, and is written \
        again when the file is on disk or has another copy. `penstock tape status` tells what was found."
    )]
    Verify(TapeNameArgs),
    /// Give up all of a tape on which nothing lives, so that it is written anew.
    #[command(
        after_help = "Examples:\n  penstock tape read-only silo-LTO-8-0001 --dir cern\n  penstock tape relabel silo-LTO-8-0001 --dir cern\n\n\
        It is refused while a file lives on the tape, can be brought back, or is on its way, and while the tape is in a drive. \
        `penstock tape repack` moves files away and relabels by itself."
    )]
    Relabel(TapeNameArgs),
    /// Have what nobody waits for rest, as during a challenge: verification, repack, reclaim.
    #[command(
        after_help = "Examples:\n  penstock tape hold 5d --dir cern\n  penstock tape resume --dir cern\n\n\
        What a drive has begun is finished first."
    )]
    Hold(TapeHoldArgs),
    /// Have what rests since `penstock tape hold` go on.
    #[command(after_help = "Example:\n  penstock tape resume --dir cern")]
    Resume(DoorArgs),
    /// Tell whether a drive, a library or a tape may be stopped: what would wait, and which files have no other copy.
    #[command(
        after_help = "Examples:\n  penstock tape ok-to-stop silo --dir cern\n  penstock tape ok-to-stop silo-LTO-8-0001 --dir cern --json\n\n\
        Exit code 0: it may be stopped. Exit code 1: something speaks against it, and is told."
    )]
    OkToStop(TapeStopArgs),
    /// Find how a drive locates from locates that were observed.
    ///
    /// The file has one line for each locate, after the line
    ///
    ///   tape,from_bytes,to_bytes,seconds
    ///
    /// `from_bytes` is where the head stood, `to_bytes` where it was told to go, both from the beginning of the tape without
    /// tape marks; `seconds` is how long that took. Some 200 locates tell the coefficients of a kind of drive. Where the wraps of
    /// a tape end is found as well, from the locates on it, unless `--wrap-ends` says it.
    ///
    /// With `--json` it writes what `penstock tape order --model FILE` reads.
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
    /// Write a page into this file: the mounts of each drive as bars, and what waits for each tape. It needs nothing else.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// Options of `tape data-sets`.
#[derive(Debug, Args)]
pub struct TapeDataSetsArgs {
    /// Only those with a level of this name.
    pub name: Option<String>,
    /// List no more than this; those that files joined last come first.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub limit: u16,
    #[command(flatten)]
    pub door: DoorArgs,
}

/// Options of `tape account`.
#[derive(Debug, Args)]
pub struct TapeAccountArgs {
    /// Count mounts that ended since then: a time, or so long ago. Default: all.
    #[arg(long, value_name = "TIME")]
    pub since: Option<PointInTime>,
    #[command(flatten)]
    pub door: DoorArgs,
}

/// Options of `tape repack`.
#[derive(Debug, Args)]
pub struct TapeRepackArgs {
    /// Its name, as `penstock tape status` tells it.
    pub name: String,
    /// Files and directories, one a line, of which each is written together.
    #[arg(long, value_name = "FILE")]
    pub together: Option<PathBuf>,
    /// It is not emptied any more. What was moved stays where it is now.
    #[arg(long, conflicts_with = "together")]
    pub stop: bool,
    #[command(flatten)]
    pub door: DoorArgs,
}

/// A tape, or a drive.
#[derive(Debug, Args)]
pub struct TapeNameArgs {
    /// Its name, as `penstock tape status` tells it.
    pub name: String,
    #[command(flatten)]
    pub door: DoorArgs,
}

/// Options of `tape hold`.
#[derive(Debug, Args)]
pub struct TapeHoldArgs {
    /// For how long, such as 5d or 12h.
    pub span: Span,
    #[command(flatten)]
    pub door: DoorArgs,
}

/// Options of `tape ok-to-stop`.
#[derive(Debug, Args)]
pub struct TapeStopArgs {
    /// The name of a drive, a library or a tape.
    pub name: String,
    #[command(flatten)]
    pub door: DoorArgs,
}

/// Options of `tape calibrate`.
#[derive(Debug, Args)]
pub struct TapeCalibrateArgs {
    /// What was observed.
    pub file: PathBuf,
    /// The kind of drive, such as LTO-8 or TS1160, or a file that this command has written.
    #[arg(long, default_value = "LTO-8")]
    pub model: String,
    /// Where wraps end, of tapes that were measured. JSON: {"A00001": [57692307692, …]}
    #[arg(long)]
    pub wrap_ends: Option<PathBuf>,
}

/// Options of `tape order`.
#[derive(Debug, Args)]
pub struct TapeOrderArgs {
    /// What is to be read.
    pub file: PathBuf,
    /// The kind of drive, such as LTO-8 or TS1160, with its usual cartridge, or a file that `penstock tape calibrate --json` has
    /// written; or linear. Default: the one that the file describes, else LTO-8.
    #[arg(long)]
    pub model: Option<String>,
    /// How the order is found.
    #[arg(long, value_enum, default_value_t = OrderPolicyArg::Best)]
    pub policy: OrderPolicyArg,
    /// What is to become small.
    #[arg(long, value_enum, default_value_t = OrderGoalArg::DriveTime)]
    pub goal: OrderGoalArg,
}

/// How an order is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OrderPolicyArg {
    /// As the files stand in the list.
    Fifo,
    /// From the beginning of the tape to its end.
    Position,
    /// Even wraps there, odd wraps back.
    Scan,
    /// The file next that is reached soonest.
    NearestLocate,
    /// The file next that is reached and read soonest.
    NearestService,
    /// The best of these, improved; exact for a few files. Of a line: the best order, if that is found soon.
    Best,
    /// Of a line: each file when the head first comes to it.
    EachFile,
    /// Of a line: the best detours that do not lie in each other (SimpleDP, arXiv 2112.09384).
    SimpleDp,
    /// Of a line: the best order there is (DP, arXiv 2112.09384).
    ExactDp,
}

/// What an order is to make small.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OrderGoalArg {
    /// The time of the drive.
    DriveTime,
    /// The mean time that requests wait.
    MeanWait,
}
