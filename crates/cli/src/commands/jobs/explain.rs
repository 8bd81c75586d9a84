//! `penstock explain`: why rates fell, why each file of a job waits or failed, or the story of one transfer. The service
//! words the reasons; here they are grouped.

mod rates;

use super::{Intent, connect};
use crate::args::ExplainArgs;
use crate::environment::Environment;
use crate::exit::CommandError;
use crate::output::Output;
use penstock_decide::explain::RateChangeId;
use penstock_field_tools::remote_error::RemoteError;
use penstock_model::text::one_line;
use serde::Deserialize;

/// Files listed one by one under each reason; the rest is counted. `--json` has all.
const FILES_LISTED: usize = 5;

#[derive(Debug, Deserialize)]
struct Explanation {
    lines: Vec<String>,
    files: Vec<ExplainedFile>,
}

#[derive(Debug, Deserialize)]
struct ExplainedFile {
    file_id: u64,
    source: String,
    destination: String,
    text: String,
}

/// What is to be explained.
#[derive(Debug, PartialEq, Eq)]
enum Subject {
    /// Where rates fell and rose.
    Rates { link: Option<String> },
    /// One of these changes.
    Drop(String),
    /// A transfer by its number.
    Transfer(u64),
    /// A job by its id.
    Job(String),
    /// The latest transfer of a file, by one of its addresses or a part of it.
    File(String),
}

/// `penstock explain`.
pub async fn run(
    args: ExplainArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let subject = subject(&args)?;
    match &subject {
        Subject::Rates { .. } | Subject::Drop(_) => {}
        Subject::Transfer(_) | Subject::Job(_) | Subject::File(_) => {
            let record = &args.record;
            let is_of_rates = record.since.is_some()
                || record.until.is_some()
                || record.offline
                || record.records.is_some();
            if is_of_rates || record.resolution.is_some() {
                return Err(CommandError::Usage(
                    "--since, --until, --resolution, --offline and --records are for rates and drops".into(),
                ));
            }
        }
    }
    match subject {
        Subject::Rates { link } => {
            let is_named = args.subject.as_deref() == Some("link");
            let named = args.name.as_deref().filter(|_| is_named);
            rates::list(&args.record, link, named, environment, output).await
        }
        Subject::Drop(id) => rates::one(&args.record, &id, environment, output).await,
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
const WORDS: [&str; 6] = ["drop", "transfer", "job", "file", "path", "link"];

fn subject(args: &ExplainArgs) -> Result<Subject, CommandError> {
    let (subject, name) = (args.subject.as_deref(), args.name.as_deref());
    let number = |name: &str| {
        name.parse().map_err(|_| {
            CommandError::Usage(format!(
                "'{name}' is no number of a transfer; `penstock find` shows them"
            ))
        })
    };
    let found = match (subject, name) {
        (None, _) => Subject::Rates {
            link: args.record.link.clone(),
        },
        (Some("drop"), Some(id)) => Subject::Drop(id.to_owned()),
        (Some("transfer"), Some(name)) => Subject::Transfer(number(name)?),
        (Some("job"), Some(id)) => Subject::Job(id.to_owned()),
        (Some("file" | "path"), Some(address)) => Subject::File(address.to_owned()),
        (Some("link"), Some(link)) => Subject::Rates {
            link: Some(link.to_owned()),
        },
        (Some(word), None) if WORDS.contains(&word) => {
            return Err(CommandError::Usage(format!(
                "'{word}' needs a name: penstock explain {word} NAME"
            )));
        }
        (Some(word), Some(_)) => {
            return Err(CommandError::Usage(format!(
                "'{word}' is none of the words that a name may follow: {}",
                WORDS.join(", ")
            )));
        }
        (Some(id), None) => match (id.parse(), id.parse::<RateChangeId>()) {
            (Ok(number), _) => Subject::Transfer(number),
            (_, Ok(_)) => Subject::Drop(id.to_owned()),
            _ => Subject::Job(id.to_owned()),
        },
    };
    match (&found, &args.record.link) {
        (Subject::Rates { .. }, _) | (_, None) => Ok(found),
        _ => Err(CommandError::Usage("--link is for rates".into())),
    }
}

async fn job(
    args: &ExplainArgs,
    id: &str,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let service = connect(&args.record.service, Intent::Manage, environment)?;
    let answer = match service.explain(id).await {
        // A service without this question says 404 too, but knows the job.
        Err(RemoteError::NotFound { .. }) if service.job(id).await.is_ok() => {
            return Err(CommandError::Usage(
                "this service cannot explain its jobs; see `penstock status --files`".to_owned(),
            ));
        }
        other => other?,
    };
    let explanation: Explanation = serde_json::from_value(answer.clone()).map_err(|why| {
        CommandError::Unreachable(format!("the service's explanation makes no sense: {why}"))
    })?;
    output.show(&answer, || text(&explanation));
    Ok(())
}

fn text(explanation: &Explanation) -> String {
    let mut text: String = explanation
        .lines
        .iter()
        .map(|line| format!("{}\n", one_line(line)))
        .collect();
    // In the order in which the reasons first appear, which is that of the submission.
    let mut reasons: Vec<(&str, Vec<&ExplainedFile>)> = Vec::new();
    for file in &explanation.files {
        match reasons.iter_mut().find(|(reason, _)| *reason == file.text) {
            Some((_, files)) => files.push(file),
            None => reasons.push((&file.text, vec![file])),
        }
    }
    for (reason, files) in reasons {
        text += &format!("\n{} file(s): {}\n", files.len(), one_line(reason));
        for file in files.iter().take(FILES_LISTED) {
            text += &format!(
                "  {} {} -> {}\n",
                file.file_id,
                one_line(&file.source),
                one_line(&file.destination)
            );
        }
        if files.len() > FILES_LISTED {
            text += &format!("  … and {} more\n", files.len() - FILES_LISTED);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Arguments, Command};
    use clap::Parser;

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
        let link = |link: &str| Subject::Rates {
            link: Some(link.to_owned()),
        };
        assert_eq!(told(""), Ok(Subject::Rates { link: None }));
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
        for (line, part) in [
            ("drop", "'drop' needs a name"),
            ("transfer x", "no number of a transfer"),
            ("vo cms", "none of the words"),
            ("4711 --link a-b", "--link is for rates"),
        ] {
            let refused = told(line).expect_err(line);
            assert!(refused.contains(part), "{line}: {refused}");
        }
    }

    #[test]
    fn files_with_one_reason_are_told_together() {
        let file = |file_id: u64, text: &str| ExplainedFile {
            file_id,
            source: format!("https://a/{file_id}"),
            destination: format!("https://b/{file_id}"),
            text: text.into(),
        };
        let mut files: Vec<ExplainedFile> =
            (1..=7).map(|id| file(id, "the link is full")).collect();
        files.insert(1, file(9, "it arrived"));
        let explanation = Explanation {
            lines: vec!["job x is ACTIVE: 8 files".into()],
            files,
        };
        assert_eq!(
            text(&explanation),
            "job x is ACTIVE: 8 files\n\
             \n7 file(s): the link is full\n  1 https://a/1 -> https://b/1\n  2 https://a/2 -> https://b/2\n\
             \x20 3 https://a/3 -> https://b/3\n  4 https://a/4 -> https://b/4\n\
             \x20 5 https://a/5 -> https://b/5\n\
             \x20 … and 2 more\n\
             \n1 file(s): it arrived\n  9 https://a/9 -> https://b/9\n"
        );
    }
}
