//! The cells: what is measured, against which peer, with how many bytes. A cell moves at most 8 GB.

use crate::clients::ClientCell;
use crate::load::Bound;
use crate::relayed::cells::RelayCell;
use std::time::Duration;

/// The most that a cell may move.
pub const CELL_BYTES_MAX: u64 = 8_000_000_000;

/// Whom Penstock is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// nginx over TLS.
    NginxHttps,
    /// XRootD over TLS.
    XrootdHttps,
    /// nginx without TLS, beside Penstock's plain door.
    NginxHttp,
    /// An earlier binary of Penstock, over TLS.
    Earlier,
}

impl Peer {
    /// As in the names of cells.
    pub fn name(self) -> &'static str {
        match self {
            Peer::NginxHttps => "nginx-https",
            Peer::XrootdHttps => "xrootd-https",
            Peer::NginxHttp => "nginx-http",
            Peer::Earlier => "earlier",
        }
    }
}

/// How large the files are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// 0 bytes.
    Empty,
    /// 10^5 bytes.
    Small,
    /// 10^6 bytes.
    Megabyte,
    /// 10^9 bytes, in one file per client: 16 clients share them, because 16 GB would exceed the bound of a
    /// cell.
    Gigabyte,
}

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// New files.
    Put,
    /// Files just written, so from the page cache.
    Get,
    /// Questions about files, without their content.
    Head,
    /// Questions about the properties of files (PROPFIND, depth 0).
    Propfind,
    /// Removals of files made before the phase.
    Delete,
    /// Third-party copy, pull.
    Copy,
}

/// One cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cell {
    /// Durable creates on the bare file system with so many threads: what the disk allows.
    Disk(usize),
    /// Penstock beside a peer.
    Beside(Beside),
    /// The transfer service with two storage sites, end to end.
    ServiceSites,
    /// The same in turns with an earlier binary.
    ServiceSitesEarlier,
    /// The transfer service alone, with stubs for storage that take no time.
    ServiceStub,
    /// Memory of the transfer service while transfers are held active.
    ServiceMemory,
    /// Submissions in jobs of so many files.
    ServiceSubmit(usize),
    /// Questions about jobs of 100 files.
    ServiceStatus,
    /// From submission to start, with nothing else to do.
    ServiceStartIdle,
    /// From submission to start, with 100,000 files queued on 1,000 other links.
    ServiceStartBacklog,
    /// 5,000 transfers held active.
    ServiceInFlight,
    /// 1,000 transfers held active by a service that records and by one that does not.
    RecordInFlight,
    /// A million files queued.
    QueueMillion,
    /// Good files beside others on their link that cannot arrive.
    Hopeless,
    /// Copies without end, with a backup now and then.
    ServiceBackup(Between),
    /// Millions of events in a directory of records.
    Records,
    /// A day of 300 busy links in a journal.
    Explanations,
    /// Command-line clients.
    Client(ClientCell),
    /// Numbers of transfers over a network with delay, loss and a rate.
    Relay(RelayCell),
}

/// Between which storage a service moves files without end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Between {
    /// Two storage sites.
    Sites,
    /// Stubs that take no time.
    Stubs,
}

/// A cell with a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beside {
    /// What is done.
    pub kind: Kind,
    /// With which files.
    pub size: Size,
    /// At a time.
    pub clients: usize,
    /// Beside whom.
    pub peer: Peer,
}

/// How much of everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// For a result.
    Full {
        /// Interleaved pairs of a cell.
        pairs: usize,
    },
    /// To see that everything works; the figures mean nothing.
    Quick,
}

impl Scale {
    /// Interleaved pairs.
    pub fn pairs(self) -> usize {
        match self {
            Scale::Full { pairs } => pairs,
            Scale::Quick => 2,
        }
    }

    /// Runs of the transfer service, and files in each.
    pub fn service(self) -> (usize, u64) {
        match self {
            Scale::Full { .. } => (3, 5000),
            Scale::Quick => (1, 200),
        }
    }

