//! Whether an operation is allowed: the rules of the WLCG token profile 1.3, and a site's rules for groups.
//!
//! Knows no token and no namespace: capabilities and paths come in, a verdict with its reasons goes out.
//! Whether a file exists, and so whether a write creates or overwrites, is the caller's to find out
//! beforehand.

use crate::Decision;
use penstock_model::{Capability, NamespacePath, Right};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What somebody wants to do with a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathOperation {
    /// Get the content of a file.
    Read,
    /// Learn whether it exists, its size, times and checksum.
    Stat,
    /// Learn the names in a directory.
    List,
    /// Make a file where there is none.
    Create,
    /// Replace or truncate a file that is there.
    Modify,
    /// Remove a file or directory.
    Delete,
    MakeDirectory,
    /// Give it another path, where nothing is. If something is there, [`PathOperation::Modify`] on that path must
    /// be allowed as well.
    Rename {
        /// The new path.
        to: NamespacePath,
    },
    /// Bring a file from tape to disk, pin it, let it go.
    Stage,
    /// Learn whether a file is on disk or tape.
    Poll,
}

/// The answer. 403 when refused; what may not be read is never said to exist or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Go on.
    Allowed,
    /// Not with these rights.
    Refused,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "reason")]
pub enum AuthorizationReason {
    /// This capability covers the path and suffices.
    Capability { capability: Capability },
    /// The path is on the way to that of this capability, which must be reachable.
    OnTheWay { capability: Capability },
    /// A rule of the site grants it to a group of the user.
    GroupRule { rule: GroupRule },
    /// A rule of the site grants it to the user.
    SubjectRule { rule: SubjectRule },
    /// Everybody may read below this path.
    Public { path: NamespacePath },
    /// The path belongs to the door itself.
    Reserved,
    /// The site has banned the user.
    Banned { user: String },
    /// Nobody said who they are, and the path is not for everybody.
    NobodyKnown,
    /// Groups do not count, because the token carries capabilities.
    GroupsIgnored,
    /// The token's issuer may not speak for the VOs of its groups.
    GroupsOfOthers { issuer: String, groups: Vec<String> },
    /// Neither capabilities nor groups.
    NothingHeld,
    /// This covers the path, but is not a right for that.
    OtherRight { capability: Capability },
    /// This would suffice if the path were a directory's: its scope ends with `/`.
    OnlyDirectory { capability: Capability },
    /// No capability covers this path.
    OutsideScopes { path: NamespacePath },
    /// The issuer's tokens speak of another part of the namespace.
    OutsidePrefix { path: NamespacePath },
    /// The site lets tokens of this issuer allow no more than these rights.
    IssuerRights { issuer: String, rights: Vec<Right> },
    /// No rule of the site grants it to any group of the user.
    NoGroupRule {
        /// Those that the user has.
        groups: Vec<String>,
        path: NamespacePath,
    },
    /// The macaroon's activity caveats leave nothing that permits it.
    OutsideActivities,
    /// A path caveat of the macaroon does not cover this path.
    OutsideCaveat {
        path: NamespacePath,
        /// The caveat's.
        caveat: NamespacePath,
    },
    /// No rule of the site grants it to the user.
    NoSubjectRule {
        subject: String,
        path: NamespacePath,
    },
}

/// What the members of a group may do below a path. Of several rules for one group, those with the longest
/// path count and the others do not: so a part of an area can be made read-only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupRule {
    /// The group as tokens write it, compared whole: `/cms/uscms` does not imply `/cms`.
    pub group: String,
    pub path: NamespacePath,
    /// What may be done there.
    pub rights: Vec<Right>,
}

/// The owner of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CertificateOwner<'a> {
    /// The end entity, in slash form.
    pub subject: &'a str,
    /// Who signed its certificate. Another authority's owner of the same subject may be somebody else.
    pub ca: &'a str,
}

/// What the owner of a certificate may do below a path. Of several rules for one subject, those with the
/// longest path count, as with groups.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubjectRule {
    /// The certificate's subject in slash form, compared whole: `/DC=lab/OU=Users/CN=Alice`.
    pub subject: String,
    /// Who must have signed the certificate; `None`: any authority that the site trusts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<String>,
    pub path: NamespacePath,
    /// What may be done there.
    pub rights: Vec<Right>,
}

