//! `cargo xtask test` runs all tests from a fresh clone; `cargo xtask ci` adds fmt, clippy and docs.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

type Step = fn(&Path) -> Result<(), Failed>;

/// A step that failed.
struct Failed(String);

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace").to_owned();
    let steps: &[Step] = match std::env::args().nth(1).as_deref() {
        Some("test") => &[rust_tests, release_build, python_tests],
        Some("lint") => &[format_check, clippy, docs],
        Some("ci") => &[format_check, clippy, docs, rust_tests, release_build, python_tests],
        _ => {
            eprintln!("usage: cargo xtask test|lint|ci");
            return ExitCode::from(2);
        }
    };
    for step in steps {
        if let Err(Failed(what)) = step(&root) {
            eprintln!("xtask: failed: {what}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn run(root: &Path, program: impl AsRef<Path>, words: &[&str]) -> Result<(), Failed> {
    run_with(root, program, words, &[])
}

fn run_with(root: &Path, program: impl AsRef<Path>, words: &[&str], variables: &[(&str, &str)]) -> Result<(), Failed> {
    let shown = format!("{} {}", program.as_ref().display(), words.join(" "));
    eprintln!("xtask: {shown}");
    let status = Command::new(program.as_ref()).args(words).envs(variables.iter().copied()).current_dir(root).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failed(format!("{shown}: {status}"))),
        Err(error) => Err(Failed(format!("{shown}: {error}"))),
    }
}

fn format_check(root: &Path) -> Result<(), Failed> {
    run(root, "cargo", &["fmt", "--all", "--check"])
}

fn clippy(root: &Path) -> Result<(), Failed> {
    run(root, "cargo", &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])
}

fn docs(root: &Path) -> Result<(), Failed> {
    run_with(root, "cargo", &["doc", "--workspace", "--no-deps"], &[("RUSTDOCFLAGS", "-D warnings")])
}

fn rust_tests(root: &Path) -> Result<(), Failed> {
    run(root, "cargo", &["test", "--workspace"])
}

fn release_build(root: &Path) -> Result<(), Failed> {
    run(root, "cargo", &["build", "--release", "--package", "cellsilo-cli"])
}

/// Makes a virtual environment once, and again when the requirements change.
fn python_tests(root: &Path) -> Result<(), Failed> {
    let environment = root.join("target/venv");
    let bin = environment.join(if cfg!(windows) { "Scripts" } else { "bin" });
    let requirements = root.join("tests/python/requirements.txt");
    let stamp = environment.join("requirements.txt");
    let wanted = std::fs::read(&requirements).map_err(|e| Failed(format!("{}: {e}", requirements.display())))?;
    if std::fs::read(&stamp).ok().as_ref() != Some(&wanted) {
        let place = environment.to_string_lossy();
        run(root, python(), &["-m", "venv", "--clear", &place])?;
        run(root, bin.join("python"), &["-m", "pip", "install", "--quiet", "--requirement", "tests/python/requirements.txt"])?;
        std::fs::write(&stamp, wanted).map_err(|e| Failed(format!("{}: {e}", stamp.display())))?;
    }
    run(root, bin.join("python"), &["-m", "pytest", "-q", "-p", "no:warnings", "-p", "no:cacheprovider", "tests/python"])
}

/// The newest Python that anndata has wheels for, or whatever `python3` is.
fn python() -> PathBuf {
    let names = ["python3.13", "python3.12", "python3.11", "python3", "python"];
    let works = |name: &&str| Command::new(name).arg("--version").output().is_ok_and(|o| o.status.success());
    PathBuf::from(names.into_iter().find(works).unwrap_or("python3"))
}
