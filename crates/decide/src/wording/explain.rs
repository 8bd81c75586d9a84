//! Explanations of rate drops as text. Only here a cause, a measure or a remedy becomes prose.

use crate::explain::answer::RateChangeKind;
use crate::explain::answer::{Cause, Evidence, Explanation, Measure, NamedCause, Permille};
use crate::explain::dimension::Dimension;
use crate::explain::rate_change::RateChange;
use crate::explain::signals::{Change, DataPathStage, Setting};
use crate::explain::split::Factor;
use penstock_model::text::{one_line, plural};
use penstock_model::{Bytes, Rate};
use std::fmt::Write;

/// What a cause is, as a clause.
pub fn cause(cause: Cause) -> &'static str {
    match cause {
        Cause::ControlPlane => "the transfer service started few or no transfers on any link",
        Cause::NotFed => "the transfer service left slots free although files were queued",
        Cause::FewerSubmissions => "fewer files were submitted, and the queue was empty",
        Cause::ServiceShare => "other links took the slots of the transfer service",
        Cause::SlotLimit => "fewer concurrent transfers were allowed",
        Cause::RateLimit => "operators limited the rate",
        Cause::Drain => "operators had set a drain or a ban",
        Cause::SourceErrors => "attempts failed at the source",
        Cause::DestinationErrors => "attempts failed at the destination",
        Cause::StalledMover => "movers held slots without moving bytes",
        Cause::PoolFull => "some pools were full",
        Cause::OutOfSpace => "the destination had no space left",
        Cause::ServerSkew => "a few servers or pools carried all the load",
        Cause::Crash => "servers or pools were down",
        Cause::TapeWriteStopped => "nothing was written to tape although files were due",
        Cause::TapeBufferFull => "the disk buffer of the tape system was full",
        Cause::DatabaseLoad => "a database was overloaded",
        Cause::UndersizedHost => "a server was short of memory, processors or network",
        Cause::SmallFiles => {
            "files were smaller, so opening and closing them took a larger part of the time"
        }
        Cause::NamespaceThreads => "all threads of the namespace were busy",
        Cause::BatchDelay => "requests waited in the batch system",
        Cause::TooManyStreams => "more connections per file made the copies slower",
        Cause::TcpWindow => "TCP windows were too small for the distance",
        Cause::WindowUnopened => "TCP windows stayed small although the buffers may grow",
        Cause::IdleStreams => "some connections of each file had nothing to send",
        Cause::NetworkPath => "the network path lost packets, was congested or became longer",
        Cause::SiteNetwork => "the network of a site limited all its links",
        Cause::RandomWrites => "files were written out of order",
        Cause::Relay => "bytes passed through an additional hop inside the site",
        Cause::DiskController => "a disk array delivered less although it was fully busy",
        Cause::Multipath => "a disk array was reached over a wrong or changing path",
        Cause::StartBurst => "too many transfers started at the same time on a server",
        Cause::TapeDrives => "all tape drives were busy",
        Cause::ScatteredFiles => "files were spread over many tapes",
        Cause::AggregateRead => "tape drives read more bytes than were requested",
        Cause::CompetingLoad => "other links or clients put more load on the storage element",
        Cause::DescriptorLeak => "a server ran out of file descriptors",
        Cause::Accounting => "storage element and catalogue report different volumes",
    }
}

