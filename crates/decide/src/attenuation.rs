//! What a macaroon's caveats leave of the rights that its first bearer held.
//!
//! Both must agree: the rights by the rules of `authorization`, and every caveat. Nothing here can add to the
//! rights, so an unknown or odd caveat can only take away.

use crate::Decision;
use crate::authorization::{
    AuthorizationReason, Credentials, PathOperation, Verdict, authorize_held,
};
use penstock_model::{Attenuation, MacaroonActivity, NamespacePath};

/// Decides by the caveats, then by the rights that they narrow.
pub fn authorize_attenuated(
    held: &Credentials<'_>,
    caveats: &Attenuation,
    operation: &PathOperation,
    path: &NamespacePath,
) -> Decision<Verdict, AuthorizationReason> {
    match refused_by(caveats, operation, path) {
        Some(reason) => Decision::new(Verdict::Refused, reason),
        None => authorize_held(held, operation, path),
    }
}

/// The caveat that forbids it, if any does.
fn refused_by(
    caveats: &Attenuation,
    operation: &PathOperation,
    path: &NamespacePath,
) -> Option<AuthorizationReason> {
    if let Some(left) = &caveats.activities
        && !left.iter().any(|activity| permits(*activity, operation))
    {
        return Some(AuthorizationReason::OutsideActivities);
    }
    let paths = match operation {
        PathOperation::Rename { to } => vec![path, to],
        _ => vec![path],
    };
    paths.into_iter().find_map(|path| {
        let mut outside = caveats
            .paths
            .iter()
            .filter(|caveat| !covers(caveat, operation, path));
        let caveat = outside.next()?.clone();
        let path = path.clone();
        Some(AuthorizationReason::OutsideCaveat { path, caveat })
    })
}

/// As XRootD maps activities to operations, but for renaming. A look at what an activity works on comes with it, as the WLCG
/// profile grants stat with every right; without it a client could not check what it has written.
fn permits(activity: MacaroonActivity, operation: &PathOperation) -> bool {
    use MacaroonActivity as A;
    match operation {
        PathOperation::Stat => true,
        PathOperation::List => activity == A::List,
        PathOperation::Read => activity == A::Download,
        PathOperation::Create => matches!(activity, A::Upload | A::Manage),
        // dCache's reading, not XRootD's: who may only add files must not take others' out of the way.
        PathOperation::Modify | PathOperation::MakeDirectory | PathOperation::Rename { .. } => {
            activity == A::Manage
        }
        PathOperation::Delete => activity == A::Delete,
        // No client asks for the tape by macaroon, and none of the activities means it.
        PathOperation::Stage | PathOperation::Poll => false,
    }
}

/// A caveat's path, or below. Directories on the way to it may be looked at and made, where the rights allow:
/// a client that uploads to `/a/b/f` makes `/a/b` first.
fn covers(caveat: &NamespacePath, operation: &PathOperation, path: &NamespacePath) -> bool {
    let leads_on = matches!(
        operation,
        PathOperation::Stat | PathOperation::MakeDirectory
    );
    path.is_within(caveat) || (leads_on && caveat.is_within(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_model::{Capability, Right};
    use std::collections::BTreeSet;

    fn path(text: &str) -> NamespacePath {
        NamespacePath::parse(text).expect("a valid path")
    }

    fn operation(name: &str) -> PathOperation {
        match name {
            "read" => PathOperation::Read,
            "stat" => PathOperation::Stat,
            "list" => PathOperation::List,
            "create" => PathOperation::Create,
            "modify" => PathOperation::Modify,
            "delete" => PathOperation::Delete,
            "mkdir" => PathOperation::MakeDirectory,
            "stage" => PathOperation::Stage,
            other => match other.strip_prefix("rename-to-") {
                Some(to) => PathOperation::Rename { to: path(to) },
                None => panic!("no such operation: {other}"),
            },
        }
    }

    /// Rights everywhere; `caveats` as `ACTIVITY,ACTIVITY /path /path`, `*` for any activity.
    fn check(caveats: &str, wanted: &str, at: &str, expected: &str) {
        let mut words = caveats.split(' ');
        let activities = words.next().expect("activities");
        let named = |name| MacaroonActivity::from_name(name).expect("an activity");
        let caveats = Attenuation {
            activities: (activities != "*").then(|| activities.split(',').map(named).collect()),
            paths: words.map(path).collect(),
        };
        let everything = Right::ALL.map(|right| Capability {
            right,
            path: path("/"),
            directory_only: false,
        });
        let held = Credentials {
            capabilities: &everything,
            groups: &[],
            rules: &[],
            owner: None,
            subject_rules: &[],
        };
        let decision = authorize_attenuated(&held, &caveats, &operation(wanted), &path(at));
        let got = match decision.choice {
            Verdict::Allowed => "allowed".to_owned(),
            Verdict::Refused => decision.because[0].to_string(),
        };
        assert_eq!(got, expected, "{caveats:?}: {wanted} {at}");
    }

    const NO_ACTIVITY: &str = "the macaroon's caveats leave no activity that permits it";

    #[test]
    fn an_activity_permits_its_own_operations_only() {
        for (activity, permitted) in [
            ("READ_METADATA", "stat"),
            ("UPDATE_METADATA", "stat"),
            ("LIST", "stat list"),
            ("DOWNLOAD", "stat read"),
            ("UPLOAD", "stat create"),
            ("MANAGE", "stat create modify mkdir rename-to-/y"),
            ("DELETE", "stat delete"),
        ] {
            let permitted: BTreeSet<&str> = permitted.split(' ').collect();
            let all = "read stat list create modify delete mkdir stage rename-to-/y";
            for wanted in all.split(' ') {
                let expected = if permitted.contains(wanted) {
                    "allowed"
                } else {
                    NO_ACTIVITY
                };
                check(activity, wanted, "/x", expected);
            }
        }
    }

    #[test]
    fn a_path_caveat_ends_at_whole_names_and_holds_for_both_ends() {
        check("* /a/b", "read", "/a/b/f", "allowed");
        let outside = "/a/bc lies outside the macaroon's caveat 'path:/a/b'";
        check("* /a/b", "read", "/a/bc", outside);
        let above = "/a lies outside the macaroon's caveat 'path:/a/b'";
        check("* /a/b", "list", "/a", above);
        check("* /a/b", "stat", "/a", "allowed");
        check("* /a/b", "mkdir", "/a", "allowed");
        check("* /a/b", "delete", "/a", above);
        let target = "/c lies outside the macaroon's caveat 'path:/a/b'";
        check("* /a/b", "rename-to-/c", "/a/b/f", target);
    }

    #[test]
    fn several_path_caveats_must_all_hold() {
        check("* /a /a/b", "read", "/a/b/f", "allowed");
        check(
            "* /a /a/b",
            "read",
            "/a/f",
            "/a/f lies outside the macaroon's caveat 'path:/a/b'",
        );
        check(
            "* /a /c",
            "read",
            "/a/f",
            "/a/f lies outside the macaroon's caveat 'path:/c'",
        );
    }

    #[test]
    fn caveats_never_add_rights() {
        let caveats = Attenuation::default();
        let held = Credentials {
            capabilities: &[],
            groups: &[],
            rules: &[],
            owner: None,
            subject_rules: &[],
        };
        for wanted in ["read", "stat", "create", "delete"] {
            let decision = authorize_attenuated(&held, &caveats, &operation(wanted), &path("/x"));
            assert_eq!(decision.choice, Verdict::Refused, "{wanted}");
        }
    }
}
