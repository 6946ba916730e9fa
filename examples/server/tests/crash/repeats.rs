//! A client that repeats each write that got no response, with its idempotency key: after a kill, too, it is carried out
//! once.

use serde_json::{Value, json};

use crate::{
    Client, Fixture, Written,
    common::Api,
    known::{Expected, Known, Unacknowledged},
};

/// Creates identities, whose names need not be unique, so that only the key prevents a second one.
#[derive(Default)]
pub(crate) struct Repeater {
    sent: u64,
    /// The request that got no response.
    open: Option<Value>,
    known: Known,
}

impl Client for Repeater {
    fn known(&mut self) -> &mut Known {
        &mut self.known
    }

    fn write(&mut self, api: &Api, fixture: &Fixture) -> Result<Written, Unacknowledged> {
        let is_repeated = self.open.is_some();
        let body = self.open.take().unwrap_or_else(|| {
            self.sent += 1;
            let claims = json!({ "issuer": "https://issuer.example", "subject": format!("repeated {}", self.sent) });
            json!({ "name": format!("repeated-{}", self.sent), "claimMatch": claims })
        });
        let key = format!("repeater-{}", self.sent);
        let name = format!("identity {}", body["name"].as_str().unwrap());
        let path = format!("/iam/v2/identities/{}", fixture.folder);
        let Some(response) = api.try_send_keyed("POST", &path, &body, &key) else {
            self.open = Some(body.clone());
            return Err(vec![vec![(name, Some(Expected::With(body)))]]);
        };
        let made = response.ok();
        // Only the state of the store tells whether the attempt before the kill was carried out.
        let was_made = is_repeated && self.known.contains(&name);
        assert_eq!(response.is_replayed, was_made, "{name}: {made}");
        if was_made {
            assert_eq!(self.known.get(&name), Some(&made), "the reply of the first attempt");
        }
        self.known.acknowledge(name, made);
        Ok(Written::Once)
    }
}
