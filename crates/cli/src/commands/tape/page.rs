//! What drives and tapes do as one HTML page that needs nothing else: a bar for each mount of each drive, and what waits for each
//! tape. Names come from a configuration, and are escaped all the same.

use penstock_field_tools::tape_api::{
    LibraryTape, TapeDrive, TapeLibrariesDocument, TapeMount, TapeStatusDocument,
};
use penstock_model::text::plural;
use penstock_model::{Bytes, TimeSpan, Timestamp};
use penstock_observe::html::page_head;
use penstock_observe::svg::escaped;
use std::collections::BTreeMap;
use std::fmt::Write;

const WIDTH: f64 = 900.0;
const LEFT: f64 = 150.0;
const ROW: f64 = 26.0;
const TOP: f64 = 8.0;
/// Room for the times below.
const BOTTOM: f64 = 26.0;
/// A bar that can be seen and pointed at.
const BAR_MIN: f64 = 2.0;
/// What is drawn at least.
const SPAN_MIN_MS: i64 = 60_000;
/// Tapes in the list; the JSON form has all.
const TAPES_MAX: usize = 500;
/// Told apart also by those who see few colours (Okabe and Ito).
const READING: &str = "#0072b2";
const WRITING: &str = "#e69f00";
const NOW: &str = "#009e73";

/// The page of a tape system at a time.
pub(super) fn page(status: &TapeStatusDocument, at: Timestamp) -> String {
    let mut out = page_head("Tape system");
    let _ = writeln!(out, "<p>At {}Z. Times are UTC.</p>", escaped(&at.to_fts()));
    add_incidents(&mut out, status);
    add_queues(&mut out, status);
    match &status.libraries {
        Some(libraries) => {
            add_gantt(&mut out, libraries, at);
            add_tapes(&mut out, libraries);
        }
        None => out.push_str(
            "<p>Files are written to tape by the program of an HSM, which does not report drives and tapes.</p>\n",
        ),
    }
    out.push_str("</body></html>\n");
    out
}

fn add_incidents(out: &mut String, status: &TapeStatusDocument) {
    out.push_str("<h2>Incidents</h2>\n");
    if status.incidents.is_empty() {
        out.push_str("<p class=\"none\">None.</p>\n");
        return;
    }
    out.push_str("<div class=\"part\"><ul>\n");
    for incident in &status.incidents {
        let fault = incident.fault.as_deref();
        let fault = fault.map_or(String::new(), |fault| format!(": {}", escaped(fault)));
        let _ = writeln!(
            out,
            "<li>since {}Z: {}{fault}</li>",
            incident.since.to_fts(),
            escaped(&incident.what)
        );
    }
    out.push_str("</ul></div>\n");
}

fn add_queues(out: &mut String, status: &TapeStatusDocument) {
    out.push_str("<h2>Files</h2>\n<div class=\"cards\">\n");
    for (kind, counts) in status.counts.named() {
        let words = match kind {
            "archives" => "to be put on tape",
            "recalls" => "to be read from tape",
            _ => "to be removed",
        };
        let collecting = counts.collecting.unwrap_or_default();
        let all = [counts.running, counts.queued, collecting, counts.delayed];
        let files = all.iter().map(|one| one.files).sum::<u64>();
        let bytes = all.iter().map(|one| one.bytes).sum::<u64>();
        let _ = writeln!(
            out,
            "<div><b>{files}</b>{words}<br><small>{}; {} worked on</small></div>",
            Bytes(bytes),
            counts.running.files
        );
    }
    out.push_str("</div>\n");
}

/// Where times are on the plot.
struct Axis {
    begin: Timestamp,
    span_ms: i64,
}

impl Axis {
    fn x(&self, at: Timestamp) -> f64 {
        let part = (at.0 - self.begin.0) as f64 / self.span_ms as f64;
        LEFT + part.clamp(0.0, 1.0) * (WIDTH - LEFT)
    }

