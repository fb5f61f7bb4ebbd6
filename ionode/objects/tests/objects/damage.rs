//! Bits that flip on the disk: found before a byte leaves, told, remembered, healed by a new put.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::Ordering;

use stager_objects::{Condition, BLOCK_BYTES};

use crate::shop::{code, content, name, put, read, whole, Shop};

fn flip(path: &Path, at: u64) {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 4], at).unwrap();
}

const LARGE: usize = 3 * BLOCK_BYTES as usize + 12345;

async fn with_damage(at: u64) -> (Shop, Vec<u8>) {
    let shop = Shop::new(100 << 20).await;
    let bytes = content(LARGE, 1);
    put(&shop.objects, &name("large"), &bytes, Condition::Any).await.unwrap();
    assert_eq!(whole(&shop.objects, &name("large")).await.unwrap(), bytes);
    flip(&shop.files()[0], at);
    (shop, bytes)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_block_is_found_by_every_range_that_touches_it() {
    let (shop, bytes) = with_damage(2 * BLOCK_BYTES + 5).await;
    let sound = read(&shop.objects, &name("large"), 7..2 * BLOCK_BYTES).await.unwrap();
    assert!(sound == bytes[7..2 * BLOCK_BYTES as usize]);
    assert_eq!(shop.objects.counters().objects_corrupt.load(Ordering::Relaxed), 0);
    let range = 3 * BLOCK_BYTES - 1..3 * BLOCK_BYTES;
    assert_eq!(code(read(&shop.objects, &name("large"), range).await), "object_corrupt");
    assert_eq!(shop.objects.counters().objects_corrupt.load(Ordering::Relaxed), 1);
    // From here on no part of it is given out, after a restart either, until it is put again.
    assert_eq!(code(read(&shop.objects, &name("large"), 0..10).await), "object_corrupt");
    let shop = shop.killed();
    assert_eq!(code(shop.objects.head(&name("large"))), "object_corrupt");
    put(&shop.objects, &name("large"), &bytes, Condition::Any).await.unwrap();
    assert!(whole(&shop.objects, &name("large")).await.unwrap() == bytes);
    assert_eq!(shop.files().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_byte_of_a_wrong_block_leaves() {
    let (shop, bytes) = with_damage(BLOCK_BYTES + 5).await;
    let mut reader = shop.objects.find(&name("large")).await.unwrap().read(0..LARGE as u64);
    let mut came = Vec::new();
    let error = loop {
        match reader.next().await {
            Ok(Some(block)) => came.extend_from_slice(&block),
            Ok(None) => panic!("the damage was not seen"),
            Err(error) => break error,
        }
    };
    assert_eq!(error.code.as_str(), "object_corrupt");
    assert!(came == bytes[..BLOCK_BYTES as usize]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_table_or_a_short_or_missing_file_is_damage() {
    let (shop, _) = with_damage(LARGE as u64 + 3).await;
    assert_eq!(code(whole(&shop.objects, &name("large")).await), "object_corrupt");
    for short in [true, false] {
        let shop = Shop::new(100 << 20).await;
        put(&shop.objects, &name("large"), &content(LARGE, 1), Condition::Any).await.unwrap();
        let path = shop.files().remove(0);
        if short {
            OpenOptions::new().write(true).open(&path).unwrap().set_len(LARGE as u64).unwrap();
        } else {
            std::fs::remove_file(&path).unwrap();
        }
        assert_eq!(code(whole(&shop.objects, &name("large")).await), "object_corrupt");
        shop.objects.delete(&name("large"), Condition::Any).await.unwrap();
        assert_eq!(code(shop.objects.head(&name("large"))), "object_unknown");
    }
}

/// Each block has its checksum then, but they are those of something else.
#[tokio::test(flavor = "multi_thread")]
async fn a_sound_file_of_another_object_is_damage() {
    let shop = Shop::new(100 << 20).await;
    put(&shop.objects, &name("one"), &content(LARGE, 1), Condition::Any).await.unwrap();
    let one = shop.files().remove(0);
    put(&shop.objects, &name("two"), &content(LARGE, 2), Condition::Any).await.unwrap();
    let two = shop.files().into_iter().find(|path| *path != one).unwrap();
    std::fs::copy(two, one).unwrap();
    assert_eq!(code(whole(&shop.objects, &name("one")).await), "object_corrupt");
    assert!(whole(&shop.objects, &name("two")).await.unwrap() == content(LARGE, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_small_content_in_the_log_is_compared_too() {
    let shop = Shop::new(100 << 20).await;
    let bytes = content(700, 9);
    put(&shop.objects, &name("small"), &bytes, Condition::Any).await.unwrap();
    let holds = |path: &Path| std::fs::read(path).unwrap().windows(700).position(|window| window == bytes);
    let segments = std::fs::read_dir(shop.root.path().join("segments")).unwrap().map(|entry| entry.unwrap().path());
    let (path, at) = segments.filter_map(|path| holds(&path).map(|at| (path.clone(), at))).next().unwrap();
    flip(&path, at as u64 + 100);
    assert_eq!(code(whole(&shop.objects, &name("small")).await), "object_corrupt");
    assert_eq!(shop.objects.counters().objects_corrupt.load(Ordering::Relaxed), 1);
    assert_eq!(code(shop.objects.head(&name("small"))), "object_corrupt");
    put(&shop.objects, &name("small"), &bytes, Condition::Any).await.unwrap();
    assert_eq!(whole(&shop.objects, &name("small")).await.unwrap(), bytes);
}
