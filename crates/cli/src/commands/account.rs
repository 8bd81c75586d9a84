//! `penstock account`: what was moved, and why two views of it differ.

use super::records::local;
use crate::args::records::{
    AccountArgs, AccountBy, AccountCommand, PointInTime, PublishedArgs, ReconcileArgs,
};
use crate::exit::CommandError;
use crate::output::Output;
use penstock_model::TimeWindow;
use penstock_model::Timestamp;
use penstock_model::observation::{Attempt, Sample};
use penstock_observe::accounting::clouds::Clouds;
use penstock_observe::accounting::figures::PublishedTable;
use penstock_observe::accounting::page;
use penstock_observe::accounting::reconcile::{ATTEMPTS_MAX, ViewRows, reconcile};
use penstock_observe::accounting::{AccountKey, Accountant, COLUMNS};
use penstock_observe::store::Reader;
use std::path::Path;
use std::time::Duration;

/// Tables of figures and of clouds are written by people.
const TEXT_BYTES_MAX: u64 = 1 << 20;
/// Rows this long before and after a window are read, too: they tell that windows or clocks differ.
const MARGIN: Duration = Duration::from_secs(48 * 3600);

/// `penstock account`.
pub fn run(args: &AccountArgs, output: Output) -> Result<(), CommandError> {
    match (&args.command, &args.directory) {
        (Some(AccountCommand::Reconcile(args)), _) => compare(args, output),
        (Some(AccountCommand::Published(args)), _) => check_table(args, output),
        (None, Some(directory)) => account(args, directory, output),
        (None, None) => Err(CommandError::Usage(
            "name a directory of records".to_owned(),
        )),
    }
}

fn account(args: &AccountArgs, directory: &Path, output: Output) -> Result<(), CommandError> {
    let window = args.window.window();
    let mut accountant = Accountant::since(key_of(args.by), window.from);
    if output.json || args.html.is_some() {
        accountant = accountant.complete();
    }
    if let Some(path) = &args.clouds {
        accountant = accountant.in_clouds(clouds(path)?);
    }
    let mut reader = Reader::open(directory).map_err(local)?;
    let attempts = reader.each::<Attempt>(window, &COLUMNS, |row| accountant.take(row));
    attempts.map_err(local)?;
    let samples = reader.each::<Sample>(window, &[], |row| accountant.take_sample(row));
    samples.map_err(local)?;
    // Half of a window says nothing of its length.
    let asked = match (args.window.since, args.window.until) {
        (Some(_), _) => Some(TimeWindow {
            from: window.from,
            to: until(args.window.until),
        }),
        (None, _) => None,
    };
    let account = accountant.account(asked);
    let unread = reader.skipped().iter().map(|skipped| skipped.bytes.0).sum();
    if let Some(path) = &args.html {
        write_page(path, &page::page(&account, unread))?;
        if !output.json {
            output.say(format!("wrote the page {}", path.display()));
            return Ok(());
        }
    }
    output.show(&account, || account.text() + &unread_text(unread));
    Ok(())
}

/// The page tells of users and clients: it is for this user alone, as the records are. What has its name and is no file stays.
pub(super) fn write_page(path: &Path, page: &str) -> Result<(), CommandError> {
    let failed = |why: std::io::Error| CommandError::local(path.display(), why);
    match std::fs::symlink_metadata(path) {
        Ok(there) if !there.is_file() => {
            return Err(CommandError::Usage(format!(
                "{}: it exists and is not a file; name another one",
                path.display()
            )));
        }
        Err(why) if why.kind() != std::io::ErrorKind::NotFound => return Err(failed(why)),
        Ok(_) | Err(_) => {}
    }
    penstock_durable_file::replace_private(path, page).map_err(failed)
}

fn key_of(by: AccountBy) -> AccountKey {
    match by {
        AccountBy::Vo => AccountKey::Vo,
        AccountBy::Link => AccountKey::Link,
        AccountBy::Source => AccountKey::Source,
        AccountBy::Destination => AccountKey::Destination,
        AccountBy::Server => AccountKey::Server,
        AccountBy::Activity => AccountKey::Activity,
        AccountBy::Day => AccountKey::Day,
    }
}

