//! The codes of what can fail towards a user, with what is always true of each. The page `docs/api/errors.md` is made of
//! this table.

mod requests;
mod services;

use super::{Actor, Layer, Retry};

use requests::REQUESTS;
use serde::{Deserialize, Serialize};
use services::SERVICES;
use std::fmt;

/// One cause of a failure. The name on the wire is stable: it may get a successor, and never another meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProblemCode {
    CredentialsMissing,
    TokenInvalid,
    TokenExpired,
    TokenAudienceWrong,
    IssuerUntrusted,
    IssuerUnreachable,
    TokenRenewalFailed,
    CredentialsRefused,
    CertificateInvalid,
    CertificateExpired,
    CertificateRequired,
    DelegationMissing,
    DelegationExpired,
    DelegationInvalid,
    EncryptionRequired,
    ForeignPage,
    AccessLinkEnded,
    PermissionDenied,
    ScopeInsufficient,
    AdministratorRequired,
    VoRequired,
    UserBanned,
    StorageBanned,
    AddressNotAllowed,
    RequestMalformed,
    MethodNotAllowed,
    MediaTypeUnsupported,
    BodyTooLarge,
    BodyIncomplete,
    BodyTimeout,
    RangeUnsatisfiable,
    PreconditionFailed,
    ListingUnbounded,
    FeatureUnsupported,
    MembersFailed,
    ResourceNotFound,
    JobNotFound,
    TransferNotFound,
    JobDuplicate,
    SettingConflict,
    LimitReached,
    EndpointUnsupported,
    SelfBan,
    AccessLinksTooMany,
    PathNotFound,
    PathNotThereYet,
    PathExists,
    PathIsDirectory,
    ParentMissing,
    ParentIsFile,
    PathReserved,
    PathLocked,
    PathBusy,
    PathIntoItself,
    RootUnchangeable,
    DirectoryTooLarge,
    PropertiesTooLarge,
    LocksExhausted,
    UploadNotFound,
    UploadOffsetWrong,
    UploadSuperseded,
    UploadsTooMany,
    UploadsTooLarge,
    OtherServer,
    WriteUnsettled,
    NamespaceBusy,
    ResourceBusy,
    NamespaceFull,
    NamespaceFailed,
    PoolFull,
    PoolsDisabled,
    PoolFailing,
    PoolBusy,
    PoolOffline,
    MoverPreempted,
    DiskFailed,
    DiskStalled,
    FileUnreadable,
    FileLost,
    ChecksumMismatch,
    ChecksumExpectedWrong,
    ChecksumUnavailable,
    SizeMismatch,
    PeerBusy,
    PeerFailed,
    PeerMalformed,
    RedirectsTooMany,
    CopyFailed,
    NameUnresolved,
    ConnectionRefused,
    ConnectionBroken,
    ConnectionTimeout,
    TlsUntrusted,
    ClockSkew,
    QueueTimeout,
    TransferTimeout,
    TransferCanceled,
    ServiceFull,
    VoWithoutShare,
    JournalFull,
    JournalBusy,
    JournalFailed,
    JournalMissing,
    RecordRefused,
    OutcomeUnknown,
    ServiceLeaderless,
    ServiceStopping,
    ServiceBusy,
    KeysUnavailable,
    ReplyUnknown,
    InternalError,
    TapeFailed,
    TapeTimeout,
    ArchiveTimeout,
    TapeUnsupported,
    FileOnTape,
    FileRecalling,
    PinsExhausted,
    StageRequestsTooMany,
    TapeInUse,
    CommandInvalid,
    ConfigurationInvalid,
    FilesFailed,
    ConsistencyBroken,
    ReplayFailed,
    LocalFailure,
    Interrupted,
}

/// What is always true of a code.
#[derive(Debug, Clone, Copy)]
pub struct ProblemFacts {
    pub code: ProblemCode,
    /// Its name on the wire.
    pub name: &'static str,
    /// Which part of the system it is about.
    pub layer: Layer,
    /// What helps, and who can do it.
    pub advice: Advice,
    /// The HTTP status where no specification asks for another.
    pub status: u16,
    /// What happened, in one sentence.
    pub meaning: &'static str,
    /// What to do, in one sentence.
    pub remedy: &'static str,
}

/// What helps, and who can do it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Advice {
    /// Whether trying again can help.
    pub retry: Retry,
    /// Who should act.
    pub actor: Actor,
}

const fn advice(retry: Retry, actor: Actor) -> Advice {
    Advice { retry, actor }
}

