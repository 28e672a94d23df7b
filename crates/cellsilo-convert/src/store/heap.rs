//! Strings of variable length inside records: HDF5's global heap (HDF5 File Format Specification, III.E).
//!
//! anndata 0.6 wrote its tables so. hdf5-pure reads such strings where they are whole elements, but has no door to those
//! that are fields of a record.
//!
//! ```text
//! reference   length u32 | address of the collection | index u32
//! collection  "GCOL" | version u8, 3 reserved | size u64 | objects
//! object      index u16 | reference count u16 | 4 reserved | size u64 | data, padded to 8 bytes
//! ```

use std::collections::HashMap;
use std::ops::Range;

use cellsilo::Result;

/// Bytes before the objects of a collection: signature, version, reserved, size.
const COLLECTION_HEADER: usize = 4 + 1 + 3 + 8;
/// Bytes before the data of an object: index, reference count, reserved, size.
const OBJECT_HEADER: usize = 2 + 2 + 4 + 8;
/// Largest collection read. libhdf5 makes them of 4 KiB, or as large as one string needs.
const MAX_COLLECTION_BYTES: u64 = 64 << 20;

/// A collection, and where its objects are in it.
struct Collection {
    address: u64,
    bytes: Vec<u8>,
    objects: HashMap<u32, Range<usize>>,
}

/// Resolves references. Keeps the last collection: the strings of a table follow each other.
pub(super) struct GlobalHeap<'a> {
    /// Reads bytes at an address of the file.
    read: &'a dyn Fn(u64, &mut [u8]) -> Result<()>,
    /// Added to every address.
    base: u64,
    last: Option<Collection>,
}

impl<'a> GlobalHeap<'a> {
    pub(super) fn new(base: u64, read: &'a dyn Fn(u64, &mut [u8]) -> Result<()>) -> Self {
        Self { read, base, last: None }
    }

    /// The text that a reference points to. An inner `None` says that the reference is damaged.
    pub(super) fn text(&mut self, reference: &[u8]) -> Result<Option<String>> {
        let Some((len, address, index)) = split_reference(reference) else { return Ok(None) };
        if len == 0 || address == 0 {
            return Ok(Some(String::new()));
        }
        let Some(collection) = self.collection(address)? else { return Ok(None) };
        let object = collection.objects.get(&index).map(|range| &collection.bytes[range.clone()]);
        Ok(object.and_then(|bytes| bytes.get(..len)).map(super::hdf5::padded_text))
    }

    fn collection(&mut self, address: u64) -> Result<Option<&Collection>> {
        if self.last.as_ref().is_none_or(|c| c.address != address) {
            self.last = self.load(address)?;
        }
        Ok(self.last.as_ref())
    }

    fn load(&self, address: u64) -> Result<Option<Collection>> {
        let Some(place) = self.base.checked_add(address) else { return Ok(None) };
        let mut header = [0; COLLECTION_HEADER];
        (self.read)(place, &mut header)?;
        let size = u64::from_le_bytes(header[8..16].try_into().expect("eight bytes"));
        if &header[..4] != b"GCOL" || header[4] != 1 || !(COLLECTION_HEADER as u64..=MAX_COLLECTION_BYTES).contains(&size) {
            return Ok(None);
        }
        let mut bytes = vec![0; size as usize];
        (self.read)(place, &mut bytes)?;
        Ok(Some(Collection { address, objects: objects(&bytes), bytes }))
    }
}

fn split_reference(bytes: &[u8]) -> Option<(usize, u64, u32)> {
    let (len, rest) = bytes.split_first_chunk::<4>()?;
    let (address, index) = rest.split_last_chunk::<4>()?;
    let mut wide = [0; 8];
    wide.get_mut(..address.len())?.copy_from_slice(address);
    Some((u32::from_le_bytes(*len) as usize, u64::from_le_bytes(wide), u32::from_le_bytes(*index)))
}

/// Walks the objects; index 0 is the free space at the end.
fn objects(bytes: &[u8]) -> HashMap<u32, Range<usize>> {
    let (mut found, mut at) = (HashMap::new(), COLLECTION_HEADER);
    while let Some(header) = bytes.get(at..at + OBJECT_HEADER) {
        let index = u16::from_le_bytes([header[0], header[1]]);
        let size = u64::from_le_bytes(header[8..16].try_into().expect("eight bytes"));
        let start = at + OBJECT_HEADER;
        let Some(end) = usize::try_from(size).ok().and_then(|n| start.checked_add(n)).filter(|&end| end <= bytes.len()) else { break };
        if index == 0 {
            break;
        }
        found.insert(u32::from(index), start..end);
        at = end.next_multiple_of(8);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_resolved_and_damage_is_told() {
        let mut file = b"GCOL\x01\0\0\0".to_vec();
        file.extend(64u64.to_le_bytes());
        file.extend([1, 0, 1, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0]);
        file.extend(b"hello\0\0\0");
        file.resize(64 + 8, 0);
        // The collection stands at address 8, behind 8 bytes of something else.
        let file: Vec<u8> = [vec![9; 8], file].concat();
        let read = |at: u64, out: &mut [u8]| {
            let at = at as usize;
            out.copy_from_slice(file.get(at..at + out.len()).ok_or_else(|| cellsilo::Error::invalid("past the end"))?);
            Ok(())
        };
        let reference =
            |len: u32, address: u64, index: u32| [&len.to_le_bytes()[..], &address.to_le_bytes(), &index.to_le_bytes()].concat();
        let mut heap = GlobalHeap::new(0, &read);
        assert_eq!(heap.text(&reference(5, 8, 1)).unwrap().as_deref(), Some("hello"));
        assert_eq!(heap.text(&reference(0, 0, 0)).unwrap().as_deref(), Some(""));
        assert_eq!(heap.text(&reference(6, 8, 1)).unwrap(), None, "longer than the object");
        assert_eq!(heap.text(&reference(5, 8, 2)).unwrap(), None, "no such object");
        assert_eq!(heap.text(&reference(5, 16, 1)).unwrap(), None, "no collection there");
        assert!(heap.text(&reference(5, 1 << 40, 1)).is_err());
    }
}
