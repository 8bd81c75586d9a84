//! `penstock explain`: why rates fell, why each file of a job waits or failed, or the story of one transfer or path. The service
//! words the reasons.

pub mod job;
mod path;
mod rates;

use super::{Intent, connect};
use crate::args::ExplainArgs;
use crate::args::population::NamedPopulation;
use crate::environment::Environment;
use crate::exit::CommandError;
use crate::output::Output;
use penstock_decide::explain::RateChangeId;
use penstock_model::NamespacePath;
use penstock_model::text::one_line;

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
    if args.verbose && !matches!(subject, Subject::Job(_)) {
        return Err(CommandError::Usage("--verbose applies to jobs only".into()));
    }
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
        Subject::Job(id) => job::tell(&args, &id, environment, output).await,
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
}
