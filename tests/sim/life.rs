//! One life: the agent's processes one after the other, on a node to which things happen.
//!
//! Owns the simulated time and the order of everything. Judges by [`super::laws`].

use std::cell::Cell;
use std::cell::RefCell;
use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::time::Duration;

use daemonlet::simulation;
use daemonlet::simulation::AgentHandle;
use daemonlet::simulation::Simulation;

use super::api::Reach;
use super::laws::Laws;
use super::laws::Violation;
use super::moves::Draw;
use super::moves::HOUR;
use super::moves::Life;
use super::node::End;
use super::node::KUBELET;
use super::node::Killed;
use super::node::MANIFESTS;
use super::node::Node;
use super::node::RUN;
use super::node::SPACE;
use super::node::STATE;
use super::others::GUESTS;
use super::vendor::VENDORS;

mod worlds;

use worlds::Around;
use worlds::Still;

/// How long after the last move all faults end; and how long the agent then has.
const REST: i64 = 300_000;
const LAST: i64 = 900_000;
/// How long an agent may take to end.
const STOP: Duration = Duration::from_secs(5);
/// How long after its start an agent has done everything that nothing stands in the way of.
const SETTLED: Duration = Duration::from_secs(60);
/// What a disk keeps when the machine is shut down.
const FILES_ARE_WRITTEN: u8 = 3;
/// So many questions for the time in one second are a loop.
const LOOP: u64 = 5_000;

/// The configuration of every life.
fn config(kubeconfig: &str, node: &Node) -> String {
    let seal = if node.is_sealed { "[checkpoint]\nseal = \"systemd-creds\"\n" } else { "" };
    let metrics = if node.has_metrics { "[metrics]\nlisten = \"127.0.0.1:9464\"\n" } else { "" };
    let taint =
        format!("[node]\nstartup-taint = {}\nconditions = {}\n", node.taint.is_some(), !node.conditioned.is_empty());
    let folders: Vec<&str> = std::iter::once(VENDORS).chain(node.folders().iter().copied()).collect();
    let namespaces: Vec<&str> = node.has_namespace().then_some(SPACE).into_iter().chain([GUESTS]).collect();
    let node = &node.name;
    format!(
        "node-name = \"{node}\"\nkubeconfig = \"{kubeconfig}\"\n\
         folders = {folders:?}\n\
         manifest-dir = \"{MANIFESTS}\"\nstate-dir = \"{STATE}\"\nrun-dir = \"{RUN}\"\n\
         kubelet-root = \"{KUBELET}\"\nruntime-endpoint = \"unix:///run/cri.sock\"\nupdate-jitter = \"2s\"\n\
         api-endpoint = \"10.0.0.1:6443\"\n[policy]\nnamespaces = {namespaces:?}\n\
         {seal}{metrics}{taint}"
    )
}

/// What came of a life.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) violation: Option<Violation>,
    /// Everything that happened, as a number: the same life has the same.
    pub(crate) trace: u64,
    pub(crate) requests: u64,
    pub(crate) processes: u64,
}

/// Lives `life`.
pub(crate) fn live(life: &Life, kubeconfig: &str) -> Outcome {
    super::PANICKED.take();
    simulation::enter(Some(Rc::new(Still(Rc::new(Cell::new(1_767_225_600_000))))));
    let node = Rc::new(RefCell::new(Node::new(life)));
    let mut laws = Laws::default();
    let mut outcome = Outcome::default();
    let mut pending = life.moves.clone();
    pending.reverse();
    let last = life.moves.last().map_or(0, |(at, _)| *at) + REST;
    let mut plan = Plan {
        pending,
        healed_at: last.min(HOUR + REST),
        over_at: last.min(HOUR + REST) + LAST,
        restarted: false,
        seed: life.seed,
    };
    let seed = Draw::new(life.seed ^ 0xa9e7);
    loop {
        outcome.processes += 1;
        let ended = process(&node, &mut laws, &mut plan, kubeconfig, seed.clone());
        let requests = node.borrow().server.lock().unwrap().requests;
        outcome.requests = requests;
        let back = match ended {
            Ended::Over => break,
            Ended::Panicked(why) => {
                laws.violate(node.borrow().steady, "no pass panics or loops", why);
                break;
            }
            Ended::By(End::Stop { back } | End::Kill { back }) => {
                end_process(&node, &mut laws);
                back
            }
            Ended::By(End::Shutdown { reach }) => {
                end_process(&node, &mut laws);
                laws.shut_down(&node.borrow());
                node.borrow_mut().lose_secrets();
                power_off(&node, &mut laws, FILES_ARE_WRITTEN, reach);
                0
            }
            Ended::By(End::PowerLoss { kept, reach }) => {
                power_off(&node, &mut laws, kept, reach);
                0
            }
            Ended::NotStarted(why) => {
                end_process(&node, &mut laws);
                laws.not_started(&node.borrow(), &why);
                2_000
            }
        };
        let until = node.borrow().steady + back;
        if laws.violation.is_some() || !idle(&node, &mut laws, &mut plan, until) {
            break;
        }
    }
    simulation::enter(None);
    outcome.trace = laws.trace();
    outcome.violation = laws.violation.take();
    outcome
}

