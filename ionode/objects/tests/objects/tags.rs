//! Tags change, and nothing else does.

use stager_objects::{Condition, Tags};

use crate::shop::{code, content, name, put, whole, Shop, INLINE};

fn tags(value: &str) -> Tags {
    vec![("kind".to_string(), value.to_string())]
}

#[tokio::test(flavor = "multi_thread")]
async fn tags_change_and_nothing_else() {
    let shop = Shop::new(100 << 20).await;
    for (at, size) in [10, INLINE as usize + 10, 3 << 20].into_iter().enumerate() {
        let (one, bytes) = (name(&format!("one{at}")), content(size, at as u64));
        put(&shop.objects, &one, &bytes, Condition::Any).await.unwrap();
        let (before, used_bytes, files) = (shop.objects.head(&one).unwrap(), shop.objects.used_bytes(), shop.files());
        shop.objects.set_tags(&one, tags("x")).await.unwrap();
        let after = shop.objects.head(&one).unwrap();
        assert_eq!(after.tags, tags("x"));
        assert_eq!(after.attributes, before.attributes.clone());
        assert_eq!((after.etag, after.modified_ms, after.size_bytes), (before.etag, before.modified_ms, before.size_bytes));
        assert_eq!(shop.files(), files);
        assert!(whole(&shop.objects, &one).await.unwrap() == bytes);
        assert!(shop.objects.used_bytes() > used_bytes, "tags count");
        shop.objects.set_tags(&one, Tags::new()).await.unwrap();
        assert_eq!((shop.objects.head(&one).unwrap(), shop.objects.used_bytes()), (before, used_bytes));
        shop.objects.set_tags(&one, tags("kept")).await.unwrap();
    }
    let shop = shop.killed();
    for at in 0..3 {
        assert_eq!(shop.objects.head(&name(&format!("one{at}"))).unwrap().tags, tags("kept"));
        shop.objects.delete(&name(&format!("one{at}")), Condition::Any).await.unwrap();
    }
    assert_eq!((shop.files().len(), code(shop.objects.set_tags(&name("one1"), tags("x")).await)), (0, "object_unknown".to_string()));
}

#[tokio::test(flavor = "multi_thread")]
async fn tags_take_space_in_the_share_and_give_it_back() {
    let shop = Shop::new(1_000_000).await;
    let long: Tags = (0..10).map(|number| (format!("{number}{}", "n".repeat(120)), "v".repeat(250))).collect();
    let mut tagged = 0;
    let refused = loop {
        let one = name(&format!("one{tagged}"));
        if let Err(error) = put(&shop.objects, &one, b"small", Condition::Any).await {
            break Err(error);
        }
        match shop.objects.set_tags(&one, long.clone()).await {
            Ok(()) => tagged += 1,
            refused => break refused,
        }
        assert!(tagged < 1000, "tags take no space?");
    };
    assert_eq!(code(refused), "share_full");
    assert!(tagged > 50 && shop.objects.used_bytes() <= 1_000_000, "{tagged}");
    // Removing them needs no space.
    for number in 0..4 {
        shop.objects.set_tags(&name(&format!("one{number}")), Tags::new()).await.unwrap();
    }
    put(&shop.objects, &name("another"), b"small", Condition::Any).await.unwrap();
    shop.objects.set_tags(&name("another"), long).await.unwrap();
}
