//! The share: granted before bytes move, given back when nothing came of it.

use std::sync::atomic::Ordering;
use std::sync::Arc;

use bytes::Bytes;
use stager_objects::{Attributes, Condition, Name, Objects, Options, Owner};
use stager_store::Log;

use crate::shop::{code, content, name, put, whole, Shop};

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_does_not_fit_is_refused_before_its_first_byte() {
    let shop = Shop::new(1_000_000).await;
    put(&shop.objects, &name("one"), &content(600_000, 1), Condition::Any).await.unwrap();
    assert_eq!(code(shop.objects.receive(&name("two"), 600_000, None).await.map(drop)), "share_full");
    assert_eq!(shop.objects.counters().refused_full.load(Ordering::Relaxed), 1);
    assert_eq!(shop.files().len(), 1, "no file was begun");
    // Both lie on the disk while one replaces the other.
    assert_eq!(code(put(&shop.objects, &name("one"), &content(600_000, 2), Condition::Any).await), "share_full");
    shop.objects.delete(&name("one"), Condition::Any).await.unwrap();
    put(&shop.objects, &name("two"), &content(600_000, 1), Condition::Any).await.unwrap();
    assert!((600_000..620_000).contains(&shop.objects.used_bytes()), "{}", shop.objects.used_bytes());
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_under_way_count_and_give_back() {
    let shop = Shop::new(1_000_000).await;
    let mut under_way = shop.objects.receive(&name("one"), 600_000, None).await.unwrap();
    assert_eq!(code(shop.objects.receive(&name("two"), 600_000, None).await.map(drop)), "share_full");
    under_way.write(Bytes::from(content(100_000, 1))).await.unwrap();
    assert_eq!(code(under_way.finish().await.map(drop)), "incomplete_body");
    let mut under_way = shop.objects.receive(&name("one"), 600_000, None).await.unwrap();
    assert_eq!(code(under_way.write(Bytes::from(content(600_001, 1))).await), "incomplete_body");
    drop(under_way);
    let whole = {
        let mut incoming = shop.objects.receive(&name("two"), 600_000, None).await.unwrap();
        incoming.write(Bytes::from(content(600_000, 1))).await.unwrap();
        incoming.finish().await.unwrap()
    };
    assert_eq!(code(shop.objects.receive(&name("three"), 600_000, None).await.map(drop)), "share_full");
    drop(whole);
    put(&shop.objects, &name("three"), &content(600_000, 1), Condition::Any).await.unwrap();
    let used = shop.objects.used_bytes();
    assert_eq!(shop.killed().objects.used_bytes(), used, "a restart counts the same");
}

const MIB: usize = 1 << 20;

#[tokio::test(flavor = "multi_thread")]
async fn nobody_holds_the_share_by_announcing() {
    let shop = Shop::new(100 << 20).await;
    let mut announced = Vec::new();
    for number in 0..20 {
        let mut incoming = shop.objects.receive(&name(&format!("announced {number}")), 60 << 20, None).await.unwrap();
        incoming.write(Bytes::from(content(10, 1))).await.unwrap();
        announced.push(incoming);
    }
    assert!(shop.objects.used_bytes() <= 21 << 20, "{}", shop.objects.used_bytes());
    assert!(shop.disk_bytes() <= 21 << 20, "{}", shop.disk_bytes());
    put(&shop.objects, &name("real"), &content(60 * MIB, 2), Condition::Any).await.unwrap();
    // Whoever comes too late is told as soon as the space is gone, and what came is given back.
    let mut late = announced.pop().unwrap();
    let mut came = 0;
    let refused = loop {
        match late.write(Bytes::from(content(MIB, 3))).await {
            Ok(()) => came += MIB,
            refused => break refused,
        }
    };
    assert_eq!((code(refused), came < 30 * MIB), ("share_full".to_string(), true));
    drop((late, announced));
    assert!(shop.objects.used_bytes() < 61 << 20, "{}", shop.objects.used_bytes());
    assert_eq!(code(shop.objects.receive(&name("too large"), 60 << 20, None).await.map(drop)), "share_full");
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_of_one_owner_leave_space_for_those_of_others() {
    let shop = Shop::new(1 << 30).await;
    let of = |owner: &str| Name::new(Owner::named(owner).unwrap().bucket("bucket").unwrap(), "key");
    let mut of_alice = Vec::new();
    let refused = loop {
        match shop.objects.receive(&of("alice"), 10, None).await {
            Ok(incoming) => of_alice.push(incoming),
            refused => break refused,
        }
        assert!(of_alice.len() < 1000);
    };
    assert_eq!(code(refused.map(drop)), "too_many_bodies");
    shop.objects.receive(&of("bob"), 10, None).await.unwrap();
    of_alice.pop();
    shop.objects.receive(&of("alice"), 10, None).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn many_empty_objects_fill_it_too() {
    let shop = Shop::new(20_000).await;
    let mut stored = 0;
    while put(&shop.objects, &name(&format!("empty {stored}")), b"", Condition::Any).await.is_ok() {
        stored += 1;
        assert!(stored < 200, "names take no space?");
    }
    assert!(stored > 20, "{stored}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_content_in_pieces_is_whole_whatever_its_memory_held_before() {
    let root = tempfile::tempdir().unwrap();
    let log = Arc::new(Log::open(root.path(), stager_store::Options::default()).unwrap().0);
    let objects = Objects::open(log, root.path(), Options { share_bytes: 100 << 20, fsync: true, inline_bytes_max: 1 << 20 }).unwrap();
    objects.create_bucket(&crate::shop::bucket()).await.unwrap();
    for (seed, size) in [1 << 20, 40_000, 300_000, 1, 0, (1 << 20) - 1].into_iter().enumerate() {
        let (key, bytes) = (name(&format!("k{seed}")), content(size, seed as u64));
        let mut incoming = objects.receive(&key, size as u64, None).await.unwrap();
        for piece in bytes.chunks(9_999) {
            incoming.write(Bytes::copy_from_slice(piece)).await.unwrap();
        }
        let object = objects.put(&key, incoming.finish().await.unwrap(), Attributes::default(), Condition::Any).await.unwrap();
        assert_eq!(object.blake3, Some(*blake3::hash(&bytes).as_bytes()));
        assert!(whole(&objects, &key).await.unwrap() == bytes, "{size}");
    }
    // One byte less than was announced: what its memory held before is no content.
    let mut incoming = objects.receive(&name("short"), 50_000, None).await.unwrap();
    incoming.write(Bytes::from(vec![1; 49_999])).await.unwrap();
    assert_eq!(incoming.finish().await.err().unwrap().code.as_str(), "incomplete_body");
    let mut shards = std::fs::read_dir(root.path().join("objects")).unwrap();
    assert!(shards.all(|shard| std::fs::read_dir(shard.unwrap().path()).unwrap().next().is_none()));
}
