//! How the moves are drawn that change which definition of a daemon counts.

use crate::api::Reach;

use super::Fewer;
use super::Home;
use super::Move;
use super::disk::Fault;
use super::disk::Hurt;
use super::draw::Draw;
use super::drawn::insert_near;

/// In one life of three a vendor defines some daemons, and the folders that hide its files go and come. Gives which.
pub(super) fn add_vendor(draw: &mut Draw, daemons: &[Home], moves: &mut Vec<(i64, Move)>) -> Vec<u8> {
    if draw.below(3) > 0 {
        return Vec::new();
    }
    let in_folder = (0..daemons.len() as u8).filter(|daemon| daemons[usize::from(*daemon)] != Home::Api);
    let vendored: Vec<u8> = in_folder.filter(|_| draw.below(3) > 0).collect();
    for _ in 0..if vendored.is_empty() { 0 } else { 2 + draw.below(4) } {
        let daemon = draw.one_of(&vendored);
        let seconds = draw.one_of(&[2_u16, 8, 25, 70, 200, 600]);
        let what = match draw.below(8) {
            0..=2 => Move::FolderAway { seconds },
            3 => Move::UnmountFolder { seconds },
            4 => Move::DiskFault { fault: Fault::FolderUnreadable, seconds },
            5 => Move::Mask { daemon },
            6 => Move::RestartAgent,
            _ => Move::PowerLoss { kept: draw.below(4) as u8, effect: None, reach: Reach::Refused },
        };
        insert_near(draw, moves, what);
    }
    vendored
}

/// In one life of three files override what the API server says, and are hurt then.
pub(super) fn add_overrides(draw: &mut Draw, daemons: &[Home], moves: &mut Vec<(i64, Move)>) {
    let of_both = (0..daemons.len() as u8).filter(|daemon| daemons[usize::from(*daemon)] == Home::Both);
    let of_both: Vec<u8> = of_both.collect();
    if draw.below(3) > 0 || of_both.is_empty() {
        return;
    }
    for _ in 0..1 + draw.below(2) {
        let daemon = draw.one_of(&of_both);
        let seconds = draw.one_of(&[25, 70, 200, 600]);
        insert_near(draw, moves, Move::Override { daemon, seconds });
        for _ in 0..draw.below(3) {
            let hurts = [Hurt::Empty, Hurt::Half, Hurt::DanglingLink, Hurt::Unreadable];
            let seconds = draw.one_of(&[8_u16, 25, 200]);
            let what = match draw.below(5) {
                0..=2 => Move::HurtFile { daemon, hurt: draw.one_of(&hurts), seconds },
                3 => Move::RestartAgent,
                _ => Move::PowerLoss { kept: draw.below(4) as u8, effect: None, reach: Reach::Refused },
            };
            insert_near(draw, moves, what);
        }
    }
}

/// In one life of three it changes what is selected here: by labels of the Node, or by a configuration. Gives which daemons
/// ask for a label.
pub(super) fn add_selection(draw: &mut Draw, daemons: &[Home], is_free: bool, moves: &mut Vec<(i64, Move)>) -> Vec<u8> {
    if draw.below(3) > 0 || !is_free {
        return Vec::new();
    }
    let selective = (0..daemons.len() as u8).filter(|_| draw.below(3) > 0).collect();
    for _ in 0..2 + draw.below(4) {
        let seconds = draw.one_of(&[2_u16, 8, 25, 70, 200]);
        // What a folder defines may take another template from the API, if the policy lets it.
        let is_mixed = daemons.contains(&Home::Both);
        let fewer = if is_mixed || draw.below(2) == 0 { Fewer::Folders } else { Fewer::Namespaces };
        let what = match draw.below(8) {
            0..=1 => Move::LabelNode { is_big: draw.below(2) == 0 },
            2..=3 => Move::Register { seconds },
            4..=5 => Move::SelectFewer { fewer, seconds },
            6 => Move::RestartAgent,
            _ => Move::PowerLoss { kept: draw.below(4) as u8, effect: None, reach: Reach::Refused },
        };
        insert_near(draw, moves, what);
    }
    selective
}
