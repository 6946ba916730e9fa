//! Recording: from a change to its event, for the subscriptions and streams that want it.

use super::{Audience, Draft, Event};
use crate::{context::Context, error::Result, kind::Verb, uid::Uid, write::Write};

/// An event that a write records, and the subscriptions that it is recorded for.
#[derive(Debug)]
pub(crate) struct Recorded {
    pub(crate) event: Event,
    pub(crate) subscriptions: Vec<Uid>,
}

/// Adds the event of a change to its write, for the subscriptions that want it. `about` is a uid of the organization that
/// the change is in.
pub(crate) async fn record(
    cx: &Context<'_>,
    write: &mut Write,
    about: &Uid,
    draft: impl FnOnce() -> Result<Draft>,
) -> Result<()> {
    let platform = cx.platform();
    let subscribers = platform.subscribers(about.root()).await?;
    if let Some(subscribers) = &subscribers {
        // A subscription that is created before this is committed is not among them: then the operation is retried.
        write.require_subscribers(subscribers);
    }
    let has_subscribers = subscribers.as_ref().is_some_and(|subscribers| !subscribers.all().is_empty());
    if !has_subscribers && !platform.streams().any() {
        return Ok(());
    }
    let draft = draft()?;
    // A subscription that is deleted with the resource does not receive the event.
    let is_deleted = |uid: &Uid| draft.verb == Some(Verb::Delete) && uid.is_at_or_below(about);
    let subscriptions: Vec<Uid> = match (&subscribers, draft.audience) {
        (Some(subscribers), Audience::Customer) => {
            subscribers.of_group(&draft.group).filter(|uid| !is_deleted(uid)).cloned().collect()
        }
        _ => Vec::new(),
    };
    if subscriptions.is_empty() && !platform.streams().wants(&draft.group) {
        return Ok(());
    }
    let settings = platform.settings();
    let prefix = settings.event_type_prefix.as_str();
    let (now, actor) = (cx.now(), &cx.caller().identity);
    let event = draft.finish(platform.entropy(), now, prefix, &settings.public_url, actor)?;
    if let Some(log) = platform.event_log().filter(|_| !subscriptions.is_empty()) {
        log.record(cx, write, &event, &subscriptions)?;
    }
    write.recorded.push(Recorded { event, subscriptions });
    Ok(())
}
