//! `penstock trust add`: from the first look at another site to what is in effect, with a person, or a fingerprint that a person
//! has given, in between.

use super::addresses::AddressPlan;
use super::contact::{self, Contact};
use super::hosts::{HostPlan, own_hosts};
use super::refusals::{refuse_names_of_others, refuse_parts_of_others};
use super::site_facts::SiteFacts;
use super::{
    AuthorityRow, command_for_others, edit, keys_lines, next_for_others, own_document, shortened,
    utc, with_colons,
};
use crate::args::{SiteName, SiteRights, TrustAddArgs};
use crate::commands::fsck::is_confirmed;
use crate::exit::CommandError;
use crate::output::Output;
use crate::site::acquaintance::{Acquaintance, KnownServers, TokenGrant};
use crate::site::config::Config;
use crate::site::config_file::ConfigEdit;
use crate::site::directory::SiteDirectory;
use crate::site::reload::Reload;
use crate::site::trusted_site::{BeforeTrust, TrustedAuthority, TrustedSite, of_pki};
use crate::site::trusted_sites::TrustedSites;
use penstock_clock::wall_clock;
use penstock_model::NamespacePath;
use penstock_model::text::{hex, one_line};
use penstock_protocol::pki::ForeignAuthority;
use penstock_protocol::site_document::canonical_host;
use serde::Serialize;
use std::collections::BTreeSet;
use std::io::{BufRead, IsTerminal};
use std::path::Path;
use url::Url;

/// What was done.
#[derive(Debug, Serialize)]
struct AddReport {
    #[serde(flatten)]
    site: SiteFacts,
    /// Hosts that it names and that are not taken over.
    hosts_left_out: Vec<String>,
    warnings: Vec<String>,
    /// Something of it was not so before.
    changed: bool,
    /// A copy of the former configuration.
    config_before: Option<String>,
    #[serde(flatten)]
    reload: Option<Reload>,
    /// What the other site must run.
    command_for_others: Option<String>,
}

/// `penstock trust add`.
pub async fn run(args: &TrustAddArgs, output: Output) -> Result<(), CommandError> {
    let site = SiteDirectory::to_change(&args.dir)?;
    let config = site.config()?;
    let given = args.fingerprints.iter().map(|text| fingerprint(text));
    let given = given.collect::<Result<BTreeSet<String>, _>>()?;
    refuse_own(&config, args)?;
    let certificates = site.resolve(&config.trust.certificates);
    let contact = contact::look(&args.url, &certificates).await?;
    let sites = TrustedSites::of(&site)?;
    let may_ask = !args.yes && given.is_empty() && !output.json && std::io::stdin().is_terminal();
    let plan = Plan::of(args, &site, &config, &sites, contact, may_ask)?;
    plan.check_fingerprints(&given)?;
    let edit = edit(&site, |text| sites.text_with(text, &plan.wanted))?;
    let mut report = plan.report(&site, &config, &edit)?;
    output.say(plan.text(&report));
    if given.is_empty() && !args.yes && !is_confirmed("Trust this site?", output)? {
        return Err(CommandError::Usage(
            "nothing was changed: answer yes, or give --fingerprint with the fingerprint of its authority, as `penstock trust \
             show` prints it there; --yes trusts whichever site answers at this URL"
                .to_owned(),
        ));
    }
    sites.keep(&plan.wanted)?;
    let copy = sites.put_in_effect(&plan.wanted, &plan.authorities, &edit)?;
    let reload = Reload::of(&site);
    report.reload = Some(reload.clone());
    report.config_before = copy.map(|copy| copy.display().to_string());
    let text = || {
        format!(
            "{} is trusted now.\n{}{}",
            report.site.name,
            reload.text(),
            next_for_others(report.command_for_others.as_deref())
        )
    };
    output.conclude(&report, text, reload.outcome())
}

/// The SHA-256 of a certificate or key in lower-case hexadecimal, however it is written.
fn fingerprint(text: &str) -> Result<String, CommandError> {
    let digits = text.rsplit('=').next().unwrap_or_default();
    let digits = digits.trim_start_matches("SHA256:");
    let digits: String = digits
        .chars()
        .filter(|c| !matches!(c, ':' | ' '))
        .map(|c| c.to_ascii_lowercase())
        .collect();
    match digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        true => Ok(digits),
        false => Err(CommandError::Usage(format!(
            "--fingerprint '{text}' is not a SHA-256 fingerprint: 64 hexadecimal digits, with or without colons"
        ))),
    }
}

