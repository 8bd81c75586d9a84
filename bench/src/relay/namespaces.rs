//! Network namespaces with one interface each, made for a run and removed with it.

use super::device;
use crate::error::BenchError;
use crate::work_directory::run;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::process::Command;

/// What the addresses of a run are in: set aside for benchmarks (RFC 2544, 198.18.0.0/15).
const NETWORK: [u8; 3] = [198, 18, 0];
const PREFIX: &str = "24";
/// As on wide-area links without jumbo frames.
const MTU: &str = "1500";

/// A namespace that only packets through its interface enter or leave.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    /// The address of its interface.
    pub address: Ipv4Addr,
}

impl Namespace {
    /// Makes it, with the interface's other end. `number` is the last part of its address.
    pub fn make(number: u8) -> Result<(Namespace, OwnedFd), BenchError> {
        let name = format!("penstock-{}-{number}", std::process::id());
        run(Command::new("ip").args(["netns", "add", &name]))?;
        let namespace = Namespace {
            name,
            address: address(number),
        };
        let interface = interface_name(number);
        let device = device::make(&interface)?;
        run(Command::new("ip").args(["link", "set", &interface, "netns", &namespace.name]))?;
        let inside = |arguments: &[&str]| {
            let mut command = Command::new("ip");
            run(command.args(["-n", &namespace.name]).args(arguments)).map(|_| ())
        };
        inside(&["link", "set", "lo", "up"])?;
        set_up(&interface, namespace.address, inside)?;
        Ok((namespace, device))
    }

    /// A command that runs in it.
    pub fn command(&self, program: &std::path::Path) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name]).arg(program);
        command
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if let Err(why) = run(Command::new("ip").args(["netns", "delete", &self.name])) {
            eprintln!("clean-up: {why}");
        }
    }
}

/// An interface for this very process, beside its own network.
pub fn own_interface(number: u8) -> Result<(Ipv4Addr, OwnedFd), BenchError> {
    let interface = interface_name(number);
    let device = device::make(&interface)?;
    let here = |arguments: &[&str]| run(Command::new("ip").args(arguments)).map(|_| ());
    set_up(&interface, address(number), here)?;
    Ok((address(number), device))
}

fn set_up(
    interface: &str,
    address: Ipv4Addr,
    ip: impl Fn(&[&str]) -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    let with_prefix = format!("{address}/{PREFIX}");
    ip(&["address", "add", &with_prefix, "dev", interface])?;
    ip(&["link", "set", interface, "mtu", MTU, "up"])
}

fn address(number: u8) -> Ipv4Addr {
    let [a, b, c] = NETWORK;
    Ipv4Addr::new(a, b, c, number)
}

fn interface_name(number: u8) -> String {
    format!("pen{}n{number}", std::process::id() % 1_000_000)
}
