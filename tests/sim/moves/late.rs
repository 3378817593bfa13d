//! How the moves are drawn that came after all others: those stay what they are.

use crate::api::Reach;

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
