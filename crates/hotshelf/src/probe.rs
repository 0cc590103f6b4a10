//! Measuring a tier, and keeping what follows from it with a database.
//!
//! [`probe`] measures what a [`Plan`] says, [`Derivation::of`] derives values from that, and [`HeldDatabase::keep`]
//! leaves them with a database, which uses them from the next opening on.

use std::path::{Path, PathBuf};

use hotshelf_store::StoreError;
use hotshelf_store::root::{CATALOG, Root, RootLock};

pub use hotshelf_tier::TierError;
pub use hotshelf_tier::emulated::DEVICE_NAMES;
pub use hotshelf_tier::probe::{
    Grouping, Operation, Pattern, PersistInstruction, Pinning, Placement, Plan, PlanOptions, Point,
    ProbeOptions, ProbeReport, ProbeTarget, Progress, Row, probe, resumable_count,
};
pub use hotshelf_tier::profile::{
    Derivation, Fingerprint, MachineProfile, ProfileOrigin, TierProfile,
};
pub use hotshelf_tier::topology::Topology;

use crate::error::Result;

/// A database that cannot be opened until this is dropped: no other work disturbs what is measured there.
#[derive(Debug)]
pub struct HeldDatabase {
    folder: PathBuf,
    _lock: RootLock,
}

impl HeldDatabase {
    /// Takes the lock of the database in `folder`.
    ///
    /// # Errors
    /// The folder holds no database, or the database is open.
    pub fn hold(folder: &Path) -> crate::Result<Self> {
        Ok(Self::lock(folder)?)
    }

    fn lock(folder: &Path) -> Result<Self> {
        let root = match folder.join(CATALOG).exists() {
            true => Root::open(folder)?,
            false => {
                let missing = StoreError::NotADatabase {
                    path: folder.to_owned(),
                    what: format!("it has no {CATALOG}"),
                };
                return Err(missing.into());
            }
        };
        let mut lock = root.lock()?;
        root.sign(&mut lock)?;
        Ok(Self {
            folder: folder.to_owned(),
            _lock: lock,
        })
    }

    /// Adds a tier to the database's profile. Returns what the profile was before.
    ///
    /// # Errors
    /// Nothing in `derivation` is certain, or the profile cannot be read or written.
    pub fn keep(
        &self,
        derivation: Derivation,
        topology: &Topology,
    ) -> Result<ProfileOrigin, TierError> {
        derivation.check()?;
        let profile = derivation.profile;
        let (mut machine, origin) = MachineProfile::load(&self.folder, topology)?;
        machine.tiers.insert(profile.tier.clone(), profile);
        machine.save(&self.folder)?;
        Ok(origin)
    }
}
