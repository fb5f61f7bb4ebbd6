//! Packs from any bytes: an answer, never a panic; entries are read the same however the bytes are cut, and written back the same.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use stager_node::pack_format::{ask, said, Reader, Writer, ENTRIES_MAX};

fuzz_target!(|bytes: &[u8]| {
    let whole = read(bytes, bytes.len().max(1));
    let step = usize::from(bytes.first().copied().unwrap_or(0)) + 1;
    assert_eq!(whole, read(bytes, step));
    if let Some(entries) = whole {
        assert!(entries.len() <= ENTRIES_MAX);
        entries.into_iter().flatten().for_each(|entry| there_and_back(&entry));
    }
    // As an entry by itself: no checksum stands between it and its parser.
    there_and_back(&Bytes::copy_from_slice(bytes));
});

fn read(bytes: &[u8], step: usize) -> Option<Vec<Option<Bytes>>> {
    let mut reader = Reader::new(bytes.len());
    bytes.chunks(step).try_for_each(|part| reader.push(part)).and_then(|()| reader.finish()).ok()
}

fn there_and_back(entry: &Bytes) {
    if let Ok(asked) = ask(entry) {
        let mut writer = Writer::default();
        writer.ask(&asked);
        assert_eq!(ask(&only(writer)).as_ref(), Ok(&asked));
    }
    if let Some(answer) = said(entry) {
        let mut writer = Writer::default();
        match &answer {
            Ok(said) => writer.say(said),
            Err(error) => writer.fail(error),
        }
        assert_eq!(said(&only(writer)), Some(answer));
    }
}

fn only(writer: Writer) -> Bytes {
    let bytes = writer.whole();
    let mut reader = Reader::new(bytes.len());
    reader.push(&bytes).expect("a pack that was just made");
    reader.finish().expect("it has its end").remove(0).expect("it is whole")
}
