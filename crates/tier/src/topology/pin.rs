//! Keeping a thread on chosen CPUs.

use std::marker::PhantomData;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::error::TierError;

/// Lets the calling thread run on these CPUs only. Numbers beyond what the system knows are ignored.
///
/// # Errors
/// [`TierError::System`] if none of them may be used.
pub fn pin_to(cpus: &[u32]) -> Result<(), TierError> {
    let pinned = sched_setaffinity(None, &set_of(cpus));
    pinned.map_err(|errno| TierError::system("keep a thread on chosen CPUs", errno.into()))
}

/// The CPUs that the calling thread may run on; none where the system does not say.
pub fn allowed_cpus() -> Vec<u32> {
    let set = sched_getaffinity(None).unwrap_or_default();
    let cpus = (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu));
    cpus.map(|cpu| cpu as u32).collect()
}

fn set_of(cpus: &[u32]) -> CpuSet {
    let mut set = CpuSet::new();
    let known = cpus.iter().filter(|cpu| (**cpu as usize) < CpuSet::MAX_CPU);
    known.for_each(|cpu| set.set(*cpu as usize));
    set
}

/// While it lives, its thread runs on chosen CPUs only; then where it ran before.
#[derive(Debug)]
pub struct Near {
    before: CpuSet,
    /// A thread's own: it must end where it began.
    _thread: PhantomData<*const ()>,
}

impl Near {
    /// Lets the calling thread run on these CPUs only. None where the system refuses: it then stays where it is.
    pub fn to(cpus: &[u32]) -> Option<Self> {
        let before = sched_getaffinity(None).ok()?;
        sched_setaffinity(None, &set_of(cpus)).ok()?;
        Some(Self {
            before,
            _thread: PhantomData,
        })
    }
}

impl Drop for Near {
    fn drop(&mut self) {
        if let Err(error) = sched_setaffinity(None, &self.before) {
            tracing::debug!(%error, "a thread stays on chosen CPUs");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use rustix::thread::sched_getcpu;

    use super::*;
    use crate::topology::Topology;

    #[test]
    fn a_pinned_thread_runs_where_it_was_pinned() {
        let topology = Topology::read();
        let cpus = topology.nodes.iter().flat_map(|node| &node.cpus);
        for cpu in cpus.copied() {
            let ran_on = thread::spawn(move || pin_to(&[cpu]).map(|()| sched_getcpu()));
            if let Ok(ran_on) = ran_on.join().unwrap() {
                assert_eq!(ran_on, cpu as usize);
            }
        }
        assert!(thread::spawn(|| pin_to(&[])).join().unwrap().is_err());
    }

    #[test]
    fn a_thread_is_near_for_a_while() {
        let before = allowed_cpus();
        for cpu in &before {
            let Some(near) = Near::to(&[*cpu]) else {
                continue;
            };
            let now = (allowed_cpus(), sched_getcpu());
            assert_eq!(now, (vec![*cpu], *cpu as usize));
            drop(near);
            assert_eq!(allowed_cpus(), before);
        }
        assert!(Near::to(&[]).is_none());
        assert_eq!(allowed_cpus(), before);
    }
}
