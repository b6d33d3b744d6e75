//! The binary: the one place that installs a TLS provider, and nothing else.

use std::process::ExitCode;

fn main() -> ExitCode {
    // One provider in the whole process. It fails only when one is installed already, which nobody does before main.
    let _ = rustls::crypto::ring::default_provider().install_default();
    socialweb_cli::main_with(std::env::args_os()).into()
}
