//! Conditions of requests: on what is read (RFC 9110), on what a write finds.
//!
//! The one rule: a condition we do not know refuses the request.

use hyper::header::IF_RANGE;
use hyper::HeaderMap;
use s3s::dto::{ETagCondition, Timestamp};
use s3s::{s3_error, S3Result};
use stager_core::error::{ApiError, Code};
use stager_objects::{Condition, Object};

use crate::answers::{with_condition, with_validators};
use crate::attributes::seconds;
use crate::errors::to_s3;

pub struct Wanted {
    pub if_match: Option<ETagCondition>,
    pub if_none_match: Option<ETagCondition>,
    pub if_modified_since: Option<Timestamp>,
    pub if_unmodified_since: Option<Timestamp>,
}

impl Wanted {
    fn check(self, object: &Object) -> Outcome {
        let etag = object.etag.to_string();
        let is = |condition: &ETagCondition| condition.as_etag().is_none_or(|wanted| wanted.value() == etag);
        let modified_s = (object.modified_ms / 1000) as i64;
        let met = match (&self.if_match, self.if_unmodified_since) {
            (Some(condition), _) => is(condition),
            (None, Some(since)) => modified_s <= seconds(since),
            (None, None) => true,
        };
        let changed = match (&self.if_none_match, self.if_modified_since) {
            (Some(condition), _) => !is(condition),
            (None, Some(since)) => modified_s > seconds(since),
            (None, None) => true,
        };
        let named = |by_etag: bool, one, other| if by_etag { one } else { other };
        match (met, changed) {
            (false, _) => Outcome::Failed(named(self.if_match.is_some(), Header::Match, Header::UnmodifiedSince)),
            (true, false) => Outcome::Unchanged(named(self.if_none_match.is_some(), Header::NoneMatch, Header::ModifiedSince)),
            (true, true) => Outcome::Met,
        }
    }

    pub fn check_read(self, object: &Object) -> S3Result<()> {
        match self.check(object) {
            Outcome::Met => Ok(()),
            Outcome::Unchanged(_) => Err(with_validators(s3_error!(NotModified, "the object is as the request says it was"), object)),
            Outcome::Failed(said) => Err(with_condition(failed(), said.of_reads())),
        }
    }

    /// Of the source of a copy: both ways of not holding are the same.
    pub fn check_source(self, object: &Object) -> S3Result<()> {
        match self.check(object) {
            Outcome::Met => Ok(()),
            Outcome::Unchanged(said) | Outcome::Failed(said) => Err(with_condition(failed(), said.of_sources())),
        }
    }
}

/// Whether a range is of the version the client has a part of. Only an ETag tells: another version may be of the same second as a date.
pub fn range_holds(headers: &HeaderMap, object: &Object) -> bool {
    headers.get_all(IF_RANGE).iter().all(|said| said.as_bytes() == format!("\"{}\"", object.etag).as_bytes())
}

enum Outcome {
    Met,
    Unchanged(Header),
    Failed(Header),
}

/// Which condition it was.
#[derive(Clone, Copy)]
enum Header {
    Match,
    NoneMatch,
    ModifiedSince,
    UnmodifiedSince,
}

impl Header {
    fn of_reads(self) -> &'static str {
        match self {
            Self::Match => "If-Match",
            Self::NoneMatch => "If-None-Match",
            Self::ModifiedSince => "If-Modified-Since",
            Self::UnmodifiedSince => "If-Unmodified-Since",
        }
    }
    fn of_sources(self) -> &'static str {
        match self {
            Self::Match => "x-amz-copy-source-If-Match",
            Self::NoneMatch => "x-amz-copy-source-If-None-Match",
            Self::ModifiedSince => "x-amz-copy-source-If-Modified-Since",
            Self::UnmodifiedSince => "x-amz-copy-source-If-Unmodified-Since",
        }
    }
}

/// What a write came to; where its condition did not hold, which one that was.
pub fn outcome<T>(written: Result<T, ApiError>, condition: &Condition) -> S3Result<T> {
    written.map_err(|error| {
        let failed = error.code == Code::PreconditionFailed;
        let error = to_s3(error);
        match condition {
            _ if !failed => error,
            Condition::Absent => with_condition(error, "If-None-Match"),
            _ => with_condition(error, "If-Match"),
        }
    })
}

fn failed() -> s3s::S3Error {
    s3_error!(PreconditionFailed, "a condition of the request does not hold")
}

pub fn of_write(if_match: Option<ETagCondition>, if_none_match: Option<ETagCondition>) -> S3Result<Condition> {
    match (if_match, if_none_match) {
        (None, None) => Ok(Condition::Any),
        (None, Some(ETagCondition::Any)) => Ok(Condition::Absent),
        (Some(ETagCondition::ETag(etag)), None) => Ok(Condition::Matches(etag.value().to_string())),
        (Some(ETagCondition::Any), None) => Ok(Condition::Present),
        _ => Err(s3_error!(NotImplemented, "a write takes If-None-Match: * or If-Match: an ETag, not both and nothing else")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use s3s::dto::ETag;

    #[test]
    fn a_write_is_held_to_what_it_says_or_refused() {
        let etag = || Some(ETagCondition::ETag(ETag::Strong("abc".into())));
        let any = || Some(ETagCondition::Any);
        assert_eq!(of_write(None, None).unwrap(), Condition::Any);
        assert_eq!(of_write(None, any()).unwrap(), Condition::Absent);
        assert_eq!(of_write(any(), None).unwrap(), Condition::Present);
        assert_eq!(of_write(etag(), None).unwrap(), Condition::Matches("abc".into()));
        for (if_match, if_none_match) in [(None, etag()), (etag(), any()), (any(), any())] {
            assert!(of_write(if_match, if_none_match).is_err());
        }
    }
}
