//! The gfal2 library as it is loaded at run time, and the only calls into it.
//!
//! Each function of the library that is used stands once in [`Symbols`], with the types of gfal2's headers (2.20 and
//! later; the interface has been stable since). Whatever goes wrong inside is not caught here: this runs in a process of
//! its own. Long because each function of gfal2 has its type, its symbol and its call here, so that no other file is unsafe.
#![allow(unsafe_code)]

use super::urls::without_local_parameters;
use super::wire::{CopyOrder, FileState, GfalError};
use libc::{c_char, c_int, c_uint, mode_t, off_t, size_t, ssize_t, time_t};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use penstock_model::tape::GFAL_FILES_MAX;
use std::ffi::{CStr, CString, c_void};
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};

/// Depends on libgfal2.so.2, so that everything is found through it.
const LIBRARY: &str = "libgfal_transfer.so.2";
/// What a Debian system needs.
pub const PACKAGES: &str = "libgfal2-2, libgfal-transfer2 and a plug-in for each scheme: gfal2-plugin-gridftp (gsiftp), \
     gfal2-plugin-xrootd (root), gfal2-plugin-srm, gfal2-plugin-sftp";
/// Of new files and directories, as gfal2's own tools make them.
const FILE_MODE: mode_t = 0o644;
const DIRECTORY_MODE: mode_t = 0o755;
/// `GFALT_CHECKSUM_NONE`.
const CHECKSUM_NONE: c_int = 0;
/// Bytes of a checksum's text, of an attribute, and of a request's name.
const TEXT_BYTES: usize = 1024;
/// What the URLs begin with for which plug-ins ask gfal2 where the proxy is, but for those of XRootD.
const PROXY_URLS: [&str; 5] = ["gsiftp:", "ftp:", "srm:", "http", "dav"];
/// Characters of an error of one file of several.
const FILE_TEXT_CHARS_MAX: usize = 500;

type Context = *mut c_void;
type Parameters = *mut c_void;
type Status = *mut c_void;
type Text = *const c_char;
type ErrorOut = *mut *mut RawError;

/// `GError` of GLib.
#[repr(C)]
struct RawError {
    domain: u32,
    code: c_int,
    message: *mut c_char,
}

/// `struct _gfalt_event`.
#[repr(C)]
struct RawEvent {
    side: c_int,
    timestamp: i64,
    stage: u32,
    domain: u32,
    description: Text,
}

type OnMonitor = unsafe extern "C" fn(Status, Text, Text, *mut c_void);
type OnEvent = unsafe extern "C" fn(*const RawEvent, *mut c_void);
type Free = Option<unsafe extern "C" fn(*mut c_void)>;

