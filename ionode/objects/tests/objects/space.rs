//! The share: granted before bytes move, given back when nothing came of it.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use stager_objects::Condition;

use crate::shop::{code, content, name, put, Shop};

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
