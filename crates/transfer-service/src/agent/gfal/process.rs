//! One gfal process, as the service sees it: orders in, reports out, what libraries print bounded and without secrets,
//! and its end, which is waited for.

use parking_lot::Mutex;
use penstock_model::{Failure, TimeSpan};
use penstock_protocol::gfal::gate::{Gate, RefusedConnection, RequestAuthorizer};
use penstock_protocol::gfal::wire::{LINE_BYTES_MAX, PIECE_BYTES_MAX, line, parse};
use penstock_protocol::gfal::{GfalError, OpenableFiles, Order, OrderResult, Report};
use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::VecDeque;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::OwnedSemaphorePermit;

/// How long one may take to give up what it does, and to end.
const END_PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of a line that libraries print; what is longer is cut.
const SAID_BYTES_MAX: u64 = 2000;
/// Lines that are remembered, and lines that go to the log.
const SAID_REMEMBERED: usize = 5;
const SAID_LOGGED: u32 = 200;

/// Why an order has no answer.
#[derive(Debug)]
pub(in crate::agent) enum Trouble {
    /// The library says so. The process takes further orders.
    Said(GfalError),
    /// The library says so, after a server had sent it to where this service may not connect.
    Misdirected(GfalError, RefusedConnection),
    /// The process has ended.
    Died(String),
    /// Nothing came for so long.
    Silent(Duration),
    /// It was not even asked, for this reason.
    Refused(Box<Failure>),
}

/// A gfal process. Dropped, it is killed.
pub(in crate::agent) struct Process {
    child: Child,
    orders: ChildStdin,
    reports: BufReader<ChildStdout>,
    /// What has come of the next line. Kept here, so that waiting for a line may be given up.
    line: Vec<u8>,
    said: Arc<LibraryOutput>,
    /// An order has been given and not answered.
    is_busy: bool,
    place: Option<OwnedSemaphorePermit>,
    /// Judges its connections. `None`: it is not confined.
    gate: Option<Gate>,
}

