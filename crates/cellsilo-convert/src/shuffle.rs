//! A random order of any number of cells, without a table of it.

/// A permutation of `0..n` from a seed.
///
/// A balanced Feistel network over the smallest even number of bits that holds `n`, walked until it stays below
/// `n` (Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002, the cycle-walking cipher).
/// Needs no memory, so a billion cells can be shuffled.
#[derive(Debug, Clone, Copy)]
pub struct Permutation {
    n: u64,
    half_bits: u32,
    keys: [u64; Self::ROUNDS],
}

impl Permutation {
    const ROUNDS: usize = 6;

    /// The permutation of `0..n` for `seed`.
    pub fn new(n: u64, seed: u64) -> Self {
        let bits = 64 - n.saturating_sub(1).leading_zeros();
        let mut keys = [0; Self::ROUNDS];
        keys.iter_mut().enumerate().for_each(|(i, key)| *key = mix(seed ^ mix(i as u64 + 1)));
        Self { n, half_bits: bits.div_ceil(2).max(1), keys }
    }

    /// Where cell `i` goes.
    ///
    /// # Panics
    /// If `i` is not below `n`.
    pub fn apply(&self, i: u64) -> u64 {
        assert!(i < self.n, "cell {i} of {}", self.n);
        let mask = (1u64 << self.half_bits) - 1;
        let mut value = i;
        loop {
            let (mut left, mut right) = (value >> self.half_bits, value & mask);
            for key in self.keys {
                (left, right) = (right, left ^ mix(right ^ key) & mask);
            }
            value = left << self.half_bits | right;
            if value < self.n {
                return value;
            }
        }
    }
}

/// The finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_permutation_that_depends_on_the_seed() {
        for n in [0, 1, 2, 3, 5, 64, 65, 1000, 4097] {
            for seed in [0, 1, 77] {
                let p = Permutation::new(n, seed);
                let mut seen: Vec<u64> = (0..n).map(|i| p.apply(i)).collect();
                seen.sort_unstable();
                assert_eq!(seen, (0..n).collect::<Vec<_>>());
            }
        }
        let (a, b) = (Permutation::new(1000, 1), Permutation::new(1000, 2));
        assert!((0..1000).filter(|&i| a.apply(i) == b.apply(i)).count() < 10);
    }

    #[test]
    fn neighbours_part_and_places_are_even() {
        // Cells of the first tenth land in each tenth about equally often: chi-squared, 9 degrees of freedom.
        let n = 100_000;
        let p = Permutation::new(n, 42);
        let mut tenths = [0f64; 10];
        (0..n / 10).for_each(|i| tenths[(p.apply(i) * 10 / n) as usize] += 1.0);
        let chi: f64 = tenths.iter().map(|t| (t - 1000.0).powi(2) / 1000.0).sum();
        assert!(chi < 28.0, "{tenths:?}");
        let steps = (0..n - 1).filter(|&i| p.apply(i).abs_diff(p.apply(i + 1)) < n / 100).count() as f64;
        assert!((steps / n as f64 - 0.02).abs() < 0.005, "{steps}");
    }
}
