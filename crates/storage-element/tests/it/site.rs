//! One storage element for one test, with a door on a free port and tokens of its own issuer.

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use penstock_decide::admission::QueueLimits;
use penstock_decide::pool_selection::PoolMode;
use penstock_model::{Bytes, NamespacePath, PoolName, ProblemCode, Right, Timestamp, VoName};
use penstock_persistence::namespace::{Change, Replace};
use penstock_protocol::hosts::{AllowedServers, ServerPattern};
use penstock_protocol::http1::client::ReachRules;
use penstock_protocol::http1::client::{Client, ClientConfig, ClientRequest, UploadStart};
use penstock_protocol::macaroon::RootKeys;
use penstock_protocol::network::NetworkPorts;
use penstock_protocol::pki;
use penstock_protocol::tls::{ClientTls, ServerTls};
use penstock_protocol::token::{Claims, IssuerVos, LIFE_MAX, Signer, openid_configuration};
use penstock_storage_element::{
    AccessConfig, DoorConfig, MacaroonConfig, OutboundConfig, OwnIssuer, PoolConfig, Storage,
    StorageConfig, StorageLimits, TrustedIssuerConfig, serve,
};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use url::Url;

/// How long a test waits for something that must happen.
pub const DEADLINE: Duration = Duration::from_secs(20);
const ISSUER: &str = "https://issuer.example.org";
pub const AUDIENCE: &str = "https://se.example.org:8443";

/// A served storage element.
pub struct Site {
    pub storage: Arc<Storage>,
    pub address: SocketAddr,
    pub directory: tempfile::TempDir,
    pub client: Client,
    scheme: &'static str,
    signer: Signer,
    shutdown: watch::Sender<bool>,
    door: JoinHandle<std::io::Result<()>>,
}

/// A certificate authority and a host certificate for 127.0.0.1.
pub struct Trust(tempfile::TempDir);

impl Trust {
    pub fn new() -> Trust {
        let directory = tempfile::tempdir().expect("temporary directory");
        let at = directory.path();
        let authority = pki::create_ca(at, "test").expect("authority");
        let hosts = ["127.0.0.1".to_owned()];
        pki::issue_host_certificate(&authority, &hosts, Duration::from_secs(3600), at)
            .expect("issued");
        pki::install_ca(&at.join("ca.pem"), &at.join("certificates")).expect("installed");
        Trust(directory)
    }

    pub fn certificates(&self) -> PathBuf {
        self.0.path().join("certificates")
    }

    pub fn server(&self) -> ServerTls {
        let at = self.0.path();
        ServerTls::load(&at.join("cert.pem"), &at.join("key.pem")).expect("loaded")
    }
}

/// An answer, read to its end.
pub struct Response {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl Response {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or("")
    }
}

pub fn path(text: &str) -> NamespacePath {
    NamespacePath::parse(text).expect("valid path")
}

/// A client that trusts nobody, which is enough for plain HTTP.
pub fn client() -> Client {
    let empty = tempfile::tempdir().expect("temporary directory");
    client_trusting(empty.path())
}

fn client_trusting(certificates: &Path) -> Client {
    let tls = ClientTls::from_ca_directory(certificates).expect("a directory");
    Client::new(ClientConfig {
        response_timeout: DEADLINE,
        stall_timeout: DEADLINE,
        ..ClientConfig::new(tls)
    })
}

pub fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
    pairs
        .iter()
        .map(|(name, value)| {
            let name = HeaderName::try_from(*name).expect("header name");
            (name, HeaderValue::from_str(value).expect("header value"))
        })
        .collect()
}

/// Limits short enough for tests and long enough for a busy machine.
pub fn quick_limits() -> StorageLimits {
    StorageLimits {
        stall_timeout: Duration::from_millis(700),
        first_byte_timeout: Duration::from_millis(1500),
        marker_interval: Duration::from_millis(100),
        shutdown_grace: Duration::from_millis(300),
        remove_entries_max: 20,
        free_reserve: Bytes(0),
        trash: Duration::ZERO,
        probe_interval: Duration::from_millis(50),
        ..StorageLimits::default()
    }
}

