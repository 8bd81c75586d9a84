//! What of another site would make it more than a place of its own, so that it is not trusted: whatever its document says, it
//! may neither be taken for somebody else nor take over what belongs to others.

use super::contact::Contact;
use crate::exit::CommandError;
use crate::site::config::Config;
use crate::site::directory::SiteDirectory;
use crate::site::trusted_site::{TrustedSite, of_pki};
use penstock_model::text::hex;
use penstock_protocol::membership::subjects_in;
use penstock_protocol::pki::{ForeignAuthority, PkiError, names_host};
use penstock_protocol::x509::signers_of;
use std::path::Path;

/// A subject that only an authority for everybody may sign.
const ANYBODY: &str = "/CN=nobody in particular";

/// Errors: the document names an authority or an issuer that belongs to another site. It would stay trusted for this one when
/// that one is removed.
pub fn refuse_parts_of_others(
    contact: &Contact,
    authorities: &[ForeignAuthority],
    others: &[&TrustedSite],
) -> Result<(), CommandError> {
    for authority in authorities {
        let fingerprint = hex(&authority.fingerprint());
        let owner = others.iter().find(|site| site.has_authority(&fingerprint));
        if let Some(owner) = owner {
            let what = format!("the authority {}", authority.subject());
            return Err(belongs_to(contact, &what, owner));
        }
    }
    let issuer = contact.document.issuer.as_ref();
    let owner = issuer.and_then(|issuer| {
        let mut others = others.iter();
        others.find(|site| site.issuer.as_ref() == Some(&issuer.url))
    });
    match (owner, issuer) {
        (Some(owner), Some(issuer)) => {
            let what = format!("the token issuer {}", issuer.url);
            Err(belongs_to(contact, &what, owner))
        }
        _ => Ok(()),
    }
}

fn belongs_to(contact: &Contact, what: &str, owner: &TrustedSite) -> CommandError {
    CommandError::OtherSite(format!(
        "{} names {what}, which belongs to the site '{}' that is trusted already; nothing was changed. If both are one site, use \
         its URL {}, or remove it first: penstock trust remove {}",
        contact.url, owner.name, owner.url, owner.name
    ))
}

/// Errors: an authority that is not here as yet could certify somebody else than its own site, or than the one host that was
/// typed: its signing policy would be written, or completed, by what the other site has chosen.
pub fn refuse_names_of_others(
    contact: &Contact,
    authorities: &[ForeignAuthority],
    site: &SiteDirectory,
    config: &Config,
) -> Result<(), CommandError> {
    let directory = site.resolve(&config.trust.certificates);
    for authority in authorities {
        if authority.file_in(&directory).map_err(of_pki)?.is_some() {
            continue;
        }
        if authority.is_for_host_only() {
            refuse_other_subject(contact, authority, &directory)?;
        }
        let subject = &contact.sender.host_subject;
        let checked = authority.check_policies(&directory, subject);
        checked.map_err(|why| match why {
            PkiError::LeftPolicy { .. } | PkiError::WithoutPolicy { .. } => {
                CommandError::OtherSite(format!(
                    "the authority of {} cannot be put into trust.certificates: {why}; nothing was changed",
                    contact.url
                ))
            }
            other => of_pki(other),
        })?;
        for (section, dn, ca) in config.subject_rules() {
            if ca.is_none_or(|ca| ca == authority.subject()) {
                refuse_named(contact, authority, section, dn)?;
            }
        }
        if let Some(gridmap) = &config.trust.gridmap {
            // `penstock check` tells of one that cannot be read.
            for dn in subjects_in(&site.resolve(gridmap)).unwrap_or_default() {
                refuse_named(contact, authority, "trust.gridmap", &dn)?;
            }
        }
    }
    Ok(())
}

/// The subject of the host certificate must be that of the host that a person has typed, and of nobody for whom an authority
/// speaks that is trusted.
fn refuse_other_subject(
    contact: &Contact,
    authority: &ForeignAuthority,
    directory: &Path,
) -> Result<(), CommandError> {
    let (subject, host) = (&contact.sender.host_subject, &contact.host);
    if !names_host(subject, host) {
        return Err(CommandError::OtherSite(format!(
            "the authority {} may sign for its own host alone, and the subject of the certificate of {} is '{subject}', which \
             does not end with CN={host}; nothing was changed. Use the host name of the certificate in the URL, or install the \
             authority by hand",
            authority.subject(),
            contact.url
        )));
    }
    // Who may sign anybody says nothing of this one.
    let for_anybody = signers_of(directory, ANYBODY);
    let signers = signers_of(directory, subject);
    let mut others = signers.difference(&for_anybody);
    match others.find(|signer| *signer != authority.subject()) {
        Some(signer) => Err(CommandError::OtherSite(format!(
            "the certificate of {} has the subject '{subject}', for which the trusted authority {signer} speaks, not {}; nothing \
             was changed",
            contact.url,
            authority.subject()
        ))),
        None => Ok(()),
    }
}

fn refuse_named(
    contact: &Contact,
    authority: &ForeignAuthority,
    section: &str,
    dn: &str,
) -> Result<(), CommandError> {
    match authority.would_sign(&contact.sender.host_subject, dn) {
        true => Err(CommandError::OtherSite(format!(
            "{section} '{dn}' would be somebody whom the authority {} of {} can certify; nothing was changed. If that is meant, \
             remove the rule, trust the site, and add the rule again",
            authority.subject(),
            contact.url
        ))),
        false => Ok(()),
    }
}
