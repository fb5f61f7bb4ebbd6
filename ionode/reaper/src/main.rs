//! The reaper alone: `stager-reaper run --spec FILE` is `stager-ionode run --spec FILE` in a small binary.

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    std::process::exit(stager_reaper::cli(&args));
}
