//! What happens to a node: the moves of a life, drawn from a seed, kept as a list, printed as a story.
//!
//! Owns which moves there are and how often each is drawn. Must not know what follows from them.

use serde::Deserialize;
use serde::Serialize;

use super::api::Reach;
use super::api::Refusal;
use super::kubelet::RuntimeState;

/// Random numbers of one life (xorshift64*).
#[derive(Clone, Debug)]
pub(crate) struct Draw(u64);

impl Draw {
    pub(crate) fn new(seed: u64) -> Self {
        // Neighbouring seeds have nothing in common.
        let mut draw = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x2545_f491_4f6c_dd1d);
        (0..4).for_each(|_| _ = draw.next());
        draw
    }

    pub(crate) fn next(&mut self) -> u64 {
        if self.0 == 0 {
            self.0 = 0x2545_f491_4f6c_dd1d;
        }
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 16) % bound.max(1)
    }

    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub(crate) fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}

/// Where a daemon is defined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Home {
    Api,
    Folder,
    /// Both: the API's is newer.
    Both,
}

/// How a file of a folder is hurt without a word about what it defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Hurt {
    Empty,
    Half,
    Zeros,
    DanglingLink,
    LinkLoop,
    Unreadable,
    StaleHandle,
}

/// What of the state folder is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Piece {
    Inputs,
    Floor,
    Record,
    /// The sealed secrets.
    Seal,
}

/// How it is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Damage {
    Gone,
    Empty,
    Zeros,
    Half,
    Folder,
    /// Others may write to it, or it is another user's.
    Open,
    Foreign,
}

/// What fails on the disk for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Fault {
    StateReadOnly,
    StateFull,
    ManifestsFull,
    ManifestsUnreadable,
    PodsFull,
    FolderUnreadable,
    /// What is written is lost, and a sync says so.
    StateBroken,
    ManifestsReadOnly,
    ManifestsBroken,
    PodsReadOnly,
    PodsBroken,
}

/// A file of the agent whose mode and owner somebody changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum OwnFile {
    Manifest,
    Data,
}

/// What the runtime says of a pod that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Blur {
    /// Its container is in a state that the runtime does not know.
    UnknownContainer,
    /// Its sandbox is not ready, and its container runs.
    SandboxNotReady,
    /// The same, and its container is in a state that the runtime does not know.
    Both,
}

/// How a node gets another name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Renaming {
    /// In its configuration; the agent and the kubelet start anew.
    Restarted,
    /// With a reboot.
    Rebooted,
    /// The machine is a copy, with its disk; the original lives on elsewhere.
    Cloned,
}

/// What somebody removes whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Place {
    /// The folders of DaemonSets and of manifests.
    Etc,
    /// The agent's run folder.
    Run,
    /// The agent's state folder, and nothing else.
    State,
    /// The disk with the state folder and the kubelet's root, while the machine is off.
    Var,
    /// The disk with the kubelet's root alone, while the machine is off.
    Kubelet,
}

/// Which version of the agent wrote the state folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Version {
    /// A newer one, in a format that this one does not know.
    NewFormat,
    /// A newer one, with fields that this one does not know.
    NewFields,
    /// An older one, without the fields that came later.
    Older,
}

/// What a tenant's DaemonSet is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Tenant {
    /// It has no label.
    Unlabelled,
    /// It asks to be run, from a namespace that nothing runs from.
    Outside,
    /// The same, and is no DaemonSet that a static pod can be made of.
    Impossible,
    /// It asks to be run from a namespace of the policy, with what only trusted ones may have.
    Untrusted,
    /// It goes.
    Gone,
}

/// Why a Node is not Ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum NotReady {
    /// Its kubelet says so.
    Unwell,
    /// Nothing is heard of its kubelet.
    Unreachable,
}

/// What becomes of a ConfigMap with overlays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum OverlayChange {
    Newer,
    /// No list.
    Damaged,
    /// It is not there.
    Lost,
}

