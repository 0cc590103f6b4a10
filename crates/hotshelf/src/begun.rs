//! What all partitions of an operator share: begun by the first that asks, and theirs alone once all have asked.

use parking_lot::Mutex;

/// It ends with the partitions, not with the plan, which lives as long as the query.
pub(crate) struct Begun<T>(Mutex<Option<(T, Vec<bool>)>>);

impl<T> Default for Begun<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> Begun<T> {
    /// For one of these partitions: what another one began, or what `begin` gives.
    pub fn share<E>(
        &self,
        partition: usize,
        partitions: usize,
        begin: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let mut begun = self.0.lock();
        let (shared, mut asked) = match begun.take() {
            Some(begun) => begun,
            None => (begin()?, vec![false; partitions]),
        };
        if let Some(asked) = asked.get_mut(partition) {
            *asked = true;
        }
        if asked.contains(&false) {
            *begun = Some((shared.clone(), asked));
        }
        Ok(shared)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Weak};

    use super::*;

    #[test]
    fn it_is_kept_until_all_partitions_have_asked() {
        let begun = Begun::default();
        let share = |partition| begun.share(partition, 2, || Ok::<_, ()>(Arc::new(partition)));
        let first = share(0).unwrap();
        assert!(Arc::ptr_eq(&first, &share(0).unwrap()), "asked twice");
        let second = share(1).unwrap();
        assert!(Arc::ptr_eq(&first, &second));
        let weak: Weak<usize> = Arc::downgrade(&first);
        drop((first, second));
        assert!(weak.upgrade().is_none());
    }

    #[test]
    fn the_next_one_begins_after_a_failure() {
        let begun = Begun::<u8>::default();
        assert_eq!(begun.share(0, 2, || Err("no")), Err("no"));
        assert_eq!(begun.share(1, 2, || Ok::<_, &str>(7)), Ok(7));
    }
}
