//! `/.penstock/trash`: where administrators look at removed files, bring them back, and remove them for good. To be
//! reached with a token of the site's own issuer alone; WebDAV shows nothing of it.

use super::access::Caller;
use super::answer::{Answer, Problem, Reply};
use super::body::read_body;
use super::{Call, Door, reserved};
use crate::clock::now;
use crate::reaper::{Emptied, RestoreError, RestoreOrder};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Method, StatusCode};
use penstock_decide::authorization::Operation;
use penstock_model::{Checksum, NamespacePath, PoolName, Timestamp, UserName};
use penstock_persistence::namespace::{
    ChangeError, EntryId, NamespaceError, Refusal, TrashQuery, TrashedFile,
};
use penstock_protocol::http1::server::{Connection, Request};
use penstock_protocol::identity::{self, Identity};
use penstock_protocol::token::ADMIN_SCOPE;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::time::Duration;
use tokio::task::JoinSet;

/// Files in one answer, unless fewer are asked for.
const LISTED_MAX: usize = 1000;
/// Bytes of an order.
const BODY_BYTES_MAX: usize = 16 << 10;

/// What a reserved path means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TrashPlace {
    /// All of it.
    Whole,
    /// One file.
    File(EntryId),
}

/// What can be done there.
pub(super) const OF_TRASH: &str = "OPTIONS, GET, HEAD, DELETE";
pub(super) const OF_TRASHED_FILE: &str = "OPTIONS, POST";

/// Whether a reserved path is one of these, and which.
pub(super) fn place_of(path: &NamespacePath) -> Option<TrashPlace> {
    match reserved::rest_of(path)? {
        [trash] if trash == "trash" => Some(TrashPlace::Whole),
        [trash, id] if trash == "trash" => {
            let id = u64::from_str_radix(id, 16).ok()?;
            Some(TrashPlace::File(EntryId(id)))
        }
        _ => None,
    }
}

/// One file as it is told.
#[derive(Serialize)]
struct Told {
    id: String,
    /// Null: an earlier version removed it, and did not write down where it was.
    path: Option<String>,
    pool: PoolName,
    size_bytes: u64,
    /// As `ALGORITHM:VALUE`.
    checksums: Vec<String>,
    owner: Option<UserName>,
    created: Timestamp,
    removed: Timestamp,
    removed_by: Option<UserName>,
}

impl Told {
    fn of(kept: TrashedFile) -> Told {
        Told {
            id: kept.file.to_string(),
            path: (!kept.path.is_root()).then(|| kept.path.to_string()),
            pool: kept.pool,
            size_bytes: kept.size.0,
            checksums: kept.checksums.iter().map(Checksum::to_string).collect(),
            owner: kept.owner,
            created: kept.created,
            removed: kept.removed,
            removed_by: kept.by,
        }
    }
}

/// The body of a POST.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RestoreForm {
    /// Where the file shall be; absent: where it was.
    to: Option<String>,
}

/// What a query asks for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Asked {
    query: TrashQuery,
    limit: usize,
}

pub(super) async fn answer(
    door: &Door,
    connection: &mut Connection,
    call: &Call<'_>,
    place: TrashPlace,
) -> Result<Reply, Problem> {
    let administrator = || administrator(door, connection.is_tls(), call.caller);
    match (place, &call.request.method) {
        (TrashPlace::Whole, &Method::GET | &Method::HEAD) => {
            administrator()?;
            list(door, call.request).await
        }
        (TrashPlace::Whole, &Method::DELETE) => empty(door, call.request, administrator()?).await,
        (TrashPlace::File(file), &Method::POST) => {
            let admin = administrator()?;
            let body = read_body(connection, "POST", BODY_BYTES_MAX).await?;
            restore(door, call, (file, &body), admin).await
        }
        (TrashPlace::Whole, _) => {
            let text = "the trash is listed (GET) and emptied (DELETE)";
            Err(Problem::method_of(OF_TRASH, text))
        }
        (TrashPlace::File(_), _) => {
            let text = "a file of the trash is restored (POST)";
            Err(Problem::method_of(OF_TRASHED_FILE, text))
        }
    }
}

/// Whoever holds the token of an administrator, as it was made: nothing that was made of it counts.
fn administrator<'a>(
    door: &Door,
    is_tls: bool,
    caller: &'a Caller,
) -> Result<&'a Identity, Problem> {
    if !is_tls {
        return Err(Problem::new(
            StatusCode::FORBIDDEN,
            "the trash is reached over TLS only; ask at the 'https' door",
        ));
    }
    let needed = format!(
        "the trash is for administrators; show a token of this site's own issuer with the scope {ADMIN_SCOPE}"
    );
    let Some(identity) = caller.identity() else {
        return Err(caller.unknown(needed));
    };
    let settings = door.storage.settings();
    let own = settings.issuer.as_ref().map(|own| &own.trust.issuer);
    let is_admin = identity.method == identity::Method::Token
        && caller.macaroon().is_none()
        && Some(&identity.issuer) == own
        && identity.has_scope(ADMIN_SCOPE);
    match is_admin {
        true => Ok(identity),
        false => Err(Problem::new(StatusCode::FORBIDDEN, needed)),
    }
}

