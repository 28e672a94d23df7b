//! The command `cellsilo`.

mod convert;
mod demo;
mod export;
mod human;
mod info;
mod progress;
mod tile;
mod verify;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cellsilo::Error;
use clap::{Parser, Subcommand};

/// Single-cell counts as compact, checked, quickly read tiles.
#[derive(Parser)]
#[command(
    name = "cellsilo",
    version,
    about,
    max_term_width = 100,
    after_help = "Start with `cellsilo demo`, or `cellsilo convert data.h5ad -o data.silo`."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Threads to use [default: all cores]. Results do not depend on it
    #[arg(long, global = true, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Print facts as JSON on standard output
    #[arg(long, global = true)]
    json: bool,
    /// No progress bars
    #[arg(long, short, global = true)]
    quiet: bool,
}

#[derive(Subcommand)]
enum Command {
    Convert(convert::Args),
    Verify(verify::Args),
    Info(info::Args),
    Export(export::Args),
    #[command(subcommand)]
    Tile(tile::Command),
    Demo(demo::Args),
}

/// What every command may look at.
struct Context {
    json: bool,
    quiet: bool,
    interrupt: Arc<AtomicBool>,
}

/// How a command ended, short of an error.
enum Outcome {
    Good,
    /// It ran, and what it looked at is bad: `verify` with faults.
    Bad,
}

fn main() -> ExitCode {
    let cli = Cli::parse();

    if let Some(threads) = cli.threads {
        // Fails only if a pool exists already, and none does.
        let _ = rayon::ThreadPoolBuilder::new().num_threads(threads.into()).build_global();
    }
    let interrupt = Arc::new(AtomicBool::new(false));
    watch_for_interrupt(interrupt.clone());
    let context = Context { json: cli.json, quiet: cli.quiet, interrupt };
    let result = match cli.command {
        Command::Convert(args) => convert::run(args, &context),
        Command::Verify(args) => verify::run(&args, &context),
        Command::Info(args) => info::run(&args, &context),
        Command::Export(args) => export::run(args, &context),
        Command::Tile(command) => tile::run(&command, &context),
        Command::Demo(args) => demo::run(&args, &context),
    };
    match result {
        Ok(Outcome::Good) => ExitCode::SUCCESS,
        Ok(Outcome::Bad) => ExitCode::from(1),
        Err(error) => fail(&error),
    }
}

/// One line on standard error, and the exit status: 2 for a wrong call, 130 after Ctrl-C, 1 for the rest.
fn fail(error: &Error) -> ExitCode {
    if matches!(error, Error::Io { source, .. } if source.kind() == std::io::ErrorKind::BrokenPipe) {
        // Whoever read our output has had enough, as `head` does.
        return ExitCode::SUCCESS;
    }
    eprintln!("cellsilo: {}", error.to_string().replace('\n', " "));
    match error {
        Error::Usage(_) => ExitCode::from(2),
        Error::Interrupted => ExitCode::from(130),
        _ => ExitCode::from(1),
    }
}

/// The first Ctrl-C asks the work to stop at a good place; the second stops it anywhere.
fn watch_for_interrupt(flag: Arc<AtomicBool>) {
    let _ = ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
        eprintln!("\ncellsilo: stopping; what is complete stays (press Ctrl-C again to stop at once)");
    });
}