    /// Hours and minutes; seconds too where quarters of the plot would be told alike.
    fn clock(&self, at: Timestamp) -> String {
        let length = if self.span_ms < 10 * 60_000 { 8 } else { 5 };
        at.to_fts().chars().skip(11).take(length).collect()
    }

    fn bar(&self, out: &mut String, row: usize, times: (Timestamp, Timestamp), look: (&str, &str)) {
        let (from, to) = (self.x(times.0), self.x(times.1));
        let (colour, title) = look;
        let _ = writeln!(
            out,
            "<rect x=\"{from:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{colour}\"><title>{}</title></rect>",
            TOP + row as f64 * ROW + 3.0,
            (to - from).max(BAR_MIN),
            ROW - 6.0,
            escaped(title)
        );
    }
}

/// A row for each drive, a bar for each mount that ended, and one for what it does now.
fn add_gantt(out: &mut String, libraries: &TapeLibrariesDocument, at: Timestamp) {
    out.push_str("<h2>Drives</h2>\n");
    if libraries.drives.is_empty() {
        out.push_str("<p class=\"none\">There are no drives.</p>\n");
        return;
    }
    let begins = libraries.mounts.iter().map(|mount| mount.begin);
    let begins = begins.chain(libraries.drives.iter().filter_map(|drive| drive.since));
    let begin = begins.min().unwrap_or(at).min(at);
    let axis = Axis {
        begin,
        span_ms: (at.0 - begin.0).max(SPAN_MIN_MS),
    };
    let rows: BTreeMap<&str, usize> = libraries
        .drives
        .iter()
        .enumerate()
        .map(|(row, drive)| (drive.name.as_str(), row))
        .collect();
    let height = TOP + rows.len() as f64 * ROW + BOTTOM;
    let _ = writeln!(
        out,
        "<figure><figcaption>Mounts, since {}Z</figcaption><svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"mounts of each drive\">",
        begin.to_fts()
    );
    for (row, drive) in libraries.drives.iter().enumerate() {
        let y = TOP + row as f64 * ROW;
        let _ = writeln!(
            out,
            "<line class=\"grid\" x1=\"0\" x2=\"{WIDTH}\" y1=\"{:.1}\" y2=\"{:.1}\"/><text x=\"0\" y=\"{:.1}\">{}</text>",
            y + ROW,
            y + ROW,
            y + ROW * 0.68,
            escaped(&drive.name)
        );
        if let Some(since) = drive.since.filter(|_| drive.tape.is_some()) {
            axis.bar(out, row, (since, at), (NOW, &drive_title(drive)));
        }
    }
    for mount in &libraries.mounts {
        if let Some(row) = rows.get(mount.drive.as_str()) {
            let colour = if mount.family.is_some() {
                WRITING
            } else {
                READING
            };
            axis.bar(
                out,
                *row,
                (mount.begin, mount.end),
                (colour, &mount_title(mount)),
            );
        }
    }
    for quarter in 0..=4 {
        let time = Timestamp(begin.0 + axis.span_ms * quarter / 4);
        let anchor = ["start", "middle", "middle", "middle", "end"][quarter as usize];
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>",
            axis.x(time),
            height - 8.0,
            axis.clock(time)
        );
    }
    let key = |colour: &str, words: &str| {
        format!("<span><i style=\"background:{colour}\"></i>{words}</span>")
    };
    let _ = writeln!(
        out,
        "</svg><p class=\"legend\">{}{}{}</p><p class=\"counts\">{} that ended. Point at a bar for what its time went to.</p></figure>",
        key(READING, "read"),
        key(WRITING, "written"),
        key(NOW, "in the drive now"),
        plural(libraries.mounts.len() as u64, "mount")
    );
    add_drives(out, libraries);
}

