//! What the service is asked for that only its leader does or tells, and the type of the reply to each.

use crate::checked_submission::NewJob;
use crate::{FullShare, ReplyId, StartEstimate, StoppedCount};
use penstock_decide::settings::{SettingRefusal, SettingRequest, SettingRequester};
use penstock_model::{
    Ban, BanTarget, CredentialId, JobId, Priority, RenewedToken, SettingChange, StorageId,
    TransferId, UserName, VoName, WaitReason,
};
use serde::{Deserialize, Serialize};

/// A request, whichever it is. Each may be repeated: what was done already is done once. Nodes send it to their leader
/// in this form.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    Submit(Submit),
    Cancel(Cancel),
    CancelAll(CancelAll),
    Reprioritise(Reprioritise),
    #[serde(rename = "set")]
    ChangeSetting(ChangeSetting),
    #[serde(rename = "ban")]
    ImposeBan(ImposeBan),
    #[serde(rename = "lift")]
    LiftBan(LiftBan),
    KeepToken(KeepToken),
    #[serde(rename = "refresh")]
    RenewAtIssuer(RenewAtIssuer),
    #[serde(rename = "why_waiting")]
    ExplainWaiting(ExplainWaiting),
    #[serde(rename = "when_it_starts")]
    EstimateStart(EstimateStart),
}

/// The reply to a command. A reply of another kind than the request's is an error of its sender.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// The job is durable.
    Accepted(JobId),
    /// There is a job of that id already.
    Taken,
    /// Nothing was accepted: so many transfers are open that there is no room for the job's.
    NoRoom(usize),
    /// Nothing was accepted: room is scarce, and the submitter or their VO has taken their share of it.
    ShareFull(FullShare),
    /// What was asked for was done, as far as there was anything to do.
    Done,
    /// The job is unknown or has ended; there is no such ban.
    NotOpen,
    /// So much was stopped. When it was nothing, nothing is left.
    Canceled(StoppedCount),
    /// What was changed of the settings; nothing, when all was so already.
    Set(Vec<SettingChange>),
    /// The settings stay as they are.
    Refused(SettingRefusal),
    /// The job is refused: this storage element takes no submissions.
    StorageBanned(StorageId),
    /// The ban holds, and concerned these jobs.
    Banned(Vec<JobId>),
    /// There are so many bans that no further one is taken.
    TooManyBans,
    /// The journal refuses for good what was asked for: nothing of it happens.
    NotRecorded(String),
    /// Why each waits; `None` for one that does not.
    Waiting(Vec<Option<WaitReason>>),
    /// When it will probably start; `None`: that cannot be told.
    Start(Option<StartEstimate>),
    /// Whether there is a newer token now.
    Refreshed(Result<(), TokenTrouble>),
}

/// A command with the type of its reply.
pub trait Request {
    /// What it is answered with, when it was not refused by the journal.
    type Reply;

    fn into_command(self) -> Command;

    /// Reads its reply. `None`: that answers something else.
    fn read(reply: Reply) -> Option<Self::Reply>;
}

/// Accept a job. It is durable before the reply.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Submit(pub Box<NewJob>);

/// Why a job is not accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotAccepted {
    /// There is a job of that id already.
    Taken,
    /// So many transfers are open.
    NoRoom(usize),
    /// Room is scarce, and the submitter or their VO has taken their share of it.
    ShareFull(FullShare),
    /// This storage element takes no submissions.
    StorageBanned(StorageId),
}

impl Request for Submit {
    type Reply = Result<JobId, NotAccepted>;

    fn into_command(self) -> Command {
        Command::Submit(self)
    }

    fn read(reply: Reply) -> Option<Self::Reply> {
        match reply {
            Reply::Accepted(job) => Some(Ok(job)),
            Reply::Taken => Some(Err(NotAccepted::Taken)),
            Reply::NoRoom(open) => Some(Err(NotAccepted::NoRoom(open))),
            Reply::ShareFull(full) => Some(Err(NotAccepted::ShareFull(full))),
            Reply::StorageBanned(storage) => Some(Err(NotAccepted::StorageBanned(storage))),
            _ => None,
        }
    }
}

