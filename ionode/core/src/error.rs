//! Errors by who must act, as they go over the wire (docs/formats/ionode-api.md).
//!
//! The one rule: a code has one class, here and in the table of the docs, and nothing else gives an error its class.

use std::error::Error;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    InvalidInput,
    Refused,
    Transient,
    Corrupt,
    Denied,
}

macro_rules! codes {
    ($($class:ident { $($code:ident $name:literal,)* })*) => {
        /// What happened, for programs. The docs say of each what to do.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(into = "&'static str", from = "std::borrow::Cow<'_, str>")]
        pub enum Code {
            $($($code,)*)*
        }

        impl Code {
            pub const ALL: &'static [Self] = &[$($(Self::$code,)*)*];

            pub const fn as_str(self) -> &'static str {
                match self {
                    $($(Self::$code => $name,)*)*
                }
            }

            pub const fn class(self) -> Class {
                match self {
                    $($(Self::$code => Class::$class,)*)*
                }
            }
        }
    };
}

codes! {
    InvalidInput {
        ApiVersion "api_version",
        BadRequest "bad_request",
        BucketUnknown "bucket_unknown",
        ChecksumTypeWrong "checksum_type_wrong",
        ChecksumWrong "checksum_wrong",
        DestinationIsDirectory "destination_is_directory",
        IncompleteBody "incomplete_body",
        LinkLeadsOut "link_leads_out",
        LinkNotFollowed "link_not_followed",
        NotFound "not_found",
        ObjectUnknown "object_unknown",
        OriginUnknown "origin_unknown",
        OutputEscapes "output_escapes",
        OutputsMissing "outputs_missing",
        PartOrder "part_order",
        PartSmall "part_small",
        PartWrong "part_wrong",
        PeerUnknown "peer_unknown",
        ReplicaUnknown "replica_unknown",
        SizeWrong "size_wrong",
        TooLarge "too_large",
        Unsupported "unsupported",
        UploadUnknown "upload_unknown",
    }
    Refused {
        BucketExists "bucket_exists",
        BucketNotEmpty "bucket_not_empty",
        Cancelled "cancelled",
        DestinationExists "destination_exists",
        DestinationNewer "destination_newer",
        ExceedsReservation "exceeds_reservation",
        NoSpaceNode "no_space_node",
        NoSpaceOrigin "no_space_origin",
        PreconditionFailed "precondition_failed",
        ReplicaBusy "replica_busy",
        ShareFull "share_full",
        SourceChanged "source_changed",
        StaleEpoch "stale_epoch",
        StaleIncarnation "stale_incarnation",
        StripeNotHere "stripe_not_here",
        TicketClosed "ticket_closed",
    }
    Transient {
        BriefUnknown "brief_unknown",
        Busy "busy",
        ConnectionLost "connection_lost",
        Draining "draining",
        Internal "internal",
        IoError "io_error",
        OriginUnreachable "origin_unreachable",
        PeerUnreachable "peer_unreachable",
        ReplicationFailed "replication_failed",
        ShortRead "short_read",
        Timeout "timeout",
        TooManyBodies "too_many_bodies",
        Unknown "unknown",
    }
    Corrupt {
        ChecksumMismatch "checksum_mismatch",
        ObjectCorrupt "object_corrupt",
        OriginMisbehaves "origin_misbehaves",
        OutputChanged "output_changed",
        PeerMisbehaves "peer_misbehaves",
        StoreDamaged "store_damaged",
    }
    Denied {
        AuthFailed "auth_failed",
        CertificateRefused "certificate_refused",
        Denied "denied",
        HostKeyChanged "host_key_changed",
        HostKeyUnknown "host_key_unknown",
        NotEncrypted "not_encrypted",
        PeerRefused "peer_refused",
        RoleRefused "role_refused",
        TlsRequired "tls_required",
        TokenWrong "token_wrong",
    }
}

impl From<Code> for &'static str {
    fn from(code: Code) -> Self {
        code.as_str()
    }
}

/// A newer node may send codes that this version does not know. Their class comes with them.
impl From<std::borrow::Cow<'_, str>> for Code {
    fn from(name: std::borrow::Cow<'_, str>) -> Self {
        Self::ALL.iter().copied().find(|code| code.as_str() == name).unwrap_or(Self::Unknown)
    }
}

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What an error was made from. It stays in this process, and two errors that differ in nothing else are equal.
#[derive(Clone, Debug, Default)]
pub struct Cause(Option<Arc<dyn Error + Send + Sync>>);

