//! Other I/O nodes, as the scheduler told them: where they answer, and by which token where no certificate shows it. Kept in memory only.
//!
//! The one rule: no answer, error or log line repeats a peer's token, and a node that answers under another's name is not believed.

pub mod call;
pub mod forgotten;
pub mod link;
pub mod pack;
pub mod source;

use std::collections::HashMap;
use std::sync::{Arc, RwLock};

use serde::Deserialize;
use stager_core::error::{ApiError, Code};
use stager_core::ids::check_id;
use stager_origins::Secret;

use crate::failure::bad_request;
use crate::tls::Tls;
use forgotten::Kept;
use link::{Address, Link};

pub struct Peers {
    known: RwLock<HashMap<String, Arc<Link>>>,
    tls: Option<Arc<Tls>>,
    pub forgotten: Kept,
}

/// The body of `PUT /v1/peers/{node_id}`. It holds a secret and is therefore never written.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeerRequest {
    pub address: String,
    /// Not between nodes that speak TLS: their certificates show who they are.
    pub token: Option<Secret>,
}

impl Peers {
    pub fn new(tls: Option<Arc<Tls>>, forgotten: Kept) -> Self {
        Self { known: RwLock::default(), tls, forgotten }
    }

    /// The same id again replaces: a node that was started again has another token or port.
    pub fn put(&self, node_id: &str, body: &[u8]) -> Result<(), ApiError> {
        check_id("node id", node_id)?;
        // What serde says of a wrong value may hold the value: only the place is told.
        let request: PeerRequest = serde_json::from_slice(body).map_err(|error| {
            let place = format!("line {} column {}", error.line(), error.column());
            bad_request(node_id, format!("the description of the node {node_id} is not understood at {place}; give address and token"))
        })?;
        let address = Address::parse(&request.address)?;
        let by_certificate = self.tls.is_some() && matches!(address, Address::Tcp(_));
        let token = request.token.filter(|_| !by_certificate);
        if !by_certificate && !token.as_ref().is_some_and(|token| is_token(token.reveal())) {
            return Err(bad_request(node_id, format!("the token of the node {node_id} is not valid; give the text of its token file")));
        }
        let link = Arc::new(Link::new(Some(node_id.to_string()), address, token).with_tls(self.tls.clone()));
        self.known.write().expect("nobody panics here").insert(node_id.to_string(), link);
        tracing::info!(peer = node_id, address = request.address, "a peer was told");
        Ok(())
    }

    pub fn forget(&self, node_id: &str) {
        self.known.write().expect("nobody panics here").remove(node_id);
    }

    pub fn get(&self, node_id: &str) -> Result<Arc<Link>, ApiError> {
        self.known.read().expect("nobody panics here").get(node_id).cloned().ok_or_else(|| {
            ApiError::new(
                Code::PeerUnknown,
                node_id,
                format!("this node was not told where the node {node_id} is since it started; put it as a peer first"),
            )
        })
    }
}

/// What can stand in a header, and is long enough to be a secret.
fn is_token(text: &str) -> bool {
    (16..=512).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}
