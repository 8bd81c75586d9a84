//! How `penstock --help` lists the commands: by what they are for. What is the same for many commands stands there once.

use clap::{Arg, Command};
use std::fmt::Write;

/// Which commands belong together, in the order in which they are shown.
const GROUPS: [(&str, &[&str]); 7] = [
    (
        "Site",
        &[
            "demo", "init", "serve", "check", "trust", "token", "key", "authz", "nodes", "host",
            "history", "backup", "restore", "fsck", "rebuild", "trash",
        ],
    ),
    (
        "Files",
        &[
            "copy", "sync", "ls", "stat", "cat", "mkdir", "mv", "rm", "du", "df", "checksum",
            "share", "stage", "release",
        ],
    ),
    (
        "Jobs",
        &[
            "submit",
            "status",
            "list",
            "cancel",
            "find",
            "top",
            "view-link",
        ],
    ),
    (
        "Settings",
        &[
            "link",
            "se",
            "vo-share",
            "activity",
            "authorize",
            "cloud-storage",
            "ban",
            "drain",
            "audit",
            "login-link",
            "access-link",
            "import-fts3",
        ],
    ),
    (
        "Explain",
        &[
            "explain",
            "incidents",
            "mute",
            "what-if",
            "simulate",
            "account",
        ],
    ),
    ("Tape", &["tape"]),
    (
        "Tools",
        &["ingest", "records", "context", "completion", "man"],
    ),
];
/// Commands that stand in no group, which a test does not let pass.
const REST: &str = "Further";
/// The options by which commands reach servers, but for --dir, which says most.
const ACCESS: [&str; 4] = ["token", "token_file", "capath", "token_over_http"];
/// A command that has them all.
const WITH_ACCESS: &str = "ls";
const COLUMNS: usize = 108;
const NAME_COLUMNS: usize = 15;

/// The command with its help in this form.
pub fn arranged(command: Command) -> Command {
    let groups = groups(&command);
    let access = access(&command);
    let template = format!(
        "{{before-help}}{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n\
         {groups}Options:\n{{options}}\n\n{access}{{after-help}}"
    );
    without_access(command).help_template(template)
}

fn groups(command: &Command) -> String {
    let mut text = String::new();
    let line = |sub: &Command| {
        let about = sub.get_about().map(ToString::to_string);
        row(sub.get_name(), NAME_COLUMNS, &about.unwrap_or_default())
    };
    let shown = |sub: &&Command| !sub.is_hide_set();
    for (heading, names) in GROUPS {
        let _ = writeln!(text, "{heading}:");
        for name in names {
            let mut all = command.get_subcommands().filter(shown);
            text.extend(all.find(|sub| sub.get_name() == *name).map(line));
        }
        text.push('\n');
    }
    let grouped = |name: &str| GROUPS.iter().any(|(_, names)| names.contains(&name));
    let rest = command.get_subcommands().filter(shown);
    let rest: String = rest
        .filter(|sub| !grouped(sub.get_name()))
        .map(line)
        .collect();
    if !rest.is_empty() {
        let _ = writeln!(text, "{REST}:\n{rest}");
    }
    text
}

/// What the options of access mean, which the help of each command leaves out.
fn access(command: &Command) -> String {
    let with = command.find_subcommand(WITH_ACCESS);
    let args = with.into_iter().flat_map(Command::get_arguments);
    let named = args.filter(|arg| ACCESS.contains(&arg.get_id().as_str()));
    let rows: String = named.map(option_rows).collect();
    format!("Access (all commands that contact servers):\n{rows}\n")
}

fn option_rows(arg: &Arg) -> String {
    let long = arg.get_long().unwrap_or_default();
    let value = match arg.get_action().takes_values() {
        true => arg.get_value_names().and_then(|names| names.first()),
        false => None,
    };
    let value = value.map(|value| format!(" <{value}>")).unwrap_or_default();
    let help = arg.get_long_help().or(arg.get_help());
    let help = help.map(ToString::to_string).unwrap_or_default();
    row(&format!("--{long}{value}"), NAME_COLUMNS + 10, &help)
}

/// A name and what it means, in two columns.
fn row(name: &str, name_columns: usize, text: &str) -> String {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        let columns = line.chars().count() + 1 + word.chars().count();
        if !line.is_empty() && name_columns + 3 + columns > COLUMNS {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line += word;
    }
    lines.push(line);
    let mut out = String::new();
    for (number, line) in lines.iter().enumerate() {
        let name = if number == 0 { name } else { "" };
        let _ = writeln!(out, "  {name:name_columns$} {line}");
    }
    out
}

/// Leaves the options of access out of the help of commands, which tells where they are told.
fn without_access(command: Command) -> Command {
    let mut command = command;
    let has = |id: &str| command.get_arguments().any(|arg| arg.get_id() == id);
    if ACCESS.iter().all(|id| has(id)) {
        for id in ACCESS {
            command = command.mut_arg(id, |arg| arg.hide(true));
        }
        let after = command.get_after_help().map(ToString::to_string);
        let pointer =
            "See `penstock --help` for --token-file, --capath and other options of access.";
        command = command.after_help(match after {
            Some(after) => format!("{after}\n\n{pointer}"),
            None => pointer.to_owned(),
        });
    }
    let names = command.get_subcommands();
    let names: Vec<String> = names.map(|sub| sub.get_name().to_owned()).collect();
    for name in names {
        command = command.mut_subcommand(name, without_access);
    }
    command
}

#[cfg(test)]
mod tests {
    use super::super::{command, definition};
    use super::*;

    #[test]
    fn each_command_stands_in_one_group() {
        let definition = definition();
        let shown = definition
            .get_subcommands()
            .filter(|sub| !sub.is_hide_set());
        let mut names: Vec<&str> = shown.map(Command::get_name).collect();
        let mut grouped: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, names)| names.iter().copied())
            .collect();
        names.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(names, grouped);
    }

    #[test]
    fn what_access_means_is_told_once() {
        let mut command = command();
        let whole = command.render_help().to_string();
        for told in [
            "Site:\n  demo ",
            "Files:\n  copy ",
            "Tape:\n",
            "--token-file <FILE>",
            "Exit codes:",
        ] {
            assert!(whole.contains(told), "{told}: {whole}");
        }
        let list = command.find_subcommand_mut("list").expect("there");
        let help = list.render_long_help().to_string();
        assert!(
            !help.contains("bt_u$UID") && help.contains("options of access"),
            "{help}"
        );
        assert!(help.contains("--dir"), "{help}");
    }

    #[test]
    fn long_texts_are_broken_between_words() {
        let text = "word ".repeat(60);
        let rows = row("name", 10, &text);
        assert!(rows.lines().count() > 2);
        assert!(rows.lines().all(|line| line.chars().count() <= COLUMNS));
        assert!(
            rows.lines()
                .skip(1)
                .all(|line| line.starts_with("             word"))
        );
    }
}
