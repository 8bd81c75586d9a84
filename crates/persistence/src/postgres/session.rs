//! Connections on threads of their own. Whoever asks hands over work and waits for its answer, on any thread: the
//! client library must not run inside an async runtime, and here it cannot.

use super::{Database, DatabaseError};
use ::postgres::fallible_iterator::FallibleIterator;
use ::postgres::types::ToSql;
use ::postgres::{Client, IsolationLevel, Row, Statement, Transaction};
use parking_lot::Mutex;
use std::cell::Cell;
use std::collections::HashMap;
use std::fmt;
use std::io::{self, BufWriter, IntoInnerError, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender};
use std::time::Duration;

/// A parameter of a statement.
pub(crate) type Parameter<'a> = &'a (dyn ToSql + Sync);

/// What a connection is for, and what holds on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Questions. Nothing can be written.
    Read,
    /// Changes. A transaction that stands still for seconds is ended, because it may hold what the next leader waits
    /// for.
    Write,
    /// All tables at once, for as long as it takes.
    Restore,
    /// Who is there and who leads: answers in seconds or not at all.
    Cluster,
}

/// A database may be set to answer before it has written. What is acknowledged here is durable.
const DURABLE: &str = "SELECT set_config('synchronous_commit', 'on', false)
    WHERE current_setting('synchronous_commit') = 'off'";

impl Purpose {
    fn settings(self) -> String {
        let own = match self {
            Purpose::Read => {
                "SET default_transaction_read_only = on; SET statement_timeout = '60s'"
            }
            // No limit for a whole statement: it would end the wait for a standby after the commit itself.
            Purpose::Write => {
                "SET idle_in_transaction_session_timeout = '2s'; SET lock_timeout = '8s'"
            }
            Purpose::Restore => "SET lock_timeout = '10s'",
            Purpose::Cluster => {
                "SET idle_in_transaction_session_timeout = '2s'; SET statement_timeout = '4s'; SET lock_timeout = '1s'"
            }
        };
        format!("{own}; {DURABLE}")
    }

    /// How long an answer is waited for.
    fn patience(self) -> Duration {
        match self {
            Purpose::Read => Duration::from_secs(70),
            Purpose::Write | Purpose::Restore => Duration::from_secs(120),
            Purpose::Cluster => Duration::from_secs(8),
        }
    }
}

/// Bytes of a copy that are sent at once.
const COPY_BYTES: usize = 64 << 10;
/// How many pieces of something long wait for whoever takes them.
const PIECES_AHEAD: usize = 256;

type Work = Box<dyn FnOnce(&mut Session) + Send>;

/// Some connections. They are made when they are first needed, and made again when they are lost.
pub(crate) struct Sessions {
    work: Sender<Work>,
    database: Database,
    purpose: Purpose,
}

impl fmt::Debug for Sessions {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = out.debug_struct("Sessions");
        shown.field("database", &self.database);
        shown
            .field("purpose", &self.purpose)
            .finish_non_exhaustive()
    }
}

impl Sessions {
    /// Starts the threads; connects later. Errors: the operating system refuses a thread.
    pub(crate) fn start(
        database: &Database,
        purpose: Purpose,
        count: usize,
    ) -> Result<Sessions, DatabaseError> {
        let (work, queue) = mpsc::channel();
        let queue = Arc::new(Mutex::new(queue));
        for _ in 0..count.max(1) {
            let (session, queue) = (Session::new(database.clone(), purpose), queue.clone());
            let thread = std::thread::Builder::new().name("database".to_owned());
            let started = thread.spawn(move || serve(session, &queue));
            started.map_err(|why| DatabaseError::Setup(format!("no thread for it: {why}")))?;
        }
        Ok(Sessions {
            work,
            database: database.clone(),
            purpose,
        })
    }

    /// The database's address, for errors.
    pub(crate) fn database(&self) -> &Arc<str> {
        self.database.shown()
    }

