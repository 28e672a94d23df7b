//! Raw array elements to counts and indices.

use rayon::prelude::*;

use cellsilo::limits::MAX_COUNT;

/// A value this close to an integer is that integer: rounding noise of a float pipeline, not a fraction.
pub const COUNT_TOLERANCE: f64 = 1e-6;
/// Elements converted by one task.
const BLOCK: usize = 1 << 16;

/// Element type of an array, little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it all")]
pub enum Dtype {
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    F16,
    F32,
    F64,
}

impl Dtype {
    /// Size of an element in bytes.
    pub fn size(self) -> usize {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 | Self::F16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }

    /// The type of a NumPy kind (`i`, `u`, `f`, `b`) and size, if it is one of these.
    pub fn from_kind(kind: char, size: usize) -> Option<Self> {
        Some(match (kind, size) {
            ('i', 1) => Self::I8,
            ('i', 2) => Self::I16,
            ('i', 4) => Self::I32,
            ('i', 8) => Self::I64,
            ('u' | 'b', 1) => Self::U8,
            ('u', 2) => Self::U16,
            ('u', 4) => Self::U32,
            ('u', 8) => Self::U64,
            ('f', 2) => Self::F16,
            ('f', 4) => Self::F32,
            ('f', 8) => Self::F64,
            _ => return None,
        })
    }
}

/// Calls `$body` with `$get`, a function from an element's bytes to `i128` or `f64`.
macro_rules! each_type {
    ($dtype:expr, |$get:ident| $int:expr, |$float:ident| $flt:expr) => {
        match $dtype {
            Dtype::I8 => {
                let $get = |b: &[u8]| i128::from(b[0] as i8);
                $int
            }
            Dtype::U8 => {
                let $get = |b: &[u8]| i128::from(b[0]);
                $int
            }
            Dtype::I16 => {
                let $get = |b: &[u8]| i128::from(i16::from_le_bytes(b.try_into().expect("two bytes")));
                $int
            }
            Dtype::U16 => {
                let $get = |b: &[u8]| i128::from(u16::from_le_bytes(b.try_into().expect("two bytes")));
                $int
            }
            Dtype::I32 => {
                let $get = |b: &[u8]| i128::from(i32::from_le_bytes(b.try_into().expect("four bytes")));
                $int
            }
            Dtype::U32 => {
                let $get = |b: &[u8]| i128::from(u32::from_le_bytes(b.try_into().expect("four bytes")));
                $int
            }
            Dtype::I64 => {
                let $get = |b: &[u8]| i128::from(i64::from_le_bytes(b.try_into().expect("eight bytes")));
                $int
            }
            Dtype::U64 => {
                let $get = |b: &[u8]| i128::from(u64::from_le_bytes(b.try_into().expect("eight bytes")));
                $int
            }
            Dtype::F16 => {
                let $float = |b: &[u8]| half_to_f64(u16::from_le_bytes(b.try_into().expect("two bytes")));
                $flt
            }
            Dtype::F32 => {
                let $float = |b: &[u8]| f64::from(f32::from_le_bytes(b.try_into().expect("four bytes")));
                $flt
            }
            Dtype::F64 => {
                let $float = |b: &[u8]| f64::from_le_bytes(b.try_into().expect("eight bytes"));
                $flt
            }
        }
    };
}

/// Counts out of raw elements.
#[derive(Debug)]
pub struct Counts {
    /// The counts; explicit zeros are kept for the caller to drop with their genes.
    pub values: Vec<u32>,
    /// How many were not integers to the last bit.
    pub noisy: u64,
}

/// The first element that is not a count.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NotACount {
    /// Index of the element.
    pub position: usize,
    /// Its value.
    pub value: f64,
}

impl NotACount {
    /// What is wrong with the value.
    pub fn why(&self) -> &'static str {
        if self.value.is_nan() {
            "is not a number"
        } else if self.value < 0.0 {
            "is negative"
        } else if self.value.is_infinite() || self.value > f64::from(MAX_COUNT) {
            "is above 2147483647"
        } else {
            "is not an integer"
        }
    }
}

/// Converts little-endian elements to counts, in parallel.
///
/// Integers of 0 to 2^31 - 1 are counts, and so are floats within [`COUNT_TOLERANCE`] of one.
///
/// # Errors
/// The first element that is something else.
pub fn counts(bytes: &[u8], dtype: Dtype) -> Result<Counts, NotACount> {
    let size = dtype.size();
    let mut values = vec![0u32; bytes.len() / size];
    let noisy = values
        .par_chunks_mut(BLOCK)
        .zip(bytes.par_chunks(BLOCK * size))
        .enumerate()
        .map(|(k, (out, bytes))| convert_block(bytes, dtype, out).map_err(|bad| NotACount { position: k * BLOCK + bad.position, ..bad }))
        // Keeps the first of several faults, whatever the order the blocks are done in.
        .map(|result| result.map_or_else(|bad| (0, Some(bad)), |noisy| (noisy, None)))
        .reduce(|| (0, None), |a, b| (a.0 + b.0, [a.1, b.1].into_iter().flatten().min_by_key(|bad| bad.position)));
    match noisy {
        (_, Some(bad)) => Err(bad),
        (noisy, None) => Ok(Counts { values, noisy }),
    }
}

