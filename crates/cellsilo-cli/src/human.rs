//! Numbers as people read them, and printing that minds a closed pipe.

use std::io::Write as _;
use std::path::Path;

use cellsilo::{Error, Result};

/// Bytes in decimal units: "1.23 MB".
pub(crate) fn bytes(n: u64) -> String {
    let mut value = n as f64;
    for unit in ["B", "kB", "MB", "GB", "TB"] {
        if value < 999.5 || unit == "TB" {
            return if unit == "B" { format!("{n} B") } else { format!("{} {unit}", three_digits(value)) };
        }
        value /= 1000.0;
    }
    unreachable!("the last unit returns")
}

/// A number with three significant digits.
pub(crate) fn three_digits(value: f64) -> String {
    let decimals = if value < 9.995 {
        2
    } else if value < 99.95 {
        1
    } else {
        0
    };
    format!("{value:.decimals$}")
}

/// A count with thousands separated: "1,234,567".
pub(crate) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Seconds: "0.42 s", "75 s", "12 min".
pub(crate) fn seconds(s: f64) -> String {
    if s < 120.0 { format!("{} s", three_digits(s)) } else { format!("{:.0} min", s / 60.0) }
}

/// Writes text to standard output.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|e| Error::io(Path::new("standard output"), e))
}

/// Writes a value to standard output as JSON.
pub(crate) fn print_json(value: &impl serde::Serialize) -> Result<()> {
    let mut text = serde_json::to_string_pretty(value).map_err(|e| Error::invalid(e.to_string()))?;
    text.push('\n');
    print(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        assert_eq!(
            [bytes(0), bytes(999), bytes(1000), bytes(12_345), bytes(999_700), bytes(3 << 40)],
            ["0 B", "999 B", "1.00 kB", "12.3 kB", "1.00 MB", "3.30 TB"]
        );
        assert_eq!([count(7), count(1234), count(1_234_567)], ["7", "1,234", "1,234,567"]);
        assert_eq!([seconds(0.5), seconds(75.2), seconds(600.0)], ["0.50 s", "75.2 s", "10 min"]);
    }
}
