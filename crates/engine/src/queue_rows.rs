//! The queue as it lies in memory: a row for each transfer and each job that has not ended. Rows are as small as they
//! can be, because there may be millions; what nearly all have in common is kept once.

use super::packed_request::PackedRequest;
use penstock_decide::scheduler::LinkNumber;
use penstock_model::url::FilePlace;
use penstock_model::{
    Activity, Bytes, JobId, JobParameters, LinkId, Timestamp, TransferId, TransferRequest,
    TransferState, UserName, VoName,
};
use serde_json::Value;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Weak};

/// As nearly all that wait are.
static SUBMITTED: TransferState = TransferState::Submitted {
    not_before: None,
    failures: 0,
    attempts: 0,
    last: None,
    unsettled: false,
    staged: None,
};
static NOT_USED: TransferState = TransferState::NotUsed;

/// A transfer that has not ended.
#[derive(Debug)]
pub(super) struct TransferEntry {
    pub(super) job: JobId,
    pub(super) destination: FilePlace,
    /// As the scheduler numbers it.
    pub(super) link: LinkNumber,
    request: PackedRequest,
    state: PackedState,
}

/// A state, in a word when it is one of the two that most are in.
#[derive(Debug)]
enum PackedState {
    Submitted,
    NotUsed,
    Other(Box<TransferState>),
}

impl PackedState {
    fn of(state: TransferState) -> PackedState {
        match state {
            TransferState::NotUsed => PackedState::NotUsed,
            state if state == SUBMITTED => PackedState::Submitted,
            state => PackedState::Other(Box::new(state)),
        }
    }
}

impl TransferEntry {
    pub(super) fn new(
        job: JobId,
        request: &TransferRequest,
        number: LinkNumber,
        link: &LinkId,
        state: TransferState,
    ) -> TransferEntry {
        TransferEntry {
            job,
            destination: request.destination.place(),
            link: number,
            request: PackedRequest::of(request, link),
            state: PackedState::of(state),
        }
    }

    pub(super) fn state(&self) -> &TransferState {
        match &self.state {
            PackedState::Submitted => &SUBMITTED,
            PackedState::NotUsed => &NOT_USED,
            PackedState::Other(state) => state,
        }
    }

    pub(super) fn set_state(&mut self, state: TransferState) {
        self.state = PackedState::of(state);
    }

    /// The size that the user says the file has.
    pub(super) fn size(&self) -> Option<Bytes> {
        self.request.size()
    }

    pub(super) fn activity(&self) -> Activity {
        self.request.activity()
    }

    /// What was asked for, without the client's notes.
    pub(super) fn request(&self, id: TransferId, link: &LinkId) -> TransferRequest {
        self.request.request(id, link)
    }
}

/// A job that has not ended.
#[derive(Debug)]
pub(super) struct JobEntry {
    /// What it has in common with other jobs.
    pub(super) shared: Arc<SharedFacts>,
    pub(super) submitted_at: Timestamp,
    /// Transfers that wait or run.
    pub(super) open: IdSet,
    /// What few jobs have.
    rare: Option<Box<RareJobFacts>>,
}

#[derive(Debug, Default)]
struct RareJobFacts {
    unused: IdSet,
    is_expired: bool,
    ended: Vec<TransferState>,
}

/// What jobs have in common that are submitted by one user in one way.
#[derive(Debug, PartialEq)]
pub(super) struct SharedFacts {
    pub(super) user: UserName,
    pub(super) vo: VoName,
    /// Without the client's notes and the time of the job's end, which are in the journal.
    pub(super) parameters: Arc<JobParameters>,
}

impl JobEntry {
    pub(super) fn new(shared: Arc<SharedFacts>, submitted_at: Timestamp) -> JobEntry {
        JobEntry {
            shared,
            submitted_at,
            open: IdSet::default(),
            rare: None,
        }
    }

    pub(super) fn vo(&self) -> &VoName {
        &self.shared.vo
    }

    pub(super) fn user(&self) -> &UserName {
        &self.shared.user
    }

    pub(super) fn parameters(&self) -> &Arc<JobParameters> {
        &self.shared.parameters
    }