/// One line for each function: a macro, because each name would stand three times otherwise.
macro_rules! symbols {
    ($($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        struct Symbols { $($name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)* }

        impl Symbols {
            fn of(library: &Library) -> Result<Symbols, libloading::Error> {
                Ok(Symbols {
                    // SAFETY: the types are those of gfal2's and GLib's headers for these names.
                    $($name: unsafe { *library.get(concat!(stringify!($name), "\0").as_bytes())? },)*
                })
            }
        }
    };
}

symbols! {
    g_error_free: fn(*mut RawError);
    g_strfreev: fn(*mut *mut c_char);
    g_quark_to_string: fn(u32) -> Text;
    gfal2_version: fn() -> Text;
    gfal2_context_new: fn(ErrorOut) -> Context;
    gfal2_get_plugin_names: fn(Context) -> *mut *mut c_char;
    gfal2_cancel: fn(Context) -> c_int;
    gfal2_set_opt_string: fn(Context, Text, Text, Text, ErrorOut) -> c_int;
    gfal2_set_opt_integer: fn(Context, Text, Text, c_int, ErrorOut) -> c_int;
    gfal2_set_opt_boolean: fn(Context, Text, Text, c_int, ErrorOut) -> c_int;
    gfal2_remove_opt: fn(Context, Text, Text, ErrorOut) -> c_int;
    gfal2_add_client_info: fn(Context, Text, Text, ErrorOut) -> c_int;
    gfal2_cred_new: fn(Text, Text) -> *mut c_void;
    gfal2_cred_free: fn(*mut c_void);
    gfal2_cred_set: fn(Context, Text, *const c_void, ErrorOut) -> c_int;
    gfal2_stat: fn(Context, Text, *mut libc::stat, ErrorOut) -> c_int;
    gfal2_checksum: fn(Context, Text, Text, off_t, size_t, *mut c_char, size_t, ErrorOut) -> c_int;
    gfal2_mkdir_rec: fn(Context, Text, mode_t, ErrorOut) -> c_int;
    gfal2_unlink: fn(Context, Text, ErrorOut) -> c_int;
    gfal2_open2: fn(Context, Text, c_int, mode_t, ErrorOut) -> c_int;
    gfal2_read: fn(Context, c_int, *mut c_void, size_t, ErrorOut) -> ssize_t;
    gfal2_write: fn(Context, c_int, *const c_void, size_t, ErrorOut) -> ssize_t;
    gfal2_close: fn(Context, c_int, ErrorOut) -> c_int;
    gfal2_getxattr: fn(Context, Text, Text, *mut c_void, size_t, ErrorOut) -> ssize_t;
    gfal2_bring_online_list: fn(Context, c_int, *const Text, time_t, time_t, *mut c_char, size_t, c_int, ErrorOut) -> c_int;
    gfal2_bring_online_poll_list: fn(Context, c_int, *const Text, Text, ErrorOut) -> c_int;
    gfal2_release_file_list: fn(Context, c_int, *const Text, Text, ErrorOut) -> c_int;
    gfal2_abort_files: fn(Context, c_int, *const Text, Text, ErrorOut) -> c_int;
    gfalt_params_handle_new: fn(ErrorOut) -> Parameters;
    gfalt_params_handle_delete: fn(Parameters, ErrorOut);
    gfalt_set_timeout: fn(Parameters, u64, ErrorOut) -> c_int;
    gfalt_set_nbstreams: fn(Parameters, c_uint, ErrorOut) -> c_int;
    gfalt_set_tcp_buffer_size: fn(Parameters, u64, ErrorOut) -> c_int;
    gfalt_set_src_spacetoken: fn(Parameters, Text, ErrorOut) -> c_int;
    gfalt_set_dst_spacetoken: fn(Parameters, Text, ErrorOut) -> c_int;
    gfalt_set_replace_existing_file: fn(Parameters, c_int, ErrorOut) -> c_int;
    gfalt_set_strict_copy_mode: fn(Parameters, c_int, ErrorOut) -> c_int;
    gfalt_set_checksum: fn(Parameters, c_int, Text, Text, ErrorOut) -> c_int;
    gfalt_set_create_parent_dir: fn(Parameters, c_int, ErrorOut) -> c_int;
    gfalt_set_use_proxy_delegation: fn(Parameters, c_int, ErrorOut) -> c_int;
    gfalt_add_monitor_callback: fn(Parameters, OnMonitor, *mut c_void, Free, ErrorOut) -> c_int;
    gfalt_add_event_callback: fn(Parameters, OnEvent, *mut c_void, Free, ErrorOut) -> c_int;
    gfalt_copy_get_instant_baudrate: fn(Status, ErrorOut) -> size_t;
    gfalt_copy_get_bytes_transfered: fn(Status, ErrorOut) -> size_t;
    gfalt_copy_file: fn(Context, Parameters, Text, Text, ErrorOut) -> c_int;
}

/// What the library tells while it copies, from whatever thread it likes.
pub(super) enum News {
    /// Bytes so far, and bytes a second now.
    Moved(u64, u64),
    /// How it copies, in its words.
    Way(String),
}

/// Takes news. It stays for the rest of the process, because a late thread of the library may still call it.
type Listener = Box<dyn Fn(News) + Send + Sync>;

/// The library with one context.
pub(super) struct Gfal {
    symbols: Symbols,
    context: Context,
    /// Keeps the code mapped.
    _library: Library,
}

// SAFETY: gfal2 allows a context to be canceled from another thread than the one that works with it, which is the only
// thing that the child does with it from two threads.
unsafe impl Sync for Gfal {}
// SAFETY: a context belongs to no thread.
unsafe impl Send for Gfal {}

/// What is known of a file.
pub(super) struct Stat {
    pub(super) bytes: u64,
    pub(super) is_directory: bool,
    /// Plug-ins that are not told it leave 0.
    pub(super) modified_seconds: Option<i64>,
}

impl Gfal {
    /// Loads the library, and its plug-ins with it. Errors: why that is not possible, and what to install.
    pub(super) fn load() -> Result<Gfal, String> {
        // SAFETY: loading runs the initialisers of gfal2 and of what it needs; that is what this process is for.
        let library = unsafe { Library::open(Some(LIBRARY), RTLD_NOW | RTLD_GLOBAL) };
        let missing =
            |why: libloading::Error| format!("gfal2 cannot be loaded: {why}; install {PACKAGES}");
        let library = library.map_err(missing)?;
        let symbols = Symbols::of(&library).map_err(missing)?;
        let mut error = null_mut();
        // SAFETY: gfal2_context_new takes a place for an error.
        let context = unsafe { (symbols.gfal2_context_new)(&mut error) };
        let gfal = Gfal {
            symbols,
            context,
            _library: library,
        };
        match context.is_null() {
            true => Err(format!("gfal2 does not start: {}", gfal.take_error(error))),
            false => Ok(gfal),
        }
    }

    /// Its version.
    pub(super) fn version(&self) -> String {
        // SAFETY: gives a static text.
        text_of(unsafe { (self.symbols.gfal2_version)() })
    }

    /// Its plug-ins, by their names without version.
    pub(super) fn plugins(&self) -> Vec<String> {
        // SAFETY: gives a list that ends with a null pointer and belongs to the caller.
        let list = unsafe { (self.symbols.gfal2_get_plugin_names)(self.context) };
        if list.is_null() {
            return Vec::new();
        }
        let mut names = Vec::new();
        for at in 0.. {
            // SAFETY: no further than the null pointer at the end.
            let name = unsafe { *list.add(at) };
            if name.is_null() {
                break;
            }
            let name = text_of(name);
            let plain = name.split_once('-').map_or(&*name, |(plain, _)| plain);
            names.push(plain.to_owned());
        }
        // SAFETY: the list came from the library and is not used any more.
        unsafe { (self.symbols.g_strfreev)(list) };
        names
    }

    /// Gives up what another thread does with the library. Returns when that has ended.
    pub(super) fn cancel(&self) {
        // SAFETY: allowed from any thread.
        unsafe { (self.symbols.gfal2_cancel)(self.context) };
    }

    pub(super) fn set_text(&self, group: &str, key: &str, value: &str) -> Result<(), GfalError> {
        let (group, key, value) = (c_text(group)?, c_text(key)?, c_text(value)?);
        // SAFETY: three texts that live for the call.
        self.done(|error| unsafe {
            (self.symbols.gfal2_set_opt_string)(
                self.context,
                group.as_ptr(),
                key.as_ptr(),
                value.as_ptr(),
                error,
            )
        })
    }

    pub(super) fn set_number(&self, group: &str, key: &str, value: u32) -> Result<(), GfalError> {
        let (group, key) = (c_text(group)?, c_text(key)?);
        let value = c_int::try_from(value).unwrap_or(c_int::MAX);
        // SAFETY: two texts that live for the call.
        self.done(|error| unsafe {
            (self.symbols.gfal2_set_opt_integer)(
                self.context,
                group.as_ptr(),
                key.as_ptr(),
                value,
                error,
            )
        })
    }

    pub(super) fn set_off(&self, group: &str, key: &str) -> Result<(), GfalError> {
        let (group, key) = (c_text(group)?, c_text(key)?);
        // SAFETY: two texts that live for the call.
        self.done(|error| unsafe {
            (self.symbols.gfal2_set_opt_boolean)(
                self.context,
                group.as_ptr(),
                key.as_ptr(),
                0,
                error,
            )
        })
    }

    /// What storage elements may be told.
    pub(super) fn add_client_info(&self, key: &str, value: &str) -> Result<(), GfalError> {
        let (key, value) = (c_text(key)?, c_text(value)?);
        // SAFETY: two texts that live for the call.
        self.done(|error| unsafe {
            (self.symbols.gfal2_add_client_info)(self.context, key.as_ptr(), value.as_ptr(), error)
        })
    }

    /// From now on plug-ins know the proxy's path, all but that of XRootD: it adds the path to the URLs that it shows to
    /// servers, and finds the proxy by the environment as well.
    pub(super) fn name_proxy_where_it_stays_here(&self, path: &str) -> Result<(), GfalError> {
        let group = c_text("X509")?;
        for key in [c_text("CERT")?, c_text("KEY")?] {
            let mut error = null_mut();
            // SAFETY: two texts that live for the call. What the library did not know it has not lost.
            unsafe {
                (self.symbols.gfal2_remove_opt)(
                    self.context,
                    group.as_ptr(),
                    key.as_ptr(),
                    &mut error,
                );
            }
            if !error.is_null() {
                self.take_error(error);
            }
        }
        for begin in PROXY_URLS {
            self.set_credential("X509_CERT", begin, path)?;
            self.set_credential("X509_KEY", begin, path)?;
        }
        Ok(())
    }

    /// A bearer token for a URL.
    pub(super) fn set_token(&self, url: &str, token: &str) -> Result<(), GfalError> {
        self.set_credential("BEARER", url, token)
    }

    /// For URLs that begin so.
    fn set_credential(&self, kind: &str, url: &str, value: &str) -> Result<(), GfalError> {
        let (kind, url, value) = (c_text(kind)?, c_url(url)?, c_text(value)?);
        // SAFETY: the credential is copied by gfal2_cred_set, and freed here.
        self.done(|error| unsafe {
            let credential = (self.symbols.gfal2_cred_new)(kind.as_ptr(), value.as_ptr());
            let result =
                (self.symbols.gfal2_cred_set)(self.context, url.as_ptr(), credential, error);
            (self.symbols.gfal2_cred_free)(credential);
            result
        })
    }

    pub(super) fn stat(&self, url: &str) -> Result<Stat, GfalError> {
        let url = c_url(url)?;
        let mut found = MaybeUninit::<libc::stat>::zeroed();
        // SAFETY: `found` has the size of the structure that is filled.
        self.done(|error| unsafe {
            (self.symbols.gfal2_stat)(self.context, url.as_ptr(), found.as_mut_ptr(), error)
        })?;
        // SAFETY: plain integers, zeroed, and filled by the call.
        let found = unsafe { found.assume_init() };
        Ok(Stat {
            bytes: u64::try_from(found.st_size).unwrap_or(0),
            is_directory: found.st_mode & libc::S_IFMT == libc::S_IFDIR,
            modified_seconds: Some(found.st_mtime).filter(|seconds| *seconds > 0),
        })
    }

    /// The checksum of a whole file, in the words of its storage element.
    pub(super) fn checksum(&self, url: &str, algorithm: &str) -> Result<String, GfalError> {
        let (url, algorithm) = (c_url(url)?, c_text(algorithm)?);
        let mut value = [0 as c_char; TEXT_BYTES];
        // SAFETY: `value` has the length that is told.
        self.done(|error| unsafe {
            (self.symbols.gfal2_checksum)(
                self.context,
                url.as_ptr(),
                algorithm.as_ptr(),
                0,
                0,
                value.as_mut_ptr(),
                value.len(),
                error,
            )
        })?;
        Ok(text_in(&value))
    }

    pub(super) fn make_directories(&self, url: &str) -> Result<(), GfalError> {
        let url = c_url(url)?;
        // SAFETY: a text that lives for the call.
        self.done(|error| unsafe {
            (self.symbols.gfal2_mkdir_rec)(self.context, url.as_ptr(), DIRECTORY_MODE, error)
        })
    }

    pub(super) fn remove(&self, url: &str) -> Result<(), GfalError> {
        let url = c_url(url)?;
        // SAFETY: a text that lives for the call.
        self.done(|error| unsafe { (self.symbols.gfal2_unlink)(self.context, url.as_ptr(), error) })
    }

    /// Asks for files to be brought from tape: the request's name, and which are there already or cannot be brought.
    pub(super) fn bring_online(
        &self,
        urls: &[String],
        pin_seconds: i64,
        timeout_seconds: i64,
    ) -> Result<(String, Vec<FileState>), GfalError> {
        let mut request = [0 as c_char; TEXT_BYTES];
        // SAFETY: `count` texts and places for errors; `request` has the length that is told.
        let files = self.about_files(urls, |count, urls, errors| unsafe {
            (self.symbols.gfal2_bring_online_list)(
                self.context,
                count,
                urls,
                pin_seconds,
                timeout_seconds,
                request.as_mut_ptr(),
                request.len(),
                1,
                errors,
            )
        })?;
        Ok((text_in(&request), files))
    }

    /// Which files have been brought.
    pub(super) fn poll_online(
        &self,
        urls: &[String],
        request: &str,
    ) -> Result<Vec<FileState>, GfalError> {
        let request = c_text(request)?;
        // SAFETY: `count` texts and places for errors, and a text that lives for the call.
        self.about_files(urls, |count, urls, errors| unsafe {
            (self.symbols.gfal2_bring_online_poll_list)(
                self.context,
                count,
                urls,
                request.as_ptr(),
                errors,
            )
        })
    }

    pub(super) fn release(
        &self,
        urls: &[String],
        request: &str,
    ) -> Result<Vec<FileState>, GfalError> {
        let text = c_text(request)?;
        // Without a request, files are released by their names.
        let named = if request.is_empty() {
            null()
        } else {
            text.as_ptr()
        };
        // SAFETY: `count` texts and places for errors, and a text that lives for the call, or none.
        let files = self.about_files(urls, |count, urls, errors| unsafe {
            (self.symbols.gfal2_release_file_list)(self.context, count, urls, named, errors)
        })?;
        Ok(without_pending(files))
    }

    pub(super) fn abort(
        &self,
        urls: &[String],
        request: &str,
    ) -> Result<Vec<FileState>, GfalError> {
        let request = c_text(request)?;
        // SAFETY: `count` texts and places for errors, and a text that lives for the call.
        let files = self.about_files(urls, |count, urls, errors| unsafe {
            (self.symbols.gfal2_abort_files)(self.context, count, urls, request.as_ptr(), errors)
        })?;
        Ok(without_pending(files))
    }

    /// One call about many files, each with a place for an error of its own. A result below 0 is of them all.
    fn about_files(
        &self,
        urls: &[String],
        call: impl FnOnce(c_int, *const Text, ErrorOut) -> c_int,
    ) -> Result<Vec<FileState>, GfalError> {
        let count = c_int::try_from(urls.len()).ok();
        let count = count.filter(|_| (1..=GFAL_FILES_MAX).contains(&urls.len()));
        let count = count.ok_or_else(|| {
            let why = format!(
                "{} files in one call, not 1 to {GFAL_FILES_MAX}",
                urls.len()
            );
            GfalError::new(libc::EINVAL, &why)
        })?;
        let texts: Vec<CString> = urls
            .iter()
            .map(|url| c_url(url))
            .collect::<Result<_, _>>()?;
        let pointers: Vec<Text> = texts.iter().map(|text| text.as_ptr()).collect();
        let mut errors = vec![null_mut(); urls.len()];
        let result = call(count, pointers.as_ptr(), errors.as_mut_ptr());
        let errors = errors.into_iter().map(|error| {
            let error = (!error.is_null()).then(|| self.take_error(error))?;
            Some(error.cut(FILE_TEXT_CHARS_MAX))
        });
        Ok(states_of(result, errors.collect()))
    }

    /// An extended attribute of a file.
    pub(super) fn attribute(&self, url: &str, name: &str) -> Result<String, GfalError> {
        let (url, name) = (c_url(url)?, c_text(name)?);
        // One byte more than is told, so that a zero byte ends the text in any case.
        let mut value = [0 as c_char; TEXT_BYTES];
        // SAFETY: `value` is longer than is told.
        self.counted(|error| unsafe {
            (self.symbols.gfal2_getxattr)(
                self.context,
                url.as_ptr(),
                name.as_ptr(),
                value.as_mut_ptr().cast(),
                value.len() - 1,
                error,
            )
        })?;
        Ok(text_in(&value).trim().to_owned())
    }

    /// A copy by a plug-in, or as the library likes.
    pub(super) fn copy(&self, order: &CopyOrder, listener: Listener) -> Result<(), GfalError> {
        let (source, destination) = (c_url(&order.source)?, c_url(&order.destination)?);
        let parameters = self.parameters(order)?;
        let listener: &'static (&'static Symbols, Listener) =
            Box::leak(Box::new((self.leaked_symbols(), listener)));
        let data = std::ptr::from_ref(listener).cast_mut().cast::<c_void>();
        let s = &self.symbols;
        // SAFETY: `data` is what both callbacks expect, and is never freed.
        self.done(|error| unsafe {
            (s.gfalt_add_monitor_callback)(parameters, on_monitor, data, None, error)
        })?;
        // SAFETY: as above.
        self.done(|error| unsafe {
            (s.gfalt_add_event_callback)(parameters, on_event, data, None, error)
        })?;
        // SAFETY: context and parameters are alive, both texts live for the call.
        let copied = self.done(|error| unsafe {
            (s.gfalt_copy_file)(
                self.context,
                parameters,
                source.as_ptr(),
                destination.as_ptr(),
                error,
            )
        });
        // SAFETY: made above, and not used after this.
        unsafe { (s.gfalt_params_handle_delete)(parameters, null_mut()) };
        copied
    }

    fn parameters(&self, order: &CopyOrder) -> Result<Parameters, GfalError> {
        let s = &self.symbols;
        let mut error = null_mut();
        // SAFETY: takes a place for an error.
        let made = unsafe { (s.gfalt_params_handle_new)(&mut error) };
        if made.is_null() {
            return Err(self.take_error(error));
        }
        // SAFETY (of each call below): `made` is alive, texts live for the call and are copied.
        let set = |result: &mut dyn FnMut(ErrorOut) -> c_int| self.done(result);
        set(&mut |e| unsafe { (s.gfalt_set_timeout)(made, order.timeout_seconds, e) })?;
        if let Some(streams) = order.streams {
            set(&mut |e| unsafe { (s.gfalt_set_nbstreams)(made, streams, e) })?;
        }
        if let Some(bytes) = order.buffer_bytes {
            set(&mut |e| unsafe { (s.gfalt_set_tcp_buffer_size)(made, bytes, e) })?;
        }
        if let Some(space) = &order.source_space {
            let space = c_text(space)?;
            set(&mut |e| unsafe { (s.gfalt_set_src_spacetoken)(made, space.as_ptr(), e) })?;
        }
        if let Some(space) = &order.destination_space {
            let space = c_text(space)?;
            set(&mut |e| unsafe { (s.gfalt_set_dst_spacetoken)(made, space.as_ptr(), e) })?;
        }
        let replace = c_int::from(order.replace);
        set(&mut |e| unsafe { (s.gfalt_set_replace_existing_file)(made, replace, e) })?;
        let strict = c_int::from(order.strict);
        set(&mut |e| unsafe { (s.gfalt_set_strict_copy_mode)(made, strict, e) })?;
        // The service compares checksums and makes directories itself.
        set(&mut |e| unsafe { (s.gfalt_set_checksum)(made, CHECKSUM_NONE, null(), null(), e) })?;
        set(&mut |e| unsafe { (s.gfalt_set_create_parent_dir)(made, 0, e) })?;
        let delegate = c_int::from(order.delegate);
        set(&mut |e| unsafe { (s.gfalt_set_use_proxy_delegation)(made, delegate, e) })?;
        Ok(made)
    }

    /// For callbacks, which outlive borrows. Two hundred bytes, once in a process.
    fn leaked_symbols(&self) -> &'static Symbols {
        // SAFETY: plain function pointers, valid as long as the library is mapped, which is until the process ends:
        // nothing drops a `Gfal` before that.
        Box::leak(Box::new(unsafe { std::ptr::read(&self.symbols) }))
    }

    /// Opens a file to read it from its begin.
    pub(super) fn open_to_read(&self, url: &str) -> Result<OpenFile<'_>, GfalError> {
        self.open(url, libc::O_RDONLY)
    }

    /// Opens a file to write it anew.
    pub(super) fn open_to_write(
        &self,
        url: &str,
        exclusive: bool,
    ) -> Result<OpenFile<'_>, GfalError> {
        let flag = if exclusive {
            libc::O_EXCL
        } else {
            libc::O_TRUNC
        };
        self.open(url, libc::O_WRONLY | libc::O_CREAT | flag)
    }

    fn open(&self, url: &str, flags: c_int) -> Result<OpenFile<'_>, GfalError> {
        let url = c_url(url)?;
        // SAFETY: a text that lives for the call.
        let handle = self.counted(|error| unsafe {
            (self.symbols.gfal2_open2)(self.context, url.as_ptr(), flags, FILE_MODE, error)
                as ssize_t
        })?;
        Ok(OpenFile {
            gfal: self,
            handle: handle as c_int,
        })
    }

    /// A call that gives 0 or more when it worked.
    fn done(&self, call: impl FnOnce(ErrorOut) -> c_int) -> Result<(), GfalError> {
        self.counted(|error| call(error) as ssize_t).map(drop)
    }

    fn counted(&self, call: impl FnOnce(ErrorOut) -> ssize_t) -> Result<usize, GfalError> {
        let mut error = null_mut();
        let result = call(&mut error);
        match (usize::try_from(result), error.is_null()) {
            (Ok(count), true) => Ok(count),
            _ => Err(self.take_error(error)),
        }
    }

    /// Takes what the library says and gives its memory back.
    fn take_error(&self, error: *mut RawError) -> GfalError {
        if error.is_null() {
            return GfalError::new(libc::EIO, "gfal2 failed and gave no reason");
        }
        // SAFETY: an error that the library made and gave away; it is freed once.
        unsafe {
            let told = GfalError::new((*error).code, &text_of((*error).message));
            (self.symbols.g_error_free)(error);
            told
        }
    }
}

