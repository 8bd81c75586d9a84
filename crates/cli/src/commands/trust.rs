//! `penstock trust`: which other sites this one believes and exchanges data with.

mod add;
mod addresses;
mod contact;
mod hosts;
mod list;
mod refusals;
mod site_facts;

use crate::args::{SiteName, TrustCommand, TrustRemoveArgs, TrustShowArgs};
use crate::exit::CommandError;
use crate::output::Output;
use crate::site::config::{Config, without_secrets};
use crate::site::config_file::ConfigEdit;
use crate::site::directory::SiteDirectory;
use crate::site::reload::Reload;
use crate::site::serve::roles::{self, TrustedIssuers};
use crate::site::trusted_site::{BroughtKind, StayingItem, TrustedAuthority, of_pki};
use crate::site::trusted_sites::TrustedSites;
use crate::site::{check, own_document};
use penstock_model::Timestamp;
use penstock_model::text::one_line;
use penstock_protocol::pki::ForeignAuthority;
use penstock_protocol::site_document::SiteDocument;
use serde::Serialize;
use std::fmt::Write;

/// Characters of an authority's subject that are shown.
const SUBJECT_SHOWN_CHARS: usize = 100;

/// `penstock trust`.
pub async fn run(command: TrustCommand, output: Output) -> Result<(), CommandError> {
    match command {
        TrustCommand::Show(args) => show(&args, output),
        TrustCommand::Add(args) => add::run(&args, output).await,
        TrustCommand::List(args) => list::run(&args, output).await,
        TrustCommand::Remove(args) => remove(&args, output),
    }
}

/// One authority, as it is told.
#[derive(Debug, Clone, Serialize)]
pub struct AuthorityRow {
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
    fn a_subject_is_shown_on_one_line() {
        assert_eq!(shortened("/O=a   b/CN=x "), "/O=a b/CN=x");
        assert_eq!(
            shortened(&"x".repeat(200)).chars().count(),
            SUBJECT_SHOWN_CHARS + 1
        );
    }

    #[test]
    fn fingerprints_are_shown_as_openssl_prints_them() {
        assert_eq!(with_colons("00abff"), "00:AB:FF");
    }
}
