//! Ends in cloud storages that speak S3: signed requests, and what their answers mean.

use super::AgentSetup;
use super::cloud_access::CloudAccess;
use super::http::{End, Sighting, Stat, date_of, modified_of};
use super::steps::AttemptRun;
use crate::cloud::{CloudUser, KeySecret};
use crate::tokens::{read_with_patience, unreadable};
use http::header::{HeaderName, HeaderValue, LOCATION, RANGE, RETRY_AFTER};
use http::{HeaderMap, Method};
use parking_lot::Mutex;
use penstock_clock::wall_clock;
use penstock_decide::classify::{ObservedFailure, classify};
use penstock_model::{
    Bytes, ChecksumAlgorithm, Failure, FileUrl, JobId, Phase, Side, TimeSpan, Timestamp,
};
use penstock_protocol::http1::client::{ClientError, ClientRequest, ClientResponse};
use penstock_protocol::s3::{
    BODY_BYTES_MAX, Keys, ObjectPlace, Payload, RequestSigner, S3Error, object_checksums,
};
use std::sync::Arc;
use url::Url;

/// Redirects followed and regions tried for one request.
const PLACES_MAX: usize = 4;

/// A request, before it is signed.
pub(super) struct UnsignedRequest<'a> {
    pub(super) method: Method,
    pub(super) query: &'a [(&'a str, &'a str)],
    pub(super) headers: HeaderMap,
    pub(super) body: Option<&'a [u8]>,
}

impl UnsignedRequest<'_> {
    pub(super) fn new(method: Method) -> UnsignedRequest<'static> {
        UnsignedRequest {
            method,
            query: &[],
            headers: HeaderMap::new(),
            body: None,
        }
    }
}

/// How a cloud storage answered.
pub(super) enum S3Answer {
    /// 2xx.
    Yes(Box<ClientResponse>),
    No(S3Refusal),
}

/// An answer that is no success.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct S3Refusal {
    pub(super) status: u16,
    pub(super) error: S3Error,
    /// Seconds.
    pub(super) retry_after: Option<u64>,
    /// What the server's clock shows, where it tells.
    pub(super) date: Option<Timestamp>,
}

/// What is read of an answer's head before its body is.
struct Head {
    status: u16,
    region: Option<String>,
    location: Option<Url>,
    retry_after: Option<u64>,
    date: Option<Timestamp>,
}

impl CloudAccess {
    fn signed(&self, ask: &UnsignedRequest<'_>) -> ClientRequest {
        let place = self.place();
        let mut url = place.url.clone();
        if !ask.query.is_empty() {
            url.query_pairs_mut().extend_pairs(ask.query);
            // Blanks as they are signed.
            let query = url.query().unwrap_or_default().replace('+', "%20");
            url.set_query(Some(&query));
        }
        let mut headers = ask.headers.clone();
        let payload = match ask.body {
            Some(body) if headers.get("content-md5").is_none() => Payload::Bytes(body),
            Some(_) => Payload::Unsigned,
            None => Payload::Bytes(b""),
        };
        let signing = RequestSigner::new(&self.keys, &place.region, wall_clock());
        let url = signing.sign(&ask.method, &url, &mut headers, payload);
        ClientRequest {
            method: ask.method.clone(),
            url,
            headers,
            identity: None,
        }
    }

    /// Takes over what an answer tells of where the bucket is. True: asking again there may help. Errors: it leads where
    /// the keys do not go.
    fn moved(&self, head: &Head, error: &S3Error) -> Result<bool, String> {
        let told = match head.region.as_deref() {
            Some(region) => region,
            None => error.region.as_str(),
        };
        let moved = self.with_place(|place| place.move_to_region(told));
        match &head.location {
            Some(to) => self.with_place(|place| place.redirect(to)).map(|()| true),
            None => Ok(moved),
        }
    }
}

impl Head {
    fn of(answer: &ClientResponse) -> Head {
        let text = |name: &HeaderName| answer.headers.get(name)?.to_str().ok();
        let status = answer.status.as_u16();
        let location = match status {
            301 | 302 | 303 | 307 | 308 => {
                text(&LOCATION).and_then(|to| answer.final_url().join(to).ok())
            }
            _ => None,
        };
        let region = HeaderName::from_static("x-amz-bucket-region");
        Head {
            status,
            region: text(&region).map(str::to_owned),
            location,
            retry_after: text(&RETRY_AFTER).and_then(|seconds| seconds.trim().parse().ok()),
            date: date_of(&answer.headers),
        }
    }
}

