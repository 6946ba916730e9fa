//! TLS for the listener (feature `tls`): rustls with aws-lc, HTTP/2 and HTTP/1.1 by ALPN, and a certificate that can be
//! reloaded while the server runs.

use std::{
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::Arc,
};

use arc_swap::ArcSwap;
use rustls::{
    ServerConfig,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, pem},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use tokio_rustls::TlsAcceptor;

use pem::PemObject;

/// Maximum size of a file in bytes. Our choice.
const MAX_BYTES: u64 = 1 << 20;

/// Server certificate, read from two PEM files: a certificate chain that starts with the server's own certificate, and
/// its private key.
///
/// Serves TLS 1.2 and 1.3. Uses its own cryptographic provider and does not install one for the process.
#[derive(Debug)]
pub struct Tls {
    certificate: PathBuf,
    key: PathBuf,
    current: Arc<Current>,
    config: Arc<ServerConfig>,
}

/// Error of reading a certificate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {0}")]
    File(PathBuf, #[source] io::Error),
    /// A file does not contain the expected kind of PEM item.
    #[error("{0} is not a PEM file with {1}")]
    Pem(PathBuf, &'static str, #[source] pem::Error),
    /// The certificate and the key do not match, or rustls does not support them.
    #[error("the certificate and the key cannot be used")]
    Refused(#[from] rustls::Error),
}

impl Tls {
    /// Returns a TLS configuration with the certificate and the key in these files.
    ///
    /// # Errors
    /// When a file cannot be read, is not PEM, or the certificate and key do not match.
    pub fn from_files(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Result<Self, TlsError> {
        let (certificate, key) = (certificate.into(), key.into());
        let current = Arc::new(Current(ArcSwap::from_pointee(read_certified_key(&certificate, &key)?)));
        let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(current.clone());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self { certificate, key, current, config: Arc::new(config) })
    }

    /// Reads the files again and returns whether the certificate has changed. New connections use the new certificate;
    /// open connections keep theirs. On an error the previous certificate stays in use. This also covers the moment
    /// when only one of the two files is replaced.
    ///
    /// # Errors
    /// As [`Tls::from_files`].
    pub fn reload(&self) -> Result<bool, TlsError> {
        let new = read_certified_key(&self.certificate, &self.key)?;
        let is_new = new.cert != self.current.0.load().cert;
        if is_new {
            self.current.0.store(Arc::new(new));
        }
        Ok(is_new)
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.config))
    }
}

/// Current certificate.
#[derive(Debug)]
struct Current(ArcSwap<CertifiedKey>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

/// Reads a regular file of at most [`MAX_BYTES`]. A pipe or a device might never end, and the read would block.
fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let found = fs::metadata(path)?;
    if !found.is_file() {
        return Err(io::Error::other("is not a regular file"));
    }
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length > MAX_BYTES) {
        return Err(io::Error::other(format!("is larger than {MAX_BYTES} bytes")));
    }
    Ok(bytes)
}

fn read_certified_key(certificate: &Path, key: &Path) -> Result<CertifiedKey, TlsError> {
    let bytes = |path: &Path| read_bounded(path).map_err(|error| TlsError::File(path.to_owned(), error));
    let pem_error = |path: &Path, what| {
        let path = path.to_owned();
        move |error| TlsError::Pem(path, what, error)
    };
    let chain = CertificateDer::pem_slice_iter(&bytes(certificate)?).collect::<Result<Vec<_>, _>>();
    let chain = chain.and_then(|chain| if chain.is_empty() { Err(pem::Error::NoItemsFound) } else { Ok(chain) });
    let chain = chain.map_err(pem_error(certificate, "certificates"))?;
    let key = PrivateKeyDer::from_pem_slice(&bytes(key)?).map_err(pem_error(key, "a private key"))?;
    Ok(CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider())?)
}
