// Generates re2.txt: the results of Go's regexp package, which has RE2's syntax, for patterns and values.
// Run: go run re2.go > re2.txt
package main

import (
	"encoding/json"
	"fmt"
	"regexp"
)

var patterns = []string{
	``, `a`, `^a$`, `a|bc`, `(a|b)*c`, `https://accounts.google.com`, `https://accounts\.google\.com`,
	`^repo:org/app:.*`, `repo:org/[^:]+:ref:refs/heads/main`, `^repo:org\/(app|lib):ref:refs\/(heads|tags)\/.*$`,
	`{C668DE74-1B38-4A21-A2A8-2D5C4D1D2B5C}:.+`, `project_path:group/.+:ref_type:branch:ref:main`, `.*@example\.com`,
	`(?i)^[a-z0-9._%+-]+@example\.com$`, `^\d{4}$`, `\d+`, `\D+`, `\w+`, `\W+`, `\s`, `\S+`, `[[:alpha:]]+`, `[[:^alpha:]]+`,
	`[^a-c]`, `[a-c]+`, `[]a]+`, `[^]a]+`, `[a\-z]+`, `[a-]+`, `[\w.-]+`, `[\d\s]+`, `[\]\[]+`, `a{2}`, `a{2,}`, `a{,2}`, `a{0,2}`,
	`a{2}?`, `a{`, `a{x}`, `a{1`, `{`, `}`, `a{1001}`, `a{3,2}`, `\Qa.b\E`, `\Qa.b`, `\Qa.b\E+`, `\x41`, `\x{e9}`, `\101`, `\a\f\t\n\r\v`,
	`\.`, `\-`, `\_`, `\/`, `\:`, `\@`, `\e`, `\i`, `\8`, `\1`, `\z`, `a\z`, `\Aa`, `\Z`, `\ba\b`, `\Ba\B`, `\pL+`, `\p{Greek}+`, `\PL+`,
	`\p{Lu}`, `\pX`, `.`, `(?s).`, `(?s).*`, `.*`, `.+`, `(?m)^a$`, `(?U)a+`, `(?i)K`, `(?i)straße`, `(?:a)(b)(?P<n>c)`, `(?<n>a)`,
	`(?P<n>a)(?P<n>b)`, `(?=a)`, `(?!a)`, `(?<=a)b`, `(?x)a b`, `a**`, `a*?`, `a+?b`, `a??`, `*a`, `+`, `?`, `a|*`, `(`, `)`, `a)(b`, `()`,
	`(|a)`, `||`, `[`, `[]`, `[b-a]`, `[a-\d]`, `[[:nope:]]`, `[[a]`, `[a&&b]`, `[a--b]`, `[--a]+`, `[\w-a]+`, `[a-b-c]+`, `[\d-z]+`, `[a-\x63]+`, `[+--]+`, `[[:digit:]-z]+`, `[\pL-]+`, `[a-\pL]`, `a#b c`, `~`, `a&&b`, "\t", "é", `[é-ü]`, `\C`,
	`\pN+`, `\p{^Greek}`, `\P{^L}`, `[\p{L}\d]+`, `(?i:A)b`, `(?-s).`, `$`, `^`, `a$b`, `^^a$$`, `x*`, `(a*)*`, `(a+)+$`, `(a|a)*b`,
}

var values = []string{
	"", "a", "b", "aa", "aaa", "ab", "abc", "bc", "A", "K", "k", "\u212a", "1", "2026", "20266", "\u0662\u0660\u0662\u0666", "é", "ü", "É",
	"α", "Ω", " ", "\t", "\n", "\v", "\f", "\r", "\u00a0", "a\n", "a\nb", "a b", "a#b c", "a-b", "a.b", "axb", "a_b", ".", "-", "_", "/",
	":", "@", "{", "}", "a{", "a{x}", "a{,2}", "a{1", "[", "]", "&", "~", "\\", "\x00", "STRASSE", "straße", "https://accounts.google.com",
	"https://accounts.google.com.evil.example", "https://accountsXgoogle.com", "xhttps://accounts.google.com",
	"repo:org/app:ref:refs/heads/main", "repo:org/app:ref:refs/heads/main2", "repo:org/appendix:ref:refs/heads/main",
	"repo:organisation/app:ref:refs/heads/main", "repo:org/lib:ref:refs/tags/v1", "`", "+", ",", "a`", "z", "1-z", "a-c", "{C668DE74-1B38-4A21-A2A8-2D5C4D1D2B5C}:x",
	"ada@example.com", "ada@example.com.evil.example", "ADA@EXAMPLE.COM", "project_path:group/app:ref_type:branch:ref:main",
}

func main() {
	for _, pattern := range patterns {
		alone, err := regexp.Compile(pattern)
		line := map[string]any{"pattern": pattern}
		if err == nil {
			// Longest, so that an end of text is found where there is one; wrapping a pattern could change it.
			alone.Longest()
			matched, others := []string{}, []string{}
			for _, value := range values {
				if at := alone.FindStringIndex(value); at != nil && at[0] == 0 && at[1] == len(value) {
					matched = append(matched, value)
				} else {
					others = append(others, value)
				}
			}
			line["matches"], line["others"] = matched, others
		}
		text, _ := json.Marshal(line)
		fmt.Println(string(text))
	}
}
