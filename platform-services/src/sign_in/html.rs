//! HTML under construction. Markup can only be a literal, and every other text is escaped.

use pulldown_cmark_escape::escape_html;

/// A piece of HTML.
#[derive(Debug, Default)]
pub(super) struct Html(String);

impl Html {
    /// Appends markup, which a program's text cannot be.
    pub(super) fn markup(mut self, markup: &'static str) -> Self {
        self.0.push_str(markup);
        self
    }

    /// Appends a text, escaped for elements and for attribute values in double quotes.
    pub(super) fn text(mut self, text: &str) -> Self {
        // Writing into a string does not fail.
        let _ = escape_html(&mut self.0, text);
        self
    }

    /// Appends other HTML.
    pub(super) fn html(mut self, html: &Self) -> Self {
        self.0.push_str(&html.0);
        self
    }

    /// Appends a text in an element `code`.
    pub(super) fn code(self, text: &str) -> Self {
        self.markup("<code>").text(text).markup("</code>")
    }

    /// Appends a row of a list of descriptions.
    pub(super) fn row(self, term: &'static str, description: &Self) -> Self {
        self.markup("<dt>").markup(term).markup("</dt><dd>").html(description).markup("</dd>\n")
    }

    /// Returns the HTML as text.
    pub(super) fn into_string(self) -> String {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped_and_markup_is_not() {
        let html = Html::default().markup("<b title=\"").text("\"<i>&").markup("\">").code("</code>");
        assert_eq!(html.into_string(), "<b title=\"&quot;&lt;i&gt;&amp;\"><code>&lt;/code&gt;</code>");
    }
}