/// What to do about it.
pub fn remedy(cause: Cause) -> &'static str {
    match cause {
        Cause::ControlPlane => {
            "check the transfer service and its database; restart the service if it does not recover"
        }
        Cause::NotFed => {
            "check the scheduler's load and the reasons why files wait (`penstock explain JOB`)"
        }
        Cause::FewerSubmissions => "ask the submitters; nothing is wrong with the link",
        Cause::ServiceShare => {
            "raise the service's slots, or lower the limits of the links that took them"
        }
        Cause::SlotLimit => "raise the limit again",
        Cause::RateLimit => "raise the rate limit, or remove it",
        Cause::Drain => "lift the drain or the ban when the work is done",
        Cause::SourceErrors => "report these failures to the operators of the source",
        Cause::DestinationErrors => "report these failures to the operators of the destination",
        Cause::StalledMover => {
            "stop the stalled movers, and set a timeout for movers without progress"
        }
        Cause::PoolFull => "free or add space on these pools, then spread new files",
        Cause::OutOfSpace => "free space at the destination, or send elsewhere",
        Cause::ServerSkew => {
            "find out why the other servers receive no files: full, drained, disabled?"
        }
        Cause::Crash => "bring the servers or pools back",
        Cause::TapeWriteStopped => "resume writing to tape before the pools are full",
        Cause::TapeBufferFull => "free the tape system's buffer; pause writing to it until then",
        Cause::DatabaseLoad => "move backups and other load away from the database's disk",
        Cause::UndersizedHost => {
            "add the resource that the server lacks, or move services to other servers"
        }
        Cause::SmallFiles => {
            "allow more concurrent transfers while files are small, or bundle files"
        }
        Cause::NamespaceThreads => "limit the clients of the namespace, or give it more threads",
        Cause::BatchDelay => "shorten the batch system's scheduling interval",
        Cause::TooManyStreams => "use one connection per file again",
        Cause::TcpWindow => {
            "raise the TCP buffers at both ends to the product of bandwidth and round-trip time"
        }
        Cause::WindowUnopened => {
            "as a trial, set the default TCP buffer of the sending hosts to 1 MB, and compare"
        }
        Cause::IdleStreams => {
            "use fewer connections per file, and find out why the sender leaves some of them empty"
        }
        Cause::NetworkPath => "report this loss and round-trip time to the network's operators",
        Cause::SiteNetwork => {
            "report to the site's network operators that all links of the site are affected"
        }
        Cause::RandomWrites => "write files with one connection, in order",
        Cause::Relay => "let clients reach the disk servers directly",
        Cause::DiskController => "check the array: rebuild, battery, firmware",
        Cause::Multipath => "set the path policy that the array's vendor asks for",
        Cause::StartBurst => "limit how many transfers may start per minute on a server",
        Cause::TapeDrives => "ask for more drives, or spread the recalls over time",
        Cause::ScatteredFiles => {
            "ask for whole data sets at once, so that files of one tape are read together"
        }
        Cause::AggregateRead => {
            "let the tape system position within aggregates, or ask for whole aggregates"
        }
        Cause::CompetingLoad => "limit the links or clients whose load grew, or add servers",
        Cause::DescriptorLeak => {
            "raise the limit of open files; if ever more are open, restart the service and report the leak"
        }
        Cause::Accounting => {
            "compare dumps of both, and remove the files that only one of them lists"
        }
    }
}

/// A smaller part that is not explained is not looked into.
const UNEXPLAINED_SMALL: Permille = Permille(100);

enum Unit {
    Bytes,
    Count,
    Seconds,
    Percent,
    YesNo,
    Ratio,
}