pub fn configuration(directory: &Path, signer: &Signer) -> StorageConfig {
    StorageConfig {
        namespace: directory.join("state/namespace.sqlite"),
        shares: directory.join("shares.sqlite"),
        pools: vec![PoolConfig {
            name: PoolName::new("p1"),
            directory: directory.join("pools/p1"),
            capacity: None,
            mode: PoolMode::Enabled,
            movers: QueueLimits::default(),
        }],
        checksums: Vec::new(),
        access: AccessConfig {
            audiences: vec![AUDIENCE.to_owned()],
            anonymous_read: vec![path("/public")],
            ..AccessConfig::default()
        },
        issuer: Some(OwnIssuer {
            trust: TrustedIssuerConfig {
                issuer: ISSUER.to_owned(),
                prefix: NamespacePath::root(),
                vos: IssuerVos::One(VoName::new("atlas")),
                life_max: LIFE_MAX,
                rights: Right::ALL.to_vec(),
            },
            openid_configuration: openid_configuration(ISSUER),
            jwks: signer.jwks(),
        }),
        site_document: None,
        macaroons: Some(MacaroonConfig {
            keys: RootKeys::parse(&"5a".repeat(32)).expect("a key"),
            validity_max: Duration::from_secs(3600),
        }),
        outbound: OutboundConfig {
            allow: AllowedServers {
                allow: ["127.0.0.1:1-65535", "http://127.0.0.1:1-65535"]
                    .map(|text| ServerPattern::parse(text).expect("a server"))
                    .to_vec(),
                own: Vec::new(),
            },
            reach: ReachRules {
                private: vec![NetworkPorts::parse("127.0.0.0/8:1-65535").expect("a network")],
                ..ReachRules::default()
            },
            certificates: Some(directory.join("certificates")),
            ..OutboundConfig::default()
        },
        nearline: None,
        limits: quick_limits(),
    }
}

/// Where a specification asks for another status than the code's own.
const OTHER_STATUSES: [(ProblemCode, u16); 3] = [
    // RFC 4918 §9.3.1.
    (ProblemCode::PathExists, 405),
    // A free name that is taken meanwhile.
    (ProblemCode::PathExists, 409),
    // RFC 4918 §9.11.1.
    (ProblemCode::PreconditionFailed, 409),
];
/// What is answered in a form that its own specification gives, or by a monitor.
const OTHER_FORMS: [&str; 4] = ["/.oauth2/", "/health", "/metrics", "/.penstock/"];

/// Each refusal has its code, and each code one status.
fn check_code(method: &str, path: &str, status: u16, headers: &HeaderMap) {
    let what = format!("{method} {path}: {status}");
    let Some(name) = headers.get("penstock-problem") else {
        let is_other = OTHER_FORMS.iter().any(|form| path.starts_with(form));
        assert!(status < 400 || is_other, "{what} without a code");
        return;
    };
    let name = name.to_str().expect("ASCII");
    let code = ProblemCode::by_name(name).unwrap_or_else(|| panic!("{what}: {name}"));
    assert!(
        code.facts().status == status || OTHER_STATUSES.contains(&(code, status)),
        "{what}: {name}"
    );
}

fn rename_in(storage: &Storage, from: NamespacePath, to: NamespacePath) {
    let change = Change::Rename {
        from,
        only: None,
        to,
        replace: Replace::Allowed,
        entries_max: 10,
        by: None,
        at: Timestamp(1_795_241_992_000),
    };
    storage.namespace().apply(change).expect("renamed");
}

/// Sends a request without a body, with a token that may do everything.
pub async fn check(site: &Site, method: &str, path: &str, extra: &[(&str, &str)], expected: u16) {
    let response = site.send(method, path, extra, b"").await;
    assert_eq!(
        response.status,
        expected,
        "{method} {path} {extra:?}: {}",
        response.text()
    );
}

impl Site {
    pub async fn new() -> Site {
        Site::with(|_| {}).await
    }

    /// A site whose configuration was changed before it started.
    pub async fn with(change: impl FnOnce(&mut StorageConfig)) -> Site {
        Site::start(change, None).await
    }

    /// A site with an HTTPS door.
    pub async fn with_tls(trust: &Trust) -> Site {
        Site::start(|_| {}, Some(trust)).await
    }

    /// The same, configured otherwise.
    pub async fn with_tls_and(trust: &Trust, change: impl FnOnce(&mut StorageConfig)) -> Site {
        Site::start(change, Some(trust)).await
    }

    async fn start(change: impl FnOnce(&mut StorageConfig), trust: Option<&Trust>) -> Site {
        let directory = tempfile::tempdir().expect("temporary directory");
        for name in ["certificates", "pools"] {
            std::fs::create_dir(directory.path().join(name)).expect("made");
        }
        pki::create_signing_key(&directory.path().join("signing.pem")).expect("key");
        Site::start_in(directory, change, trust).await
    }

    /// Stops it and starts it again, as a new process would.
    pub async fn reopen(self, change: impl FnOnce(&mut StorageConfig)) -> Site {
        let directory = self.close().await;
        Site::start_in(directory, change, None).await
    }

    /// The same with an HTTPS door.
    pub async fn reopen_with_tls(
        self,
        trust: &Trust,
        change: impl FnOnce(&mut StorageConfig),
    ) -> Site {
        let directory = self.close().await;
        Site::start_in(directory, change, Some(trust)).await
    }

