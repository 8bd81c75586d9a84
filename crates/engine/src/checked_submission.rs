//! A valid submission, before the engine gives its transfers their numbers.

use penstock_model::{
    Activity, Bytes, Checksum, ChecksumAlgorithm, CredentialId, FileUrl, Job, JobId, JobKind,
    JobParameters, JobToken, TapeNotes, Timestamp, TransferId, TransferRequest, UserName, VoName,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;

/// What one submission asks for; everything in it has been checked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NewJob {
    /// The id the job will have.
    pub id: JobId,
    /// Who submits.
    pub user: UserName,
    /// On whose behalf.
    pub vo: VoName,
    /// Names the submitter's identity.
    pub delegation: CredentialId,
    /// What holds for every file.
    pub parameters: JobParameters,
    /// At least one file.
    pub transfers: Vec<NewTransfer>,
    /// Tokens and queries with credentials that the transfers refer to.
    pub tokens: Vec<JobToken>,
}

/// One file of a submission.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NewTransfer {
    pub source: FileUrl,
    /// Where it goes.
    pub destination: FileUrl,
    /// The size the user says it has.
    pub size: Option<Bytes>,
    /// The checksum the user says it has.
    pub checksum: Option<Checksum>,
    /// The algorithm to compare with, when no value was given.
    pub checksum_algorithm: ChecksumAlgorithm,
    /// Share label.
    pub activity: Activity,
    /// Marks the packets of this transfer for the networks it crosses.
    pub scitag: Option<u16>,
    /// Whatever the client wants back, unchanged.
    pub metadata: Arc<Value>,
    /// Token for the source.
    pub source_credential: Option<CredentialId>,
    /// Token for the destination.
    pub destination_credential: Option<CredentialId>,
    /// The query of the source's URL, when it holds credentials.
    pub source_query: Option<CredentialId>,
    /// The same of the destination's.
    pub destination_query: Option<CredentialId>,
    /// What tape systems are told of it.
    pub tape: Option<Arc<TapeNotes>>,
}

impl NewJob {
    /// The job as accepted at `at`, its transfers numbered from `first`, and the tokens to keep with it.
    pub fn into_job(self, first: u64, at: Timestamp) -> (Job, Vec<JobToken>) {
        let kind = self.parameters.kind;
        let transfers =
            self.transfers
                .into_iter()
                .zip(0u32..)
                .map(|(new, index)| TransferRequest {
                    id: TransferId(first + u64::from(index)),
                    index: match kind {
                        // All of one file.
                        JobKind::Replicas(_) => 0,
                        JobKind::Independent | JobKind::Session | JobKind::Hops => index,
                    },
                    source: new.source,
                    destination: new.destination,
                    size: new.size,
                    checksum: new.checksum,
                    checksum_algorithm: new.checksum_algorithm,
                    activity: new.activity,
                    scitag: new.scitag,
                    metadata: new.metadata,
                    source_credential: new.source_credential,
                    destination_credential: new.destination_credential,
                    source_query: new.source_query,
                    destination_query: new.destination_query,
                    tape: new.tape,
                });
        let job = Job {
            id: self.id,
            user: self.user,
            vo: self.vo,
            delegation: self.delegation,
            submitted_at: at,
            parameters: self.parameters,
            transfers: transfers.collect(),
        };
        (job, self.tokens)
    }
}
