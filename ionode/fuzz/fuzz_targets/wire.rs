//! What a caller sends: any bytes as the body of any call are understood or refused, and what is understood is said again the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde::{de::DeserializeOwned, Serialize};
use stager_node::wire;

fn there_and_back<T: DeserializeOwned + Serialize>(bytes: &[u8]) {
    if let Ok(value) = serde_json::from_slice::<T>(bytes) {
        let text = serde_json::to_vec(&value).unwrap();
        let again: T = serde_json::from_slice(&text).expect("what was said is understood");
        assert_eq!(serde_json::to_vec(&again).unwrap(), text);
    }
}

fuzz_target!(|bytes: &[u8]| {
    there_and_back::<wire::TransferRequest>(bytes);
    there_and_back::<wire::StageInRequest>(bytes);
    there_and_back::<wire::StageOutRequest>(bytes);
    there_and_back::<wire::ReleaseRequest>(bytes);
    there_and_back::<wire::CapacityRequest>(bytes);
    there_and_back::<stager_core::replica::Replica>(bytes);
    let _ = serde_json::from_slice::<stager_origins::OriginConfig>(bytes);
    if let Ok(text) = std::str::from_utf8(bytes) {
        assert_eq!(stager_core::ids::check_relative_path(text).is_ok(), stager_core::ids::is_relative_path(text));
    }
});