/// One thing that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Move {
    // The API's users.
    Apply {
        daemon: u8,
    },
    Delete {
        daemon: u8,
    },
    Label {
        daemon: u8,
        is_static: bool,
    },
    MistypeLabel {
        daemon: u8,
    },
    DeletePod {
        daemon: u8,
        force: bool,
    },
    ChangeConfigMap {
        daemon: u8,
    },
    ChangeSecret {
        daemon: u8,
    },
    DropConfigMap {
        daemon: u8,
        seconds: u16,
    },
    RecreateNode,
    // The owner of the node's folders.
    Write {
        daemon: u8,
    },
    WriteSlowly {
        daemon: u8,
    },
    WriteObjects {
        daemon: u8,
    },
    HurtFile {
        daemon: u8,
        hurt: Hurt,
        seconds: u16,
    },
    RemoveFile {
        daemon: u8,
    },
    Mask {
        daemon: u8,
    },
    SecondFile {
        daemon: u8,
        seconds: u16,
    },
    UnmountFolder {
        seconds: u16,
    },
    RemoveManifest {
        daemon: u8,
    },
    EmptyManifest {
        daemon: u8,
    },
    RemoveData {
        daemon: u8,
    },
    // The API server.
    Reach {
        reach: Reach,
        seconds: u16,
    },
    Refuse {
        resource: u8,
        refusal: Refusal,
        seconds: u16,
    },
    EndWatches,
    Compact,
    RestartServer,
    OtherCluster {
        seconds: u16,
        /// Whether it has objects with the names of ours.
        #[serde(default)]
        alike: bool,
    },
    // The machine and its processes.
    Kill {
        seconds: u16,
    },
    KillAt {
        effect: u16,
    },
    RestartAgent,
    PowerLoss {
        kept: u8,
        effect: Option<u16>,
        reach: Reach,
    },
    /// A planned reboot.
    Shutdown {
        reach: Reach,
    },
    RestartKubelet,
    Runtime {
        state: RuntimeState,
        seconds: u16,
    },
    Clock {
        seconds: i64,
    },
    Damage {
        piece: Piece,
        damage: Damage,
    },
    DiskFault {
        fault: Fault,
        seconds: u16,
    },
    OpenState {
        seconds: u16,
    },
    CopyState {
        seconds: u16,
    },
    Rename {
        renaming: Renaming,
        reach: Reach,
    },
    Wipe {
        place: Place,
        seconds: u16,
    },
    OtherVersion {
        version: Version,
    },
    // Others in the cluster.
    Tenant {
        number: u8,
        tenant: Tenant,
    },
    /// A DaemonSet controller that acts on one of ours: its pod comes, and goes.
    StockPod {
        daemon: u8,
        seconds: u16,
    },
    /// What seals cannot be run, or refuses to.
    Unseal {
        seconds: u16,
        #[serde(default)]
        refused: bool,
    },
    /// A daemon is to start after another one, or after none; its DaemonSet changes with that.
    After {
        daemon: u8,
        before: Option<u8>,
    },
    /// A node is to carry the startup taint for a daemon, or not any more; its DaemonSet changes with that.
    AskTaint {
        daemon: u8,
        is_asked: bool,
    },
    /// The policy that holds the agent to the startup taint is not there.
    DropTaintPolicy {
        seconds: u16,
    },
    /// The overlays of a daemon change, or are lost or damaged for a while.
    Overlay {
        daemon: u8,
        change: OverlayChange,
        seconds: u16,
    },
    /// The label of the Node changes that overlays are for.
    LabelNode {
        is_big: bool,
    },
    /// Another pod takes the host port of a daemon, as soon as that does not run.
    Occupy {
        daemon: u8,
        seconds: u16,
    },
    /// The Node is not Ready and has the taints of that.
    EndReady {
        why: NotReady,
        seconds: u16,
    },
    /// The runtime knows less of the pods of a daemon than it should.
    Blur {
        daemon: u8,
        blur: Blur,
        seconds: u16,
    },
    /// Somebody opens a file of the agent to others, or gives it away.
    Open {
        daemon: u8,
        file: OwnFile,
        is_given: bool,
    },
    /// The machine is suspended for so long, and goes on; its connections are gone, or nobody has told it.
    Suspend {
        seconds: u32,
        is_cut: bool,
    },
    /// The clock is set while no agent runs.
    ClockWhileDown {
        seconds: i64,
    },
}