fn measured(measure: Measure) -> (&'static str, Unit) {
    match measure {
        Measure::MovedBytes => ("bytes moved per interval", Unit::Bytes),
        Measure::Active => ("slots in use", Unit::Count),
        Measure::Limit => ("limit of concurrent transfers", Unit::Count),
        Measure::Queued => ("files queued", Unit::Count),
        Measure::ServiceSlots => ("slots in use on all links", Unit::Count),
        Measure::Submissions => ("files submitted per interval", Unit::Count),
        Measure::Dispatches => ("transfers started per interval", Unit::Count),
        Measure::DatabaseLatency => ("duration of a database query", Unit::Seconds),
        Measure::ApiProbe => ("the service answers", Unit::YesNo),
        Measure::FailedAttempts => ("failed attempts per interval", Unit::Count),
        Measure::FinishedFiles => ("files finished per interval", Unit::Count),
        Measure::FileSize => ("mean file size", Unit::Bytes),
        Measure::Overhead => ("time per file in which no bytes move", Unit::Seconds),
        Measure::StageTimes => ("time of each stage of the copies", Unit::Seconds),
        Measure::Streams => ("connections per file", Unit::Count),
        Measure::TcpTimes => ("time limited by a TCP window or buffer", Unit::Percent),
        Measure::TcpWindow => ("TCP window", Unit::Bytes),
        Measure::TcpBuffer => ("largest TCP buffer that the hosts allow", Unit::Bytes),
        Measure::TcpIdle => (
            "time in which a connection has nothing to send",
            Unit::Percent,
        ),
        Measure::Retransmissions => ("retransmitted segments", Unit::Percent),
        Measure::OutOfOrder => ("segments received out of order", Unit::Percent),
        Measure::RoundTrip => ("round-trip time", Unit::Seconds),
        Measure::ServerBytes => ("bytes of each server", Unit::Bytes),
        Measure::ServersUsed => ("servers or pools that share the bytes", Unit::Count),
        Measure::ServerUp => ("the server or pool answers", Unit::YesNo),
        Measure::PoolFree => ("free space of the pools", Unit::Bytes),
        Measure::MoverProgress => ("longest time without progress of a mover", Unit::Seconds),
        Measure::StalledMovers => ("movers without progress", Unit::Count),
        Measure::TapeWritten => ("bytes written to tape per interval", Unit::Bytes),
        Measure::TapeUnwritten => ("bytes not on tape yet", Unit::Bytes),
        Measure::TapeBuffer => ("tape buffer in use", Unit::Percent),
        Measure::IoPressure => ("time in which some task waits for disks", Unit::Percent),
        Measure::IoStall => ("time in which all tasks wait for disks", Unit::Percent),
        Measure::MemoryPressure => ("time in which all tasks wait for memory", Unit::Percent),
        Measure::Processors => ("processors in use", Unit::Percent),
        Measure::Interface => ("network interface in use", Unit::Percent),
        Measure::NamespaceLatency => ("duration of a namespace operation", Unit::Seconds),
        Measure::NamespaceThreads => ("busy namespace threads", Unit::Count),
        Measure::NamespaceQueue => ("namespace operations waiting", Unit::Count),
        Measure::BatchWait => ("wait in the batch system", Unit::Seconds),
        Measure::RandomWrites => ("writes out of order", Unit::Percent),
        Measure::RelayedBytes => ("bytes relayed inside the site per interval", Unit::Bytes),
        Measure::DeviceUse => ("disk array busy", Unit::Percent),
        Measure::DeviceBytes => ("bytes of the disk array per interval", Unit::Bytes),
        Measure::ReadWait => (
            "time in which copies wait until the disk has read",
            Unit::Percent,
        ),
        Measure::DevicePaths => ("changes of the path to the disk array", Unit::Count),
        Measure::OtherPathBytes => (
            "bytes over a path that the disk array does not prefer per interval",
            Unit::Bytes,
        ),
        Measure::ServerStarts => ("transfers started per interval", Unit::Count),
        Measure::ServerTransfers => ("transfers running", Unit::Count),
        Measure::TapeDrives => ("busy tape drives", Unit::Count),
        Measure::Recalls => ("files waiting for tape", Unit::Count),
        Measure::RecallAge => ("longest wait of a file for tape", Unit::Seconds),
        Measure::FilesPerMount => ("files per mount", Unit::Count),
        Measure::ReadAmplification => ("bytes read per byte requested", Unit::Ratio),
        Measure::Descriptors => ("open file descriptors", Unit::Count),
        Measure::DescriptorLimit => ("allowed file descriptors", Unit::Count),
        Measure::AccountingDifference => (
            "difference between the bytes that storage element and catalogue report",
            Unit::Bytes,
        ),
        Measure::OtherLinksBytes => ("bytes of other links per interval", Unit::Bytes),
        Measure::ClientsBytes => (
            "bytes of other clients of the pools per interval",
            Unit::Bytes,
        ),
        Measure::FileProfile => ("rates of other links", Unit::Bytes),
    }
}

/// The name of a measure.
pub fn measure(measure: Measure) -> &'static str {
    measured(measure).0
}

fn with_unit(unit: &Unit, value: f64) -> String {
    match unit {
        Unit::Bytes => Bytes(value.max(0.0) as u64).to_string(),
        Unit::Count if value >= 100.0 => format!("{value:.0}"),
        Unit::Count | Unit::Ratio => format!("{value:.1}"),
        Unit::Seconds if value < 1.0 => format!("{:.0} ms", value * 1000.0),
        Unit::Seconds => format!("{value:.1} s"),
        Unit::Percent if value < 0.001 => format!("{:.4} %", value * 100.0),
        Unit::Percent => format!("{:.0} %", value * 100.0),
        Unit::YesNo => (if value >= 0.5 { "yes" } else { "no" }).to_owned(),
    }
}

/// One piece of evidence of a drop.
pub fn evidence(evidence: &Evidence) -> String {
    evidence_beside(evidence, "before")
}

/// The same, with what the other value is: that before a drop, or that after a rise.
fn evidence_beside(evidence: &Evidence, when: &str) -> String {
    match evidence {
        Evidence::Value {
            measure,
            place,
            usual,
            value,
        } => {
            let (name, unit) = measured(*measure);
            let place = at_place(place);
            let usual = usual.map_or(String::new(), |usual| {
                format!(", {} {when}", with_unit(&unit, usual))
            });
            format!("{place}{name} {}{usual}", with_unit(&unit, *value))
        }
        Evidence::Change(change) => setting_change(change),
        Evidence::Maintenance(work) => format!(
            "{} at {} from {}Z to {}Z",
            one_line(&work.what),
            one_line(&work.place),
            work.from.to_fts(),
            work.to.to_fts()
        ),
        Evidence::Recurrence { period_seconds } => {
            format!("it recurs {}", each(*period_seconds))
        }
        Evidence::Failures {
            fingerprint,
            attempts,
        } => {
            format!(
                "{}: {}",
                plural(*attempts, "failed attempt"),
                one_line(fingerprint)
            )
        }
        Evidence::Bottleneck { stage } => {
            format!("slowest stage of the copies: {}", self::stage(*stage))
        }
        Evidence::Links { place, fallen, of } => format!(
            "{}{fallen} of {} fell together",
            at_place(place),
            plural(*of as u64, "link")
        ),
    }
}

