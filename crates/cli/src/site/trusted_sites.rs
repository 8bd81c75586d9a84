//! The sites that this one was told to trust: a file for each in `trusted-sites`, which says what was meant and what of it was
//! there before, so that it can be looked at and taken back.
//!
//! A file is written before what it describes is done. Whatever cuts that off, doing it again or taking it back ends it.

use crate::args::{SITE_NAME_CHARS_MAX, SiteName, SiteRights};
use crate::exit::CommandError;
use crate::site::acquaintance::Acquaintance;
use crate::site::config::Config;
use crate::site::config_file::{ConfigEdit, with_acquaintance, without_acquaintance};
use crate::site::directory::SiteDirectory;
use crate::site::trusted_site::{
    BeforeTrust, BroughtKind, StayingItem, TrustedAuthority, TrustedSite, of_pki, read,
};
use penstock_clock::wall_clock;
use penstock_durable_file::{make_directory, replace_private, sync_directory};
use penstock_model::text::hex;
use penstock_protocol::pki::ForeignAuthority;
use rustix::fs::{FlockOperation, flock};
use std::collections::BTreeSet;
use std::fs::File;
use std::path::PathBuf;

const DIRECTORY: &str = "trusted-sites";

/// The directory with the files, changed by one command at a time.
pub struct TrustedSites {
    site: SiteDirectory,
    directory: PathBuf,
    _lock: Option<File>,
}

impl TrustedSites {
    /// To look at.
    pub fn read_only(site: &SiteDirectory) -> TrustedSites {
        TrustedSites {
            directory: site.root().join(DIRECTORY),
            site: site.clone(),
            _lock: None,
        }
    }

