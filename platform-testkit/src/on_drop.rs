//! A flag that is set even if a thread panics.

use std::sync::atomic::{AtomicBool, Ordering};

/// Sets the flag when it is dropped. A loop of another thread that ends with the flag then also ends if this thread
/// panics, so that a store that is wrong fails its test instead of blocking it.
pub(crate) struct SetOnDrop<'a>(pub(crate) &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}
