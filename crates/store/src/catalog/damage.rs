//! The errors of a catalog whose entries are not what was written.

use hotshelf_tier::Corruption;

use crate::error::StoreError;
use crate::root::CATALOG;

pub(super) fn corruption(what: String, expected: String, found: String) -> Corruption {
    Corruption {
        file: CATALOG.into(),
        offset: 0,
        what: what.into(),
        expected,
        found,
    }
}

pub(super) fn damaged(found: String) -> StoreError {
    corruption("catalog entry".into(), "a readable entry".into(), found).into()
}
