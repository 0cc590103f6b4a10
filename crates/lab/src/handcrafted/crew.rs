//! Threads, where they run, and which rows are theirs.

use std::ops::Range;
use std::thread;

use hotshelf_tier::topology::{Topology, pin_to};

/// The steps of the paper's table 1, each with those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Step {
    /// One thread
    OneThread,
    /// All threads of one socket
    AllThreads,
    /// Two sockets, without regard to which memory is near
    TwoSockets,
    /// Threads on the sockets whose memory they read
    Numa,
    /// Each thread on a core of its own
    Pinning,
}

impl Step {
    pub fn name(self) -> &'static str {
        match self {
            Self::OneThread => "one-thread",
            Self::AllThreads => "all-threads",
            Self::TwoSockets => "two-sockets",
            Self::Numa => "numa",
            Self::Pinning => "pinning",
        }
    }
}

/// The sockets that are used, of this machine or *emulated* ones that its CPUs are divided among.
#[derive(Debug, Clone)]
pub struct Crew {
    step: Step,
    sockets: Vec<Socket>,
    /// What this machine cannot show.
    pub missing: Option<&'static str>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Socket {
    /// Where memory for it comes from; `None` if the kernel is to choose.
    node: Option<u32>,
    cores: Vec<u32>,
}

/// A thread's part of the work.
#[derive(Debug, Clone)]
pub struct Worker {
    pub socket: usize,
    cpus: Option<Vec<u32>>,
    /// Which rows of which stripe are its own: a part of every stripe, or of its socket's only.
    pub parts: Vec<(usize, Range<usize>)>,
    /// Whether it runs on the socket of all the memory that it reads.
    pub is_near: bool,
}

impl Crew {
    /// Of this machine. With one socket, the steps that need two are done on it and say so.
    pub fn new(topology: &Topology, step: Step, threads: usize) -> Self {
        let with_cpus = topology.nodes.iter().filter(|node| !node.cpus.is_empty());
        let mut sockets: Vec<Socket> = with_cpus
            .map(|node| Socket {
                node: Some(node.id),
                cores: cores(topology, &node.cpus),
            })
            .collect();
        if sockets.len() < 2 {
            // The kernel's choice is the only one, and binding may not be allowed.
            let cpus = available_cpus(topology);
            sockets = vec![Socket {
                node: None,
                cores: cpus,
            }];
        }
        let missing = (sockets.len() < 2 && step >= Step::TwoSockets).then_some("one socket only");
        if step < Step::TwoSockets {
            sockets.truncate(1);
        }
        Self {
            step,
            sockets,
            missing,
        }
        .with_threads(threads)
    }

    /// Two *emulated* sockets, each with half of the CPUs.
    pub fn emulated_sockets(topology: &Topology, step: Step, threads: usize) -> Self {
        let cores = available_cpus(topology);
        let sockets = match step >= Step::TwoSockets && cores.len() > 1 {
            true => cores
                .chunks(cores.len().div_ceil(2))
                .map(<[u32]>::to_vec)
                .collect(),
            false => vec![cores],
        };
        let sockets = sockets
            .into_iter()
            .map(|cores| Socket { node: None, cores })
            .collect();
        Self {
            step,
            sockets,
            missing: None,
        }
        .with_threads(threads)
    }

    fn with_threads(mut self, threads: usize) -> Self {
        let threads = if self.step == Step::OneThread {
            1
        } else {
            threads.max(self.sockets.len())
        };
        let socket_count = self.sockets.len();
        for (idx, socket) in self.sockets.iter_mut().enumerate() {
            // The first sockets have the threads that do not divide evenly; more threads than cores share them in turn.
            let own = (threads + socket_count - 1 - idx) / socket_count;
            socket.cores = socket.cores.iter().copied().cycle().take(own).collect();
        }
        self
    }

    /// The node of each stripe's memory.
    pub fn nodes(&self) -> Vec<Option<u32>> {
        self.sockets.iter().map(|socket| socket.node).collect()
    }

    pub fn thread_count(&self) -> usize {
        self.sockets.iter().map(|socket| socket.cores.len()).sum()
    }

    /// A worker on each socket, without rows.
    pub fn one_per_socket(&self) -> Vec<Worker> {
        let none = vec![0; self.sockets.len()];
        let mut workers = self.workers(&none);
        workers.dedup_by_key(|worker| worker.socket);
        workers
    }

    /// All threads and their parts of stripes of these lengths.
    pub fn workers(&self, stripe_rows: &[usize]) -> Vec<Worker> {
        let is_near = self.step >= Step::Numa || self.sockets.len() == 1;
        let count = self.thread_count();
        let mut workers = Vec::with_capacity(count);
        for (socket_idx, socket) in self.sockets.iter().enumerate() {
            for (idx, core) in socket.cores.iter().enumerate() {
                let parts = match is_near {
                    true => vec![(
                        socket_idx,
                        part(stripe_rows[socket_idx], idx, socket.cores.len()),
                    )],
                    false => {
                        let own = workers.len();
                        let stripes = stripe_rows.iter().enumerate();
                        stripes
                            .map(|(stripe, rows)| (stripe, part(*rows, own, count)))
                            .collect()
                    }
                };
                let cpus = match self.step {
                    Step::Pinning => Some(vec![*core]),
                    Step::Numa => Some(socket.cores.clone()),
                    _ => None,
                };
                workers.push(Worker {
                    socket: socket_idx,
                    cpus,
                    parts,
                    is_near,
                });
            }
        }
        workers
    }
}