async fn list(door: &Door, request: &Request) -> Result<Reply, Problem> {
    let Asked { query, limit } = asked(request.query().unwrap_or_default(), now())?;
    let trash = read(door, move |namespace| namespace.trash(&query, limit)).await?;
    let next = trash.last().filter(|_| trash.len() == limit);
    let next = next.map(|last| format!("{}-{}", last.removed.0, last.file));
    let kept = door.storage.settings().limits.trash;
    let files: Vec<Told> = trash.into_iter().map(Told::of).collect();
    let document = json!({"kept_seconds": kept.as_secs(), "files": files, "next": next});
    Ok(told(StatusCode::OK, &document).into())
}

async fn restore(
    door: &Door,
    call: &Call<'_>,
    (file, body): (EntryId, &[u8]),
    admin: &Identity,
) -> Result<Reply, Problem> {
    let form: RestoreForm = match body.is_empty() {
        true => RestoreForm::default(),
        false => serde_json::from_slice(body).map_err(|why| {
            Problem::bad_request(format!("the body is no order to restore: {why}"))
        })?,
    };
    let kept = read(door, move |namespace| namespace.trashed(file)).await?;
    let kept = kept.ok_or_else(|| of_restore(&RestoreError::NotTrash(file)))?;
    let to = match &form.to {
        Some(to) => NamespacePath::parse(to)
            .map_err(|why| Problem::bad_request(format!("'{to}' is no path: {why}")))?,
        None => kept.path.clone(),
    };
    if to.is_root() {
        return Err(Problem::bad_request(format!(
            "where file {file} was is not known; say where it shall be"
        )));
    }
    reserved::refuse(&Operation::Create, &to)?;
    let shown = door.check_if(call)?;
    let _intent = door.storage.claims.intend(&to);
    if let Some(written) = door.storage.claims.written_within(&to) {
        return Err(Problem::being_written(&written));
    }
    let locked = door.check_locks(call, &shown, || door.touched_by_writing(&to, false));
    locked.map_err(|problem| match problem.status {
        StatusCode::LOCKED => Problem::new(
            StatusCode::LOCKED,
            format!("{to} is locked by a WebDAV client; wait for it, or restore to another place"),
        ),
        _ => problem,
    })?;
    let parent = to.parent().unwrap_or_else(NamespacePath::root);
    let is_parent_new = door.storage.namespace.lookup(&parent)?.is_none();
    let order = RestoreOrder {
        file,
        to: to.clone(),
        at: door.storage.clock.recorded(),
    };
    let restored = door.storage.reaper().restore(&kept.pool, order).await;
    restored.map_err(|why| of_restore(&why))?;
    let (user, from) = (&admin.user, &kept.path);
    tracing::info!(%user, %file, %from, %to, "restored a file from the trash");
    let document = json!({"path": to.to_string(), "parent_made": is_parent_new});
    Ok(told(StatusCode::CREATED, &document).into())
}

async fn empty(door: &Door, request: &Request, admin: &Identity) -> Result<Reply, Problem> {
    let Asked { query, .. } = asked(
        request.query().unwrap_or_default(),
        door.storage.clock.now(),
    )?;
    let mut asked = JoinSet::new();
    for pool in door.storage.pools() {
        let (pool, reaper) = (pool.name.clone(), door.storage.reaper());
        let query = query.clone();
        asked.spawn(async move {
            let emptied = reaper.empty(&pool, query).await;
            (pool, emptied)
        });
    }
    let mut all = Emptied::default();
    let mut silent = Vec::new();
    while let Some(done) = asked.join_next().await {
        let (pool, emptied) = done.map_err(|why| broken(&why))?;
        match emptied {
            Some(emptied) => all.add(emptied),
            None => silent.push(pool),
        }
    }
    let (user, files, bytes) = (&admin.user, all.gone.files, all.gone.bytes);
    tracing::info!(%user, files, %bytes, "emptied trash");
    silent.sort();
    let document = json!({
        "files": files,
        "bytes": bytes.0,
        "is_more": all.is_more,
        "kept": all.kept,
        "silent_pools": silent,
    });
    Ok(told(StatusCode::OK, &document).into())
}

