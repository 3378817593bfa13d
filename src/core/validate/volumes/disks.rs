//! Volumes that another machine or a driver provides.

use std::ops::RangeInclusive;

use serde_json::Value;

use crate::core::dns;
use crate::core::json::Json;
use crate::core::model::FieldError;
use crate::core::validate::rules::required;
use crate::core::validate::rules::within;
use crate::core::validate::rules::written_one_of;
use crate::core::validate::wrong;

const LUNS: RangeInclusive<i64> = 0..=255;
const MOST_OF_A_TENANT: usize = 64;
const MOST_OF_A_DRIVER: usize = 63;
const MOST_OF_AN_INITIATOR: usize = 64;

/// `validateISCSIVolumeSource`, and that the name of the `volume` and its portal make a short name.
pub(super) fn iscsi(found: &Value, volume: &str, place: &str, errors: &mut Vec<FieldError>) {
    const NAME: &str = "must be an iSCSI name that starts with iqn., eui. or naa.";
    if found.text_at("iqn").is_some_and(|name| !is_iscsi_name(name)) {
        errors.push(wrong(format!("{place}.iqn"), NAME));
    }
    within(found, "lun", &LUNS, place, errors);
    if found.flag_at("chapAuthDiscovery") || found.flag_at("chapAuthSession") {
        required(found, "secretRef", place, errors);
    }
    let Some(initiator) = found.at("initiatorName").and_then(Value::as_str) else { return };
    if !is_iscsi_name(initiator) {
        errors.push(wrong(format!("{place}.initiatorName"), NAME));
    }
    if volume.len() + 1 + found.str_at("targetPortal").len() > MOST_OF_AN_INITIATOR {
        let reason = "must, with the volume's name, be no more than 63 bytes beside initiatorName";
        errors.push(wrong(format!("{place}.targetPortal"), reason));
    }
}

/// Upstream's expressions for names of iSCSI targets and initiators.
fn is_iscsi_name(name: &str) -> bool {
    let alphanumeric = |text: &str, length: usize| {
        let mut rest = text.chars();
        let any = rest.next();
        any.is_some_and(|any| any != '\n')
            && rest.as_str().len() == length
            && rest.as_str().bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    match (name.get(..3), name.get(3..)) {
        // The expression may match anywhere in the name.
        (Some("iqn"), _) => is_qualified(name),
        (Some("eui"), Some(rest)) => alphanumeric(rest, 16),
        (Some("naa"), Some(rest)) => alphanumeric(rest, 32),
        _ => false,
    }
}

/// Whether `name` has `iqn.`, a year and month, an authority and a colon somewhere, and a name from there to its end.
fn is_qualified(name: &str) -> bool {
    let last_bad = name.rfind([',', ';', '*', '&', '$', '|', '\t', '\n', '\u{c}', '\r', ' ']);
    // Authorities that end here have been tried.
    let mut tried = 0;
    name.match_indices("iqn.").any(|(at, found)| {
        let start = at + found.len() + "2001-04.".len();
        let Some(authority) = name.get(start..).filter(|_| start >= tried) else { return false };
        let date = &name.as_bytes()[at + found.len()..start];
        let is_date = date.iter().enumerate().all(|(index, byte)| match index {
            4 => *byte == b'-',
            7 => *byte == b'.',
            _ => byte.is_ascii_digit(),
        });
        if !is_date {
            return false;
        }
        let length = authority.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(byte)).count();
        tried = start + length;
        let is_name = name[tried..].starts_with(':') && tried + 1 < name.len();
        length > 0 && is_name && last_bad.is_none_or(|bad| bad < tried)
    })
}

/// `validateFCVolumeSource`.
pub(super) fn fc(found: &Value, place: &str, errors: &mut Vec<FieldError>) {
    match (found.list_at("targetWWNs").is_empty(), found.list_at("wwids").is_empty()) {
        (true, true) => errors.push(wrong(place, "must have targetWWNs or wwids")),
        (false, false) => errors.push(wrong(format!("{place}.wwids"), "may not be set beside targetWWNs")),
        _ => {}
    }
    if !found.list_at("targetWWNs").is_empty() {
        required(found, "lun", place, errors);
        within(found, "lun", &LUNS, place, errors);
    }
}