/// The resources that a refusal may be about.
pub(crate) const RESOURCES: [&str; 7] =
    ["daemonsets", "configmaps", "secrets", "serviceaccounts", "namespaces", "pods", "nodes"];

/// A life: what there is at its beginning, and what happens when, in milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Life {
    pub(crate) seed: u64,
    pub(crate) daemons: Vec<Home>,
    pub(crate) one_journal: bool,
    /// Which daemon starts after which other one, at the beginning.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) after: Vec<(u8, u8)>,
    /// Whether Secrets and tokens are sealed on the disk.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) sealed: bool,
    /// Daemons that the node carries the startup taint for, if agents write it; and those that have overlays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tainted: Option<Vec<u8>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) overlaid: Vec<u8>,
    /// Daemons that name a condition of the Node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) conditioned: Vec<u8>,
    /// Whether each daemon has a host port.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) crowded: bool,
    pub(crate) moves: Vec<(i64, Move)>,
}

/// How long a life lasts, in milliseconds, without its end, at which all faults are over.
pub(crate) const HOUR: i64 = 3_600_000;

impl Life {
    pub(crate) fn of(seed: u64) -> Self {
        let mut draw = Draw::new(seed);
        let count = 3 + draw.below(4);
        let daemons = (0..count).map(|_| draw.one_of(&[Home::Api, Home::Api, Home::Folder, Home::Folder, Home::Both]));
        let daemons: Vec<Home> = daemons.collect();
        let one_journal = draw.below(4) > 0;
        let mut moves = Vec::new();
        // Most lives are of few moves near each other; those are understood, and shrunk, best.
        let (count, spread) = match draw.below(3) {
            0 => (3 + draw.below(5), 40.0),
            1 => (8 + draw.below(10), 150.0),
            _ => (15 + draw.below(25), 90.0),
        };
        let mut at = 20_000 + draw.below(60_000) as i64;
        for _ in 0..count {
            moves.push((at, a_move(&mut draw, daemons.len() as u64)));
            at += match draw.below(4) {
                0 => draw.below(3_000) as i64,
                1 => 1_000 + draw.below(20_000) as i64,
                _ => (-draw.unit().max(1e-6).ln() * spread * 1_000.0) as i64,
            };
        }
        let after = add_others(&mut Draw::new(seed ^ 0x0de4), daemons.len() as u64, &mut moves);
        let draw = &mut Draw::new(seed ^ 0x7a17);
        let some = |draw: &mut Draw| (0..daemons.len() as u8).filter(|_| draw.below(2) == 0).collect::<Vec<u8>>();
        let tainted = (draw.below(3) == 0).then(|| some(draw));
        let overlaid = if draw.below(3) == 0 { some(draw) } else { Vec::new() };
        for _ in 0..if tainted.is_some() { draw.below(4) } else { 0 } {
            let what = a_move_of_the_taint(draw, daemons.len() as u64);
            insert_near(draw, &mut moves, what);
        }
        for _ in 0..if overlaid.is_empty() { 0 } else { draw.below(5) } {
            let what = a_move_of_overlays(draw, &overlaid);
            insert_near(draw, &mut moves, what);
        }
        let draw = &mut Draw::new(seed ^ 0x900d);
        let crowded = draw.below(3) == 0;
        for _ in 0..if crowded { 1 + draw.below(3) } else { 0 } {
            insert_occupant(draw, daemons.len() as u64, &mut moves);
        }
        add_not_ready(&mut Draw::new(seed ^ 0x707a), &mut moves);
        let sealed = Draw::new(seed ^ 0x5ea1).below(4) == 0;
        if sealed || tainted.is_some() {
            add_shutdowns(&mut Draw::new(seed ^ 0x0ff0), &mut moves);
        }
        add_decay(&mut Draw::new(seed ^ 0xdeca), daemons.len() as u64, &mut moves);
        moves.retain(|(at, _)| *at < HOUR);
        let draw = &mut Draw::new(seed ^ 0xc0de);
        let conditioned = if draw.below(3) == 0 { some(draw) } else { Vec::new() };
        Self { seed, daemons, one_journal, after, sealed, tainted, overlaid, conditioned, crowded, moves }
    }
}

