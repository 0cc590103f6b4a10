//! Pure: which bits of a set of keys tell them apart, packed into numbers that compare like the keys.
//!
//! Keys of a set agree in most of their bits: small numbers begin with zeros, columns without NULLs have one flag. The
//! bits that differ often fit into 64, and then rows are sorted without a look at their keys.

/// The bits of a prefix.
const PREFIX_BITS: u32 = 64;

/// In which bits the keys of a set differ.
#[derive(Debug, Clone, Default)]
pub(super) struct KeySurvey {
    /// One of the keys, up to the length of the shortest. `None`: there are no keys yet.
    sample: Option<Vec<u8>>,
    /// For each byte of the sample the bits in which a key differs from it.
    differing: Vec<u8>,
    len_max: usize,
}

impl KeySurvey {
    pub(super) fn add(&mut self, key: &[u8]) {
        let Some(sample) = &mut self.sample else {
            self.sample = Some(key.to_vec());
            self.differing = vec![0; key.len()];
            self.len_max = key.len();
            return;
        };
        if key.len() != sample.len() {
            self.len_max = self.len_max.max(key.len());
            sample.truncate(key.len());
            self.differing.truncate(key.len());
        }
        let bytes = sample.iter().zip(key);
        for (differing, (a, b)) in self.differing.iter_mut().zip(bytes) {
            *differing |= a ^ b;
        }
    }

    pub(super) fn add_all(&mut self, other: &Self) {
        let Some(key) = &other.sample else {
            return;
        };
        self.add(key);
        self.len_max = self.len_max.max(other.len_max);
        for (differing, others) in self.differing.iter_mut().zip(&other.differing) {
            *differing |= others;
        }
    }

    /// The first bits that tell keys of the set apart.
    pub(super) fn selection(&self) -> Selection {
        // Behind the end of the shortest key, all bytes may differ.
        let rest = self.differing.len()..self.len_max;
        let differing = self.differing.iter().copied().chain(rest.map(|_| 0xff));
        let mut selection = Selection {
            spans: Vec::new(),
            bits: 0,
            end: 0,
            is_complete: self.differing.len() == self.len_max,
        };
        for (byte, differing) in differing.enumerate().filter(|(_, bits)| *bits != 0) {
            if !selection.add_byte(byte, differing) {
                selection.is_complete = false;
                break;
            }
        }
        selection
    }
}

/// Bits of keys of one set. They compare like the keys, as far as they go.
#[derive(Debug, Clone)]
pub(super) struct Selection {
    spans: Vec<Span>,
    bits: u32,
    end: usize,
    is_complete: bool,
}

/// The last `bits` bits in front of byte `end` of a key.
#[derive(Debug, Clone, Copy)]
struct Span {
    end: usize,
    bits: u32,
}

impl Selection {
    fn add_byte(&mut self, byte: usize, differing: u8) -> bool {
        let adjoining = self.spans.last_mut().filter(|span| span.end == byte);
        let bits = match adjoining {
            Some(_) => 8,
            None => 8 - differing.leading_zeros(),
        };
        if self.bits + bits > PREFIX_BITS {
            return false;
        }
        match adjoining {
            Some(span) => {
                *span = Span {
                    end: byte + 1,
                    bits: span.bits + bits,
                }
            }
            None => self.spans.push(Span {
                end: byte + 1,
                bits,
            }),
        }
        self.bits += bits;
        self.end = byte + 1;
        true
    }

    /// Whether keys with equal prefixes are equal.
    pub(super) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Keys with equal prefixes are equal up to this byte.
    pub(super) fn end(&self) -> usize {
        self.end
    }

    /// What of a key its prefix does not say: nothing if the selection is complete.
    pub(super) fn rest<'a>(&self, key: &'a [u8]) -> &'a [u8] {
        match self.is_complete {
            true => &[],
            false => key.get(self.end..).unwrap_or(&[]),
        }
    }

    /// The selected bits of a key, the first one on top.
    pub(super) fn prefix(&self, key: &[u8]) -> u64 {
        let mut prefix: u64 = 0;
        for span in &self.spans {
            let bits = last_bytes(key, span.end) & (u64::MAX >> (PREFIX_BITS - span.bits));
            prefix = prefix.checked_shl(span.bits).unwrap_or(0) | bits;
        }
        prefix.checked_shl(PREFIX_BITS - self.bits).unwrap_or(0)
    }
}

/// The eight bytes in front of byte `end`, with zeros where the key has none.
fn last_bytes(key: &[u8], end: usize) -> u64 {
    let mut bytes = [0; 8];
    if let Some(found) = end.checked_sub(8).and_then(|start| key.get(start..end)) {
        bytes.copy_from_slice(found);
        return u64::from_be_bytes(bytes);
    }
    for (byte, at) in bytes.iter_mut().rev().zip((0..end).rev()) {
        *byte = key.get(at).copied().unwrap_or(0);
    }
    u64::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn survey(keys: &[Vec<u8>]) -> KeySurvey {
        let mut survey = KeySurvey::default();
        keys.iter().for_each(|key| survey.add(key));
        survey
    }

    /// Keys of which none is the start of another, as keys of rows are.
    fn keys(byte: impl Strategy<Value = u8> + Clone) -> impl Strategy<Value = Vec<Vec<u8>>> {
        let fixed = (0usize..24).prop_flat_map({
            let byte = byte.clone();
            move |len| vec(vec(byte.clone(), len), 0..30)
        });
        let ended = vec(vec(byte.prop_map(|byte| byte.max(1)), 0..24), 0..30);
        let ended = ended.prop_map(|mut keys| {
            keys.iter_mut().for_each(|key| key.push(0));
            keys
        });
        prop_oneof![fixed, ended]
    }

    proptest! {
        #[test]
        fn prefixes_compare_like_keys(
            keys in prop_oneof![keys(any::<u8>()), keys(0u8..3), keys(prop_oneof![Just(7), Just(135)])],
            split in 0usize..30,
        ) {
            let (some, others) = keys.split_at(split.min(keys.len()));
            let mut both = survey(some);
            both.add_all(&survey(others));
            for selection in [survey(&keys).selection(), both.selection()] {
                for (a, b) in keys.iter().flat_map(|a| keys.iter().map(move |b| (a, b))) {
                    let prefixes = selection.prefix(a).cmp(&selection.prefix(b));
                    let end = |key: &[u8]| selection.end().min(key.len());
                    if prefixes.is_ne() {
                        prop_assert_eq!(prefixes, a.cmp(b));
                    } else if selection.is_complete() {
                        prop_assert_eq!(a, b);
                    } else {
                        prop_assert_eq!(&a[..end(a)], &b[..end(b)]);
                    }
                }
            }
        }
    }

    #[test]
    fn two_small_numbers_without_nulls_fit() {
        let key = |a: i64, b: i64| {
            let mut key = vec![1];
            key.extend((a ^ i64::MIN).to_be_bytes());
            key.push(1);
            key.extend((b ^ i64::MIN).to_be_bytes());
            key
        };
        let selection = survey(&[key(0, 0), key(100_000_000, 60_000_000), key(5, 9)]).selection();
        assert!(selection.is_complete());
        assert_eq!(selection.bits, 27 + 26);
    }
}
