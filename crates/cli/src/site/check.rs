//! `penstock check`: is this site fit to be served? Prints the effective values and what a person should look
//! at. Each check stands alone and is one question about a site. Long because all of them are here.

mod keys;
mod pools;

use crate::args::CheckArgs;
use crate::environment::Environment;
use crate::exit::CommandError;
use crate::output::Output;
use crate::site::config::{Config, Confinement, ForeignIssuer, Transfer, is_probably_shared};
use crate::site::directory::SiteDirectory;
use crate::site::expiry::{self, Expiry};
use crate::site::serve::roles;
use crate::site::store;
use penstock_clock::wall_clock;
use penstock_decide::credential_expiry::{CredentialValidity, ExpiringItem};
use penstock_model::VoName;
use penstock_model::text::plural;
use penstock_persistence::postgres::inspect;
use penstock_protocol::hosts::HostPattern;
use penstock_protocol::http1::client::{Client, ClientConfig, ClientRequest, Reach};
use penstock_protocol::oauth;
use penstock_protocol::tls::ClientTls;
use penstock_protocol::token::{IssuerVos, configuration_address};
use penstock_protocol::voms::VomsServers;
use penstock_protocol::x509;
use penstock_transfer_service::gfal_plugins;
use serde::Serialize;
use std::collections::BTreeSet;
use std::net::{TcpListener, ToSocketAddrs};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;
use url::Url;

/// How long a token issuer may take to answer.
const ISSUER_TIMEOUT: Duration = Duration::from_secs(5);

/// Something that was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Finding {
    severity: Severity,
    text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Severity {
    /// It will not run, or nobody will accept it.
    Error,
    /// It will run, but a person should look.
    Warning,
}

#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn error(&mut self, text: impl Into<String>) {
        let text = text.into();
        self.0.push(Finding {
            severity: Severity::Error,
            text,
        });
    }

    fn warning(&mut self, text: impl Into<String>) {
        let text = text.into();
        self.0.push(Finding {
            severity: Severity::Warning,
            text,
        });
    }

    fn errors(&self) -> usize {
        self.0
            .iter()
            .filter(|finding| finding.severity == Severity::Error)
            .count()
    }
}

/// What is found of gfal2.
#[derive(Serialize)]
struct GfalReport {
    /// Its plug-ins.
    plugins: Vec<String>,
    /// Why there are none.
    why_not: Option<String>,
}

/// What is found of the transfer service's database.
#[derive(Serialize)]
struct DatabaseReport {
    /// The version of PostgreSQL.
    server: String,
    /// The schema of its tables; absent before the first start.
    schema: Option<u32>,
}

#[derive(Serialize)]
struct CheckReport<'a> {
    config: &'a Config,
    /// What ends, and when.
    expiry: &'a [Expiry],
    /// What gfal2 can reach from here. Absent without a transfer service.
    gfal: Option<&'a GfalReport>,
    /// The database of the transfer service's record. Absent when that is a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    database: Option<&'a DatabaseReport>,
    findings: &'a [Finding],
}

