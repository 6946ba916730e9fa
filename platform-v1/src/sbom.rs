//! Software bills of materials: SPDX 2 in JSON, either plain or as the predicate of an in-toto statement, which may be in
//! a DSSE envelope or a Sigstore bundle.
//!
//! Imports and replies use the same reader, so that every bill of materials that an import accepts can be shown.

use std::{borrow::Cow, fmt, marker::PhantomData};

use base64::{
    Engine, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use serde::{
    Deserialize, Deserializer,
    de::{Error, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use platform_engine::timestamp::Timestamp;

/// A bill of materials.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct Sbom {
    /// The version of SPDX, such as `SPDX-2.3`.
    #[serde(deserialize_with = "nullable")]
    pub spdx_version: String,
    /// The identifier of the document in its own relationships.
    #[serde(rename = "SPDXID", deserialize_with = "nullable")]
    pub id: String,
    /// The name of the document.
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    /// A comment on the document.
    #[serde(deserialize_with = "nullable")]
    pub comment: String,
    /// The persons and tools that created the document, and the time.
    #[serde(deserialize_with = "nullable")]
    pub creation_info: CreationInfo,
    /// The packages.
    #[serde(deserialize_with = "bounded::<_, _, MAX_PACKAGES>")]
    pub packages: Vec<Package>,
    /// The files.
    #[serde(deserialize_with = "bounded::<_, _, MAX_OTHERS>")]
    pub files: Vec<File>,
    /// The relationships of packages, files and the document.
    #[serde(deserialize_with = "bounded::<_, _, MAX_OTHERS>")]
    pub relationships: Vec<Relationship>,
    /// The identifiers of the described elements, a short form of its relationships.
    #[serde(deserialize_with = "nullable")]
    pub document_describes: Vec<String>,
}

/// The persons and tools that created a document, and the time.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CreationInfo {
    /// When it was created, as RFC 3339.
    #[serde(deserialize_with = "nullable")]
    pub created: String,
    /// Its creators: `Tool: …`, `Organization: …` or `Person: …`.
    #[serde(deserialize_with = "nullable")]
    pub creators: Vec<String>,
}

/// A package.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Package {
    /// The identifier in relationships.
    #[serde(rename = "SPDXID", deserialize_with = "nullable")]
    pub id: String,
    /// The name.
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    /// The version.
    #[serde(deserialize_with = "nullable")]
    pub version_info: String,
    /// A description.
    #[serde(deserialize_with = "nullable")]
    pub description: String,
    /// The license that its authors declare; may be `NOASSERTION`.
    #[serde(deserialize_with = "nullable")]
    pub license_declared: String,
    /// The license that the author of the document concluded; may be `NOASSERTION`.
    #[serde(deserialize_with = "nullable")]
    pub license_concluded: String,
    /// When it was built, as RFC 3339.
    #[serde(deserialize_with = "nullable")]
    pub built_date: String,
    /// The end of its support, as RFC 3339.
    #[serde(deserialize_with = "nullable")]
    pub valid_until_date: String,
    /// References to it elsewhere.
    #[serde(deserialize_with = "nullable")]
    pub external_refs: Vec<ExternalRef>,
    /// The identifiers of its files, a short form of relationships.
    #[serde(deserialize_with = "nullable")]
    pub has_files: Vec<String>,
}

/// A reference to a package elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExternalRef {
    /// The type, such as `purl`.
    #[serde(deserialize_with = "nullable")]
    pub reference_type: String,
    /// The reference.
    #[serde(deserialize_with = "nullable")]
    pub reference_locator: String,
}

/// A file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct File {
    /// The identifier in relationships.
    #[serde(rename = "SPDXID", deserialize_with = "nullable")]
    pub id: String,
    /// The path.
    #[serde(deserialize_with = "nullable")]
    pub file_name: String,
    /// Its types, such as `BINARY`.
    #[serde(deserialize_with = "nullable")]
    pub file_types: Vec<String>,
}

/// A relationship of two elements.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Relationship {
    /// The first element.
    #[serde(deserialize_with = "nullable")]
    pub spdx_element_id: String,
    /// The second element.
    #[serde(deserialize_with = "nullable")]
    pub related_spdx_element: String,
    /// The relation of the first to the second, such as `CONTAINS`.
    #[serde(deserialize_with = "nullable")]
    pub relationship_type: String,
}

