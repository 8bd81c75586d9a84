//! Facts of this host, its disks and its interfaces, read below `/proc` and `/sys`. Of file systems only the table of
//! mounts is read, never they themselves: one that hangs would hold the reader up.

use super::disks::{self, DeviceNumber};
use super::facts::{Facts, tidy};
use super::interfaces::{self, InterfaceRole};
use super::mounts::{self, Mount};
use super::process::{self, Limit};
use super::report::{DiskInfo, InterfaceInfo};
use super::{memory, processor};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Disks that are looked at: those below the site's directories first.
const DISKS_MAX: usize = 128;
/// The fact of how many files the process may have open.
pub const OPEN_FILES: &str = "limit open files";
const INTERFACES_MAX: usize = 64;
/// What decides how fast TCP can be; by their names below `/proc/sys`.
const SETTINGS: [&str; 13] = [
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "net.core.rmem_max",
    "net.core.wmem_max",
    "net.ipv4.tcp_congestion_control",
    "net.core.default_qdisc",
    "net.ipv4.tcp_mtu_probing",
    "net.ipv4.tcp_no_metrics_save",
    "net.ipv4.tcp_window_scaling",
    "net.ipv4.tcp_sack",
    "net.ipv4.tcp_timestamps",
    "vm.dirty_ratio",
    "vm.dirty_background_ratio",
];
/// Devices that are no disks.
const NO_DISKS: [&str; 5] = ["loop", "ram", "zram", "sr", "fd"];

/// What operators said of the host.
#[derive(Debug, Clone, Default)]
pub struct HostDeclaration {
    /// Roles of interfaces. Where none is WAN, that of the default route is.
    pub roles: BTreeMap<String, InterfaceRole>,
    /// Directories of the site by what they are called: pools by their names.
    pub directories: Vec<(String, PathBuf)>,
}

/// The host as it stands.
#[derive(Debug, Clone, Default)]
pub struct Machine {
    /// By name.
    pub facts: Facts,
    pub processors: Option<u32>,
    /// Files that this process may have open.
    pub open_files_max: Option<u64>,
    /// In the order of the kernel.
    pub interfaces: Vec<InterfaceInfo>,
    /// Those below the site's directories first.
    pub disks: Vec<DiskInfo>,
}

/// Where files of the kernel are: `/`, and another directory in tests.
struct Files<'a>(&'a Path);

impl Files<'_> {
    fn bytes(&self, path: &str) -> Option<Vec<u8>> {
        fs::read(self.0.join(path)).ok()
    }

    fn text(&self, path: &str) -> Option<String> {
        let bytes = self.bytes(path)?;
        let text = tidy(&String::from_utf8_lossy(&bytes));
        (!text.is_empty()).then_some(text)
    }
}

/// Reads all of it. What cannot be read is a fact without a value.
pub fn look(root: &Path, declared: &HostDeclaration) -> Machine {
    let files = Files(root);
    let mut machine = Machine::default();
    machine.add_host(&files);
    machine.add_interfaces(&files, declared);
    machine.add_disks(&files, declared);
    machine
}

impl Machine {
    fn note(&mut self, name: impl Into<String>, value: Option<String>) {
        self.facts.insert(name.into(), value);
    }

    fn add_host(&mut self, files: &Files<'_>) {
        for name in SETTINGS {
            let path = format!("proc/sys/{}", name.replace('.', "/"));
            self.note(name, files.text(&path));
        }
        self.note("kernel", files.text("proc/sys/kernel/osrelease"));
        let stat = files
            .bytes("proc/stat")
            .and_then(|text| processor::parse(&text).ok());
        self.processors = stat.map(|stat| stat.processors);
        self.note(
            "processors",
            self.processors.map(|number| number.to_string()),
        );
        let memory = files
            .bytes("proc/meminfo")
            .and_then(|text| memory::parse(&text).ok());
        let mebibytes = memory.map(|memory| (memory.total_bytes >> 20).to_string());
        self.note("memory MiB", mebibytes);
        let limits = files.bytes("proc/self/limits");
        let limits = limits.and_then(|text| process::parse_limits(&text).ok());
        self.open_files_max = limits.and_then(|limits| match limits.open_files {
            Limit::AtMost(number) => Some(number),
            Limit::Unlimited => None,
        });
        self.note(
            OPEN_FILES,
            limits.map(|limits| limits.open_files.to_string()),
        );
        self.note(
            "limit processes",
            limits.map(|limits| limits.processes.to_string()),
        );
    }

