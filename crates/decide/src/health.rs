//! Whether a site should be left running, whether requests should be sent to it, and what a person should look at.
//!
//! What a restart cannot mend never asks for one, and what hits one client never takes the site from all the others.

use crate::clock::ClockDoubt;
use crate::credential_expiry::{CredentialValidity, ExpiringItem};
use penstock_model::TimeSpan;
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// An engine that has not been heard of for longer stands still.
pub const ENGINE_SILENCE_MAX: Duration = Duration::from_secs(30);

/// What is known of a process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HealthFacts {
    /// It was asked to stop and ends what it has begun.
    pub stopping: bool,
    /// The transfer service; `None` when it does not run here.
    pub transfer: Option<TransferHealth>,
    /// The storage element; `None` when it does not run here.
    pub storage: Option<StorageHealth>,
    /// The clock is not believed, and for how much longer if it goes steadily.
    pub clock_doubt: Option<(ClockDoubt, Duration)>,
    /// Records that the transfer service's journal has refused for good since the start.
    pub records_refused: u64,
    /// What ends soon or has ended, with what to do.
    pub endings: Vec<(ExpiringItem, CredentialValidity, String)>,
}

/// A journal or a namespace that has not answered for longer stands still: no disk that works is silent for so long.
pub const DATABASE_SILENCE_MAX: Duration = Duration::from_secs(10);

/// Whether a database takes what is written to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writability {
    /// It does, as far as is known.
    Writable,
    /// It refuses, and is tried again and again.
    Refused,
    /// It has not answered for so long.
    Silent(Duration),
}

/// What is known of a transfer service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransferHealth {
    /// Whether its journal takes records.
    pub journal: Writability,
    /// Why the journal could not be read when it was last looked at.
    pub journal_unread: Option<String>,
    /// Since when nothing was heard of its engine, which tells every second.
    pub engine_silent: Duration,
    /// Destinations at which something may lie that could not be removed, since its start.
    pub removals_given_over: u64,
}

/// What is known of a storage element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageHealth {
    /// Its namespace can be read.
    pub namespace_readable: bool,
    /// Whether its namespace takes changes.
    pub namespace: Writability,
    /// Pools that take new files, if they have room.
    pub pools_enabled: usize,
    /// Why pools are left out that should take new files, and what else of them a person should look at.
    pub alarms: Vec<String>,
    /// Threads that have ended and must not.
    pub dead_threads: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Health {
    /// It should be left running.
    pub live: bool,
    /// Requests should be sent to it.
    pub ready: bool,
    /// What speaks against it, and what a person should look at, the worst first.
    pub findings: Vec<HealthFinding>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct HealthFinding {
    /// How bad it is.
    pub severity: HealthSeverity,
    pub about: HealthSubject,
    /// What is wrong and what to do, in one line.
    pub text: String,
}

/// How bad a finding is. The worst comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HealthSeverity {
    /// Only a restart can help.
    Dead,
    /// Requests would fail.
    Unready,
    /// A person should look.
    Warning,
}

/// What a finding is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HealthSubject {
    /// The process as a whole.
    Process,
    /// The transfer service's engine.
    Engine,
    /// The transfer service's journal.
    Journal,
    /// The machine's clock.
    Clock,
    /// The storage element's namespace.
    Namespace,
    Pools,
    /// Destinations of transfers that have ended.
    Destinations,
    /// A certificate, revocation list or key.
    Expiry,
}

impl fmt::Display for HealthFinding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

