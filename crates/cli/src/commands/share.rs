//! `penstock share`: a link that carries its own authorisation, a macaroon bound to one path, to what may be done
//! there and to a time.

use crate::args::ShareArgs;
use crate::commands::access::Access;
use crate::commands::access::Purpose;
use crate::environment::Environment;
use crate::exit::CommandError;
use crate::output::Output;
use penstock_clock::wall_clock;
use penstock_field_tools::remote::Remote;
use serde::Serialize;
use std::time::Duration;
use url::Url;

/// A link that ends this much earlier than asked for is not worth a word.
const TOLERATED: Duration = Duration::from_secs(60);

#[derive(Serialize)]
struct ShareReport {
    link: String,
    activities: &'static str,
    expires_at: String,
}

/// `penstock share`.
pub async fn run(
    args: ShareArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    if args.span.0.as_secs() == 0 {
        return Err(CommandError::Usage(
            "a link must be valid for at least one second".into(),
        ));
    }
    let (activities, purpose) = match (args.upload, args.list) {
        (true, _) => ("UPLOAD,LIST", Purpose::Modify),
        (false, true) => ("LIST", Purpose::Read),
        (false, false) => ("DOWNLOAD,LIST", Purpose::Read),
    };
    let access = Access::open(&args.access, environment, 1)?;
    // A macaroon ends with the token that it was asked for with.
    let lifetime = args.span.0.saturating_add(TOLERATED);
    let credentials = access.for_files_lasting(&[(&args.url, purpose)], lifetime)?;
    let remote = Remote::new(access.client, credentials);
    let made = remote.macaroon(&args.url, activities, args.span.0).await?;
    let (macaroon, lasting) = made;
    let expires_at = format!("{}Z", (wall_clock() + lasting).to_fts());
    if lasting + TOLERATED < args.span.0 {
        let minutes = lasting.as_secs() / 60;
        eprintln!(
            "penstock: the link is valid for {minutes} min only, until {expires_at}: the site \
             (storage.macaroon_validity_max) or your token does not allow more"
        );
    } else if !output.json {
        eprintln!("penstock: the link is valid until {expires_at}");
    }
    let shared = ShareReport {
        link: link(&args.url, &macaroon),
        activities,
        expires_at,
    };
    output.show(&shared, || format!("{}\n", shared.link));
    Ok(())
}

/// As browsers open it: without other queries, with the scheme that they know.
fn link(url: &Url, macaroon: &str) -> String {
    let mut link = url.clone();
    link.set_fragment(None);
    link.set_query(None);
    link.query_pairs_mut().append_pair("authz", macaroon);
    let text = link.to_string();
    match text.strip_prefix("davs://") {
        Some(rest) => format!("https://{rest}"),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(url: &str, expected: &str) {
        let url = Url::parse(url).expect("a URL");
        assert_eq!(link(&url, "a-b_c+/="), expected);
    }

    #[test]
    fn a_link_is_one_that_browsers_open() {
        let authz = "authz=a-b_c%2B%2F%3D";
        check("https://se:8443/d/", &format!("https://se:8443/d/?{authz}"));
        check("davs://se/d?x=1#y", &format!("https://se/d?{authz}"));
    }
}
