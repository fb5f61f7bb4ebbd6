//! `stager-ionode fetch` and `push`: a node's client side. Parses, calls, prints one JSON object.
//!
//! The one rule: a file appears under its name when its BLAKE3 was found right, and a token is never an argument.

mod fetch;
mod part;
mod push;
pub mod remote;
mod tree;
mod tree_fetch;
mod tree_push;

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, ValueEnum};
use serde::Serialize;
use stager_core::error::{ApiError, Class};
use stager_origins::Secret;

use crate::failure::{at, bad_request};
use crate::peers::link::{Address, Link};
use crate::tls::Tls;
use crate::wire::{Ack, Rendezvous};

const EXIT_FAULT: i32 = 1;
const EXIT_BAD_INPUT: i32 = 2;

const NODE_HELP: &str =
    "Where a node answers: its store directory on this host, ADDRESS@TOKEN_FILE with host:port or the path of its socket, or \
     HOST:PORT@TLS_DIR with the directory of a certificate";

#[derive(Args, Clone, Debug)]
pub struct FetchOptions {
    #[arg(long = "node", value_name = "NODE", required = true, value_delimiter = ',', help = NODE_HELP)]
    nodes: Vec<String>,
    /// File id of the replica
    #[arg(long, value_name = "ID")]
    file: String,
    #[arg(long, value_name = "GENERATION")]
    generation: String,
    /// The file to make; what is broken off is gone on with by the same call
    #[arg(long, value_name = "PATH")]
    to: PathBuf,
    /// The content it has to have
    #[arg(long, value_name = "HEX")]
    blake3: Option<String>,
    /// The replica is the list of a directory that was pushed: make the directory, with all its files
    #[arg(long, conflicts_with = "blake3")]
    tree: bool,
    /// Connections to each node
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    connections: u8,
}

#[derive(Args, Debug)]
pub struct PushOptions {
    /// The file to be sent, or a directory: each of its files becomes a replica, and their list the replica that is named here
    path: PathBuf,
    #[arg(long, value_name = "NODE", help = NODE_HELP)]
    node: String,
    /// File id of the replica that it becomes
    #[arg(long, value_name = "ID")]
    file: String,
    #[arg(long, value_name = "GENERATION")]
    generation: String,
    /// Nodes that are to hold it too, each getting it from the one before; they are told to the node as its peers
    #[arg(long, value_name = "NODE_ID", value_delimiter = ',')]
    chain: Vec<String>,
    /// When it is done: local or async, when the first node holds it (async: it tells of the others as an event); sync, when all do
    #[arg(long, value_enum, default_value_t = AckChoice::Sync)]
    ack: AckChoice,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum AckChoice {
    Local,
    Async,
    Sync,
}

impl From<AckChoice> for Ack {
    fn from(choice: AckChoice) -> Self {
        match choice {
            AckChoice::Local => Self::Local,
            AckChoice::Async => Self::Async,
            AckChoice::Sync => Self::Sync,
        }
    }
}

/// Returns the exit code.
pub fn fetch(options: FetchOptions) -> i32 {
    match options.tree {
        true => run(tree_fetch::run(options)),
        false => run(fetch::run(options)),
    }
}

pub fn push(options: PushOptions) -> i32 {
    match options.path.is_dir() {
        true => run(tree_push::run(options)),
        false => run(push::run(options)),
    }
}

fn run<T: Serialize>(work: impl Future<Output = Result<T, ApiError>>) -> i32 {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let outcome = match runtime {
        Ok(runtime) => runtime.block_on(work),
        Err(error) => Err(at::<std::io::Error>("starting threads for", Path::new("the transfer"))(error)),
    };
    match outcome {
        Ok(done) => {
            println!("{}", serde_json::to_string(&done).expect("answers are plain values"));
            0
        }
        Err(error) => {
            eprintln!("stager-ionode: {error}");
            if error.class == Class::InvalidInput {
                EXIT_BAD_INPUT
            } else {
                EXIT_FAULT
            }
        }
    }
}

/// A node by `NODE_HELP`.
pub fn link(text: &str) -> Result<Link, ApiError> {
    if let Some((address, dir)) = text.split_once('@').filter(|(_, place)| Path::new(place).is_dir()) {
        return match Address::parse(address)? {
            address @ Address::Tcp(_) => {
                Ok(Link::new(None, address, None).with_tls(Some(Arc::new(Tls::open(Path::new(dir), None, Arc::default())?))))
            }
            Address::Unix(_) => Err(bad_request(text, format!("{address} is a socket and speaks no TLS; name {address}@TOKEN_FILE"))),
        };
    }
    let (address, token_file) = match text.split_once('@') {
        Some((address, token_file)) => {
            (Address::parse(address.strip_prefix("http://").unwrap_or(address).trim_end_matches('/'))?, PathBuf::from(token_file))
        }
        None => {
            let path = Path::new(text).join("rendezvous.json");
            let bytes = std::fs::read(&path).map_err(|error| {
                bad_request(
                    text,
                    format!("{text} is no store of a running node ({error}); name its store directory, or ADDRESS@TOKEN_FILE"),
                )
            })?;
            let said: Rendezvous = serde_json::from_slice(&bytes)
                .map_err(|error| bad_request(text, format!("{} is not understood ({error})", path.display())))?;
            (Address::Unix(PathBuf::from(said.socket)), PathBuf::from(said.token_file))
        }
    };
    let token = std::fs::read_to_string(&token_file)
        .map_err(|error| bad_request(text, format!("the token file {} cannot be read ({error})", token_file.display())))?;
    Ok(Link::new(None, address, Some(Secret::new(token.trim()))))
}
