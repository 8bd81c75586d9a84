use super::*;
use crate::amount::TapeAmount;
use crate::chance::Chance;
use crate::request::{Asker, FamilyName, FileId};
use std::collections::BTreeSet;

mod properties;

const GB: u64 = 1_000_000_000;
const MINUTE_NS: i64 = 60 * SECOND_NS;
const HOUR_NS: i64 = 60 * MINUTE_NS;

fn policy() -> HsmPolicy {
    let mut policy = HsmPolicy::usual();
    policy.batch.age_ns = 0;
    policy.puts_max = 3;
    policy.gets_max = 2;
    policy.removes_max = 1;
    policy.tries_max = 3;
    policy
}

fn uri(file: u64) -> HsmUri {
    HsmUri::parse(&format!("hsm://site/{file}")).expect("a URI")
}

fn put(request: u64, family: &str, vo: &str) -> HsmPut {
    HsmPut {
        request: RequestId(request),
        file: FileId(request),
        size_bytes: GB,
        family: FamilyName(family.into()),
        vo: VoName(vo.into()),
        priority: 3,
    }
}

fn get(request: u64, file: u64, vo: &str) -> HsmGet {
    HsmGet {
        request: RequestId(request),
        file: FileId(file),
        size_bytes: GB,
        uri: uri(file),
        asker: Asker {
            vo: VoName(vo.into()),
            priority: 3,
            deadline_ns: None,
            lease_ns: 1_000 * HOUR_NS,
        },
    }
}

fn exited(code: i32, text: &str) -> HsmCommandEnd {
    HsmCommandEnd::Exited {
        code,
        text: text.to_owned(),
    }
}

/// A queue with all records that it has given out, and what is ordered.
struct Lab {
    queue: HsmQueue,
    records: Vec<HsmRecord>,
    now_ns: i64,
    effects: Vec<HsmEffect>,
    /// Commands that were started and have not ended.
    running: BTreeMap<HsmCommandId, HsmTarget>,
}

impl Lab {
    fn new(policy: HsmPolicy) -> Lab {
        Lab {
            queue: HsmQueue::restore(policy, []),
            records: Vec::new(),
            now_ns: 0,
            effects: Vec::new(),
            running: BTreeMap::new(),
        }
    }

    /// Performs effects; a restart at this point must know the same.
    fn perform(&mut self, effects: Vec<HsmEffect>) -> Vec<HsmEffect> {
        let (mut acts, mut has_acted) = (Vec::new(), false);
        for effect in effects {
            match &effect {
                HsmEffect::Persist(records) => {
                    assert!(!has_acted, "records come before all others");
                    self.records.extend(records.clone());
                    continue;
                }
                HsmEffect::Start(command) => {
                    let target = command.work.target();
                    // One that was given up as lost is none that runs.
                    let runs = &self.queue.live().runs;
                    self.running.retain(|command, _| runs.contains_key(command));
                    assert!(!self.running.values().any(|other| *other == target));
                    self.running.insert(command.command, target);
                }
                _ => {}
            }
            has_acted = true;
            acts.push(effect);
        }
        let live = self.queue.live();
        assert_eq!(HsmLiveSet::of(&self.records), *live);
        for family in live.families.values() {
            let files = family.files.iter();
            let sizes =
                files.map(|(_, file)| live.entries[&HsmTarget::Put(*file)].work.size_bytes());
            assert_eq!(family.bytes, sizes.sum::<u64>());
        }
        self.effects.extend(acts.clone());
        acts
    }

    fn give(&mut self, input: HsmInput) -> Vec<HsmEffect> {
        let effects = self.queue.handle(self.now_ns, input);
        self.perform(effects)
    }

    fn pass(&mut self, ns: i64) -> Vec<HsmEffect> {
        self.now_ns += ns;
        self.give(HsmInput::Tick)
    }

    fn command_of(&self, target: &HsmTarget) -> HsmCommandId {
        let found = self.running.iter().find(|(_, other)| *other == target);
        *found.expect("it runs").0
    }

    fn end(&mut self, target: &HsmTarget, end: HsmCommandEnd) -> Vec<HsmEffect> {
        let command = self.command_of(target);
        self.running.remove(&command);
        self.give(HsmInput::Ended { command, end })
    }

