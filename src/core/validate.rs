//! Upstream's validation of DaemonSets, for what matters here.

use serde_json::Value;

use crate::core::model::DaemonSet;
use crate::core::model::FieldError;
use crate::core::model::Source;

/// Validates an apps/v1 DaemonSet and gives the typed view.
///
/// # Errors
/// Every field that upstream would refuse.
pub fn daemon_set(_value: &Value, _source: Source) -> Result<DaemonSet, Vec<FieldError>> {
    Err(Vec::new())
}
