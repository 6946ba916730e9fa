//! Deployments: the Helm charts that deploy the images of a repo (`docs/api.md`, Deployments).

use platform_core::{
    capabilities::cap,
    resources::{domain, registry::Repo},
};
use platform_engine::{
    kind::{Field, Kind, Method, Parent, Resource, Type},
    timestamp::Timestamp,
    uid::Uid,
};
use serde::{Deserialize, Serialize};

/// The charts that deploy the images of a repo. Our own kind: only version 1 of the contract shows it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Deployment {
    /// The uid of the repo.
    pub uid: Uid,
    /// The charts.
    pub charts: Vec<DeploymentChart>,
    /// When it was created.
    pub create_time: Option<Timestamp>,
    /// When it was last updated.
    pub update_time: Option<Timestamp>,
}

/// A Helm chart.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeploymentChart {
    /// The repository that has the chart.
    pub repo: String,
    /// The address of the chart's source; empty if it is not known.
    pub source: String,
    /// The name of the chart; empty if it is that of the repository.
    pub chart: String,
}

impl Resource for Deployment {
    const KIND: &'static Kind = &Kind::new("Deployment", "deployments", "DeploymentsService", domain::REGISTRY)
        .parent(Parent::Sole(Repo::KIND))
        .methods(&[
            Method::get(&[cap("registry.deployments.list")]).unserved(),
            Method::create(&[cap("registry.deployments.create")]).unserved(),
            Method::update(&[cap("registry.deployments.update")]).unserved(),
            Method::delete(&[cap("registry.deployments.update")]).unserved(),
        ])
        .fields(&[
            Field::string("uid").about("The repo's uid.").output_only(),
            Field::new(
                "charts",
                Type::List(&Type::Message(&[
                    Field::string("source").about("The address of the chart's source.").max_len(2048),
                    Field::string("repo").about("The repository that has the chart.").required().max_len(2048),
                    Field::string("chart").about("The name of the chart, if it is not that of the repository."),
                ])),
            )
            .about("The charts, in the order of the request."),
            Field::CREATE_TIME,
            Field::UPDATE_TIME,
        ])
        .cascade();

    fn example() -> Self {
        Self {
            uid: Uid::opaque("63921b2c44617e3f2603851537be0123af4a57d7/0123456789abcdef"),
            charts: vec![DeploymentChart {
                repo: "https://charts.example.com".to_owned(),
                source: "https://git.example.com/charts".to_owned(),
                chart: "nginx".to_owned(),
            }],
            create_time: Some(Timestamp::EPOCH),
            update_time: Some(Timestamp::EPOCH),
        }
    }
}
