//! `/.penstock/trash`: where administrators look at removed files, bring them back, and remove them for good. To be
//! reached with a token of the site's own issuer alone; WebDAV shows nothing of it.

use super::answer::{Problem, Reply, Response};
use super::document_body::read_body;
use super::handler_context::{Call, Door};
use super::reserved::{self, OF_TRASH, OF_TRASHED_FILE, TrashPlace};
use crate::reaper::{RestoreError, RestoreOrder};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Method, StatusCode};
use penstock_clock::wall_clock;
use penstock_decide::authorization::PathOperation;
use penstock_decide::pool_selection::PoolMode;
use penstock_model::{Bytes, Checksum, NamespacePath, PoolName, ProblemCode, Timestamp, UserName};
use penstock_persistence::namespace::{
    ChangeError, ChangeRefusal, EntryId, NamespaceError, PoolUsage, RequestOrigin, TrashQuery,
    TrashedFile,
};
use penstock_protocol::http1::server::{Connection, Request};
use penstock_protocol::identity::Identity;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// Files in one answer, unless fewer are asked for.
const LISTED_MAX: usize = 1000;
/// Bytes of the files in one answer; whatever comes beyond is on the next page. Clients take several times as much.
const LISTED_BYTES_MAX: usize = 4 << 20;
/// Bytes of an order.
const BODY_BYTES_MAX: usize = 16 << 10;

