//! PROPPATCH (RFC 4918 §9.2): properties that clients keep with files and directories. All that a request asks is
//! done, or nothing.

use super::answer::{Problem, Reply, xml};
use super::conditions;
use super::document_body::read_body;
use super::handler_context::{Call, Door};
use http::StatusCode;
use penstock_decide::authorization::PathOperation;
use penstock_decide::locking::WriteScope;
use penstock_model::ProblemCode;
use penstock_persistence::namespace::{
    Change, ChangeError, ChangeRefusal, DeadProperty, PropertyUpdate,
};
use penstock_protocol::http1::server::Connection;
use penstock_protocol::webdav::{
    InvalidXml, PROPPATCH_BYTES_MAX, Update, UpdateOutcome, is_protected, parse_property_update,
    write_property_answer,
};

pub(super) async fn proppatch(
    door: &Door,
    connection: &mut Connection,
    call: &Call<'_>,
) -> Result<Reply, Problem> {
    let Call {
        request,
        caller,
        path,
    } = *call;
    door.permit(caller, &PathOperation::Modify, path)?;
    let body = read_body(connection, "PROPPATCH", PROPPATCH_BYTES_MAX).await?;
    let updates = parse_property_update(&body).map_err(|why| {
        let code = match why {
            InvalidXml::ElementTooLong(_) | InvalidXml::TooMany(_) => ProblemCode::BodyTooLarge,
            _ => ProblemCode::RequestMalformed,
        };
        Problem::new(code, why.to_string())
    })?;
    let entry = door.entry(path)?;
    conditions::evaluate(&request.method, &request.headers, Some(&entry))?;
    let tokens = door.check_if(call)?;
    let intent = door.storage.claims.intend(path);
    door.check_locks(&intent, call, &tokens, || {
        Ok(vec![WriteScope::Itself(path.clone())])
    })?;
    let answer = |outcome| {
        let body = write_property_answer(path, entry.is_directory(), &updates, outcome);
        Reply::from(xml(StatusCode::MULTI_STATUS, body))
    };
    if updates.iter().any(|update| is_protected(&update.name)) {
        return Ok(answer(UpdateOutcome::Protected));
    }
    let change = Change::UpdateProperties {
        path: path.clone(),
        only: conditions::only_entry(&request.headers, Some(entry.id)),
        updates: updates.iter().map(kept).collect(),
    };
    let change = change.asked_by(caller.origin().into());
    match door.storage.change(change).await {
        Ok(_) => Ok(answer(UpdateOutcome::Done)),
        // RFC 4918 §9.2.1: there is not the space for it.
        Err(ChangeError::Refused(ChangeRefusal::TooManyProperties(_))) => {
            Ok(answer(UpdateOutcome::TooMuch))
        }
        Err(error) => Err(Problem::of_change(&error, StatusCode::CONFLICT)),
    }
}

fn kept(update: &Update) -> PropertyUpdate {
    let (namespace, name) = (update.name.namespace.clone(), update.name.local.clone());
    match &update.element {
        Some(element) => PropertyUpdate::Set(DeadProperty {
            namespace,
            name,
            element: element.clone(),
        }),
        None => PropertyUpdate::Remove { namespace, name },
    }
}
