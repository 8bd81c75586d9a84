//! Shows how something long goes while it runs: a bar for a person who watches, a line now and then in a log.

use crate::output::Output;
use indicatif::{ProgressBar, ProgressStyle};
use penstock_field_tools::progress::{Progress, ProgressReading};
use penstock_model::{Bytes, Rate, TimeSpan};
use std::cell::RefCell;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

const REDRAW: Duration = Duration::from_millis(200);
const LOG_EVERY: Duration = Duration::from_secs(5);

/// How far something is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    pub done: Bytes,
    /// Bytes to do.
    pub total: Bytes,
    /// The rest, in words.
    pub text: String,
}

/// Runs `work` and shows the progress of a bulk copy on standard error.
pub async fn shown<T>(
    progress: &Arc<Progress>,
    output: Output,
    work: impl Future<Output = T>,
) -> T {
    watched(output, work, |elapsed| {
        let reading = progress.read();
        View {
            done: reading.bytes_moved,
            total: reading.bytes_total,
            text: sentence(reading, elapsed),
        }
    })
    .await
}

/// Runs `work` and shows what `look` sees on standard error.
pub async fn watched<T>(
    output: Output,
    work: impl Future<Output = T>,
    look: impl Fn(Duration) -> View,
) -> T {
    let mut work = pin!(work);
    let started = Instant::now();
    let mut display = Display::new(output);
    let mut tick = tokio::time::interval(REDRAW);
    loop {
        tokio::select! {
            biased;
            done = &mut work => {
                display.clear();
                return done;
            }
            _ = tick.tick() => display.show(started.elapsed(), &look),
        }
    }
}

/// Shows how something goes that is counted and that blocks.
pub struct BlockingProgress {
    what: &'static str,
    started: Instant,
    display: RefCell<Display>,
}

impl BlockingProgress {
    /// Of `what`, in words.
    pub fn new(output: Output, what: &'static str) -> BlockingProgress {
        BlockingProgress {
            what,
            started: Instant::now(),
            display: RefCell::new(Display::new(output)),
        }
    }

    /// So many of so many.
    pub fn show(&self, done: u64, total: u64) {
        let look = |_| View {
            done: Bytes(done),
            total: Bytes(total),
            text: format!("{done}/{total} {}", self.what),
        };
        self.display
            .borrow_mut()
            .show(self.started.elapsed(), &look);
    }

    /// It is over.
    pub fn end(&self) {
        self.display.borrow().clear();
    }
}

enum Display {
    Bar(ProgressBar),
    Lines { last: Duration },
    Silent,
}

impl Display {
    fn new(output: Output) -> Display {
        if output.json {
            return Display::Silent;
        }
        if !output.is_watched() {
            return Display::Lines {
                last: Duration::ZERO,
            };
        }
        let style = ProgressStyle::with_template("{wide_bar} {msg}").expect("a valid template");
        Display::Bar(ProgressBar::new(0).with_style(style))
    }

    fn show(&mut self, elapsed: Duration, look: &impl Fn(Duration) -> View) {
        match self {
            Display::Silent => {}
            Display::Bar(bar) => {
                let view = look(elapsed);
                bar.set_length(view.total.0.max(1));
                bar.set_position(view.done.0);
                bar.set_message(view.text);
            }
            Display::Lines { last } => {
                if elapsed - *last >= LOG_EVERY {
                    *last = elapsed;
                    eprintln!("{}", look(elapsed).text);
                }
            }
        }
    }

    fn clear(&self) {
        if let Display::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}

fn sentence(reading: ProgressReading, elapsed: Duration) -> String {
    // What was there before has not moved.
    let moved = reading.bytes_moved.0.saturating_sub(reading.bytes_before.0);
    let rate = Rate::over(Bytes(moved), elapsed);
    let left = reading.bytes_total.0.saturating_sub(reading.bytes_moved.0);
    let pace = match rate {
        None => String::new(),
        Some(Rate(0)) => format!(", {}", Rate(0)),
        Some(rate) => {
            let left = TimeSpan(Duration::from_secs(left.div_ceil(rate.0)));
            format!(", {rate}, {left} left")
        }
    };
    format!(
        "{}/{} files, {}/{}{pace}",
        reading.files_ended, reading.files_total, reading.bytes_moved, reading.bytes_total
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sentence_says_how_much_how_fast_and_how_long() {
        let reading = ProgressReading {
            files_total: 10,
            files_ended: 3,
            bytes_total: Bytes(10_000_000),
            bytes_moved: Bytes(4_000_000),
            bytes_before: Bytes(0),
            files_kept: 0,
        };
        assert_eq!(
            sentence(reading, Duration::from_secs(2)),
            "3/10 files, 4.0 MB/10.0 MB, 2.0 MB/s, 3 s left"
        );
        assert_eq!(
            sentence(reading, Duration::from_secs(600)),
            "3/10 files, 4.0 MB/10.0 MB, 6.7 kB/s, 15 min 1 s left"
        );
        let resumed = ProgressReading {
            bytes_before: Bytes(3_000_000),
            ..reading
        };
        assert_eq!(
            sentence(resumed, Duration::from_secs(2)),
            "3/10 files, 4.0 MB/10.0 MB, 500.0 kB/s, 12 s left"
        );
        assert_eq!(
            sentence(reading, Duration::ZERO),
            "3/10 files, 4.0 MB/10.0 MB",
            "no rate of no time"
        );
    }
}