const CORRECT: Advice = advice(Retry::Never, Actor::User);
const ELSEWHERE: Advice = advice(Retry::ElsewhereOnly, Actor::User);
const RETRY: Advice = advice(Retry::Later, Actor::Nobody);
const ASK_SITE: Advice = advice(Retry::Never, Actor::Site);
const SITE_LATER: Advice = advice(Retry::Later, Actor::Site);
const ASK_OPERATOR: Advice = advice(Retry::Never, Actor::Operator);
const OPERATOR_LATER: Advice = advice(Retry::Later, Actor::Operator);
const ASK_PEER: Advice = advice(Retry::Never, Actor::Peer);
const PEER_LATER: Advice = advice(Retry::Later, Actor::Peer);

/// One row for each code, in the order of their declaration.
const TABLE: [ProblemFacts; REQUESTS.len() + SERVICES.len()] = {
    let mut table = [REQUESTS[0]; REQUESTS.len() + SERVICES.len()];
    let mut row = 0;
    while row < table.len() {
        table[row] = match row < REQUESTS.len() {
            true => REQUESTS[row],
            false => SERVICES[row - REQUESTS.len()],
        };
        row += 1;
    }
    table
};

/// Each code finds its own row: a row that is missing or in the wrong place stops the compiler.
const _: () = {
    let mut row = 0;
    while row < TABLE.len() {
        assert!(TABLE[row].code as usize == row);
        row += 1;
    }
};

impl ProblemCode {
    /// All codes with their facts, by layer.
    pub fn all() -> &'static [ProblemFacts] {
        &TABLE
    }

    /// What is always true of it.
    pub const fn facts(self) -> &'static ProblemFacts {
        &TABLE[self as usize]
    }

    /// Its name on the wire.
    pub const fn name(self) -> &'static str {
        self.facts().name
    }

    /// What a server means that gives a status and no code.
    pub const fn of_status(status: u16) -> ProblemCode {
        match status {
            400 => ProblemCode::RequestMalformed,
            401 => ProblemCode::CredentialsRefused,
            403 | 407 => ProblemCode::PermissionDenied,
            404 | 410 => ProblemCode::PathNotFound,
            405 | 501 => ProblemCode::FeatureUnsupported,
            408 | 504 => ProblemCode::ConnectionTimeout,
            409 => ProblemCode::PathBusy,
            412 => ProblemCode::PathExists,
            413 | 507 => ProblemCode::PoolFull,
            423 => ProblemCode::PathLocked,
            429 | 503 => ProblemCode::PeerBusy,
            _ => ProblemCode::PeerFailed,
        }
    }

    /// The code of that name. `None`: a later version may know it.
    pub fn by_name(name: &str) -> Option<ProblemCode> {
        let known = TABLE.iter().find(|facts| facts.name == name);
        known.map(|facts| facts.code)
    }
}

impl fmt::Display for ProblemCode {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_row() {
        // The error names all variants that could have been meant.
        let unknown = serde_json::from_str::<ProblemCode>("\"none-of-them\"");
        let listed = unknown.expect_err("no code").to_string();
        let listed: Vec<&str> = listed.split('`').skip(3).step_by(2).collect();
        let rows: Vec<&str> = TABLE.iter().map(|facts| facts.name).collect();
        assert_eq!(listed, rows);
    }

    #[test]
    fn every_code_reads_as_it_is_written() {
        for facts in ProblemCode::all() {
            let written = serde_json::to_string(&facts.code).expect("a name");
            assert_eq!(written, format!("\"{}\"", facts.name));
            assert_eq!(ProblemCode::by_name(facts.name), Some(facts.code));
        }
    }

    #[test]
    fn every_code_is_explained_by_two_sentences() {
        for facts in ProblemCode::all() {
            for text in [facts.meaning, facts.remedy] {
                assert!(text.ends_with('.') && !text.contains('|'), "{}", facts.name);
                assert!(text.starts_with(
                    |first: char| first.is_uppercase() || text.starts_with("penstock")
                ));
            }
            assert!((200..600).contains(&facts.status), "{}", facts.name);
        }
    }

    #[test]
    fn rows_of_one_layer_stand_together() {
        let mut layers: Vec<Layer> = TABLE.iter().map(|facts| facts.layer).collect();
        layers.dedup();
        let count = layers.len();
        layers.sort();
        layers.dedup();
        assert_eq!(layers.len(), count);
    }
}
