//! Bodies that are documents: read whole before an operation begins, hashed while they come.
//!
//! The one rule: what a request says of its document is compared before anything is done.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use hyper::http::Extensions;
use hyper::{Method, Request, Uri};
use s3s::{s3_error, S3Request, S3Result};
use stager_objects::Hasher;

use crate::checksums::{in_headers, Given};

/// What came of a document, beside the request it came with.
#[derive(Clone)]
struct Came(Arc<Mutex<Option<Hasher>>>);

pub struct Hashed<B> {
    body: B,
    came: Option<Came>,
}

/// Whether a body is a document, not content.
pub fn is_document(method: &Method, uri: &Uri) -> bool {
    let asks = |name: &str| uri.query().unwrap_or_default().split('&').any(|pair| pair.split('=').next() == Some(name));
    let names_an_object = uri.path().trim_matches('/').contains('/');
    method == Method::POST || (method == Method::PUT && (!names_an_object || asks("tagging")))
}

pub fn hashed<B>(mut request: Request<B>) -> Request<Hashed<B>> {
    let said = request.headers().contains_key("content-md5") || in_headers(request.headers()).is_ok_and(|found| found.is_some());
    let came = (said && is_document(request.method(), request.uri())).then(|| {
        let algorithm = in_headers(request.headers()).ok().flatten().map(|(algorithm, _)| algorithm);
        Came(Arc::new(Mutex::new(Some(Hasher::new(algorithm)))))
    });
    if let Some(came) = &came {
        request.extensions_mut().insert(came.clone());
    }
    request.map(|body| Hashed { body, came })
}

fn compare(given: Given, extensions: &Extensions) -> S3Result<()> {
    if given.says_nothing() {
        return Ok(());
    }
    let came = extensions.get::<Came>().and_then(|came| came.0.lock().unwrap_or_else(PoisonError::into_inner).take());
    let came =
        came.ok_or_else(|| s3_error!(NotImplemented, "the checksum of this document cannot be compared here; send it as a header"))?;
    given.compare(&came.finish())
}

pub fn check<T>(request: &S3Request<T>) -> S3Result<()> {
    compare(Given::new(&request.headers, request.trailing_headers.clone(), None)?, &request.extensions)
}

/// Where the checksums among the headers are not of the document.
pub fn check_md5<T>(request: &S3Request<T>) -> S3Result<()> {
    compare(Given::md5_of(&request.headers)?, &request.extensions)
}

impl<B: Body<Data = Bytes> + Unpin> Body for Hashed<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let next = Pin::new(&mut self.body).poll_frame(context);
        if let (Poll::Ready(Some(Ok(frame))), Some(came)) = (&next, &self.came) {
            if let (Some(bytes), Some(hasher)) = (frame.data_ref(), &mut *came.0.lock().unwrap_or_else(PoisonError::into_inner)) {
                hasher.update(bytes);
            }
        }
        next
    }
    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