    fn add_interfaces(&mut self, files: &Files<'_>, declared: &HostDeclaration) {
        let table = files.bytes("proc/net/dev").unwrap_or_default();
        let routes = files.bytes("proc/net/route").unwrap_or_default();
        let default = interfaces::default_route(&routes).ok().flatten();
        let has_wan = declared
            .roles
            .values()
            .any(|role| *role == InterfaceRole::Wan);
        let role_of = |name: &str| match declared.roles.get(name) {
            Some(role) => Some(*role),
            None if name == "lo" => Some(InterfaceRole::Internal),
            None => (!has_wan && default == Some(name)).then_some(InterfaceRole::Wan),
        };
        for (name, _) in interfaces::parse(&table)
            .unwrap_or_default()
            .into_iter()
            .take(INTERFACES_MAX)
        {
            let told = |what: &str| files.text(&format!("sys/class/net/{name}/{what}"));
            let info = InterfaceInfo {
                name: name.to_owned(),
                role: role_of(name),
                speed_bytes_per_second: told("speed")
                    .and_then(|text| interfaces::parse_speed(&text)),
                mtu_bytes: told("mtu").and_then(|text| text.parse().ok()),
                state: told("operstate"),
            };
            let speed = info
                .speed_bytes_per_second
                .map(|speed| (speed / 125_000).to_string());
            if speed.is_some() {
                self.note(format!("interface {name} speed Mbit/s"), speed);
            }
            self.note(
                format!("interface {name} mtu"),
                info.mtu_bytes.map(|mtu| mtu.to_string()),
            );
            self.note(format!("interface {name} state"), info.state.clone());
            self.interfaces.push(info);
        }
    }

    fn add_disks(&mut self, files: &Files<'_>, declared: &HostDeclaration) {
        let table = files.bytes("proc/diskstats").unwrap_or_default();
        let lines = disks::parse(&table).unwrap_or_default();
        let mounts = files.bytes("proc/self/mountinfo").unwrap_or_default();
        let mounts = mounts::parse(&mounts).unwrap_or_default();
        let mut holds: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, path) in &declared.directories {
            let mount = mounts::below(&mounts, path);
            self.note(
                format!("{name} file system"),
                mount.map(|mount| mount.kind.clone()),
            );
            self.note(
                format!("{name} mount options"),
                mount.map(|mount| mount.options.clone()),
            );
            let disk = mount.and_then(|mount| disk_of(files, mount, &lines));
            self.note(format!("{name} device"), disk.clone());
            if let Some(disk) = disk {
                holds.entry(disk).or_default().push(name.clone());
            }
        }
        let mut found: Vec<DiskInfo> = lines
            .iter()
            .filter(|line| {
                holds.contains_key(line.name) || is_whole_disk(files, line.name, line.device)
            })
            .map(|line| DiskInfo {
                name: line.name.to_owned(),
                device: line.device.to_string(),
                holds: holds.get(line.name).cloned().unwrap_or_default(),
                model: of_device(files, line.device, "model"),
            })
            .collect();
        found.sort_by_key(|disk| disk.holds.is_empty());
        found.truncate(DISKS_MAX);
        for disk in &found {
            self.add_disk(files, disk);
        }
        self.disks = found;
    }

    /// Only what there is: virtual disks have neither a model nor a scheduler.
    fn add_disk(&mut self, files: &Files<'_>, disk: &DiskInfo) {
        let Some(device) = DeviceNumber::parse(&disk.device) else {
            return;
        };
        let firmware = ["firmware_rev", "rev"].iter();
        let firmware = firmware
            .copied()
            .find_map(|name| of_device(files, device, name));
        let queue = |name: &str| files.text(&format!("sys/dev/block/{device}/queue/{name}"));
        for (what, value) in [
            ("model", disk.model.clone()),
            ("firmware", firmware),
            ("scheduler", queue("scheduler")),
            ("read ahead kB", queue("read_ahead_kb")),
        ] {
            if value.is_some() {
                self.note(format!("disk {} {what}", disk.name), value);
            }
        }
    }
}

/// Of a partition, what its disk says.
fn of_device(files: &Files<'_>, device: DeviceNumber, what: &str) -> Option<String> {
    let own = files.text(&format!("sys/dev/block/{device}/device/{what}"));
    own.or_else(|| files.text(&format!("sys/dev/block/{device}/../device/{what}")))
}

fn is_whole_disk(files: &Files<'_>, name: &str, device: DeviceNumber) -> bool {
    let is_none = NO_DISKS.iter().any(|kind| {
        let rest = name.strip_prefix(kind);
        rest.is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()))
    });
    let partition = files.0.join(format!("sys/dev/block/{device}/partition"));
    !is_none && !partition.exists()
}