/// Judges the facts.
/// Long because each fact has its severity and its sentence, and they are read as a table.
pub fn judge_health(facts: &HealthFacts) -> Health {
    let mut findings = Vec::new();
    let mut find = |severity, about, text: String| {
        findings.push(HealthFinding {
            severity,
            about,
            text,
        });
    };
    if facts.stopping {
        let text = "shutdown requested; running transfers are being finished".to_owned();
        find(HealthSeverity::Unready, HealthSubject::Process, text);
    }
    let transfer = facts.transfer.as_ref();
    if let Some((severity, about, text)) = transfer.and_then(judge_transfer) {
        find(severity, about, text);
    }
    if let Some(why) = transfer.and_then(|transfer| transfer.journal_unread.as_ref()) {
        let text = format!("the journal cannot be read, so requests are not answered: {why}");
        find(HealthSeverity::Unready, HealthSubject::Journal, text);
    }
    let left = transfer.map_or(0, |transfer| transfer.removals_given_over);
    if left > 0 {
        let text = format!(
            "what interrupted attempts left at {left} destinations could not be removed; the log names them: look there, \
             and remove what is not wanted"
        );
        find(HealthSeverity::Warning, HealthSubject::Destinations, text);
    }
    if facts.records_refused > 0 {
        let text = format!(
            "the journal has refused {} records for good since the start; the log says which and why",
            facts.records_refused
        );
        find(HealthSeverity::Warning, HealthSubject::Journal, text);
    }
    if let Some((doubt, left)) = facts.clock_doubt {
        let text = format!(
            "{doubt}: nothing expires and nothing is removed because its time is over, until it is set right or has gone \
             steadily for {} min more",
            left.as_secs().div_ceil(60)
        );
        find(HealthSeverity::Warning, HealthSubject::Clock, text);
    }
    if let Some(storage) = &facts.storage {
        for thread in &storage.dead_threads {
            let text = format!(
                "the thread '{thread}' has ended, so files cannot be written; restart the process"
            );
            find(HealthSeverity::Dead, HealthSubject::Process, text);
        }
        if !storage.namespace_readable {
            let text = "the namespace cannot be read; the log says why".to_owned();
            find(HealthSeverity::Unready, HealthSubject::Namespace, text);
        }
        // Whoever reads needs no pool that takes files, nor a namespace that does.
        let consequence = "no file is stored, renamed or removed";
        let namespace = match storage.namespace {
            Writability::Writable => None,
            Writability::Refused => Some(format!(
                "the namespace cannot be written, so {consequence}; look at its disk: most often it is full"
            )),
            Writability::Silent(lasts) => Some(format!(
                "the namespace's disk has not answered for {}, so {consequence}; look at that disk",
                TimeSpan(lasts)
            )),
        };
        if let Some(text) = namespace {
            find(HealthSeverity::Warning, HealthSubject::Namespace, text);
        }
        if storage.pools_enabled == 0 {
            let text = "no pool takes new files: all are drained, disabled or failing".to_owned();
            find(HealthSeverity::Warning, HealthSubject::Pools, text);
        }
        for alarm in &storage.alarms {
            find(HealthSeverity::Warning, HealthSubject::Pools, alarm.clone());
        }
    }
    for (what, standing, text) in &facts.endings {
        let severity = match (what, standing) {
            (_, CredentialValidity::Good) => continue,
            // Nobody's client would shake hands.
            (ExpiringItem::HostCertificate, CredentialValidity::Over) => HealthSeverity::Unready,
            _ => HealthSeverity::Warning,
        };
        find(severity, HealthSubject::Expiry, text.clone());
    }
    findings.sort();
    let worst = findings.first().map(|finding| finding.severity);
    Health {
        live: worst != Some(HealthSeverity::Dead),
        ready: worst.is_none_or(|worst| worst == HealthSeverity::Warning),
        findings,
    }
}

