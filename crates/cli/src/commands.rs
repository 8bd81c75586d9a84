//! The commands of people: each reads what was typed, does it, and says what came of it.

mod access;
mod access_links;
mod account;
mod authz;
mod backup;
mod batch_result;
mod context;
mod copy;
mod demo;
mod files;
mod fsck;
mod history;
mod host;
mod import_fts3;
mod ingest;
mod jobs;
mod key;
mod mv;
mod own_sources;
mod progress;
mod rebuild;
mod records;
mod settings;
mod share;
mod simulate;
mod space;
mod stage;
mod sync;
mod tape;
mod token;
mod top;
mod trash;
mod trust;
mod what_if;

use crate::args::{AuthzCommand, Command, GfalAgentArgs};
use crate::environment::Environment;
use crate::exit::CommandError;
use crate::output::Output;
use crate::site;
use penstock_protocol::gfal::ReadablePaths;
use penstock_protocol::gfal::child::{self, Limits};

/// Runs what was typed.
pub fn run(
    command: Command,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    match command {
        Command::Init(args) => site::init::run(&args, output),
        Command::Token(args) => token::run(args, environment, output),
        Command::Key(command) => key::run(command, environment, output),
        Command::Serve(args) => in_runtime(site::serve::run(args, environment, output)),
        Command::Trust(command) => in_runtime(trust::run(command, output)),
        Command::Authz(AuthzCommand::Test(args)) => in_runtime(authz::run(args, output)),
        Command::Check(args) => in_runtime(site::check::run(args, environment, output)),
        Command::Demo(args) => in_runtime(demo::run(args, environment, output)),
        Command::Submit(args) => in_runtime(jobs::submit::run(args, environment, output)),
        Command::Status(args) => in_runtime(jobs::status(args, environment, output)),
        Command::List(args) => in_runtime(jobs::list(args, environment, output)),
        Command::Cancel(args) => in_runtime(jobs::cancel(args, environment, output)),
        Command::Top(args) => in_runtime(top::run(args, environment, output)),
        Command::Ban(command) => in_runtime(jobs::ban::run(command, environment, output)),
        Command::Find(args) => in_runtime(jobs::find::run(args, environment, output)),
        Command::Nodes(args) => in_runtime(jobs::nodes::run(args, environment, output)),
        Command::Explain(args) => in_runtime(jobs::explain::run(args, environment, output)),
        Command::Incidents(args) => in_runtime(jobs::incidents::run(*args, environment, output)),
        Command::Mute(command) => in_runtime(settings::mute(command, environment, output)),
        Command::Copy(args) => in_runtime(copy::run(args, environment, output)),
        Command::Sync(args) => in_runtime(sync::run(args, environment, output)),
        Command::Mv(args) => in_runtime(mv::run(args, environment, output)),
        Command::Du(args) => in_runtime(space::du(args, environment, output)),
        Command::Df(args) => in_runtime(space::df(args, environment, output)),
        Command::Ls(args) => in_runtime(files::ls(args, environment, output)),
        Command::Stat(args) => in_runtime(files::stat(args, environment, output)),
        Command::Rm(args) => in_runtime(files::rm(args, environment, output)),
        Command::Mkdir(args) => in_runtime(files::mkdir(args, environment, output)),
        Command::Cat(args) => in_runtime(files::cat(args, environment, output)),
        Command::Share(args) => in_runtime(share::run(args, environment, output)),
        Command::Checksum(args) => in_runtime(files::checksum(args, environment, output)),
        Command::Stage(args) => in_runtime(stage::run(args, environment, output)),
        Command::Release(args) => in_runtime(stage::release(args, environment, output)),
        Command::Link(command) => in_runtime(settings::link(command, environment, output)),
        Command::Se(command) => in_runtime(settings::se(command, environment, output)),
        Command::VoShare(command) => in_runtime(settings::shares::vo(command, environment, output)),
        Command::Activity(command) => {
            in_runtime(settings::shares::activity(command, environment, output))
        }
        Command::Authorize(command) => {
            in_runtime(settings::authorize(command, environment, output))
        }
        Command::CloudStorage(command) => {
            in_runtime(settings::cloud_storage(command, environment, output))
        }
        Command::Drain(args) => in_runtime(settings::drain(args, environment, output)),
        Command::ImportFts3(args) => in_runtime(import_fts3::run(args, environment, output)),
        Command::LoginLink(args) => in_runtime(access_links::login(args, environment, output)),
        Command::ViewLink(args) => in_runtime(access_links::view(args, environment, output)),
        Command::AccessLink(command) => in_runtime(access_links::run(command, environment, output)),
        Command::Audit(args) => in_runtime(settings::audit(args, environment, output)),
        Command::Simulate(args) => simulate::run(&args, output),
        Command::WhatIf(args) => what_if::run(&args, output),
        Command::History(args) => history::run(&args, environment, output),
        Command::Host(args) => in_runtime(host::run(args, environment, output)),
        Command::Backup(args) => backup::run(&args, environment, output),
        Command::Restore(args) => backup::put_back(&args, environment, output),
        Command::Fsck(args) => fsck::run(&args, output),
        Command::Rebuild(args) => rebuild::run(&args, output),
        Command::Trash(command) => in_runtime(trash::run(command, environment, output)),
        Command::Ingest(args) => in_runtime(ingest::run(args, output)),
        Command::Records(command) => records::run(command, output),
        Command::Account(args) => account::run(&args, output),
        Command::Tape(command) => in_runtime(tape::run(command, environment, output)),
        Command::Context(command) => context::run(command, environment, output),
        Command::Completion(args) => context::complete(&args, output),
        Command::Man(args) => context::write_pages(&args, output),
        Command::GfalAgent(args) => gfal_agent(args),
    }
}

/// Outside any runtime: it starts with one thread.
fn gfal_agent(args: GfalAgentArgs) -> Result<(), CommandError> {
    let readable = ReadablePaths {
        paths: args.readable,
        trusted: args.trusted,
    };
    let limits = Limits {
        service: args.service,
        memory_bytes_max: args.memory.map(|size| size.0),
        account: args.account,
        readable: (!args.unconfined).then_some(readable),
    };
    child::run(&limits).map_err(|why| CommandError::local("gfal-agent", why))
}

fn in_runtime(command: impl Future<Output = Result<(), CommandError>>) -> Result<(), CommandError> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|why| CommandError::local("cannot start the asynchronous runtime", why))?
        .block_on(command)
}
