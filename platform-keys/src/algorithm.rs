//! The signature algorithms of keys.

/// A signature algorithm. No others are ever accepted: neither `none` nor algorithms with a shared secret.
///
/// To add an algorithm, add a variant; the compiler reports every place to extend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// RSASSA-PKCS1-v1_5 with SHA-256 and a modulus of 2048 to 4096 bits.
    Rs256,
    /// ECDSA over P-256 with SHA-256; signatures are 64 bytes, r then s.
    Es256,
    /// ECDSA over P-384 with SHA-384; signatures are 96 bytes, r then s.
    Es384,
    /// RSASSA-PSS with SHA-256, a salt of 32 bytes and a modulus of 2048 to 4096 bits.
    Ps256,
    /// EdDSA over Ed25519 (RFC 8037); signatures are 64 bytes.
    EdDsa,
}

impl Algorithm {
    /// All algorithms, the default first.
    pub const ALL: [Self; 5] = [Self::Rs256, Self::Es256, Self::Es384, Self::Ps256, Self::EdDsa];
    /// The algorithms that the server itself can sign with.
    pub const OWN: [Self; 2] = [Self::Rs256, Self::Es256];

    /// Returns the name in `alg` (RFC 7518 section 3.1, RFC 8037 section 3.1).
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
            Self::Ps256 => "PS256",
            Self::EdDsa => "EdDSA",
        }
    }

    /// Returns the algorithm with exactly this name; case matters.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }
}
