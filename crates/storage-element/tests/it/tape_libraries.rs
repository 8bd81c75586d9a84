//! Files that go to the tapes of libraries, which keep their bytes in a directory and whose time runs fast.

use crate::nearline::{EVICTS_ALL, nearline};
use crate::site::Site;
use penstock_model::Bytes;
use penstock_storage_element::{LibrariesConfig, LibraryConfig, StorageConfig, TapeSystemConfig};
use penstock_tape::drive_fault::FaultRates;
use penstock_tape::drive_kind::DriveKind;
use penstock_tape::library::LibraryModel;
use penstock_tape::locate::SECOND_NS;
use penstock_tape::request::{DriveName, LibraryName, TapeName};
use penstock_tape::request_engine::TapePolicy;
use penstock_tape_library::{LibraryDefinition, TapeDefinition};
use std::collections::BTreeMap;
use std::path::Path;

const KIND: &str = "LTO-8";
/// A mount takes half a minute, and so 6 ms.
const FACTOR: u32 = 5_000;

pub fn library(name: &str, directory: &Path, drives: usize, tapes: usize) -> LibraryConfig {
    let kind = DriveKind::named(KIND).expect("a kind");
    let definition = LibraryDefinition {
        name: LibraryName(name.into()),
        model: LibraryModel {
            slots: 100,
            arms: 2,
            move_ns: 10 * SECOND_NS,
            moves_per_hour_max: 1_000,
        },
        kinds: BTreeMap::from([(KIND.to_owned(), kind)]),
        drives: (1..=drives)
            .map(|one| (DriveName(format!("{name}-d{one}").into()), KIND.to_owned()))
            .collect(),
        tapes: (1..=tapes)
            .map(|one| {
                let tape = TapeDefinition {
                    kind: KIND.to_owned(),
                    capacity_bytes: 100_000_000,
                };
                (TapeName(format!("{name}-{one:03}").into()), tape)
            })
            .collect(),
        faults: FaultRates::default(),
        seed: 1,
    };
    LibraryConfig {
        directory: directory.join(name),
        definition,
    }
}

pub fn with_library(config: &mut StorageConfig, keep_free_permille: u16) {
    let home = config.namespace.ancestors().nth(2).expect("a site");
    let mut policy = TapePolicy::usual();
    policy.mount.age_ns = 0;
    let libraries = LibrariesConfig {
        libraries: vec![library("silo", &home.join("tape"), 2, 4)],
        policy,
        time_factor: FACTOR,
    };
    let system = TapeSystemConfig::Libraries(libraries);
    config.nearline = Some(nearline(system, keep_free_permille));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_goes_to_a_tape_leaves_the_disk_and_comes_back() {
    let site = Site::with(|config| with_library(config, EVICTS_ALL)).await;
    site.put("/tape/f", b"once on tape").await;
    site.put("/disk", b"never on tape").await;
    site.becomes("/tape/f", "TAPE").await;
    assert_eq!(site.locality("/disk").await, "DISK");
    let refused = site.send("GET", "/tape/f", &[], b"").await;
    assert_eq!(refused.status, 409, "{}", refused.text());
    let (first, second) = (site.stage("/tape/f").await, site.stage("/tape/f").await);
    for id in [&first, &second] {
        assert_eq!(site.staged(id).await["onDisk"], true);
    }
    let got = site.send("GET", "/tape/f", &[], b"").await;
    assert_eq!((got.status, got.text().as_str()), (200, "once on tape"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_in_another_hour_of_the_library_finds_what_is_on_its_tapes() {
    let site = Site::with(|config| with_library(config, EVICTS_ALL)).await;
    for number in 0..20 {
        site.put(
            &format!("/tape/f{number}"),
            format!("file {number}").as_bytes(),
        )
        .await;
    }
    site.becomes("/tape/f19", "TAPE").await;
    let site = site.reopen(|config| with_library(config, EVICTS_ALL)).await;
    for number in 0..20 {
        let path = format!("/tape/f{number}");
        site.becomes(&path, "TAPE").await;
        let id = site.stage(&path).await;
        assert_eq!(site.staged(&id).await["onDisk"], true);
        let got = site.send("GET", &path, &[], b"").await;
        assert_eq!(got.text(), format!("file {number}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_outside_the_sizes_of_their_class_stay_on_disk() {
    let site = Site::with(|config| {
        with_library(config, EVICTS_ALL);
        let tape = config.nearline.as_mut().expect("there");
        tape.classes.0[0].size_min = Bytes(10);
        tape.classes.0[0].size_max = Bytes(20);
    })
    .await;
    for (path, size) in [("/tape/small", 9), ("/tape/large", 21), ("/tape/fits", 20)] {
        site.put(path, &vec![b'x'; size]).await;
    }
    site.becomes("/tape/fits", "TAPE").await;
    assert_eq!(site.locality("/tape/small").await, "DISK");
    assert_eq!(site.locality("/tape/large").await, "DISK");
}
