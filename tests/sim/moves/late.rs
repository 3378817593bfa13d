//! How the moves are drawn that came after all others: those stay what they are.

use crate::api::Reach;
use crate::bridges::Binding;

use super::Move;
use super::draw::Draw;
use super::drawn::insert_near;

/// In one life of three etcd is restored from a backup, and what it has changes meanwhile.
pub(super) fn add_restored_etcd(draw: &mut Draw, daemons: u64, moves: &mut Vec<(i64, Move)>) {
    if draw.below(3) > 0 {
        return;
    }
    let seconds = draw.one_of(&[8, 25, 70, 200]);
    insert_near(draw, moves, Move::CopyEtcd { seconds });
    for _ in 0..1 + draw.below(3) {
        let daemon = draw.below(daemons) as u8;
        let what = match draw.below(8) {
            0..=2 => Move::Apply { daemon },
            3 => Move::Delete { daemon },
            4 => Move::ChangeConfigMap { daemon },
            5 => Move::Label { daemon, is_static: draw.below(2) == 0 },
            6 => Move::RestartAgent,
            _ => Move::PowerLoss { kept: draw.below(4) as u8, effect: None, reach: Reach::Refused },
        };
        insert_near(draw, moves, what);
    }
}

/// In one life of three, revisions come that fail. Gives the daemons that return from those.
pub(super) fn add_bad_revisions(
    draw: &mut Draw,
    daemons: u64,
    is_crowded: bool,
    moves: &mut Vec<(i64, Move)>,
) -> Vec<u8> {
    // From one that has no room, too, they would return.
    if draw.below(3) > 0 || is_crowded {
        return Vec::new();
    }
    let cautious = (0..daemons as u8).filter(|_| draw.below(4) > 0).collect();
    for _ in 0..1 + draw.below(2) {
        let (daemon, seconds) = (draw.below(daemons) as u8, draw.one_of(&[25, 200, 400, 600]));
        insert_near(draw, moves, Move::ApplyBad { daemon, seconds });
        for _ in 0..draw.below(3) {
            let what = match draw.below(6) {
                0 => Move::Apply { daemon },
                1 => Move::ChangeConfigMap { daemon },
                2 => Move::RestartAgent,
                3 => Move::DeletePod { daemon, force: false },
                4 => Move::Reach { reach: Reach::Refused, seconds: 200 },
                _ => Move::PowerLoss { kept: draw.below(4) as u8, effect: None, reach: Reach::Refused },
            };
            insert_near(draw, moves, what);
        }
    }
    cautious
}

/// In one life of three, the next instance of some daemons starts beside the last one. Gives which.
pub(super) fn add_surges(draw: &mut Draw, daemons: u64, is_crowded: bool, moves: &mut Vec<(i64, Move)>) -> Vec<u8> {
    // What is selected while two run may be either.
    let is_left_out = moves.iter().any(|(_, what)| matches!(what, Move::SelectFewer { .. }));
    if draw.below(3) > 0 || is_crowded || is_left_out {
        return Vec::new();
    }
    let surging: Vec<u8> = (0..daemons as u8).filter(|_| draw.below(3) > 0).collect();
    for _ in 0..if surging.is_empty() { 0 } else { 1 + draw.below(3) } {
        let daemon = draw.one_of(&surging);
        let what = match draw.below(8) {
            0..=2 => Move::Apply { daemon },
            3..=4 => Move::Write { daemon },
            5 => Move::KillAt { effect: draw.below(40) as u16 },
            6 => Move::DeletePod { daemon, force: false },
            _ => Move::PowerLoss {
                kept: draw.below(4) as u8,
                effect: Some(draw.below(40) as u16),
                reach: Reach::Refused,
            },
        };
        insert_near(draw, moves, what);
    }
    surging
}

/// In one life of three, daemons run until the DaemonSet controller's pod can. Gives what the scheduler does with those.
pub(super) fn add_bridges(draw: &mut Draw, moves: &mut Vec<(i64, Move)>) -> Vec<Binding> {
    if draw.below(3) > 0 {
        return Vec::new();
    }
    let kinds = |draw: &mut Draw| match draw.below(6) {
        0..=2 => Binding::After { seconds: draw.one_of(&[0, 8, 70, 400]) },
        3 => Binding::WithoutInstance,
        4 => Binding::Full,
        _ => Binding::Tainted,
    };
    let bridged = (0..1 + draw.below(2)).map(|_| kinds(draw)).collect();
    for _ in 0..1 + draw.below(4) {
        let seconds = draw.one_of(&[8_u16, 25, 70, 200]);
        let reach = draw.one_of(&[Reach::Up, Reach::Refused, Reach::Silent]);
        let what = match draw.below(6) {
            0..=2 => Move::PowerLoss { kept: draw.below(4) as u8, effect: None, reach },
            3 => Move::RestartAgent,
            4 => Move::Reach { reach: Reach::Refused, seconds },
            _ => Move::RestartKubelet,
        };
        insert_near(draw, moves, what);
    }
    bridged
}