    /// Transfers held active to measure memory.
    pub fn held(self) -> u64 {
        match self {
            Scale::Full { .. } => 500,
            Scale::Quick => 50,
        }
    }

    /// Transfers held active at once to measure all that the service needs.
    pub fn in_flight(self) -> u32 {
        match self {
            Scale::Full { .. } => 5000,
            Scale::Quick => 250,
        }
    }

    /// For each count of threads on the bare disk.
    pub fn disk_time(self) -> Duration {
        match self {
            Scale::Full { .. } => Duration::from_secs(2),
            Scale::Quick => Duration::from_millis(100),
        }
    }

    /// Written and removed before anything is measured.
    pub fn warm_up_bytes(self) -> u64 {
        match self {
            Scale::Full { .. } => 4_000_000_000,
            Scale::Quick => 0,
        }
    }
}

impl Cell {
    /// All of them, in the order in which they run.
    pub fn all() -> Vec<Cell> {
        let mut cells: Vec<Cell> = [1, 16].map(Cell::Disk).to_vec();
        let mut beside_by = |kind, peer, sizes: &[Size], clients: &[usize]| {
            for &size in sizes {
                for &clients in clients {
                    cells.push(Cell::Beside(Beside {
                        kind,
                        size,
                        clients,
                        peer,
                    }));
                }
            }
        };
        // Reads of small files by many clients at once. nginx has no PROPFIND.
        for peer in [Peer::NginxHttps, Peer::XrootdHttps, Peer::Earlier] {
            beside_by(Kind::Get, peer, &[Size::Empty], &[64, 350]);
            beside_by(Kind::Get, peer, &[Size::Small], &[1, 16, 64, 350]);
            beside_by(Kind::Head, peer, &[Size::Empty], &[64, 350]);
            if peer != Peer::NginxHttps {
                beside_by(Kind::Propfind, peer, &[Size::Empty], &[1, 16, 64, 350]);
            }
        }
        let mut beside = |kind, peer, sizes: &[Size]| beside_by(kind, peer, sizes, &[1, 16]);
        let all_sizes = [Size::Empty, Size::Megabyte, Size::Gigabyte];
        for peer in [Peer::NginxHttps, Peer::XrootdHttps, Peer::NginxHttp] {
            for kind in [Kind::Put, Kind::Get] {
                beside(kind, peer, &all_sizes);
            }
        }
        beside(Kind::Copy, Peer::XrootdHttps, &all_sizes);
        for peer in [Peer::NginxHttps, Peer::XrootdHttps, Peer::Earlier] {
            for kind in [Kind::Head, Kind::Delete] {
                beside(kind, peer, &[Size::Empty]);
            }
        }
        for kind in [Kind::Put, Kind::Get] {
            beside(kind, Peer::Earlier, &[Size::Empty, Size::Megabyte]);
        }
        beside(Kind::Copy, Peer::Earlier, &[Size::Empty]);
        // Memory first: an allocator keeps what earlier cells once needed, and would hide the growth.
        cells.extend([Cell::ServiceMemory, Cell::ServiceSites, Cell::ServiceStub]);
        cells.push(Cell::ServiceSitesEarlier);
        cells.extend([
            Cell::ServiceSubmit(200),
            Cell::ServiceSubmit(1),
            Cell::ServiceStatus,
            Cell::ServiceStartIdle,
            Cell::ServiceStartBacklog,
            Cell::ServiceInFlight,
            Cell::RecordInFlight,
            Cell::QueueMillion,
            Cell::Hopeless,
            Cell::ServiceBackup(Between::Sites),
            Cell::ServiceBackup(Between::Stubs),
            Cell::Records,
            Cell::Explanations,
        ]);
        cells.extend(ClientCell::ALL.map(Cell::Client));
        cells.extend(RelayCell::ALL.map(Cell::Relay));
        cells
    }

