//! Certificates of authorities that another site has sent: what a person compares of them, whether they may come beside those
//! that are trusted already, and how they get into a hashed directory and out of it.

use super::hashed_directory::{Policy, authorities_in, file_of, hash_of, place};
use super::{NAME_CHARS_SHOWN, PkiError, check_site_name, in_file, replace, slash_form, timestamp};
use crate::x509::{has_look_of, signing_policy};
use openssl::sha::sha256;
use openssl::x509::X509;
use penstock_model::Timestamp;
use std::cmp::Ordering;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Characters of the subject of an authority that was sent. Those of the field have a hundred.
const SUBJECT_CHARS_MAX: usize = 256;
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

    /// Reads the one certificate of a text, as a stranger's.
    pub fn parse(pem: &str) -> Result<ForeignAuthority, PkiError> {
        let certificate = X509::from_pem(pem.as_bytes()).map_err(|why| PkiError::Content {
            path: "what was sent".into(),
            what: "certificate",
            why,
        })?;
        let read = ForeignAuthority::of(certificate)?;
        match read.subject.chars().count() > SUBJECT_CHARS_MAX {
            true => {
                let shown = read.subject.chars().take(NAME_CHARS_SHOWN).collect();
                Err(PkiError::Name(shown, "it is longer than 256 characters"))
            }
            false => Ok(read),
        }
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

    /// Whether it is none that `init` makes, so that it may sign for one host alone.
    pub fn is_for_host_only(&self) -> bool {
        self.organisation().is_none()
    }

    /// Which subjects its signing policy lets it sign here: those of its site, or the host of this subject alone. It does not
    /// become an authority for users of others.
    pub fn permitted(&self, host_subject: &str) -> String {
        match self.organisation() {
            Some(organisation) => format!("{organisation}/*"),
            None => host_subject.to_owned(),
        }
    }

    /// Whether that policy lets it sign this subject.
    pub fn would_sign(&self, host_subject: &str, subject: &str) -> bool {
        match self.organisation() {
            Some(organisation) => subject
                .strip_prefix(organisation)
                .is_some_and(|below| below.starts_with('/')),
            None => subject == host_subject,
        }
    }

    /// The file of an authority in a hashed directory that could be taken for this one, or for which this one could sign.
    pub fn rival_in(&self, directory: &Path) -> Result<Option<PathBuf>, PkiError> {
        let is_same = |one: &str, other: &str| one == other || has_look_of(one, other);
        let name = self.certificate.subject_name();
        for installed in authorities_in(directory)? {
            let other = installed.certificate.subject_name();
            // One whose name cannot be written is compared as OpenSSL compares it.
            let subject = slash_form(other).unwrap_or_default();
            let sites = site_part(&self.subject).zip(site_part(&subject));
            let is_rival = other.try_cmp(name)? == Ordering::Equal
                || is_same(&subject, &self.subject)
                || sites.is_some_and(|(own, other)| is_same(own, other));
            if is_rival && sha256(&installed.certificate.to_der()?) != self.fingerprint {
                return Ok(Some(installed.path));
            }
        }
        Ok(None)
    }

    /// The file that holds it in a hashed directory.
    pub fn file_in(&self, directory: &Path) -> Result<Option<PathBuf>, PkiError> {
        file_of(&self.certificate, directory)
    }

    /// Errors: in a hashed directory, in which the authority is not as yet, is something that lets an authority of its name sign
    /// something else than [`ForeignAuthority::permitted`] tells, such as what is left of one that was removed by hand; or an
    /// authority that could sign nothing any more.
    pub fn check_policies(&self, directory: &Path, host_subject: &str) -> Result<(), PkiError> {
        match self.file_in(directory)? {
            Some(_) => Ok(()),
            None => self
                .policy(host_subject)
                .check(directory, &hash_of(&self.certificate)),
        }
    }

    fn beside(&self, directory: &Path, ending: &str) -> PathBuf {
        let hash = hash_of(&self.certificate);
        directory.join(format!("{hash}.{ending}"))
    }

    fn policy(&self, host_subject: &str) -> Policy {
        Policy {
            authority: self.subject.clone(),
            signs: self.permitted(host_subject),
        }
    }

    /// Puts it into a hashed directory, with a policy by which it signs only what [`ForeignAuthority::permitted`] tells. What is
    /// there stays as it is.
    ///
    /// Errors: the subject of the host cannot stand there as itself; those of [`ForeignAuthority::check_policies`].
    pub fn install(&self, directory: &Path, host_subject: &str) -> Result<PathBuf, PkiError> {
        if self.is_for_host_only()
            && !is_literal(host_subject)
            && self.file_in(directory)?.is_none()
        {
            let why = "it cannot be written into a signing policy";
            return Err(PkiError::Name(host_subject.to_owned(), why));
        }
        place(
            &self.certificate,
            Some(&self.policy(host_subject)),
            directory,
        )
    }

    /// Puts it alone into a hashed directory that is read for servers only.
    pub fn save_in(&self, directory: &Path) -> Result<PathBuf, PkiError> {
        place(&self.certificate, None, directory)
    }

    /// Takes it out of a hashed directory, with its policy. Tells whether it was there.
    pub fn remove_from(&self, directory: &Path) -> Result<bool, PkiError> {
        let Some(path) = self.file_in(directory)? else {
            return Ok(false);
        };
        let numbered = |number: u32| self.beside(directory, &number.to_string());
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
        let policy = self.beside(directory, "signing_policy");
        let removed = match numbered(0).exists() {
            true => self.withdraw_policy(directory, &policy),
            false => fs::remove_file(&policy).map_err(in_file(&policy)),
        };
        match removed {
            Err(PkiError::File { why, .. }) if why.kind() == ErrorKind::NotFound => {}
            other => other?,
        }
        let synced = fs::File::open(directory).and_then(|opened| opened.sync_all());
        synced.map_err(in_file(directory))?;
        Ok(true)
    }

    /// Takes out of a policy file what it says of this authority, unless another one of the same name stays.
    fn withdraw_policy(&self, directory: &Path, policy: &Path) -> Result<(), PkiError> {
        for other in authorities_in(directory)? {
            if slash_form(other.certificate.subject_name()).ok() == Some(self.subject.clone()) {
                return Ok(());
            }
        }
        let present = fs::read_to_string(policy).map_err(in_file(policy))?;
        let (entries, rest) = signing_policy::entries_of(&present, &self.subject);
        match entries.is_empty() {
            true => Ok(()),
            false => replace(policy, format!("{}\n", rest.join("\n")).as_bytes()),
        }
    }
}

