//! `penstock authz test`: what a site would answer to somebody, and why. Believes and judges with the functions
//! and the configuration that the door uses; asks no running server.

use crate::args::{AuthzTestArgs, OperationName};
use crate::exit::CommandError;
use crate::output::Output;
use crate::site::config::Config;
use crate::site::directory::SiteDirectory;
use crate::site::serve::roles::{self, TrustedIssuers};
use openssl::x509::X509;
use penstock_clock::wall_clock;
use penstock_decide::authorization::{AuthorizationReason, PathOperation, Verdict};
use penstock_model::{NamespacePath, Timestamp, VoName};
use penstock_protocol::http1::client::{Client, ClientConfig};
use penstock_protocol::identity::Identity;
use penstock_protocol::tls::ClientTls;
use penstock_protocol::voms::{Attributes, Voms};
use penstock_protocol::x509::{CertificateHolder, Proxy};
use penstock_storage_element::rights::{self, AuthenticatedCaller, BearerError, RequestAuthorizer};
use penstock_storage_element::{AccessConfig, MacaroonConfig, OwnIssuer};
use serde::Serialize;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

/// Proxies with their chains and attributes have some KiB.
const CREDENTIAL_BYTES_MAX: u64 = 1 << 20;
const PEM_BEGIN: &str = "-----BEGIN CERTIFICATE-----";

/// Who asks, as typed.
enum Asker {
    Anonymous,
    Subject(String),
    Certificates(Vec<X509>),
    Bearer(String),
}

/// Who asks, as understood.
struct CredentialFacts {
    believed: Option<AuthenticatedCaller>,
    /// How it was proved.
    by: String,
    /// What of it does not count, and why.
    discounted: Option<String>,
}

/// The answer as `--json` has it.
#[derive(Serialize)]
struct AuthzReport {
    path: NamespacePath,
    #[serde(flatten)]
    who: Person,
    operations: Vec<OperationVerdict>,
}

#[derive(Serialize)]
struct Person {
    by: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    discounted: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    issuer: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    vo: Option<String>,
    groups: Vec<String>,
    fqans: Vec<String>,
    capabilities: Vec<String>,
    caveats: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<String>,
}

#[derive(Serialize)]
struct OperationVerdict {
    operation: &'static str,
    verdict: Verdict,
    because: Vec<String>,
    reasons: Vec<AuthorizationReason>,
}

/// `penstock authz test`.
pub async fn run(args: AuthzTestArgs, output: Output) -> Result<(), CommandError> {
    let site = SiteDirectory::at(&args.dir)?;
    let config = site.config()?;
    let settings = Settings::of(&site, &config)?;
    let who = read_who(&args.who)?;
    let understood = understand(who, &args, &site, &config, &settings).await?;
    let judge = RequestAuthorizer {
        access: &settings.access,
        own_issuer: settings.issuer.as_ref(),
    };
    let asker = understood.believed.as_ref();
    let asker = asker.map(|believed| (&*believed.identity, &believed.attenuation));
    let judged: Vec<OperationVerdict> = operations(&args)?
        .into_iter()
        .map(|(name, operation)| {
            let decision = judge.decide(asker, &operation, &args.path);
            OperationVerdict {
                operation: name,
                verdict: decision.choice,
                because: decision.because.iter().map(ToString::to_string).collect(),
                reasons: decision.because,
            }
        })
        .collect();
    let allowed = judged
        .iter()
        .any(|judged| judged.verdict == Verdict::Allowed);
    let answer = AuthzReport {
        path: args.path,
        who: Person::of(understood),
        operations: judged,
    };
    let outcome = match allowed {
        true => Ok(()),
        false => Err(CommandError::Refused),
    };
    output.conclude(&answer, || text(&answer), outcome)
}

/// What the door goes by.
struct Settings {
    access: AccessConfig,
    issuer: Option<OwnIssuer>,
    macaroons: Option<MacaroonConfig>,
}

impl Settings {
    fn of(site: &SiteDirectory, config: &Config) -> Result<Settings, CommandError> {
        let role = config.storage.as_ref().ok_or_else(|| {
            CommandError::Usage(format!(
                "{} has no [storage] section, so there are no access rules",
                site.config_file().display()
            ))
        })?;
        let trusted = TrustedIssuers::of(site, config)?;
        Ok(Settings {
            access: roles::access_config(config, role, &trusted),
            issuer: roles::own_issuer(&trusted),
            macaroons: roles::macaroon_config(site, role)?,
        })
    }
}

