//! What things are: the field's nouns as types, with the states they can be in and the events that move them.
//!
//! True forever and for everyone: no I/O, no `async`, no clock, no randomness. Time arrives as [`Timestamp`].
#![forbid(unsafe_code)]

pub mod attenuation;
pub mod ban;
pub mod capability;
pub mod checksum;
pub mod cloud;
pub mod copy_sums;
pub mod failure;
pub mod failure_text;
pub mod ids;
pub mod incident_class;
pub mod job;
pub mod key_file;
pub mod ledger;
pub mod lock;
pub mod minute;
pub mod mute;
pub mod node;
pub mod observation;
pub mod path;
pub mod pool_sample;
pub mod problem;
pub mod quantity;
pub mod reason;
pub mod record;
pub mod setting;
pub mod share_link;
pub mod stages;
pub mod streams;
pub mod tape;
pub mod tape_sample;
pub mod text;
pub mod token;
pub mod transfer;
pub mod tuning;
pub mod units;
pub mod url;
pub mod visibility;

pub use attenuation::{Attenuation, MacaroonActivity};
pub use ban::{Ban, BanChange, BanEffect, BanTarget, StorageBan, UserBan};
pub use capability::{Capability, Right};
pub use checksum::{Checksum, ChecksumAlgorithm};
pub use cloud::{CloudHolder, CloudKey, CloudName, CloudStorage};
pub use copy_sums::{CopySums, FinishedCopy, SocketFigures};
pub use failure::{Busy, Concern, Errno, Failure, FailureKind, FoundFile, Phase};
pub use ids::{
    Activity, CredentialId, JobId, LinkEnd, LinkId, PoolName, StorageId, TransferId, UserName,
    VoName,
};
pub use incident_class::IncidentClass;
pub use job::{
    ChecksumMode, IpVersion, Job, JobKind, JobParameters, JobState, JobTally, Overwrite, Selection,
    TransferRequest, job_state,
};
pub use ledger::{
    AfterStaging, LedgerEntry, LinkChange, LinkEvent, LinkSample, SourceRemoval, TransferEvent,
};
pub use lock::{Lock, LockReach, LockScope, LockToken};
pub use minute::{FailedStep, MinuteFailure, MinuteKey, MinuteRow, MinuteSamples, MinuteSums};
pub use mute::{Mute, MuteScope};
pub use node::{Epoch, InvalidNodeId, NodeId, Tenure};
pub use path::{NamespacePath, PATH_BYTES_MAX};
pub use pool_sample::{PoolSample, PoolSamples, PoolTraffic};
pub use problem::{Actor, Advice, Layer, Problem, ProblemCode, ProblemFacts, Retry, Side};
pub use reason::{ChoiceReason, NoSlot, SlotBound, SlotPlace, TapeWait, WaitReason};
pub use record::{Record, RestartFacts, Tidying, UnfinishedJob};
pub use setting::{
    ANY, ActivityShares, DEFAULT_ACTIVITY, Grant, JobDefaults, LinkRule, Operation, PUBLIC,
    Setting, SettingChange, SettingKey, Settings, StorageRule, VoShare, Weight,
};
pub use stages::{CopySummary, MoverReport, StageClocks, TcpSummary, Verification};
pub use streams::{StreamUse, StreamsReason, WayNotOffered};
pub use tape::{
    Archival, FileProgress, Locality, Recall, StageRequestId, Staging, TapeNotes, ToldPlace,
};
pub use tape_sample::TapeSample;
pub use token::{JobToken, Renewal, RenewedToken, StoredToken};
pub use transfer::{Attempt, CopyMode, InvalidTransition, TransferState, advance};
pub use tuning::{
    Fts3Reason, TrialResult, TuneReason, TunedPlace, TuningCandidate, TuningDecision, TuningMode,
    TuningPolicy, TuningSeen,
};
pub use units::{Bytes, Priority, Rate, Slots, TimeSpan, TimeWindow, Timestamp};
pub use url::{Access, FileUrl};
pub use visibility::Visibility;
