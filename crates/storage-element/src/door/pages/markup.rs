//! The pages as text. Everything that came from a user goes through [`text`] or [`NamespacePath::to_encoded`], so
//! that no name becomes markup, and no name can reorder what stands beside it.

use super::super::caller::shown_owner;
use super::super::html::text;
use http::StatusCode;
use penstock_model::{Bytes, Checksum, NamespacePath, Timestamp, UserName};
use penstock_persistence::namespace::Entry;
use std::fmt::Write;

/// What stands around the content of a page.
pub(super) struct Frame<'a> {
    /// The door, as its reader calls it.
    pub host: &'a str,
    pub path: &'a NamespacePath,
    pub user: Option<UserName>,
    /// What the reader may do here, in words that the script knows.
    pub can: Vec<&'static str>,
    /// Still encoded; goes into every link.
    pub authorisation: Option<&'a str>,
}

/// One page of a directory.
pub(super) struct Directory<'a> {
    pub frame: Frame<'a>,
    pub entries: &'a [Entry],
    /// There may be entries before and after these.
    pub earlier: bool,
    pub later: bool,
}

/// A file and what is known of it.
pub(super) struct Details<'a> {
    pub frame: Frame<'a>,
    pub entry: &'a Entry,
    pub checksums: &'a [Checksum],
    pub readable: bool,
}

/// Why there is no such page.
pub(super) struct RefusedPage<'a> {
    pub host: &'a str,
    /// `None`: the address is none of this namespace.
    pub path: Option<&'a NamespacePath>,
    pub authorisation: Option<&'a str>,
    pub status: StatusCode,
    pub text: &'a str,
}

pub(super) fn directory(page: &Directory<'_>) -> String {
    let Directory { frame, entries, .. } = page;
    let mut out = String::with_capacity(4096 + entries.len() * 700);
    begin(&mut out, frame, "directory");
    out.push_str("<section class=\"card listing\" aria-label=\"Entries\">\n");
    if entries.is_empty() {
        out.push_str("<p class=\"none\">This folder is empty.</p>\n");
    } else {
        out.push_str(
            "<table class=\"entries\"><thead><tr><th scope=\"col\">Name</th>\
             <th scope=\"col\" class=\"size\">Size</th><th scope=\"col\" class=\"exact\">Bytes</th>\
             <th scope=\"col\" class=\"time\">Modified (UTC)</th>\
             <th scope=\"col\" class=\"more\"><span class=\"unseen\">More</span></th></tr></thead>\n<tbody>\n",
        );
        for entry in *entries {
            row(&mut out, frame, entry);
        }
        out.push_str("</tbody></table>\n");
    }
    turning(&mut out, page);
    out.push_str("</section>\n");
    end(&mut out);
    out
}

fn row(out: &mut String, frame: &Frame<'_>, entry: &Entry) {
    // Names in the namespace are valid, so the path is.
    let Ok(path) = frame.path.child(&entry.name) else {
        return;
    };
    let (encoded, name) = (path.to_encoded(), text(&entry.name));
    let authorisation = query(&[], frame.authorisation);
    let time = time(entry.modified);
    let _ = match entry.size() {
        None => writeln!(
            out,
            "<tr data-kind=\"directory\" data-href=\"{encoded}\"><td class=\"name\">\
             <a class=\"directory\" href=\"{encoded}/{authorisation}\"><bdi>{name}</bdi>/</a></td>\
             <td class=\"size\"></td><td class=\"exact\"></td><td class=\"time\">{time}</td>\
             <td class=\"more\"></td></tr>"
        ),
        Some(size) => {
            let details = query(&["details"], frame.authorisation);
            let exact = grouped(size);
            writeln!(
                out,
                "<tr data-kind=\"file\" data-href=\"{encoded}\"><td class=\"name\">\
                 <a class=\"file\" href=\"{encoded}{authorisation}\" download><bdi>{name}</bdi></a></td>\
                 <td class=\"size\">{size}</td><td class=\"exact\">{exact}</td>\
                 <td class=\"time\">{time}</td><td class=\"more\">\
                 <a class=\"quiet\" href=\"{encoded}{details}\">details<span class=\"unseen\"> of \
                 <bdi>{name}</bdi></span></a></td></tr>"
            )
        }
    };
}

