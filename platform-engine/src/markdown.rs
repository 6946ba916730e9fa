//! The bound of Markdown from callers, which holds before a parser reads the text.
//!
//! A parser takes more time for a line the more blocks are open in it: with the square of the text's length for text that
//! only nests.

/// The maximum nesting depth of blocks and elements. Our choice.
pub const MAX_NESTING: usize = 64;

/// Returns whether a line of the text starts more than [`MAX_NESTING`] blocks.
pub fn is_too_deep(markdown: &str) -> bool {
    markdown.lines().any(|line| max_blocks_started(line) > MAX_NESTING)
}

/// Returns an upper bound of the number of quotes and lists that a line starts.
fn max_blocks_started(line: &str) -> usize {
    let marker = |b: &u8| matches!(b, b' ' | b'\t' | b'>' | b'-' | b'+' | b'*' | b'.' | b')' | b'0'..=b'9');
    let len = line.bytes().take_while(marker).count();
    let (markers, _) = line.split_at_checked(len).unwrap_or_default();
    let list = |word: &&str| word.ends_with(['-', '+', '*', '.', ')']);
    markers.matches('>').count() + markers.split([' ', '\t', '>']).filter(list).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_starts_at_most_64_blocks() {
        for block in ["> ", "- ", "+ ", "* ", "1. ", "2) ", ">", "\t- "] {
            let line = |blocks: usize| format!("text\n{}text", block.repeat(blocks));
            assert!(!is_too_deep(&line(MAX_NESTING)), "{block:?}");
            assert!(is_too_deep(&line(MAX_NESTING + 1)), "{block:?}");
        }
        assert!(!is_too_deep(&"> - text\n".repeat(1_000)), "the lines are counted one by one");
    }
}
