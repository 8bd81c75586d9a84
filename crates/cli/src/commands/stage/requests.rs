//! Stage requests: at which storage element which files are asked for, and what is told of each.

use crate::commands::access::{Access, Need, Server, audiences_of};
use crate::commands::jobs::end_tokens;
use crate::exit::CommandError;
use penstock_field_tools::remote::path_of;
use penstock_field_tools::tape_rest::{TapeRest, find_interface};
use penstock_model::quantity::Span;
use penstock_model::tape::{STAGING_SECONDS_DEFAULT, StageFile};
use penstock_model::text::{one_line, plural};
use penstock_model::url::redact;
use penstock_model::{
    FileProgress, NamespacePath, Problem, ProblemCode, Right, Side, StageRequestId, Timestamp,
};
use penstock_protocol::tape::{StageRequestStatus, StagedFileStatus};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use url::Url;

/// What a token needs for files that are brought and let go. Looking at them tells their sizes.
const RIGHTS: &[Right] = &[Right::Stage, Right::Read];

/// A file, as it was named and as its storage element names it.
#[derive(Debug, Clone)]
pub struct NamedFile {
    pub url: Url,
    pub path: String,
}

/// Files of one storage element, and its tape interface.
pub struct Place {
    /// `https://host:port`.
    pub server: String,
    door: Url,
    pub tape: Arc<TapeRest>,
    pub files: Vec<NamedFile>,
}

/// For what a token that is made here is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenReach {
    /// For the files that are named.
    NamedFiles,
    /// For all files: those of a request that was made before are not known, and all of them have to be allowed.
    WholeRequest,
}

/// Files by their storage elements, each of which is yet to be asked for its tape interface.
pub fn places_of<'a>(
    urls: &[Url],
    access: &'a Access,
    reach: TokenReach,
) -> Vec<impl Future<Output = Result<Place, (String, CommandError)>> + use<'a>> {
    let mut servers: BTreeMap<Server, Vec<Url>> = BTreeMap::new();
    for url in urls {
        servers
            .entry(Server::of(url))
            .or_default()
            .push(url.clone());
    }
    let place = move |urls: Vec<Url>| async move {
        let server = server_name(&urls[0]);
        Place::of_files(urls, access, reach)
            .await
            .map_err(|why| (server, why))
    };
    servers.into_values().map(place).collect()
}

fn server_name(url: &Url) -> String {
    redact(&url.origin().ascii_serialization())
}

impl Place {
    /// Of some files of one server.
    async fn of_files(
        urls: Vec<Url>,
        access: &Access,
        reach: TokenReach,
    ) -> Result<Place, CommandError> {
        let mut paths = BTreeSet::new();
        let mut files = Vec::with_capacity(urls.len());
        for url in urls {
            let path = path_of(&url)?;
            files.push(NamedFile {
                path: path.to_string(),
                url,
            });
            paths.insert(path);
        }
        if reach == TokenReach::WholeRequest {
            paths = BTreeSet::from([NamespacePath::root()]);
        }
        let door = files[0].url.clone();
        let place = Place::open(&door, paths, access).await?;
        Ok(Place { files, ..place })
    }

    /// Of a server, for requests that were made there.
    pub async fn of_server(door: &Url, access: &Access) -> Result<Place, CommandError> {
        Place::open(door, BTreeSet::from([NamespacePath::root()]), access).await
    }

    async fn open(
        door: &Url,
        paths: BTreeSet<NamespacePath>,
        access: &Access,
    ) -> Result<Place, CommandError> {
        let interface = find_interface(&access.client, door).await;
        let interface = interface.map_err(|why| CommandError::Remote {
            text: why.to_string(),
            problem: Box::new(why.problem()),
        })?;
        let need = Need {
            scope: end_tokens::scope_of(paths, RIGHTS),
            audiences: audiences_of(door),
        };
        // The interface may have a port of its own.
        let servers = [Server::of(door), Server::of(interface.uri())];
        let credentials = access.credentials(servers.map(|server| (server, need.clone())));
        Ok(Place {
            server: server_name(door),
            door: door.clone(),
            tape: Arc::new(TapeRest::new(access.client.clone(), interface, credentials)),
            files: Vec::new(),
        })
    }

    /// Asks for some of its files.
    pub async fn stage(
        &self,
        files: &[NamedFile],
        lifetime: Option<Span>,
    ) -> Result<OpenRequest, CommandError> {
        let wanted = files.iter().map(|file| StageFile {
            path: file.path.clone(),
            pin_seconds: lifetime.map(|span| span.0.as_secs()),
            within_seconds: STAGING_SECONDS_DEFAULT,
            targeted_metadata: None,
        });
        let wanted: Vec<StageFile> = wanted.collect();
        let id = self.tape.stage(&wanted).await?;
        Ok(OpenRequest {
            id,
            server: self.server.clone(),
            tape: Arc::clone(&self.tape),
            files: files.to_vec(),
            status: None,
        })
    }

