//! TLS for the listener (feature `tls`): rustls on aws-lc, HTTP/2 and HTTP/1.1 by ALPN, and a certificate that can be
//! replaced while connections come.

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

/// The most bytes of a file. Our choice.
const MOST: u64 = 1 << 20;

/// What a server proves itself by, in two PEM files: a chain of certificates, its own first, and its private key.
///
/// TLS 1.2 and 1.3. It takes its own provider of cryptography and installs none for the process.
#[derive(Debug)]
pub struct Tls {
    certificate: PathBuf,
    key: PathBuf,
    current: Arc<Current>,
    config: Arc<ServerConfig>,
}

/// Says why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {0}")]
    File(PathBuf, #[source] io::Error),
    /// A file has nothing of the sort that it should have.
    #[error("{0} is no PEM file of {1}")]
    Pem(PathBuf, &'static str, #[source] pem::Error),
    /// The two do not belong together, or have what rustls does not know.
    #[error("the certificate and the key cannot be used")]
    Refused(#[from] rustls::Error),
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// When they cannot be read, are no PEM, or do not belong together.
    pub fn from_files(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Result<Self, TlsError> {
        let (certificate, key) = (certificate.into(), key.into());
        let current = Arc::new(Current(ArcSwap::from_pointee(read(&certificate, &key)?)));
        let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(current.clone());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self { certificate, key, current, config: Arc::new(config) })
    }

    /// Reads the files again; tells whether the certificate is another one. New connections get it, and those that are
    /// open keep theirs. Whatever cannot be used leaves what was used before: of two files, one is replaced first.
    ///
    /// # Errors
    /// As [`Tls::from_files`].
    pub fn reload(&self) -> Result<bool, TlsError> {
        let new = read(&self.certificate, &self.key)?;
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

/// The certificate in use.
#[derive(Debug)]
struct Current(ArcSwap<CertifiedKey>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

/// Reads a regular file of at most [`MOST`] bytes: a pipe or a device might not end, and the read with it.
fn contents(path: &Path) -> io::Result<Vec<u8>> {
    let found = fs::metadata(path)?;
    if !found.is_file() {
        return Err(io::Error::other("is not a regular file"));
    }
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(MOST + 1).read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length > MOST) {
        return Err(io::Error::other(format!("is larger than {MOST} bytes")));
    }
    Ok(bytes)
}

fn read(certificate: &Path, key: &Path) -> Result<CertifiedKey, TlsError> {
    let bytes = |path: &Path| contents(path).map_err(|error| TlsError::File(path.to_owned(), error));
    let bad = |path: &Path, what| {
        let path = path.to_owned();
        move |error| TlsError::Pem(path, what, error)
    };
    let chain = CertificateDer::pem_slice_iter(&bytes(certificate)?).collect::<Result<Vec<_>, _>>();
    let chain = chain.and_then(|chain| if chain.is_empty() { Err(pem::Error::NoItemsFound) } else { Ok(chain) });
    let chain = chain.map_err(bad(certificate, "certificates"))?;
    let key = PrivateKeyDer::from_pem_slice(&bytes(key)?).map_err(bad(key, "a private key"))?;
    Ok(CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider())?)
}
