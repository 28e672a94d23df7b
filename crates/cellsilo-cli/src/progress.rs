//! Progress bars: cells, cells a second, and the time that is left; none when nobody watches.

use std::sync::Mutex;
use std::time::Duration;

use cellsilo_convert::Progress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// What a bar counts.
#[derive(Clone, Copy)]
pub(crate) enum Unit {
    Cells,
    Bytes,
}

/// A bar for one pass after the other, on standard error.
pub(crate) struct Bar {
    unit: Unit,
    quiet: bool,
    bar: Mutex<ProgressBar>,
}

impl Bar {
    pub(crate) fn new(unit: Unit, quiet: bool) -> Self {
        Self { unit, quiet, bar: Mutex::new(ProgressBar::hidden()) }
    }

    fn style(&self) -> ProgressStyle {
        let template = match self.unit {
            Unit::Cells => "{msg:>9} [{bar:30}] {human_pos} of {human_len} cells, {per_sec}, {eta} left",
            Unit::Bytes => "{msg:>9} [{bar:30}] {decimal_bytes} of {decimal_total_bytes}, {decimal_bytes_per_sec}, {eta} left",
        };
        let style = ProgressStyle::with_template(template).expect("the template is right");
        let rate = |state: &indicatif::ProgressState, out: &mut dyn std::fmt::Write| {
            let _ = write!(out, "{} cells/s", crate::human::count(state.per_sec() as u64));
        };
        style.with_key("per_sec", rate).progress_chars("=> ")
    }

    fn with<R>(&self, work: impl FnOnce(&mut ProgressBar) -> R) -> R {
        // A panic elsewhere does not make the bar wrong.
        work(&mut self.bar.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}

impl Progress for Bar {
    fn begin(&self, pass: &str, n: u64) {
        // The standard error of indicatif is hidden when it is not a terminal.
        let target = if self.quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr_with_hz(8) };
        let new = ProgressBar::with_draw_target(Some(n), target).with_style(self.style()).with_message(pass.to_owned());
        new.enable_steady_tick(Duration::from_millis(250));
        self.with(|bar| std::mem::replace(bar, new).finish_and_clear());
    }

    fn advance(&self, n: u64) {
        self.with(|bar| bar.inc(n));
    }

    fn end(&self) {
        self.with(|bar| bar.finish_and_clear());
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.end();
    }
}
