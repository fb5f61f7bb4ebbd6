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
