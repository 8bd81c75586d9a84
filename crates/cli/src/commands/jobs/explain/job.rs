//! `penstock explain JOB`: one line about the whole job, then its files by reason, failures first. The service words the
//! reasons; a failure is told in one sentence, by its code.

use crate::args::ExplainArgs;
use crate::commands::jobs::live::{LiveBytes, Moving};
use crate::commands::jobs::totals::JobTotals;
use crate::commands::jobs::{Intent, connect};
use crate::environment::Environment;
use crate::exit::CommandError;
use crate::output::Output;
use penstock_decide::wording::LAST_FAILURE;
use penstock_field_tools::remote_error::RemoteError;
use penstock_field_tools::transfer_api::{FileInfo, TransferService};
use penstock_model::failure_text::without_particulars;
use penstock_model::text::{one_line, plural};
use penstock_model::{Problem, ProblemCode, Side, TapeWait, TimeSpan, WaitReason};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;

/// Files of an ended job whose duration is told.
const SLOWEST: usize = 3;

#[derive(Debug, Deserialize)]
struct Explanation {
    job_id: String,
    job_state: String,
    files: Vec<ExplainedFile>,
}

#[derive(Debug, Deserialize)]
struct ExplainedFile {
    file_id: u64,
    /// Services of an earlier version tell none.
    #[serde(default)]
    state: String,
    source: String,
    destination: String,
    text: String,
    waiting: Option<serde_json::Value>,
    problem: Option<FileProblem>,
}

/// Why a file failed.
#[derive(Debug, Deserialize)]
struct FileProblem {
    code: String,
    #[serde(default)]
    side: Option<Side>,
    #[serde(default)]
    message: String,
}

impl From<Problem> for FileProblem {
    fn from(problem: Problem) -> FileProblem {
        FileProblem {
            code: problem.code.name().to_owned(),
            side: Some(problem.side),
            message: problem.message,
        }
    }
}

impl FileProblem {
    /// At which side it failed, and what its code means; `None`: the code is of a later version.
    fn sentence(&self) -> Option<String> {
        let code = ProblemCode::by_name(&self.code)?;
        let place = match self.side {
            Some(Side::Source) => " at the source",
            Some(Side::Destination) => " at the destination",
            Some(Side::Network) => " between source and destination",
            Some(Side::Service) => " in the transfer service",
            None => "",
        };
        let meaning = code.facts().meaning;
        Some(match says_little(code) && !self.message.is_empty() {
            true => format!(
                "failed{place}: {}: {}",
                meaning.trim_end_matches('.'),
                one_line(&self.message)
            ),
            false => format!("failed{place}: {meaning}"),
        })
    }
}

impl ExplainedFile {
    /// Where something failed: what it was, in one sentence. `None`: the text says all.
    fn sentence(&self) -> Option<String> {
        if let Some(problem) = &self.problem {
            return problem.sentence();
        }
        let waiting = self.waiting.clone()?;
        let (WaitReason::LinkHalted { last, .. }
        | WaitReason::BackingOff { last, .. }
        | WaitReason::Tape(TapeWait::Failing { last, .. })) =
            serde_json::from_value(waiting).ok()?
        else {
            return None;
        };
        let (reason, _) = self.text.split_once(LAST_FAILURE)?;
        let last = FileProblem::from(last.problem()).sentence()?;
        Some(format!(
            "{}; the last attempt {last}",
            of_several(&one_line(reason))
        ))
    }
}

/// Codes of what nobody knows better than the server that failed.
fn says_little(code: ProblemCode) -> bool {
    matches!(
        code,
        ProblemCode::PeerFailed
            | ProblemCode::PeerMalformed
            | ProblemCode::CopyFailed
            | ProblemCode::RequestMalformed
            | ProblemCode::EndpointUnsupported
            | ProblemCode::TapeFailed
            | ProblemCode::InternalError
    )
}

/// Files of one job that wait or ended for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FileGroup {
    /// How many.
    pub files: u64,
    pub state: String,
    /// The code of the failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// One of them.
    pub example_file_id: u64,
    pub example_source: String,
    pub example_destination: String,
    /// The reason, with the numbers of the example.
    pub text: String,
    /// The failure in one sentence.
    #[serde(skip)]
    sentence: Option<String>,
    /// Tell what the service says of the failure too.
    #[serde(skip)]
    in_detail: bool,
}

impl FileGroup {
    fn of(file: &ExplainedFile, in_detail: bool) -> FileGroup {
        FileGroup {
            files: 0,
            state: file.state.clone(),
            code: file.problem.as_ref().map(|problem| problem.code.clone()),
            example_file_id: file.file_id,
            example_source: file.source.clone(),
            example_destination: file.destination.clone(),
            text: file.text.clone(),
            sentence: file.sentence(),
            in_detail,
        }
    }