    /// True when the sites that the cells share are needed.
    pub fn needs_sites(&self) -> bool {
        match self {
            Cell::Beside(_)
            | Cell::ServiceSites
            | Cell::ServiceSitesEarlier
            | Cell::ServiceStub
            | Cell::ServiceMemory
            | Cell::Hopeless
            | Cell::Client(_)
            | Cell::ServiceBackup(Between::Sites) => true,
            Cell::Disk(_)
            | Cell::ServiceSubmit(_)
            | Cell::ServiceStatus
            | Cell::ServiceStartIdle
            | Cell::ServiceStartBacklog
            | Cell::ServiceInFlight
            | Cell::RecordInFlight
            | Cell::QueueMillion
            | Cell::ServiceBackup(Between::Stubs)
            | Cell::Records
            | Cell::Explanations
            | Cell::Relay(_) => false,
        }
    }

    /// True when the storage that takes no time is needed.
    pub fn needs_stub(&self) -> bool {
        !matches!(
            self,
            Cell::Disk(_)
                | Cell::Beside(_)
                | Cell::ServiceSites
                | Cell::ServiceSitesEarlier
                | Cell::Records
                | Cell::Client(_)
                | Cell::Relay(_)
        )
    }

    /// True when an earlier binary of Penstock is needed.
    pub fn needs_earlier(&self) -> bool {
        match self {
            Cell::Beside(beside) => beside.peer == Peer::Earlier,
            cell => *cell == Cell::ServiceSitesEarlier,
        }
    }

    /// For `--list` and `--only`.
    pub fn name(&self) -> String {
        match self {
            Cell::Disk(threads) => format!("disk-{threads}"),
            Cell::Beside(cell) => cell.name(),
            Cell::ServiceSites => "service-sites".to_owned(),
            Cell::ServiceSitesEarlier => "service-sites-earlier".to_owned(),
            Cell::ServiceStub => "service-stub".to_owned(),
            Cell::ServiceMemory => "service-memory".to_owned(),
            Cell::ServiceSubmit(files) => format!("service-submit-{files}"),
            Cell::ServiceStatus => "service-status".to_owned(),
            Cell::ServiceStartIdle => "service-start-idle".to_owned(),
            Cell::ServiceStartBacklog => "service-start-backlog".to_owned(),
            Cell::ServiceInFlight => "service-in-flight".to_owned(),
            Cell::RecordInFlight => "record-in-flight".to_owned(),
            Cell::QueueMillion => "queue-1m".to_owned(),
            Cell::Hopeless => "hopeless".to_owned(),
            Cell::ServiceBackup(Between::Sites) => "service-backup-sites".to_owned(),
            Cell::ServiceBackup(Between::Stubs) => "service-backup-stub".to_owned(),
            Cell::Records => "records".to_owned(),
            Cell::Explanations => "explain-300".to_owned(),
            Cell::Client(cell) => cell.name().to_owned(),
            Cell::Relay(cell) => cell.name().to_owned(),
        }
    }
}

impl Cell {
    /// No cell takes longer than its own time.
    pub fn timeout(&self) -> Duration {
        match self {
            Cell::Records | Cell::Client(_) => Duration::from_secs(3600),
            _ => Duration::from_secs(900),
        }
    }

    /// For `--list`: the name, and what it moves at most.
    pub fn description(&self, scale: Scale) -> String {
        match self {
            Cell::Beside(cell) => {
                let gigabytes = cell.bytes_max(scale) as f64 / 1e9;
                format!("{:28} {gigabytes:.1} GB at most", cell.name())
            }
            Cell::Disk(_)
            | Cell::ServiceSites
            | Cell::ServiceSitesEarlier
            | Cell::ServiceStub
            | Cell::ServiceMemory
            | Cell::ServiceSubmit(_)
            | Cell::ServiceStatus
            | Cell::ServiceStartIdle
            | Cell::ServiceStartBacklog
            | Cell::ServiceInFlight
            | Cell::RecordInFlight
            | Cell::QueueMillion
            | Cell::Hopeless
            | Cell::ServiceBackup(_)
            | Cell::Records
            | Cell::Explanations
            | Cell::Client(_)
            | Cell::Relay(_) => self.name(),
        }
    }
}

