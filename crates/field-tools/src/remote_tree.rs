//! The files below a directory of a storage element, found by listing level after level. What cannot be listed is told, and
//! the rest is found.

use crate::path_filter::PathFilter;
use crate::remote::{Info, Listing, Remote, path_of};
use crate::remote_error::RemoteError;
use penstock_model::{Bytes, NamespacePath};
use tokio::task::JoinSet;
use url::Url;

/// Files, directories and problems that one walk may find.
const ENTRIES_MAX: usize = 1_000_000;
/// Bytes of their URLs and versions. What is kept of a file is about three times as much.
const NAMED_BYTES_MAX: usize = 256 << 20;
/// Bytes of problems: people read them.
const PROBLEM_BYTES_MAX: usize = 16 << 20;
/// Listings at once.
const LISTINGS_MAX: usize = 16;
/// How deep directories may be nested.
const DEPTH_MAX: usize = 200;

/// What a walk found.
#[derive(Debug, Default)]
pub struct RemoteTree {
    /// Directories below the root, parents before children.
    pub directories: Vec<RemoteDirectory>,
    pub files: Vec<RemoteFile>,
    /// What is missing from all this, and why.
    pub problems: Vec<RemoteError>,
}

/// One directory of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteDirectory {
    pub url: Url,
    /// Names from the root of the walk down.
    pub names: Vec<String>,
    /// The rest of what the listing told.
    pub info: Info,
}

/// One file of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteFile {
    pub url: Url,
    /// Names from the root of the walk down.
    pub names: Vec<String>,
    pub size: Option<Bytes>,
    /// The rest of what the listing told.
    pub info: Info,
}

/// Finds everything below `root` that the filter takes, listing `parallel` directories at once.
pub async fn walk(
    remote: &Remote,
    root: &Url,
    parallel: usize,
    filter: &PathFilter,
) -> Result<RemoteTree, RemoteError> {
    let bounds = Bounds {
        entries: ENTRIES_MAX,
        named_bytes: NAMED_BYTES_MAX,
        problem_bytes: PROBLEM_BYTES_MAX,
    };
    walk_within(remote, root, parallel, filter, &bounds).await
}

/// How much one walk may find.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Bounds {
    entries: usize,
    named_bytes: usize,
    problem_bytes: usize,
}

impl Bounds {
    /// What a walk has found of it, of which `found` were there before.
    fn count(&mut self, tree: &RemoteTree, found: (usize, usize, usize)) {
        let (directories, files, problems) = found;
        let directories = tree.directories[directories..].iter();
        let files = tree.files[files..].iter();
        let infos = directories.map(|found| &found.info);
        for info in infos.chain(files.map(|found| &found.info)) {
            self.entries += 1;
            self.named_bytes += info.url.len() + info.etag.as_ref().map_or(0, String::len);
        }
        for problem in &tree.problems[problems..] {
            self.entries += 1;
            self.problem_bytes += problem.to_string().len();
        }
    }

    fn is_kept_by(&self, found: &Bounds) -> bool {
        found.entries <= self.entries
            && found.named_bytes <= self.named_bytes
            && found.problem_bytes <= self.problem_bytes
    }
}

async fn walk_within(
    remote: &Remote,
    root: &Url,
    parallel: usize,
    filter: &PathFilter,
    bounds: &Bounds,
) -> Result<RemoteTree, RemoteError> {
    let mut tree = RemoteTree::default();
    let mut found = Bounds::default();
    let top = path_of(root)?;
    let parallel = parallel.clamp(1, LISTINGS_MAX);
    let too_large = || {
        RemoteError::nonsense(
            root,
            format!(
                "more than {} files and directories, more than {} of names or of errors, or nested deeper than {DEPTH_MAX}; copy \
                 it in parts",
                bounds.entries,
                Bytes(bounds.named_bytes as u64)
            ),
        )
    };
    let mut level = vec![root.clone()];
    for depth in 0..DEPTH_MAX {
        let mut listed = JoinSet::new();
        let mut waiting = std::mem::take(&mut level).into_iter();
        loop {
            while listed.len() < parallel
                && let Some(directory) = waiting.next()
            {
                let remote = remote.clone();
                listed.spawn(async move {
                    let listing = remote.list(&directory).await;
                    (directory, listing)
                });
            }
            // Each listing is counted before another is asked for: a server decides how much it lists.
            let (directory, listing) = match listed.join_next().await {
                None => break,
                Some(Ok(listed)) => listed,
                Some(Err(why)) => match why.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    Err(_) => unreachable!("nobody cancels the tasks while their set is awaited"),
                },
            };
            let before = (
                tree.directories.len(),
                tree.files.len(),
                tree.problems.len(),
            );
            match listing {
                Ok(listing) => level.extend(tree.take(&top, &directory, listing, filter)),
                Err(why) if depth == 0 => return Err(why),
                Err(why) => tree.problems.push(why),
            }
            found.count(&tree, before);
            if !bounds.is_kept_by(&found) {
                return Err(too_large());
            }
        }
        if level.is_empty() {
            tree.directories
                .sort_by(|a, b| (a.names.len(), &a.names).cmp(&(b.names.len(), &b.names)));
            tree.files.sort_by(|a, b| a.names.cmp(&b.names));
            tree.problems.sort_by_cached_key(ToString::to_string);
            keep_meant(&mut tree.directories, filter, &tree.files);
            return Ok(tree);
        }
        // Listings come in any order, and the order of requests should not depend on that.
        level.sort();
    }
    Err(too_large())
}