impl PartialEq for Cause {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// One clear sentence, a stable code, and the file or id it is about.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApiError {
    pub class: Class,
    pub code: Code,
    pub message: String,
    pub subject: String,
    pub retry_after_s: Option<f64>,
    #[serde(skip)]
    pub cause: Cause,
}

impl std::fmt::Display for ApiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for ApiError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.0.as_ref().map(|cause| &**cause as &(dyn Error + 'static))
    }
}

impl ApiError {
    pub fn new(code: Code, subject: impl Into<String>, message: impl Into<String>) -> Self {
        Self { class: code.class(), code, message: message.into(), subject: subject.into(), retry_after_s: None, cause: Cause::default() }
    }

    pub fn caused_by(mut self, cause: impl Error + Send + Sync + 'static) -> Self {
        self.cause = Cause(Some(Arc::new(cause)));
        self
    }

    /// An error that others still hold is told apart by what the system or its maker called it.
    pub fn caused_by_io(self, cause: &std::io::Error) -> Self {
        let same = || std::io::Error::new(cause.kind(), cause.to_string());
        self.caused_by(cause.raw_os_error().map_or_else(same, std::io::Error::from_raw_os_error))
    }

    /// Of a chain of nodes that broke: whoever has to act on what broke it acts on this.
    pub fn replication_failed(first: Self, subject: impl Into<String>, message: impl Into<String>) -> Self {
        Self { class: first.class, ..Self::new(Code::ReplicationFailed, subject, message) }.caused_by(first)
    }
}

/// What led to an error, the nearest first: for the log.
pub fn causes(error: &dyn Error) -> Option<String> {
    let chain = std::iter::successors(error.source(), |&cause| cause.source());
    let said: Vec<_> = chain.map(ToString::to_string).collect();
    (!said.is_empty()).then(|| said.join(": "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTRACT: &str = include_str!("../../../docs/formats/ionode-api.md");

    /// The rows `| code | class | … |` of the table of codes.
    fn documented() -> Vec<(String, String)> {
        let (_, table) = CONTRACT.split_once("\n| code | class |").expect("the contract has a table of codes");
        let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
        let cells = rows.map(|row| row.split('|').map(|cell| cell.trim().trim_matches('`').to_owned()).collect::<Vec<_>>());
        cells.map(|cells| (cells[1].clone(), cells[2].clone())).collect()
    }

    #[test]
    fn the_contract_lists_each_code_once_with_its_class() {
        let name = |class: Class| serde_json::to_value(class).unwrap().as_str().unwrap().to_owned();
        let mut known: Vec<_> = Code::ALL.iter().map(|code| (code.as_str().to_owned(), name(code.class()))).collect();
        known.sort();
        let mut listed = documented();
        listed.sort();
        assert_eq!(listed, known, "docs/formats/ionode-api.md (left) and Code (right) must list the same codes");
    }

    #[test]
    fn a_code_travels_by_its_name_and_one_that_nobody_knows_keeps_its_class() {
        for code in Code::ALL {
            let error = ApiError::new(*code, "s", "m");
            let text = serde_json::to_string(&error).unwrap();
            assert!(text.contains(&format!("\"code\":\"{code}\"")), "{text}");
            assert_eq!(serde_json::from_str::<ApiError>(&text).unwrap(), error);
        }
        let newer = r#"{"class": "denied", "code": "moon_eclipsed", "message": "m", "subject": "s", "retry_after_s": null}"#;
        let error: ApiError = serde_json::from_str(newer).unwrap();
        assert_eq!((error.code, error.class), (Code::Unknown, Class::Denied));
    }

    #[test]
    fn causes_are_kept_and_stay_here() {
        let plain = ApiError::new(Code::IoError, "s", "m");
        let caused = plain.clone().caused_by_io(&std::io::Error::other("the disk"));
        let full = plain.clone().caused_by_io(&std::io::Error::from_raw_os_error(28));
        assert_eq!(full.source().unwrap().downcast_ref::<std::io::Error>().unwrap().kind(), std::io::ErrorKind::StorageFull);
        assert_eq!(caused, plain);
        assert_eq!(serde_json::to_value(&caused).unwrap(), serde_json::to_value(&plain).unwrap());
        let chain = ApiError::replication_failed(caused, "f", "it broke");
        assert_eq!((chain.code, chain.class, causes(&chain).as_deref()), (Code::ReplicationFailed, Class::Transient, Some("m: the disk")));
        assert!(chain.source().unwrap().downcast_ref::<ApiError>().is_some_and(|first| first.code == Code::IoError));
    }
}