    /// Failures first, what needs no look last.
    fn rank(&self) -> u8 {
        match self.state.as_str() {
            "FAILED" => 0,
            "CANCELED" => 1,
            "ACTIVE" => 3,
            "NOT_USED" => 4,
            "FINISHED" => 5,
            _ => 2,
        }
    }

    /// For people: what is with the files, then which they are.
    pub fn text(&self, indent: &str) -> String {
        let reason = match &self.sentence {
            Some(sentence) => sentence.clone(),
            None => of_several(&one_line(&self.text)),
        };
        let code = self.code.as_ref();
        let code = code.map_or_else(String::new, |code| format!(" [{}]", one_line(code)));
        let mut text = format!("{indent}{} {reason}{code}\n", plural(self.files, "file"));
        if self.in_detail && self.sentence.is_some() {
            text += &format!("{indent}    details: {}\n", one_line(&self.text));
        }
        let known = self.code.as_deref().and_then(ProblemCode::by_name);
        if let Some(code) = known.filter(|_| self.in_detail) {
            text += &format!("{indent}    what to do: {}\n", code.facts().remedy);
        }
        let word = if self.files == 1 { "" } else { "for example " };
        text += &format!(
            "{indent}    {word}{} {} -> {}\n",
            self.example_file_id,
            one_line(&self.example_source),
            one_line(&self.example_destination)
        );
        text
    }
}

/// What the service says of one file, to follow a number of files.
fn of_several(text: &str) -> String {
    for (verb, instead) in [("waits", "queued"), ("is ", ""), ("was ", "")] {
        if let Some(rest) = text.strip_prefix(verb) {
            return format!("{instead}{rest}");
        }
    }
    text.to_owned()
}

/// Files with one reason together: numbers and names in it differ from file to file.
fn grouped<'a>(
    files: impl IntoIterator<Item = &'a ExplainedFile>,
    in_detail: bool,
) -> Vec<FileGroup> {
    let mut places: HashMap<(&str, Option<&str>, String), usize> = HashMap::new();
    let mut groups: Vec<FileGroup> = Vec::new();
    for file in files {
        let code = file.problem.as_ref().map(|problem| &*problem.code);
        let sentence = file.sentence();
        let told = match (in_detail, &sentence) {
            (false, Some(sentence)) => sentence,
            (true, Some(_)) | (_, None) => &file.text,
        };
        let reason = (&*file.state, code, without_amounts(told));
        let place = *places.entry(reason).or_insert(groups.len());
        if place == groups.len() {
            groups.push(FileGroup::of(file, in_detail));
        }
        groups[place].files += 1;
    }
    // The sort is stable: of equal ones, the first of the submission stays first.
    groups.sort_by_key(|group| (group.rank(), Reverse(group.files)));
    groups
}

/// A reason without what differs from file to file: names, numbers, and the units that go with them.
fn without_amounts(text: &str) -> String {
    let text = without_particulars(text);
    let words = text
        .split(' ')
        .map(|word| match word.trim_end_matches([',', ';', ')']) {
            "#.#" => "#",
            "kB" | "MB" | "GB" | "TB" | "PB" => "B",
            "kB/s" | "MB/s" | "GB/s" | "TB/s" | "PB/s" => "B/s",
            word => word,
        });
    words.collect::<Vec<_>>().join(" ")
}

/// Why files of a job wait, as far as the service can tell.
pub async fn waiting(service: &TransferService, id: &str) -> Result<Vec<FileGroup>, CommandError> {
    let answer = match service.explain(id).await {
        // Only a service of ours knows this question.
        Err(RemoteError::NotFound { .. }) => return Ok(Vec::new()),
        other => read(other?)?,
    };
    let waiting = answer.files.iter().filter(|file| file.waiting.is_some());
    Ok(grouped(waiting, false))
}

fn read(answer: serde_json::Value) -> Result<Explanation, CommandError> {
    serde_json::from_value(answer).map_err(CommandError::unreadable_answer)
}