fn at_place(place: &Option<String>) -> String {
    let name = |place: &String| format!("{}: ", one_line(place));
    place.as_ref().map_or(String::new(), name)
}

/// What was set, when, by whom and what it was before.
pub fn setting_change(change: &Change) -> String {
    let what = match change.setting {
        Setting::Limit => "limit",
        Setting::InboundLimit => "inbound limit",
        Setting::OutboundLimit => "outbound limit",
        Setting::RateLimit => "rate limit",
        Setting::Streams => "connections per file",
        Setting::Drain => "drain",
        Setting::Ban => "ban",
        Setting::Halt => "halt after failures",
        Setting::Fact => "host setting",
        Setting::Other => "setting",
    };
    let value = |value: &Option<String>| {
        value
            .as_ref()
            .map_or("none".to_owned(), |value| one_line(value).into_owned())
    };
    format!(
        "{}Z {} at {}: {} instead of {}, by {}",
        change.at.to_fts(),
        what,
        one_line(&change.place),
        value(&change.new),
        value(&change.old),
        one_line(&change.who)
    )
}

/// The name of a stage.
pub fn stage(stage: DataPathStage) -> &'static str {
    match stage {
        DataPathStage::SourceRead => "reading at the source",
        DataPathStage::Network => "the network",
        DataPathStage::Checksum => "computing checksums",
        DataPathStage::DestinationWrite => "writing at the destination",
        DataPathStage::Commit => "committing at the destination",
    }
}

/// The name of a factor of the rate.
pub fn factor(factor: Factor) -> &'static str {
    match factor {
        Factor::Limit => "limit of concurrent transfers",
        Factor::Fed => "share of the slots in use",
        Factor::StageRate => "rate of a file while its bytes move",
        Factor::MovingShare => "share of the time in which bytes move",
        Factor::Success => "share of the bytes that arrive",
    }
}

fn each(seconds: u64) -> String {
    match seconds {
        86_400 => "every day".to_owned(),
        604_800 => "every week".to_owned(),
        3_600 => "every hour".to_owned(),
        _ if seconds.is_multiple_of(3_600) => format!("every {} hours", seconds / 3_600),
        _ => format!("every {} minutes", seconds / 60),
    }
}

/// A part as whole percent.
pub(super) fn percent_of_whole(share: Permille) -> u16 {
    (share.0 + 5) / 10
}

fn rate(rate: f64) -> Rate {
    Rate(rate.max(0.0).round() as u64)
}

/// An explanation, as lines for a terminal.
pub fn explanation(told: &Explanation) -> String {
    let links = match told.links.as_slice() {
        [one] => one.to_string(),
        many => plural(many.len() as u64, "link"),
    };
    explanation_of(&links, told)
}

/// The same of a rate that has a name.
fn explanation_of(whose: &str, told: &Explanation) -> String {
    let mut text = String::new();
    let is_rise = told.kind == RateChangeKind::Rise;
    let (now, other, when) = match is_rise {
        true => (told.usual.rate, told.low.rate, "after it"),
        false => (told.low.rate, told.usual.rate, "before"),
    };
    let _ = writeln!(
        text,
        "{}: {} instead of {}",
        one_line(whose),
        rate(now),
        rate(other)
    );
    let _ = write!(
        text,
        "  rate from {}Z to {}Z",
        told.from.to_fts(),
        told.to.to_fts()
    );
    if let Some(period) = told.period_seconds {
        let _ = write!(text, "; it recurs {}", each(period));
    }
    text.push('\n');
    if told.kind == RateChangeKind::Lull {
        text.push_str("  this is not a drop: no files were queued\n");
    }
    if is_rise && !told.causes.is_empty() {
        text.push_str("  what had limited it before:\n");
    }
    for named in &told.causes {
        cause_lines(&mut text, named, when);
        if !is_rise {
            let _ = writeln!(text, "        remedy: {}", remedy(named.cause));
        }
    }
    if told.unexplained > Permille(0) || told.causes.is_empty() {
        let _ = write!(text, "  {:>3} % unexplained", percent_left(told));
        if !told.missing.is_empty() {
            let names: Vec<&str> = told
                .missing
                .iter()
                .map(|missing| measure(*missing))
                .collect();
            let _ = write!(text, "; not measured: {}", names.join(", "));
        }
        text.push('\n');
        if told.unexplained > UNEXPLAINED_SMALL {
            parts(&mut text, told);
        }
    }
    carriers(&mut text, told);
    for fact in &told.facts {
        let _ = writeln!(
            text,
            "  changed about when it began: {}",
            setting_change(fact)
        );
    }
    for (remark, known) in &told.remarks {
        let _ = writeln!(text, "  also seen: {} [{}]", cause(*remark), remark.code());
        known.iter().for_each(|known| {
            let _ = writeln!(text, "        {}", evidence(known));
        });
    }
    text
}

