//! Which VOMS servers a site knows: a directory per VO with lists of names (`<vo>/<host>.lsc`), or, as it was
//! done before those, with the servers' certificates (`<vo>/*.pem`). Read whenever attributes are judged, so
//! that a change counts at once.

use super::VomsError;
use crate::x509::{comparable_name, slash_form};
use openssl::x509::X509;
use penstock_model::VoName;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

/// The longest file of this directory that is read.
const FILE_BYTES_MAX: u64 = 64 << 10;
/// Files looked at in one VO's directory.
const FILES_MAX: usize = 256;
/// A server, and who vouches for it.
const NAMES_MIN: usize = 2;
const NEXT_CHAIN: &str = "NEXT CHAIN";

/// The VOMS servers that a site knows, and the names by which it is itself known.
#[derive(Debug, Clone)]
pub struct VomsServers {
    directory: PathBuf,
    hosts: Vec<String>,
}

/// How one server is known.
pub(super) enum ServerTrust {
    /// By its name and its authority's.
    Names(NameList),
    /// By certificates, one of which may be its own; the file that would name it instead.
    Certificates(Vec<X509>, PathBuf),
}

/// A list of certificates (LSC): the subjects from the server upward. A file may hold several.
pub(super) struct NameList {
    path: PathBuf,
    chains: Vec<Vec<String>>,
}

impl VomsServers {
    /// `directory` as `X509_VOMS_DIR` names it; `hosts`: this site's names and addresses, for attributes that
    /// are meant for some services only.
    pub fn new(directory: &Path, hosts: &[String]) -> VomsServers {
        VomsServers {
            directory: directory.to_owned(),
            hosts: hosts.to_vec(),
        }
    }

    /// Without the directory, nobody's attributes are looked at.
    pub(crate) fn exist(&self) -> bool {
        self.directory.is_dir()
    }

    /// How the server `host` of `vo` is known. Both must be harmless in a path.
    pub(super) fn known(&self, vo: &str, host: &str) -> Result<ServerTrust, VomsError> {
        let of_vo = self.directory.join(vo);
        let lsc = of_vo.join(format!("{host}.lsc"));
        if VoName::new(vo).is_derived() {
            return Err(VomsError::UnknownVo(vo.to_owned(), lsc));
        }
        if lsc.exists() {
            return NameList::read(&lsc).map(ServerTrust::Names);
        }
        let entries = match std::fs::read_dir(&of_vo) {
            Err(why) if why.kind() == ErrorKind::NotFound => {
                return Err(VomsError::UnknownVo(vo.to_owned(), lsc));
            }
            entries => entries.map_err(|why| unusable(&of_vo, &why))?,
        };
        let mut certificates = Vec::new();
        for entry in entries.take(FILES_MAX) {
            let path = entry.map_err(|why| unusable(&of_vo, &why))?.path();
            if path.extension().is_some_and(|ending| ending == "pem") {
                certificates.push(certificate(&path)?);
            }
        }
        Ok(ServerTrust::Certificates(certificates, lsc))
    }

    /// What is wrong with the directory, each as one sentence that names the file.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for path in files_below(&self.directory) {
            let problem = match path.extension().and_then(|ending| ending.to_str()) {
                Some("lsc") => NameList::read(&path).err(),
                Some("pem") => certificate(&path).err(),
                Some(_) | None => None,
            };
            problems.extend(problem.map(|why| why.to_string()));
        }
        problems
    }

    /// Whether a target is this site: a name or address of it, or a URL of one.
    pub(super) fn is_here(&self, target: &str) -> bool {
        let rest = target.split_once("://").map_or(target, |(_, rest)| rest);
        let authority = rest.split('/').next().unwrap_or_default();
        let host = match authority
            .strip_prefix('[')
            .and_then(|v6| v6.split_once(']'))
        {
            Some((v6, _)) => v6,
            None => authority.split(':').next().unwrap_or_default(),
        };
        self.hosts.iter().any(|own| own.eq_ignore_ascii_case(host))
    }
}

