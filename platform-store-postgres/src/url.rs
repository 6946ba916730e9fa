//! Database URLs for people.

use std::borrow::Cow;

use tokio_postgres::{Config, config::Host};

/// Parses a URL. The driver does not know the modes of TLS in which libpq verifies the certificate: here, `require`
/// verifies it and the name of the host, and never falls back to a connection without TLS. It takes the first `@` for the
/// end of the password: here it is the last one before the hosts, as in the URL Standard.
pub(crate) fn parse(url: &str) -> Result<Config, tokio_postgres::Error> {
    let url = &password_encoded(url);
    let Some((base, parameters)) = url.split_once('?') else { return url.parse() };
    let parameters = parameters.split('&').map(|parameter| match parameter {
        "sslmode=verify-full" | "sslmode=verify-ca" => "sslmode=require",
        other => other,
    });
    format!("{base}?{}", parameters.collect::<Vec<_>>().join("&")).parse()
}

/// Returns a URL in which each `@` of the password is encoded.
fn password_encoded(url: &str) -> Cow<'_, str> {
    let Some((scheme, rest)) = url.split_once("://") else { return Cow::Borrowed(url) };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    match authority.rsplit_once('@') {
        Some((user, hosts)) if user.contains('@') => {
            Cow::Owned(format!("{scheme}://{}@{hosts}{path}", user.replace('@', "%40")))
        }
        _ => Cow::Borrowed(url),
    }
}

/// Returns the hosts and the database of a URL, without user, password and other parameters, for logs and errors. Returns
/// `postgres` for a URL that the driver cannot read, or whose password may have `/` and `@`.
pub fn without_credentials(url: &str) -> String {
    let Ok(config) = parse(url) else { return "postgres".to_owned() };
    let ports = config.get_ports();
    let host = |(at, host): (usize, &Host)| {
        let name = match host {
            Host::Tcp(name) => name.clone(),
            #[cfg(unix)]
            Host::Unix(path) => path.display().to_string(),
        };
        // One port counts for all hosts.
        match ports.get(at).or(ports.first()) {
            Some(port) => format!("{name}:{port}"),
            None => name,
        }
    };
    let mut hosts: Vec<_> = config.get_hosts().iter().enumerate().map(host).collect();
    if hosts.is_empty() {
        let addresses = config.get_hostaddrs().iter().map(|address| Host::Tcp(address.to_string()));
        hosts = addresses.enumerate().map(|(at, address)| host((at, &address))).collect();
    }
    let database = config.get_dbname().map(|name| format!("/{name}")).unwrap_or_default();
    let shown = format!("postgres://{}{database}", hosts.join(","));
    if shown.contains('@') { "postgres".to_owned() } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_credentials() {
        for (url, shown) in [
            ("postgres://me:secret@db:5432/platform", "postgres://db:5432/platform"),
            ("postgres://me:sec?ret@db/platform", "postgres://db:5432/platform"),
            ("postgresql://a:1,b:2/platform?user=me&password=secret", "postgres://a:1,b:2/platform"),
            ("postgres://me@a,b/p?sslmode=require", "postgres://a:5432,b:5432/p"),
            ("postgres://me:secret@a/p?sslmode=verify-full&application_name=x", "postgres://a:5432/p"),
            ("postgres://%2Ftmp/p", "postgres:///tmp:5432/p"),
            ("hostaddr=192.0.2.1 password=secret dbname=p", "postgres://192.0.2.1/p"),
            ("postgres://me:secret@db:no", "postgres"),
            ("postgres://me:first@second@db/p", "postgres://db:5432/p"),
            ("postgres://me:first@second@third@a:1,b:2/p?sslmode=require", "postgres://a:1,b:2/p"),
            ("postgres://me:first@sec?ond@db/p", "postgres://db:5432/p"),
            ("postgres://me:1/second@db/p", "postgres://db:5432/p"),
            ("postgres://me:1/second@third@db/p", "postgres"),
        ] {
            assert_eq!(without_credentials(url), shown, "{url}");
        }
    }

    #[test]
    fn a_password_may_have_an_at_sign() {
        let config = parse("postgres://me:first@second@db/p").unwrap();
        assert_eq!((config.get_user(), config.get_password()), (Some("me"), Some(&b"first@second"[..])));
        assert_eq!(config.get_hosts(), [Host::Tcp("db".to_owned())]);
    }
}
