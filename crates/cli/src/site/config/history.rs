//! How long history is kept: `keep_history` and its likes in `[transfer]`.

use crate::site::config::Transfer;
use penstock_decide::history::{KEPT_AT_LEAST, Retention};
use penstock_model::quantity::Span;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::time::Duration;

const FOREVER: &str = "forever";
const DAY: Duration = Duration::from_secs(86_400);

/// For how long something is kept: a span, or `forever`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep(pub Option<Duration>);

impl Serialize for Keep {
    fn serialize<S: Serializer>(&self, into: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Some(span) => Span(span).serialize(into),
            None => into.serialize_str(FOREVER),
        }
    }
}

impl<'de> Deserialize<'de> for Keep {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Keep, D::Error> {
        let text = String::deserialize(from)?;
        if text == FOREVER {
            return Ok(Keep(None));
        }
        let span: Result<Span, String> = text.parse();
        let span = span.map_err(|why| D::Error::custom(format!("{why}; or \"{FOREVER}\"")))?;
        Ok(Keep(Some(span.0)))
    }
}

impl Transfer {
    pub(super) fn default_keep_history() -> Keep {
        Keep(Some(90 * DAY))
    }
    pub(super) fn default_keep_samples() -> Keep {
        Keep(Some(30 * DAY))
    }
    pub(super) fn default_keep_minutes() -> Keep {
        Keep(Some(400 * DAY))
    }
    pub(super) fn default_keep_audit() -> Keep {
        Keep(None)
    }
    pub(super) fn default_history_held_max() -> Span {
        Span(30 * DAY)
    }

    /// As decisions take it.
    pub fn retention(&self) -> Retention {
        Retention {
            history: self.keep_history.0,
            samples: self.keep_samples.0,
            minutes: self.keep_minutes.0,
            audit: self.keep_audit.0,
            held_max: self.history_held_max.0,
        }
    }

    pub(super) fn history_problems(&self) -> Vec<String> {
        let kept = [
            ("keep_history", self.keep_history),
            ("keep_samples", self.keep_samples),
            ("keep_minutes", self.keep_minutes),
            ("keep_audit", self.keep_audit),
        ];
        let too_short = |(_, kept): &(&str, Keep)| kept.0.is_some_and(|kept| kept < KEPT_AT_LEAST);
        let told = |(key, kept): (&str, Keep)| {
            let kept = Span(kept.0.unwrap_or_default());
            format!(
                "transfer.{key} is {kept}: clients ask for what has just ended, so write 1h or more, or \"{FOREVER}\" \
                 to remove nothing"
            )
        };
        kept.into_iter().filter(too_short).map(told).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transfer(more: &str) -> Result<Transfer, toml::de::Error> {
        toml::from_str(&format!("listen = \"127.0.0.2:8446\"\n{more}"))
    }

    #[test]
    fn spans_and_forever_are_read_and_written_back() {
        let read = transfer("keep_history = \"forever\"\nkeep_samples = \"12h\"").expect("valid");
        assert_eq!(read.retention().history, None);
        assert_eq!(read.retention().samples, Some(DAY / 2));
        assert_eq!(read.retention().minutes, Some(400 * DAY));
        assert_eq!(read.history_problems(), [""; 0]);
        let written = toml::to_string(&read).expect("serialisable");
        assert_eq!(toml::from_str::<Transfer>(&written).expect("valid"), read);
    }

    #[test]
    fn what_would_remove_what_clients_ask_for_is_refused_with_the_remedy() {
        let [problem] = &transfer("keep_history = \"0s\"")
            .expect("valid")
            .history_problems()[..]
        else {
            panic!("one problem");
        };
        assert!(
            problem.contains("keep_history") && problem.contains("forever"),
            "{problem}"
        );
        let error = transfer("keep_history = \"0\"")
            .expect_err("no unit")
            .to_string();
        assert!(error.contains("forever"), "{error}");
    }
}
