//! A file that is source and destination of one copy would be read after it has been replaced.

use super::access::Server;
use crate::exit::CommandError;
use penstock_field_tools::remote::path_of;
use penstock_field_tools::server_identity::ServerIdentity;
use penstock_model::url::redact;
use std::collections::BTreeMap;
use url::Url;

/// Refuses pairs of source and destination in which a destination is one of the sources, however it is written; where both
/// servers are one, under whatever name.
pub fn refuse_own_sources<'a>(
    pairs: impl Iterator<Item = (&'a str, &'a str)> + Clone,
    servers: ServerIdentity,
) -> Result<(), CommandError> {
    let one_place_of = |text| match (place_of(text), servers) {
        (FilePlace::At(_, path), ServerIdentity::Same) => FilePlace::AtEither(path),
        (place, _) => place,
    };
    let sources: BTreeMap<FilePlace, &str> = pairs
        .clone()
        .map(|(source, _)| (one_place_of(source), source))
        .collect();
    let own = pairs.filter_map(|(_, destination)| {
        let source = sources.get(&one_place_of(destination))?;
        Some((*source, destination))
    });
    let Some((source, destination)) = own.into_iter().next() else {
        return Ok(());
    };
    let aliases = match place_of(source) == place_of(destination) {
        true => "",
        false => " (both URLs lead to the same server)",
    };
    Err(CommandError::Usage(format!(
        "{} would be replaced, but it is one of the files to be copied{aliases}; choose another destination",
        redact(destination)
    )))
}

/// The one name that all spellings of a URL share.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum FilePlace {
    At(Server, String),
    /// At a server that source and destination have in common.
    AtEither(String),
    /// Of what is no URL.
    Text(String),
}

fn place_of(text: &str) -> FilePlace {
    let Ok(url) = Url::parse(text) else {
        return FilePlace::Text(text.to_owned());
    };
    let path = path_of(&url).map(|path| path.to_string());
    FilePlace::At(
        Server::of(&url),
        path.unwrap_or_else(|_| url.path().to_owned()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_source_is_a_destination_too() {
        let check = |pairs: &[(&'static str, &'static str)], expected: Option<&str>| {
            let told = refuse_own_sources(pairs.iter().copied(), ServerIdentity::Unknown).err();
            let told = told.map(|why| why.to_string());
            match (&told, expected) {
                (None, None) => {}
                (Some(told), Some(part)) => assert!(told.contains(part), "{told}"),
                (_, _) => panic!("{pairs:?}: {told:?}"),
            }
        };
        check(&[("https://se/t/a", "https://se/u/a")], None);
        let aliases = [("https://se/t/a", "https://other/t/a")];
        check(&aliases, None);
        refuse_own_sources(aliases.into_iter(), ServerIdentity::Same).expect_err("one file");
        let into = [
            ("https://se/t/a", "https://se/t/b/a"),
            ("https://se/t/b/a", "https://se/t/b/b/a"),
        ];
        check(&into, Some("https://se/t/b/a would be replaced"));
        for spelt in [
            "https://SE:443/t/b",
            "davs://se/t//b",
            "https://se/t/%62?authz=x",
        ] {
            check(
                &[
                    ("https://se/t/a", "https://se/t/b"),
                    (spelt, "https://se/u"),
                ],
                Some("t/b would"),
            );
        }
    }
}
