//! `docs/admin/configuration.md`: all keys of `penstock.toml`.
//!
//! Sections, keys and texts are those of the types' sources; defaults are those of a configuration in which every section is
//! present and has only the keys that it must have.

use super::Config;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use syn::{Attribute, Expr, Fields, GenericArgument, Item, Lit, Meta, PathArguments, Type};

/// Set, the page is written and not compared.
const WRITE: &str = "PENSTOCK_WRITE_CONFIGURATION_PAGE";
const PAGE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../docs/admin/configuration.md"
);

/// Where the types of the configuration are.
const SOURCES: [&str; 18] = [
    include_str!("../config.rs"),
    include_str!("administrators.rs"),
    include_str!("alerts.rs"),
    include_str!("backup.rs"),
    include_str!("database.rs"),
    include_str!("gfal.rs"),
    include_str!("history.rs"),
    include_str!("limits.rs"),
    include_str!("membership.rs"),
    include_str!("messages.rs"),
    include_str!("observe.rs"),
    include_str!("staging.rs"),
    include_str!("storage.rs"),
    include_str!("tape.rs"),
    include_str!("tape/class.rs"),
    include_str!("tape/library.rs"),
    include_str!("transfer.rs"),
    include_str!("../../../../tape/src/hsm_queue/policy.rs"),
];

/// What values of a type look like. A type that is neither here nor in a source fails the test.
const FORMS: [(&str, &str); 24] = [
    ("bool", "`true` or `false`"),
    ("i32", "number"),
    ("u8", "number"),
    ("u32", "number"),
    ("u64", "number"),
    ("usize", "number"),
    ("String", "text"),
    ("PathBuf", "path"),
    ("Span", "time"),
    ("Size", "size"),
    ("Keep", "time, or `\"forever\"`"),
    ("Url", "URL"),
    ("SocketAddr", "address and port"),
    ("DatabasePlace", "path, or URL"),
    ("NamespacePath", "path in the namespace"),
    ("TuningPolicy", "`\"measured\"`, `\"fts3\"` or `\"fixed\"`"),
    (
        "Right",
        "`\"read\"`, `\"create\"`, `\"modify\"`, `\"stage\"`, `\"poll\"`",
    ),
    (
        "ChecksumAlgorithm",
        "`\"adler32\"`, `\"crc32c\"`, `\"md5\"`, `\"sha-256\"`",
    ),
    ("InterfaceRole", "`\"wan\"`, `\"hsm\"` or `\"internal\"`"),
    ("Operation", "`\"transfer\"`, `\"config\"`"),
    ("HsmKind", "`\"put\"`, `\"get\"` or `\"remove\"`"),
    ("PoolMode", "`\"enabled\"`, `\"drained\"` or `\"disabled\"`"),
    ("ReadFromTape", "`\"refuse\"` or `\"stage\"`"),
    ("Confinement", "`\"required\"` or `\"off\"`"),
];

/// Every section, each with the keys that it must have.
const SHORTEST: &str = r#"
[site]
name = "site"
hosts = ["site.example.org"]
[issuer]
url = "https://site.example.org:8443"
vo = "site"
[[trust.issuer]]
issuer = "https://issuer.example.org/"
[[trust.member]]
dn = "/CN=Alice"
vo = "site"
[[trust.account]]
name = "alice"
vo = "site"
[transfer]
listen = "0.0.0.0:8446"
[transfer.backup]
to = "backups"
[[transfer.administrator]]
[[transfer.link]]
source = "https://a.example.org"
destination = "https://b.example.org"
active_max = 10
[[transfer.gfal.sftp]]
host = "sftp.example.org"
user = "alice"
key = "keys/sftp"
vo = "site"
[[transfer.messages]]
name = "monitoring"
[storage]
listen = "0.0.0.0:8443"
[storage.backup]
to = "backups"
[[storage.group]]
group = "/site"
path = "/"
rights = []
[[storage.user]]
dn = "/CN=Alice"
path = "/"
rights = []
[[storage.pool]]
name = "disk1"
path = "pools/disk1"
[storage.tape]
[[storage.tape.library]]
directory = "tape"
drives = [{ kind = "LTO-8", count = 2 }]
tapes = [{ kind = "LTO-8", count = 20 }]
[[storage.tape.class]]
path = "/tape"
family = "raw"
[[storage.tape.hsm_wide]]
[observe.alerts]
"#;

