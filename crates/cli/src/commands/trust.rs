//! `penstock trust`: which other sites this one believes and exchanges data with.

mod add;
mod addresses;
mod contact;
mod refusals;

use crate::args::{SiteName, TrustCommand, TrustListArgs, TrustRemoveArgs, TrustShowArgs};
use crate::exit::CommandError;
use crate::output::Output;
use crate::site::config::{Config, without_secrets};
use crate::site::directory::SiteDirectory;
use crate::site::reload::Reload;
use crate::site::serve::roles::{self, TrustedIssuers};
use crate::site::trusted_sites::{
    BroughtKind, ConfigEdit, StayingItem, TrustedAuthority, TrustedSite, TrustedSites, of_pki,
};
use crate::site::{check, own_document};
use contact::{TellingError, told_by};
use penstock_model::Timestamp;
use penstock_model::text::one_line;
use penstock_protocol::pki::ForeignAuthority;
use penstock_protocol::site_document::SiteDocument;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt::Write;
use url::Url;

/// Characters of an authority's subject that are shown.
const SUBJECT_SHOWN_CHARS: usize = 100;

/// `penstock trust`.
pub async fn run(command: TrustCommand, output: Output) -> Result<(), CommandError> {
    match command {
        TrustCommand::Show(args) => show(&args, output),
        TrustCommand::Add(args) => add::run(&args, output).await,
        TrustCommand::List(args) => list(&args, output).await,
        TrustCommand::Remove(args) => remove(&args, output),
    }
}

/// One authority, as it is told.
#[derive(Debug, Clone, Serialize)]
struct AuthorityRow {
    /// SHA-256, as `openssl x509 -fingerprint -sha256` prints it.
    fingerprint: String,
    subject: String,
    ends_at: String,
}

impl AuthorityRow {
    fn of(authority: &TrustedAuthority) -> AuthorityRow {
        AuthorityRow {
            fingerprint: with_colons(&authority.fingerprint),
            subject: authority.subject.clone(),
            ends_at: utc(authority.ends_at),
        }
    }

    fn lines(&self) -> String {
        // First, because whoever made the authority chose its subject, which can look like anything.
        format!(
            "  authority  SHA-256 {}\n    {}, until {}\n",
            self.fingerprint,
            shortened(&self.subject),
            self.ends_at
        )
    }
}