/// Links to the pages before and after, and a way to jump.
fn turning(out: &mut String, page: &Directory<'_>) {
    if !page.earlier && !page.later {
        return;
    }
    let frame = &page.frame;
    let here = format!("{}/", frame.path.to_encoded().trim_end_matches('/'));
    out.push_str("<nav class=\"turning\" aria-label=\"Pages\">");
    let mut link = |word: &str, key: &str, entry: Option<&Entry>, shown: bool| {
        if let (Some(entry), true) = (entry, shown) {
            let pair = format!("{key}={}", encoded_value(&entry.name));
            let query = query(&[&pair], frame.authorisation);
            let _ = write!(out, "<a rel=\"{word}\" href=\"{here}{query}\">{word}</a>");
        } else if shown {
            // An empty page past the end: back to the beginning.
            let query = query(&[], frame.authorisation);
            let _ = write!(out, "<a href=\"{here}{query}\">first page</a>");
        }
    };
    link("previous", "before", page.entries.first(), page.earlier);
    if page.later {
        link("next", "after", page.entries.last(), true);
    }
    let _ = write!(
        out,
        "<form method=\"get\" action=\"{here}\" class=\"jump\"><label for=\"after\">names after</label>\
         <input id=\"after\" name=\"after\" autocomplete=\"off\" spellcheck=\"false\">"
    );
    if let Some(authorisation) = frame.authorisation {
        // Decoded here, because the form encodes it again.
        let value = percent_encoding::percent_decode_str(authorisation).decode_utf8_lossy();
        let value = text(&value);
        let _ = write!(
            out,
            "<input type=\"hidden\" name=\"authz\" value=\"{value}\">"
        );
    }
    out.push_str("<button class=\"quiet\">go</button></form></nav>\n");
}

pub(super) fn details(page: &Details<'_>) -> String {
    let Details { frame, entry, .. } = page;
    let mut out = String::with_capacity(4096);
    begin(&mut out, frame, "file");
    let encoded = frame.path.to_encoded();
    let size = entry.size().unwrap_or_default();
    let _ = writeln!(
        out,
        "<section class=\"card details\" aria-labelledby=\"name\"><h2 id=\"name\"><bdi>{}</bdi></h2>",
        text(&entry.name)
    );
    if page.readable {
        let authorisation = query(&[], frame.authorisation);
        let _ = writeln!(
            out,
            "<p class=\"actions\"><a class=\"button file\" href=\"{encoded}{authorisation}\" download>\
             Download <small>{size}</small></a></p>"
        );
    }
    out.push_str("<dl class=\"facts\">");
    let mut fact = |name: &str, value: &str| {
        let _ = write!(out, "<div><dt>{name}</dt><dd>{value}</dd></div>");
    };
    fact(
        "Size",
        &format!("{size} <small>({} bytes)</small>", grouped(size)),
    );
    fact("Modified (UTC)", &time(entry.modified));
    for sum in page.checksums {
        let (name, hex) = (sum.algorithm().name(), sum.hex());
        fact(name, &format!("<code>{}</code>", text(hex)));
    }
    if let Some(owner) = &entry.owner {
        fact(
            "Written by",
            &format!("<bdi>{}</bdi>", text(shown_owner(owner))),
        );
    }
    fact(
        "Path",
        &format!("<code><bdi>{}</bdi></code>", text(&frame.path.to_string())),
    );
    out.push_str("</dl></section>\n");
    end(&mut out);
    out
}

