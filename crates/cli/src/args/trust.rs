//! What can be typed to let sites trust each other.

use super::site::namespace_path;
use clap::{Args, Subcommand, ValueEnum};
use penstock_model::{NamespacePath, Right};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use url::Url;

/// Characters of a name under which a site is kept.
pub const SITE_NAME_CHARS_MAX: usize = 64;

/// What `trust` does.
#[derive(Debug, Subcommand)]
pub enum TrustCommand {
    /// Show what other sites need: the fingerprints of this site, and the command to run there.
    #[command(
        after_help = "Examples:\n  penstock trust show --dir cern\n  penstock trust show --dir cern --json"
    )]
    Show(TrustShowArgs),
    /// Trust another site: fetch its site document, show the fingerprints, ask, and apply the change.
    #[command(after_help = "Examples:\n  \
        penstock trust add --dir cern https://se.in2p3.fr:8443\n  \
        penstock trust add --dir cern https://se.in2p3.fr:8443 --rights read --prefix /data\n  \
        penstock trust add --dir cern https://se.in2p3.fr:8443 --rights write --prefix / --vo atlas \\\n      \
        --fingerprint 4F:0A:…          # without a question\n\n\
        Nothing from a site whose certificate is not yet trusted is used before you have confirmed its authority. Compare the \
        fingerprint with the output of `penstock trust show` there, over another channel than this network. Without --rights, \
        tokens of the other site allow nothing here. Run the command again to change rights. A running service applies the \
        change. The previous penstock.toml is kept as penstock.toml.before.\n\n\
        An address that is not public is allowed with the port in the URL, if the URL has the address itself, or you confirm it \
        when asked. Give any other one with --private-address.")]
    Add(TrustAddArgs),
    /// List trusted sites, and check that each still has the authority that was trusted.
    #[command(
        after_help = "Examples:\n  penstock trust list --dir cern\n  penstock trust list --dir cern --offline --json\n\n\
        Exit code 5: a site cannot be reached. Exit code 6: a site has a different authority than the one that was trusted."
    )]
    List(TrustListArgs),
    /// Stop trusting a site: undo what `trust add` did for it, and nothing else.
    #[command(after_help = "Example:\n  penstock trust remove --dir cern in2p3\n\n\
        What was there before, or what another trusted site needs as well, stays and is listed. Exit code 6: the token issuer or \
        an authority of the site is still trusted for such a reason.")]
    Remove(TrustRemoveArgs),
}

/// Options of `trust show`.
#[derive(Debug, Args)]
pub struct TrustShowArgs {
    /// The site directory.
    #[arg(long)]
    pub dir: PathBuf,
}

/// Options of `trust add`.
#[derive(Debug, Args)]
pub struct TrustAddArgs {
    /// The other site: the URL of its storage door or its transfer service. Without a port, 8443, 8446 and 443 are tried.
    #[arg(value_name = "URL")]
    pub url: Url,
    /// The site directory of this site.
    #[arg(long)]
    pub dir: PathBuf,
    /// The name of the site here. Default: the name in its site document.
    #[arg(long)]
    pub name: Option<SiteName>,
    /// What its tokens allow here, within their scopes. Holders of tokens with any right may also submit jobs to this site's
    /// transfer service. Default: the answer to a question, without a terminal none.
    #[arg(long, value_name = "RIGHTS")]
    pub rights: Option<SiteRights>,
    /// The directory below which the rights apply; paths in scopes are relative to it. `/` is everywhere. Required with
    /// --rights other than none.
    #[arg(long, value_name = "PATH", value_parser = namespace_path)]
    pub prefix: Option<NamespacePath>,
    /// The VO of its users here. Default: a separate VO, NAME@HOST.
    #[arg(long)]
    pub vo: Option<String>,
    /// An address and port of the other site to allow although it is not public, such as 10.0.0.5:8443; repeat it for more.
    #[arg(long = "private-address", value_name = "ADDRESS:PORT")]
    pub private_addresses: Vec<SocketAddr>,
    /// Allow copies with its storage door without TLS as well, if it has one.
    #[arg(long)]
    pub plain: bool,
    /// Do not ask: trust whichever site answers at this URL.
    #[arg(long)]
    pub yes: bool,
    /// Do not ask: the SHA-256 fingerprint that its authority must have, also if that is already trusted here; repeat it for keys of
    /// its issuer.
    #[arg(long = "fingerprint", value_name = "SHA-256")]
    pub fingerprints: Vec<String>,
}

