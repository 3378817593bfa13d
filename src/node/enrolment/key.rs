//! A P-256 key, made here and never sent.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::rand::SystemRandom;
use ring::signature::ECDSA_P256_SHA256_ASN1_SIGNING;
use ring::signature::EcdsaKeyPair;
use ring::signature::KeyPair;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject;

use crate::core::enrolment;

pub(super) struct PrivateKey {
    pkcs8: Vec<u8>,
    pair: EcdsaKeyPair,
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

impl PrivateKey {
    /// A new one.
    pub(super) fn generate() -> Option<Self> {
        let random = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).ok()?;
        Self::from_pkcs8(document.as_ref())
    }

    fn from_pkcs8(pkcs8: &[u8]) -> Option<Self> {
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, pkcs8, &SystemRandom::new()).ok()?;
        Some(Self { pkcs8: pkcs8.to_vec(), pair })
    }

    /// The first key in `pem`.
    pub(super) fn from_pem(pem: &[u8]) -> Option<Self> {
        Self::from_pkcs8(PrivatePkcs8KeyDer::from_pem_slice(pem).ok()?.secret_pkcs8_der())
    }

    /// PEM, PKCS#8.
    pub(super) fn pem(&self) -> String {
        format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", lines(&STANDARD.encode(&self.pkcs8)))
    }

    /// The public key: an uncompressed point.
    pub(super) fn public(&self) -> &[u8] {
        self.pair.public_key().as_ref()
    }

    /// The certificate request for the agent of `node`, PEM.
    pub(super) fn request(&self, node: &str) -> Option<String> {
        let signed = enrolment::to_be_signed(node, self.public())?;
        let signature = self.pair.sign(&SystemRandom::new(), &signed).ok()?;
        enrolment::request(node, self.public(), signature.as_ref())
    }
}

/// Lines of 64 characters.
fn lines(text: &str) -> String {
    let mut lines = String::with_capacity(text.len() + text.len() / 64);
    for (index, character) in text.chars().enumerate() {
        if index > 0 && index % 64 == 0 {
            lines.push('\n');
        }
        lines.push(character);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_survives_its_file_and_asks_for_its_node() {
        let key = PrivateKey::generate().unwrap();
        let again = PrivateKey::from_pem(key.pem().as_bytes()).unwrap();
        assert_eq!(key.public(), again.public());
        assert_ne!(key.public(), PrivateKey::generate().unwrap().public());
        assert_eq!(enrolment::node_of(again.request("n1").unwrap().as_bytes()), Ok("n1".to_owned()));
        assert!(PrivateKey::from_pem(b"nonsense").is_none());
        assert_eq!(format!("{key:?}"), "Key");
    }

    #[test]
    fn openssl_finds_the_signature_right() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("request.pem");
        std::fs::write(&file, PrivateKey::generate().unwrap().request("n1").unwrap()).unwrap();
        let done = std::process::Command::new("openssl")
            .args(["req", "-verify", "-noout", "-subject", "-in"])
            .arg(&file)
            .output();
        let done = done.unwrap();
        let out = String::from_utf8([done.stdout, done.stderr].concat()).unwrap();
        assert!(done.status.success() && out.contains("CN = daemonlet:node:n1") && out.contains("verify OK"), "{out}");
    }
}