/// All that speaks for somebody.
#[derive(Debug, Clone, Copy)]
pub struct Credentials<'a> {
    /// What the token grants.
    pub capabilities: &'a [Capability],
    /// Groups that the token, or a VO in the proxy, names.
    pub groups: &'a [String],
    /// What this site grants to groups.
    pub rules: &'a [GroupRule],
    /// The owner of a certificate. A token's subject is another kind of name and never stands here.
    pub owner: Option<CertificateOwner<'a>>,
    /// What this site grants to subjects of certificates.
    pub subject_rules: &'a [SubjectRule],
}

/// Decides by capabilities, and by the site's rules for groups and subjects only when there are no
/// capabilities (WLCG profile 1.3: they are never combined).
pub fn authorize_held(
    held: &Credentials<'_>,
    operation: &PathOperation,
    path: &NamespacePath,
) -> Decision<Verdict, AuthorizationReason> {
    let concerns_rules = !held.groups.is_empty() || held.owner.is_some();
    if held.capabilities.is_empty() && concerns_rules {
        return by_rules(held, operation, path);
    }
    let mut decision = authorize(held.capabilities, operation, path);
    if !held.groups.is_empty() {
        decision.because.push(AuthorizationReason::GroupsIgnored);
    }
    decision
}

/// Decides by capabilities alone.
pub fn authorize(
    capabilities: &[Capability],
    operation: &PathOperation,
    path: &NamespacePath,
) -> Decision<Verdict, AuthorizationReason> {
    if capabilities.is_empty() {
        return Decision::new(Verdict::Refused, AuthorizationReason::NothingHeld);
    }
    let granted = granted_by(capabilities, operation, path).and_then(|first| match operation {
        // Both ends of a rename must be covered, though not by one capability.
        PathOperation::Rename { to } => Some(vec![first, granted_by(capabilities, operation, to)?]),
        _ => Some(vec![first]),
    });
    match granted {
        Some(mut because) => {
            because.dedup();
            Decision {
                choice: Verdict::Allowed,
                because,
            }
        }
        None => Decision {
            choice: Verdict::Refused,
            because: why_refused(capabilities, operation, path),
        },
    }
}

/// The least right that suffices.
pub fn needed_right(operation: &PathOperation) -> Right {
    sufficient(operation)[0]
}

/// The rights of which each one suffices, the least first.
fn sufficient(operation: &PathOperation) -> &'static [Right] {
    match operation {
        PathOperation::Read => &[Right::Read],
        // Profile 1.3: all but poll grant stat.
        PathOperation::Stat => &[Right::Read, Right::Create, Right::Modify, Right::Stage],
        // The profile leaves listing open; as in dCache, who only adds files does not learn the others'
        // names.
        PathOperation::List => &[Right::Read, Right::Modify],
        // Modify is a superset of create.
        PathOperation::Create | PathOperation::MakeDirectory | PathOperation::Rename { .. } => {
            &[Right::Create, Right::Modify]
        }
        PathOperation::Modify | PathOperation::Delete => &[Right::Modify],
        PathOperation::Stage => &[Right::Stage],
        PathOperation::Poll => &[Right::Poll, Right::Stage],
    }
}

/// Whether a scope that ends with `/` covers its own path for this operation: only where the path can be that
/// of a directory. What may be either is refused, except a look at it.
fn concerns_directory(operation: &PathOperation) -> bool {
    match operation {
        PathOperation::Stat | PathOperation::List | PathOperation::MakeDirectory => true,
        PathOperation::Read
        | PathOperation::Create
        | PathOperation::Modify
        | PathOperation::Delete
        | PathOperation::Rename { .. }
        | PathOperation::Stage
        | PathOperation::Poll => false,
    }
}

