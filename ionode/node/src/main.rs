//! `stager-ionode`: the command line. Parses and calls; no decisions.

use clap::{Parser, Subcommand};
use stager_node::bench::{self, BenchOptions};
use stager_node::client;
use stager_node::fsck::{self, FsckOptions};
use stager_node::hash::{self, HashOptions};
use stager_node::serve::{self, ServeOptions};
use stager_node::transfer_agent;

#[cfg(feature = "jemalloc")]
#[global_allocator]
static MEMORY: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// A thread that rests keeps no larger pieces for itself: with a hundred threads that wait for the disk these were most of the memory.
#[cfg(feature = "jemalloc")]
#[export_name = "_rjem_malloc_conf"]
pub static MEMORY_SETTINGS: &[u8; 16] = b"tcache_max:4096\0";

/// The I/O node of stager: keeps and moves the bytes that workflows read and write
#[derive(Parser, Debug)]
#[command(name = "stager-ionode", version = stager_core::VERSION)]
struct CommandLine {
    #[command(subcommand)]
    command: Action,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// Serve a store over a Unix socket
    Serve(ServeOptions),
    /// Read a replica, or the stripes of one, from all nodes that hold it
    Fetch(client::FetchOptions),
    /// Write a file into a node, and through it into others
    Push(client::PushOptions),
    /// Furnish the sandbox of an attempt on a host that shares no files with the node
    StageIn(client::remote::RemoteOptions),
    /// Send and commit the outputs of such an attempt
    StageOut(client::remote::RemoteOptions),
    /// End such an attempt at the node, and remove its sandbox
    Release(client::remote::RemoteOptions),
    /// Print the brief of such an attempt
    FetchBrief(client::remote::RemoteOptions),
    /// Look a store through that no node serves, and repair what can be repaired
    Fsck(FsckOptions),
    /// Print the size and the BLAKE3 of files, one JSON line each
    Hash(HashOptions),
    /// Measure the store on this disk: small files made, found, read, listed, deleted
    Bench(BenchOptions),
    /// Run one job's process tree: run --spec FILE | run --enter FD | run --probe
    #[command(disable_help_flag = true)]
    Run {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Ask an origin without a node: origin stat|list|probe --config FILE|-
    #[command(disable_help_flag = true)]
    Origin {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Move files between this machine and origins, without a node: one order a line on stdin, one answer a line on stdout
    Transfer,
    /// A replayed job: reads and checks its inputs, works, writes its outputs
    #[command(disable_help_flag = true)]
    ReplayJob {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Make the inputs of a replay: replay-make --dir DIR --spec FILE|-
    #[command(disable_help_flag = true)]
    ReplayMake {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Compare every byte of a replay's finals: replay-check --dir DIR --spec FILE|-
    #[command(disable_help_flag = true)]
    ReplayCheck {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
}

fn replay(verb: &str, mut args: Vec<String>) -> i32 {
    args.insert(0, verb.to_string());
    stager_replay::cli(&args)
}

fn main() {
    // The reaper forks and unshares: it runs before any thread exists.
    let code = match CommandLine::parse().command {
        Action::Run { args } => stager_reaper::cli(&args),
        Action::Origin { args } => stager_origins::cli(&args),
        Action::ReplayJob { args } => replay("replay-job", args),
        Action::ReplayMake { args } => replay("replay-make", args),
        Action::ReplayCheck { args } => replay("replay-check", args),
        Action::Transfer => transfer_agent::run(),
        Action::Fetch(options) => client::fetch(options),
        Action::Push(options) => client::push(options),
        Action::StageIn(options) => client::remote::stage_in(options),
        Action::StageOut(options) => client::remote::stage_out(options),
        Action::Release(options) => client::remote::release(options),
        Action::FetchBrief(options) => client::remote::fetch_brief(options),
        Action::Serve(options) => serve::run(options),
        Action::Fsck(options) => fsck::run(&options),
        Action::Hash(options) => hash::run(&options),
        Action::Bench(options) => bench::run(&options),
    };
    std::process::exit(code);
}
