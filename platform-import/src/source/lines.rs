//! Lines of files that may be far larger than memory.

use std::{
    io::{self, BufRead, BufReader, Read, stdin},
    path::Path,
    sync::atomic::AtomicU64,
};

use super::{Flow, Limits, too_large, unpacked, unreadable};
use crate::Refusal;

/// Is given each line, or why it cannot be read, with its number from 1.
pub type Visit<'a> = &'a mut dyn FnMut(u64, Result<&[u8], Refusal>) -> Flow;

/// Visits the lines of a file, which may be packed by zstd or gzip, or of the standard input, whose path is `-`; each
/// with its number from 1. Empty lines are left out. One that is too long is refused and passed over.
pub fn lines(path: &Path, limits: &Limits, read: &AtomicU64, visit: Visit<'_>) -> Flow {
    let stream: io::Result<Box<dyn Read + '_>> = match path.as_os_str().as_encoded_bytes() {
        b"-" => Ok(Box::new(stdin())),
        _ => unpacked(path, limits, read),
    };
    let mut number = 0;
    let read = stream.and_then(|stream| of(stream, limits.document, &mut number, visit));
    read.unwrap_or_else(|error| visit(number + 1, Err(Refusal::whole(unreadable(&error)))))
}

/// Visits the lines of a stream, of at most so many bytes.
fn of(stream: impl Read, most: u64, number: &mut u64, visit: Visit<'_>) -> io::Result<Flow> {
    let mut stream = BufReader::with_capacity(64 << 10, stream);
    let mut line = Vec::new();
    loop {
        line.clear();
        let length = stream.by_ref().take(most.saturating_add(1)).read_until(b'\n', &mut line)?;
        if length == 0 {
            return Ok(Flow::Continue(()));
        }
        *number += 1;
        let ended = line.pop_if(|last| *last == b'\n').is_some();
        line.pop_if(|last| *last == b'\r');
        let flow = if line.len() as u64 > most || (!ended && length as u64 > most) {
            stream.skip_until(b'\n')?;
            visit(*number, Err(Refusal::whole(too_large(most))))
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

    fn read(text: &str, most: u64) -> Vec<String> {
        let (mut seen, mut number) = (Vec::new(), 0);
        let done = of(text.as_bytes(), most, &mut number, &mut |number, line| {
            let line =
                line.map_or_else(|refusal| refusal.to_string(), |line| String::from_utf8_lossy(line).into_owned());
            seen.push(format!("{number} {line}"));
            Flow::Continue(())
        });
        assert_eq!(done.unwrap(), Flow::Continue(()));
        seen
    }

    #[test]
    fn lines_have_numbers_and_ends_of_either_sort_and_empty_ones_are_left_out() {
        assert_eq!(read("a\n\nb\r\n \nc", 9), ["1 a", "3 b", "5 c"]);
        assert_eq!(read("", 9), [""; 0]);
    }

    #[test]
    fn a_line_that_is_too_long_is_passed_over_and_the_next_is_read() {
        assert_eq!(
            read("123\n1234\n12345678\n1", 3),
            ["1 123", "2 is larger than 3 bytes", "3 is larger than 3 bytes", "4 1"]
        );
        assert_eq!(read("1234", 3), ["1 is larger than 3 bytes"]);
    }
}
