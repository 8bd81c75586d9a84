//! Where the database is and how it is reached: address, password and TLS, as operators write them.
//!
//! Passwords and certificates are read again for each connection, so that changed ones count from then on.

use super::DatabaseError;
use ::postgres::Config;
use ::postgres::config::{ChannelBinding, Host, SslMode, TargetSessionAttrs};
use openssl::ssl::{SslConnector, SslFiletype, SslMethod, SslVerifyMode, SslVersion};
use postgres_openssl::MakeTlsConnector;
use std::fmt;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A server that has vanished is noticed after about so long.
const VANISHED_AFTER: Duration = Duration::from_secs(10);
const PORT: u16 = 5432;

/// From where the password comes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PasswordSource {
    /// None is needed: a certificate, or the operating system's user.
    None,
    /// A file that holds nothing else.
    File(PathBuf),
    /// A file of lines `host:port:database:user:password`, as `PGPASSFILE` names one. Without a line that fits there
    /// is no password.
    PassFile(PathBuf),
}

/// How far the server's certificate is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verification {
    Nothing,
    Authority,
    Name,
}

/// A database of PostgreSQL and how it is reached. Holds no password.
#[derive(Clone)]
pub struct Database {
    config: Config,
    password: PasswordSource,
    verification: Verification,
    authorities: Option<PathBuf>,
    certificate: Option<(PathBuf, PathBuf)>,
    shown: Arc<str>,
}

impl fmt::Debug for Database {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("Database").field(&self.shown).finish()
    }
}

impl fmt::Display for Database {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.shown)
    }
}

