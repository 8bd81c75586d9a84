//! The way to a storage element for its administrators.

use super::{Access, Need, Server};
use crate::args::DoorArgs;
use crate::environment::Environment;
use crate::exit::CommandError;
use crate::site::directory::SiteDirectory;
use penstock_field_tools::credentials::Credentials;
use penstock_protocol::http1::client::Client;
use penstock_protocol::token::ADMIN_SCOPE;
use std::sync::Arc;
use url::Url;

/// The door of a storage element, for what its administrators ask there.
pub struct AdministratorsDoor {
    pub client: Client,
    pub door: Url,
    pub credentials: Arc<dyn Credentials>,
}

/// The door of the storage element that is named, or of the site in --dir.
pub fn own_door(args: &DoorArgs) -> Result<Url, CommandError> {
    let own = match (&args.door, &args.access.dir) {
        (Some(door), _) => return Ok(door.clone()),
        (None, Some(dir)) => SiteDirectory::at(dir)?.config()?.door_url(),
        (None, None) => None,
    };
    let own = own.and_then(|url| Url::parse(&url).ok());
    own.ok_or_else(no_door)
}

fn no_door() -> CommandError {
    CommandError::Usage(
        "name the storage element: --dir of a site with [storage], or --door URL with --token-file"
            .to_owned(),
    )
}

impl AdministratorsDoor {
    /// The door that is meant, and the token of an administrator for it, which is shown to the site's own door alone.
    pub fn of(
        args: &DoorArgs,
        environment: &Environment,
        what: &str,
    ) -> Result<AdministratorsDoor, CommandError> {
        let access = Access::open(&args.access, environment, 1)?;
        let config = match &args.access.dir {
            Some(dir) => Some(SiteDirectory::at(dir)?.config()?),
            None => None,
        };
        let parsed = |url: Option<String>| url.and_then(|url| Url::parse(&url).ok());
        let own = parsed(config.as_ref().and_then(|config| config.door_url()));
        let service = parsed(config.as_ref().and_then(|config| config.service_url()));
        let door = args.door.as_ref().or(own.as_ref()).cloned();
        let door = door.ok_or_else(no_door)?;
        let is_at = |url: &Option<Url>| url.as_ref().map(Server::of) == Some(Server::of(&door));
        if is_at(&service) && !is_at(&own) {
            let own = own.map(|own| format!("; the door of its storage element is {own}"));
            return Err(CommandError::Usage(format!(
                "{door} is the transfer service of the site in --dir, which has no {what}{}",
                own.unwrap_or_default()
            )));
        }
        let need = match &own {
            _ if !access.mints() => None,
            Some(own) if Server::of(own) == Server::of(&door) => Some(Need {
                scope: ADMIN_SCOPE.to_owned(),
                audiences: vec![own.as_str().trim_end_matches('/').to_owned()],
            }),
            Some(_) | None => {
                return Err(CommandError::Usage(format!(
                    "{door} is not the door of the site in --dir, and the administrator's token is not sent to other servers; \
                     use the --dir of its own site, or --token-file with a token that it accepts"
                )));
            }
        };
        let credentials = access.credentials(need.map(|need| (Server::of(&door), need)));
        Ok(AdministratorsDoor {
            client: access.client,
            door,
            credentials,
        })
    }
}