/// `penstock check`.
pub async fn run(
    args: CheckArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let site = SiteDirectory::at(&args.dir)?;
    let config = site.config()?;
    let mut findings = Findings::default();
    keys::check_certificate(&site, &config, &mut findings);
    check_trust_directory(&site, &config, &mut findings);
    check_authorities(&site, &config, &mut findings);
    check_rules_for_subjects(&site, &config, &mut findings);
    check_issuers_vos(&config, &mut findings);
    check_groups(&site, &config, &mut findings);
    check_voms(&site, &config, &mut findings);
    let expiries = expiry::of_site(&site, &config, wall_clock());
    if !expiries
        .iter()
        .any(|found| found.what == ExpiringItem::Authority)
    {
        findings.warning(format!(
            "{} has no CA certificate, so no other site and no token issuer is trusted",
            site.resolve(&config.trust.certificates).display()
        ));
    }
    check_expiries(&expiries, &mut findings);
    check_credentials_follow(&config, &mut findings);
    let dangers = config.outbound_dangers();
    dangers.into_iter().for_each(|text| findings.warning(text));
    keys::check_tokens(&site, &config, &mut findings);
    keys::check_contents(&site, &config, &mut findings);
    keys::check_private_files(&site, &config, &mut findings);
    check_ports(&config, &mut findings);
    pools::check(&site, &config, &mut findings);
    check_tape(&site, &config, &mut findings);
    check_foreign_issuers(&site, &config, &mut findings).await;

    let database = find_database(&site, &config, environment, &mut findings).await;
    let gfal = find_gfal(&site, &config, &mut findings).await;

    let mut shown = config.clone();
    if let Some(transfer) = &mut shown.transfer {
        transfer.database = transfer.database.without_password();
    }
    let report = CheckReport {
        config: &shown,
        expiry: &expiries,
        gfal: gfal.as_ref(),
        database: database.as_ref(),
        findings: &findings.0,
    };
    let text = || {
        let values = args.values.then(|| effective_values(&site, &shown));
        let found: String = findings.0.iter().map(finding_line).collect();
        format!(
            "{}{}{}{}\n{found}",
            values.unwrap_or_default(),
            expiries.iter().map(expiry_line).collect::<String>(),
            database.as_ref().map(database_line).unwrap_or_default(),
            gfal.as_ref().map(gfal_line).unwrap_or_default(),
        )
    };
    match findings.errors() {
        0 => {
            output.show(&report, text);
            output.say(match findings.0.len() {
                0 => "ok".to_owned(),
                warnings => format!("ok, {}", plural(warnings as u64, "warning")),
            });
            Ok(())
        }
        errors => {
            let errors = plural(errors as u64, "error");
            let why = format!("{errors} in {}", site.root().display());
            Err(output.failure(&report, text, CommandError::Usage(why)))
        }
    }
}

fn effective_values(site: &SiteDirectory, shown: &Config) -> String {
    let values =
        toml::to_string_pretty(shown).expect("a configuration that was read can be written");
    let file = site.config_file();
    format!("# Effective values of {}\n{values}\n", file.display())
}

/// Errors that can be found in the site's files alone, without asking anybody.
pub fn errors_of_files(site: &SiteDirectory, config: &Config) -> Vec<String> {
    let mut findings = Findings::default();
    keys::check_certificate(site, config, &mut findings);
    check_trust_directory(site, config, &mut findings);
    check_rules_for_subjects(site, config, &mut findings);
    check_groups(site, config, &mut findings);
    check_voms(site, config, &mut findings);
    keys::check_contents(site, config, &mut findings);
    let errors = findings.0.into_iter();
    let errors = errors.filter(|finding| finding.severity == Severity::Error);
    errors.map(|finding| finding.text).collect()
}

fn database_line(found: &DatabaseReport) -> String {
    match found.schema {
        Some(schema) => format!("database: PostgreSQL {}, schema {schema}\n", found.server),
        None => format!(
            "database: PostgreSQL {}, without tables as yet\n",
            found.server
        ),
    }
}

/// Whether the service can use its database: reached from here, with its rights and its tables.
async fn find_database(
    site: &SiteDirectory,
    config: &Config,
    environment: &Environment,
    findings: &mut Findings,
) -> Option<DatabaseReport> {
    let role = config.transfer.as_ref()?;
    let database = match store::database(site, role, environment.database_passwords.as_deref()) {
        Ok(database) => database?,
        Err(why) => {
            findings.error(why.to_string());
            return None;
        }
    };
    if let Some(danger) = database.danger() {
        findings.warning(format!("transfer.database: {danger}"));
    }
    let looked = tokio::task::spawn_blocking(move || inspect(&database)).await;
    let found = looked.map_err(|why| why.to_string());
    match found.and_then(|found| found.map_err(|why| why.to_string())) {
        Ok(found) => {
            let name = |text| format!("transfer.database: {text}");
            found
                .errors
                .into_iter()
                .for_each(|text| findings.error(name(text)));
            let warnings = found.warnings.into_iter();
            warnings.for_each(|text| findings.warning(name(text)));
            Some(DatabaseReport {
                server: found.server,
                schema: found.schema,
            })
        }
        Err(why) => {
            findings.error(format!("transfer.database: {why}"));
            None
        }
    }
}

fn gfal_line(found: &GfalReport) -> String {
    match &found.why_not {
        None => format!("gfal2 plug-ins: {}\n", found.plugins.join(", ")),
        Some(why) => format!(
            "gfal2 is not used: {why}. Transfers of gsiftp, root, srm and sftp are refused.\n"
        ),
    }
}