/// The name in `/proc/diskstats` of what a file system lies on; `None` where it is no disk of this host.
fn disk_of(files: &Files<'_>, mount: &Mount, lines: &[disks::DiskLine<'_>]) -> Option<String> {
    let by_number = lines.iter().find(|line| line.device == mount.device);
    if let Some(line) = by_number {
        return Some(line.name.to_owned());
    }
    // File systems over several disks have numbers of their own, and name one of these.
    let source = mount.source.strip_prefix("/dev/")?;
    let path = files.0.join("dev").join(source);
    let real = path.canonicalize().unwrap_or(path);
    let name = real.file_name()?.to_str()?;
    let by_name = lines.iter().find(|line| line.name == name)?;
    Some(by_name.name.to_owned())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A host of files: two interfaces, a disk with a partition, and a pool on it.
    pub fn host() -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a directory");
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("below")).expect("made");
            fs::write(path, text).expect("written");
        };
        write("proc/sys/net/ipv4/tcp_wmem", "4096\t16384\t4194304\n");
        write(
            "proc/stat",
            "cpu 1 2 3 4 5 6 7 8\ncpu0 1 2 3 4\ncpu1 1 2 3 4\n",
        );
        write("proc/meminfo", "MemTotal: 2048 kB\nMemAvailable: 1024 kB\n");
        write(
            "proc/self/limits",
            "Max processes 5 5 x\nMax open files 1024 4096 files\n",
        );
        write(
            "proc/self/stat",
            "7 (x) S 1 7 7 0 -1 0 1 0 0 0 250 50 0 0 20 0 11 0 100 1000 3 1",
        );
        let counters = "1 2 0 0 0 0 0 0 3 4 0 0 0 0 0 0";
        write(
            "proc/net/dev",
            &format!("a\nb\nlo: {counters}\neth0: {counters}\nib0: {counters}\n"),
        );
        write(
            "proc/net/route",
            "Iface\tDestination\nib0\t00000000\t0\t3\t0\t0\t0\t00000000\n",
        );
        write("sys/class/net/eth0/speed", "25000\n");
        write("sys/class/net/eth0/mtu", "9000\n");
        write("sys/class/net/eth0/operstate", "up\n");
        write(
            "proc/diskstats",
            "8 0 sda 1 2 3 4 5 6 7 8 9 10 11\n8 1 sda1 1 2 3 4 5 6 7 8 9 10 11\n\
             8 2 sda2 1 2 3 4 5 6 7 8 9 10 11\n7 0 loop0 1 2 3 4 5 6 7 8 9 10 11\n",
        );
        write("sys/dev/block/8:1/partition", "1\n");
        write("sys/dev/block/8:2/partition", "2\n");
        write("sys/dev/block/8:0/device/model", "HGST   HUS726\n");
        write("sys/dev/block/8:0/device/rev", "A5GN\n");
        write(
            "proc/self/mountinfo",
            "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 8:2 / /data rw,noatime - xfs /dev/sda2 rw\n",
        );
        root
    }

    pub fn declared(roles: &[(&str, InterfaceRole)]) -> HostDeclaration {
        HostDeclaration {
            roles: roles
                .iter()
                .map(|(name, role)| ((*name).to_owned(), *role))
                .collect(),
            directories: vec![("pool disk1".into(), "/data/pool".into())],
        }
    }

    #[test]
    fn facts_are_found_and_what_is_missing_is_not_readable() {
        let root = host();
        let machine = look(root.path(), &declared(&[]));
        let fact = |name: &str| machine.facts.get(name).cloned().flatten();
        assert_eq!(
            fact("net.ipv4.tcp_wmem").as_deref(),
            Some("4096 16384 4194304")
        );
        assert_eq!(machine.facts.get("kernel"), Some(&None));
        assert_eq!(fact("memory MiB").as_deref(), Some("2"));
        assert_eq!(fact("pool disk1 file system").as_deref(), Some("xfs"));
        assert_eq!(
            fact("pool disk1 mount options").as_deref(),
            Some("rw,noatime")
        );
        assert_eq!(fact("disk sda model").as_deref(), Some("HGST HUS726"));
        assert_eq!(fact("disk sda firmware").as_deref(), Some("A5GN"));
        assert_eq!(
            (machine.processors, machine.open_files_max),
            (Some(2), Some(1024))
        );
    }

    #[test]
    fn disks_are_whole_ones_and_the_partition_of_a_pool() {
        let root = host();
        let machine = look(root.path(), &declared(&[]));
        let names: Vec<&str> = machine
            .disks
            .iter()
            .map(|disk| disk.name.as_str())
            .collect();
        assert_eq!(names, ["sda2", "sda"]);
        assert_eq!(machine.disks[0].holds, ["pool disk1"]);
    }

    #[test]
    fn the_default_route_is_wan_unless_another_interface_was_declared() {
        let root = host();
        let roles = |declared: &HostDeclaration| -> Vec<Option<InterfaceRole>> {
            let machine = look(root.path(), declared);
            machine.interfaces.iter().map(|one| one.role).collect()
        };
        use InterfaceRole::{Hsm, Internal, Wan};
        assert_eq!(roles(&declared(&[])), [Some(Internal), None, Some(Wan)]);
        let eth = declared(&[("eth0", Wan)]);
        assert_eq!(roles(&eth), [Some(Internal), Some(Wan), None]);
        let tape = declared(&[("ib0", Hsm)]);
        assert_eq!(roles(&tape), [Some(Internal), None, Some(Hsm)]);
    }

    #[test]
    fn a_directory_without_any_file_of_the_kernel_is_no_error() {
        let empty = tempfile::tempdir().expect("a directory");
        let machine = look(empty.path(), &declared(&[]));
        assert!(machine.facts.values().all(Option::is_none) && !machine.facts.is_empty());
        let real = look(Path::new("/"), &HostDeclaration::default());
        assert!(real.processors.is_some_and(|number| number > 0));
    }
}