    /// To change. Makes the directory; waits for nobody.
    pub fn of(site: &SiteDirectory) -> Result<TrustedSites, CommandError> {
        let directory = site.root().join(DIRECTORY);
        let local = |why: std::io::Error| CommandError::local(directory.display(), why);
        make_directory(&directory, 0o700).map_err(local)?;
        let lock = File::open(&directory).map_err(local)?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(CommandError::Local(format!(
                "another command is changing the trusted sites of {}; try again when it has finished",
                site.root().display()
            )));
        }
        Ok(TrustedSites {
            directory,
            site: site.clone(),
            _lock: Some(lock),
        })
    }

    fn path(&self, name: &SiteName) -> PathBuf {
        self.directory.join(format!("{name}.json"))
    }

    /// All of them, by name. Errors: a file that is there and cannot be read.
    pub fn all(&self) -> Result<Vec<TrustedSite>, CommandError> {
        let local = |why: std::io::Error| CommandError::local(self.directory.display(), why);
        let entries = match std::fs::read_dir(&self.directory) {
            Ok(entries) => entries,
            Err(why) if why.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(why) => return Err(local(why)),
        };
        let mut all = Vec::new();
        for entry in entries {
            let path = entry.map_err(local)?.path();
            if path.extension().is_some_and(|ending| ending == "json") {
                all.push(read(&path)?);
            }
        }
        all.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(all)
    }

    /// The one of this name.
    pub fn named(&self, name: &SiteName) -> Result<Option<TrustedSite>, CommandError> {
        match self.path(name) {
            path if path.exists() => read(&path).map(Some),
            _ => Ok(None),
        }
    }

    /// A name that no other site has: this one, or with a number behind it.
    fn unused_name(&self, wanted: SiteName, url: &str) -> Result<SiteName, CommandError> {
        let all = self.all()?;
        let is_free = |name: &SiteName| {
            let taken = all.iter().find(|site| site.name == *name);
            taken.is_none_or(|site| site.url == url)
        };
        if is_free(&wanted) {
            return Ok(wanted);
        }
        let whole = wanted.to_string();
        let stem: String = whole.chars().take(SITE_NAME_CHARS_MAX - 5).collect();
        let numbered = (2..10_000_u32).map(|number| format!("{stem}-{number}"));
        let mut numbered = numbered.filter_map(|name| name.parse().ok());
        let free = numbered.find(is_free);
        free.ok_or_else(|| CommandError::Usage(format!("too many sites have the name '{wanted}'")))
    }

    /// Fills in since when it is trusted, and what of it is there by hand: present, and not there for a site that is kept here.
    pub fn with_before(
        &self,
        config: &Config,
        mut wanted: TrustedSite,
        authorities: &[ForeignAuthority],
    ) -> Result<TrustedSite, CommandError> {
        let all = self.all()?;
        let by_hand = |texts: &[String], present: &[String], place: ListOfSite| {
            let is_by_hand = |text: &&String| {
                let mut managed = all.iter();
                let is_managed = managed.any(|site| {
                    (place.needed)(site).contains(text)
                        && !(place.before)(&site.before).contains(*text)
                });
                present.contains(text) && !is_managed
            };
            let found: BTreeSet<String> = texts.iter().filter(is_by_hand).cloned().collect();
            found
        };
        let allowed = config.storage.as_ref().map(|role| &role.outbound.allow[..]);
        let servers = by_hand(&wanted.servers, allowed.unwrap_or_default(), SERVERS);
        let present = &config.trust.private_addresses;
        let private_addresses = by_hand(&wanted.private_addresses, present, PRIVATE_ADDRESSES);
        let issuer = wanted.issuer.as_ref().is_some_and(|issuer| {
            let is_managed = all
                .iter()
                .any(|site| site.issuer.as_ref() == Some(issuer) && !site.before.issuer);
            let mut present = config.trust.issuers.iter();
            present.any(|present| present.issuer == *issuer) && !is_managed
        });
        let directory = self.site.resolve(&config.trust.certificates);
        let mut installed = BTreeSet::new();
        for authority in authorities {
            let fingerprint = hex(&authority.fingerprint());
            let is_managed = all.iter().any(|site| {
                site.has_authority(&fingerprint) && !site.before.authorities.contains(&fingerprint)
            });
            if !is_managed && authority.file_in(&directory).map_err(of_pki)?.is_some() {
                installed.insert(fingerprint);
            }
        }
        let known = all.iter().find(|site| site.name == wanted.name);
        wanted.added_at = known.map_or_else(wall_clock, |known| known.added_at);
        wanted.before = BeforeTrust {
            issuer,
            servers,
            private_addresses,
            authorities: installed,
        };
        Ok(wanted)
    }

    /// Keeps what is meant.
    pub fn keep(&self, wanted: &TrustedSite) -> Result<(), CommandError> {
        let path = self.path(&wanted.name);
        let text = serde_json::to_string_pretty(wanted).expect("plain data serialises");
        replace_private(&path, &text).map_err(|why| CommandError::local(path.display(), why))
    }

    /// Forgets one for which nothing is there any more.
    fn forget(&self, name: &SiteName) -> Result<(), CommandError> {
        let path = self.path(name);
        let removed = std::fs::remove_file(&path);
        removed
            .and_then(|()| sync_directory(&self.directory))
            .map_err(|why| CommandError::local(path.display(), why))
    }

    /// Keeps that `init --peer` lets two sites whose directories are here trust each other.
    pub fn keep_peer(
        &self,
        peer: &SiteDirectory,
        config: &Config,
        acquaintance: &Acquaintance,
    ) -> Result<(), CommandError> {
        let own = self.site.config()?;
        let pem = std::fs::read_to_string(peer.ca_certificate())
            .map_err(|why| CommandError::local(peer.ca_certificate().display(), why))?;
        let authority = ForeignAuthority::parse(&pem).map_err(of_pki)?;
        let url = config.door_url().or(config.service_url());
        let url = url.unwrap_or_default();
        let name = SiteName::like(&config.site.name).or_else(|| "site".parse().ok());
        let name = name
            .ok_or_else(|| CommandError::Usage("the other site has no usable name".to_owned()))?;
        let issuer = acquaintance.issuer.as_ref();
        let wanted = TrustedSite {
            name: self.unused_name(name, &url)?,
            site_name: config.site.name.clone(),
            url,
            added_at: wall_clock(),
            authorities: vec![TrustedAuthority::of(&authority).map_err(of_pki)?],
            certified_by: None,
            host_subject: String::new(),
            issuer: issuer.map(|issuer| issuer.issuer.clone()),
            key_fingerprints: Vec::new(),
            rights: SiteRights::All,
            prefix: issuer.map(|issuer| issuer.prefix.clone()),
            vo: issuer.and_then(|issuer| issuer.vo.clone()),
            servers: acquaintance.servers.clone(),
            private_addresses: acquaintance.private_addresses.clone(),
            before: BeforeTrust::default(),
        };
        let wanted = self.with_before(&own, wanted, &[authority])?;
        self.keep(&wanted)
    }

    /// The configuration as it would be with this site trusted, and without what a site of this name had before.
    pub fn text_with(&self, text: &str, wanted: &TrustedSite) -> Result<String, CommandError> {
        let text = match self.named(&wanted.name)? {
            Some(known) => self.text_without(text, &known)?,
            None => text.to_owned(),
        };
        let edited = with_acquaintance(&text, &wanted.acquaintance());
        edited.map_err(|why| self.cannot_edit(&why))
    }

    /// The same without it: what nobody else needs of what it has brought.
    pub fn text_without(&self, text: &str, known: &TrustedSite) -> Result<String, CommandError> {
        let all = self.all()?;
        let others: Vec<&TrustedSite> = all.iter().filter(|site| site.name != known.name).collect();
        let removable = |texts: &[String], place: ListOfSite| {
            let before = (place.before)(&known.before);
            let is_needed = |text: &String| {
                others
                    .iter()
                    .any(|site| (place.needed)(site).contains(text))
            };
            let is_removable = |text: &&String| !before.contains(*text) && !is_needed(text);
            let found: Vec<String> = texts.iter().filter(is_removable).cloned().collect();
            found
        };
        let stays = known.before.issuer || others.iter().any(|site| site.issuer == known.issuer);
        let brought = Acquaintance {
            issuer: known.acquaintance().issuer.filter(|_| !stays),
            servers: removable(&known.servers, SERVERS),
            private_addresses: removable(&known.private_addresses, PRIVATE_ADDRESSES),
        };
        without_acquaintance(text, &brought).map_err(|why| self.cannot_edit(&why))
    }

    /// What of a site stays when it is taken back, because it was there before or others need it.
    pub fn staying(&self, known: &TrustedSite) -> Result<Vec<StayingItem>, CommandError> {
        let all = self.all()?;
        let others: Vec<&TrustedSite> = all.iter().filter(|site| site.name != known.name).collect();
        let item = |kind, value: &str, was_there: bool, needs: &dyn Fn(&TrustedSite) -> bool| {
            let needed_by = others.iter().filter(|site| needs(site));
            let needed_by: Vec<SiteName> = needed_by.map(|site| site.name.clone()).collect();
            let value = value.to_owned();
            (was_there || !needed_by.is_empty()).then_some(StayingItem {
                kind,
                value,
                needed_by,
            })
        };
        let authorities = known.authorities.iter().filter_map(|authority| {
            let fingerprint = &authority.fingerprint;
            let was_there = known.before.authorities.contains(fingerprint);
            let needs = |site: &TrustedSite| site.has_authority(fingerprint);
            item(BroughtKind::Authority, fingerprint, was_there, &needs)
        });
        let issuer = known.issuer.iter().filter_map(|issuer| {
            let needs = |site: &TrustedSite| site.issuer.as_ref() == Some(issuer);
            item(BroughtKind::Issuer, issuer, known.before.issuer, &needs)
        });
        let in_list = |kind, place: ListOfSite| {
            let texts = (place.needed)(known).iter();
            let staying = texts.filter_map(move |text| {
                let was_there = (place.before)(&known.before).contains(text);
                let needs = |site: &TrustedSite| (place.needed)(site).contains(text);
                item(kind, text, was_there, &needs)
            });
            staying.collect::<Vec<_>>()
        };
        let mut staying: Vec<StayingItem> = authorities.chain(issuer).collect();
        staying.extend(in_list(BroughtKind::Server, SERVERS));
        staying.extend(in_list(BroughtKind::PrivateAddress, PRIVATE_ADDRESSES));
        Ok(staying)
    }

    fn cannot_edit(&self, why: &str) -> CommandError {
        CommandError::Usage(format!("{}: {why}", self.site.config_file().display()))
    }

    /// Does what is meant, after [`TrustedSites::keep`]: authorities, then the configuration. Gives the copy of the former one.
    pub fn put_in_effect(
        &self,
        wanted: &TrustedSite,
        authorities: &[ForeignAuthority],
        edit: &ConfigEdit,
    ) -> Result<Option<PathBuf>, CommandError> {
        let directory = self.site.resolve(&edit.config.trust.certificates);
        for authority in authorities {
            let installed = authority.install(&directory, &wanted.host_subject);
            installed.map_err(of_pki)?;
        }
        edit.put_in_place(&self.site)
    }

    /// Takes it back: the configuration, then authorities that no other site needs, then the file about it. Gives those
    /// authorities.
    pub fn take_back(
        &self,
        known: &TrustedSite,
        edit: &ConfigEdit,
    ) -> Result<Vec<TrustedAuthority>, CommandError> {
        edit.put_in_place(&self.site)?;
        let all = self.all()?;
        let directory = self.site.resolve(&edit.config.trust.certificates);
        let mut removed = Vec::new();
        for authority in &known.authorities {
            let fingerprint = &authority.fingerprint;
            let mut others = all.iter().filter(|site| site.name != known.name);
            if others.any(|site| site.has_authority(fingerprint))
                || known.before.authorities.contains(fingerprint)
            {
                continue;
            }
            let parsed = ForeignAuthority::parse(&authority.pem).map_err(of_pki)?;
            if parsed.remove_from(&directory).map_err(of_pki)? {
                removed.push(authority.clone());
            }
        }
        self.forget(&known.name)?;
        Ok(removed)
    }
}

