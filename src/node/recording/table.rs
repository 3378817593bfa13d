//! The pieces of a recording, each once, and the frames that are made of them.
//!
//! Owns the bound of the recording in memory: the oldest frames go first, and with them the pieces that no other frame
//! needs.

use std::collections::HashMap;
use std::collections::VecDeque;

use flate2::Compress;
use flate2::Compression;
use flate2::FlushCompress;
use sha2::Digest;
use sha2::Sha256;

use crate::core::time::Timestamp;

use super::PieceName;

/// The most bytes of a recording in memory: the last hundred passes or so of a node with a hundred daemons.
pub(crate) const MAX_BYTES: usize = 1 << 20;
/// What a piece takes beside its bytes, about.
const PIECE_COSTS: usize = 128;

struct Piece {
    deflated: Box<[u8]>,
    parts: Box<[PieceName]>,
    /// How many frames and pieces are made of it.
    used: u32,
}

impl Piece {
    fn costs(&self) -> usize {
        PIECE_COSTS + self.deflated.len() + size_of_val(&*self.parts)
    }
}

/// One recorded pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordedFrame {
    pub(crate) at: Timestamp,
    pub(crate) root: PieceName,
}

#[derive(Default)]
pub(crate) struct PieceTable {
    pieces: HashMap<PieceName, Piece>,
    frames: VecDeque<RecordedFrame>,
    bytes: usize,
    /// Of pieces that have come since the last frame.
    fresh: usize,
    /// Some 300 KiB, held while a frame is encoded.
    compress: Option<Compress>,
}

impl PieceTable {
    /// Keeps a piece that is made of `parts` besides its bytes.
    pub(crate) fn put(&mut self, bytes: &[u8], parts: Vec<PieceName>) -> PieceName {
        let mut name = PieceName::default();
        name.copy_from_slice(&Sha256::digest(bytes)[..16]);
        if !self.pieces.contains_key(&name) {
            for part in &parts {
                self.pieces.entry(*part).and_modify(|piece| piece.used += 1);
            }
            let piece = Piece { deflated: self.deflate(bytes), parts: parts.into(), used: 0 };
            self.bytes += piece.costs();
            self.fresh += piece.costs();
            self.pieces.insert(name, piece);
        }
        name
    }

    /// `bytes`, deflated.
    pub(super) fn deflate(&mut self, bytes: &[u8]) -> Box<[u8]> {
        let compress = self.compress.get_or_insert_with(|| Compress::new(Compression::fast(), false));
        compress.reset();
        // What cannot be made smaller grows by a few bytes a block.
        let mut deflated = Vec::with_capacity(bytes.len() + bytes.len() / 8 + 64);
        let _ = compress.compress_vec(bytes, &mut deflated, FlushCompress::Finish);
        deflated.into()
    }

    /// Adds the frame `root`, and drops the oldest while there is too much.
    pub(crate) fn add(&mut self, at: Timestamp, root: PieceName) {
        self.pieces.entry(root).and_modify(|piece| piece.used += 1);
        self.frames.push_back(RecordedFrame { at, root });
        (self.compress, self.fresh) = (None, 0);
        while self.bytes > MAX_BYTES {
            let Some(oldest) = self.frames.pop_front() else { break };
            self.release(vec![oldest.root]);
        }
    }

    /// Whether the frame that is being encoded would take too much from those before it.
    pub(crate) fn is_too_much(&self) -> bool {
        self.fresh > MAX_BYTES / 2
    }

    /// Drops pieces that no frame uses, after a frame could not be encoded to its end.
    pub(crate) fn sweep(&mut self) {
        (self.compress, self.fresh) = (None, 0);
        loop {
            let unused: Vec<PieceName> =
                self.pieces.iter().filter(|(_, piece)| piece.used == 0).map(|(name, _)| *name).collect();
            if unused.is_empty() {
                return;
            }
            for part in unused.iter().flat_map(|name| self.remove(name)).collect::<Vec<_>>() {
                self.unuse(&part);
            }
        }
    }

    fn release(&mut self, mut names: Vec<PieceName>) {
        while let Some(name) = names.pop() {
            if self.unuse(&name) == Some(0) {
                names.extend(self.remove(&name));
            }
        }
    }

    fn unuse(&mut self, name: &PieceName) -> Option<u32> {
        let piece = self.pieces.get_mut(name)?;
        piece.used = piece.used.saturating_sub(1);
        Some(piece.used)
    }

    /// Gives what the piece was made of.
    fn remove(&mut self, name: &PieceName) -> Vec<PieceName> {
        let Some(piece) = self.pieces.remove(name) else { return Vec::new() };
        self.bytes -= piece.costs();
        piece.parts.into_vec()
    }

    /// The frames, oldest first.
    pub(crate) fn frames(&self) -> impl ExactSizeIterator<Item = &RecordedFrame> {
        self.frames.iter()
    }

    /// The pieces with their deflated bytes.
    pub(crate) fn pieces(&self) -> impl ExactSizeIterator<Item = (&PieceName, &[u8])> {
        self.pieces.iter().map(|(name, piece)| (name, &*piece.deflated))
    }

    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_frames_go_first_and_take_their_own_pieces_along() {
        let mut table = PieceTable::default();
        let common = table.put(b"in every frame", Vec::new());
        for number in 0..3_000_u32 {
            let own: Vec<u8> =
                (0..100).flat_map(|part: u32| Sha256::digest((number * 100 + part).to_le_bytes())).collect();
            let own = table.put(&own, Vec::new());
            let root = table.put(&number.to_le_bytes(), vec![common, own]);
            table.add(Timestamp::from_secs(i64::from(number)), root);
            assert!(table.bytes() <= MAX_BYTES);
        }
        let frames = table.frames().len();
        assert!((250..500).contains(&frames), "{frames}");
        assert_eq!(table.frames().next().unwrap().at, Timestamp::from_secs(3_000 - frames as i64));
        assert_eq!(table.pieces().len(), 2 * frames + 1);
        table.put(b"of no frame", vec![common]);
        table.sweep();
        for number in 0..MAX_BYTES / 64 {
            table.put(&Sha256::digest(number.to_le_bytes()), Vec::new());
        }
        assert!(table.is_too_much(), "one frame does not push all others out");
        table.sweep();
        assert!(!table.is_too_much());
        assert_eq!(table.pieces().len(), 2 * frames + 1);
    }
}
