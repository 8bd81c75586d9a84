//! Third-party copies: COPY to one end with the credential for the other, then the marker stream to its last line.
//!
//! HTTP-TPC (draft-http-tpc): the active party moves the bytes; we read markers. Closing the connection cancels.

use super::http::End;
use super::steps::{Attempting, Plan};
use http::Method;
use http::header::{HeaderName, HeaderValue};
use penstock_decide::classify::{Observed, classify};
use penstock_model::{Bytes, CopyMode, Failure, MoverReport, Phase, Side};
use penstock_protocol::http1::client::{Incoming, Outgoing};
use penstock_protocol::tpc::{Item, Outcome, StreamParser};
use std::time::Instant;

/// Why a third-party copy did not take place.
pub(super) enum Refusal {
    /// This end does not do such copies: another way may work.
    NotOffered(String),
    /// It was tried and failed.
    Failed(Failure),
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Refusal::Failed(failure)
    }
}

impl Attempting<'_> {
    /// Lets one end copy from or to the other.
    pub(super) async fn third_party(
        &self,
        mode: CopyMode,
        source: &End,
        destination: &End,
        plan: &Plan,
    ) -> Result<MoverReport, Refusal> {
        let (active, passive) = match mode {
            CopyMode::Pull | CopyMode::Streamed => (destination, source),
            CopyMode::Push => (source, destination),
        };
        let request = self.copy_request(mode, active, passive, plan)?;
        let sent = self.setup.client.send_following(request).await;
        let answer = sent.map_err(|why| active.client_failure(Phase::Transfer, &why))?;
        match answer.status.as_u16() {
            201 | 202 => {}
            // 400: XRootD without TPC; 403: copies to that host are not allowed there; davix reads them alike.
            status @ (400 | 403 | 405 | 501) => {
                let failure = active
                    .refused(Phase::Transfer, &format!("COPY ({})", mode.name()), answer)
                    .await;
                return Err(Refusal::NotOffered(format!("{status}: {failure}")));
            }
            _ => {
                let what = format!("COPY ({})", mode.name());
                return Err(active.refused(Phase::Transfer, &what, answer).await.into());
            }
        }
        Ok(self.follow_markers(active, passive, answer).await?)
    }

    fn copy_request(
        &self,
        mode: CopyMode,
        active: &End,
        passive: &End,
        plan: &Plan,
    ) -> Result<Outgoing, Failure> {
        let mut headers = active.headers()?;
        let broken =
            |detail: &str| active.failure(Phase::Preparation, &Observed::Malformed, detail);
        let mut put = |name: &'static str, value: HeaderValue| {
            headers.insert(HeaderName::from_static(name), value)
        };
        let passive_url = HeaderValue::try_from(passive.parsed.as_str())
            .map_err(|_| broken("the URL is no header"))?;
        put(
            if mode == CopyMode::Push {
                "destination"
            } else {
                "source"
            },
            passive_url,
        );
        put(
            "overwrite",
            HeaderValue::from_static(if plan.replaces { "T" } else { "F" }),
        );
        put("credential", HeaderValue::from_static("none"));
        put(
            "requirechecksumverification",
            HeaderValue::from_static("false"),
        );
        if let Some(token) = &passive.token {
            put("transferheaderauthorization", passive.bearer(token)?);
        }
        if let Some(streams) = self
            .assignment
            .parameters
            .streams
            .filter(|streams| *streams > 1)
        {
            put("x-number-of-streams", HeaderValue::from(streams));
        }
        let request = &self.assignment.request;
        let info = format!(
            "job-id={};file-id={};retry={}",
            self.assignment.job,
            request.id,
            self.assignment.attempt.0 - 1
        );
        put(
            "clientinfo",
            HeaderValue::try_from(info).map_err(|_| broken("the job id is no header"))?,
        );
        if let Some(scitag) = request.scitag {
            put("scitag", HeaderValue::from(scitag));
        }
        let method = Method::from_bytes(b"COPY").expect("a valid method name");
        Ok(Outgoing {
            method,
            url: active.parsed.clone(),
            headers,
        })
    }

    /// Reads the marker stream to its last line.
    async fn follow_markers(
        &self,
        active: &End,
        passive: &End,
        mut answer: Incoming,
    ) -> Result<MoverReport, Failure> {
        let mut parser = StreamParser::default();
        let mut buffer = [0u8; 4096];
        let mut report = MoverReport::default();
        let (mut moved, mut moved_at) = (0u64, Instant::now());
        let config = &self.setup.config;
        loop {
            let read = tokio::time::timeout(config.stall_timeout, answer.read(&mut buffer)).await;
            let count = read
                .map_err(|_| {
                    let detail = format!(
                        "{}: no performance marker for {} s",
                        active.url,
                        config.stall_timeout.as_secs()
                    );
                    classify(Side::Network, Phase::Transfer, &Observed::TimedOut, detail)
                })?
                .map_err(|why| active.client_failure(Phase::Transfer, &why))?;
            if count == 0 {
                let detail = format!(
                    "{}: the connection ended without a last line; the outcome is unknown",
                    active.url
                );
                return Err(active.failure(Phase::Transfer, &Observed::Broken, detail));
            }
            for item in parser.push(&buffer[..count]) {
                match item {
                    Item::Marker(marker) => {
                        match marker.moved {
                            Some(Bytes(now)) if now > moved => {
                                (moved, moved_at) = (now, Instant::now())
                            }
                            Some(_) => {}
                            // Queued at the storage element: that is its right, not a stall.
                            None => moved_at = Instant::now(),
                        }
                        self.progress.set_moved(moved);
                        if let Some(told) = marker.report {
                            report = told;
                        }
                    }
                    Item::Outcome(Outcome::Success(_)) => {
                        report.moved = report.moved.max(Bytes(moved));
                        return Ok(report);
                    }
                    Item::Outcome(Outcome::Failure(why) | Outcome::Aborted(why)) => {
                        let detail =
                            format!("{} failed to copy {}: {why}", active.url, passive.url);
                        return Err(classify(
                            Side::Network,
                            Phase::Transfer,
                            &Observed::CopyFailed,
                            detail,
                        ));
                    }
                }
            }
            if moved_at.elapsed() > config.progress_timeout {
                let seconds = config.progress_timeout.as_secs();
                let detail = format!(
                    "{}: no byte moved for {seconds} s; the copy was given up",
                    active.url
                );
                return Err(classify(
                    Side::Network,
                    Phase::Transfer,
                    &Observed::TimedOut,
                    detail,
                ));
            }
        }
    }
}