impl Database {
    /// Reads an address like `postgres://user@host:5432/name?sslmode=verify-full`. Several hosts, separated by commas,
    /// are tried in their order; the first that takes writes is used. `sslmode` is `disable`, `prefer`, `require`,
    /// `verify-ca` or `verify-full`; without it, `verify-full` for another machine and `prefer` for this one.
    /// `sslrootcert`, `sslcert` and `sslkey` name files.
    ///
    /// Errors: the address is not valid, or holds a password.
    pub fn parse(address: &str, password: PasswordSource) -> Result<Database, DatabaseError> {
        let refused = |why: &str| DatabaseError::Setup(format!("its address is not valid: {why}"));
        let is_known = address.starts_with("postgres://") || address.starts_with("postgresql://");
        if !is_known {
            let why = "it must look like postgres://user@host:5432/name";
            return Err(refused(why));
        }
        let (base, query) = address.split_once('?').unwrap_or((address, ""));
        let (mut mode, mut authorities, mut certificate, mut key) = (None, None, None, None);
        let mut kept = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match name {
                "sslmode" => mode = Some(value),
                "sslrootcert" => authorities = Some(PathBuf::from(value)),
                "sslcert" => certificate = Some(PathBuf::from(value)),
                "sslkey" => key = Some(PathBuf::from(value)),
                _ => kept.push(pair),
            }
        }
        let text = match kept.is_empty() {
            true => base.to_owned(),
            false => format!("{base}?{}", kept.join("&")),
        };
        let mut config: Config = text.parse().map_err(|why: ::postgres::Error| {
            // The library names the part that it does not understand, never a value.
            refused(&super::with_causes(&why))
        })?;
        if config.get_password().is_some() {
            let why = "a password does not belong in its address; put it into a file of its own \
                       (database_password_file)";
            return Err(DatabaseError::Setup(why.to_owned()));
        }
        if config.get_user().is_none() || config.get_hosts().is_empty() {
            return Err(refused(
                "a user and a host are needed: postgres://user@host:5432/name",
            ));
        }
        let (tls, verification) = tls_of(mode, config.get_hosts(), authorities.is_some())?;
        let is_elsewhere = !config.get_hosts().iter().all(is_here);
        if is_elsewhere && tls == SslMode::Prefer && password != PasswordSource::None {
            let why = "sslmode=prefer would hand the password to whoever answers in the server's place; write \
                       sslmode=verify-full (and sslrootcert), or sslmode=disable where nobody else is on the network";
            return Err(DatabaseError::Setup(why.to_owned()));
        }
        let certificate = match (certificate, key) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (Some(_), None) | (None, Some(_)) => {
                return Err(refused("sslcert and sslkey belong together"));
            }
        };
        config.ssl_mode(tls);
        config.application_name("penstock");
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        config.tcp_user_timeout(VANISHED_AFTER);
        config.keepalives_idle(VANISHED_AFTER / 2);
        config.keepalives_interval(VANISHED_AFTER / 10);
        config.keepalives_retries(4);
        Ok(Database {
            shown: shown(&config).into(),
            config,
            password,
            verification,
            authorities,
            certificate,
        })
    }

    /// The address, for people.
    pub(crate) fn shown(&self) -> &Arc<str> {
        &self.shown
    }

    /// Connects. Blocks; must not be called on a thread of an async runtime.
    pub(super) fn connect(&self) -> Result<::postgres::Client, DatabaseError> {
        let mut config = self.config.clone();
        if let Some(password) = self.read_password()? {
            config.password(password);
            if self.is_unverified() {
                // RFC 5802 §6: the server proves, for this very connection, that it knows the password, and is never
                // told it. Whoever stands in between has another certificate, and is found out.
                config.channel_binding(ChannelBinding::Require);
            }
        }
        let connected = config.connect(self.tls_connector()?);
        connected.map_err(|why| match self.is_unverified() && names_channel_binding(&why) {
            true => DatabaseError::Setup(format!(
                "{}: the server does not prove that it knows the password (SCRAM with channel binding), and \
                 sslmode=require alone does not check its certificate; add sslrootcert=FILE, or let the server use \
                 scram-sha-256",
                self.shown
            )),
            false => DatabaseError::of(&self.shown, &why),
        })
    }

    /// TLS is demanded, and the certificate not looked at.
    fn is_unverified(&self) -> bool {
        self.config.get_ssl_mode() == SslMode::Require && self.verification == Verification::Nothing
    }

    /// What an attacker on the network could do with this address, as one sentence.
    pub fn danger(&self) -> Option<&'static str> {
        let is_elsewhere = !self.config.get_hosts().iter().all(is_here);
        match (is_elsewhere, self.config.get_ssl_mode(), self.verification) {
            (true, SslMode::Disable | SslMode::Prefer, _) => Some(
                "it is reached without TLS that is checked, so whoever is on the network can read the password, tokens' \
                 records and jobs, and change them; write sslmode=verify-full with sslrootcert",
            ),
            (true, SslMode::Require, Verification::Nothing) => Some(
                "its certificate is not checked, so whoever is on the network can answer in its place and give this \
                 service jobs and settings of their own; add sslrootcert and write sslmode=verify-full",
            ),
            _ => None,
        }
    }

    fn tls_connector(&self) -> Result<MakeTlsConnector, DatabaseError> {
        let failed = |what: &str, why: openssl::error::ErrorStack| {
            DatabaseError::Setup(format!("{}: {what}: {why}", self.shown))
        };
        let unusable = |why| failed("TLS", why);
        let mut builder = SslConnector::builder(SslMethod::tls_client()).map_err(unusable)?;
        let oldest = builder.set_min_proto_version(Some(SslVersion::TLS1_2));
        oldest.map_err(unusable)?;
        if let Some(file) = &self.authorities {
            let what = file.display().to_string();
            let set = builder.set_ca_file(file);
            set.map_err(|why| failed(&what, why))?;
        }
        if let Some((certificate, key)) = &self.certificate {
            let what = format!("{} with {}", certificate.display(), key.display());
            let set = builder
                .set_certificate_chain_file(certificate)
                .and_then(|()| builder.set_private_key_file(key, SslFiletype::PEM))
                .and_then(|()| builder.check_private_key());
            set.map_err(|why| failed(&what, why))?;
        }
        if self.verification == Verification::Nothing {
            builder.set_verify(SslVerifyMode::NONE);
        }
        let mut connector = MakeTlsConnector::new(builder.build());
        let by_name = self.verification == Verification::Name;
        connector.set_callback(move |connection, _| {
            connection.set_verify_hostname(by_name);
            Ok(())
        });
        Ok(connector)
    }

    fn read_password(&self) -> Result<Option<String>, DatabaseError> {
        match &self.password {
            PasswordSource::None => Ok(None),
            PasswordSource::File(path) => {
                let text = read_private(path)?;
                Ok(Some(text.trim_end_matches(['\n', '\r']).to_owned()))
            }
            PasswordSource::PassFile(path) => Ok(in_pass_file(&read_private(path)?, &self.config)),
        }
    }
}

/// The host is this machine.
fn is_here(host: &Host) -> bool {
    match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => {
            let address: Option<std::net::IpAddr> = name.parse().ok();
            name == "localhost" || address.is_some_and(|address| address.is_loopback())
        }
    }
}

fn names_channel_binding(error: &dyn std::error::Error) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.to_string().contains("channel binding") {
            return true;
        }
        cause = error.source();
    }
    false
}