    /// Has something done on a free connection. When the connection is lost meanwhile, nothing is known of it.
    pub(crate) fn run<T, E>(
        &self,
        work: impl FnOnce(&mut Session) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<DatabaseError> + Send + 'static,
    {
        self.run_within(self.purpose.patience(), work)
    }

    /// The same, for whoever cannot wait that long.
    pub(crate) fn run_within<T, E>(
        &self,
        patience: Duration,
        work: impl FnOnce(&mut Session) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<DatabaseError> + Send + 'static,
    {
        let (answer, answered) = mpsc::sync_channel(1);
        let work = move |session: &mut Session| {
            // Whoever asked may have lost patience.
            let _ = answer.send(work(session));
        };
        // The threads end when this is dropped, and not before.
        let _ = self.work.send(Box::new(work));
        let answer = answered.recv_timeout(patience);
        answer.unwrap_or_else(|_| Err(self.no_answer(patience)))
    }

    /// Has something read piece by piece, and takes each piece while the next ones are read.
    pub(crate) fn stream<I, E>(
        &self,
        read: impl FnOnce(&mut Session, &SyncSender<I>) -> Result<(), E> + Send + 'static,
        take: &mut dyn FnMut(I),
    ) -> Result<(), E>
    where
        I: Send + 'static,
        E: From<DatabaseError> + Send + 'static,
    {
        let (pieces, received) = mpsc::sync_channel(PIECES_AHEAD);
        let (answer, answered) = mpsc::sync_channel(1);
        let work = move |session: &mut Session| {
            let done = read(session, &pieces);
            // First, so that whoever takes the last piece finds it.
            let _ = answer.send(done);
        };
        let _ = self.work.send(Box::new(work));
        let patience = self.purpose.patience();
        loop {
            match received.recv_timeout(patience) {
                Ok(piece) => take(piece),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => return Err(self.no_answer(patience)),
            }
        }
        // Without an answer the thread has panicked.
        answered
            .try_recv()
            .unwrap_or_else(|_| Err(self.no_answer(patience)))
    }

    fn no_answer<E: From<DatabaseError>>(&self, patience: Duration) -> E {
        E::from(DatabaseError::NoAnswer {
            database: self.database().clone(),
            patience,
        })
    }

    /// Has a question answered; once more when the connection was found lost.
    pub(crate) fn ask<T, E>(
        &self,
        mut question: impl FnMut(&mut Session) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<DatabaseError> + Send + 'static,
    {
        self.run(move |session| {
            let was_connected = session.client.is_some();
            let answer = question(session);
            if answer.is_err() && session.take_loss() && was_connected {
                return question(session);
            }
            answer
        })
    }
}

fn serve(mut session: Session, queue: &Mutex<Receiver<Work>>) {
    loop {
        let next = queue.lock().recv();
        let Ok(work) = next else {
            return;
        };
        // Who waits for the answer learns that there is none; the others must not lose their connection.
        if catch_unwind(AssertUnwindSafe(|| work(&mut session))).is_err() {
            session.is_lost.set(true);
        }
        session.take_loss();
    }
}

/// One connection with its prepared statements.
pub(crate) struct Session {
    database: Database,
    purpose: Purpose,
    client: Option<Client>,
    statements: HashMap<String, Statement>,
    is_lost: Cell<bool>,
}

impl Session {
    /// One that connects when it is first needed. Not from inside an async runtime.
    pub(crate) fn new(database: Database, purpose: Purpose) -> Session {
        Session {
            database,
            purpose,
            client: None,
            statements: HashMap::new(),
            is_lost: Cell::new(false),
        }
    }

    /// Forgets a connection that was found lost. True when it was.
    fn take_loss(&mut self) -> bool {
        let is_lost = self.is_lost.take();
        if is_lost {
            self.client = None;
            self.statements.clear();
        }
        is_lost
    }

    /// Begins a transaction, after connecting when that is needed. A reader's transaction sees one instant.
    pub(crate) fn begin(&mut self) -> Result<OpenTransaction<'_>, DatabaseError> {
        if self.client.as_ref().is_none_or(Client::is_closed) {
            self.statements.clear();
            self.client = None;
            let mut client = self.database.connect()?;
            let set = client.batch_execute(&self.purpose.settings());
            set.map_err(|why| DatabaseError::of(self.database.shown(), &why))?;
            self.client = Some(client);
        }
        let client = self.client.as_mut().expect("connected above");
        let isolation = match self.purpose {
            Purpose::Read => IsolationLevel::RepeatableRead,
            Purpose::Write | Purpose::Restore | Purpose::Cluster => IsolationLevel::ReadCommitted,
        };
        let begun = client.build_transaction().isolation_level(isolation);
        let begun = begun.start();
        let (database, is_lost) = (self.database.shown(), &self.is_lost);
        Ok(OpenTransaction {
            transaction: begun.map_err(|why| failed(database, is_lost, &why))?,
            statements: &mut self.statements,
            database,
            is_lost,
        })
    }
}

/// A transaction that is open. Dropped without [`OpenTransaction::commit`], it never was.
pub(crate) struct OpenTransaction<'a> {
    transaction: Transaction<'a>,
    statements: &'a mut HashMap<String, Statement>,
    database: &'a Arc<str>,
    is_lost: &'a Cell<bool>,
}

impl OpenTransaction<'_> {
    /// The database's address, for errors.
    pub(crate) fn database(&self) -> &Arc<str> {
        self.database
    }