/// An in-toto statement, a DSSE envelope with one, or a Sigstore bundle with an envelope. Any other document has none of
/// these members.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wrapper<'a> {
    #[serde(borrow)]
    predicate: Option<&'a RawValue>,
    /// A statement in base64, of which both alphabets are valid (DSSE protocol, section "Parameters").
    payload: Option<Cow<'a, str>>,
    #[serde(borrow)]
    dsse_envelope: Option<&'a RawValue>,
}

const LENIENT: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT);

impl Sbom {
    /// Parses a bill of materials.
    ///
    /// # Errors
    /// When it is not a JSON object of this form, or has more than 100,000 packages, 200,000 files or 200,000
    /// relationships (our choice). The version is not checked.
    pub fn parse(bytes: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(&Self::document(bytes)?)
    }

    /// Returns the SPDX document in a blob: the predicate of an in-toto statement, or else the whole. Signatures are not
    /// verified.
    ///
    /// # Errors
    /// When the blob is not a JSON object, or the payload of an envelope is not one in base64.
    pub fn document(bytes: &[u8]) -> serde_json::Result<Cow<'_, [u8]>> {
        let outer: Wrapper<'_> = serde_json::from_slice(bytes)?;
        let envelope = outer.dsse_envelope.map(|envelope| serde_json::from_str(envelope.get())).transpose()?;
        let Some(payload) = envelope.as_ref().map_or(outer.payload, |inner: &Wrapper<'_>| inner.payload.clone()) else {
            return Ok(Cow::Borrowed(predicate(&outer.predicate, bytes)));
        };
        let statement = STANDARD.decode(&*payload).or_else(|_| URL_SAFE.decode(&*payload));
        let statement = statement.map_err(|error| serde_json::Error::custom(format!("payload: {error}")))?;
        let inner: Wrapper<'_> = serde_json::from_slice(&statement)?;
        Ok(Cow::Owned(predicate(&inner.predicate, &statement).to_owned()))
    }

    /// Returns the creators of a type, such as `Tool`, without the type.
    pub fn creators<'s>(&'s self, ty: &'s str) -> impl Iterator<Item = &'s str> {
        let of_type = move |creator: &'s String| Some(creator.strip_prefix(ty)?.strip_prefix(':')?.trim());
        self.creation_info.creators.iter().filter_map(of_type)
    }
}

fn predicate<'a>(predicate: &Option<&'a RawValue>, document: &'a [u8]) -> &'a [u8] {
    predicate.map_or(document, |predicate| predicate.get().as_bytes())
}

impl Package {
    /// Returns the package URL; empty if there is none. Its type may be written as a URI (SPDX 2.3, section 7.21).
    pub fn purl(&self) -> &str {
        let is_purl = |name: &str| matches!(name, "purl" | "http://spdx.org/rdf/references/purl");
        let purl = self.external_refs.iter().find(|reference| is_purl(&reference.reference_type));
        purl.map_or("", |reference| &reference.reference_locator)
    }

    /// Returns the license: the concluded one, or else the declared one; empty if there is none.
    pub fn license(&self) -> &str {
        let is_known = |license: &&str| !["", "NOASSERTION", "NONE"].contains(license);
        [self.license_concluded.as_str(), &self.license_declared].into_iter().find(is_known).unwrap_or_default()
    }
}

/// Parses a time of a document; `None` if it is missing or malformed.
pub fn time(text: &str) -> Option<Timestamp> {
    Timestamp::parse(text).ok()
}

/// The maximum number of packages. Our choice. An element of a few bytes takes some hundred when it is parsed.
const MAX_PACKAGES: usize = 100_000;

/// The maximum number of files, and of relationships. Our choice.
const MAX_OTHERS: usize = 200_000;

