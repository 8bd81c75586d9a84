//! What holds whatever happens, in any order, over any restart.

use super::*;

const VOS: [&str; 3] = ["a", "b", "c"];
const FAMILIES: [&str; 2] = ["raw", "esd"];

fn pick<T: Clone>(chance: &mut Chance, from: &[T]) -> Option<T> {
    let at = usize::try_from(chance.below(from.len() as u64)).expect("small");
    from.get(at).cloned()
}

fn random_end(chance: &mut Chance, target: &HsmTarget) -> HsmCommandEnd {
    let text = format!(
        "fault {}",
        ["x", "y"][usize::try_from(chance.below(2)).expect("small")]
    );
    match chance.below(12) {
        0 => exited(1, &text),
        1 => exited(30, &text),
        2 => exited(41, &text),
        3 => exited(77, "hsm is down"),
        4 => HsmCommandEnd::Stopped,
        5 => HsmCommandEnd::WithoutUri { text },
        6 => HsmCommandEnd::Signaled { signal: 9, text },
        7 => HsmCommandEnd::TimedOut { text },
        8 => HsmCommandEnd::NotStarted { text },
        _ => HsmCommandEnd::Succeeded {
            uris: match target {
                HsmTarget::Put(file) => vec![uri(file.0)],
                HsmTarget::Get(_) | HsmTarget::Remove(_) => vec![],
            },
        },
    }
}

fn random_input(chance: &mut Chance, lab: &mut Lab, next: &mut u64) -> HsmInput {
    let vo = pick(chance, &VOS).expect("some");
    match chance.below(14) {
        0 | 1 => {
            let family = pick(chance, &FAMILIES).expect("some");
            *next += 2;
            HsmInput::Put(vec![put(*next - 1, family, vo), put(*next, family, vo)])
        }
        2 | 3 => {
            *next += 1;
            let mut get = get(*next, chance.below(30), vo);
            get.asker.lease_ns = lab.now_ns + HOUR_NS;
            get.asker.priority = u8::try_from(chance.below(5)).expect("small");
            HsmInput::Get(vec![get])
        }
        4 => {
            *next += 1;
            let remove = HsmRemove {
                request: Some(RequestId(*next)),
                uri: uri(chance.below(10)),
                of: Some(FileId(chance.below(30))),
                size_bytes: GB,
                vo: VoName(vo.into()),
            };
            HsmInput::Remove(vec![remove])
        }
        5 => HsmInput::Cancel(vec![RequestId(chance.below(*next + 1))]),
        6 => HsmInput::Renew {
            requests: vec![RequestId(chance.below(*next + 1))],
            lease_ns: lab.now_ns + HOUR_NS,
        },
        7 => HsmInput::Tick,
        8 => {
            let commands: Vec<HsmCommandId> = lab.running.keys().copied().collect();
            let Some(command) = pick(chance, &commands) else {
                return HsmInput::Tick;
            };
            let bytes = chance.below(GB);
            HsmInput::Progressed { command, bytes }
        }
        9 => {
            let targets: Vec<HsmTarget> = lab.queue.live().entries.keys().cloned().collect();
            HsmInput::RetryNow(pick(chance, &targets).into_iter().collect())
        }
        _ => {
            let commands: Vec<HsmCommandId> = lab.running.keys().copied().collect();
            let Some(command) = pick(chance, &commands) else {
                return HsmInput::Tick;
            };
            let target = lab.running.remove(&command).expect("it runs");
            let end = random_end(chance, &target);
            HsmInput::Ended { command, end }
        }
    }
}

