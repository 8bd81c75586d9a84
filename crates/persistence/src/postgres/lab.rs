//! A PostgreSQL of its own for the tests of one process: made when the first one needs it, gone with the process.

use super::{Database, PasswordSource};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// The user `nobody`: PostgreSQL refuses to run as root.
const NOBODY: u32 = 65534;

struct Server {
    directory: PathBuf,
    /// Ends the server and removes its files as soon as this process has gone, however it went.
    _keeper: Child,
}

/// An empty database.
pub(crate) fn database() -> Database {
    static SERVER: OnceLock<Server> = OnceLock::new();
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let server = SERVER.get_or_init(start);
    let name = format!("test{}", NEXT.fetch_add(1, Ordering::Relaxed));
    let mut client = server.address("postgres").connect().expect("connects");
    client
        .batch_execute(&format!("CREATE DATABASE {name}"))
        .expect("made");
    server.address(&name)
}

impl Server {
    fn address(&self, name: &str) -> Database {
        let socket = self.directory.display().to_string().replace('/', "%2F");
        let address = format!("postgres://penstock@{socket}/{name}");
        Database::parse(&address, PasswordSource::None).expect("valid")
    }
}

/// Where Debian puts the newest of the servers that are installed.
fn programs() -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten();
    let programs = versions.map(|version| version.path().join("bin"));
    let programs = programs.filter(|programs| programs.join("initdb").exists());
    let newest = programs.max_by_key(|programs| {
        let version = programs.parent().and_then(Path::file_name);
        version.and_then(|version| version.to_str()?.parse::<u32>().ok())
    });
    newest.expect("PostgreSQL is not installed: `make setup` installs it")
}

fn start() -> Server {
    let directory = tempfile::Builder::new()
        .prefix("penstock-postgres-")
        .tempdir();
    let directory = directory.expect("a temporary directory").keep();
    let is_root =
        std::os::unix::fs::MetadataExt::uid(&fs::metadata(&directory).expect("made")) == 0;
    if is_root {
        std::os::unix::fs::chown(&directory, Some(NOBODY), Some(NOBODY)).expect("root may");
    }
    // `read` ends when the test's process has gone, because nobody else holds the other end.
    let script = r#"
        "$1/initdb" -D data -U penstock -A trust -E UTF8 --locale=C --no-sync >log 2>&1 || { cat log >&2; exit 1; }
        "$1/postgres" -D data -k "$PWD" -c listen_addresses= -c fsync=off -c full_page_writes=off \
            -c max_connections=200 >>log 2>&1 &
        until "$1/pg_isready" -q -h "$PWD"; do kill -0 $! || { cat log >&2; exit 1; }; sleep 0.05; done
        echo ready
        read -r _
        kill -QUIT $!
        wait $!
        rm -rf "$PWD"
    "#;
    let mut command = Command::new("sh");
    command.args(["-c", script, "keeper"]).arg(programs());
    command
        .current_dir(&directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    if is_root {
        command.uid(NOBODY).gid(NOBODY);
    }
    let mut keeper = command.spawn().expect("a shell");
    let mut told = String::new();
    let out = keeper.stdout.take().expect("piped");
    BufReader::new(out).read_line(&mut told).expect("readable");
    assert_eq!(told.trim(), "ready", "PostgreSQL does not start");
    Server {
        directory,
        _keeper: keeper,
    }
}

/// A connection of the test's own.
pub(crate) fn connect(database: &Database) -> ::postgres::Client {
    database.connect().expect("connects")
}

/// Statements without an answer.
pub(crate) fn execute(database: &Database, sql: &str) {
    let mut client = database.connect().expect("connects");
    client.batch_execute(sql).expect(sql);
}

/// The same database as somebody else.
pub(crate) fn as_user(database: &Database, user: &str) -> Database {
    let (place, name) = database.shown().rsplit_once('/').expect("an address");
    let place = place
        .replacen("postgres://penstock@", "", 1)
        .replace('/', "%2F");
    let address = format!("postgres://{user}@{place}/{name}");
    Database::parse(&address, PasswordSource::None).expect("valid")
}

/// The one number that a question gives.
pub(crate) fn number(database: &Database, sql: &str) -> i64 {
    let mut client = database.connect().expect("connects");
    client.query_one(sql, &[]).expect("answers").get(0)
}

/// Fails when a text is anywhere in the tables.
pub(crate) fn assert_holds_no(database: &Database, text: &str) {
    let mut client = database.connect().expect("connects");
    let sql = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'";
    for row in client.query(sql, &[]).expect("answers") {
        let table: &str = row.get(0);
        // Bytes are shown in hexadecimal; a text in them is found as such.
        let sql = format!(
            "SELECT count(*) FROM {table} AS it WHERE it::text LIKE $1 OR it::text LIKE $2"
        );
        let hex: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
        let wanted = [format!("%{text}%"), format!("%{hex}%")];
        let found = client
            .query_one(&sql, &[&wanted[0], &wanted[1]])
            .expect("answers");
        assert_eq!(found.get::<_, i64>(0), 0, "{table} holds {text}");
    }
}
