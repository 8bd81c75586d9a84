//! `/config/shares` and `/config/activity_shares`: how much of the slots goes to whom.

use super::fields::Fields;
use super::{ApiResult, bad_request, no_content, not_found};
use crate::api::caller::Credentials;
use crate::api::extract::{Path, Query};
use crate::api::{Api, ApiError};
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::response::IntoResponse;
use penstock_decide::settings::SettingRequest;
use penstock_model::{Activity, ActivityShares, LinkId, StorageId, VoName, VoShare, Weight};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Activities of one VO with a share of their own. ATLAS has about twenty.
const ACTIVITIES_MAX: usize = 500;
/// Characters of an activity's name.
const ACTIVITY_CHARS_MAX: usize = 255;

/// A weight as FTS shows it: whole where it is.
fn number(weight: Weight) -> Value {
    let number = weight.number();
    match number.fract() == 0.0 {
        true => json!(number as u64),
        false => json!(number),
    }
}

/// A VO's share as FTS shows it.
pub(super) fn form(share: &VoShare) -> Value {
    json!({
        "source": share.ends.source.as_str(),
        "destination": share.ends.destination.as_str(),
        "vo": share.vo.as_str(),
        "share": number(share.weight),
    })
}

/// The shares of a VO's activities as FTS shows them, with the VO.
pub(super) fn activity_form(shares: &ActivityShares) -> Value {
    let mut form = weights_form(shares);
    form["vo"] = json!(shares.vo.as_str());
    form
}

fn weights_form(shares: &ActivityShares) -> Value {
    let weights = shares.weights.iter();
    let weights: Map<String, Value> = weights
        .map(|(activity, weight)| (activity.to_string(), number(*weight)))
        .collect();
    json!({"share": weights, "active": shares.is_active})
}

/// Which shares a request is about.
#[derive(Deserialize)]
pub(super) struct ShareQuery {
    source: Option<String>,
    destination: Option<String>,
    vo: Option<String>,
}

impl ShareQuery {
    fn fields(self) -> Fields {
        let said = [
            ("source", self.source),
            ("destination", self.destination),
            ("vo", self.vo),
        ];
        let said = said.into_iter();
        Fields::given(said.filter_map(|(key, value)| Some((key.to_owned(), json!(value?)))))
    }
}

/// Both ends and the VO, all of which must be said.
fn place(fields: &mut Fields) -> Result<(LinkId, VoName), ApiError> {
    let missing = || bad_request("Missing source, destination and/or vo");
    let ends = LinkId {
        source: fields.storage("source")?.ok_or_else(missing)?,
        destination: fields.storage("destination")?.ok_or_else(missing)?,
    };
    let vo = fields.text("vo")?.ok_or_else(missing)?;
    Ok((ends, VoName::new(vo)))
}

/// `GET /config/shares[?source=&destination=&vo=]`.
pub(super) async fn list(
    State(api): State<Api>,
    credentials: Credentials,
    Query(which): Query<ShareQuery>,
) -> ApiResult {
    let (_, settings) = api.operator(&credentials).await?;
    let mut fields = which.fields();
    let (source, destination) = (fields.storage("source")?, fields.storage("destination")?);
    let vo = fields.text("vo")?;
    let is = |wanted: &Option<StorageId>, end: &StorageId| {
        wanted.as_ref().is_none_or(|wanted| wanted == end)
    };
    let shares = settings.vo_shares().filter(|share| {
        is(&source, &share.ends.source)
            && is(&destination, &share.ends.destination)
            && vo.as_ref().is_none_or(|vo| vo == share.vo.as_str())
    });
    Ok(Json(shares.map(form).collect::<Vec<_>>()).into_response())
}

/// `POST /config/shares`: `{"source", "destination", "vo", "share"}`.
pub(super) async fn set(State(api): State<Api>, credentials: Credentials, body: Body) -> ApiResult {
    let (caller, mut fields) = api.form(&credentials, body).await?;
    let (ends, vo) = place(&mut fields)?;
    let weight = match fields.raw("share") {
        None | Some(Value::Null) => return Err(bad_request("Missing share")),
        Some(value) => weight("share", &value)?,
    };
    fields.end()?;
    let share = VoShare { ends, vo, weight };
    let shown = form(&share);
    api.wish(&caller, SettingRequest::SetVoShare(share)).await?;
    Ok(Json(shown).into_response())
}

/// `DELETE /config/shares?source=&destination=&vo=`: as in FTS, also when there was none.
pub(super) async fn remove(
    State(api): State<Api>,
    credentials: Credentials,
    Query(which): Query<ShareQuery>,
) -> ApiResult {
    let (caller, _) = api.operator(&credentials).await?;
    let (ends, vo) = place(&mut which.fields())?;
    api.wish(&caller, SettingRequest::RemoveVoShare(ends, vo))
        .await?;
    Ok(no_content())
}

/// `GET /config/activity_shares`.
pub(super) async fn list_activities(State(api): State<Api>, credentials: Credentials) -> ApiResult {
    let (_, settings) = api.operator(&credentials).await?;
    let all = settings.all_activity_shares();
    let all: Map<String, Value> = all
        .map(|shares| (shares.vo.to_string(), weights_form(shares)))
        .collect();
    Ok(Json(all).into_response())
}

