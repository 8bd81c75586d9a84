//! The queue, the runner and the HSM that is a directory, together.

use super::*;
use penstock_tape::chance::Chance;
use penstock_tape::hsm_queue::{
    HsmCommand, HsmCommandId, HsmEffect, HsmGet, HsmInput, HsmOutcome, HsmPolicy, HsmPut, HsmQueue,
    HsmRecord, HsmRemove, HsmWork,
};
use penstock_tape::request::{Asker, FamilyName, FileId, RequestId, VoName};
use tokio::sync::mpsc;

/// Removes have requests behind those of puts, gets behind these.
const REMOVES_FROM: u64 = 1_000_000;
const GETS_FROM: u64 = 2_000_000;

fn directory_hsm() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/hsm/directory-hsm")
}

/// A storage element in small: files, the queue with its records, and the runner.
struct Element {
    directory: TempDir,
    queue: HsmQueue,
    records: Vec<HsmRecord>,
    runner: HsmRunner,
    news: mpsc::Receiver<HsmInput>,
    begun: Instant,
    outcomes: BTreeMap<u64, HsmOutcome>,
    /// Where the file of each command is, for gets.
    arrivals: BTreeMap<u64, PathBuf>,
}

fn policy() -> HsmPolicy {
    let mut policy = HsmPolicy::usual();
    policy.puts_max = 8;
    policy.gets_max = 8;
    policy.batch.files = 100;
    policy.batch.age_ns = 200_000_000;
    policy.tries_max = 50;
    policy.retry_first_ns = 10_000_000;
    policy.retry_max_ns = 100_000_000;
    // Kills at random are faults of many files with one fingerprint.
    policy.same_fault_files = 1_000_000;
    policy
}

fn runner(directory: &Path) -> (HsmRunner, mpsc::Receiver<HsmInput>) {
    let mut config = HsmCommandConfig::usual(directory_hsm(), directory.to_owned());
    let root = directory.join("hsm").display().to_string();
    config.options = BTreeMap::from([("root".to_owned(), root)]);
    config.stop_grace = Duration::from_secs(2);
    let (sender, news) = mpsc::channel(64);
    (HsmRunner::new(config, sender), news)
}

impl Element {
    fn new(files: u64) -> Element {
        let directory = tempfile::tempdir().expect("a directory");
        for place in ["disk", "back", "hsm"] {
            std::fs::create_dir(directory.path().join(place)).expect("a directory");
        }
        for file in 0..files {
            std::fs::write(directory.path().join(format!("disk/{file}")), content(file))
                .expect("a file");
        }
        let (runner, news) = runner(directory.path());
        Element {
            queue: HsmQueue::restore(policy(), []),
            records: Vec::new(),
            runner,
            news,
            begun: Instant::now(),
            outcomes: BTreeMap::new(),
            arrivals: BTreeMap::new(),
            directory,
        }
    }

    fn now_ns(&self) -> i64 {
        i64::try_from(self.begun.elapsed().as_nanos()).expect("short")
    }

    fn call(&mut self, command: &HsmCommand) -> HsmCall {
        let size_bytes = command.work.size_bytes();
        let storage_info = HsmStorageInfo {
            size_bytes,
            ..info()
        };
        match &command.work {
            HsmWork::Put { file, .. } => HsmCall::Put {
                pnfsid: format!("{:036X}", file.0),
                path: self.directory.path().join(format!("disk/{}", file.0)),
                storage_info,
            },
            HsmWork::Get { file, uri, .. } => {
                let name = format!("back/{}.{}", file.0, command.command.0);
                let path = self.directory.path().join(name);
                self.arrivals.insert(file.0, path.clone());
                HsmCall::Get {
                    pnfsid: format!("{:036X}", file.0),
                    path,
                    size_bytes,
                    uri: uri.clone(),
                    storage_info,
                }
            }
            HsmWork::Remove { uri, .. } => HsmCall::Remove { uri: uri.clone() },
        }
    }

    fn perform(&mut self, effects: Vec<HsmEffect>) {
        for effect in effects {
            match effect {
                HsmEffect::Persist(records) => self.records.extend(records),
                HsmEffect::Start(command) => {
                    let call = self.call(&command);
                    self.runner.start(command.command, call);
                }
                HsmEffect::Stop(command) => self.runner.stop(command),
                HsmEffect::Tell { request, outcome } => {
                    self.outcomes.insert(request.0, outcome);
                }
                HsmEffect::Open { incident, fault } => panic!("{incident:?}: {fault:?}"),
                HsmEffect::Disk { .. } | HsmEffect::Close(_) | HsmEffect::WakeAt(_) => {}
            }
        }
    }

    fn give(&mut self, input: HsmInput) {
        let effects = self.queue.handle(self.now_ns(), input);
        self.perform(effects);
    }

    /// Goes on until so many requests have ended, and kills commands at random meanwhile.
    async fn until(&mut self, ended: usize, chance: &mut Chance, kills: &mut u64) {
        while self.outcomes.len() < ended {
            let next = timeout(Duration::from_millis(100), self.news.recv()).await;
            self.give(next.ok().flatten().unwrap_or(HsmInput::Tick));
            if chance.below(12) == 0 {
                *kills += u64::from(kill_one(chance, self.directory.path()));
            }
            if chance.below(400) == 0 {
                self.restart().await;
            }
        }
    }

    /// The service is killed, with all that runs, and begins again with its records.
    async fn restart(&mut self) {
        let (runner, news) = runner(self.directory.path());
        (self.runner, self.news) = (runner, news);
        self.records = match self.records.len().is_multiple_of(2) {
            true => self.queue.records(),
            false => std::mem::take(&mut self.records),
        };
        self.queue = HsmQueue::restore(policy(), &self.records);
        let effects = self.queue.resume(self.now_ns());
        self.perform(effects);
    }
}