/// The agent's process has ended, and its unit does what is left to do.
fn end_process(node: &Rc<RefCell<Node>>, laws: &mut Laws) {
    simulation::enter(Some(Rc::new(Still(Rc::clone(&node.borrow().clock)))));
    node.borrow().disk.end_process();
    node.borrow().open_gates();
    laws.agent_ended(&mut node.borrow_mut());
}

fn power_off(node: &Rc<RefCell<Node>>, laws: &mut Laws, kept: u8, reach: Reach) {
    let mut node = node.borrow_mut();
    let lost_at = node.steady;
    node.lose_power(kept, reach);
    laws.lose_power(&mut node, lost_at);
}

/// What is still to happen.
struct Plan {
    #[cfg_attr(not(tokio_unstable), expect(dead_code, reason = "tokio takes no seed then"))]
    seed: u64,
    /// The next move last.
    pending: Vec<(i64, super::moves::Move)>,
    healed_at: i64,
    over_at: i64,
    /// Whether the restart in an unchanged world has begun.
    restarted: bool,
}

impl Plan {
    /// When the next thing happens.
    fn due(&self, node: &Node) -> i64 {
        let next = self.pending.last().map_or(i64::MAX, |(at, _)| *at);
        node.due().min(next).min(if self.healed_at > node.steady { self.healed_at } else { self.over_at })
    }

    /// Does what is due. Gives whether the life is over.
    fn step(&mut self, node: &mut Node, laws: &mut Laws, is_up: bool) -> bool {
        node.has_agent = is_up;
        while let Some((at, what)) = self.pending.last().copied() {
            if at > node.steady || node.end.is_some() {
                break;
            }
            self.pending.pop();
            // What the agent did before is judged as it is before.
            laws.check(node, is_up);
            laws.moved(node, what);
            node.act(at, what);
        }
        if node.steady >= self.healed_at && self.healed_at > 0 {
            node.heal_all();
            self.healed_at = 0;
        }
        node.step();
        laws.check(node, is_up);
        if self.healed_at == 0 && node.steady >= self.over_at && is_up && !self.restarted {
            // In a world that does not change, a restart changes nothing.
            laws.converged(node);
            laws.begin_restart(node);
            self.restarted = true;
            self.over_at = node.steady + 120_000;
            node.end = Some(End::Stop { back: 1_000 });
            return false;
        }
        let is_over = self.restarted && node.steady >= self.over_at && is_up;
        if is_over {
            laws.end_restart(node);
            laws.wants_status = true;
        }
        is_over
    }
}

/// Time passes without the agent. Gives whether the life goes on.
fn idle(node: &Rc<RefCell<Node>>, laws: &mut Laws, plan: &mut Plan, until: i64) -> bool {
    simulation::enter(Some(Rc::new(Still(Rc::clone(&node.borrow().clock)))));
    loop {
        let end = {
            let mut node = node.borrow_mut();
            let due = plan.due(&node).max(node.steady + 1).min(until);
            if due > until || node.steady >= until {
                return true;
            }
            node.set_time(due);
            node.effects.lock().unwrap().left = None;
            if plan.step(&mut node, laws, false) || laws.violation.is_some() {
                return false;
            }
            node.end.take()
        };
        // What would end a process that is not there does nothing more.
        match end {
            Some(End::PowerLoss { kept, reach }) => {
                power_off(node, laws, kept, reach);
                return true;
            }
            Some(End::Shutdown { reach }) => {
                power_off(node, laws, FILES_ARE_WRITTEN, reach);
                return true;
            }
            Some(End::Stop { .. } | End::Kill { .. }) | None => {}
        }
    }
}

/// How a process ended.
enum Ended {
    Over,
    By(End),
    Panicked(String),
    NotStarted(String),
}