/// Looks by a process, as the service will. That there is no gfal2 is well, unless the configuration needs it.
async fn find_gfal(
    site: &SiteDirectory,
    config: &Config,
    findings: &mut Findings,
) -> Option<GfalReport> {
    let role = config.transfer.as_ref()?;
    let found = match roles::gfal_config(site, config, role) {
        Ok(gfal) => gfal_plugins(gfal).await,
        Err(why) => Err(why.to_string()),
    };
    if role.gfal.confinement == Confinement::Off {
        findings.warning(without_confinement(site, config, role).await);
    }
    for account in &role.gfal.sftp {
        let key = site.resolve(&account.key);
        if let Err(why) = std::fs::File::open(&key) {
            findings.error(format!("transfer.gfal.sftp: {}: {why}", key.display()));
        }
    }
    if let (Err(why), false) = (&found, role.gfal.sftp.is_empty()) {
        findings.error(format!("transfer.gfal.sftp needs gfal2: {why}"));
    }
    let (plugins, why_not) = match found {
        Ok(plugins) => (plugins, None),
        Err(why) => (Vec::new(), Some(why)),
    };
    Some(GfalReport { plugins, why_not })
}

/// What is at stake, and whether this machine could do better.
async fn without_confinement(site: &SiteDirectory, config: &Config, role: &Transfer) -> String {
    let mut confined = role.clone();
    confined.gfal.confinement = Confinement::Required;
    let tried = match roles::gfal_config(site, config, &confined) {
        Ok(gfal) => gfal_plugins(gfal).await,
        Err(why) => Err(why.to_string()),
    };
    let advice = match tried {
        Ok(_) => "this machine supports confinement: remove the line".to_owned(),
        Err(why) => format!("this machine does not support confinement: {why}"),
    };
    format!(
        "transfer.gfal.confinement is \"off\": any storage element that a job names can make gfal2 read and write \
         the files of this service, its signing keys among them, and connect to addresses inside; {advice}"
    )
}

fn expiry_line(expiry: &Expiry) -> String {
    let (what, path) = (expiry.what.name().replace('_', " "), expiry.path.display());
    match (expiry.what, &expiry.ends_at, expiry.days_left) {
        (ExpiringItem::SigningKey, Some(at), _) => {
            format!("{what} {path}: rotate by {at}\n")
        }
        (_, Some(at), Some(days)) => format!("{what} {path}: days left: {days}, until {at}\n"),
        _ => format!("{what} {path}: cannot be used\n"),
    }
}

fn finding_line(finding: &Finding) -> String {
    match finding.severity {
        Severity::Error => format!("error: {}\n", finding.text),
        Severity::Warning => format!("warning: {}\n", finding.text),
    }
}

/// Tells of everything that ends soon or has ended.
fn check_expiries(expiries: &[Expiry], findings: &mut Findings) {
    for expiry in expiries {
        let Some(advice) = &expiry.advice else {
            continue;
        };
        match expiry.standing {
            CredentialValidity::Good => {}
            CredentialValidity::Soon => findings.warning(advice.as_str()),
            CredentialValidity::Over => findings.error(advice.as_str()),
        }
    }
}

fn check_trust_directory(site: &SiteDirectory, config: &Config, findings: &mut Findings) {
    let directory = site.resolve(&config.trust.certificates);
    if let Err(why) = std::fs::read_dir(&directory) {
        findings.error(format!("trust.certificates {}: {why}", directory.display()));
    }
}

/// Authorities that may sign the names of others' users, who are the same users for this site.
fn check_authorities(site: &SiteDirectory, config: &Config, findings: &mut Findings) {
    let found = x509::without_policy(&site.resolve(&config.trust.certificates));
    if found.authorities < 2 {
        return;
    }
    for (path, subject) in &found.files {
        let policy = path.with_extension("signing_policy");
        findings.warning(format!(
            "trust.certificates: the authority {subject} may sign any name, so whoever controls it can be any user of the \
             others here; say what it may sign in {}",
            policy.display()
        ));
    }
}