pub(super) fn refusal(page: &RefusedPage<'_>) -> String {
    let root = NamespacePath::root();
    let frame = Frame {
        host: page.host,
        path: page.path.unwrap_or(&root),
        user: None,
        can: Vec::new(),
        authorisation: page.authorisation,
    };
    let mut out = String::with_capacity(4096);
    begin(&mut out, &frame, "refused");
    let title = match page.status {
        StatusCode::UNAUTHORIZED => "Sign in",
        StatusCode::FORBIDDEN => "Not allowed",
        StatusCode::NOT_FOUND => "Not found",
        _ => "Request failed",
    };
    // The advice for clients of the interface does not help in a browser.
    let explanation = match page.text.contains("send 'Authorization: Bearer'") {
        true => "Sign in to see this page.",
        false => page.text,
    };
    let _ = writeln!(
        out,
        "<section class=\"card refused\" data-status=\"{}\" aria-labelledby=\"why\"><h2 id=\"why\">{title}</h2>\
         <p>{}</p>",
        page.status.as_u16(),
        text(explanation)
    );
    if matches!(
        page.status,
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN
    ) {
        out.push_str(
            "<p class=\"hint\">You need a shared link, a client certificate in your browser, or a token.</p>\
             <noscript><p class=\"hint\">To sign in with a token, enable JavaScript.</p>\
             </noscript>\n",
        );
    }
    out.push_str("</section>\n");
    end(&mut out);
    out
}

fn begin(out: &mut String, frame: &Frame<'_>, kind: &str) {
    let title = match frame.path.name() {
        Some(name) => text(name),
        None => text(frame.host),
    };
    let host = text(frame.host);
    let top = query(&[], frame.authorisation.filter(|_| frame.path.is_root()));
    let user = match &frame.user {
        Some(user) => format!("<bdi>{}</bdi>", text(user.as_str())),
        None => "not signed in".to_owned(),
    };
    let _ = write!(
        out,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\"><meta name=\"robots\" content=\"noindex\">\
         <title>{title} – Penstock</title><link rel=\"icon\" href=\"/.penstock/icon.svg\">\
         <link rel=\"stylesheet\" href=\"/.penstock/pages.css\">\
         <script type=\"module\" src=\"/.penstock/pages.js\"></script></head>\n<body>\
         <header class=\"bar\"><h1><a href=\"/{top}\">Penstock</a> <span class=\"site\">{host}</span></h1>\
         <p class=\"who\" id=\"who\"><span id=\"user\">{user}</span></p></header>\n\
         <main id=\"main\" data-kind=\"{kind}\" data-path=\"{}\" data-can=\"{}\"{}>\n",
        frame.path.to_encoded(),
        frame.can.join(" "),
        if frame.user.is_some() {
            " data-known"
        } else {
            ""
        },
    );
    crumbs(out, frame);
}

fn crumbs(out: &mut String, frame: &Frame<'_>) {
    let authorisation = query(&[], frame.authorisation);
    out.push_str("<nav class=\"crumbs\" aria-label=\"Path\"><ol>");
    let mut path = NamespacePath::root();
    let count = frame.path.names().len();
    let mut crumb = |path: &NamespacePath, name: &str, last: bool| {
        let href = path.to_encoded();
        let slash = if path.is_root() { "" } else { "/" };
        let _ = match last {
            true => write!(out, "<li><span aria-current=\"page\">{name}</span></li>"),
            false => write!(
                out,
                "<li><a class=\"directory\" href=\"{href}{slash}{authorisation}\">{name}</a></li>"
            ),
        };
    };
    crumb(&path, "top", count == 0);
    for (index, name) in frame.path.names().iter().enumerate() {
        if let Ok(child) = path.child(name) {
            path = child;
        }
        let shown = format!("<bdi>{}</bdi>", text(name));
        crumb(&path, &shown, index + 1 == count);
    }
    out.push_str("</ol></nav>\n<div id=\"tools\" class=\"tools\"></div>\n");
}

fn end(out: &mut String) {
    out.push_str("</main>\n</body></html>\n");
}

