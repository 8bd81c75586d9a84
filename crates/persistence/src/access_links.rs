//! Short links that give access: login links and their sessions, views of one job or transfer, shares of a path.
//!
//! One store for each role, a database of SQLite of its own, so that a backup never brings a revoked link back. Whoever holds
//! the secret of a link holds what it gives. The store keeps a digest of the secret, and the grant sealed with the secret: a
//! copy of the database opens nothing. All rows are in memory too, so that a guess costs one look-up there and no read of a disk.
//! Each change is durable when it returns; calls that change something block for milliseconds.

mod rows;
mod secret;

pub use secret::LinkSecret;

use parking_lot::Mutex;
use penstock_model::Timestamp;
use penstock_model::share_link::SHARE_MARK;
use rows::{Rows, Table};
use secret::SealedGrant;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;
use thiserror::Error;

/// Links of one owner that are valid at once.
const VALID_PER_OWNER_MAX: usize = 100;
/// Links of one owner, with those that have ended: what others did must stay in the audit.
const KEPT_PER_OWNER_MAX: usize = 1_000;
/// Links of all owners, with those that have ended.
const LINKS_MAX: usize = 20_000;
/// How long a link that has ended is kept, so that whoever opens it is told what became of it: a week.
const ENDED_KEPT: Duration = Duration::from_secs(7 * 86_400);
/// The last use is written again when it is this much later.
const USE_RESOLUTION: Duration = Duration::from_secs(60);

/// How long a link is to be valid, as clients say it: whole seconds, 1 to 4,294,967,295.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkSeconds(u32);

impl From<LinkSeconds> for Duration {
    fn from(LinkSeconds(seconds): LinkSeconds) -> Duration {
        Duration::from_secs(seconds.into())
    }
}

impl<'de> Deserialize<'de> for LinkSeconds {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<LinkSeconds, D::Error> {
        // In JSON `60.0` is the whole number 60.
        let seconds = f64::deserialize(from)?;
        let is_whole = seconds.fract() == 0.0 && (1.0..=f64::from(u32::MAX)).contains(&seconds);
        match is_whole {
            true => Ok(LinkSeconds(seconds as u32)),
            false => Err(D::Error::custom(
                "seconds must be a whole number from 1 to 4294967295",
            )),
        }
    }
}

/// What a link is for. A secret of one kind is unknown as one of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AccessLinkKind {
    /// Makes one session of the person who made it.
    Login,
    /// What a login link gave a browser.
    Session,
    /// Shows one job or transfer without names and paths.
    View,
    /// A path of the storage element, by a macaroon that stays here.
    Share,
}

impl AccessLinkKind {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            AccessLinkKind::Login => "login",
            AccessLinkKind::Session => "session",
            AccessLinkKind::View => "view",
            AccessLinkKind::Share => "share",
        }
    }

    /// The first character of its secrets.
    fn mark(self) -> char {
        match self {
            AccessLinkKind::Login => 'L',
            AccessLinkKind::Session => 'T',
            AccessLinkKind::View => 'V',
            AccessLinkKind::Share => SHARE_MARK,
        }
    }

    fn of_name(name: &str) -> Option<AccessLinkKind> {
        [
            AccessLinkKind::Login,
            AccessLinkKind::Session,
            AccessLinkKind::View,
            AccessLinkKind::Share,
        ]
        .into_iter()
        .find(|kind| kind.name() == name)
    }
}

/// Names a link without giving access: 12 hex digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AccessLinkId(String);

impl fmt::Display for AccessLinkId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl FromStr for AccessLinkId {
    type Err = InvalidLinkId;

    fn from_str(text: &str) -> Result<AccessLinkId, InvalidLinkId> {
        let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        match text.len() == 12 && text.bytes().all(is_hex) {
            true => Ok(AccessLinkId(text.to_owned())),
            false => Err(InvalidLinkId),
        }
    }
}

/// What is not the id of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the id of a link has 12 hex digits")]
pub struct InvalidLinkId;

