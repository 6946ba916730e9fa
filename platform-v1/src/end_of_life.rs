//! The ends of the lives of tags, by the versions of their images' main packages (`docs/api.md`, End-of-life tags).

use std::collections::{HashMap, HashSet};

use platform_core::resources::{
    advisory::apk,
    registry::{Image, RegistrySettings, Repo, Tag, image::ImagePackage},
};
use platform_engine::{context::Context, error::Result, timestamp::Timestamp, uid::Uid};

use crate::resources::{PackageVersions, package_versions::PackageVersion};

/// Whether the life of a tag has ended, and why.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct EndOfLife {
    /// The main package; empty if it is not known.
    pub(crate) main_package: String,
    /// The version of the main package, if its versions were imported.
    pub(crate) version: Option<PackageVersion>,
    pub(crate) status: Status,
    pub(crate) grace: Grace,
    /// When the grace period ends or ended; `None` if there is none.
    pub(crate) grace_ends: Option<Timestamp>,
}

/// Whether a tag is still updated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Status {
    #[default]
    Active,
    /// Its life has ended, and its grace period has not.
    InGrace,
    Inactive,
}

/// The grace period of a tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Grace {
    /// Its life has not ended, or there is no grace period.
    #[default]
    NotEligible,
    /// The organization could have one.
    Eligible,
    Active,
    /// The version cannot be built any longer.
    Broken,
    Expired,
}

/// Returns the ends of the lives of tags, in their order.
///
/// # Errors
/// Those of the store.
pub(crate) async fn of_tags(cx: &Context<'_>, tags: &[Tag]) -> Result<Vec<EndOfLife>> {
    let repo_of = |tag: &Tag| tag.uid.parent().unwrap_or_default();
    let repos: HashSet<_> = tags.iter().map(repo_of).collect();
    let repos = cx.read_all::<Repo>(repos).await?;
    let names: HashMap<Uid, String> = repos.into_iter().flatten().map(|repo| (repo.uid, repo.name)).collect();
    let name_of = |tag: &Tag| names.get(&repo_of(tag)).map(String::as_str).unwrap_or_default();
    let mains = main_packages(cx, tags, name_of).await?;
    let named = tags.iter().zip(&mains).flat_map(|(tag, main)| candidates(name_of(tag), main.as_ref()));
    let uids: HashSet<_> = named.map(PackageVersions::uid_of).collect();
    let versions = cx.read_all::<PackageVersions>(uids).await?;
    let versions: HashMap<String, PackageVersions> =
        versions.into_iter().flatten().map(|versions| (versions.package.clone(), versions)).collect();
    let with_grace = organizations_with_grace(cx, tags).await?;
    let now = cx.now();
    let found = tags.iter().zip(mains).map(|(tag, main)| {
        let known = candidates(name_of(tag), main.as_ref()).find_map(|name| versions.get(name));
        let mut found = EndOfLife::default();
        if let Some(versions) = known {
            // Without a main package, the tag's name says which version it is.
            let release = main.as_ref().map_or(tag.name.as_str(), |main| main.version.as_str());
            found.version = versions.version_of(release).cloned();
            found.main_package.clone_from(&versions.package);
        }
        if let Some(main) = main {
            found.main_package = main.name;
        }
        let months = known.map_or(0, |versions| versions.grace_period_months);
        found.rate(now, tag.deprecated, months, with_grace.contains(tag.uid.root()));
        found
    });
    Ok(found.collect())
}

impl EndOfLife {
    /// Sets the status and the grace period.
    fn rate(&mut self, now: Timestamp, is_deprecated: bool, months: i32, has_grace: bool) {
        let Some(version) = self.version.as_ref().filter(|version| version.has_ended(now)) else {
            self.status = if is_deprecated { Status::Inactive } else { Status::Active };
            return;
        };
        self.status = Status::Inactive;
        if months <= 0 {
            return;
        }
        if version.eol_broken {
            self.grace = Grace::Broken;
            return;
        }
        self.grace_ends = version.grace_ends(months);
        let is_within = self.grace_ends.is_some_and(|end| now < end);
        (self.status, self.grace) = match (is_within, has_grace) {
            (true, true) => (Status::InGrace, Grace::Active),
            (true, false) => (Status::Inactive, Grace::Eligible),
            (false, _) => (Status::Inactive, Grace::Expired),
        };
    }
}

/// Returns the names under which the versions of a tag's main package may have been imported: that of the package, of
/// the repo, and of the package whose build made it.
fn candidates<'n>(repo: &'n str, main: Option<&'n ImagePackage>) -> impl Iterator<Item = &'n str> {
    let (package, origin) = main.map(|main| (main.name.as_str(), main.origin.as_str())).unwrap_or_default();
    [package, repo, origin].into_iter().filter(|name| !name.is_empty())
}

