//! Takes names and paths out of sentences that others may read.

/// Stands for what was taken out.
const HIDDEN: &str = "…";
/// A part of a name that is shorter is not looked for: it stands in words.
const PART_CHARS_MIN: usize = 3;

/// What must not be told, and how a sentence reads without it.
#[derive(Debug, Default)]
pub(super) struct Redaction {
    /// The longest first, so that no part of a longer one is left.
    names: Vec<String>,
}

impl Redaction {
    /// Hides these names wherever they stand; of URLs and paths the whole path and its last part, also decoded.
    pub(super) fn of<'a>(hidden: impl IntoIterator<Item = &'a str>) -> Redaction {
        let mut names = Vec::new();
        for name in hidden {
            let decoded = percent_encoding::percent_decode_str(name).decode_utf8_lossy();
            for form in [name, &*decoded] {
                let rest = form.split_once("://").map_or(form, |(_, rest)| rest);
                let path = rest.split_once('/').map_or(rest, |(_, path)| path);
                let path = path.split(['?', '#']).next().unwrap_or(path);
                let last = path.trim_end_matches('/').rsplit('/').next();
                let parts = [Some(path), last].into_iter().flatten();
                names.extend(
                    parts
                        .filter(|part| part.chars().count() >= PART_CHARS_MIN)
                        .map(str::to_owned),
                );
            }
        }
        names.sort_by(|a, b| (b.len(), a).cmp(&(a.len(), b)));
        names.dedup();
        Redaction { names }
    }

    /// The sentence without the names, and without whatever else is a path: hosts stay.
    pub(super) fn applied(&self, sentence: &str) -> String {
        let mut text = sentence.to_owned();
        for name in &self.names {
            if text.contains(name.as_str()) {
                text = text.replace(name.as_str(), HIDDEN);
            }
        }
        without_paths(&text)
    }
}

/// Of a URL, its scheme and authority stay; of anything else with a slash before a name, nothing behind the slash.
fn without_paths(sentence: &str) -> String {
    let mut out = String::with_capacity(sentence.len());
    let mut rest = sentence;
    while let Some(slash) = rest.find('/') {
        let (before, after) = rest.split_at(slash);
        out.push_str(before);
        if let Some(authority) = after.strip_prefix("//").filter(|_| before.ends_with(':')) {
            let is_end = |c: char| c == '/' || c == '?' || c == '#' || ends_a_path(c);
            let end = authority.find(is_end).unwrap_or(authority.len());
            // A password stands before `@`.
            let host = authority[..end].rsplit('@').next().unwrap_or_default();
            out.push_str("//");
            out.push_str(host);
            rest = &authority[end..];
            if rest.starts_with(['?', '#']) {
                rest = past_path(rest, &mut out);
            }
            continue;
        }
        match is_ratio(before, &after[1..]) {
            true => {
                out.push('/');
                rest = &after[1..];
            }
            false => rest = past_path(after, &mut out),
        }
    }
    out.push_str(rest);
    out
}

/// `2/3 files`, `MB/s`, `I/O`: numbers on both sides of the slash, or one letter behind it. All else may be a name.
fn is_ratio(before: &str, after: &str) -> bool {
    let word = before.rsplit(ends_a_path).next().unwrap_or(before);
    let end = after.find(ends_a_path).unwrap_or(after.len());
    let divisor = after[..end].trim_end_matches(['.', ':', '?', '!']);
    let is_number = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
    let is_letter = divisor.len() == 1 && divisor.chars().all(|c| c.is_ascii_alphabetic());
    let is_unit = !word.is_empty() && word.chars().all(char::is_alphanumeric) && is_letter;
    is_unit || (is_number(word) && is_number(divisor))
}

fn past_path<'a>(text: &'a str, out: &mut String) -> &'a str {
    let end = text.find(ends_a_path).unwrap_or(text.len());
    if end > 1 {
        out.push('/');
        out.push_str(HIDDEN);
    } else {
        out.push_str(&text[..end]);
    }
    &text[end..]
}

fn ends_a_path(c: char) -> bool {
    c.is_whitespace() || "\"'`()<>[]{},;".contains(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(sentence: &str, expected: &str) {
        let hidden = [
            "https://se.example.org:8443/data/run%2042/a.root",
            "/DC=ch/CN=Alice",
            "alice",
        ];
        assert_eq!(Redaction::of(hidden).applied(sentence), expected);
    }

    #[test]
    fn hosts_and_numbers_stay_and_names_and_paths_go() {
        check(
            "HEAD https://se.example.org:8443/data/run%2042/a.root: 404 Not Found",
            "HEAD https://se.example.org:8443/… 404 Not Found",
        );
        check("/data/run 42/a.root does not exist", "/… does not exist");
        check(
            "the file 'a.root' of alice is there",
            "the file '…' of … is there",
        );
        check(
            "/DC=ch/CN=Alice may not read (/x/y)",
            "/… may not read (/…)",
        );
        check("2/3 files at 5 MB/s", "2/3 files at 5 MB/s");
        check("at 5 MB/s. I/O error 5/16", "at 5 MB/s. I/O error 5/16");
        check("run42/secret.root of me", "run42/… of me");
        check("run42/ab is missing", "run42/… is missing");
        check("https://h/1", "https://h/…");
        check("https://user:secret@h/p?authz=x", "https://h/…");
        check("https://h?authz=x y", "https://h/… y");
        check("GET / failed", "GET / failed");
        check("a.root: ENOENT", "…: ENOENT");
        check("posix:/etc/passwd and dir/sub/file", "posix:/… and dir/…");
    }
}
