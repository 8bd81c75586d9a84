//! What only the leader answers, in a form that can be sent to it.

use crate::tokens::TokenTrouble;
use penstock_decide::settings::{Asker, Wish};
use penstock_engine::Answer;
use penstock_engine::StartEstimate;
use penstock_engine::submission::NewJob;
use penstock_model::RenewedToken;
use penstock_model::{
    Ban, BanTarget, CredentialId, JobId, Priority, TransferId, UserName, VoName, WaitReason,
};
use serde::{Deserialize, Serialize};

/// A question or a wish. Each may be repeated: what was done already is done once.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Asked {
    /// Accept a job.
    Submit(Box<NewJob>),
    /// Stop a job, or some of its transfers.
    Cancel {
        job: JobId,
        transfers: Option<Vec<TransferId>>,
        reason: String,
    },
    /// Stop everything, as much of it as is done at once.
    CancelAll { vo: Option<VoName>, reason: String },
    /// Another priority for what has not started.
    Reprioritise { job: JobId, priority: Priority },
    /// Change a setting.
    Set {
        wish: Box<Wish>,
        asker: Asker,
        user: UserName,
    },
    /// Ban somebody or something.
    Ban(Box<Ban>),
    /// Lift a ban.
    Lift { target: BanTarget, by: UserName },
    /// Make durable what an issuer gave.
    KeepToken {
        id: CredentialId,
        renewed: RenewedToken,
    },
    /// Have an issuer give something newer for a token, and make it durable.
    Refresh(CredentialId),
    /// Why these wait.
    WhyWaiting(Vec<TransferId>),
    /// When this one will probably start.
    WhenItStarts(TransferId),
}

/// What the leader answers.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answered {
    /// The engine's answer; what it tells of is durable.
    Engine(Answer),
    /// Why each waits; `None` for one that does not.
    Why(Vec<Option<WaitReason>>),
    /// When it will probably start; `None`: that cannot be told.
    Starts(Option<StartEstimate>),
    /// Whether there is something newer now.
    Refreshed(Result<(), TokenTrouble>),
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_decide::settings::LinkWish;

    #[test]
    fn what_a_wish_takes_back_is_taken_back_by_the_leader_too() {
        let back = Wish::SetLink(LinkWish {
            name: "a-b".into(),
            tuning: Some(None),
            mode: Some(None),
            rate_max: Some(None),
            ..LinkWish::default()
        });
        let sent = serde_json::to_string(&back).expect("is JSON");
        let came: Wish = serde_json::from_str(&sent).expect("is a wish");
        assert_eq!(came, back);
    }
}