    fn succeed(&mut self, target: &HsmTarget) -> Vec<HsmEffect> {
        let uris = match target {
            HsmTarget::Put(file) => vec![uri(file.0)],
            HsmTarget::Get(_) | HsmTarget::Remove(_) => vec![],
        };
        self.end(target, HsmCommandEnd::Succeeded { uris })
    }

    fn told(&self) -> Vec<(u64, HsmOutcome)> {
        let told = self.effects.iter().filter_map(|effect| match effect {
            HsmEffect::Tell { request, outcome } => Some((request.0, outcome.clone())),
            _ => None,
        });
        told.collect()
    }

    fn running(&self) -> Vec<HsmTarget> {
        self.running.values().cloned().collect()
    }

    fn opened(&self) -> Vec<HsmIncident> {
        let opened = self.effects.iter().filter_map(|effect| match effect {
            HsmEffect::Open { incident, .. } => Some(*incident),
            _ => None,
        });
        opened.collect()
    }

    fn closed(&self) -> Vec<HsmIncidentEnd> {
        let closed = self.effects.iter().filter_map(|effect| match effect {
            HsmEffect::Close(end) => Some(*end),
            _ => None,
        });
        closed.collect()
    }
}

fn put_of(file: u64) -> HsmTarget {
    HsmTarget::Put(FileId(file))
}

fn get_of(file: u64) -> HsmTarget {
    HsmTarget::Get(FileId(file))
}

fn stored(file: u64) -> (u64, HsmOutcome) {
    let uris = vec![uri(file)];
    (file, HsmOutcome::Stored { uris })
}

fn is_stop(effect: &HsmEffect) -> bool {
    matches!(effect, HsmEffect::Stop(_))
}

#[test]
fn puts_wait_for_bytes_files_or_age_of_their_family() {
    let mut policy = policy();
    policy.puts_max = 100;
    policy.batch = HsmBatch {
        bytes: 10 * GB,
        files: 5,
        age_ns: HOUR_NS,
    };
    let mut lab = Lab::new(policy);
    lab.give(HsmInput::Put(
        (1..5).map(|file| put(file, "raw", "a")).collect(),
    ));
    assert_eq!(lab.running(), []);
    let mut big = put(20, "esd", "a");
    big.size_bytes = 10 * GB;
    lab.give(HsmInput::Put(vec![
        put(5, "raw", "a"),
        big,
        put(30, "aod", "a"),
    ]));
    // Five files of one, ten GB of another; the third waits for its age.
    let mut files: Vec<HsmTarget> = (1..=5).map(put_of).collect();
    files.push(put_of(20));
    let mut running = lab.running();
    running.sort();
    assert_eq!(running, files);
    lab.pass(HOUR_NS);
    assert!(lab.running().contains(&put_of(30)));
}

#[test]
fn a_put_ends_with_its_uri_and_without_one_it_is_refused() {
    let mut lab = Lab::new(policy());
    lab.give(HsmInput::Put(vec![put(1, "raw", "a"), put(2, "raw", "a")]));
    lab.succeed(&put_of(1));
    assert_eq!(lab.told(), [stored(1)]);
    lab.end(&put_of(2), HsmCommandEnd::Succeeded { uris: vec![] });
    assert_eq!(lab.told().len(), 1);
    let entry = &lab.queue.live().entries[&put_of(2)];
    assert_eq!(
        (entry.tries, entry.fault.as_ref().map(|fault| fault.code)),
        (1, Some(Some(0)))
    );
    lab.pass(MINUTE_NS);
    let text = "done".to_owned();
    lab.end(&put_of(2), HsmCommandEnd::WithoutUri { text });
    lab.pass(2 * MINUTE_NS);
    lab.succeed(&put_of(2));
    assert_eq!(lab.told(), [stored(1), stored(2)]);
}

#[test]
fn a_put_is_never_given_up_and_a_get_after_its_tries() {
    let mut lab = Lab::new(policy());
    lab.give(HsmInput::Put(vec![put(1, "raw", "a")]));
    lab.give(HsmInput::Get(vec![get(2, 2, "a")]));
    for _ in 0..10 {
        for target in lab.running() {
            lab.end(&target, exited(1, "bad file"));
        }
        lab.pass(HOUR_NS);
    }
    let fault = HsmFault {
        source: HsmFaultSource::Program,
        code: Some(1),
        text: "bad file".to_owned(),
    };
    assert_eq!(lab.told(), [(2, HsmOutcome::Failed { tries: 3, fault })]);
    let fail = HsmIncident::FilesFail(HsmKind::Put);
    assert_eq!(lab.opened(), [fail]);
    lab.succeed(&put_of(1));
    assert_eq!(lab.told().last(), Some(&stored(1)));
    assert_eq!(lab.closed()[0].incident, fail);
}

