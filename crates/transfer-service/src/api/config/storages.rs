//! `/config/se`: what holds for a storage element, over all its links.

use super::fields::{Fields, storage, throughput};
use super::{ApiResult, bad_request, no_content};
use crate::api::caller::Credentials;
use crate::api::extract::Query;
use crate::api::{Api, ApiError};
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::response::IntoResponse;
use penstock_decide::settings::{SettingRequest, StorageRuleRequest};
use penstock_model::{StorageId, StorageRule, VoName};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The storage element that a request is about.
#[derive(Deserialize)]
pub(super) struct StorageQuery {
    se: Option<String>,
}

impl StorageQuery {
    fn storage(&self) -> Result<Option<StorageId>, ApiError> {
        let said = self.se.as_deref().filter(|text| !text.is_empty());
        said.map(storage).transpose()
    }
}

/// A rule as FTS shows it. What this service does not do is null.
pub(super) fn form(rule: &StorageRule) -> Value {
    json!({
        "inbound_max_active": rule.inbound_max.map(|slots| slots.0),
        "inbound_max_throughput": rule.inbound_rate_max.map(throughput),
        "outbound_max_active": rule.outbound_max.map(|slots| slots.0),
        "outbound_max_throughput": rule.outbound_rate_max.map(throughput),
        "draining": rule.is_draining,
        "udt": null,
        "ipv6": null,
        "se_metadata": rule.note,
        "site": rule.site,
        "debug_level": null,
        "eviction": null,
        "skip_eviction": null,
        "tpc_support": null,
        "overwrite_disk_enabled": null,
        "tape_endpoint": null,
    })
}

/// `GET /config/se[?se=]`.
pub(super) async fn list(
    State(api): State<Api>,
    credentials: Credentials,
    Query(which): Query<StorageQuery>,
) -> ApiResult {
    let (_, settings) = api.operator(&credentials).await?;
    let only = which.storage()?;
    let rules = settings
        .storages()
        .filter(|rule| only.as_ref().is_none_or(|only| *only == rule.storage));
    let entry = |rule: &StorageRule| {
        let entry = json!({"se_info": form(rule), "operations": operations(rule)});
        (rule.storage.to_string(), entry)
    };
    Ok(Json(rules.map(entry).collect::<Map<String, Value>>()).into_response())
}

/// `POST /config/se`: `{SE: {"se_info": {…}}, …}`; what is not said stays. The answer is FTS's pair for the last one.
pub(super) async fn set(State(api): State<Api>, credentials: Credentials, body: Body) -> ApiResult {
    let (caller, fields) = api.form(&credentials, body).await?;
    let mut wishes = BTreeMap::new();
    let mut last = None;
    for (name, value) in fields.into_each() {
        let wish = wish(&name, value)?;
        last = Some(wish.storage.clone());
        if wishes.insert(wish.storage.clone(), wish).is_some() {
            return Err(bad_request(format!("{name} is named twice")));
        }
    }
    let Some(last) = last else {
        return Err(bad_request("Malformed configuration"));
    };
    let wish = SettingRequest::SetStorages(wishes.into_values().collect());
    api.wish(&caller, wish).await?;
    let settings = api.service.settings();
    let shown = settings.storage(&last);
    let info = shown.map(form);
    let operations = shown
        .filter(|rule| !rule.staging_max.is_empty())
        .map(operations);
    Ok(Json(json!([info, operations])).into_response())
}

fn wish(name: &str, value: Value) -> Result<StorageRuleRequest, ApiError> {
    let storage = storage(name)?;
    let mut parts = Fields::of(value)?;
    let mut info = Fields::of(parts.raw("se_info").unwrap_or_else(|| json!({})))?;
    let wish = StorageRuleRequest {
        storage,
        outbound_max: info.slots_or_null("outbound_max_active")?,
        inbound_max: info.slots_or_null("inbound_max_active")?,
        site: info.text_or_null("site")?,
        note: info.text_or_null("se_metadata")?,
        outbound_rate_max: info.throughput_or_null("outbound_max_throughput")?,
        inbound_rate_max: info.throughput_or_null("inbound_max_throughput")?,
        is_draining: info.boolean("draining")?,
        staging_max: match parts.raw("operations") {
            Some(operations) => staging_of(&operations)?,
            None => BTreeMap::new(),
        },
    };
    for name in [
        "udt",
        "debug_level",
        "eviction",
        "skip_eviction",
        "overwrite_disk_enabled",
    ] {
        info.not_offered(name, &[json!(0), json!(false), json!("off")])?;
    }
    // IPv6 is used wherever a host has it.
    info.not_offered("ipv6", &[json!(1), json!(true), json!("on")])?;
    info.not_offered("tpc_support", &[json!("FULL")])?;
    info.not_offered("tape_endpoint", &[json!("")])?;
    info.end()?;
    parts.end()?;
    Ok(wish)
}

