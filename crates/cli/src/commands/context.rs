//! `penstock context`, `completion` and `man`: what makes the command line handy.

use crate::args::{self, CompletionArgs, ContextAddArgs, ContextCommand, ManArgs};
use crate::contexts::{Context, Contexts};
use crate::environment::Environment;
use crate::exit::CommandError;
use crate::output::Output;
use clap_mangen::Man;
use penstock_durable_file::make_directory;
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};

/// What there is.
#[derive(Debug, Serialize)]
struct ContextsReport {
    file: String,
    current: Option<String>,
    contexts: Vec<ContextRow>,
}

#[derive(Debug, Serialize)]
struct ContextRow {
    name: String,
    #[serde(flatten)]
    context: Context,
}

/// `penstock context`.
pub fn run(
    command: ContextCommand,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let file = Contexts::file(environment)?;
    let mut contexts = Contexts::load(&file)?;
    let said = match command {
        ContextCommand::Add(args) => add(&mut contexts, *args)?,
        ContextCommand::List => {
            show(&contexts, &file, output);
            return Ok(());
        }
        ContextCommand::Use(args) => {
            if let Some(name) = &args.name {
                contexts.named(name)?;
            }
            contexts.current = args.name;
            match &contexts.current {
                Some(name) => format!("{name} is now in use"),
                None => "no context is in use now".to_owned(),
            }
        }
        ContextCommand::Remove(args) => {
            contexts.named(&args.name)?;
            contexts.all.remove(&args.name);
            if contexts.current.as_ref() == Some(&args.name) {
                contexts.current = None;
            }
            format!("removed the context {}", args.name)
        }
    };
    contexts.save(&file)?;
    output.say(said);
    if output.json {
        show(&contexts, &file, output);
    }
    Ok(())
}

fn add(contexts: &mut Contexts, args: ContextAddArgs) -> Result<String, CommandError> {
    Contexts::check_name(&args.name)?;
    let absolute = |path: Option<PathBuf>| {
        let made = path.map(|path| {
            std::path::absolute(&path).map_err(|why| CommandError::local(path.display(), why))
        });
        made.transpose()
    };
    let context = Context {
        dir: absolute(args.dir)?,
        service: args.service,
        door: args.door,
        token_file: absolute(args.token_file)?,
        token_for: args.token_for,
        capath: absolute(args.capath)?,
    };
    if context == Context::default() {
        return Err(CommandError::Usage(
            "a context needs at least --dir, or --service and --token-file".to_owned(),
        ));
    }
    if context.token_file.is_some() && context.token_servers().is_empty() {
        return Err(CommandError::Usage(
            "the token of a context goes only to the servers of the context: give --service, --door or --token-for as well"
                .to_owned(),
        ));
    }
    if let Some(dir) = &context.dir
        && !dir.join("penstock.toml").is_file()
    {
        return Err(CommandError::Usage(format!(
            "{} is not a site directory: it has no penstock.toml",
            dir.display()
        )));
    }
    contexts.all.insert(args.name.clone(), context);
    if args.is_used {
        contexts.current = Some(args.name.clone());
    }
    Ok(match contexts.current.as_ref() == Some(&args.name) {
        true => format!("{} is now in use", args.name),
        false => format!(
            "saved {0}; use it with --context {0} or `penstock context use {0}`",
            args.name
        ),
    })
}

fn show(contexts: &Contexts, file: &Path, output: Output) {
    let rows = contexts.all.iter().map(|(name, context)| ContextRow {
        name: name.clone(),
        context: context.clone(),
    });
    let report = ContextsReport {
        file: file.display().to_string(),
        current: contexts.current.clone(),
        contexts: rows.collect(),
    };
    output.show(&report, || {
        let row = |row: &ContextRow| {
            let mark = match report.current.as_ref() == Some(&row.name) {
                true => '*',
                false => ' ',
            };
            let context = &row.context;
            let path =
                |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
            let parts = [
                path(&context.dir),
                context.service.as_ref().map(ToString::to_string),
                context.door.as_ref().map(ToString::to_string),
            ];
            let parts: Vec<String> = parts.into_iter().flatten().collect();
            format!("{mark} {:16} {}\n", row.name, parts.join(" "))
        };
        match report.contexts.is_empty() {
            true => "No contexts. Add one with `penstock context add NAME --dir DIR`.\n".to_owned(),
            false => report.contexts.iter().map(row).collect(),
        }
    });
}

/// `penstock completion`.
pub fn complete(args: &CompletionArgs, output: Output) -> Result<(), CommandError> {
    let mut text = Vec::new();
    let mut command = args::definition();
    clap_complete::generate(args.shell, &mut command, "penstock", &mut text);
    let text = String::from_utf8_lossy(&text).into_owned();
    if output.json {
        let report = serde_json::json!({ "shell": args.shell.to_string(), "script": text });
        output.show(&report, String::new);
        return Ok(());
    }
    // It is a program's, tabs and all.
    let written = std::io::stdout().write_all(text.as_bytes());
    written.map_err(|why| CommandError::local("standard output", why))
}

/// `penstock man`.
pub fn write_pages(args: &ManArgs, output: Output) -> Result<(), CommandError> {
    let directory = &args.dir_for_pages;
    make_directory(directory, 0o755)
        .map_err(|why| CommandError::local(directory.display(), why))?;
    let mut command = args::definition();
    command.build();
    let mut written = Vec::new();
    write_page(&command, "penstock", directory, &mut written)?;
    let report = serde_json::json!({ "directory": directory, "pages": written });
    output.show(&report, || {
        format!(
            "{} pages in {}: man -l {}\n",
            written.len(),
            directory.display(),
            directory.join("penstock.1").display()
        )
    });
    Ok(())
}

/// One page, and those of the commands below: `penstock-trust-add.1`.
fn write_page(
    command: &clap::Command,
    name: &str,
    directory: &Path,
    written: &mut Vec<String>,
) -> Result<(), CommandError> {
    let file = format!("{name}.1");
    let path = directory.join(&file);
    let mut page = Vec::new();
    let rendered = Man::new(command.clone()).title(name).render(&mut page);
    rendered
        .and_then(|()| std::fs::File::create(&path)?.write_all(&page))
        .map_err(|why| CommandError::local(path.display(), why))?;
    written.push(file);
    for below in command.get_subcommands() {
        if below.is_hide_set() || below.get_name() == "help" {
            continue;
        }
        let name = format!("{name}-{}", below.get_name());
        write_page(below, &name, directory, written)?;
    }
    Ok(())
}
