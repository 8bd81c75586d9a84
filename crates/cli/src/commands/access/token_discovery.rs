//! Tokens in files and variables: those that somebody names, and those that are looked for in default places.

use crate::environment::Environment;
use crate::exit::CommandError;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Tokens longer than this are no tokens: the HTTP head that carries one is bounded too.
const TOKEN_FILE_BYTES_MAX: u64 = 32 << 10;

/// WLCG Bearer Token Discovery 1.0: the first place that exists is used, a bad one there is an error.
/// `None`: there is none.
pub fn discovered_token(environment: &Environment) -> Result<Option<String>, CommandError> {
    if let Some(token) = &environment.bearer_token {
        return bearer_token(token, "BEARER_TOKEN").map(Some);
    }
    if let Some(path) = &environment.bearer_token_file {
        return token_in(path).map(Some);
    }
    let name = format!("bt_u{}", environment.uid);
    let places = environment
        .runtime_dir
        .iter()
        .map(PathBuf::as_path)
        .chain([Path::new("/tmp")]);
    // A link that leads nowhere is there, too: it is told, not passed over.
    match places
        .map(|dir| dir.join(&name))
        .find(|path| path.symlink_metadata().is_ok())
    {
        Some(path) => {
            let text = read_discovered_token(&path)?;
            bearer_token(&text, &path.display().to_string()).map(Some)
        }
        None => Ok(None),
    }
}

/// The token in a file that somebody has named.
pub fn token_in(path: &Path) -> Result<String, CommandError> {
    bearer_token(&read_token(path)?, &path.display().to_string())
}

/// Reads a file that holds one token.
pub fn read_token(path: &Path) -> Result<String, CommandError> {
    let file = File::open(path).map_err(|why| unusable(path, &why))?;
    token_of(file, path)
}

/// The same of a file that nobody has named. Everybody may put one into /tmp, so it counts only when it is a file of whoever
/// runs the command, or of root, and nobody else may read or write it.
fn read_discovered_token(path: &Path) -> Result<String, CommandError> {
    // A pipe is opened without waiting for who writes it.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path);
    let file = file.map_err(|why| match Errno::from_io_error(&why) {
        Some(Errno::LOOP) => doubtful(path, "it is a symbolic link"),
        _ => unusable(path, &why),
    })?;
    let metadata = file.metadata().map_err(|why| unusable(path, &why))?;
    if !metadata.is_file() {
        return Err(doubtful(path, "it is not a regular file"));
    }
    let (owner, own) = (metadata.uid(), rustix::process::getuid().as_raw());
    if let Some(why) = access_of_others(owner, metadata.mode(), own) {
        return Err(doubtful(path, &why));
    }
    token_of(file, path)
}

/// How others than `own` and root could have written a file, or could read it.
fn access_of_others(owner: u32, mode: u32, own: u32) -> Option<String> {
    if owner != own && owner != 0 {
        return Some(format!("it belongs to another user (uid {owner})"));
    }
    let others = mode & 0o077;
    (others != 0).then(|| {
        let mode = mode & 0o7777;
        format!(
            "users other than its owner have access to it (mode {mode:04o}); run `chmod 600` on it"
        )
    })
}

fn token_of(file: File, path: &Path) -> Result<String, CommandError> {
    let mut text = String::new();
    let read = file
        .take(TOKEN_FILE_BYTES_MAX + 1)
        .read_to_string(&mut text);
    read.map_err(|why| unusable(path, &why))?;
    match text.len() as u64 > TOKEN_FILE_BYTES_MAX {
        true => Err(unusable(
            path,
            &format!("it has more than {TOKEN_FILE_BYTES_MAX} bytes, too many for a token"),
        )),
        false => Ok(text),
    }
}

fn unusable(path: &Path, why: &dyn std::fmt::Display) -> CommandError {
    CommandError::Usage(format!("token file {}: {why}", path.display()))
}

fn doubtful(path: &Path, why: &str) -> CommandError {
    let remedy = "it was found in a default place and is not used for this reason: remove it, or name a token with \
                  --token-file or BEARER_TOKEN_FILE";
    unusable(path, &format!("{why}; {remedy}"))
}

/// A token, if a text is one.
pub fn bearer_token(text: &str, origin: &str) -> Result<String, CommandError> {
    let token = text.trim();
    // RFC 6750 §2.1: the characters of a bearer token. Anything else would end or split the header.
    let valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
    match !token.is_empty() && token.bytes().all(valid) {
        true => Ok(token.to_owned()),
        false => Err(CommandError::Usage(format!(
            "{origin} does not contain a bearer token"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    fn discovered(environment: &Environment) -> String {
        match discovered_token(environment) {
            Ok(token) => token.unwrap_or_else(|| "none".into()),
            Err(why) => why.to_string(),
        }
    }

    #[test]
    fn tokens_are_discovered_in_the_order_of_the_profile() {
        let dir = tempfile::tempdir().expect("a directory");
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            write_private(&path, text);
            path
        };
        // A user id that nobody has, so that /tmp cannot interfere.
        let mut environment = Environment {
            uid: 4_000_000_001,
            ..Environment::default()
        };
        assert_eq!(discovered(&environment), "none");
        write("bt_u4000000001", "from-runtime-dir\n");
        environment.runtime_dir = Some(dir.path().to_owned());
        assert_eq!(discovered(&environment), "from-runtime-dir");
        environment.bearer_token_file = Some(write("other", "from-file"));
        assert_eq!(discovered(&environment), "from-file");
        environment.bearer_token = Some(" from-variable ".into());
        assert_eq!(discovered(&environment), "from-variable");
        environment.bearer_token = Some("two words".into());
        assert_eq!(
            discovered(&environment),
            "BEARER_TOKEN does not contain a bearer token"
        );
    }

    fn write_private(path: &Path, text: &str) {
        std::fs::write(path, text).expect("written");
        std::fs::set_permissions(path, Permissions::from_mode(0o600)).expect("set");
    }

    #[test]
    fn a_token_that_was_found_counts_only_when_nobody_else_could_have_put_it_there() {
        let dir = tempfile::tempdir().expect("a directory");
        let place = dir.path().join("bt_u4000000001");
        let environment = Environment {
            uid: 4_000_000_001,
            runtime_dir: Some(dir.path().to_owned()),
            ..Environment::default()
        };
        let check = |expected: &str| {
            let told = discovered(&environment);
            assert!(told.contains(expected), "{expected}: {told}");
        };
        let elsewhere = dir.path().join("elsewhere");
        std::os::unix::fs::symlink(&elsewhere, &place).expect("linked");
        check("it is a symbolic link; ");
        write_private(&elsewhere, "of-somebody");
        check("it is a symbolic link; ");
        std::fs::remove_file(&place).expect("removed");
        std::fs::create_dir(&place).expect("made");
        check("it is not a regular file; ");
        std::fs::remove_dir(&place).expect("removed");
        write_private(&place, "own");
        check("own");
        for mode in [0o604, 0o602, 0o640, 0o620] {
            std::fs::set_permissions(&place, Permissions::from_mode(mode)).expect("set");
            check("users other than its owner have access to it (mode 06");
        }
        assert_eq!(access_of_others(1000, 0o100_600, 1000), None);
        assert_eq!(access_of_others(0, 0o100_600, 1000), None, "root's");
        let foreign = access_of_others(1001, 0o100_600, 1000);
        assert!(foreign.is_some_and(|why| why.contains("uid 1001")));
    }
}
