//! The world of a simulated node, except its disk: clocks, chance, connections, the runtime.
//!
//! Exists with the feature `simulation` alone, which nothing that ships has. Owns which world this thread is in; a
//! simulation has one thread. Must not decide how a world behaves: its creator does.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use tokio::io::DuplexStream;

use crate::core::time::Span;
use crate::core::time::Timestamp;

pub use crate::core::model::ObjectKey;
pub use crate::node::agent::simulated::AgentHandle;
pub use crate::node::agent::simulated::Simulation;
pub use crate::node::fsx::Disk;
pub use crate::node::fsx::DiskHandle;
pub use crate::node::fsx::Doing;
pub use crate::node::fsx::FileKind;
pub use crate::node::fsx::Links;
pub use crate::node::fsx::Owner;
pub use crate::node::fsx::PowerLossKeeps;
pub use crate::node::fsx::Simulated;

/// The surroundings of a simulated process.
pub trait World {
    /// The wall clock.
    fn now(&self) -> Timestamp;

    /// How long the machine has been up.
    fn uptime(&self) -> Span;

    /// A number in `0.0..1.0`.
    fn random(&self) -> f64;

    /// A connection to the API server. `Ok(None)`: no answer, ever.
    ///
    /// # Errors
    /// As the system calls'.
    fn connect(&self) -> io::Result<Option<DuplexStream>>;

    /// Whether the kubelet's health check answers.
    fn is_kubelet_healthy(&self) -> bool;

    /// What `systemd-creds` makes of `input`, or why it refuses that. `doing` is `encrypt` or `decrypt`.
    ///
    /// # Errors
    /// It cannot be run.
    fn seal(&self, doing: &str, input: &[u8]) -> io::Result<Result<Vec<u8>, String>>;

    /// Whether the service manager is shutting the machine down.
    fn is_shutting_down(&self) -> bool;

    /// What the container runtime answers to `request`, and how much later.
    fn runtime(&self, method: &str, request: &[u8]) -> (Duration, RuntimeAnswer);
}

/// An answer of the container runtime.
#[derive(Clone, Debug)]
pub enum RuntimeAnswer {
    /// The encoded message.
    Message(Vec<u8>),
    /// It does not know the object.
    NotFound,
    /// It refuses.
    Refused(String),
    /// No process listens at the socket.
    Unreachable,
    /// None, ever.
    Silence,
}

thread_local! {
    static WORLD: RefCell<Option<Rc<dyn World>>> = const { RefCell::new(None) };
}

/// From now on this thread is in `world`; `None`: in the real one.
pub fn enter(world: Option<Rc<dyn World>>) {
    WORLD.with(|here| *here.borrow_mut() = world);
}

/// The world that this thread is in, if it is a simulated one.
pub(crate) fn world() -> Option<Rc<dyn World>> {
    WORLD.with(|here| here.borrow().clone())
}

/// A connection to the simulated API server; `None` in the real world.
pub(crate) fn connect() -> Option<impl Future<Output = io::Result<DuplexStream>> + Send> {
    let stream = world()?.connect();
    Some(async move {
        match stream? {
            Some(stream) => Ok(stream),
            None => std::future::pending().await,
        }
    })
}
