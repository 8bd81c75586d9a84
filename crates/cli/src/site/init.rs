//! `penstock init`: makes a site directory, complete enough to be served at once, and never overwrites
//! anything.

use crate::args::InitArgs;
use crate::exit::CommandError;
use crate::output::Output;
use crate::site::acquaintance::{
    Acquaintance, KnownServers, TokenGrant, addresses_of, ports_of, private_addresses, servers,
};
use crate::site::config::{Config, in_url};
use crate::site::config_file::{NewSite, introduce, render};
use crate::site::directory::SiteDirectory;
use crate::site::issuer::renew_admin;
use crate::site::keys::RingFiles;
use crate::site::own_document;
use crate::site::trusted_sites::TrustedSites;
use penstock_model::{NamespacePath, Right};
use penstock_persistence::sealing::SealingKeys;
use penstock_protocol::macaroon::RootKeys;
use penstock_protocol::pki::{self, CertificateAuthority, PkiError};
use serde::Serialize;
use std::fs::OpenOptions;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use uuid::Uuid;

/// What was made.
#[derive(Debug, Serialize)]
pub struct InitReport {
    /// The directory.
    pub dir: String,
    /// The site's name.
    pub name: String,
    /// URL of its WebDAV door, without a path.
    pub door: String,
    /// URL of its transfer service, without a path.
    pub service: String,
    /// Where the owner's token is.
    pub admin_token_file: String,
    /// Its hashed CA directory.
    pub certificates: String,
    /// Names of the sites that it knows.
    pub peers: Vec<String>,
    /// What a person should look at.
    pub warnings: Vec<String>,
    /// What to do next, in this order.
    pub next: Vec<NextStep>,
}

/// A command to run after a site was made.
#[derive(Debug, Serialize)]
pub struct NextStep {
    /// What for.
    pub purpose: &'static str,
    /// For a shell. Words in capitals are to be replaced.
    pub command: String,
}

/// `penstock init`.
pub fn run(args: &InitArgs, output: Output) -> Result<(), CommandError> {
    let made = create(args)?;
    output.show(&made, || text(&made, args));
    Ok(())
}

/// Makes a site, or nothing.
pub fn create(args: &InitArgs) -> Result<InitReport, CommandError> {
    let site = SiteDirectory::to_change(&args.dir)?;
    let new = decide(args, &site)?;
    let peers = args
        .peers
        .iter()
        .map(|dir| Peer::open(dir))
        .collect::<Result<Vec<_>, _>>()?;
    if peers.iter().any(|peer| {
        peer.config
            .issuer
            .as_ref()
            .is_some_and(|issuer| issuer.url == new.issuer)
    }) {
        return Err(CommandError::Usage(format!(
            "both sites have the URL {}; give this site its own address with --host",
            new.issuer
        )));
    }
    let existing_ca = args.ca.as_deref().map(ExistingCa::open).transpose()?;
    let made_root = claim_directory(site.root())?;
    if let Err(why) = make(&site, &new, existing_ca.as_ref()).and_then(|()| meet(&site, &peers)) {
        // Nothing was in it before, so all that is in it is ours.
        let _ = match made_root {
            true => std::fs::remove_dir_all(site.root()),
            false => clear_directory(site.root()),
        };
        return Err(why);
    }
    let config = site.config()?;
    let door = config.door_url().unwrap_or_default();
    let service = config.service_url().unwrap_or_default();
    Ok(InitReport {
        dir: site.root().display().to_string(),
        next: next_steps(args, &site, &door),
        door,
        service,
        admin_token_file: site.admin_token().display().to_string(),
        certificates: site
            .resolve(&config.trust.certificates)
            .display()
            .to_string(),
        peers: peers
            .iter()
            .map(|peer| peer.config.site.name.clone())
            .collect(),
        name: new.name,
        warnings: existing_ca.and_then(|ca| ca.warning).into_iter().collect(),
    })
}

fn decide(args: &InitArgs, site: &SiteDirectory) -> Result<NewSite, CommandError> {
    let directory = site
        .root()
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    let name = args
        .site
        .clone()
        .or(directory)
        .unwrap_or_else(|| "site".into());
    let valid = |c: char| c.is_ascii_alphanumeric() || "-_. ".contains(c);
    if name.is_empty() || name.len() > 40 || !name.chars().all(valid) {
        return Err(CommandError::Usage(format!(
            "'{name}' cannot name a site: use 1 to 40 letters (a to z), digits, blanks, '-', '_' or '.' with --site"
        )));
    }
    let hosts = match args.hosts.is_empty() {
        true => vec!["localhost".to_owned()],
        false => args.hosts.clone(),
    };
    if let Some(bad) = hosts.iter().find(|host| !is_host(host)) {
        return Err(CommandError::Usage(format!(
            "'{bad}' is neither a host name nor an IP address"
        )));
    }
    let address = listening_address(&hosts[0])?;
    let at = |offset: u16| SocketAddr::new(address, args.ports_base + offset);
    let mut addresses = addresses_of(&hosts);
    addresses.insert(address);
    let url_host = in_url(&hosts[0]);
    Ok(NewSite {
        allow: servers("", &hosts, args.ports_base),
        private_addresses: private_addresses(&addresses, &[args.ports_base].into()),
        name,
        issuer: format!("https://{url_host}:{}", args.ports_base),
        hosts,
        door: at(0),
        plain_door: at(1),
        service: at(3),
        pools: args.pools.clone(),
    })
}

