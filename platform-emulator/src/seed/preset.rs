//! Seeds that the emulator has.

use std::str::FromStr;

use platform_engine::error::{Error, Result};
use serde_json::{Map, Value, json};

use super::demo;

const GROUPS: usize = 20;
const REPOS: usize = 50;
const TAGS: usize = 9;

/// A seed that the emulator has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preset {
    /// Some resources of several kinds: groups, repos with tags, an identity with a role, and a role.
    Small,
    /// 20 groups with 50 repos each, and 9 tags in each repo: 10,020 resources, for lists with many pages.
    Large,
    /// Images with vulnerable packages and the advisories about them, for people who look around in the console.
    Demo,
}

impl FromStr for Preset {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "small" => Ok(Self::Small),
            "large" => Ok(Self::Large),
            "demo" => Ok(Self::Demo),
            _ => Err(Error::invalid_field("preset", "must be small, large or demo")),
        }
    }
}

impl Preset {
    pub(super) const SMALL: &'static str = include_str!("small.yaml");

    /// Returns the resources of the preset.
    pub(crate) fn resources(self) -> Result<Map<String, Value>> {
        match self {
            Self::Small => super::parse(Self::SMALL.as_bytes()),
            Self::Large => Ok(large()),
            Self::Demo => Ok(demo::resources()),
        }
    }
}

fn large() -> Map<String, Value> {
    let (mut groups, mut repos, mut tags) = (Vec::new(), Vec::new(), Vec::new());
    for group in 0..GROUPS {
        let group = format!("group-{group:02}");
        groups.push(json!({ "name": group }));
        for repo in 0..REPOS {
            let repo = format!("repo-{repo:02}");
            repos.push(json!({ "parent": group, "name": repo }));
            for tag in 0..TAGS {
                let digest = format!("sha256:{:064x}", tags.len());
                let parent = format!("{group}/{repo}");
                tags.push(json!({ "parent": parent, "name": format!("1.{tag}"), "digest": digest }));
            }
        }
    }
    let lists = [("groups", groups), ("repos", repos), ("tags", tags)];
    lists.into_iter().map(|(plural, list)| (plural.to_owned(), list.into())).collect()
}