impl RemoteTree {
    /// Adds what a directory holds. Gives back the directories that are to be listed next.
    fn take(
        &mut self,
        top: &NamespacePath,
        directory: &Url,
        listing: Listing,
        filter: &PathFilter,
    ) -> Vec<Url> {
        let mut next = Vec::new();
        let unusable = listing.unusable.iter();
        self.problems
            .extend(unusable.map(|entry| entry.problem(directory)));
        for info in listing.entries {
            let Some((url, names)) = place_below(top, &info) else {
                let detail = format!("it lists {}, which is elsewhere", info.url);
                self.problems.push(RemoteError::nonsense(directory, detail));
                continue;
            };
            match info.is_directory {
                true if filter.enters(&names) => {
                    next.push(url.clone());
                    self.directories.push(RemoteDirectory { url, names, info });
                }
                false if filter.takes_file(&names) => self.files.push(RemoteFile {
                    url,
                    names,
                    size: info.size_bytes,
                    info,
                }),
                true | false => {}
            }
        }
        next
    }
}

/// Where an entry is below the top; `None` when it is not.
fn place_below(top: &NamespacePath, info: &Info) -> Option<(Url, Vec<String>)> {
    let url = Url::parse(&info.url).ok()?;
    let path = path_of(&url).ok()?;
    let names = path.names().get(top.names().len()..)?.to_vec();
    // A walk of a file finds the file.
    let is_below = !names.is_empty() || !info.is_directory;
    (path.is_within(top) && is_below).then_some((url, names))
}

/// Leaves out directories in which nothing is that a filter takes.
fn keep_meant(directories: &mut Vec<RemoteDirectory>, filter: &PathFilter, files: &[RemoteFile]) {
    if filter.is_empty() {
        return;
    }
    let holds_file = |names: &[String]| {
        let at = files.partition_point(|file| file.names.as_slice() < names);
        files
            .get(at)
            .is_some_and(|file| file.names.starts_with(names))
    };
    directories.retain(|directory| {
        filter.takes_directory(&directory.names) || holds_file(&directory.names)
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_server::{TestReply, TestServer};

    #[tokio::test]
    async fn a_server_that_lists_without_end_is_left_soon() {
        let server = TestServer::start(|request| {
            let above = request.path.trim_end_matches('/');
            let below = (0..100).map(|n| format!("{above}/d{n}/"));
            let names: Vec<String> = [format!("{above}/")].into_iter().chain(below).collect();
            TestReply::listing(names.iter().map(String::as_str))
        })
        .await;
        let (remote, root) = (server.remote(), server.url("/top/"));
        let bounds = Bounds {
            entries: 1000,
            named_bytes: NAMED_BYTES_MAX,
            problem_bytes: PROBLEM_BYTES_MAX,
        };
        let walked = walk_within(&remote, &root, 4, &PathFilter::default(), &bounds).await;
        let why = walked.expect_err("too many").to_string();
        assert!(
            why.contains("more than 1000 files and directories"),
            "{why}"
        );
        // The second level alone has a hundred directories.
        let asked = server.asked("PROPFIND").len();
        assert!(asked < 20, "{asked} listings");
    }

    #[tokio::test]
    async fn a_server_that_lists_what_is_long_is_left_soon() {
        let long = "x".repeat(10_000);
        let server = TestServer::start(move |request| {
            let above = request.path.trim_end_matches('/');
            let below = (0..100).map(|n| format!("{above}/d{n}/"));
            let own = [format!("{above}/"), format!("no path {long}")];
            let names: Vec<String> = own.into_iter().chain(below).collect();
            TestReply::listing(names.iter().map(String::as_str))
        })
        .await;
        let (remote, root) = (server.remote(), server.url("/top/"));
        let listing = remote.list(&root).await.expect("listed");
        assert!(listing.unusable[0].href.len() < 1000);
        let plenty = Bounds {
            entries: ENTRIES_MAX,
            named_bytes: NAMED_BYTES_MAX,
            problem_bytes: PROBLEM_BYTES_MAX,
        };
        for bounds in [
            Bounds {
                named_bytes: 20_000,
                ..plenty
            },
            Bounds {
                problem_bytes: 3_000,
                ..plenty
            },
        ] {
            let asked = server.asked("PROPFIND").len();
            let walked = walk_within(&remote, &root, 4, &PathFilter::default(), &bounds).await;
            let why = walked.expect_err("too much").to_string();
            assert!(why.contains("of names or of errors"), "{why}");
            let asked = server.asked("PROPFIND").len() - asked;
            assert!(asked < 20, "{asked} listings");
        }
    }

    #[tokio::test]
    async fn a_tree_is_found_in_the_same_order_whatever_comes_first() {
        let server = TestServer::start(|request| match request.path.as_str() {
            "/t/" => TestReply::listing(["/t/", "/t/b/", "/t/a/", "/t/x"]),
            "/t/a" => TestReply::listing(["/t/a/", "/t/a/c/", "/t/a/y"]),
            "/t/b" => TestReply::listing(["/t/b/", "/elsewhere"]),
            _ => TestReply::listing(["/t/a/c/"]),
        })
        .await;
        let root = server.url("/t/");
        let tree = walk(&server.remote(), &root, 8, &PathFilter::default()).await;
        let tree = tree.expect("walked");
        let names = |names: &[String]| names.join("/");
        let directories: Vec<String> = tree.directories.iter().map(|d| names(&d.names)).collect();
        let files: Vec<String> = tree.files.iter().map(|f| names(&f.names)).collect();
        assert_eq!(
            (directories.join(" "), files.join(" ")),
            ("a b a/c".into(), "a/y x".into())
        );
        assert_eq!(tree.problems.len(), 1, "{:?}", tree.problems);
    }
}
