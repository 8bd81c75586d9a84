//! `transfer.database`: where the transfer service keeps its record.

use serde::{Deserialize, Serialize};
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

impl From<String> for DatabasePlace {
    fn from(text: String) -> DatabasePlace {
        match text.starts_with("postgres://") || text.starts_with("postgresql://") {
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
        let DatabasePlace::Postgres(address) = self else {
            return self.clone();
        };
        let (base, query) = address.split_once('?').unwrap_or((address, ""));
        let mut shown = match (base.split_once("://"), base.rsplit_once('@')) {
            (Some((scheme, _)), Some((before, host))) => {
                let names = &before[scheme.len() + "://".len()..];
                match names.split_once(':') {
                    Some((user, _)) => format!("{scheme}://{user}:…@{host}"),
                    None => base.to_owned(),
                }
            }
            _ => base.to_owned(),
        };
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        for (number, pair) in pairs.enumerate() {
            let (name, _) = pair.split_once('=').unwrap_or((pair, ""));
            shown.push(if number == 0 { '?' } else { '&' });
            match name {
                "password" => shown.push_str("password=…"),
                _ => shown.push_str(pair),
            }
        }
        DatabasePlace::Postgres(shown)
    }
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
        ] {
            let place = DatabasePlace::from(address.to_owned());
            assert_eq!(String::from(place.without_password()), shown);
        }
    }
}
