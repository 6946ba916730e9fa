//! Checks that Markdown renders to safe HTML, in one pass over the parser's events and over the tags of embedded HTML.
//! Nothing is rendered, so the time is linear in the length of the text.
//!
//! Everything that a sanitizer for user-generated content would remove is rejected: tags, attributes and URL schemes
//! that are not known to be harmless. HTML is parsed more strictly than by browsers, so that a browser never sees other
//! tags than this module does: a tag must be complete, elements must be properly nested, and an element must end in the
//! Markdown block in which it starts.

use pulldown_cmark::{CodeBlockKind, Event, LinkType, Parser, Tag, TagEnd};

use platform_engine::markdown::{MAX_NESTING, is_too_deep};

/// The reason why Markdown is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rejection {
    /// The HTML is unsafe or malformed.
    Unsafe,
    /// The nesting is deeper than [`MAX_NESTING`].
    TooDeep,
}

impl Rejection {
    /// Returns the violated rule as a phrase.
    pub(super) fn rule(self) -> String {
        match self {
            Self::Unsafe => "readme contained unsafe html content".to_owned(),
            Self::TooDeep => format!("must not nest deeper than {MAX_NESTING} levels"),
        }
    }
}

/// Returns `Ok` if Markdown renders to safe HTML.
pub(super) fn check(markdown: &str) -> Result<(), Rejection> {
    if is_too_deep(markdown) {
        return Err(Rejection::TooDeep);
    }
    let mut open = Open::default();
    let mut html = String::new();
    for event in Parser::new(markdown) {
        if let Event::Html(text) | Event::InlineHtml(text) = &event {
            html.push_str(text);
            continue;
        }
        if !html.is_empty() {
            Tags { rest: &html, open: &mut open }.check()?;
            html.clear();
        }
        match event {
            // An HTML block has no element of its own.
            Event::Start(Tag::HtmlBlock) | Event::End(TagEnd::HtmlBlock) => {}
            Event::Start(tag) => {
                match tag {
                    Tag::Link { link_type: LinkType::Email, .. } => {}
                    Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => ensure_safe(is_safe_url(&dest_url))?,
                    Tag::CodeBlock(CodeBlockKind::Fenced(info)) => {
                        let language = info.split(' ').next().unwrap_or_default();
                        ensure_safe(is_alphanumeric(language))?;
                    }
                    _ => {}
                }
                open.begin(Element::Block)?;
            }
            Event::End(_) => open.end(Element::Block)?,
            _ => {}
        }
    }
    Tags { rest: &html, open: &mut open }.check()?;
    ensure_safe(open.0.is_empty())
}

/// Returns [`Rejection::Unsafe`] unless `is_safe` holds.
fn ensure_safe(is_safe: bool) -> Result<(), Rejection> {
    if is_safe { Ok(()) } else { Err(Rejection::Unsafe) }
}

fn is_alphanumeric(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_alphanumeric())
}

/// An open block or element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Element {
    /// A block or span of Markdown.
    Block,
    /// An element of HTML.
    Html(&'static str),
}

/// The open elements, the innermost last.
#[derive(Debug, Default)]
struct Open(Vec<Element>);

impl Open {
    fn begin(&mut self, element: Element) -> Result<(), Rejection> {
        if self.0.len() >= MAX_NESTING {
            return Err(Rejection::TooDeep);
        }
        self.0.push(element);
        Ok(())
    }

    fn end(&mut self, element: Element) -> Result<(), Rejection> {
        ensure_safe(self.0.pop() == Some(element))
    }
}

