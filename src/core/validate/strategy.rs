//! `spec.updateStrategy` with upstream's defaults and limits.

use serde_json::Value;

use super::wrong;
use crate::core::model::FieldError;
use crate::core::model::IntOrPercent;
use crate::core::model::UpdateStrategy;

const PLACE: &str = "spec.updateStrategy";

/// The strategy as written, defaults filled in (`SetDefaults_DaemonSet`, `ValidateDaemonSetUpdateStrategy`).
pub(super) fn read(strategy: Option<&Value>, errors: &mut Vec<FieldError>) -> UpdateStrategy {
    let kind = strategy.and_then(|strategy| strategy.get("type")).and_then(Value::as_str).unwrap_or_default();
    match kind {
        "OnDelete" => return UpdateStrategy::OnDelete,
        "" | "RollingUpdate" => {}
        other => errors.push(wrong(
            format!("{PLACE}.type"),
            format!("{other:?} is not a strategy: must be RollingUpdate or OnDelete"),
        )),
    }
    let rolling = strategy.and_then(|strategy| strategy.get("rollingUpdate"));
    let max_unavailable = amount(rolling, "maxUnavailable", IntOrPercent::Int(1), errors);
    let max_surge = amount(rolling, "maxSurge", IntOrPercent::Int(0), errors);
    if let (Some(unavailable), Some(surge)) = (max_unavailable, max_surge) {
        match (is_zero(unavailable), is_zero(surge)) {
            (false, false) => errors.push(FieldError {
                field: format!("{PLACE}.rollingUpdate.maxSurge"),
                reason: "may not be set when maxUnavailable is not 0".to_owned(),
                hint: Some("maxUnavailable is 1 unless it is written as 0".to_owned()),
            }),
            (true, true) => {
                errors.push(wrong(format!("{PLACE}.rollingUpdate.maxUnavailable"), "cannot be 0 when maxSurge is 0"));
            }
            _ => {}
        }
    }
    UpdateStrategy::RollingUpdate {
        max_unavailable: max_unavailable.unwrap_or(IntOrPercent::Int(1)),
        max_surge: max_surge.unwrap_or(IntOrPercent::Int(0)),
    }
}

fn is_zero(amount: IntOrPercent) -> bool {
    matches!(amount, IntOrPercent::Int(0) | IntOrPercent::Percent(0))
}

fn amount(
    rolling: Option<&Value>,
    field: &str,
    default: IntOrPercent,
    errors: &mut Vec<FieldError>,
) -> Option<IntOrPercent> {
    let place = format!("{PLACE}.rollingUpdate.{field}");
    let reason = match rolling.and_then(|rolling| rolling.get(field)) {
        None | Some(Value::Null) => return Some(default),
        Some(Value::Number(number)) => match number.as_i64().map(u32::try_from) {
            Some(Ok(number)) => return Some(IntOrPercent::Int(number)),
            _ => "must not be negative",
        },
        Some(Value::String(text)) => match percent(text) {
            Some(percent) if percent <= 100 => return Some(IntOrPercent::Percent(percent)),
            Some(_) => "must not be more than 100%",
            None => "must be a number or a percentage such as 10%",
        },
        Some(_) => "must be a number or a percentage such as 10%",
    };
    errors.push(wrong(place, reason));
    None
}

fn percent(text: &str) -> Option<u32> {
    let digits = text.strip_suffix('%').filter(|digits| !digits.is_empty())?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().unwrap_or(u32::MAX))
}