#[test]
fn documented_exit_codes_are_obeyed() {
    let mut lab = Lab::new(policy());
    lab.give(HsmInput::Put(vec![put(1, "raw", "a")]));
    lab.give(HsmInput::Get(vec![get(2, 2, "a"), get(3, 3, "a")]));
    // 30 to 39: a get fails at once, a put waits for its longest pause or an operator.
    lab.end(&get_of(2), exited(33, "no such file"));
    assert!(matches!(
        lab.told()[..],
        [(2, HsmOutcome::Failed { tries: 1, .. })]
    ));
    lab.end(&put_of(1), exited(30, "not allowed"));
    assert_eq!(lab.opened(), [HsmIncident::FilesFail(HsmKind::Put)]);
    lab.pass(30 * MINUTE_NS);
    assert!(!lab.running().contains(&put_of(1)));
    lab.give(HsmInput::RetryNow(vec![put_of(1)]));
    lab.succeed(&put_of(1));
    // 41 to 43: whoever has the disk is told, and it is tried again.
    let acts = lab.end(&get_of(3), exited(41, "no space"));
    let target = get_of(3);
    let fault = DiskFault::NoSpace;
    assert!(acts.contains(&HsmEffect::Disk { target, fault }));
    lab.pass(MINUTE_NS);
    lab.succeed(&get_of(3));
    assert_eq!(lab.told().last(), Some(&(3, HsmOutcome::Fetched)));
}

/// The numbers of exit codes are the program's: trouble of this side has none, whatever a site's patterns say.
#[test]
fn trouble_of_this_side_is_no_exit_code_no_fault_of_the_hsm_and_no_try() {
    let mut policy = policy();
    let sign = |codes: &[i32], text: Option<&str>| HsmWidePattern {
        kind: None,
        codes: codes.to_vec(),
        text: text.map(str::to_owned),
    };
    policy.hsm_wide = vec![sign(&[1, 41, 42], None), sign(&[], Some("room"))];
    let mut lab = Lab::new(policy);
    lab.give(HsmInput::Get((0..20).map(|n| get(n, n, "a")).collect()));
    for _ in 0..10 {
        for target in lab.running() {
            let text = "no pool has room for it".to_owned();
            let acts = lab.end(&target, HsmCommandEnd::LocalTrouble { text });
            let is_disk = |act: &HsmEffect| matches!(act, HsmEffect::Disk { .. });
            assert!(!acts.iter().any(is_disk), "no command ran");
            let entry = &lab.queue.live().entries[&target];
            let fault = entry.fault.as_ref().expect("one");
            assert_eq!((entry.tries, fault.code), (0, None));
            assert_eq!(fault.source, HsmFaultSource::LocalTrouble);
        }
        lab.pass(2 * HOUR_NS);
    }
    assert_eq!((lab.told(), lab.opened()), (Vec::new(), Vec::new()));
}

#[test]
fn files_without_room_are_not_tried_one_after_the_other_and_smaller_ones_go_on() {
    let mut lab = Lab::new(policy());
    let large = (0..2_000).map(|n| HsmGet {
        size_bytes: GB + n,
        ..get(n, n, "a")
    });
    lab.give(HsmInput::Get(large.collect()));
    let no_room = || HsmCommandEnd::NoRoom {
        text: "no pool has room for it".to_owned(),
    };
    let mut tries = 0;
    let before = lab.records.len();
    while let Some(target) = lab.running().first().cloned() {
        lab.end(&target, no_room());
        tries += 1;
    }
    assert_eq!(tries, 2, "as many as had slots");
    assert!(lab.records.len() - before < 20);
    // For one that is smaller there may be room.
    let small = HsmGet {
        size_bytes: GB - 1,
        ..get(5_000, 5_000, "a")
    };
    lab.give(HsmInput::Get(vec![small]));
    lab.succeed(&get_of(5_000));
    assert!(
        lab.running().is_empty(),
        "that tells nothing of larger ones"
    );
    for minute in 0..300 {
        lab.pass(MINUTE_NS);
        assert_eq!(lab.running().len(), 1, "one at a time, minute {minute}");
        let target = lab.running()[0].clone();
        lab.end(&target, no_room());
    }
    assert_eq!(
        lab.opened(),
        [],
        "the queue of tapes is not what they wait for"
    );
    // Room was made: a pool takes the first, long before a tape gives anything of it.
    lab.pass(MINUTE_NS);
    let command = *lab.running.keys().next().expect("one");
    lab.give(HsmInput::RoomFound(command));
    assert_eq!(lab.running().len(), 2);
}