/// A list in the configuration, as sites need it and as it was before.
#[derive(Clone, Copy)]
struct ListOfSite {
    needed: fn(&TrustedSite) -> &[String],
    before: fn(&BeforeTrust) -> &BTreeSet<String>,
}

const SERVERS: ListOfSite = ListOfSite {
    needed: |site| &site.servers,
    before: |before| &before.servers,
};
const PRIVATE_ADDRESSES: ListOfSite = ListOfSite {
    needed: |site| &site.private_addresses,
    before: |before| &before.private_addresses,
};

#[cfg(test)]
mod tests {
    use super::*;

    fn site(name: &str, server: &str) -> TrustedSite {
        TrustedSite {
            servers: vec![format!("{name}:8443"), server.to_owned()],
            ..TrustedSite::example(name)
        }
    }

    fn sites() -> (tempfile::TempDir, TrustedSites) {
        let made = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(made.path().join("certificates")).expect("made");
        let directory = SiteDirectory::at(made.path()).expect("a path");
        let sites = TrustedSites::of(&directory).expect("made");
        assert!(TrustedSites::of(&directory).is_err(), "one at a time");
        (made, sites)
    }

    /// What copies may reach, which addresses, and how many issuers there are.
    fn trusted(text: &str) -> (Vec<String>, Vec<String>, usize) {
        let config = Config::parse(text).expect(text);
        let allowed = config.storage.expect("there").outbound.allow;
        let trust = config.trust;
        (allowed, trust.private_addresses, trust.issuers.len())
    }