/// Options of `trust list`.
#[derive(Debug, Args)]
pub struct TrustListArgs {
    /// The site directory.
    #[arg(long)]
    pub dir: PathBuf,
    /// Do not contact the sites.
    #[arg(long)]
    pub offline: bool,
}

/// Options of `trust remove`.
#[derive(Debug, Args)]
pub struct TrustRemoveArgs {
    /// The name of the site in `trust list`.
    pub name: SiteName,
    /// The site directory.
    #[arg(long)]
    pub dir: PathBuf,
}

/// Under which name a site is kept: the stem of a file, so it holds nothing that could lead elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SiteName(String);

impl SiteName {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What a site calls itself, with '-' for what cannot stand in such a name; `None`: nothing is left of it.
    pub fn like(text: &str) -> Option<SiteName> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let name = text.chars().map(|c| if allowed(c) { c } else { '-' });
        let name: String = name.take(SITE_NAME_CHARS_MAX).collect();
        name.trim_matches(['-', '.', '_']).parse().ok()
    }
}

impl FromStr for SiteName {
    type Err = String;

    fn from_str(text: &str) -> Result<SiteName, String> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let is_name = !text.is_empty()
            && text.len() <= SITE_NAME_CHARS_MAX
            && text.chars().all(allowed)
            && text.starts_with(|c: char| c.is_ascii_alphanumeric());
        match is_name {
            true => Ok(SiteName(text.to_owned())),
            false => Err(format!(
                "'{text}' is not a valid name of a site: use 1 to {SITE_NAME_CHARS_MAX} letters, digits, '-', '_' or '.', beginning \
                 with a letter or digit"
            )),
        }
    }
}

impl TryFrom<String> for SiteName {
    type Error = String;

    fn try_from(text: String) -> Result<SiteName, String> {
        text.parse()
    }
}

impl From<SiteName> for String {
    fn from(name: SiteName) -> String {
        name.0
    }
}

impl fmt::Display for SiteName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// What tokens of another site can do here, as one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum SiteRights {
    /// Nothing. Copies to and from that site still work for users of this site's own tokens.
    None,
    /// Read files.
    Read,
    /// Read, write and delete files.
    Write,
    /// Read, write and delete files, and recall files from tape.
    All,
}

impl SiteRights {
    pub fn rights(self) -> Vec<Right> {
        match self {
            SiteRights::None => Vec::new(),
            SiteRights::Read => vec![Right::Read],
            SiteRights::Write => vec![Right::Read, Right::Create, Right::Modify],
            SiteRights::All => Right::ALL.to_vec(),
        }
    }

    /// As it is typed.
    pub fn word(self) -> &'static str {
        match self {
            SiteRights::None => "none",
            SiteRights::Read => "read",
            SiteRights::Write => "write",
            SiteRights::All => "all",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_nowhere_else() {
        for bad in [
            "", ".", "..", "../x", "a/b", ".hidden", "-x", "a b", "ä", "a\n",
        ] {
            assert!(bad.parse::<SiteName>().is_err(), "{bad:?}");
        }
        assert!("a".repeat(65).parse::<SiteName>().is_err());
        let like = |text: &str| SiteName::like(text).map(|name| name.to_string());
        assert_eq!(like("north"), Some("north".to_owned()));
        assert_eq!(like("../../etc/x y"), Some("etc-x-y".to_owned()));
        assert_eq!(like("München 1"), Some("M-nchen-1".to_owned()));
        assert_eq!(like(".."), None);
        assert_eq!(like(&"a".repeat(99)), Some("a".repeat(64)));
    }
}