fn refuse_own(config: &Config, args: &TrustAddArgs) -> Result<(), CommandError> {
    let host = args.url.host_str().and_then(canonical_host);
    let own = own_hosts(config);
    match host.is_some_and(|host| own.contains(&host)) {
        true => Err(CommandError::Usage(format!(
            "{} is this site itself; two sites need different addresses",
            args.url
        ))),
        false => Ok(()),
    }
}

/// What is to be done, worked out before anything is.
struct Plan {
    wanted: TrustedSite,
    /// That are put among the trusted ones.
    authorities: Vec<ForeignAuthority>,
    /// That certifies its connection, also when it is trusted already.
    certifier: TrustedAuthority,
    is_trusted: bool,
    hosts_left_out: Vec<String>,
    warnings: Vec<String>,
}

impl Plan {
    fn of(
        args: &TrustAddArgs,
        site: &SiteDirectory,
        config: &Config,
        sites: &TrustedSites,
        contact: Contact,
        may_ask: bool,
    ) -> Result<Plan, CommandError> {
        let url = contact.url.as_str().trim_end_matches('/').to_owned();
        let name = name_for(args, sites, &contact, &url)?;
        let known = sites.named(&name)?;
        let all = sites.all()?;
        let others: Vec<&TrustedSite> = all.iter().filter(|site| site.name != name).collect();
        let certificates = site.resolve(&config.trust.certificates);
        let authorities = authorities_for(&contact, known.as_ref(), &certificates)?;
        refuse_parts_of_others(&contact, &authorities, &others)?;
        refuse_names_of_others(&contact, &authorities, site, config)?;
        let addresses = AddressPlan::of(args, &contact, known.as_ref(), may_ask)?;
        let vos = VosHere::of(site, config, known.as_ref());
        let (rights, grant) = grant_for(args, &vos, &contact, &name, known.as_ref(), may_ask)?;
        let document = &contact.document;
        let hosts = HostPlan::of(&contact, config, &others, &addresses.allowed);
        let servers = KnownServers {
            hosts: hosts.counting,
            private_addresses: addresses.allowed,
            with_plain_door: args.plain || known.as_ref().is_some_and(has_plain_door),
        };
        let acquaintance = Acquaintance::with(document, servers, grant);
        let issuer = acquaintance.issuer.as_ref();
        let kept = authorities.iter().map(TrustedAuthority::of);
        let certifier = TrustedAuthority::of(&contact.authority).map_err(of_pki)?;
        let wanted = TrustedSite {
            name,
            site_name: document.name.clone(),
            url,
            added_at: wall_clock(),
            authorities: kept.collect::<Result<_, _>>().map_err(of_pki)?,
            certified_by: Some(certifier.clone()),
            host_subject: contact.sender.host_subject.clone(),
            issuer: issuer.map(|issuer| issuer.issuer.clone()),
            key_fingerprints: contact.key_fingerprints.clone(),
            rights,
            prefix: issuer.map(|issuer| issuer.prefix.clone()),
            vo: issuer.and_then(|issuer| issuer.vo.clone()),
            servers: acquaintance.servers.clone(),
            private_addresses: acquaintance.private_addresses.clone(),
            before: BeforeTrust::default(),
        };
        let wanted = sites.with_before(config, wanted, &authorities)?;
        refuse_other_entry(config, &wanted)?;
        let mut warnings = Vec::new();
        if let Some(vo) = wanted.vo.as_ref().filter(|vo| vos.contain(vo)) {
            warnings.push(format!(
                "the VO {vo} has other members or rules here: members of one VO see and cancel each other's jobs and share its \
                 slots, and rules for its groups apply to all of them, within --rights"
            ));
        }
        warnings.extend(addresses.refused.iter().map(|address| {
            format!(
                "{address} of this site is not public, and is not the address and port that answered, so connections to it stay \
                 refused; if it is meant, add --private-address {address}"
            )
        }));
        Ok(Plan {
            is_trusted: contact.is_trusted,
            wanted,
            authorities,
            certifier,
            hosts_left_out: hosts.left_out,
            warnings,
        })
    }

    /// The authority that certifies the connection was given, whether it is new here or not, and whatever else was given is of the
    /// site.
    fn check_fingerprints(&self, given: &BTreeSet<String>) -> Result<(), CommandError> {
        if given.is_empty() {
            return Ok(());
        }
        let certifier = &self.certifier;
        if !given.contains(&certifier.fingerprint) {
            return Err(CommandError::OtherSite(format!(
                "{} is certified by the authority {} with the fingerprint {}, which was not given: somebody intercepts the connection, \
                 or the fingerprint is that of another site; nothing was changed",
                self.wanted.url,
                shortened(&certifier.subject),
                with_colons(&certifier.fingerprint)
            )));
        }
        let keys = &self.wanted.key_fingerprints;
        let is_unknown =
            |given: &&String| **given != certifier.fingerprint && !keys.contains(given);
        match given.iter().find(is_unknown) {
            Some(unknown) => Err(CommandError::OtherSite(format!(
                "{} has no authority and no key with the fingerprint {}; nothing was changed",
                self.wanted.url,
                with_colons(unknown)
            ))),
            None => Ok(()),
        }
    }