/// A drop, rise or lull with its id, whether it goes on, the gain of its first fix, and when it was seen before.
pub fn rate_change(told: &RateChange) -> String {
    let kind = match told.kind() {
        RateChangeKind::Drop => "drop",
        RateChangeKind::Rise => "rise",
        RateChangeKind::Lull => "lull",
    };
    let goes_on = match told.is_over {
        true => "",
        false => ", still going on at the end of the window",
    };
    let mut text = format!("{kind} {}{goes_on}\n", told.id);
    text += &explanation_of(&told.population.to_string(), &told.explanation);
    let first = told.explanation.causes.first();
    let gain = first.and_then(|named| told.explanation.gain(named));
    // A fix that brings less than half a percent is none.
    let is_fix = |gain: f64| told.kind() == RateChangeKind::Drop && gain >= 0.005;
    if let Some(gain) = gain.filter(|gain| is_fix(*gain)) {
        let percent = gain * 100.0;
        let _ = writeln!(text, "  expected gain of the first fix: {percent:+.0} %");
    }
    for earlier in &told.earlier {
        let (from, to) = (earlier.from.to_fts(), earlier.to.to_fts());
        let remedy = match &earlier.remedy {
            Some(change) => setting_change(change),
            None => "no change of a setting is known".to_owned(),
        };
        let _ = writeln!(
            text,
            "  seen before from {from}Z to {to}Z ({}); when it ended: {remedy}",
            earlier.id
        );
    }
    text
}

/// What is left of 100 when the causes are rounded.
fn percent_left(told: &Explanation) -> u16 {
    let named: u16 = told
        .causes
        .iter()
        .map(|named| percent_of_whole(named.share))
        .sum();
    100 - named.min(100)
}

fn cause_lines(text: &mut String, named: &NamedCause, when: &str) {
    let _ = write!(
        text,
        "  {:>3} % {} [{}]",
        percent_of_whole(named.share),
        cause(named.cause),
        named.cause.code()
    );
    if !named.followers.is_empty() {
        let names: Vec<&str> = named
            .followers
            .iter()
            .map(|follower| cause(*follower))
            .collect();
        let _ = write!(text, "; this also caused: {}", names.join("; "));
    }
    text.push('\n');
    for known in &named.evidence {
        let _ = writeln!(text, "        {}", evidence_beside(known, when));
    }
    let _ = writeln!(
        text,
        "        rate without it: {}",
        rate(named.rate_without)
    );
}

/// Which factors fell: the one thing that is known of what is unexplained.
fn parts(text: &mut String, told: &Explanation) {
    for (part, share) in crate::explain::split::falls(&told.parts) {
        if share < 0.1 {
            continue;
        }
        let names: Vec<&str> = part.factors.iter().map(|known| factor(*known)).collect();
        let _ = writeln!(
            text,
            "        fell: {} ({:.0} %)",
            names.join(" × "),
            share * 100.0
        );
    }
    if let Some(slowest) = told.stage {
        let _ = writeln!(
            text,
            "        slowest stage of the copies: {}",
            stage(slowest)
        );
    }
}

fn carriers(text: &mut String, told: &Explanation) {
    for carrier in &told.carriers {
        let name = match carrier.dimension {
            Dimension::Server => "servers",
            Dimension::Vo => "VOs",
            Dimension::Link => "links",
            Dimension::Protocol => "protocols",
        };
        let elements: Vec<String> = (carrier.elements.iter())
            .map(|(element, part)| format!("{} {:.0} %", one_line(element), part * 100.0))
            .collect();
        let _ = writeln!(text, "  mostly at the {name}: {}", elements.join(", "));
    }
}
