//! What our own certificate says: its user, its key, and its validity.

use x509_cert::der::DecodePem;

use crate::core::enrolment;
use crate::core::time::Span;
use crate::core::time::Timestamp;

/// Renewal is due after this percentage of the certificate's life, plus up to [`SPREAD`] percent.
const RENEW_AFTER: i64 = 70;
/// Spreads the renewals of nodes that were installed together.
const SPREAD: i64 = 10;

/// Why a certificate is not an agent's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// Not PEM, or not a certificate.
    #[error("it is no certificate")]
    NotACertificate,
    /// Another subject.
    #[error("it is for {subject}, not for {wanted}")]
    Subject {
        subject: String,
        /// The subject it should have.
        wanted: String,
    },
}

fn first(pem: &str) -> Result<x509_cert::Certificate, CertificateError> {
    const END: &str = "-----END CERTIFICATE-----";
    let begin = pem.find("-----BEGIN CERTIFICATE-----").ok_or(CertificateError::NotACertificate)?;
    let end = pem[begin..].find(END).ok_or(CertificateError::NotACertificate)? + begin + END.len();
    x509_cert::Certificate::from_pem(&pem[begin..end]).map_err(|_| CertificateError::NotACertificate)
}

fn time(time: x509_cert::time::Time) -> Timestamp {
    Timestamp::from_secs(i64::try_from(time.to_unix_duration().as_secs()).unwrap_or(i64::MAX))
}

/// When the first certificate of `pem` ends, for any subject; `None`: there is none.
pub fn end_of(pem: &str) -> Option<Timestamp> {
    Some(time(first(pem).ok()?.tbs_certificate().validity().not_after))
}

/// An agent's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// The user name.
    pub user: String,
    /// The public key: an uncompressed point.
    pub public_key: Vec<u8>,
    pub not_before: Timestamp,
    pub not_after: Timestamp,
}

impl Certificate {
    /// Reads the first certificate of `pem`, which must be for the agent of `node`.
    ///
    /// # Errors
    /// It is not a certificate, or for another subject.
    pub fn read(pem: &str, node: &str) -> Result<Self, CertificateError> {
        let certificate = first(pem)?;
        let certificate = certificate.tbs_certificate();
        let (subject, wanted) = (certificate.subject().to_string(), enrolment::user(node));
        if !subject.split([',', '+']).any(|part| part.trim() == format!("CN={wanted}")) {
            return Err(CertificateError::Subject { subject, wanted });
        }
        let validity = certificate.validity();
        Ok(Self {
            user: wanted,
            public_key: certificate.subject_public_key_info().subject_public_key.raw_bytes().to_vec(),
            not_before: time(validity.not_before),
            not_after: time(validity.not_after),
        })
    }

    /// When to renew it: after 70 to 80 percent of its life, at a different time for each node and certificate.
    pub fn renew_at(&self) -> Timestamp {
        let life = (self.not_after - self.not_before).max(Span::ZERO);
        let own = self.public_key.iter().fold(0_i64, |sum, byte| (sum * 31 + i64::from(*byte)) % 1_000);
        self.not_before + life / 100 * RENEW_AFTER + life / 100 * SPREAD * own / 1_000
    }
}
