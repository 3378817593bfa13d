//! How the moves of a life are drawn.

use crate::api::Reach;
use crate::api::Refusal;
use crate::kubelet::RuntimeState;

use super::Blur;
use super::HOUR;
use super::Home;
use super::Life;
use super::Move;
use super::NotReady;
use super::OverlayChange;
use super::RESOURCES;
use super::Renaming;
use super::Tenant;
use super::Version;
use super::counting::add_overrides;
use super::counting::add_selection;
use super::counting::add_vendor;
use super::disk::Damage;
use super::disk::Fault;
use super::disk::Hurt;
use super::disk::OwnFile;
use super::disk::Piece;
use super::disk::Place;
use super::draw::Draw;
use super::late::add_bad_revisions;
use super::late::add_bridges;
use super::late::add_restored_etcd;
use super::late::add_surges;

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
        add_broken_disks(&mut Draw::new(seed ^ 0xb20c), &mut moves);
        let vendored = add_vendor(&mut Draw::new(seed ^ 0x7e4d), &daemons, &mut moves);
        let free = vendored.is_empty() && overlaid.is_empty();
        let selective = add_selection(&mut Draw::new(seed ^ 0x5e1e), &daemons, free, &mut moves);
        add_overrides(&mut Draw::new(seed ^ 0x0e44), &daemons, &mut moves);
        add_restored_etcd(&mut Draw::new(seed ^ 0xe7cd), daemons.len() as u64, &mut moves);
        let cautious = add_bad_revisions(&mut Draw::new(seed ^ 0xbad), daemons.len() as u64, crowded, &mut moves);
        let surging = add_surges(&mut Draw::new(seed ^ 0x5c49), daemons.len() as u64, crowded, &mut moves);
        let bridged = add_bridges(&mut Draw::new(seed ^ 0xb00b), &mut moves);
        moves.retain(|(at, _)| *at < HOUR);
        let draw = &mut Draw::new(seed ^ 0xc0de);
        let conditioned = if draw.below(3) == 0 { some(draw) } else { Vec::new() };
        Self {
            seed,
            daemons,
            one_journal,
            after,
            sealed,
            tainted,
            overlaid,
            conditioned,
            crowded,
            vendored,
            selective,
            cautious,
            surging,
            bridged,
            moves,
        }
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
pub(super) fn insert_near(draw: &mut Draw, moves: &mut Vec<(i64, Move)>, what: Move) {
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

/// In one life of two a runtime loses track, modes change, or the machine sleeps.
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

/// In one life of three a disk gives errors or is read-only for a while, what is sealed or remembered is damaged in ways of
/// its own, or the clock is set while no agent runs.
fn add_broken_disks(draw: &mut Draw, moves: &mut Vec<(i64, Move)>) {
    if draw.below(3) > 0 {
        return;
    }
    for _ in 0..1 + draw.below(2) {
        let seconds = draw.one_of(&[2_u16, 8, 25, 70, 200, 600]);
        let what = match draw.below(6) {
            0..=2 => {
                let faults = [
                    Fault::StateBroken,
                    Fault::ManifestsReadOnly,
                    Fault::ManifestsBroken,
                    Fault::PodsReadOnly,
                    Fault::PodsBroken,
                ];
                Move::DiskFault { fault: draw.one_of(&faults), seconds }
            }
            3..=4 => {
                let piece = draw.one_of(&[Piece::Inputs, Piece::Floor, Piece::Record, Piece::Seal]);
                let damages = [Damage::Open, Damage::Foreign, Damage::Gone, Damage::Half];
                Move::Damage { piece, damage: draw.one_of(&damages) }
            }
            _ => Move::ClockWhileDown { seconds: draw.one_of(&[-100_000_000, -3_600, 3_600, 100_000_000]) },
        };
        insert_near(draw, moves, what);
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
