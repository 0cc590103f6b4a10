//! Settings that a query runs with. None of them may change its rows.

use fastrand::Rng;

use crate::answers::data::pick;

/// One of some words.
fn any(rng: &mut Rng, words: &[&'static str]) -> &'static str {
    let word: &&str = pick(rng, words);
    word
}

/// Settings of a session and its database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    pub elf: &'static str,
    pub star_pipelines: &'static str,
    pub join_order: &'static str,
    pub operators: &'static str,
    pub shared_subplans: &'static str,
    pub threads: u8,
    pub budget: &'static str,
    pub policy: &'static str,
    pub batch_size: u16,
}

/// Everything that could change the way a query runs is off.
pub const PLAIN: Settings = Settings {
    elf: "off",
    star_pipelines: "off",
    join_order: "off",
    operators: "on",
    shared_subplans: "off",
    threads: 1,
    budget: "1GB",
    policy: "lru",
    batch_size: 8192,
};

impl Settings {
    pub fn random(rng: &mut Rng) -> Self {
        Self {
            elf: any(rng, &["on", "off", "always", "always"]),
            star_pipelines: any(rng, &["on", "on", "on", "off"]),
            join_order: any(rng, &["on", "always", "always", "off"]),
            operators: any(rng, &["on", "on", "always", "off"]),
            shared_subplans: any(rng, &["on", "on", "on", "off"]),
            threads: *pick(rng, &[1, 1, 2, 4]),
            budget: any(rng, &["2MB", "4MB", "16MB", "256MB", "1GB", "4GB"]),
            policy: any(rng, &["hpcache", "hpcache", "lru", "none", "all", "s3fifo"]),
            batch_size: *pick(rng, &[8192, 8192, 8192, 77]),
        }
    }

    /// Each setting as a statement.
    pub fn statements(&self) -> Vec<String> {
        vec![
            format!("SET hotshelf.elf = '{}'", self.elf),
            format!("SET hotshelf.star_pipelines = '{}'", self.star_pipelines),
            format!("SET hotshelf.join_order = '{}'", self.join_order),
            format!("SET hotshelf.operators = '{}'", self.operators),
            format!("SET hotshelf.shared_subplans = '{}'", self.shared_subplans),
            format!("SET hotshelf.threads = {}", self.threads),
            format!("SET hotshelf.budget = '{}'", self.budget),
            format!("SET hotshelf.policy = '{}'", self.policy),
            format!("SET datafusion.execution.batch_size = {}", self.batch_size),
        ]
    }

    /// Settings that differ from these in one thing only, and are nearer to the plain ones.
    pub fn simpler(&self) -> Vec<Self> {
        let candidates = [
            Self {
                elf: PLAIN.elf,
                ..*self
            },
            Self {
                star_pipelines: PLAIN.star_pipelines,
                ..*self
            },
            Self {
                join_order: PLAIN.join_order,
                ..*self
            },
            Self {
                operators: PLAIN.operators,
                ..*self
            },
            Self {
                shared_subplans: PLAIN.shared_subplans,
                ..*self
            },
            Self {
                threads: PLAIN.threads,
                ..*self
            },
            Self {
                budget: PLAIN.budget,
                ..*self
            },
            Self {
                policy: PLAIN.policy,
                ..*self
            },
            Self {
                batch_size: PLAIN.batch_size,
                ..*self
            },
        ];
        candidates
            .into_iter()
            .filter(|settings| settings != self)
            .collect()
    }
}
