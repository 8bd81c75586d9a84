//! Files of the service that others on the machine must not read.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Takes the rights of others away, as far as that can be done.
pub(crate) fn hide_all<const N: usize>(paths: [PathBuf; N]) {
    for path in paths {
        if let Err(why) = hide_from_others(&path) {
            let path = path.display();
            tracing::warn!(%path, %why, "others on this machine may be able to read it; chmod go-rwx");
        }
    }
}

fn hide_from_others(path: &Path) -> io::Result<()> {
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(why) => return Err(why),
    };
    let mode = metadata.permissions().mode() & 0o7777;
    match mode & 0o077 {
        0 => Ok(()),
        _ => std::fs::set_permissions(path, Permissions::from_mode(mode & 0o7700)),
    }
}