    fn report(
        &self,
        site: &SiteDirectory,
        config: &Config,
        edit: &ConfigEdit,
    ) -> Result<AddReport, CommandError> {
        let wanted = &self.wanted;
        let candidate = Config::parse(&edit.edited)
            .map_err(|why| CommandError::Usage(crate::site::config::without_secrets(&why)))?;
        let known = config.outbound_dangers();
        let dangers = candidate.outbound_dangers().into_iter();
        let mut warnings = self.warnings.clone();
        warnings.extend(dangers.filter(|danger| !known.contains(danger)));
        let directory = site.resolve(&config.trust.certificates);
        let mut changed = edit.before != edit.edited;
        for authority in &self.authorities {
            changed |= authority.file_in(&directory).map_err(of_pki)?.is_none();
        }
        Ok(AddReport {
            site: SiteFacts::of(wanted),
            hosts_left_out: self.hosts_left_out.clone(),
            warnings,
            changed,
            config_before: None,
            reload: None,
            command_for_others: command_for_others(config, &own_document(site, config)?),
        })
    }

    /// What a person judges.
    fn text(&self, report: &AddReport) -> String {
        let wanted = &self.wanted;
        let mut text = format!("{} at {}\n", wanted.site_name, wanted.url);
        match self.is_trusted {
            true => {
                text += &AuthorityRow::of(&self.certifier).lines();
                text += "    its certificate is already trusted here\n";
            }
            false => {
                let authorities = report.site.authorities.iter();
                text += &authorities.map(AuthorityRow::lines).collect::<String>();
                for authority in &self.authorities {
                    text += &format!(
                        "    it will be able to certify any server here, and users and hosts named {}\n",
                        authority.permitted(&wanted.host_subject)
                    );
                }
            }
        }
        if let Some(issuer) = &wanted.issuer {
            text += &format!("  issuer     {}\n", one_line(issuer));
        }
        text += &keys_lines(&wanted.key_fingerprints);
        text += &report.site.grant_line();
        text += &report.site.servers_line();
        if !wanted.private_addresses.is_empty() {
            text += &format!(
                "  addresses  allowed although not public: {}\n",
                wanted.private_addresses.join(", ")
            );
        }
        if !self.hosts_left_out.is_empty() {
            text += &format!(
                "  left out   hosts that could be internal, or belong to other trusted sites: {}\n",
                self.hosts_left_out.join(", ")
            );
        }
        for warning in &report.warnings {
            text += &format!("  warning: {warning}\n");
        }
        text.trim_end().to_owned()
    }
}

/// Under which name it is kept: one that is free, or its own.
fn name_for(
    args: &TrustAddArgs,
    sites: &TrustedSites,
    contact: &Contact,
    url: &str,
) -> Result<SiteName, CommandError> {
    let all = sites.all()?;
    let before = all.iter().find(|site| site.url == url);
    let name = match (&args.name, before) {
        (Some(name), Some(before)) if before.name != *name => {
            return Err(CommandError::Usage(format!(
                "{url} is already trusted, as '{}'; remove it first to give it another name",
                before.name
            )));
        }
        (_, Some(before)) => return Ok(before.name.clone()),
        (Some(name), None) => name.clone(),
        (None, None) => SiteName::like(&contact.document.name).ok_or_else(|| {
            CommandError::Usage(format!(
                "the site's own name, '{}', cannot be used here; give one with --name",
                contact.document.name
            ))
        })?,
    };
    match sites.named(&name)? {
        Some(other) => Err(CommandError::Usage(format!(
            "'{name}' is already the name of the site at {}; give this site another name with --name, or remove that one first",
            other.url
        ))),
        None => Ok(name),
    }
}