/// Adds to two lives of three what is drawn apart from the other moves, which stay what they are: near one of them, as
/// things go wrong together. Gives the start order.
fn add_others(draw: &mut Draw, daemons: u64, moves: &mut Vec<(i64, Move)>) -> Vec<(u8, u8)> {
    if draw.below(3) == 0 {
        return Vec::new();
    }
    let edge = |draw: &mut Draw| (draw.below(daemons) as u8, draw.below(daemons) as u8);
    let after = match draw.below(2) {
        0 => Vec::new(),
        _ => (0..1 + draw.below(3)).map(|_| edge(draw)).filter(|(daemon, before)| daemon != before).collect(),
    };
    for _ in 0..draw.below(4) {
        let what = another_move(draw, daemons);
        insert_near(draw, moves, what);
    }
    after
}

/// Things go wrong together: near another move.
fn insert_near(draw: &mut Draw, moves: &mut Vec<(i64, Move)>, what: Move) {
    let near = moves[draw.below(moves.len() as u64) as usize].0;
    let at = near + draw.below(20_000) as i64 - 8_000;
    let place = moves.partition_point(|(other, _)| *other <= at);
    moves.insert(place, (at, what));
}

/// Another pod takes the port of a daemon, whose instance then ends.
fn insert_occupant(draw: &mut Draw, daemons: u64, moves: &mut Vec<(i64, Move)>) {
    let daemon = draw.below(daemons) as u8;
    let near = moves[draw.below(moves.len() as u64) as usize].0;
    let ends = [
        Move::DeletePod { daemon, force: false },
        Move::Apply { daemon },
        Move::Write { daemon },
        Move::RemoveManifest { daemon },
    ];
    let what = [Move::Occupy { daemon, seconds: draw.one_of(&[2, 8, 25, 70, 600]) }, draw.one_of(&ends)];
    for (what, within) in what.into_iter().zip([20_000, 28_000]) {
        let at = near + draw.below(within) as i64 - 8_000;
        let place = moves.partition_point(|(other, _)| *other <= at);
        moves.insert(place, (at, what));
    }
}

/// In one life of three the Node is not Ready for a while.
fn add_not_ready(draw: &mut Draw, moves: &mut Vec<(i64, Move)>) {
    if draw.below(3) > 0 {
        return;
    }
    for _ in 0..1 + draw.below(3) {
        let why = draw.one_of(&[NotReady::Unwell, NotReady::Unreachable]);
        let what = Move::EndReady { why, seconds: draw.one_of(&[2, 8, 25, 70, 200, 600]) };
        insert_near(draw, moves, what);
    }
}

/// In one life of two a runtime loses track, modes change, or the machine sleeps. Disks that heal after `EIO` or `EROFS`,
/// damaged seals, and clocks that are set while no agent runs are not drawn: lives in files may have them.
fn add_decay(draw: &mut Draw, daemons: u64, moves: &mut Vec<(i64, Move)>) {
    for _ in 0..draw.below(2) * (1 + draw.below(4)) {
        let what = a_move_of_decay(draw, daemons);
        insert_near(draw, moves, what);
    }
}

