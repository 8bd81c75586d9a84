//! `[[transfer.administrator]]`: who may look at, stop, ban and configure more than their VO's members.

use penstock_decide::service_rights::{Grantee, Operation, ServiceGrant};
use penstock_model::VoName;
use serde::{Deserialize, Serialize};

/// Somebody who administers the transfer service, or a VO's part of it. Named by exactly one of: `dn`, `fqan`, or `issuer`
/// with `subject` or `group`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Administrator {
    /// A certificate's subject without what proxies append, such as `/DC=lab/OU=Users/CN=Alice`.
    pub dn: Option<String>,
    /// Who must have signed that certificate, such as `/DC=lab/CN=Lab CA`; only with `dn`. Unset: any authority that is
    /// trusted.
    pub ca: Option<String>,
    /// A VOMS attribute in plain form, such as `/dteam/Role=production`.
    pub fqan: Option<String>,
    /// The issuer of the token that names `subject` or `group`.
    pub issuer: Option<String>,
    /// A token's subject.
    pub subject: Option<String>,
    /// A group of a token, such as `/dteam/admins`.
    pub group: Option<String>,
    /// What: `transfer` (see and stop jobs), `config` (ban, configure).
    #[serde(default = "Administrator::default_operations")]
    pub operations: Vec<Operation>,
    /// Only what concerns this VO. Unset: the whole service.
    pub vo: Option<String>,
}

impl Administrator {
    fn default_operations() -> Vec<Operation> {
        vec![Operation::Transfer, Operation::Config]
    }

    /// What is granted. Errors: a sentence that tells what is wrong.
    pub fn grant(&self) -> Result<ServiceGrant, String> {
        let text = |value: &Option<String>| value.clone().filter(|text| !text.is_empty());
        let named = (
            text(&self.dn),
            text(&self.fqan),
            text(&self.issuer),
            text(&self.subject),
            text(&self.group),
        );
        let ca = text(&self.ca);
        match (&ca, &named.0) {
            (Some(_), None) => {
                return Err("transfer.administrator: ca goes with dn alone".to_owned());
            }
            (Some(ca), Some(dn)) if !ca.starts_with('/') => {
                return Err(format!(
                    "transfer.administrator '{dn}': the ca '{ca}' is not a subject in slash form, such as /DC=org/CN=Lab CA"
                ));
            }
            (Some(_), Some(_)) | (None, _) => {}
        }
        let to = match named {
            (Some(subject), None, None, None, None) if subject.starts_with('/') => {
                Grantee::Certificate { subject, ca }
            }
            (Some(dn), None, None, None, None) => {
                return Err(format!(
                    "transfer.administrator '{dn}' is not a subject in slash form, such as /DC=org/CN=Alice"
                ));
            }
            (None, Some(attribute), None, None, None) if is_plain(&attribute) => {
                Grantee::Attribute { attribute }
            }
            (None, Some(fqan), None, None, None) => {
                return Err(format!(
                    "transfer.administrator '{fqan}' is not a VOMS attribute in plain form, such as \
                     /dteam/Role=production (without Role=NULL and Capability=NULL)"
                ));
            }
            (None, None, Some(issuer), Some(subject), None) => Grantee::Token { issuer, subject },
            (None, None, Some(issuer), None, Some(group)) => Grantee::TokenGroup { issuer, group },
            _ => {
                return Err(
                    "transfer.administrator needs exactly one of: dn, fqan, issuer with subject, issuer with group"
                        .to_owned(),
                );
            }
        };
        Ok(ServiceGrant {
            to,
            operations: self.operations.iter().copied().collect(),
            vo: text(&self.vo).map(VoName::new),
        })
    }
}

/// Attributes are compared in plain form, so that another spelling would never match.
fn is_plain(fqan: &str) -> bool {
    fqan.starts_with('/') && !fqan.ends_with("/Role=NULL") && !fqan.contains("/Capability=")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<ServiceGrant, String> {
        toml::from_str::<Administrator>(text)
            .map_err(|why| why.to_string())?
            .grant()
    }

    #[test]
    fn each_way_to_name_somebody_is_understood() {
        let check = |text: &str, expected: Grantee| {
            assert_eq!(read(text).expect(text).to, expected);
        };
        check(
            "dn = \"/DC=lab/CN=Alice\"",
            Grantee::Certificate {
                subject: "/DC=lab/CN=Alice".into(),
                ca: None,
            },
        );
        check(
            "dn = \"/DC=lab/CN=Alice\"\nca = \"/DC=lab/CN=Lab CA\"",
            Grantee::Certificate {
                subject: "/DC=lab/CN=Alice".into(),
                ca: Some("/DC=lab/CN=Lab CA".into()),
            },
        );
        for (text, why) in [
            (
                "fqan = \"/dteam\"\nca = \"/CN=CA\"",
                "ca goes with dn alone",
            ),
            (
                "dn = \"/CN=a\"\nca = \"Lab CA\"",
                "is not a subject in slash form",
            ),
        ] {
            assert!(read(text).expect_err(text).contains(why), "{text}");
        }
        check(
            "fqan = \"/dteam/Role=production\"",
            Grantee::Attribute {
                attribute: "/dteam/Role=production".into(),
            },
        );
        check(
            "issuer = \"https://i\"\nsubject = \"alice\"",
            Grantee::Token {
                issuer: "https://i".into(),
                subject: "alice".into(),
            },
        );
        check(
            "issuer = \"https://i\"\ngroup = \"/ops\"\nvo = \"cms\"\noperations = [\"config\"]",
            Grantee::TokenGroup {
                issuer: "https://i".into(),
                group: "/ops".into(),
            },
        );
    }

    #[test]
    fn what_names_nobody_or_two_is_refused() {
        for text in [
            "",
            "dn = \"CN=Alice\"",
            "dn = \"/CN=Alice\"\nfqan = \"/dteam\"",
            "subject = \"alice\"",
            "group = \"/ops\"",
            "issuer = \"https://i\"",
            "issuer = \"https://i\"\nsubject = \"alice\"\ngroup = \"/ops\"",
            "fqan = \"/dteam/Role=NULL/Capability=NULL\"",
            "fqan = \"/dteam/Role=NULL\"",
            "dn = \"/CN=Alice\"\noperations = [\"delete\"]",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
