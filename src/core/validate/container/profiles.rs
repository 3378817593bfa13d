//! `seccompProfile` and `appArmorProfile` of a security context.

use serde_json::Value;

use crate::core::json::Json;
use crate::core::model::FieldError;
use crate::core::validate::rules::not_below;
use crate::core::validate::rules::required_one_of;
use crate::core::validate::wrong;

const TYPES: [&str; 3] = ["Localhost", "RuntimeDefault", "Unconfined"];
const LOCAL: &str = "localhostProfile";
const ONLY_LOCAL: &str = "only allowed with the type Localhost";
/// The longest path that the kernel takes.
const MAX_PATH: usize = 4095;

/// `validateSeccompProfileField`.
pub(super) fn seccomp(context: &Value, place: &str, errors: &mut Vec<FieldError>) {
    let Some(profile) = context.at("seccompProfile") else { return };
    let place = format!("{place}.seccompProfile");
    required_one_of(profile, "type", &TYPES, &place, errors);
    let reason = match (profile.str_at("type"), profile.at(LOCAL).and_then(Value::as_str)) {
        ("Localhost", None) => Some("required with the type Localhost"),
        ("Localhost", Some(path)) => not_below(path),
        (_, Some(_)) => Some(ONLY_LOCAL),
        (_, None) => None,
    };
    errors.extend(reason.map(|reason| wrong(format!("{place}.{LOCAL}"), reason)));
}

/// `ValidateAppArmorProfileField`.
pub(super) fn app_armor(context: &Value, place: &str, errors: &mut Vec<FieldError>) {
    let Some(profile) = context.at("appArmorProfile") else { return };
    let place = format!("{place}.appArmorProfile");
    required_one_of(profile, "type", &TYPES, &place, errors);
    let reason = match (profile.str_at("type"), profile.at(LOCAL).and_then(Value::as_str)) {
        ("Localhost", None | Some("")) => Some("required with the type Localhost"),
        ("Localhost", Some(name)) if name.trim() != name => Some("must not have leading or trailing spaces"),
        ("Localhost", Some(name)) => (name.len() > MAX_PATH).then_some("must be no more than 4095 bytes"),
        ("RuntimeDefault" | "Unconfined", Some(_)) => Some(ONLY_LOCAL),
        _ => None,
    };
    errors.extend(reason.map(|reason| wrong(format!("{place}.{LOCAL}"), reason)));
}