/// The harmless elements, with their harmless attributes in addition to [`GLOBAL_ATTRIBUTES`].
const TAGS: &[(&str, &[&str])] = &[
    ("a", &["href", "hreflang"]),
    ("abbr", &[]),
    ("acronym", &[]),
    ("area", &[]),
    ("article", &[]),
    ("aside", &[]),
    ("b", &[]),
    ("bdi", &[]),
    ("bdo", &["dir"]),
    ("blockquote", &["cite"]),
    ("br", &[]),
    ("caption", &[]),
    ("center", &[]),
    ("cite", &[]),
    ("code", &["class"]),
    ("col", &["align", "char", "charoff", "span"]),
    ("colgroup", &["align", "char", "charoff", "span"]),
    ("data", &[]),
    ("dd", &[]),
    ("del", &["cite", "datetime"]),
    ("details", &[]),
    ("dfn", &[]),
    ("div", &[]),
    ("dl", &[]),
    ("dt", &[]),
    ("em", &[]),
    ("figcaption", &[]),
    ("figure", &[]),
    ("footer", &[]),
    ("h1", &[]),
    ("h2", &[]),
    ("h3", &[]),
    ("h4", &[]),
    ("h5", &[]),
    ("h6", &[]),
    ("header", &[]),
    ("hgroup", &[]),
    ("hr", &["align", "size", "width"]),
    ("i", &[]),
    ("img", &["align", "alt", "height", "src", "width"]),
    ("ins", &["cite", "datetime"]),
    ("kbd", &[]),
    ("li", &[]),
    ("map", &[]),
    ("mark", &[]),
    ("nav", &[]),
    ("ol", &["start"]),
    ("p", &[]),
    ("pre", &[]),
    ("q", &["cite"]),
    ("rp", &[]),
    ("rt", &[]),
    ("rtc", &[]),
    ("ruby", &[]),
    ("s", &[]),
    ("samp", &[]),
    ("small", &[]),
    ("span", &[]),
    ("strike", &[]),
    ("strong", &[]),
    ("sub", &[]),
    ("summary", &[]),
    ("sup", &[]),
    ("table", &["align", "char", "charoff", "summary"]),
    ("tbody", &["align", "char", "charoff"]),
    ("td", &["align", "char", "charoff", "colspan", "headers", "rowspan"]),
    ("th", &["align", "char", "charoff", "colspan", "headers", "rowspan", "scope"]),
    ("thead", &["align", "char", "charoff"]),
    ("time", &[]),
    ("tr", &["align", "char", "charoff"]),
    ("tt", &[]),
    ("u", &[]),
    ("ul", &[]),
    ("var", &[]),
    ("wbr", &[]),
];

/// The attributes that every element may have.
const GLOBAL_ATTRIBUTES: &[&str] = &["lang", "title"];

/// The elements without an end tag.
const VOID: &[&str] = &["area", "br", "col", "hr", "img", "wbr"];

/// The elements that are only allowed directly within these parents. Elsewhere, browsers could close elements around
/// the readme.
const WITHIN: &[(&str, &[&str])] = &[
    ("caption", &["table"]),
    ("col", &["colgroup", "table"]),
    ("colgroup", &["table"]),
    ("tbody", &["table"]),
    ("td", &["tr"]),
    ("th", &["tr"]),
    ("thead", &["table"]),
    ("tr", &["table", "tbody", "thead"]),
];

/// The harmless URL schemes.
const SCHEMES: &[&str] = &[
    "bitcoin",
    "ftp",
    "ftps",
    "geo",
    "http",
    "https",
    "im",
    "irc",
    "ircs",
    "magnet",
    "mailto",
    "mms",
    "mx",
    "news",
    "nntp",
    "openpgp4fpr",
    "sip",
    "sms",
    "smsto",
    "ssh",
    "tel",
    "url",
    "webcal",
    "wtai",
    "xmpp",
];

/// A parser of the tags in a piece of HTML, which must be complete.
struct Tags<'a> {
    rest: &'a str,
    open: &'a mut Open,
}

impl<'a> Tags<'a> {
    fn check(mut self) -> Result<(), Rejection> {
        while let Some((_, rest)) = self.rest.split_once('<') {
            self.rest = rest;
            if let Some(rest) = rest.strip_prefix("!--") {
                // A browser would end these comments earlier.
                ensure_safe(!rest.starts_with('>') && !rest.starts_with("->"))?;
                let (comment, rest) = rest.split_once("-->").ok_or(Rejection::Unsafe)?;
                ensure_safe(!comment.contains("--!>"))?;
                self.rest = rest;
            } else if let Some(rest) = rest.strip_prefix('/') {
                self.rest = rest;
                let (name, _) = self.element()?;
                self.space();
                self.expect(">")?;
                self.open.end(Element::Html(name))?;
            } else if rest.starts_with(|c: char| c.is_ascii_alphabetic()) {
                self.begin()?;
            } else {
                // A literal `<`, unless browsers would parse a comment.
                ensure_safe(!rest.starts_with(['!', '?']))?;
            }
        }
        Ok(())
    }

