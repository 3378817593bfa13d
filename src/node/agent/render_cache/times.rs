//! What the work on each definition costs.
//!
//! Owns the sums since they were last taken. Must not change what is computed.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use crate::core::model::DaemonSet;
use crate::core::time::Span;

/// Processor time by definition.
#[derive(Default)]
pub(in crate::node::agent) struct Times {
    /// The time of the thread that works; `None`: nothing is measured.
    clock: Option<fn() -> Span>,
    /// By the address of the definition, which is held so that the address stays its own.
    spent: RefCell<HashMap<usize, (Arc<DaemonSet>, Span)>>,
}

impl Times {
    /// Sums by `clock`.
    pub(super) fn measured(clock: fn() -> Span) -> Self {
        Self { clock: Some(clock), ..Self::default() }
    }

    /// What was spent on each definition since this was last asked for.
    pub(in crate::node::agent) fn take(&self) -> Vec<(Arc<DaemonSet>, Span)> {
        self.spent.borrow_mut().drain().map(|(_, spent)| spent).collect()
    }

    /// The result of `work` on `daemon_set`.
    pub(super) fn of<T>(&self, daemon_set: &Arc<DaemonSet>, work: impl FnOnce() -> T) -> T {
        let Some(clock) = self.clock else { return work() };
        let began = clock();
        let result = work();
        let mut spent = self.spent.borrow_mut();
        let known = spent.entry(Arc::as_ptr(daemon_set).addr());
        let (_, sum) = known.or_insert_with(|| (Arc::clone(daemon_set), Span::ZERO));
        *sum = *sum + (clock() - began);
        result
    }
}