/// What `sslmode` means. Without it, another machine must prove its name.
fn tls_of(
    mode: Option<&str>,
    hosts: &[Host],
    has_authorities: bool,
) -> Result<(SslMode, Verification), DatabaseError> {
    Ok(match mode {
        None if hosts.iter().all(is_here) => (SslMode::Prefer, Verification::Nothing),
        None | Some("verify-full") => (SslMode::Require, Verification::Name),
        Some("verify-ca") => (SslMode::Require, Verification::Authority),
        // As libpq has it: whoever names authorities wants them asked.
        Some("require") if has_authorities => (SslMode::Require, Verification::Authority),
        Some("require") => (SslMode::Require, Verification::Nothing),
        Some("prefer") => (SslMode::Prefer, Verification::Nothing),
        Some("disable") => (SslMode::Disable, Verification::Nothing),
        Some(_) => {
            let why = "sslmode is disable, prefer, require, verify-ca or verify-full";
            return Err(DatabaseError::Setup(why.to_owned()));
        }
    })
}

fn port(config: &Config, index: usize) -> u16 {
    let ports = config.get_ports();
    let port = ports.get(index).or(ports.first());
    port.copied().unwrap_or(PORT)
}

fn shown(config: &Config) -> String {
    let hosts = config.get_hosts().iter().enumerate();
    let hosts = hosts.map(|(index, host)| match host {
        Host::Tcp(name) if name.contains(':') => format!("[{name}]:{}", port(config, index)),
        Host::Tcp(name) => format!("{name}:{}", port(config, index)),
        Host::Unix(path) => format!("{}:{}", path.display(), port(config, index)),
    });
    let hosts: Vec<String> = hosts.collect();
    let user = config.get_user().unwrap_or_default();
    let name = config.get_dbname().unwrap_or(user);
    format!("postgres://{user}@{}/{name}", hosts.join(","))
}

/// A file that only its owner may read.
fn read_private(path: &Path) -> Result<String, DatabaseError> {
    let failed = |why: String| {
        DatabaseError::Setup(format!("the password's file {}: {why}", path.display()))
    };
    let metadata = fs::metadata(path).map_err(|why| failed(why.to_string()))?;
    if metadata.permissions().mode() & 0o077 != 0 {
        return Err(failed("others may read it; chmod 600 it".to_owned()));
    }
    fs::read_to_string(path).map_err(|why| failed(why.to_string()))
}

/// PostgreSQL, libpq: the password file. The first line that fits counts; `*` fits all, `\` takes the next character
/// as it is.
fn in_pass_file(text: &str, config: &Config) -> Option<String> {
    let user = config.get_user().unwrap_or_default();
    let name = config.get_dbname().unwrap_or(user);
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let mut lines = lines.map(fields_of_pass_line);
    lines.find_map(|mut fields| {
        let password = (fields.len() == 5).then(|| fields.pop())??;
        let fits = |pattern: &str, value: &str| pattern == "*" || pattern == value;
        let fits_host = config.get_hosts().iter().enumerate().any(|(index, host)| {
            let host = match host {
                Host::Tcp(name) => name.as_str(),
                Host::Unix(_) => "localhost",
            };
            fits(&fields[0], host) && fits(&fields[1], &port(config, index).to_string())
        });
        (fits_host && fits(&fields[2], name) && fits(&fields[3], user)).then_some(password)
    })
}