    /// Serves again what a closed site has left.
    pub async fn again(
        directory: tempfile::TempDir,
        change: impl FnOnce(&mut StorageConfig),
    ) -> Site {
        Site::start_in(directory, change, None).await
    }

    async fn start_in(
        directory: tempfile::TempDir,
        change: impl FnOnce(&mut StorageConfig),
        trust: Option<&Trust>,
    ) -> Site {
        let key = directory.path().join("signing.pem");
        let signer = Signer::load(&key).expect("signer");
        let mut config = configuration(directory.path(), &signer);
        change(&mut config);
        if let Some(trust) = trust {
            config.outbound.certificates = Some(trust.certificates());
        }
        let storage = Storage::open(config).expect("opens");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let (shutdown, stop) = watch::channel(false);
        let tls = trust.map(Trust::server);
        let door = tokio::spawn(serve(
            Arc::clone(&storage),
            DoorConfig {
                listener,
                tls,
                monitor: None,
                tls_only: true,
            },
            stop,
        ));
        Site {
            storage,
            address,
            directory,
            client: trust.map_or_else(client, |trust| client_trusting(&trust.certificates())),
            scheme: if trust.is_some() { "https" } else { "http" },
            signer,
            shutdown,
            door,
        }
    }

    /// Changes the configuration that it started with, as an operator does while it runs.
    pub fn reload(&self, change: impl FnOnce(&mut StorageConfig)) {
        let mut config = configuration(self.directory.path(), &self.signer);
        change(&mut config);
        self.storage.reload(config).expect("reloaded");
    }

    pub fn url(&self, path: &str) -> Url {
        Url::parse(&format!("{}://{}{path}", self.scheme, self.address)).expect("valid URL")
    }

    /// A token with these scopes, good for everything else.
    pub fn token(&self, scope: &str) -> String {
        self.token_with(|claims| claims.scope = scope.to_owned())
    }

    pub fn token_with(&self, change: impl FnOnce(&mut Claims)) -> String {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .expect("after 1970")
            .as_secs() as i64;
        let mut claims = Claims {
            iss: ISSUER.to_owned(),
            sub: "alice".to_owned(),
            aud: vec![AUDIENCE.to_owned()],
            exp: now + 600,
            nbf: None,
            iat: now,
            jti: format!("{:?}", Instant::now()),
            scope: "storage.read:/ storage.modify:/".to_owned(),
            wlcg_ver: "1.0".to_owned(),
            wlcg_groups: Vec::new(),
            client_id: None,
        };
        change(&mut claims);
        self.signer.sign(&claims).expect("signed")
    }

    /// Sends a request with a token that may do everything.
    pub async fn send(
        &self,
        method: &str,
        path: &str,
        extra: &[(&str, &str)],
        body: &[u8],
    ) -> Response {
        let token = self.token("storage.read:/ storage.modify:/");
        self.send_as(&token, method, path, extra, body).await
    }

    pub async fn send_as(
        &self,
        token: &str,
        method: &str,
        path: &str,
        extra: &[(&str, &str)],
        body: &[u8],
    ) -> Response {
        let bearer = format!("Bearer {token}");
        let mut all = vec![("authorization", bearer.as_str())];
        all.extend(extra);
        self.send_bare(method, path, &all, body).await
    }

    /// Sends a request without a token.
    pub async fn send_bare(
        &self,
        method: &str,
        path: &str,
        extra: &[(&str, &str)],
        body: &[u8],
    ) -> Response {
        let mut request = ClientRequest::new(
            Method::from_bytes(method.as_bytes()).expect("method"),
            self.url(path),
        );
        request.headers = headers(extra);
        let client = &self.client;
        let sent = match body.is_empty() && method != "PUT" {
            true => client.send(request).await,
            false => client.send_bytes(request, body).await,
        };
        let mut response = sent.expect("an answer");
        check_code(method, path, response.status.as_u16(), &response.headers);
        Response {
            status: response.status.as_u16(),
            headers: response.headers.clone(),
            body: response.read_all(1 << 30).await.expect("a whole answer"),
        }
    }

    pub async fn put(&self, path: &str, body: &[u8]) {
        let response = self.send("PUT", path, &[], body).await;
        assert!(
            [201, 204].contains(&response.status),
            "PUT {path}: {} {}",
            response.status,
            response.text()
        );
    }

    /// Renames behind the door's back, which would refuse it while the destination is being written.
    pub fn slip_in(&self, from: &str, to: &str) {
        rename_in(&self.storage, path(from), path(to));
    }

    /// The same while something else is asked for.
    pub fn slip_in_meanwhile(&self, from: &str, to: &str) -> JoinHandle<()> {
        let (storage, from, to) = (Arc::clone(&self.storage), path(from), path(to));
        tokio::task::spawn_blocking(move || rename_in(&storage, from, to))
    }

