//! Markdown as a stream of elements and texts, from which the page builds nodes. It is never HTML, so no text can become
//! markup or a script.
//!
//! The text has the bounds of readmes, and is parsed where their checks run.

use platform_engine::{
    error::{Error, Result},
    markdown::{MAX_NESTING, is_too_deep},
    offload,
};
use platform_http::{
    Limits, Reply,
    mount::{self, Body, Call, Refusal},
};
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use serde::Serialize;

/// The maximum number of elements in each other; deeper ones are left out and their contents kept. Our choice.
const MAX_DEPTH: usize = 32;

/// The maximum length of a text in bytes: that of a readme. Our choice.
const MAX_TEXT: usize = 128 << 10;

/// A step of the stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Step {
    /// Begins an element with this name.
    Open(&'static str),
    /// Begins a link to an address on the web.
    Link(String),
    /// Ends the element that was begun last.
    Close,
    /// A text.
    Text(String),
}

/// Answers a caller's text with its steps.
pub(crate) async fn answer(call: &Call<'_>, body: Body<'_>) -> Result<Reply, Refusal> {
    mount::reject_parameters(call.query)?;
    let caller = call.caller().await?;
    // No other call of the platform would refuse a revoked token.
    call.platform.current_grants(&caller).await?;
    let bytes = mount::bytes(body, &Limits { body: MAX_TEXT.min(call.limits.body), ..call.limits.clone() }).await?;
    let text = checked(&bytes)?.to_owned();
    let json = move || serde_json::to_vec(&steps(&text)).map_err(Error::internal);
    let json = offload::run(call.platform.offload(), caller.identity.root(), json).await?;
    Ok(mount::json(json?))
}

/// Returns a text that does not take long to parse.
fn checked(bytes: &[u8]) -> Result<&str> {
    let text = std::str::from_utf8(bytes).map_err(|_| Error::invalid_field("body", "is not valid UTF-8"))?;
    if is_too_deep(text) {
        Err(Error::invalid_field("body", format!("must not nest deeper than {MAX_NESTING} levels")))
    } else {
        Ok(text)
    }
}

/// Returns the steps of a text. HTML in it is left out, and images are shown as links.
fn steps(text: &str) -> Vec<Step> {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut steps = Vec::new();
    // For each open element of the text: whether it is an element of the stream, too.
    let mut open: Vec<bool> = Vec::new();
    let (mut depth, mut in_head) = (0, false);
    for event in Parser::new_ext(text, options) {
        match event {
            Event::Start(tag) => {
                in_head |= matches!(tag, Tag::TableHead);
                let step = start(&tag, in_head).filter(|_| depth < MAX_DEPTH);
                open.push(step.is_some());
                depth += usize::from(step.is_some());
                steps.extend(step);
            }
            Event::End(end) => {
                in_head &= end != TagEnd::TableHead;
                if open.pop() == Some(true) {
                    depth -= 1;
                    steps.push(Step::Close);
                }
            }
            Event::Text(text) => steps.push(Step::Text(text.into_string())),
            Event::Code(code) => steps.extend([Step::Open("code"), Step::Text(code.into_string()), Step::Close]),
            Event::SoftBreak => steps.push(Step::Text("\n".to_owned())),
            Event::HardBreak => steps.extend([Step::Open("br"), Step::Close]),
            Event::Rule => steps.extend([Step::Open("hr"), Step::Close]),
            Event::TaskListMarker(done) => steps.push(Step::Text(if done { "☑ " } else { "☐ " }.to_owned())),
            _ => {}
        }
    }
    steps
}

fn start(tag: &Tag<'_>, in_head: bool) -> Option<Step> {
    let name = match tag {
        Tag::Paragraph => "p",
        // The page has a heading of its own above the text.
        Tag::Heading { level, .. } => match *level as usize {
            1 => "h3",
            2 => "h4",
            3 => "h5",
            _ => "h6",
        },
        Tag::BlockQuote(_) => "blockquote",
        Tag::CodeBlock(_) => "pre",
        Tag::List(None) => "ul",
        Tag::List(Some(_)) => "ol",
        Tag::Item => "li",
        Tag::Table(_) => "table",
        Tag::TableHead => "thead",
        Tag::TableRow => "tr",
        Tag::TableCell if in_head => "th",
        Tag::TableCell => "td",
        Tag::Emphasis => "em",
        Tag::Strong => "strong",
        Tag::Strikethrough => "s",
        Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
            let is_safe = ["https://", "http://", "mailto:"].iter().any(|scheme| dest_url.starts_with(scheme));
            return is_safe.then(|| Step::Link(dest_url.to_string()));
        }
        _ => return None,
    };
    Some(Step::Open(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        let step = |step: &Step| match step {
            Step::Open(name) => format!("<{name}>"),
            Step::Link(url) => format!("<a {url}>"),
            Step::Close => "</>".to_owned(),
            Step::Text(text) => text.clone(),
        };
        steps(text).iter().map(step).collect()
    }

    #[test]
    fn markdown_becomes_elements() {
        assert_eq!(shown("# A\n\n*b* `c`\n"), "<h3>A</><p><em>b</> <code>c</></>");
        assert_eq!(shown("[a](https://e.com)"), "<p><a https://e.com>a</></>");
        assert_eq!(shown("|a|\n|-|\n|b|\n"), "<table><thead><th>a</></><tr><td>b</></></>");
        assert_eq!(shown("![logo](https://e.com/a.png)"), "<p><a https://e.com/a.png>logo</></>");
    }

    #[test]
    fn html_and_addresses_that_run_scripts_are_left_out() {
        assert_eq!(shown("a <b>c</b> <script>alert(1)</script>"), "<p>a c alert(1)</>");
        assert_eq!(shown("<iframe src=x></iframe>\n"), "");
        for bad in ["javascript:alert(1)", "JAVASCRIPT:x", "data:text/html,x", "//evil.example", "vbscript:x"] {
            assert_eq!(shown(&format!("[a]({bad})")), "<p>a</>", "{bad}");
        }
    }

    #[test]
    fn a_text_that_nests_deeper_than_readmes_is_not_parsed() {
        let nested = |levels: usize| format!("{}a", "> ".repeat(levels));
        assert_eq!(checked(nested(MAX_NESTING).as_bytes()).unwrap(), nested(MAX_NESTING));
        let refused = checked(nested(MAX_NESTING + 1).as_bytes()).unwrap_err();
        assert_eq!(refused.violations()[0].description, "must not nest deeper than 64 levels");
    }

    #[test]
    fn elements_are_at_most_32_deep() {
        let steps = steps(&format!("{}a", "> ".repeat(MAX_NESTING)));
        assert_eq!(steps.iter().filter(|step| matches!(step, Step::Open(_))).count(), MAX_DEPTH);
        assert_eq!(steps.iter().filter(|step| matches!(step, Step::Close)).count(), MAX_DEPTH);
        assert!(steps.contains(&Step::Text("a".to_owned())));
    }
}