/// How a link ended, or that it has not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkState {
    Valid,
    /// A login link gave its session.
    Used {
        at: Timestamp,
    },
    /// By whom, as people know them.
    Revoked {
        at: Timestamp,
        by: String,
    },
}

/// A link without its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessLink {
    pub id: AccessLinkId,
    pub kind: AccessLinkKind,
    /// Who made it: the name that stands for all credentials of a user.
    pub owner: String,
    /// The owner as people know them.
    pub user: String,
    /// What it opens: a path of the storage element, `job/ID`, `transfer/ID`, or `/`.
    pub opens: String,
    /// What may be done there, for people.
    pub access: String,
    pub created: Timestamp,
    pub expires: Timestamp,
    pub first_used: Option<Timestamp>,
    /// To a minute.
    pub last_used: Option<Timestamp>,
    pub state: LinkState,
}

impl AccessLink {
    /// Why it gives nothing (any more), if so.
    pub fn end(&self, now: Timestamp) -> Option<LinkEnd> {
        match &self.state {
            LinkState::Revoked { at, .. } => Some(LinkEnd::Revoked(*at)),
            LinkState::Used { at } => Some(LinkEnd::Used(*at)),
            LinkState::Valid if self.expires <= now => Some(LinkEnd::Expired(self.expires)),
            LinkState::Valid => None,
        }
    }

    /// When it ended or will.
    fn ends(&self) -> Timestamp {
        match &self.state {
            LinkState::Revoked { at, .. } | LinkState::Used { at } => (*at).min(self.expires),
            LinkState::Valid => self.expires,
        }
    }
}

/// A link to be made.
#[derive(Debug, Clone)]
pub struct NewAccessLink {
    pub kind: AccessLinkKind,
    pub owner: String,
    pub user: String,
    pub opens: String,
    pub access: String,
    pub expires: Timestamp,
    /// What it gives, in a form that the caller reads again. It is sealed with the secret.
    pub grant: Vec<u8>,
}

/// Why a secret opens nothing. Only who knows the secret learns more than `Unknown`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum LinkEnd {
    #[error("this link does not exist; it may be incomplete, or it ended more than a week ago")]
    Unknown,
    #[error("this link expired at {} UTC; ask for a new one", shown(*.0))]
    Expired(Timestamp),
    #[error("this link was used at {} UTC, and it can be used only once; ask for a new one", shown(*.0))]
    Used(Timestamp),
    #[error("this link was revoked at {} UTC; ask for a new one", shown(*.0))]
    Revoked(Timestamp),
}

/// `2026-11-23 05:32`.
fn shown(at: Timestamp) -> String {
    at.to_fts()[..16].replace('T', " ")
}

/// Why a link cannot be made, used or revoked.
#[derive(Debug, Error)]
pub enum AccessLinkError {
    /// SQLite says so; a full disk arrives here.
    #[error("the access links {path} cannot be used: {source}")]
    Sqlite {
        path: String,
        #[source]
        source: rusqlite::Error,
    },
    /// Written by a later version.
    #[error("the access links {path} were written by a later version (schema {found}): upgrade")]
    TooNew { path: String, found: u32 },
    /// There is no randomness.
    #[error("OpenSSL failed: {0}")]
    OpenSsl(#[from] openssl::error::ErrorStack),
    #[error("you have {VALID_PER_OWNER_MAX} valid links here already; revoke some first")]
    TooManyOfOwner,
    #[error(
        "you have made {KEPT_PER_OWNER_MAX} links here lately; one that has ended counts for a week, so try again later"
    )]
    TooManyKeptOfOwner,
    #[error("this server keeps {LINKS_MAX} links already; revoke some, or wait until some expire")]
    TooMany,
    #[error(transparent)]
    Ended(#[from] LinkEnd),
}

/// What a secret opens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenedLink {
    pub link: AccessLink,
    /// As it was given to [`AccessLinks::make`].
    pub grant: Vec<u8>,
    /// It had not been used before.
    pub is_first_use: bool,
}

