//! Options that say whose rates are asked for.

use super::records::link_name;
use clap::Args;
use penstock_decide::explain::PopulationChoice;
use penstock_field_tools::transfer_api::PopulationParameter;
use penstock_model::{PoolName, VoName};

/// One of them at most.
#[derive(Debug, Default, Args)]
#[group(id = "population", multiple = false)]
pub struct PopulationArgs {
    /// Only this link: SOURCE-DESTINATION, each by its host or with its scheme, or `*`.
    #[arg(long, value_name = "LINK", value_parser = link_name)]
    pub link: Option<String>,
    /// Each link on which files of this VO move or wait.
    #[arg(long, value_name = "VO")]
    pub vo: Option<String>,
    /// All links of this storage element together, those into it and those out of it: its host, or with its scheme.
    #[arg(long, value_name = "HOST")]
    pub server: Option<String>,
    /// This pool of the site's own storage element.
    #[arg(long, value_name = "POOL")]
    pub pool: Option<String>,
}

/// Whose rates were named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NamedPopulation {
    Link(String),
    Vo(String),
    Server(String),
    Pool(String),
}

impl PopulationArgs {
    /// `None`: no option says it.
    pub fn named(&self) -> Option<NamedPopulation> {
        let link = self.link.clone().map(NamedPopulation::Link);
        let vo = self.vo.clone().map(NamedPopulation::Vo);
        let server = self.server.clone().map(NamedPopulation::Server);
        let pool = self.pool.clone().map(NamedPopulation::Pool);
        link.or(vo).or(server).or(pool)
    }
}

impl NamedPopulation {
    /// That of a word and a name; `None`: it is none of the words.
    pub fn of(word: &str, name: &str) -> Option<NamedPopulation> {
        let name = name.to_owned();
        match word {
            "link" => Some(NamedPopulation::Link(name)),
            "vo" => Some(NamedPopulation::Vo(name)),
            "server" => Some(NamedPopulation::Server(name)),
            "pool" => Some(NamedPopulation::Pool(name)),
            _ => None,
        }
    }

    fn word_and_name(&self) -> (&'static str, &str) {
        match self {
            NamedPopulation::Link(name) => ("link", name),
            NamedPopulation::Vo(name) => ("vo", name),
            NamedPopulation::Server(name) => ("server", name),
            NamedPopulation::Pool(name) => ("pool", name),
        }
    }

    /// What is looked for in a record; without a name, each link.
    pub fn choice(named: Option<&NamedPopulation>) -> PopulationChoice {
        match named {
            None => PopulationChoice::Links,
            Some(NamedPopulation::Link(name)) => PopulationChoice::Link(name.clone()),
            Some(NamedPopulation::Vo(name)) => PopulationChoice::Vo(VoName::new(name.as_str())),
            Some(NamedPopulation::Server(name)) => PopulationChoice::of_server(name),
            Some(NamedPopulation::Pool(name)) => {
                PopulationChoice::Pool(PoolName::new(name.as_str()))
            }
        }
    }

    /// The same as a question to a service.
    pub fn parameter(&self) -> PopulationParameter {
        let (word, name) = self.word_and_name();
        PopulationParameter {
            name: word,
            value: name.to_owned(),
        }
    }

    /// That nothing is known of it.
    pub fn unknown(&self) -> String {
        let name = penstock_model::text::one_line(self.word_and_name().1).into_owned();
        match self {
            NamedPopulation::Link(_) => {
                format!("no link is called '{name}' among those on which files were to be moved")
            }
            NamedPopulation::Vo(_) => format!("no files of a VO '{name}' were to be moved"),
            NamedPopulation::Server(_) => {
                format!("no files were to be moved into or out of a storage element '{name}'")
            }
            NamedPopulation::Pool(_) => format!(
                "the site has no pool '{name}' of which something was recorded; pools of other sites are known to these only"
            ),
        }
    }
}
