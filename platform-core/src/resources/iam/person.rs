//! The uid of a registered person, which follows from who vouches for them and under which name.
//!
//! Nothing but SHA-256 is needed here, so that whoever holds a token's issuer and subject can tell whose uid it is
//! without asking a store.

use sha2::{Digest, Sha256};

use crate::uid::Uid;

/// Returns an issuer under its one name: `accounts.google.com` is `https://accounts.google.com`, every other text is
/// itself.
///
/// Google's tokens have carried both names. Nothing else is made equal, neither case nor a trailing slash.
pub fn normalize_issuer(issuer: &str) -> &str {
    match issuer {
        "accounts.google.com" => "https://accounts.google.com",
        other => other,
    }
}

/// Returns the one-segment uid of the person whom `issuer` calls `subject`.
///
/// The first 20 bytes of SHA-256 over the issuer, normalised once, and the subject, each preceded by its length in
/// bytes as 64 bits big-endian: no two pairs give the same input, wherever the border between them lies. Both are
/// compared bytewise. Our choice: the contract says only that the uid is determined by the two.
pub fn person_uid(issuer: &str, subject: &str) -> Uid {
    digest([normalize_issuer(issuer), subject])
}

/// Returns the one-segment uid of the person whom `issuer` calls `subject` and for whom an organisation's own identity
/// provider vouches.
///
/// As [`person_uid`] over three parts, the provider's uid first: whatever two organisations' issuers are called, and
/// whatever they call their persons, no person of one is a person of another or of the installation's issuers.
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
    fn only_the_one_documented_name_is_made_equal() {
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
