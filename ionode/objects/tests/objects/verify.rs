//! Looking at all objects: damage is found without a reader, told by name, and remembered.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;

use stager_core::error::{ApiError, Code};
use stager_objects::{quarantine, scan, Care, Condition, Objects, Verdict, BLOCK_BYTES};

use crate::shop::{code, content, name, put, whole, Shop, INLINE};

#[derive(Default)]
struct Counting {
    asked_bytes: usize,
    stop: bool,
}

impl Care for Counting {
    fn before(&mut self, _: Option<&File>, _: u64, length: usize) -> Result<(), ApiError> {
        self.asked_bytes += length;
        if self.stop {
            return Err(ApiError::new(Code::Cancelled, "all", "not now"));
        }
        Ok(())
    }
    fn after(&mut self, _: &File, _: u64, _: usize) {}
}

const LARGE: usize = 2 * BLOCK_BYTES as usize + 77;

/// `a` in the log, `b` and `c` in files.
async fn shop_of_three() -> Shop {
    let shop = Shop::new(100 << 20).await;
    for (key, size) in [("a", INLINE as usize), ("b", LARGE), ("c", LARGE)] {
        put(&shop.objects, &name(key), &content(size, size as u64), Condition::Any).await.unwrap();
    }
    shop
}

fn walk(objects: &Objects) -> Vec<String> {
    let (mut last, mut seen) = (None, Vec::new());
    while let Some(next) = objects.names_behind(last.as_ref(), 1).unwrap().pop() {
        seen.push(next.key.clone());
        last = Some(next);
    }
    seen
}

/// The first of its files, whichever object it is of.
fn flip_one(shop: &Shop, at: u64) {
    let file = OpenOptions::new().read(true).write(true).open(&shop.files()[0]).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_walk_meets_every_object_once_and_reads_all_of_it() {
    let shop = shop_of_three().await;
    assert_eq!(walk(&shop.objects), ["a", "b", "c"]);
    let objects = shop.objects.clone();
    tokio::task::spawn_blocking(move || {
        let mut care = Counting::default();
        for key in ["a", "b", "c"] {
            assert!(matches!(objects.verify(&name(key), &mut care).unwrap(), Verdict::Sound));
        }
        assert_eq!(care.asked_bytes, INLINE as usize + 2 * LARGE);
        assert!(matches!(objects.verify(&name("none"), &mut care).unwrap(), Verdict::Gone));
        care.stop = true;
        assert_eq!(objects.verify(&name("b"), &mut care).unwrap_err().code.as_str(), "cancelled");
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_is_found_before_anybody_reads_it() {
    let shop = shop_of_three().await;
    flip_one(&shop, LARGE as u64 - 1);
    let objects = shop.objects.clone();
    let damaged = tokio::task::spawn_blocking(move || {
        let verdicts = ["b", "c"].map(|key| objects.verify(&name(key), &mut Counting::default()).unwrap());
        verdicts
            .into_iter()
            .filter_map(|verdict| if let Verdict::Damaged(damaged) = verdict { Some(damaged.name) } else { None })
            .collect::<Vec<_>>()
    })
    .await
    .unwrap();
    assert_eq!(damaged.len(), 1);
    assert_eq!(code(shop.objects.head(&damaged[0])), "object_corrupt");
    let sound = ["b", "c"].into_iter().find(|key| *key != damaged[0].key).unwrap();
    assert!(whole(&shop.objects, &name(sound)).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_nobody_serves_is_looked_through_by_sizes_or_by_bytes() {
    let shop = shop_of_three().await;
    flip_one(&shop, 5);
    let root = shop.root.path().to_owned();
    let log = shop.log.clone();
    tokio::task::spawn_blocking(move || {
        assert!(scan(&log, &root, None).unwrap().is_empty(), "sizes are right");
        let damaged = scan(&log, &root, Some(&mut Counting::default())).unwrap();
        assert_eq!(damaged.len(), 1);
        quarantine(&log, &damaged).unwrap();
        assert!(scan(&log, &root, Some(&mut Counting::default())).unwrap().is_empty(), "it is known now");
    })
    .await
    .unwrap();
    std::fs::remove_file(&shop.files()[1]).unwrap();
    let (log, root) = (shop.log.clone(), shop.root.path().to_owned());
    assert_eq!(
        tokio::task::spawn_blocking(move || scan(&log, &root, None).unwrap().len()).await.unwrap(),
        1,
        "gone is told without reading"
    );
}