    /// Parses a start tag.
    fn begin(&mut self) -> Result<(), Rejection> {
        let (name, attributes) = self.element()?;
        if let Some((_, parents)) = WITHIN.iter().find(|(child, _)| *child == name) {
            let within = |element: &Element| matches!(element, Element::Html(name) if parents.contains(name));
            ensure_safe(self.open.0.last().is_some_and(within))?;
        }
        let mut seen = Vec::new();
        loop {
            let has_space = self.space();
            if self.rest.starts_with(['>', '/']) {
                break;
            }
            ensure_safe(has_space)?;
            let attribute = self.take(|b| b.is_ascii_alphanumeric() || b == b'-').to_ascii_lowercase();
            let known = attributes.iter().chain(GLOBAL_ATTRIBUTES).find(|known| **known == attribute);
            let known = *known.ok_or(Rejection::Unsafe)?;
            ensure_safe(!seen.contains(&known))?;
            seen.push(known);
            self.space();
            let value = self.value()?;
            ensure_safe(match known {
                "cite" | "href" | "src" => is_plain(value) && is_safe_url(value),
                "class" => {
                    value.strip_prefix("language-").is_some_and(|name| !name.is_empty() && is_alphanumeric(name))
                }
                _ => true,
            })?;
        }
        let void = VOID.contains(&name);
        if self.rest.starts_with('/') {
            // Browsers ignore the slash of other elements, and would leave them open.
            ensure_safe(void)?;
            self.expect("/")?;
        }
        self.expect(">")?;
        if void { Ok(()) } else { self.open.begin(Element::Html(name)) }
    }

    /// Parses the name of a harmless element and returns it with its attributes.
    fn element(&mut self) -> Result<(&'static str, &'static [&'static str]), Rejection> {
        let name = self.take(|b| b.is_ascii_alphanumeric()).to_ascii_lowercase();
        TAGS.iter().find(|(known, _)| *known == name).copied().ok_or(Rejection::Unsafe)
    }

    /// Parses the value of an attribute, which is empty if there is none.
    fn value(&mut self) -> Result<&'a str, Rejection> {
        let Some(rest) = self.rest.strip_prefix('=') else { return Ok("") };
        self.rest = rest;
        self.space();
        match self.rest.chars().next() {
            Some(quote @ ('"' | '\'')) => {
                self.rest = self.rest.strip_prefix(quote).unwrap_or_default();
                let (value, rest) = self.rest.split_once(quote).ok_or(Rejection::Unsafe)?;
                self.rest = rest;
                Ok(value)
            }
            _ => {
                let ends = |b: u8| matches!(b, b'"' | b'\'' | b'=' | b'<' | b'>' | b'`');
                let value = self.take(move |b| b.is_ascii_graphic() && !ends(b));
                ensure_safe(!value.is_empty())?;
                Ok(value)
            }
        }
    }

    /// Skips whitespace and returns whether there was any.
    fn space(&mut self) -> bool {
        let before = self.rest.len();
        self.rest = self.rest.trim_start_matches(['\t', '\n', '\x0C', '\r', ' ']);
        self.rest.len() < before
    }

    /// Takes the leading ASCII characters that satisfy a predicate.
    fn take(&mut self, of: impl Fn(u8) -> bool) -> &'a str {
        let len = self.rest.bytes().take_while(|b| b.is_ascii() && of(*b)).count();
        let (taken, rest) = self.rest.split_at_checked(len).unwrap_or_default();
        self.rest = rest;
        taken
    }

    fn expect(&mut self, text: &str) -> Result<(), Rejection> {
        self.rest = self.rest.strip_prefix(text).ok_or(Rejection::Unsafe)?;
        Ok(())
    }
}

/// Returns whether a value has no character references except `&amp;`: others could hide a scheme.
fn is_plain(value: &str) -> bool {
    value.split('&').skip(1).all(|rest| {
        let len = rest.bytes().take_while(u8::is_ascii_alphanumeric).count();
        let (name, rest) = rest.split_at_checked(len).unwrap_or_default();
        name == "amp" || !rest.starts_with([';', '#'])
    })
}

