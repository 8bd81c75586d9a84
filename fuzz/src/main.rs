//! One binary for all targets: `FUZZ_TARGET=macaroon penstock-fuzz CORPUS`. The corpus gets the target's seeds first.
#![no_main]

mod targets;

use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;
use targets::Target;

static TARGET: LazyLock<&Target> = LazyLock::new(|| {
    let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
    let found = targets::ALL.iter().find(|target| target.name == name);
    found.unwrap_or_else(|| {
        let names: Vec<_> = targets::ALL.iter().map(|target| target.name).collect();
        panic!("FUZZ_TARGET='{name}' is none of {}", names.join(", "))
    })
});

fuzz_target!(
    init: write_seeds(),
    |data: &[u8]| (TARGET.check)(data)
);

fn write_seeds() {
    let Some(corpus) = std::env::args().skip(1).find(|word| !word.starts_with('-')) else {
        return;
    };
    std::fs::create_dir_all(&corpus).expect("the corpus directory can be made");
    for (number, seed) in (TARGET.seeds)().iter().enumerate() {
        let path = format!("{corpus}/seed-{number}");
        std::fs::write(path, seed).expect("the corpus can be written");
    }
}
