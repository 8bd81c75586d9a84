//! What a page of another site may not do with a certificate that a browser shows for it.

use super::answer::Problem;
use super::caller::Caller;
use penstock_model::ProblemCode;
use penstock_protocol::cross_site::{is_of_foreign_page, only_reads};
use penstock_protocol::http1::server::Request;

/// Refuses what changes something on the word of a certificate alone, when another site's page is behind it. The
/// answers to its reading stay hidden from such a page, because the door allows no origin to see them.
pub(super) fn refuse(request: &Request, caller: &Caller) -> Result<(), Problem> {
    let Request {
        method, headers, ..
    } = request;
    if only_reads(method) || !caller.is_by_certificate() || !is_of_foreign_page(method, headers) {
        return Ok(());
    }
    tracing::warn!(%method, path = request.path(), "refused a page of another site");
    Err(Problem::new(
        ProblemCode::ForeignPage,
        "pages of other sites cannot use the client certificate; open this door's own page, or send a token",
    )
    .logged())
}