    pub(crate) fn query(
        &mut self,
        sql: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>, DatabaseError> {
        let statement = self.prepared(sql)?;
        let rows = self.transaction.query(&statement, parameters);
        rows.map_err(|why| failed(self.database, self.is_lost, &why))
    }

    /// The one row, or none.
    pub(crate) fn query_opt(
        &mut self,
        sql: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Option<Row>, DatabaseError> {
        Ok(self.query(sql, parameters)?.pop())
    }

    /// Rows one after the other, until no more are wanted: not all of them are in memory.
    pub(crate) fn stream<E: From<DatabaseError>>(
        &mut self,
        sql: &str,
        parameters: &[Parameter<'_>],
        mut each: impl FnMut(&Row) -> Result<RowFlow, E>,
    ) -> Result<(), E> {
        let (database, is_lost) = (self.database, self.is_lost);
        let statement = self.prepared(sql)?;
        let parameters = parameters.iter().copied();
        let rows = self.transaction.query_raw(&statement, parameters);
        let mut rows = rows.map_err(|why| failed(database, is_lost, &why))?;
        while let Some(row) = rows.next().map_err(|why| failed(database, is_lost, &why))? {
            if each(&row)? == RowFlow::NoFurther {
                break;
            }
        }
        Ok(())
    }

    pub(crate) fn execute(
        &mut self,
        sql: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<u64, DatabaseError> {
        let statement = self.prepared(sql)?;
        let count = self.transaction.execute(&statement, parameters);
        count.map_err(|why| failed(self.database, self.is_lost, &why))
    }

    /// Several statements without parameters.
    pub(crate) fn execute_all(&mut self, sql: &str) -> Result<(), DatabaseError> {
        let done = self.transaction.batch_execute(sql);
        done.map_err(|why| failed(self.database, self.is_lost, &why))
    }

    /// Rows for a `COPY … FROM STDIN`, as `fill` writes them.
    pub(crate) fn copy_in<E: From<DatabaseError> + From<io::Error>>(
        &mut self,
        sql: &str,
        fill: impl FnOnce(&mut dyn Write) -> Result<(), E>,
    ) -> Result<(), E> {
        let (database, is_lost) = (self.database, self.is_lost);
        let refused = |why| failed(database, is_lost, &why);
        let mut into =
            BufWriter::with_capacity(COPY_BYTES, self.transaction.copy_in(sql).map_err(refused)?);
        fill(&mut into)?;
        let into = into.into_inner().map_err(IntoInnerError::into_error)?;
        into.finish().map_err(refused)?;
        Ok(())
    }

    /// Durable when it returns well. When the connection is lost meanwhile, it may be so, too.
    pub(crate) fn commit(self) -> Result<(), DatabaseError> {
        let done = self.transaction.commit();
        done.map_err(|why| failed(self.database, self.is_lost, &why))
    }

    fn prepared(&mut self, sql: &str) -> Result<Statement, DatabaseError> {
        if let Some(known) = self.statements.get(sql) {
            return Ok(known.clone());
        }
        let prepared = self.transaction.prepare(sql);
        let prepared = prepared.map_err(|why| failed(self.database, self.is_lost, &why))?;
        self.statements.insert(sql.to_owned(), prepared.clone());
        Ok(prepared)
    }
}

/// Whether more rows are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowFlow {
    On,
    NoFurther,
}

fn failed(database: &Arc<str>, is_lost: &Cell<bool>, why: &::postgres::Error) -> DatabaseError {
    let error = DatabaseError::of(database, why);
    if error.is_lost() {
        is_lost.set(true);
    }
    error
}
