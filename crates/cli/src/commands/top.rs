//! `penstock top`: what moves at a transfer service, how fast, and why the rest waits, in a terminal. It asks what the live page
//! asks.

mod screen;
mod standing;

use crate::args::TopArgs;
use crate::commands::jobs::{Intent, connect};
use crate::environment::Environment;
use crate::exit::CommandError;
use crate::output::Output;
use crate::stop_signals::StopSignals;
use console::Term;
use penstock_field_tools::remote_error::RemoteError;
use penstock_field_tools::transfer_api::TransferService;
use screen::{Frame, frame};
use standing::{Seen, Series, Standing};
use std::io::{IsTerminal, Write};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::MissedTickBehavior;

/// Seconds of the curves.
const CURVE_SECONDS: u32 = 60;
/// A service is not asked more often.
const EVERY_MIN: Duration = Duration::from_millis(200);
/// Of a screen whose size is not known.
const COLUMNS: usize = 110;
const LINES: usize = 40;
/// What a screen without an end shows.
const LINES_WHOLE: usize = 10_000;

const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
const HOME: &str = "\x1b[H";
const END_OF_LINE: &str = "\x1b[K\r\n";
const END_OF_SCREEN: &str = "\x1b[J";

/// `penstock top`.
pub async fn run(
    args: TopArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let service = connect(&args.service, Intent::Manage, environment)?;
    let first = look(&service, None).await?;
    if args.once || output.json || !std::io::stdout().is_terminal() {
        let size = Frame {
            columns: COLUMNS,
            lines: LINES_WHOLE,
        };
        output.show(&first, || {
            let lines = frame(&first, None, size);
            lines.iter().map(|line| format!("{line}\n")).collect()
        });
        return Ok(());
    }
    watch(&service, first, args.every.0.max(EVERY_MIN)).await
}

/// Asks how it stands; with the look before, rates of files are those since then.
async fn look(
    service: &TransferService,
    before: Option<&Standing>,
) -> Result<Standing, RemoteError> {
    let seen: Seen = service.live("api/v1/overview").await?;
    let curves = format!("live/api/series?seconds={CURVE_SECONDS}");
    let series = match service.live::<Series>(&curves).await {
        Ok(series) => series,
        // The service has no live page, and so no curves.
        Err(RemoteError::NotFound { .. }) => Series::default(),
        Err(why) => return Err(why),
    };
    Ok(Standing::of(seen, series, before))
}

/// The screen is given back however this ends.
struct Screen;

impl Screen {
    fn enter() -> Screen {
        write_out(ENTER);
        Screen
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        write_out(LEAVE);
    }
}

/// A terminal that went away is noticed by the signal that it sends.
fn write_out(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Draws until Ctrl-C. What does not answer is told, and asked again.
async fn watch(
    service: &TransferService,
    first: Standing,
    every: Duration,
) -> Result<(), CommandError> {
    let mut stop = StopSignals::listen()?;
    let mut resized = signal(SignalKind::window_change())
        .map_err(|why| CommandError::local("cannot listen for signals", why))?;
    let mut tick = tokio::time::interval(every);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tick.tick().await;
    let screen = Screen::enter();
    let (mut standing, mut trouble) = (first, None::<String>);
    loop {
        draw(&standing, trouble.as_deref());
        let looked = async {
            tick.tick().await;
            look(service, Some(&standing)).await
        };
        tokio::select! {
            looked = looked => match looked {
                Ok(looked) => (standing, trouble) = (looked, None),
                Err(why) => trouble = Some(why.to_string()),
            },
            _ = resized.recv() => {}
            () = stop.received() => break,
        }
    }
    drop(screen);
    Ok(())
}

fn draw(standing: &Standing, trouble: Option<&str>) {
    let size = match Term::stdout().size_checked() {
        Some((lines, columns)) => Frame {
            columns: usize::from(columns),
            lines: usize::from(lines),
        },
        None => Frame {
            columns: COLUMNS,
            lines: LINES,
        },
    };
    let mut text = HOME.to_owned();
    let lines = frame(standing, trouble, size);
    for (number, line) in lines.iter().enumerate() {
        if number > 0 {
            text += END_OF_LINE;
        }
        text += line;
    }
    text += "\x1b[K";
    text += END_OF_SCREEN;
    write_out(&text);
}
