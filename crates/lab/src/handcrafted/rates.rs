//! Look-ups per second of Dash, the standard library's table, and an array, in memory and on *emulated* devices.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use hotshelf_tier::TierError;
use hotshelf_tier::emulated::{DeviceModel, EmulatedTier, Reach};

use super::crew::{self, Crew};
use super::dash::{BUCKET_BYTES, Dash, DashError, RegionStore, SEGMENT_BYTES};
use super::lookup::{FastMap, dash_of};
use super::pace::Pace;

const RUNS: usize = 5;
const BATCH: usize = 1024;
const LINE_BYTES: usize = 64;

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

struct Tables {
    dash: Dash<RegionStore>,
    map: FastMap<u32>,
    array: Vec<u32>,
}

/// Measures tables of these sizes, half of the keys asked for being in them.
///
/// # Errors
/// That there is no memory or no such device.
pub fn measure(
    sizes: &[usize],
    crew: &Crew,
    models: &[DeviceModel],
    look_ups: usize,
) -> Result<Vec<Rate>, DashError> {
    let mut rates = Vec::new();
    for records in sizes {
        rates.extend(changes(*records)?);
        let tables = Tables::new(*records)?;
        rates.extend(tables.rates(*records, crew, None, look_ups));
        for model in models {
            let device = EmulatedTier::new(model.clone(), 1 << 20).map(Arc::new);
            let device = device.map_err(|error: TierError| DashError::from(error))?;
            let fewer = look_ups / 8;
            rates.extend(tables.rates(*records, crew, Some((&model.name, device)), fewer));
        }
    }
    Ok(rates)
}

/// Changes of a Dash table per second by one thread in memory: records put in, found when the table is opened again,
/// and taken out.
fn changes(records: usize) -> Result<Vec<Rate>, DashError> {
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
            return Err(DashError::Lost { key });
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
    fn new(records: usize) -> Result<Self, DashError> {
        let keys = || (0..records as u32).map(|key| key * 2);
        let mut array = vec![u32::MAX; records * 2];
        keys().for_each(|key| array[key as usize] = key / 2);
        Ok(Self {
            dash: dash_of(keys().map(|key| (u64::from(key), u64::from(key / 2))))?,
            map: keys().map(|key| (key, key / 2)).collect(),
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
        let mut best = [f64::INFINITY; 3];
        for _ in 0..RUNS {
            // In turn, so that what slows the machine slows all three.
            let seconds = [
                time(
                    crew,
                    records,
                    look_ups,
                    &pace,
                    BUCKET_BYTES,
                    |key, touched| self.dash.get_counted(u64::from(key), touched).unwrap_or(0),
                ),
                time(
                    crew,
                    records,
                    look_ups,
                    &pace,
                    LINE_BYTES,
                    |key, touched| {
                        *touched += 2;
                        self.map.get(&key).copied().map_or(0, u64::from)
                    },
                ),
                time(
                    crew,
                    records,
                    look_ups,
                    &pace,
                    LINE_BYTES,
                    |key, touched| {
                        *touched += 1;
                        u64::from(self.array[key as usize])
                    },
                ),
            ];
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

    /// Names, bytes, and how full they are.
    fn sizes(&self) -> [(&'static str, usize, Option<f64>); 3] {
        let dash_bytes = self.dash.segment_count() as usize * SEGMENT_BYTES;
        [
            ("dash", dash_bytes, Some(self.dash.load_factor())),
            ("hashbrown", self.map.capacity() * 9, None),
            ("array", self.array.len() * 4, None),
        ]
    }
}

/// Seconds in which every thread makes this many look-ups.
fn time(
    crew: &Crew,
    records: usize,
    look_ups: usize,
    pace: &(impl Fn() -> Pace + Sync),
    len_bytes: usize,
    get: impl Fn(u32, &mut u32) -> u64 + Sync,
) -> f64 {
    let workers = crew.workers(&vec![0; crew.nodes().len()]);
    let start = Instant::now();
    crew::run(&workers, |worker| {
        let mut random = fastrand::Rng::with_seed(worker.socket as u64 + 77);
        let mut pace = pace();
        let mut keys = [0u32; BATCH];
        let mut sum = 0u64;
        for _ in 0..look_ups / BATCH {
            keys.fill_with(|| random.u32(..records as u32 * 2));
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
        assert_eq!(rates.len(), 3 + 6);
        let line = optane.read.bandwidth(Pattern::Random, LINE_BYTES as u64, 1) / LINE_BYTES as f64;
        for rate in rates.iter().filter(|rate| rate.emulated) {
            assert!(rate.per_s <= line * 1.1, "{rate:?}");
        }
        let load_factor = rates[3].load_factor.unwrap();
        assert!((0.4..0.95).contains(&load_factor), "{load_factor}");
    }
}
