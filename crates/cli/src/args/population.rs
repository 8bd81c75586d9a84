//! Options that say whose rates are asked for.

use super::records::link_name;
use clap::Args;
use penstock_decide::explain::PopulationChoice;
use penstock_field_tools::transfer_api::PopulationParameter;
use penstock_model::text::one_line;

/// One of them at most.
#[derive(Debug, Default, Args)]
#[group(id = "population", multiple = false)]
pub struct PopulationArgs {
    /// Only this link: SOURCE-DESTINATION, each as host, with or without scheme, or `*`.
    #[arg(long, value_name = "LINK", value_parser = link_name)]
    pub link: Option<String>,
    /// Each link with moving or queued files of this VO.
    #[arg(long, value_name = "VO")]
    pub vo: Option<String>,
    /// All links to and from this storage element together: its host, with or without scheme.
    #[arg(long, value_name = "HOST")]
    pub server: Option<String>,
    /// This pool of the site's own storage element.
    #[arg(long, value_name = "POOL")]
    pub pool: Option<String>,
}

/// Whose rates were named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedPopulation {
    word: &'static str,
    name: String,
}

impl PopulationArgs {
    /// `None`: no option says it.
    pub fn named(&self) -> Option<NamedPopulation> {
        let names = [&self.link, &self.vo, &self.server, &self.pool];
        let mut named = PopulationChoice::WORDS.into_iter().zip(names);
        named.find_map(|(word, name)| NamedPopulation::of(word, name.as_deref()?))
    }
}

impl NamedPopulation {
    /// That of a word and a name; `None`: it is none of the words.
    pub fn of(word: &str, name: &str) -> Option<NamedPopulation> {
        let mut words = PopulationChoice::WORDS.into_iter();
        let word = words.find(|known| *known == word)?;
        let name = name.to_owned();
        Some(NamedPopulation { word, name })
    }

    /// What is looked for in a record; without a name, each link.
    pub fn choice(named: Option<&NamedPopulation>) -> PopulationChoice {
        let named = named.and_then(|named| PopulationChoice::named(named.word, &named.name));
        named.unwrap_or_default()
    }

    /// The same as a question to a service.
    pub fn parameter(&self) -> PopulationParameter {
        PopulationParameter {
            name: self.word,
            value: self.name.clone(),
        }
    }

    /// That nothing is known of it.
    pub fn unknown(&self) -> String {
        let name = one_line(&self.name);
        match self.word {
            "vo" => format!("no transfers of VO '{name}' in this time"),
            "server" => {
                format!("no transfers to or from storage element '{name}' in this time")
            }
            "pool" => format!(
                "no pool '{name}' has records at this site; pools of other sites are recorded there only"
            ),
            _ => format!("no transfers on a link '{name}' in this time"),
        }
    }
}