fn judge_transfer(transfer: &TransferHealth) -> Option<(HealthSeverity, HealthSubject, String)> {
    // The engine waits for its journal, so its silence says nothing then; and no restart makes room on a disk.
    let journal = match transfer.journal {
        Writability::Writable => None,
        Writability::Refused => Some(
            "the journal cannot be written, so no job is accepted and nothing starts; most often its disk is full"
                .to_owned(),
        ),
        Writability::Silent(lasts) => Some(format!(
            "the journal has not answered for {}, so no job is accepted and nothing starts; look at its disk or database",
            TimeSpan(lasts)
        )),
    };
    if let Some(text) = journal {
        return Some((HealthSeverity::Unready, HealthSubject::Journal, text));
    }
    (transfer.engine_silent > ENGINE_SILENCE_MAX).then(|| {
        let text = format!(
            "the engine has not responded for {}; restart the process, it continues where it was",
            TimeSpan(transfer.engine_silent)
        );
        (HealthSeverity::Dead, HealthSubject::Engine, text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn well() -> HealthFacts {
        HealthFacts {
            stopping: false,
            transfer: Some(TransferHealth {
                journal: Writability::Writable,
                journal_unread: None,
                engine_silent: Duration::from_secs(1),
                removals_given_over: 0,
            }),
            storage: Some(StorageHealth {
                namespace_readable: true,
                namespace: Writability::Writable,
                pools_enabled: 1,
                alarms: Vec::new(),
                dead_threads: Vec::new(),
            }),
            endings: Vec::new(),
            clock_doubt: None,
            records_refused: 0,
        }
    }

    /// What is live and ready, and the subject of the first finding.
    fn check(change: impl FnOnce(&mut HealthFacts), expected: (bool, bool, Option<HealthSubject>)) {
        let mut facts = well();
        change(&mut facts);
        let health = judge_health(&facts);
        let first = health.findings.first().map(|finding| finding.about);
        assert_eq!((health.live, health.ready, first), expected, "{facts:?}");
    }

    fn transfer(journal_writable: bool, seconds: u64) -> Option<TransferHealth> {
        let journal = match journal_writable {
            true => Writability::Writable,
            false => Writability::Refused,
        };
        Some(TransferHealth {
            journal,
            journal_unread: None,
            engine_silent: Duration::from_secs(seconds),
            removals_given_over: 0,
        })
    }

    #[test]
    fn what_was_left_at_destinations_is_for_a_person_to_look_at() {
        let left = |facts: &mut HealthFacts| {
            if let Some(transfer) = &mut facts.transfer {
                transfer.removals_given_over = 2;
            }
        };
        check(left, (true, true, Some(HealthSubject::Destinations)));
    }

    #[test]
    fn a_doubtful_clock_and_refused_records_are_told_and_keep_nobody_away() {
        let doubt = ClockDoubt::LeaptForward(Duration::from_secs(400 * 86_400));
        check(
            |facts| facts.clock_doubt = Some((doubt, Duration::from_secs(3540))),
            (true, true, Some(HealthSubject::Clock)),
        );
        check(
            |facts| facts.records_refused = 2,
            (true, true, Some(HealthSubject::Journal)),
        );
    }

    #[test]
    fn only_what_a_restart_may_mend_asks_for_one() {
        check(|_| (), (true, true, None));
        let engine = Some(HealthSubject::Engine);
        check(
            |facts| facts.transfer = transfer(true, 31),
            (false, false, engine),
        );
        check(
            |facts| facts.transfer = transfer(true, 30),
            (true, true, None),
        );
        // A full disk holds up the engine as well.
        let journal = Some(HealthSubject::Journal);
        check(
            |facts| facts.transfer = transfer(false, 3000),
            (true, false, journal),
        );
        let unread = |facts: &mut HealthFacts| {
            if let Some(transfer) = &mut facts.transfer {
                transfer.journal_unread = Some("disk I/O error".to_owned());
            }
        };
        check(unread, (true, false, journal));
        check(
            |facts| facts.stopping = true,
            (true, false, Some(HealthSubject::Process)),
        );
    }

    #[test]
    fn a_namespace_that_takes_nothing_is_told_and_keeps_no_reader_away() {
        let namespace = Some(HealthSubject::Namespace);
        let silent = Writability::Silent(Duration::from_secs(12));
        for standing in [Writability::Refused, silent] {
            let change = |facts: &mut HealthFacts| {
                if let Some(storage) = &mut facts.storage {
                    storage.namespace = standing;
                }
            };
            check(change, (true, true, namespace));
        }
    }

    #[test]
    fn an_ended_host_certificate_takes_the_site_out_and_an_ended_revocation_list_does_not() {
        let ended = |what, standing| {
            move |facts: &mut HealthFacts| facts.endings = vec![(what, standing, "x".to_owned())]
        };
        let expiry = Some(HealthSubject::Expiry);
        check(
            ended(ExpiringItem::HostCertificate, CredentialValidity::Over),
            (true, false, expiry),
        );
        check(
            ended(ExpiringItem::HostCertificate, CredentialValidity::Soon),
            (true, true, expiry),
        );
        check(
            ended(ExpiringItem::RevocationList, CredentialValidity::Over),
            (true, true, expiry),
        );
        check(
            ended(ExpiringItem::Authority, CredentialValidity::Good),
            (true, true, None),
        );
    }

    #[test]
    fn a_full_storage_element_still_serves_readers() {
        let storage = |namespace_readable, pools_enabled, alarms: &[&str]| StorageHealth {
            namespace_readable,
            namespace: Writability::Writable,
            pools_enabled,
            alarms: alarms.iter().map(ToString::to_string).collect(),
            dead_threads: Vec::new(),
        };
        let pools = Some(HealthSubject::Pools);
        check(
            |facts| facts.storage = Some(storage(true, 1, &["pool a is full"])),
            (true, true, pools),
        );
        check(
            |facts| facts.storage = Some(storage(true, 0, &[])),
            (true, true, pools),
        );
        // The worst comes first.
        check(
            |facts| facts.storage = Some(storage(false, 0, &[])),
            (true, false, Some(HealthSubject::Namespace)),
        );
        check(|facts| facts.storage = None, (true, true, None));
    }

    #[test]
    fn a_thread_that_has_died_asks_for_a_restart() {
        check(
            |facts| {
                let storage = facts.storage.as_mut().expect("there");
                storage.dead_threads = vec!["namespace-writer".to_owned()];
            },
            (false, false, Some(HealthSubject::Process)),
        );
    }
}
