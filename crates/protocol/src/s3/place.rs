//! Where an object is: from the URLs of gfal2 and FTS to the one that is asked, and the names of the records that hold
//! its keys.

use penstock_model::FileUrl;
use thiserror::Error;
use url::Url;

/// The region of servers that know none.
const REGION: &str = "us-east-1";
/// Hosts that are all Amazon's.
const OF_AMAZON: [&str; 2] = [".amazonaws.com", ".amazonaws.com.cn"];
/// Each scheme, what it means on the wire, and the kind of record with its keys, as gfal2 and FTS spell them.
const SCHEMES: [(&str, &str, &str); 4] = [
    ("s3", "http", "S3"),
    ("s3s", "https", "S3"),
    ("gcloud", "http", "GCLOUD"),
    ("gclouds", "https", "GCLOUD"),
];

/// Why a URL names no object.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidPlace {
    /// The part after the host is empty.
    #[error("{0} names no object: write scheme://host/bucket/key")]
    NoKey(FileUrl),
    /// Where keys end, queries begin.
    #[error("{0} has a query; in a key, write '?' as %3F")]
    Query(FileUrl),
    /// Of another scheme, or not to be written in another one.
    #[error("{0} is no URL of a cloud storage: {1}")]
    Syntax(FileUrl, String),
}

/// An object, the server that has it, and the region for which requests are signed. Redirects change both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectPlace {
    /// What is asked: scheme `https` or `http`.
    pub url: Url,
    /// The bucket; it is the first part of the path, or the first part of the host's name.
    pub bucket: String,
    /// Its name is part of the host's.
    pub is_virtual_host: bool,
    pub region: String,
}

/// The names of records that may hold the keys for a URL, best first: that of its host, and, unless the bucket is in
/// the path for sure (`s3alternate`), that of the host behind the bucket's name. As gfal2 looks for them.
pub fn record_names(url: &FileUrl, path_style: bool) -> Vec<String> {
    let scheme = url.scheme();
    let Some((_, _, kind)) = SCHEMES.iter().find(|(known, _, _)| *known == scheme) else {
        return Vec::new();
    };
    let host = url.host();
    let mut names = vec![format!("{kind}:{}", host.to_ascii_uppercase())];
    if let (false, false, Some((_, rest))) = (path_style, is_address(host), host.split_once('.')) {
        names.push(format!("{kind}:{}", rest.to_ascii_uppercase()));
    }
    names
}

fn is_address(host: &str) -> bool {
    host.starts_with('[') || host.parse::<std::net::Ipv4Addr>().is_ok()
}

impl ObjectPlace {
    /// Where `url` leads. `is_virtual_host`: the first part of the host's name is the bucket, as it is when the record
    /// with its keys is of the rest. `region`: as configured; else the host's name may tell it.
    pub fn of(
        url: &FileUrl,
        is_virtual_host: bool,
        region: Option<&str>,
    ) -> Result<ObjectPlace, InvalidPlace> {
        let scheme = url.scheme();
        let syntax = |why: &str| InvalidPlace::Syntax(url.clone(), why.to_owned());
        let (_, wire, _) = SCHEMES
            .iter()
            .find(|(known, _, _)| *known == scheme)
            .ok_or_else(|| syntax("its scheme is another one"))?;
        let rest = url.as_str().get(scheme.len()..).unwrap_or_default();
        let parsed =
            Url::parse(&format!("{wire}{rest}")).map_err(|why| syntax(&why.to_string()))?;
        if parsed.query().is_some() {
            return Err(InvalidPlace::Query(url.clone()));
        }
        let host = parsed.host_str().unwrap_or_default().to_owned();
        let path = parsed.path().trim_start_matches('/');
        let (bucket, key) = match is_virtual_host {
            true => (host.split('.').next().unwrap_or_default(), path),
            false => path
                .split_once('/')
                .ok_or_else(|| InvalidPlace::NoKey(url.clone()))?,
        };
        if bucket.is_empty() || key.is_empty() {
            return Err(InvalidPlace::NoKey(url.clone()));
        }
        let region = region
            .map(str::to_owned)
            .or_else(|| region_of(&host))
            .unwrap_or_else(|| REGION.to_owned());
        Ok(ObjectPlace {
            bucket: bucket.to_owned(),
            url: parsed,
            is_virtual_host,
            region,
        })
    }