/// Rules for the owner of a certificate whom more than one authority can make.
fn check_rules_for_subjects(site: &SiteDirectory, config: &Config, findings: &mut Findings) {
    let rules = config.subject_rules();
    let open: BTreeSet<(&str, &str)> = rules
        .filter(|(_, _, ca)| ca.is_none())
        .map(|(section, dn, _)| (section, dn))
        .collect();
    let directory = site.resolve(&config.trust.certificates);
    for (section, dn) in open {
        let signers: Vec<String> = x509::signers_of(&directory, dn).into_iter().collect();
        if signers.len() > 1 {
            findings.warning(format!(
                "{section} '{dn}': several authorities may sign this subject, and whoever controls one of them can be this \
                 user: {}; add ca = \"…\" with the one that is meant",
                signers.join(", ")
            ));
        }
    }
}

/// Issuers for which nobody has said of which VOs their users can be.
fn check_issuers_vos(config: &Config, findings: &mut Findings) {
    let silent = |issuer: &&ForeignIssuer| issuer.vo.is_none() && issuer.vos.is_none();
    for issuer in config.trust.issuers.iter().filter(silent) {
        findings.warning(format!(
            "issuer {}: neither vo nor vos says of which VOs its users are, so whoever controls it can make VOs at will, \
             each with a share of the slots of its own; give it vo = \"NAME\" (all its users) or vos = [\"NAME\"] (those \
             that its groups may name)",
            issuer.issuer
        ));
    }
}

/// Rules for groups whose VO no issuer and no VOMS server may speak for.
fn check_groups(site: &SiteDirectory, config: &Config, findings: &mut Findings) {
    let Some(storage) = &config.storage else {
        return;
    };
    let vomsdir = site.resolve(&config.trust.vomsdir);
    let voms = std::fs::read_dir(&vomsdir).into_iter().flatten().flatten();
    let voms = voms.filter_map(|entry| entry.file_name().into_string().ok());
    let voms = IssuerVos::Listed(voms.map(VoName::new).collect());
    let own = config.issuer.iter();
    let own = own.map(|issuer| IssuerVos::One(VoName::new(issuer.vo.as_str())));
    let known: Vec<IssuerVos> = config.trust.issuers.iter().map(roles::vos_of).collect();
    let known: Vec<IssuerVos> = known.into_iter().chain(own).chain([voms]).collect();
    for rule in &storage.groups {
        if !known.iter().any(|vos| vos.speaks_for(&rule.group)) {
            findings.warning(format!(
                "storage.group '{}' at {}: nobody can be a member: no issuer speaks for its VO (vo or vos of \
                 trust.issuer, vo of issuer), and {} has no server of it",
                rule.group,
                rule.path,
                vomsdir.display()
            ));
        }
    }
}

/// What would make proxies lose their VO.
fn check_voms(site: &SiteDirectory, config: &Config, findings: &mut Findings) {
    let servers = VomsServers::new(&site.resolve(&config.trust.vomsdir), &config.site.hosts);
    for problem in servers.problems() {
        findings.warning(format!("trust.vomsdir: {problem}"));
    }
    let gridmap = config
        .trust
        .gridmap
        .as_deref()
        .map(|path| site.resolve(path));
    if let Some(path) = gridmap
        && let Err(why) = std::fs::File::open(&path)
    {
        findings.warning(format!("trust.gridmap {}: {why}", path.display()));
    }
}

/// Hosts that are given users' credentials after a redirect. What can never be right is refused when the file is read.
fn check_credentials_follow(config: &Config, findings: &mut Findings) {
    let transfer = config.transfer.iter();
    let transfer = transfer.map(|role| ("transfer.credentials_follow", &role.credentials_follow));
    let storage = config.storage.iter().map(|role| {
        let hosts = &role.outbound.credentials_follow;
        ("storage.outbound.credentials_follow", hosts)
    });
    for (key, hosts) in transfer.chain(storage) {
        for host in hosts {
            let Ok(pattern) = HostPattern::parse(host) else {
                continue;
            };
            if let Some(name) = pattern.host()
                && let Err(why) = (name, 443).to_socket_addrs()
            {
                findings.warning(format!(
                    "{key}: '{name}' is not known on this machine: {why}"
                ));
            }
            if pattern.domain().is_some_and(is_probably_shared) {
                findings.warning(format!(
                    "{key}: '{host}' looks like a domain in which anybody can have a name; credentials would follow \
                     to all of them"
                ));
            }
        }
    }
}

