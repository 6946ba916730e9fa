//! Reads the release of Swagger UI, a ZIP archive that the binary contains as it was published.

use std::io::Read;

use bytes::Bytes;
use flate2::bufread::DeflateDecoder;
use utoipa_swagger_ui_vendored::SWAGGER_UI_VENDORED as ARCHIVE;

/// Methods of compression in a ZIP archive.
const STORED: usize = 0;
const DEFLATED: usize = 8;

/// Returns the content of the file `dist/NAME`, by the directory at the end of the archive (APPNOTE.TXT 4.3.12 and
/// 4.3.16).
pub(super) fn file(name: &str) -> Option<Bytes> {
    let end = ARCHIVE.windows(4).rposition(|bytes| bytes == b"PK\x05\x06")?;
    let mut entry = number(end + 16)?;
    while ARCHIVE.get(entry..)?.starts_with(b"PK\x01\x02") {
        let [name_len, extra_len, comment_len] = [short(entry + 28)?, short(entry + 30)?, short(entry + 32)?];
        let path = ARCHIVE.get(entry + 46..)?.get(..name_len)?;
        // The first folder of the path is the name of the release.
        if path.strip_suffix(name.as_bytes()).is_some_and(|folder| folder.ends_with(b"/dist/")) {
            let (len, header) = (number(entry + 20)?, number(entry + 42)?);
            let start = header + 30 + short(header + 26)? + short(header + 28)?;
            return content(short(entry + 10)?, ARCHIVE.get(start..)?.get(..len)?);
        }
        entry += 46 + name_len + extra_len + comment_len;
    }
    None
}

fn content(method: usize, data: &'static [u8]) -> Option<Bytes> {
    match method {
        STORED => Some(Bytes::from_static(data)),
        DEFLATED => {
            let mut content = Vec::new();
            DeflateDecoder::new(data).read_to_end(&mut content).ok()?;
            Some(content.into())
        }
        _ => None,
    }
}

fn short(at: usize) -> Option<usize> {
    Some(u16::from_le_bytes(ARCHIVE.get(at..)?.get(..2)?.try_into().ok()?).into())
}

fn number(at: usize) -> Option<usize> {
    u32::from_le_bytes(ARCHIVE.get(at..)?.get(..4)?.try_into().ok()?).try_into().ok()
}