impl AgentSetup {
    /// Asks a cloud storage, wherever it says that the bucket is.
    pub(super) async fn ask_cloud(
        &self,
        access: &CloudAccess,
        ask: &UnsignedRequest<'_>,
    ) -> Result<S3Answer, ClientError> {
        let mut refused = None;
        for _ in 0..PLACES_MAX {
            let request = access.signed(ask);
            let sent = match ask.body {
                Some(body) => self.client.send_bytes(request, body).await,
                None => self.client.send(request).await,
            };
            let mut answer = match sent {
                // What it repeats of the request is nobody's business.
                Err(ClientError::EarlyAnswer { status, .. }) => {
                    return Ok(S3Answer::No(S3Refusal {
                        status: status.as_u16(),
                        error: S3Error::default(),
                        retry_after: None,
                        date: None,
                    }));
                }
                sent => sent?,
            };
            if answer.status.is_success() {
                return Ok(S3Answer::Yes(Box::new(answer)));
            }
            let head = Head::of(&answer);
            let body = answer.read_all(BODY_BYTES_MAX).await.unwrap_or_default();
            let mut error = S3Error::parse(&body).unwrap_or_default();
            let moved = match access.moved(&head, &error) {
                Ok(moved) => moved,
                Err(why) => {
                    error.message = why;
                    false
                }
            };
            let said = S3Refusal {
                status: head.status,
                error,
                retry_after: head.retry_after,
                date: head.date,
            };
            if !moved {
                return Ok(S3Answer::No(said));
            }
            refused = Some(said);
        }
        Ok(S3Answer::No(refused.expect("at least one place was tried")))
    }

    /// Size and checksum of an object. Errors: also when the bucket does not exist.
    pub(super) async fn stat_object(
        &self,
        end: &End,
        access: &CloudAccess,
        algorithm: ChecksumAlgorithm,
        phase: Phase,
    ) -> Result<Sighting, Failure> {
        let lost = |why: ClientError| end.client_failure(phase, &why);
        let mut head = UnsignedRequest::new(Method::HEAD);
        let mode = HeaderName::from_static("x-amz-checksum-mode");
        head.headers
            .insert(mode, HeaderValue::from_static("ENABLED"));
        let mut refused = match self.ask_cloud(access, &head).await.map_err(lost)? {
            S3Answer::Yes(answer) => return Ok(sighting(&answer, algorithm)),
            S3Answer::No(refused) => refused,
        };
        let bucket = access.place().bucket_url();
        let absent = |date| Sighting { there: None, date };
        if refused.status == 404 && self.memory.knows_directory(bucket.as_str()) {
            return Ok(absent(refused.date));
        }
        // The answer to a HEAD has no body to say why (RFC 9110 §9.3.2); that to a GET of one byte has.
        let mut get = UnsignedRequest::new(Method::GET);
        get.headers
            .insert(RANGE, HeaderValue::from_static("bytes=0-0"));
        match self.ask_cloud(access, &get).await.map_err(lost)? {
            // It told the region meanwhile, or the object has just come.
            S3Answer::Yes(_) => {
                if let S3Answer::Yes(answer) = self.ask_cloud(access, &head).await.map_err(lost)? {
                    return Ok(sighting(&answer, algorithm));
                }
            }
            S3Answer::No(told) if told.status == 404 && told.error.code != "NoSuchBucket" => {
                self.memory.learn_directory(bucket.as_str());
                return Ok(absent(told.date));
            }
            S3Answer::No(told) => refused = told,
        }
        Err(end.cloud_failure(access, phase, "HEAD", &refused))
    }

    /// DELETE; true when the object is known to be gone.
    pub(super) async fn remove_object(
        &self,
        end: &End,
        access: &CloudAccess,
        phase: Phase,
    ) -> Result<(), Failure> {
        let asked = self
            .ask_cloud(access, &UnsignedRequest::new(Method::DELETE))
            .await;
        match asked.map_err(|why| end.client_failure(phase, &why))? {
            S3Answer::Yes(_) => Ok(()),
            S3Answer::No(refused) if refused.status == 404 => Ok(()),
            S3Answer::No(refused) => Err(end.cloud_failure(access, phase, "DELETE", &refused)),
        }
    }