fn check_ports(config: &Config, findings: &mut Findings) {
    let storage = config.storage.as_ref();
    let listening = [
        ("storage.listen", storage.map(|storage| storage.listen)),
        (
            "storage.plain_listen",
            storage.and_then(|storage| storage.plain_listen),
        ),
        (
            "transfer.listen",
            config.transfer.as_ref().map(|transfer| transfer.listen),
        ),
    ];
    for (key, address) in listening {
        let Some(address) = address else {
            continue;
        };
        match TcpListener::bind(address) {
            Ok(_) => {}
            Err(why) if why.kind() == std::io::ErrorKind::AddrInUse => {
                findings.warning(format!(
                    "{key}: {address} is in use (expected while this site is running)"
                ));
            }
            Err(why) => findings.error(format!("{key}: cannot listen on {address}: {why}")),
        }
    }
}

/// The program of the HSM is looked at, not run; of a library the directory above it must be there.
fn check_tape(site: &SiteDirectory, config: &Config, findings: &mut Findings) {
    let tape = config
        .storage
        .as_ref()
        .and_then(|storage| storage.tape.as_ref());
    let Some(tape) = tape else {
        return;
    };
    for library in &tape.libraries {
        let directory = site.resolve(&library.directory);
        let parent = directory.parent().unwrap_or(&directory);
        if !parent.is_dir() {
            findings.error(format!(
                "storage.tape.library {}: {} is not a directory, so {} cannot be made there",
                library.name,
                parent.display(),
                directory.display()
            ));
        }
    }
    let Some(program) = &tape.program else {
        return;
    };
    let directory = site.resolve(&tape.directory);
    if !directory.is_dir() {
        findings.error(format!(
            "storage.tape.directory: {} is not a directory; the program is started there",
            directory.display()
        ));
    }
    let program = site.resolve(program);
    let is_executable = std::fs::metadata(&program)
        .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0);
    if !is_executable {
        findings.error(format!(
            "storage.tape.program: {} is not an executable program; files stay on disk until it exists (docs/tape/hsm.md)",
            program.display()
        ));
    }
}

/// Whether the keys of each trusted issuer can be had from here, the way the services will.
async fn check_foreign_issuers(site: &SiteDirectory, config: &Config, findings: &mut Findings) {
    if config.trust.issuers.is_empty() {
        return;
    }
    let tls = match ClientTls::from_ca_directory(&site.resolve(&config.trust.certificates)) {
        Ok(tls) => tls,
        Err(why) => return findings.error(why.to_string()),
    };
    let client = Client::new(ClientConfig {
        connect_timeout: ISSUER_TIMEOUT,
        response_timeout: ISSUER_TIMEOUT,
        stall_timeout: ISSUER_TIMEOUT,
        ..ClientConfig::new(tls)
    })
    .with_reach(&Reach::new(config.reach(&[])));
    for issuer in &config.trust.issuers {
        if let Err(why) = ask_issuer(&client, issuer).await {
            findings.warning(format!(
                "issuer {}: {why}; until it answers, its tokens count only while its keys are remembered",
                issuer.issuer
            ));
        }
    }
}

async fn ask_issuer(client: &Client, issuer: &ForeignIssuer) -> Result<(), String> {
    let address = configuration_address(&issuer.issuer);
    let url = Url::parse(&address).map_err(|why| why.to_string())?;
    let answer = client
        .send(ClientRequest::new(http::Method::GET, url))
        .await;
    let mut answer = answer.map_err(|why| why.to_string())?;
    if !answer.status.is_success() {
        return Err(format!("{address} answered {}", answer.status));
    }
    let body = answer
        .read_all(64 << 10)
        .await
        .map_err(|why| why.to_string())?;
    let document: serde_json::Value =
        serde_json::from_slice(&body).map_err(|why| why.to_string())?;
    // OpenID Connect Discovery §4.3: the issuer must be exactly the one asked for.
    match document.get("issuer").and_then(serde_json::Value::as_str) {
        Some(told) if told == issuer.issuer && issuer.client_id.is_some() => {
            oauth::token_endpoint(told, &body).map(drop)
        }
        Some(told) if told == issuer.issuer => Ok(()),
        Some(told) => Err(format!(
            "it calls itself '{told}', which is not the same text"
        )),
        None => Err("its discovery document names no issuer".to_owned()),
    }
}
