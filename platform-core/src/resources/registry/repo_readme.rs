//! Readmes: every repo has one, which is initially empty (`docs/api.md`, Repos).

use platform_engine::{
    BoxFuture,
    context::Context,
    error::{Error, Result},
    kind::{Change, Field, Kind, Method, Parent, Resource},
    timestamp::Timestamp,
    uid::Uid,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::super::domain;
use super::{
    Repo,
    repo_follower::{self, Shown},
};
use crate::capabilities::cap;

mod markup;

/// The maximum length of a readme in bytes. Our choice.
const MAX_CONTENT: usize = 128 << 10;

/// A repo's readme. A synced repo shows the readme of the repo that it follows.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RepoReadme {
    /// The uid of the repo.
    pub uid: Uid,
    /// The text in Markdown; HTML in it must be safe.
    pub content: String,
    /// When the repo was created.
    pub create_time: Option<Timestamp>,
    /// When the readme was last written; before that, when the repo was last updated.
    pub update_time: Option<Timestamp>,
}

impl Resource for RepoReadme {
    const KIND: &'static Kind = &Kind::new("RepoReadme", "repoReadmes", "ReposService", domain::REGISTRY)
        .parent(Parent::Singleton(Repo::KIND, "readme"))
        .methods(&[
            Method::get(&[cap("repo.list")]),
            Method::update(&[cap("repo.update")]).event("platform.registry.repo.updated.v1"),
        ])
        .fields(&[
            Field::string("uid").about("The repo's uid.").output_only(),
            Field::string("content")
                .about("The readme in Markdown; HTML in it must be safe.")
                .multiline()
                .max_len(MAX_CONTENT)
                .costly()
                .check(safe_markdown),
            Field::CREATE_TIME.rest_only(),
            Field::UPDATE_TIME.rest_only(),
        ])
        .cascade();

    fn example() -> Self {
        Self {
            uid: Uid::opaque("63921b2c44617e3f2603851537be0123af4a57d7/0123456789abcdef"),
            content: "# nginx\n\nA *web* server.\n".to_owned(),
            create_time: Some(Timestamp::EPOCH),
            update_time: Some(Timestamp::EPOCH),
        }
    }

    fn prepare<'a>(cx: &'a Context<'a>, change: &'a mut Change<Self>) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let Some(mut readme) = change.new.take() else { return Ok(()) };
            let repo = cx.read::<Repo>(&change.uid).await?;
            let repo = repo.ok_or_else(|| Error::not_found(Repo::KIND, change.uid.as_str()))?;
            let old = change.old.clone().unwrap_or_default();
            // Version 1 sets the own value of a follower.
            if !change.rules.converted
                && let Some(Shown::Source(source)) =
                    repo_follower::shown::<Self>(cx, std::slice::from_ref(&repo)).await?.pop()
            {
                let left_out = change.replaces_all && readme.content.is_empty();
                if !left_out && readme.content != source.unwrap_or_default().content {
                    return Err(Error::invalid_field("content", "is inherited from the repo that this one follows"));
                }
                readme.content.clone_from(&old.content);
            }
            // A readme that was never written has the repo's times.
            if old.create_time.is_none() {
                readme.create_time = repo.create_time;
                readme.update_time = readme.update_time.max(repo.update_time);
            }
            change.new = Some(readme);
            Ok(())
        })
    }

    fn computed(&self) -> bool {
        true
    }

    fn render<'a>(cx: &'a Context<'a>, readmes: &'a mut [Self]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let repos = cx.read_all::<Repo>(readmes.iter().map(|readme| readme.uid.clone())).await?;
            let repos: Vec<_> = repos.into_iter().map(Option::unwrap_or_default).collect();
            let shown = repo_follower::shown::<Self>(cx, &repos).await?;
            for ((readme, repo), shown) in readmes.iter_mut().zip(repos).zip(shown) {
                if let Shown::Source(source) = shown {
                    readme.content = source.unwrap_or_default().content;
                }
                readme.create_time = readme.create_time.or(repo.create_time);
                readme.update_time = readme.update_time.or(repo.update_time);
            }
            Ok(())
        })
    }
}

/// Requires Markdown whose HTML is well formed and safe.
fn safe_markdown(value: &Value) -> std::result::Result<(), String> {
    markup::check(value.as_str().unwrap_or_default()).map_err(markup::Rejection::rule)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_is_accepted_and_active_content_is_rejected() {
        for good in [
            "",
            "# Title\n\nText with *emphasis*, `code` & \"quotes\" <b>bold</b>.\n",
            "[a](https://example.com?a=1&b=2)",
            "```rust\nfn main() { let a = 1 < 2; }\n```\n",
            "- one\n- two\n\n1. x\n\n> quote\n\n---\n",
            "![logo](https://example.com/a.png \"title\")",
            "<!-- a comment -->\n",
            "a  \nb",
            "<img src=\"https://e.com/a\" width=\"1\">",
        ] {
            assert_eq!(safe_markdown(&good.into()), Ok(()), "{good:?}");
        }
        for bad in [
            "<script>alert(1)</script>",
            "[a](javascript:alert(1))",
            "<img src=x onerror=alert(1)>",
            "<iframe src=\"https://e.com\"></iframe>",
            "<a href=\"data:text/html,x\">x</a>",
            "<p style=\"position:fixed\">x</p>",
        ] {
            assert!(safe_markdown(&bad.into()).is_err(), "{bad:?}");
        }
    }
}