fn add_drives(out: &mut String, libraries: &TapeLibrariesDocument) {
    out.push_str(
        "<div class=\"part scroll\"><table><tr><th>drive</th><th class=\"left\">state</th><th class=\"left\">tape</th>\
         <th class=\"left\">family</th><th>files</th><th class=\"left\">since</th></tr>\n",
    );
    for drive in &libraries.drives {
        let since = drive
            .since
            .map_or(String::new(), |since| since.to_fts() + "Z");
        let _ = writeln!(
            out,
            "<tr><td>{}</td><td class=\"left\">{}</td><td class=\"left\">{}</td><td class=\"left\">{}</td><td>{}</td>\
             <td class=\"left\">{since}</td></tr>",
            escaped(&drive.name),
            escaped(&drive.state),
            escaped(drive.tape.as_deref().unwrap_or("")),
            escaped(drive.family.as_deref().unwrap_or("")),
            drive.files
        );
    }
    out.push_str("</table></div>\n");
}

/// Hours and minutes.
fn drive_title(drive: &TapeDrive) -> String {
    format!(
        "{}: {}, tape {}, {}",
        drive.name,
        drive.state,
        drive.tape.as_deref().unwrap_or("none"),
        plural(drive.files, "file")
    )
}

fn mount_title(mount: &TapeMount) -> String {
    let seconds = |ns: i64| TimeSpan::of_seconds(u64::try_from(ns / 1_000_000_000).unwrap_or(0));
    let phases = mount.phases_ns.iter().filter(|(_, ns)| **ns > 0);
    let phases: Vec<String> = phases
        .map(|(phase, ns)| format!("{phase} {}", seconds(*ns)))
        .collect();
    let purpose = match &mount.family {
        Some(family) => format!("family {family} written"),
        None => "read".to_owned(),
    };
    format!(
        "tape {}, {purpose}: {}, {}, {}; {}",
        mount.tape,
        plural(mount.files, "file"),
        Bytes(mount.payload_bytes),
        seconds(mount.wall_ns),
        phases.join(", ")
    )
}

