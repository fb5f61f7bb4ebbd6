//! The connections of one of several nodes at an sftp server: no more than it was allowed, and for as long.

mod place;
mod relay;
mod sshd;

use std::sync::Arc;
use std::time::Duration;

use place::DirectoryPlace;
use relay::Relay;
use sshd::Sshd;
use stager_origins::conformance::{content, put};
use stager_origins::{open, Allowance, Origin, OriginConfig, Paced, SftpConfig};

fn origin(config: SftpConfig) -> Arc<dyn Origin> {
    open(&OriginConfig::Sftp(config)).unwrap()
}

/// One of several nodes: with fewer connections allowed what is under way goes on, at the end of the lease all are closed, and then all waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_keep_to_an_allowance_that_changes() {
    let sshd = Sshd::start("");
    let config = SftpConfig { connections_max: Some(3), ..sshd.config() };
    let place = DirectoryPlace::new(Arc::new(Paced::new(origin(config), None)), &sshd.base());
    let allow = |connections_max: usize, lease: Option<Duration>| {
        let allowance = Allowance { bandwidth_bytes_per_s_max: None, connections_max: Some(connections_max), lease };
        place.origin.capabilities().allowance.expect("sftp has connections").allow(allowance)
    };
    let until = |connections_max: usize, lease: Option<Duration>, open: usize| async move {
        while allow(connections_max, lease) != open {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let uploads = |name: &'static str| {
        let place = &place;
        let all = (0..24u64).map(move |i| async move { put(place, &format!("{name}/{i}"), &content(i, 1 << 20)).await });
        futures::future::join_all(all)
    };
    uploads("many").await;
    assert!(allow(3, None) > 1);
    until(1, None, 1).await;
    uploads("few").await;
    until(0, None, 0).await;
    let mut waits = Box::pin(place.origin.stat("many/1"));
    assert!(tokio::time::timeout(Duration::from_millis(300), &mut waits).await.is_err());
    allow(2, None);
    waits.await.unwrap();
    // Nobody renews it.
    allow(2, Some(Duration::from_millis(50)));
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(tokio::time::timeout(Duration::from_millis(300), place.origin.stat("many/1")).await.is_err());
    until(2, None, 0).await;
    uploads("again").await;
}

/// The allowance ends while it logs in: it is closed again, and who asked for it waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_comes_after_its_allowance_ended_is_not_used() {
    let sshd = Sshd::start("");
    std::fs::write(sshd.base().join("file"), b"x").unwrap();
    let relay = Relay::to(sshd.port).await;
    // A login has more than five ways there and back: it takes a second at least.
    relay.lengthen(100);
    let origin = origin(sshd.config_by(relay.port));
    let allow = |connections_max: usize, lease: Option<Duration>| {
        let allowance = Allowance { bandwidth_bytes_per_s_max: None, connections_max: Some(connections_max), lease };
        origin.capabilities().allowance.expect("sftp has connections").allow(allowance)
    };
    allow(1, Some(Duration::from_millis(500)));
    let mut waits = Box::pin(origin.stat("file"));
    let let_in_and_gone = async {
        while !(sshd.log().contains("Accepted publickey") && sshd.log().contains("Disconnected from user")) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        answer = &mut waits => panic!("it was answered: {answer:?}"),
        () = let_in_and_gone => {}
    }
    assert_eq!(allow(0, None), 0);
    assert_eq!(sshd.log().matches("Accepted publickey").count(), 1);
    relay.lengthen(0);
    allow(1, None);
    waits.await.unwrap();
}
