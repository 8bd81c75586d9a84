//! The journal's file, read as it lies there, through the handle that SQLite has of it.
//!
//! It is not opened once more: closing a file takes all locks (POSIX) from it that the process has, those of SQLite among
//! them, and then another process may take itself for the only one and remove the log.

#![allow(unsafe_code)]

use rusqlite::{Connection, ffi};
use std::ffi::c_int;
use std::marker::PhantomData;

/// Bytes that SQLite reads at once: less than the most it can (128 KiB).
const PIECE: usize = 64 << 10;

/// The file of a connection's database.
pub(super) struct OpenFile<'a> {
    file: *mut ffi::sqlite3_file,
    _connection: PhantomData<&'a Connection>,
}

impl OpenFile<'_> {
    /// The file is open for as long as the connection is.
    pub(super) fn of(connection: &Connection) -> rusqlite::Result<OpenFile<'_>> {
        let mut file: *mut ffi::sqlite3_file = std::ptr::null_mut();
        // SAFETY: the connection is open, and this operation writes one pointer to where the last argument points
        // (https://sqlite.org/c3ref/c_fcntl_begin_atomic_write.html, SQLITE_FCNTL_FILE_POINTER).
        let code = unsafe {
            ffi::sqlite3_file_control(
                connection.handle(),
                c"main".as_ptr(),
                ffi::SQLITE_FCNTL_FILE_POINTER,
                (&raw mut file).cast(),
            )
        };
        checked(code)?;
        Ok(OpenFile {
            file,
            _connection: PhantomData,
        })
    }

    /// Fills all of it with what lies there; beyond the file's end there are zeros.
    pub(super) fn read(&self, at: u64, into: &mut [u8]) -> rusqlite::Result<()> {
        let mut at = at;
        for piece in into.chunks_mut(PIECE) {
            // SAFETY: the file belongs to the connection, which is open and used by this thread only, because neither
            // can be sent. Its methods are those of an open file, and as many bytes are read as the piece has.
            let code = unsafe {
                let methods = (*self.file).pMethods.as_ref();
                let read = methods.and_then(|methods| methods.xRead);
                read.map_or(ffi::SQLITE_MISUSE, |read| {
                    let (to, count) = (piece.as_mut_ptr().cast(), piece.len() as c_int);
                    read(self.file, to, count, at as ffi::sqlite3_int64)
                })
            };
            // The rest was filled with zeros (https://sqlite.org/c3ref/io_methods.html).
            if code != ffi::SQLITE_IOERR_SHORT_READ {
                checked(code)?;
            }
            at += piece.len() as u64;
        }
        Ok(())
    }
}

fn checked(code: c_int) -> rusqlite::Result<()> {
    match code {
        ffi::SQLITE_OK => Ok(()),
        code => Err(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)),
    }
}