/// The links of one role.
#[derive(Debug)]
pub struct AccessLinks {
    /// Held for a look-up, never while a disk is written.
    rows: Mutex<Rows>,
    /// Held for a whole change, so that what is written and what is in memory follow each other.
    table: Mutex<Table>,
    path: PathBuf,
}

impl AccessLinks {
    /// Opens or creates the database (mode 0600). Links that ended long ago go.
    pub fn open(path: &Path, now: Timestamp) -> Result<AccessLinks, AccessLinkError> {
        let mut table = Table::open(path)?;
        table
            .forget(now - ENDED_KEPT)
            .map_err(|why| failed(path, why))?;
        let rows = table.load().map_err(|why| failed(path, why))?;
        Ok(AccessLinks {
            rows: Mutex::new(rows),
            table: Mutex::new(table),
            path: path.to_owned(),
        })
    }

    /// Makes a link. The secret is told once, here.
    pub fn make(
        &self,
        new: NewAccessLink,
        now: Timestamp,
    ) -> Result<(AccessLink, LinkSecret), AccessLinkError> {
        let secret = LinkSecret::random(new.kind)?;
        let sealed = SealedGrant::of(&secret, &new.grant)?;
        let mut table = self.table.lock();
        self.forget_ended(&mut table, now)?;
        let link = {
            let rows = self.rows.lock();
            let owned = rows.owned(&new.owner, now);
            if owned.valid >= VALID_PER_OWNER_MAX {
                return Err(AccessLinkError::TooManyOfOwner);
            }
            if owned.kept >= KEPT_PER_OWNER_MAX {
                return Err(AccessLinkError::TooManyKeptOfOwner);
            }
            if rows.len() >= LINKS_MAX {
                return Err(AccessLinkError::TooMany);
            }
            AccessLink {
                id: AccessLinkId(rows.unused_id()?),
                kind: new.kind,
                owner: new.owner,
                user: new.user,
                opens: new.opens,
                access: new.access,
                created: now,
                expires: new.expires,
                first_used: None,
                last_used: None,
                state: LinkState::Valid,
            }
        };
        let digest = secret.digest();
        let inserted = table.insert(&link, &digest, &sealed);
        inserted.map_err(|why| self.failed(why))?;
        self.rows.lock().put(digest, link.clone(), sealed);
        Ok((link, secret))
    }

    /// What a secret of this kind opens. Reads no disk and writes none.
    pub fn find(
        &self,
        kind: AccessLinkKind,
        secret: &LinkSecret,
        now: Timestamp,
    ) -> Result<OpenedLink, LinkEnd> {
        let digest = secret.digest();
        let (link, sealed) = self.rows.lock().find(&digest).ok_or(LinkEnd::Unknown)?;
        if link.kind != kind {
            return Err(LinkEnd::Unknown);
        }
        if let Some(end) = link.end(now) {
            return Err(end);
        }
        let grant = sealed.open(secret).ok_or(LinkEnd::Unknown)?;
        Ok(OpenedLink {
            is_first_use: link.first_used.is_none(),
            link,
            grant,
        })
    }

    /// Whether a use now is to be written by [`AccessLinks::note_use`]: the first one, and one a minute.
    pub fn is_use_due(&self, link: &AccessLink, now: Timestamp) -> bool {
        link.last_used
            .is_none_or(|last| now.since(last) >= USE_RESOLUTION)
    }

    /// Writes that a link is used. Tells whether it was the first time.
    pub fn note_use(&self, id: &AccessLinkId, now: Timestamp) -> Result<bool, AccessLinkError> {
        let mut is_first = false;
        self.change(id, |link| {
            if !self.is_use_due(link, now) {
                return false;
            }
            is_first = link.first_used.is_none();
            link.first_used = link.first_used.or(Some(now));
            link.last_used = Some(now);
            true
        })?;
        Ok(is_first)
    }