/// A query of these pairs and the authorisation, ready to stand in an attribute.
fn query(pairs: &[&str], authorisation: Option<&str>) -> String {
    let authorisation = authorisation.map(|value| format!("authz={value}"));
    let all: Vec<&str> = pairs
        .iter()
        .copied()
        .chain(authorisation.as_deref())
        .collect();
    match all.is_empty() {
        true => String::new(),
        false => format!("?{}", all.join("&amp;")),
    }
}

fn encoded_value(name: &str) -> String {
    percent_encoding::utf8_percent_encode(name, percent_encoding::NON_ALPHANUMERIC).to_string()
}

fn time(at: Timestamp) -> String {
    let stamp = at.to_fts();
    let stamp = stamp.split('.').next().unwrap_or(&stamp);
    let shown = stamp.replace('T', " ");
    format!("<time datetime=\"{stamp}Z\">{shown}</time>")
}

/// `1,234,567`.
fn grouped(size: Bytes) -> String {
    let digits = size.0.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_model::PoolName;
    use penstock_persistence::namespace::{EntryId, EntryKind};

    fn entry(name: &str) -> Entry {
        Entry {
            id: EntryId(7),
            name: name.to_owned(),
            kind: EntryKind::File {
                size: Bytes(1_234_567),
                pool: Some(PoolName::new("p")),
                archival: penstock_model::Archival::DiskOnly,
            },
            modified: Timestamp(1_795_241_991_000),
            created: Timestamp(0),
            owner: None,
            has_properties: false,
        }
    }

    fn page(names: &[&str], path: &str) -> String {
        let path = NamespacePath::parse(path).expect("valid");
        let entries: Vec<Entry> = names.iter().map(|name| entry(name)).collect();
        directory(&Directory {
            frame: Frame {
                host: "se.example.org\"><script>",
                path: &path,
                user: Some(UserName::new("<b>alice</b>")),
                can: vec!["create"],
                authorisation: Some("abc%3D"),
            },
            entries: &entries,
            earlier: true,
            later: true,
        })
    }

    #[test]
    fn no_name_becomes_markup() {
        let hostile = "\"><img src=x onerror=alert(1)>";
        let html = page(
            &[hostile, "'onmouseover='x", "a&lt;b", "x\u{202e}gpj.exe"],
            "/<i>/\"q",
        );
        for forbidden in [
            "<img", "<b>", "<i>", "<script>", "'onmouse", "\u{202e}", "src=x o",
        ] {
            assert!(
                !html
                    .replace("src=x onerror=alert(1)&gt;", "")
                    .contains(forbidden),
                "{forbidden}"
            );
        }
        assert!(html.contains("&quot;&gt;&lt;img src=x onerror=alert(1)&gt;"));
        assert!(html.contains("a&amp;lt;b") && html.contains("x⟨U+202E⟩gpj.exe"));
        assert!(html.contains(
            "href=\"/%3Ci%3E/%22q/%22%3E%3Cimg%20src%3Dx%20onerror%3Dalert%281%29%3E?authz=abc%3D\""
        ));
    }

    #[test]
    fn every_link_of_a_page_keeps_its_authorisation() {
        let html = page(&["a", "b"], "/d");
        let links = html.matches(" href=\"/d/").count();
        let kept = html.split(" href=\"/d/").skip(1);
        let kept = kept.filter(|rest| {
            rest.split('"')
                .next()
                .is_some_and(|href| href.ends_with("authz=abc%3D"))
        });
        assert_eq!((links, kept.count()), (6, 6), "{html}");
        assert!(html.contains("name=\"authz\" value=\"abc=\""));
        assert!(html.contains("?before=a&amp;authz") && html.contains("?after=b&amp;authz"));
    }

    #[test]
    fn a_size_is_told_in_short_and_exactly() {
        let html = page(&["a"], "/");
        assert!(html.contains("1.2 MB") && html.contains(">1,234,567<"));
        assert_eq!(grouped(Bytes(999)), "999");
        assert_eq!(grouped(Bytes(1000)), "1,000");
    }
}