fn a_move_of_decay(draw: &mut Draw, daemons: u64) -> Move {
    let daemon = draw.below(daemons) as u8;
    let seconds = draw.one_of(&[2_u16, 8, 25, 70, 200, 600]);
    match draw.below(7) {
        0..=2 => {
            let blurs = [Blur::UnknownContainer, Blur::SandboxNotReady, Blur::Both];
            Move::Blur { daemon, blur: draw.one_of(&blurs), seconds }
        }
        3..=4 => {
            let file = draw.one_of(&[OwnFile::Manifest, OwnFile::Manifest, OwnFile::Data]);
            Move::Open { daemon, file, is_given: draw.below(3) == 0 }
        }
        _ => {
            let seconds = draw.one_of(&[20, 600, 7_200, 40_000, 400_000]);
            Move::Suspend { seconds, is_cut: draw.below(2) == 0 }
        }
    }
}

/// In one life of two the machine is shut down: what an agent does then matters to taint and sealed secrets alone.
fn add_shutdowns(draw: &mut Draw, moves: &mut Vec<(i64, Move)>) {
    for _ in 0..draw.below(2) * (1 + draw.below(2)) {
        let reach = draw.one_of(&[Reach::Up, Reach::Up, Reach::Refused, Reach::Silent]);
        insert_near(draw, moves, Move::Shutdown { reach });
    }
}

fn a_move_of_the_taint(draw: &mut Draw, daemons: u64) -> Move {
    let reach = draw.one_of(&[Reach::Up, Reach::Up, Reach::Refused]);
    match draw.below(4) {
        0..=1 => Move::AskTaint { daemon: draw.below(daemons) as u8, is_asked: draw.below(3) > 0 },
        2 => Move::DropTaintPolicy { seconds: draw.one_of(&[8, 70, 600]) },
        _ => Move::PowerLoss { kept: draw.below(4) as u8, effect: None, reach },
    }
}

fn a_move_of_overlays(draw: &mut Draw, overlaid: &[u8]) -> Move {
    let changes = [OverlayChange::Newer, OverlayChange::Newer, OverlayChange::Damaged, OverlayChange::Lost];
    match draw.below(3) {
        0 => Move::LabelNode { is_big: draw.below(2) == 0 },
        _ => Move::Overlay {
            daemon: draw.one_of(overlaid),
            change: draw.one_of(&changes),
            seconds: draw.one_of(&[2, 25, 200]),
        },
    }
}

fn another_move(draw: &mut Draw, daemons: u64) -> Move {
    let daemon = draw.below(daemons) as u8;
    let seconds = draw.one_of(&[2_u16, 8, 25, 70, 200, 600]);
    let reach = draw.one_of(&[Reach::Up, Reach::Refused, Reach::Silent]);
    let places = [Place::Etc, Place::Run, Place::State, Place::Var, Place::Kubelet];
    match draw.below(13) {
        0..=1 => {
            Move::Rename { renaming: draw.one_of(&[Renaming::Restarted, Renaming::Rebooted, Renaming::Cloned]), reach }
        }
        2..=3 => Move::Wipe { place: draw.one_of(&places), seconds },
        4..=5 => Move::OtherVersion {
            version: draw.one_of(&[Version::NewFormat, Version::NewFields, Version::NewFields, Version::Older]),
        },
        6..=7 => {
            let kinds = [Tenant::Unlabelled, Tenant::Outside, Tenant::Impossible, Tenant::Untrusted, Tenant::Gone];
            Move::Tenant { number: draw.below(2) as u8, tenant: draw.one_of(&kinds) }
        }
        8..=9 => Move::StockPod { daemon, seconds },
        10 => Move::Unseal { seconds, refused: draw.below(2) == 0 },
        _ => {
            let before = draw.below(daemons + 1) as u8;
            Move::After { daemon, before: (u64::from(before) < daemons && before != daemon).then_some(before) }
        }
    }
}