impl Process {
    /// Takes its pipes. Errors: they are not there.
    pub(super) fn of(mut child: Child) -> Result<Process, &'static str> {
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(orders), Some(reports), Some(errors)) = pipes else {
            return Err("it has no pipes");
        };
        let said = Arc::new(LibraryOutput::default());
        tokio::spawn(listen(errors, said.clone()));
        Ok(Process {
            child,
            orders,
            reports: BufReader::new(reports),
            line: Vec::new(),
            said,
            is_busy: false,
            place: None,
            gate: None,
        })
    }

    pub(super) fn hold(&mut self, place: OwnedSemaphorePermit) {
        self.place = Some(place);
    }

    /// Takes the descriptor by which its files and connections are judged. Errors: why that is not possible.
    pub(super) async fn supervise(
        &mut self,
        listener: i32,
        openable: OpenableFiles,
    ) -> Result<(), String> {
        let id = self.child.id().ok_or("it has ended")?;
        self.gate = Some(Gate::open(id, listener, openable).map_err(|why| why.to_string())?);
        let given = self.orders.write_all(&line(&Order::Supervised)).await;
        given.map_err(|why| why.to_string())
    }

    pub(super) fn is_supervised(&self) -> bool {
        self.gate.is_some()
    }

    pub(super) fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// An order was given and its answer has not been read: nothing else can be asked of it.
    pub(super) fn is_busy(&self) -> bool {
        self.is_busy
    }

    /// From now on it works for this transfer, connects where this judge allows, and these are secrets.
    pub(super) fn serve(&self, transfer: u64, judge: RequestAuthorizer, secrets: Vec<String>) {
        if let Some(gate) = &self.gate {
            gate.set_judge(judge);
        }
        self.said.transfer.store(transfer, Ordering::Relaxed);
        *self.said.secrets() = secrets;
    }

    /// What a library said, without secrets and what URLs carry.
    pub(super) fn trouble(&self, error: GfalError) -> Trouble {
        let message = without_secrets(&error.message, &self.said.secrets());
        self.misdirected(GfalError { message, ..error })
            .unwrap_or_else(Trouble::Said)
    }

    /// Nothing came for so long. A library that was refused a connection may wait to try it again.
    pub(super) fn silence(&self, patience: Duration) -> Trouble {
        let text = format!("nothing for {}", TimeSpan(patience));
        let error = GfalError::new(penstock_model::Errno::ETIMEDOUT.0, &text);
        self.misdirected(error).unwrap_or(Trouble::Silent(patience))
    }

    /// The error as that of a server that has sent the process elsewhere; back as it is where none has.
    fn misdirected(&self, error: GfalError) -> Result<Trouble, GfalError> {
        let refused = self.gate.as_ref().map(Gate::take_refused);
        match refused.and_then(|refused| refused.into_iter().next()) {
            Some(refused) => Ok(Trouble::Misdirected(error, refused)),
            None => Err(error),
        }
    }

    /// Gives an order, waits for its answer for so long, and passes news on.
    pub(super) async fn carry_out(
        &mut self,
        order: &Order,
        patience: Duration,
        mut news: impl FnMut(Report) -> bool,
    ) -> Result<OrderResult, Trouble> {
        // What was refused during an order that worked all the same says nothing of this one.
        if let Some(gate) = &self.gate {
            gate.take_refused();
        }
        self.give(order, &[]).await?;
        let mut until = tokio::time::Instant::now() + patience;
        loop {
            let report = tokio::time::timeout_at(until, self.report()).await;
            match report.map_err(|_| self.silence(patience))? {
                Ok(Report::Done(answer)) => {
                    self.is_busy = false;
                    return Ok(answer);
                }
                Ok(Report::Failed(error)) => {
                    self.is_busy = false;
                    return Err(self.trouble(error));
                }
                Ok(other) => {
                    if news(other) {
                        until = tokio::time::Instant::now() + patience;
                    }
                }
                Err(_) => return Err(Trouble::Died(self.how_it_died().await)),
            }
        }
    }

    /// Gives an order, with the bytes behind it.
    pub(super) async fn give(&mut self, order: &Order, piece: &[u8]) -> Result<(), Trouble> {
        self.is_busy = true;
        let written = async {
            self.orders.write_all(&line(order)).await?;
            self.orders.write_all(piece).await
        };
        match written.await {
            Ok(()) => Ok(()),
            Err(_) => Err(Trouble::Died(self.how_it_died().await)),
        }
    }

    /// Bytes of a file that is read. 0: it has ended. What does not fit is an error, because the file has grown.
    pub(super) async fn next_piece(
        &mut self,
        into: &mut [u8],
        patience: Duration,
    ) -> Result<usize, Trouble> {
        let report = tokio::time::timeout(patience, self.report()).await;
        match report.map_err(|_| self.silence(patience))? {
            Ok(Report::Piece { length }) if length <= into.len().min(PIECE_BYTES_MAX) => {
                let into = into.get_mut(..length).unwrap_or_default();
                let read = self.reports.read_exact(into);
                match tokio::time::timeout(patience, read).await {
                    Ok(Ok(_)) => Ok(length),
                    Ok(Err(_)) => Err(Trouble::Died(self.how_it_died().await)),
                    Err(_) => Err(Trouble::Silent(patience)),
                }
            }
            Ok(Report::Piece { .. }) => {
                let why = "the file is larger than its storage element said";
                Err(Trouble::Said(GfalError::new(
                    penstock_model::Errno::EINVAL.0,
                    why,
                )))
            }
            Ok(Report::Done(_)) => {
                self.is_busy = false;
                Ok(0)
            }
            Ok(Report::Failed(error)) => {
                self.is_busy = false;
                Err(self.trouble(error))
            }
            Ok(_) => Err(Trouble::Died(
                "agent died: it told what it was not asked for".to_owned(),
            )),
            Err(_) => Err(Trouble::Died(self.how_it_died().await)),
        }
    }

    /// Writes bytes of a file; hears when the process has failed meanwhile.
    pub(super) async fn write_piece(
        &mut self,
        piece: &[u8],
        patience: Duration,
    ) -> Result<(), Trouble> {
        for part in piece.chunks(PIECE_BYTES_MAX) {
            let head = line(&Order::Piece { length: part.len() });
            let (orders, reports, begun) = (&mut self.orders, &mut self.reports, &mut self.line);
            let write = async {
                orders.write_all(&head).await?;
                orders.write_all(part).await
            };
            let early = tokio::select! {
                biased;
                read = next_line(reports, begun) => Some(read),
                written = tokio::time::timeout(patience, write) => match written {
                    Ok(Ok(())) => None,
                    Ok(Err(why)) => Some(Err(why)),
                    Err(_) => return Err(Trouble::Silent(patience)),
                },
            };
            match early {
                None => {}
                // A process that says something now has given up in the middle of a piece.
                Some(Ok(line)) => match parse::<Report>(&line) {
                    Ok(Report::Failed(error)) => return Err(self.trouble(error)),
                    _ => return Err(Trouble::Died(self.how_it_died().await)),
                },
                Some(Err(_)) => return Err(Trouble::Died(self.how_it_died().await)),
            }
        }
        Ok(())
    }

    /// Resolves when a process that takes the bytes of a file gives that up, or ends.
    pub(super) async fn gives_up(&mut self) -> Trouble {
        match self.report().await {
            Ok(Report::Failed(error)) => self.trouble(error),
            Ok(_) | Err(_) => Trouble::Died(self.how_it_died().await),
        }
    }

    /// The next report. Errors: there will be none. Cancel-safe.
    pub(super) async fn report(&mut self) -> std::io::Result<Report> {
        let line = next_line(&mut self.reports, &mut self.line).await?;
        parse(&line).map_err(|why| std::io::Error::new(std::io::ErrorKind::InvalidData, why))
    }

    /// Kills it if it has not ended, waits for that, and says how it was.
    pub(super) async fn how_it_died(&mut self) -> String {
        let ended = match tokio::time::timeout(END_PATIENCE, self.child.wait()).await {
            Ok(ended) => ended,
            Err(_) => {
                self.signal(Signal::KILL);
                self.child.wait().await
            }
        };
        let how = ended.map_or_else(|why| why.to_string(), in_words);
        let last = self.said.last();
        match last.is_empty() {
            true => how,
            false => format!("{how}; it said last: {last}"),
        }
    }

    /// Lets it end; makes it end when it does not. Returns when it is gone.
    pub(super) async fn end(self) {
        if self.is_busy {
            self.signal(Signal::TERM);
        }
        let Process {
            mut child, orders, ..
        } = self;
        // It ends when there are no orders any more.
        drop(orders);
        let group = child.id();
        if tokio::time::timeout(END_PATIENCE, child.wait())
            .await
            .is_err()
        {
            signal_group(group, Signal::KILL);
            reap(&mut child).await;
        }
    }

    /// Ends it at once. Returns when it is gone.
    pub(super) async fn kill(mut self) {
        self.signal(Signal::KILL);
        reap(&mut self.child).await;
    }

    fn signal(&self, signal: Signal) {
        signal_group(self.child.id(), signal);
    }
}

