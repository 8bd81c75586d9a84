//! What the door keeps below `/.penstock` for itself: the script and style of its pages, the description of its
//! interface, uploads that can be resumed, shares, and the trash. No entry of the namespace can stand there.

pub(super) use crate::reserved_names::{is_hidden, rest_of};

use super::answer::{METHODS, Problem, Response};
use crate::reserved_names::{RESERVED, name_in_the_way};
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderName, HeaderValue, Method, StatusCode};
use penstock_decide::authorization::PathOperation;
use penstock_model::{NamespacePath, ProblemCode, StageRequestId};
use penstock_persistence::namespace::EntryId;
use penstock_protocol::http1::server::Request;
use penstock_protocol::openapi_page;
use std::sync::LazyLock;

/// Other sites may not embed what is served with it.
pub(super) const RESOURCE_POLICY: HeaderName =
    HeaderName::from_static("cross-origin-resource-policy");

/// What can be done with what the door serves there, and with an upload.
pub(super) const READ_ONLY: &str = "OPTIONS, GET, HEAD";
pub(super) const OF_UPLOADS: &str = "OPTIONS, HEAD, PATCH, DELETE";

/// What a reserved path means in the trash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TrashPlace {
    Whole,
    File(EntryId),
}

/// What can be done with the trash, and with a file in it.
pub(super) const OF_TRASH: &str = "OPTIONS, GET, HEAD, DELETE";
pub(super) const OF_TRASHED_FILE: &str = "OPTIONS, POST";

/// What a reserved path means among shares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ShareResource {
    All,
    One(String),
}

/// What can be done with shares, and with one of them.
pub(super) const OF_SHARES: &str = "OPTIONS, GET, HEAD, POST";
pub(super) const OF_SHARE: &str = "OPTIONS, DELETE";

/// Whether a reserved path is of shares, and of which.
pub(super) fn share_place_of(path: &NamespacePath) -> Option<ShareResource> {
    match rest_of(path)? {
        [shares] if shares == "shares" => Some(ShareResource::All),
        [shares, id] if shares == "shares" => Some(ShareResource::One(id.clone())),
        _ => None,
    }
}

/// Whether a reserved path is in the trash, and where.
pub(super) fn trash_place_of(path: &NamespacePath) -> Option<TrashPlace> {
    match rest_of(path)? {
        [trash] if trash == "trash" => Some(TrashPlace::Whole),
        [trash, id] if trash == "trash" => {
            let id = u64::from_str_radix(id, 16).ok()?;
            Some(TrashPlace::File(EntryId(id)))
        }
        _ => None,
    }
}

/// Where the tape interface is.
pub(super) const TAPE_ROOT: &str = "/.penstock/tape/v1";
/// What is below this answers in the form that the Tape REST specification asks for.
const TAPE_PREFIX: &str = "/.penstock/tape/";

/// A place of the tape interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TapeResource {
    Stages,
    Stage(StageRequestId),
    Cancel(StageRequestId),
    Release(StageRequestId),
    ArchiveInfo,
    /// For administrators: what the tape system does.
    Status,
    /// For administrators: what waits for its next try is tried now.
    Retry,
    /// For administrators: a drive of a library is taken out of use, or back.
    Drive(String),
    /// For administrators: the same of a tape.
    Tape(String),
    /// For administrators: a tape is emptied and written anew.
    Repack(String),
    /// For administrators: the files of a tape are read and compared now.
    Verify(String),
    /// For administrators: a tape on which nothing lives is written anew.
    Relabel(String),
    /// For administrators: work that nobody waits for rests, or goes on.
    Background,
    /// For administrators: what would happen if a drive, a library or a tape were stopped.
    OkToStop(String),
    /// For administrators: data sets on tape, and what clients have said of them.
    DataSets,
    /// For administrators: what drives did for whom.
    Account,
    /// What WLCG collects of tapes.
    Metrics,
}

impl TapeResource {
    /// The methods that it takes.
    pub(super) fn methods(&self) -> &'static str {
        match self {
            TapeResource::Stages
            | TapeResource::Cancel(_)
            | TapeResource::Release(_)
            | TapeResource::ArchiveInfo
            | TapeResource::Retry
            | TapeResource::Drive(_)
            | TapeResource::Tape(_)
            | TapeResource::Verify(_)
            | TapeResource::Relabel(_)
            | TapeResource::Background => "OPTIONS, POST",
            TapeResource::Repack(_) => "OPTIONS, POST, DELETE",
            TapeResource::Stage(_) => "OPTIONS, GET, HEAD, DELETE",
            TapeResource::Status
            | TapeResource::OkToStop(_)
            | TapeResource::DataSets
            | TapeResource::Account
            | TapeResource::Metrics => READ_ONLY,
        }
    }
}

/// Whether the path of a request is of the tape interface, whatever is there.
pub(super) fn is_tape_interface(encoded: &str) -> bool {
    encoded.starts_with(TAPE_PREFIX)
}