fn a_move(draw: &mut Draw, daemons: u64) -> Move {
    let daemon = draw.below(daemons) as u8;
    let seconds = draw.one_of(&[2_u16, 8, 25, 70, 200, 600]);
    let reach = draw.one_of(&[Reach::Up, Reach::Refused, Reach::Silent]);
    let down = draw.one_of(&[Reach::Refused, Reach::Silent]);
    match draw.below(56) {
        0..=3 => Move::Apply { daemon },
        4 => Move::Delete { daemon },
        5 => Move::Label { daemon, is_static: draw.below(2) == 0 },
        6 => Move::MistypeLabel { daemon },
        7..=8 => Move::DeletePod { daemon, force: draw.below(2) == 0 },
        9..=10 => Move::ChangeConfigMap { daemon },
        11 => Move::ChangeSecret { daemon },
        12 => Move::DropConfigMap { daemon, seconds },
        13 => Move::RecreateNode,
        14..=15 => Move::Write { daemon },
        16 => Move::WriteSlowly { daemon },
        17 => Move::WriteObjects { daemon },
        18..=20 => {
            let hurts = [
                Hurt::Empty,
                Hurt::Half,
                Hurt::Zeros,
                Hurt::DanglingLink,
                Hurt::LinkLoop,
                Hurt::Unreadable,
                Hurt::StaleHandle,
            ];
            Move::HurtFile { daemon, hurt: draw.one_of(&hurts), seconds }
        }
        21 => Move::RemoveFile { daemon },
        22 => Move::Mask { daemon },
        23 => Move::SecondFile { daemon, seconds },
        24 => Move::UnmountFolder { seconds },
        25 => Move::RemoveManifest { daemon },
        26 => Move::EmptyManifest { daemon },
        27 => Move::RemoveData { daemon },
        28..=30 => Move::Reach { reach: down, seconds },
        31..=32 => {
            let refusals =
                [Refusal::Forbidden, Refusal::NotFound, Refusal::TooMany, Refusal::Internal, Refusal::Silence];
            let resource = draw.below(RESOURCES.len() as u64) as u8;
            Move::Refuse { resource, refusal: draw.one_of(&refusals), seconds }
        }
        33 => Move::EndWatches,
        34 => Move::Compact,
        35 => Move::RestartServer,
        36 => Move::OtherCluster { seconds, alike: draw.below(2) == 0 },
        37..=38 => Move::Kill { seconds: draw.one_of(&[1, 5, 60]) },
        39..=41 => Move::KillAt { effect: draw.below(60) as u16 },
        42..=43 => Move::RestartAgent,
        44..=46 => {
            let effect = (draw.below(2) == 0).then(|| draw.below(80) as u16);
            Move::PowerLoss { kept: draw.below(4) as u8, effect, reach }
        }
        47 => Move::RestartKubelet,
        48 => {
            let state = draw.one_of(&[RuntimeState::Hangs, RuntimeState::Down, RuntimeState::Foreign]);
            Move::Runtime { state, seconds }
        }
        49 => Move::Clock { seconds: draw.one_of(&[-100_000_000, -3_600, -30, 30, 3_600, 100_000_000]) },
        50..=51 => {
            let damages = [Damage::Gone, Damage::Empty, Damage::Zeros, Damage::Half, Damage::Folder];
            let piece = draw.one_of(&[Piece::Inputs, Piece::Floor, Piece::Record]);
            Move::Damage { piece, damage: draw.one_of(&damages) }
        }
        52 => {
            let faults = [
                Fault::StateReadOnly,
                Fault::StateFull,
                Fault::ManifestsFull,
                Fault::ManifestsUnreadable,
                Fault::PodsFull,
                Fault::FolderUnreadable,
            ];
            Move::DiskFault { fault: draw.one_of(&faults), seconds }
        }
        53 => Move::OpenState { seconds },
        54 => Move::CopyState { seconds },
        _ => Move::RestartAgent,
    }
}