async fn reap(child: &mut Child) {
    if let Err(why) = child.wait().await {
        tracing::warn!(%why, "a gfal process was killed, but its end was not confirmed");
    }
}

/// To the process and all that it may have started: it leads a group of its own.
fn signal_group(id: Option<u32>, signal: Signal) {
    let group = id.and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    if let Some(group) = group {
        // It may have ended just now.
        let _ = kill_process_group(group, signal);
    }
}

/// The next line, without its end. What has come of it stays in `begun` when this is dropped.
async fn next_line(
    from: &mut (impl AsyncBufReadExt + Unpin),
    begun: &mut Vec<u8>,
) -> std::io::Result<Vec<u8>> {
    use std::io::{Error, ErrorKind};
    loop {
        let available = from.fill_buf().await?;
        if available.is_empty() {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let end = available.iter().position(|byte| *byte == b'\n');
        let count = end.unwrap_or(available.len());
        begun.extend_from_slice(available.get(..count).unwrap_or_default());
        from.consume(end.map_or(count, |end| end + 1));
        if end.is_some() {
            return Ok(std::mem::take(begun));
        }
        if begun.len() > LINE_BYTES_MAX {
            return Err(Error::new(ErrorKind::InvalidData, "too long a line"));
        }
    }
}

/// Those by which such a process ends.
const SIGNALS: [(Signal, &str); 7] = [
    (Signal::SEGV, "SIGSEGV"),
    (Signal::ABORT, "SIGABRT"),
    (Signal::BUS, "SIGBUS"),
    (Signal::FPE, "SIGFPE"),
    (Signal::ILL, "SIGILL"),
    (Signal::KILL, "SIGKILL"),
    (Signal::TERM, "SIGTERM"),
];

/// A process that ended by itself is told from one that was ended.
fn in_words(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => {
            let known = SIGNALS.iter().find(|(known, _)| known.as_raw() == signal);
            let name = known.map_or_else(|| format!("signal {signal}"), |(_, name)| (*name).into());
            format!("agent died: {name} in gfal2")
        }
        (None, Some(code)) => format!("agent died: it ended with code {code} in gfal2"),
        (None, None) => "agent died in gfal2".to_owned(),
    }
}