impl NameList {
    /// Errors: a list that no server could fit, because it names no authority.
    fn read(path: &Path) -> Result<NameList, VomsError> {
        let list = NameList::parse(path.to_owned(), &read(path)?);
        match list.chains.iter().any(|chain| chain.len() >= NAMES_MIN) {
            true => Ok(list),
            false => Err(unusable(
                path,
                &"it needs the subject of the server's certificate and, below, that of its authority",
            )),
        }
    }

    fn parse(path: PathBuf, text: &str) -> NameList {
        let mut chains = vec![Vec::new()];
        for line in text.lines().map(str::trim) {
            match line {
                "" => {}
                _ if line.starts_with('#') => {}
                _ if line.contains(NEXT_CHAIN) => chains.push(Vec::new()),
                // Some write subject and issuer of each certificate, so that names between stand twice.
                _ => {
                    let name = comparable_name(line);
                    let chain: &mut Vec<String> = chains.last_mut().expect("there is always one");
                    if chain.last() != Some(&name) {
                        chain.push(name);
                    }
                }
            }
        }
        NameList { path, chains }
    }

    /// That one of the lists names the certificates of `path`, from the server's on. A server without its
    /// authority would be whoever any authority gives that name to.
    pub(super) fn check(&self, path: &[X509]) -> Result<(), VomsError> {
        let mut names: Vec<String> = Vec::new();
        for certificate in path {
            let name = slash_form(certificate.subject_name());
            names.push(comparable_name(
                &name.map_err(|why| VomsError::Signer(why.to_string()))?,
            ));
        }
        let fits = |chain: &Vec<String>| chain.len() >= NAMES_MIN && names.starts_with(chain);
        match self.chains.iter().any(fits) {
            true => Ok(()),
            false => Err(VomsError::OtherSigner {
                signer: names.first().cloned().unwrap_or_default(),
                lsc: self.path.clone(),
            }),
        }
    }
}

/// All files of all VOs.
fn files_below(directory: &Path) -> Vec<PathBuf> {
    let entries = |directory: &Path| {
        let entries = std::fs::read_dir(directory).into_iter().flatten();
        entries.filter_map(|entry| Some(entry.ok()?.path()))
    };
    let mut files: Vec<PathBuf> = entries(directory).flat_map(|vo| entries(&vo)).collect();
    files.sort();
    files
}

fn certificate(path: &Path) -> Result<X509, VomsError> {
    let certificate = X509::from_pem(read(path)?.as_bytes());
    certificate.map_err(|_| unusable(path, &"it holds no certificate"))
}

fn read(path: &Path) -> Result<String, VomsError> {
    let file = File::open(path).map_err(|why| unusable(path, &why))?;
    let mut text = String::new();
    let read = file.take(FILE_BYTES_MAX).read_to_string(&mut text);
    read.map_err(|why| unusable(path, &why))?;
    Ok(text)
}

fn unusable(path: &Path, why: &dyn std::fmt::Display) -> VomsError {
    VomsError::Unusable {
        path: path.to_owned(),
        why: why.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_name_an_address_or_a_url_of_the_site() {
        let servers = VomsServers::new(Path::new("/none"), &["se.org".into(), "::1".into()]);
        for here in [
            "se.org",
            "SE.org",
            "https://se.org:8443/x",
            "https://[::1]:1/",
            "se.org:8443",
        ] {
            assert!(servers.is_here(here), "{here}");
        }
        for elsewhere in ["other.org", "se.org.evil", "https://evil/se.org", ""] {
            assert!(!servers.is_here(elsewhere), "{elsewhere}");
        }
    }

    #[test]
    fn both_ways_to_write_a_chain_are_the_same_list() {
        let chains = |text: &str| NameList::parse(PathBuf::new(), text).chains;
        let upward =
            chains("/CN=voms\n/CN=sub\n/CN=root\n------ NEXT CHAIN ------\n/CN=b\n/CN=root\n");
        let pairs = chains(
            "# old\n/CN=voms\n/CN=sub\n/CN=sub\n/CN=root\n\n------ NEXT CHAIN ------\n/CN=b\n/CN=root",
        );
        assert_eq!(upward, pairs);
        assert_eq!(upward[0], ["/CN=voms", "/CN=sub", "/CN=root"]);
    }
}