const HEAD: &str = "# All keys of penstock.toml

This page is made of the types that read the file. `penstock init` writes a file with the usual keys and short comments;
`penstock check --dir DIR` validates it; with `--values` it prints every effective value.

- **Paths** are relative to the site directory. An absolute path, such as `/etc/grid-security/certificates`, works as well.
- **Sizes** are text such as `\"500 MB\"`, `\"10 GB\"` or `\"256 MiB\"`. **Times** are text such as `\"30s\"`, `\"15m\"`, `\"1h\"` or `\"7d\"`.
- A key or section that is not on this page is an error. **required**: the section needs the key.
- `[section]` occurs once, `[[section]]` as often as needed.
- After a change, `kill -HUP` of the running `penstock serve` reloads limits, certificates and trust. Listening addresses and
  paths need a restart.
";

/// A section of the file.
struct Section {
    /// Such as `storage.tape`.
    path: String,
    /// It may occur several times.
    is_list: bool,
    text: String,
    keys: Vec<Key>,
}

struct Key {
    name: String,
    form: String,
    default: String,
    text: String,
}

/// The types of the sources by their names.
struct Types(BTreeMap<String, syn::ItemStruct>);

impl Types {
    fn read() -> Types {
        let files = SOURCES.map(|text| syn::parse_file(text).expect("a source of this crate"));
        let items = files.into_iter().flat_map(|file| file.items);
        let structs = items.filter_map(|item| match item {
            Item::Struct(item) => Some((item.ident.to_string(), item)),
            _ => None,
        });
        Types(structs.collect())
    }

    /// The sections of a type and of the types in it, in the order of the sources.
    fn sections(
        &self,
        name: &str,
        path: &str,
        is_list: bool,
        field_text: String,
        defaults: &toml::Value,
    ) -> Vec<Section> {
        let item = &self.0[name];
        let has_defaults = says(&item.attrs, "default");
        let Fields::Named(fields) = &item.fields else {
            panic!("{name} has no named fields");
        };
        let mut own = Section {
            path: path.to_owned(),
            is_list,
            text: match text(&item.attrs) {
                _ if !field_text.is_empty() => field_text,
                of_type => of_type,
            },
            keys: Vec::new(),
        };
        let mut below = Vec::new();
        for field in &fields.named {
            let ident = field.ident.as_ref().expect("a named field").to_string();
            let key = renamed(&field.attrs).unwrap_or(ident);
            let text = text(&field.attrs);
            let field_path = match path.is_empty() {
                true => key.clone(),
                false => format!("{path}.{key}"),
            };
            let (wrappers, innermost) = unwrapped(&field.ty);
            let is_list = wrappers.contains(&"Vec");
            let value = defaults.get(&key);
            if self.0.contains_key(innermost.as_str()) && innermost != "Keep" {
                let first = match value {
                    Some(toml::Value::Array(all)) => all.first(),
                    other => other,
                };
                let first = first.unwrap_or_else(|| panic!("{field_path} is not in SHORTEST"));
                below.extend(self.sections(&innermost, &field_path, is_list, text, first));
                continue;
            }
            assert!(!text.is_empty(), "{name}.{key} has no comment");
            let form = FORMS.iter().find(|(of, _)| *of == innermost);
            let (_, form) = form.unwrap_or_else(|| panic!("{field_path}: FORMS lacks {innermost}"));
            let is_optional =
                has_defaults || says(&field.attrs, "default") || wrappers.contains(&"Option");
            own.keys.push(Key {
                name: key,
                form: match (is_list, wrappers.contains(&"BTreeMap")) {
                    (true, _) => format!("list: {form}"),
                    (false, true) => format!("table: name = {form}"),
                    (false, false) => (*form).to_owned(),
                },
                default: match (is_optional, value) {
                    (false, _) => "**required**".to_owned(),
                    (true, None) => "unset".to_owned(),
                    (true, Some(toml::Value::Array(all))) if all.is_empty() => "none".to_owned(),
                    (true, Some(toml::Value::Table(all))) if all.is_empty() => "none".to_owned(),
                    (true, Some(value)) => format!("`{value}`"),
                },
                text,
            });
        }
        let own = (!own.path.is_empty()).then_some(own);
        own.into_iter().chain(below).collect()
    }
}

