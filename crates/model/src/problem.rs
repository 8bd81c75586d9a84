//! What failed towards a user: one type for every door, for the wire and for JSON.
//!
//! A [`ProblemCode`] carries what is always true of a cause; a [`Problem`] is one occurrence of it. How it travels (a
//! status, a header, a line of a copy, an exit code) is the business of whoever answers.

mod code;

pub use code::{Advice, ProblemCode, ProblemFacts};

use serde::{Deserialize, Serialize};
use std::fmt;

/// Where the fault lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The storage element that holds the file.
    Source,
    /// The storage element that should receive it.
    Destination,
    /// Between the two.
    Network,
    Service,
}

impl Side {
    /// FTS's scope word, as it begins each `reason` on the wire.
    pub fn fts_scope(self) -> &'static str {
        match self {
            Side::Source => "SOURCE",
            Side::Destination => "DESTINATION",
            Side::Network => "TRANSFER",
            Side::Service => "GENERAL_FAILURE",
        }
    }
}

/// Whether trying again can help.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Retry {
    /// The same attempt may succeed later.
    Later,
    /// Only another replica or another way can help.
    ElsewhereOnly,
    /// It will fail again in the same way.
    Never,
}

/// Which part of the system a problem is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// Who asks.
    Credential,
    /// What they may do.
    Authorisation,
    /// What is asked for, and how.
    Request,
    /// Paths, locks and uploads.
    Namespace,
    /// Where files are kept, and the slots for moving them.
    Pool,
    /// The hardware below a pool.
    Disk,
    /// The bytes of a file.
    Content,
    /// The server at the other end of a copy.
    Peer,
    /// The way between two servers.
    Network,
    /// Queues, limits and times of transfers.
    Scheduler,
    /// The record of the transfer service.
    Journal,
    /// The running process.
    Service,
    /// Files on tape.
    Tape,
    /// The command line and the machine on which it runs.
    Command,
}

impl Layer {
    /// Its name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Layer::Credential => "credential",
            Layer::Authorisation => "authorisation",
            Layer::Request => "request",
            Layer::Namespace => "namespace",
            Layer::Pool => "pool",
            Layer::Disk => "disk",
            Layer::Content => "content",
            Layer::Peer => "peer",
            Layer::Network => "network",
            Layer::Scheduler => "scheduler",
            Layer::Journal => "journal",
            Layer::Service => "service",
            Layer::Tape => "tape",
            Layer::Command => "command",
        }
    }

    /// The side of a problem of this layer, where nobody knows better: whoever reports it, or what lies between.
    const fn side(self) -> Side {
        match self {
            Layer::Peer | Layer::Network => Side::Network,
            Layer::Credential
            | Layer::Authorisation
            | Layer::Request
            | Layer::Namespace
            | Layer::Pool
            | Layer::Disk
            | Layer::Content
            | Layer::Scheduler
            | Layer::Journal
            | Layer::Service
            | Layer::Tape
            | Layer::Command => Side::Service,
        }
    }
}

/// Who should act on a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Actor {
    /// Whoever asked.
    User,
    /// The administrator of the storage element's site.
    Site,
    /// The operator of the transfer service.
    Operator,
    /// The administrator of the site at the other end of a copy.
    Peer,
    /// Nobody: it passes.
    Nobody,
}

impl Actor {
    /// The name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Actor::User => "user",
            Actor::Site => "site",
            Actor::Operator => "operator",
            Actor::Peer => "peer",
            Actor::Nobody => "nobody",
        }
    }
}

/// Why a user did not get what they asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "ProblemFields", into = "ProblemFields")]
pub struct Problem {
    /// The cause.
    pub code: ProblemCode,
    /// Where the fault lies; [`Side::Service`] is whoever reports it.
    pub side: Side,
    /// Whether trying again can help. Of one occurrence more may be known than of its code.
    pub retry: Retry,
    /// One plain sentence: what happened, to which thing, what to do. Never holds a secret.
    pub message: String,
    /// What an expert wants to know beyond it.
    pub detail: Option<String>,
}

