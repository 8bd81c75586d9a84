//! Links as people read them in a table.

use penstock_field_tools::access_links_api::AccessLinkInfo;
use penstock_model::text::one_line;

/// Characters of a user's name that are shown. Its issuer decides how long it is.
const USER_CHARS_MAX: usize = 64;

/// `2026-11-23 05:32 UTC`, of a time in RFC 3339 that ends with `Z`.
pub fn to_the_minute(time: &str) -> String {
    match time.strip_suffix('Z').and_then(|time| time.get(..16)) {
        Some(minute) => format!("{} UTC", minute.replace('T', " ")),
        None => time.to_owned(),
    }
}

/// A line for each, with its end.
pub fn table(links: &[AccessLinkInfo], nothing: &str) -> String {
    if links.is_empty() {
        return format!("{nothing}\n");
    }
    let mut text = String::new();
    for link in links {
        let end = match (link.state.as_str(), &link.ended_at) {
            ("valid", _) | (_, None) => format!("valid until {}", to_the_minute(&link.expires_at)),
            (state, Some(at)) => format!("{state} {}", to_the_minute(at)),
        };
        let used = match &link.last_used_at {
            Some(at) => format!("last used {}", to_the_minute(at)),
            None => "not used".to_owned(),
        };
        let kind = link.kind.as_deref().map(|kind| format!("{kind:<7}  "));
        let user: String = link.user.chars().take(USER_CHARS_MAX).collect();
        let line = format!(
            "{}  {}{}  {}; {end}; {used}; made by {user}",
            link.id,
            kind.unwrap_or_default(),
            link.opens,
            link.access,
        );
        text += &format!("{}\n", one_line(&line));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_what_a_link_opens_and_when_it_ends_with_its_zone() {
        let link = AccessLinkInfo {
            id: "5f0c1b2a3d4e".to_owned(),
            kind: None,
            user: "alice\nbob".to_owned(),
            opens: "/data".to_owned(),
            access: "read".to_owned(),
            created_at: "2026-11-22T17:32:00Z".to_owned(),
            expires_at: "2026-11-23T05:32:11Z".to_owned(),
            first_used_at: None,
            last_used_at: None,
            state: "valid".to_owned(),
            ended_at: None,
        };
        let revoked = AccessLinkInfo {
            kind: Some("view".to_owned()),
            state: "revoked".to_owned(),
            ended_at: Some("2026-11-22T18:00:59Z".to_owned()),
            last_used_at: Some("2026-11-22T17:59:00Z".to_owned()),
            ..link.clone()
        };
        let told = table(&[link, revoked], "nothing");
        let lines: Vec<&str> = told.lines().collect();
        assert_eq!(lines.len(), 2, "{told}");
        assert!(lines[0].starts_with(
            "5f0c1b2a3d4e  /data  read; valid until 2026-11-23 05:32 UTC; not used; made by alice"
        ));
        assert!(lines[1].contains(
            "view     /data  read; revoked 2026-11-22 18:00 UTC; last used 2026-11-22 17:59 UTC"
        ));
        assert_eq!(table(&[], "nothing"), "nothing\n");
        assert_eq!(to_the_minute("yesterday"), "yesterday");
    }
}
