use hotshelf::{Database, Options};
use hotshelf_cli::benchmark::prepare;
use hotshelf_datagen::ssb::SsbGenerator;
use hotshelf_tier::emulated::DeviceModel;

use super::bench::{Bench, Contender, Settings, Tables, Tier, crew_for};
use super::crew::Step;
use super::engine::Engine;
use super::lookup::Kind;
use super::queries::{Answer, QUERIES};

const CONTENDERS: [Contender; 3] = [Contender::Columns, Contender::Rows, Contender::Unaware];

fn settings(look_ups: Kind, step: Step) -> Settings {
    Settings {
        look_ups,
        step,
        threads: 2,
        emulated_sockets: false,
        cpu_cache_bytes: 0,
    }
}

/// The product's answers over the same rows.
fn answers_of_the_product(generator: &SsbGenerator) -> Vec<Answer> {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::open(folder.path(), Options::default()).unwrap();
    prepare(&database, generator, 2).unwrap();
    let engine = Engine::new(&database);
    QUERIES
        .iter()
        .map(|query| engine.answer(query).unwrap())
        .collect()
}

#[test]
fn every_variant_answers_as_the_product_does() {
    let generator = SsbGenerator::new(0.01, 0).unwrap();
    let expected = answers_of_the_product(&generator);
    // Three queries name cities or nations that have no rows at this scale.
    let found = expected.iter().filter(|answer| !answer.is_empty());
    assert_eq!(found.count(), 10);
    let folder = tempfile::tempdir().unwrap();
    let optane = DeviceModel::named("optane100-128").unwrap();
    let tiers = [
        Tier::Dram,
        Tier::Emulated(Box::new(optane)),
        Tier::File(folder.path().into()),
    ];
    for tier in &tiers {
        for (kind, step) in [
            (Kind::Dash, Step::Pinning),
            (Kind::Dense, Step::OneThread),
            (Kind::Bitmap, Step::TwoSockets),
            (Kind::Hash, Step::Numa),
            (Kind::Unchained, Step::Pinning),
        ] {
            let mut settings = settings(kind, step);
            settings.emulated_sockets = true;
            let crew = crew_for(tier, &settings);
            let tables = Tables::generate(&generator, &crew, &CONTENDERS, &tiers).unwrap();
            let bench = Bench::new(&tables, crew, tier, &settings).unwrap();
            for (query, expected) in QUERIES.iter().zip(&expected) {
                for contender in CONTENDERS.into_iter().filter(|one| one.runs_on(tier)) {
                    let run = bench.run(query, contender).unwrap();
                    assert_eq!(
                        run.answer, *expected,
                        "{} {contender:?} {kind:?} {tier:?}",
                        query.name
                    );
                    assert!(run.bytes > 0 && run.build_s <= run.seconds);
                }
            }
        }
    }
}