/// A [`Problem`] as JSON. `detail` is always there: RFC 9457 readers look for it.
#[derive(Clone, Serialize, Deserialize)]
struct ProblemFields {
    code: ProblemCode,
    side: Side,
    #[serde(skip_deserializing)]
    layer: Option<Layer>,
    retryable: Retryable,
    #[serde(skip_deserializing)]
    who: Option<Actor>,
    message: String,
    #[serde(default)]
    detail: String,
}

/// [`Retry`] as an answer to "can it be tried again?".
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Retryable {
    No,
    Later,
    Elsewhere,
}

impl Problem {
    /// One occurrence, with all that its code says.
    pub fn new(code: ProblemCode, message: impl Into<String>) -> Problem {
        Problem {
            code,
            side: code.facts().layer.side(),
            retry: code.facts().advice.retry,
            message: message.into(),
            detail: None,
        }
    }

    /// The same at another side.
    pub fn at(self, side: Side) -> Problem {
        Problem { side, ..self }
    }

    /// Who should act.
    pub fn actor(&self) -> Actor {
        self.code.facts().advice.actor
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.message)
    }
}

impl From<Problem> for ProblemFields {
    fn from(problem: Problem) -> ProblemFields {
        let facts = problem.code.facts();
        ProblemFields {
            code: problem.code,
            side: problem.side,
            layer: Some(facts.layer),
            retryable: match problem.retry {
                Retry::Never => Retryable::No,
                Retry::Later => Retryable::Later,
                Retry::ElsewhereOnly => Retryable::Elsewhere,
            },
            who: Some(facts.advice.actor),
            detail: problem.detail.unwrap_or_else(|| problem.message.clone()),
            message: problem.message,
        }
    }
}

impl From<ProblemFields> for Problem {
    fn from(fields: ProblemFields) -> Problem {
        Problem {
            code: fields.code,
            side: fields.side,
            retry: match fields.retryable {
                Retryable::No => Retry::Never,
                Retryable::Later => Retry::Later,
                Retryable::Elsewhere => Retry::ElsewhereOnly,
            },
            detail: Some(fields.detail)
                .filter(|detail| !detail.is_empty() && *detail != fields.message),
            message: fields.message,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_problem_is_one_object_on_every_wire() {
        let mut problem = Problem::new(ProblemCode::PoolFull, "no pool has room for /f");
        let value = serde_json::to_value(&problem).expect("plain data");
        let expected = json!({
            "code": "pool-full",
            "side": "service",
            "layer": "pool",
            "retryable": "later",
            "who": "site",
            "message": "no pool has room for /f",
            "detail": "no pool has room for /f",
        });
        assert_eq!(value, expected);
        assert_eq!(
            serde_json::from_value::<Problem>(value).expect("a problem"),
            problem
        );

        problem = problem.at(Side::Destination);
        problem.detail = Some("disk1 has 0 bytes".to_owned());
        let value = serde_json::to_value(&problem).expect("plain data");
        assert_eq!(
            (&value["side"], &value["detail"]),
            (&"destination".into(), &"disk1 has 0 bytes".into())
        );
        assert_eq!(
            serde_json::from_value::<Problem>(value).expect("a problem"),
            problem
        );
    }

    #[test]
    fn a_problem_of_a_later_version_is_read_with_the_keys_that_are_known() {
        let value = json!({"code": "path-not-found", "side": "service", "retryable": "no", "message": "m", "more": 1});
        let problem = serde_json::from_value::<Problem>(value).expect("a problem");
        assert_eq!(problem, Problem::new(ProblemCode::PathNotFound, "m"));
    }

    #[test]
    fn names_are_those_of_the_wire() {
        for facts in ProblemCode::all() {
            let layer = serde_json::to_value(facts.layer).expect("a name");
            let actor = serde_json::to_value(facts.advice.actor).expect("a name");
            assert_eq!(
                (layer, actor),
                (facts.layer.name().into(), facts.advice.actor.name().into())
            );
        }
    }
}
