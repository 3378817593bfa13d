//! The certificate request (PKCS#10): written for an agent, and read strictly.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use x509_cert::attr::AttributeTypeAndValue;
use x509_cert::der::Decode;
use x509_cert::der::Encode;
use x509_cert::der::Tag;
use x509_cert::der::asn1::Any;
use x509_cert::der::asn1::BitString;
use x509_cert::der::asn1::SetOfVec;
use x509_cert::der::oid::ObjectIdentifier;
use x509_cert::der::oid::db::rfc4519::COMMON_NAME;
use x509_cert::der::oid::db::rfc4519::ORGANIZATION_NAME;
use x509_cert::der::oid::db::rfc5912::ECDSA_WITH_SHA_256;
use x509_cert::der::oid::db::rfc5912::ID_EC_PUBLIC_KEY;
use x509_cert::der::oid::db::rfc5912::SECP_256_R_1;
use x509_cert::name::Name;
use x509_cert::name::RdnSequence;
use x509_cert::name::RelativeDistinguishedName;
use x509_cert::request::CertReq;
use x509_cert::request::CertReqInfo;
use x509_cert::request::Version;
use x509_cert::spki::AlgorithmIdentifierOwned;
use x509_cert::spki::SubjectPublicKeyInfoOwned;

use crate::core::dns;
use crate::core::enrolment;
use crate::core::enrolment::GROUP;

const BEGIN: &str = "-----BEGIN CERTIFICATE REQUEST-----\n";
const END: &str = "-----END CERTIFICATE REQUEST-----";

/// Why a request is not one of an agent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// Not exactly one PEM block, with nothing around it.
    #[error("the request is not one PEM block of a certificate request")]
    NotPem,
    /// Not PKCS#10 in DER.
    #[error("the request is no certificate request")]
    NotARequest,
    /// It asks for more than a name.
    #[error("the request asks for more than a name (such as alternative names)")]
    Attributes,
    /// Another subject.
    #[error("its subject is {subject}, not O=daemonlet:nodes and CN=daemonlet:node:<node>")]
    Subject {
        /// The subject as people read it.
        subject: String,
    },
}

impl RequestError {
    /// Whether it was meant for an agent, even though it is not valid.
    pub fn names_an_agent(&self) -> bool {
        matches!(self, Self::Subject { subject } if subject.contains("daemonlet:")) || *self == Self::Attributes
    }
}

/// The part to be signed with ECDSA over P-256 and SHA-256 by the key with the given uncompressed point; `None`: these
/// values cannot be encoded.
pub fn to_be_signed(node: &str, point: &[u8]) -> Option<Vec<u8>> {
    info(node, point)?.to_der().ok()
}

/// The PEM of the request with its signature (ASN.1).
pub fn request(node: &str, point: &[u8], signature: &[u8]) -> Option<String> {
    let request = CertReq {
        info: info(node, point)?,
        algorithm: AlgorithmIdentifierOwned { oid: ECDSA_WITH_SHA_256, parameters: None },
        signature: BitString::from_bytes(signature).ok()?,
    };
    let text = STANDARD.encode(request.to_der().ok()?);
    let mut pem = String::from(BEGIN);
    for line in text.as_bytes().chunks(64) {
        pem.extend(line.iter().map(|byte| char::from(*byte)));
        pem.push('\n');
    }
    pem.push_str(END);
    pem.push('\n');
    Some(pem)
}

/// The node for whose agent a request (PEM) asks for a certificate.
///
/// # Errors
/// It is not exactly what an agent would send, apart from the key and the string type.
pub fn node_of(pem: &[u8]) -> Result<String, RequestError> {
    let request = CertReq::from_der(&block(pem)?).map_err(|_| RequestError::NotARequest)?;
    let words = request.info.subject.to_string();
    let other = || RequestError::Subject { subject: words.clone() };
    let subject = request.info.subject.to_der().map_err(|_| RequestError::NotARequest)?;
    let node = common_name(&request.info.subject)
        .and_then(|name| name.strip_prefix(enrolment::USER_PREFIX).map(str::to_owned))
        .filter(|node| dns::subdomain(node).is_none())
        .ok_or_else(other)?;
    let ours = |tag| self::subject(&node, tag).and_then(|name| name.to_der().ok());
    if ![Tag::Utf8String, Tag::PrintableString].into_iter().any(|tag| ours(tag).as_ref() == Some(&subject)) {
        return Err(other());
    }
    if !request.info.attributes.is_empty() {
        return Err(RequestError::Attributes);
    }
    Ok(node)
}

/// The bytes of the one PEM block.
fn block(pem: &[u8]) -> Result<Vec<u8>, RequestError> {
    let text = std::str::from_utf8(pem).map_err(|_| RequestError::NotPem)?;
    let body = text.trim_end_matches('\n').strip_prefix(BEGIN).and_then(|rest| rest.strip_suffix(END));
    let body: String = body.ok_or(RequestError::NotPem)?.split('\n').collect();
    // The rest contains no dash, so no second block.
    STANDARD.decode(body).map_err(|_| RequestError::NotPem)
}

fn common_name(name: &Name) -> Option<String> {
    let sequence: &RdnSequence = name.as_ref();
    let parts: &Vec<RelativeDistinguishedName> = sequence.as_ref();
    let of = |part: &RelativeDistinguishedName| {
        let values: &SetOfVec<AttributeTypeAndValue> = part.as_ref();
        let value = values.iter().find(|value| value.oid == COMMON_NAME)?;
        String::from_utf8(value.value.value().to_vec()).ok()
    };
    parts.iter().find_map(of)
}

fn subject(node: &str, tag: Tag) -> Option<Name> {
    let part = |oid: ObjectIdentifier, text: &str| {
        let value = Any::new(tag, text.as_bytes()).ok()?;
        let set = SetOfVec::try_from(vec![AttributeTypeAndValue { oid, value }]).ok()?;
        Some(RelativeDistinguishedName::from(set))
    };
    let parts = vec![part(ORGANIZATION_NAME, GROUP)?, part(COMMON_NAME, &enrolment::user(node))?];
    // `Name` is built only from bytes, not from parts.
    Name::from_der(&RdnSequence::from(parts).to_der().ok()?).ok()
}

fn info(node: &str, point: &[u8]) -> Option<CertReqInfo> {
    let algorithm = AlgorithmIdentifierOwned { oid: ID_EC_PUBLIC_KEY, parameters: Some(Any::from(SECP_256_R_1)) };
    Some(CertReqInfo {
        version: Version::V1,
        subject: subject(node, Tag::Utf8String)?,
        public_key: SubjectPublicKeyInfoOwned { algorithm, subject_public_key: BitString::from_bytes(point).ok()? },
        attributes: SetOfVec::new(),
    })
}