fn is_host(text: &str) -> bool {
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    text.parse::<IpAddr>().is_ok() || (text.len() <= 253 && text.split('.').all(label))
}

/// Where the doors listen: the address itself, the loopback address that a name stands for, or else every
/// interface.
fn listening_address(host: &str) -> Result<IpAddr, CommandError> {
    if let Ok(address) = host.parse() {
        return Ok(address);
    }
    if host == "localhost" {
        return Ok(Ipv4Addr::LOCALHOST.into());
    }
    let unknown = |why: &dyn std::fmt::Display| {
        CommandError::Usage(format!(
            "host '{host}' cannot be resolved ({why}); give an IP address first, then the name"
        ))
    };
    let mut resolved = (host, 0)
        .to_socket_addrs()
        .map_err(|why| unknown(&why))?
        .peekable();
    if resolved.peek().is_none() {
        return Err(unknown(&"no address"));
    }
    let loopback = resolved
        .map(|address| address.ip())
        .find(IpAddr::is_loopback);
    Ok(loopback.unwrap_or(Ipv4Addr::UNSPECIFIED.into()))
}

/// Makes the directory, or accepts an empty one. Tells whether it was made.
fn claim_directory(root: &Path) -> Result<bool, CommandError> {
    let local = |why| CommandError::local(root.display(), why);
    match std::fs::read_dir(root) {
        Ok(mut entries) => match entries.next() {
            None => Ok(false),
            Some(_) => Err(CommandError::Usage(format!(
                "{} is not empty; nothing was changed. Choose a new directory, or edit the penstock.toml \
                 that is there",
                root.display()
            ))),
        },
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => {
            std::fs::create_dir_all(root).map_err(local)?;
            Ok(true)
        }
        Err(why) => Err(local(why)),
    }
}

fn clear_directory(root: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(root)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => std::fs::remove_dir_all(entry.path())?,
            false => std::fs::remove_file(entry.path())?,
        }
    }
    Ok(())
}

/// A certificate authority that a site takes over.
struct ExistingCa<'a> {
    dir: &'a Path,
    authority: CertificateAuthority,
    warning: Option<String>,
}

impl ExistingCa<'_> {
    fn open(dir: &Path) -> Result<ExistingCa<'_>, CommandError> {
        let authority = pki::open_ca(dir).map_err(|why| CommandError::Usage(why.to_string()))?;
        let key = dir.join("ca.key");
        let mode = std::fs::metadata(&key).map(|found| found.permissions().mode() & 0o777);
        let warning = mode.ok().filter(|mode| mode & 0o077 != 0).map(|mode| {
            let key = key.display();
            format!(
                "{key} can be read by others (mode {mode:03o}), and whoever reads it can be any host and user of this \
                 site; chmod 600 {key}"
            )
        });
        Ok(ExistingCa {
            dir,
            authority,
            warning,
        })
    }
}

