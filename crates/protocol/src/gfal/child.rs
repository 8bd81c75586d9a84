//! The child: loads gfal2, says which plug-ins there are, takes the orders of one attempt, and ends.
//!
//! One thread works with the library; one reads orders, so that a cancel is seen while the library works; one waits for
//! SIGTERM. When the service closes the pipe, or dies, the child ends.

use super::confine::{self, Account, ReadablePaths, SecretFile};
use super::files::OpenableFiles;
use super::library::{Gfal, News};
use super::wire::{
    self, CopyOrder, GfalError, Order, OrderResult, PIECE_BYTES_MAX, Report, Setup, WhichEnd,
};
use crate::checksum::Hasher;
use parking_lot::Mutex;
use penstock_model::ChecksumAlgorithm;
use rustix::stdio::{dup2_stdin, dup2_stdout};
use std::fs::File;
use std::io::{self, BufReader, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

/// Orders, and pieces of a file, that may wait.
const ORDERS_MAX: usize = 4;
/// How often a copy through the child tells how far it is.
const NEWS_EVERY: Duration = Duration::from_millis(500);
/// How long the library may take to give up. Then the process ends without it.
const CANCEL_GRACE: Duration = Duration::from_secs(10);
/// Bytes that pass through the child at once.
const BUFFER_BYTES: usize = 4 << 20;

/// How a child is confined.
#[derive(Debug, Clone)]
pub struct Limits {
    /// The process id of the service that started it.
    pub service: u32,
    /// Bytes of address space. `None`: no limit.
    pub memory_bytes_max: Option<u64>,
    /// The account that it works as. `None`: that of the service.
    pub account: Option<Account>,
    /// The files that it may open. `None`: it is not confined, neither in that nor in its connections.
    pub readable: Option<ReadablePaths>,
}

/// Runs the child to its end. To be called in a process that has done nothing yet.
///
/// Errors: it could not begin, or the service does not speak its language.
pub fn run(limits: &Limits) -> io::Result<()> {
    confine::begin(limits.service, limits.memory_bytes_max)?;
    let (orders, reports) = take_pipes()?;
    let mut orders = BufReader::new(File::from(orders));
    let reports = Reports(Arc::new(Mutex::new(reports)));
    if let Err(why) = confine::become_account(limits.service, limits.account) {
        let why = format!("a gfal process cannot change to its account: {why}");
        return reports.send(&Report::Unusable { why });
    }
    let (proxy, key) = (SecretFile::create("proxy")?, SecretFile::create("key")?);
    confine::name_proxy(proxy.path());
    confine::hold_termination();
    if let Some(readable) = &limits.readable {
        let openable = confine::openable(readable, &[&proxy, &key]);
        match confine::confine(readable) {
            Ok(listener) => hand_over(listener, openable, &reports, &mut orders)?,
            Err(why) => {
                let why = format!(
                    "a gfal process cannot be confined: {why}; transfer.gfal.confinement = \"off\" would use \
                     gfal2 without that, so that a storage element could read and write this service's files"
                );
                return reports.send(&Report::Unusable { why });
            }
        }
    }
    let gfal = match Gfal::load() {
        Ok(gfal) => Arc::new(gfal),
        Err(why) => return reports.send(&Report::Unusable { why }),
    };
    let named = gfal.name_proxy_where_it_stays_here(proxy.path());
    if let Err(why) = named {
        let why = format!("gfal2 does not take a proxy: {why}");
        return reports.send(&Report::Unusable { why });
    }
    let version = gfal.version();
    let plugins = gfal.plugins();
    reports.send(&Report::Ready { version, plugins })?;
    let canceled = gfal.clone();
    std::thread::Builder::new().spawn(move || {
        confine::await_termination();
        give_up(&canceled);
    })?;
    let (to_worker, received) = sync_channel(ORDERS_MAX);
    let canceled = gfal.clone();
    std::thread::Builder::new().spawn(move || {
        let why = read_orders(orders, move |received| to_worker.send(received).is_ok());
        if let Err(why) = why {
            eprintln!("penstock gfal-agent: {why}");
        }
        give_up(&canceled);
    })?;
    let worker = Worker {
        gfal,
        reports,
        received,
        proxy,
        key,
        has_copied: false,
    };
    let ended = worker.work();
    confine::leave(i32::from(ended.is_err()))
}

/// Lets the service take the descriptor by which files and connections are judged, and closes it here: who has it may
/// answer.
fn hand_over(
    listener: OwnedFd,
    openable: OpenableFiles,
    reports: &Reports,
    orders: &mut BufReader<File>,
) -> io::Result<()> {
    let number = listener.as_raw_fd();
    reports.send(&Report::Confined {
        listener: number,
        openable,
    })?;
    match wire::read_line::<Order>(orders)? {
        Some(Order::Supervised) => Ok(()),
        _ => Err(io::Error::other(
            "the service does not judge what this opens",
        )),
    }
}

/// The pipes to the service, out of reach of what libraries read and print.
fn take_pipes() -> io::Result<(OwnedFd, File)> {
    let orders = rustix::io::dup(rustix::stdio::stdin())?;
    let reports = rustix::io::dup(rustix::stdio::stdout())?;
    dup2_stdin(File::open("/dev/null")?)?;
    dup2_stdout(rustix::stdio::stderr())?;
    Ok((orders, File::from(reports)))
}

/// Ends what the library does, and the process when it does not.
fn give_up(gfal: &Arc<Gfal>) {
    let canceled = gfal.clone();
    // It returns only when the library has given up.
    let asked = std::thread::Builder::new().spawn(move || canceled.cancel());
    if asked.is_ok() {
        std::thread::sleep(CANCEL_GRACE);
    }
    confine::leave(1);
}

/// An order, with the bytes behind it.
struct OrderFrame {
    order: Order,
    piece: Vec<u8>,
}

/// Reads until the service has closed, cancels, or nobody takes more.
fn read_orders(
    mut from: BufReader<File>,
    mut take: impl FnMut(OrderFrame) -> bool,
) -> io::Result<()> {
    while let Some(order) = wire::read_line::<Order>(&mut from)? {
        let piece = match &order {
            Order::Cancel => return Ok(()),
            Order::Piece { length } => wire::read_piece(&mut from, *length)?,
            _ => Vec::new(),
        };
        if !take(OrderFrame { order, piece }) {
            return Ok(());
        }
    }
    Ok(())
}

/// Where reports go; from any thread, because libraries call back from theirs.
#[derive(Clone)]
struct Reports(Arc<Mutex<File>>);

impl Reports {
    fn send(&self, report: &Report) -> io::Result<()> {
        self.send_with(report, &[])
    }

    fn send_with(&self, report: &Report, piece: &[u8]) -> io::Result<()> {
        let mut to = self.0.lock();
        let mut whole = wire::line(report);
        whole.extend_from_slice(piece);
        to.write_all(&whole)
    }
}

struct Worker {
    gfal: Arc<Gfal>,
    reports: Reports,
    received: Receiver<OrderFrame>,
    proxy: SecretFile,
    key: SecretFile,
    /// The library has let ends copy.
    has_copied: bool,
}

/// Why an order ended early.
enum Stop {
    /// The storage element or the library did not do it: the service is told.
    Failed(GfalError),
    /// There is nobody to tell.
    Gone(io::Error),
}

impl From<GfalError> for Stop {
    fn from(error: GfalError) -> Stop {
        Stop::Failed(error)
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Stop {
        Stop::Gone(error)
    }
}

impl Worker {
    /// Takes orders until there are no more.
    fn work(mut self) -> io::Result<()> {
        while let Ok(OrderFrame { order, .. }) = self.received.recv() {
            let report = match self.carry_out(order) {
                Ok(answer) => Report::Done(answer),
                Err(Stop::Failed(error)) => Report::Failed(error),
                Err(Stop::Gone(why)) => return Err(why),
            };
            self.reports.send(&report)?;
        }
        Ok(())
    }

    fn carry_out(&mut self, order: Order) -> Result<OrderResult, Stop> {
        let gfal = self.gfal.clone();
        let none = OrderResult::default();
        match order {
            Order::Setup(setup) => self.set_up(&setup).map(|()| none),
            Order::Stat { url } => {
                let stat = gfal.stat(&url)?;
                Ok(OrderResult {
                    bytes: Some(stat.bytes),
                    is_directory: stat.is_directory,
                    modified_seconds: stat.modified_seconds,
                    ..none
                })
            }
            Order::Checksum { url, algorithm } => Ok(OrderResult {
                checksum: Some(gfal.checksum(&url, &algorithm)?),
                ..none
            }),
            Order::MakeDirectories { url } => Ok(gfal.make_directories(&url).map(|()| none)?),
            Order::Remove { url } => Ok(gfal.remove(&url).map(|()| none)?),
            Order::Copy(order) => {
                self.has_copied = true;
                self.copy(&order).map(|()| none)
            }
            Order::Stream { .. } | Order::Read { .. } | Order::Write { .. } if self.has_copied => {
                // The GridFTP plug-in keeps the session of a copy over parallel connections, and a file that is read
                // over it comes in the wrong order.
                let why = "bytes pass through a fresh process only, not after a copy";
                Err(GfalError::new(libc::EINVAL, why).into())
            }
            Order::Stream {
                source,
                destination,
                exclusive,
                algorithm,
            } => self.stream(&source, &destination, exclusive, &algorithm),
            Order::Read { url } => self.read(&url),
            Order::Write { url, exclusive } => self.write(&url, exclusive),
            Order::BringOnline {
                urls,
                pin_seconds,
                timeout_seconds,
            } => {
                let (request, files) = gfal.bring_online(&urls, pin_seconds, timeout_seconds)?;
                Ok(OrderResult {
                    request: Some(request),
                    files,
                    ..none
                })
            }
            Order::PollOnline { urls, request } => Ok(OrderResult {
                files: gfal.poll_online(&urls, &request)?,
                ..none
            }),
            Order::Release { urls, request } => Ok(OrderResult {
                files: gfal.release(&urls, &request)?,
                ..none
            }),
            Order::Abort { urls, request } => Ok(OrderResult {
                files: gfal.abort(&urls, &request)?,
                ..none
            }),
            Order::Locality { url } => Ok(OrderResult {
                locality: Some(gfal.attribute(&url, "user.status")?),
                ..none
            }),
            // The reader of orders has taken the first; the second comes before the library is loaded.
            Order::Cancel | Order::Supervised => Ok(none),
            // What was sent before the service heard that writing has failed.
            Order::Piece { .. } => self.skip(),
        }
    }

    fn set_up(&mut self, setup: &Setup) -> Result<(), Stop> {
        if let Some(proxy) = &setup.proxy {
            self.proxy.replace(proxy)?;
        }
        for (url, token) in &setup.tokens {
            self.gfal.set_token(url, token)?;
        }
        if let Some(login) = &setup.sftp {
            self.gfal.set_text("SFTP PLUGIN", "USER", &login.user)?;
            self.key.replace(&login.key)?;
            self.gfal
                .set_text("SFTP PLUGIN", "PRIVKEY", self.key.path())?;
        }
        let seconds = [
            ("NAMESPACE_TIMEOUT", setup.question_seconds),
            ("CHECKSUM_TIMEOUT", setup.checksum_seconds),
        ];
        for (key, seconds) in seconds {
            self.gfal.set_number("CORE", key, seconds)?;
        }
        // A directory of sites that is asked where an SRM is, over the Internet and without need: URLs say so.
        self.gfal.set_off("BDII", "ENABLED")?;
        for (key, value) in &setup.client_info {
            self.gfal.add_client_info(key, value)?;
        }
        Ok(())
    }

    fn copy(&self, order: &CopyOrder) -> Result<(), Stop> {
        let reports = self.reports.clone();
        let listener = move |news| {
            let report = match news {
                News::Moved(moved, rate) => Report::Progress {
                    moved,
                    rate: Some(rate),
                },
                News::Way(way) => Report::CopiesBy { way },
            };
            // When the service has gone, the thread that reads orders ends this process.
            let _ = reports.send(&report);
        };
        Ok(self.gfal.copy(order, Box::new(listener))?)
    }

    /// From one end to the other through this process.
    fn stream(
        &self,
        source: &str,
        destination: &str,
        exclusive: bool,
        algorithm: &str,
    ) -> Result<OrderResult, Stop> {
        let at_source = |error: GfalError| error.at(WhichEnd::Source);
        let at_destination = |error: GfalError| error.at(WhichEnd::Destination);
        let algorithm = ChecksumAlgorithm::parse(algorithm);
        let mut hasher = Hasher::new(algorithm.as_slice());
        let mut from = self.gfal.open_to_read(source).map_err(at_source)?;
        let to = self.gfal.open_to_write(destination, exclusive);
        let mut to = to.map_err(at_destination)?;
        let mut buffer = vec![0; BUFFER_BYTES];
        let (mut moved, mut told) = (0u64, Instant::now());
        loop {
            let count = from.read(&mut buffer).map_err(at_source)?;
            let bytes = buffer.get(..count).unwrap_or_default();
            if bytes.is_empty() {
                break;
            }
            hasher.update(bytes);
            to.write_all(bytes).map_err(at_destination)?;
            moved += count as u64;
            if told.elapsed() >= NEWS_EVERY {
                told = Instant::now();
                self.reports.send(&Report::Progress { moved, rate: None })?;
            }
        }
        to.close().map_err(at_destination)?;
        // The bytes are here and were counted: whether the source closes well changes nothing.
        let _ = from.close();
        let checksum = hasher.finish().into_iter().next();
        Ok(OrderResult {
            bytes: Some(moved),
            checksum: checksum.map(|checksum| checksum.hex().to_owned()),
            ..OrderResult::default()
        })
    }

    /// To the service.
    fn read(&self, url: &str) -> Result<OrderResult, Stop> {
        let mut from = self.gfal.open_to_read(url)?;
        let mut buffer = vec![0; PIECE_BYTES_MAX];
        let mut moved = 0u64;
        loop {
            let length = from.read(&mut buffer)?;
            let piece = buffer.get(..length).unwrap_or_default();
            if piece.is_empty() {
                break;
            }
            self.reports.send_with(&Report::Piece { length }, piece)?;
            moved += length as u64;
        }
        let _ = from.close();
        Ok(OrderResult {
            bytes: Some(moved),
            ..OrderResult::default()
        })
    }

    /// From the service.
    fn write(&self, url: &str, exclusive: bool) -> Result<OrderResult, Stop> {
        let mut to = self.gfal.open_to_write(url, exclusive)?;
        self.reports.send(&Report::Writing)?;
        let mut moved = 0u64;
        loop {
            let gone = |_| Stop::Gone(io::ErrorKind::UnexpectedEof.into());
            match self.received.recv().map_err(gone)? {
                OrderFrame {
                    order: Order::Piece { length: 0 },
                    ..
                } => break,
                OrderFrame {
                    order: Order::Piece { .. },
                    piece,
                } => {
                    to.write_all(&piece)?;
                    moved += piece.len() as u64;
                }
                OrderFrame { order, .. } => {
                    let why = format!("'{}' came in the middle of a file", order.name());
                    return Err(io::Error::new(io::ErrorKind::InvalidData, why).into());
                }
            }
        }
        to.close()?;
        Ok(OrderResult {
            bytes: Some(moved),
            ..OrderResult::default()
        })
    }

    /// Waits for the next order that is none of a file that nobody writes any more.
    fn skip(&mut self) -> Result<OrderResult, Stop> {
        let gone = |_| Stop::Gone(io::ErrorKind::UnexpectedEof.into());
        loop {
            let next = self.received.recv().map_err(gone)?.order;
            if !matches!(next, Order::Piece { .. }) {
                return self.carry_out(next);
            }
        }
    }
}
