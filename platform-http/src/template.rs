//! Path templates (AIP-127): literals, `{name}` for one segment, `{name=**}` for any number of segments, and a verb at
//! the end. They match paths as sent and the variables are percent-decoded afterwards. So an encoded slash never
//! separates segments, and nothing is normalized.

use std::cmp::Reverse;

/// Path template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Template {
    before: Vec<Part>,
    /// Parts after the `**`, if there is one.
    greedy: Option<Vec<Part>>,
    verb: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Literal(String),
    One,
}

/// Text of a template's variables as sent, in order. No template of the contract has more than two variables.
pub(crate) type Captured<'p> = Vec<&'p str>;

impl Template {
    /// Parses a template. Returns it with the names of its variables, in order.
    pub(crate) fn parse(text: &str) -> Result<(Self, Vec<String>), &'static str> {
        let (path, verb) = match text.rsplit_once(':') {
            Some((path, verb)) if !verb.contains(['/', '}']) => (path, Some(verb.to_owned())),
            _ => (text, None),
        };
        let mut template = Self { before: Vec::new(), greedy: None, verb };
        let mut names = Vec::new();
        for segment in path.split('/') {
            let variable = segment.strip_prefix('{').and_then(|segment| segment.strip_suffix('}'));
            let part = match variable.map(|variable| variable.split_once('=').unwrap_or((variable, "*"))) {
                None if segment.is_empty() || segment.contains(['{', '}', '*', ':']) => {
                    return Err("a segment is not a valid literal");
                }
                None => Part::Literal(segment.to_owned()),
                Some((name, "*")) => {
                    names.push(name.to_owned());
                    Part::One
                }
                Some((name, "**")) if template.greedy.is_none() => {
                    names.push(name.to_owned());
                    template.greedy = Some(Vec::new());
                    continue;
                }
                Some(_) => return Err("a segment is not a valid variable"),
            };
            template.greedy.as_mut().unwrap_or(&mut template.before).push(part);
        }
        match template.before.first() {
            Some(Part::Literal(_)) => Ok((template, names)),
            _ => Err("the first segment must be a literal"),
        }
    }

    /// Returns the literal that the template starts with.
    pub(crate) fn collection(&self) -> &str {
        match self.before.first() {
            Some(Part::Literal(literal)) => literal,
            _ => "",
        }
    }

    /// Returns the text of the variables if the path matches the template.
    pub(crate) fn match_path<'p>(&self, path: &'p str) -> Option<Captured<'p>> {
        let mut rest = match &self.verb {
            None => path,
            Some(verb) => path.strip_suffix(verb.as_str())?.strip_suffix(':')?,
        };
        // Allocates only once a variable matches, because most of the templates that are tried do not.
        let mut captured = Vec::new();
        // Unmatched rest of the path: `None` at the end, `Some("")` if one more empty segment follows.
        let mut left = Some(rest);
        for part in &self.before {
            let (segment, remaining) = match left?.split_once('/') {
                Some((segment, remaining)) => (segment, Some(remaining)),
                None => (left?, None),
            };
            part.take(segment, &mut captured)?;
            left = remaining;
        }
        let Some(after) = &self.greedy else { return left.is_none().then_some(captured) };
        // The parts after the `**` take their segments from the end of the path, and the `**` takes the rest.
        let (mut tail, mut at_end) = (Vec::new(), left.is_none());
        rest = left.unwrap_or_default();
        for part in after.iter().rev() {
            if at_end {
                return None;
            }
            let segment = match rest.rsplit_once('/') {
                Some((remaining, segment)) => {
                    rest = remaining;
                    segment
                }
                None => {
                    at_end = true;
                    std::mem::take(&mut rest)
                }
            };
            part.take(segment, &mut tail)?;
        }
        captured.push(rest);
        captured.extend(tail.into_iter().rev());
        Some(captured)
    }

    /// Returns the path in OpenAPI notation with these variable names, and for each variable whether it may contain
    /// slashes.
    pub(crate) fn documented(&self, names: &[String]) -> (String, Vec<bool>) {
        let mut names = names.iter();
        let mut variable = || format!("{{{}}}", names.next().map_or("", String::as_str));
        let mut greedy = Vec::new();
        let mut segments = Vec::new();
        for part in self
            .before
            .iter()
            .map(Some)
            .chain(self.greedy.iter().flat_map(|after| std::iter::once(None).chain(after.iter().map(Some))))
        {
            segments.push(match part {
                Some(Part::Literal(literal)) => literal.clone(),
                Some(Part::One) | None => {
                    greedy.push(part.is_none());
                    variable()
                }
            });
        }
        let verb = self.verb.iter().map(|verb| format!(":{verb}"));
        (segments.join("/") + &verb.collect::<String>(), greedy)
    }

    /// Returns a sort key by which the most specific of several matching templates comes first: templates with a verb,
    /// then those with more literals, then those without a `**`.
    pub(crate) fn precedence(&self) -> impl Ord + use<> {
        let parts = || self.before.iter().chain(self.greedy.iter().flatten());
        let literals = parts().filter(|part| matches!(part, Part::Literal(_))).count();
        (self.verb.is_none(), Reverse(literals), self.greedy.is_some(), Reverse(parts().count()))
    }
}

