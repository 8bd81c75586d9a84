//! Whose files the files of a site are: those of the account whose directory it is, which runs the service. What root makes there the
//! service could not read, so commands that change a site are refused to root where another account has the directory.

use crate::exit::CommandError;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const ROOT: u32 = 0;
const ACCOUNTS: &str = "/etc/passwd";

/// Refuses root to change what is in a directory of another account. A directory that is still to be made is judged by the one
/// that it will be in.
pub fn refuse_root_for_others(directory: &Path) -> Result<(), CommandError> {
    let mut existing = directory
        .ancestors()
        .filter_map(|path| Some((path, path.metadata().ok()?.uid())));
    let account = rustix::process::geteuid().as_raw();
    match existing.next() {
        Some((path, owner)) if is_refused(account, owner) => Err(refusal(path, owner)),
        Some(_) | None => Ok(()),
    }
}

/// Other accounts are judged by the permissions of the files.
fn is_refused(account: u32, owner: u32) -> bool {
    account == ROOT && owner != ROOT
}

fn refusal(directory: &Path, owner: u32) -> CommandError {
    let accounts = std::fs::read_to_string(ACCOUNTS).unwrap_or_default();
    let name = name_of(owner, &accounts);
    // As sudo takes a number.
    let name = name.map_or_else(|| format!("'#{owner}'"), str::to_owned);
    CommandError::Usage(format!(
        "{} belongs to the account {name}, whose service cannot read files that root creates there; nothing was changed. Run \
         the command as that account: sudo -u {name} penstock …",
        directory.display()
    ))
}

/// The name of an account in the system's list; `None`: it is kept elsewhere.
fn name_of(account: u32, accounts: &str) -> Option<&str> {
    let mut named = accounts.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        let number = fields.nth(1)?.parse::<u32>().ok()?;
        (number == account).then_some(name)
    });
    named.next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_root_is_refused_and_only_in_directories_of_others() {
        let check = |account: u32, owner: u32, expected: bool| {
            assert_eq!(is_refused(account, owner), expected, "{account} {owner}");
        };
        check(0, 999, true);
        check(0, 0, false);
        check(999, 999, false);
        check(1000, 999, false);
        check(1000, 0, false);
    }

    #[test]
    fn the_remedy_names_the_account_as_sudo_takes_it() {
        let accounts = "root:x:0:0:root:/root:/bin/sh\n\n+::::::\npenstock:x:999:999::/var/lib/penstock:/usr/sbin/nologin\n";
        assert_eq!(name_of(999, accounts), Some("penstock"));
        assert_eq!(name_of(1000, accounts), None);
        let told = refusal(Path::new("/srv/north"), u32::MAX - 7).to_string();
        assert!(
            told.contains("/srv/north belongs to the account '#4294967288'"),
            "{told}"
        );
        assert!(told.ends_with("sudo -u '#4294967288' penstock …"), "{told}");
    }

    #[test]
    fn a_directory_that_does_not_exist_is_judged_by_the_one_above() {
        let made = tempfile::tempdir().expect("made");
        // It belongs to whoever runs this.
        refuse_root_for_others(&made.path().join("a/b")).expect("its own");
    }
}