/// Stop a job, or some of its transfers. The reply: whether the job was open.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Cancel {
    pub job: JobId,
    /// `None`: all.
    pub transfers: Option<Vec<TransferId>>,
    /// For people.
    pub reason: String,
}

impl Request for Cancel {
    type Reply = bool;

    fn into_command(self) -> Command {
        Command::Cancel(self)
    }

    fn read(reply: Reply) -> Option<bool> {
        reply.into_done()
    }
}

/// Stop everything, as much of it as is done at once.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CancelAll {
    /// `None`: of all VOs.
    pub vo: Option<VoName>,
    /// For people.
    pub reason: String,
}

impl Request for CancelAll {
    type Reply = StoppedCount;

    fn into_command(self) -> Command {
        Command::CancelAll(self)
    }

    fn read(reply: Reply) -> Option<StoppedCount> {
        match reply {
            Reply::Canceled(stopped) => Some(stopped),
            _ => None,
        }
    }
}

/// Another priority for what has not started of a job. The reply: whether the job was open.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Reprioritise {
    pub job: JobId,
    pub priority: Priority,
}

impl Request for Reprioritise {
    type Reply = bool;

    fn into_command(self) -> Command {
        Command::Reprioritise(self)
    }

    fn read(reply: Reply) -> Option<bool> {
        reply.into_done()
    }
}

/// Change a setting. The reply: what was changed, or why nothing is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ChangeSetting {
    pub wish: Box<SettingRequest>,
    pub asker: SettingRequester,
    /// The asker, as the record names them.
    pub user: UserName,
}

impl Request for ChangeSetting {
    type Reply = Result<Vec<SettingChange>, SettingRefusal>;

    fn into_command(self) -> Command {
        Command::ChangeSetting(self)
    }

    fn read(reply: Reply) -> Option<Self::Reply> {
        match reply {
            Reply::Set(changes) => Some(Ok(changes)),
            Reply::Refused(refusal) => Some(Err(refusal)),
            _ => None,
        }
    }
}

/// Ban a storage element or a user from now on. The reply: the jobs that it concerned.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ImposeBan(pub Box<Ban>);

/// There are so many bans that no further one is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooManyBans;

impl Request for ImposeBan {
    type Reply = Result<Vec<JobId>, TooManyBans>;

    fn into_command(self) -> Command {
        Command::ImposeBan(self)
    }

    fn read(reply: Reply) -> Option<Self::Reply> {
        match reply {
            Reply::Banned(jobs) => Some(Ok(jobs)),
            Reply::TooManyBans => Some(Err(TooManyBans)),
            _ => None,
        }
    }
}

/// Lift a ban. The reply: whether there was one.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LiftBan {
    pub target: BanTarget,
    /// Who asks.
    pub by: UserName,
}

impl Request for LiftBan {
    type Reply = bool;

    fn into_command(self) -> Command {
        Command::LiftBan(self)
    }

    fn read(reply: Reply) -> Option<bool> {
        reply.into_done()
    }
}

/// Make durable what an issuer gave for a token.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct KeepToken {
    /// Under which name transfers refer to it.
    pub id: CredentialId,
    pub renewed: RenewedToken,
}

impl Request for KeepToken {
    type Reply = ();

    fn into_command(self) -> Command {
        Command::KeepToken(self)
    }

    fn read(reply: Reply) -> Option<()> {
        reply.into_done()?.then_some(())
    }
}

/// Have an issuer give something newer for a token, and make it durable.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RenewAtIssuer(pub CredentialId);

/// Why a token cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenTrouble {
    /// It, or what it is renewed with, is worth nothing any more.
    Ended(String),
    /// It may be had later.
    Later(String),
    /// It cannot be read here at the moment: that says nothing of the token, nor of who uses it.
    Unreadable(String),
}

impl Request for RenewAtIssuer {
    type Reply = Result<(), TokenTrouble>;

    fn into_command(self) -> Command {
        Command::RenewAtIssuer(self)
    }

