//! The REST paths of standard methods, which servers route and clients send.

use super::{Http, Kind, Method, Parent, Verb};

impl Kind {
    /// Returns the path of a standard method after domain and version, in the notation of
    /// [`Action::path`](super::Action::path). The variables of a list are parameters of it; the variable of any other
    /// method is the uid, for a create that of the parent. A create without a parent has the path of the collection,
    /// which is the plural.
    pub fn path(&self, method: &Method) -> String {
        if let Parent::Singleton(parent, segment) = self.parent {
            return format!("{}/{{uid=**}}/{segment}", parent.plural);
        }
        match method.verb {
            Verb::List => method.path.unwrap_or(self.plural).to_owned(),
            Verb::Get | Verb::Create | Verb::Update | Verb::Delete => format!("{}/{{uid=**}}", self.plural),
        }
    }
}

impl Verb {
    /// Returns the HTTP method.
    pub const fn http(self) -> Http {
        match self {
            Self::List | Self::Get => Http::Get,
            Self::Create => Http::Post,
            Self::Update => Http::Patch,
            Self::Delete => Http::Delete,
        }
    }
}