    pub async fn get(&self, path: &str) -> Response {
        self.send("GET", path, &[], b"").await
    }

    pub async fn status(&self, method: &str, path: &str) -> u16 {
        self.send(method, path, &[], b"").await.status
    }

    /// Sends bytes as they are and reads until the server closes.
    pub async fn raw(&self, request: &str) -> String {
        String::from_utf8_lossy(&self.raw_bytes(request).await).into_owned()
    }

    /// The same, for an answer that may be no text and may break off.
    pub async fn raw_bytes(&self, request: &str) -> Vec<u8> {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let mut stream = tokio::net::TcpStream::connect(self.address)
            .await
            .expect("connects");
        stream.write_all(request.as_bytes()).await.expect("writes");
        let mut answer = Vec::new();
        let read = stream.read_to_end(&mut answer);
        let read = tokio::time::timeout(DEADLINE, read).await.expect("closes");
        // What came before it broke off is there all the same.
        drop(read);
        answer
    }

    /// Begins a PUT whose body the test sends piece by piece.
    pub async fn begin_put(
        &self,
        path: &str,
        length: Option<u64>,
    ) -> penstock_protocol::http1::client::Upload {
        let token = self.token("storage.modify:/");
        let mut request = ClientRequest::new(Method::PUT, self.url(path));
        request.headers = headers(&[("authorization", &format!("Bearer {token}"))]);
        match client()
            .start_upload(request, length, false)
            .await
            .expect("begins")
        {
            UploadStart::Ready(upload) => upload,
            UploadStart::Answered(response) => panic!("answered {}", response.status),
        }
    }

    /// The same after its first byte, when it has a mover or waits for one.
    pub async fn begin_writing(
        &self,
        path: &str,
        length: Option<u64>,
    ) -> penstock_protocol::http1::client::Upload {
        let mut upload = self.begin_put(path, length).await;
        upload.write_all(b"1").await.expect("sent");
        upload
    }

    /// File data in all pools, visible or not: (in `incoming`, in `data`).
    pub fn files_on_disk(&self) -> (usize, usize) {
        let count = |name: &str| {
            let pools = self.directory.path().join("pools");
            let pools = std::fs::read_dir(pools).expect("pools").flatten();
            pools.map(|pool| count_files(&pool.path().join(name))).sum()
        };
        (count("incoming"), count("data"))
    }

    /// Nothing runs, nothing waits, no promised space, no unfinished file, and exactly `files` visible
    /// ones.
    /// Where a file's data is.
    pub fn data_in(&self, pool: &str, name: &str) -> PathBuf {
        let entry = self.storage.namespace().lookup(&path(name));
        let id = entry.expect("readable").expect("there").id;
        self.pool(pool).join(format!("data/{:x}/{id}", id.0 / 4096))
    }

    pub async fn settles_with(&self, files: u64) {
        eventually("everything is released", || {
            let snapshot = self.storage.snapshot();
            let idle = snapshot.movers_total == 0
                && snapshot.pools.iter().all(|pool| {
                    pool.movers_active == 0 && pool.movers_queued == 0 && pool.reserved.0 == 0
                });
            let visible: u64 = snapshot.pools.iter().map(|pool| pool.files).sum();
            idle && visible == files && self.files_on_disk() == (0, files as usize)
        })
        .await;
    }

    pub fn stop(&self) {
        self.shutdown.send(true).expect("the door listens");
    }

    /// Stops the door, closes the storage and gives back its directory.
    pub async fn close(self) -> tempfile::TempDir {
        self.stop();
        tokio::time::timeout(DEADLINE, self.door)
            .await
            .expect("stops")
            .expect("no panic")
            .expect("served");
        let storage = Arc::downgrade(&self.storage);
        drop(self.storage);
        eventually("the storage is closed", || storage.strong_count() == 0).await;
        // A thread that looks something up for tapes may have the namespace for a moment longer.
        let lock = self.directory.path().join("state/namespace.sqlite.lock");
        let is_free = || std::fs::File::open(&lock).is_ok_and(|lock| lock.try_lock().is_ok());
        eventually("the namespace is closed", is_free).await;
        self.directory
    }
}

fn count_files(directory: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return 0;
    };
    entries
        .flatten()
        .map(|entry| match entry.path().is_dir() {
            true => count_files(&entry.path()),
            false => 1,
        })
        .sum()
}

/// Waits until something is true.
pub async fn eventually(what: &str, test: impl Fn() -> bool) {
    let started = Instant::now();
    while !test() {
        assert!(
            started.elapsed() < DEADLINE,
            "{what}: still not after {DEADLINE:?}"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Bytes that differ everywhere, so that a misplaced block shows.
pub fn content(length: usize) -> Vec<u8> {
    (0..length as u32)
        .map(|index| (index.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect()
}
