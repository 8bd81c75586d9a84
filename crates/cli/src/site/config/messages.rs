//! `[[transfer.messages]]`: whom the transfer service tells what happens.

use penstock_model::quantity::Span;
use penstock_protocol::broker::{Broker, Language};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// A sink of messages. Names as in the configuration's template.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MessageSink {
    /// Names it in logs, and remembers by it how far it was told.
    pub name: String,
    /// Brokers of one language, of which the first that answers is used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub brokers: Vec<String>,
    /// A file that gets a line of JSON for each message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// Who we are at the brokers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// A file of mode 0600 with the password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password_file: Option<PathBuf>,
    /// What stands before `transfer.fts_monitoring_…`. Unset: `/topic/` with STOMP, nothing with NATS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// How often the state of links is told.
    #[serde(default = "MessageSink::default_optimizer_every")]
    pub optimizer_every: Span,
}

impl MessageSink {
    fn default_optimizer_every() -> Span {
        Span(Duration::from_secs(60))
    }

    /// Everything that is wrong with it, each as one sentence.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let at = format!("transfer.messages '{}'", self.name);
        let mut require = |holds: bool, text: String| {
            if !holds {
                problems.push(text);
            }
        };
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        require(
            !self.name.is_empty() && self.name.len() <= 64 && self.name.bytes().all(plain),
            format!("{at}: a name has letters, digits and dashes, 64 at most"),
        );
        require(
            self.brokers.is_empty() != self.file.is_none(),
            format!("{at} needs either brokers or a file"),
        );
        require(
            self.user.is_some() == self.password_file.is_some(),
            format!("{at}: user and password_file belong together"),
        );
        let parsed: Vec<_> = self
            .brokers
            .iter()
            .map(|url| Broker::new(url, None))
            .collect();
        let languages: Vec<Language> = parsed.iter().flatten().map(Broker::language).collect();
        for why in parsed.into_iter().filter_map(Result::err) {
            require(false, format!("{at}: {why}"));
        }
        require(
            languages.windows(2).all(|two| two[0] == two[1]),
            format!("{at}: its brokers speak different languages; make a sink for each"),
        );
        let printable = |text: &String| text.bytes().all(|byte| byte.is_ascii_graphic());
        require(
            self.prefix.as_ref().is_none_or(printable),
            format!("{at}: a prefix has no blanks"),
        );
        require(
            self.optimizer_every.0 >= Duration::from_secs(1),
            format!("{at}: optimizer_every is a second at least"),
        );
        problems
    }
}
