//! The severity of a vulnerability, by one of the public scoring systems.

use cvss::Cvss;
use serde::{Deserialize, Serialize};
use strum::VariantNames;

use platform_engine::kind::Field;

/// The severity score of a vulnerability.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Severity {
    /// The scoring system.
    #[serde(rename = "type")]
    pub scale: SeverityType,
    /// The score; for CVSS the vector, such as `CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H`.
    pub score: String,
}

impl Severity {
    /// Returns the CVSS vector; none for other scoring systems and malformed vectors.
    pub fn cvss(&self) -> Option<Cvss> {
        self.score.parse().ok()
    }
}

/// The scoring systems that the API distinguishes; all others are unspecified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, VariantNames)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
#[allow(missing_docs, reason = "the contract names them and says no more")]
#[non_exhaustive]
pub enum SeverityType {
    #[default]
    TypeUnspecified,
    #[serde(rename = "TYPE_CVSS_V2")]
    TypeCvssV2,
    #[serde(rename = "TYPE_CVSS_V3")]
    TypeCvssV3,
    #[serde(rename = "TYPE_CVSS_V4")]
    TypeCvssV4,
}

/// How severe a vulnerability is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, VariantNames)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
#[allow(missing_docs, reason = "they are the names of levels")]
pub enum Level {
    #[default]
    LevelUnspecified,
    LevelNegligible,
    LevelLow,
    LevelMedium,
    LevelHigh,
    LevelCritical,
}

impl Level {
    /// Returns the level of a CVSS score from 0.0 to 10.0, by the qualitative scale of CVSS 3 and 4.
    pub fn of_score(score: f64) -> Self {
        match score {
            score if score >= 9.0 => Self::LevelCritical,
            score if score >= 7.0 => Self::LevelHigh,
            score if score >= 4.0 => Self::LevelMedium,
            score if score > 0.0 => Self::LevelLow,
            _ => Self::LevelNegligible,
        }
    }
}

/// The fields of a [`Severity`].
pub const SEVERITY: &[Field] = &[
    Field::enumeration("type", SeverityType::VARIANTS).about("The scoring system."),
    Field::string("score").about("The score as the system writes it, such as a CVSS vector."),
];
