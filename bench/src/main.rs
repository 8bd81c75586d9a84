//! Measures Penstock beside its peers on this machine: starts all servers itself on loopback, loads them in
//! interleaved pairs, and writes one Markdown page. `bench/README.md` says how to read it.
#![deny(unsafe_code)]

mod backups;
mod cell;
mod clients;
mod contest;
mod disk;
mod error;
mod events;
mod explanations;
mod field;
mod hopeless;
mod in_flight;
mod interface;
mod load;
mod machine;
mod process;
mod profile;
mod queue;
mod recorded_commands;
mod records;
mod relay;
mod relayed;
mod report;
mod requests;
mod servers;
mod service;
mod starts;
mod stub;
mod work_directory;

use cell::{Cell, Scale};
use clap::Parser;
use error::{BenchError, doing};
use field::Field;
use machine::{Circumstances, HostClock};
use report::Report;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};

/// Measures Penstock beside nginx and XRootD on this machine.
#[derive(Debug, Parser)]
#[command(name = "penstock-bench", version, max_term_width = 110)]
struct Arguments {
    /// Print the names of the cells, with what each moves at most, and end.
    #[arg(long)]
    list: bool,
    /// Only cells whose name begins so (`put`, `copy-0B`, `service`); repeat it for more.
    #[arg(long, value_name = "CELL")]
    only: Vec<String>,
    /// The page to write. Default: `bench/results/DATE-COMMIT.md`.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Tiny sizes, to see that everything works. The figures mean nothing.
    #[arg(long)]
    quick: bool,
    /// Interleaved pairs of each cell with a peer. More of them make the median steadier on a machine whose speed changes.
    #[arg(long, value_name = "NUMBER", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=50))]
    pairs: u8,
    /// The binary to measure. Without it, peers are measured alone.
    #[arg(long, value_name = "PATH", default_value = "target/release/penstock")]
    penstock: PathBuf,
    /// An earlier binary of Penstock: cells named `…-earlier` compare with it, in turns.
    #[arg(long, value_name = "PATH")]
    earlier: Option<PathBuf>,
    /// Events of the cell `records`. Of 20 million some 7 GB lie in the directory of records, and 1 GB beside it.
    #[arg(long, value_name = "NUMBER", default_value_t = 20_000_000, value_parser = clap::value_parser!(u64).range(1_000..=100_000_000))]
    events: u64,
    /// Where the disk image of the data goes (14 GB at most).
    #[arg(long, value_name = "DIR", default_value_os_t = std::env::temp_dir())]
    work: PathBuf,
    /// Also profile Penstock in each cell with perf; reports go beside the page. Build with
    /// `RUSTFLAGS="-C force-frame-pointers=yes"` for call chains.
    #[arg(long)]
    profile: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let cells = chosen(&arguments);
    let scale = match arguments.quick {
        true => Scale::Quick,
        false => Scale::Full {
            pairs: usize::from(arguments.pairs),
        },
    };
    if arguments.list {
        cells
            .iter()
            .for_each(|cell| println!("{}", cell.description(scale)));
        return ExitCode::SUCCESS;
    }
    if cells.is_empty() {
        eprintln!(
            "penstock-bench: no cell begins with {:?}; see --list (those named `…-earlier` need --earlier PATH)",
            arguments.only
        );
        return ExitCode::from(2);
    }
    let too_large = |cell: &&Cell| matches!(cell, Cell::Beside(beside) if beside.bytes_max(scale) > cell::CELL_BYTES_MAX);
    if let Some(cell) = cells.iter().find(too_large) {
        eprintln!(
            "penstock-bench: {} would move more than {} GB with {} pairs; give fewer --pairs for it",
            cell.name(),
            cell::CELL_BYTES_MAX / 1_000_000_000,
            arguments.pairs
        );
        return ExitCode::from(2);
    }
    process::allow_open_files();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let outcome = runtime
        .or_else(doing("cannot start the asynchronous runtime"))
        .and_then(|runtime| {
            runtime.block_on(until_interrupted(measure(&arguments, &cells, scale)))
        });
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("penstock-bench: not everything was measured; see the end of the page");
            ExitCode::FAILURE
        }
        Err(why) => {
            eprintln!("penstock-bench: {why}");
            ExitCode::FAILURE
        }
    }
}

fn chosen(arguments: &Arguments) -> Vec<Cell> {
    let only = &arguments.only;
    let mut cells = Cell::all();
    cells.retain(|cell| {
        let can_be = arguments.earlier.is_some() || arguments.list || !cell.needs_earlier();
        let is_named = only.iter().any(|start| cell.name().starts_with(start));
        can_be && (only.is_empty() || is_named)
    });
    cells
}

/// Servers and mounts are guards: cut short by a signal, they are cleaned up like at the end.
async fn until_interrupted<T>(
    work: impl Future<Output = Result<T, BenchError>>,
) -> Result<T, BenchError> {
    let mut terminated = signal(SignalKind::terminate()).or_else(doing("signals"))?;
    tokio::select! {
        outcome = work => outcome,
        _ = tokio::signal::ctrl_c() => Err(BenchError::failed("interrupted")),
        _ = terminated.recv() => Err(BenchError::failed("terminated")),
    }
}

/// Measures all cells. False when some could not be measured.
async fn measure(arguments: &Arguments, cells: &[Cell], scale: Scale) -> Result<bool, BenchError> {
    let now = Circumstances::now();
    let page = match &arguments.out {
        Some(path) => path.clone(),
        None => default_page(&now),
    };
    if let Some(dir) = page.parent() {
        std::fs::create_dir_all(dir).or_else(doing(format!("{}", dir.display())))?;
    }
    let (earlier, wanted) = (arguments.earlier.as_deref(), (cells, arguments.events));
    let field = Field::set_up(&arguments.work, &arguments.penstock, earlier, wanted).await?;
    field.note_what_is_missing();
    field.work.warm_up(scale.warm_up_bytes())?;
    let mut report = Report::new(&now, &field.work.description, &field.versions, scale);
    for cell in cells {
        eprintln!("{} …", cell.name());
        let before = HostClock::now();
        match field.measure(cell, scale, &mut report).await {
            Ok(row) => eprint!("{row}"),
            Err(why) => {
                eprintln!("{}: {why}", cell.name());
                report.failed(&cell.name(), &why.to_string());
            }
        }
        if let (Some(before), Some(now)) = (before, HostClock::now()) {
            eprint!("{}", report.stolen(&cell.name(), now.stolen_since(before)));
        }
        if arguments.profile {
            let path = page.with_extension(format!("{}.profile.txt", cell.name()));
            if let Err(why) = field.profile(cell, scale, &path).await {
                eprintln!("{}: no profile: {why}", cell.name());
            }
        }
        report.write(&page)?;
    }
    eprintln!("written: {}", page.display());
    Ok(!report.has_errors())
}

fn default_page(now: &Circumstances) -> PathBuf {
    let day = now.date.split('T').next().unwrap_or_default();
    let commit = now.commit.split(' ').next().unwrap_or_default();
    Path::new("bench/results").join(format!("{day}-{commit}.md"))
}