/// Each request has one owner, each running entry one command, and indexes hold what entries say.
fn check(lab: &Lab, policy: &HsmPolicy) {
    let live = lab.queue.live();
    for (request, target) in &live.requests {
        assert!(live.entries[target].askers.contains_key(request));
        assert!(!live.settled.contains_key(request));
    }
    let askers = live.entries.values().map(|entry| entry.askers.len());
    assert_eq!(askers.sum::<usize>(), live.requests.len());
    for (target, entry) in &live.entries {
        let is_run = |run: &&HsmRun| run.target == *target;
        let runs = live.runs.values().filter(is_run).count();
        let expected = usize::from(matches!(entry.stage, HsmStage::Running(_)));
        assert_eq!(runs, expected, "{target:?}: {entry:?}");
        assert!(entry.is_wanted() || runs == 1, "{target:?} is nobody's");
    }
    for (command, run) in &live.runs {
        assert_eq!(live.entries[&run.target].stage, HsmStage::Running(*command));
    }
    for kind in HsmKind::ALL {
        assert!(live.runs_of(kind).count() <= policy.slots(kind));
        assert!(live.runs_of(kind).filter(|run| run.is_canary).count() <= 1);
    }
    let gets = live
        .requests
        .values()
        .filter(|target| target.kind() == HsmKind::Get);
    assert_eq!(live.leases.len(), gets.count());
    // Another set that is made of the entries alone has the same indexes and counts.
    let again = HsmLiveSet::of(&lab.queue.records());
    assert_eq!(again, *live);
    check_counts(live);
}

/// What is counted is what is listed.
fn check_counts(live: &HsmLiveSet) {
    let counts = live.counts();
    for (kind, counts) in &counts.kinds {
        let queued = live.queued.get(kind).into_iter().flat_map(BTreeMap::values);
        let listed = queued.map(BTreeSet::len).sum::<usize>() as u64;
        assert_eq!(counts.queued.files, listed);
        assert_eq!(counts.running.files, live.runs_of(*kind).count() as u64);
        let delayed = live
            .delayed
            .iter()
            .filter(|(_, target)| target.kind() == *kind);
        assert_eq!(counts.delayed.files, delayed.count() as u64);
        let waiting = live.waiting.get(kind);
        assert_eq!(
            waiting.map_or(0, BTreeSet::len) as u64,
            counts.queued.files + counts.collecting.files
        );
        let entries = live
            .entries
            .iter()
            .filter(|(target, _)| target.kind() == *kind);
        let idle = entries.filter(|(_, entry)| !matches!(entry.stage, HsmStage::Running(_)));
        let oldest = idle.map(|(_, entry)| entry.since_ns).min();
        assert_eq!(counts.oldest_waiting_ns, oldest);
    }
    let collecting = live.families.values();
    let (files, bytes) = collecting.fold((0, 0), |(files, bytes), family| {
        (files + family.files.len() as u64, bytes + family.bytes)
    });
    assert_eq!(
        counts.kinds[&HsmKind::Put].collecting,
        TapeAmount { files, bytes }
    );
}

fn random_policy(chance: &mut Chance) -> HsmPolicy {
    let mut policy = policy();
    policy.batch = HsmBatch {
        bytes: 8 * GB,
        files: 5,
        age_ns: MINUTE_NS,
    };
    policy.same_fault_files = 2 + usize::try_from(chance.below(4)).expect("small");
    policy.limits.get_ns = HOUR_NS;
    policy.limits.put_ns = HOUR_NS;
    policy.limits.get_first_byte_ns = 20 * MINUTE_NS;
    policy.limits.get_no_bytes_ns = 10 * MINUTE_NS;
    policy.hsm_wide = vec![HsmWidePattern {
        kind: None,
        codes: vec![77],
        text: None,
    }];
    policy
}

/// After the storm all commands succeed, and nothing is left.
fn calm(lab: &mut Lab) {
    for _ in 0..5_000 {
        let live = lab.queue.live();
        if live.entries.is_empty() && live.settled.is_empty() && live.outage.is_none() {
            return;
        }
        match lab.running().first().cloned() {
            Some(target) => lab.succeed(&target),
            None => lab.pass(MINUTE_NS),
        };
    }
    panic!("it never comes to an end: {:#?}", lab.queue.live());
}

