//! Reads lines of files that may be far larger than memory.

use std::{
    io::{self, BufRead, BufReader, Read, stdin},
    path::Path,
    sync::atomic::AtomicU64,
};

use super::{Flow, Limits, decompressed, too_large, unreadable};
use crate::Refusal;

/// Receives each line, or the reason why it cannot be read, with its number from 1.
pub type Visit<'a> = &'a mut dyn FnMut(u64, Result<&[u8], Refusal>) -> Flow;

/// Visits the lines of a file, which may be compressed with zstd or gzip, or of the standard input, whose path is `-`.
/// Skips empty lines. A line that is too long is rejected and skipped.
pub fn lines(path: &Path, limits: &Limits, read: &AtomicU64, visit: Visit<'_>) -> Flow {
    let stream: io::Result<Box<dyn Read + '_>> = match path.as_os_str().as_encoded_bytes() {
        b"-" => Ok(Box::new(stdin())),
        _ => decompressed(path, limits, read),
    };
    let mut number = 0;
    let read = stream.and_then(|stream| read_lines(stream, limits.document, &mut number, visit));
    read.unwrap_or_else(|error| visit(number + 1, Err(Refusal::whole(unreadable(&error)))))
}

/// Visits the lines of a stream. `max` is the maximum length of a line in bytes.
fn read_lines(stream: impl Read, max: u64, number: &mut u64, visit: Visit<'_>) -> io::Result<Flow> {
    let mut stream = BufReader::with_capacity(64 << 10, stream);
    let mut line = Vec::new();
    loop {
        line.clear();
        let length = stream.by_ref().take(max.saturating_add(1)).read_until(b'\n', &mut line)?;
        if length == 0 {
            return Ok(Flow::Continue(()));
        }
        *number += 1;
        let ended = line.pop_if(|last| *last == b'\n').is_some();
        line.pop_if(|last| *last == b'\r');
        let flow = if line.len() as u64 > max || (!ended && length as u64 > max) {
            stream.skip_until(b'\n')?;
            visit(*number, Err(Refusal::whole(too_large(max))))
        } else if line.iter().all(u8::is_ascii_whitespace) {
            Flow::Continue(())
        } else {
            visit(*number, Ok(&line))
        };
        if flow.is_break() {
            return Ok(flow);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, max: u64) -> Vec<String> {
        let (mut seen, mut number) = (Vec::new(), 0);
        let done = read_lines(text.as_bytes(), max, &mut number, &mut |number, line| {
            let line =
                line.map_or_else(|refusal| refusal.to_string(), |line| String::from_utf8_lossy(line).into_owned());
            seen.push(format!("{number} {line}"));
            Flow::Continue(())
        });
        assert_eq!(done.unwrap(), Flow::Continue(()));
        seen
    }

    #[test]
    fn lines_are_numbered_with_either_line_ending_and_empty_ones_are_skipped() {
        assert_eq!(read("a\n\nb\r\n \nc", 9), ["1 a", "3 b", "5 c"]);
        assert_eq!(read("", 9), [""; 0]);
    }

    #[test]
    fn a_line_that_is_too_long_is_skipped_and_the_next_is_read() {
        assert_eq!(
            read("123\n1234\n12345678\n1", 3),
            ["1 123", "2 is larger than 3 bytes", "3 is larger than 3 bytes", "4 1"]
        );
        assert_eq!(read("1234", 3), ["1 is larger than 3 bytes"]);
    }
}
