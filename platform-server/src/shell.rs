//! Texts that users paste into a shell.

use std::borrow::Cow;

/// Returns a text as one word of a shell command line, quoted if necessary. A text with a NUL byte, which no shell can
/// pass on, is returned unchanged.
pub(crate) fn word(text: &str) -> Cow<'_, str> {
    shlex::try_quote(text).unwrap_or(Cow::Borrowed(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_quoted_text_back_unchanged() {
        for text in ["plain", "with 'quotes'", "$HOME `x` \\ \"", ""] {
            let shell = std::process::Command::new("sh").arg("-c").arg(format!("printf %s {}", word(text))).output();
            assert_eq!(String::from_utf8(shell.unwrap().stdout).unwrap(), text);
        }
    }
}