/// Returns the main packages of the images of tags.
async fn main_packages<'t>(
    cx: &Context<'_>,
    tags: &'t [Tag],
    name_of: impl Fn(&'t Tag) -> &'t str,
) -> Result<Vec<Option<ImagePackage>>> {
    let uid_of = |tag: &Tag| Image::uid_of(&tag.uid.parent().unwrap_or_default(), &tag.digest);
    let mut found: HashMap<Uid, Option<ImagePackage>> = HashMap::new();
    let mut named: Vec<_> = tags.iter().map(|tag| (uid_of(tag), &tag.digest, name_of(tag))).collect();
    named.sort();
    named.dedup();
    // Images may be large, so that only a few of them are in memory at once.
    for some in named.chunks(IMAGES) {
        let images = cx.read_all::<Image>(some.iter().map(|(uid, ..)| uid.clone())).await?;
        for ((uid, digest, name), image) in some.iter().zip(images) {
            // The uid has a part of a hash of the digest.
            let image = image.filter(|image| image.digest == **digest);
            found.insert(uid.clone(), image.and_then(|image| main_package(&image, name).cloned()));
        }
    }
    Ok(tags.iter().map(|tag| found.get(&uid_of(tag)).cloned().flatten()).collect())
}

/// The number of images that are in memory at once.
const IMAGES: usize = 20;

/// Returns the main package of an image of a repo: the one with the name of the repo, or else the latest of those whose
/// name adds a version, such as `python-3.12`.
fn main_package<'i>(image: &'i Image, repo: &str) -> Option<&'i ImagePackage> {
    let packages = || image.platforms.iter().flat_map(|platform| &platform.packages);
    let has_version = |package: &&ImagePackage| {
        let version = package.name.strip_prefix(repo).and_then(|rest| rest.strip_prefix('-'));
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        version.is_some_and(|version| version.split('.').all(is_number))
    };
    let latest =
        |a: &'i ImagePackage, b: &'i ImagePackage| if apk::is_at_least(&b.version, &a.version) { b } else { a };
    packages().find(|package| package.name == repo).or_else(|| packages().filter(has_version).reduce(latest))
}

/// Returns the organizations of tags whose settings have a grace period.
async fn organizations_with_grace(cx: &Context<'_>, tags: &[Tag]) -> Result<HashSet<String>> {
    let organizations = tags.iter().map(|tag| tag.uid.root().to_owned()).filter(|uid| !uid.is_empty()).collect();
    let settings = RegistrySettings::of_all(cx, organizations).await?;
    Ok(settings.into_iter().filter(|(_, settings)| settings.eol_grace_period).map(|(uid, _)| uid).collect())
}

#[cfg(test)]
mod tests {
    use platform_core::resources::registry::image::ImagePlatform;

    use super::*;

    #[test]
    fn the_main_package_has_the_name_of_the_repo_or_adds_a_version_to_it() {
        let main = |repo: &str, packages: &[(&str, &str)]| {
            let packages = packages.iter().map(|(name, version)| ImagePackage {
                name: (*name).to_owned(),
                version: (*version).to_owned(),
                ..ImagePackage::default()
            });
            let platform = ImagePlatform { packages: packages.collect(), ..ImagePlatform::default() };
            let image = Image { platforms: vec![platform], ..Image::default() };
            main_package(&image, repo).map(|main| main.name.clone()).unwrap_or_default()
        };
        assert_eq!(main("nginx", &[("nginx-mainline", "1.29"), ("nginx", "1.28")]), "nginx");
        let pythons = [("python-3.9", "3.9.1-r0"), ("python-3.12", "3.12.1-r0"), ("python-3.12-base", "3.12.1-r0")];
        assert_eq!(main("python", &pythons), "python-3.12");
        assert_eq!(main("pytho", &pythons), "");
        assert_eq!(main("", &pythons), "");
        assert_eq!(main("busybox", &[]), "");
    }

    #[test]
    fn a_tag_is_in_grace_only_with_the_setting_and_until_the_period_ends() {
        let now = Timestamp::parse("2026-03-01T00:00:00Z").unwrap();
        let rated = |eol: &str, broken: bool, is_deprecated: bool, months: i32, has_grace: bool| {
            let version = PackageVersion { eol_date: eol.to_owned(), eol_broken: broken, ..PackageVersion::default() };
            let mut found = EndOfLife { version: Some(version), ..EndOfLife::default() };
            found.rate(now, is_deprecated, months, has_grace);
            (found.status, found.grace, found.grace_ends.map(|at| at.to_string()[..10].to_owned()))
        };
        let none = |status| (status, Grace::NotEligible, None);
        assert_eq!(rated("2026-03-02", false, false, 6, true), none(Status::Active));
        assert_eq!(rated("2026-03-02", false, true, 6, true), none(Status::Inactive));
        let ends = |day: &str| Some(day.to_owned());
        assert_eq!(rated("2026-02-01", false, true, 6, true), (Status::InGrace, Grace::Active, ends("2026-08-01")));
        assert_eq!(
            rated("2026-02-01", false, false, 6, false),
            (Status::Inactive, Grace::Eligible, ends("2026-08-01"))
        );
        assert_eq!(rated("2026-02-01", false, false, 1, true), (Status::Inactive, Grace::Expired, ends("2026-03-01")));
        assert_eq!(rated("2026-02-01", true, false, 6, true), (Status::Inactive, Grace::Broken, None));
        assert_eq!(rated("2026-02-01", false, false, 0, true), none(Status::Inactive));
    }
}
