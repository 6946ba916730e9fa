//! The severity of a vulnerability, by one of the public scoring systems.

use cvss::Cvss;
use serde::{Deserialize, Serialize};
use serde_json::Value;
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
    ///
    /// A slash at the end and parentheses around a vector, which databases publish, are accepted (our choice).
    pub fn cvss(&self) -> Option<Cvss> {
        self.vector().parse().ok()
    }

    /// Returns the text without what databases write around a vector: a slash at its end, and parentheses around one of
    /// version 2.
    fn vector(&self) -> &str {
        let text = self.score.trim();
        let inner = text.strip_prefix('(').and_then(|text| text.strip_suffix(')')).unwrap_or(text);
        inner.strip_suffix('/').unwrap_or(inner)
    }

    /// Returns the CVSS base score, from 0.0 to 10.0, as defined in `docs/api.md`, Vulnerability reports; none for
    /// other scoring systems, and for malformed vectors and those that lack a base metric.
    ///
    /// Metrics that are not base metrics do not count in any version, so that scores of different versions can be
    /// compared.
    pub fn base_score(&self) -> Option<f64> {
        let vector = self.cvss()?;
        // An absent metric would count as one without impact, and the score be too low.
        let has = |name: &&str| self.vector().split('/').any(|part| part.split(':').next() == Some(*name));
        let of_whole = |mandatory: &[&str]| mandatory.iter().all(has).then(|| vector.score());
        match vector {
            Cvss::CvssV20(_) => of_whole(&BASE_METRICS_2),
            Cvss::CvssV30(_) | Cvss::CvssV31(_) => of_whole(&BASE_METRICS_3),
            // Of version 4, the score of a vector is that of all its metrics.
            _ => {
                let is_base = |part: &&str| part.split_once(':').is_some_and(|(name, _)| BASE_METRICS.contains(&name));
                let base = self.vector().split('/').filter(is_base).collect::<Vec<_>>().join("/");
                Some(base.parse::<Cvss>().ok()?.score())
            }
        }
    }
}

/// The base metrics of CVSS 2.0 and of 3.0 and 3.1, all of which are mandatory.
const BASE_METRICS_2: [&str; 6] = ["AV", "AC", "Au", "C", "I", "A"];
const BASE_METRICS_3: [&str; 8] = ["AV", "AC", "PR", "UI", "S", "C", "I", "A"];

/// The parts of a vector of CVSS 4.0 that are its base metrics, after the version.
const BASE_METRICS: [&str; 12] = ["CVSS", "AV", "AC", "AT", "PR", "UI", "VC", "VI", "VA", "SC", "SI", "SA"];

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
    /// Returns the level in a word, such as `critical`.
    pub const fn word(self) -> &'static str {
        match self {
            Self::LevelUnspecified => "unknown",
            Self::LevelNegligible => "negligible",
            Self::LevelLow => "low",
            Self::LevelMedium => "medium",
            Self::LevelHigh => "high",
            Self::LevelCritical => "critical",
        }
    }

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

/// Returns the highest CVSS score of a resource with `severities`, with its level, for tables: `critical 9.8`.
pub(crate) fn highest_of(body: &Value) -> String {
    let severities = body.get("severities").and_then(Value::as_array).into_iter().flatten();
    let scores = severities.filter_map(|severity| Severity::deserialize(severity).ok()?.base_score());
    scores
        .max_by(f64::total_cmp)
        .map(|score| format!("{} {score:.1}", Level::of_score(score).word()))
        .unwrap_or_default()
}

/// The fields of a [`Severity`].
pub const SEVERITY: &[Field] = &[
    Field::enumeration("type", SeverityType::VARIANTS).about("The scoring system."),
    Field::string("score").about("The score as the system writes it, such as a CVSS vector."),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_base_metrics_count_in_every_version() {
        let score = |vector: &str| Severity { score: vector.to_owned(), ..Severity::default() }.base_score();
        for (base, others, expected) in [
            ("AV:N/AC:L/Au:N/C:C/I:C/A:C", &["/E:U/RL:OF/RC:UC", "/CDP:N/TD:N/CR:L/IR:L/AR:L"][..], 10.0),
            ("CVSS:3.0/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H", &["/E:U/RL:O/RC:U", "/CR:L/MAV:P"], 9.8),
            ("CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:L/I:L/A:N", &["/E:U/RL:O", "/MC:N/MI:N"], 6.5),
            (
                "CVSS:4.0/AV:N/AC:L/AT:N/PR:N/UI:N/VC:H/VI:H/VA:H/SC:N/SI:N/SA:N",
                &["/E:U", "/CR:L/IR:L/AR:L", "/MAV:P/MVC:N", "/S:N/AU:Y"],
                9.3,
            ),
        ] {
            for others in others.iter().chain([&""]) {
                assert_eq!(score(&format!("{base}{others}")), Some(expected), "{base}{others}");
            }
        }
        for (published, expected) in [
            ("CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H/", 9.8),
            ("CVSS:4.0/AV:N/AC:L/AT:N/PR:N/UI:N/VC:H/VI:H/VA:H/SC:N/SI:N/SA:N/", 9.3),
            ("(AV:N/AC:L/Au:N/C:C/I:C/A:C)", 10.0),
            (" AV:N/AC:L/Au:N/C:C/I:C/A:C\n", 10.0),
        ] {
            assert_eq!(score(published), Some(expected), "{published}");
        }
        for incomplete in ["AV:N/AC:L/Au:N/C:C/I:C", "CVSS:3.1/AV:N", "CVSS:3.0/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/E:U"] {
            assert_eq!(score(incomplete), None, "{incomplete}");
        }
        for none in [
            "",
            "low",
            "9.8",
            "/",
            "()",
            "CVSS:4.0/AV:N",
            "CVSS:4.0/AV:N/AC:L/AT:N/PR:N/UI:N/VC:H/VI:H/VA:H/SC:N/SI:N/SA:N/E:?",
        ] {
            assert_eq!(score(none), None, "{none}");
        }
    }
}
