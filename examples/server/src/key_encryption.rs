//! Key-encryption keys, with which the keys of an installation are sealed before they are stored in a database.

use anyhow::{Context, Result, bail};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use zeroize::Zeroizing;

/// How to make a key.
const ADVICE: &str = "make one with `openssl rand -base64 32`, give the same to every server, and keep a copy: \
                      without it, the keys and the sealed secrets in the database are lost";

/// A key-encryption key of 256 bits.
pub(crate) type Key = Zeroizing<[u8; 32]>;

/// Reads the key-encryption keys from the option's value: the keys themselves, or the name of a file with them. Each
/// key is the Base64 of 32 bytes; several are separated by white space or commas. The first seals, all open.
///
/// # Errors
/// Fails if there is no key, and says how to make one.
pub(crate) fn read(given: Option<&str>) -> Result<Vec<Key>> {
    let Some(given) = given.map(str::trim).filter(|given| !given.is_empty()) else {
        bail!(
            "a database needs a key that encrypts the keys of this installation: set --key-encryption-key to a file with \
             it, or PLATFORM_KEY_ENCRYPTION_KEY to the key itself; {ADVICE}"
        );
    };
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
        let bytes = |given: &str| read(Some(given)).map(|keys| keys.iter().map(|key| key[0]).collect::<Vec<_>>());
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
            let error = read(given).unwrap_err().to_string();
            assert!(error.contains("openssl rand -base64 32") && error.contains("--key-encryption-key"), "{error}");
        }
        let short = STANDARD.encode([1; 31]);
        let error = format!("{:#}", read(Some(&short)).unwrap_err());
        assert!(error.contains("nor a file") && !error.contains(&short), "{error}");
    }
}