/// What its tokens can do: as typed, as it was, or as a person answers.
fn grant_for(
    args: &TrustAddArgs,
    vos: &VosHere,
    contact: &Contact,
    name: &SiteName,
    known: Option<&TrustedSite>,
    may_ask: bool,
) -> Result<(SiteRights, Option<TokenGrant>), CommandError> {
    let rights = match (args.rights, known) {
        (Some(rights), _) => rights,
        (None, Some(known)) => known.rights,
        (None, None) if may_ask => {
            let question = format!(
                "What do tokens of {} allow here: none, read, write or all? [none]",
                contact.document.name
            );
            rights_of(&ask(&question)?)?
        }
        (None, None) => SiteRights::None,
    };
    if rights == SiteRights::None {
        return match args.prefix.is_some() || args.vo.is_some() {
            true => Err(CommandError::Usage(
                "--prefix and --vo apply to tokens with rights: give --rights read or write as well".to_owned(),
            )),
            false => Ok((rights, None)),
        };
    }
    if contact.document.issuer.is_none() {
        return Err(CommandError::Usage(format!(
            "{} has no token issuer, so --rights has no effect",
            contact.url
        )));
    }
    refuse_issuer_elsewhere(contact)?;
    let prefix = args
        .prefix
        .clone()
        .or(known.and_then(|known| known.prefix.clone()));
    let prefix = match prefix {
        Some(prefix) => prefix,
        None if may_ask => {
            let typed = ask("Below which directory? (/ is everywhere)")?;
            NamespacePath::parse(&typed).map_err(|why| CommandError::Usage(why.to_string()))?
        }
        None => {
            return Err(CommandError::Usage(format!(
                "--rights {} needs --prefix: the directory below which the rights apply (/ is everywhere)",
                rights.word()
            )));
        }
    };
    let vo = match (&args.vo, known.and_then(|known| known.vo.clone())) {
        (Some(vo), _) => vo.clone(),
        (None, Some(vo)) => vo,
        (None, None) => {
            let own = vo_of_site(name, &contact.host);
            if vos.contain(&own) {
                return Err(CommandError::Usage(format!(
                    "the VO {own} already exists here; name the VO of its users with --vo (--vo {own} to share it), or give the \
                     site another name with --name"
                )));
            }
            own
        }
    };
    let grant = TokenGrant {
        prefix,
        vo,
        rights: rights.rights(),
    };
    Ok((rights, Some(grant)))
}

/// A site introduces an issuer at its own host only: tokens of another one would be of people whom nobody here has named.
fn refuse_issuer_elsewhere(contact: &Contact) -> Result<(), CommandError> {
    let Some(issuer) = &contact.document.issuer else {
        return Ok(());
    };
    let at = Url::parse(&issuer.url).ok();
    let at = at.as_ref().and_then(Url::host_str).and_then(canonical_host);
    match at == Some(contact.host.clone()) {
        true => Ok(()),
        false => Err(CommandError::OtherSite(format!(
            "{} names the token issuer {}, which is at another host; add the site with the URL of that host, or use --rights \
             none; nothing was changed",
            contact.url,
            one_line(&issuer.url)
        ))),
    }
}

/// The VO of a site's users, unless another one is typed. The site chooses its name, so the VO has a form that no VO of a
/// token's group or a VOMS server has, and a part that the site does not choose.
fn vo_of_site(name: &SiteName, host: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let host = host.chars().map(|c| if is_plain(c) { c } else { '_' });
    format!("{name}@{}", host.collect::<String>())
}

/// The VOs that somebody here has or a rule names, without those of a site that is trusted anew.
struct VosHere(BTreeSet<String>);

impl VosHere {
    fn of(site: &SiteDirectory, config: &Config, known: Option<&TrustedSite>) -> VosHere {
        let of_known = known.and_then(|known| known.issuer.clone());
        let of_known = format!("issuer '{}'", of_known.unwrap_or_default());
        let named = config.named_vos().into_iter().chain(config.vos_of_rules());
        let named = named.filter(|(key, _)| *key != of_known);
        let named = named.map(|(_, vo)| vo.to_owned());
        // `<vo>/<host>.lsc`
        let voms = std::fs::read_dir(site.resolve(&config.trust.vomsdir));
        let voms = voms.into_iter().flatten().flatten();
        let voms = voms.filter_map(|entry| entry.file_name().into_string().ok());
        VosHere(named.chain(voms).collect())
    }

    fn contain(&self, vo: &str) -> bool {
        self.0.contains(vo)
    }
}

fn has_plain_door(known: &TrustedSite) -> bool {
    let mut servers = known.servers.iter();
    servers.any(|server| server.starts_with("http://"))
}

fn rights_of(answer: &str) -> Result<SiteRights, CommandError> {
    match answer {
        "" | "none" => Ok(SiteRights::None),
        "read" => Ok(SiteRights::Read),
        "write" => Ok(SiteRights::Write),
        "all" => Ok(SiteRights::All),
        other => Err(CommandError::Usage(format!(
            "'{other}' is not one of none, read, write and all; nothing was changed"
        ))),
    }
}

