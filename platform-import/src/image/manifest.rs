//! The documents of an OCI image layout (opencontainers/image-spec 1.1), with the members that an import reads. All other
//! members are ignored, whatever they have.
//!
//! Rejected: the crate oci-spec. With it, a default server has 16 packages more, most of them to derive builders and
//! getters, and its types would be part of our interface.

use std::{collections::HashMap, fmt};

use serde::{Deserialize, de::DeserializeOwned};

use crate::{Refusal, osv::without_place};

/// The annotations of a descriptor or a manifest.
#[derive(Debug, Clone, Deserialize)]
#[serde(transparent)]
pub struct Annotations(Option<HashMap<String, String>>);

impl Annotations {
    /// Returns the value of an annotation.
    pub fn get(&self, name: &str) -> Option<&String> {
        self.0.as_ref()?.get(name)
    }
}

/// The file `oci-layout`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Marker {
    pub(super) image_layout_version: String,
}

/// An image index: manifests, each for a platform or about another one.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Index {
    pub(super) schema_version: u32,
    pub(super) manifests: Vec<Descriptor>,
}

/// An image manifest.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Manifest {
    schema_version: u32,
    /// The type of an artifact that is not an image.
    pub artifact_type: Option<String>,
    /// The configuration.
    pub config: Descriptor,
    /// The layers, the lowest one first.
    pub layers: Vec<Descriptor>,
    /// The manifest that this one is about.
    pub subject: Option<Descriptor>,
    /// The annotations.
    pub annotations: Annotations,
}

/// A reference to a blob.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Descriptor {
    /// The media type of the blob.
    pub media_type: String,
    /// The digest of the blob.
    pub digest: BlobDigest,
    /// The size of the blob in bytes.
    pub size: u64,
    /// The annotations.
    pub annotations: Annotations,
}

/// The digest of a blob: an algorithm, a colon and the encoded value, such as `sha256:` and 64 hexadecimal digits. Those of
/// other algorithms are valid, too, but no blob can be read by them.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct BlobDigest(String);

impl BlobDigest {
    /// The registered algorithms, and how many hexadecimal digits their values have.
    const ALGORITHMS: [(&str, usize); 3] = [("sha256", 64), ("sha384", 96), ("sha512", 128)];

    /// Returns the algorithm and the encoded value.
    pub fn parts(&self) -> (&str, &str) {
        self.0.split_once(':').unwrap_or_default()
    }

    /// Returns whether a text is a digest of a registered algorithm.
    pub(super) fn is_registered(text: &str) -> bool {
        let is_known = |digest: Self| Self::ALGORITHMS.iter().any(|(name, _)| *name == digest.parts().0);
        Self::try_from(text.to_owned()).is_ok_and(is_known)
    }
}

impl TryFrom<String> for BlobDigest {
    type Error = &'static str;

    /// Parses a digest.
    ///
    /// # Errors
    /// The rule that the text breaks.
    fn try_from(text: String) -> Result<Self, &'static str> {
        let (algorithm, value) = text.split_once(':').ok_or("a digest must have a colon")?;
        let is_lower = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let is_component = |part: &str| !part.is_empty() && part.bytes().all(is_lower);
        if !algorithm.split(['+', '.', '_', '-']).all(is_component) {
            return Err("a digest must begin with the name of an algorithm");
        }
        let is_encoded = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'=' | b'_' | b'-');
        let is_valid = match Self::ALGORITHMS.iter().find(|(name, _)| *name == algorithm) {
            Some((_, len)) => {
                value.len() == *len && value.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
            }
            None => !value.is_empty() && value.bytes().all(is_encoded),
        };
        if is_valid { Ok(Self(text)) } else { Err("the value of a digest does not fit its algorithm") }
    }
}

impl fmt::Display for BlobDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Reads the descriptors of an index's manifests.
///
/// # Errors
/// The problem with the index.
pub fn index(bytes: &[u8]) -> Result<Vec<Descriptor>, Refusal> {
    let index: Index = read("image index", bytes)?;
    check_version(index.schema_version)?;
    Ok(index.manifests)
}

/// Reads a manifest.
///
/// # Errors
/// The problem with the manifest.
pub fn manifest(bytes: &[u8]) -> Result<Manifest, Refusal> {
    let manifest: Manifest = read("image manifest", bytes)?;
    check_version(manifest.schema_version)?;
    Ok(manifest)
}

fn check_version(version: u32) -> Result<(), Refusal> {
    if version == 2 { Ok(()) } else { Err(Refusal::new("schemaVersion", format!("must be 2, not {version}"))) }
}

/// Reads a document.
pub(super) fn read<T: DeserializeOwned>(what: &str, bytes: &[u8]) -> Result<T, Refusal> {
    serde_json::from_slice(bytes).map_err(|error| invalid(what, &error))
}

pub(super) fn invalid(what: &str, error: &serde_json::Error) -> Refusal {
    Refusal::whole(format!("must be a valid {what}: {}", without_place(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_has_an_algorithm_and_a_value_that_fits_it() {
        let parse = |text: &str| BlobDigest::try_from(text.to_owned());
        let hex = |digits: usize| "0f".repeat(digits / 2);
        for (name, digits) in BlobDigest::ALGORITHMS {
            assert!(BlobDigest::is_registered(&format!("{name}:{}", hex(digits))));
            for bad in
                [hex(digits - 2), hex(digits + 2), hex(digits).to_uppercase(), "../".repeat(digits / 3), String::new()]
            {
                assert!(parse(&format!("{name}:{bad}")).is_err(), "{name}:{bad}");
            }
        }
        let other = parse("multihash+base58:QmRZ_=-x").unwrap();
        assert_eq!(other.parts(), ("multihash+base58", "QmRZ_=-x"));
        assert!(!BlobDigest::is_registered(&other.to_string()));
        for bad in ["", ":", "a:", ":a", "sha256", "A:b", "a+:b", "a:b/c", "a:b:c", "a b:c"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn members_that_are_not_read_may_have_anything() {
        let descriptor = format!(
            r#"{{"mediaType":"a","digest":"sha256:{}","size":1,"platform":{{"os":1}},"urls":"x","data":{{}}}}"#,
            "0".repeat(64)
        );
        let read =
            index(format!(r#"{{"schemaVersion":2,"manifests":[{descriptor}],"mediaType":1}}"#).as_bytes()).unwrap();
        assert_eq!((read[0].size, read[0].annotations.get("x")), (1, None));
        for bad in [descriptor.replace(":1,\"pl", ":-1,\"pl"), descriptor.replace(":1,\"pl", ":1.5,\"pl")] {
            assert!(index(format!(r#"{{"schemaVersion":2,"manifests":[{bad}]}}"#).as_bytes()).is_err(), "{bad}");
        }
    }
}