    /// The keys for an end, and where it is. Errors: there are none, with the remedy.
    pub(super) async fn cloud_access(
        &self,
        job: JobId,
        url: &FileUrl,
        side: Side,
    ) -> Result<CloudAccess, Failure> {
        let failed = |observed: ObservedFailure, detail: String| {
            classify(side, Phase::Preparation, &observed, detail)
        };
        let (reader, delegations) = (self.reader.clone(), self.delegations.clone());
        let settings = self.settings.borrow().clone();
        let wanted = url.clone();
        let read = move || {
            let broken = |why: String| Ok(Err((ObservedFailure::Broken, why)));
            let row = reader.job(job).map_err(|why| why.to_string())?;
            let Some(row) = row else {
                return broken(format!("the job {job} is no longer stored"));
            };
            let user = CloudUser {
                user: row.user,
                delegation: row.delegation,
                is_by_certificate: row.parameters.proxy.is_some(),
                vo: row.vo,
            };
            let opened = match user.key(&settings, &wanted, row.parameters.s3_path_style) {
                Ok(opened) => opened,
                Err(why) => {
                    return Ok(Err((
                        ObservedFailure::Forbidden,
                        format!("{wanted}: {why}"),
                    )));
                }
            };
            let region = opened.storage.region.as_deref();
            let place = match ObjectPlace::of(&wanted, opened.is_virtual_host, region) {
                Ok(place) => place,
                Err(why) => return Ok(Err((ObservedFailure::Status(400), why.to_string()))),
            };
            let unusable = |why: String| {
                let key = opened.key;
                format!(
                    "the key of {} for {} cannot be used: {why}",
                    key.holder, key.storage
                )
            };
            let sealed = delegations.cloud_secret(&opened.key.secret);
            let secret = sealed.map_err(|why| unusable(why.to_string()))?;
            let secret = match understood(secret) {
                Ok(secret) => secret,
                Err(why) => return broken(unusable(why)),
            };
            Ok(Ok(CloudAccess {
                keys: Keys {
                    access_key: opened.key.access_key.clone(),
                    secret_key: secret.secret_key,
                    session_token: secret.session_token,
                },
                storage: opened.storage.name.clone(),
                holder: opened.key.holder.clone(),
                place: Mutex::new(place),
            }))
        };
        // A database that is busy answers before long, and a key that another node has comes within moments.
        let found = read_with_patience(read).await.map_err(unreadable)?;
        found.map_err(|(observed, why)| failed(observed, why))
    }
}

fn understood(secret: Option<Vec<u8>>) -> Result<KeySecret, String> {
    let secret = secret.ok_or("its secret part has just been replaced or removed")?;
    serde_json::from_slice(&secret).map_err(|_| "its secret part is not understood".to_owned())
}

fn sighting(answer: &ClientResponse, algorithm: ChecksumAlgorithm) -> Sighting {
    let checksums = object_checksums(&answer.headers);
    let there = Some(Stat {
        size: answer.content_length().map(Bytes),
        checksum: checksums
            .into_iter()
            .find(|checksum| checksum.algorithm() == algorithm),
        modified: modified_of(&answer.headers),
        version: None,
    });
    let date = date_of(&answer.headers);
    Sighting { there, date }
}

impl AttemptRun<'_> {
    /// Asks for the whole object.
    pub(super) async fn open_object(
        &self,
        source: &End,
        access: &CloudAccess,
    ) -> Result<ClientResponse, Failure> {
        let asked = self
            .setup
            .ask_cloud(access, &UnsignedRequest::new(Method::GET))
            .await;
        match asked.map_err(|why| source.client_failure(Phase::Transfer, &why))? {
            S3Answer::Yes(answer) => Ok(*answer),
            S3Answer::No(refused) => {
                Err(source.cloud_failure(access, Phase::Transfer, "GET", &refused))
            }
        }
    }

    /// An end in a cloud storage.
    pub(super) async fn cloud_end(&self, url: &FileUrl, side: Side) -> Result<End, Failure> {
        let access = self.setup.cloud_access(self.assignment.job, url, side);
        let access = access.await?;
        Ok(End {
            url: url.clone(),
            parsed: access.url(),
            token: None,
            proxy: None,
            token_withheld: false,
            cloud: Some(Arc::new(access)),
            side,
        })
    }
}

