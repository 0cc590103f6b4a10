//! Which values the engine follows on which tiers. The others may be true of a device, and serve to judge it, but its
//! profile does without them.

use super::defaults::unmeasured;
use super::{TierProfile, Value};

pub(super) const UNUSED: &str = "nothing follows it on such a tier";

impl TierProfile {
    /// Forgets what nothing follows. Files are read and written by the I/O engine; memory is read by loads, in which
    /// only the number of threads makes a difference, and written by those who fill a shelf. For the memory that
    /// queries work in it also matters where threads run, and what it costs beside the device.
    pub(super) fn keep_used(&mut self) {
        let defaults = Self::defaults(&self.tier, self.read_threads.value);
        let (file, dram) = (self.tier.starts_with("file:"), self.tier == "dram");
        let node = self.tier.starts_with("node:");
        if !file {
            forget(&mut self.read_grain_bytes, defaults.read_grain_bytes);
            forget(&mut self.serialise, defaults.serialise);
            forget(&mut self.write_bandwidth_bytes_per_s, unmeasured());
            forget(&mut self.queue_depth, defaults.queue_depth);
        }
        if !dram {
            forget(&mut self.read_pinning, defaults.read_pinning);
            forget(&mut self.stripe_sockets, defaults.stripe_sockets);
        }
        if !dram && !node {
            forget(&mut self.near_only, defaults.near_only);
        }
        if !dram && !file {
            forget(&mut self.access_ns, unmeasured());
            forget(&mut self.read_bandwidth_bytes_per_s, unmeasured());
        }
    }
}

fn forget<T>(value: &mut Value<T>, default: Value<T>) {
    *value = Value {
        reason: UNUSED.to_owned(),
        ..default
    };
}

#[cfg(test)]
mod tests {
    use crate::emulated::recorded_rows;
    use crate::profile::{DeriveInput, derive};

    fn used(tier: &str) -> Vec<&'static str> {
        let mut profile = derive(&DeriveInput {
            tier,
            rows: &recorded_rows("optane100-128"),
            physical_cores: 18,
        });
        profile.keep_used();
        profile.lines().iter().map(|line| line.name).collect()
    }

    #[test]
    fn each_tier_has_the_values_that_something_follows() {
        let of_shelf = ["read_threads", "write_threads", "write_grain_bytes"];
        assert_eq!(used("emulated:optane100-128"), of_shelf);
        assert_eq!(used("dax:/mnt/pmem"), of_shelf);
        assert_eq!(used("node:1"), [&of_shelf[..], &["near_only"]].concat());
        let of_dram = ["read_pinning", "near_only", "stripe_sockets", "access_ns"];
        let bandwidth = ["read_bandwidth_bytes_per_s"];
        assert_eq!(used("dram"), [&of_shelf[..], &of_dram, &bandwidth].concat());
        let file = used("file:/data");
        assert!(
            ["serialise", "queue_depth"]
                .iter()
                .all(|name| file.contains(name)),
            "{file:?}"
        );
        assert!(
            ["near_only", "read_pinning"]
                .iter()
                .all(|name| !file.contains(name)),
            "{file:?}"
        );
    }
}
