//! The clocks. Everything else takes the time as an argument.

use std::time::SystemTime;

use crate::core::time::Span;
use crate::core::time::Timestamp;

/// The wall clock.
pub(crate) fn now() -> Timestamp {
    #[cfg(feature = "simulation")]
    if let Some(world) = crate::simulation::world() {
        return world.now();
    }
    Timestamp::from_millis(jiff::Timestamp::now().as_millisecond())
}

/// The wall clock, with its full precision.
pub(crate) fn exact() -> jiff::Timestamp {
    #[cfg(feature = "simulation")]
    if let Some(world) = crate::simulation::world() {
        return jiff::Timestamp::from_millisecond(world.now().as_millis()).unwrap_or_default();
    }
    jiff::Timestamp::now()
}

/// The wall clock, in the form of times of files.
pub(crate) fn system() -> SystemTime {
    #[cfg(feature = "simulation")]
    if let Some(world) = crate::simulation::world() {
        let since = u64::try_from(world.now().as_millis()).unwrap_or(0);
        return SystemTime::UNIX_EPOCH + std::time::Duration::from_millis(since);
    }
    SystemTime::now()
}

/// The processor time that this thread has used; none if the kernel does not say.
pub(crate) fn thread_time() -> Span {
    #[cfg(feature = "simulation")]
    if crate::simulation::world().is_some() {
        return Span::ZERO;
    }
    let clock = nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID);
    clock.map_or(Span::ZERO, |t| Span::from_millis(t.tv_sec() * 1_000 + t.tv_nsec() / 1_000_000))
}

/// How long the machine has been up; for ever if the kernel does not say.
pub(crate) fn uptime() -> Span {
    #[cfg(feature = "simulation")]
    if let Some(world) = crate::simulation::world() {
        return world.uptime();
    }
    let clock = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME);
    clock.map_or(Span::from_secs(i64::from(u32::MAX)), |t| {
        Span::from_millis(t.tv_sec() * 1_000 + t.tv_nsec() / 1_000_000)
    })
}
