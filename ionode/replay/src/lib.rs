//! What makes a recorded workflow really run: jobs that read, work and write, inputs to start from, and a check of every final.
//!
//! One rule: every byte of every file is a function of (seed, name, size), so nothing is trusted and nothing has to be remembered.

mod batch;
mod content;
mod files;
mod job;

pub use batch::{Specification, Summary};
pub use content::Content;
pub use job::Job;

use std::io::Read;
use std::path::{Path, PathBuf};

const USAGE: &str = "usage:
  replay-job --seed N --time-s X [--spin] i:SIZE:PATH... o:SIZE:PATH...   read and check the inputs, work, write the outputs
  replay-make --dir DIR --spec FILE|- [--threads N]                       make the files of the specification, keep those that are right
  replay-check --dir DIR --spec FILE|- [--threads N]                      compare every byte of the files of the specification
make and check print {\"files\", \"bytes\", \"made\", \"wrong\": [..]}; exit 0: all is right, 1: something is not, 2: wrong usage";

/// `args` starts with the verb. Returns the exit code.
pub fn cli(args: &[String]) -> i32 {
    let done = match args.split_first().map(|(verb, rest)| (verb.as_str(), rest)) {
        Some((_, rest)) if rest.iter().any(|arg| arg == "--help" || arg == "-h") => {
            println!("{USAGE}");
            Ok(true)
        }
        Some(("replay-job", rest)) => Job::parse(rest).map(|job| report_job(&job)),
        Some(("replay-make", rest)) => Batch::parse(rest).and_then(|batch| batch.run(Specification::make)),
        Some(("replay-check", rest)) => Batch::parse(rest).and_then(|batch| batch.run(Specification::check)),
        _ => Err("say replay-job, replay-make or replay-check".to_string()),
    };
    match done {
        Ok(right) => i32::from(!right),
        Err(why) => {
            eprintln!("{why}\n{USAGE}");
            2
        }
    }
}

fn report_job(job: &Job) -> bool {
    let wrong = job.run(Path::new(".")).err().unwrap_or_default();
    for why in &wrong {
        eprintln!("{why}");
    }
    wrong.is_empty()
}

struct Batch {
    dir: PathBuf,
    specification: Specification,
    threads: usize,
}

impl Batch {
    fn parse(args: &[String]) -> Result<Self, String> {
        let (mut dir, mut text) = (None, None);
        let mut threads = std::thread::available_parallelism().map_or(2, usize::from).min(8);
        let mut rest = args.iter();
        while let Some(arg) = rest.next() {
            let value = rest.next().ok_or(format!("{arg} needs a value"))?;
            match arg.as_str() {
                "--dir" => dir = Some(PathBuf::from(value)),
                "--spec" => text = Some(read_text(value)?),
                "--threads" => threads = value.parse().map_err(|_| "--threads needs a whole number".to_string())?,
                _ => return Err(format!("{arg:?} is not an argument")),
            }
        }
        let specification = Specification::parse(&text.ok_or("--spec is missing")?)?;
        Ok(Batch { dir: dir.ok_or("--dir is missing")?, specification, threads })
    }

    fn run(&self, act: impl Fn(&Specification, &Path, usize) -> Summary) -> Result<bool, String> {
        let summary = act(&self.specification, &self.dir, self.threads);
        println!("{}", serde_json::to_string(&summary).map_err(|error| error.to_string())?);
        for why in summary.wrong.iter().take(20) {
            eprintln!("{why}");
        }
        Ok(summary.wrong.is_empty())
    }
}

fn read_text(name: &str) -> Result<String, String> {
    let mut text = String::new();
    let read = match name {
        "-" => std::io::stdin().read_to_string(&mut text),
        path => std::fs::File::open(path).and_then(|mut file| file.read_to_string(&mut text)),
    };
    read.map(|_| text).map_err(|error| format!("{name} cannot be read: {error}"))
}
