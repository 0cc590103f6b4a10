//! Part of a grant, returned when it is dropped.

use std::sync::Arc;

use super::Grant;

/// Bytes that the grant lends until this is dropped.
pub(crate) struct Charge {
    grant: Arc<Grant>,
    bytes: u64,
}

impl Charge {
    /// No bytes of the same grant.
    pub fn empty(&self) -> Self {
        Self::adopt(&self.grant, 0)
    }

    /// More bytes, if the broker agrees.
    pub fn try_grow(&mut self, bytes: u64) -> bool {
        let grows = self.grant.try_grow(bytes);
        self.bytes += if grows { bytes } else { 0 };
        grows
    }

    /// More bytes, whatever the broker thinks of it.
    pub fn grow(&mut self, bytes: u64) {
        self.grant.grow(bytes);
        self.bytes += bytes;
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes over more bytes that the grant lends already.
    pub fn adopt_more(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// Keeps `bytes`.
    pub fn shrink_to(&mut self, bytes: u64) {
        self.grant.shrink(self.bytes.saturating_sub(bytes));
        self.bytes = self.bytes.min(bytes);
    }

    /// Takes over bytes that the grant lends already.
    pub fn adopt(grant: &Arc<Grant>, bytes: u64) -> Self {
        let grant = Arc::clone(grant);
        Self { grant, bytes }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.grant.shrink(self.bytes);
    }
}