/// `penstock explain JOB`.
pub async fn tell(
    args: &ExplainArgs,
    id: &str,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let service = connect(&args.record.service, Intent::Manage, environment)?;
    let mut answer = match service.explain(id).await {
        // A service without this question says 404 too, but knows the job.
        Err(RemoteError::NotFound { .. }) if service.job(id).await.is_ok() => {
            return Err(CommandError::Usage(
                "this service cannot explain its jobs; see `penstock status --files`".to_owned(),
            ));
        }
        other => other?,
    };
    let explanation = read(answer.clone())?;
    let (job, files) = (service.job(id).await?, service.files(id).await?);
    let totals = JobTotals::of(&job, &files);
    let live = LiveBytes::of(&service, &[id.to_owned()]).await;
    let moving = live.of_job(id);
    if let Some(object) = answer.as_object_mut() {
        object.insert("totals".to_owned(), serde_json::json!(totals));
        if let Some(moving) = &moving {
            object.insert("moving".to_owned(), serde_json::json!(moving));
        }
    }
    let slowest = match job.is_terminal() {
        true => slowest(&files),
        false => Vec::new(),
    };
    output.show(&answer, || {
        text(
            &explanation,
            &Whole {
                totals,
                moving,
                slowest,
            },
            args.verbose,
        )
    });
    Ok(())
}

/// What is told of a job as a whole.
struct Whole {
    totals: JobTotals,
    moving: Option<Moving>,
    /// Numbers of files, with the seconds that their copies took.
    slowest: Vec<(u64, f64)>,
}

/// Those of several that took longest.
fn slowest(files: &[FileInfo]) -> Vec<(u64, f64)> {
    let arrived = files.iter().filter(|file| file.file_state == "FINISHED");
    let mut took: Vec<(u64, f64)> = arrived
        .filter_map(|file| Some((file.file_id, file.tx_duration?)))
        .collect();
    if took.len() <= SLOWEST {
        return Vec::new();
    }
    took.sort_by(|one, other| other.1.total_cmp(&one.1).then(one.0.cmp(&other.0)));
    took.truncate(SLOWEST);
    took
}