/// Deserializes a list with at most `MAX` elements; `null` is the empty one.
fn bounded<'de, D: Deserializer<'de>, T: Deserialize<'de>, const MAX: usize>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    struct List<T, const MAX: usize>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for List<T, MAX> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a list of at most {MAX} elements")
        }

        fn visit_unit<E>(self) -> Result<Vec<T>, E> {
            Ok(Vec::new())
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
            let mut all = Vec::new();
            while let Some(one) = list.next_element()? {
                if all.len() == MAX {
                    return Err(A::Error::invalid_length(MAX + 1, &self));
                }
                all.push(one);
            }
            Ok(all)
        }
    }

    deserializer.deserialize_any(List::<T, MAX>(PhantomData))
}

/// Deserializes a value; `null` is the default.
pub(super) fn nullable<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_has_the_document_as_its_predicate() {
        let plain = br#"{"spdxVersion":"SPDX-2.3","name":"a","packages":null}"#;
        let statement = [br#"{"_type":"s","predicate":"#, plain.as_slice(), b"}"].concat();
        assert_eq!(*Sbom::document(&statement).unwrap(), *plain);
        assert_eq!(Sbom::parse(&statement).unwrap(), Sbom::parse(plain).unwrap());
        assert_eq!(Sbom::parse(plain).unwrap().name, "a");
        for malformed in ["", "[]", "3", r#"{"packages":3}"#, r#"{"predicate":[]"#] {
            assert!(Sbom::parse(malformed.as_bytes()).is_err(), "{malformed}");
        }
    }

    #[test]
    fn a_statement_may_be_in_an_envelope_and_that_in_a_bundle() {
        let plain = r#"{"spdxVersion":"SPDX-2.3","name":"ÿ?>"}"#;
        let statement = format!(r#"{{"_type":"s","predicate":{plain}}}"#);
        for payload in [STANDARD.encode(&statement), URL_SAFE.encode(&statement), STANDARD.encode(plain)] {
            for payload in [payload.as_str(), payload.trim_end_matches('='), &payload.replace('/', "\\/")] {
                let envelope = format!(r#"{{"payloadType":"application/vnd.in-toto+json","payload":"{payload}"}}"#);
                let bundle = format!(r#"{{"mediaType":"b","dsseEnvelope":{envelope}}}"#);
                for text in [envelope, bundle] {
                    assert_eq!(*Sbom::document(text.as_bytes()).unwrap(), *plain.as_bytes(), "{text}");
                }
            }
        }
        for malformed in [r#"{"payload":"!"}"#, r#"{"payload":"AAAA"}"#, r#"{"payload":3}"#, r#"{"dsseEnvelope":[]}"#] {
            assert!(Sbom::parse(malformed.as_bytes()).is_err(), "{malformed}");
        }
    }

    #[test]
    fn the_type_of_a_package_url_may_be_a_uri() {
        let purl = |ty: &str| {
            let reference = ExternalRef { reference_type: ty.to_owned(), reference_locator: "pkg:apk/a".to_owned() };
            Package { external_refs: vec![reference], ..Package::default() }.purl().to_owned()
        };
        assert_eq!([purl("purl"), purl("http://spdx.org/rdf/references/purl")], ["pkg:apk/a", "pkg:apk/a"]);
        assert_eq!(purl("cpe23Type"), "");
    }

    #[test]
    fn a_document_with_too_many_elements_is_rejected() {
        let document = |list: &str, count: usize| format!(r#"{{"{list}":[{}{{}}]}}"#, "{},".repeat(count - 1));
        for (list, most) in [("packages", MAX_PACKAGES), ("files", MAX_OTHERS), ("relationships", MAX_OTHERS)] {
            assert!(Sbom::parse(document(list, most).as_bytes()).is_ok(), "{list}");
            let error = Sbom::parse(document(list, most + 1).as_bytes()).unwrap_err().to_string();
            assert!(error.contains(&format!("at most {most} elements")), "{error}");
        }
    }

    #[test]
    fn the_license_is_the_concluded_or_the_declared_one() {
        let license = |concluded: &str, declared: &str| {
            let package = Package {
                license_concluded: concluded.to_owned(),
                license_declared: declared.to_owned(),
                ..Package::default()
            };
            package.license().to_owned()
        };
        assert_eq!(license("MIT", "Zlib"), "MIT");
        assert_eq!(license("NOASSERTION", "Zlib"), "Zlib");
        assert_eq!(license("", "NONE"), "");
    }
}
