//! Copies on other nodes while a file arrives: this node tells the first peer of the chain, which follows the file in flight and tells the next.
//!
//! The one rule: a peer is counted as holding the file only when it said so itself, with the BLAKE3 that this node found.

use std::sync::Arc;
use std::time::{Duration, Instant};

use stager_core::error::{ApiError, Code};
use stager_core::ids::check_id;
use stager_core::record::Source;
use stager_core::replica::{Replica, ReplicaKey};

use super::table::Transfers;
use crate::context::{Cause, NodeContext};
use crate::failure::bad_request;
use crate::peers::link::{Link, Term};
use crate::peers::Peers;
use crate::wire::{
    not_asked, Ack, CopyRequest, ExpectedCopy, Fact, OutputReplication, PeerReplica, ReplicasWanted, Replication, TransferAnswer,
    TransferStatus,
};

/// The place of a content that came from a peer: any peer that has the content is the same place.
pub(super) const PEERS: &str = "replica";
/// For how long a peer that does not answer is asked how its copy stands.
pub const LOST_WITHIN: Duration = Duration::from_secs(15);
pub const ASK_AGAIN_AFTER: Duration = Duration::from_millis(500);

/// What is wanted of other nodes for one replica.
pub struct Chain {
    context: Arc<NodeContext>,
    peers: Arc<Peers>,
    cause: Cause,
    key: ReplicaKey,
    /// The transfer or attempt that it is for.
    made_by: String,
    wanted: Option<ReplicasWanted>,
    told: Option<Told>,
    refused: Option<ApiError>,
}

struct Told {
    link: Arc<Link>,
    transfer_id: String,
    request: CopyRequest,
}

/// Tells one content from another before its BLAKE3 is known.
pub(super) fn identity(source: &Source) -> String {
    if source.origin == PEERS {
        return source.token.clone();
    }
    let text = format!("{}\0{}\0{}", source.origin, source.path, source.token);
    format!("source:{}", blake3::hash(text.as_bytes()).to_hex())
}

impl Chain {
    pub fn for_maker(transfers: &Transfers, cause: &Cause, made_by: &str, key: &ReplicaKey, wanted: Option<&ReplicasWanted>) -> Self {
        let wanted = wanted.filter(|wanted| !wanted.chain.is_empty()).cloned();
        let (context, peers) = (transfers.context.clone(), transfers.peers.clone());
        let (cause, key, made_by) = (cause.clone(), key.clone(), made_by.to_string());
        Self { context, peers, cause, key, made_by, wanted, told: None, refused: None }
    }

    pub fn ack(&self) -> Option<Ack> {
        self.wanted.as_ref().map(|wanted| wanted.ack)
    }

    /// Before the first byte moves: the peers reserve space and follow. With `sync` what they refuse is this node's error.
    pub(super) async fn tell(&mut self, size_bytes: u64, source: &Source) -> Result<(), ApiError> {
        self.ask(ExpectedCopy { size_bytes, blake3: None, identity: Some(identity(source)) }, false).await
    }

    /// When this node was asked itself: all nodes behind it reserve space before the first byte moves anywhere.
    pub(super) async fn hold(&mut self, expected: &ExpectedCopy) -> Result<(), ApiError> {
        self.ask(expected.clone(), true).await
    }

    /// Of what this node holds already.
    pub async fn tell_of(&mut self, replica: &Replica, identity: Option<String>) -> Result<(), ApiError> {
        self.ask(ExpectedCopy { size_bytes: replica.size_bytes, blake3: Some(replica.blake3.clone()), identity }, false).await
    }

    async fn ask(&mut self, expected: ExpectedCopy, hold: bool) -> Result<(), ApiError> {
        let Some(wanted) = &self.wanted else { return Ok(()) };
        let (first, replicas) = wanted.next_node();
        let request = CopyRequest {
            file_id: self.key.file_id.clone(),
            generation: self.key.generation.clone(),
            sources: vec![PeerReplica { node_id: self.context.node_id.clone(), generation: self.key.generation.clone() }],
            expected,
            priority: 0,
            hold,
            held_for: hold.then(|| self.made_by.clone()),
            replicas,
        };
        let transfer_id = self.copy_id();
        let told = match self.peers.get(first) {
            Ok(link) => link.ask_copy(self.term(), &transfer_id, &request).await.map(|_| link),
            Err(error) => Err(error),
        };
        match told {
            Ok(link) => self.told = Some(Told { link, transfer_id, request }),
            Err(error) if wanted.ack == Ack::Sync => return Err(error),
            Err(error) => self.refused = Some(error),
        }
        Ok(())
    }

    /// The same when asked again.
    fn copy_id(&self) -> String {
        let name = blake3::hash(format!("{} {}", self.made_by, self.key).as_bytes()).to_hex();
        format!("r-{}", &name[..32])
    }

    /// What this node could not get itself the chain cannot get from it.
    pub(super) fn call_off(self) {
        let first = self.wanted.as_ref().and_then(|wanted| self.peers.get(&wanted.chain[0]).ok());
        if let Some(link) = first {
            tokio::spawn(async move {
                if let Err(error) = link.call_off(self.term(), &self.copy_id()).await {
                    tracing::debug!(replica = %self.key, %error, "a copy could not be called off; it ends by itself");
                }
            });
        }
    }

    fn term(&self) -> Term {
        Term::Of(self.cause.epoch)
    }

