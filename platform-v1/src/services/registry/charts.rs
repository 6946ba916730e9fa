//! Helm charts.

use std::collections::BTreeMap;

use platform_core::{
    capabilities::cap,
    resources::{
        iam::Group,
        registry::{Digest, Repo},
    },
};
use platform_engine::{
    context::Context,
    error::{Error, Result},
    kind::{Action, Authorization, Field, Resource, Type},
    store::{Filter, KeyValue, Query, Scope},
    uid::Uid,
};
use serde_json::{Map, Value, json};

use super::{
    REPO_ID,
    images::{DIGEST, malformed, text},
};
use crate::resources::{
    Chart,
    chart::{Dependency, IMAGE_NAME, Metadata, Requirement, repository},
};

/// The values of `requirement`.
const REQUIREMENT: &[&str] = &["REQUIREMENT_UNSPECIFIED", "REQUIREMENT_REQUIRED", "REQUIREMENT_OPTIONAL"];

const REQUIREMENT_FIELD: Field = Field::enumeration("requirement", REQUIREMENT);

pub(super) const GET_HELM: Action =
    Action::get("GetHelm", "repos/{repoId=**}/digests/{digest=*}/helm", |cx, request| Box::pin(get_helm(cx, request)))
        .request(&[
            REPO_ID,
            DIGEST.about("The digest of the chart: `sha256:` and 64 hexadecimal digits."),
            Field::string("arch").about("Not used: a chart is the same for all architectures."),
        ])
        .response(&[
            Field::string("chartName").about("The name of the chart."),
            Field::string("chartVersion").about("The version of the chart."),
            Field::string("chartRepository").about("The name of the repo that has the chart."),
            Field::string("chartDigest").about("The digest of the chart."),
            Field::string("values").about("The file `values.yaml`."),
        ])
        .authorization(Authorization::At("repoId", &[cap("repo.list"), cap("tag.list")]));

pub(super) const GET_CHART: Action =
    Action::get("GetChart", "repos/{repoId=**}/digests/{digest=*}/chart", |cx, request| {
        Box::pin(get_chart(cx, request))
    })
    .request(&[REPO_ID, DIGEST.about("The digest of the chart: `sha256:` and 64 hexadecimal digits.")])
    .response(&[
        Field::string("name").about("The name of the chart."),
        Field::string("version").about("The version of the chart."),
        Field::string("appVersion").about("The version of the application."),
        Field::string("description").about("A description."),
        Field::new(
            "dependencies",
            Type::List(&Type::Message(&[
                Field::string("name").about("The name of the chart."),
                Field::string("version").about("The range of versions."),
                Field::string("repository").about("The repository of the chart."),
            ])),
        )
        .about("The charts that it depends on."),
        Field::string_map("annotations").about("The annotations."),
        Field::new(
            "images",
            Type::List(&Type::Message(&[
                Field::string("name").about("The name within the chart."),
                Field::string("image").about("The reference of the image."),
                REQUIREMENT_FIELD.about("Whether the chart needs the image."),
            ])),
        )
        .about("The images that the annotation `artifacthub.io/images` declares."),
        Field::string("raw").about("The file `Chart.yaml`."),
        Field::string("values").about("The file `values.yaml`."),
        Field::string("changelog").about("The file `CHANGELOG.md`."),
    ])
    .authorization(Authorization::At("repoId", &[cap("repo.list"), cap("manifest.list")]));

pub(super) const LIST_CHARTS_BY_IMAGE_REPO: Action =
    Action::get("ListChartsByImageRepo", "repos/{repoId=**}/chart-image-bindings", |cx, request| {
        Box::pin(list_by_image_repo(cx, request))
    })
    .request(&[REPO_ID])
    .response(&[Field::new(
        "chartImageBindings",
        Type::List(&Type::Message(&[
            Field::string("chartRepo").about("The uid of the repo that has the chart."),
            REQUIREMENT_FIELD.about("Whether a chart of the repo needs the image."),
        ])),
    )
    .about("The repos with a chart that declares an image of the repo, in the order of their uids.")])
    .authorization(Authorization::At("repoId", &[cap("repo.list")]));

/// Returns a text of a chart; empty if the chart has none.
async fn file(cx: &Context<'_>, repo: &Uid, digest: &Digest) -> Result<String> {
    if digest.is_empty() {
        Ok(String::new())
    } else {
        cx.read_blob(repo, digest, |content| Ok(String::from_utf8_lossy(content).into_owned())).await
    }
}

