//! Scopes of the WLCG profile as capabilities on this site's namespace.

use penstock_model::path::InvalidPath;
use penstock_model::{Capability, NamespacePath, Right};
use thiserror::Error;

/// Why a `storage.*` scope cannot be understood. The whole token is refused then: leaving one scope out could
/// turn "these capabilities" into "none, so use the groups", which grants more.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidScope {
    /// The profile requires a path on every storage scope.
    #[error("'{0}' has no path; write '{0}:/path'")]
    NoPath(&'static str),
    /// The path is relative, contains `..` or is badly encoded.
    #[error("the path of '{scope}' is refused: {why}")]
    Path {
        scope: &'static str,
        why: InvalidPath,
    },
}

/// The capabilities of a `scope` claim, each placed below `prefix`. Unknown scopes are ignored.
pub fn capabilities(scope: &str, prefix: &NamespacePath) -> Result<Vec<Capability>, InvalidScope> {
    let mut found = Vec::new();
    for item in scope.split_ascii_whitespace() {
        let (name, path) = match item.split_once(':') {
            Some((name, path)) => (name, path),
            None => (item, ""),
        };
        let Some(right) = Right::from_scope_name(name) else {
            continue;
        };
        let capability = capability(right, path, prefix)?;
        if !found.contains(&capability) {
            found.push(capability);
        }
    }
    Ok(found)
}

/// True when the claim holds any capability of the profile, also one for computing: groups do not count then.
pub(super) fn is_capability_based(scope: &str) -> bool {
    scope.split_ascii_whitespace().any(|item| {
        let name = item.split_once(':').map_or(item, |(name, _)| name);
        Right::from_scope_name(name).is_some()
            || matches!(
                name,
                "compute.read" | "compute.modify" | "compute.create" | "compute.cancel"
            )
    })
}

fn capability(
    right: Right,
    path: &str,
    prefix: &NamespacePath,
) -> Result<Capability, InvalidScope> {
    if path.is_empty() {
        return Err(InvalidScope::NoPath(right.scope_name()));
    }
    let below = NamespacePath::from_encoded(path).map_err(|why| InvalidScope::Path {
        scope: right.scope_name(),
        why,
    })?;
    Ok(Capability {
        right,
        path: prefix.join(&below),
        directory_only: names_directory(path),
    })
}

/// A final `.` normalises to a final slash (RFC 3986 §5.2.4), so it names a directory as well.
fn names_directory(encoded: &str) -> bool {
    let last = encoded.rsplit('/').next().unwrap_or_default();
    matches!(last, "" | "." | "%2e" | "%2E")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(scope: &str, expected: &str) {
        let prefix = NamespacePath::parse("/grid/cms").expect("valid");
        let got = match capabilities(scope, &prefix) {
            Ok(list) => list
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(" "),
            Err(why) => format!("refused: {why}"),
        };
        assert_eq!(got, expected, "{scope}");
    }

    #[test]
    fn paths_are_relative_to_the_issuers_prefix() {
        check("storage.read:/", "storage.read:/grid/cms/");
        check("storage.read:/a%20b//c", "storage.read:/grid/cms/a b/c");
        check("storage.create:/a/ ", "storage.create:/grid/cms/a/");
        check(
            "openid storage.read:/a storage.modify:/a wlcg.groups:/cms",
            "storage.read:/grid/cms/a storage.modify:/grid/cms/a",
        );
        check(
            "storage.stage:/t storage.poll:/t storage.poll:/t",
            "storage.stage:/grid/cms/t storage.poll:/grid/cms/t",
        );
        check("storage.write:/a storage.readable:/b STORAGE.READ:/c", "");
        check("", "");
    }

    #[test]
    fn a_scope_that_could_be_misread_spoils_the_token() {
        check(
            "storage.read",
            "refused: 'storage.read' has no path; write 'storage.read:/path'",
        );
        check(
            "openid storage.read:",
            "refused: 'storage.read' has no path; write 'storage.read:/path'",
        );
        for escape in ["/../x", "/a/%2e%2E/b", "/a/.%2e"] {
            check(
                &format!("storage.read:{escape}"),
                "refused: the path of 'storage.read' is refused: the path must not contain '..'",
            );
        }
        check(
            "storage.modify:a/b",
            "refused: the path of 'storage.modify' is refused: the path must begin with '/'",
        );
    }

    #[test]
    fn computing_capabilities_also_make_groups_void() {
        assert!(is_capability_based("openid compute.create"));
        assert!(is_capability_based("storage.read:/x"));
        assert!(!is_capability_based(
            "openid offline_access fts wlcg.groups"
        ));
    }
}
