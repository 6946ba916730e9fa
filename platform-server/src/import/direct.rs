//! Import into the store of a stopped server.

use anyhow::Result;
use platform_core::resources::registry::{Image, Tag};
use platform_engine::{
    error::{Code, Error},
    kind::Imported,
    platform::PutReply,
    request::ListRequest,
};
use platform_import::{Done, Sink};

use crate::direct::{Direct, describe};

impl Sink for Direct {
    type Error = anyhow::Error;

    fn put<R: Imported>(&mut self, parent: &str, resources: Vec<R>) -> Result<Done> {
        Ok(done(self.runtime.block_on(self.platform.put(&self.operator, parent, resources))?))
    }

    fn put_blobs(&mut self, repo: &str, contents: Vec<Vec<u8>>) -> Result<Done> {
        let contents = contents.into_iter().map(Into::into).collect();
        Ok(done(self.runtime.block_on(self.platform.put_blobs::<Image>(&self.operator, repo, contents))?))
    }

    fn put_tags(&mut self, repo: &str, tags: Vec<Tag>) -> Result<Done> {
        let mut done = Done::default();
        for (index, tag) in tags.iter().enumerate() {
            let put = async {
                let request = ListRequest::of::<Tag>().children_of(repo).filter("name", &tag.name).build()?;
                let before = self.platform.list::<Tag>(&self.operator, &request).await?.resources;
                self.platform.create(&self.operator, repo, tag).await?;
                Ok::<_, Error>(before.first().map(|before| before.digest.to_string()))
            };
            match self.runtime.block_on(put) {
                Ok(before) => super::count_tag(&mut done, before.as_deref(), tag),
                Err(error) if matches!(error.code(), Code::InvalidArgument | Code::PermissionDenied) => {
                    done.refused.push((index, describe(&error)));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(done)
    }
}

fn done(reply: PutReply) -> Done {
    let refused = reply.refused.into_iter();
    Done {
        created: reply.created,
        updated: reply.updated,
        unchanged: reply.unchanged,
        refused: refused
            .map(|refused| (usize::try_from(refused.index).unwrap_or(usize::MAX), describe(&refused.error)))
            .collect(),
    }
}
