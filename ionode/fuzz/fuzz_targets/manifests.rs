//! Manifests of stripes and of directories, as they lie on disk or come from a peer: understood or refused, and said again the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stager_node::store::tree;
use stager_node::stripes::{self, StripeManifest};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(manifest) = StripeManifest::parse(bytes, "a peer") {
        assert_eq!(manifest.stripes.len(), manifest.layout.held().count());
        let said = manifest.to_bytes();
        assert_eq!(StripeManifest::parse(&said, "a peer").expect("what was said is understood").to_bytes(), said);
        let mut end = 0;
        for n in manifest.layout.held() {
            let range = manifest.layout.range(n);
            assert!(end <= range.start && range.start < range.end && range.end <= manifest.layout.file_bytes);
            assert!(manifest.layout.position(range.start).is_some());
            end = range.end;
        }
        for stripe in &manifest.stripes {
            if let Some(value) = stripes::from_hex(&stripe.blake3_cv) {
                assert_eq!(stripes::from_hex(&stripes::hex(value)), Some(value));
            }
        }
    }
    if let Ok(manifest) = tree::Manifest::parse(bytes, "a tree") {
        let said = manifest.to_bytes();
        assert_eq!(tree::Manifest::parse(&said, "a tree").expect("what was said is understood").to_bytes(), said);
        assert!(manifest.members.iter().all(|member| manifest.member(&member.path).is_some()));
        let _ = (manifest.size_bytes(), manifest.folders());
    }
});
