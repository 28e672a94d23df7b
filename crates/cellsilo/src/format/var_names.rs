//! `var_names.txt`: one gene name per line, in output column order (specification, "Dataset layout").

use std::borrow::Cow;

use crate::error::{Error, Result};

/// Whether Python's `str.splitlines` breaks a line here. The reference reads the file with it, so none of
/// these may stand inside a name.
pub fn breaks_line(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\x0b' | '\x0c' | '\x1c'..='\x1e' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// The name with every character that would break its line replaced by a space.
pub fn clean(name: &str) -> Cow<'_, str> {
    if name.contains(breaks_line) { Cow::Owned(name.replace(breaks_line, " ")) } else { Cow::Borrowed(name) }
}

/// The text of the file.
///
/// # Errors
/// [`Error::Usage`] if a name holds a line break of any kind.
pub fn to_text<S: AsRef<str>>(names: &[S]) -> Result<String> {
    let mut text = String::new();
    for (j, name) in names.iter().enumerate() {
        let name = name.as_ref();
        if name.contains(breaks_line) {
            return Err(Error::Usage(format!("the name of gene {j}, {name:?}, holds a line break, which var_names.txt cannot store")));
        }
        text.push_str(name);
        text.push('\n');
    }
    Ok(text)
}

/// Splits the text of the file into `n_genes` names.
///
/// # Errors
/// [`Error::Invalid`] if there are more or fewer.
pub fn parse(text: &str, n_genes: u64) -> Result<Vec<String>> {
    let mut names: Vec<String> = text.replace("\r\n", "\n").split(breaks_line).map(str::to_owned).collect();
    // A final line break ends the last line rather than starting an empty one.
    if names.last().is_some_and(String::is_empty) {
        names.pop();
    }
    if names.len() as u64 != n_genes {
        return Err(Error::invalid(format!("var_names has {} lines, the dataset has {n_genes} genes", names.len())));
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back() {
        let names = ["A", "", "naïve gene", ""];
        assert_eq!(parse(&to_text(&names).unwrap(), 4).unwrap(), names);
        assert!(parse("A\nB\n", 3).is_err());
        assert!(to_text(&["a\u{2028}b"]).is_err());
        assert_eq!(clean("a\u{85}b\nc"), "a b c");
    }
}
