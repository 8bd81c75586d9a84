//! URLs as libraries get them: without the parameters by which XRootD's client lets a URL choose files of this machine,
//! credentials and its own behaviour.

use percent_encoding::percent_decode_str;

/// What the names of such parameters begin with, in small letters.
const LOCAL: [&str; 3] = ["xrd.", "xrdcl.", "xrdsec"];

/// The URL without these parameters. What else it carries stays as it is.
pub(super) fn without_local_parameters(url: &str) -> String {
    let Some((place, query)) = url.split_once('?') else {
        return url.to_owned();
    };
    let mut kept = place.to_owned();
    let mut separator = '?';
    let mut rest = query;
    loop {
        // A further question mark separates as well: some of the parsers behind take it so.
        let end = rest.find(['&', '?']).unwrap_or(rest.len());
        let (parameter, behind) = rest.split_at(end);
        if !is_local(parameter) {
            kept.push(separator);
            kept.push_str(parameter);
        } else if separator == '?' && kept.len() == place.len() {
            // The next one that stays is the first.
            match behind.chars().next() {
                Some(next) => {
                    rest = behind.get(next.len_utf8()..).unwrap_or_default();
                    continue;
                }
                None => return kept,
            }
        }
        let Some(next) = behind.chars().next() else {
            return kept;
        };
        separator = next;
        rest = behind.get(next.len_utf8()..).unwrap_or_default();
    }
}

fn is_local(parameter: &str) -> bool {
    let name = parameter.split('=').next().unwrap_or_default();
    let name = percent_decode_str(name).decode_utf8_lossy();
    let name = name.trim_start_matches(|letter: char| !letter.is_alphanumeric());
    let name = name.to_ascii_lowercase();
    LOCAL.iter().any(|begin| name.starts_with(begin))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn parameters_that_name_local_things_are_left_out_and_others_stay() {
        let check = |url: &str, expected: &str| {
            assert_eq!(without_local_parameters(url), expected);
        };
        check("root://se//f", "root://se//f");
        check(
            "root://se//f?authz=a/b&oss.asize=3",
            "root://se//f?authz=a/b&oss.asize=3",
        );
        check(
            "root://se//f?xrd.gsiusrcrt=/tmp/c&xrd.gsiusrkey=/tmp/k",
            "root://se//f",
        );
        check(
            "root://se//f?xrd.gsiusrpxy=/tmp/p&authz=a&xrdcl.unzip=x&b=c",
            "root://se//f?authz=a&b=c",
        );
        check("root://se//f?a=b?xrd.k5ccname=/tmp/x", "root://se//f?a=b");
        check("root://se//f??xrd.wantprot=unix", "root://se//f?");
        check("root://se//f?&XRD.gsiusrkey=/k", "root://se//f?");
        check("root://se//f?%78rd.gsiusrkey=/k&a=1", "root://se//f?a=1");
        check("root://se//f? xrdcl.intent=x", "root://se//f");
        check("root://se//f?XrdSecGSIUSERKEY=/k", "root://se//f");
        check("root://se//f?svcClass=xrd.x", "root://se//f?svcClass=xrd.x");
        check(
            "srm://se:8443/srm/managerv2?SFN=/a/f",
            "srm://se:8443/srm/managerv2?SFN=/a/f",
        );
    }

    proptest! {
        #[test]
        fn no_url_keeps_such_a_parameter_and_none_changes_twice(
            parts in proptest::collection::vec(
                ("[?&]", "(|xrd\\.|XrdCl\\.|%78rd%2e|xrdsec|oss\\.|authz)[a-z%&?= ]{0,6}", "(=[a-zA-Z0-9/%.]{0,5})?"),
                0..6,
            ),
        ) {
            let query: String = parts.iter().map(|(a, b, c)| format!("{a}{b}{c}")).collect();
            let url = format!("root://se.example//f{query}");
            let kept = without_local_parameters(&url);
            prop_assert!(kept.starts_with("root://se.example//f"));
            // Parameters begin at the first question mark.
            let query_of = |url: &str| url.split_once('?').map(|(_, query)| query.to_owned()).unwrap_or_default();
            prop_assert!(!query_of(&kept).split(['?', '&']).any(is_local), "{kept}");
            prop_assert_eq!(without_local_parameters(&kept), kept.clone());
            let harmless = query_of(&url).split(['?', '&']).all(|parameter| !is_local(parameter));
            if harmless {
                prop_assert_eq!(kept, url);
            }
        }
    }
}
