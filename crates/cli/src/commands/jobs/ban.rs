//! `penstock ban`: keeps storage elements and users away from a transfer service, and lets them back.

use super::{Intent, connect, in_utc};
use crate::args::{BanCommand, BanListArgs, BanRemoveArgs, BanStorageArgs, BanUserArgs};
use crate::environment::Environment;
use crate::exit::CommandError;
use crate::output::Output;
use penstock_field_tools::transfer_api::{BanInfo, StorageBanRequest};
use penstock_model::text::plural;
use serde::Serialize;

#[derive(Serialize)]
struct BanReport {
    banned: String,
    jobs: Vec<String>,
}

/// `penstock ban`.
pub async fn run(
    command: BanCommand,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    match command {
        BanCommand::Se(args) => ban_storage(args, environment, output).await,
        BanCommand::Dn(args) => ban_user(args, environment, output).await,
        BanCommand::List(args) => list(args, environment, output).await,
        BanCommand::Remove(args) => remove(args, environment, output).await,
    }
}

async fn ban_storage(
    args: BanStorageArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let service = connect(&args.service, Intent::Administer, environment)?;
    let ban = StorageBanRequest {
        storage: args.storage.clone(),
        vo: args.vo,
        wait: args.wait,
        allow_submit: args.allow_submit,
        timeout_seconds: args.timeout.map_or(0, |time| time.0.as_secs()),
        message: args.message,
    };
    let jobs = service.ban_storage(&ban).await?;
    show_imposed(args.storage, jobs, output);
    Ok(())
}

async fn ban_user(
    args: BanUserArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let service = connect(&args.service, Intent::Administer, environment)?;
    let jobs = service.ban_user(&args.user, &args.message).await?;
    show_imposed(args.user, jobs, output);
    Ok(())
}

fn show_imposed(banned: String, jobs: Vec<String>, output: Output) {
    let imposed = BanReport { banned, jobs };
    output.show(&imposed, || {
        let mut text = format!(
            "{} is banned; {} affected\n",
            imposed.banned,
            plural(imposed.jobs.len() as u64, "job")
        );
        imposed
            .jobs
            .iter()
            .for_each(|job| text += &format!("  {job}\n"));
        text
    });
}

async fn list(
    args: BanListArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let service = connect(&args.service, Intent::Administer, environment)?;
    let bans = service.bans().await?;
    output.show(&bans, || match bans.is_empty() {
        true => "no bans\n".to_owned(),
        false => bans.iter().map(ban_line).collect(),
    });
    Ok(())
}

fn ban_line(ban: &BanInfo) -> String {
    let what = ban_text(ban);
    format!(
        "{what}  since {} by {}\n",
        in_utc(&ban.addition_time),
        ban.admin_dn
    )
}

fn ban_text(ban: &BanInfo) -> String {
    let banned = ban.se.as_ref().or(ban.dn.as_ref());
    let mut text = banned.map(String::as_str).unwrap_or("?").to_owned();
    if let Some(status) = &ban.status {
        text += &format!("  {status}");
    }
    if let Some(vo) = &ban.vo {
        text += &format!("  VO {vo}");
    }
    if !ban.message.is_empty() {
        text += &format!("  ({})", ban.message);
    }
    text
}

async fn remove(
    args: BanRemoveArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let service = connect(&args.service, Intent::Administer, environment)?;
    // Subjects have no scheme.
    match args.banned.contains("://") {
        true => {
            service
                .unban_storage(&args.banned, args.vo.as_deref())
                .await?
        }
        false => service.unban_user(&args.banned).await?,
    }
    let lifted = serde_json::json!({"lifted": args.banned});
    output.show(&lifted, || format!("{} is no longer banned\n", args.banned));
    Ok(())
}