impl End {
    /// What an error of a cloud storage means, and what to do about it.
    pub(super) fn cloud_failure(
        &self,
        access: &CloudAccess,
        phase: Phase,
        what: &str,
        refused: &S3Refusal,
    ) -> Failure {
        let S3Refusal { status, error, .. } = refused;
        let told = match (error.code.as_str(), error.message.as_str()) {
            ("", "") => format!("{status}"),
            ("", message) => format!("{status}: {message}"),
            (code, "") => format!("{status} {code}"),
            (code, message) => format!("{status} {code}: {message}"),
        };
        let told = format!("{} answered {what} with {told}", self.url);
        let (storage, holder) = (&access.storage, &access.holder);
        let again = format!("set them again with `penstock cloud-storage grant {storage}`");
        let status = ObservedFailure::Status(*status);
        let (observed, detail) = match error.code.as_str() {
            "NoSuchBucket" => {
                let bucket = access.place().bucket;
                let detail = format!(
                    "No such file or directory: the bucket '{bucket}' does not exist there; make it, or correct the \
                     URL ({told})"
                );
                (ObservedFailure::Status(404), detail)
            }
            "NoSuchKey" => (
                ObservedFailure::Status(404),
                format!("No such file or directory: {told}"),
            ),
            "InvalidAccessKeyId" | "NotSignedUp" | "SignatureDoesNotMatch" => {
                let detail =
                    format!("{told}; the keys of {holder} for {storage} are wrong: {again}");
                (ObservedFailure::Status(403), detail)
            }
            "ExpiredToken" | "InvalidToken" | "TokenRefreshRequired" => {
                let detail = format!(
                    "{told}; the temporary keys of {holder} for {storage} have ended: {again}"
                );
                (ObservedFailure::Status(403), detail)
            }
            "AccessDenied" | "AllAccessDisabled" => {
                let detail = format!(
                    "{told}; what the keys of {holder} for {storage} may do is decided there"
                );
                (ObservedFailure::Status(403), detail)
            }
            "RequestTimeTooSkewed" => {
                let theirs = match error.server_time.as_str() {
                    "" => String::new(),
                    time => format!(" (theirs says {time}, ours {}Z)", wall_clock().to_fts()),
                };
                let detail = format!(
                    "{told}; the clocks here and there differ by more than the server allows{theirs}: let a time \
                     service such as chrony set this host's clock"
                );
                (ObservedFailure::ClockSkew, detail)
            }
            "PreconditionFailed" => (ObservedFailure::Exists, told),
            "BadDigest" | "XAmzContentSHA256Mismatch" => (ObservedFailure::ChecksumMismatch, told),
            "SlowDown" | "ServiceUnavailable" => {
                let wait = refused.retry_after;
                let wait = wait.map_or_else(String::new, |seconds| {
                    let pause = TimeSpan::of_seconds(seconds);
                    format!("; it wants {pause} of pause")
                });
                (ObservedFailure::Status(503), format!("{told}{wait}"))
            }
            _ => (status, told),
        };
        self.failure(phase, &observed, detail)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assignment, record, setup};
    use super::*;
    use crate::tokens::is_unreadable;
    use penstock_model::{
        CloudHolder, CloudKey, CloudName, CloudStorage, CredentialId, JobParameters, Setting,
        Settings, VoName,
    };
    use penstock_persistence::delegations::Delegations;
    use penstock_persistence::sealing::SealingKeys;
    use tokio::sync::watch;

    /// As a node has it that did not get a new key yet.
    #[tokio::test(start_paused = true)]
    async fn a_key_that_another_key_has_sealed_is_waited_for_and_costs_no_retry() {
        let (mut setup, directory) = setup();
        let url = FileUrl::parse("s3s://cloud.example.org/bucket/f").expect("valid");
        let assignment = assignment(url.clone(), url.clone(), JobParameters::default());
        record(directory.path(), &assignment, Vec::new());
        let storage = CloudName::parse("S3:CLOUD.EXAMPLE.ORG").expect("valid");
        let secret = CredentialId::new("0123456789abcdef");
        let mut settings = Settings::default();
        settings.put(Setting::CloudStorage(CloudStorage {
            name: storage.clone(),
            region: None,
        }));
        settings.put(Setting::CloudKey(CloudKey {
            storage,
            holder: CloudHolder::Vo(VoName::new("vo")),
            access_key: "AKIA".to_owned(),
            secret: secret.clone(),
            is_temporary: false,
        }));
        setup.settings = watch::channel(Arc::new(settings)).1;
        let store = directory.path().join("shared.sqlite");
        let open = |keys: &str| {
            let keys = SealingKeys::load_or_create(&directory.path().join(keys));
            Arc::new(Delegations::open(&store, keys.expect("made")).expect("opens"))
        };
        let sealed = br#"{"secret_key":"s"}"#;
        let kept = open("new").keep_cloud_secret(&secret, sealed, wall_clock());
        kept.expect("kept");
        setup.delegations = open("old");
        let access = |setup: AgentSetup| async move {
            let access = setup.cloud_access(assignment.job, &url, Side::Destination);
            access.await.map(|access| access.keys.access_key.clone())
        };
        let failure = access.clone()(setup.clone()).await;
        let failure = failure.expect_err("nobody can open it here");
        assert!(is_unreadable(&failure), "{failure:?}");
        setup.delegations = open("new");
        assert_eq!(access(setup).await.expect("opened"), "AKIA");
    }
}
