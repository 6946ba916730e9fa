//! The uid of a registered person, derived from the issuer and the subject of the person's tokens.
//!
//! It only takes SHA-256, so the uid can be computed from issuer and subject without access to a store.

use sha2::{Digest, Sha256};

use platform_engine::uid::Uid;

/// Returns the canonical name of an issuer: `https://accounts.google.com` for `accounts.google.com`, and every other
/// text unchanged.
///
/// Google's tokens have used both names. Nothing else is normalized, neither case nor a trailing slash.
pub fn normalize_issuer(issuer: &str) -> &str {
    match issuer {
        "accounts.google.com" => "https://accounts.google.com",
        other => other,
    }
}

/// Returns the one-segment uid of the person with this issuer and subject.
///
/// The uid is the first 20 bytes of the SHA-256 of the normalized issuer and the subject, each preceded by its length
/// in bytes as a 64-bit big-endian integer, so different pairs never give the same input. Both are compared bytewise.
/// Our choice: the contract only says that the uid is determined by the two.
pub fn person_uid(issuer: &str, subject: &str) -> Uid {
    digest([normalize_issuer(issuer), subject])
}

/// Returns the one-segment uid of the person with this issuer and subject who signs in by an organization's own
/// identity provider.
///
/// Computed as in [`person_uid`], but over three parts, the provider's uid first. Whatever issuer and subjects an
/// organization configures, its persons are therefore never those of another organization or of the installation's
/// issuers.
pub fn provider_person_uid(provider: &Uid, issuer: &str, subject: &str) -> Uid {
    digest([provider, normalize_issuer(issuer), subject])
}

fn digest<const N: usize>(parts: [&str; N]) -> Uid {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let mut uid = [0; 20];
    uid.iter_mut().zip(hash.finalize()).for_each(|(to, from)| *to = from);
    Uid::from_digest(uid)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_uid_is_the_documented_one() {
        // printf '\0\0\0\0\0\0\0\x1bhttps://accounts.google.com\0\0\0\0\0\0\0\x0242' | sha256sum | cut -c -40
        let uid = person_uid("https://accounts.google.com", "42");
        assert_eq!(uid.as_str(), "52a4916ba9fea5883450990ee59d77e84c7f07a8");
        assert_eq!(person_uid("accounts.google.com", "42"), uid);
        assert_eq!(Uid::parse(&uid), Ok(uid.clone()));
        assert!(uid.is_root());
    }

    #[test]
    fn only_the_documented_issuer_name_is_normalized() {
        for issuer in [
            "https://accounts.google.com/",
            "http://accounts.google.com",
            "https://Accounts.google.com",
            "https://accounts.google.com:443",
            "ACCOUNTS.GOOGLE.COM",
            "accounts.google.com.evil",
            "accounts.google.com ",
        ] {
            assert_eq!(normalize_issuer(issuer), issuer);
            assert_ne!(person_uid(issuer, "42"), person_uid("https://accounts.google.com", "42"), "{issuer}");
        }
    }

    proptest! {
        #[test]
        fn moving_the_border_between_issuer_and_subject_gives_another_person(text in "[ab0\\x00]{0,12}", at in 0usize..12, to in 0usize..12) {
            let (at, to) = (at.min(text.len()), to.min(text.len()));
            let (one, other) = (text.split_at(at), text.split_at(to));
            prop_assert_eq!(at == to, person_uid(one.0, one.1) == person_uid(other.0, other.1));
        }
    }
}