fn granted_by(
    capabilities: &[Capability],
    operation: &PathOperation,
    path: &NamespacePath,
) -> Option<AuthorizationReason> {
    let rights = sufficient(operation);
    let covers = |capability: &&Capability| {
        let exempt =
            capability.directory_only && capability.path == *path && !concerns_directory(operation);
        rights.contains(&capability.right) && path.is_within(&capability.path) && !exempt
    };
    if let Some(capability) = capabilities.iter().find(covers) {
        let capability = capability.clone();
        return Some(AuthorizationReason::Capability { capability });
    }
    // Profile 1.3, storage.create: directories that are missing on the way to the path may be made, and so
    // must be looked for.
    let leads_on = matches!(
        operation,
        PathOperation::Stat | PathOperation::MakeDirectory
    );
    let on_the_way = |capability: &&Capability| {
        leads_on
            && matches!(capability.right, Right::Create | Right::Modify)
            && capability.path.is_within(path)
    };
    let capability = capabilities.iter().find(on_the_way)?.clone();
    Some(AuthorizationReason::OnTheWay { capability })
}

/// What came nearest, for each path that is not covered.
fn why_refused(
    capabilities: &[Capability],
    operation: &PathOperation,
    path: &NamespacePath,
) -> Vec<AuthorizationReason> {
    let paths = match operation {
        PathOperation::Rename { to } => vec![path, to],
        _ => vec![path],
    };
    let uncovered = paths
        .into_iter()
        .filter(|path| granted_by(capabilities, operation, path).is_none());
    uncovered
        .map(|path| {
            let near = |capability: &&Capability| path.is_within(&capability.path);
            let fits = |capability: &&Capability| sufficient(operation).contains(&capability.right);
            let covering: Vec<&Capability> = capabilities.iter().filter(near).collect();
            match (covering.iter().copied().find(fits), covering.first()) {
                (Some(capability), _) => AuthorizationReason::OnlyDirectory {
                    capability: capability.clone(),
                },
                (None, Some(capability)) => AuthorizationReason::OtherRight {
                    capability: (*capability).clone(),
                },
                (None, None) => AuthorizationReason::OutsideScopes { path: path.clone() },
            }
        })
        .collect()
}

fn by_rules(
    held: &Credentials<'_>,
    operation: &PathOperation,
    path: &NamespacePath,
) -> Decision<Verdict, AuthorizationReason> {
    let paths = match operation {
        PathOperation::Rename { to } => vec![path, to],
        _ => vec![path],
    };
    let mut because = Vec::new();
    for path in paths {
        match granting_rule(held, operation, path) {
            Some(rule) => because.push(rule),
            None => {
                let path = path.clone();
                let mut because = Vec::new();
                if let Some(subject) = held.owner.map(|owner| owner.subject.to_owned()) {
                    let path = path.clone();
                    because.push(AuthorizationReason::NoSubjectRule { subject, path });
                }
                if !held.groups.is_empty() {
                    let groups = held.groups.to_vec();
                    because.push(AuthorizationReason::NoGroupRule { groups, path });
                }
                return Decision {
                    choice: Verdict::Refused,
                    because,
                };
            }
        }
    }
    because.dedup();
    Decision {
        choice: Verdict::Allowed,
        because,
    }
}

/// The rule that suffices for the user, or for one of the groups.
fn granting_rule(
    held: &Credentials<'_>,
    operation: &PathOperation,
    path: &NamespacePath,
) -> Option<AuthorizationReason> {
    let subject = held.owner.and_then(|owner| {
        let mine = held.subject_rules.iter();
        let mine = mine.filter(|rule| {
            rule.subject == owner.subject && rule.ca.as_deref().is_none_or(|ca| ca == owner.ca)
        });
        let rule = deciding_rule(mine, |rule| (&rule.path, &rule.rights), operation, path)?;
        Some(AuthorizationReason::SubjectRule { rule: rule.clone() })
    });
    subject.or_else(|| {
        held.groups.iter().find_map(|group| {
            let mine = held.rules.iter().filter(|rule| rule.group == *group);
            let rule = deciding_rule(mine, |rule| (&rule.path, &rule.rights), operation, path)?;
            Some(AuthorizationReason::GroupRule { rule: rule.clone() })
        })
    })
}