    fn read(reply: Reply) -> Option<Self::Reply> {
        match reply {
            Reply::Refreshed(refreshed) => Some(refreshed),
            _ => None,
        }
    }
}

/// Tell why these wait. The reply has one answer for each; `None` for one that does not wait.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ExplainWaiting(pub Vec<TransferId>);

impl Request for ExplainWaiting {
    type Reply = Vec<Option<WaitReason>>;

    fn into_command(self) -> Command {
        Command::ExplainWaiting(self)
    }

    fn read(reply: Reply) -> Option<Self::Reply> {
        match reply {
            Reply::Waiting(reasons) => Some(reasons),
            _ => None,
        }
    }
}

/// Tell when a transfer will probably start. The reply: `None` when it does not wait, or nothing is known.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EstimateStart(pub TransferId);

impl Request for EstimateStart {
    type Reply = Option<StartEstimate>;

    fn into_command(self) -> Command {
        Command::EstimateStart(self)
    }

    fn read(reply: Reply) -> Option<Self::Reply> {
        match reply {
            Reply::Start(estimate) => Some(estimate),
            _ => None,
        }
    }
}

impl Reply {
    fn into_done(self) -> Option<bool> {
        match self {
            Reply::Done => Some(true),
            Reply::NotOpen => Some(false),
            _ => None,
        }
    }
}

impl crate::Input {
    /// A request whose reply is owed to `reply`.
    pub fn of_request(request: impl Request, reply: ReplyId) -> crate::Input {
        crate::Input::Command {
            command: request.into_command(),
            reply,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_decide::settings::LinkRuleRequest;

    #[test]
    fn a_wish_survives_the_way_to_the_leader() {
        let wish = SettingRequest::SetLink(LinkRuleRequest {
            name: "a-b".into(),
            tuning: Some(None),
            mode: Some(None),
            rate_max: Some(None),
            ..LinkRuleRequest::default()
        });
        let sent = serde_json::to_string(&wish).expect("is JSON");
        let received: SettingRequest = serde_json::from_str(&sent).expect("is a wish");
        assert_eq!(received, wish);
    }

    #[test]
    fn nodes_of_the_first_version_understand_commands_and_are_understood() {
        let check = |command: Command, expected: &str| {
            assert_eq!(serde_json::to_string(&command).expect("is JSON"), expected);
            let read: Command = serde_json::from_str(expected).expect("is a command");
            assert_eq!(serde_json::to_string(&read).expect("is JSON"), expected);
        };
        let job = JobId(uuid::Uuid::nil());
        let cancel = Cancel {
            job,
            transfers: None,
            reason: "r".to_owned(),
        };
        check(
            cancel.into_command(),
            r#"{"cancel":{"job":"00000000-0000-0000-0000-000000000000","transfers":null,"reason":"r"}}"#,
        );
        check(
            RenewAtIssuer(CredentialId::new("abc")).into_command(),
            r#"{"refresh":"abc"}"#,
        );
        check(
            ExplainWaiting(vec![TransferId(7)]).into_command(),
            r#"{"why_waiting":[7]}"#,
        );
        check(
            EstimateStart(TransferId(7)).into_command(),
            r#"{"when_it_starts":7}"#,
        );
        let lift = LiftBan {
            target: BanTarget::User(UserName::new("mallory")),
            by: UserName::new("alice"),
        };
        let sent = serde_json::to_string(&lift.into_command()).expect("is JSON");
        assert!(sent.starts_with(r#"{"lift":{"target":"#), "{sent}");
    }

    #[test]
    fn a_reply_to_something_else_is_none() {
        assert_eq!(Submit::read(Reply::Done), None);
        assert_eq!(
            Cancel::read(Reply::Accepted(JobId(uuid::Uuid::nil()))),
            None
        );
        assert_eq!(Cancel::read(Reply::NotOpen), Some(false));
        assert_eq!(KeepToken::read(Reply::NotOpen), None);
        assert_eq!(ImposeBan::read(Reply::Taken), None);
        assert_eq!(ChangeSetting::read(Reply::Taken), None);
    }
}
