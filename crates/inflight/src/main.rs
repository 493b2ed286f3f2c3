//! The `inflight` command.

fn main() -> std::process::ExitCode {
    inflight::cli::main()
}
