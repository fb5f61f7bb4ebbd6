//! Starts, measures and ends one job's process tree (docs/formats/ionode-api.md, "The reaper"). May know Linux processes, namespaces and one spec file;
//! nothing of nodes, stores or networks. It must start in a millisecond, so: no async runtime, no threads, no logging.
//!
//! The one rule: when the lock is free again and the result is there, nothing of the job's tree is left.
#![deny(clippy::undocumented_unsafe_blocks)]

mod cgroup;
mod confine;
mod container;
mod enter;
mod handover;
mod isolate;
mod landlock;
mod launch;
mod links;
mod lock;
mod memory;
mod notices;
mod opens;
mod paths;
mod probe;
mod report;
mod run;
mod spec;
mod supervise;
mod sys;
mod tree;
mod watch;

pub use report::{Outcome, Report};
pub use spec::{Container, Link, Spec};

/// `enter` failed before its program began.
pub const EXIT_NOT_ENTERED: i32 = 126;
/// A result was written, whatever became of the job.
pub const EXIT_RESULT_WRITTEN: i32 = 0;
/// The command line or the spec is wrong; nothing was started.
pub const EXIT_USAGE: i32 = 2;
/// Another reaper has this attempt, or it has a result already; nothing was started.
pub const EXIT_TAKEN: i32 = 3;
/// The result could not be written; the job's tree is ended all the same.
pub const EXIT_NO_RESULT: i32 = 4;

const HELP: &str = "\
stager-ionode run --spec FILE   start, measure and end one job's process tree; the result goes to the spec's result_path
stager-ionode run --enter FD    become the program of the spec on this descriptor, in its sandbox with its inputs mounted: no log, no result
stager-ionode run --probe       say as JSON whether inputs can be linked (read-only bind mounts) by this user on this host, what would hold a job to its sandbox, and who to its memory
stager-ionode run --help        this text

exit codes: 0 a result was written, 2 bad command line or spec, 3 the attempt is taken or finished already, 4 the result could not be written, 126 nothing could be entered";

/// The whole of `stager-ionode run ...`; `args` is what follows the program's name. Must be called before any thread is started: it forks without exec.
pub fn cli(args: &[String]) -> i32 {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let args = if args.first() == Some(&"run") { &args[1..] } else { &args[..] };
    match args {
        ["--help"] | ["-h"] => {
            println!("{HELP}");
            0
        }
        ["--enter", fd] => {
            let why = match fd.parse() {
                Ok(fd) if fd > 2 => enter::enter(fd),
                _ => format!("{fd:?} is no descriptor above 2"),
            };
            eprintln!("stager-ionode run: {why}");
            EXIT_NOT_ENTERED
        }
        ["--probe"] => {
            println!("{}", probe::probe());
            0
        }
        ["--spec", path] => run::run(std::path::Path::new(path)).unwrap_or_else(|stop| {
            eprintln!("stager-ionode run: {}", stop.message);
            stop.exit_code
        }),
        _ => {
            eprintln!("stager-ionode run: expected --spec FILE, --enter FD, --probe or --help\n{HELP}");
            EXIT_USAGE
        }
    }
}