/// A subject looks like `/KEY=value`; a file of such a name is meant all the same.
fn read_who(text: &str) -> Result<Asker, CommandError> {
    let first = text
        .strip_prefix('/')
        .and_then(|rest| rest.split('/').next());
    let looks_like_subject = first.is_some_and(|part| part.contains('='));
    let content = match text {
        "anonymous" => return Ok(Asker::Anonymous),
        "-" => read_credential(std::io::stdin().lock(), "standard input")?,
        _ if looks_like_subject && !Path::new(text).exists() => {
            return Ok(Asker::Subject(text.to_owned()));
        }
        _ if text.starts_with("eyJ") && !Path::new(text).exists() => {
            return Err(CommandError::Usage(
                "--as does not accept the token itself, because other users can see arguments; write it to a file, or use '--as -'".into(),
            ));
        }
        path => {
            let file = std::fs::File::open(path);
            let file = file.map_err(|why| CommandError::Usage(format!("--as {path}: {why}")))?;
            read_credential(file, path)?
        }
    };
    if !content.contains(PEM_BEGIN) {
        return Ok(Asker::Bearer(content.trim().to_owned()));
    }
    let chain = X509::stack_from_pem(content.as_bytes());
    let unusable = |why| {
        CommandError::Usage(format!(
            "--as {text}: the certificate cannot be read: {why}"
        ))
    };
    Ok(Asker::Certificates(chain.map_err(unusable)?))
}

fn read_credential(from: impl Read, name: &str) -> Result<String, CommandError> {
    let mut content = String::new();
    let read = from.take(CREDENTIAL_BYTES_MAX).read_to_string(&mut content);
    read.map_err(|why| CommandError::Usage(format!("--as {name}: {why}")))?;
    Ok(content)
}

async fn understand(
    who: Asker,
    args: &AuthzTestArgs,
    site: &SiteDirectory,
    config: &Config,
    settings: &Settings,
) -> Result<CredentialFacts, CommandError> {
    if !args.fqans.is_empty() && !matches!(who, Asker::Subject(_)) {
        return Err(CommandError::Usage(
            "--fqan needs a subject; other credentials contain their own attributes".into(),
        ));
    }
    if args.ca.is_some() && !matches!(who, Asker::Subject(_)) {
        return Err(CommandError::Usage(
            "--ca needs a subject; a certificate names its own authority".into(),
        ));
    }
    let now = wall_clock();
    match who {
        Asker::Anonymous => Ok(CredentialFacts {
            believed: None,
            by: "nothing".into(),
            discounted: None,
        }),
        Asker::Subject(subject) => {
            let ca = args.ca.clone().unwrap_or_default();
            let clients = roles::client_certificates(site, config);
            let certified = CertificateHolder {
                member_of: clients.member_of(&subject, &ca),
                subject,
                issuer: ca,
                proxy: Proxy::None,
                expires: Timestamp(i64::MAX),
                attributes: supposed(&args.fqans),
            };
            Ok(certificate(
                certified,
                "a subject, assuming a valid certificate",
            ))
        }
        Asker::Certificates(chain) => {
            let clients = roles::client_certificates(site, config);
            let certified = clients.verify(&chain, now);
            let certified =
                certified.map_err(|why| CommandError::NotAuthorised(why.for_operators()))?;
            let by = match certified.proxy {
                Proxy::None => "a certificate",
                Proxy::Full => "a proxy",
                Proxy::Limited => "a limited proxy",
            };
            Ok(certificate(certified, by))
        }
        Asker::Bearer(credential) => {
            let tls = ClientTls::from_ca_directory(&site.resolve(&config.trust.certificates));
            let tls = tls.map_err(|why| CommandError::Usage(why.to_string()))?;
            let client = Client::new(ClientConfig::new(tls));
            let verifier = rights::verifier(&settings.access, settings.issuer.as_ref(), client);
            let keys = settings.macaroons.as_ref().map(|config| &config.keys);
            let believed = rights::believe_bearer(&credential, keys, &verifier, args.from, now);
            let believed = believed.await.map_err(not_believed)?;
            let by = match believed.caveats.is_empty() {
                true => "a token",
                false => "a macaroon",
            };
            Ok(CredentialFacts {
                believed: Some(believed),
                by: by.into(),
                discounted: None,
            })
        }
    }
}

fn not_believed(why: BearerError) -> CommandError {
    use penstock_protocol::token::TokenError;
    match why {
        BearerError::Token(why @ TokenError::KeysUnavailable { .. }) => {
            CommandError::Unreachable(why.to_string())
        }
        why => CommandError::NotAuthorised(why.to_string()),
    }
}

