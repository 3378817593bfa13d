//! The world as the agent asks for it, and one in which nothing happens any more.

use std::cell::Cell;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use daemonlet::core::time as jiff_time;
use daemonlet::simulation::RuntimeAnswer;
use daemonlet::simulation::World;

use crate::api;
use crate::kubelet::RuntimeState;
use crate::moves::Draw;
use crate::node::Node;

use super::LOOP;

/// What the agent sees of the world, for one process.
pub(super) struct Around {
    pub(super) node: Rc<RefCell<Node>>,
    pub(super) server: api::Shared,
    pub(super) wall: Rc<Cell<i64>>,
    pub(super) booted: i64,
    pub(super) suspended: Rc<Cell<i64>>,
    /// The steady time at which the process was started, and what tokio's clock showed.
    pub(super) began: i64,
    pub(super) origin: tokio::time::Instant,
    pub(super) draw: RefCell<Draw>,
    pub(super) asked: Cell<(i64, u64)>,
}

impl Around {
    pub(super) fn steady(&self) -> i64 {
        self.began + i64::try_from(self.origin.elapsed().as_millis()).unwrap_or(i64::MAX)
    }
}

impl World for Around {
    fn now(&self) -> jiff_time::Timestamp {
        let steady = self.steady();
        let (second, times) = self.asked.get();
        let times = if second == steady / 1_000 { times + 1 } else { 0 };
        self.asked.set((steady / 1_000, times));
        assert!(times < LOOP, "the agent works without end");
        jiff_time::Timestamp::from_millis(steady + self.wall.get())
    }

    fn uptime(&self) -> jiff_time::Span {
        jiff_time::Span::from_millis(self.steady() - self.booted + self.suspended.get())
    }

    fn random(&self) -> f64 {
        self.draw.borrow_mut().unit()
    }

    fn connect(&self) -> std::io::Result<Option<tokio::io::DuplexStream>> {
        api::connect(&self.server)
    }

    fn is_kubelet_healthy(&self) -> bool {
        self.node.try_borrow().is_ok_and(|node| node.kubelet.is_healthy())
    }

    fn seal(&self, doing: &str, input: &[u8]) -> std::io::Result<Result<Vec<u8>, String>> {
        match self.node.try_borrow().ok().map(|node| (node.seals, node.refuses_to_seal)) {
            Some((true, _)) => {}
            Some((false, true)) => return Ok(Err("no TPM".to_owned())),
            Some((false, false)) | None => return Err(std::io::ErrorKind::NotFound.into()),
        }
        let turned = |key: &[u8]| key.iter().map(|byte| byte ^ 0x55).collect::<Vec<u8>>();
        Ok(match doing {
            "encrypt" => Ok(crate::node::base64(turned(input)).into_bytes()),
            _ => crate::node::from_base64(input).map(|key| turned(&key)).ok_or_else(|| "not sealed here".to_owned()),
        })
    }

    fn is_shutting_down(&self) -> bool {
        self.node.try_borrow().is_ok_and(|node| node.is_shutting_down)
    }

    fn runtime(&self, method: &str, request: &[u8]) -> (Duration, RuntimeAnswer) {
        let soon = Duration::from_millis(2);
        let Ok(mut node) = self.node.try_borrow_mut() else { return (soon, RuntimeAnswer::Silence) };
        let now = self.steady();
        match node.kubelet.runtime {
            RuntimeState::Hangs => return (soon, RuntimeAnswer::Silence),
            RuntimeState::Down => return (soon, RuntimeAnswer::Unreachable),
            RuntimeState::Answers | RuntimeState::Foreign => {}
        }
        match node.kubelet.answer(method, request, (now, now + self.wall.get())) {
            Some(message) => (soon, RuntimeAnswer::Message(message)),
            None => (soon, RuntimeAnswer::Refused("not simulated".to_owned())),
        }
    }
}

/// The world while no agent runs: files have times all the same.
pub(super) struct Still(pub(super) Rc<Cell<i64>>);

impl World for Still {
    fn now(&self) -> jiff_time::Timestamp {
        jiff_time::Timestamp::from_millis(self.0.get())
    }

    fn uptime(&self) -> jiff_time::Span {
        jiff_time::Span::ZERO
    }

    fn random(&self) -> f64 {
        0.5
    }

    fn connect(&self) -> std::io::Result<Option<tokio::io::DuplexStream>> {
        Ok(None)
    }

    fn is_kubelet_healthy(&self) -> bool {
        false
    }

    fn seal(&self, _: &str, _: &[u8]) -> std::io::Result<Result<Vec<u8>, String>> {
        Err(std::io::ErrorKind::NotFound.into())
    }

    fn is_shutting_down(&self) -> bool {
        false
    }

    fn runtime(&self, _: &str, _: &[u8]) -> (Duration, RuntimeAnswer) {
        (Duration::ZERO, RuntimeAnswer::Unreachable)
    }
}
