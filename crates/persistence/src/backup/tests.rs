//! A journal and its delegations, backed up while they are written, and put back.

use super::*;
use crate::delegations::Delegations;
use crate::journal::{Journal, Record, SqliteJournal, UnfinishedJob};
use crate::sealing::SealingKeys;
use penstock_model::*;

struct Lab {
    directory: tempfile::TempDir,
    keys: SealingKeys,
}

impl Lab {
    fn new() -> Lab {
        Lab {
            directory: tempfile::tempdir().expect("a temporary directory"),
            keys: SealingKeys::of_this_process().expect("OpenSSL works"),
        }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn journal(&self) -> SqliteJournal {
        SqliteJournal::open(&self.at("transfer.sqlite"), self.keys.clone()).expect("opens")
    }

    fn of(&self) -> BackupOf {
        BackupOf {
            journal: self.at("transfer.sqlite"),
            delegations: self.at("delegations.sqlite"),
            files: vec![("penstock.toml".into(), b"[site]".to_vec())],
            positions: vec![("broker".into(), 3)],
            at: Timestamp(5000),
            bytes_per_second: u64::MAX,
            stopped: Arc::default(),
        }
    }

    fn to(&self, name: &str) -> RestoreTo {
        std::fs::create_dir_all(self.at(name)).expect("made");
        RestoreTo {
            journal: self.at(name).join("transfer.sqlite"),
            delegations: self.at(name).join("delegations.sqlite"),
            replaces: false,
            at: Timestamp(9000),
        }
    }
}

fn accepted(seed: u128, id: u64) -> Vec<Record> {
    let url = |host: &str| FileUrl::parse(&format!("https://{host}/f{id}")).expect("valid");
    let request = TransferRequest {
        id: TransferId(id),
        index: 0,
        source: url("a"),
        destination: url("b"),
        size: None,
        checksum: None,
        checksum_algorithm: ChecksumAlgorithm::Adler32,
        activity: Activity::new("default"),
        scitag: None,
        metadata: serde_json::Value::Null,
        source_credential: None,
        destination_credential: None,
        tape: None,
    };
    let job = Job {
        id: JobId(uuid::Uuid::from_u128(seed)),
        user: UserName::new("alice"),
        vo: VoName::new("cms"),
        delegation: CredentialId::new("d1"),
        submitted_at: Timestamp(1000),
        parameters: JobParameters::default(),
        transfers: vec![request],
    };
    let submitted = Record::Happened {
        at: Timestamp(1000),
        monotonic_us: 1,
        job: job.id,
        transfer: TransferId(id),
        event: TransferEvent::Submitted,
        state: TransferState::submitted(),
    };
    let job = Box::new(job);
    let tokens = Vec::new();
    vec![Record::JobAccepted { job, tokens }, submitted]
}

#[test]
fn what_was_open_comes_back_marked_and_no_number_is_given_twice() {
    let lab = Lab::new();
    let mut journal = lab.journal();
    drop(Delegations::open(&lab.at("delegations.sqlite"), lab.keys.clone()).expect("opens"));
    journal.append(&accepted(1, 1)).expect("stored");
    let facts = back_up(&lab.of(), &lab.at("backup")).expect("made");
    assert_eq!((facts.jobs, facts.jobs_open, facts.sequence), (1, 1, 1));
    journal.append(&accepted(2, 2)).expect("stored");
    drop(journal);
    assert_eq!(verify(&lab.at("backup")).expect("whole"), facts);
    let to = lab.to("anew");
    let restored = restore(&lab.at("backup"), &to).expect("restored");
    assert_eq!(restored.positions, [("broker".to_owned(), 3)]);
    assert_eq!(restored.files[0].0, "penstock.toml");
    let mut journal = SqliteJournal::open(&to.journal, lab.keys.clone()).expect("opens");
    Delegations::open(&to.delegations, lab.keys.clone()).expect("opens");
    let mut open = Vec::new();
    let mut take = |found: UnfinishedJob| open.push(found.job.parameters.restored_at);
    journal.load_unfinished(&mut take).expect("readable");
    assert_eq!(open, [Some(Timestamp(9000))]);
    assert!(journal.load_standing().expect("readable").transfer_id_max > 1_000_000_000);
    assert!(journal.append(&accepted(3, 2_000_000_000)).expect("stored") > 1_000_000_001);
    // As when the process is killed: what it wrote last is in its log.
    std::mem::forget(journal);
    let again = restore(&lab.at("backup"), &to).expect_err("something is there");
    assert!(again.to_string().contains("--replace"), "{again}");
    let replaces = RestoreTo {
        replaces: true,
        ..to
    };
    let restored = restore(&lab.at("backup"), &replaces).expect("restored");
    assert_eq!(restored.set_aside.len(), 2);
    let aside = SqliteJournal::open(&restored.set_aside[0], lab.keys.clone()).expect("opens");
    let mut jobs = 0;
    let mut aside: Box<dyn Journal> = Box::new(aside);
    aside.load_unfinished(&mut |_| jobs += 1).expect("readable");
    assert_eq!(jobs, 2, "nothing of what was set aside is lost");
}

#[test]
fn a_backup_is_of_one_instant_however_much_is_written_meanwhile() {
    let lab = Lab::new();
    let mut journal = lab.journal();
    for id in 1..=500 {
        journal
            .append(&accepted(u128::from(id), id))
            .expect("stored");
    }
    let slow = BackupOf {
        bytes_per_second: 2_000_000,
        ..lab.of()
    };
    let to = lab.at("backup");
    let copying = std::thread::spawn(move || back_up(&slow, &to).expect("made"));
    let mut id = 500;
    while !copying.is_finished() {
        id += 1;
        journal
            .append(&accepted(u128::from(id), id))
            .expect("stored");
    }
    let facts = copying.join().expect("made");
    assert!(id > 501, "nothing was written meanwhile");
    assert_eq!(
        (facts.jobs, facts.transfers),
        (facts.sequence, facts.sequence)
    );
    assert!((500..id).contains(&facts.sequence), "{facts:?} {id}");
    verify(&lab.at("backup")).expect("whole");
}

#[test]
fn what_is_damaged_or_no_backup_is_refused_and_changes_nothing() {
    let lab = Lab::new();
    let mut journal = lab.journal();
    for id in 1..=200 {
        journal
            .append(&accepted(u128::from(id), id))
            .expect("stored");
    }
    back_up(&lab.of(), &lab.at("backup")).expect("made");
    let whole = std::fs::read(lab.at("backup")).expect("readable");
    let mut damaged = whole.clone();
    let middle = damaged.len() / 2;
    damaged[middle..middle + 4096].fill(0xa5);
    std::fs::write(lab.at("damaged"), damaged).expect("written");
    std::fs::write(lab.at("cut"), &whole[..whole.len() / 2]).expect("written");
    std::fs::write(lab.at("text"), "no database at all").expect("written");
    let to = lab.to("anew");
    for name in ["damaged", "cut", "text", "transfer.sqlite", "absent"] {
        let why = restore(&lab.at(name), &to).expect_err(name).to_string();
        assert!(why.contains("no backup that can be used"), "{name}: {why}");
        assert!(!to.journal.exists(), "{name}");
    }
    restore(&lab.at("backup"), &to).expect("restored");
}

#[test]
fn a_backup_that_fails_leaves_the_one_before_and_no_rest() {
    let lab = Lab::new();
    drop(lab.journal());
    let to = lab.at("backup");
    back_up(&lab.of(), &to).expect("made");
    let nowhere = BackupOf {
        journal: lab.at("absent"),
        ..lab.of()
    };
    assert!(back_up(&nowhere, &to).is_err());
    verify(&to).expect("as it was");
    let stopped = BackupOf {
        stopped: Arc::new(true.into()),
        ..lab.of()
    };
    let why = back_up(&stopped, &to).expect_err("stopped").to_string();
    assert!(why.contains("asked to stop"), "{why}");
    verify(&to).expect("as it was");
    assert!(!lab.at("backup.part").exists());
}