fn text(explanation: &Explanation, whole: &Whole, in_detail: bool) -> String {
    let mut text = format!(
        "job {} is {}: {}",
        one_line(&explanation.job_id),
        one_line(&explanation.job_state),
        whole.totals.text()
    );
    for (states, word) in [
        (&["ACTIVE"][..], "being moved"),
        (&["STAGING", "STARTED"], "coming from tape"),
        (&["ARCHIVING"], "arrived, not on tape yet"),
        (
            &["SUBMITTED", "TOKEN_PREP", "ON_HOLD", "ON_HOLD_STAGING"],
            "queued",
        ),
    ] {
        let files = explanation.files.iter();
        let number = files.filter(|file| states.contains(&&*file.state)).count();
        if number > 0 {
            text += &format!("; {number} {word}");
        }
    }
    text.push('\n');
    if let Some(moving) = &whole.moving {
        text += &format!("{}\n", moving.text());
    }
    let slowest = whole.slowest.iter().map(|(file, seconds)| {
        let took = Duration::try_from_secs_f64(*seconds).unwrap_or_default();
        format!("file {file} {:.1}", TimeSpan(took))
    });
    let slowest: Vec<String> = slowest.collect();
    if !slowest.is_empty() {
        text += &format!("slowest: {}\n", slowest.join(", "));
    }
    let groups = grouped(&explanation.files, in_detail);
    let has_details = groups.iter().any(|group| group.sentence.is_some());
    for group in groups {
        text += &group.text("");
    }
    if has_details && !in_detail {
        text += "--verbose shows the details of failures, and what to do\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_decide::wording::wait_reason;
    use penstock_model::Timestamp;

    fn file(file_id: u64, state: &str, text: &str, problem: Option<(&str, Side)>) -> ExplainedFile {
        ExplainedFile {
            file_id,
            state: state.into(),
            source: format!("https://a/{file_id}"),
            destination: format!("https://b/{file_id}"),
            text: text.into(),
            waiting: None,
            problem: problem.map(|(code, side)| FileProblem {
                code: code.into(),
                side: Some(side),
                message: "https://a answered 500".into(),
            }),
        }
    }

    fn check(files: Vec<ExplainedFile>, in_detail: bool, expected: &str) {
        let info = |file: &ExplainedFile| {
            serde_json::from_value(serde_json::json!({
                "file_id": file.file_id, "file_state": file.state, "source_surl": file.source,
                "dest_surl": file.destination, "filesize": 1_000_000, "tx_duration": file.file_id
            }))
            .expect("a file")
        };
        let infos: Vec<FileInfo> = files.iter().map(info).collect();
        let job = serde_json::json!({
            "job_id": "x", "job_state": "ACTIVE", "submit_time": "2026-11-26T10:00:00"
        });
        let job = serde_json::from_value(job).expect("a job");
        let whole = Whole {
            totals: JobTotals::of(&job, &infos),
            moving: None,
            slowest: slowest(&infos),
        };
        let explanation = Explanation {
            job_id: "x".into(),
            job_state: "ACTIVE".into(),
            files,
        };
        assert_eq!(text(&explanation, &whole, in_detail), expected);
    }

    #[test]
    fn files_with_one_reason_are_told_together_and_failures_first() {
        let waits = |id: u64| {
            let wait = TimeSpan::of_seconds(id * id * 3);
            let text = format!("waits: it failed once; retry in {wait}");
            file(id, "SUBMITTED", &text, None)
        };
        let lost = |id: u64, code| {
            let text = format!("failed after {id} attempts: SOURCE [5] https://a/{id} answered");
            file(id, "FAILED", &text, Some((code, Side::Source)))
        };
        let mut files: Vec<ExplainedFile> = (1..=7).map(waits).collect();
        files.push(file(9, "FINISHED", "arrived: 7 B in 1.00 s, pull", None));
        files.push(file(
            10,
            "FINISHED",
            "arrived: 7.1 GB in 2 min 5 s, pull",
            None,
        ));
        files.extend([
            lost(11, "path-not-found"),
            lost(12, "pool-offline"),
            lost(13, "pool-offline"),
        ]);
        check(
            files,
            false,
            "job x is ACTIVE: 2 of 12 files arrived, 2.0 MB; 3 failed; 7 queued\n\
             2 files failed at the source: The pool that holds the file is offline. [pool-offline]\n\
             \x20   for example 12 https://a/12 -> https://b/12\n\
             1 file failed at the source: The path does not exist. [path-not-found]\n\
             \x20   11 https://a/11 -> https://b/11\n\
             7 files queued: it failed once; retry in 3 s\n\
             \x20   for example 1 https://a/1 -> https://b/1\n\
             2 files arrived: 7 B in 1.00 s, pull\n\
             \x20   for example 9 https://a/9 -> https://b/9\n\
             --verbose shows the details of failures, and what to do\n",
        );
    }

    #[test]
    fn details_are_told_to_who_asks_and_where_a_code_says_little() {
        let lost = |code| {
            let text = "failed after 1 attempt: DESTINATION [5] https://a answered 500";
            file(4, "FAILED", text, Some((code, Side::Destination)))
        };
        let whole = "job x is ACTIVE: 0 of 1 file arrived, 0 B; 1 failed\n";
        check(
            vec![lost("pool-full")],
            true,
            &format!(
                "{whole}1 file failed at the destination: No pool has room for the file. [pool-full]\n\
                 \x20   details: failed after 1 attempt: DESTINATION [5] https://a answered 500\n\
                 \x20   what to do: Remove files, or ask the site's administrator for space.\n\
                 \x20   4 https://a/4 -> https://b/4\n"
            ),
        );
        check(
            vec![lost("peer-failed")],
            false,
            &format!(
                "{whole}1 file failed at the destination: The other end failed to do its part: https://a answered 500 \
                 [peer-failed]\n\
                 \x20   4 https://a/4 -> https://b/4\n\
                 --verbose shows the details of failures, and what to do\n"
            ),
        );
        check(
            vec![lost("of-a-later-version")],
            false,
            &format!(
                "{whole}1 file failed after 1 attempt: DESTINATION [5] https://a answered 500 [of-a-later-version]\n\
                 \x20   4 https://a/4 -> https://b/4\n"
            ),
        );
    }

    #[test]
    fn the_last_failure_of_a_queued_file_is_one_sentence_too() {
        let last = serde_json::json!({
            "side": "destination", "retry": "later", "phase": "preparation", "errno": 11,
            "detail": "https://b answered 503: all movers busy"
        });
        let last = serde_json::from_value(last).expect("a failure");
        let reason = WaitReason::BackingOff {
            until: Timestamp(40_000),
            failures: 2,
            last,
        };
        let text = format!("waits: {}", wait_reason(&reason, Timestamp(0)));
        let mut queued = file(4, "SUBMITTED", &text, None);
        queued.waiting = Some(serde_json::json!(reason));
        check(
            vec![queued],
            false,
            "job x is ACTIVE: 0 of 1 file arrived, 0 B; 1 queued\n\
             1 file queued: it failed 2 times; retry in 40 s; the last attempt failed at the destination: The other end \
             has too much to do.\n\
             \x20   4 https://a/4 -> https://b/4\n\
             --verbose shows the details of failures, and what to do\n",
        );
    }

    #[test]
    fn of_many_files_that_arrived_the_slowest_are_named() {
        let files = (1..=5).map(|id| file(id, "FINISHED", "arrived: 1 MB in 1 s, pull", None));
        check(
            files.collect(),
            false,
            "job x is ACTIVE: 5 of 5 files arrived, 5.0 MB\n\
             slowest: file 5 5.0 s, file 4 4.0 s, file 3 3.0 s\n\
             5 files arrived: 1 MB in 1 s, pull\n\
             \x20   for example 1 https://a/1 -> https://b/1\n",
        );
    }
}