#[test]
fn a_canary_that_does_not_run_neither_ends_an_outage_nor_makes_it_longer() {
    let mut lab = Lab::new(policy());
    let removes = (0..3).map(|n| HsmRemove {
        request: Some(RequestId(n)),
        uri: uri(n),
        of: None,
        size_bytes: GB,
        vo: VoName("a".into()),
    });
    lab.give(HsmInput::Remove(removes.collect()));
    let text = "missing".to_owned();
    let first = lab.running()[0].clone();
    lab.end(&first, HsmCommandEnd::NotStarted { text });
    assert_eq!(lab.opened(), [HsmIncident::Outage]);
    let pause = |lab: &Lab| lab.queue.live().pause(HsmKind::Remove).cloned();
    let before = pause(&lab).expect("a pause");
    lab.pass(before.pause_ns);
    let text = "the namespace cannot be asked".to_owned();
    let canary = lab.running()[0].clone();
    lab.end(&canary, HsmCommandEnd::LocalTrouble { text });
    assert_eq!(
        pause(&lab).map(|pause| pause.pause_ns),
        Some(before.pause_ns)
    );
    assert!(lab.running().is_empty(), "not at once");
    lab.pass(before.pause_ns);
    let canary = lab.running()[0].clone();
    lab.end(&canary, HsmCommandEnd::NotNeeded);
    assert!(
        pause(&lab).is_some() && lab.closed().is_empty(),
        "nothing was removed"
    );
    assert!(!lab.queue.live().entries.contains_key(&canary));
    assert_eq!(
        lab.told().last().map(|told| &told.1),
        Some(&HsmOutcome::Canceled)
    );
}