/// Asks the person who sits there.
fn ask(question: &str) -> Result<String, CommandError> {
    eprintln!("{}", penstock_model::text::printable(question));
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    read.map_err(|why| CommandError::local("standard input", why))?;
    Ok(answer.trim().to_owned())
}

/// Which authorities are put among the trusted ones. Errors: they are other ones than were trusted for it, or could be taken
/// for those of others.
fn authorities_for(
    contact: &Contact,
    known: Option<&TrustedSite>,
    certificates: &Path,
) -> Result<Vec<ForeignAuthority>, CommandError> {
    let certifier = &contact.authority;
    let fingerprint = hex(&certifier.fingerprint());
    if let Some(known) = known
        && let Some(before) = known.certifiers().first()
        && !known.is_certified_by(&fingerprint)
    {
        return Err(CommandError::OtherSite(format!(
            "{} has a different authority than the one trusted since {} ({}): somebody intercepts the connection, or the site was \
             set up again. If it was: penstock trust remove {}, then trust it again",
            contact.url,
            utc(known.added_at),
            with_colons(&before.fingerprint),
            known.name
        )));
    }
    let was_brought = known.is_some_and(|known| known.has_authority(&fingerprint));
    let is_wanted = !contact.is_trusted || was_brought;
    let wanted: Vec<ForeignAuthority> = is_wanted.then(|| certifier.clone()).into_iter().collect();
    for authority in &wanted {
        if let Some(rival) = authority.rival_in(certificates).map_err(of_pki)? {
            return Err(CommandError::OtherSite(format!(
                "{} names the authority {}, but a trusted one has the same name ({}); nothing was \
                 changed",
                contact.url,
                authority.subject(),
                rival.display()
            )));
        }
    }
    Ok(wanted)
}

/// An entry that somebody wrote by hand says what it says.
fn refuse_other_entry(config: &Config, wanted: &TrustedSite) -> Result<(), CommandError> {
    let acquaintance = wanted.acquaintance();
    let Some(issuer) = acquaintance.issuer.filter(|_| wanted.before.issuer) else {
        return Ok(());
    };
    let mut present = config.trust.issuers.iter();
    match present.any(|present| *present == issuer) {
        true => Ok(()),
        false => Err(CommandError::Usage(format!(
            "penstock.toml has a [[trust.issuer]] for {} with other values; change it by hand, or remove it first",
            issuer.issuer
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_read_however_it_is_written() {
        let hexadecimal = "0a".repeat(32);
        let colons = with_colons(&hexadecimal);
        for text in [
            hexadecimal.clone(),
            colons.clone(),
            format!("sha256 Fingerprint={colons}"),
            format!("SHA256:{hexadecimal}"),
        ] {
            assert_eq!(fingerprint(&text).expect("one"), hexadecimal, "{text}");
        }
        for bad in ["", "0a", &"zz".repeat(32), &"0a".repeat(33)] {
            assert!(fingerprint(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_site_cannot_choose_the_vo_of_others_by_its_name() {
        let name: SiteName = "dteam".parse().expect("a name");
        assert_eq!(vo_of_site(&name, "se.example.org"), "dteam@se.example.org");
        assert_eq!(vo_of_site(&name, "2001:db8::1"), "dteam@2001_db8__1");
        let made = tempfile::tempdir().expect("a directory");
        std::fs::create_dir_all(made.path().join("vomsdir/ops")).expect("made");
        let site = SiteDirectory::at(made.path()).expect("a path");
        let text = "[site]\nname = \"here\"\nhosts = [\"127.0.0.2\"]\n[[trust.issuer]]\nissuer = \"https://b\"\n\
                    vo = \"b\"\n[storage]\nlisten = \"127.0.0.2:8443\"\n[[storage.pool]]\nname = \"disk1\"\n\
                    path = \"pools/disk1\"\n[[storage.group]]\ngroup = \"/dteam/prod\"\npath = \"/\"\nrights = []\n";
        let config = Config::parse(text).expect(text);
        let vos = VosHere::of(&site, &config, None);
        for vo in ["dteam", "ops", "b"] {
            assert!(vos.contain(vo), "{vo}");
        }
        assert!(!vos.contain("dteam@se.example.org"));
    }

    #[test]
    fn nothing_is_the_answer_of_who_says_nothing() {
        assert_eq!(rights_of("").expect("known"), SiteRights::None);
        assert_eq!(rights_of("write").expect("known"), SiteRights::Write);
        assert!(rights_of("everything").is_err());
    }
}