/// An open file of a storage element.
pub(super) struct OpenFile<'a> {
    gfal: &'a Gfal,
    handle: c_int,
}

impl OpenFile<'_> {
    /// The next bytes. 0: the end.
    pub(super) fn read(&mut self, into: &mut [u8]) -> Result<usize, GfalError> {
        let gfal = self.gfal;
        // SAFETY: `into` is writable for its length.
        gfal.counted(|error| unsafe {
            (gfal.symbols.gfal2_read)(
                gfal.context,
                self.handle,
                into.as_mut_ptr().cast(),
                into.len(),
                error,
            )
        })
    }

    /// Writes all of it.
    pub(super) fn write_all(&mut self, mut bytes: &[u8]) -> Result<(), GfalError> {
        let gfal = self.gfal;
        while !bytes.is_empty() {
            // SAFETY: `bytes` is readable for its length.
            let count = gfal.counted(|error| unsafe {
                (gfal.symbols.gfal2_write)(
                    gfal.context,
                    self.handle,
                    bytes.as_ptr().cast(),
                    bytes.len(),
                    error,
                )
            })?;
            if count == 0 {
                return Err(GfalError::new(libc::EIO, "gfal2 wrote nothing"));
            }
            bytes = bytes.get(count..).unwrap_or_default();
        }
        Ok(())
    }

    /// Closes it. Only this tells whether everything was written.
    pub(super) fn close(self) -> Result<(), GfalError> {
        let gfal = self.gfal;
        // SAFETY: a handle that was opened, and is closed once, because this takes the value.
        gfal.done(|error| unsafe { (gfal.symbols.gfal2_close)(gfal.context, self.handle, error) })
    }
}

