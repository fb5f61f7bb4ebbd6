//! Several at once: one winner where there may be one, readers undisturbed, nothing half done where somebody goes away.

use std::time::Duration;

use bytes::Bytes;
use stager_objects::{Attributes, Condition};

use crate::shop::{code, content, name, put, whole, Shop};

#[tokio::test(flavor = "multi_thread")]
async fn of_many_that_create_exactly_one_wins() {
    for size in [10, 5000] {
        let shop = Shop::new(100 << 20).await;
        let tasks: Vec<_> = (0..16u64)
            .map(|seed| {
                let objects = shop.objects.clone();
                tokio::spawn(async move { put(&objects, &name("one"), &content(size, seed), Condition::Absent).await.map(|_| seed) })
            })
            .collect();
        let mut winners = Vec::new();
        for task in tasks {
            match task.await.unwrap() {
                Ok(seed) => winners.push(seed),
                Err(error) => assert_eq!(error.code.as_str(), "precondition_failed"),
            }
        }
        assert_eq!(winners.len(), 1);
        assert_eq!(whole(&shop.objects, &name("one")).await.unwrap(), content(size, winners[0]));
        assert_eq!(shop.files().len(), usize::from(size > 1000), "the losers left nothing");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_that_replace_the_same_exactly_one_wins() {
    let shop = Shop::new(100 << 20).await;
    let first = put(&shop.objects, &name("one"), &content(10, 99), Condition::Any).await.unwrap();
    let tasks: Vec<_> = (0..16u64)
        .map(|seed| {
            let (objects, etag) = (shop.objects.clone(), first.etag.to_string());
            tokio::spawn(async move { put(&objects, &name("one"), &content(10, seed), Condition::Matches(etag)).await })
        })
        .collect();
    let mut won = 0;
    for task in tasks {
        won += usize::from(task.await.unwrap().is_ok());
    }
    assert_eq!(won, 1);
    assert_eq!(code(put(&shop.objects, &name("none"), b"x", Condition::Matches("e".into())).await), "object_unknown");
    assert_eq!(code(shop.objects.delete(&name("one"), Condition::Matches(first.etag.to_string())).await), "precondition_failed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_gets_what_it_opened_whatever_happens_to_the_name() {
    let shop = Shop::new(100 << 20).await;
    let (before, after) = (content(2_500_000, 1), content(2_500_000, 2));
    put(&shop.objects, &name("one"), &before, Condition::Any).await.unwrap();
    let mut reader = shop.objects.find(&name("one")).await.unwrap().read(0..before.len() as u64);
    let mut came = reader.next().await.unwrap().unwrap().to_vec();
    put(&shop.objects, &name("one"), &after, Condition::Any).await.unwrap();
    assert_eq!(shop.files().len(), 2);
    while let Some(block) = reader.next().await.unwrap() {
        came.extend_from_slice(&block);
    }
    assert!(came == before);
    assert!(whole(&shop.objects, &name("one")).await.unwrap() == after);
    drop(reader);
    assert_eq!(shop.files().len(), 1, "what was replaced goes with its last reader");
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_of_a_name_that_changes_all_the_time_see_one_version_each() {
    let shop = Shop::new(200 << 20).await;
    put(&shop.objects, &name("one"), &content(1_500_000, 0), Condition::Any).await.unwrap();
    let writer = {
        let objects = shop.objects.clone();
        tokio::spawn(async move {
            for seed in 1..40 {
                put(&objects, &name("one"), &content(1_500_000, seed), Condition::Any).await.unwrap();
            }
        })
    };
    let expected: Vec<[u8; 32]> = (0..40).map(|seed| *blake3::hash(&content(1_500_000, seed)).as_bytes()).collect();
    while !writer.is_finished() {
        let bytes = whole(&shop.objects, &name("one")).await.unwrap();
        assert!(expected.contains(blake3::hash(&bytes).as_bytes()), "a mixture of two versions");
    }
    writer.await.unwrap();
    assert_eq!(shop.files().len(), 1);
}

/// A client that goes away while its object is committed: it is there whole or not at all, never a record without its file.
#[tokio::test(flavor = "multi_thread")]
async fn a_put_that_nobody_waits_for_is_whole_or_absent() {
    let shop = Shop::new(100 << 20).await;
    let bytes = content(5000, 3);
    for round in 0..30u64 {
        let key = name(&format!("k{round}"));
        let mut incoming = shop.objects.receive(&key, 5000, None).await.unwrap();
        incoming.write(Bytes::from(bytes.clone())).await.unwrap();
        let whole = incoming.finish().await.unwrap();
        let putting = shop.objects.put(&key, whole, Attributes::default(), Condition::Any);
        // Dropped before it is done, mostly.
        let _ = tokio::time::timeout(Duration::from_micros(round * 30), putting).await;
    }
    // Behind everything that was asked for.
    put(&shop.objects, &name("last"), b"x", Condition::Any).await.unwrap();
    for (key, _) in shop.objects.list(&crate::shop::bucket(), "k", None, "", 1000).unwrap().objects {
        assert_eq!(whole(&shop.objects, &name(&key)).await.unwrap(), bytes, "{key}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_comes_into_a_bucket_that_goes() {
    let shop = Shop::new(100 << 20).await;
    for round in 0..30 {
        let bucket = stager_objects::Owner::default().bucket(&format!("bucket-{round}")).unwrap();
        shop.objects.create_bucket(&bucket).await.unwrap();
        let one = stager_objects::Name::new(bucket.clone(), "one");
        let (objects, target) = (shop.objects.clone(), one.clone());
        let putting = tokio::spawn(async move { put(&objects, &target, b"x", Condition::Any).await });
        let deleted = shop.objects.delete_bucket(&bucket).await;
        let stored = putting.await.unwrap();
        match (deleted, stored) {
            (Ok(()), Err(error)) => assert_eq!(error.code.as_str(), "bucket_unknown"),
            (Err(error), Ok(_)) => assert_eq!(error.code.as_str(), "bucket_not_empty"),
            (deleted, stored) => panic!("{deleted:?} {stored:?}"),
        }
        assert_eq!(shop.objects.bucket(&bucket).is_ok(), shop.objects.head(&one).is_ok());
    }
}