/// What libraries print.
#[derive(Default)]
struct LibraryOutput {
    /// 0: none yet.
    transfer: AtomicU64,
    secrets: Mutex<Vec<String>>,
    lines: Mutex<VecDeque<String>>,
}

impl LibraryOutput {
    fn secrets(&self) -> parking_lot::MutexGuard<'_, Vec<String>> {
        self.secrets.lock()
    }

    fn note(&self, line: &str) -> String {
        let line = without_secrets(line, &self.secrets());
        let mut lines = self.lines.lock();
        if lines.len() >= SAID_REMEMBERED {
            lines.pop_front();
        }
        lines.push_back(line.clone());
        line
    }

    fn last(&self) -> String {
        let lines = self.lines.lock();
        lines.back().cloned().unwrap_or_default()
    }
}

/// Takes whatever is printed, so that nobody waits for a full pipe; remembers the end of it and logs the begin.
async fn listen(errors: ChildStderr, said: Arc<LibraryOutput>) {
    let mut errors = BufReader::new(errors);
    let mut logged = 0;
    while let Some(line) = printed_line(&mut errors).await {
        if line.trim().is_empty() {
            continue;
        }
        let line = said.note(line.trim());
        logged += 1;
        if logged <= SAID_LOGGED {
            let transfer = said.transfer.load(Ordering::Relaxed);
            tracing::debug!(transfer, %line, "gfal2 says");
        }
    }
}

async fn printed_line(from: &mut (impl AsyncRead + AsyncBufReadExt + Unpin)) -> Option<String> {
    let mut line = Vec::new();
    let read = from.take(SAID_BYTES_MAX).read_until(b'\n', &mut line).await;
    match read {
        Ok(0) | Err(_) => None,
        Ok(_) => Some(String::from_utf8_lossy(&line).into_owned()),
    }
}

/// The text without these secrets, without what URLs carry behind a question mark, and without bearer tokens.
fn without_secrets(text: &str, secrets: &[String]) -> String {
    let mut text = text.to_owned();
    for secret in secrets.iter().filter(|secret| secret.len() >= 8) {
        text = text.replace(secret.as_str(), "…");
    }
    let mut words = Vec::new();
    let mut is_secret = false;
    for word in text.split_whitespace() {
        let shown = match (is_secret, word.split_once('?')) {
            (true, _) => "…".to_owned(),
            (false, Some((head, _))) if head.contains("://") => format!("{head}?…"),
            (false, _) => word.to_owned(),
        };
        is_secret = word.to_ascii_lowercase().ends_with("bearer");
        words.push(shown);
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_secret_is_repeated_from_what_libraries_say() {
        let secrets = ["eyJhbGciOi.token".to_owned(), "x".to_owned()];
        let check = |text: &str, expected: &str| {
            assert_eq!(without_secrets(text, &secrets), expected);
        };
        check(
            "open root://se//f?authz=abc failed",
            "open root://se//f?… failed",
        );
        check(
            "Authorization: Bearer abc.def\nnext",
            "Authorization: Bearer … next",
        );
        check("token eyJhbGciOi.token was refused", "token … was refused");
        check("exists? no", "exists? no");
    }

    #[tokio::test]
    async fn a_line_that_comes_in_pieces_is_whole_however_often_waiting_is_given_up() {
        let (mut writer, reader) = tokio::io::duplex(8);
        let (mut reader, mut begun) = (BufReader::new(reader), Vec::new());
        writer.write_all(b"{\"re").await.expect("room");
        let early = tokio::time::timeout(Duration::from_millis(20), async {
            next_line(&mut reader, &mut begun).await
        });
        assert!(early.await.is_err());
        writer.write_all(b"p\"}\nx").await.expect("room");
        let line = next_line(&mut reader, &mut begun).await.expect("a line");
        assert_eq!(line, b"{\"rep\"}");
    }
}