/// Whether a reserved path is of the tape interface, and where.
pub(super) fn tape_place_of(path: &NamespacePath) -> Option<TapeResource> {
    let names: Vec<&str> = rest_of(path)?.iter().map(String::as_str).collect();
    match names.as_slice() {
        ["tape", "v1", "stage"] => Some(TapeResource::Stages),
        ["tape", "v1", "stage", id] => Some(TapeResource::Stage(StageRequestId::new(*id))),
        ["tape", "v1", "stage", id, "cancel"] => {
            Some(TapeResource::Cancel(StageRequestId::new(*id)))
        }
        ["tape", "v1", "release", id] => Some(TapeResource::Release(StageRequestId::new(*id))),
        ["tape", "status"] => Some(TapeResource::Status),
        ["tape", "data-sets"] => Some(TapeResource::DataSets),
        ["tape", "account"] => Some(TapeResource::Account),
        ["tape", "metrics"] => Some(TapeResource::Metrics),
        ["tape", "retry"] => Some(TapeResource::Retry),
        ["tape", "drive", name] => Some(TapeResource::Drive((*name).to_owned())),
        ["tape", "tape", name] => Some(TapeResource::Tape((*name).to_owned())),
        ["tape", "tape", name, "repack"] => Some(TapeResource::Repack((*name).to_owned())),
        ["tape", "tape", name, "verify"] => Some(TapeResource::Verify((*name).to_owned())),
        ["tape", "tape", name, "relabel"] => Some(TapeResource::Relabel((*name).to_owned())),
        ["tape", "background"] => Some(TapeResource::Background),
        ["tape", "ok-to-stop", name] => Some(TapeResource::OkToStop((*name).to_owned())),
        ["tape", "v1", "archiveinfo"] => Some(TapeResource::ArchiveInfo),
        _ => None,
    }
}

const SCRIPT: &str = include_str!("../../assets/pages.js");
const STYLE: &str = include_str!("../../assets/pages.css");
/// The interface beside WebDAV, for programs.
const OPENAPI: &str = include_str!("../../../../docs/api/openapi/storage.json");
/// The same for people.
static OPENAPI_PAGE: LazyLock<String> = LazyLock::new(|| {
    let document = serde_json::from_str(OPENAPI).expect("a test reads it");
    openapi_page::of(&document, "/.penstock/openapi.json", &[])
});
/// The same picture as the live page has.
const ICON: &str = "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'>\
<rect width='16' height='16' rx='4' fill='#0b63c5'/>\
<path d='M4 3v10M4 4h5a3 3 0 010 6H4' fill='none' stroke='white' stroke-width='2'/></svg>";

/// The methods for a path, as `OPTIONS` tells them.
pub(super) fn methods_of(encoded: &str) -> &'static str {
    let path = NamespacePath::from_encoded(encoded).ok();
    match path.as_ref().and_then(trash_place_of) {
        Some(TrashPlace::Whole) => return OF_TRASH,
        Some(TrashPlace::File(_)) => return OF_TRASHED_FILE,
        None => {}
    }
    match path.as_ref().and_then(share_place_of) {
        Some(ShareResource::All) => return OF_SHARES,
        Some(ShareResource::One(_)) => return OF_SHARE,
        None => {}
    }
    if let Some(place) = path.as_ref().and_then(tape_place_of) {
        return place.methods();
    }
    match path.as_ref().and_then(rest_of) {
        None => METHODS,
        Some([uploads, _]) if uploads == "uploads" => OF_UPLOADS,
        Some(_) => READ_ONLY,
    }
}

/// Refuses that, whatever the caller holds.
pub(super) fn refuse(operation: &PathOperation, path: &NamespacePath) -> Result<(), Problem> {
    match name_in_the_way(operation, path) {
        Some(name) => Err(Problem::new(
            ProblemCode::PathReserved,
            format!("/{name} belongs to the door; choose another name"),
        )),
        None => Ok(()),
    }
}