/// `GET /config/activity_shares/VO`.
pub(super) async fn show_activities(
    State(api): State<Api>,
    credentials: Credentials,
    Path(vo): Path<String>,
) -> ApiResult {
    let (_, settings) = api.operator(&credentials).await?;
    match settings.activity_shares(&VoName::new(vo.as_str())) {
        Some(shares) => Ok(Json(activity_form(shares)).into_response()),
        None => Err(not_found(format!("No activity shares for {vo}"))),
    }
}

/// `POST /config/activity_shares`: `{"vo", "share": {ACTIVITY: WEIGHT, …}, "active": true}`, in the place of any before.
pub(super) async fn set_activities(
    State(api): State<Api>,
    credentials: Credentials,
    body: Body,
) -> ApiResult {
    let (caller, mut fields) = api.form(&credentials, body).await?;
    let Some(vo) = fields.text("vo")? else {
        return Err(bad_request("Missing VO"));
    };
    let weights = match fields.raw("share") {
        None | Some(Value::Null) => return Err(bad_request("Missing share")),
        Some(value) => activity_weights(value)?,
    };
    let shares = ActivityShares {
        vo: VoName::new(vo),
        weights,
        is_active: fields.boolean("active")?.unwrap_or(true),
    };
    fields.end()?;
    let shown = activity_form(&shares);
    api.wish(&caller, SettingRequest::SetActivityShares(shares))
        .await?;
    Ok(Json(shown).into_response())
}

/// `DELETE /config/activity_shares/VO`.
pub(super) async fn remove_activities(
    State(api): State<Api>,
    credentials: Credentials,
    Path(vo): Path<String>,
) -> ApiResult {
    let (caller, _) = api.operator(&credentials).await?;
    let vo = VoName::new(vo);
    api.wish(&caller, SettingRequest::RemoveActivityShares(vo))
        .await?;
    Ok(no_content())
}

/// An object of weights, or a list of such objects, as FTS takes them. Names count in lower case.
fn activity_weights(value: Value) -> Result<BTreeMap<Activity, Weight>, ApiError> {
    let objects = match value {
        Value::Array(objects) => objects,
        one => vec![one],
    };
    let mut weights = BTreeMap::new();
    for object in objects {
        let Value::Object(object) = object else {
            return Err(bad_request(
                "Malformed share: it must be {ACTIVITY: WEIGHT, …}",
            ));
        };
        for (name, value) in object {
            let given = weight(&name, &value)?;
            if given.is_zero() {
                return Err(bad_request(format!(
                    "the share of '{name}' is 0, so its transfers wait forever; omit it, or give it a small share"
                )));
            }
            let plain = !name.is_empty() && !name.chars().any(char::is_control);
            if !plain || name.chars().count() > ACTIVITY_CHARS_MAX {
                return Err(bad_request(format!(
                    "an activity's name has 1 to {ACTIVITY_CHARS_MAX} characters that can be shown"
                )));
            }
            let name = Activity::new(name.to_lowercase());
            if let Some(twice) = weights.insert(name.clone(), given) {
                let twice = twice.number();
                return Err(bad_request(format!(
                    "'{name}' is named twice, once with {twice}"
                )));
            }
        }
    }
    match weights.len() {
        1..=ACTIVITIES_MAX => Ok(weights),
        0 => Err(bad_request("no activity is named")),
        many => Err(bad_request(format!(
            "{many} activities are more than {ACTIVITIES_MAX}"
        ))),
    }
}

fn weight(name: &str, value: &Value) -> Result<Weight, ApiError> {
    let given = match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    given.and_then(Weight::from_number).ok_or_else(|| {
        bad_request(format!(
            "Field {name} is {value}; a share is a number from 0 to {}",
            Weight::MAX.number()
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weights(value: Value) -> Result<Vec<(String, f64)>, String> {
        let read = activity_weights(value).map_err(|refused| refused.problem.message)?;
        let shown = read
            .iter()
            .map(|(name, weight)| (name.to_string(), weight.number()));
        Ok(shown.collect())
    }

    #[test]
    fn activities_come_as_an_object_or_a_list_of_them_and_count_in_lower_case() {
        let expected = Ok(vec![
            ("default".to_owned(), 0.02),
            ("production".to_owned(), 5.0),
        ]);
        assert_eq!(weights(json!({"Production": 5, "default": 0.02})), expected);
        assert_eq!(
            weights(json!([{"Production": "5"}, {"Default": 0.02}])),
            expected
        );
    }

    #[test]
    fn shares_that_nobody_could_honour_are_refused_by_name() {
        let check = |value: Value, why: &str| {
            let refused = weights(value.clone()).expect_err("refused");
            assert!(refused.contains(why), "{value}: {refused}");
        };
        check(json!({"a": 0}), "the share of 'a' is 0");
        check(json!({"a": -1}), "Field a is -1");
        check(json!({"a": 1e-9}), "a share is a number from 0 to 1000000");
        check(json!({"a": 1e300}), "a share is a number");
        check(json!({"a": true}), "a share is a number");
        check(json!({"a": 1, "A": 2}), "'a' is named twice");
        check(json!({"": 1}), "an activity's name");
        check(json!({}), "no activity is named");
        check(json!([[]]), "Malformed share");
        check(json!("x"), "Malformed share");
        let many: Map<String, Value> = (0..501).map(|n| (format!("a{n}"), json!(1))).collect();
        check(json!(many), "501 activities are more than 500");
    }
}