impl Beside {
    /// `put-1MB-16-nginx-https`.
    pub fn name(&self) -> String {
        let kind = match self.kind {
            Kind::Put => "put",
            Kind::Get => "get",
            Kind::Head => "head",
            Kind::Propfind => "propfind",
            Kind::Delete => "delete",
            Kind::Copy => "copy",
        };
        let size = match self.size {
            Size::Empty => "0B",
            Size::Small => "100kB",
            Size::Megabyte => "1MB",
            Size::Gigabyte => "1GB",
        };
        format!("{kind}-{size}-{}-{}", self.clients, self.peer.name())
    }

    /// Bytes of each file.
    pub fn file_bytes(&self, scale: Scale) -> u64 {
        let whole = match scale {
            Scale::Full { .. } => 1_000_000_000,
            Scale::Quick => 16_000_000,
        };
        match self.size {
            Size::Empty => 0,
            Size::Small => 100_000,
            Size::Megabyte => 1_000_000,
            Size::Gigabyte => whole / self.clients as u64,
        }
    }

    /// One phase of one server.
    pub fn bound(&self, scale: Scale) -> Bound {
        let seconds = |full: f64| match scale {
            Scale::Full { .. } => Duration::from_secs_f64(full),
            Scale::Quick => Duration::from_millis(150),
        };
        let (operations, time) = match (self.size, self.kind) {
            (Size::Empty, Kind::Put) => (20_000, seconds(1.5)),
            (Size::Empty, Kind::Get | Kind::Head | Kind::Propfind) => (200_000, seconds(1.5)),
            (Size::Empty, Kind::Delete) => (4_000, seconds(4.0)),
            (Size::Empty, Kind::Copy) => (2_000, seconds(2.0)),
            (Size::Small, _) => (8_000, seconds(1.5)),
            (Size::Megabyte, _) => (1_000, seconds(1.5)),
            (Size::Gigabyte, _) => (self.clients as u64, Duration::from_secs(60)),
        };
        Bound { operations, time }
    }

    /// Before the first pair, not counted: connections, caches, lazy allocations.
    pub fn warm_up(&self, scale: Scale) -> Bound {
        match (self.size, self.kind) {
            // Preparing the files has warmed reads up; one PUT of everything warms a large PUT up.
            (Size::Gigabyte, Kind::Put) => self.bound(scale),
            (Size::Gigabyte, _) => Bound {
                operations: 0,
                time: Duration::ZERO,
            },
            (Size::Empty | Size::Small | Size::Megabyte, _) => Bound {
                operations: 200,
                time: Duration::from_millis(200),
            },
        }
    }

    /// Files that reads and copies find at their source.
    pub fn source_files(&self) -> u64 {
        match (self.kind, self.size) {
            (Kind::Put | Kind::Delete, _) => 0,
            (_, Size::Empty | Size::Small | Size::Megabyte) => 64,
            (_, Size::Gigabyte) => self.clients as u64,
        }
    }

    /// The most bytes that this cell can move, both servers and preparation included.
    pub fn bytes_max(&self, scale: Scale) -> u64 {
        let file = self.file_bytes(scale);
        let pairs = scale.pairs() as u64;
        let phases = self.bound(scale).operations * pairs + self.warm_up(scale).operations;
        2 * file * (phases + self.source_files())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_cell_moves_more_than_it_may() {
        for cell in Cell::all() {
            let Cell::Beside(beside) = cell else { continue };
            for scale in [Scale::Full { pairs: 3 }, Scale::Quick] {
                let bytes = beside.bytes_max(scale);
                assert!(
                    bytes <= CELL_BYTES_MAX,
                    "{} {scale:?}: {bytes}",
                    cell.name()
                );
            }
        }
    }

    #[test]
    fn each_cell_has_a_name_of_its_own() {
        let names: BTreeSet<String> = Cell::all().iter().map(Cell::name).collect();
        assert_eq!(names.len(), Cell::all().len());
        assert!(names.contains("copy-1GB-16-xrootd-https"));
    }
}
