use proptest::prelude::*;

use super::*;
use crate::region::{AnonymousOptions, FileOptions, Region, Window};

const REGION_BYTES: usize = 4096;

fn volatile_window() -> Window {
    let options = AnonymousOptions::default();
    Region::anonymous(REGION_BYTES, &options)
        .unwrap()
        .into_window()
}

fn stream_widths() -> Vec<StreamWidth> {
    let all = [
        StreamWidth::None,
        StreamWidth::Sse2,
        StreamWidth::Avx,
        StreamWidth::Avx512,
    ];
    all.into_iter()
        .filter(|width| *width <= StreamWidth::detect())
        .collect()
}

fn flushes() -> Vec<Option<FlushInstruction>> {
    let available = FlushInstruction::available().into_iter().map(Some);
    available.chain([None]).collect()
}

#[test]
fn every_copy_and_flush_instruction_of_this_cpu_leaves_the_same_bytes() {
    let bytes: Vec<u8> = (0..1000u32).map(|i| i as u8 ^ (i >> 5) as u8).collect();
    for stream in stream_widths() {
        for flush in flushes() {
            let mut native = Native::new(volatile_window(), flush).with_stream(stream);
            for (offset, len) in [
                (0, 64),
                (1, 1),
                (63, 2),
                (100, 500),
                (1024, 1000),
                (3096, 1000),
                (5, 0),
            ] {
                native.copy_nt(offset, &bytes[..len]);
                native.flush(offset..offset + len);
                native.fence().unwrap();
                assert_eq!(
                    native.window.bytes()[offset..offset + len],
                    bytes[..len],
                    "{stream:?} {flush:?}"
                );
            }
            native.publish(8, 0x0102_0304_0506_0708);
            assert_eq!(native.window.bytes()[8..16], [8, 7, 6, 5, 4, 3, 2, 1]);
        }
    }
}

#[test]
fn the_best_flush_instruction_is_available() {
    let available = FlushInstruction::available();
    assert_eq!(FlushInstruction::detect(), available.first().copied());
}

#[test]
fn a_writer_refuses_what_is_outside_its_window() {
    let mut writer = Writer::new(Native::new(volatile_window(), None));
    assert!(writer.store(REGION_BYTES - 1, b"ab").is_err());
    assert!(writer.store(usize::MAX, b"ab").is_err());
    assert!(writer.flush(0..REGION_BYTES + 1).is_err());
    assert!(writer.publish(REGION_BYTES - 8, 1).is_ok());
    assert!(writer.publish(REGION_BYTES, 1).is_err());
    assert!(writer.publish(12, 1).is_err());
    let mut back = writer.split_off(2048).unwrap();
    assert!(writer.store(2047, b"ab").is_err());
    assert!(back.store(2047, b"ab").is_err());
    assert!(back.store(2048, b"ab").is_ok());
    assert!(writer.split_off(2049).is_err());
}

#[test]
fn sealed_bytes_can_be_read_by_other_threads_and_written_by_nobody() {
    let region = Region::anonymous(REGION_BYTES, &AnonymousOptions::default()).unwrap();
    let mut writer = region.into_writer(&WriterOptions::default()).unwrap();
    writer.write(0, &[7; 1024]).unwrap();
    let sealed = writer.ops_mut().seal_to(1024).unwrap();
    assert!(writer.store(1023, b"x").is_err());
    assert!(writer.ops_mut().seal_to(1023).is_err());
    let sum = std::thread::spawn(move || sealed.iter().map(|byte| u32::from(*byte)).sum::<u32>());
    writer.store(1024, b"x").unwrap();
    assert_eq!(sum.join().unwrap(), 7 * 1024);
}

#[test]
fn bytes_of_a_synced_file_are_found_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    let options = FileOptions {
        len_bytes: Some(20_000),
        ..FileOptions::default()
    };
    let region = Region::open_file(&path, &options).unwrap();
    let mut writer = region.into_writer(&WriterOptions::default()).unwrap();
    writer.write(5000, &[1; 3000]).unwrap();
    writer.write(15_000, b"small").unwrap();
    writer.publish(0, 42).unwrap();
    writer.flush(0..8).unwrap();
    writer.fence().unwrap();
    drop(writer);
    let content = std::fs::read(&path).unwrap();
    assert_eq!((content[0], &content[15_000..15_005]), (42, &b"small"[..]));
    assert!(content[5000..8000].iter().all(|byte| *byte == 1));
    let read_only = FileOptions {
        read_only: true,
        ..FileOptions::default()
    };
    let region = Region::open_file(&path, &read_only).unwrap();
    let error = region.into_writer(&WriterOptions::default()).unwrap_err();
    assert!(matches!(error, TierError::ReadOnly { .. }), "{error}");
}

#[test]
fn small_writes_are_flushed_and_large_ones_go_past_the_cache() {
    let mut writer = Writer::new(Count::new(Trace::new(vec![0; REGION_BYTES])));
    writer.write(0, &[1; 255]).unwrap();
    writer.write(512, &[1; 256]).unwrap();
    writer.fence().unwrap();
    writer.publish(0, 1).unwrap();
    let expected = Counts {
        stored_bytes: 255,
        copied_nt_bytes: 256,
        flushed_line_count: 4,
        fence_count: 1,
        publish_count: 1,
    };
    assert_eq!(writer.ops().counts(), expected);
}

#[test]
fn a_trace_records_partial_lines_as_flushed_stores() {
    let mut trace = Trace::new(vec![0; 256]);
    trace.copy_nt(60, &[1; 70]);
    let log = trace.log();
    let kinds: Vec<_> = log
        .events
        .iter()
        .map(|event| match event {
            Event::Store { offset, bytes } => ("store", *offset, bytes.len()),
            Event::StoreNt { offset, bytes, .. } => ("nt", *offset, bytes.len()),
            Event::Flush { range, .. } => ("flush", range.start, range.len()),
            _ => ("other", 0, 0),
        })
        .collect();
    let expected = [
        ("store", 60, 4),
        ("store", 128, 2),
        ("nt", 64, 64),
        ("flush", 60, 4),
        ("flush", 128, 2),
    ];
    assert_eq!(kinds, expected);
    assert_eq!(
        log.current[59..131]
            .iter()
            .filter(|byte| **byte == 1)
            .count(),
        70
    );
}

proptest! {
    #[test]
    fn a_mapped_region_and_a_trace_hold_the_same_bytes_after_any_operations(
        operations in prop::collection::vec((0usize..5, 0usize..1000, 0usize..300, any::<u8>()), 0..40)
    ) {
        let mut mapped = Writer::new(Native::new(volatile_window(), FlushInstruction::detect()));
        let mut traced = Writer::new(Trace::new(vec![0; REGION_BYTES]));
        for (kind, offset, len, byte) in operations {
            let bytes = vec![byte; len];
            let word = offset / 8 * 8;
            match kind {
                0 => (mapped.store(offset, &bytes).unwrap(), traced.store(offset, &bytes).unwrap()),
                1 => (mapped.copy_nt(offset, &bytes).unwrap(), traced.copy_nt(offset, &bytes).unwrap()),
                2 => (mapped.write(offset, &bytes).unwrap(), traced.write(offset, &bytes).unwrap()),
                3 => (mapped.publish(word, len as u64).unwrap(), traced.publish(word, len as u64).unwrap()),
                _ => (mapped.fence().unwrap(), traced.fence().unwrap()),
            };
        }
        prop_assert_eq!(mapped.ops().window.bytes(), &traced.ops().log().current[..]);
    }
}
