//! `penstock explain`: why rates fell, why each file of a job waits or failed, or the story of one transfer or path. The service
//! words the reasons; here they are grouped.

mod path;
mod rates;

use super::live::{LiveBytes, Moving};
use super::{Intent, connect};
use crate::args::ExplainArgs;
use crate::args::population::NamedPopulation;
use crate::environment::Environment;
use crate::exit::CommandError;
use crate::output::Output;
use penstock_decide::explain::RateChangeId;
use penstock_field_tools::remote_error::RemoteError;
use penstock_field_tools::transfer_api::TransferService;
use penstock_model::NamespacePath;
use penstock_model::failure_text::without_particulars;
use penstock_model::text::one_line;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::HashMap;

#[derive(Debug, Deserialize)]
struct Explanation {
    lines: Vec<String>,
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

/// Why a file failed; the rest is in the text.
#[derive(Debug, Deserialize)]
struct FileProblem {
    code: String,
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
}

impl FileGroup {
    fn of(file: &ExplainedFile) -> FileGroup {
        FileGroup {
            files: 0,
            state: file.state.clone(),
            code: file.problem.as_ref().map(|problem| problem.code.clone()),
            example_file_id: file.file_id,
            example_source: file.source.clone(),
            example_destination: file.destination.clone(),
            text: file.text.clone(),
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

    /// For people.
    pub fn line(&self) -> String {
        let example = format!(
            "{} {} -> {}",
            self.example_file_id,
            one_line(&self.example_source),
            one_line(&self.example_destination)
        );
        let which = match self.files {
            1 => format!("1 file, {example}"),
            many => format!("{many} files, for example {example}"),
        };
        let code = self.code.as_ref();
        let code = code.map_or_else(String::new, |code| format!(" [{}]", one_line(code)));
        format!("{which}: {}{code}", one_line(&self.text))
    }
}

/// Files with one reason together: numbers and names in it differ from file to file.
fn grouped<'a>(files: impl IntoIterator<Item = &'a ExplainedFile>) -> Vec<FileGroup> {
    let mut places: HashMap<(&str, Option<&str>, String), usize> = HashMap::new();
    let mut groups: Vec<FileGroup> = Vec::new();
    for file in files {
        let code = file.problem.as_ref().map(|problem| &*problem.code);
        let reason = (&*file.state, code, without_amounts(&file.text));
        let place = *places.entry(reason).or_insert(groups.len());
        if place == groups.len() {
            groups.push(FileGroup::of(file));
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
    Ok(grouped(
        answer.files.iter().filter(|file| file.waiting.is_some()),
    ))
}

fn read(answer: serde_json::Value) -> Result<Explanation, CommandError> {
    serde_json::from_value(answer).map_err(CommandError::unreadable_answer)
}

/// What is to be explained.
#[derive(Debug, PartialEq, Eq)]
enum Subject {
    /// Where rates fell and rose.
    Rates(Option<NamedPopulation>),
    /// One of these changes.
    Drop(String),
    /// A transfer by its number.
    Transfer(u64),
    /// A job by its id.
    Job(String),
    /// The latest transfer of a file, by one of its addresses or a part of it.
    File(String),
    /// A path of a storage element.
    Path(NamespacePath),
}

/// `penstock explain`.
pub async fn run(
    args: ExplainArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let subject = subject(&args)?;
    match &subject {
        Subject::Rates(_) | Subject::Drop(_) => {}
        Subject::Transfer(_) | Subject::Job(_) | Subject::File(_) => {
            let record = &args.record;
            let is_of_rates = record.since.is_some()
                || record.until.is_some()
                || record.offline
                || record.records.is_some();
            if is_of_rates || record.resolution.is_some() {
                return Err(CommandError::Usage(
                    "--since, --until, --resolution, --offline and --records apply to rates and drops only".into(),
                ));
            }
        }
        Subject::Path(_) => {
            if args.record.records.is_some() || args.record.resolution.is_some() {
                return Err(CommandError::Usage(
                    "--records and --resolution do not apply to paths, which are read from the storage element's own record"
                        .into(),
                ));
            }
        }
    }
    match subject {
        Subject::Rates(named) => {
            rates::list(&args.record, named.as_ref(), environment, output).await
        }
        Subject::Drop(id) => rates::one(&args.record, &id, environment, output).await,
        Subject::Path(path) => path::tell(&args.record, &path, environment, output).await,
        Subject::Transfer(number) => {
            let service = connect(&args.record.service, Intent::Manage, environment)?;
            super::find::show_story(&service.story(number).await?, output)
        }
        Subject::Job(id) => job(&args, &id, environment, output).await,
        Subject::File(address) => {
            let service = connect(&args.record.service, Intent::Manage, environment)?;
            let number = super::find::latest_of(&service, &address).await?;
            super::find::show_story(&service.story(number).await?, output)
        }
    }
}

/// The words that say what a name is of.
const WORDS: [&str; 9] = [
    "drop", "transfer", "job", "file", "path", "link", "vo", "server", "pool",
];

fn subject(args: &ExplainArgs) -> Result<Subject, CommandError> {
    let (subject, name) = (args.subject.as_deref(), args.name.as_deref());
    let number = |name: &str| {
        name.parse().map_err(|_| {
            CommandError::Usage(format!(
                "'{name}' is not a transfer number; `penstock find` shows them"
            ))
        })
    };
    let found = match (subject, name) {
        (None, _) => Subject::Rates(args.record.population.named()),
        (Some("drop"), Some(id)) => Subject::Drop(id.to_owned()),
        (Some("transfer"), Some(name)) => Subject::Transfer(number(name)?),
        (Some("job"), Some(id)) => Subject::Job(id.to_owned()),
        (Some("file"), Some(address)) => Subject::File(address.to_owned()),
        (Some("path"), Some(name)) => path_subject(args, name)?,
        (Some(word), None) if WORDS.contains(&word) => {
            return Err(CommandError::Usage(format!(
                "'{word}' needs a name: penstock explain {word} NAME"
            )));
        }
        (Some(word), Some(name)) => match NamedPopulation::of(word, name) {
            Some(named) => Subject::Rates(Some(named)),
            None => {
                return Err(CommandError::Usage(format!(
                    "unknown word '{word}'; expected one of: {}",
                    WORDS.join(", ")
                )));
            }
        },
        (Some(id), None) => match (id.parse(), id.parse::<RateChangeId>()) {
            (Ok(number), _) => Subject::Transfer(number),
            (_, Ok(_)) => Subject::Drop(id.to_owned()),
            _ => Subject::Job(id.to_owned()),
        },
    };
    match (&found, subject, args.record.population.named()) {
        (_, _, None) | (Subject::Rates(_), None, _) => Ok(found),
        _ => Err(CommandError::Usage(
            "--link, --vo, --server and --pool select rates; they cannot be combined with a job, transfer, file, drop or \
             another name"
                .into(),
        )),
    }
}

/// A path of the storage element, or its address there. An address elsewhere is one of a transfer.
fn path_subject(args: &ExplainArgs, name: &str) -> Result<Subject, CommandError> {
    let path = match name.starts_with('/') {
        true => NamespacePath::parse(name).map(Some),
        false => path::own_path(&args.record.service, name)?,
    };
    let path = path.map_err(|why| CommandError::Usage(format!("'{}': {why}", one_line(name))))?;
    Ok(path.map_or_else(|| Subject::File(name.to_owned()), Subject::Path))
}

async fn job(
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
    let live = LiveBytes::of(&service, &[id.to_owned()]).await;
    let moving = live.of_job(id);
    if let (Some(moving), Some(object)) = (&moving, answer.as_object_mut()) {
        object.insert("moving".to_owned(), serde_json::json!(moving));
    }
    output.show(&answer, || text(&explanation, moving.as_ref()));
    Ok(())
}

fn text(explanation: &Explanation, moving: Option<&Moving>) -> String {
    let mut text: String = explanation
        .lines
        .iter()
        .map(|line| format!("{}\n", one_line(line)))
        .collect();
    if let Some(moving) = moving {
        text += &format!("{}\n", moving.text());
    }
    for group in grouped(&explanation.files) {
        text += &format!("{}\n", group.line());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Arguments, Command};
    use clap::Parser;
    use penstock_model::TimeSpan;

    fn told(line: &str) -> Result<Subject, String> {
        let words = ["penstock", "explain"].into_iter().chain(line.split(' '));
        let words = words.filter(|word| !word.is_empty());
        let parsed = Arguments::try_parse_from(words).map_err(|why| why.to_string())?;
        match parsed.command {
            Command::Explain(args) => subject(&args).map_err(|why| why.to_string()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_name_says_what_it_is_or_a_word_before_it_does() {
        let named =
            |word, name| Subject::Rates(Some(NamedPopulation::of(word, name).expect("a word")));
        let link = |link| named("link", link);
        assert_eq!(told(""), Ok(Subject::Rates(None)));
        assert_eq!(told("--vo cms"), Ok(named("vo", "cms")));
        assert_eq!(told("pool p1"), Ok(named("pool", "p1")));
        assert_eq!(told("--server a"), Ok(named("server", "a")));
        assert_eq!(told("--link a-b"), Ok(link("a-b")));
        assert_eq!(told("link a-b"), Ok(link("a-b")));
        assert_eq!(told("4711"), Ok(Subject::Transfer(4711)));
        assert_eq!(told("transfer 4711"), Ok(Subject::Transfer(4711)));
        let id = "6931bd80-1c9a44f2";
        assert_eq!(told(id), Ok(Subject::Drop(id.to_owned())));
        assert_eq!(told("drop x"), Ok(Subject::Drop("x".to_owned())));
        let job = "0192d3a4-0192-7000-8000-0192d3a40192";
        assert_eq!(told(job), Ok(Subject::Job(job.to_owned())));
        assert_eq!(told("job 17"), Ok(Subject::Job("17".to_owned())));
        assert_eq!(
            told("path https://a/f"),
            Ok(Subject::File("https://a/f".to_owned()))
        );
        let path = NamespacePath::parse("/d/f").expect("a path");
        assert_eq!(told("path /d/f"), Ok(Subject::Path(path)));
        for (line, part) in [
            ("drop", "'drop' needs a name"),
            ("transfer x", "is not a transfer number"),
            ("path /a/../b", "'/a/../b'"),
            ("activity cms", "unknown word 'activity'"),
            ("4711 --link a-b", "select rates"),
            ("link a-b --vo cms", "select rates"),
            ("--link a-b --vo cms", "cannot be used with"),
        ] {
            let refused = told(line).expect_err(line);
            assert!(refused.contains(part), "{line}: {refused}");
        }
    }

    #[test]
    fn files_with_one_reason_are_told_together_and_failures_first() {
        let file = |file_id: u64, state: &str, text: String, code: Option<&str>| ExplainedFile {
            file_id,
            state: state.into(),
            source: format!("https://a/{file_id}"),
            destination: format!("https://b/{file_id}"),
            text,
            waiting: None,
            problem: code.map(|code| FileProblem { code: code.into() }),
        };
        let waits = |id: u64| {
            let wait = TimeSpan::of_seconds(id * id * 3);
            let text = format!("waits: it failed once; retry in {wait}");
            file(id, "SUBMITTED", text, None)
        };
        let lost = |id: u64, code| {
            let text = format!("failed after 3 attempts: SOURCE [5] https://a/{id} answered 503");
            file(id, "FAILED", text, Some(code))
        };
        let mut files: Vec<ExplainedFile> = (1..=7).map(waits).collect();
        files.insert(
            1,
            file(9, "FINISHED", "arrived: 7 B in 1.00 s, pull".into(), None),
        );
        let large = "arrived: 7.1 GB in 2 min 5 s, pull";
        files.push(file(10, "FINISHED", large.into(), None));
        files.extend([
            lost(11, "path-not-found"),
            lost(12, "pool-offline"),
            lost(13, "pool-offline"),
        ]);
        let explanation = Explanation {
            lines: vec!["job x is ACTIVE: 12 files".into()],
            files,
        };
        assert_eq!(
            text(&explanation, None),
            "job x is ACTIVE: 12 files\n\
             2 files, for example 12 https://a/12 -> https://b/12: failed after 3 attempts: SOURCE [5] https://a/12 \
             answered 503 [pool-offline]\n\
             1 file, 11 https://a/11 -> https://b/11: failed after 3 attempts: SOURCE [5] https://a/11 answered 503 \
             [path-not-found]\n\
             7 files, for example 1 https://a/1 -> https://b/1: waits: it failed once; retry in 3 s\n\
             2 files, for example 9 https://a/9 -> https://b/9: arrived: 7 B in 1.00 s, pull\n"
        );
    }
}