/// One process of the agent.
fn process(node: &Rc<RefCell<Node>>, laws: &mut Laws, plan: &mut Plan, kubeconfig: &str, draw: Draw) -> Ended {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().start_paused(true);
    // Who of several that wait is woken first is tokio's choice.
    #[cfg(tokio_unstable)]
    runtime.rng_seed(tokio::runtime::RngSeed::from_bytes(&plan.seed.to_le_bytes()));
    let runtime = runtime.build().expect("a runtime of one thread");
    let lived = std::panic::catch_unwind(AssertUnwindSafe(|| {
        runtime.block_on(async {
            let (began, wall, booted, server) = {
                let node = node.borrow();
                (node.steady, Rc::clone(&node.wall), node.booted, std::sync::Arc::clone(&node.server))
            };
            let origin = tokio::time::Instant::now();
            let around = Around {
                node: Rc::clone(node),
                server,
                wall,
                booted,
                suspended: Rc::clone(&node.borrow().suspended),
                began,
                origin,
                draw: RefCell::new(draw),
                asked: Cell::new((0, 0)),
            };
            simulation::enter(Some(Rc::new(around)));
            let config = match Simulation::config(&config(kubeconfig, &node.borrow())) {
                Ok(config) => config,
                Err(error) => return Ended::NotStarted(format!("{error:?}")),
            };
            let disk = std::sync::Arc::clone(&node.borrow().disk);
            let agent = match Simulation::new(config, disk) {
                Ok(agent) => agent,
                Err(error) => return Ended::NotStarted(format!("{error:?}")),
            };
            let handle = agent.handle();
            let drive = drive(node, laws, plan, began, origin, &handle);
            let agent = std::pin::pin!(agent.run());
            let drive = std::pin::pin!(drive);
            match futures::future::select(agent, drive).await {
                futures::future::Either::Left((daemonlet::node::agent::Ended::Reconfigured, _)) => {
                    Ended::By(End::Kill { back: 1 })
                }
                futures::future::Either::Left(_) => Ended::Panicked("the agent ended by itself".to_owned()),
                futures::future::Either::Right((ended, agent)) => {
                    match ended {
                        Ended::By(End::Stop { .. }) => {
                            handle.stop();
                            let _ = tokio::time::timeout(STOP, agent).await;
                        }
                        Ended::By(End::Shutdown { .. }) => {
                            let leaves_taint = origin.elapsed() > SETTLED && node.borrow().leaves_taint();
                            node.borrow_mut().begin_shutdown(leaves_taint);
                            handle.stop();
                            let _ = tokio::time::timeout(STOP, agent).await;
                        }
                        _ => {}
                    }
                    ended
                }
            }
        })
    }));
    let ended = match lived {
        Ok(ended) => ended,
        Err(panic) if panic.is::<Killed>() => {
            let end = node.borrow().effects.lock().unwrap().ended.take();
            Ended::By(end.unwrap_or(End::Kill { back: 1_000 }))
        }
        Err(panic) => {
            let why = panic.downcast_ref::<String>().cloned();
            Ended::Panicked(why.or_else(|| panic.downcast_ref::<&str>().map(|w| (*w).to_owned())).unwrap_or_default())
        }
    };
    drop(runtime);
    ended
}

/// What happens while the agent runs.
async fn drive(
    node: &Rc<RefCell<Node>>,
    laws: &mut Laws,
    plan: &mut Plan,
    began: i64,
    origin: tokio::time::Instant,
    handle: &AgentHandle,
) -> Ended {
    let poke = std::sync::Arc::clone(&node.borrow().poke);
    loop {
        let due = plan.due(&node.borrow());
        let at = origin + Duration::from_millis(u64::try_from(due - began).unwrap_or(0));
        tokio::select! {
            biased;
            () = tokio::time::sleep_until(at) => {}
            () = poke.notified() => {}
        }
        let is_over = {
            let mut node = node.borrow_mut();
            node.set_time(began + i64::try_from(origin.elapsed().as_millis()).unwrap_or(i64::MAX));
            plan.step(&mut node, laws, true)
        };
        if let Some(why) = super::PANICKED.take() {
            laws.violate(node.borrow().steady, "no pass panics or loops", why);
        }
        if laws.violation.is_some() {
            return Ended::Over;
        }
        if laws.wants_status {
            // The process that follows is asked, too, at its beginning.
            laws.wants_status = node.borrow().end.is_some();
            let status = handle.ask(r#"{"op":"status"}"#).await;
            laws.status(&node.borrow(), status);
            let is_settled = origin.elapsed() > SETTLED;
            laws.metrics(&node.borrow(), handle.metrics().filter(|_| is_settled));
        }
        let end = node.borrow_mut().end.take();
        if let Some(end) = end {
            return Ended::By(end);
        }
        if is_over {
            return Ended::Over;
        }
    }
}
