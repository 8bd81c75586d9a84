use super::*;
use crate::cartridge::jitter;
use crate::chance::Chance;

const GB: u64 = 1_000_000_000;

/// A drive whose coefficients are up to a fifth off, and random locates on one of its cartridges.
fn observed(
    seed: u64,
    count: usize,
    wrap_jitter: u32,
) -> (DriveModel, Geometry, Vec<ObservedLocate>) {
    let mut chance = Chance::new(seed);
    let mut drive = DriveModel::LTO_8;
    let coefficients = drive.locate.coefficients();
    let off = coefficients.map(|each| each * (80 + chance.below(41).cast_signed()) / 100);
    drive.locate = LocateModel::of_coefficients(off);
    let mut geometry = drive.geometry();
    jitter(&mut geometry, wrap_jitter, seed);
    let mut from_bytes = 0;
    let mut locates = Vec::new();
    for _ in 0..count {
        let to_bytes = chance.below(11_900 * GB);
        let places = (geometry.position(from_bytes), geometry.position(to_bytes));
        let noise = chance.deviation(SECOND_NS * 3 / 2);
        let took_ns = drive.locate.cost_ns(places.0, places.1) + noise;
        locates.push(ObservedLocate {
            from_bytes,
            to_bytes,
            took_ns,
        });
        from_bytes = to_bytes + GB;
    }
    (drive, geometry, locates)
}

/// The mean difference between what the model says and what the drive would take, in seconds.
fn mean_error(known: (&DriveModel, &Geometry), real: (&DriveModel, &Geometry)) -> f64 {
    let mut chance = Chance::new(77);
    let mut sum = 0.0;
    const PAIRS: u32 = 4_000;
    for _ in 0..PAIRS {
        let mut byte = || chance.below(11_900 * GB);
        let (from, to) = (byte(), byte());
        let cost = |(drive, geometry): (&DriveModel, &Geometry)| {
            let places = (geometry.position(from), geometry.position(to));
            seconds(drive.locate.cost_ns(places.0, places.1))
        };
        sum += (cost(known) - cost(real)).abs();
    }
    sum / f64::from(PAIRS)
}

#[test]
fn two_hundred_locates_tell_the_coefficients_of_a_drive() {
    for seed in 0..10 {
        let (drive, geometry, locates) = observed(seed, 200, 0);
        let usual = DriveModel::LTO_8;
        let cartridge = CartridgeLocates {
            geometry: &geometry,
            is_measured: true,
            locates: &locates,
        };
        let fit = fit_locates(&usual, &[cartridge]);
        let found = DriveModel {
            locate: fit.model,
            ..usual
        };
        let before = mean_error((&usual, &geometry), (&drive, &geometry));
        let after = mean_error((&found, &geometry), (&drive, &geometry));
        println!("drive {seed}: off by {before:.2} s, then by {after:.2} s; {fit:?}");
        assert!(after < 0.6 && after < before, "{seed}: {before} {after}");
        assert!((800..2_200).contains(&(fit.residual_ns / 1_000_000)));
        // What is told of the errors is true: no coefficient is beyond five of them.
        let found = fit
            .model
            .coefficients()
            .into_iter()
            .zip(fit.errors.coefficients());
        for ((found, error), real) in found.zip(drive.locate.coefficients()) {
            assert!(
                (found - real).abs() <= 5 * error,
                "{seed}: {found} {real} {error}"
            );
        }
    }
}

#[test]
fn few_and_wild_observations_do_no_harm() {
    let usual = DriveModel::LTO_8;
    for seed in 0..20 {
        let (drive, geometry, mut locates) = observed(seed, 60, 0);
        // Each tenth took minutes: a retry, a cleaning, somebody else's command.
        for locate in locates.iter_mut().step_by(10) {
            locate.took_ns += 400 * SECOND_NS;
        }
        let before = mean_error((&usual, &geometry), (&drive, &geometry));
        for count in [0, 1, 3, 10, 60] {
            let cartridge = CartridgeLocates {
                geometry: &geometry,
                is_measured: true,
                locates: &locates[..count],
            };
            let fit = fit_locates(&usual, &[cartridge]);
            let found = DriveModel {
                locate: fit.model,
                ..usual
            };
            let after = mean_error((&found, &geometry), (&drive, &geometry));
            assert!(after <= before + 1.5, "{seed}, {count}: {before} {after}");
            if count < 10 {
                assert_eq!(fit.model, usual.locate);
            }
            if count == 60 {
                assert!(after < 1.0, "{seed}: {before} {after}");
                assert!(fit.left_out >= 6, "{fit:?}");
            }
        }
    }
}

#[test]
fn locates_tell_where_wraps_end_that_nobody_has_measured() {
    let usual = DriveModel::LTO_8;
    let even = usual.geometry();
    for (permille, seeds) in [(20, 0..3), (200, 3..6)] {
        for seed in seeds {
            let (drive, geometry, locates) = observed(seed, 400, permille);
            let cartridge = CartridgeLocates {
                geometry: &even,
                is_measured: false,
                locates: &locates,
            };
            let found = calibrate(&usual, &[cartridge]);
            let model = DriveModel {
                locate: found.fit.model,
                ..usual
            };
            let before = mean_error((&usual, &even), (&drive, &geometry));
            let after = mean_error((&model, &found.geometries[0]), (&drive, &geometry));
            println!(
                "{permille} permille, cartridge {seed}: off by {before:.2} s, then by {after:.2} s"
            );
            assert!(after < before * 0.8, "{seed}: {before} {after}");
            let ends = &found.geometries[0].wrap_ends_bytes;
            assert!(ends.is_sorted() && ends.last() == even.wrap_ends_bytes.last());
        }
    }
}
