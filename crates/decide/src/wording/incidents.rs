//! Incidents as text: for a terminal, and as a ticket for the people who can end one.

use super::explain::{cause, evidence, measure, percent_of_whole, remedy};
use crate::explain::Cause;
use crate::incidents::{Incident, IncidentDrop, IncidentFingerprint};
use penstock_model::text::{one_line, plural};
use penstock_model::{Bytes, IncidentClass, TimeSpan, Timestamp};
use std::fmt::Write;

/// Drops that a text tells one by one, the latest.
const DROPS_TOLD: usize = 5;
/// Links that a text names.
const LINKS_TOLD: usize = 5;

/// What went wrong, as a clause without place.
pub fn incident_what(of: &IncidentFingerprint) -> String {
    let what = match (of.cause, of.class) {
        (Some(known), _) => cause(known),
        (None, IncidentClass::Network) => "attempts failed between source and destination",
        (None, IncidentClass::Service) => "attempts failed in the transfer service",
        (None, IncidentClass::Tape) => "files could not be brought from tape or written to it",
        (None, IncidentClass::Client) => "attempts failed because of the request itself",
        (None, IncidentClass::Storage) => "copies failed at one end",
        (None, IncidentClass::Unexplained) => {
            "the rate fell although there was work, and no rule explains most of it"
        }
    };
    let place = of.place.to_string();
    match of.object.as_ref().filter(|object| **object != place) {
        Some(object) => format!("{what}: {}", one_line(object)),
        None => what.to_owned(),
    }
}

/// What went wrong and where, as one line.
pub fn incident(of: &IncidentFingerprint) -> String {
    format!("{}: {}", one_line(&of.place.to_string()), incident_what(of))
}

/// What is asked of those who can end it.
pub fn incident_request(of: &IncidentFingerprint) -> &'static str {
    match (of.cause, of.class) {
        (Some(Cause::SourceErrors | Cause::DestinationErrors), _)
        | (None, IncidentClass::Storage) => {
            "find out why the storage element refuses or aborts these requests (the failure names it), and fix it"
        }
        (Some(Cause::NetworkPath), _) => {
            "check the path between both ends for packet loss and congestion"
        }
        (Some(Cause::SiteNetwork), _) => {
            "check the load and the errors of the site's network: all links of the site are slow"
        }
        (Some(Cause::FewerSubmissions), _) => {
            "tell us whether fewer files were meant to be submitted; if not, check the system that submits them"
        }
        (Some(known), _) => remedy(known),
        (None, IncidentClass::Network) => {
            "find out why connections between both ends fail: names, firewalls, routes, load"
        }
        (None, IncidentClass::Service) => "check the log of the transfer service at these times",
        (None, IncidentClass::Tape) => {
            "find out why the tape system does not deliver or take files: drives, library, stuck requests"
        }
        (None, IncidentClass::Client) => {
            "correct the request (path, existing file, rights): a retry does not help"
        }
        (None, IncidentClass::Unexplained) => {
            "check what was different on your side at these times: load, maintenance, settings; and send us what was not \
             measured"
        }
    }
}

/// How its end is verified by those who were asked.
pub fn incident_verification(class: IncidentClass) -> &'static str {
    match class {
        IncidentClass::Storage => {
            "write a file to the storage element, read it back and remove it, with a grid client from outside the site"
        }
        IncidentClass::Network => {
            "copy a file between both ends with as many connections as the transfers use, and compare its rate with the \
             usual one"
        }
        IncidentClass::Service => {
            "submit a transfer on one of these links: it starts and ends as usual"
        }
        IncidentClass::Tape => {
            "recall a file from tape, and write one to it: both end in the usual time"
        }
        IncidentClass::Client => "submit one of these files again: it arrives",
        IncidentClass::Unexplained => {
            "compare the rate of a copy between both ends with the usual one"
        }
    }
}