/// `Option<Vec<X>>` as its wrappers and `X`; of a map, that of its values.
fn unwrapped(of: &Type) -> (Vec<&'static str>, String) {
    let Type::Path(path) = of else {
        panic!("a field of a configuration is of a named type");
    };
    let last = path.path.segments.last().expect("a path has a segment");
    let name = last.ident.to_string();
    let wrapper = ["Option", "Vec", "BTreeMap"]
        .into_iter()
        .find(|wrapper| *wrapper == name);
    match (wrapper, &last.arguments) {
        (Some(wrapper), PathArguments::AngleBracketed(arguments)) => {
            let Some(GenericArgument::Type(inner)) = arguments.args.last() else {
                panic!("{name} of what?");
            };
            let (mut wrappers, innermost) = unwrapped(inner);
            wrappers.push(wrapper);
            (wrappers, innermost)
        }
        _ => (Vec::new(), name),
    }
}

/// The doc comment, as one line.
fn text(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(|attribute| {
        let Meta::NameValue(pair) = &attribute.meta else {
            return None;
        };
        let Expr::Lit(value) = &pair.value else {
            return None;
        };
        match &value.lit {
            Lit::Str(line) if pair.path.is_ident("doc") => Some(line.value().trim().to_owned()),
            _ => None,
        }
    });
    lines.collect::<Vec<_>>().join(" ")
}

/// Whether `#[serde(…)]` has this word.
fn says(attributes: &[Attribute], word: &str) -> bool {
    serde_of(attributes, |meta| {
        meta.path.is_ident(word).then_some(String::new())
    })
    .is_some()
}

/// The name of a key that is not that of its field.
fn renamed(attributes: &[Attribute]) -> Option<String> {
    serde_of(attributes, |meta| {
        let is_name = meta.path.is_ident("rename");
        let name = meta.value().ok()?.parse::<syn::LitStr>().ok()?;
        is_name.then(|| name.value())
    })
}

/// What is found first in the words of `#[serde(…)]`.
fn serde_of(
    attributes: &[Attribute],
    mut find: impl FnMut(&syn::meta::ParseNestedMeta) -> Option<String>,
) -> Option<String> {
    let mut found = None;
    for attribute in attributes.iter().filter(|it| it.path().is_ident("serde")) {
        attribute
            .parse_nested_meta(|meta| {
                found = found.take().or_else(|| find(&meta));
                // Whatever stands behind the word is passed over.
                if meta.input.peek(syn::Token![=]) {
                    meta.value()?.parse::<Expr>()?;
                }
                Ok(())
            })
            .expect("attributes of serde");
    }
    found
}

fn page() -> String {
    let shortest = Config::parse(SHORTEST).expect("every section with what it must have");
    let defaults = toml::Value::try_from(&shortest).expect("a configuration is a document");
    let sections = Types::read().sections("Config", "", false, String::new(), &defaults);
    let mut page = HEAD.to_owned();
    for section in sections {
        let title = match section.is_list {
            true => format!("[[{}]]", section.path),
            false => format!("[{}]", section.path),
        };
        let _ = write!(page, "\n## `{title}`\n{}\n", section.text);
        if section.keys.is_empty() {
            continue;
        }
        page.push_str("\n| key | value | default | meaning |\n|---|---|---|---|\n");
        for key in section.keys {
            let text = key.text.replace('|', "\\|");
            let _ = writeln!(
                page,
                "| `{}` | {} | {} | {text} |",
                key.name, key.form, key.default
            );
        }
    }
    page
}

#[test]
fn the_page_has_every_key_that_the_types_have() {
    let page = page();
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(Path::new(PAGE), page).expect("the page can be written");
        return;
    }
    let there = std::fs::read_to_string(PAGE).expect("docs/admin/configuration.md");
    assert!(
        there == page,
        "docs/admin/configuration.md is not what the types say; run this test with {WRITE}=1"
    );
}
