//! Certificates of authorities that another site has sent: what a person compares of them, whether they may come beside those
//! that are trusted already, and how they get into a hashed directory and out of it.

use super::{PkiError, in_file, place, read_certificate, slash_form, timestamp};
use openssl::sha::sha256;
use openssl::x509::X509;
use penstock_model::Timestamp;
use std::fs;
use std::path::{Path, PathBuf};

/// Where our own authorities sign: below their site's organisation.
const OWN_AUTHORITIES: &str = "/DC=penstock/O=";

/// The certificate of an authority, as somebody else has sent it.
#[derive(Clone)]
pub struct ForeignAuthority {
    certificate: X509,
    subject: String,
    fingerprint: [u8; 32],
    ends: Timestamp,
}

impl ForeignAuthority {
    /// Takes one over. Errors: its subject cannot stand in a signing policy.
    pub fn of(certificate: X509) -> Result<ForeignAuthority, PkiError> {
        Ok(ForeignAuthority {
            subject: slash_form(certificate.subject_name())?,
            fingerprint: sha256(&certificate.to_der()?),
            ends: timestamp(certificate.not_after())?,
            certificate,
        })
    }

    /// Reads the one certificate of a text.
    pub fn parse(pem: &str) -> Result<ForeignAuthority, PkiError> {
        let certificate = X509::from_pem(pem.as_bytes()).map_err(|why| PkiError::Content {
            path: "what was sent".into(),
            what: "certificate",
            why,
        })?;
        ForeignAuthority::of(certificate)
    }

    /// SHA-256 of the certificate, as `openssl x509 -fingerprint -sha256` tells it.
    pub fn fingerprint(&self) -> [u8; 32] {
        self.fingerprint
    }

    /// In slash form.
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// Until when it is valid.
    pub fn ends(&self) -> Timestamp {
        self.ends
    }

    /// As PEM.
    pub fn pem(&self) -> Result<String, PkiError> {
        let pem = self.certificate.to_pem()?;
        Ok(String::from_utf8_lossy(&pem).into_owned())
    }

    /// Below which name our own authorities sign; `None`: it is another one.
    fn organisation(&self) -> Option<&str> {
        organisation_of(&self.subject)
    }

    /// Which subjects its signing policy lets it sign here: those of its site, or the host of this subject alone. It does not
    /// become an authority for users of others.
    pub fn permitted(&self, host_subject: &str) -> String {
        match self.organisation() {
            Some(organisation) => format!("{organisation}/*"),
            None => host_subject.to_owned(),
        }
    }

    /// The file of an authority in a hashed directory that could be taken for this one, or for which this one could sign.
    pub fn rival_in(&self, directory: &Path) -> Result<Option<PathBuf>, PkiError> {
        for (path, other) in certificates_in(directory)? {
            let same_name = other.subject == self.subject;
            let same_site = self.organisation().is_some()
                && organisation_of(&other.subject) == self.organisation();
            if (same_name || same_site) && other.fingerprint != self.fingerprint {
                return Ok(Some(path));
            }
        }
        Ok(None)
    }

    /// The file that holds it in a hashed directory.
    pub fn file_in(&self, directory: &Path) -> Result<Option<PathBuf>, PkiError> {
        let same = |(path, other): (PathBuf, ForeignAuthority)| {
            (other.fingerprint == self.fingerprint).then_some(path)
        };
        Ok(certificates_in(directory)?.into_iter().find_map(same))
    }

    /// Puts it into a hashed directory, with a policy by which it signs only what [`ForeignAuthority::permitted`] tells.
    pub fn install(&self, directory: &Path, host_subject: &str) -> Result<PathBuf, PkiError> {
        let is_writable = !host_subject.is_empty()
            && !host_subject.contains(['\'', '"', '*'])
            && !host_subject.chars().any(char::is_control);
        if self.organisation().is_none() && !is_writable {
            let why = "it cannot be written into a signing policy";
            return Err(PkiError::Name(host_subject.to_owned(), why));
        }
        let permitted = self.permitted(host_subject);
        let policy = format!(
            "access_id_CA      X509         '{}'\n\
             pos_rights        globus       CA:sign\n\
             cond_subjects     globus       '\"{permitted}\"'\n",
            self.subject
        );
        place(&self.certificate, &policy, directory)
    }

    /// Takes it out of a hashed directory, with its policy. Tells whether it was there.
    pub fn remove_from(&self, directory: &Path) -> Result<bool, PkiError> {
        let Some(path) = self.file_in(directory)? else {
            return Ok(false);
        };
        let hash = format!("{:08x}", self.certificate.subject_name_hash());
        let numbered = |number: u32| directory.join(format!("{hash}.{number}"));
        let mut last = 0;
        while numbered(last + 1).exists() {
            last += 1;
        }
        // Readers look at .0, .1, … until one is missing, so the last one takes the free place.
        let removed = match numbered(last) {
            last if last == path => fs::remove_file(&path),
            last => fs::rename(&last, &path),
        };
        removed.map_err(in_file(&path))?;
        if !numbered(0).exists() {
            let policy = directory.join(format!("{hash}.signing_policy"));
            match fs::remove_file(&policy) {
                Err(why) if why.kind() != std::io::ErrorKind::NotFound => {
                    return Err(in_file(&policy)(why));
                }
                Ok(()) | Err(_) => {}
            }
        }
        let synced = fs::File::open(directory).and_then(|opened| opened.sync_all());
        synced.map_err(in_file(directory))?;
        Ok(true)
    }
}