fn make(
    site: &SiteDirectory,
    new: &NewSite,
    existing_ca: Option<&ExistingCa<'_>>,
) -> Result<(), CommandError> {
    let fail =
        |what: &'static str| move |why: &dyn std::fmt::Display| CommandError::local(what, why);
    for (name, mode) in [
        ("state", 0o700),
        ("keys", 0o700),
        ("host", 0o755),
        ("certificates", 0o755),
    ] {
        make_directory(&site.root().join(name), mode)?;
    }
    for pool in &new.pools {
        make_pool(&site.resolve(pool))?;
    }

    let made;
    let ca = match existing_ca {
        Some(existing) => {
            let saved = existing.authority.save(&site.ca());
            saved.map_err(|why| fail("cannot copy the CA")(&why))?;
            &existing.authority
        }
        None => {
            // Two CAs of one name would be taken for each other, hence the random part.
            let random = Uuid::new_v4().simple().to_string();
            let name = format!("{} {}", new.name, &random[..8]);
            made = pki::create_ca(&site.ca(), &name);
            made.as_ref()
                .map_err(|why| fail("cannot create the CA")(why))?
        }
    };
    let mut names = new.hosts.clone();
    let listening = new.door.ip();
    if !listening.is_unspecified() && !names.contains(&listening.to_string()) {
        names.push(listening.to_string());
    }
    let certificates = site.root().join("certificates");
    pki::issue_host_certificate(ca, &names, pki::HOST_LIFETIME, &site.root().join("host"))
        .map_err(|why| match (&why, existing_ca) {
            (PkiError::Refused { .. }, Some(existing)) => CommandError::Usage(format!(
                "cannot use the CA in {}: {why}",
                existing.dir.display()
            )),
            _ => fail("cannot issue the host certificate")(&why),
        })?;
    pki::install_ca(&site.ca_certificate(), &certificates)
        .map_err(|why| fail("cannot install the CA certificate")(&why))?;
    pki::create_signing_key(&site.root().join("keys/token-signing.pem"))
        .map_err(|why| fail("cannot create the token signing key")(&why))?;
    RootKeys::create(&site.root().join("keys/macaroon-root"))
        .map_err(|why| fail("cannot create the macaroon root key")(&why))?;
    SealingKeys::create(&site.root().join("keys/credential-encryption"))
        .map_err(|why| fail("cannot create the credential key")(&why))?;

    // Addresses of receivers of alerts may be secrets.
    write_new(&site.config_file(), &render(new), 0o600)?;
    if let Some(issuer) = &site.config()?.issuer {
        RingFiles::of(site, issuer).create()?;
    }
    renew_admin(site, None).map(drop)
}

/// A pool on a disk of its own may exist already; what is in it is its own affair.
fn make_pool(path: &Path) -> Result<(), CommandError> {
    let made = std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path);
    made.map_err(|why| CommandError::local(path.display(), why))
}

fn make_directory(path: &Path, mode: u32) -> Result<(), CommandError> {
    let made = std::fs::DirBuilder::new().mode(mode).create(path);
    made.map_err(|why| CommandError::local(path.display(), why))
}

fn write_new(path: &Path, text: &str, mode: u32) -> Result<(), CommandError> {
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|why| CommandError::local(path.display(), why))
}

/// A site made before, which the new one will know and be known by.
struct Peer {
    site: SiteDirectory,
    config: Config,
}

impl Peer {
    fn open(dir: &Path) -> Result<Peer, CommandError> {
        let site = SiteDirectory::to_change(dir)?;
        let config = site.config()?;
        match config.issuer.is_some() && site.ca_certificate().is_file() {
            true => Ok(Peer { site, config }),
            false => Err(CommandError::Usage(format!(
                "{} has no [issuer] or no ca/ca.pem of its own, so trust cannot be set up from here",
                site.root().display()
            ))),
        }
    }
}

/// What others learn about a site whose directory is here: its tokens may do everything, at the addresses by which others
/// reach it and those at which it listens.
fn acquaintance_of(config: &Config) -> Option<Acquaintance> {
    let issuer = config.issuer.as_ref()?;
    let doors = config.storage.iter().map(|storage| storage.listen.ip());
    let services = config.transfer.iter().map(|transfer| transfer.listen.ip());
    let mut addresses = addresses_of(&config.site.hosts);
    addresses.extend(doors.chain(services));
    let document = own_document::of_configuration(config, None);
    let grant = TokenGrant {
        prefix: NamespacePath::root(),
        vo: issuer.vo.clone(),
        rights: Right::ALL.to_vec(),
    };
    let known = KnownServers {
        hosts: config.site.hosts.clone(),
        private_addresses: private_addresses(&addresses, &ports_of(&document)),
        with_plain_door: true,
    };
    Some(Acquaintance::with(&document, known, Some(grant)))
}

/// Sets up trust both ways: CA, token issuer, allowed hosts.
fn meet(site: &SiteDirectory, peers: &[Peer]) -> Result<(), CommandError> {
    let config = site.config()?;
    let install = |from: &SiteDirectory, to: &SiteDirectory, into: &Config| {
        let certificates = to.resolve(&into.trust.certificates);
        pki::install_ca(&from.ca_certificate(), &certificates)
            .map(drop)
            .map_err(|why| {
                CommandError::local(
                    format_args!("cannot install the CA of {}", from.root().display()),
                    why,
                )
            })
    };
    let introduce_to = |to: &SiteDirectory, from: &SiteDirectory, other: &Config| {
        let Some(acquaintance) = acquaintance_of(other) else {
            return Ok(());
        };
        // First what is meant, so that it can be taken back whatever happens next.
        TrustedSites::of(to)?.keep_peer(from, other, &acquaintance)?;
        introduce(&to.config_file(), &acquaintance)
    };
    for peer in peers {
        introduce_to(site, &peer.site, &peer.config)?;
        introduce_to(&peer.site, site, &config)?;
        install(&peer.site, site, &config)?;
        install(site, &peer.site, &peer.config)?;
    }
    Ok(())
}