    /// What is shown of a file that was not named here.
    pub fn told(&self, id: &StageRequestId, file: StagedFileStatus) -> StagedFile {
        let mut url = self.door.clone();
        url.set_query(None);
        match NamespacePath::parse(&file.path) {
            Ok(path) => url.set_path(&path.to_encoded()),
            Err(_) => url.set_path(&file.path),
        }
        StagedFile::of(redact(url.as_str()), &self.server, id, file)
    }
}

/// A request that was made, and what is known of it.
pub struct OpenRequest {
    pub id: StageRequestId,
    pub server: String,
    pub tape: Arc<TapeRest>,
    pub files: Vec<NamedFile>,
    pub status: Option<StageRequestStatus>,
}

impl OpenRequest {
    /// As it is shown.
    pub fn name(&self) -> String {
        format!("{} {}", one_line(self.id.as_str()), self.server)
    }

    /// Whether nothing of it is on its way.
    pub fn has_ended(&self) -> bool {
        let pending = |file: &StagedFileStatus| file.progress == FileProgress::Pending;
        let status = self.status.as_ref();
        status.is_some_and(|status| !status.files.iter().any(pending))
    }

    /// What is known of each file that was asked for.
    pub fn staged(&self) -> Vec<StagedFile> {
        let told = self.status.iter().flat_map(|status| &status.files);
        let told: BTreeMap<&str, &StagedFileStatus> =
            told.map(|file| (file.path.as_str(), file)).collect();
        let unknown = |path: &str| StagedFileStatus {
            path: path.to_owned(),
            progress: match self.status {
                Some(_) => {
                    FileProgress::Failed("the storage element tells nothing of it".to_owned())
                }
                None => FileProgress::Pending,
            },
            is_canceled: false,
            is_started: false,
            waits_for: None,
            code: None,
            expected: None,
        };
        let files = self.files.iter().map(|file| {
            let status = told.get(file.path.as_str()).copied().cloned();
            let status = status.unwrap_or_else(|| unknown(&file.path));
            StagedFile::of(redact(file.url.as_str()), &self.server, &self.id, status)
        });
        files.collect()
    }

    /// A line for people, once it has ended.
    pub fn summary(&self) -> String {
        let staged = self.staged();
        let on_disk = staged.iter().filter(|file| file.on_disk).count();
        let all = plural(staged.len() as u64, "file");
        format!("{}: {on_disk} of {all} on disk\n", self.name())
    }
}

/// A file of a request, as it is shown.
#[derive(Debug, Serialize)]
pub struct StagedFile {
    pub url: String,
    pub request: String,
    pub server: String,
    /// `SUBMITTED`, `STARTED`, `COMPLETED`, `FAILED` or `CANCELLED`.
    pub state: &'static str,
    pub on_disk: bool,
    /// When it will be on disk, as far as its storage element tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    /// Why it does not come.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(skip)]
    code: Option<ProblemCode>,
}

impl StagedFile {
    fn of(url: String, server: &str, id: &StageRequestId, file: StagedFileStatus) -> StagedFile {
        let (state, error) = match file.progress {
            FileProgress::OnDisk => ("COMPLETED", None),
            FileProgress::Pending if file.is_started => ("STARTED", None),
            FileProgress::Pending => ("SUBMITTED", None),
            FileProgress::Failed(_) if file.is_canceled => ("CANCELLED", None),
            FileProgress::Failed(why) => ("FAILED", Some(why)),
            FileProgress::Refused(failure) => ("FAILED", Some(failure.detail)),
        };
        let named = file.code.as_deref().and_then(ProblemCode::by_name);
        StagedFile {
            url,
            request: id.to_string(),
            server: server.to_owned(),
            state,
            on_disk: state == "COMPLETED",
            expected: file.expected,
            waits_for: file.waits_for,
            error,
            code: named,
        }
    }

    /// A failure where it does not come.
    pub fn outcome(self) -> Result<StagedFile, CommandError> {
        let why = match (&self.error, self.state) {
            (Some(why), _) => why.clone(),
            (None, "CANCELLED") => "it was canceled".to_owned(),
            (None, _) => return Ok(self),
        };
        let text = format!("{}: {why}", self.url);
        let code = self.code.unwrap_or(ProblemCode::FilesFailed);
        Err(CommandError::Remote {
            problem: Box::new(Problem::new(code, text.clone()).at(Side::Service)),
            text,
        })
    }
}