/// Reads the namespace where it may take a while.
async fn read<T: Send + 'static>(
    door: &Door,
    query: impl FnOnce(&penstock_persistence::namespace::Namespace) -> Result<T, NamespaceError>
    + Send
    + 'static,
) -> Result<T, Problem> {
    let namespace = std::sync::Arc::clone(&door.storage.namespace);
    let found = tokio::task::spawn_blocking(move || query(&namespace)).await;
    Ok(found.map_err(|why| broken(&why))??)
}

/// What is asked for after the question mark: `path`, `older_than` (seconds), `after`, `limit`.
fn asked(query: &str, now: Timestamp) -> Result<Asked, Problem> {
    let mut asked = Asked {
        query: TrashQuery::default(),
        limit: LISTED_MAX,
    };
    for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
        let wrong = || Problem::bad_request(format!("'{name}={value}' makes no sense here"));
        match name.as_ref() {
            "path" => {
                asked.query.within = Some(NamespacePath::parse(&value).map_err(|_| wrong())?);
            }
            "older_than" => {
                let seconds = Duration::from_secs(value.parse().map_err(|_| wrong())?);
                let span = i64::try_from(seconds.as_millis()).unwrap_or(i64::MAX);
                asked.query.before = Some(Timestamp(now.0.saturating_sub(span)));
            }
            "after" => {
                let after = value.rsplit_once('-').and_then(|(removed, file)| {
                    let file = u64::from_str_radix(file, 16).ok()?;
                    Some((Timestamp(removed.parse().ok()?), EntryId(file)))
                });
                asked.query.after = Some(after.ok_or_else(wrong)?);
            }
            "limit" => {
                let limit: usize = value.parse().map_err(|_| wrong())?;
                asked.limit = limit.clamp(1, LISTED_MAX);
            }
            // A token, which the door has taken.
            "authz" => {}
            _ => return Err(wrong()),
        }
    }
    Ok(asked)
}

/// Why a file does not come back, with what to do.
fn of_restore(why: &RestoreError) -> Problem {
    match why {
        RestoreError::NotTrash(_) => Problem::new(StatusCode::NOT_FOUND, why.to_string()),
        RestoreError::BytesGone { .. } => Problem::new(StatusCode::GONE, why.to_string()),
        RestoreError::PoolAway { .. } => Problem::busy(why.to_string(), 30),
        RestoreError::Namespace(_) => broken(why),
        RestoreError::Change(change) => {
            let problem = Problem::of_change(change, StatusCode::CONFLICT);
            let text = match change {
                ChangeError::Refused(Refusal::Exists(_) | Refusal::ParentIsFile(_)) => {
                    format!("{change}; restore to another place, or move it away first")
                }
                _ => return problem,
            };
            Problem::new(problem.status, text)
        }
    }
}

fn broken(why: &dyn std::fmt::Display) -> Problem {
    let text = format!("the trash could not be asked: {why}");
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, text)
}

fn told(status: StatusCode, document: &serde_json::Value) -> Answer {
    let mut answer = Answer::new(status)
        .with(CONTENT_TYPE, HeaderValue::from_static("application/json"))
        .with(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer.body = document.to_string().into_bytes();
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_trash_is_one_place_and_each_of_its_files_another() {
        let check = |path: &str, expected| {
            let path = NamespacePath::parse(path).expect("a path");
            assert_eq!(place_of(&path), expected, "{path}");
        };
        check("/.penstock/trash", Some(TrashPlace::Whole));
        check("/.penstock/trash/1f", Some(TrashPlace::File(EntryId(31))));
        check("/.penstock/trash/1f/2", None);
        check("/.penstock/trash/file", None);
        check("/trash", None);
        check("/a/.penstock/trash", None);
    }

    #[test]
    fn what_is_asked_of_the_trash_is_understood_or_refused() {
        let query = "path=%2Fa%20b&older_than=2&after=-5-1f&limit=7&authz=x";
        let Asked { query, limit } = asked(query, Timestamp(5000)).expect("understood");
        assert_eq!(limit, 7);
        assert_eq!(
            query,
            TrashQuery {
                pool: None,
                within: Some(NamespacePath::parse("/a b").expect("a path")),
                before: Some(Timestamp(3000)),
                after: Some((Timestamp(-5), EntryId(31))),
            }
        );
        let all = asked("", Timestamp(0)).expect("understood");
        assert_eq!((all.query, all.limit), (TrashQuery::default(), LISTED_MAX));
        for wrong in ["path=a", "older_than=1h", "after=5", "limit=x", "pool=p"] {
            let refused = asked(wrong, Timestamp(0)).expect_err(wrong);
            assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{wrong}");
        }
    }
}
