//! Both ends of a handshake: a caller is let in, a peer is called.
//!
//! The one rule: whoever is refused hears why before the connection ends.

use std::sync::Arc;
use std::time::Duration;

use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use rustls::version::TLS13;
use rustls::ClientConfig;
use stager_core::error::{ApiError, Code};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::{client, server, TlsAcceptor, TlsConnector};

use super::roles::{Holder, Role};
use super::trust::{self, PeerVerifier};
use super::Tls;
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
    /// The stream to a caller with a good certificate, and who that is.
    pub async fn accept(&self, mut stream: TcpStream) -> Result<(server::TlsStream<TcpStream>, Role), Refused> {
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
        let shown = stream.get_ref().1.peer_certificates().and_then(|shown| Holder::of_certificate(shown.first()?));
        match shown {
            Some(Holder { cluster, role }) if cluster == *own => Ok((stream, role)),
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
        let verifier = PeerVerifier { loaded: loaded.clone(), expected: expected.map(str::to_string) };
        let mut config = ClientConfig::builder_with_provider(loaded.provider.clone())
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| Refused::ByTls(error.to_string()))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_client_cert_resolver(loaded.own.clone());
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
