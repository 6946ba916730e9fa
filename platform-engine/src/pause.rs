//! Turns for others in long work that no runtime of its own does elsewhere.

use std::{future::poll_fn, task::Poll};

/// Gives the thread to other tasks once.
pub async fn pause() {
    let mut has_paused = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut has_paused, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