fn restart(lab: &mut Lab, policy: &HsmPolicy, told: &mut BTreeMap<u64, usize>) {
    // Half of the time from a snapshot.
    if lab.records.len().is_multiple_of(2) {
        lab.records = lab.queue.records();
    }
    let text = serde_json::to_string(&lab.records).expect("records can be written");
    let records: Vec<HsmRecord> = serde_json::from_str(&text).expect("and read");
    assert_eq!(records, lab.records);
    for request in lab.queue.live().settled.keys() {
        *told.entry(request.0).or_default() += 1;
    }
    lab.running.clear();
    lab.queue = HsmQueue::restore(policy.clone(), &lab.records);
    let effects = lab.queue.resume(lab.now_ns);
    lab.perform(effects);
}

#[test]
fn nothing_is_lost_over_restarts_and_each_request_is_told_once() {
    for seed in 0..60 {
        let mut chance = Chance::new(seed);
        let policy = random_policy(&mut chance);
        let mut lab = Lab::new(policy.clone());
        let (mut next, mut asked, mut retold) = (0, BTreeSet::new(), BTreeMap::new());
        for _ in 0..300 {
            lab.now_ns += SECOND_NS * chance.below(120).cast_signed();
            let input = random_input(&mut chance, &mut lab, &mut next);
            match &input {
                HsmInput::Put(puts) => asked.extend(puts.iter().map(|put| put.request.0)),
                HsmInput::Get(gets) => asked.extend(gets.iter().map(|get| get.request.0)),
                HsmInput::Remove(removes) => {
                    let requests = removes.iter().filter_map(|remove| remove.request);
                    asked.extend(requests.map(|request| request.0));
                }
                _ => {}
            }
            lab.give(input);
            // Commands that were given up as lost are not those that run.
            let runs = lab.queue.live().runs.clone();
            lab.running.retain(|command, _| runs.contains_key(command));
            check(&lab, &policy);
            if chance.below(25) == 0 {
                restart(&mut lab, &policy, &mut retold);
                check(&lab, &policy);
            }
        }
        calm(&mut lab);
        let mut told = BTreeMap::new();
        for (request, _) in lab.told() {
            *told.entry(request).or_insert(0) += 1;
        }
        assert_eq!(
            told.keys().copied().collect::<BTreeSet<_>>(),
            asked,
            "seed {seed}"
        );
        for (request, times) in told {
            let again = retold.get(&request).copied().unwrap_or(0);
            assert_eq!(times, 1 + again, "seed {seed}: request {request}");
        }
        let mut incidents = lab.queue.incidents().keys();
        let is_lost = |incident: &HsmIncident| matches!(incident, HsmIncident::CommandLost(_));
        assert!(incidents.all(is_lost), "{:?}", lab.queue.incidents());
    }
}

/// A journal that was cut anywhere, even between the records of one input, leaves no request without an owner.
#[test]
fn any_beginning_of_the_records_is_a_state_that_comes_to_its_end() {
    for seed in 0..10 {
        let mut chance = Chance::new(1_000 + seed);
        let policy = random_policy(&mut chance);
        let mut lab = Lab::new(policy.clone());
        let mut next = 0;
        for _ in 0..80 {
            lab.now_ns += SECOND_NS * chance.below(120).cast_signed();
            let input = random_input(&mut chance, &mut lab, &mut next);
            lab.give(input);
            let runs = lab.queue.live().runs.clone();
            lab.running.retain(|command, _| runs.contains_key(command));
        }
        for length in (0..lab.records.len()).step_by(7) {
            let records = lab.records[..length].to_vec();
            let mut cut = Lab::new(policy.clone());
            cut.now_ns = lab.now_ns;
            cut.queue = HsmQueue::restore(policy.clone(), &records);
            cut.records = records;
            let effects = cut.queue.resume(cut.now_ns);
            cut.perform(effects);
            check(&cut, &policy);
            calm(&mut cut);
        }
    }
}
