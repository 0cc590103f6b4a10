//! Look-ups per second of Dash, hash tables, a bitmap and an array, in memory and on *emulated* devices, and of the
//! product's join.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use hotshelf_operators::OperatorError;
use hotshelf_tier::TierError;
use hotshelf_tier::emulated::{DeviceModel, EmulatedTier, Reach};
use thiserror::Error;

use super::crew::{self, Crew};
use super::dash::{BUCKET_BYTES, Dash, DashError, RegionStore, SEGMENT_BYTES};
use super::lookup::{FastMap, dash_of};
use super::pace::Pace;
use super::product_join::ProductJoin;
use super::unchained::Unchained;

const RUNS: usize = 5;
const BATCH: usize = 1024;
const LINE_BYTES: usize = 64;
/// What keys are multiplied by that are not to lie close together.
const SPREAD: i64 = 0x9e37_79b1;

/// Why nothing could be measured.
#[derive(Debug, Error)]
pub enum RateError {
    #[error(transparent)]
    Dash(#[from] DashError),
    #[error(transparent)]
    Tier(#[from] TierError),
    #[error(transparent)]
    Product(#[from] OperatorError),
}

/// A row of the result.
#[derive(Debug)]
pub struct Rate {
    pub structure: &'static str,
    pub operation: &'static str,
    pub records: usize,
    pub tier: String,
    pub emulated: bool,
    pub threads: usize,
    pub per_s: f64,
    pub bytes: usize,
    /// Of Dash.
    pub load_factor: Option<f64>,
}

/// What is compared.
struct Tables {
    dash: Dash<RegionStore>,
    map: FastMap<u32>,
    unchained: Unchained<u32>,
    /// A bit for each key, how many come before each word, and the values in the keys' order: the product's look-ups of
    /// sparse keys.
    bitmap: Vec<(u64, u32)>,
    values: Vec<u32>,
    array: Vec<u32>,
}

const STRUCTURES: usize = 5;

/// Measures tables of these sizes, half of the keys asked for being in them.
///
/// # Errors
/// That there is no memory or no such device.
pub fn measure(
    sizes: &[usize],
    crew: &Crew,
    models: &[DeviceModel],
    look_ups: usize,
) -> Result<Vec<Rate>, RateError> {
    let mut rates = Vec::new();
    for records in sizes {
        rates.extend(changes(*records)?);
        let tables = Tables::new(*records)?;
        rates.extend(tables.rates(*records, crew, None, look_ups));
        rates.extend(product_rates(*records, crew, look_ups / 8)?);
        for model in models {
            let device = EmulatedTier::new(model.clone(), 1 << 20).map(Arc::new);
            let device = device?;
            let fewer = look_ups / 8;
            rates.extend(tables.rates(*records, crew, Some((&model.name, device)), fewer));
        }
    }
    Ok(rates)
}

/// Changes of a Dash table per second by one thread in memory: records put in, found when the table is opened again,
/// and taken out.
fn changes(records: usize) -> Result<Vec<Rate>, RateError> {
    let keys = || 0..records as u64;
    let mut best = [f64::INFINITY; 3];
    let mut bytes = 0;
    for _ in 0..RUNS {
        let start = Instant::now();
        let table = dash_of(keys().map(|key| (key, key)).collect::<Vec<_>>().into_iter())?;
        let insert_s = start.elapsed().as_secs_f64();
        let store = table.into_store();
        let start = Instant::now();
        let table = Dash::open(store)?;
        let open_s = start.elapsed().as_secs_f64();
        bytes = table.segment_count() as usize * SEGMENT_BYTES;
        if let Some(key) = keys().find(|key| table.get(*key) != Some(*key)) {
            return Err(DashError::Lost { key }.into());
        }
        let start = Instant::now();
        for key in keys() {
            table.remove(key)?;
        }
        let remove_s = start.elapsed().as_secs_f64();
        let seconds = [insert_s, open_s, remove_s];
        best.iter_mut()
            .zip(seconds)
            .for_each(|(best, s)| *best = best.min(s));
    }
    let rate = |(operation, seconds): (&'static str, f64)| Rate {
        structure: "dash",
        operation,
        records,
        tier: "dram".to_owned(),
        emulated: false,
        threads: 1,
        per_s: records as f64 / seconds,
        bytes,
        load_factor: None,
    };
    let operations = ["insert", "open", "remove"].into_iter().zip(best);
    Ok(operations.map(rate).collect())
}

impl Tables {
    /// Even keys are there, odd ones are not.
    fn new(records: usize) -> Result<Self, RateError> {
        let keys = || (0..records as u32).map(|key| key * 2);
        let mut array = vec![u32::MAX; records * 2];
        keys().for_each(|key| array[key as usize] = key / 2);
        // Even keys are there.
        let bits = |word: usize| match records * 2 - word * 64 {
            64.. => 0x5555_5555_5555_5555,
            rest => 0x5555_5555_5555_5555 & ((1u64 << rest) - 1),
        };
        let mut before = 0;
        let bitmap = (0..records.div_ceil(32)).map(|word| {
            let word = (bits(word), before);
            before += word.0.count_ones();
            word
        });
        Ok(Self {
            dash: dash_of(keys().map(|key| (u64::from(key), u64::from(key / 2))))?,
            map: keys().map(|key| (key, key / 2)).collect(),
            unchained: Unchained::new(keys().map(|key| (key, key / 2))),
            bitmap: bitmap.collect(),
            values: keys().map(|key| key / 2).collect(),
            array,
        })
    }

    fn rates(
        &self,
        records: usize,
        crew: &Crew,
        device: Option<(&str, Arc<EmulatedTier>)>,
        look_ups: usize,
    ) -> Vec<Rate> {
        let pace = || {
            let device = device.as_ref().map(|(_, device)| Arc::clone(device));
            Pace::new(device, Reach::Near, 1.0)
        };
        let mut best = [f64::INFINITY; STRUCTURES];
        for _ in 0..RUNS {
            // In turn, so that what slows the machine slows all of them.
            let seconds = self.run(&Run {
                crew,
                records,
                look_ups,
                pace: &pace,
            });
            best.iter_mut()
                .zip(seconds)
                .for_each(|(best, s)| *best = best.min(s));
        }
        let tier = device
            .as_ref()
            .map_or("dram".to_owned(), |(name, _)| format!("emulated:{name}"));
        let all = (look_ups * crew.thread_count()) as f64;
        let rate = |(structure, bytes, load_factor), seconds: f64| Rate {
            structure,
            operation: "look up",
            records,
            tier: tier.clone(),
            emulated: device.is_some(),
            threads: crew.thread_count(),
            per_s: all / seconds,
            bytes,
            load_factor,
        };
        let tables = self.sizes().into_iter().zip(best);
        tables
            .map(|(table, seconds)| rate(table, seconds))
            .collect()
    }

    /// Seconds of each structure.
    fn run(&self, run: &Run<'_, impl Fn() -> Pace + Sync>) -> [f64; STRUCTURES] {
        [
            run.time(BUCKET_BYTES, |key, touched| {
                self.dash.get_counted(u64::from(key), touched).unwrap_or(0)
            }),
            run.time(LINE_BYTES, |key, touched| {
                *touched += 2;
                self.map.get(&key).copied().map_or(0, u64::from)
            }),
            run.time(LINE_BYTES, |key, touched| {
                self.unchained.get(key, touched).map_or(0, u64::from)
            }),
            run.time(LINE_BYTES, |key, touched| {
                let ((bits, before), bit) = (self.bitmap[key as usize / 64], 1 << (key % 64));
                *touched += 1;
                if bits & bit == 0 {
                    return 0;
                }
                *touched += 1;
                let place = before + (bits & (bit - 1)).count_ones();
                u64::from(self.values[place as usize])
            }),
            run.time(LINE_BYTES, |key, touched| {
                *touched += 1;
                u64::from(self.array[key as usize])
            }),
        ]
    }

    /// Names, bytes, and how full they are.
    fn sizes(&self) -> [(&'static str, usize, Option<f64>); STRUCTURES] {
        let dash_bytes = self.dash.segment_count() as usize * SEGMENT_BYTES;
        let bitmap_bytes = size_of_val(&*self.bitmap) + size_of_val(&*self.values);
        [
            ("dash", dash_bytes, Some(self.dash.load_factor())),
            ("hashbrown", self.map.capacity() * 9, None),
            ("unchained", self.unchained.bytes(), None),
            ("bitmap", bitmap_bytes, None),
            ("array", self.array.len() * 4, None),
        ]
    }
}

/// Those of the product's join, which finds the values of a batch of keys at a time.
fn product_rates(records: usize, crew: &Crew, look_ups: usize) -> Result<Vec<Rate>, RateError> {
    let mut rates = Vec::new();
    for (structure, spread) in [
        ("product, dense keys", 1),
        ("product, scattered keys", SPREAD),
    ] {
        let keys = (0..records as i64).map(|key| key * 2 * spread);
        let join = ProductJoin::new(keys, crew.thread_count())?;
        let mut best = f64::INFINITY;
        for _ in 0..RUNS {
            let workers = crew.workers(&vec![0; crew.nodes().len()]);
            let start = Instant::now();
            let found = crew::run(&workers, |worker| {
                let mut random = fastrand::Rng::with_seed(worker.socket as u64 + 77);
                let key = |_| random.i64(0..records as i64 * 2) * spread;
                let keys: Vec<i64> = (0..look_ups / BATCH * BATCH).map(key).collect();
                join.look_up(&keys, BATCH)
            });
            found.into_iter().sum::<Result<usize, OperatorError>>()?;
            best = best.min(start.elapsed().as_secs_f64());
        }
        rates.push(Rate {
            structure,
            operation: "look up",
            records,
            tier: "dram".to_owned(),
            emulated: false,
            threads: crew.thread_count(),
            per_s: (look_ups * crew.thread_count()) as f64 / best,
            bytes: join.bytes(),
            load_factor: None,
        });
    }
    Ok(rates)
}

/// What is the same for all structures.
struct Run<'a, P> {
    crew: &'a Crew,
    records: usize,
    look_ups: usize,
    pace: &'a P,
}

impl<P: Fn() -> Pace + Sync> Run<'_, P> {
    /// Seconds in which every thread makes its look-ups, in steps that read this many bytes.
    fn time(&self, len_bytes: usize, get: impl Fn(u32, &mut u32) -> u64 + Sync) -> f64 {
        let workers = self.crew.workers(&vec![0; self.crew.nodes().len()]);
        let start = Instant::now();
        crew::run(&workers, |worker| {
            let mut random = fastrand::Rng::with_seed(worker.socket as u64 + 77);
            let mut pace = (self.pace)();
            let mut keys = [0u32; BATCH];
            let mut sum = 0u64;
            for _ in 0..self.look_ups / BATCH {
                keys.fill_with(|| random.u32(..self.records as u32 * 2));
                let mut touched = 0;
                for key in keys {
                    sum = sum.wrapping_add(get(key, &mut touched));
                }
                pace.look_up(touched, len_bytes);
            }
            black_box(sum);
        });
        start.elapsed().as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use hotshelf_tier::probe::Pattern;
    use hotshelf_tier::topology::Topology;

    use super::super::crew::Step;
    use super::*;

    #[test]
    fn emulated_look_ups_take_at_least_what_the_device_takes() {
        let crew = Crew::new(&Topology::default(), Step::OneThread, 1);
        let optane = DeviceModel::named("optane100-128").unwrap();
        let rates = measure(&[5000], &crew, std::slice::from_ref(&optane), 64 * BATCH).unwrap();
        assert_eq!(rates.len(), 3 + 2 * STRUCTURES + 2);
        let line = optane.read.bandwidth(Pattern::Random, LINE_BYTES as u64, 1) / LINE_BYTES as f64;
        for rate in rates.iter().filter(|rate| rate.emulated) {
            assert!(rate.per_s <= line * 1.1, "{rate:?}");
        }
        let load_factor = rates[3].load_factor.unwrap();
        assert!((0.4..0.95).contains(&load_factor), "{load_factor}");
    }
}
