//! The journal of a site, as the transfer service writes it, tells the same as a record in memory.

use crate::stories;
use penstock_decide::explain::PopulationChoice;
use penstock_journal::{Journal, JournalReader};
use penstock_model::{
    Activity, ChecksumAlgorithm, CredentialId, FileUrl, Job, JobId, JobParameters, TimeWindow,
    Timestamp, TransferId, TransferRequest, TransferState, UserName, VoName, advance,
};
use penstock_observe::explanations::reading::{ExplainWindow, read_record};
use penstock_observe::follow::Follower;
use penstock_observe::recorded::read_journal;
use penstock_observe::{MemoryRecord, Record, report_of};
use penstock_persistence::journal::{SqliteJournal, SqliteReader};
use penstock_persistence::sealing::SealingKeys;
use std::collections::BTreeMap;
use std::sync::Arc;

fn request(id: u64) -> TransferRequest {
    let url = |host: &str| FileUrl::parse(&format!("https://{host}/data/f{id}")).expect("a URL");
    TransferRequest {
        id: TransferId(id),
        index: id as u32,
        source: url("gla.example"),
        destination: url("ed.example"),
        size: None,
        checksum: None,
        checksum_algorithm: ChecksumAlgorithm::Adler32,
        activity: Activity::new("default"),
        scitag: None,
        metadata: Default::default(),
        source_credential: None,
        destination_credential: None,
        source_query: None,
        destination_query: None,
        tape: None,
    }
}

/// The same fifty files in a journal on disk and in memory.
fn fifty_files(journal: &mut SqliteJournal, memory: &MemoryRecord) {
    let story = stories::fifty_files();
    let job = Job {
        id: JobId(uuid::Uuid::nil()),
        user: UserName::new("alice"),
        vo: VoName::new("atlas"),
        delegation: CredentialId::new("d1"),
        submitted_at: Timestamp(stories::START),
        parameters: JobParameters::default(),
        transfers: (1..=50).map(request).collect(),
    };
    job.transfers
        .iter()
        .for_each(|request| memory.put_request(request.clone()));
    let mut records = vec![penstock_model::Record::JobAccepted {
        job: Box::new(job),
        tokens: Vec::new(),
    }];
    let mut states: BTreeMap<TransferId, TransferState> = BTreeMap::new();
    for entry in story.entries {
        let state = match states.get(&entry.transfer) {
            None => TransferState::submitted(),
            Some(before) => {
                advance(before, entry.at, &entry.event).expect("the story's events fit")
            }
        };
        states.insert(entry.transfer, state.clone());
        records.push(penstock_model::Record::Happened {
            at: entry.at,
            monotonic_us: entry.monotonic_us,
            job: entry.job,
            transfer: entry.transfer,
            event: entry.event.clone(),
            state,
        });
        memory.push_entry(entry);
    }
    for sample in story.samples {
        records.push(penstock_model::Record::Sampled(sample.clone()));
        memory.push_sample(sample);
    }
    journal.append(&records).expect("appends");
}

#[test]
fn the_journal_and_a_record_in_memory_give_the_same_report() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("transfer.sqlite");
    let keys = SealingKeys::of_this_process().expect("OpenSSL works");
    let mut journal = SqliteJournal::open(&path, keys).expect("a journal");
    let memory = MemoryRecord::new();
    fifty_files(&mut journal, &memory);
    let reader = SqliteReader::open(&path, 2).expect("a reader");
    let reader: Arc<dyn JournalReader> = Arc::new(reader);
    let transfers: Vec<TransferId> = (1..=50).map(TransferId).collect();
    let from_disk = report_of(&reader, "job 1", &transfers).expect("a report");
    let from_memory = report_of(&memory, "job 1", &transfers).expect("a report");
    assert_eq!(from_disk.to_string(), from_memory.to_string());
    assert!(
        from_disk.to_string().contains("Bandwidth: 319.14 Mb/s"),
        "{from_disk}"
    );

    let mut follower = Follower::new();
    let now = Timestamp(stories::START + 1_300_000);
    follower.catch_up(&reader, now).expect("follows");
    let (recent, complete_since) = follower.transfers_since(Timestamp(now.0 - 60_000));
    assert_eq!(complete_since, None);
    assert_eq!(recent.len(), 10, "those that ended in the last minute");
    assert!(
        recent
            .iter()
            .all(|facts| facts.link == Some(stories::link("gla.example", "ed.example")))
    );
    assert_eq!(
        Record::transfer_request(&reader, TransferId(99)).expect("reads"),
        None
    );
}

#[test]
fn a_window_before_the_numbers_were_raised_is_read() {
    let memory = MemoryRecord::new();
    (1..=50).for_each(|id| memory.put_request(request(id)));
    let mut entries = stories::fifty_files().entries;
    let next = entries.last().expect("a story").sequence + 1;
    for entry in &mut entries {
        // A backup that is put back goes on with numbers far beyond those that it had.
        if entry.sequence + 1 == next {
            entry.sequence += 1_000_000_000;
        }
        memory.push_entry(entry.clone());
    }
    let (from, to) = (
        Timestamp(stories::START),
        Timestamp(stories::START + 1_400_000),
    );
    let window = ExplainWindow::new(from, to, None);
    let read = read_record(&memory, window, &PopulationChoice::Links).expect("readable");
    assert_eq!((read.populations.len(), read.complete_since), (1, None));
    let files = &read.signals.links[&stories::link("gla.example", "ed.example")].finished_files;
    assert_eq!(files.0.iter().flatten().sum::<f64>(), 50.0);
    let read =
        read_journal(&memory, TimeWindow { from, to }, &PopulationChoice::Links).expect("readable");
    assert_eq!((read.transfers.len(), read.is_shortened), (50, false));
}
