//! The hosts of AWS that a signed request may be sent to, and the partitions that they belong to.

use std::{fmt, str::FromStr, sync::Arc};

use http::uri::Authority;
use platform_outbound::Fetch;

/// A host that answers for the Security Token Service (STS) of AWS: an endpoint in an own network, of an isolated
/// partition, or the one of an emulator.
///
/// The text is `HOST`, `HOST:PORT` or either with `=PARTITION`, such as `sts.us-iso-east-1.c2s.ic.gov=aws-iso`. Without a
/// partition, it is `aws`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AwsHost {
    host: String,
    partition: String,
}

/// The rule that the text of an [`AwsHost`] breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be HOST, HOST:PORT or either with =PARTITION, such as sts.us-iso-east-1.c2s.ic.gov=aws-iso")]
pub struct InvalidAwsHost;

impl FromStr for AwsHost {
    type Err = InvalidAwsHost;

    fn from_str(text: &str) -> Result<Self, InvalidAwsHost> {
        let (host, partition) = text.split_once('=').unwrap_or((text, "aws"));
        let authority: Authority = host.parse().map_err(|_| InvalidAwsHost)?;
        let is_partition = partition.starts_with(|first: char| first.is_ascii_lowercase())
            && partition.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
        let has_port = authority.as_str().len() > authority.host().len();
        if authority.host().is_empty() || host.contains('@') || has_port != authority.port().is_some() || !is_partition
        {
            return Err(InvalidAwsHost);
        }
        // Signers leave out the default port.
        let host = host.strip_suffix(":443").unwrap_or(host).to_ascii_lowercase();
        Ok(Self { host, partition: partition.to_owned() })
    }
}

impl fmt::Display for AwsHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.host, self.partition)
    }
}

/// The hosts that this server asks, and the way to them.
#[derive(Debug)]
pub(in crate::sts) struct AwsHosts {
    pub(super) fetch: Arc<dyn Fetch>,
    /// Those that the operator named; without any, the public endpoints of AWS.
    named: Vec<AwsHost>,
}

impl AwsHosts {
    pub(in crate::sts) fn new(fetch: Arc<dyn Fetch>, named: Vec<AwsHost>) -> Self {
        Self { fetch, named }
    }

    /// Returns the partition of AWS whose STS has this host; `None` for a host that is not asked.
    pub(super) fn partition(&self, host: &str) -> Option<&str> {
        match &*self.named {
            [] => partition(host),
            named => named.iter().find(|named| named.host == host).map(|named| &*named.partition),
        }
    }
}