/// One file as it is told.
#[derive(Serialize)]
struct TrashedFileRow {
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

impl TrashedFileRow {
    fn of(kept: TrashedFile) -> TrashedFileRow {
        TrashedFileRow {
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

/// Trash that an order to remove it leaves where it is.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct RemainingTrash {
    pool: PoolName,
    files: u64,
    bytes: u64,
    /// What the pool does or is, in words that follow its name.
    why: String,
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
struct TrashRequest {
    query: TrashQuery,
    limit: usize,
    /// Nothing shall be removed, only told what would be.
    is_dry_run: bool,
}

/// The names that a query may have.
const OF_LIST: &[&str] = &["path", "older_than", "after", "limit"];
const OF_EMPTYING: &[&str] = &["path", "older_than", "dry_run"];

pub(super) async fn answer(
    door: &Door,
    connection: &mut Connection,
    call: &Call<'_>,
    place: TrashPlace,
) -> Result<Reply, Problem> {
    let administrator = || door.administrator(connection.is_tls(), call.caller, "the trash");
    match (place, &call.request.method) {
        (TrashPlace::Whole, &Method::GET | &Method::HEAD) => {
            administrator()?;
            list(door, call.request).await
        }
        (TrashPlace::Whole, &Method::DELETE) => empty(door, call, administrator()?).await,
        (TrashPlace::File(file), &Method::POST) => {
            let admin = administrator()?;
            let body = read_body(connection, "POST", BODY_BYTES_MAX).await?;
            restore(door, call, file, &body, admin).await
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

async fn list(door: &Door, request: &Request) -> Result<Reply, Problem> {
    let asked = trash_request(request.query().unwrap_or_default(), wall_clock(), OF_LIST)?;
    let TrashRequest { query, limit, .. } = asked;
    // One more tells whether there is a next page.
    let trash = read(door, move |namespace| namespace.trash(&query, limit + 1)).await?;
    let (files, next) = page_of(trash, limit);
    let settings = door.storage.settings();
    let issuer = settings.issuer.as_ref().map(|own| &own.trust.issuer);
    let kept = settings.limits.trash;
    let document =
        json!({"kept_seconds": kept.as_secs(), "issuer": issuer, "files": files, "next": next});
    Ok(json_response(StatusCode::OK, &document).into())
}

/// As many files as one answer takes, and where the next one begins.
fn page_of(trash: Vec<TrashedFile>, limit: usize) -> (Vec<TrashedFileRow>, Option<String>) {
    let found = trash.len();
    let (mut files, mut bytes, mut next) = (Vec::new(), 0, None);
    for kept in trash.into_iter().take(limit) {
        let place = format!("{}-{}", kept.removed.0, kept.file);
        let file = TrashedFileRow::of(kept);
        bytes += serde_json::to_vec(&file).map_or(0, |text| text.len());
        // A page without a file would not come to an end.
        if bytes > LISTED_BYTES_MAX && !files.is_empty() {
            break;
        }
        files.push(file);
        next = Some(place);
    }
    let is_more = files.len() < found;
    (files, next.filter(|_| is_more))
}

async fn restore(
    door: &Door,
    call: &Call<'_>,
    file: EntryId,
    body: &[u8],
    admin: &Identity,
) -> Result<Reply, Problem> {
    let form: RestoreForm = match body.is_empty() {
        true => RestoreForm::default(),
        false => serde_json::from_slice(body).map_err(|why| {
            Problem::bad_request(format!("the body is not a valid restore request: {why}"))
        })?,
    };
    let kept = read(door, move |namespace| namespace.trashed(file)).await?;
    let kept = kept.ok_or_else(|| of_restore(&RestoreError::NotTrash(file)))?;
    let to = match &form.to {
        Some(to) => NamespacePath::parse(to)
            .map_err(|why| Problem::bad_request(format!("'{to}' is not a path: {why}")))?,
        None => kept.path.clone(),
    };
    if to.is_root() {
        return Err(Problem::bad_request(match form.to {
            Some(_) => "the root directory cannot be replaced; give the full new path".to_owned(),
            None => format!("the old path of file {file} is not known; give a new path"),
        }));
    }
    reserved::refuse(&PathOperation::Create, &to)?;
    let tokens = door.check_if(call)?;
    let intent = door.storage.claims.intend(&to);
    if let Some(written) = door.storage.claims.written_within(&to) {
        return Err(Problem::being_written(&written));
    }
    let locked = door.check_locks(&intent, call, &tokens, || {
        door.touched_by_writing(&to, false)
    });
    locked.map_err(|problem| match problem.status {
        StatusCode::LOCKED => Problem::new(
            ProblemCode::PathLocked,
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
        origin: call.caller.origin().into(),
    };
    let restored = door.storage.reaper().restore(&kept.pool, order).await;
    restored.map_err(|why| of_restore(&why))?;
    if let Some(nearline) = door.storage.nearline() {
        nearline.inbox.restored(file);
    }
    let (user, from) = (&admin.user, &kept.path);
    tracing::info!(%user, %file, %from, %to, "restored a file from the trash");
    let document = json!({
        "path": to.to_string(),
        "parent_made": is_parent_new,
        "size_bytes": kept.size.0,
        "restored": door.storage.clock.now().0,
    });
    Ok(json_response(StatusCode::CREATED, &document).into())
}

async fn empty(door: &Door, call: &Call<'_>, admin: &Identity) -> Result<Reply, Problem> {
    let request = call.request;
    let now = door.storage.clock.now();
    let asked = trash_request(request.query().unwrap_or_default(), now, OF_EMPTYING)?;
    let pools: Vec<PoolName> = door.storage.pools().map(|pool| pool.name.clone()).collect();
    let obstacle = |pool: &PoolName| obstacle(door, pool).map(|why| (pool.clone(), why));
    let mut obstacles: BTreeMap<PoolName, String> = pools.iter().filter_map(obstacle).collect();
    let (mut gone, mut is_more) = (PoolUsage::default(), false);
    if !asked.is_dry_run {
        let usable = pools
            .into_iter()
            .filter(|pool| !obstacles.contains_key(pool));
        let usable = usable.collect();
        let origin = Arc::new(call.caller.origin());
        let removed = remove(door, usable, &asked.query, &origin).await?;
        (gone, is_more) = (removed.gone, removed.is_more);
        obstacles.extend(removed.obstacles);
        let (user, files, bytes) = (&admin.user, gone.files, gone.bytes);
        tracing::info!(%user, files, %bytes, "emptied trash");
    }
    let mut stays = Vec::new();
    // While there is more, whoever asks comes again.
    if !is_more {
        let usage = read(door, move |namespace| namespace.trash_usage(&asked.query)).await?;
        for (pool, usage) in usage {
            let why = match obstacles.remove(&pool) {
                Some(why) => why,
                None if door.storage.pool(&pool).is_none() => "is not configured".to_owned(),
                None if asked.is_dry_run => {
                    gone = sum(gone, usage);
                    continue;
                }
                // It has come since.
                None => continue,
            };
            stays.push(RemainingTrash {
                pool,
                files: usage.files,
                bytes: usage.bytes.0,
                why,
            });
        }
    }
    let document = json!({
        "files": gone.files,
        "bytes": gone.bytes.0,
        "is_more": is_more,
        "stays": stays,
    });
    Ok(json_response(StatusCode::OK, &document).into())
}

/// Why nothing can be removed from a pool of the configuration now.
fn obstacle(door: &Door, pool: &PoolName) -> Option<String> {
    let pool = door.storage.pool(pool)?;
    match pool.mode() {
        _ if pool.can_remove() => None,
        PoolMode::Disabled => Some("is disabled".to_owned()),
        PoolMode::Enabled | PoolMode::Drained => Some(pool.condition().to_string()),
    }
}

/// What was removed from some pools, and why some is still there.
#[derive(Default)]
struct PoolsRemoval {
    gone: PoolUsage,
    is_more: bool,
    obstacles: BTreeMap<PoolName, String>,
}

/// Removes some trash from each of these pools.
async fn remove(
    door: &Door,
    pools: Vec<PoolName>,
    query: &TrashQuery,
    origin: &Arc<RequestOrigin>,
) -> Result<PoolsRemoval, Problem> {
    let mut asked = JoinSet::new();
    for pool in pools {
        let (query, origin) = (query.clone(), Arc::clone(origin));
        let reaper = door.storage.reaper();
        asked.spawn(async move {
            let emptied = reaper.empty(&pool, query, origin).await;
            (pool, emptied)
        });
    }
    let mut all = PoolsRemoval::default();
    while let Some(done) = asked.join_next().await {
        let (pool, emptied) = done.map_err(|why| broken(&why))?;
        let Some(emptied) = emptied.transpose()? else {
            let why = "does not answer; expired files are deleted when it does";
            all.obstacles.insert(pool, why.to_owned());
            continue;
        };
        all.gone = sum(all.gone, emptied.gone);
        all.is_more |= emptied.is_more;
        if emptied.kept > 0 {
            let why = "could not delete them; see the log of the storage element";
            all.obstacles.insert(pool, why.to_owned());
        }
    }
    Ok(all)
}

fn sum(one: PoolUsage, other: PoolUsage) -> PoolUsage {
    PoolUsage {
        files: one.files + other.files,
        bytes: Bytes(one.bytes.0 + other.bytes.0),
    }
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

/// What is asked for after the question mark, by names that are `known` there: `path`, `older_than` (seconds), `after`,
/// `limit`, `dry_run`.
fn trash_request(query: &str, now: Timestamp, known: &[&str]) -> Result<TrashRequest, Problem> {
    let mut asked = TrashRequest {
        limit: LISTED_MAX,
        ..TrashRequest::default()
    };
    for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
        let wrong = || Problem::bad_request(format!("'{name}={value}' is not valid here"));
        match name.as_ref() {
            // A token, which the door has taken.
            "authz" => {}
            name if !known.contains(&name) => return Err(wrong()),
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
            "dry_run" => asked.is_dry_run = value.parse().map_err(|_| wrong())?,
            _ => return Err(wrong()),
        }
    }
    Ok(asked)
}

/// Why a file does not come back, with what to do.
fn of_restore(why: &RestoreError) -> Problem {
    match why {
        RestoreError::NotTrash(_) => Problem::new(ProblemCode::PathNotFound, why.to_string()),
        RestoreError::BytesGone { .. } => Problem::new(ProblemCode::FileLost, why.to_string()),
        RestoreError::PoolAway { .. } => {
            Problem::busy(ProblemCode::PoolOffline, why.to_string(), 30)
        }
        RestoreError::Namespace(_) => broken(why),
        RestoreError::Change(change) => {
            let problem = Problem::of_change(change, StatusCode::CONFLICT);
            let text = match change {
                ChangeError::Refused(ChangeRefusal::Exists(_) | ChangeRefusal::ParentIsFile(_)) => {
                    format!("{change}; restore to another place, or move it away first")
                }
                _ => return problem,
            };
            problem.in_words(text)
        }
    }
}

fn broken(why: &dyn std::fmt::Display) -> Problem {
    let text = format!("the trash could not be asked: {why}");
    Problem::new(ProblemCode::NamespaceFailed, text)
}

fn json_response(status: StatusCode, document: &serde_json::Value) -> Response {
    let mut answer = Response::new(status)
        .with(CONTENT_TYPE, HeaderValue::from_static("application/json"))
        .with(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer.body = document.to_string().into_bytes();
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_of_the_trash_is_understood_or_refused() {
        let query = "path=%2Fa%20b&older_than=2&after=-5-1f&limit=7&authz=x";
        let TrashRequest { query, limit, .. } =
            trash_request(query, Timestamp(5000), OF_LIST).expect("understood");
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
        let all = trash_request("", Timestamp(0), OF_LIST).expect("understood");
        assert_eq!((all.query, all.limit), (TrashQuery::default(), LISTED_MAX));
        let wrong = ["path=a", "older_than=1h", "after=5", "limit=x", "pool=p"];
        let check = |wrong: &str, known| {
            let refused = trash_request(wrong, Timestamp(0), known).expect_err(wrong);
            assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{wrong}");
        };
        wrong.into_iter().for_each(|wrong| check(wrong, OF_LIST));
        // All that is asked for would be removed.
        check("limit=1", OF_EMPTYING);
        check("after=5-1f", OF_EMPTYING);
        check("dry_run=maybe", OF_EMPTYING);
        let dry = trash_request("dry_run=true", Timestamp(0), OF_EMPTYING).expect("understood");
        assert!(dry.is_dry_run && !all.is_dry_run);
    }

    fn kept(number: u64, path: &str) -> TrashedFile {
        TrashedFile {
            file: EntryId(number),
            pool: PoolName::new("p"),
            size: Bytes(1),
            path: NamespacePath::parse(path).expect("a path"),
            owner: None,
            created: Timestamp(0),
            removed: Timestamp(7),
            by: None,
            checksums: Vec::new(),
            properties: Vec::new(),
            archival: penstock_model::Archival::DiskOnly,
        }
    }

    #[test]
    fn a_page_has_as_many_files_as_are_asked_for_and_a_next_one_only_where_more_are_there() {
        let trash = |count| (1..=count).map(|number| kept(number, "/f")).collect();
        let counted = |count, limit| {
            let (files, next) = page_of(trash(count), limit);
            (files.len(), next)
        };
        assert_eq!(counted(0, 3), (0, None));
        assert_eq!(counted(3, 3), (3, None));
        assert_eq!(counted(4, 3), (3, Some("7-3".to_owned())));
    }

    #[test]
    fn a_page_ends_before_a_client_would_not_take_it_and_has_one_file_at_least() {
        let long = format!("/{}", vec!["\"".repeat(255); 15].join("/"));
        let trash: Vec<_> = (1..=1001).map(|number| kept(number, &long)).collect();
        let (files, next) = page_of(trash, LISTED_MAX);
        let bytes = serde_json::to_vec(&files).expect("JSON").len();
        assert!(bytes <= LISTED_BYTES_MAX + files.len() + 1, "{bytes}");
        assert!(files.len() < 1000 && bytes > LISTED_BYTES_MAX / 2);
        assert_eq!(next, Some(format!("7-{:x}", files.len())));
        let who = "w".repeat(LISTED_BYTES_MAX);
        let huge = |number| TrashedFile {
            by: Some(UserName::new(who.clone())),
            ..kept(number, "/f")
        };
        let (files, next) = page_of(vec![huge(1), huge(2)], LISTED_MAX);
        assert_eq!((files.len(), next), (1, Some("7-1".to_owned())));
    }
}