/// A subject on one line, without blanks that would push what follows to the next.
fn shortened(subject: &str) -> String {
    let words: Vec<&str> = subject.split_whitespace().collect();
    let text = one_line(&words.join(" ")).into_owned();
    match text.char_indices().nth(SUBJECT_SHOWN_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

fn utc(at: Timestamp) -> String {
    format!("{}Z", at.to_fts())
}

/// `AB:CD:…` of `abcd…`.
fn with_colons(hex: &str) -> String {
    let pairs = hex.as_bytes().chunks(2).map(String::from_utf8_lossy);
    let pairs: Vec<String> = pairs.map(|pair| pair.to_ascii_uppercase()).collect();
    pairs.join(":")
}

fn keys_lines(fingerprints: &[String]) -> String {
    let line = |name: &String| format!("  issuer key {}\n", with_colons(name));
    fingerprints.iter().map(line).collect()
}

/// What others must know of this site.
#[derive(Debug, Serialize)]
struct ShowReport {
    site_name: String,
    urls: Vec<String>,
    authorities: Vec<AuthorityRow>,
    issuer: Option<String>,
    key_fingerprints: Vec<String>,
    /// What others run.
    command: Option<String>,
}

fn show(args: &TrustShowArgs, output: Output) -> Result<(), CommandError> {
    let site = SiteDirectory::at(&args.dir)?;
    let config = site.config()?;
    let document = own_document(&site, &config)?;
    let mut authorities = Vec::new();
    for pem in &document.authorities {
        let authority = ForeignAuthority::parse(pem).map_err(of_pki)?;
        let authority = TrustedAuthority::of(&authority).map_err(of_pki)?;
        authorities.push(AuthorityRow::of(&authority));
    }
    let urls = [config.door_url(), config.service_url()];
    let issuer = document.issuer.as_ref();
    let report = ShowReport {
        site_name: document.name.clone(),
        urls: urls.into_iter().flatten().collect(),
        issuer: issuer.map(|issuer| issuer.url.clone()),
        key_fingerprints: issuer.map_or_else(Vec::new, |issuer| {
            let keys = issuer.key_fingerprints.iter();
            keys.map(|key| with_colons(key)).collect()
        }),
        authorities,
        command: command_for_others(&config, &document),
    };
    output.show(&report, || {
        let keys = issuer.map(|issuer| keys_lines(&issuer.key_fingerprints));
        let authorities: String = report.authorities.iter().map(AuthorityRow::lines).collect();
        format!(
            "{} at {}\n{authorities}{}{}",
            report.site_name,
            report.urls.join(" and "),
            keys.unwrap_or_default(),
            next_for_others(report.command.as_deref())
        )
    });
    Ok(())
}

/// What this site tells others of itself.
fn own_document(site: &SiteDirectory, config: &Config) -> Result<SiteDocument, CommandError> {
    let trusted = TrustedIssuers::of(site, config)?;
    let jwks = trusted.published().map(|(_, jwks)| jwks);
    Ok(own_document::of(site, config, jwks.as_ref()))
}

/// What others type to trust this site; `None`: it is not known by which authority they could.
fn command_for_others(config: &Config, document: &SiteDocument) -> Option<String> {
    let url = config.door_url().or(config.service_url())?;
    let mut words = format!("penstock trust add {url}");
    for pem in &document.authorities {
        let authority = ForeignAuthority::parse(pem).ok()?;
        let authority = TrustedAuthority::of(&authority).ok()?;
        write!(
            words,
            " --fingerprint {}",
            with_colons(&authority.fingerprint)
        )
        .ok()?;
    }
    (!document.authorities.is_empty()).then_some(words)
}

fn next_for_others(command: Option<&str>) -> String {
    match command {
        Some(command) => format!(
            "\nRun this at the other site, on its machine (with --rights and --prefix if tokens of this site shall have rights \
             there):\n  {command} --dir DIR\n"
        ),
        None => "\nThis site does not have the authority of its own host certificate, so other sites must have it already: \
                 `penstock check` shows what is missing.\n"
            .to_owned(),
    }
}

/// How a site is found when it is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Standing {
    /// It was not asked.
    NotAsked,
    /// It answers, and is who it was.
    Same,
    /// It does not answer.
    Unreachable,
    /// Somebody answers who has another authority than was trusted.
    Changed,
}

/// One site, as `trust list` tells it.
#[derive(Debug, Serialize)]
struct SiteRow {
    name: String,
    site_name: String,
    url: String,
    since: String,
    authorities: Vec<AuthorityRow>,
    issuer: Option<String>,
    key_fingerprints: Vec<String>,
    rights: &'static str,
    prefix: Option<String>,
    vo: Option<String>,
    servers: Vec<String>,
    private_addresses: Vec<String>,
    standing: Standing,
    /// Why it is not found as it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    /// The keys of its issuer are those of the day on which it was trusted. Sites change them from time to time.
    #[serde(skip_serializing_if = "Option::is_none")]
    same_keys: Option<bool>,
}

/// What `trust list` tells.
#[derive(Debug, Serialize)]
struct ListReport {
    sites: Vec<SiteRow>,
    /// Issuers in penstock.toml that were not added by `trust add` or `init --peer`.
    issuers_by_hand: Vec<String>,
}

async fn list(args: &TrustListArgs, output: Output) -> Result<(), CommandError> {
    let site = SiteDirectory::at(&args.dir)?;
    let config = site.config()?;
    let all = TrustedSites::read_only(&site).all()?;
    let certificates = site.resolve(&config.trust.certificates);
    let asked = all.into_iter().map(|trusted| {
        let certificates = certificates.clone();
        let offline = args.offline;
        tokio::spawn(async move {
            match (offline, Url::parse(&trusted.url)) {
                (true, _) => (trusted, None),
                (false, Ok(url)) => {
                    let told = told_by(&url, &certificates).await;
                    (trusted, Some(told))
                }
                (false, Err(why)) => (
                    trusted,
                    Some(Err(TellingError::Unreachable(why.to_string()))),
                ),
            }
        })
    });
    let mut rows = Vec::new();
    for asked in asked.collect::<Vec<_>>() {
        let (trusted, told) = asked
            .await
            .map_err(|why| CommandError::local("cannot contact a site", why))?;
        rows.push(row(&trusted, told));
    }
    let known: BTreeSet<&String> = rows.iter().filter_map(|row| row.issuer.as_ref()).collect();
    let by_hand = config.trust.issuers.iter().map(|issuer| &issuer.issuer);
    let report = ListReport {
        issuers_by_hand: by_hand
            .filter(|issuer| !known.contains(issuer))
            .cloned()
            .collect(),
        sites: rows,
    };
    let named = |standing: Standing| {
        let found = report.sites.iter().filter(|row| row.standing == standing);
        let names: Vec<&str> = found.map(|row| row.name.as_str()).collect();
        (!names.is_empty()).then(|| names.join(", "))
    };
    let outcome = match (named(Standing::Changed), named(Standing::Unreachable)) {
        (Some(names), _) => Err(CommandError::OtherSite(format!(
            "these sites have a different authority than the one that was trusted: {names}"
        ))),
        (None, Some(names)) => Err(CommandError::Unreachable(format!(
            "cannot be reached: {names}"
        ))),
        (None, None) => Ok(()),
    };
    output.conclude(&report, || list_text(&report), outcome)
}

fn row(trusted: &TrustedSite, told: Option<Result<SiteDocument, TellingError>>) -> SiteRow {
    let named = |document: &SiteDocument| -> BTreeSet<String> {
        let parsed = document.authorities.iter();
        let parsed = parsed.filter_map(|pem| ForeignAuthority::parse(pem).ok());
        let parsed = parsed.filter_map(|authority| TrustedAuthority::of(&authority).ok());
        parsed.map(|authority| authority.fingerprint).collect()
    };
    let mut same_keys = None;
    let (standing, why) = match told {
        None => (Standing::NotAsked, None),
        Some(Err(TellingError::Unreachable(why))) => (Standing::Unreachable, Some(why)),
        Some(Err(TellingError::NotTrusted(why))) => (Standing::Changed, Some(why)),
        Some(Ok(document)) => {
            let now = named(&document);
            let mut then = trusted.authorities.iter();
            let keys = document.issuer.map(|issuer| issuer.key_fingerprints);
            if !trusted.key_fingerprints.is_empty() {
                same_keys = keys.map(|keys| keys == trusted.key_fingerprints);
            }
            match then.all(|then| now.contains(&then.fingerprint)) {
                true => (Standing::Same, None),
                false => {
                    let why =
                        "its site document names a different authority than when it was trusted";
                    (Standing::Changed, Some(why.to_owned()))
                }
            }
        }
    };
    let keys = trusted.key_fingerprints.iter();
    SiteRow {
        name: trusted.name.to_string(),
        site_name: trusted.site_name.clone(),
        url: trusted.url.clone(),
        since: utc(trusted.added_at),
        authorities: trusted.authorities.iter().map(AuthorityRow::of).collect(),
        issuer: trusted.issuer.clone(),
        key_fingerprints: keys.map(|key| with_colons(key)).collect(),
        rights: trusted.rights.word(),
        prefix: trusted.prefix.as_ref().map(ToString::to_string),
        vo: trusted.vo.clone(),
        servers: trusted.servers.clone(),
        private_addresses: trusted.private_addresses.clone(),
        standing,
        why,
        same_keys,
    }
}

fn list_text(report: &ListReport) -> String {
    let mut text: String = report.sites.iter().map(row_text).collect();
    if report.sites.is_empty() {
        text += "No other site is trusted. Add one with `penstock trust add URL`.\n";
    }
    if !report.issuers_by_hand.is_empty() {
        let issuers = report.issuers_by_hand.join(", ");
        let _ = writeln!(text, "Other token issuers in penstock.toml: {issuers}");
    }
    text
}

fn row_text(row: &SiteRow) -> String {
    let mut text = format!("{}  {}, trusted since {}\n", row.name, row.url, row.since);
    text += &grant_line(row.rights, row.prefix.as_deref(), row.vo.as_deref());
    text += &servers_line(&row.servers);
    let authorities: String = row.authorities.iter().map(AuthorityRow::lines).collect();
    text += match authorities.is_empty() {
        true => "  authority  trusted before\n",
        false => &authorities,
    };
    let keys = match row.same_keys {
        Some(false) => "; its issuer has new keys, as after a rotation",
        Some(true) | None => "",
    };
    let why = row.why.as_deref().unwrap_or_default();
    text += &match row.standing {
        Standing::NotAsked => String::new(),
        Standing::Same => format!("  now        reachable, same authority{keys}\n"),
        Standing::Unreachable => format!("  now        not reachable: {why}\n"),
        Standing::Changed => format!("  now        DIFFERENT AUTHORITY: {why}\n"),
    };
    text
}

/// What its tokens can do.
fn grant_line(rights: &str, prefix: Option<&str>, vo: Option<&str>) -> String {
    match (prefix, vo) {
        (Some(prefix), Some(vo)) => format!(
            "  tokens     its tokens allow '{rights}' below {prefix}, within their scopes, and submitting jobs here, as \
             members of the VO {vo}\n"
        ),
        _ => "  tokens     its tokens allow nothing here\n".to_owned(),
    }
}

fn servers_line(servers: &[String]) -> String {
    match servers.is_empty() {
        true => "  copies     it has no storage element\n".to_owned(),
        false => format!("  copies     to and from {}\n", servers.join(", ")),
    }
}

/// What was taken back.
#[derive(Debug, Serialize)]
struct RemoveReport {
    name: String,
    url: String,
    /// No longer among the trusted ones.
    authorities: Vec<AuthorityRow>,
    /// What is there all the same.
    staying: Vec<StayingItem>,
    #[serde(flatten)]
    reload: Reload,
}

impl RemoveReport {
    /// It is believed in some respect.
    fn is_still_trusted(&self) -> bool {
        self.staying.iter().any(|item| item.kind.is_trust())
    }

    fn text(&self) -> String {
        let mut text = match self.is_still_trusted() {
            true => format!(
                "{} ({}) is removed, BUT STILL TRUSTED IN PART:\n",
                self.name, self.url
            ),
            false => format!("{} ({}) is no longer trusted.\n", self.name, self.url),
        };
        text += &self.staying.iter().map(staying_line).collect::<String>();
        text + &self.reload.text()
    }

    fn outcome(&self) -> Result<(), CommandError> {
        self.reload.outcome()?;
        match self.is_still_trusted() {
            true => Err(CommandError::StillTrusted(format!(
                "{} is removed, but an authority or the token issuer of it is still trusted",
                self.name
            ))),
            false => Ok(()),
        }
    }
}

fn staying_line(item: &StayingItem) -> String {
    let value = match item.kind {
        BroughtKind::Authority => with_colons(&item.value),
        BroughtKind::Issuer | BroughtKind::Server | BroughtKind::PrivateAddress => {
            item.value.clone()
        }
    };
    let sites: Vec<&str> = item.needed_by.iter().map(SiteName::as_str).collect();
    let why = match sites.is_empty() {
        true => "it was there before the site was added; remove it by hand".to_owned(),
        false => format!("needed by {}", sites.join(", ")),
    };
    format!("  stays: {} {value} ({why})\n", item.kind.noun())
}

fn remove(args: &TrustRemoveArgs, output: Output) -> Result<(), CommandError> {
    let site = SiteDirectory::to_change(&args.dir)?;
    let sites = TrustedSites::of(&site)?;
    let known = sites.named(&args.name)?.ok_or_else(|| {
        CommandError::NotFound(format!(
            "no trusted site is called '{}'; see `penstock trust list`",
            args.name
        ))
    })?;
    let edit = edit(&site, |text| sites.text_without(text, &known))?;
    let staying = sites.staying(&known)?;
    let removed = sites.take_back(&known, &edit)?;
    let reload = Reload::of(&site);
    let report = RemoveReport {
        name: known.name.to_string(),
        url: known.url.clone(),
        authorities: removed.iter().map(AuthorityRow::of).collect(),
        staying,
        reload,
    };
    let text = || {
        format!(
            "{}Do the same at the other site: penstock trust remove NAME --dir DIR\n",
            report.text()
        )
    };
    output.conclude(&report, text, report.outcome())
}

/// A change of the configuration, refused when it brings an error that is not there now.
fn edit(
    site: &SiteDirectory,
    change: impl FnOnce(&str) -> Result<String, CommandError>,
) -> Result<ConfigEdit, CommandError> {
    let path = site.config_file();
    let config = site.config()?;
    let before =
        std::fs::read_to_string(&path).map_err(|why| CommandError::local(path.display(), why))?;
    let edited = change(&before)?;
    let candidate = Config::parse(&edited).map_err(|why| {
        CommandError::Usage(format!(
            "{} would become invalid ({}); nothing was changed",
            path.display(),
            without_secrets(&why)
        ))
    })?;
    let mut problems = candidate.problems();
    problems.extend(check::errors_of_files(site, &candidate));
    let known = check::errors_of_files(site, &config);
    problems.retain(|problem| !known.contains(problem));
    // What the services make of it when they read it.
    roles::token_clients(site, &candidate)?;
    match problems.is_empty() {
        true => Ok(ConfigEdit {
            before,
            config,
            edited,
        }),
        false => Err(CommandError::Usage(format!(
            "{} would become invalid: {}; nothing was changed",
            path.display(),
            problems.join("; ")
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_are_shown_as_openssl_prints_them() {
        assert_eq!(with_colons("00abff"), "00:AB:FF");
    }
}