fn fields_of_pass_line(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        // The password is the rest, colons included.
        let is_last = fields.len() == 5;
        let field = fields.last_mut().expect("there is always one");
        match character {
            '\\' => field.extend(characters.next()),
            ':' if !is_last => fields.push(String::new()),
            other => field.push(other),
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(address: &str) -> Result<Database, String> {
        Database::parse(address, PasswordSource::None).map_err(|why| why.to_string())
    }

    #[test]
    fn an_address_is_shown_without_what_is_not_needed_to_find_it() {
        let check = |address: &str, expected: &str| {
            assert_eq!(parse(address).expect(address).to_string(), expected);
        };
        check(
            "postgres://fts@db.org/fts",
            "postgres://fts@db.org:5432/fts",
        );
        check(
            "postgresql://fts@a:1,b:2/x?sslmode=disable&connect_timeout=3",
            "postgres://fts@a:1,b:2/x",
        );
        check(
            "postgres://fts@%2Frun%2Fpg/x",
            "postgres://fts@/run/pg:5432/x",
        );
    }

    #[test]
    fn an_address_that_cannot_be_used_is_refused_and_its_password_not_told() {
        for (address, why) in [
            ("mysql://a@b/c", "look like postgres://"),
            ("host=b user=a password=hunter2", "look like postgres://"),
            (
                "postgres://fts:hunter2@db.org/fts",
                "database_password_file",
            ),
            (
                "postgres://fts@db.org/fts?password=hunter2",
                "database_password_file",
            ),
            ("postgres://db.org/fts", "a user and a host are needed"),
            ("postgres://fts@/fts", "a user and a host are needed"),
            ("postgres://fts@db.org/fts?sslmode=verify", "verify-full"),
            ("postgres://fts@db.org/fts?sslcert=/x", "belong together"),
            ("postgres://fts@db.org/fts?what=hunter2", "unknown option"),
        ] {
            let told = parse(address).expect_err(address);
            assert!(told.contains(why), "{address}: {told}");
            assert!(!told.contains("hunter2"), "{told}");
        }
    }

    #[test]
    fn a_password_is_not_for_whoever_answers_in_the_place_of_another_machine() {
        let with_password = |address: &str| {
            let file = PasswordSource::File("/password".into());
            Database::parse(address, file).map_err(|why| why.to_string())
        };
        let told = with_password("postgres://a@db.org/x?sslmode=prefer").expect_err("refused");
        assert!(told.contains("sslmode=verify-full"), "{told}");
        assert!(parse("postgres://a@db.org/x?sslmode=prefer").is_ok());
        assert!(with_password("postgres://a@127.0.0.1/x?sslmode=prefer").is_ok());
        for (address, unverified, danger) in [
            ("postgres://a@db.org/x", false, false),
            (
                "postgres://a@db.org/x?sslmode=require&sslrootcert=/ca.pem",
                false,
                false,
            ),
            ("postgres://a@db.org/x?sslmode=require", true, true),
            ("postgres://a@db.org/x?sslmode=disable", false, true),
            ("postgres://a@localhost/x?sslmode=disable", false, false),
        ] {
            let database = with_password(address).expect(address);
            let found = (database.is_unverified(), database.danger().is_some());
            assert_eq!(found, (unverified, danger), "{address}");
        }
    }

    #[test]
    fn another_machine_must_prove_its_name_unless_told_otherwise() {
        let check = |address: &str, mode: SslMode, verification: Verification| {
            let found = parse(address).expect(address);
            let found = (found.config.get_ssl_mode(), found.verification);
            assert_eq!(found, (mode, verification), "{address}");
        };
        use Verification::{Authority, Name, Nothing};
        check("postgres://a@db.org/x", SslMode::Require, Name);
        check("postgres://a@127.0.0.1,db.org/x", SslMode::Require, Name);
        check("postgres://a@127.0.0.1/x", SslMode::Prefer, Nothing);
        check("postgres://a@%2Frun/x", SslMode::Prefer, Nothing);
        check(
            "postgres://a@db.org/x?sslmode=require",
            SslMode::Require,
            Nothing,
        );
        check(
            "postgres://a@db.org/x?sslmode=require&sslrootcert=/ca.pem",
            SslMode::Require,
            Authority,
        );
        check(
            "postgres://a@db.org/x?sslmode=disable",
            SslMode::Disable,
            Nothing,
        );
    }

    #[test]
    fn a_password_comes_from_the_first_line_that_fits() {
        let config = parse("postgres://fts@db.org/x").expect("valid").config;
        let check = |text: &str, expected: Option<&str>| {
            assert_eq!(in_pass_file(text, &config).as_deref(), expected, "{text:?}");
        };
        check(
            "# db.org:*:*:*:no\nother:5432:x:fts:no\ndb.org:5432:x:fts:yes\n*:*:*:*:no",
            Some("yes"),
        );
        check("*:*:*:*:a\\:b:c\\\\", Some("a:b:c\\"));
        check("db.org:5433:x:fts:no", None);
        check("db.org:5432:x:fts", None);
        check("", None);
    }

    #[test]
    fn a_password_that_others_may_read_is_not_used() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("password");
        fs::write(&path, "hunter2\n").expect("written");
        let database = Database::parse("postgres://a@b/c", PasswordSource::File(path.clone()));
        let database = database.expect("valid");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("set");
        let told = database.read_password().expect_err("open to the group");
        let told = told.to_string();
        assert!(
            told.contains("chmod 600") && !told.contains("hunter2"),
            "{told}"
        );
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("set");
        let read = database.read_password().expect("readable");
        assert_eq!(read.as_deref(), Some("hunter2"));
    }
}