    const TEXT: &str = "# first\n[site]\nname = \"here\"\nhosts = [\"127.0.0.2\"]\n[trust]\n# second\n\
        private_addresses = []\n[storage]\nlisten = \"127.0.0.2:8443\"\n[[storage.pool]]\nname = \"disk1\"\n\
        path = \"pools/disk1\"\n[storage.outbound]\nallow = [\"by-hand:8443\"] # third\n";

    #[test]
    fn what_two_sites_share_goes_with_the_last_of_them_and_what_was_there_stays() {
        let (_made, sites) = sites();
        let (mut text, mut all) = (TEXT.to_owned(), Vec::new());
        let mut both = [site("one", "by-hand:8443"), site("two", "both:8443")];
        both[0].servers.push("both:8443".to_owned());
        for wanted in both {
            let config = Config::parse(&text).expect("valid");
            let wanted = sites.with_before(&config, wanted, &[]).expect("looked");
            text = sites.text_with(&text, &wanted).expect("edited");
            sites.keep(&wanted).expect("kept");
            all.push(wanted);
        }
        assert_eq!(sites.all().expect("read"), all);
        let private = vec!["10.0.0.1:8443".to_owned()];
        let servers = |names: &[&str]| -> Vec<String> {
            names.iter().map(|name| format!("{name}:8443")).collect()
        };
        let expected = servers(&["by-hand", "one", "both", "two"]);
        assert_eq!(trusted(&text), (expected, private.clone(), 2));
        // Nobody is told that all of it is gone.
        let staying = sites.staying(&all[0]).expect("read").into_iter();
        let staying: Vec<_> = staying
            .map(|item| {
                let sites: Vec<String> = item.needed_by.iter().map(SiteName::to_string).collect();
                (item.kind, item.value, sites.join(","))
            })
            .collect();
        let item = |kind, value: &str, sites: &str| (kind, value.to_owned(), sites.to_owned());
        assert_eq!(
            staying,
            [
                item(BroughtKind::Server, "by-hand:8443", ""),
                item(BroughtKind::Server, "both:8443", "two"),
                item(BroughtKind::PrivateAddress, "10.0.0.1:8443", "two"),
            ]
        );
        let left = sites.text_without(&text, &all[0]).expect("edited");
        sites.forget(&all[0].name).expect("forgotten");
        let expected = servers(&["by-hand", "both", "two"]);
        assert_eq!(trusted(&left), (expected, private, 1));
        let nothing = sites.text_without(&left, &all[1]).expect("edited");
        assert_eq!(trusted(&nothing), (servers(&["by-hand"]), Vec::new(), 0));
        for comment in ["# first", "# second", "# third"] {
            assert!(nothing.contains(comment), "{nothing}");
        }
    }

