//! A host's report, and a comparison of hosts, as text for people.

use super::compare::{Comparison, RatedHost};
use super::facts::shown;
use super::report::HostReport;
use super::sample::HostSample;
use penstock_model::{Bytes, Rate};
use std::fmt::Write;

/// Disks that are listed, busiest first.
const DISKS_SHOWN: usize = 10;
/// Facts of a comparison that are listed, best first.
const SEPARATING_SHOWN: usize = 15;

/// A report as a table.
pub fn report(told: &HostReport) -> String {
    let (from, to) = (told.from.to_fts(), told.to.to_fts());
    let mut text = format!("{}, {from}Z to {to}Z\n", told.host);
    match &told.total {
        None => text += "nothing was sampled in this time\n",
        Some(total) => {
            let covered = total.covered().as_secs_f64();
            let window = told.to.since(told.from).as_secs_f64().max(1.0);
            line(&mut text, "sampled", &percent((covered / window).min(1.0)));
            add_host(&mut text, told, total);
            add_disks(&mut text, told, total);
            add_interfaces(&mut text, told, total);
        }
    }
    add_gaps(&mut text, told);
    add_facts(&mut text, told);
    text
}

fn line(text: &mut String, name: &str, value: &str) {
    writeln!(text, "{name:11} {value}").expect("a string takes everything");
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn rate(bytes_per_second: f64) -> String {
    Rate(bytes_per_second as u64).to_string()
}

fn add_host(text: &mut String, told: &HostReport, total: &HostSample) {
    if let Some(time) = total.processor {
        let share = |ticks: u64| percent(ticks as f64 / time.total().max(1) as f64);
        let number = told
            .processors
            .map_or("?".to_owned(), |number| number.to_string());
        let value = format!(
            "{number}: programs {}, kernel {}, waiting for disks {}, taken by the host of this machine {}",
            share(time.user),
            share(time.system),
            share(time.waiting),
            share(time.stolen)
        );
        line(text, "processors", &value);
    }
    if let Some(memory) = total.memory {
        let value = format!(
            "{}: at least {} available, at most {} not written yet, {} swapped",
            Bytes(memory.total_bytes),
            Bytes(memory.available_bytes),
            Bytes(memory.dirty_bytes.saturating_add(memory.writeback_bytes)),
            Bytes(memory.swapped_bytes)
        );
        line(text, "memory", &value);
    }
    let pressure = total.pressure;
    let named = [
        ("processors", pressure.cpu),
        ("memory", pressure.memory),
        ("disks", pressure.io),
    ];
    let stalls = named.map(|(name, pressure)| match pressure {
        Some(it) => format!(
            "{name} {} (all tasks {})",
            percent(total.share_of(it.some_us)),
            percent(total.share_of(it.full_us))
        ),
        None => format!("{name} not readable"),
    });
    line(text, "stalled for", &stalls.join(", "));
    if let Some(process) = total.process {
        let files = process
            .open_files
            .map_or("?".to_owned(), |files| files.to_string());
        let most = told
            .open_files_max
            .map_or("no limit".to_owned(), |most| most.to_string());
        let value = format!(
            "at most {files} files open (limit {most}), {}, {} threads; {} of a processor",
            Bytes(process.resident_bytes),
            process.threads,
            percent(total.share_of(process.processor_us))
        );
        line(text, "penstock", &value);
    }
    if let Some(tcp) = total.tcp {
        let again = tcp.retransmitted_segments as f64 / tcp.sent_segments.max(1) as f64;
        let value = format!(
            "{:.4} % of {} segments sent again, {} timeouts, {} connections found no room",
            again * 100.0,
            tcp.sent_segments,
            tcp.timeouts,
            tcp.refused_connections
        );
        line(text, "TCP", &value);
    }
}

fn add_disks(text: &mut String, told: &HostReport, total: &HostSample) {
    let busiest = told.busiest_disks();
    if busiest.is_empty() {
        return;
    }
    *text +=
        "\ndisk         busy     read          written       requests/s  latency    queue  holds\n";
    for (info, sample) in busiest.iter().take(DISKS_SHOWN) {
        let it = sample.activity;
        let requests = it.reads.saturating_add(it.writes);
        let latency = it.read_ms.saturating_add(it.write_ms) as f64 / requests.max(1) as f64;
        let queue = it.queued_ms as f64 * 1000.0 / total.covered_us.max(1) as f64;
        writeln!(
            text,
            "{:12} {:8} {:13} {:13} {:<11.1} {:10} {:<6.1} {}",
            info.name,
            percent(total.share_of(it.busy_ms.saturating_mul(1000))),
            rate(total.per_second(it.read_bytes)),
            rate(total.per_second(it.written_bytes)),
            total.per_second(requests),
            format!("{latency:.1} ms"),
            queue,
            info.holds.join(", ")
        )
        .expect("a string takes everything");
    }
    if let Some(further @ 1..) = busiest.len().checked_sub(DISKS_SHOWN) {
        writeln!(text, "and {further} that were less busy").expect("a string takes everything");
    }
}

fn add_interfaces(text: &mut String, told: &HostReport, total: &HostSample) {
    *text += "\ninterface    role     speed         in                       out                      lost\n";
    for sample in &total.interfaces {
        let Some(info) = told.interfaces.iter().find(|one| one.name == *sample.name) else {
            continue;
        };
        let speed = info.speed_bytes_per_second;
        let with_share = |bytes: u64| {
            let moved = total.per_second(bytes);
            match speed {
                Some(speed) => {
                    format!("{} ({})", rate(moved), percent(moved / speed.max(1) as f64))
                }
                None => rate(moved),
            }
        };
        let traffic = sample.traffic;
        writeln!(
            text,
            "{:12} {:8} {:13} {:24} {:24} {}",
            info.name,
            info.role.map_or("-", |role| role.name()),
            speed.map_or("-".to_owned(), |speed| format!("{} Mb/s", speed / 125_000)),
            with_share(traffic.received_bytes),
            with_share(traffic.sent_bytes),
            traffic.received_lost.saturating_add(traffic.sent_lost)
        )
        .expect("a string takes everything");
    }
}

fn add_gaps(text: &mut String, told: &HostReport) {
    if told.gaps.is_empty() || told.total.is_none() {
        return;
    }
    *text += "\nnot sampled:\n";
    for gap in &told.gaps {
        let (from, to) = (gap.from.to_fts(), gap.to.to_fts());
        writeln!(text, "  {from}Z to {to}Z").expect("a string takes everything");
    }
}

fn add_facts(text: &mut String, told: &HostReport) {
    *text += match told.changes.is_empty() {
        true => "\nno fact has changed in this time\n",
        false => "\nwhat has changed:\n",
    };
    for change in &told.changes {
        let (before, after) = (
            shown(change.before.as_deref()),
            shown(change.after.as_deref()),
        );
        let (at, name) = (change.at.to_fts(), &change.name);
        writeln!(text, "  {at}Z  {name}: {before} → {after}").expect("a string takes everything");
    }
    *text += "\nfacts:\n";
    let width = told
        .facts
        .keys()
        .map(|name| name.chars().count())
        .max()
        .unwrap_or(0);
    for (name, value) in &told.facts {
        let value = shown(value.as_deref());
        writeln!(text, "  {name:width$}  {value}").expect("a string takes everything");
    }
}

/// A comparison as text.
pub fn comparison(found: &Comparison) -> String {
    let mut text = String::new();
    let named = |hosts: &[RatedHost]| {
        let each = hosts
            .iter()
            .map(|host| format!("{} {}", host.name, rate(host.rate)));
        each.collect::<Vec<_>>().join(", ")
    };
    line(&mut text, "slow", &named(&found.slow));
    line(&mut text, "fast", &named(&found.fast));
    let hosts = found.slow.len() + found.fast.len();
    match found.separating.is_empty() {
        true => text += "\nno fact separates the slow hosts from the fast ones\n",
        false => text += "\nwhat separates them, best first:\n",
    }
    for one in found.separating.iter().take(SEPARATING_SHOWN) {
        let (slow, fast) = (one.slow.join(" | "), one.fast.join(" | "));
        writeln!(text, "  {}: slow {slow}; fast {fast}", one.fact)
            .expect("a string takes everything");
        if !one.exceptions.is_empty() {
            let names = one.exceptions.join(", ");
            writeln!(text, "    does not fit: {names}").expect("a string takes everything");
        }
    }
    if let Some(further @ 1..) = found.separating.len().checked_sub(SEPARATING_SHOWN) {
        writeln!(text, "  and {further} more; --json shows all")
            .expect("a string takes everything");
    }
    let (same, unrelated) = (found.same, found.unrelated);
    writeln!(
        text,
        "\n{same} facts are the same everywhere, {unrelated} differ without separating them"
    )
    .expect("a string takes everything");
    if hosts == 2 {
        text += "With two hosts whatever differs separates them: compare more hosts.\n";
    }
    text += "What separates is a candidate: change it on one host and measure again.\n";
    text
}

#[cfg(test)]
mod tests {
    use super::super::compare::Separation;
    use super::super::disks::DiskActivity;
    use super::super::facts::FactChange;
    use super::super::interfaces::{InterfaceRole, InterfaceTraffic};
    use super::super::pressure::Pressure;
    use super::super::processor::ProcessorTime;
    use super::super::report::{DiskInfo, InterfaceInfo};
    use super::super::rings::Gap;
    use super::super::sample::{DiskSample, InterfaceSample, Pressures, ProcessUse};
    use super::*;
    use penstock_model::Timestamp;

    fn total() -> HostSample {
        HostSample {
            from: Timestamp(0),
            covered_us: 1_800_000_000,
            processor: Some(ProcessorTime {
                user: 10,
                system: 20,
                idle: 60,
                waiting: 10,
                stolen: 0,
            }),
            pressure: Pressures {
                io: Some(Pressure {
                    some_us: 900_000_000,
                    full_us: 450_000_000,
                }),
                ..Pressures::default()
            },
            disks: vec![DiskSample {
                name: "sda".into(),
                activity: DiskActivity {
                    writes: 18_000,
                    written_bytes: 18_000_000_000,
                    write_ms: 90_000,
                    busy_ms: 1_620_000,
                    queued_ms: 3_600_000,
                    ..DiskActivity::default()
                },
            }],
            interfaces: vec![InterfaceSample {
                name: "eth0".into(),
                traffic: InterfaceTraffic {
                    received_bytes: 1_125_000_000_000,
                    received_lost: 3,
                    ..InterfaceTraffic::default()
                },
                received_bytes_per_second_max: 1_000_000_000,
                sent_bytes_per_second_max: 0,
            }],
            process: Some(ProcessUse {
                processor_us: 180_000_000,
                resident_bytes: 80_000_000,
                threads: 24,
                open_files: Some(120),
                open_files_max: Some(1024),
            }),
            ..HostSample::default()
        }
    }

    fn told(total: Option<HostSample>) -> HostReport {
        HostReport {
            host: "se.example.org".into(),
            from: Timestamp(0),
            to: Timestamp(3_600_000),
            resolution_seconds: 60,
            processors: Some(8),
            interfaces: vec![InterfaceInfo {
                name: "eth0".into(),
                role: Some(InterfaceRole::Wan),
                speed_bytes_per_second: Some(1_250_000_000),
                mtu_bytes: Some(9000),
                state: Some("up".into()),
            }],
            disks: vec![DiskInfo {
                name: "sda".into(),
                device: "8:0".into(),
                holds: vec!["pool disk1".into()],
                model: None,
            }],
            open_files_max: Some(1_048_576),
            facts: [
                ("kernel".to_owned(), Some("6.1".to_owned())),
                ("tuned".to_owned(), None),
            ]
            .into(),
            changes: vec![FactChange {
                at: Timestamp(60_000),
                name: "net.ipv4.tcp_wmem".into(),
                before: Some("4096 87380 1".into()),
                after: Some("8192 1048576 2".into()),
            }],
            gaps: vec![Gap {
                from: Timestamp(0),
                to: Timestamp(1_800_000),
            }],
            total,
            points: Vec::new(),
        }
    }

    #[test]
    fn a_report_is_read_at_three_in_the_morning() {
        let expected = "\
se.example.org, 1970-01-01T00:00:00Z to 1970-01-01T01:00:00Z
sampled     50.0 %
processors  8: programs 10.0 %, kernel 20.0 %, waiting for disks 10.0 %, taken by the host of this machine 0.0 %
stalled for processors not readable, memory not readable, disks 50.0 % (all tasks 25.0 %)
penstock    at most 120 files open (limit 1048576), 80.0 MB, 24 threads; 10.0 % of a processor

disk         busy     read          written       requests/s  latency    queue  holds
sda          90.0 %   0 B/s         10.0 MB/s     10.0        5.0 ms     2.0    pool disk1

interface    role     speed         in                       out                      lost
eth0         wan      10000 Mb/s    625.0 MB/s (50.0 %)      0 B/s (0.0 %)            3

not sampled:
  1970-01-01T00:00:00Z to 1970-01-01T00:30:00Z

what has changed:
  1970-01-01T00:01:00Z  net.ipv4.tcp_wmem: 4096 87380 1 → 8192 1048576 2

facts:
  kernel  6.1
  tuned   not readable
";
        assert_eq!(report(&told(Some(total()))), expected);
        assert!(report(&told(None)).contains("nothing was sampled"));
    }

    #[test]
    fn a_comparison_says_what_separates_and_that_it_is_no_proof() {
        let host = |name: &str, rate: f64| RatedHost {
            name: name.into(),
            rate,
        };
        let found = Comparison {
            slow: vec![host("oxford", 225_000.0)],
            fast: vec![host("liverpool", 20_000_000.0), host("qmul", 21_000_000.0)],
            ratio: 88.9,
            separating: vec![Separation {
                fact: "net.ipv4.tcp_wmem (default)".into(),
                slow: vec!["65536".into()],
                fast: vec!["1048576".into(), "87380".into()],
                exceptions: vec!["qmul".into()],
            }],
            same: 7,
            unrelated: 2,
        };
        let expected = "\
slow        oxford 225.0 kB/s
fast        liverpool 20.0 MB/s, qmul 21.0 MB/s

what separates them, best first:
  net.ipv4.tcp_wmem (default): slow 65536; fast 1048576 | 87380
    does not fit: qmul

7 facts are the same everywhere, 2 differ without separating them
What separates is a candidate: change it on one host and measure again.
";
        assert_eq!(comparison(&found), expected);
    }
}