    /// Once this node holds `replica`: waits until the chain has ended one way or the other.
    pub async fn outcome(&self, replica: &Replica) -> Replication {
        let mut known = Replication { held_by: vec![self.context.node_id.clone()], missing: Vec::new() };
        let Some(wanted) = &self.wanted else { return known };
        let error = match (&self.told, &self.refused) {
            (Some(told), _) => match self.wait(told, replica).await {
                Ok(theirs) => {
                    known.held_by.extend(theirs.held_by);
                    known.missing = theirs.missing;
                    return known;
                }
                Err(error) => error,
            },
            (None, Some(error)) => error.clone(),
            (None, None) => self.context.refuse_if_draining(&self.made_by).err().unwrap_or_else(|| not_asked("this node")),
        };
        known.missing = wanted.held_by_nobody(&error);
        known
    }

    /// What the first peer tells of itself and of those behind it. An error: it does not hold the file.
    async fn wait(&self, told: &Told, replica: &Replica) -> Result<Replication, ApiError> {
        let mut lost_since: Option<Instant> = None;
        loop {
            let answered = match told.link.transfer(self.term(), &told.transfer_id, true).await {
                Err(error) if error.code == Code::NotFound => self.ask_again(told, replica).await,
                answered => answered,
            };
            match answered {
                Ok(answer) => match self.ended(answer, replica) {
                    Some(outcome) => return outcome,
                    None => lost_since = None,
                },
                Err(error) if error.class != stager_core::error::Class::Transient => return Err(error),
                Err(error) if lost_since.get_or_insert_with(Instant::now).elapsed() >= LOST_WITHIN => return Err(error),
                Err(_) => tokio::time::sleep(ASK_AGAIN_AFTER).await,
            }
        }
    }

    /// A peer that was started again, or whose scheduler has taken note of the end, does not know the transfer any more.
    async fn ask_again(&self, told: &Told, replica: &Replica) -> Result<TransferAnswer, ApiError> {
        let mut request = CopyRequest { hold: false, held_for: None, ..told.request.clone() };
        request.expected.blake3 = Some(replica.blake3.clone());
        told.link.ask_copy(self.term(), &told.transfer_id, &request).await
    }

    fn ended(&self, answer: TransferAnswer, replica: &Replica) -> Option<Result<Replication, ApiError>> {
        let peer = &self.wanted.as_ref().expect("it was told").chain[0];
        let alone = || Replication { held_by: vec![peer.clone()], missing: Vec::new() };
        Some(match (answer.state, answer.event.map(|event| event.fact)) {
            (TransferStatus::Queued | TransferStatus::Running, _) => return None,
            (_, Some(Fact::TransferDone(done))) if done.blake3 == replica.blake3 => Ok(done.replication.unwrap_or_else(alone)),
            (_, Some(Fact::TransferDone(done))) => {
                let message = format!("the node {peer} holds another content as {} (BLAKE3 {}); verify it there", self.key, done.blake3);
                Err(ApiError::new(Code::ChecksumMismatch, &self.key.file_id, message))
            }
            (_, Some(Fact::TransferFailed { replication: Some(replication), .. })) => Ok(replication),
            (_, Some(Fact::TransferFailed { error, .. })) => Err(error),
            _ => {
                Err(ApiError::new(Code::Cancelled, &self.key.file_id, format!("the copy of {} to the node {peer} was cancelled", self.key)))
            }
        })
    }
}

/// Of an output that this node has just committed. `sync`: waits for the whole chain; else its end is an event, or nobody's business.
pub async fn replicate(
    transfers: &Transfers,
    cause: &Cause,
    made_by: &str,
    replica: &Replica,
    wanted: &ReplicasWanted,
) -> Option<OutputReplication> {
    // Each time under another name: what failed before is not asked how it ended.
    let made_by = format!("{made_by} {:016x}", rand::random::<u64>());
    let mut chain = Chain::for_maker(transfers, cause, &made_by, &replica.key(), Some(wanted));
    if let Err(error) = chain.tell_of(replica, None).await {
        chain.refused = Some(error);
    }
    match wanted.ack {
        Ack::Local => None,
        Ack::Async => {
            transfers.follow(tell_end(transfers.context.clone(), cause.clone(), replica.clone(), chain));
            None
        }
        Ack::Sync => {
            let replication = chain.outcome(replica).await;
            Some(OutputReplication { file_id: replica.file_id.clone(), generation: replica.generation.clone(), replication })
        }
    }
}

/// The chain's end as an event: of an `async` chain.
pub async fn tell_end(context: Arc<NodeContext>, cause: Cause, replica: Replica, chain: Chain) {
    let replication = tokio::select! {
        replication = chain.outcome(&replica) => replication,
        () = context.shutdown.cancelled() => return,
    };
    context.emit(&cause, Fact::Replicated { file_id: replica.file_id, generation: replica.generation, replication });
}

/// The nodes of a chain: known by their first, and each once.
pub fn check(transfers: &Transfers, chain: &[String]) -> Result<(), ApiError> {
    for (n, node_id) in chain.iter().enumerate() {
        check_id("node id", node_id)?;
        if *node_id == transfers.context.node_id || chain[..n].contains(node_id) {
            return Err(bad_request(node_id, format!("the node {node_id} would get the replica twice; name each node of a chain once")));
        }
    }
    chain.first().map_or(Ok(()), |first| transfers.peers.get(first).map(drop))
}

/// With `sync` the answer is the whole chain's. An error where a node does not hold it.
pub fn judged(key: &ReplicaKey, replication: &Replication) -> Result<(), ApiError> {
    let Some(first) = replication.missing.first() else { return Ok(()) };
    let missing: Vec<&str> = replication.missing.iter().map(|missing| missing.node_id.as_str()).collect();
    let message = format!(
        "replica {key} is on disk on {} and not on {}: {}; ask for it again to go on",
        replication.held_by.join(", "),
        missing.join(", "),
        first.error.message
    );
    Err(ApiError::replication_failed(first.error.clone(), &key.file_id, message))
}
