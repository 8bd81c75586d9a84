//! `penstock trust list`: which sites are trusted, and whether each still has the authority that was trusted.

use super::contact::{TellingError, told_by};
use super::site_facts::SiteFacts;
use super::{AuthorityRow, with_colons};
use crate::args::TrustListArgs;
use crate::exit::CommandError;
use crate::output::Output;
use crate::site::directory::SiteDirectory;
use crate::site::trusted_site::TrustedSite;
use crate::site::trusted_sites::TrustedSites;
use penstock_model::text::hex;
use penstock_protocol::pki::ForeignAuthority;
use penstock_protocol::site_document::SiteDocument;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt::Write;
use url::Url;

/// The authority that certifies a site now, compared with that of the day on which it was trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum PresentAuthority {
    /// The site was not asked.
    NotAsked,
    Same,
    /// The site does not answer.
    Unreachable,
    /// Somebody answers who has another one.
    Changed,
    /// The site answers; an earlier version has trusted it, and kept no record of its authority.
    Unrecorded,
}

/// One site, as it is told.
#[derive(Debug, Serialize)]
struct SiteRow {
    #[serde(flatten)]
    site: SiteFacts,
    standing: PresentAuthority,
    /// Why it is not found as it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    /// The keys of its issuer are those of the day on which it was trusted. Sites change them from time to time.
    #[serde(skip_serializing_if = "Option::is_none")]
    same_keys: Option<bool>,
}

/// What is told.
#[derive(Debug, Serialize)]
struct ListReport {
    sites: Vec<SiteRow>,
    /// Issuers in penstock.toml that were not added by `trust add` or `init --peer`.
    issuers_by_hand: Vec<String>,
}

/// `penstock trust list`.
pub async fn run(args: &TrustListArgs, output: Output) -> Result<(), CommandError> {
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
        rows.push(SiteRow::of(&trusted, told));
    }
    let known = rows.iter().filter_map(|row| row.site.issuer.as_ref());
    let known: BTreeSet<&String> = known.collect();
    let by_hand = config.trust.issuers.iter().map(|issuer| &issuer.issuer);
    let report = ListReport {
        issuers_by_hand: by_hand
            .filter(|issuer| !known.contains(issuer))
            .cloned()
            .collect(),
        sites: rows,
    };
    let named = |standing: PresentAuthority| {
        let found = report.sites.iter().filter(|row| row.standing == standing);
        let names: Vec<&str> = found.map(|row| row.site.name.as_str()).collect();
        (!names.is_empty()).then(|| names.join(", "))
    };
    let outcome = match (
        named(PresentAuthority::Changed),
        named(PresentAuthority::Unreachable),
    ) {
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

impl SiteRow {
    fn of(
        trusted: &TrustedSite,
        told: Option<Result<(SiteDocument, ForeignAuthority), TellingError>>,
    ) -> SiteRow {
        let mut same_keys = None;
        let (standing, why) = match told {
            None => (PresentAuthority::NotAsked, None),
            Some(Err(TellingError::Unreachable(why))) => (PresentAuthority::Unreachable, Some(why)),
            Some(Err(TellingError::NotTrusted(why))) => (PresentAuthority::Changed, Some(why)),
            Some(Ok((document, authority))) => {
                let keys = document.issuer.map(|issuer| issuer.key_fingerprints);
                if !trusted.key_fingerprints.is_empty() {
                    same_keys = keys.map(|keys| keys == trusted.key_fingerprints);
                }
                compared(trusted, &authority)
            }
        };
        SiteRow {
            site: SiteFacts::of(trusted),
            standing,
            why,
            same_keys,
        }
    }

    fn text(&self) -> String {
        let site = &self.site;
        let mut text = format!(
            "{}  {}, trusted since {}\n",
            site.name, site.url, site.since
        );
        text += &site.grant_line();
        text += &site.servers_line();
        let authorities = site.authorities.iter().map(AuthorityRow::lines);
        text += &match (site.authorities.is_empty(), &site.certified_by) {
            (false, _) => authorities.collect(),
            (true, Some(authority)) => format!("{}    trusted before\n", authority.lines()),
            (true, None) => "  authority  trusted before\n".to_owned(),
        };
        let keys = match self.same_keys {
            Some(false) => "; its issuer has new keys, as after a rotation",
            Some(true) | None => "",
        };
        let why = self.why.as_deref().unwrap_or_default();
        text += &match self.standing {
            PresentAuthority::NotAsked => String::new(),
            PresentAuthority::Same => format!("  now        reachable, same authority{keys}\n"),
            PresentAuthority::Unreachable => format!("  now        not reachable: {why}\n"),
            PresentAuthority::Changed => format!("  now        DIFFERENT AUTHORITY: {why}\n"),
            PresentAuthority::Unrecorded => format!("  now        reachable, {why}{keys}\n"),
        };
        text
    }
}

/// Whether the authority that certifies a site now is one of those that were trusted for it.
fn compared(
    trusted: &TrustedSite,
    authority: &ForeignAuthority,
) -> (PresentAuthority, Option<String>) {
    let now = hex(&authority.fingerprint());
    let Some(before) = trusted.certifiers().first() else {
        let why = format!(
            "but its authority was not recorded; run `penstock trust add {}` again, which records it",
            trusted.url
        );
        return (PresentAuthority::Unrecorded, Some(why));
    };
    if trusted.is_certified_by(&now) {
        return (PresentAuthority::Same, None);
    }
    let why = format!(
        "it is certified by {}, and was by {} when it was trusted",
        with_colons(&now),
        with_colons(&before.fingerprint)
    );
    (PresentAuthority::Changed, Some(why))
}

fn list_text(report: &ListReport) -> String {
    let mut text: String = report.sites.iter().map(SiteRow::text).collect();
    if report.sites.is_empty() {
        text += "No other site is trusted. Add one with `penstock trust add URL`.\n";
    }
    if !report.issuers_by_hand.is_empty() {
        let issuers = report.issuers_by_hand.join(", ");
        let _ = writeln!(text, "Other token issuers in penstock.toml: {issuers}");
    }
    text
}