fn next_steps(args: &InitArgs, site: &SiteDirectory, door: &str) -> Vec<NextStep> {
    let dir = args.dir.display();
    let step = |purpose, command| NextStep { purpose, command };
    vec![
        step(
            "check the configuration, keys, certificates and ports",
            format!("penstock check --dir {dir}"),
        ),
        step(
            "run the site; it prints its addresses, then 'ready'",
            format!("penstock serve --dir {dir}"),
        ),
        step(
            "store a file",
            format!("penstock copy --dir {dir} FILE {door}/data/FILE"),
        ),
        step(
            "let others download it, by a link that ends",
            format!("penstock share --dir {dir} {door}/data/FILE --for 12h"),
        ),
        step(
            "list files",
            format!("penstock ls --dir {dir} -l {door}/data/"),
        ),
        step(
            "trust another site, to exchange data with it",
            format!("penstock trust add --dir {dir} https://OTHER:8443"),
        ),
        step(
            "have the transfer service copy a file to it",
            format!("penstock submit --dir {dir} {door}/data/FILE https://OTHER:8443/data/FILE"),
        ),
        step(
            "see why files of this job are queued or failed",
            format!("penstock explain --dir {dir} JOB"),
        ),
        step(
            "watch all transfers in a terminal",
            format!("penstock top --dir {dir}"),
        ),
        step(
            "watch them in a browser: prints a link that signs it in once",
            format!("penstock login-link --dir {dir} --admin"),
        ),
        step(
            "let gfal2, xrdcp, curl and the fts3 client trust the site",
            format!(
                "export X509_CERT_DIR={}",
                site.root().join("certificates").display()
            ),
        ),
        step(
            "get a token for them",
            format!("penstock token --dir {dir} --scope 'storage.read:/ storage.modify:/'"),
        ),
        step(
            "renew the administrator's token, admin.token, within 30 days",
            format!("penstock token --admin --dir {dir}"),
        ),
        step(
            "back up the databases and the configuration",
            format!("penstock backup --dir {dir} --to BACKUP"),
        ),
    ]
}

fn text(made: &InitReport, args: &InitArgs) -> String {
    let mut text = format!(
        "Created the site '{}' in {}\n\nNext:\n",
        made.name, made.dir
    );
    for step in &made.next {
        text += &format!("  # {}\n  {}\n", step.purpose, step.command);
    }
    for peer in &args.peers {
        text += &format!(
            "\nThis site and the one in {0} now trust each other: tokens of each site's issuer may read and write \
             everything at the other, as far as their scopes go (`prefix` and `rights` of [[trust.issuer]] in penstock.toml \
             narrow it). If that one runs: kill -HUP $(cat {0}/state/serve.lock)\n",
            peer.display()
        );
    }
    for warning in &made.warnings {
        text += &format!("\nwarning: {warning}\n");
    }
    if args.hosts.is_empty() {
        text += "\nIt listens on localhost, for this machine only. A site for others names its host: \
                 penstock init --dir NEW --host $(hostname -f)\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decided(hosts: &[&str]) -> Result<NewSite, String> {
        let args = InitArgs {
            dir: "/nowhere/cern".into(),
            site: None,
            hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
            ports_base: 9000,
            pools: vec!["pools/disk1".into()],
            peers: Vec::new(),
            ca: None,
        };
        let site = SiteDirectory::at(&args.dir).expect("a path");
        decide(&args, &site).map_err(|why| why.to_string())
    }

    #[test]
    fn a_site_listens_where_its_first_host_says() {
        let check = |hosts: &[&str], expected: (&str, &str)| {
            let new = decided(hosts).expect("valid");
            assert_eq!(
                (new.door.to_string().as_str(), new.issuer.as_str()),
                expected
            );
        };
        check(&[], ("127.0.0.1:9000", "https://localhost:9000"));
        check(
            &["127.0.0.2", "se.example.org"],
            ("127.0.0.2:9000", "https://127.0.0.2:9000"),
        );
        check(&["::1"], ("[::1]:9000", "https://[::1]:9000"));
        assert_eq!(decided(&[]).expect("valid").service.port(), 9003);
        assert_eq!(decided(&[]).expect("valid").name, "cern");
    }

    #[test]
    fn what_is_no_host_is_refused() {
        for bad in ["", "a b", "https://x", "-_-", "x..y"] {
            let why = decided(&[bad]).expect_err(bad);
            assert!(
                why.contains("neither a host name nor an IP address"),
                "{why}"
            );
        }
    }
}
