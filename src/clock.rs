//! The wall clock. Everything else takes the time as an argument.

use crate::core::time::Timestamp;

/// The time now.
pub(crate) fn now() -> Timestamp {
    Timestamp::from_millis(jiff::Timestamp::now().as_millisecond())
}
