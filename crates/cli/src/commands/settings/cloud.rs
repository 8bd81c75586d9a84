//! `penstock cloud-storage`: cloud storages and who may use which keys. Secrets come from a file or standard input,
//! because others can read a command line.

use super::{form, place, removed, said, show};
use crate::args::cloud::{CloudCommand, CloudGrantArgs, Holder};
use crate::commands::jobs::{Intent, connect};
use crate::environment::Environment;
use crate::exit::CommandError;
use crate::output::Output;
use penstock_field_tools::settings_api::SettingPlace;
use penstock_field_tools::transfer_api::TransferService;
use serde::Deserialize;
use serde_json::{Value, json};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Bytes of a file with keys; session tokens have a thousand.
const KEYS_BYTES_MAX: u64 = 64 << 10;
const OPEN_TO_OTHERS: u32 = 0o077;

#[derive(Debug, Deserialize)]
struct CloudRow {
    storage_name: String,
    region: Option<String>,
    #[serde(default)]
    keys: Vec<KeyRow>,
}

#[derive(Debug, Deserialize)]
struct KeyRow {
    storage_name: String,
    user_dn: Option<String>,
    vo_name: Option<String>,
    access_token: String,
    #[serde(default)]
    temporary: bool,
}

/// `penstock cloud-storage`.
pub async fn cloud_storage(
    command: CloudCommand,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let of = match &command {
        CloudCommand::List(args) => &args.service,
        CloudCommand::Add(args) => &args.service,
        CloudCommand::Remove(args) => &args.service,
        CloudCommand::Grant(args) => &args.service,
        CloudCommand::Revoke(args) => &args.service,
    };
    let service = connect(of, Intent::Administer, environment)?;
    match &command {
        CloudCommand::List(_) => {
            let found = with_keys(&service).await?;
            show(output, &found, |rows: Vec<CloudRow>| {
                rows.iter().map(cloud_lines).collect()
            })
        }
        CloudCommand::Add(args) => {
            let form = form([
                ("storage_name", Some(json!(args.name))),
                ("region", said(&args.region)),
            ]);
            let added = service.set(clouds(None), &form).await?;
            show(output, &added, |name: String| {
                format!(
                    "{name} can be used when a user or VO has keys: penstock cloud-storage grant {name}\n"
                )
            })
        }
        CloudCommand::Remove(args) => {
            service.unset(clouds(Some(&args.name))).await?;
            removed(output, &args.name);
            Ok(())
        }
        CloudCommand::Grant(args) => {
            let granted = service
                .set(clouds(Some(&args.name)), &grant_form(args)?)
                .await?;
            show(output, &granted, |row: KeyRow| {
                format!("{}{}", row.storage_name, key_line(&row))
            })
        }
        CloudCommand::Revoke(args) => {
            let holder = name_of(&args.holder);
            service.unset_part(clouds(Some(&args.name)), holder).await?;
            removed(output, &format!("{}  {holder}", args.name));
            Ok(())
        }
    }
}

fn clouds(name: Option<&str>) -> SettingPlace<'_> {
    place("cloud_storage", name)
}

/// All storages, each with the keys for it.
async fn with_keys(service: &TransferService) -> Result<Value, CommandError> {
    let mut found = service.settings(clouds(None)).await?;
    for row in found.as_array_mut().into_iter().flatten() {
        let name = row["storage_name"].as_str().unwrap_or_default().to_owned();
        row["keys"] = service.settings(clouds(Some(&name))).await?;
    }
    Ok(found)
}

fn cloud_lines(row: &CloudRow) -> String {
    let region = row
        .region
        .as_deref()
        .map(|region| format!("  region {region}"));
    let mut lines = format!("{}{}\n", row.storage_name, region.unwrap_or_default());
    lines.extend(row.keys.iter().map(key_line));
    lines
}

fn key_line(row: &KeyRow) -> String {
    let holder = match (&row.user_dn, &row.vo_name) {
        (Some(user), _) => format!("user {user}"),
        (None, Some(vo)) => format!("VO {vo}"),
        (None, None) => "nobody".to_owned(),
    };
    let temporary = if row.temporary { ", temporary" } else { "" };
    format!("  {holder}: key {}{temporary}\n", row.access_token)
}

