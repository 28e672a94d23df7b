//! LZF decompression (the format of LibLZF, HDF5 filter 32000, which h5py brings along).
//!
//! A stream of instructions: a byte below 32 is followed by that many plus one literal bytes; any other is a
//! back reference, its upper three bits the length (7: another byte follows) and the rest the high bits of the
//! distance.

/// Decompresses into exactly `out`; `None` if the input does not give that.
pub(super) fn decompress(mut input: &[u8], out: &mut [u8]) -> Option<()> {
    let mut at = 0;
    while let Some((&control, rest)) = input.split_first() {
        input = rest;
        if control < 32 {
            let (literals, rest) = input.split_at_checked(usize::from(control) + 1)?;
            out.get_mut(at..at + literals.len())?.copy_from_slice(literals);
            at += literals.len();
            input = rest;
            continue;
        }
        let mut len = usize::from(control >> 5) + 2;
        if len == 9 {
            let (&more, rest) = input.split_first()?;
            len += usize::from(more);
            input = rest;
        }
        let (&low, rest) = input.split_first()?;
        input = rest;
        let from = at.checked_sub((usize::from(control & 31) << 8 | usize::from(low)) + 1)?;
        if at + len > out.len() {
            return None;
        }
        // The reference may overlap what it writes, so bytes are copied one by one.
        for i in 0..len {
            out[at + i] = out[from + i];
        }
        at += len;
    }
    (at == out.len()).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_references_and_damage() {
        // "abc", then 6 bytes from 3 back.
        let packed = [2, b'a', b'b', b'c', 4 << 5, 2];
        let mut out = [0; 9];
        decompress(&packed, &mut out).unwrap();
        assert_eq!(&out, b"abcabcabc");
        assert!(decompress(&packed, &mut [0; 8]).is_none());
        assert!(decompress(&packed, &mut [0; 10]).is_none());
        assert!(decompress(&[4 << 5, 2], &mut out).is_none());
        (0..packed.len()).for_each(|n| assert!(decompress(&packed[..n], &mut out).is_none()));
    }
}
