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
    /// RSASSA-PKCS1-v1_5 with SHA-384, otherwise as [`Algorithm::Rs256`].
    Rs384,
    /// RSASSA-PKCS1-v1_5 with SHA-512, otherwise as [`Algorithm::Rs256`].
    Rs512,
    /// RSASSA-PSS with SHA-384 and a salt of 48 bytes, otherwise as [`Algorithm::Ps256`].
    Ps384,
    /// RSASSA-PSS with SHA-512 and a salt of 64 bytes, otherwise as [`Algorithm::Ps256`].
    Ps512,
    /// ECDSA over P-521 with SHA-512; signatures are 132 bytes, r then s.
    Es512,
}

impl Algorithm {
    /// All algorithms, the default first.
    pub const ALL: [Self; 10] = [
        Self::Rs256,
        Self::Es256,
        Self::Es384,
        Self::Ps256,
        Self::EdDsa,
        Self::Rs384,
        Self::Rs512,
        Self::Ps384,
        Self::Ps512,
        Self::Es512,
    ];
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
            Self::Rs384 => "RS384",
            Self::Rs512 => "RS512",
            Self::Ps384 => "PS384",
            Self::Ps512 => "PS512",
            Self::Es512 => "ES512",
        }
    }

    /// Returns the algorithm with exactly this name; case matters. `Ed25519` is another name of [`Algorithm::EdDsa`]
    /// (RFC 9864 section 2.2), since no other curve of EdDSA is accepted.
    pub fn from_name(name: &str) -> Option<Self> {
        let name = if name == "Ed25519" { Self::EdDsa.name() } else { name };
        Self::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }

    /// Returns whether RSA keys are used with this algorithm.
    pub const fn is_rsa(self) -> bool {
        matches!(self, Self::Rs256 | Self::Rs384 | Self::Rs512 | Self::Ps256 | Self::Ps384 | Self::Ps512)
    }
}