    /// Replicas and hops whose turn has not come.
    pub(super) fn unused(&self) -> &IdSet {
        static NONE: IdSet = IdSet::Run { first: 0, count: 0 };
        self.rare.as_ref().map_or(&NONE, |rare| &rare.unused)
    }

    pub(super) fn add_unused(&mut self, transfer: TransferId) {
        self.rare().unused.insert(transfer);
    }

    pub(super) fn remove_unused(&mut self, transfer: TransferId) {
        if let Some(rare) = &mut self.rare {
            rare.unused.remove(transfer);
        }
    }

    /// It has waited for too long: nothing more of it begins.
    pub(super) fn is_expired(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.is_expired)
    }

    pub(super) fn expire(&mut self) {
        self.rare().is_expired = true;
    }

    /// One state for each way in which transfers of this job have ended: enough for the roll-up.
    pub(super) fn ended(&self) -> &[TransferState] {
        self.rare.as_ref().map_or(&[], |rare| &rare.ended)
    }

    pub(super) fn add_ended(&mut self, state: TransferState) {
        let name = state.fts_name();
        if self.ended().iter().all(|seen| seen.fts_name() != name) {
            self.rare().ended.push(state);
        }
    }

    fn rare(&mut self) -> &mut RareJobFacts {
        self.rare.get_or_insert_default()
    }
}

/// Finds what jobs have in common, so that it is in memory once.
#[derive(Debug, Default)]
pub(super) struct SharedFactsIndex {
    known: HashMap<u64, Weak<SharedFacts>>,
    swept_at: usize,
}

impl SharedFactsIndex {
    /// The one that is equal, if there is one.
    pub(super) fn share(
        &mut self,
        user: UserName,
        vo: VoName,
        parameters: JobParameters,
    ) -> Arc<SharedFacts> {
        const KNOWN_MIN: usize = 1024;
        let parameters = JobParameters {
            metadata: Value::Null,
            expires_at: None,
            ..parameters
        };
        let mut hasher = DefaultHasher::new();
        (&user, &vo).hash(&mut hasher);
        // Their form as text is what all of them have that could be hashed.
        let text = serde_json::to_string(&parameters).unwrap_or_default();
        text.hash(&mut hasher);
        let key = hasher.finish();
        let known = self.known.get(&key).and_then(Weak::upgrade);
        if let Some(known) = known
            && (&known.user, &known.vo) == (&user, &vo)
            && *known.parameters == parameters
        {
            return known;
        }
        let shared = Arc::new(SharedFacts {
            user,
            vo,
            parameters: Arc::new(parameters),
        });
        self.known.insert(key, Arc::downgrade(&shared));
        if self.known.len() >= (2 * self.swept_at).max(KNOWN_MIN) {
            self.known.retain(|_, known| known.strong_count() > 0);
            self.swept_at = self.known.len();
        }
        shared
    }
}

/// Numbers of transfers. Those of a job follow each other, so that most sets are one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum IdSet {
    Run {
        first: u64,
        count: u64,
    },
    /// First and last of each run, in order; none touches the next.
    Runs(Vec<(u64, u64)>),
}

impl Default for IdSet {
    fn default() -> IdSet {
        IdSet::Run { first: 0, count: 0 }
    }
}

impl IdSet {
    pub(super) fn len(&self) -> usize {
        match self {
            IdSet::Run { count, .. } => *count as usize,
            IdSet::Runs(runs) => runs
                .iter()
                .map(|(first, last)| last - first + 1)
                .sum::<u64>() as usize,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        match self {
            IdSet::Run { count, .. } => *count == 0,
            IdSet::Runs(runs) => runs.is_empty(),
        }
    }

    pub(super) fn first(&self) -> Option<TransferId> {
        self.iter().next()
    }

    /// In order.
    pub(super) fn iter(&self) -> impl Iterator<Item = TransferId> + '_ {
        let (one, many): (_, &[(u64, u64)]) = match self {
            IdSet::Run { first, count } => (*first..*first + *count, &[]),
            IdSet::Runs(runs) => (0..0, runs),
        };
        let many = many.iter().flat_map(|(first, last)| *first..=*last);
        one.chain(many).map(TransferId)
    }