/// Of the rules for one party, one with the longest path that covers this one, if it grants the operation.
fn deciding_rule<'a, R>(
    rules: impl Iterator<Item = &'a R> + Clone,
    grants: impl Fn(&'a R) -> (&'a NamespacePath, &'a Vec<Right>),
    operation: &PathOperation,
    path: &NamespacePath,
) -> Option<&'a R> {
    let sufficient = sufficient(operation);
    let length = |rule| grants(rule).0.names().len();
    let covering = rules.filter(|rule| path.is_within(grants(rule).0));
    let longest = covering.clone().map(length).max()?;
    let mut deciding = covering.filter(|rule| length(rule) == longest);
    deciding.find(|rule| {
        grants(rule)
            .1
            .iter()
            .any(|right| sufficient.contains(right))
    })
}

impl fmt::Display for AuthorizationReason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Capability { capability } => write!(out, "'{capability}' covers it"),
            Self::OnTheWay { capability } => write!(out, "it is on the way to '{capability}'"),
            Self::GroupRule { rule } => {
                write!(
                    out,
                    "members of {} may do so below {}",
                    rule.group, rule.path
                )
            }
            Self::SubjectRule { rule } => {
                write!(out, "{} may do so below {}", rule.subject, rule.path)
            }
            Self::Public { path } => write!(out, "everybody may do so below {path}"),
            Self::Reserved => out.write_str("the path belongs to the door itself"),
            Self::Banned { user } => write!(out, "{user} is banned here"),
            Self::NobodyKnown => out.write_str("it needs a token or a certificate"),
            Self::GroupsIgnored => {
                out.write_str("groups are ignored, because the token has storage scopes")
            }
            Self::NothingHeld => out.write_str(
                "the token carries neither a storage scope nor a group; ask for a storage scope",
            ),
            Self::GroupsOfOthers { issuer, groups } => {
                let groups = groups.join(", ");
                write!(
                    out,
                    "the site does not let {issuer} speak for the VO of {groups} ('vo' or 'vos' of its issuers says for which)"
                )
            }
            Self::OtherRight { capability } => {
                write!(out, "'{capability}' covers the path but not the operation")
            }
            Self::OnlyDirectory { capability } => {
                write!(
                    out,
                    "'{capability}' covers what is below this path, but not the path itself"
                )
            }
            Self::OutsideScopes { path } => {
                write!(out, "no storage scope of the token covers {path}")
            }
            Self::OutsidePrefix { path } => {
                write!(
                    out,
                    "{path} is outside the part of the namespace that this token's issuer may grant"
                )
            }
            Self::IssuerRights { issuer, rights } => {
                let rights: Vec<&str> = rights.iter().map(|right| right.scope_name()).collect();
                write!(
                    out,
                    "`rights` of [[trust.issuer]] limits tokens of {issuer} to [{}]",
                    rights.join(", ")
                )
            }
            Self::NoGroupRule { groups, path } => {
                let groups = groups.join(", ");
                write!(
                    out,
                    "no rule of the site lets a member of {groups} do so at {path}"
                )
            }
            Self::OutsideActivities => {
                out.write_str("the macaroon's caveats leave no activity that permits it")
            }
            Self::OutsideCaveat { path, caveat } => {
                write!(
                    out,
                    "{path} lies outside the macaroon's caveat 'path:{caveat}'"
                )
            }
            Self::NoSubjectRule { subject, path } => {
                write!(out, "no rule of the site lets {subject} do so at {path}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> NamespacePath {
        NamespacePath::parse(text).expect("a valid path")
    }

    fn capability(scope: &str) -> Capability {
        let (name, place) = scope.split_once(':').expect("name:path");
        Capability {
            right: Right::from_scope_name(&format!("storage.{name}")).expect("a right"),
            path: path(place),
            directory_only: place.ends_with('/'),
        }
    }

    /// `verb /path` or `rename /path /to`.
    fn request(text: &str) -> (PathOperation, NamespacePath) {
        let mut words = text.split(' ');
        let verb = words.next().expect("a verb");
        let place = path(words.next().expect("a path"));
        let operation = match verb {
            "read" => PathOperation::Read,
            "stat" => PathOperation::Stat,
            "list" => PathOperation::List,
            "create" => PathOperation::Create,
            "modify" => PathOperation::Modify,
            "delete" => PathOperation::Delete,
            "mkdir" => PathOperation::MakeDirectory,
            "stage" => PathOperation::Stage,
            "poll" => PathOperation::Poll,
            "rename" => PathOperation::Rename {
                to: path(words.next().expect("a new path")),
            },
            other => panic!("no such verb: {other}"),
        };
        (operation, place)
    }

    fn check(scopes: &str, wanted: &str, expected: Verdict) {
        let capabilities: Vec<Capability> = scopes.split_whitespace().map(capability).collect();
        let (operation, place) = request(wanted);
        let decision = authorize(&capabilities, &operation, &place);
        assert_eq!(
            decision.choice, expected,
            "{scopes}: {wanted}: {:?}",
            decision.because
        );
        assert!(!decision.because.is_empty(), "{scopes}: {wanted}");
    }

    fn allowed(scopes: &str, wanted: &[&str]) {
        wanted
            .iter()
            .for_each(|wanted| check(scopes, wanted, Verdict::Allowed));
    }

    fn refused(scopes: &str, wanted: &[&str]) {
        wanted
            .iter()
            .for_each(|wanted| check(scopes, wanted, Verdict::Refused));
    }

    #[test]
    fn reading_is_granted_at_whole_names_only() {
        allowed(
            "read:/foo/bar",
            &[
                "read /foo/bar",
                "read /foo/bar/x/y",
                "stat /foo/bar/x",
                "list /foo/bar",
            ],
        );
        refused(
            "read:/foo/bar",
            &[
                "read /foo/bargain",
                "read /foo",
                "read /",
                "list /foo",
                "stat /foo/bargain",
            ],
        );
        allowed("read:/", &["read /x", "list /", "stat /"]);
        refused(
            "read:/",
            &[
                "create /x",
                "modify /x",
                "delete /x",
                "mkdir /d",
                "stage /x",
                "poll /x",
                "rename /x /y",
            ],
        );
    }

    #[test]
    fn creating_never_changes_what_is_there() {
        allowed(
            "create:/a/b",
            &[
                "create /a/b/f",
                "create /a/b",
                "mkdir /a/b/c",
                "stat /a/b/f",
            ],
        );
        refused(
            "create:/a/b",
            &[
                "modify /a/b/f",
                "delete /a/b/f",
                "read /a/b/f",
                "list /a/b",
                "create /a/bc",
            ],
        );
    }

    #[test]
    fn the_way_to_a_scope_may_be_made_and_looked_at() {
        allowed(
            "create:/a/b/c",
            &[
                "mkdir /a",
                "mkdir /a/b",
                "mkdir /a/b/c",
                "stat /",
                "stat /a",
                "stat /a/b",
            ],
        );
        allowed("modify:/a/b", &["mkdir /a", "stat /a"]);
        refused(
            "create:/a/b",
            &[
                "mkdir /c",
                "create /a",
                "create /a/x",
                "list /a",
                "stat /a/x",
                "mkdir /a/x",
            ],
        );
        refused("read:/a/b", &["mkdir /a", "stat /a"]);
        refused("stage:/a/b", &["stat /a"]);
    }

    #[test]
    fn modifying_includes_creating_but_not_reading() {
        let all = [
            "create /a/f",
            "modify /a/f",
            "delete /a/f",
            "mkdir /a/d",
            "stat /a/f",
            "list /a",
            "rename /a/f /a/g",
        ];
        allowed("modify:/a", &all);
        refused(
            "modify:/a",
            &[
                "read /a/f",
                "stage /a/f",
                "poll /a/f",
                "modify /ab/f",
                "delete /b",
            ],
        );
    }

    #[test]
    fn a_rename_needs_both_ends() {
        allowed("create:/a", &["rename /a/x /a/y"]);
        allowed(
            "create:/a modify:/b",
            &["rename /a/x /b/y", "rename /b/x /a/y"],
        );
        refused("create:/a", &["rename /a/x /b/x", "rename /b/x /a/x"]);
        refused(
            "modify:/a read:/b",
            &["rename /a/x /b/x", "rename /b/x /a/x"],
        );
        refused("create:/a/b", &["rename /a/b/x /a"]);
    }

    #[test]
    fn a_final_slash_means_a_directory() {
        allowed(
            "create:/foo/bar/",
            &[
                "create /foo/bar/f",
                "mkdir /foo/bar",
                "mkdir /foo",
                "stat /foo/bar",
            ],
        );
        refused("create:/foo/bar/", &["create /foo/bar"]);
        allowed("read:/foo/bar/", &["read /foo/bar/f", "list /foo/bar"]);
        refused("read:/foo/bar/", &["read /foo/bar"]);
        refused(
            "modify:/foo/bar/",
            &[
                "modify /foo/bar",
                "delete /foo/bar",
                "rename /foo/bar /foo/bar/x",
            ],
        );
        allowed("read:/foo/bar/ read:/foo/bar", &["read /foo/bar"]);
    }

    #[test]
    fn tape_rights_stand_alone() {
        allowed("stage:/t", &["stage /t/f", "poll /t/f", "stat /t/f"]);
        refused("stage:/t", &["read /t/f", "list /t", "create /t/f"]);
        allowed("poll:/t", &["poll /t/f"]);
        refused("poll:/t", &["stage /t/f", "stat /t/f", "read /t/f"]);
    }

    #[test]
    fn several_scopes_are_a_union() {
        allowed(
            "read:/a read:/b create:/c",
            &["read /a/x", "read /b/x", "create /c/x"],
        );
        refused("read:/a read:/b create:/c", &["read /c/x", "create /a/x"]);
        refused("", &["read /a", "stat /"]);
    }

    fn check_reason(scopes: &str, wanted: &str, expected: &str) {
        let capabilities: Vec<Capability> = scopes.split_whitespace().map(capability).collect();
        let (operation, place) = request(wanted);
        let because = authorize(&capabilities, &operation, &place).because;
        let got: Vec<String> = because.iter().map(ToString::to_string).collect();
        assert_eq!(got.join("; "), expected, "{scopes}: {wanted}");
    }

    #[test]
    fn the_reason_names_what_decided() {
        check_reason("read:/a", "read /a/x", "'storage.read:/a' covers it");
        check_reason(
            "create:/a/b",
            "mkdir /a",
            "it is on the way to 'storage.create:/a/b'",
        );
        check_reason(
            "create:/a",
            "delete /a/x",
            "'storage.create:/a' covers the path but not the operation",
        );
        check_reason(
            "read:/foo/bar",
            "read /foo/bargain",
            "no storage scope of the token covers /foo/bargain",
        );
        check_reason(
            "read:/a/",
            "read /a",
            "'storage.read:/a/' covers what is below this path, but not the path itself",
        );
        check_reason(
            "modify:/a",
            "rename /a/x /b/x",
            "no storage scope of the token covers /b/x",
        );
        check_reason(
            "",
            "read /a",
            "the token carries neither a storage scope nor a group; ask for a storage scope",
        );
    }

    fn rules() -> Vec<GroupRule> {
        let rule = |group: &str, place: &str, rights: &[Right]| GroupRule {
            group: group.to_owned(),
            path: path(place),
            rights: rights.to_vec(),
        };
        // The layout of the compliance suite: a protected part within a common area.
        vec![
            rule("/wlcg", "/area", &[Right::Read, Right::Modify]),
            rule("/wlcg", "/area/protected", &[Right::Read]),
            rule(
                "/wlcg/test",
                "/area/protected",
                &[Right::Read, Right::Modify],
            ),
        ]
    }

    fn check_groups(groups: &[&str], scopes: &str, wanted: &str, expected: Verdict) {
        let capabilities: Vec<Capability> = scopes.split_whitespace().map(capability).collect();
        let groups: Vec<String> = groups.iter().map(|group| group.to_string()).collect();
        let held = Credentials {
            capabilities: &capabilities,
            groups: &groups,
            rules: &rules(),
            owner: None,
            subject_rules: &[],
        };
        let (operation, place) = request(wanted);
        let decision = authorize_held(&held, &operation, &place);
        assert_eq!(
            decision.choice, expected,
            "{groups:?}: {wanted}: {:?}",
            decision.because
        );
    }

    #[test]
    fn the_longest_rule_of_a_group_decides() {
        use Verdict::{Allowed, Refused};
        check_groups(&["/wlcg"], "", "create /area/f", Allowed);
        check_groups(&["/wlcg"], "", "read /area/protected/f", Allowed);
        check_groups(&["/wlcg"], "", "create /area/protected/f", Refused);
        check_groups(&["/wlcg"], "", "rename /area/f /area/protected/f", Refused);
        check_groups(
            &["/wlcg", "/wlcg/test"],
            "",
            "create /area/protected/f",
            Allowed,
        );
        check_groups(&["/wlcg/test"], "", "read /area/f", Refused);
        check_groups(&["/wlcg/tester"], "", "read /area/protected/f", Refused);
        check_groups(&["/other"], "", "read /area/f", Refused);
        check_groups(&[], "", "read /area/f", Refused);
        check_groups(&["/wlcg"], "", "read /elsewhere", Refused);
    }

    #[test]
    fn groups_do_not_count_beside_capabilities() {
        use Verdict::{Allowed, Refused};
        check_groups(&["/wlcg"], "read:/elsewhere", "read /area/f", Refused);
        check_groups(&["/wlcg"], "read:/elsewhere", "read /elsewhere/f", Allowed);
        check_groups(&["/wlcg"], "poll:/area", "read /area/f", Refused);
    }

    fn check_subject(subject: &str, groups: &[&str], wanted: &str, expected: &str) {
        let groups: Vec<String> = groups.iter().map(|group| group.to_string()).collect();
        let rule = |subject: &str, place: &str, rights: &[Right]| SubjectRule {
            subject: subject.to_owned(),
            ca: None,
            path: path(place),
            rights: rights.to_vec(),
        };
        let by = |ca: &str, rule: SubjectRule| SubjectRule {
            ca: Some(ca.to_owned()),
            ..rule
        };
        let carol = "/DC=lab/CN=Carol";
        let held = Credentials {
            capabilities: &[],
            groups: &groups,
            rules: &rules(),
            owner: Some(CertificateOwner {
                subject,
                ca: "/DC=lab/CN=CA One",
            }),
            subject_rules: &[
                rule("/DC=lab/CN=Alice", "/", &[Right::Read]),
                rule("/DC=lab/CN=Alice", "/home/alice", &[Right::Modify]),
                by("/DC=lab/CN=CA One", rule(carol, "/one", &[Right::Read])),
                by("/DC=lab/CN=CA Two", rule(carol, "/two", &[Right::Read])),
                // One that does not count hides none that does.
                by("/DC=lab/CN=CA Two", rule(carol, "/one/two", &[])),
            ],
        };
        let (operation, place) = request(wanted);
        let because = authorize_held(&held, &operation, &place).because;
        let got: Vec<String> = because.iter().map(ToString::to_string).collect();
        assert_eq!(got.join("; "), expected, "{subject}: {wanted}");
    }

    #[test]
    fn a_certificate_has_the_rights_of_its_subject_and_of_its_groups() {
        let alice = "/DC=lab/CN=Alice";
        let may = "/DC=lab/CN=Alice may do so below";
        check_subject(alice, &[], "read /x", &format!("{may} /"));
        check_subject(
            alice,
            &[],
            "delete /home/alice/f",
            &format!("{may} /home/alice"),
        );
        let refused = "no rule of the site lets /DC=lab/CN=Alice do so at";
        check_subject(
            alice,
            &[],
            "read /home/alice/f",
            &format!("{refused} /home/alice/f"),
        );
        check_subject(alice, &[], "create /area/f", &format!("{refused} /area/f"));
        let group = "members of /wlcg may do so below /area";
        check_subject(alice, &["/wlcg"], "create /area/f", group);
        check_subject(
            "/DC=lab/CN=Alice/CN=1",
            &[],
            "read /x",
            "no rule of the site lets /DC=lab/CN=Alice/CN=1 do so at /x",
        );
        // Another authority's Carol is somebody else.
        let carol = "/DC=lab/CN=Carol";
        check_subject(
            carol,
            &[],
            "read /one/two/f",
            &format!("{carol} may do so below /one"),
        );
        let refused = format!("no rule of the site lets {carol} do so at /two/f");
        check_subject(carol, &[], "read /two/f", &refused);
        // A group of that name is not the subject.
        check_subject(
            "/DC=lab/CN=Bob",
            &["/DC=lab/CN=Alice"],
            "read /x",
            "no rule of the site lets /DC=lab/CN=Bob do so at /x; \
             no rule of the site lets a member of /DC=lab/CN=Alice do so at /x",
        );
    }
}