    /// The URL of the bucket itself.
    pub fn bucket_url(&self) -> Url {
        let mut url = self.url.clone();
        match self.is_virtual_host {
            true => url.set_path("/"),
            false => url.set_path(&format!("/{}", self.bucket)),
        }
        url
    }

    /// Goes where a redirect leads, if the server there is one of the same provider: keys are for that. Otherwise gives
    /// the reason.
    pub fn redirect(&mut self, to: &Url) -> Result<(), String> {
        let from = self.url.host_str().unwrap_or_default();
        let there = to.host_str().unwrap_or_default();
        let keeps_tls = self.url.scheme() == "http" || to.scheme() == "https";
        if !keeps_tls || !same_provider(from, there) {
            return Err(format!(
                "it redirects to {}://{there}, where its keys are not sent",
                to.scheme()
            ));
        }
        // A server may move a bucket's name from the path to the host's name on the way; the path it tells counts.
        self.is_virtual_host = there.starts_with(&format!("{}.", self.bucket));
        let mut url = to.clone();
        url.set_query(None);
        url.set_fragment(None);
        if let Some(region) = region_of(there) {
            self.region = region;
        }
        self.url = url;
        Ok(())
    }
}

impl ObjectPlace {
    /// The server tells another region for the bucket: requests are signed for that one, and at Amazon sent there. False
    /// when it is so already.
    pub fn move_to_region(&mut self, region: &str) -> bool {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        let sound = !region.is_empty() && region.len() <= 64 && region.bytes().all(is_plain);
        if !sound || region == self.region {
            return false;
        }
        region.clone_into(&mut self.region);
        let host = self.url.host_str().unwrap_or_default();
        if let Some(suffix) = OF_AMAZON.iter().find(|suffix| host.ends_with(*suffix)) {
            let bucket = match self.is_virtual_host {
                true => format!("{}.", self.bucket),
                false => String::new(),
            };
            let moved = format!("{bucket}s3.{region}{suffix}");
            // A bucket's name that fits no host's leaves it where it is; the server will say more.
            let _ = self.url.set_host(Some(&moved));
        }
        true
    }
}

/// The same host, or both below the same name of two parts that Amazon uses for its regions.
fn same_provider(one: &str, other: &str) -> bool {
    one.eq_ignore_ascii_case(other)
        || OF_AMAZON
            .iter()
            .any(|suffix| one.ends_with(suffix) && other.ends_with(suffix))
}

