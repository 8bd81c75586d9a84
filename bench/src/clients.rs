//! `penstock copy` beside rclone and gfal-copy, with the same server: names that are hard to carry, many small files, and a large
//! file whose copy is killed half-way.

mod command;
mod trees;

use crate::cell::Scale;
use crate::contest::median;
use crate::error::BenchError;
use crate::report::{Table, figures};
pub use command::Server;
use command::{Client, Ended, Way, What};
use std::path::{Path, PathBuf};
use trees::{come_back, make_large_file, make_named_tree, make_small_files, same_file};

/// Which of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientCell {
    /// A hundred files with odd names, there and back.
    Names,
    /// Many files of 1 kB, there and back.
    SmallFiles,
    /// A large file is uploaded; the client is killed half-way and started once more.
    ResumeUp,
    /// The same with a download.
    ResumeDown,
}

impl ClientCell {
    pub const ALL: [ClientCell; 4] = [
        ClientCell::Names,
        ClientCell::SmallFiles,
        ClientCell::ResumeUp,
        ClientCell::ResumeDown,
    ];

    pub fn name(self) -> &'static str {
        match self {
            ClientCell::Names => "client-names",
            ClientCell::SmallFiles => "client-small-files",
            ClientCell::ResumeUp => "client-resume-up",
            ClientCell::ResumeDown => "client-resume-down",
        }
    }

    /// Measures it in an empty directory, with the storage element of a site.
    pub fn measure(
        self,
        server: &Server<'_>,
        work: &Path,
        scale: Scale,
    ) -> Result<(&'static Table, Vec<Vec<String>>), BenchError> {
        match self {
            ClientCell::Names => Ok((&TREES, measure_trees(server, work, (1, Tree::Named))?)),
            ClientCell::SmallFiles => {
                let (rounds, files) = match scale {
                    Scale::Full { pairs } => (pairs, 10_000),
                    Scale::Quick => (1, 100),
                };
                Ok((
                    &TREES,
                    measure_trees(server, work, (rounds, Tree::Small(files)))?,
                ))
            }
            ClientCell::ResumeUp => {
                Ok((&RESUMED, measure_resuming(server, work, (scale, Way::Up))?))
            }
            ClientCell::ResumeDown => Ok((
                &RESUMED,
                measure_resuming(server, work, (scale, Way::Down))?,
            )),
        }
    }
}

const TREES: Table = Table {
    title: "Trees by command-line clients",
    note: "Each client copies a tree to a Penstock storage element and from there into a new directory, in turns with the others. \
           Files are compared byte by byte with those at the beginning. Of the hundred odd names the door refuses those that no \
           server could list again: control characters, and bytes that are no UTF-8; a client should copy the others and name these. \
           Clients run with what they do by default (penstock 8 files at once, rclone 4, gfal-copy one); gfal-copy runs once.",
    columns: &[
        "tree",
        "client",
        "runs",
        "up, s",
        "down, s",
        "CPU s of the client, both ways",
        "came back the same",
        "exit codes",
    ],
};

const RESUMED: Table = Table {
    title: "A large file, killed half-way",
    note: "The client is ended by SIGKILL when it has read (upload) or written (download) half of the file, and the same command is \
           given once more. Last the file is compared byte by byte.",
    columns: &[
        "way",
        "client",
        "undisturbed, s",
        "second run after the kill, s",
        "bytes that the second run moved",
        "the same",
        "exit codes",
    ],
};

#[derive(Debug, Clone, Copy)]
enum Tree {
    Named,
    Small(usize),
}

impl Tree {
    fn make(self, at: &Path) -> Result<usize, BenchError> {
        match self {
            Tree::Named => make_named_tree(at),
            Tree::Small(files) => make_small_files(at, files),
        }
    }

    fn title(self) -> String {
        match self {
            Tree::Named => "100 odd names".to_owned(),
            Tree::Small(files) => format!("{files} files of 1 kB"),
        }
    }
}

/// What came of a client's turns.
#[derive(Default)]
struct Turns {
    up: Vec<f64>,
    down: Vec<f64>,
    cpu: Vec<f64>,
    same: Vec<usize>,
    codes: Vec<String>,
}