/// `validateFlockerVolumeSource`.
pub(super) fn flocker(found: &Value, place: &str, errors: &mut Vec<FieldError>) {
    let name = found.str_at("datasetName");
    match (name.is_empty(), found.str_at("datasetUUID").is_empty()) {
        (true, true) => errors.push(wrong(place, "must have datasetName or datasetUUID")),
        (false, false) => errors.push(wrong(format!("{place}.datasetUUID"), "may not be set beside datasetName")),
        _ => {}
    }
    if name.contains('/') {
        errors.push(wrong(format!("{place}.datasetName"), "must not contain '/'"));
    }
}

/// `validateQuobyteVolumeSource`.
pub(super) fn quobyte(found: &Value, place: &str, errors: &mut Vec<FieldError>) {
    let registry = found.str_at("registry");
    if registry.is_empty() {
        return;
    }
    if found.str_at("tenant").len() > MOST_OF_A_TENANT {
        errors.push(wrong(format!("{place}.tenant"), "must be no more than 64 bytes"));
    } else if !registry.split(',').all(has_port) {
        errors.push(wrong(format!("{place}.registry"), "must be host:port, several separated by commas"));
    }
}

/// Whether Go's `net.SplitHostPort` splits `address`.
fn has_port(address: &str) -> bool {
    let Some((host, port)) = address.rsplit_once(':') else { return false };
    let host = match host.strip_prefix('[') {
        Some(inner) => inner.strip_suffix(']').filter(|inner| !inner.contains(']')),
        None => Some(host).filter(|host| !host.contains([':', ']'])),
    };
    host.is_some_and(|host| !host.contains('[')) && !port.contains(['[', ']'])
}

/// `validateFlexVolumeSource`.
pub(super) fn flex_volume(found: &Value, place: &str, errors: &mut Vec<FieldError>) {
    for (key, _) in found.at("options").and_then(Value::as_object).into_iter().flatten() {
        let namespace = key.split_once('/').map_or(key.as_str(), |(namespace, _)| namespace);
        let namespace = format!(".{}", namespace.to_lowercase());
        if namespace.ends_with(".kubernetes.io") || namespace.ends_with(".k8s.io") {
            errors.push(wrong(format!("{place}.options[{key}]"), "kubernetes.io and k8s.io are reserved"));
        }
    }
}

/// `validateAzureDisk`; by default, its kind is `Shared`.
pub(super) fn azure_disk(found: &Value, place: &str, errors: &mut Vec<FieldError>) {
    written_one_of(found, "cachingMode", &["None", "ReadOnly", "ReadWrite"], place, errors);
    written_one_of(found, "kind", &["Shared", "Dedicated", "Managed"], place, errors);
    let start = if found.str_at("kind") == "Managed" { "/subscriptions/" } else { "https://" };
    if found.text_at("diskURI").is_some_and(|uri| !uri.starts_with(start)) {
        let reason = "must start with /subscriptions/ if kind is Managed, else with https://";
        errors.push(wrong(format!("{place}.diskURI"), reason));
    }
}

/// `validateStorageOSVolumeSource`.
pub(super) fn storageos(found: &Value, place: &str, errors: &mut Vec<FieldError>) {
    for field in ["volumeName", "volumeNamespace"] {
        if let Some(reason) = found.text_at(field).and_then(dns::label) {
            errors.push(wrong(format!("{place}.{field}"), reason));
        }
    }
    secret_ref(found, "secretRef", place, errors);
}

/// `validateCSIVolumeSource`.
pub(super) fn csi(found: &Value, place: &str, errors: &mut Vec<FieldError>) {
    if let Some(driver) = found.text_at("driver") {
        if driver.len() > MOST_OF_A_DRIVER {
            errors.push(wrong(format!("{place}.driver"), "must be no more than 63 bytes"));
        } else if let Some(reason) = dns::subdomain(&driver.to_lowercase()) {
            errors.push(wrong(format!("{place}.driver"), reason));
        }
    }
    secret_ref(found, "nodePublishSecretRef", place, errors);
    if let Some(reason) = found.text_at(["nodePublishSecretRef", "name"]).and_then(dns::subdomain) {
        errors.push(wrong(format!("{place}.nodePublishSecretRef.name"), reason));
    }
}

/// A reference to a secret, which has a name if it is there.
pub(super) fn secret_ref(found: &Value, field: &str, place: &str, errors: &mut Vec<FieldError>) {
    if let Some(reference) = found.at(field) {
        required(reference, "name", &format!("{place}.{field}"), errors);
    }
}