impl Part {
    fn take<'p>(&self, segment: &'p str, captured: &mut Captured<'p>) -> Option<()> {
        match self {
            Self::Literal(literal) => (literal == segment).then_some(()),
            Self::One if segment.is_empty() => None,
            Self::One => {
                captured.push(segment);
                Some(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matched<'p>(template: &str, path: &'p str) -> Option<Captured<'p>> {
        Template::parse(template).unwrap().0.match_path(path)
    }

    #[test]
    fn a_template_matches_paths_of_its_form() {
        for (template, path, captured) in [
            ("repos", "repos", Some(vec![])),
            ("repos", "repos/", None),
            ("repos", "repo", None),
            ("repos/{uid=**}", "repos/a", Some(vec!["a"])),
            ("repos/{uid=**}", "repos/a/b/c", Some(vec!["a/b/c"])),
            ("repos/{uid=**}", "repos/", Some(vec![""])),
            ("repos/{uid=**}", "repos", Some(vec![""])),
            ("repos/{uid=**}", "reposx/a", None),
            ("repos/{uid=**}", "repos/a%2Fb", Some(vec!["a%2Fb"])),
            ("repos/{uid=**}", "repos//a//../b", Some(vec!["/a//../b"])),
            ("repos/{uid=**}/readme", "repos/a/b/readme", Some(vec!["a/b"])),
            ("repos/{uid=**}/readme", "repos/readme", Some(vec![""])),
            ("repos/{uid=**}/readme", "repos/a/b/readme/", None),
            ("repos/{uid=**}/readme", "repos/a%2Freadme", None),
            ("repos/{r=**}/digests/{d}/size", "repos/a/b/digests/sha256:1/size", Some(vec!["a/b", "sha256:1"])),
            ("repos/{r=**}/digests/{d}/size", "repos/a/digests//size", None),
            ("repos/{r=**}/digests/{d}/size", "repos/digests/x/size", Some(vec!["", "x"])),
            ("repos/{r=**}/digests/{d}/size", "digests/x/size", None),
            ("artifacts/{id=*}/versions", "artifacts/a:b/versions", Some(vec!["a:b"])),
            ("artifacts/{id=*}/versions", "artifacts/a/b/versions", None),
            ("artifacts/count", "artifacts/count", Some(vec![])),
            ("groups:lookupGroup", "groups:lookupGroup", Some(vec![])),
            ("groups:lookupGroup", "groups/:lookupGroup", None),
            ("groups:lookupGroup", "groups:lookupgroup", None),
            ("groups/{g=**}:requestGroupAccess", "groups/a/b:requestGroupAccess", Some(vec!["a/b"])),
            ("groups/{g=**}:requestGroupAccess", "groups/a/b", None),
            ("groups/{g=**}:requestGroupAccess", "groups/a/requestGroupAccess", None),
        ] {
            assert_eq!(matched(template, path), captured, "{template} {path}");
        }
    }

    #[test]
    fn a_template_is_documented_with_the_names_of_its_variables() {
        for (template, path, greedy) in [
            ("repos", "repos", &[][..]),
            ("groups:lookupGroup", "groups:lookupGroup", &[]),
            ("groups/{g=**}:verb", "groups/{g}:verb", &[true]),
            ("repos/{r=**}/digests/{d}/size", "repos/{r}/digests/{d}/size", &[true, false]),
        ] {
            let (parsed, names) = Template::parse(template).unwrap();
            assert_eq!(parsed.documented(&names), (path.to_owned(), greedy.to_vec()), "{template}");
        }
    }

    #[test]
    fn verbs_and_literals_take_precedence_over_greedy_variables() {
        let mut templates = [
            "repos/{uid=**}",
            "repos/{uid=**}/readme",
            "repos/{uid=**}/digests/{digest}/size",
            "repos",
            "repos/count",
            "repos/{id}/versions",
            "repos/{uid=**}:verb",
        ];
        templates.sort_by_key(|text| Template::parse(text).unwrap().0.precedence());
        for (first, second) in [
            ("repos/{uid=**}/readme", "repos/{uid=**}"),
            ("repos/count", "repos/{uid=**}"),
            ("repos/count", "repos/{uid=**}/readme"),
            ("repos", "repos/{uid=**}"),
            ("repos/{uid=**}/digests/{digest}/size", "repos/{uid=**}"),
        ] {
            let place = |text: &str| templates.iter().position(|other| *other == text).unwrap();
            assert!(place(first) < place(second), "{first} {second}");
        }
    }

    #[test]
    fn an_invalid_template_is_rejected() {
        for text in ["", "{uid=**}", "a//b", "a/{x=**}/{y=**}", "a/{x=b/*}", "a/x{y}", "/a", "a/**"] {
            assert!(Template::parse(text).is_err(), "{text}");
        }
    }
}
