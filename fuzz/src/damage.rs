//! Damaged inputs without a fuzzer: for tests that run at every change.

/// Numbers that look random and are the same each time (SplitMix64).
pub struct Draw(pub u64);

impl Draw {
    /// From 0 until before the limit.
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % limit.max(1) as u64) as usize
    }
}

/// What network, disk and malice do: bytes changed, lost, doubled, moved, cut, or taken from another input.
pub fn damage(draw: &mut Draw, seeds: &[Vec<u8>]) -> Vec<u8> {
    const TELLING: &[u8] = b"\0\n\r \t\"'<>&;:,./%\\-+=0189azAZ{}[]\x7f\x80\xff";
    let mut bytes = seeds[draw.below(seeds.len())].clone();
    for _ in 0..=draw.below(6) {
        let at = draw.below(bytes.len() + 1);
        let to = at + draw.below((bytes.len() - at).min(32) + 1);
        match draw.below(7) {
            0 if at < bytes.len() => bytes[at] ^= 1 << draw.below(8),
            1 if at < bytes.len() => bytes[at] = TELLING[draw.below(TELLING.len())],
            2 => bytes.insert(at, TELLING[draw.below(TELLING.len())]),
            3 => drop(bytes.drain(at..to)),
            4 => {
                let piece = bytes[at..to].to_vec();
                let where_to = draw.below(bytes.len() + 1);
                drop(bytes.splice(where_to..where_to, piece));
            }
            5 => bytes.truncate(at),
            _ => {
                let other = &seeds[draw.below(seeds.len())];
                let from = draw.below(other.len() + 1);
                drop(bytes.splice(at..to, other[from..].iter().copied().take(64)));
            }
        }
    }
    bytes
}