fn measure_trees(
    server: &Server<'_>,
    work: &Path,
    (rounds, tree): (usize, Tree),
) -> Result<Vec<Vec<String>>, BenchError> {
    let from = work.join("from");
    let files = tree.make(&from)?;
    let clients = Client::installed();
    let mut turns: Vec<Turns> = clients.iter().map(|_| Turns::default()).collect();
    for round in 0..rounds {
        for turn in 0..clients.len() {
            let index = (turn + round) % clients.len();
            let client = clients[index];
            if client == Client::Gfal && round > 0 {
                continue;
            }
            let place = format!("{}-{round}", client.name());
            let back = work.join(&place);
            let up = server
                .copy(client, (Way::Up, What::Tree), &from, &place)?
                .end()?;
            let down = server
                .copy(client, (Way::Down, What::Tree), &back, &place)?
                .end()?;
            turns[index].add(&up, &down, come_back(&from, &back)?);
        }
    }
    let rows = clients.iter().zip(turns).map(|(client, turns)| {
        let middle = |seconds: Vec<f64>| median(seconds).map_or("-".to_owned(), figures);
        let same = turns.same.iter().min().copied().unwrap_or(0);
        vec![
            tree.title(),
            client.name().to_owned(),
            turns.up.len().to_string(),
            middle(turns.up),
            middle(turns.down),
            middle(turns.cpu),
            format!("{same} of {files}"),
            turns.codes.join(", "),
        ]
    });
    Ok(rows.collect())
}

impl Turns {
    fn add(&mut self, up: &Ended, down: &Ended, same: usize) {
        self.up.push(up.seconds);
        self.down.push(down.seconds);
        self.cpu.push(up.cpu_seconds + down.cpu_seconds);
        self.same.push(same);
        let codes = format!("{}/{}", up.code, down.code);
        if !self.codes.contains(&codes) {
            self.codes.push(codes);
        }
    }
}

/// Bytes of the large file.
fn large_bytes(scale: Scale) -> u64 {
    match scale {
        Scale::Full { .. } => 2_000_000_000,
        Scale::Quick => 40_000_000,
    }
}

fn measure_resuming(
    server: &Server<'_>,
    work: &Path,
    (scale, way): (Scale, Way),
) -> Result<Vec<Vec<String>>, BenchError> {
    let bytes = large_bytes(scale);
    let source = work.join("large");
    make_large_file(&source, bytes)?;
    if way == Way::Down {
        server
            .copy(Client::Penstock, (Way::Up, What::File), &source, "source")?
            .end()?
            .expect_success()?;
    }
    let mut rows = Vec::new();
    for client in Client::installed() {
        let name = format!("{}-{}", client.name(), way.name());
        let back = work.join(format!("{name}-back"));
        let copy = |name: &str, to: &Path| {
            let (local, place) = match way {
                Way::Up => (source.as_path(), name),
                Way::Down => (to, "source"),
            };
            server.copy(client, (way, What::File), local, place)
        };
        let undisturbed = copy(&format!("{name}-whole"), &back)?.end()?;
        undisturbed.expect_success()?;
        server.remove(&format!("{name}-whole"))?;
        remove_all(work, &back)?;
        let first = copy(&name, &back)?;
        first.kill_after(bytes / 2, way == Way::Down)?;
        let moved_before = server.moved_bytes()?;
        let second = copy(&name, &back)?.end()?;
        let moved = server.moved_bytes()?.saturating_sub(moved_before);
        if way == Way::Up {
            server
                .copy(Client::Penstock, (Way::Down, What::File), &back, &name)?
                .end()?
                .expect_success()?;
        }
        rows.push(vec![
            way.name().to_owned(),
            client.name().to_owned(),
            figures(undisturbed.seconds),
            figures(second.seconds),
            format!("{:.0} %", 100.0 * moved as f64 / bytes as f64),
            match same_file(&source, &back)? {
                true => "yes".to_owned(),
                false => "no".to_owned(),
            },
            second.code.to_string(),
        ]);
        server.remove(&name)?;
        remove_all(work, &back)?;
    }
    Ok(rows)
}

/// Removes a file and what clients have left beside it.
fn remove_all(work: &Path, file: &Path) -> Result<(), BenchError> {
    let name = file
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let is_left = |path: &PathBuf| {
        let found = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        found.starts_with(&name) || found.starts_with(".penstock-")
    };
    trees::remove_those(work, is_left)
}

#[cfg(test)]
mod tests {
    use super::command::ClientProcess;

    #[test]
    fn a_killed_client_has_half_and_one_that_ends_tells_how() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut command = std::process::Command::new("sh");
        command.args(["-c", "exit 3"]);
        let ended = ClientProcess::start(command, directory.path()).and_then(ClientProcess::end);
        assert_eq!(ended.expect("it ran").code, 3);
        let mut command = std::process::Command::new("cat");
        command.arg("/dev/zero");
        let endless = ClientProcess::start(command, directory.path()).expect("it runs");
        endless.kill_after(50_000_000, true).expect("it wrote them");
    }
}