/// Returns the partition of AWS whose STS has this public host; `None` for any other host. Other names below
/// `amazonaws.com` belong to customers of AWS.
///
/// The hosts are the global endpoint, and those of regions: with `sts-fips` where AWS has them, and dual-stack ones. The
/// isolated partitions are left out, because only an operator in one of them can reach its network (our choice).
fn partition(host: &str) -> Option<&'static str> {
    /// The ends of the names, and the partition.
    const SUFFIXES: [(&str, &str); 6] = [
        (".amazonaws.com", "aws"),
        (".api.aws", "aws"),
        (".amazonaws.com.cn", "aws-cn"),
        (".api.amazonwebservices.com.cn", "aws-cn"),
        (".amazonaws.eu", "aws-eusc"),
        (".api.amazonwebservices.eu", "aws-eusc"),
    ];
    if host == "sts.amazonaws.com" {
        return Some("aws");
    }
    let regional = host.strip_prefix("sts.").or_else(|| host.strip_prefix("sts-fips."))?;
    SUFFIXES.into_iter().find_map(|(suffix, partition)| {
        // Such as eu-west-1 or us-gov-east-1: two letters (`eusc` in its partition), words, a number.
        let parts: Vec<&str> = regional.strip_suffix(suffix)?.split('-').collect();
        let is_word = |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_lowercase());
        let [country, middle @ .., number] = parts.as_slice() else { return None };
        let is_region = is_word(country)
            && (1..=2).contains(&middle.len())
            && middle.iter().all(is_word)
            && number.len() == 1
            && number.bytes().all(|byte| byte.is_ascii_digit());
        match (partition, *country, middle.first()) {
            _ if !is_region => None,
            ("aws-cn", "cn", _) | ("aws-eusc", "eusc", _) => Some(partition),
            ("aws", "us", Some(&"gov")) => Some("aws-us-gov"),
            ("aws", country, _) if country.len() == 2 && country != "cn" => Some(partition),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_endpoints_of_sts_are_accepted() {
        for (host, expected) in [
            ("sts.amazonaws.com", "aws"),
            ("sts.eu-west-1.amazonaws.com", "aws"),
            ("sts-fips.us-east-1.amazonaws.com", "aws"),
            ("sts.us-east-1.api.aws", "aws"),
            ("sts-fips.us-east-1.api.aws", "aws"),
            ("sts.us-gov-east-1.amazonaws.com", "aws-us-gov"),
            ("sts.us-gov-west-1.api.aws", "aws-us-gov"),
            ("sts.cn-north-1.amazonaws.com.cn", "aws-cn"),
            ("sts.cn-northwest-1.api.amazonwebservices.com.cn", "aws-cn"),
            ("sts.eusc-de-east-1.amazonaws.eu", "aws-eusc"),
            ("sts.eusc-de-east-1.api.amazonwebservices.eu", "aws-eusc"),
        ] {
            assert_eq!(partition(host), Some(expected), "{host}");
        }
        for host in [
            "",
            "amazonaws.com",
            "sts.amazonaws.com.evil.example",
            "sts.amazonaws.com:8443",
            "evil.example",
            "sts.s3.amazonaws.com",
            "sts.s3-website-eu-west-1.amazonaws.com",
            "sts.eu-west-1.s3.amazonaws.com",
            "x.sts.amazonaws.com",
            "sts.-1.amazonaws.com",
            "sts.eu-1.amazonaws.com",
            "sts.eu--1.amazonaws.com",
            "sts.eu-WEST-1.amazonaws.com",
            "sts.eu-west-12.amazonaws.com",
            "sts.eu-west-a.amazonaws.com",
            "sts.EU-west-1.amazonaws.com",
            "sts.eu-west-1.amazonaws.com.",
            "sts.eu-west-1/.amazonaws.com",
            "sts..amazonaws.com",
            "sts-fips.amazonaws.com",
            "sts.api.aws",
            "sts.amazonaws.com.cn",
            "sts.us-east-1.amazonaws.com.cn",
            "sts.cn-north-1.amazonaws.com",
            "sts.eu-west-1.amazonaws.eu",
            "sts.eusc-de-east-1.amazonaws.com",
            "sts.us-east-1.api.aws.evil.example",
            "sts.us-east-1.amazonaws.eu.evil",
            "sts.us-iso-east-1.c2s.ic.gov",
        ] {
            assert_eq!(partition(host), None, "{host}");
        }
    }

    #[test]
    fn a_named_host_has_a_port_and_a_partition_if_it_says_so() {
        for (text, host, partition) in [
            ("sts.us-east-1.amazonaws.com", "sts.us-east-1.amazonaws.com", "aws"),
            ("STS.example.com:443", "sts.example.com", "aws"),
            ("127.0.0.1:8443", "127.0.0.1:8443", "aws"),
            ("[::1]:8443=aws-cn", "[::1]:8443", "aws-cn"),
            ("a=aws2", "a", "aws2"),
            ("sts.us-iso-east-1.c2s.ic.gov=aws-iso", "sts.us-iso-east-1.c2s.ic.gov", "aws-iso"),
        ] {
            let named: AwsHost = text.parse().unwrap();
            assert_eq!((&*named.host, &*named.partition), (host, partition), "{text}");
            assert_eq!(named.to_string().parse(), Ok(named), "{text}");
        }
        for text in [
            "",
            "=aws",
            "a=",
            "a=AWS",
            "https://a",
            "a/b",
            "user@a",
            "user@a:443",
            ":443",
            "a:",
            "a:port",
            "a b",
            "a=aws=aws",
        ] {
            assert_eq!(text.parse::<AwsHost>(), Err(InvalidAwsHost), "{text}");
        }
    }
}