/// Below which name an authority of ours signs. A name that `init` gives to none may mean more to who reads a policy.
fn organisation_of(subject: &str) -> Option<&str> {
    let above = site_part(subject)?;
    let name = above.strip_prefix(OWN_AUTHORITIES)?;
    check_site_name(name).is_ok().then_some(above)
}

/// What the names of all that an authority of ours signs have in common, and those that people take for them.
fn site_part(subject: &str) -> Option<&str> {
    let (above, _) = subject.rsplit_once('/')?;
    let start = above.get(..OWN_AUTHORITIES.len())?;
    start.eq_ignore_ascii_case(OWN_AUTHORITIES).then_some(above)
}

/// Whether a subject stands for itself alone in a signing policy, by whatever program that is read.
fn is_literal(subject: &str) -> bool {
    let has_meaning = |c: char| c.is_control() || "'\"*?[]\\".contains(c);
    // Several blanks pass for one.
    let blanks = ["  ", " /", "/ ", "= "];
    let is_plain = !blanks.iter().any(|blanks| subject.contains(blanks)) && !subject.ends_with(' ');
    subject.starts_with('/') && is_plain && !subject.contains(has_meaning)
}

/// Whether a subject in slash form is that of this host: its last name is the host's, with `host/` before it or without.
pub fn names_host(subject: &str, host: &str) -> bool {
    let last = subject.rsplit_once("/CN=").map(|(_, last)| last);
    let name = last.map(|last| last.strip_prefix("host/").unwrap_or(last));
    !host.is_empty() && name.is_some_and(|name| name.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use super::super::{
        HOST_LIFETIME, HOST_RSA_BITS, create_ca, digest_for, install_ca, issue_host_certificate,
        read_certificate, set_validity, started,
    };
    use super::*;
    use openssl::pkey::PKey;
    use openssl::rsa::Rsa;
    use openssl::x509::X509NameBuilder;

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
        for bad in [
            "", "se", "/O=lab/*", "/O=l?b", "/O=[a-z]", "/CN=a\\", "/CN=a'", "/CN=a\n",
        ] {
            assert!(foreign.install(&trusted, bad).is_err(), "{bad}");
        }
        assert!(foreign.would_sign("/O=lab/CN=se", "/O=lab/CN=se"));
        assert!(!foreign.would_sign("/O=lab/CN=se", "/O=lab/CN=se/CN=x"));
        assert!(ForeignAuthority::parse("no certificate").is_err());
    }

    /// An authority with a subject that `init` would not make.
    fn stranger(names: &[(&str, &str)]) -> ForeignAuthority {
        let key = PKey::from_rsa(Rsa::generate(HOST_RSA_BITS).expect("made")).expect("a key");
        let mut name = X509NameBuilder::new().expect("a name");
        for (kind, value) in names {
            name.append_entry_by_text(kind, value).expect("valid");
        }
        let name = name.build();
        let mut builder = started(&name, &name, &key).expect("started");
        set_validity(&mut builder, HOST_LIFETIME, None).expect("set");
        builder.sign(&key, digest_for(&key)).expect("signed");
        ForeignAuthority::of(builder.build()).expect("written")
    }

    #[test]
    fn the_name_of_an_authority_stands_for_nobody_else() {
        let made = tempfile::tempdir().expect("a directory");
        for organisation in [
            "n?rth", "?????", "n[o]rth", "n\\orth", "n*", "north,x", "nörth",
        ] {
            let names = [("DC", "penstock"), ("O", organisation), ("CN", "x CA")];
            let hostile = stranger(&names);
            assert!(hostile.is_for_host_only(), "{organisation}");
            let subject = "/O=evil/CN=evil.example.org";
            let path = hostile.install(made.path(), subject).expect("installed");
            let policy = fs::read_to_string(path.with_extension("signing_policy")).expect("there");
            for user in [
                "/DC=penstock/O=north/CN=alice",
                "/DC=penstock/O=north/CN=north CA",
            ] {
                assert!(
                    !signing_policy::permits(&policy, hostile.subject(), user),
                    "{policy}"
                );
            }
            assert!(signing_policy::permits(&policy, hostile.subject(), subject));
            assert!(hostile.remove_from(made.path()).expect("removed"));
        }
        let north = stranger(&[("DC", "penstock"), ("O", "north"), ("CN", "north CA")]);
        north.install(made.path(), "").expect("installed");
        let shouting = stranger(&[("DC", "penstock"), ("O", "NORTH"), ("CN", "x CA")]);
        assert!(shouting.rival_in(made.path()).expect("read").is_some());
    }

    #[test]
    fn a_policy_that_was_left_never_counts_for_a_new_authority_of_the_same_name() {
        let made = tempfile::tempdir().expect("a directory");
        let withdrawn = stranger(&[("O", "grid"), ("CN", "grid CA")]);
        let path = withdrawn
            .install(made.path(), "/O=grid/CN=se")
            .expect("installed");
        let left = path.with_extension("signing_policy");
        let own = fs::read_to_string(&left).expect("there");
        fs::remove_file(&path).expect("removed by hand");
        let hostile = stranger(&[("O", "grid"), ("CN", "grid CA")]);
        let check_refused = |text: &str| {
            fs::write(&left, text).expect("written");
            let checked = hostile.check_policies(made.path(), "/O=grid/CN=se");
            assert!(
                matches!(checked, Err(PkiError::LeftPolicy { .. })),
                "{text}"
            );
            let refused = hostile.install(made.path(), "/O=grid/CN=se");
            assert!(
                matches!(refused, Err(PkiError::LeftPolicy { .. })),
                "{text}"
            );
            assert!(!path.exists() && fs::read_to_string(&left).expect("there") == text);
        };
        check_refused(&own.replace("/O=grid/CN=se", "*"));
        // Whatever it says: no authority of that hash is there, so it is of none.
        check_refused(&own.replace("grid", "other"));
        check_refused("");
        // What an installation leaves that was cut off.
        fs::write(&left, &own).expect("written");
        hostile
            .install(made.path(), "/O=grid/CN=se")
            .expect("installed");
        assert!(hostile.remove_from(made.path()).expect("removed") && !left.exists());
        // And the form that outranks it.
        let namespaces = path.with_extension("namespaces");
        fs::write(&namespaces, "TO Issuer SELF PERMIT Subject \".*\"\n").expect("written");
        let refused = hostile.install(made.path(), "/O=grid/CN=se");
        let why = refused.expect_err("refused").to_string();
        assert!(why.contains("namespaces"), "{why}");
    }

    #[test]
    fn a_policy_is_found_however_the_name_in_it_is_written() {
        for written in [
            "/O=M\\xC3\\xBCller/CN=W CA",
            "/O=M\\xc3\\xbcller/CN=W CA",
            "/O=Müller/CN=W CA",
        ] {
            let made = tempfile::tempdir().expect("a directory");
            let hostile = stranger(&[("O", "Müller"), ("CN", "W CA")]);
            assert_eq!(hostile.subject(), "/O=M\\xC3\\xBCller/CN=W CA");
            let policy = hostile.beside(made.path(), "signing_policy");
            let text = format!(
                "access_id_CA X509 '{written}'\npos_rights globus CA:sign\ncond_subjects globus '\"*\"'\n"
            );
            fs::write(&policy, text).expect("written");
            // Another authority of the hash is there, for which the file may be.
            let other = stranger(&[("O", "other"), ("CN", "CA")]);
            fs::write(policy.with_extension("0"), other.pem().expect("PEM")).expect("written");
            let refused = hostile.install(made.path(), "/O=lab/CN=se");
            assert!(
                matches!(refused, Err(PkiError::LeftPolicy { .. })),
                "{written}"
            );
        }
    }

    #[test]
    fn one_attribute_never_reads_like_several() {
        let hostile = std::panic::catch_unwind(|| stranger(&[("DC", "penstock/O=t/CN=t CA")]));
        assert!(hostile.is_err(), "its subject cannot be written");
        let long = stranger(&[("O", &"x".repeat(60)), ("OU", &"x".repeat(60)), ("CN", "x")]);
        let pem = long.pem().expect("PEM");
        assert!(ForeignAuthority::parse(&pem).is_ok());
        let units: Vec<(&str, String)> = (0..5).map(|_| ("OU", "x".repeat(60))).collect();
        let units: Vec<(&str, &str)> = units
            .iter()
            .map(|(kind, text)| (*kind, text.as_str()))
            .collect();
        let pem = stranger(&units).pem().expect("PEM");
        let why = ForeignAuthority::parse(&pem)
            .err()
            .expect("too long")
            .to_string();
        assert!(why.contains("longer than 256") && why.len() < 200, "{why}");
    }

    #[test]
    fn an_authority_without_a_policy_is_not_locked_out_by_that_of_another_one() {
        let made = tempfile::tempdir().expect("a directory");
        let trusted = stranger(&[("DC", "penstock"), ("O", "e 4b"), ("CN", "e 4b CA")]);
        let hostile = stranger(&[("DC", "penstock"), ("O", "e  4b"), ("CN", "e  4b CA")]);
        // OpenSSL takes the two for one name.
        let path = trusted.beside(made.path(), "0");
        assert_eq!(path, hostile.beside(made.path(), "0"));
        assert!(hostile.is_for_host_only(), "of no site that `init` makes");
        fs::write(&path, trusted.pem().expect("PEM")).expect("copied by hand");
        assert_eq!(
            hostile.rival_in(made.path()).expect("read").as_ref(),
            Some(&path)
        );
        let refused = hostile.install(made.path(), "/O=lab/CN=se");
        assert!(matches!(refused, Err(PkiError::WithoutPolicy { .. })));
        // Nor do policies that look like one another say the same.
        let policy = path.with_extension("signing_policy");
        fs::write(&policy, trusted.policy("").text()).expect("written");
        let refused = hostile.install(made.path(), "/O=lab/CN=se");
        assert!(matches!(refused, Err(PkiError::LeftPolicy { .. })));
        // A name of another site of which the subject of a host only reminds.
        let stranger = stranger(&[("O", "lab"), ("CN", "lab CA")]);
        for look_alike in ["/DC=penstock/O=e  4b/CN=se", "/O=a /CN=se", "/O= a/CN=se"] {
            assert!(
                stranger.install(made.path(), look_alike).is_err(),
                "{look_alike}"
            );
        }
    }

    #[test]
    fn the_policy_of_an_authority_goes_with_it_and_that_of_others_stays() {
        let made = tempfile::tempdir().expect("a directory");
        let goes = stranger(&[("O", "grid"), ("CN", "grid CA")]);
        let path = goes
            .install(made.path(), "/O=grid/CN=se")
            .expect("installed");
        // Names with one hash are not easily found, so another authority is said to have it.
        let policy = path.with_extension("signing_policy");
        let other = "access_id_CA X509 '/O=other/CN=CA'\ncond_subjects globus '\"/O=other/*\"'\n";
        let own = fs::read_to_string(&policy).expect("there");
        fs::write(&policy, format!("# first\n{own}\n{other}")).expect("written");
        let stays = stranger(&[("O", "other"), ("CN", "CA")]);
        fs::write(path.with_extension("1"), stays.pem().expect("PEM")).expect("written");
        assert!(goes.remove_from(made.path()).expect("removed"));
        let left = fs::read_to_string(&policy).expect("there");
        assert!(left.contains("# first") && left.contains(other), "{left}");
        assert!(!left.contains("grid"), "{left}");
    }

    #[test]
    fn the_subject_of_a_host_ends_with_its_name() {
        let check = |subject: &str, expected: bool| {
            assert_eq!(names_host(subject, "se.example.org"), expected, "{subject}");
        };
        check("/CN=se.example.org", true);
        check("/DC=ch/O=x/CN=host/SE.example.org", true);
        check("/DC=ch/OU=Users/CN=bob", false);
        check("/DC=ch/OU=Users/CN=bob/CN=se.example.org.evil", false);
        check("/CN=se.example.org/CN=bob", false);
        check("/CN=xse.example.org", false);
        check("", false);
        assert!(!names_host("/CN=", ""));
    }
}
