//! Keeping a thread on chosen CPUs.

use rustix::thread::{CpuSet, sched_setaffinity};

use crate::error::TierError;

/// Lets the calling thread run on these CPUs only. Numbers beyond what the system knows are ignored.
///
/// # Errors
/// [`TierError::System`] if none of them may be used.
pub fn pin_to(cpus: &[u32]) -> Result<(), TierError> {
    let mut set = CpuSet::new();
    let known = cpus.iter().filter(|cpu| (**cpu as usize) < CpuSet::MAX_CPU);
    known.for_each(|cpu| set.set(*cpu as usize));
    let pinned = sched_setaffinity(None, &set);
    pinned.map_err(|errno| TierError::system("keep a thread on chosen CPUs", errno.into()))
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
}