/// How many files may be on their way from tape, by VO, as FTS writes it. Null and 0 take a limit back.
fn staging_of(operations: &Value) -> Result<BTreeMap<VoName, Option<u32>>, ApiError> {
    let malformed = || bad_request("Malformed configuration");
    let vos = match operations {
        Value::Null => return Ok(BTreeMap::new()),
        Value::Object(vos) => vos,
        _ => return Err(malformed()),
    };
    let mut staging = BTreeMap::new();
    for (vo, limits) in vos {
        for (operation, limit) in limits.as_object().ok_or_else(malformed)? {
            let limit = match limit {
                Value::Null => None,
                limit => Some(limit.as_i64().ok_or_else(malformed)?).filter(|limit| *limit > 0),
            };
            let limit = limit.map(u32::try_from).transpose();
            let limit = limit.map_err(|_| bad_request(format!("'{operation}' is too large")))?;
            match (operation.as_str(), limit) {
                ("staging", limit) => drop(staging.insert(VoName::new(vo.as_str()), limit)),
                // FTS's way of saying nothing.
                (_, None) => {}
                (other, Some(_)) => {
                    return Err(bad_request(format!(
                        "limits of the operation '{other}' are not supported; only 'staging' is"
                    )));
                }
            }
        }
    }
    Ok(staging)
}

/// The same as it is shown.
pub(super) fn operations(rule: &StorageRule) -> Value {
    let of_vo = |(vo, most): (&VoName, &u32)| (vo.to_string(), json!({ "staging": most }));
    Value::Object(rule.staging_max.iter().map(of_vo).collect())
}

/// `DELETE /config/se?se=`.
pub(super) async fn remove(
    State(api): State<Api>,
    credentials: Credentials,
    Query(which): Query<StorageQuery>,
) -> ApiResult {
    let (caller, _) = api.operator(&credentials).await?;
    let Some(storage) = which.storage()? else {
        return Err(bad_request("Missing storage (se)"));
    };
    api.wish(&caller, SettingRequest::RemoveStorage(storage))
        .await?;
    Ok(no_content())
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_model::{Rate, Slots};

    fn wish_of(value: Value) -> Result<StorageRuleRequest, String> {
        wish("https://se", value).map_err(|refused| refused.problem.message)
    }

    #[test]
    fn what_is_not_said_stays_and_null_takes_back() {
        let said = wish_of(json!({"se_info": {"inbound_max_active": 5, "site": null}}));
        let said = said.expect("valid");
        assert_eq!(said.inbound_max, Some(Some(Slots(5))));
        assert_eq!(
            (said.outbound_max, said.site, said.note),
            (None, Some(None), None)
        );
    }

    #[test]
    fn a_throughput_is_set_in_the_unit_of_fts_and_taken_back() {
        let said = |info: Value| wish_of(json!({ "se_info": info })).expect("valid");
        let set = said(json!({"inbound_max_throughput": 1.5, "draining": true}));
        assert_eq!(set.inbound_rate_max, Some(Some(Rate(1_572_864))));
        assert_eq!((set.outbound_rate_max, set.is_draining), (None, Some(true)));
        let back = said(json!({"inbound_max_throughput": 0, "outbound_max_throughput": null}));
        assert_eq!(
            (back.inbound_rate_max, back.outbound_rate_max),
            (Some(None), Some(None))
        );
    }

    #[test]
    fn nothing_is_stored_that_would_have_no_effect() {
        for (given, expected) in [
            (
                json!({"se_info": {"inbound_max_throughput": -1}}),
                "must be a number of MB/s",
            ),
            (
                json!({"se_info": {"tpc_support": "NONE"}}),
                "is not offered",
            ),
            (
                json!({"operations": {"cms": {"delete": 10}}}),
                "'delete' are not supported",
            ),
            (json!({"se_info": {"nonsense": 1}}), "nonsense unknown"),
            (json!({"se_infos": {}}), "se_infos unknown"),
            (json!({"operations": 5}), "Malformed configuration"),
            (json!([]), "Malformed configuration"),
        ] {
            let refused = wish_of(given.clone()).expect_err("refused");
            assert!(refused.contains(expected), "{given}: {refused}");
        }
    }

    #[test]
    fn a_limit_of_staging_is_set_for_a_vo_and_taken_back() {
        let said = |operations: Value| {
            let wish = wish_of(json!({ "operations": operations })).expect("valid");
            wish.staging_max.into_iter().next()
        };
        let cms = VoName::new("cms");
        assert_eq!(
            said(json!({"cms": {"staging": 10}})),
            Some((cms.clone(), Some(10)))
        );
        assert_eq!(said(json!({"cms": {"staging": null}})), Some((cms, None)));
        assert_eq!(said(json!({})), None);
    }

    #[test]
    fn fts_s_ways_of_saying_nothing_are_understood() {
        let given = json!({
            "se_info": {"inbound_max_throughput": null, "udt": 0, "debug_level": 0, "tpc_support": "FULL"},
            "operations": {"cms": {"staging": 0}},
        });
        wish_of(given).expect("nothing of it asks for anything");
    }
}