fn name_of(holder: &Holder) -> &str {
    let name = holder.user.as_deref().or(holder.vo.as_deref());
    name.expect("the command line demands one of them")
}

fn grant_form(args: &CloudGrantArgs) -> Result<Value, CommandError> {
    let keys = read_keys(&args.keys)?;
    Ok(form([
        ("user_dn", said(&args.holder.user)),
        ("vo_name", said(&args.holder.vo)),
        ("access_key", Some(json!(keys.access_key))),
        ("secret_key", Some(json!(keys.secret_key))),
        ("request_token", said(&keys.session_token)),
    ]))
}

/// What a file of keys tells.
#[derive(PartialEq, Eq)]
struct Keys {
    access_key: String,
    secret_key: String,
    session_token: Option<String>,
}

fn read_keys(path: &Path) -> Result<Keys, CommandError> {
    let shown = path.display();
    let unusable = |why: &dyn std::fmt::Display| CommandError::Usage(format!("{shown}: {why}"));
    let mut text = String::new();
    if path == Path::new("-") {
        let stdin = std::io::stdin().lock();
        let read = stdin.take(KEYS_BYTES_MAX).read_to_string(&mut text);
        read.map_err(|why| unusable(&why))?;
    } else {
        let file = File::open(path).map_err(|why| unusable(&why))?;
        let mode = file.metadata().map_err(|why| unusable(&why))?.mode();
        if mode & OPEN_TO_OTHERS != 0 {
            return Err(unusable(
                &"users other than its owner can read it; run `chmod 600` on it",
            ));
        }
        let read = file.take(KEYS_BYTES_MAX).read_to_string(&mut text);
        read.map_err(|why| unusable(&why))?;
    }
    parse_keys(&text).map_err(|why| unusable(&why))
}

/// Lines `name = value`; sections, comments and other names, as in the files of Amazon's tools, do not count. Errors:
/// never repeat a value.
fn parse_keys(text: &str) -> Result<Keys, &'static str> {
    let (mut access, mut secret, mut token) = (None, None, None);
    for line in text.lines().map(str::trim) {
        let Some((name, value)) = line.split_once('=') else {
            continue;
        };
        let place = match name.trim() {
            "access_key" | "aws_access_key_id" => &mut access,
            "secret_key" | "aws_secret_access_key" => &mut secret,
            "session_token" | "aws_session_token" => &mut token,
            _ => continue,
        };
        if place.replace(value.trim().to_owned()).is_some() {
            return Err(
                "a key is given twice; the file must contain the keys of one user or VO only",
            );
        }
    }
    match (access, secret) {
        (Some(access_key), Some(secret_key)) => Ok(Keys {
            access_key,
            secret_key,
            session_token: token,
        }),
        _ => Err("it needs the lines access_key = … and secret_key = …"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn keys_are_read_in_our_words_and_in_amazons() {
        let check = |text: &str, expected: Result<(&str, &str, Option<&str>), &str>| {
            let got = parse_keys(text);
            let got = got.as_ref().map(|keys| {
                let token = keys.session_token.as_deref();
                (keys.access_key.as_str(), keys.secret_key.as_str(), token)
            });
            assert_eq!(got.map_err(|why| *why), expected, "{text}");
        };
        check(
            "access_key = A\nsecret_key=b/c+d=\n",
            Ok(("A", "b/c+d=", None)),
        );
        check(
            "[default]\naws_access_key_id = A\naws_secret_access_key = b\n# x\nregion = r\naws_session_token = t",
            Ok(("A", "b", Some("t"))),
        );
        check(
            "access_key = A",
            Err("it needs the lines access_key = … and secret_key = …"),
        );
        check(
            "access_key = A\nsecret_key = b\n[other]\naccess_key = C",
            Err("a key is given twice; the file must contain the keys of one user or VO only"),
        );
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("keys");
        std::fs::write(&path, "access_key = A\nsecret_key = b\n").expect("written");
        let mode = |mode| {
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&path, mode).expect("changed");
            read_keys(&path).err().map(|why| why.to_string())
        };
        assert_eq!(mode(0o600), None);
        assert!(mode(0o640).is_some_and(|why| why.contains("chmod 600")));
    }
}
