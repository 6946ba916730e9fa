//! The settings that must be equal on all servers of an installation, in its document `settings`.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use platform_core::resources::iam::normalize_issuer;
use platform_keys::Documents;
use serde::{Deserialize, Serialize};

use crate::config::Config;

/// The name of the document.
pub(crate) const DOCUMENT: &str = "settings";

/// The option whose value clients use to reach the servers.
const PUBLIC_URL: &str = "public-url";

/// The number of times that the document is written when other servers write it at the same time.
const ATTEMPTS: usize = 32;

/// The settings of an installation, by the names of their options.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Settings(BTreeMap<String, String>);

impl Settings {
    /// Returns the settings of this server that others must have too: those that replies, stored data, decisions on
    /// access or the question who gets in depend on.
    pub(crate) fn of(config: &Config) -> Self {
        let list = |values: &mut dyn Iterator<Item = String>| {
            let mut values: Vec<_> = values.collect();
            values.sort();
            values.dedup();
            values.join(" ")
        };
        let issuer = |url: &str| normalize_issuer(url).to_owned();
        let terms = config.terms_document.iter().map(|terms| format!("{},{},{};", terms.id, terms.label, terms.url));
        let named = [
            (PUBLIC_URL, config.public_url.clone().unwrap_or_default()),
            ("service-domain", config.service_domain.clone()),
            ("operator", list(&mut config.operator.iter().map(ToString::to_string))),
            ("public-advisory-group", list(&mut config.public_advisory_group.iter().map(ToString::to_string))),
            ("terms-document", terms.collect()),
            ("open-organisations", config.open_organisations.to_string()),
            ("event-type-prefix", config.events.event_type_prefix.clone()),
            ("trusted-issuer", list(&mut config.trusted_issuer.iter().map(|url| issuer(url)))),
            ("allow-http-issuers", config.allow_http_issuers.to_string()),
            ("allow-private-issuers", config.allow_private_issuers.to_string()),
            ("aws-sts-host", list(&mut config.aws_sts_host.iter().map(ToString::to_string))),
            ("audience", list(&mut config.audience.iter().cloned())),
            ("sign-in-issuer", config.sign_in.sign_in_issuer.as_deref().map(issuer).unwrap_or_default()),
            ("sign-in-client-id", config.sign_in.sign_in_client_id.clone().unwrap_or_default()),
        ];
        Self(named.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    /// Returns the stored settings; `None` before the first server has started.
    pub(crate) async fn load(documents: &dyn Documents) -> Result<Option<Self>> {
        Ok(read(documents).await?.map(|(settings, _)| settings))
    }

    /// Returns the URL by which clients reach the servers.
    pub(crate) fn public_url(&self) -> Option<&str> {
        self.0.get(PUBLIC_URL).map(String::as_str).filter(|url| !url.is_empty())
    }

    /// Stores the settings if there are none, or if they are to be `replaced`; otherwise compares them with the stored
    /// ones. A setting that only one of two releases has is not compared.
    ///
    /// # Errors
    /// Fails if a setting differs, and names it.
    pub(crate) async fn agree(self, documents: &dyn Documents, replaced: bool) -> Result<()> {
        for _ in 0..ATTEMPTS {
            let stored = read(documents).await?;
            let (mut merged, revision) = match stored {
                Some((stored, revision)) if !replaced => {
                    self.compare(&stored)?;
                    (stored, revision)
                }
                Some((stored, revision)) => (stored, revision),
                None => (Self::default(), 0),
            };
            let before = merged.clone();
            merged.0.extend(self.0.clone());
            if merged == before && revision != 0 {
                return Ok(());
            }
            if documents.write(DOCUMENT, revision, &serde_json::to_vec(&merged)?).await? {
                return Ok(());
            }
        }
        bail!("other servers keep writing the settings of the installation")
    }

    fn compare(&self, stored: &Self) -> Result<()> {
        for (name, own) in &self.0 {
            match stored.0.get(name) {
                Some(other) if other != own => bail!(
                    "--{name} is `{own}` here and `{other}` on the other servers of this installation: use the same \
                     value on all of them; to change it, stop the servers and start the first with --replace-settings"
                ),
                _ => {}
            }
        }
        Ok(())
    }
}

async fn read(documents: &dyn Documents) -> Result<Option<(Settings, u64)>> {
    let Some(document) = documents.read(DOCUMENT).await? else { return Ok(None) };
    let settings = serde_json::from_slice(&document.contents);
    let settings = settings.context("the settings of the installation are not valid in this release")?;
    Ok(Some((settings, document.revision)))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use platform_keys::Directory;

    use super::*;

    fn settings(arguments: &[&str]) -> Settings {
        let arguments: Vec<_> = ["platform-server"].iter().chain(arguments).map(OsString::from).collect();
        Settings::of(&crate::Config::read(arguments).unwrap())
    }

    #[tokio::test]
    async fn a_server_with_another_setting_is_rejected_and_the_setting_named() {
        let dir = tempfile::tempdir().unwrap();
        let documents = Directory::new(dir.path());
        let url = ["--public-url", "https://api.example.com"];
        assert_eq!(Settings::load(&documents).await.unwrap(), None);
        settings(&url).agree(&documents, false).await.unwrap();
        settings(&url).agree(&documents, false).await.unwrap();
        let stored = Settings::load(&documents).await.unwrap().unwrap();
        assert_eq!(stored.public_url(), Some("https://api.example.com"));
        let (one, two) = ("00000000000000000000000000000000000000aa", "00000000000000000000000000000000000000bb");
        for (option, value) in [
            ("public-url", "https://other.example.com"),
            ("service-domain", "example.com"),
            ("operator", one),
            ("public-advisory-group", two),
            ("terms-document", "a,b,c"),
            ("open-organisations=true", ""),
            ("event-type-prefix", "com.example"),
            ("trusted-issuer", "https://issuer.example"),
            ("allow-http-issuers=true", ""),
            ("allow-private-issuers=true", ""),
            ("aws-sts-host", "127.0.0.1:8443"),
            ("audience", "other"),
        ] {
            let flag = format!("--{option}");
            let mut arguments = if option == "public-url" { Vec::new() } else { url.to_vec() };
            arguments.push(&flag);
            arguments.extend(Some(value).filter(|value| !value.is_empty()));
            let error = settings(&arguments).agree(&documents, false).await.unwrap_err().to_string();
            let name = flag.split('=').next().unwrap();
            assert!(error.starts_with(name) && error.contains("--replace-settings"), "{error}");
        }
        assert_eq!(Settings::load(&documents).await.unwrap(), Some(stored), "nothing was written");

        // The order of operators does not matter.
        let both = [url.as_slice(), &["--operator", one, "--operator", two]].concat();
        settings(&both).agree(&documents, true).await.unwrap();
        let other_order = [url.as_slice(), &["--operator", two, "--operator", one]].concat();
        settings(&other_order).agree(&documents, false).await.unwrap();
        // Google's issuer has two names.
        let issuer = |issuer| [both.as_slice(), &["--trusted-issuer", issuer]].concat();
        settings(&issuer("https://accounts.google.com")).agree(&documents, true).await.unwrap();
        settings(&issuer("accounts.google.com")).agree(&documents, false).await.unwrap();
        settings(&both).agree(&documents, false).await.unwrap_err();
        settings(&url).agree(&documents, false).await.unwrap_err();

        let sign_in = |client, issuer| ["--sign-in-client-id", client, "--sign-in-issuer", issuer];
        settings(&sign_in("a", "https://issuer.example")).agree(&documents, true).await.unwrap();
        for (client, issuer, named) in
            [("b", "https://issuer.example", "client-id"), ("a", "https://other.example", "issuer")]
        {
            let error = settings(&sign_in(client, issuer)).agree(&documents, false).await.unwrap_err().to_string();
            assert!(error.starts_with(&format!("--sign-in-{named} is ")), "{error}");
        }
    }

    #[tokio::test]
    async fn a_setting_that_another_release_does_not_have_is_not_compared() {
        let dir = tempfile::tempdir().unwrap();
        let documents = Directory::new(dir.path());
        let mut own = settings(&[]);
        own.0.insert("of-a-later-release".to_owned(), "x".to_owned());
        own.clone().agree(&documents, false).await.unwrap();
        settings(&[]).agree(&documents, false).await.unwrap();
        assert_eq!(Settings::load(&documents).await.unwrap(), Some(own));
    }
}