/// A file of the pages or the interface's description, for anybody; `None` when the path is not reserved.
pub(super) fn asset(request: &Request, path: &NamespacePath) -> Option<Result<Response, Problem>> {
    let names: Vec<&str> = rest_of(path)?.iter().map(String::as_str).collect();
    let (media_type, content, policy): (_, &str, Option<&str>) = match names.as_slice() {
        ["pages.js"] => ("text/javascript; charset=utf-8", SCRIPT, None),
        ["pages.css"] => ("text/css; charset=utf-8", STYLE, None),
        ["icon.svg"] => ("image/svg+xml", ICON, None),
        ["openapi.json"] => ("application/json", OPENAPI, None),
        ["openapi.html"] => (
            "text/html; charset=utf-8",
            &OPENAPI_PAGE,
            Some(&openapi_page::POLICY),
        ),
        _ => {
            return Some(Err(Problem::new(
                ProblemCode::PathNotFound,
                format!("{path} does not exist; /{RESERVED} belongs to the door"),
            )));
        }
    };
    if request.method != Method::GET && request.method != Method::HEAD {
        let text = format!("{path} belongs to the door and can only be read");
        return Some(Err(Problem::method_of(READ_ONLY, text)));
    }
    let mut answer = Response::new(StatusCode::OK)
        .with(CONTENT_TYPE, HeaderValue::from_static(media_type))
        .with(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"))
        .with(RESOURCE_POLICY, HeaderValue::from_static("same-origin"))
        // They change with the binary and have no version in their names.
        .with(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    if let Some(policy) = policy {
        answer = answer.with(CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
    }
    answer.body = content.as_bytes().to_vec();
    Some(Ok(answer))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reserved_names::is_reserved;

    fn check(encoded: &str, reserved: bool) {
        let path = NamespacePath::from_encoded(encoded).expect("a path");
        assert_eq!(rest_of(&path).is_some(), reserved, "{encoded}");
        assert_eq!(refuse(&PathOperation::Read, &path).is_err(), reserved);
        let to = PathOperation::Rename { to: path };
        let from = NamespacePath::parse("/a").expect("a path");
        assert_eq!(refuse(&to, &from).is_err(), reserved, "MOVE to {encoded}");
    }

    #[test]
    fn only_the_first_name_is_reserved_however_it_is_spelt() {
        check("/.penstock", true);
        check("//%2epenstock/x", true);
        check("/./.penst%6Fck/", true);
        check("/.penstocks", false);
        check("/.Penstock", false);
        check("/a/.penstock", false);
        check("/", false);
        check("/s/Sabcdefghijklmnopqrst-", false);
        check("/s", false);
    }

    #[test]
    fn no_path_of_a_share_link_is_one_of_the_namespace() {
        for encoded in [
            "/s/Sabcdefghijklmnopqrst-_/x",
            "//%73/Sabcdefghijklmnopqrst-_)",
        ] {
            let path = NamespacePath::from_encoded(encoded).expect("a path");
            assert!(refuse(&PathOperation::Read, &path).is_err(), "{encoded}");
            let to = PathOperation::Rename { to: path };
            let from = NamespacePath::parse("/a").expect("a path");
            assert!(refuse(&to, &from).is_err(), "MOVE to {encoded}");
        }
    }

    #[test]
    fn nothing_new_is_made_where_others_look_for_the_doors_word() {
        let path = |text: &str| NamespacePath::from_encoded(text).expect("a path");
        let made = [
            PathOperation::Create,
            PathOperation::Modify,
            PathOperation::MakeDirectory,
        ];
        let others = [
            PathOperation::Read,
            PathOperation::Stat,
            PathOperation::List,
            PathOperation::Delete,
            PathOperation::Rename { to: path("/a") },
        ];
        for name in [
            "/health",
            "/%6detrics",
            "/.well-known/x",
            "//jwks",
            "/.oauth2/a/b",
        ] {
            assert!(
                made.iter()
                    .all(|operation| is_reserved(operation, &path(name)))
            );
            assert!(
                !others
                    .iter()
                    .any(|operation| is_reserved(operation, &path(name)))
            );
            let to = PathOperation::Rename { to: path(name) };
            assert!(is_reserved(&to, &path("/a")), "MOVE to {name}");
        }
        for name in ["/a/health", "/Health", "/healthy", "/well-known"] {
            assert!(
                !made
                    .iter()
                    .any(|operation| is_reserved(operation, &path(name)))
            );
        }
        assert!(
            is_hidden(&path("/.well-known/openid-configuration")) && !is_hidden(&path("/health"))
        );
    }

    #[test]
    fn what_the_door_keeps_for_itself_takes_fewer_methods() {
        let check = |encoded: &str, expected: &str| assert_eq!(methods_of(encoded), expected);
        check("/", METHODS);
        check("/a/.penstock/uploads/1", METHODS);
        check("/%zz", METHODS);
        check("/.penstock/pages.js", "OPTIONS, GET, HEAD");
        check("/.penstock/uploads/1", "OPTIONS, HEAD, PATCH, DELETE");
        check("/.penstock/trash", "OPTIONS, GET, HEAD, DELETE");
        check("/.penstock/trash/1f", "OPTIONS, POST");
        check("/.penstock/shares", "OPTIONS, GET, HEAD, POST");
        check("/.penstock/shares/1f", "OPTIONS, DELETE");
        check("/.penstock/tape/v1/stage", "OPTIONS, POST");
        check("/.penstock/tape/v1/stage/1", "OPTIONS, GET, HEAD, DELETE");
        check("/.penstock/tape/v1/stage/1/cancel", "OPTIONS, POST");
        check("/.penstock/tape/status", "OPTIONS, GET, HEAD");
    }

    #[test]
    fn the_trash_is_one_place_and_each_of_its_files_another() {
        let check = |path: &str, expected| {
            let path = NamespacePath::parse(path).expect("a path");
            assert_eq!(trash_place_of(&path), expected, "{path}");
        };
        check("/.penstock/trash", Some(TrashPlace::Whole));
        check("/.penstock/trash/1f", Some(TrashPlace::File(EntryId(31))));
        check("/.penstock/trash/1f/2", None);
        check("/.penstock/trash/file", None);
        check("/trash", None);
        check("/a/.penstock/trash", None);
    }
}
