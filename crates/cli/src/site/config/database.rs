//! `transfer.database`: where the transfer service keeps its record.

use serde::{Deserialize, Serialize};
use std::fmt::Display;
use std::path::PathBuf;

/// A file of this machine, or a database of PostgreSQL that several machines share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum DatabasePlace {
    /// A file of SQLite.
    File(PathBuf),
    /// An address like `postgres://user@host:5432/name`.
    Postgres(String),
}

/// Keywords of a connection string (PostgreSQL, libpq: parameter key words) by which one is told from a file's name.
const KEYWORDS: [&str; 8] = [
    "host", "hostaddr", "port", "dbname", "user", "password", "service", "sslmode",
];
/// Those whose values are secret.
const SECRETS: [&str; 2] = ["password", "sslpassword"];

impl From<String> for DatabasePlace {
    fn from(text: String) -> DatabasePlace {
        // Whatever is meant as an address is none of a file: as an address it is refused, without its password.
        let is_address = text.contains("://")
            || parameters(&text).any(|(keyword, _)| {
                let last = keyword.split_whitespace().next_back();
                last.is_some_and(|keyword| KEYWORDS.contains(&keyword))
            });
        match is_address {
            true => DatabasePlace::Postgres(text),
            false => DatabasePlace::File(text.into()),
        }
    }
}

impl From<DatabasePlace> for String {
    fn from(place: DatabasePlace) -> String {
        match place {
            DatabasePlace::File(path) => path.to_string_lossy().into_owned(),
            DatabasePlace::Postgres(address) => address,
        }
    }
}

impl DatabasePlace {
    /// The same for people: a password, which does not belong there, is left out.
    pub fn without_password(&self) -> DatabasePlace {
        match self {
            DatabasePlace::File(_) => self.clone(),
            DatabasePlace::Postgres(address) => DatabasePlace::Postgres(shown(address)),
        }
    }
}

/// An error about the text of a configuration, in which the line that it shows may hold the address of a database.
pub fn without_secrets(error: &impl Display) -> String {
    let hidden = |line: &str| {
        let (number, source) = line.split_once(" | ")?;
        let is_source = number.trim().bytes().all(|digit| digit.is_ascii_digit());
        let is_secret = ["database", "password", "://"]
            .iter()
            .any(|word| source.contains(word));
        let key = source.split_once('=').map_or("", |(key, _)| key);
        (is_source && is_secret).then(|| format!("{number} | {key}= …"))
    };
    let error = error.to_string();
    let lines = error.lines();
    let lines = lines.map(|line| hidden(line).unwrap_or_else(|| line.to_owned()));
    lines.collect::<Vec<String>>().join("\n")
}

/// An address without its password, in either form.
fn shown(address: &str) -> String {
    let Some((scheme, rest)) = address.split_once("://") else {
        let shown = parameters(address).map(|(keyword, value)| match is_secret(keyword) {
            true => format!("{keyword}=…"),
            false => format!("{keyword}={value}"),
        });
        return shown.collect::<Vec<String>>().join(" ");
    };
    let (base, query) = rest.split_once('?').unwrap_or((rest, ""));
    if query.contains('@') && !base.contains('@') && base.contains(':') {
        // The question mark may be one of the password.
        return format!("{scheme}://…");
    }
    let mut shown = match base.rsplit_once('@') {
        Some((names, host)) => match names.split_once(':') {
            Some((user, _)) => format!("{scheme}://{user}:…@{host}"),
            None => format!("{scheme}://{base}"),
        },
        None => format!("{scheme}://{base}"),
    };
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    for (number, pair) in pairs.enumerate() {
        let (name, _) = pair.split_once('=').unwrap_or((pair, ""));
        shown.push(if number == 0 { '?' } else { '&' });
        match is_secret(name) {
            true => shown += &format!("{name}=…"),
            false => shown.push_str(pair),
        }
    }
    shown
}

/// A keyword in another form than the usual one may be a secret's.
fn is_secret(keyword: &str) -> bool {
    let mut letters = keyword.bytes();
    SECRETS.contains(&keyword)
        || !letters.all(|letter| letter.is_ascii_lowercase() || letter == b'_')
}

/// The pairs of the form `host=… password='…'`, each with its value as it stands there (PostgreSQL, libpq: keyword/value
/// connection strings): spaces may stand around the sign, quotes around the value, a backslash before any character.
fn parameters(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let (keyword, behind) = rest.split_once('=')?;
        let value = behind.trim_start();
        let end = end_of_value(value);
        rest = &value[end..];
        Some((keyword.trim(), &value[..end]))
    })
}

fn end_of_value(value: &str) -> usize {
    let is_quoted = value.starts_with('\'');
    let mut characters = value.char_indices().skip(usize::from(is_quoted));
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => {
                characters.next();
            }
            '\'' if is_quoted => return at + 1,
            other if other.is_whitespace() && !is_quoted => return at,
            _ => {}
        }
    }
    value.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_not_shown() {
        for (address, shown) in [
            ("postgres://u@h/n", "postgres://u@h/n"),
            ("postgres://u:p@h:5432/n", "postgres://u:…@h:5432/n"),
            ("postgres://u:p@ss@h/n", "postgres://u:…@h/n"),
            (
                "postgresql://h/n?user=u&password=p&sslmode=disable",
                "postgresql://h/n?user=u&password=…&sslmode=disable",
            ),
            ("postgres://h/n?pass%77ord=p", "postgres://h/n?pass%77ord=…"),
            ("postgres://u:p?p@h/n", "postgres://…"),
            ("Postgres://u:p@h/n", "Postgres://u:…@h/n"),
            ("host=h user=u password=p", "host=h user=u password=…"),
            (
                "host = h password = 'p \\' p' dbname=n",
                "host=h password=… dbname=n",
            ),
            ("password=p\\ p user=u", "password=… user=u"),
            ("host=h 'password=p p", "host=h 'password=…"),
            ("so password=p", "so password=…"),
            ("state/transfer.sqlite", "state/transfer.sqlite"),
        ] {
            let place = DatabasePlace::from(address.to_owned());
            assert_eq!(String::from(place.without_password()), shown);
        }
    }

    #[test]
    fn an_error_about_the_text_shows_no_password() {
        for text in [
            "database = \"host=h password=hunter2",
            "database = \"postgres://u:hunter2@h/n\" x",
            "x = \"\"\"\nhost=h password=hunter2\\q\"\"\"",
        ] {
            let why = text.parse::<toml::Table>().expect_err(text);
            assert!(why.to_string().contains("hunter2"), "{why}");
            let told = without_secrets(&why);
            assert!(!told.contains("hunter2"), "{told}");
            assert!(told.contains("TOML parse error at line"), "{told}");
        }
        let other = "issuer = \"x";
        let why = other.parse::<toml::Table>().expect_err(other);
        assert!(without_secrets(&why).contains(other));
    }

    #[test]
    fn a_connection_string_is_no_file() {
        for (text, is_file) in [
            ("state/transfer.sqlite", true),
            ("state/a=b.sqlite", true),
            ("host=h password=p", false),
            ("dbname = 'a b'", false),
            ("Postgres://u:p@h/n", false),
        ] {
            let place = DatabasePlace::from(text.to_owned());
            assert_eq!(matches!(place, DatabasePlace::File(_)), is_file, "{text}");
        }
    }
}
