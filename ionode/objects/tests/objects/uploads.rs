//! Uploads in parts: no byte is copied, an end is an end, an answer that was lost can be asked for again.

use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use bytes::Bytes;
use stager_objects::{Algorithm, Attributes, CompletedPart, Condition, Name, Part, Upload, UploadId, Whole};

use crate::shop::{code, content, name, read, whole, Shop};

const PART: usize = 5 << 20;

fn begun(algorithm: Option<Algorithm>, full_checksum: bool) -> Upload {
    Upload { started_ms: 1, attributes: Attributes::default(), algorithm, full_checksum, tags: Vec::new() }
}

async fn part(shop: &Shop, name: &Name, id: UploadId, number: u16, bytes: &[u8]) -> Part {
    let mut incoming = shop.objects.receive_part(name, id, bytes.len() as u64, None).await.unwrap();
    incoming.write(Bytes::copy_from_slice(bytes)).await.unwrap();
    shop.objects.put_part(name, id, number, incoming.finish().await.unwrap()).await.unwrap()
}

fn listed(parts: &[(u16, &Part)]) -> Vec<CompletedPart> {
    parts
        .iter()
        .map(|(number, part)| CompletedPart { number: *number, etag: Some(part.etag().to_string()), checksums: Vec::new() })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_become_an_object_without_being_copied() {
    let shop = Shop::new(100 << 20).await;
    let (one, bytes) = (name("one"), content(2 * PART + 77, 5));
    let id = shop.objects.create_upload(&one, begun(Some(Algorithm::Crc32), true)).await.unwrap();
    let never = part(&shop, &one, id, 9, &bytes[..1000]).await;
    let third = part(&shop, &one, id, 3, &bytes[2 * PART..]).await;
    part(&shop, &one, id, 1, b"replaced").await;
    let first = part(&shop, &one, id, 1, &bytes[..PART]).await;
    let second = part(&shop, &one, id, 2, &bytes[PART..2 * PART]).await;
    let inodes = |shop: &Shop| shop.files().iter().map(|path| path.metadata().unwrap().ino()).collect::<Vec<_>>();
    let before = inodes(&shop);
    assert_eq!(before.len(), 4);
    let list = listed(&[(1, &first), (2, &second), (3, &third)]);
    for (wrong, why) in [
        (listed(&[(2, &second), (1, &first)]), "part_order"),
        (listed(&[(1, &second)]), "part_wrong"),
        (listed(&[(4, &first)]), "part_wrong"),
        (listed(&[(3, &third), (9, &never)]), "part_small"),
        (Vec::new(), "part_wrong"),
    ] {
        assert_eq!(code(shop.objects.complete_upload(&one, id, wrong, Condition::Any, Whole::default()).await), why);
    }
    let right = Whole {
        checksum: Some((Algorithm::Crc32, Algorithm::Crc32.of(&bytes))),
        of_parts: 0,
        full_checksum: Some(true),
        size_bytes: Some(bytes.len() as u64),
    };
    for (wrong, why) in [
        (Whole { checksum: Some((Algorithm::Crc32, vec![0; 4])), ..right.clone() }, "checksum_wrong"),
        (Whole { checksum: Some((Algorithm::Crc32c, Algorithm::Crc32c.of(&bytes))), ..right.clone() }, "checksum_wrong"),
        (Whole { of_parts: 3, ..right.clone() }, "checksum_wrong"),
        (Whole { full_checksum: Some(false), ..right.clone() }, "checksum_type_wrong"),
        (Whole { size_bytes: Some(bytes.len() as u64 - 1), ..right.clone() }, "size_wrong"),
    ] {
        assert_eq!(code(shop.objects.complete_upload(&one, id, list.clone(), Condition::Any, wrong).await), why);
    }
    let mut doubtful = list.clone();
    doubtful[1].checksums = vec![(Algorithm::Crc32, second.checksum.1.clone()), (Algorithm::Md5, vec![0; 16])];
    assert_eq!(code(shop.objects.complete_upload(&one, id, doubtful, Condition::Any, right.clone()).await), "part_wrong");
    let object = shop.objects.complete_upload(&one, id, list.clone(), Condition::Absent, right).await.unwrap();
    assert_eq!(object.crc64nvme, crc_fast::crc64_nvme(&bytes));
    assert_eq!(object.part_sizes_bytes(), [PART as u64, PART as u64, 77]);
    let after = inodes(&shop);
    assert!(after.len() == 3 && after.iter().all(|inode| before.contains(inode)), "the same files, without the part that was not named");
    assert!(whole(&shop.objects, &one).await.unwrap() == bytes);
    let over = PART as u64 - 3..2 * PART as u64 + 9;
    assert!(read(&shop.objects, &one, over.clone()).await.unwrap() == bytes[over.start as usize..over.end as usize]);
    // The answer was lost: it is asked for again, and again after a restart.
    let shop = shop.killed();
    assert_eq!(shop.objects.complete_upload(&one, id, list, Condition::Absent, Whole::default()).await.unwrap(), object);
    assert_eq!(
        code(shop.objects.complete_upload(&name("other"), id, Vec::new(), Condition::Any, Whole::default()).await),
        "upload_unknown"
    );
    shop.objects.delete(&one, Condition::Any).await.unwrap();
    assert_eq!(shop.files().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checksum_of_checksums_is_as_s3_has_it() {
    let shop = Shop::new(100 << 20).await;
    let (one, bytes) = (name("one"), content(PART + 5, 5));
    let id = shop.objects.create_upload(&one, begun(Some(Algorithm::Sha256), false)).await.unwrap();
    let first = part(&shop, &one, id, 1, &bytes[..PART]).await;
    let second = part(&shop, &one, id, 2, &bytes[PART..]).await;
    let together = [Algorithm::Sha256.of(&bytes[..PART]), Algorithm::Sha256.of(&bytes[PART..])].concat();
    let list = listed(&[(1, &first), (2, &second)]);
    let right =
        Whole { checksum: Some((Algorithm::Sha256, Algorithm::Sha256.of(&together))), of_parts: 2, full_checksum: None, size_bytes: None };
    let wrong = [
        Whole { of_parts: 3, ..right.clone() },
        Whole { checksum: Some((Algorithm::Sha256, Algorithm::Sha256.of(&bytes))), of_parts: 2, ..right.clone() },
        Whole { full_checksum: Some(true), ..right.clone() },
    ];
    for wrong in wrong {
        assert!(shop.objects.complete_upload(&one, id, list.clone(), Condition::Any, wrong).await.is_err());
    }
    let object = shop.objects.complete_upload(&one, id, list, Condition::Any, right).await.unwrap();
    assert_eq!((object.checksum.value, object.checksum.of_parts), (Algorithm::Sha256.of(&together), 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_ends_once_and_takes_its_parts_with_it() {
    let shop = Shop::new(100 << 20).await;
    let one = name("one");
    let id = shop.objects.create_upload(&one, begun(None, true)).await.unwrap();
    part(&shop, &one, id, 1, b"x").await;
    let used = shop.objects.used_bytes();
    let mut late = shop.objects.receive_part(&one, id, 1, None).await.unwrap();
    late.write(Bytes::from_static(b"y")).await.unwrap();
    let late = late.finish().await.unwrap();
    shop.objects.abort_upload(&one, id).await.unwrap();
    assert_eq!(code(shop.objects.put_part(&one, id, 2, late).await), "upload_unknown");
    assert_eq!(code(shop.objects.abort_upload(&one, id).await), "upload_unknown");
    assert!(shop.files().is_empty() && shop.objects.used_bytes() < used);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_completed_is_forgotten_in_time() {
    let shop = Shop::new(100 << 20).await;
    let old = shop.objects.create_upload(&name("old"), begun(None, true)).await.unwrap();
    part(&shop, &name("old"), old, 1, b"x").await;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as u64;
    let new = shop.objects.create_upload(&name("new"), Upload { started_ms: now, ..begun(None, true) }).await.unwrap();
    assert_eq!(shop.objects.expire_uploads(Duration::from_secs(3600)).await.unwrap(), 1);
    assert!(shop.objects.upload(&name("new"), new).is_ok() && shop.files().is_empty());
    assert_eq!(code(shop.objects.upload(&name("old"), old)), "upload_unknown");
    shop.objects.delete_bucket(&crate::shop::bucket()).await.unwrap();
    assert_eq!(code(shop.objects.upload(&name("new"), new)), "upload_unknown");
}

#[tokio::test(flavor = "multi_thread")]
async fn uploads_are_listed_in_pages() {
    let shop = Shop::new(100 << 20).await;
    let mut made = Vec::new();
    for key in ["a", "a", "b/c", "b\u{0}d"] {
        made.push((key.to_string(), shop.objects.create_upload(&name(key), begun(None, true)).await.unwrap()));
    }
    made.sort();
    let mut seen: Vec<(String, UploadId)> = Vec::new();
    loop {
        let after = seen.last().map(|(key, id)| (key.as_str(), *id));
        let (page, more) = shop.objects.uploads(&crate::shop::bucket(), "", after, 1).unwrap();
        seen.extend(page.into_iter().map(|uploading| (uploading.key, uploading.id)));
        if !more {
            break;
        }
    }
    assert_eq!(seen, made);
    assert_eq!(shop.objects.uploads(&crate::shop::bucket(), "b", None, 10).unwrap().0.len(), 2);
}
