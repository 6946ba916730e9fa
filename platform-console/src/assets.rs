//! The files of the page, which the binary contains as they are written.

use std::sync::LazyLock;

use bytes::Bytes;
use platform_http::mount::base_path;
use sha2::{Digest, Sha256};

use crate::Options;

/// A file with its content type and ETag.
#[derive(Debug, Clone)]
pub(crate) struct Asset {
    pub(crate) content_type: &'static str,
    pub(crate) body: Bytes,
    pub(crate) etag: String,
}

impl Asset {
    pub(crate) fn new(content_type: &'static str, body: impl Into<Bytes>) -> Self {
        let body = body.into();
        let digest = Sha256::digest(&body);
        let etag = format!("\"{}\"", hex::encode(digest.get(..12).unwrap_or_default()));
        Self { content_type, body, etag }
    }
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JAVASCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// Names, content types and texts of the files.
const TEXTS: &[(&str, &str, &str)] = &[
    ("console.css", CSS, include_str!("../ui/console.css")),
    ("icon.svg", SVG, include_str!("../ui/icon.svg")),
    ("main.js", JAVASCRIPT, include_str!("../ui/main.js")),
    ("dom.js", JAVASCRIPT, include_str!("../ui/dom.js")),
    ("format.js", JAVASCRIPT, include_str!("../ui/format.js")),
    ("api.js", JAVASCRIPT, include_str!("../ui/api.js")),
    ("session.js", JAVASCRIPT, include_str!("../ui/session.js")),
    ("kinds.js", JAVASCRIPT, include_str!("../ui/kinds.js")),
    ("me.js", JAVASCRIPT, include_str!("../ui/me.js")),
    ("names.js", JAVASCRIPT, include_str!("../ui/names.js")),
    ("place.js", JAVASCRIPT, include_str!("../ui/place.js")),
    ("leaving.js", JAVASCRIPT, include_str!("../ui/leaving.js")),
    ("values.js", JAVASCRIPT, include_str!("../ui/values.js")),
    ("live.js", JAVASCRIPT, include_str!("../ui/live.js")),
    ("list.js", JAVASCRIPT, include_str!("../ui/list.js")),
    ("detail.js", JAVASCRIPT, include_str!("../ui/detail.js")),
    ("actions.js", JAVASCRIPT, include_str!("../ui/actions.js")),
    ("form.js", JAVASCRIPT, include_str!("../ui/form.js")),
    ("tree.js", JAVASCRIPT, include_str!("../ui/tree.js")),
    ("access.js", JAVASCRIPT, include_str!("../ui/access.js")),
    ("find.js", JAVASCRIPT, include_str!("../ui/find.js")),
    ("severity.js", JAVASCRIPT, include_str!("../ui/severity.js")),
    ("advisories.js", JAVASCRIPT, include_str!("../ui/advisories.js")),
    ("vulnerabilities.js", JAVASCRIPT, include_str!("../ui/vulnerabilities.js")),
    ("cvss4.js", JAVASCRIPT, include_str!("../ui/cvss4.js")),
    ("deliveries.js", JAVASCRIPT, include_str!("../ui/deliveries.js")),
    ("pictures.js", JAVASCRIPT, include_str!("../ui/pictures.js")),
    ("markdown.js", JAVASCRIPT, include_str!("../ui/markdown.js")),
];

static FILES: LazyLock<Vec<(&str, Asset)>> =
    LazyLock::new(|| TEXTS.iter().map(|(name, content_type, text)| (*name, Asset::new(content_type, *text))).collect());

/// Returns a file of the page.
pub(crate) fn file(name: &str) -> Option<&'static Asset> {
    FILES.iter().find(|(known, _)| *known == name).map(|(_, asset)| asset)
}

/// Returns the page at `/console`.
pub(crate) fn page(options: &Options) -> Asset {
    let page = include_str!("../ui/index.html").replace("{base}", &escaped(base_path(&options.url)));
    Asset::new(HTML, page.replace("{title}", &escaped(&options.title)))
}

/// Returns the page at `/`.
pub(crate) fn landing(options: &Options) -> Asset {
    let docs = match options.docs.as_str() {
        "" => String::new(),
        path => format!(
            "<li><a href=\"{{base}}{}\">Documentation<span>every operation, with a form to try it</span></a></li>",
            escaped(path)
        ),
    };
    let page = include_str!("../ui/landing.html")
        .replace("{title}", &escaped(&options.title))
        .replace("{about}", &escaped(&options.about))
        .replace("{version}", &escaped(&options.version))
        .replace("{docs}", &docs)
        .replace("{base}", &escaped(base_path(&options.url)));
    Asset::new(HTML, page)
}

/// Escapes a text for elements and for attribute values in double quotes.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pages_have_no_inline_scripts_or_styles() {
        let mut options = Options::new("<script>alert(1)</script>\"", "http://localhost");
        options.docs = "/docs".to_owned();
        options.about = options.title.clone();
        for page in [page(&options), landing(&options)] {
            let text = String::from_utf8(page.body.to_vec()).unwrap();
            assert!(text.contains("&lt;script&gt;alert(1)&lt;/script&gt;&quot;"), "{text}");
            for part in ["<style", " style=", " onclick", " onload", "javascript:", "http://", "https://"] {
                assert!(!text.contains(part), "{part}: {text}");
            }
            let scripts = text.matches("<script").count();
            assert_eq!(scripts, text.matches("<script type=\"module\" src=\"/console/").count());
        }
    }

    #[test]
    fn scripts_never_turn_text_into_markup_or_code() {
        for (name, _, text) in TEXTS.iter().filter(|(name, ..)| name.ends_with(".js")) {
            for part in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function("] {
                assert!(!text.contains(part), "{name} contains {part}");
            }
        }
    }

    #[test]
    fn every_module_that_is_imported_is_served() {
        for (name, _, text) in TEXTS.iter().filter(|(name, ..)| name.ends_with(".js")) {
            for import in text.split("from \"./").skip(1).filter_map(|rest| rest.split('"').next()) {
                assert!(file(import).is_some(), "{name} imports {import}");
            }
        }
    }
}
