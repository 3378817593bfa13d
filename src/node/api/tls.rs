//! TLS towards the API server: trust, client certificate, ALPN `h2`.
//!
//! Owns the rustls configuration. Must not read the kubeconfig (`kubeconfig`) or connect (`dial`).

use std::sync::Arc;

use rustls::AlertDescription;
use rustls::CertificateError;
use rustls::ClientConfig;
use rustls::DigitallySignedStruct;
use rustls::Error;
use rustls::RootCertStore;
use rustls::SignatureScheme;
use rustls::client::Resumption;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::client::danger::ServerCertVerified;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::ServerName;
use rustls::pki_types::UnixTime;
use rustls::pki_types::pem;
use rustls::pki_types::pem::PemObject;

use crate::regular_file;

/// Where distributions store the trusted certificates, in the order tried.
const SYSTEM_ROOTS: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem"];

/// The longest of them that is read, in bytes.
const MAX_ROOTS: u64 = 16 << 20;

/// Why no TLS configuration could be made.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A PEM file or value cannot be parsed.
    #[error("{what} is not PEM")]
    Pem {
        /// The kubeconfig's field.
        what: &'static str,
        /// The parser's error.
        #[source]
        source: pem::Error,
    },
    /// It contains no certificate.
    #[error("{what} holds no certificate")]
    NoCertificate {
        /// The kubeconfig's field.
        what: &'static str,
    },
    /// No certificate authority is configured and the system has none.
    #[error("the kubeconfig names no certificate-authority and this system has no trusted certificates")]
    NoRoots,
    /// rustls refuses the certificate or key.
    #[error("{what} cannot be used: {}", words(why))]
    Refused {
        /// The kubeconfig's field.
        what: &'static str,
        /// The error of rustls.
        why: Error,
    },
}

/// What is wrong, and where to look, where the library's own words are names of its code.
pub(super) fn words(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(why @ (CertificateError::UnknownIssuer | CertificateError::Other(_))) => format!(
            "the server's certificate is not trusted: no certificate-authority of the kubeconfig has issued it ({why})"
        ),
        Error::InvalidCertificate(why) => format!("the server's certificate is not trusted: {why}"),
        Error::AlertReceived(
            alert @ (AlertDescription::UnknownCA
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRequired
            | AlertDescription::AccessDenied),
        ) => format!("the server does not take the client-certificate of the kubeconfig (TLS alert {alert:?})"),
        Error::InvalidMessage(_) => "the server does not speak TLS: is this an https:// address?".to_owned(),
        Error::InconsistentKeys(_) => "client-key is the key of another certificate".to_owned(),
        _ => format!("TLS: {error}"),
    }
}

/// The kubeconfig's TLS settings, read into memory.
#[derive(Default)]
pub(super) struct TlsInput {
    /// `certificate-authority(-data)`.
    pub(super) ca: Option<Vec<u8>>,
    /// `client-certificate(-data)`.
    pub(super) certificate: Option<Vec<u8>>,
    /// `client-key(-data)`.
    pub(super) key: Option<Vec<u8>>,
    /// `insecure-skip-tls-verify`.
    pub(super) insecure: bool,
}

/// Builds the client's configuration.
pub(super) fn client_config(input: &TlsInput) -> Result<ClientConfig, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|why| TlsError::Refused { what: "the TLS provider", why })?;
    let builder = if input.insecure {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(AcceptAny { provider }))
    } else {
        builder.with_root_certificates(roots(input.ca.as_deref())?)
    };
    let mut config = match (&input.certificate, &input.key) {
        (Some(certificate), Some(key)) => {
            let chain = certificates("client-certificate", certificate)?;
            let key =
                PrivateKeyDer::from_pem_slice(key).map_err(|source| TlsError::Pem { what: "client-key", source })?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|why| TlsError::Refused { what: "client-certificate", why })?
        }
        _ => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    // There is one long connection: a cache of 256 sessions would only take memory.
    config.resumption = Resumption::in_memory_sessions(2);
    Ok(config)
}

fn roots(ca: Option<&[u8]>) -> Result<RootCertStore, TlsError> {
    let mut store = RootCertStore::empty();
    if let Some(ca) = ca {
        for certificate in certificates("certificate-authority", ca)? {
            store.add(certificate).map_err(|why| TlsError::Refused { what: "certificate-authority", why })?;
        }
        return Ok(store);
    }
    for path in SYSTEM_ROOTS {
        if let Ok(bytes) = regular_file::read_at_most(path.as_ref(), MAX_ROOTS) {
            // System bundles often contain certificates that rustls does not accept.
            store.add_parsable_certificates(CertificateDer::pem_slice_iter(&bytes).flatten());
        }
        if !store.is_empty() {
            return Ok(store);
        }
    }
    Err(TlsError::NoRoots)
}

fn certificates(what: &'static str, bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let list: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(bytes).collect();
    let list = list.map_err(|source| TlsError::Pem { what, source })?;
    if list.is_empty() { Err(TlsError::NoCertificate { what }) } else { Ok(list) }
}

/// `insecure-skip-tls-verify`: any certificate is accepted, but the server must have its key.
#[derive(Debug)]
struct AcceptAny {
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for AcceptAny {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(input: &TlsInput) -> String {
        client_config(input).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn bad_material_is_named() {
        let ca = TlsInput { ca: Some(b"nonsense".to_vec()), ..TlsInput::default() };
        assert_eq!(error(&ca), "certificate-authority holds no certificate");
        let key = TlsInput {
            insecure: true,
            certificate: Some(b"x".to_vec()),
            key: Some(b"y".to_vec()),
            ..TlsInput::default()
        };
        assert_eq!(error(&key), "client-certificate holds no certificate");
    }

    #[test]
    fn names_of_the_librarys_code_stand_behind_what_they_mean() {
        let unknown = words(&Error::InvalidCertificate(CertificateError::UnknownIssuer));
        let expected =
            "the server's certificate is not trusted: no certificate-authority of the kubeconfig has issued it (";
        assert!(unknown.starts_with(expected), "{unknown}");
        let refused = words(&Error::AlertReceived(AlertDescription::BadCertificate));
        assert_eq!(
            refused,
            "the server does not take the client-certificate of the kubeconfig (TLS alert BadCertificate)"
        );
        let other = TlsError::Refused {
            what: "client-certificate",
            why: Error::InconsistentKeys(rustls::InconsistentKeys::KeyMismatch),
        };
        assert_eq!(
            other.to_string(),
            "client-certificate cannot be used: client-key is the key of another certificate"
        );
    }

    #[test]
    fn http2_is_asked_for() {
        let config = client_config(&TlsInput { insecure: true, ..TlsInput::default() }).unwrap();
        assert_eq!(config.alpn_protocols, [b"h2".to_vec()]);
    }
}
