//! Whatever is put, copied, deleted and completed, with kills in between: the objects are what a map says, and no file lies about.

use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::prelude::*;
use stager_objects::{Attributes, CompletedPart, Condition, Upload, UploadId, Whole};

use crate::shop::{content, name, put, whole, Shop, INLINE};

#[derive(Clone, Debug)]
enum Step {
    Put {
        key: u8,
        size: usize,
        only_new: bool,
    },
    Delete {
        key: u8,
    },
    DeleteMany {
        keys: Vec<u8>,
    },
    Copy {
        from: u8,
        to: u8,
    },
    /// Parts of an upload that is completed, aborted or left open.
    Upload {
        key: u8,
        sizes: Vec<usize>,
        end: u8,
    },
    /// Content that came whole and never became an object.
    Abandon {
        size: usize,
    },
    Kill,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (0u8..8, 0usize..3000, any::<bool>()).prop_map(|(key, size, only_new)| Step::Put { key, size, only_new }),
        3 => (0u8..8).prop_map(|key| Step::Delete { key }),
        1 => proptest::collection::vec(0u8..8, 1..4).prop_map(|keys| Step::DeleteMany { keys }),
        3 => (0u8..8, 0u8..8).prop_map(|(from, to)| Step::Copy { from, to }),
        2 => (0u8..8, proptest::collection::vec(0usize..3000, 1..2), 0u8..3).prop_map(|(key, sizes, end)| Step::Upload { key, sizes, end }),
        1 => (0usize..3000).prop_map(|size| Step::Abandon { size }),
        2 => Just(Step::Kill),
    ];
    proptest::collection::vec(step, 1..25)
}

fn key(number: u8) -> String {
    format!("d{}/ключ {number}\u{0}+%", number % 3)
}

#[derive(Default)]
struct Model {
    objects: BTreeMap<String, Vec<u8>>,
    open_parts: usize,
    files: usize,
}

async fn upload(shop: &Shop, model: &mut Model, key: &str, sizes: &[usize], end: u8, seed: u64) {
    let name = name(key);
    let begun = Upload { started_ms: 0, attributes: Attributes::default(), algorithm: None, full_checksum: true, tags: Vec::new() };
    let id: UploadId = shop.objects.create_upload(&name, begun).await.unwrap();
    let mut bytes = Vec::new();
    let mut listed = Vec::new();
    for (at, size) in sizes.iter().enumerate() {
        let part = content(*size, seed + at as u64);
        let mut incoming = shop.objects.receive_part(&name, id, *size as u64, None).await.unwrap();
        incoming.write(Bytes::from(part.clone())).await.unwrap();
        let number = at as u16 + 1;
        let done = shop.objects.put_part(&name, id, number, incoming.finish().await.unwrap()).await.unwrap();
        listed.push(CompletedPart { number, etag: Some(done.etag().to_string()), checksums: Vec::new() });
        bytes.extend(part);
    }
    match end {
        0 => {
            let object = shop.objects.complete_upload(&name, id, listed, Condition::Any, Whole::default()).await.unwrap();
            assert_eq!(object.crc64nvme, crc_fast::crc64_nvme(&bytes));
            model.objects.insert(key.to_string(), bytes);
        }
        1 => shop.objects.abort_upload(&name, id).await.unwrap(),
        _ => model.open_parts += sizes.len(),
    }
}

async fn copy(shop: &Shop, model: &mut Model, from: &str, to: &str) {
    let Some(bytes) = model.objects.get(from).cloned() else { return };
    let found = shop.objects.find(&name(from)).await.unwrap();
    let Some(content) = shop.objects.duplicate(&found, &name(to)).await.unwrap() else { return };
    shop.objects.put(&name(to), content, Attributes::default(), Condition::Any).await.unwrap();
    model.objects.insert(to.to_string(), bytes);
}

async fn take(shop: &mut Shop, model: &mut Model, step: &Step, seed: u64) {
    match step {
        Step::Put { key: number, size, only_new } => {
            let bytes = content(*size, seed);
            let condition = if *only_new { Condition::Absent } else { Condition::Any };
            let outcome = put(&shop.objects, &name(&key(*number)), &bytes, condition).await;
            if *only_new && model.objects.contains_key(&key(*number)) {
                assert_eq!(outcome.unwrap_err().code.as_str(), "precondition_failed");
            } else {
                outcome.unwrap();
                model.objects.insert(key(*number), bytes);
            }
        }
        Step::Delete { key: number } => {
            shop.objects.delete(&name(&key(*number)), Condition::Any).await.unwrap();
            model.objects.remove(&key(*number));
        }
        Step::DeleteMany { keys } => {
            shop.objects.delete_many(&crate::shop::bucket(), keys.iter().map(|number| key(*number)).collect()).await.unwrap();
            keys.iter().for_each(|number| drop(model.objects.remove(&key(*number))));
        }
        Step::Copy { from, to } => copy(shop, model, &key(*from), &key(*to)).await,
        Step::Upload { key: number, sizes, end } => upload(shop, model, &key(*number), sizes, *end, seed).await,
        Step::Abandon { size } => {
            let mut incoming = shop.objects.receive(&name("never"), *size as u64, None).await.unwrap();
            incoming.write(Bytes::from(content(*size, seed))).await.unwrap();
            let whole = incoming.finish().await.unwrap();
            // Killed while it is whole and not named: the copy must not keep it.
            *shop = std::mem::replace(shop, shop.killed());
            drop(whole);
            *shop = shop.killed();
        }
        Step::Kill => *shop = shop.killed(),
    }
}

async fn compare(shop: &Shop, model: &mut Model) {
    let listing = shop.objects.list(&crate::shop::bucket(), "", None, "", 1000).unwrap();
    let listed: Vec<String> = listing.objects.iter().map(|(key, _)| key.clone()).collect();
    assert_eq!(listed, model.objects.keys().cloned().collect::<Vec<_>>());
    for (key, bytes) in &model.objects {
        assert_eq!(&whole(&shop.objects, &name(key)).await.unwrap(), bytes);
    }
    model.files = listing.objects.iter().filter(|(_, object)| object.etag.parts > 0 || object.size_bytes > INLINE).count();
    assert_eq!(shop.files().len(), model.files + model.open_parts, "a file for each large object and each open part, no other");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(48), ..ProptestConfig::default() })]
    #[test]
    fn objects_are_what_a_map_says(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let mut shop = Shop::with(100 << 20, false).await;
            let mut model = Model::default();
            for (at, step) in steps.iter().enumerate() {
                take(&mut shop, &mut model, step, at as u64 * 100 + 1).await;
                compare(&shop, &mut model).await;
            }
            let shop = shop.killed();
            compare(&shop, &mut model).await;
        });
    }
}