/// Amazon's hosts tell their region: `[bucket.]s3[.dualstack].REGION.amazonaws.com`, or `s3-REGION` in older ones.
fn region_of(host: &str) -> Option<String> {
    let host = host.strip_suffix(".cn").unwrap_or(host);
    let labels: Vec<&str> = host.strip_suffix(".amazonaws.com")?.split('.').collect();
    let (last, before) = labels.split_last()?;
    match (last.strip_prefix("s3-"), before.last()) {
        (Some(region), _) => Some(region.to_owned()),
        (None, Some(&("s3" | "dualstack"))) => Some((*last).to_owned()),
        (None, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(url: &str) -> FileUrl {
        FileUrl::parse(url).expect("valid")
    }

    #[test]
    fn a_record_is_that_of_the_host_or_of_the_host_behind_the_bucket() {
        let check = |url: &str, path_style: bool, expected: &[&str]| {
            assert_eq!(record_names(&file(url), path_style), expected, "{url}");
        };
        check(
            "s3s://data.s3.example.org:9000/f",
            false,
            &["S3:DATA.S3.EXAMPLE.ORG", "S3:S3.EXAMPLE.ORG"],
        );
        check("s3://s3.example.org/b/f", true, &["S3:S3.EXAMPLE.ORG"]);
        check("s3://127.0.0.1/b/f", false, &["S3:127.0.0.1"]);
        check(
            "gclouds://storage.googleapis.com/b/f",
            true,
            &["GCLOUD:STORAGE.GOOGLEAPIS.COM"],
        );
        check("https://se/f", true, &[]);
    }

    #[test]
    fn the_place_of_an_object_is_read_from_its_url() {
        let check = |url: &str, is_virtual_host: bool, expected: &str| {
            let shown = match ObjectPlace::of(&file(url), is_virtual_host, None) {
                Ok(place) => format!("{} {} {}", place.url, place.bucket, place.region),
                Err(why) => why.to_string(),
            };
            assert_eq!(shown, expected, "{url}");
        };
        check(
            "s3s://S3.example.org:9000/data/a%20b/f",
            false,
            "https://s3.example.org:9000/data/a%20b/f data us-east-1",
        );
        check(
            "s3://data.s3.eu-west-3.amazonaws.com/f",
            true,
            "http://data.s3.eu-west-3.amazonaws.com/f data eu-west-3",
        );
        check(
            "s3s://s3-us-west-2.amazonaws.com/b/f",
            false,
            "https://s3-us-west-2.amazonaws.com/b/f b us-west-2",
        );
        check(
            "s3s://s3.example.org/data",
            false,
            "s3s://s3.example.org/data names no object: write scheme://host/bucket/key",
        );
        check(
            "s3s://s3.example.org/data/f?versionId=1",
            false,
            "s3s://s3.example.org/data/f?… has a query; in a key, write '?' as %3F",
        );
    }

    #[test]
    fn keys_go_to_other_hosts_of_their_provider_only() {
        let check = |from: &str, to: &str, allowed: bool| {
            let mut place = ObjectPlace::of(&file(from), false, None).expect("valid");
            let to = Url::parse(to).expect("valid");
            assert_eq!(place.redirect(&to).is_ok(), allowed, "{from} {to}");
        };
        let aws = "s3s://s3.amazonaws.com/b/f";
        check(aws, "https://s3.eu-west-3.amazonaws.com/b/f", true);
        check(aws, "https://b.s3.eu-west-3.amazonaws.com/f", true);
        check(aws, "http://s3.eu-west-3.amazonaws.com/b/f", false);
        check(aws, "https://s3.amazonaws.com.evil.org/b/f", false);
        check(aws, "https://evilamazonaws.com/b/f", false);
        let own = "s3s://s3.example.org/b/f";
        check(own, "https://s3.example.org:9001/b/f", true);
        check(own, "https://other.example.org/b/f", false);
    }

    #[test]
    fn a_bucket_is_looked_for_in_the_region_that_is_told() {
        let check = |url: &str, is_virtual_host: bool, expected: &str| {
            let mut place = ObjectPlace::of(&file(url), is_virtual_host, None).expect("valid");
            assert!(place.move_to_region("eu-west-3"));
            assert!(!place.move_to_region("eu-west-3") && !place.move_to_region("a/../b"));
            assert_eq!(
                (place.url.as_str(), place.region.as_str()),
                (expected, "eu-west-3")
            );
        };
        check(
            "s3s://s3.amazonaws.com/b/f",
            false,
            "https://s3.eu-west-3.amazonaws.com/b/f",
        );
        check(
            "s3s://b.s3.amazonaws.com/f",
            true,
            "https://b.s3.eu-west-3.amazonaws.com/f",
        );
        check(
            "s3s://minio.example.org/b/f",
            false,
            "https://minio.example.org/b/f",
        );
    }

    #[test]
    fn a_redirect_tells_the_region() {
        let url = file("s3s://s3.amazonaws.com/b/f");
        let mut place = ObjectPlace::of(&url, false, None).expect("valid");
        let to = Url::parse("https://b.s3.eu-west-3.amazonaws.com/f?x=1").expect("valid");
        place.redirect(&to).expect("Amazon's");
        assert_eq!(place.region, "eu-west-3");
        assert!(place.is_virtual_host && place.url.query().is_none());
        assert_eq!(
            place.bucket_url().as_str(),
            "https://b.s3.eu-west-3.amazonaws.com/"
        );
    }
}
