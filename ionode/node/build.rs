//! The binary travels in every wheel: its debug information (80 of 92 MB) stays out of it. Tests and libraries keep theirs.

fn main() {
    println!("cargo:rustc-link-arg-bins=-Wl,--strip-debug");
    println!("cargo:rerun-if-changed=build.rs");
}