/// How much there was of it.
pub fn incident_counts(
    failed_attempts: u64,
    drops: u64,
    lost: Option<Bytes>,
    links: u64,
) -> String {
    let mut parts = Vec::new();
    if failed_attempts > 0 {
        parts.push(plural(failed_attempts, "failed attempt"));
    }
    if drops > 0 {
        parts.push(plural(drops, "rate drop"));
    }
    if let Some(lost) = lost {
        parts.push(format!("{lost} less moved than at the usual rate"));
    }
    parts.push(plural(links, "link"));
    parts.join(", ")
}

fn drop_line(drop: &IncidentDrop) -> String {
    format!(
        "drop {} from {}Z to {}Z: {} instead of {}, {} less moved",
        drop.id,
        drop.from.to_fts(),
        drop.to.to_fts(),
        drop.low_bytes_per_second,
        drop.usual_bytes_per_second,
        drop.bytes_lost
    )
}

/// How it is known: failures, drops, and what explains the drop in which most was lost. All times are UTC.
pub fn incident_evidence(incident: &Incident) -> Vec<String> {
    let mut lines = Vec::new();
    if incident.failed_attempts > 0 {
        let text = incident.fingerprint.object.as_deref();
        let text = text.filter(|_| incident.fingerprint.is_of_failure_text());
        let text = text.map_or(String::new(), |text| format!(": {}", one_line(text)));
        lines.push(format!(
            "{}{text}",
            plural(incident.failed_attempts, "failed attempt")
        ));
    }
    let left_out = incident.latest_drops.len().saturating_sub(DROPS_TOLD);
    let told = incident.latest_drops.iter().skip(left_out);
    lines.extend(told.map(drop_line));
    let earlier = incident.drops.saturating_sub(DROPS_TOLD as u64);
    if earlier > 0 {
        lines.push(format!("{} before these", plural(earlier, "drop")));
    }
    if let Some(worst) = &incident.worst {
        let told = &worst.explanation;
        for named in &told.causes {
            lines.push(format!(
                "{} % of drop {}: {}",
                percent_of_whole(named.share),
                worst.id,
                cause(named.cause)
            ));
            lines.extend(
                named
                    .evidence
                    .iter()
                    .map(|known| format!("  {}", evidence(known))),
            );
        }
        let unexplained = percent_of_whole(told.unexplained);
        if unexplained > 0 {
            lines.push(format!("{unexplained} % of drop {}: unexplained", worst.id));
        }
        if !told.missing.is_empty() {
            let names: Vec<&str> = told.missing.iter().map(|one| measure(*one)).collect();
            lines.push(format!("not measured: {}", names.join(", ")));
        }
    }
    lines
}

fn times(incident: &Incident) -> String {
    let (since, last) = (incident.first_seen, incident.last_seen);
    let lasted = TimeSpan::of_seconds(last.since(since).as_secs());
    let (since, last) = (since.to_fts(), last.to_fts());
    match incident.is_open {
        true => {
            format!("since {since}Z (UTC); it goes on, last seen {last}Z (UTC), {lasted} later")
        }
        false => {
            format!("since {since}Z (UTC); it is over, last seen {last}Z (UTC), {lasted} later")
        }
    }
}

fn links(incident: &Incident) -> Vec<String> {
    let named = incident.links.iter().take(LINKS_TOLD);
    let mut lines: Vec<String> = named
        .map(|link| one_line(&link.to_string()).into_owned())
        .collect();
    let more = incident.links.len().saturating_sub(LINKS_TOLD);
    if more > 0 {
        lines.push(format!("and {} more", plural(more as u64, "link")));
    }
    lines
}

fn counts(incident: &Incident) -> String {
    incident_counts(
        incident.failed_attempts,
        incident.drops,
        incident.bytes_lost,
        incident.links.len() as u64,
    )
}

