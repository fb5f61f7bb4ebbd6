//! The one call whose body is not read before it is understood: the content of a push.
//!
//! The one rule: not a byte of it is read before its token was found right.

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::{Method, Request};
use stager_core::ids::check_id;

use super::answer::{self, Answer};
use super::auth;
use crate::failure::Failure;
use crate::node::Node;
use crate::transfers::push;

/// The id of the transfer that this is the content of.
pub fn transfer_of(request: &Request<Incoming>) -> Option<String> {
    let id = request.uri().path().strip_prefix("/v1/transfers/")?.strip_suffix("/content")?;
    (request.method() == Method::PUT).then(|| id.to_string())
}

pub async fn content(node: Arc<Node>, transfer_id: String, request: Request<Incoming>) -> Result<Answer, Failure> {
    let (parts, body) = request.into_parts();
    auth::admit(&node, &parts, false).await?;
    check_id("transfer id", &transfer_id)?;
    let _open = node.calls.open(true);
    push::deliver(&node.transfers, &transfer_id, body).await?;
    Ok(answer::empty())
}
