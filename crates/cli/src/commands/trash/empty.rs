//! `penstock trash empty`: tells what would go for good, asks, and has it removed until there is no more.

use super::{connect, told_of_whole};
use crate::args::TrashEmptyArgs;
use crate::commands::fsck::is_confirmed;
use crate::environment::Environment;
use crate::exit::CommandError;
use crate::output::Output;
use penstock_field_tools::trash_api::StayInfo;
use penstock_model::Bytes;
use penstock_model::text::{one_line, plural};
use serde::Serialize;

#[derive(Debug, Default, Serialize)]
struct TrashEmptyReport {
    files: u64,
    bytes: u64,
    /// Trash that could not be removed.
    stays: Vec<StayInfo>,
}

pub(super) async fn run(
    args: &TrashEmptyArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let trash = connect(&args.door, environment)?;
    let path = args.path.as_ref();
    let seconds = args.older_than.map(|span| span.0.as_secs());
    if !args.yes {
        let would = trash.would_empty(path, seconds).await;
        let would = would.map_err(told_of_whole)?;
        if would.files > 0 {
            let goes = what_goes(would.files, would.bytes, args);
            output.say(&goes);
            if !is_confirmed("Delete permanently?", output)? {
                return Err(CommandError::Usage(format!(
                    "nothing was deleted; with --yes, or the answer yes, {goes}"
                )));
            }
        }
    }
    let mut done = TrashEmptyReport::default();
    loop {
        let emptied = trash.empty(path, seconds).await.map_err(told_of_whole)?;
        done.files += emptied.files;
        done.bytes += emptied.bytes;
        done.stays = emptied.stays;
        if !emptied.is_more || emptied.files == 0 {
            break;
        }
    }
    let text = || {
        let files = plural(done.files, "file");
        format!("permanently deleted {files} ({})\n", Bytes(done.bytes))
    };
    let outcome = match done.stays.as_slice() {
        [] => Ok(()),
        stays => {
            let stays: Vec<String> = stays.iter().map(stay_text).collect();
            Err(CommandError::SomeFailed(stays.join("\n")))
        }
    };
    output.conclude(&done, text, outcome)
}

fn what_goes(files: u64, bytes: u64, args: &TrashEmptyArgs) -> String {
    let mut what = format!("{} in the trash ({})", plural(files, "file"), Bytes(bytes));
    let mut limits = Vec::new();
    let was = if files == 1 { "was" } else { "were" };
    if let Some(path) = &args.path {
        limits.push(format!("{was} at {path} or below it"));
    }
    if let Some(span) = &args.older_than {
        limits.push(format!("{was} removed more than {span} ago"));
    }
    if !limits.is_empty() {
        what += &format!(", which {},", limits.join(" and "));
    }
    format!("{what} will be permanently deleted")
}

fn stay_text(stay: &StayInfo) -> String {
    let verb = if stay.files == 1 { "stays" } else { "stay" };
    format!(
        "{} ({}) {verb} in the trash of pool {}, which {}",
        plural(stay.files, "file"),
        Bytes(stay.bytes),
        one_line(&stay.pool),
        one_line(&stay.why)
    )
}

#[cfg(test)]
mod tests {
    use super::super::tests::parsed;
    use super::*;
    use crate::args::TrashCommand;

    #[test]
    fn people_read_what_goes_before_they_say_yes() {
        let check = |line: &str, files, expected: &str| {
            let TrashCommand::Empty(args) = parsed(line.split(' ')) else {
                panic!("another command");
            };
            assert_eq!(what_goes(files, 1500, &args), expected);
        };
        check(
            "empty --dir d",
            2,
            "2 files in the trash (1.5 kB) will be permanently deleted",
        );
        check(
            "empty --dir d /d --older-than 2h",
            1,
            "1 file in the trash (1.5 kB), which was at /d or below it and was removed more than 2h ago, will be \
             permanently deleted",
        );
    }

    #[test]
    fn people_read_what_stays_and_why() {
        let stay = StayInfo {
            pool: "disk2".to_owned(),
            files: 1,
            bytes: 3,
            why: "is not configured".to_owned(),
        };
        assert_eq!(
            stay_text(&stay),
            "1 file (3 B) stays in the trash of pool disk2, which is not configured"
        );
    }
}
