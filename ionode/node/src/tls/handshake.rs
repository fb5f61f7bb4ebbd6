//! Both ends of a handshake: a caller is let in, a peer is called.
//!
//! The one rule: whoever is refused hears why before the connection ends.

use std::sync::Arc;
use std::time::Duration;

use rustls::client::{Resumption, WantsClientCert};
use rustls::crypto::{aws_lc_rs, CryptoProvider};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::version::TLS13;
use rustls::{ClientConfig, ConfigBuilder, RootCertStore};
use stager_core::error::{ApiError, Code};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::{client, server, TlsAcceptor, TlsConnector};

use super::forgotten;
use super::roles::{Holder, Role};
use super::trust::{self, PeerVerifier};
use super::Tls;
use crate::failure::bad_request;
use crate::wire::ErrorAnswer;

/// What each TLS connection begins with.
const HANDSHAKE_RECORD: u8 = 0x16;
/// How long a refused side is listened to, so that what it still sends does not cut off what it is told.
const HEARD_OUT_WITHIN: Duration = Duration::from_secs(1);
const HEARD_OUT_BYTES: usize = 256 << 10;

/// Why no connection came about.
pub enum Refused {
    Io(std::io::Error),
    ByTls(String),
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io(error) => write!(f, "the connection broke ({error})"),
            Self::ByTls(why) => f.write_str(why),
        }
    }
}

impl From<std::io::Error> for Refused {
    fn from(error: std::io::Error) -> Self {
        match trust::within(&error) {
            Some(found) => Self::ByTls(trust::why(found)),
            None => Self::Io(error),
        }
    }
}

impl Tls {
    /// The stream to a caller with a good certificate, who that is, and the digest of its key; or to one that shows none, which may show a
    /// ticket.
    pub async fn accept(&self, mut stream: TcpStream) -> Result<(server::TlsStream<TcpStream>, Role, String), Refused> {
        let mut first = [0];
        if stream.peek(&mut first).await? == 1 && first[0] != HANDSHAKE_RECORD {
            tell_in_plain_text(&mut stream).await;
            return Err(Refused::ByTls("it speaks no TLS; call with a certificate of this cluster".into()));
        }
        let loaded = self.loaded();
        let own = &loaded.holder.cluster;
        let stream = match TlsAcceptor::from(loaded.server.clone()).accept(stream).into_fallible().await {
            Ok(stream) => stream,
            Err((error, mut stream)) => {
                hear_out(&mut stream).await;
                return Err(error.into());
            }
        };
        let Some(shown) = stream.get_ref().1.peer_certificates() else { return Ok((stream, Role::Nobody, String::new())) };
        let key_sha256 = shown.first().map(forgotten::key_of).unwrap_or_default();
        let shown = shown.first().and_then(|shown| Holder::of_certificate(shown));
        match shown {
            Some(Holder { cluster, role }) if cluster == *own => Ok((stream, role, key_sha256)),
            found => {
                let mut stream = stream;
                let told = match found {
                    Some(found) => format!("its certificate is of the cluster {}, and this node is of {own}", found.cluster),
                    None => "its certificate names no role".to_string(),
                };
                answer_once(&mut stream, &ApiError::new(Code::RoleRefused, "certificate", format!("{told}; join this cluster"))).await;
                Err(Refused::ByTls(told))
            }
        }
    }

    /// `expected`: the node that has to answer there.
    pub async fn connect(&self, stream: TcpStream, expected: Option<&str>) -> Result<client::TlsStream<TcpStream>, Refused> {
        let loaded = self.loaded();
        let verifier = PeerVerifier {
            provider: loaded.provider.clone(),
            roots: loaded.roots.clone(),
            cluster: Some(loaded.holder.cluster.clone()),
            expected: expected.map(str::to_string),
            forgotten: self.forgotten.clone(),
        };
        let config = builder(verifier)?.with_client_cert_resolver(loaded.own.clone());
        connect(config, stream).await
    }
}

/// The side of an attempt on another host: it trusts an authority, and has a ticket and no certificate.
pub struct Anonymous {
    provider: Arc<CryptoProvider>,
    roots: Arc<RootCertStore>,
}

impl Anonymous {
    /// `authority`: PEM, as in `ca.pem`.
    pub fn trusting(authority: &str) -> Result<Self, ApiError> {
        let wrong = |why: &str| bad_request("ca_pem", format!("the certificate of the cluster's authority cannot be used: {why}"));
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(authority.as_bytes()) {
            roots.add(certificate.map_err(|error| wrong(&error.to_string()))?).map_err(|error| wrong(&error.to_string()))?;
        }
        match roots.is_empty() {
            true => Err(wrong("it holds none")),
            false => Ok(Self { provider: Arc::new(aws_lc_rs::default_provider()), roots: Arc::new(roots) }),
        }
    }

    pub async fn connect(&self, stream: TcpStream, expected: Option<&str>) -> Result<client::TlsStream<TcpStream>, Refused> {
        let expected = expected.map(str::to_string);
        let verifier =
            PeerVerifier { provider: self.provider.clone(), roots: self.roots.clone(), cluster: None, expected, forgotten: Arc::default() };
        connect(builder(verifier)?.with_no_client_auth(), stream).await
    }
}

fn builder(verifier: PeerVerifier) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, Refused> {
    let versions = ClientConfig::builder_with_provider(verifier.provider.clone()).with_protocol_versions(&[&TLS13]);
    let builder = versions.map_err(|error| Refused::ByTls(error.to_string()))?;
    Ok(builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)))
}

async fn connect(mut config: ClientConfig, stream: TcpStream) -> Result<client::TlsStream<TcpStream>, Refused> {
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    // Nobody compares it: certificates name roles, not hosts.
    let name = ServerName::try_from("node.stager").expect("a name");
    let connected = TlsConnector::from(Arc::new(config)).connect(name, stream).into_fallible().await;
    match connected {
        Ok(stream) => Ok(stream),
        Err((error, mut stream)) => {
            hear_out(&mut stream).await;
            Err(error.into())
        }
    }
}

async fn tell_in_plain_text(stream: &mut TcpStream) {
    let message = "this port takes TLS only; call with a certificate of the cluster, or over the node's Unix socket";
    answer_once(stream, &ApiError::new(Code::TlsRequired, "connection", message)).await;
}

/// Whatever was asked.
async fn answer_once<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S, error: &ApiError) {
    let body = serde_json::to_vec(&ErrorAnswer { error: error.clone(), detail: serde_json::Map::new() }).expect("plain values");
    let head =
        format!("HTTP/1.1 403 Forbidden\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
    if stream.write_all(&[head.as_bytes(), &body].concat()).await.is_ok() {
        hear_out(stream).await;
    }
}

/// A connection that is closed while something unread has come is reset, and the other side may lose what it was told.
async fn hear_out<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S) {
    let heard = async {
        let mut rest = HEARD_OUT_BYTES;
        let mut buffer = vec![0; 16 << 10];
        stream.shutdown().await?;
        while rest > 0 {
            match stream.read(&mut buffer).await? {
                0 => break,
                read => rest = rest.saturating_sub(read),
            }
        }
        Ok::<(), std::io::Error>(())
    };
    let _ = tokio::time::timeout(HEARD_OUT_WITHIN, heard).await;
}