/// A ticket for those who can end it: what, since when, how that is known, what is asked of them, how to verify.
pub fn incident_ticket(incident: &Incident) -> String {
    let of = &incident.fingerprint;
    let mut text = String::new();
    let mut section = |title: &str, lines: &[String]| {
        let _ = writeln!(text, "{title}");
        for line in lines {
            let _ = writeln!(text, "  {line}");
        }
        text.push('\n');
    };
    section(
        "Subject",
        &[format!("[{}] {}", of.class, self::incident(of))],
    );
    let mut what = vec![format!(
        "At {}, {}.",
        one_line(&of.place.to_string()),
        incident_what(of)
    )];
    what.push("Links on which it was seen:".to_owned());
    what.extend(links(incident).into_iter().map(|link| format!("  {link}")));
    section("What happens", &what);
    section("Since when", &[times(incident), counts(incident)]);
    section("Evidence (all times are UTC)", &incident_evidence(incident));
    section("Requested action", &[incident_request(of).to_owned()]);
    section(
        "How to verify",
        &[
            format!("on your side: {}", incident_verification(of.class)),
            format!(
                "on ours: `penstock incidents show {}` says that it is over",
                incident.id
            ),
        ],
    );
    let _ = writeln!(text, "Reference: incident {}", incident.id);
    text
}

/// A ticket that was sent while the incident went on, for those who hear of its end.
pub fn resolved_incident_ticket(ticket: &str, ended: Timestamp) -> String {
    let ended = ended.to_fts();
    format!(
        "It is over since {ended}Z (UTC). The ticket as it was sent while it went on:\n\n{ticket}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::incidents::{IncidentId, IncidentPlace};
    use penstock_model::{LinkId, StorageId};
    use std::collections::BTreeSet;

    #[test]
    fn a_ticket_says_what_since_when_how_it_is_known_what_is_asked_and_how_to_verify() {
        let destination = StorageId::new("https://tape.example.org");
        let fingerprint = IncidentFingerprint {
            class: IncidentClass::Tape,
            cause: None,
            object: Some("DESTINATION [28] no space left\non tape".to_owned()),
            place: IncidentPlace::Storage(destination.clone()),
        };
        let first_seen = Timestamp(1_145_404_800_000);
        let source = StorageId::new("https://a.example.org");
        let incident = Incident {
            id: IncidentId::new(&fingerprint, first_seen),
            fingerprint,
            first_seen,
            last_seen: Timestamp(first_seen.0 + 7_500_000),
            is_open: true,
            failed_attempts: 306,
            drops: 0,
            latest_drops: Vec::new(),
            bytes_lost: None,
            links: BTreeSet::from([LinkId {
                source,
                destination,
            }]),
            vos: BTreeSet::new(),
            worst: None,
        };
        let expected = format!(
            "Subject\n  [tape] https://tape.example.org: files could not be brought from tape or written to it: \
             DESTINATION [28] no space left\\u{{a}}on tape\n\n\
             What happens\n  At https://tape.example.org, files could not be brought from tape or written to it: \
             DESTINATION [28] no space left\\u{{a}}on tape.\n  Links on which it was seen:\n    \
             https://a.example.org → https://tape.example.org\n\n\
             Since when\n  since 2006-04-19T00:00:00Z (UTC); it goes on, last seen 2006-04-19T02:05:00Z \
             (UTC), 2 h 5 min later\n  306 failed attempts, 1 link\n\n\
             Evidence (all times are UTC)\n  306 failed attempts: DESTINATION [28] no space left\\u{{a}}on tape\n\n\
             Requested action\n  find out why the tape system does not deliver or take files: drives, library, stuck \
             requests\n\n\
             How to verify\n  on your side: recall a file from tape, and write one to it: both end in the usual time\n  \
             on ours: `penstock incidents show {id}` says that it is over\n\n\
             Reference: incident {id}\n",
            id = incident.id
        );
        assert_eq!(incident_ticket(&incident), expected);
        let over = incident_ticket(&Incident {
            is_open: false,
            ..incident
        });
        let times = "since 2006-04-19T00:00:00Z (UTC); it is over, last seen 2006-04-19T02:05:00Z (UTC), 2 h 5 min later";
        assert!(over.contains(times), "{over}");
    }
}
