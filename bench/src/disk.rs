//! What the bare file system allows: create, write, fsync, rename, fsync of the directory; the price of "201
//! means durable" that nginx and XRootD do not pay on PUT.

use crate::error::{BenchError, doing};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

/// Durable creates per second with `threads` threads, each in a directory of its own, for `time`.
pub fn durable_creates_per_second(
    dir: &Path,
    threads: usize,
    time: Duration,
) -> Result<f64, BenchError> {
    let started = Instant::now();
    let made = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let place = dir.join(format!("t{thread}"));
                scope.spawn(move || create_until(&place, started + time))
            })
            .collect();
        let mut made = 0;
        for worker in workers {
            made += worker
                .join()
                .map_err(|_| BenchError::failed("a thread that creates files panicked"))??;
        }
        Ok::<u64, BenchError>(made)
    })?;
    let rate = made as f64 / started.elapsed().as_secs_f64();
    fs::remove_dir_all(dir).or_else(doing(format!("{}", dir.display())))?;
    Ok(rate)
}

fn create_until(place: &Path, deadline: Instant) -> Result<u64, BenchError> {
    let what = || format!("{}", place.display());
    fs::create_dir_all(place).or_else(doing(what()))?;
    let directory = File::open(place).or_else(doing(what()))?;
    let mut made = 0;
    while Instant::now() < deadline {
        let beside = place.join("new");
        let mut file = File::create_new(&beside).or_else(doing(what()))?;
        file.write_all(b"x").or_else(doing(what()))?;
        file.sync_all().or_else(doing(what()))?;
        fs::rename(&beside, place.join(format!("f{made}"))).or_else(doing(what()))?;
        directory.sync_all().or_else(doing(what()))?;
        made += 1;
    }
    Ok(made)
}