fn clouds(path: &Path) -> Result<Clouds, CommandError> {
    let wrong =
        |why: &dyn std::fmt::Display| CommandError::Usage(format!("{}: {why}", path.display()));
    Clouds::parse(&small_text(path)?).map_err(|why| wrong(&why))
}

/// A file that people write.
fn small_text(path: &Path) -> Result<String, CommandError> {
    let wrong =
        |why: &dyn std::fmt::Display| CommandError::Usage(format!("{}: {why}", path.display()));
    let size = std::fs::metadata(path).map_err(|why| wrong(&why))?.len();
    if size > TEXT_BYTES_MAX {
        return Err(wrong(&format!(
            "it has {size} bytes; the limit is {TEXT_BYTES_MAX}"
        )));
    }
    std::fs::read_to_string(path).map_err(|why| wrong(&why))
}

/// A window without an end ends now.
fn until(end: Option<PointInTime>) -> Timestamp {
    end.map_or_else(penstock_clock::wall_clock, PointInTime::at)
}

fn unread_text(bytes: u64) -> String {
    match bytes {
        0 => String::new(),
        bytes => format!("\n{bytes} bytes could not be read and are not included.\n"),
    }
}

fn compare(args: &ReconcileArgs, output: Output) -> Result<(), CommandError> {
    let first = args.window.window();
    let second = TimeWindow {
        from: args.second_since.map_or(first.from, PointInTime::at),
        to: args.second_until.map_or(first.to, PointInTime::at),
    };
    let first = view(&args.first, first)?;
    let second = view(&args.second, second)?;
    let result = reconcile(&first, &second);
    let outcome = match result.has_residue() {
        true => Err(CommandError::Differs),
        false => Ok(()),
    };
    output.conclude(&result, || result.text(), outcome)
}

fn check_table(args: &PublishedArgs, output: Output) -> Result<(), CommandError> {
    let path = args.table.as_path();
    let wrong =
        |why: &dyn std::fmt::Display| CommandError::Usage(format!("{}: {why}", path.display()));
    let table: PublishedTable =
        serde_json::from_str(&small_text(path)?).map_err(|why| wrong(&why))?;
    if let [first, second] = args.compare.as_slice() {
        let missing = || {
            wrong(&format!(
                "the table has no rows {first} and {second} with a rate and files; name rows of `parts` or of `rates`"
            ))
        };
        let comparison = table.compare(first, second).ok_or_else(missing)?;
        output.show(&comparison, || comparison.text());
        return Ok(());
    }
    let found = table.contradictions();
    let text = || match found.is_empty() {
        true => "no contradictions\n".to_owned(),
        false => found
            .iter()
            .map(|(row, what)| format!("{row}: {what}\n"))
            .collect(),
    };
    let outcome = match found.is_empty() {
        true => Ok(()),
        false => Err(CommandError::Differs),
    };
    output.conclude(&found, text, outcome)
}

fn view(directory: &Path, window: TimeWindow) -> Result<ViewRows, CommandError> {
    let mut rows = ViewRows::new(window);
    let wider = TimeWindow {
        from: window.from - MARGIN,
        to: window.to + MARGIN,
    };
    let mut reader = Reader::open(directory).map_err(local)?;
    let read = reader.each::<Attempt>(wider, &[], |row| rows.take(row));
    read.map_err(local)?;
    if let Some(skipped) = reader.skipped().first() {
        return Err(CommandError::Verification(format!(
            "{}: {} bytes could not be read, so the comparison is not reliable",
            skipped.path.display(),
            skipped.bytes.0
        )));
    }
    if rows.is_cut() {
        return Err(CommandError::Usage(format!(
            "{} has more than {ATTEMPTS_MAX} attempts in this window and two days around it, too many to be compared; name \
             a shorter one (--since, --until)",
            directory.display(),
        )));
    }
    Ok(rows)
}