/// Tapes for which files wait come first, those with the oldest file before others; blank ones are left out.
fn add_tapes(out: &mut String, libraries: &TapeLibrariesDocument) {
    let is_listed = |tape: &&LibraryTape| {
        tape.queued.files > 0 || tape.written_bytes > 0 || tape.state != "active"
    };
    let mut tapes: Vec<&LibraryTape> = libraries.tapes.iter().filter(is_listed).collect();
    let blank = libraries.tapes.len() - tapes.len();
    tapes.sort_by_key(|tape| {
        (
            tape.queued.files == 0,
            tape.oldest_waiting.map_or(i64::MAX, |oldest| oldest.0),
            tape.name.clone(),
        )
    });
    let _ = writeln!(
        out,
        "<h2>Tapes</h2>\n<p>{} without data.</p>",
        plural(blank as u64, "tape")
    );
    if tapes.is_empty() {
        return;
    }
    out.push_str(
        "<div class=\"part scroll\"><table><tr><th>tape</th><th class=\"left\">state</th><th class=\"left\">family</th>\
         <th>files to be read</th><th>their bytes</th><th class=\"left\">the oldest since</th><th class=\"left\">waits for</th><th>written</th><th>needed</th>\
         <th>capacity</th><th class=\"left\">in drive</th></tr>\n",
    );
    for tape in tapes.iter().take(TAPES_MAX) {
        let oldest = tape.oldest_waiting;
        let _ = writeln!(
            out,
            "<tr><td>{}</td><td class=\"left\">{}</td><td class=\"left\">{}</td><td>{}</td><td>{}</td><td class=\"left\">{}</td>\
             <td class=\"left\">{}</td><td>{}</td><td>{}</td><td>{}</td><td class=\"left\">{}</td></tr>",
            escaped(&tape.name),
            escaped(&tape.state),
            escaped(tape.family.as_deref().unwrap_or("")),
            tape.queued.files,
            Bytes(tape.queued.bytes),
            oldest.map_or(String::new(), |oldest| oldest.to_fts() + "Z"),
            escaped(
                tape.waits_for
                    .as_ref()
                    .map_or("", |wait| wait.what.as_str())
            ),
            Bytes(tape.written_bytes),
            Bytes(tape.live.bytes),
            Bytes(tape.capacity_bytes),
            escaped(tape.drive.as_deref().unwrap_or(""))
        );
    }
    out.push_str("</table></div>\n");
    if tapes.len() > TAPES_MAX {
        let _ = writeln!(
            out,
            "<p class=\"counts\">{} more are in the JSON form.</p>",
            tapes.len() - TAPES_MAX
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_field_tools::tape_api::{
        TapeAmountDocument, TapeCountsDocument, TapeWaitDocument,
    };

    fn mount(drive: &str, family: Option<&str>, begin: i64, end: i64) -> TapeMount {
        TapeMount {
            drive: drive.to_owned(),
            tape: "A<1>".to_owned(),
            library: "silo".to_owned(),
            kind: "LTO-8".to_owned(),
            family: family.map(str::to_owned),
            begin: Timestamp(begin),
            end: Timestamp(end),
            wall_ns: (end - begin) * 1_000_000,
            phases_ns: BTreeMap::from([("reading".to_owned(), (end - begin) * 1_000_000)]),
            files: 3,
            payload_bytes: 9,
            moved_bytes: 9,
            payload_rate: 9,
            drive_rate: 9,
            amplification: Some(1.0),
            mounts_before: 0,
            vos: BTreeMap::new(),
        }
    }

    #[test]
    fn each_mount_is_a_bar_of_its_drive_and_names_are_escaped() {
        let drive = |name: &str, tape: Option<&str>| TapeDrive {
            name: name.to_owned(),
            library: "silo".to_owned(),
            kind: "LTO-8".to_owned(),
            state: "reading".to_owned(),
            since: Some(Timestamp(900_000)),
            tape: tape.map(str::to_owned),
            family: None,
            files: 1,
        };
        let waiting = LibraryTape {
            name: "A<1>".to_owned(),
            library: "silo".to_owned(),
            kind: "LTO-8".to_owned(),
            state: "active".to_owned(),
            family: None,
            capacity_bytes: 100,
            written_bytes: 50,
            live: TapeAmountDocument {
                files: 1,
                bytes: 20,
            },
            dead_bytes: 0,
            verification: Default::default(),
            wraps_known: 0,
            locates_known: 0,
            drive: None,
            queued: TapeAmountDocument {
                files: 2,
                bytes: 20,
            },
            oldest_waiting: Some(Timestamp(0)),
            waits_for: Some(TapeWaitDocument {
                code: "no-free-drive".to_owned(),
                what: "all drives <in use>".to_owned(),
                until: None,
            }),
        };
        let status = TapeStatusDocument {
            hsm: None,
            counts: TapeCountsDocument::default(),
            incidents: Vec::new(),
            libraries: Some(TapeLibrariesDocument {
                drives: vec![drive("d1", None), drive("d2", Some("B"))],
                tapes: vec![waiting],
                families: Vec::new(),
                care: Default::default(),
                mounts: vec![
                    mount("d1", None, 0, 500_000),
                    mount("d2", Some("raw"), 100_000, 800_000),
                    mount("gone", None, 0, 1),
                ],
            }),
        };
        let page = page(&status, Timestamp(1_000_000));
        let bars = |colour: &str| page.matches(&format!("fill=\"{colour}\"")).count();
        assert_eq!((bars(READING), bars(WRITING), bars(NOW)), (1, 1, 1));
        assert!(page.contains("A&lt;1&gt;") && !page.contains("A<1>"));
        assert!(page.contains("family raw written: 3 files") && page.contains("<td>2</td>"));
        assert!(page.contains("all drives &lt;in use&gt;"));
    }
}