fn organisation_of(subject: &str) -> Option<&str> {
    let (above, _) = subject.rsplit_once('/')?;
    let name = above.strip_prefix(OWN_AUTHORITIES)?;
    (!name.is_empty() && !name.contains(['/', '*', '\'', '"'])).then_some(above)
}

/// The authorities of a hashed directory. Files that hold none are left out, as those who trust the directory leave them out.
fn certificates_in(directory: &Path) -> Result<Vec<(PathBuf, ForeignAuthority)>, PkiError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(in_file(directory))? {
        let path = entry.map_err(in_file(directory))?.path();
        let ending = path.extension().and_then(|ending| ending.to_str());
        let is_numbered = ending.is_some_and(|ending| {
            !ending.is_empty() && ending.bytes().all(|byte| byte.is_ascii_digit())
        });
        if (is_numbered || ending == Some("pem"))
            && let Ok(certificate) = read_certificate(&path)
            && let Ok(authority) = ForeignAuthority::of(certificate)
        {
            found.push((path, authority));
        }
    }
    found.sort_by(|one, other| one.0.cmp(&other.0));
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::super::{HOST_LIFETIME, create_ca, install_ca, issue_host_certificate};
    use super::*;

    fn authority(directory: &Path, name: &str) -> ForeignAuthority {
        let made = create_ca(&directory.join(name), name).expect("made");
        ForeignAuthority::of(made.certificate().clone()).expect("its subject can be written")
    }

    #[test]
    fn an_authority_comes_and_goes_and_signs_for_its_own_site_only() {
        let made = tempfile::tempdir().expect("a directory");
        let trusted = made.path().join("certificates");
        fs::create_dir(&trusted).expect("made");
        let (one, other) = (
            authority(made.path(), "one"),
            authority(made.path(), "other"),
        );
        assert_eq!(one.rival_in(&trusted).expect("read"), None);
        let path = one.install(&trusted, "/CN=ignored").expect("installed");
        assert_eq!(one.install(&trusted, "/CN=ignored").expect("again"), path);
        other.install(&trusted, "/CN=ignored").expect("installed");
        assert_eq!(one.file_in(&trusted).expect("read"), Some(path.clone()));
        let policy = fs::read_to_string(path.with_extension("signing_policy")).expect("there");
        assert!(policy.contains("'\"/DC=penstock/O=one/*\"'"), "{policy}");
        assert!(one.remove_from(&trusted).expect("removed"));
        assert!(!one.remove_from(&trusted).expect("nothing"));
        assert!(!path.exists() && !path.with_extension("signing_policy").exists());
        assert!(other.file_in(&trusted).expect("read").is_some());
    }

    #[test]
    fn an_authority_that_could_be_taken_for_a_trusted_one_is_told() {
        let made = tempfile::tempdir().expect("a directory");
        let trusted = made.path().join("certificates");
        let one = create_ca(&made.path().join("a"), "site").expect("made");
        let installed = install_ca(&made.path().join("a/ca.pem"), &trusted).expect("installed");
        let same = ForeignAuthority::of(one.certificate().clone()).expect("written");
        assert_eq!(same.rival_in(&trusted).expect("read"), None);
        let impostor = create_ca(&made.path().join("b"), "site").expect("made");
        let impostor = ForeignAuthority::of(impostor.certificate().clone()).expect("written");
        assert_eq!(impostor.rival_in(&trusted).expect("read"), Some(installed));
    }

    #[test]
    fn readers_find_what_stays_when_one_of_several_of_a_hash_goes() {
        let made = tempfile::tempdir().expect("a directory");
        let trusted = made.path().join("certificates");
        fs::create_dir(&trusted).expect("made");
        let installed = |name: &str| {
            let made = create_ca(&made.path().join(name), "site").expect("made");
            let found = ForeignAuthority::of(made.certificate().clone()).expect("written");
            found.install(&trusted, "/CN=ignored").expect("installed");
            found
        };
        let all = ["a", "b", "c"].map(installed);
        assert!(all[0].remove_from(&trusted).expect("removed"));
        let names = |authority: &ForeignAuthority| {
            let path = authority.file_in(&trusted).expect("read").expect("there");
            path.extension()
                .expect("numbered")
                .to_string_lossy()
                .into_owned()
        };
        let mut left = [names(&all[1]), names(&all[2])];
        left.sort();
        assert_eq!(left, ["0", "1"]);
    }

    #[test]
    fn the_authority_of_another_program_may_sign_that_host_only() {
        let made = tempfile::tempdir().expect("a directory");
        let trusted = made.path().join("certificates");
        fs::create_dir(&trusted).expect("made");
        let ca = create_ca(&made.path().join("ca"), "x").expect("made");
        let hosts = ["se.example.org".to_owned()];
        issue_host_certificate(&ca, &hosts, HOST_LIFETIME, made.path()).expect("issued");
        // A host certificate stands for one whose subject is not below our own.
        let host = read_certificate(&made.path().join("cert.pem")).expect("read");
        let mut foreign = ForeignAuthority::of(host).expect("written");
        foreign.subject = "/O=lab/CN=lab CA".to_owned();
        assert_eq!(foreign.permitted("/O=lab/CN=se"), "/O=lab/CN=se");
        for bad in ["", "/O=lab/*", "/CN=a'", "/CN=a\n"] {
            assert!(foreign.install(&trusted, bad).is_err(), "{bad}");
        }
        assert!(ForeignAuthority::parse("no certificate").is_err());
    }
}
