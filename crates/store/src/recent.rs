//! Things that can be obtained again, by the time of their last use: the oldest that are not in use are dropped first.

use std::collections::HashMap;
use std::sync::Arc;

/// Shared things by their keys.
pub(crate) struct Recent<T> {
    by_key: HashMap<u64, RecentOne<T>>,
    clock: u64,
}

struct RecentOne<T> {
    one: Arc<T>,
    /// Number of the use among all uses.
    used_as: u64,
}

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self {
            by_key: HashMap::new(),
            clock: 0,
        }
    }
}

impl<T> Recent<T> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Whether there is one of this key.
    pub fn contains(&self, key: u64) -> bool {
        self.by_key.contains_key(&key)
    }

    /// The one of this key, used now.
    pub fn find(&mut self, key: u64) -> Option<Arc<T>> {
        let kept = self.by_key.get_mut(&key)?;
        self.clock += 1;
        kept.used_as = self.clock;
        Some(kept.one.clone())
    }

    /// Adds one, unless there is one of this key. Returns the one that stays.
    pub fn insert(&mut self, key: u64, one: Arc<T>) -> Arc<T> {
        if let Some(kept) = self.find(key) {
            return kept;
        }
        self.clock += 1;
        let kept = RecentOne {
            one: one.clone(),
            used_as: self.clock,
        };
        self.by_key.insert(key, kept);
        one
    }

    /// Takes one out.
    pub fn remove(&mut self, key: u64) -> Option<Arc<T>> {
        self.by_key.remove(&key).map(|kept| kept.one)
    }

    /// Those that have no other owner.
    pub fn idle(&self) -> impl Iterator<Item = &T> {
        let idle = self.by_key.values().filter(|kept| kept.is_idle());
        idle.map(|kept| &*kept.one)
    }

    /// The one that was idle for longest, and its key.
    pub fn oldest(&self) -> Option<(u64, &T)> {
        let idle = self.by_key.iter().filter(|(_, kept)| kept.is_idle());
        let (key, oldest) = idle.min_by_key(|(_, kept)| kept.used_as)?;
        Some((*key, &*oldest.one))
    }

    /// Takes out up to this many of those without another owner, the oldest, with their keys. They should be dropped
    /// without a lock.
    pub fn take_oldest(&mut self, count: usize) -> Vec<(u64, Arc<T>)> {
        let idle = self.by_key.iter().filter(|(_, kept)| kept.is_idle());
        let mut idle: Vec<(u64, u64)> = idle.map(|(key, kept)| (kept.used_as, *key)).collect();
        if idle.len() > count {
            idle.select_nth_unstable(count);
            idle.truncate(count);
        }
        let keys = idle.into_iter().map(|(_, key)| key);
        keys.filter_map(|key| Some((key, self.remove(key)?)))
            .collect()
    }
}

impl<T> RecentOne<T> {
    fn is_idle(&self) -> bool {
        Arc::strong_count(&self.one) == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_idle_go_first_and_those_in_use_stay() {
        let mut recent = Recent::default();
        let in_use = recent.insert(0, Arc::new(0));
        for key in 1..6 {
            recent.insert(key, Arc::new(key));
        }
        recent.find(1);
        assert_eq!(recent.oldest(), Some((2, &2)));
        let mut gone: Vec<u64> = recent.take_oldest(3).iter().map(|one| one.0).collect();
        gone.sort_unstable();
        assert_eq!((gone, recent.len()), (vec![2, 3, 4], 3));
        assert_eq!(recent.take_oldest(9).len(), 2);
        assert_eq!((recent.len(), *in_use), (1, 0));
        assert!(recent.idle().next().is_none());
    }

    #[test]
    fn the_first_of_a_key_stays() {
        let mut recent = Recent::default();
        recent.insert(7, Arc::new('a'));
        assert_eq!(*recent.insert(7, Arc::new('b')), 'a');
        assert_eq!((recent.len(), recent.remove(7).as_deref()), (1, Some(&'a')));
        assert!(recent.find(7).is_none());
    }
}