/// Returns whether a URL is relative or has a harmless scheme, as parsed by browsers, which ignore tabs, line breaks
/// and leading control characters.
fn is_safe_url(url: &str) -> bool {
    let url: String = url.chars().filter(|c| !matches!(c, '\t' | '\n' | '\r')).collect();
    let start = url.trim_start_matches(|c: char| c <= ' ').split(['/', '?', '#', '\\']).next().unwrap_or_default();
    match start.split_once(':') {
        Some((scheme, _)) => SCHEMES.contains(&scheme.to_ascii_lowercase().as_str()),
        None => true,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn html(markdown: &str) -> String {
        let mut html = String::new();
        pulldown_cmark::html::push_html(&mut html, Parser::new(markdown));
        html
    }

    /// Returns the tags of a piece of HTML, with their attributes, in the form in which the sanitizer writes them.
    fn tags(html: &str) -> Vec<String> {
        let tag = regex::Regex::new(r#"<[a-zA-Z][^"'>]*("[^"]*"[^"'>]*|'[^']*'[^"'>]*)*>"#).unwrap();
        // A sanitizer quotes and escapes attributes in its own way.
        let same = [(" />", ">"), ("/>", ">"), ("&amp;", "&"), ("&lt;", "<"), ("&gt;", ">")];
        let same = same.into_iter().chain([("&#x27;", "\""), ("&quot;", "\""), ("'", "\"")]);
        let decoded = |tag: &str| same.clone().fold(tag.to_owned(), |tag, (from, to)| tag.replace(from, to));
        tag.find_iter(html).map(|tag| decoded(tag.as_str())).collect()
    }

    fn sanitized(html: &str) -> String {
        let mut sanitizer = ammonia::Builder::default();
        sanitizer.link_rel(None).strip_comments(false).add_tag_attributes("code", ["class"]).attribute_filter(
            |element, attribute, value| match (element, attribute) {
                ("code", "class") => value
                    .strip_prefix("language-")
                    .filter(|name| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric()))
                    .map(|_| value.into()),
                _ => Some(value.into()),
            },
        );
        sanitizer.clean(html).to_string()
    }

    #[test]
    fn safe_html_is_accepted() {
        for good in [
            "<details>\n<summary>More</summary>\n\n*text*\n\n</details>\n",
            "<table>\n<thead><tr><th scope=\"col\">a</th></tr></thead>\n<tbody><tr><td>1 < 2 & 3</td></tr></tbody>\n</table>\n",
            "a <b>bold</b> and <br> <br/> <img src='https://e.com/a?b=1&c=2' alt=x>",
            "<p>a</p>\n\n> <div>\n> quoted\n> </div>\n",
            "<a href=\"https://e.com/?a=1&amp;b=2\" title=\"javascript:\">x</a> <me@example.com> <https://e.com>",
            "<!-- a comment - with -- dashes -->\n\ntext <!-- inline --> text",
            "```rust\n<script>\n```\n\n`<script>`",
            "--------------------------------------------------------------------------------------\n",
        ] {
            assert_eq!(check(good), Ok(()), "{good:?}");
        }
    }

    #[test]
    fn active_content_and_unsafe_urls_are_rejected() {
        for bad in [
            "<script>alert(1)</script>",
            "<SCRIPT src=//e.com></SCRIPT>",
            "<svg onload=alert(1)>",
            "<style>a{}</style>",
            "<math><mi></mi></math>",
            "<a href=javascript:alert(1)>x</a>",
            "<a href=\"java\nscript:alert(1)\">x</a>",
            "<a href=\" &#106;avascript:alert(1)\">x</a>",
            "<a href=\"javascript&colon;alert(1)\">x</a>",
            "<a href=\"java&Tab;script:alert(1)\">x</a>",
            "<a href=\"\u{1}javascript:alert(1)\">x</a>",
            "<a href=\"data:text/html,x\">x</a>",
            "[a](javascript:alert(1))",
            "[a](&#106;avascript:alert(1))",
            "[a]\n\n[a]: vbscript:x",
            "![a](data:image/svg+xml,x)",
            "<javascript:alert(1)>",
            "<b onclick=\"x\">x</b>",
            "<img src=x onerror=alert(1)>",
            "<div><img src=\"x\"onerror=\"alert(1)\"></div>",
            "<p style=\"position:fixed\">x</p>",
            "<code class=\"x\">a</code>",
            "<iframe src=\"https://e.com\"></iframe>",
            "<form action=x></form>",
            "<div>",
            "</div>",
            "<div></p>",
            "<b><i></b></i>",
            "<div>\n\n> </div>\n",
            "*<b>a* b</b>",
            "<td>x</td>",
            "<div/>x",
            "<div title=\"\n\nx\"></div>",
            "<!--> <script> -->\n",
            "<!---> <script> -->\n",
            "<!-- --!> <script> -->\n",
            "<!-- not ended",
            "<?php x ?>",
            "<!DOCTYPE html>",
            "<![CDATA[x]]>",
            "<custom-element></custom-element>",
        ] {
            assert_eq!(check(bad), Err(Rejection::Unsafe), "{bad:?}: {}", html(bad));
        }
    }

    #[test]
    fn nesting_is_bounded_for_all_kinds_of_blocks() {
        let lists = |depth: usize| (0..depth).map(|at| format!("{}- a\n", "  ".repeat(at))).collect::<String>();
        type Nested = fn(usize) -> String;
        let cases: [(&str, Nested); 5] = [
            ("quotes", |depth| "> ".repeat(depth)),
            ("tight quotes", |depth| format!("{}a\nb\n", ">".repeat(depth))),
            ("lists of a line", |depth| format!("{}a\nb\n", "- ".repeat(depth))),
            ("numbers of a line", |depth| format!("{}a\nb\n", "1. ".repeat(depth))),
            ("elements", |depth| format!("{}a{}", "<div>".repeat(depth), "</div>".repeat(depth))),
        ];
        for (name, nested) in cases {
            assert_eq!(check(&nested(20)), Ok(()), "{name}");
            assert_eq!(check(&nested(10_000)), Err(Rejection::TooDeep), "{name}");
        }
        assert_eq!(check(&lists(20)), Ok(()));
        assert_eq!(check(&lists(100)), Err(Rejection::TooDeep));
    }

    fn piece() -> impl Strategy<Value = String> {
        const FIXED: &[&str] = &[
            "<b>",
            "</b>",
            "<div>",
            "</div>",
            "<i title=\"a\">",
            "</i>",
            "<p>",
            "</p>",
            "<ul><li>",
            "</li></ul>",
            "<table><tr><td>",
            "</td></tr></table>",
            "<a href=\"https://e.com\">",
            "</a>",
            "<a href=\"javascript:x\">",
            "<img src=\"a\" onerror=\"x\">",
            "<img src=\"a\">",
            "<br>",
            "<br />",
            "<script>",
            "</script>",
            "<!-- a -->",
            "<!--",
            "-->",
            "<svg>",
            "<style>",
            "<",
            ">",
            "\"",
            "'",
            "&lt;",
            "&#58;",
            "javascript:",
            "[a](",
            ")",
            "](b)",
            "[a](data:x)",
            "*",
            "_",
            "`",
            "```\n",
            "~~~a b\n",
            "> ",
            "- ",
            "1. ",
            "\n",
            "\n\n",
            "    ",
            "text",
            "# ",
            "<code class=\"language-a\">",
            "</code>",
            "<td>",
            "<tr>",
            "<summary>",
            "<details>",
            "</details>",
            "/",
            "!",
        ];
        prop_oneof![8 => prop::sample::select(FIXED).prop_map(str::to_owned), 1 => "[ -~]{0,6}"]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]

        #[test]
        fn a_sanitizer_removes_nothing_from_accepted_markdown(pieces in prop::collection::vec(piece(), 0..12)) {
            let markdown = pieces.concat();
            if check(&markdown).is_ok() {
                let html = html(&markdown);
                let clean = sanitized(&html);
                let mut kept = tags(&clean);
                for tag in tags(&html) {
                    let at = kept.iter().position(|kept| *kept == tag);
                    prop_assert!(at.is_some(), "{tag} of {html:?} is gone: {clean:?}");
                    kept.swap_remove(at.unwrap());
                }
            }
        }
    }
}
