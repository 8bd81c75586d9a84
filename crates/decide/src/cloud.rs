//! Whose keys open a cloud storage: the submitter's own, else those of the VO.

use penstock_model::{CloudHolder, CloudKey, CloudName, CloudStorage, Settings, UserName, VoName};
use thiserror::Error;

/// What is looked for.
pub struct KeyRequest<'a> {
    /// Names of records that may hold it, best first.
    pub names: &'a [String],
    /// On whose behalf.
    pub vo: &'a VoName,
    /// Whether a name is the submitter's.
    pub is_submitter: &'a dyn Fn(&UserName) -> bool,
}

/// A cloud storage and the key by which it is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyChoice<'a> {
    pub storage: &'a CloudStorage,
    pub key: &'a CloudKey,
    /// The first name did not fit, but that of the host behind the bucket's name.
    pub is_virtual_host: bool,
}

/// Why there is no key.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NoKey {
    /// Nobody has told of such a storage.
    #[error(
        "no cloud storage {0} is configured; an administrator adds it with `penstock cloud-storage add {0}`, and keys \
         for it with `penstock cloud-storage grant`"
    )]
    NoStorage(String),
    /// There is one, but nothing for this user and VO.
    #[error(
        "neither the submitter nor the VO {1} has keys for the cloud storage {0}; an administrator adds them with \
         `penstock cloud-storage grant {0}`"
    )]
    NotGranted(CloudName, VoName),
}

/// The key for the best name that has one for the submitter or the VO.
pub fn choose_key<'a>(
    settings: &'a Settings,
    wanted: &KeyRequest<'_>,
) -> Result<KeyChoice<'a>, NoKey> {
    let mut missing = None;
    for (at, name) in wanted.names.iter().enumerate() {
        let known = CloudName::parse(name).ok();
        let Some(storage) = known.and_then(|name| settings.cloud_storage(&name)) else {
            continue;
        };
        let keys = || {
            settings
                .cloud_keys()
                .filter(|key| key.storage == storage.name)
        };
        let own = keys().find(|key| match &key.holder {
            CloudHolder::User(user) => (wanted.is_submitter)(user),
            CloudHolder::Vo(_) => false,
        });
        let of_vo = || keys().find(|key| key.holder == CloudHolder::Vo(wanted.vo.clone()));
        if let Some(key) = own.or_else(of_vo) {
            return Ok(KeyChoice {
                storage,
                key,
                is_virtual_host: at > 0,
            });
        }
        missing = missing.or(Some(&storage.name));
    }
    Err(match missing {
        Some(name) => NoKey::NotGranted(name.clone(), wanted.vo.clone()),
        None => NoKey::NoStorage(wanted.names.first().cloned().unwrap_or_default()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_model::{CredentialId, Setting};

    fn settings(storages: &[&str], keys: &[(&str, &str)]) -> Settings {
        let mut settings = Settings::default();
        let name = |text: &str| CloudName::parse(text).expect("valid");
        for storage in storages {
            settings.put(Setting::CloudStorage(CloudStorage {
                name: name(storage),
                region: None,
            }));
        }
        for (storage, holder) in keys {
            settings.put(Setting::CloudKey(CloudKey {
                storage: name(storage),
                holder: match holder.starts_with('/') {
                    true => CloudHolder::User(UserName::new(*holder)),
                    false => CloudHolder::Vo(VoName::new(*holder)),
                },
                access_key: format!("{holder} at {storage}"),
                secret: CredentialId::new("x"),
                is_temporary: false,
            }));
        }
        settings
    }

    fn check(settings: &Settings, names: &[&str], expected: &str) {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let wanted = KeyRequest {
            names: &names,
            vo: &VoName::new("dteam"),
            is_submitter: &|user| user.as_str() == "/CN=Alice",
        };
        let got = match choose_key(settings, &wanted) {
            Ok(opened) => opened.key.access_key.clone(),
            Err(why) => why.to_string(),
        };
        assert_eq!(got, expected);
    }

    #[test]
    fn the_submitters_own_key_comes_before_the_vos_and_no_other_counts() {
        let both = [
            ("S3:A", "dteam"),
            ("S3:A", "/CN=Alice"),
            ("S3:A", "/CN=Bob"),
        ];
        check(&settings(&["S3:A"], &both), &["S3:A"], "/CN=Alice at S3:A");
        let vo = [("S3:A", "dteam"), ("S3:A", "/CN=Bob")];
        check(&settings(&["S3:A"], &vo), &["S3:A"], "dteam at S3:A");
        let others = [("S3:A", "cms"), ("S3:A", "/CN=Bob")];
        check(
            &settings(&["S3:A"], &others),
            &["S3:A"],
            "neither the submitter nor the VO dteam has keys for the cloud storage S3:A; an administrator adds them \
             with `penstock cloud-storage grant S3:A`",
        );
    }

    #[test]
    fn a_vo_that_is_called_like_a_user_is_not_that_user() {
        let mut settings = settings(&["S3:A"], &[]);
        settings.put(Setting::CloudKey(CloudKey {
            storage: CloudName::parse("S3:A").expect("valid"),
            holder: CloudHolder::Vo(VoName::new("/CN=Alice")),
            access_key: "the VO's".to_owned(),
            secret: CredentialId::new("x"),
            is_temporary: false,
        }));
        let wanted = KeyRequest {
            names: &["S3:A".to_owned()],
            vo: &VoName::new("dteam"),
            is_submitter: &|user| user.as_str() == "/CN=Alice",
        };
        assert!(choose_key(&settings, &wanted).is_err());
    }

    #[test]
    fn the_host_behind_the_bucket_counts_when_the_host_itself_is_not_known() {
        let both = [("S3:B.A", "dteam"), ("S3:A", "dteam")];
        let names = ["S3:B.A", "S3:A"];
        check(
            &settings(&["S3:B.A", "S3:A"], &both),
            &names,
            "dteam at S3:B.A",
        );
        check(&settings(&["S3:A"], &both[1..]), &names, "dteam at S3:A");
        check(
            &settings(&[], &[]),
            &names,
            "no cloud storage S3:B.A is configured; an administrator adds it with `penstock cloud-storage add \
             S3:B.A`, and keys for it with `penstock cloud-storage grant`",
        );
    }
}