    pub(super) fn insert(&mut self, TransferId(id): TransferId) {
        if let IdSet::Run { first, count } = self {
            if *count == 0 {
                (*first, *count) = (id, 1);
                return;
            }
            if id == *first + *count {
                *count += 1;
                return;
            }
        }
        let runs = self.runs();
        // The first run that begins behind it.
        let at = runs.partition_point(|(first, _)| *first <= id);
        if at > 0 && runs[at - 1].1 >= id {
            return;
        }
        let joins_before = at > 0 && runs[at - 1].1 + 1 == id;
        let joins_after = at < runs.len() && runs[at].0 == id + 1;
        match (joins_before, joins_after) {
            (true, true) => {
                runs[at - 1].1 = runs[at].1;
                runs.remove(at);
            }
            (true, false) => runs[at - 1].1 = id,
            (false, true) => runs[at].0 = id,
            (false, false) => runs.insert(at, (id, id)),
        }
        self.settle();
    }

    pub(super) fn remove(&mut self, TransferId(id): TransferId) {
        if let IdSet::Run { first, count } = self {
            if id < *first || id >= *first + *count {
                return;
            }
            if id == *first {
                (*first, *count) = (id + 1, *count - 1);
                return;
            }
            if id + 1 == *first + *count {
                *count -= 1;
                return;
            }
        }
        let runs = self.runs();
        let at = runs.partition_point(|(first, _)| *first <= id);
        if at == 0 || runs[at - 1].1 < id {
            return;
        }
        let (first, last) = runs[at - 1];
        match (first == id, last == id) {
            (true, true) => drop(runs.remove(at - 1)),
            (true, false) => runs[at - 1].0 = id + 1,
            (false, true) => runs[at - 1].1 = id - 1,
            (false, false) => {
                runs[at - 1].1 = id - 1;
                runs.insert(at, (id + 1, last));
            }
        }
        self.settle();
    }

    fn runs(&mut self) -> &mut Vec<(u64, u64)> {
        if let IdSet::Run { first, count } = *self {
            let runs = match count {
                0 => Vec::new(),
                _ => vec![(first, first + count - 1)],
            };
            *self = IdSet::Runs(runs);
        }
        match self {
            IdSet::Runs(runs) => runs,
            IdSet::Run { .. } => unreachable!("turned into runs above"),
        }
    }

    /// One run needs no list.
    fn settle(&mut self) {
        if let IdSet::Runs(runs) = self {
            match runs.as_slice() {
                [] => *self = IdSet::default(),
                [(first, last)] => {
                    let (first, count) = (*first, last - first + 1);
                    *self = IdSet::Run { first, count };
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn rows_are_small() {
        assert!(size_of::<TransferEntry>() <= 64);
        assert!(size_of::<JobEntry>() <= 56);
    }

    #[test]
    fn jobs_that_are_alike_share_what_they_have_in_common() {
        let mut sharing = SharedFactsIndex::default();
        let mut share = |retries: Option<u32>, note: i32| {
            let parameters = JobParameters {
                retries_max: retries,
                metadata: serde_json::json!({ "note": note }),
                ..JobParameters::default()
            };
            sharing.share(UserName::new("u"), VoName::new("v"), parameters)
        };
        let (one, alike, other) = (share(None, 1), share(None, 2), share(Some(3), 1));
        assert!(Arc::ptr_eq(&one, &alike));
        assert!(!Arc::ptr_eq(&one, &other));
        drop((one, alike, other));
        (0..3000).for_each(|retries| drop(share(Some(retries), 1)));
        assert!(sharing.known.len() < 1100, "{}", sharing.known.len());
    }

    proptest! {
        #[test]
        fn a_set_of_ids_is_a_set(steps in proptest::collection::vec((0u64..20, any::<bool>()), 0..80)) {
            let (mut set, mut model) = (IdSet::default(), BTreeSet::new());
            for (id, inserts) in steps {
                match inserts {
                    true => { set.insert(TransferId(id)); model.insert(TransferId(id)); }
                    false => { set.remove(TransferId(id)); model.remove(&TransferId(id)); }
                }
                prop_assert!(set.iter().eq(model.iter().copied()));
                prop_assert_eq!((set.len(), set.is_empty()), (model.len(), model.is_empty()));
                prop_assert_eq!(set.first(), model.first().copied());
            }
        }
    }
}