/// Attributes that somebody only supposes.
fn supposed(fqans: &[String]) -> Attributes {
    let Some(first) = fqans.first() else {
        return Attributes::Absent;
    };
    Attributes::Counted(Voms {
        vo: VoName::new(first.split('/').nth(1).unwrap_or_default()),
        fqans: fqans.to_vec(),
        expires: Timestamp(i64::MAX),
    })
}

fn certificate(certified: CertificateHolder, by: &str) -> CredentialFacts {
    let refusal = certified.attributes.refusal();
    CredentialFacts {
        discounted: refusal.map(|why| format!("its VO attributes are ignored: {why}")),
        believed: Some(AuthenticatedCaller::without_caveats(Arc::new(
            certified.identity(),
        ))),
        by: by.to_owned(),
    }
}

/// The one that was asked for, or all.
fn operations(args: &AuthzTestArgs) -> Result<Vec<(&'static str, PathOperation)>, CommandError> {
    use OperationName as N;
    let all = [
        N::Read,
        N::Stat,
        N::List,
        N::Create,
        N::Modify,
        N::Delete,
        N::Mkdir,
        N::Rename,
        N::Stage,
        N::Poll,
    ];
    let rename = |to: &NamespacePath| PathOperation::Rename { to: to.clone() };
    let meant = |name| match name {
        N::Read => Some(("read", PathOperation::Read)),
        N::Stat => Some(("stat", PathOperation::Stat)),
        N::List => Some(("list", PathOperation::List)),
        N::Create => Some(("create", PathOperation::Create)),
        N::Modify => Some(("modify", PathOperation::Modify)),
        N::Delete => Some(("delete", PathOperation::Delete)),
        N::Mkdir => Some(("mkdir", PathOperation::MakeDirectory)),
        N::Rename => args.to.as_ref().map(|to| ("rename", rename(to))),
        N::Stage => Some(("stage", PathOperation::Stage)),
        N::Poll => Some(("poll", PathOperation::Poll)),
    };
    match args.operation {
        None => Ok(all.into_iter().filter_map(meant).collect()),
        Some(name) => meant(name).map(|meant| vec![meant]).ok_or_else(|| {
            CommandError::Usage("--operation rename needs --to, the new path".into())
        }),
    }
}

impl Person {
    fn of(understood: CredentialFacts) -> Person {
        let CredentialFacts {
            believed,
            by,
            discounted,
        } = understood;
        let identity: Option<&Identity> = believed.as_ref().map(|believed| &*believed.identity);
        let texts = |list: fn(&Identity) -> Vec<String>| identity.map(list).unwrap_or_default();
        Person {
            by,
            discounted,
            user: identity.map(|identity| identity.user.to_string()),
            issuer: identity
                .map(|identity| identity.issuer.clone())
                .filter(|issuer| !issuer.is_empty()),
            vo: identity.and_then(|identity| identity.vo.as_ref().map(ToString::to_string)),
            groups: texts(|identity| identity.groups.clone()),
            fqans: texts(|identity| identity.fqans.clone()),
            capabilities: texts(|identity| {
                identity
                    .capabilities
                    .iter()
                    .map(ToString::to_string)
                    .collect()
            }),
            expires: identity
                .filter(|identity| identity.expires < Timestamp(i64::MAX))
                .map(|identity| format!("{}Z", identity.expires.to_fts())),
            caveats: believed
                .iter()
                .flat_map(|believed| &believed.caveats)
                .map(ToString::to_string)
                .collect(),
        }
    }
}

fn text(answer: &AuthzReport) -> String {
    let who = &answer.who;
    let mut out = String::new();
    let mut say = |key: &str, value: &str| {
        if !value.is_empty() {
            out.push_str(&format!("{key:13} {value}\n"));
        }
    };
    say("path", &answer.path.to_string());
    say("known by", &who.by);
    for (key, value) in [
        ("user", &who.user),
        ("issuer", &who.issuer),
        ("VO", &who.vo),
        ("expires", &who.expires),
        ("beware", &who.discounted),
    ] {
        say(key, value.as_deref().unwrap_or_default());
    }
    say("groups", &who.groups.join(" "));
    say("attributes", &who.fqans.join(" "));
    say("capabilities", &who.capabilities.join(" "));
    say("caveats", &who.caveats.join(", "));
    out.push('\n');
    for judged in &answer.operations {
        let verdict = match judged.verdict {
            Verdict::Allowed => "allowed",
            Verdict::Refused => "refused",
        };
        let because = judged.because.join("; ");
        out.push_str(&format!("{:8} {verdict}  {because}\n", judged.operation));
    }
    out
}
