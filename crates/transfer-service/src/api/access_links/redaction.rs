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
    /// Hidden where they stand as words of their own: within a name of a host they stay.
    words: Vec<String>,
}

impl Redaction {
    /// Hides these names wherever they stand; of URLs and paths the whole path, each directory above, and each part of them that
    /// would not be known as a path; also decoded. Hides these words where they stand alone.
    pub(super) fn of<'a>(
        hidden: impl IntoIterator<Item = &'a str>,
        words: impl IntoIterator<Item = &'a str>,
    ) -> Redaction {
        let mut names = Vec::new();
        for name in hidden {
            let decoded = percent_encoding::percent_decode_str(name).decode_utf8_lossy();
            for form in [name, &*decoded] {
                let rest = form.split_once("://").map_or(form, |(_, rest)| rest);
                let path = rest.split_once('/').map_or(rest, |(_, path)| path);
                let path = path.split(['?', '#']).next().unwrap_or(path);
                let whole = path.trim_end_matches('/');
                let last = whole.rsplit('/').next();
                let above = whole.match_indices('/').map(|(end, _)| &whole[..end]);
                let above = above.filter(|above| above.contains('/'));
                let split = whole.split('/').filter(|part| part.contains(ends_a_path));
                let parts = [Some(path), last].into_iter().flatten();
                let parts = parts.chain(above).chain(split);
                names.extend(
                    parts
                        .filter(|part| part.chars().count() >= PART_CHARS_MIN)
                        .map(str::to_owned),
                );
            }
        }
        names.sort_by(|a, b| (b.len(), a).cmp(&(a.len(), b)));
        names.dedup();
        let words = words.into_iter().filter(|word| !word.is_empty());
        Redaction {
            names,
            words: words.map(str::to_owned).collect(),
        }
    }

    /// The sentence without the names, and without whatever else is a path: hosts stay.
    pub(super) fn applied(&self, sentence: &str) -> String {
        let mut text = sentence.to_owned();
        for word in &self.words {
            text = without_word(&text, word);
        }
        for name in &self.names {
            if text.contains(name.as_str()) {
                text = text.replace(name.as_str(), HIDDEN);
            }
        }
        without_paths(&text)
    }
}

/// A word, or a sentence, where it does not stand within another.
fn without_word(text: &str, word: &str) -> String {
    let is_within = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(word) {
        let (before, found) = rest.split_at(at);
        let after = &found[word.len()..];
        out.push_str(before);
        let mut behind = after.chars();
        // A full stop behind it ends the sentence.
        let is_longer = match behind.next() {
            Some('.') => behind.next().is_some_and(is_within),
            next => next.is_some_and(is_within),
        };
        let is_part = is_longer || out.chars().next_back().is_some_and(is_within);
        out.push_str(if is_part { word } else { HIDDEN });
        rest = after;
    }
    out.push_str(rest);
    out
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
            "https://se/data/ok/Project%20X%20B/f.root",
            "/DC=ch/CN=Alice",
            "alice",
        ];
        let words = ["cms", "Data Challenge", "broken by Bob"];
        assert_eq!(Redaction::of(hidden, words).applied(sentence), expected);
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
        check(
            "409 Conflict: /data/ok/Project X B is a file",
            "409 Conflict: /… is a file",
        );
        check(
            "mkdir 'Project X B' in /data/ok failed",
            "mkdir '…' in /… failed",
        );
        check(
            "eoscms.cern.ch: cms gets 30 %, 'Data Challenge' all. It is for cms.",
            "eoscms.cern.ch: … gets 30 %, '…' all. It is for ….",
        );
        check(
            "se has been banned: broken by Bob; it waits",
            "se has been banned: …; it waits",
        );
        check("a.root: ENOENT", "…: ENOENT");
        check("posix:/etc/passwd and dir/sub/file", "posix:/… and dir/…");
    }
}
