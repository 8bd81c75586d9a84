//! Removes the source of a copy that is on tape, when both ends tell that they have the same file.

use super::http::{AccessMethod, End, Stat};
use super::steps::{AttemptRun, ReachedEnds, StatScope};
use super::{AgentSetup, Progress};
use penstock_decide::classify::ObservedFailure;
use penstock_engine::Assignment;
use penstock_model::url::hide_credentials;
use penstock_model::{Failure, Phase, Side};
use std::sync::Arc;
use std::time::Instant;

const PHASE: Phase = Phase::Archiving;
/// Times that two answers give of one change differ by no more: each is told by the second.
const SAME_TIME_MS: i64 = 2_000;

impl AgentSetup {
    /// The same without an agent.
    pub(super) async fn remove_source(
        self: Arc<Self>,
        assignment: &Assignment,
    ) -> Result<(), Failure> {
        let setup = self.reaching_by(assignment.parameters.ip_version);
        let progress = Progress::new(assignment, Instant::now());
        AttemptRun::new(&setup, assignment, &progress)
            .remove_source()
            .await
    }
}

impl AttemptRun<'_> {
    /// Removes the source if the destination has the same file, by size and checksum. Errors: why it is still there.
    pub(super) async fn remove_source(&self) -> Result<(), Failure> {
        let removed = self.removed().await;
        removed.map_err(|failure| {
            let mut failure = Failure {
                phase: PHASE,
                ..failure
            };
            if let Some(ReachedEnds {
                source,
                destination,
            }) = self.ends.get()
            {
                let ends = [source, destination].into_iter();
                let credentials: Vec<String> = ends.flat_map(|end| end.url.credentials()).collect();
                failure.detail = hide_credentials(&failure.detail, &credentials);
            }
            failure
        })
    }

    async fn removed(&self) -> Result<(), Failure> {
        let (source, destination) =
            tokio::try_join!(self.end(Side::Source), self.end(Side::Destination))?;
        // Set once: it looks once.
        let _ = self.ends.set(ReachedEnds {
            source: source.clone(),
            destination: destination.clone(),
        });
        let wanted = StatScope::SizeAndChecksum;
        let (at_source, at_destination) = tokio::try_join!(
            self.stat(&source, wanted, PHASE),
            self.stat(&destination, wanted, PHASE),
        )?;
        // An earlier call of which the answer was lost has removed it, or somebody else has.
        let Some(at_source) = at_source else {
            return Ok(());
        };
        let Some(at_destination) = at_destination else {
            let detail = format!("No such file or directory: {}", destination.url);
            let observed = ObservedFailure::Status(404);
            return Err(destination.failure(PHASE, &observed, detail));
        };
        if at_source.told().is_same(&at_destination.told()).is_none() {
            return Err(self.differs(&source, &at_source, &destination, &at_destination));
        }
        if self.assignment.unsettled && may_be_one(&at_source, &at_destination) {
            let detail = format!(
                "{} and {} may be one file by two names: no copy of this transfer is known to have ended",
                source.url, destination.url
            );
            return Err(source.failure(PHASE, &ObservedFailure::ChecksumMismatch, detail));
        }
        match source.way() {
            AccessMethod::Http => {
                let version = at_source.version.as_ref();
                let removed = self.setup.remove(&source, version, PHASE).await;
                removed.map_err(|why| why.failure)
            }
            // No job is accepted that wants it.
            AccessMethod::Cloud(_) | AccessMethod::Gfal => {
                let detail = format!("{} is not removed by this service", source.url);
                Err(source.failure(PHASE, &ObservedFailure::Malformed, detail))
            }
        }
    }

    /// What is at the source now is not known to be what is on tape.
    fn differs(&self, source: &End, at_source: &Stat, destination: &End, there: &Stat) -> Failure {
        let algorithm = self.algorithm();
        let told = |stat: &Stat| {
            let size = stat
                .size
                .map_or("no size".to_owned(), |size| format!("{} bytes", size.0));
            let checksum = stat.checksum.as_ref();
            let checksum = checksum.map_or(format!("no {algorithm}"), |sum| {
                format!("{algorithm} {}", sum.hex())
            });
            format!("{size} and {checksum}")
        };
        let detail = format!(
            "{} is not known to be the file that is on tape: it has {}, and {} has {}",
            source.url,
            told(at_source),
            destination.url,
            told(there)
        );
        source.failure(PHASE, &ObservedFailure::ChecksumMismatch, detail)
    }
}

/// Whether two looks may have seen one file, by names of which this service does not know that they mean the same server. What was
/// copied is none: it was written where nothing was.
fn may_be_one(one: &Stat, other: &Stat) -> bool {
    let times = one.modified.zip(other.modified);
    let is_same_time = times.is_none_or(|(one, other)| (one.0 - other.0).abs() <= SAME_TIME_MS);
    one.version == other.version && is_same_time
}
