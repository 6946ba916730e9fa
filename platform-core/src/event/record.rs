//! Recording: from a change to a record for each subscription that wants to know of it.

use bytes::Bytes;

use super::{Audience, Draft, Event};
use crate::{
    cx::Cx,
    entropy::Entropy,
    error::Result,
    kind::Verb,
    resources::events::{EventBody, PendingEvent, event_body},
    timestamp::Timestamp,
    uid::Uid,
    write::Write,
};

/// Data of more bytes is recorded once for all subscriptions that get it, and shorter data with each. Our choice: for
/// most events another record would cost more than the copies.
const SHARED_ABOVE: usize = 4 << 10;

/// An event that a write records, and for whom.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) event: Event,
    pub(crate) subscriptions: Vec<Uid>,
}

/// Adds the event of a change to its write, for whoever wants it. `about` is a uid of the organisation that the change
/// is in.
pub(crate) async fn record(
    cx: &Cx<'_>,
    write: &mut Write,
    about: &Uid,
    draft: impl FnOnce() -> Result<Draft>,
) -> Result<()> {
    let platform = cx.platform();
    let listeners = platform.listeners(about.root()).await?;
    // Who subscribes before this is committed is not among them: then it is done again.
    write.require_still(listeners.still());
    if listeners.subscriptions.is_empty() && !platform.streams().any() {
        return Ok(());
    }
    let draft = draft()?;
    // What goes with the change hears of it no more.
    let goes = |uid: &Uid| draft.verb == Some(Verb::Delete) && uid.is_at_or_below(about);
    let subscriptions: Vec<Uid> = match draft.audience {
        Audience::Customer => listeners.of_group(&draft.group).filter(|uid| !goes(uid)).cloned().collect(),
        Audience::Internal => Vec::new(),
    };
    if subscriptions.is_empty() && !platform.streams().wants(&draft.group) {
        return Ok(());
    }
    let settings = platform.settings();
    let prefix = settings.event_type_prefix.as_str();
    let (now, actor) = (cx.now(), &cx.caller().identity);
    let mut event = draft.finish(platform.entropy(), now, prefix, &settings.public_url, actor)?;
    let mut shared = None;
    if subscriptions.len() > 1 && event.data.len() > SHARED_ABOVE {
        let organization = Uid::opaque(about.root());
        let body = EventBody { uid: place_of(&organization, now, platform.entropy()), create_time: Some(now) };
        event.event_body = Some(body.record(write, &event.data)?);
        shared = Some(std::mem::take(&mut event.data));
    }
    for subscription in &subscriptions {
        let pending = PendingEvent {
            uid: place_of(subscription, now, platform.entropy()),
            event: event.clone(),
            create_time: Some(now),
        };
        write.put_in_queue(&pending.uid, &pending, Bytes::new())?;
        event_body::refer(write, event.event_body.as_ref());
    }
    if let Some(data) = shared {
        (event.data, event.event_body) = (data, None);
    }
    write.told.push(Told { event, subscriptions });
    Ok(())
}

/// Returns a uid below a subscription for what is recorded now: behind those of the milliseconds before, so that indexes
/// grow at their ends, with 20 bits of chance for those of the same one.
fn place_of(subscription: &Uid, now: Timestamp, entropy: &dyn Entropy) -> Uid {
    let mut chance = [0; 4];
    entropy.fill(&mut chance);
    let segment = (now.millis().cast_unsigned() << 20) | u64::from(u32::from_be_bytes(chance) >> 12);
    Uid::opaque(format!("{subscription}/{segment:016x}"))
}