async fn named(cx: &Context<'_>, request: &Map<String, Value>) -> Result<(Uid, Chart, Metadata)> {
    let repo = Uid::opaque(text(request, "repoId"));
    let chart = Chart::find(cx, &repo, text(request, "digest")).await?;
    let config = chart.config.clone();
    let parse = move |content: &[u8]| Metadata::parse(content).map_err(|error| malformed(&config, error));
    let metadata = cx.read_blob(&repo, &chart.config, parse).await?;
    Ok((repo, chart, metadata))
}

async fn get_helm(cx: &Context<'_>, request: Map<String, Value>) -> Result<Value> {
    let (repo, chart, metadata) = named(cx, &request).await?;
    let name = cx.read::<Repo>(&repo).await?.map(|repo| repo.name).unwrap_or_default();
    Ok(json!({
        "chartName": metadata.name,
        "chartVersion": metadata.version,
        "chartRepository": name,
        "chartDigest": chart.digest,
        "values": file(cx, &repo, &chart.values).await?,
    }))
}

async fn get_chart(cx: &Context<'_>, request: Map<String, Value>) -> Result<Value> {
    let (repo, chart, metadata) = named(cx, &request).await?;
    let dependency =
        |one: &Dependency| json!({ "name": one.name, "version": one.version, "repository": one.repository });
    Ok(json!({
        "name": metadata.name,
        "version": metadata.version,
        "appVersion": metadata.app_version,
        "description": metadata.description,
        "dependencies": metadata.dependencies.iter().map(dependency).collect::<Vec<_>>(),
        "annotations": metadata.annotations,
        "images": chart.images,
        "raw": file(cx, &repo, &chart.raw).await?,
        "values": file(cx, &repo, &chart.values).await?,
        "changelog": file(cx, &repo, &chart.changelog).await?,
    }))
}

/// The number of charts that are read at once.
const PAGE: usize = 100;

/// The number of bytes of charts that are read at once.
const PAGE_BYTES: usize = 4 << 20;

/// Returns the repos with charts that declare an image of a repo. A repo that does not exist has none.
async fn list_by_image_repo(cx: &Context<'_>, request: Map<String, Value>) -> Result<Value> {
    let uid = Uid::opaque(text(&request, "repoId"));
    let Some(repo) = cx.read::<Repo>(&uid).await? else { return Ok(json!({ "chartImageBindings": [] })) };
    let organization = Uid::opaque(uid.root());
    let organization_name = cx.read::<Group>(&organization).await?.map(|group| group.name).unwrap_or_default();
    let is_of_repo = |image: &str| match repository(image).as_slice() {
        [name] => *name == repo.name,
        [first, .., name] => *name == repo.name && [uid.root(), organization_name.as_str()].contains(first),
        [] => false,
    };
    let filters = vec![Filter::AnyOf { key: IMAGE_NAME, values: vec![KeyValue::text(&repo.name)] }];
    let scope = Scope::Subtree(organization.clone());
    let mut query = Query { filters, limit: PAGE, bytes: PAGE_BYTES, ..Query::new(Chart::KIND.name, scope) };
    let (mut found, mut pace): (BTreeMap<Uid, Requirement>, _) = (BTreeMap::new(), cx.pace());
    loop {
        let page = cx.page(query.clone()).await?;
        for item in &page.items {
            pace.step(item.body.len()).await;
            let chart: Chart = serde_json::from_slice(&item.body).map_err(Error::internal)?;
            let declared = chart.images.iter().filter(|image| is_of_repo(&image.image));
            // A chart that needs the image counts more than one that may need it.
            let Some(requirement) = declared.map(|image| image.requirement).min_by_key(|one| rank(*one)) else {
                continue;
            };
            let Some(parent) = item.uid().parent() else { continue };
            if cx.allows(&parent, &[cap("repo.list")]) {
                let known = found.entry(parent).or_insert(requirement);
                *known = [*known, requirement].into_iter().min_by_key(|one| rank(*one)).unwrap_or_default();
            }
        }
        match page.next {
            Some(next) => query.after = Some(next),
            None => break,
        }
    }
    let bindings = found.iter().map(|(repo, requirement)| json!({ "chartRepo": repo, "requirement": requirement }));
    Ok(json!({ "chartImageBindings": bindings.collect::<Vec<_>>() }))
}

const fn rank(requirement: Requirement) -> u8 {
    match requirement {
        Requirement::RequirementRequired => 0,
        Requirement::RequirementOptional => 1,
        Requirement::RequirementUnspecified => 2,
    }
}
