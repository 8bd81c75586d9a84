//! `penstock explain`: why each file of a job waits or failed, or the story of one transfer. The service words the
//! reasons; here they are grouped.

use super::{Intent, connect};
use crate::args::ExplainArgs;
use crate::environment::Environment;
use crate::exit::CommandError;
use crate::output::Output;
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

/// `penstock explain`.
pub async fn run(
    args: ExplainArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let service = connect(&args.service, Intent::Manage, environment)?;
    if let Ok(number) = args.job.parse() {
        let told = service.story(number).await?;
        return super::find::show_story(&told, output);
    }
    let answer = match service.explain(&args.job).await {
        // A service without this question says 404 too, but knows the job.
        Err(RemoteError::NotFound { .. }) if service.job(&args.job).await.is_ok() => {
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