/// The `idx`-th of `count` consecutive parts, each of whole cache lines of every column.
fn part(rows: usize, idx: usize, count: usize) -> Range<usize> {
    const LINE_ROWS: usize = 64;
    let at = |idx: usize| (rows * idx / count).next_multiple_of(LINE_ROWS).min(rows);
    let end = if idx + 1 == count { rows } else { at(idx + 1) };
    at(idx).min(end)..end
}

/// One CPU of each core among these, or all of them where the kernel names no cores.
fn cores(topology: &Topology, cpus: &[u32]) -> Vec<u32> {
    let is_core = |cpu: &&u32| topology.physical_cores.contains(cpu);
    let found: Vec<u32> = cpus.iter().filter(is_core).copied().collect();
    if found.is_empty() {
        cpus.to_vec()
    } else {
        found
    }
}

fn available_cpus(topology: &Topology) -> Vec<u32> {
    let all: Vec<u32> = topology
        .nodes
        .iter()
        .flat_map(|node| node.cpus.iter().copied())
        .collect();
    let found = cores(topology, &all);
    match found.is_empty() {
        true => (0..thread::available_parallelism().map_or(1, usize::from) as u32).collect(),
        false => found,
    }
}

/// Runs `work` on a thread for each worker and gives their results in order.
pub fn run<T: Send>(workers: &[Worker], work: impl Fn(&Worker) -> T + Sync) -> Vec<T> {
    let on_its_cpus = |worker: &Worker| {
        if let Some(cpus) = &worker.cpus {
            // A container may not let it; it then runs where it may.
            if let Err(error) = pin_to(cpus) {
                tracing::debug!(%error);
            }
        }
        work(worker)
    };
    thread::scope(|scope| {
        let threads: Vec<_> = workers
            .iter()
            .map(|worker| scope.spawn(|| on_its_cpus(worker)))
            .collect();
        let results = threads.into_iter().map(|thread| thread.join());
        results
            .map(|result| result.expect("a worker panicked"))
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;
    use hotshelf_tier::topology::Node;

    use super::*;

    fn two_sockets() -> Topology {
        let node = |id: u32| Node {
            id,
            cpus: vec![id * 4, id * 4 + 1, id * 4 + 2, id * 4 + 3],
            memory_bytes: 1 << 30,
            distances: Vec::new(),
            hmat: None,
            socket: Some(id),
        };
        Topology {
            nodes: vec![node(0), node(1)],
            physical_cores: vec![0, 2, 4, 6],
            ..Topology::default()
        }
    }

    #[test]
    fn every_row_is_one_worker_s_in_every_step() {
        for topology in [Topology::default(), two_sockets()] {
            for step in Step::value_variants().iter().copied() {
                for crew in [
                    Crew::new(&topology, step, 4),
                    Crew::new(&topology, step, 5),
                    Crew::emulated_sockets(&topology, step, 4),
                    Crew::emulated_sockets(&topology, step, 5),
                ] {
                    if step > Step::OneThread {
                        assert!([4, 5].contains(&crew.thread_count()));
                    }
                    let rows: Vec<usize> = crew.nodes().iter().map(|_| 1000).collect();
                    let mut seen = vec![vec![0; 1000]; rows.len()];
                    for worker in crew.workers(&rows) {
                        for (stripe, part) in worker.parts {
                            part.for_each(|row| seen[stripe][row] += 1);
                        }
                    }
                    assert!(seen.iter().flatten().all(|times| *times == 1), "{step:?}");
                }
            }
        }
    }

    #[test]
    fn the_last_steps_keep_threads_near_and_on_cores() {
        let crew = Crew::new(&two_sockets(), Step::Pinning, 4);
        let workers = crew.workers(&[100, 100]);
        let cpus: Vec<_> = workers
            .iter()
            .map(|worker| worker.cpus.clone().unwrap())
            .collect();
        assert_eq!(cpus, [[0], [2], [4], [6]]);
        assert!(
            workers
                .iter()
                .all(|worker| worker.is_near && worker.parts.len() == 1)
        );
        assert!(
            workers
                .iter()
                .all(|worker| worker.parts[0].0 == worker.socket)
        );
        let far = Crew::new(&two_sockets(), Step::TwoSockets, 4).workers(&[100, 100]);
        assert!(
            far.iter()
                .all(|worker| !worker.is_near && worker.cpus.is_none())
        );
        let one = Crew::new(&Topology::default(), Step::Numa, 2);
        assert_eq!(one.missing, Some("one socket only"));
    }
}
