//! Key-encryption keys, with which the keys of an installation are sealed before they are stored.

use std::{
    io::Read,
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use anyhow::{Context, Result, anyhow, bail};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use zeroize::Zeroizing;

use crate::config::Config;

/// How to make a key.
const ADVICE: &str = "make one with `openssl rand -base64 32`, give the same to every server, and keep a copy: \
                      without it, the keys and the sealed secrets in the store are lost";

/// A key-encryption key of 256 bits.
pub(crate) type Key = Zeroizing<[u8; 32]>;

/// The time in which a command must print the keys.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum length of its output, in bytes.
const MAX_OUTPUT: u64 = 64 << 10;

/// Returns whether the options have a key-encryption key.
pub(crate) fn is_given(config: &Config) -> bool {
    let options = [&config.key_encryption_key, &config.key_encryption_command];
    options.into_iter().flatten().any(|value| !value.trim().is_empty())
}

/// Reads the key-encryption keys of the options: the keys themselves, the name of a file with them, or a command that
/// prints them. Each key is the Base64 of 32 bytes; several are separated by white space or commas. The first seals, all
/// open.
///
/// # Errors
/// Fails if there is no key, and says how to make one.
pub(crate) fn read(config: &Config) -> Result<Vec<Key>> {
    from_options(config.key_encryption_key.as_deref(), config.key_encryption_command.as_deref())
}

fn from_options(given: Option<&str>, command: Option<&str>) -> Result<Vec<Key>> {
    let set = |value: Option<&'_ str>| value.map(str::trim).filter(|value| !value.is_empty()).map(str::to_owned);
    let given = match (set(given).map(Zeroizing::new), set(command)) {
        (Some(given), None) => given,
        (None, Some(command)) => {
            let printed = output(&command).context("cannot run the command of --key-encryption-command")?;
            return parse(&printed).with_context(|| {
                format!("the command of --key-encryption-command must print the Base64 of 32 bytes: {ADVICE}")
            });
        }
        (Some(_), Some(_)) => bail!("set --key-encryption-key or --key-encryption-command, and not both"),
        (None, None) => bail!(
            "a database needs a key that encrypts the keys of this installation: set --key-encryption-key to a file with \
             it, PLATFORM_KEY_ENCRYPTION_KEY to the key itself, or --key-encryption-command to a command that prints it; \
             {ADVICE}"
        ),
    };
    let given = given.as_str();
    if let Some(keys) = parse(given) {
        return Ok(keys);
    }
    // The value is not shown: it may be a key with a mistake.
    let read = std::fs::read_to_string(given).map(Zeroizing::new);
    let text = read.with_context(|| {
        format!(
            "the value of --key-encryption-key is neither the Base64 of 32 bytes nor a file that can be read: {ADVICE}"
        )
    })?;
    parse(&text).with_context(|| format!("{given} must contain the Base64 of 32 bytes: {ADVICE}"))
}

/// Returns what a command prints to standard output. Its standard error is that of this process.
fn output(command: &str) -> Result<Zeroizing<String>> {
    let mut run = Command::new("sh");
    let run = run.args(["-c", command]).env_remove("PLATFORM_KEY_ENCRYPTION_KEY");
    let mut child = run.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let stdout = child.stdout.take().context("no standard output")?;
    let (sender, printed) = mpsc::channel();
    thread::spawn(move || {
        let mut text = Zeroizing::new(String::new());
        let read = stdout.take(MAX_OUTPUT).read_to_string(&mut text).map(|_| text);
        drop(sender.send(read));
    });
    let Ok(text) = printed.recv_timeout(TIMEOUT) else {
        // What it has started may still have the pipe; nobody reads it.
        drop(child.kill());
        drop(child.wait());
        bail!("it printed nothing complete within {} s", TIMEOUT.as_secs());
    };
    let status = child.wait()?;
    if !status.success() {
        bail!("it failed: {status}");
    }
    text.map_err(|_| anyhow!("it printed something other than UTF-8"))
}

/// Parses keys; `None` if the text is anything else.
fn parse(text: &str) -> Option<Vec<Key>> {
    let words = text.split(|letter: char| letter.is_whitespace() || letter == ',').filter(|word| !word.is_empty());
    let keys = words.map(|word| {
        let bytes = Zeroizing::new(STANDARD.decode(word).ok()?);
        bytes.as_slice().try_into().ok().map(Zeroizing::new)
    });
    keys.collect::<Option<Vec<_>>>().filter(|keys| !keys.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_given_directly_or_in_a_file() {
        let (one, two) = (STANDARD.encode([1; 32]), STANDARD.encode([2; 32]));
        let bytes =
            |given: &str| from_options(Some(given), None).map(|keys| keys.iter().map(|key| key[0]).collect::<Vec<_>>());
        assert_eq!(bytes(&one).unwrap(), [1]);
        assert_eq!(bytes(&format!("{two},{one}")).unwrap(), [2, 1]);
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("key");
        std::fs::write(&file, format!("{two}\n{one}\n")).unwrap();
        assert_eq!(bytes(file.to_str().unwrap()).unwrap(), [2, 1]);
        for wrong in ["", "c2hvcnQ=", &format!("{one} x")] {
            std::fs::write(&file, wrong).unwrap();
            let error = format!("{:#}", bytes(file.to_str().unwrap()).unwrap_err());
            assert!(error.contains("openssl rand -base64 32") && !error.contains(&one), "{error}");
        }
    }

    #[test]
    fn a_missing_key_is_rejected_with_the_command_that_makes_one() {
        for given in [None, Some(""), Some(" ")] {
            let error = from_options(given, None).unwrap_err().to_string();
            assert!(error.contains("openssl rand -base64 32") && error.contains("--key-encryption-key"), "{error}");
        }
        let short = STANDARD.encode([1; 31]);
        let error = format!("{:#}", from_options(Some(&short), None).unwrap_err());
        assert!(error.contains("nor a file") && !error.contains(&short), "{error}");
    }

    #[test]
    fn keys_are_printed_by_a_command() {
        let (one, two) = (STANDARD.encode([1; 32]), STANDARD.encode([2; 32]));
        let keys = from_options(None, Some(&format!("printf '%s\\n' {two} {one}"))).unwrap();
        assert_eq!(keys.iter().map(|key| key[0]).collect::<Vec<_>>(), [2, 1]);
        let error =
            |given: Option<&str>, command: &str| format!("{:#}", from_options(given, Some(command)).unwrap_err());
        assert!(error(None, "echo a").contains("must print the Base64 of 32 bytes"));
        assert!(error(None, &format!("echo {one}; exit 3")).contains("it failed: exit status: 3"));
        assert!(error(Some(&one), "echo").contains("not both"));
        assert!(error(None, " ").contains("--key-encryption-command"), "an empty value is unset");
        assert!(error(None, "head -c 1000000 /dev/zero").contains("it failed"), "the output is bounded");
    }
}
