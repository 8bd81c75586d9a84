//! `penstock nodes`: the processes of a transfer service, which of them leads, and what runs where.

use super::{Intent, connect};
use crate::args::NodesArgs;
use crate::environment::Environment;
use crate::exit::CommandError;
use crate::output::Output;
use penstock_field_tools::transfer_api::{NodeInfo, NodesInfo};
use penstock_model::TimeSpan;

/// `penstock nodes`.
pub async fn run(
    args: NodesArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let service = connect(&args.service, Intent::Administer, environment)?;
    let found = service.nodes().await?;
    output.show(&found, || told(&found));
    Ok(())
}

fn told(found: &NodesInfo) -> String {
    if let (0, [alone]) = (found.epoch, &found.nodes[..]) {
        return format!("one process, without other nodes\n{}", line(alone));
    }
    let head = match &found.leader {
        Some(leader) => format!("leader: {leader} (epoch {})\n", found.epoch),
        None => "leader: none yet\n".to_owned(),
    };
    head + &found.nodes.iter().map(line).collect::<String>()
}

fn line(node: &NodeInfo) -> String {
    let NodeInfo {
        node: name,
        role,
        active,
        active_max,
        version,
        seen_seconds,
        ..
    } = node;
    let agents = format!("{active}/{active_max} agents");
    let seen = TimeSpan::of_seconds(*seen_seconds);
    format!("{name:24} {role:9} {agents:16} version {version:8} seen {seen} ago\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_has_a_line_below_who_leads() {
        let node = |name: &str, role: &str| NodeInfo {
            node: name.to_owned(),
            role: role.to_owned(),
            address: format!("{name}:8447"),
            active: 3,
            active_max: 500,
            version: "0.1.0".to_owned(),
            seen_seconds: 2,
        };
        let found = NodesInfo {
            node: "a".to_owned(),
            leader: Some("a".to_owned()),
            epoch: 7,
            nodes: vec![node("a", "leader"), node("b", "silent")],
        };
        let told = told(&found);
        let lines: Vec<&str> = told.lines().collect();
        assert_eq!(lines[0], "leader: a (epoch 7)");
        assert!(
            lines[2].starts_with("b ") && lines[2].contains("silent"),
            "{told}"
        );
    }
}
