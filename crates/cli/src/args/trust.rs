//! What can be typed to let sites trust each other.

use super::site::namespace_path;
use clap::{Args, Subcommand, ValueEnum};
use penstock_model::{NamespacePath, Right};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use url::Url;

/// Characters of a name under which a site is kept.
pub const SITE_NAME_CHARS_MAX: usize = 64;

/// What `trust` does.
#[derive(Debug, Subcommand)]
pub enum TrustCommand {
    /// Show what others must know of this site: its fingerprints, and the command for them to run.
    #[command(
        after_help = "Examples:\n  penstock trust show --dir cern\n  penstock trust show --dir cern --json"
    )]
    Show(TrustShowArgs),
    /// Trust another site: fetch what it tells of itself, show the fingerprints, ask, and put it in effect.
    #[command(after_help = "Examples:\n  \
        penstock trust add --dir cern https://se.in2p3.fr:8443\n  \
        penstock trust add --dir cern https://se.in2p3.fr:8443 --rights read --prefix /data\n  \
        penstock trust add --dir cern https://se.in2p3.fr:8443 --rights write --prefix / --vo atlas \\\n      \
        --fingerprint 4F:0A:…          # unattended, and sure\n\n\
        Nothing that comes from a site whose certificate is not trusted is used before you have confirmed its authority. Compare the \
        fingerprint with what `penstock trust show` prints there, told by another way than this network. Without --rights, tokens \
        of the other site allow nothing here. Run it again to change rights. A running service takes the change over. The former \
        penstock.toml stays as penstock.toml.before.")]
    Add(TrustAddArgs),
    /// List the sites that are trusted, and whether each still is who it was.
    #[command(
        after_help = "Examples:\n  penstock trust list --dir cern\n  penstock trust list --dir cern --offline --json\n\n\
        Exits with 0, with 5 when a site cannot be reached, and with 6 when one has another authority than was trusted."
    )]
    List(TrustListArgs),
    /// Trust a site no longer: take back all that `trust add` did for it, and nothing else.
    #[command(after_help = "Example:\n  penstock trust remove --dir cern in2p3")]
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
    /// Under which name it is kept here. Default: what it calls itself.
    #[arg(long)]
    pub name: Option<SiteName>,
    /// What its tokens can do here, as far as their scopes go. Whoever has one that can do something may also submit jobs to this
    /// site's transfer service. Default: asked, else none.
    #[arg(long, value_name = "RIGHTS")]
    pub rights: Option<SiteRights>,
    /// Below which directory they can do that; paths in their scopes are relative to it. `/`: everywhere. Needed with --rights
    /// other than none.
    #[arg(long, value_name = "PATH", value_parser = namespace_path)]
    pub prefix: Option<NamespacePath>,
    /// As members of which VO its users count here. Default: a VO of their own, with the name under which the site is kept.
    #[arg(long)]
    pub vo: Option<String>,
    /// Do not ask: whoever answers at this URL is believed.
    #[arg(long)]
    pub yes: bool,
    /// Do not ask: the SHA-256 fingerprint that its authority must have. Repeat it for further authorities, or for keys of
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
    /// Ask no site.
    #[arg(long)]
    pub offline: bool,
}

/// Options of `trust remove`.
#[derive(Debug, Args)]
pub struct TrustRemoveArgs {
    /// As `trust list` names it.
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
                "'{text}' cannot name a site here: use 1 to {SITE_NAME_CHARS_MAX} letters, digits, '-', '_' or '.', the first a \
                 letter or digit"
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
    /// Nothing. Copies to and from that site work for whoever may do that with this site's own tokens.
    None,
    /// Read files.
    Read,
    /// Read, write and delete files.
    Write,
    /// The same, and ask for files on tape.
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