    #[test]
    fn an_issuer_or_an_authority_that_another_site_has_is_told_to_stay() {
        let (_made, sites) = sites();
        let one = TrustedSite {
            authorities: vec![TrustedAuthority::example("ab")],
            servers: Vec::new(),
            private_addresses: Vec::new(),
            ..site("one", "x:1")
        };
        let two = TrustedSite {
            name: "two".parse().expect("a name"),
            ..one.clone()
        };
        sites.keep(&one).expect("kept");
        assert_eq!(sites.staying(&one).expect("read"), []);
        sites.keep(&two).expect("kept");
        let staying = sites.staying(&one).expect("read");
        let kinds: Vec<BroughtKind> = staying.iter().map(|item| item.kind).collect();
        assert_eq!(kinds, [BroughtKind::Authority, BroughtKind::Issuer]);
        assert!(
            staying
                .iter()
                .all(|item| item.needed_by == [two.name.clone()])
        );
        // Also what somebody had trusted by hand.
        let before = BeforeTrust {
            issuer: true,
            ..BeforeTrust::default()
        };
        let alone = TrustedSite {
            before,
            ..site("alone", "x:1")
        };
        let staying = sites.staying(&alone).expect("read");
        assert!(
            staying
                .iter()
                .any(|item| item.kind.is_trust() && item.needed_by.is_empty())
        );
    }

    #[test]
    fn changed_rights_take_the_place_of_those_before() {
        let (_made, sites) = sites();
        let first = site("one", "x:8443");
        let with = sites.text_with(TEXT, &first).expect("edited");
        sites.keep(&first).expect("kept");
        let second = TrustedSite {
            rights: SiteRights::Write,
            servers: vec!["one:8443".to_owned()],
            ..first.clone()
        };
        let config = Config::parse(&with).expect("valid");
        let second = sites.with_before(&config, second, &[]).expect("looked");
        assert_eq!(
            (second.added_at, &second.before),
            (first.added_at, &first.before)
        );
        let changed = sites.text_with(&with, &second).expect("edited");
        let issuers = Config::parse(&changed).expect("valid").trust.issuers;
        assert_eq!(issuers.len(), 1);
        assert_eq!(issuers[0].rights, SiteRights::Write.rights());
        assert_eq!(trusted(&changed).0, ["by-hand:8443", "one:8443"]);
    }

    #[test]
    fn a_file_under_another_name_is_not_believed() {
        let (_made, sites) = sites();
        sites.keep(&site("one", "x:1")).expect("kept");
        let of = |name: &str| sites.path(&name.parse().expect("a name"));
        std::fs::rename(of("one"), of("two")).expect("renamed");
        assert!(sites.all().is_err());
        std::fs::write(of("two"), "{").expect("written");
        assert!(sites.all().is_err());
    }
}
