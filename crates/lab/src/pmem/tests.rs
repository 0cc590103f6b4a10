use std::path::PathBuf;
use std::time::Duration;

use hotshelf_cli::output::Format;
use hotshelf_tier::emulated::DeviceModel;
use hotshelf_tier::probe::{Grouping, Operation, Pinning, Placement};
use hotshelf_tier::topology::Topology;

use super::case::Case;
use super::command::figure_rows;
use super::device::{Device, Machine};
use super::drawing::sweep_of;
use super::figures::{FIGURES, Figure};
use super::flags::Pmem;
use super::rows::{Label, Row};
use super::stated::STATED;
use super::waiting::{Waiting, expected};

fn cases(number: u8) -> Vec<Case> {
    let figure = Figure::find(number).unwrap();
    figure
        .sweeps
        .iter()
        .flat_map(|sweep| sweep.cases())
        .collect()
}

fn has(number: u8, wanted: impl Fn(&Case) -> bool) -> bool {
    cases(number).iter().any(wanted)
}

fn one_socket() -> Machine {
    Machine {
        topology: Topology::default(),
        cpus: 2,
    }
}

fn rows(number: u8, tier: &str) -> Vec<Row> {
    let pmem = Pmem {
        figures: Vec::new(),
        devices: vec![Device::parse(tier).unwrap()],
        time: Duration::from_secs(60),
        quick: true,
        only_stated: false,
        folder: PathBuf::new(),
        scale: 1.0,
        cpu_cache_bytes: None,
        format: Format::Json,
    };
    figure_rows(Figure::find(number).unwrap(), &pmem, &one_socket()).unwrap()
}

#[test]
fn every_figure_has_all_its_axes() {
    let numbers: Vec<u8> = FIGURES.iter().map(|figure| figure.number).collect();
    assert_eq!(numbers, (3..=13).collect::<Vec<u8>>());
    for number in [3, 7, 8, 12, 13] {
        let largest = match number {
            3 => 65_536,
            12 | 13 => 8192,
            _ => 32 << 20,
        };
        for bytes in (6..=25)
            .map(|power| 1 << power)
            .filter(|bytes| *bytes <= largest)
        {
            let at = |threads| {
                move |case: &Case| (case.access_bytes, case.threads()) == (bytes, threads)
            };
            assert!(
                has(number, at(1)) && has(number, at(36)),
                "{number}, {bytes}"
            );
        }
    }
    for number in [3, 7] {
        assert!(has(number, |case| case.grouping == Grouping::Grouped));
    }
    for number in [4, 9] {
        for pinning in [Pinning::None, Pinning::Node, Pinning::Core] {
            assert!(has(number, |case| (case.pinning, case.threads())
                == (pinning, 18)));
        }
    }
    assert!(has(5, |case| case.placement == Placement::FarFirst));
    for number in [6, 10] {
        for placement in [
            Placement::BothNear,
            Placement::BothFar,
            Placement::BothShared,
        ] {
            assert!(has(number, |case| (case.placement, case.threads())
                == (placement, 72)));
        }
        assert!(has(number, |case| case.placement == Placement::Far));
    }
    for (writers, readers) in [(1, 1), (4, 8), (6, 30), (0, 30), (6, 0)] {
        assert!(has(11, |case| (case.writers, case.readers)
            == (writers, readers)));
    }
}

#[test]
fn every_value_that_the_paper_states_has_a_place_on_the_axes() {
    for stated in STATED {
        let of_figure = cases(stated.figure);
        assert!(of_figure.contains(&stated.case), "{stated:?}");
        assert!(
            stated.case.operations().any(|one| one == stated.operation),
            "{stated:?}"
        );
    }
    let six = STATED
        .iter()
        .find(|stated| stated.words.contains("45 %"))
        .unwrap();
    assert_eq!((six.case.writers, six.case.readers), (6, 30));
}

#[test]
fn every_case_finds_the_sweep_it_is_from() {
    for figure in FIGURES {
        for sweep in figure.sweeps {
            for case in sweep.cases() {
                let found = sweep_of(figure, sweep.panel, &case).unwrap();
                assert_eq!(found.x, sweep.x);
            }
        }
    }
}

#[test]
fn rows_say_how_they_came_about_and_where_parameters_are_from() {
    let rows = rows(5, "simulated:optane100-128");
    assert!(
        rows.iter()
            .all(|row| row.label == Label::Simulated && row.value.is_some())
    );
    let far = |row: &&Row| row.what.contains("far, again");
    let far = rows.iter().find(far).unwrap();
    assert_eq!(
        far.parameters.as_deref(),
        Some("parameters from this figure")
    );
    let near = rows.iter().find(|row| row.paper == Some(40.0)).unwrap();
    assert!(near.parameters.as_deref().unwrap().contains("PerMA-Bench"));
    assert!((near.ratio().unwrap() - 1.0).abs() < 0.1);
}

#[test]
fn what_cannot_be_shown_has_a_reason_and_no_number() {
    let machine = one_socket();
    let figure = Figure::find(6).unwrap();
    for (tier, reason) in [("dram", "one socket only"), ("file:x", "no near and far")] {
        let device = Device::parse(tier).unwrap();
        let far = figure.sweeps[1].cases()[0];
        assert!(
            device
                .why_not(&figure.sweeps[1], &far, &machine)
                .unwrap()
                .contains(reason)
        );
        let near = figure.sweeps[0].cases()[0];
        assert_eq!(device.why_not(&figure.sweeps[0], &near, &machine), None);
    }
    for row in rows(3, "simulated:optane100-128") {
        let is_grouped = row.case.unwrap().0.grouping == Grouping::Grouped;
        assert_eq!(row.value.is_none(), is_grouped);
        assert_eq!(row.note.is_some(), is_grouped);
    }
}

#[test]
fn threads_really_wait_for_what_the_model_says() {
    let model = DeviceModel::named("optane100-128").unwrap();
    let waiting = Waiting::new(&model).unwrap();
    for case in [
        Case::near(4096, 4, 0),
        Case::near(256, 0, 2),
        Case::near(4096, 3, 1),
    ] {
        let (waited, expected) = (waiting.measure(&case), expected(&model, &case));
        // A busy machine makes threads wait longer, and shorter only for as long as they catch up.
        assert!(
            waited.read <= 1.5 * expected.read,
            "{waited:?} {expected:?}"
        );
        assert!(
            waited.write <= 1.5 * expected.write,
            "{waited:?} {expected:?}"
        );
        let of = |operation| case.operations().any(|one| one == operation);
        assert_eq!(waited.read > 0.0, of(Operation::Read));
        assert_eq!(waited.write > 0.0, of(Operation::Write));
    }
}