#[test]
fn records_of_faults_without_a_source_are_those_of_programs() {
    let fault: HsmFault = serde_json::from_str(r#"{"code":5,"text":"busy"}"#).expect("of before");
    assert_eq!(fault.source, HsmFaultSource::Program);
}

#[test]
fn a_disk_without_room_fails_no_file_and_is_no_outage_of_the_hsm() {
    let mut lab = Lab::new(policy());
    lab.give(HsmInput::Get(
        (0..20).map(|file| get(file, file, "atlas")).collect(),
    ));
    for _ in 0..10 {
        for target in lab.running() {
            lab.end(&target, exited(41, "no pool has room for it"));
        }
        lab.pass(2 * HOUR_NS);
    }
    assert_eq!((lab.told(), lab.opened()), (Vec::new(), Vec::new()));
    let kinds = lab.queue.counts().kinds;
    let counts = &kinds[&HsmKind::Get];
    let open = counts.queued.files + counts.running.files + counts.delayed.files;
    assert_eq!(open, 20, "all wait on");
}

#[test]
fn askers_of_one_file_share_a_command_and_the_last_one_stops_it() {
    let mut lab = Lab::new(policy());
    lab.give(HsmInput::Get(vec![
        get(1, 7, "a"),
        get(2, 7, "b"),
        get(3, 8, "b"),
    ]));
    lab.give(HsmInput::Get(vec![get(4, 7, "c")]));
    assert_eq!(lab.running(), [get_of(7), get_of(8)]);
    let acts = lab.give(HsmInput::Cancel(vec![RequestId(1), RequestId(4)]));
    assert!(!acts.iter().any(is_stop));
    lab.give(HsmInput::Cancel(vec![RequestId(2)]));
    assert_eq!(
        lab.effects.iter().filter(|effect| is_stop(effect)).count(),
        1
    );
    // Somebody asks again before it has ended.
    lab.give(HsmInput::Get(vec![get(5, 7, "a")]));
    lab.end(&get_of(7), HsmCommandEnd::Stopped);
    assert_eq!(lab.queue.live().entries[&get_of(7)].tries, 0);
    lab.succeed(&get_of(7));
    let canceled = |request| (request, HsmOutcome::Canceled);
    let told = [
        canceled(1),
        canceled(4),
        canceled(2),
        (5, HsmOutcome::Fetched),
    ];
    assert_eq!(lab.told(), told);
}

#[test]
fn a_get_that_nobody_renews_is_given_up() {
    let mut lab = Lab::new(policy());
    let lease = |mut get: HsmGet, minutes| {
        get.asker.lease_ns = minutes * MINUTE_NS;
        get
    };
    let gets = [1, 2, 3].map(|request| lease(get(request, request, "a"), 10));
    lab.give(HsmInput::Get(gets.to_vec()));
    lab.give(HsmInput::Renew {
        requests: vec![RequestId(2)],
        lease_ns: HOUR_NS,
    });
    let acts = lab.pass(10 * MINUTE_NS);
    assert_eq!(acts.iter().filter(|effect| is_stop(effect)).count(), 1);
    let expired = |request| (request, HsmOutcome::Expired);
    assert_eq!(lab.told(), [expired(1), expired(3)]);
}

#[test]
fn a_canceled_put_that_has_stored_its_file_is_removed() {
    let mut lab = Lab::new(policy());
    lab.give(HsmInput::Put(vec![put(1, "raw", "a")]));
    lab.give(HsmInput::Cancel(vec![RequestId(1)]));
    lab.succeed(&put_of(1));
    assert_eq!(lab.told(), [(1, HsmOutcome::Canceled)]);
    assert_eq!(lab.running(), [HsmTarget::Remove(uri(1))]);
    lab.end(&HsmTarget::Remove(uri(1)), exited(1, "later"));
    lab.pass(MINUTE_NS);
    lab.succeed(&HsmTarget::Remove(uri(1)));
    assert!(lab.queue.live().entries.is_empty());
}

#[test]
fn vos_share_slots_and_within_one_the_urgent_goes_first() {
    let mut lab = Lab::new(policy());
    let many = (1..=10).map(|file| get(file, file, "big"));
    lab.give(HsmInput::Get(many.collect()));
    assert_eq!(lab.running(), [get_of(1), get_of(2)]);
    let mut urgent = get(21, 21, "small");
    urgent.asker.priority = 5;
    let mut due = get(22, 22, "small");
    due.asker.deadline_ns = Some(HOUR_NS);
    lab.give(HsmInput::Get(vec![get(20, 20, "small"), due, urgent]));
    let mut order = Vec::new();
    for _ in 0..6 {
        let first = lab.running()[0].clone();
        lab.succeed(&first);
        order.extend(lab.running().last().cloned());
    }
    assert_eq!(order, [21, 3, 22, 4, 20, 5].map(get_of));
}

#[test]
fn one_fault_over_many_files_is_one_incident_and_no_try_of_a_file() {
    let mut policy = policy();
    policy.puts_max = 10;
    let mut lab = Lab::new(policy);
    lab.give(HsmInput::Put(
        (1..=300).map(|file| put(file, "raw", "a")).collect(),
    ));
    for target in lab.running() {
        lab.now_ns += SECOND_NS;
        lab.end(&target, exited(5, &format!("{target:?}: disk full")));
    }
    // The files in front of the queue, which were started before it was known, have failed as well.
    for target in lab.running() {
        lab.end(&target, exited(5, "disk full"));
    }
    assert_eq!(lab.opened(), [HsmIncident::Outage]);
    assert!(lab.queue.live().pause(HsmKind::Put).is_some());
    assert_eq!(lab.running(), []);
    let entries = lab.queue.live().entries.values();
    assert!(entries.clone().all(|entry| entry.tries == 0));
    // Canaries after one minute, two, four, each with another file.
    let mut canaries = BTreeSet::new();
    for pause in [1, 2, 4] {
        lab.pass(pause * MINUTE_NS - 10 * SECOND_NS);
        assert_eq!(lab.running(), []);
        lab.pass(20 * SECOND_NS);
        let running = lab.running();
        assert_eq!(running.len(), 1);
        canaries.extend(running.clone());
        lab.end(&running[0], exited(6, "something else"));
    }
    assert_eq!(canaries.len(), 3);
    for _ in 0..10 {
        lab.pass(30 * MINUTE_NS);
        let running = lab.running();
        assert_eq!(running.len(), 1);
        lab.end(&running[0], exited(5, "disk full"));
    }
    lab.pass(30 * MINUTE_NS);
    let canary = lab.running()[0].clone();
    lab.succeed(&canary);
    assert!(lab.queue.live().pause(HsmKind::Put).is_none());
    assert_eq!(lab.running().len(), 10);
    let end = lab.closed()[0];
    let waited = TapeAmount {
        files: 300,
        bytes: 300 * GB,
    };
    assert_eq!(
        (end.incident, end.waited),
        (HsmIncident::Outage, Some(waited))
    );
    assert!(end.until_ns - end.since_ns > 5 * HOUR_NS);
    while let Some(target) = lab.running().first().cloned() {
        lab.succeed(&target);
    }
    assert_eq!((lab.told().len(), lab.opened().len()), (300, 1));
}

#[test]
fn a_configured_sign_stops_its_kind_of_commands_at_once() {
    let mut policy = policy();
    policy.hsm_wide = vec![HsmWidePattern {
        kind: Some(HsmKind::Put),
        codes: vec![],
        text: Some("hpss*disk full".to_owned()),
    }];
    let mut lab = Lab::new(policy);
    lab.give(HsmInput::Put(vec![put(1, "raw", "a"), put(2, "raw", "a")]));
    lab.give(HsmInput::Get(vec![get(3, 3, "a")]));
    lab.end(&put_of(1), exited(5, "HPSS class 3: disk full"));
    assert_eq!(lab.opened(), [HsmIncident::Outage]);
    // Gets go on; a program that is missing stops them as well, in the same incident.
    lab.give(HsmInput::Get(vec![get(4, 4, "a")]));
    let text = "no such file or directory".to_owned();
    lab.end(&get_of(4), HsmCommandEnd::NotStarted { text });
    assert_eq!(lab.opened(), [HsmIncident::Outage]);
    // What began before the outage proves nothing when it succeeds.
    lab.succeed(&put_of(2));
    lab.succeed(&get_of(3));
    assert!(lab.queue.live().pause(HsmKind::Put).is_some());
    lab.pass(MINUTE_NS);
    lab.succeed(&put_of(1));
    assert!(lab.queue.live().pause(HsmKind::Put).is_none() && lab.closed().is_empty());
    lab.succeed(&get_of(4));
    let waited = lab.closed()[0].waited.map(|waited| waited.files);
    assert_eq!((lab.queue.live().outage.as_ref(), waited), (None, Some(2)));
}

#[test]
fn an_outage_ends_when_nothing_is_left_to_be_tried() {
    let mut lab = Lab::new(policy());
    lab.give(HsmInput::Get(vec![get(1, 1, "a")]));
    let text = "gone".to_owned();
    lab.end(&get_of(1), HsmCommandEnd::NotStarted { text });
    lab.give(HsmInput::Cancel(vec![RequestId(1)]));
    assert_eq!(lab.closed(), []);
    lab.pass(MINUTE_NS);
    assert_eq!(
        (lab.closed().len(), lab.queue.live().outage.as_ref()),
        (1, None)
    );
}

#[test]
fn a_get_without_bytes_is_stopped_and_one_that_does_not_end_gives_its_slot() {
    let mut lab = Lab::new(policy());
    lab.give(HsmInput::Get(vec![
        get(1, 1, "a"),
        get(2, 2, "a"),
        get(3, 3, "a"),
    ]));
    let (first, second) = (lab.command_of(&get_of(1)), lab.command_of(&get_of(2)));
    lab.now_ns = HOUR_NS;
    lab.give(HsmInput::Progressed {
        command: first,
        bytes: 5,
    });
    lab.now_ns += 29 * MINUTE_NS;
    let again = HsmInput::Progressed {
        command: first,
        bytes: 5,
    };
    assert!(!lab.give(again).iter().any(is_stop));
    let acts = lab.pass(MINUTE_NS);
    assert!(acts.contains(&HsmEffect::Stop(first)) && !acts.contains(&HsmEffect::Stop(second)));
    assert!(!lab.running().contains(&get_of(3)));
    // It does not end.
    lab.running.remove(&first);
    lab.pass(policy().limits.stop_ns);
    assert_eq!(lab.opened(), [HsmIncident::CommandLost(first)]);
    assert!(lab.running().contains(&get_of(3)));
    assert_eq!(lab.queue.live().entries[&get_of(1)].tries, 1);
    assert_eq!(lab.queue.counts().lost, 1);
    let end = HsmCommandEnd::Stopped;
    lab.give(HsmInput::Ended {
        command: first,
        end,
    });
    assert_eq!((lab.closed().len(), lab.queue.counts().lost), (1, 0));
}

#[test]
fn an_operator_who_wants_all_tried_now_breaks_no_batch() {
    let mut policy = policy();
    policy.batch.age_ns = HOUR_NS;
    policy.batch.files = 2;
    let mut lab = Lab::new(policy);
    lab.give(HsmInput::Put(vec![put(1, "raw", "a"), put(2, "raw", "a")]));
    lab.end(&put_of(1), exited(1, "busy"));
    lab.give(HsmInput::Put(vec![put(3, "raw", "a")]));
    let all = [put_of(1), put_of(2), put_of(3)];
    lab.give(HsmInput::RetryNow(all.to_vec()));
    let running: BTreeSet<HsmTarget> = lab.running().into_iter().collect();
    let expected = BTreeSet::from([put_of(1), put_of(2)]);
    assert_eq!(running, expected, "3 waits for others");
    lab.pass(HOUR_NS);
    assert!(lab.running().contains(&put_of(3)));
}

#[test]
fn a_put_ends_at_its_time_limit() {
    let mut lab = Lab::new(policy());
    lab.give(HsmInput::Put(vec![put(1, "raw", "a")]));
    let command = lab.command_of(&put_of(1));
    let acts = lab.pass(4 * HOUR_NS);
    assert!(acts.contains(&HsmEffect::Stop(command)));
    lab.end(&put_of(1), HsmCommandEnd::Stopped);
    let entry = &lab.queue.live().entries[&put_of(1)];
    let text = entry.fault.as_ref().map(|fault| fault.text.as_str());
    assert_eq!(
        (entry.tries, text),
        (1, Some("stopped after its time limit: "))
    );
}

#[test]
fn whoever_waits_too_long_beside_a_free_slot_is_an_incident_and_tried() {
    let mut policy = policy();
    policy.batch.age_ns = 10 * HOUR_NS;
    let mut lab = Lab::new(policy);
    lab.give(HsmInput::Put(vec![put(1, "raw", "a")]));
    lab.pass(3 * HOUR_NS);
    assert_eq!((lab.opened(), lab.running()), (vec![], vec![]));
    lab.pass(HOUR_NS);
    assert_eq!(lab.opened(), [HsmIncident::OldestWaits(HsmKind::Put)]);
    // What has failed waits for its next try, and is no such incident.
    lab.end(&put_of(1), exited(1, "not now"));
    assert_eq!((lab.opened().len(), lab.closed().len()), (1, 1));
    lab.pass(MINUTE_NS);
    lab.succeed(&put_of(1));
    assert_eq!(lab.told(), [stored(1)]);
}

#[test]
fn what_was_told_is_told_again_only_if_its_end_was_not_recorded() {
    let mut lab = Lab::new(policy());
    lab.give(HsmInput::Put(vec![put(1, "raw", "a"), put(2, "raw", "a")]));
    lab.succeed(&put_of(1));
    // The service ends here: the URI is recorded, that it was told is not.
    let mut again = HsmQueue::restore(policy(), &lab.records);
    let effects = again.resume(lab.now_ns);
    let tells = |effects: &[HsmEffect]| {
        let is_tell = |effect: &&HsmEffect| matches!(effect, HsmEffect::Tell { .. });
        effects.iter().filter(is_tell).count()
    };
    assert_eq!(tells(&effects), 1);
    let starts = effects.iter().filter_map(|effect| match effect {
        HsmEffect::Start(command) => Some(command.work.target()),
        _ => None,
    });
    assert_eq!(starts.collect::<Vec<_>>(), [put_of(2)]);
    lab.give(HsmInput::Tick);
    let mut again = HsmQueue::restore(policy(), &lab.records);
    assert_eq!(tells(&again.resume(lab.now_ns)), 0);
}

/// Each step looks at what it changes, not at all that waits: otherwise this would take hours.
#[test]
fn a_hundred_thousand_files_are_put_while_as_many_wait() {
    const FILES: u64 = 100_000;
    let mut queue = HsmQueue::restore(policy(), []);
    let mut effects = queue.handle(
        0,
        HsmInput::Put((0..FILES).map(|file| put(file, "raw", "a")).collect()),
    );
    let (mut running, mut told) = (Vec::new(), 0);
    for now_ns in 1.. {
        for effect in effects {
            match effect {
                HsmEffect::Start(command) => running.push(command),
                HsmEffect::Tell { .. } => told += 1,
                _ => {}
            }
        }
        let Some(HsmCommand { command, work, .. }) = running.pop() else {
            break;
        };
        let HsmTarget::Put(file) = work.target() else {
            panic!("{work:?}");
        };
        let uris = vec![uri(file.0)];
        let end = HsmCommandEnd::Succeeded { uris };
        effects = queue.handle(now_ns, HsmInput::Ended { command, end });
    }
    assert_eq!(told, FILES);
}

#[test]
fn a_pause_that_began_while_the_clock_was_ahead_lasts_no_longer_than_others() {
    let mut lab = Lab::new(policy());
    let leap_ns = 700 * HOUR_NS;
    lab.give(HsmInput::Put(vec![put(1, "raw", "atlas")]));
    lab.now_ns += leap_ns;
    lab.end(
        &HsmTarget::Put(FileId(1)),
        HsmCommandEnd::NotStarted {
            text: "no such program".to_owned(),
        },
    );
    // A second file comes, and one fails for itself.
    lab.give(HsmInput::Get(vec![get(2, 7, "atlas")]));
    lab.end(&HsmTarget::Get(FileId(7)), exited(5, "busy"));
    let outage = lab.queue.live().outage.clone().expect("one");
    let delayed = lab.queue.live().delayed.first().cloned().expect("one");
    assert!(outage.pauses[&HsmKind::Put].probe_ns > leap_ns && delayed.0 > leap_ns);
    lab.now_ns -= leap_ns;
    lab.pass(SECOND_NS);
    let running: BTreeSet<HsmTarget> = lab.running.values().cloned().collect();
    let expected = [HsmTarget::Put(FileId(1)), HsmTarget::Get(FileId(7))];
    assert_eq!(running, BTreeSet::from(expected));
}

#[test]
fn a_batch_of_a_file_that_came_while_the_clock_was_ahead_goes() {
    let mut policy = policy();
    policy.batch.age_ns = HOUR_NS;
    let mut lab = Lab::new(policy);
    lab.now_ns = 365 * 24 * HOUR_NS;
    lab.give(HsmInput::Put(vec![put(1, "raw", "atlas")]));
    assert!(lab.running.is_empty());
    lab.now_ns = 0;
    lab.pass(SECOND_NS);
    lab.command_of(&HsmTarget::Put(FileId(1)));
}

#[test]
fn an_operator_who_wants_all_tried_now_ends_a_pause() {
    let mut lab = Lab::new(policy());
    lab.give(HsmInput::Put(vec![put(1, "raw", "atlas")]));
    let text = "no such program".to_owned();
    lab.end(
        &HsmTarget::Put(FileId(1)),
        HsmCommandEnd::NotStarted { text },
    );
    lab.pass(SECOND_NS);
    assert!(lab.running.is_empty());
    lab.give(HsmInput::RetryNow(vec![HsmTarget::Put(FileId(1))]));
    lab.succeed(&HsmTarget::Put(FileId(1)));
    assert_eq!(lab.queue.live().outage, None);
}

#[test]
fn no_file_is_put_while_a_copy_of_it_is_being_removed() {
    let mut lab = Lab::new(policy());
    let file = HsmTarget::Put(FileId(1));
    lab.give(HsmInput::Put(vec![put(1, "raw", "atlas")]));
    // It is stored, and by then nobody wants that any more.
    lab.give(HsmInput::Cancel(vec![RequestId(1)]));
    lab.succeed(&file);
    lab.command_of(&HsmTarget::Remove(uri(1)));
    // It is wanted again, and others are not held up by it.
    let again = [put(11, "raw", "atlas"), put(12, "raw", "atlas")];
    let again = again.map(|put| HsmPut {
        file: FileId(put.request.0 - 10),
        ..put
    });
    lab.give(HsmInput::Put(again.to_vec()));
    let running = |lab: &Lab, target: &HsmTarget| lab.running.values().any(|one| one == target);
    assert!(!running(&lab, &file) && running(&lab, &HsmTarget::Put(FileId(2))));
    lab.succeed(&HsmTarget::Remove(uri(1)));
    assert!(running(&lab, &file));
}
