//! ASGC, Taipei, 2011: 350 clients write 100 MB each to one disk server, as recorded windows. The simulator has no disk arrays
//! and no paths to them.
//!
//! The talk prints what was done and how long the whole took when all was well (111 s). Its plots, and so the rates before, are
//! lost: those are chosen here.

use super::told::Line;
use penstock_decide::explain::signals::{
    Change, DataPathStage, DeviceSignals, LinkSignals, Series, ServerName, ServerSignals, Setting,
    Signals, StageSignals,
};
use penstock_model::{LinkId, StorageId, Timestamp};

/// 17 March 2011, 0:00 UTC: the day on which it came into production.
const BEGIN: Timestamp = Timestamp(1_300_320_000_000);
const BIN: u32 = 1;
const BINS: usize = 240;
/// From here on it is mended.
const MENDED: usize = 120;
const CLIENTS: f64 = 350.0;
const FILE: f64 = 100e6;
/// Bytes per second when all is well: 350 files of 100 MB in 111 s.
const WELL: f64 = CLIENTS * FILE / 111.0;
/// What is chosen: with the old firmware, and with the usual paths from second to second.
const WITH_OLD_FIRMWARE: f64 = 110e6;
const WITH_WRONG_PATHS: [f64; 6] = [40e6, 260e6, 90e6, 20e6, 230e6, 60e6];

fn link() -> LinkId {
    LinkId {
        source: StorageId::new("clients"),
        destination: StorageId::new("asgc"),
    }
}

/// What is measured in a second.
#[derive(Debug, Clone, Copy)]
struct Second {
    rate: f64,
    switches: f64,
    other_path: f64,
}

fn window(second: impl Fn(usize) -> Second, what: [&str; 3]) -> Signals {
    let column =
        |value: fn(&Second) -> f64| Series::known((0..BINS).map(|bin| value(&second(bin))));
    let stage = |busy: f64| StageSignals {
        busy: Series::constant(busy, BINS),
        input_wait: Series::constant(1.0, BINS),
        output_wait: Series::constant(2.0, BINS),
    };
    let mut signals = Signals::unknown(BEGIN, BIN, BINS);
    let mut of_link = LinkSignals {
        copied_bytes: column(|now| now.rate),
        active: Series::constant(CLIENTS, BINS),
        limit: Series::constant(CLIENTS, BINS),
        queued: Series::constant(CLIENTS, BINS),
        file_bytes: Series::constant(FILE, BINS),
        ..LinkSignals::default()
    };
    of_link.stages.insert(DataPathStage::Network, stage(20.0));
    let writing = StageSignals {
        busy: Series::constant(300.0, BINS),
        input_wait: Series::constant(5.0, BINS),
        output_wait: Series::constant(0.0, BINS),
    };
    of_link
        .stages
        .insert(DataPathStage::DestinationWrite, writing);
    signals.links.insert(link(), of_link);
    let array = DeviceSignals {
        utilisation: Series::constant(0.99, BINS),
        bytes: column(|now| now.rate),
        path_switches: column(|now| now.switches),
        other_path_bytes: column(|now| now.other_path),
    };
    let mut server = ServerSignals {
        storage: Some(link().destination),
        bytes_in: column(|now| now.rate),
        in_flight: Series::constant(CLIENTS, BINS),
        ..ServerSignals::default()
    };
    server.devices.insert("VTrak LD0".to_owned(), array);
    signals
        .servers
        .insert(ServerName("blade1".to_owned()), server);
    signals.changes.push(Change {
        at: signals.begin_of(MENDED),
        who: "an operator of ASGC".to_owned(),
        place: what[0].to_owned(),
        setting: Setting::Fact,
        old: Some(what[1].to_owned()),
        new: Some(what[2].to_owned()),
    });
    signals
}

/// Case I: the firmware of the controller.
pub(super) fn of_controller() -> Signals {
    let second = |bin| Second {
        rate: if bin < MENDED {
            WITH_OLD_FIRMWARE
        } else {
            WELL
        },
        switches: 0.0,
        other_path: 0.0,
    };
    window(second, ["blade1 controller firmware", "old", "updated"])
}

/// Case II: the paths to the array.
pub(super) fn of_paths() -> Signals {
    let second = |bin: usize| match bin < MENDED {
        true => Second {
            rate: WITH_WRONG_PATHS[bin % 6],
            switches: [3.0, 1.0, 4.0][bin % 3],
            other_path: WITH_WRONG_PATHS[bin % 6] * 0.5,
        },
        false => Second {
            rate: WELL,
            switches: 0.0,
            other_path: 0.0,
        },
    };
    window(
        second,
        [
            "blade1 multipath",
            "Linux default",
            "VTrak with ALUA and LUN affinity",
        ],
    )
}

/// Both cases, each as what held the rate down before it was mended.
pub(super) fn lines() -> Vec<Line> {
    let spans = |words, signals: &Signals| {
        Line::of_spans(words, signals, &[link()], 5..MENDED, MENDED + 2..BINS)
    };
    vec![
        spans(
            (
                "case I",
                "low disk throughput; better by updating the firmware of the controller",
            ),
            &of_controller(),
        ),
        spans(
            (
                "case II",
                "turbulent disk throughput; consistent by changing from Linux' multipathing to the vendor's",
            ),
            &of_paths(),
        ),
    ]
}

/// The rate of a window from second to second.
pub(super) fn rate(signals: &Signals) -> Vec<f64> {
    let bytes = &signals.links[&link()].copied_bytes;
    (0..BINS).filter_map(|bin| bytes.at(bin)).collect()
}
