//! Paths of the namespace that belong to the doors.

use penstock_decide::authorization::PathOperation;
use penstock_model::NamespacePath;
use penstock_model::share_link::{SHARE_MARK, begins_as_link_secret};
use penstock_persistence::namespace::Namespace;

/// The first name of every path that is the door's alone.
pub(crate) const RESERVED: &str = ".penstock";
/// Names at the root that others believe the door's word about. Nothing new can be made there. What was made before can
/// be listed, moved away and removed.
const KEPT_FREE: [&str; 5] = [".well-known", ".oauth2", "jwks", "health", "metrics"];
/// How the path of a share link is shown. Nobody reaches a file there, and its name may be a secret.
const SHARE_LINK: &str = "s/…";
/// Of the names that are kept free, the ones whose documents say whom to trust: what users left there is not served.
const TRUSTED: [&str; 3] = [".well-known", ".oauth2", "jwks"];

/// The part of a reserved path below `/.penstock`; `None` for a path of the namespace.
pub(crate) fn rest_of(path: &NamespacePath) -> Option<&[String]> {
    match path.names().split_first() {
        Some((first, rest)) if first == RESERVED => Some(rest),
        Some(_) | None => None,
    }
}

/// Whether an operation reads, writes or makes anything that is the door's.
pub(crate) fn is_reserved(operation: &PathOperation, path: &NamespacePath) -> bool {
    name_in_the_way(operation, path).is_some()
}

/// The reserved name that an operation would use.
pub(crate) fn name_in_the_way<'a>(
    operation: &'a PathOperation,
    path: &'a NamespacePath,
) -> Option<&'a str> {
    let target = match operation {
        PathOperation::Create | PathOperation::Modify | PathOperation::MakeDirectory => Some(path),
        PathOperation::Rename { to } => Some(to),
        PathOperation::Read
        | PathOperation::Stat
        | PathOperation::List
        | PathOperation::Delete
        | PathOperation::Stage
        | PathOperation::Poll => None,
    };
    let first = |path: &'a NamespacePath| path.names().first().map(String::as_str);
    let own = |path: &'a NamespacePath| match path.names() {
        [first, ..] if first == RESERVED => Some(RESERVED),
        [first, second, ..] if first == "s" => {
            begins_as_link_secret(SHARE_MARK, second.as_bytes()).then_some(SHARE_LINK)
        }
        _ => None,
    };
    let mut own = [Some(path), target].into_iter().flatten().filter_map(own);
    own.next().or_else(|| {
        target
            .and_then(first)
            .filter(|name| KEPT_FREE.contains(name))
    })
}

/// Whether what stands there is never served as if the door said it.
pub(crate) fn is_hidden(path: &NamespacePath) -> bool {
    let first = path.names().first().map(String::as_str);
    first.is_some_and(|name| TRUSTED.contains(&name))
}

/// What users made under reserved names before these were reserved.
pub(crate) fn left_from_before(namespace: &Namespace) -> Vec<NamespacePath> {
    let root = NamespacePath::root();
    let paths = KEPT_FREE
        .into_iter()
        .filter_map(|name| root.child(name).ok());
    paths
        .filter(|path| matches!(namespace.lookup(path), Ok(Some(_))))
        .collect()
}