fn convert_block(bytes: &[u8], dtype: Dtype, out: &mut [u32]) -> Result<u64, NotACount> {
    let elements = bytes.chunks_exact(dtype.size());
    let mut noisy = 0;
    each_type!(
        dtype,
        |get| {
            for (position, (out, b)) in out.iter_mut().zip(elements).enumerate() {
                let value = get(b);
                match u32::try_from(value) {
                    Ok(count) if count <= MAX_COUNT => *out = count,
                    _ => return Err(NotACount { position, value: value as f64 }),
                }
            }
        },
        |get| {
            for (position, (out, b)) in out.iter_mut().zip(elements).enumerate() {
                let value = get(b);
                // The cast saturates, and NaN becomes 0: the difference below shows both.
                let count = (value + 0.5) as u32;
                let off = (value - f64::from(count)).abs();
                if off != 0.0 {
                    if off.is_nan() || off > COUNT_TOLERANCE {
                        return Err(NotACount { position, value });
                    }
                    noisy += 1;
                }
                if count > MAX_COUNT {
                    return Err(NotACount { position, value });
                }
                *out = count;
            }
        }
    );
    Ok(noisy)
}

/// Converts little-endian integers to `u64`; `None` at the first that is negative or a float.
pub fn indices(bytes: &[u8], dtype: Dtype) -> Option<Vec<u64>> {
    let elements = bytes.chunks_exact(dtype.size());
    each_type!(dtype, |get| elements.map(|b| u64::try_from(get(b)).ok()).collect(), |_get| None)
}

/// As [`indices`], for values that fit in 32 bits (genes and cells), in parallel.
pub fn indices_u32(bytes: &[u8], dtype: Dtype) -> Option<Vec<u32>> {
    let size = dtype.size();
    each_type!(dtype, |get| bytes.par_chunks_exact(size).with_min_len(BLOCK).map(|b| u32::try_from(get(b)).ok()).collect(), |_get| None)
}

/// The elements as text: integers plainly, floats in the shortest form that reads back.
pub fn texts(bytes: &[u8], dtype: Dtype) -> Vec<String> {
    let elements = bytes.chunks_exact(dtype.size());
    each_type!(dtype, |get| elements.map(|b| get(b).to_string()).collect(), |get| elements.map(|b| get(b).to_string()).collect())
}

/// IEEE 754 binary16 to f64.
fn half_to_f64(bits: u16) -> f64 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
    let magnitude = match exponent {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1.0 + fraction / 1024.0) * 2f64.powi(exponent - 15),
    };
    if bits >> 15 == 1 { -magnitude } else { magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(values: &[f64]) -> Result<Counts, NotACount> {
        counts(&values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>(), Dtype::F64)
    }

    #[test]
    fn noise_is_rounded_and_everything_else_refused() {
        let good = floats(&[0.0, -0.0, 1.0, 1_087.999_999_999_99, 2_147_483_647.0, -1e-9, 3.000_000_9]).unwrap();
        assert_eq!((good.values, good.noisy), (vec![0, 0, 1, 1088, 2_147_483_647, 0, 3], 3));
        for (value, why) in [
            (0.5, "integer"),
            (1.000_01, "integer"),
            (-1.0, "negative"),
            (f64::NAN, "number"),
            (f64::INFINITY, "above"),
            (f64::NEG_INFINITY, "negative"),
            (2_147_483_648.0, "above"),
            (1e300, "above"),
            (4_294_967_296.0, "above"),
        ] {
            let bad = floats(&[1.0, value]).unwrap_err();
            assert_eq!(bad.position, 1);
            assert!(bad.why().contains(why), "{value}: {}", bad.why());
        }
    }

    #[test]
    fn integers_of_all_kinds() {
        assert_eq!(counts(&[1, 255], Dtype::U8).unwrap().values, [1, 255]);
        assert_eq!(counts(&[1, 255], Dtype::I8).unwrap_err().value, -1.0);
        assert_eq!(counts(&(1u64 << 40).to_le_bytes(), Dtype::U64).unwrap_err().why(), "is above 2147483647");
        assert_eq!(indices(&[255], Dtype::I8), None);
        assert_eq!(indices_u32(&[3, 0, 4, 0], Dtype::I16), Some(vec![3, 4]));
    }

    #[test]
    fn the_first_fault_is_named_whatever_the_threads() {
        let mut values = vec![1.0; 5 * BLOCK];
        values[4 * BLOCK] = 0.5;
        values[BLOCK + 7] = 0.25;
        assert_eq!(floats(&values).unwrap_err(), NotACount { position: BLOCK + 7, value: 0.25 });
    }

    #[test]
    fn half_floats() {
        let value = |bits: u16| half_to_f64(bits);
        assert_eq!((value(0x3c00), value(0xc000), value(0x7bff), value(0x0001)), (1.0, -2.0, 65504.0, 2f64.powi(-24)));
        assert!(value(0x7e00).is_nan() && value(0xfc00) == f64::NEG_INFINITY);
    }
}