fn content(file: u64) -> String {
    format!("file {file}\n").repeat(1 + usize::try_from(file % 50).expect("small"))
}

/// Kills a process of a command of this lab, if one is found.
fn kill_one(chance: &mut Chance, directory: &Path) -> bool {
    let mark = directory.join("hsm").display().to_string();
    let all = std::fs::read_dir("/proc").expect("processes");
    let mut own = Vec::new();
    for process in all.flatten() {
        let id = process
            .file_name()
            .to_str()
            .and_then(|id| id.parse::<i32>().ok());
        let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        if String::from_utf8_lossy(&line).contains(&mark) {
            own.extend(id.and_then(Pid::from_raw));
        }
    }
    let at = usize::try_from(chance.below(own.len() as u64)).expect("small");
    own.get(at)
        .is_some_and(|id| rustix::process::kill_process(*id, Signal::KILL).is_ok())
}

fn put(file: u64) -> HsmPut {
    HsmPut {
        request: RequestId(file),
        file: FileId(file),
        size_bytes: content(file).len() as u64,
        family: FamilyName(["raw", "esd"][usize::try_from(file % 2).expect("small")].into()),
        vo: VoName("atlas".into()),
        priority: 3,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_files_go_to_the_hsm_and_come_back_whatever_is_killed() {
    const FILES: u64 = 1_000;
    let mut chance = Chance::new(7);
    let mut kills = 0;
    let mut element = Element::new(FILES);
    element.give(HsmInput::Put((0..FILES).map(put).collect()));
    element.until(1_000, &mut chance, &mut kills).await;
    let mut uris = BTreeMap::new();
    for (request, outcome) in std::mem::take(&mut element.outcomes) {
        match outcome {
            HsmOutcome::Stored { uris: given } => uris.insert(request, given[0].clone()),
            other => panic!("{request}: {other:?}"),
        };
    }
    let vo = VoName("atlas".into());
    let gets = (0..FILES).map(|file| HsmGet {
        request: RequestId(GETS_FROM + file),
        file: FileId(file),
        size_bytes: content(file).len() as u64,
        uri: uris[&file].clone(),
        asker: Asker {
            vo: vo.clone(),
            priority: 3,
            deadline_ns: None,
            lease_ns: i64::MAX,
        },
    });
    element.give(HsmInput::Get(gets.collect()));
    element.until(1_000, &mut chance, &mut kills).await;
    for (request, outcome) in std::mem::take(&mut element.outcomes) {
        assert_eq!(outcome, HsmOutcome::Fetched, "{request}");
        let file = request - GETS_FROM;
        let back = std::fs::read_to_string(&element.arrivals[&file]).expect("it is back");
        assert_eq!(back, content(file));
    }
    let removes = (0..FILES).map(|file| HsmRemove {
        request: Some(RequestId(REMOVES_FROM + file)),
        uri: uris[&file].clone(),
        of: None,
        size_bytes: content(file).len() as u64,
        vo: vo.clone(),
    });
    element.give(HsmInput::Remove(removes.collect()));
    element.until(1_000, &mut chance, &mut kills).await;
    assert!(kills > 20, "{kills}");
    element.give(HsmInput::Tick);
    // The last commands have told their end, and are about to be gone.
    let last = element.runner.stop_all(&mut element.news).await;
    assert_eq!((last, element.runner.running()), (vec![], 0));
    assert!(element.queue.live().entries.is_empty());
    assert_eq!(left_in(&element.directory.path().join("hsm")), 0);
}

/// Files below a directory, without those that were begun and not ended.
fn left_in(directory: &Path) -> usize {
    let mut count = 0;
    for found in std::fs::read_dir(directory).expect("a directory").flatten() {
        let is_begun = found.file_name().to_string_lossy().starts_with('.');
        count += match found.path().is_dir() {
            true => left_in(&found.path()),
            false => usize::from(!is_begun),
        };
    }
    count
}

#[tokio::test]
async fn what_runs_is_stopped_with_the_service_and_its_end_is_not_lost() {
    let lab = Lab::new("trap 'echo hsm://a; exit 0' TERM; touch ready; sleep 100 & wait");
    let (sender, mut news) = mpsc::channel(1);
    let mut runner = HsmRunner::new(lab.config.clone(), sender);
    runner.start(HsmCommandId(1), lab.put());
    eventually(|| lab.path("ready").exists()).await;
    runner.start(
        HsmCommandId(2),
        HsmCall::Remove {
            uri: uri("hsm://b"),
        },
    );
    let last = runner.stop_all(&mut news).await;
    let command = HsmCommandId(1);
    let end = succeeded(&["hsm://a"]);
    assert!(last.contains(&HsmInput::Ended { command, end }), "{last:?}");
    assert_eq!((last.len(), runner.running()), (2, 0));
}

#[tokio::test]
async fn a_get_tells_how_large_its_file_is() {
    let lab = Lab::new("printf ab > file; until [ -e go ]; do sleep 0.05; done; printf c >> file");
    let (sender, mut news) = mpsc::channel(8);
    let mut runner = HsmRunner::new(lab.config.clone(), sender);
    let command = HsmCommandId(4);
    runner.start(command, lab.get(3));
    let first = timeout(PATIENCE, news.recv()).await.expect("in time");
    assert_eq!(first, Some(HsmInput::Progressed { command, bytes: 2 }));
    std::fs::write(lab.path("go"), "").expect("a file");
    let mut last = first;
    while !matches!(last, Some(HsmInput::Ended { .. })) {
        last = timeout(PATIENCE, news.recv()).await.expect("in time");
    }
    let end = succeeded(&[]);
    assert_eq!(last, Some(HsmInput::Ended { command, end }));
}