    /// Uses up a login link: of several that show its secret, one gets its grant, and that is durable before it does.
    pub fn take(&self, secret: &LinkSecret, now: Timestamp) -> Result<OpenedLink, AccessLinkError> {
        let opened = self.find(AccessLinkKind::Login, secret, now)?;
        let mut end = Some(LinkEnd::Unknown);
        let taken = self.change(&opened.link.id, |link| {
            end = link.end(now);
            if end.is_none() {
                link.first_used = Some(now);
                link.last_used = Some(now);
                link.state = LinkState::Used { at: now };
            }
            end.is_none()
        })?;
        match (end, taken) {
            (Some(end), _) => Err(end.into()),
            (None, None) => Err(LinkEnd::Unknown.into()),
            (None, Some(link)) => Ok(OpenedLink { link, ..opened }),
        }
    }

    /// The links of an owner, or of all, the newest first.
    pub fn list(&self, owner: Option<&str>) -> Vec<AccessLink> {
        let rows = self.rows.lock();
        let mut links: Vec<AccessLink> = rows.links().filter(|link| is_of(link, owner)).collect();
        links.sort_by(|a, b| (b.created, &b.id).cmp(&(a.created, &a.id)));
        links
    }

    /// Ends a link of an owner, or of anybody, at once; `by`: who does that. `None`: there is none. One that has ended stays
    /// as it is.
    pub fn revoke(
        &self,
        id: &AccessLinkId,
        owner: Option<&str>,
        by: &str,
        now: Timestamp,
    ) -> Result<Option<AccessLink>, AccessLinkError> {
        let mut is_theirs = false;
        let changed = self.change(id, |link| {
            is_theirs = is_of(link, owner);
            let ends = is_theirs && link.end(now).is_none();
            if ends {
                link.state = LinkState::Revoked {
                    at: now,
                    by: by.to_owned(),
                };
            }
            ends
        })?;
        Ok(changed.filter(|_| is_theirs))
    }

    /// Whether somebody has revoked a link. One that has merely expired was not, nor one that is kept no more.
    pub fn is_revoked(&self, id: &AccessLinkId) -> bool {
        let known = self.rows.lock().by_id(id);
        known.is_some_and(|(_, link)| matches!(link.state, LinkState::Revoked { .. }))
    }

    /// Changes a link as `decide` does, if it returns true; the link as it is then. On error nothing has changed.
    fn change(
        &self,
        id: &AccessLinkId,
        decide: impl FnOnce(&mut AccessLink) -> bool,
    ) -> Result<Option<AccessLink>, AccessLinkError> {
        let mut table = self.table.lock();
        let Some((digest, mut link)) = self.rows.lock().by_id(id) else {
            return Ok(None);
        };
        if decide(&mut link) {
            table.update(&link).map_err(|why| self.failed(why))?;
            self.rows.lock().replace(&digest, link.clone());
        }
        Ok(Some(link))
    }

    /// Removes what ended long ago; when there is no room, also what has ended since.
    fn forget_ended(&self, table: &mut Table, now: Timestamp) -> Result<(), AccessLinkError> {
        let is_full = self.rows.lock().len() >= LINKS_MAX;
        let before = if is_full { now } else { now - ENDED_KEPT };
        if !self.rows.lock().has_ended_before(before) {
            return Ok(());
        }
        table.forget(before).map_err(|why| self.failed(why))?;
        self.rows.lock().forget(before);
        Ok(())
    }

    fn failed(&self, source: rusqlite::Error) -> AccessLinkError {
        failed(&self.path, source)
    }
}

fn is_of(link: &AccessLink, owner: Option<&str>) -> bool {
    owner.is_none_or(|owner| link.owner == owner)
}

fn failed(path: &Path, source: rusqlite::Error) -> AccessLinkError {
    AccessLinkError::Sqlite {
        path: path.display().to_string(),
        source,
    }
}

#[cfg(test)]
mod tests;
