//! Whose certificate is believed, and the sentence that says why one is not.
//!
//! The one rule: the chain is checked first; only a certificate of the own authority is read for who it is of.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{verify_tls12_signature, verify_tls13_signature, CryptoProvider};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    AlertDescription, CertificateError, DigitallySignedStruct, Error, OtherError, PeerIncompatible, RootCertStore, SignatureScheme,
};

use super::forgotten::{self, Forgotten};
use super::roles::{Holder, Role};

pub fn check_chain(
    provider: &CryptoProvider,
    roots: &RootCertStore,
    certificate: &CertificateDer<'_>,
    between: &[CertificateDer<'_>],
    now: UnixTime,
) -> Result<(), Error> {
    let parsed = ParsedCertificate::try_from(certificate)?;
    verify_server_cert_signed_by_trust_anchor(&parsed, roots, between, now, provider.signature_verification_algorithms.all)
}

/// A good certificate of somebody else.
#[derive(Debug)]
struct Another(String);

impl std::fmt::Display for Another {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Another {}

fn another(what: String) -> Error {
    Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(Another(what)))))
}

/// Of the own cluster, and a node: the one of `expected`, where that is known.
pub struct PeerVerifier {
    pub provider: Arc<CryptoProvider>,
    pub roots: Arc<RootCertStore>,
    /// `None`: whichever the authority made it for.
    pub cluster: Option<String>,
    pub expected: Option<String>,
    pub forgotten: Arc<Forgotten>,
}

impl std::fmt::Debug for PeerVerifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PeerVerifier").field("expected", &self.expected).finish_non_exhaustive()
    }
}

impl ServerCertVerifier for PeerVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        check_chain(&self.provider, &self.roots, certificate, between, now)?;
        match (Holder::of_certificate(certificate), &self.expected) {
            (None, _) => Err(another("its certificate names no role".into())),
            (Some(found), _) if self.cluster.as_ref().is_some_and(|own| found.cluster != *own) => {
                let own = self.cluster.as_deref().unwrap_or_default();
                Err(another(format!("its certificate is of the cluster {}, and this node is of {own}", found.cluster)))
            }
            (Some(Holder { role: Role::Node(id), .. }), Some(expected)) if id != *expected => {
                Err(another(format!("its certificate is that of the node {id}")))
            }
            (Some(Holder { role: role @ Role::Node(_), .. }), _) => match self.forgotten.why_not(&role, &forgotten::key_of(certificate)) {
                None => Ok(ServerCertVerified::assertion()),
                Some(why) => Err(another(why)),
            },
            (Some(found), _) => Err(another(format!("its certificate is that of {}, and not of a node", found.role))),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Why a handshake failed, and who has to do what about it; `it` and `its` are the other side.
pub fn why(error: &Error) -> String {
    use CertificateError as Bad;
    match error {
        Error::InvalidCertificate(Bad::Expired | Bad::ExpiredContext { .. }) => "its certificate has expired; renew it there".into(),
        Error::InvalidCertificate(Bad::NotValidYet | Bad::NotValidYetContext { .. }) => {
            "its certificate is not valid yet; compare the clocks of both hosts".into()
        }
        Error::InvalidCertificate(Bad::UnknownIssuer | Bad::BadSignature) => {
            "its certificate is not of this cluster's authority; join it to this cluster".into()
        }
        Error::InvalidCertificate(Bad::Other(other)) => format!("{}; look who has that address", other.0),
        Error::InvalidCertificate(other) => format!("its certificate is not accepted ({other}); join it anew"),
        Error::NoCertificatesPresented => "it shows no certificate; call with one of this cluster".into(),
        Error::InvalidMessage(_) | Error::PeerIncompatible(PeerIncompatible::Tls13RequiredForQuic) => {
            "it speaks no TLS; serve it with --tls-dir".into()
        }
        Error::AlertReceived(alert) => format!("it refuses this side's certificate: {}", alerted(*alert)),
        other => format!("there is no TLS with it ({other}); compare the versions of both hosts"),
    }
}

fn alerted(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::CertificateExpired => "it has expired there; renew it, or compare the clocks".into(),
        AlertDescription::UnknownCA => "it is of another cluster; join this host to that cluster".into(),
        AlertDescription::CertificateRequired => "it wants one; name a --tls-dir".into(),
        AlertDescription::CertificateUnknown => "it expects another host here; look which address it was told".into(),
        other => format!("{other:?}; look at its log"),
    }
}

/// Of an error of HTTP or of a socket: what TLS said.
pub fn within<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<Error>() {
            return Some(found);
        }
        let inner = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        next = match inner {
            Some(inner) => Some(inner as &(dyn std::error::Error + 'static)),
            None => error.source(),
        };
    }
    None
}