unsafe extern "C" fn on_monitor(status: Status, _: Text, _: Text, data: *mut c_void) {
    if status.is_null() || data.is_null() {
        return;
    }
    // SAFETY: `data` is what `copy` gave and never freed; the status is alive during the call.
    let (moved, rate, listener) = unsafe {
        let (symbols, listener) = &*data.cast::<(&'static Symbols, Listener)>();
        let moved = (symbols.gfalt_copy_get_bytes_transfered)(status, null_mut());
        let rate = (symbols.gfalt_copy_get_instant_baudrate)(status, null_mut());
        (moved as u64, rate as u64, listener)
    };
    listener(News::Moved(moved, rate));
}

unsafe extern "C" fn on_event(event: *const RawEvent, data: *mut c_void) {
    if event.is_null() || data.is_null() {
        return;
    }
    // SAFETY: `data` is what `copy` gave and never freed; the event is alive during the call.
    let (stage, told, listener) = unsafe {
        let (symbols, listener) = &*data.cast::<(&'static Symbols, Listener)>();
        let stage = text_of((symbols.g_quark_to_string)((*event).stage));
        (stage, text_of((*event).description), listener)
    };
    // `GFAL_EVENT_TRANSFER_TYPE`.
    if stage == "TRANSFER:TYPE" {
        listener(News::Way(told));
    }
}

/// What came of each file of a call, by the result of the call and the errors of files.
fn states_of(result: c_int, errors: Vec<Option<GfalError>>) -> Vec<FileState> {
    let of_all = (result < 0).then(|| {
        let first = errors.iter().flatten().next().cloned();
        first.unwrap_or_else(|| GfalError::new(libc::EIO, "gfal2 failed and gave no reason"))
    });
    // The interface gives 0 for a request that is not done. Plug-ins tell so by EAGAIN for files that are missing when
    // others have come.
    let is_quiet = result == 0 && errors.iter().all(Option::is_none);
    let state = |error: Option<GfalError>| match error.or_else(|| of_all.clone()) {
        Some(error) if error.errno == libc::EAGAIN => FileState::Pending,
        Some(error) => FileState::Failed(error),
        None if is_quiet => FileState::Pending,
        None => FileState::Done,
    };
    errors.into_iter().map(state).collect()
}

/// For calls that are done when they return.
fn without_pending(mut files: Vec<FileState>) -> Vec<FileState> {
    for file in &mut files {
        if *file == FileState::Pending {
            *file = FileState::Done;
        }
    }
    files
}

/// Every URL for the library comes from here.
fn c_url(url: &str) -> Result<CString, GfalError> {
    c_text(&without_local_parameters(url))
}

fn c_text(text: &str) -> Result<CString, GfalError> {
    CString::new(text)
        .map_err(|_| GfalError::new(libc::EINVAL, "a text for gfal2 must not hold a zero byte"))
}

/// What a pointer of the library points to; empty for a null pointer.
fn text_of(text: Text) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: texts of the library end with a zero byte.
    unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned()
}

fn text_in(buffer: &[c_char; TEXT_BYTES]) -> String {
    let bytes: Vec<u8> = buffer
        .iter()
        .map(|c| *c as u8)
        .take_while(|byte| *byte != 0)
        .collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_of_a_call_has_its_own_answer() {
        let error = |errno| Some(GfalError::new(errno, "x"));
        let check = |result, errors: &[Option<i32>], expected: &[&str]| {
            let errors = errors.iter().map(|errno| errno.and_then(error)).collect();
            let found = states_of(result, errors);
            let found: Vec<String> = found
                .iter()
                .map(|state| match state {
                    FileState::Failed(error) => error.errno.to_string(),
                    other => format!("{other:?}"),
                })
                .collect();
            assert_eq!(found, expected, "{result}");
        };
        check(0, &[None, None], &["Pending", "Pending"]);
        check(1, &[None, None], &["Done", "Done"]);
        check(0, &[None, Some(libc::EAGAIN)], &["Done", "Pending"]);
        check(1, &[None, Some(libc::ENOENT)], &["Done", "2"]);
        check(-1, &[Some(libc::EPERM), None], &["1", "1"]);
        check(-1, &[None], &["5"]);
        check(-1, &[Some(libc::EAGAIN)], &["Pending"]);
    }
}
