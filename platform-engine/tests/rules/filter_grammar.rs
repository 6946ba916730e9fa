//! The grammar, with the filters that another implementation tests.

use platform_engine::aip::filter::{
    At, Comparator, Comparison, Expression, Literal, MAX_DEPTH, MAX_LEN, MAX_TERMS, Text, parse,
};
use proptest::{collection::vec, prelude::*};

fn printed(text: &str) -> String {
    parse(text).unwrap_or_else(|invalid| panic!("{text}: {invalid}")).map(|one| one.to_string()).unwrap_or_default()
}

fn rule(text: &str) -> String {
    parse(text).map(|parsed| panic!("{text}: {parsed:?}")).unwrap_err().to_string()
}

/// The filters in the tests of the parser of einride/aip-go (`filtering/parser_test.go` at 688b95e81d68, after v0.86.3),
/// and what they mean here: the canonical form, or the error. `docs/api.md`, Filters, lists the differences.
#[test]
fn the_filters_of_another_implementation_have_the_same_structure_except_for_documented_differences() {
    let same = [
        ("New York Giants", r#""New" AND "York" AND "Giants""#),
        ("New York Giants OR Yankees", r#""New" AND "York" AND "Giants" OR "Yankees""#),
        ("New York (Giants OR Yankees)", r#""New" AND "York" AND "Giants" OR "Yankees""#),
        ("a b AND c AND d", r#""a" AND "b" AND "c" AND "d""#),
        ("(a b) AND c AND d", r#""a" AND "b" AND "c" AND "d""#),
        ("a < 10 OR a >= 100", r#"a < "10" OR a >= "100""#),
        ("a OR b OR c", r#""a" OR "b" OR "c""#),
        ("NOT (a OR b)", r#"NOT ("a" OR "b")"#),
        (r#"-file:".java""#, r#"NOT file : ".java""#),
        ("package=com.google", r#"package = "com.google""#),
        ("msg != 'hello'", r#"msg != "hello""#),
        (r#"msg != "hello""#, r#"msg != "hello""#),
        (r#"msg != """#, r#"msg != """#),
        (r#"msg != "\\\"""#, r#"msg != "\\\"""#),
        (r#"msg != "\\""#, r#"msg != "\\""#),
        (r#"msg != "\u263A\u263A""#, r#"msg != "☺☺""#),
        (r#"msg != "[ 'hello' ]""#, r#"msg != "[ 'hello' ]""#),
        (r#"msg != "[ \'hello\' ]""#, r#"msg != "[ 'hello' ]""#),
        (r#"msg != "[ \"hello\" ]""#, r#"msg != "[ \"hello\" ]""#),
        ("1 > 0", r#"1 > "0""#),
        ("foo >= -2.4", r#"foo >= "-2.4""#),
        ("foo >= (-2.4)", r#"foo >= "-2.4""#),
        ("2.5 >= 2.4", r#"2.5 >= "2.4""#),
        ("-2.5 >= -2.4", r#"NOT 2.5 >= "-2.4""#),
        ("yesterday < request.time", r#"yesterday < "request.time""#),
        ("prod", r#""prod""#),
        ("expr.type_map.1.type", r#""expr.type_map.1.type""#),
        ("annotations:schedule", r#"annotations : "schedule""#),
        (r#"annotations.schedule = "test""#, r#"annotations.schedule = "test""#),
        ("-30", r#"NOT "30""#),
    ];
    for (filter, canonical) in same {
        assert_eq!(printed(filter), canonical, "{filter}");
    }
    let errors = [
        ("<", "must have a name or a value here, and not `<` (at character 1)"),
        ("(-2.5) >= -2.4", "must have a name or a value here, and not `>` (at character 8)"),
        (r#"a = "foo"#, "has no end of the quoted text (at character 5)"),
        (r#"msg != "\303\277""#, ESCAPE),
        (r#"msg != "\377""#, ESCAPE),
        (r#"msg != "\a\b\f\n\r\t\v\'\"\\\? Legal escapes""#, ESCAPE),
        (
            "experiment.rollout <= cohort(request.user)",
            "must not call `cohort`: no function is known (at character 23)",
        ),
        ("regex(m.key, '^.*prod.*$')", "must not call `regex`: no function is known (at character 1)"),
        ("math.mem('30mb')", "must not call `mem`: no function is known (at character 6)"),
        ("(msg.endsWith('world') AND retries < 10)", "must not call `endsWith`: no function is known (at character 6)"),
        (
            "(endsWith(msg, 'world') AND retries < 10)",
            "must not call `endsWith`: no function is known (at character 2)",
        ),
        ("time.now()", "must not call `now`: no function is known (at character 6)"),
        (
            r#"timestamp("2012-04-21T11:30:00-04:00")"#,
            "must not call `timestamp`: no function is known (at character 1)",
        ),
        (r#"duration("32s")"#, "must not call `duration`: no function is known (at character 1)"),
        (
            "\n\t\tstart_time > timestamp(\"2006-01-02T15:04:05+07:00\") AND\n\t\t(driver = \"driver1\" OR d = \"e\")",
            "must not call `timestamp`: no function is known (at character 17)",
        ),
    ];
    for (filter, expected) in errors {
        assert_eq!(rule(filter), expected, "{filter}");
    }
}

const ESCAPE: &str = "must have `\\`, a quote, `*`, `n`, `r`, `t` or `u` after a backslash (at character 9)";

#[test]
fn or_binds_tighter_than_and_and_a_sequence_is_an_and() {
    for (filter, canonical) in [
        ("", ""),
        (" \t\r\n ", ""),
        ("a=1 AND b=2 OR c=3", r#"a = "1" AND b = "2" OR c = "3""#),
        ("(a=1 AND b=2) OR c=3", r#"(a = "1" AND b = "2") OR c = "3""#),
        ("a=1 OR (b=2 OR c=3)", r#"a = "1" OR b = "2" OR c = "3""#),
        ("a=1 b=2", r#"a = "1" AND b = "2""#),
        ("NOT a=1 OR NOT b=2", r#"NOT a = "1" OR NOT b = "2""#),
        ("NOT (NOT a=1)", r#"NOT (NOT a = "1")"#),
        ("((a=1))", r#"a = "1""#),
        ("( a=1 )", r#"a = "1""#),
        ("a!=1", r#"a != "1""#),
        ("a=(1 OR 2)", r#"a = ("1" OR "2")"#),
        ("a=(x:y -2 NOT 3)", r#"a = ("x:y" AND "-2" AND NOT "3")"#),
        ("a.AND.\"b c\"=1", r#"a."AND"."b c" = "1""#),
        ("a.b-c = 1", r#"a."b-c" = "1""#),
    ] {
        assert_eq!(printed(filter), canonical, "{filter}");
    }
}

#[test]
fn an_argument_extends_to_the_next_space_and_a_star_is_a_wildcard_unless_it_is_escaped() {
    for (filter, canonical) in [
        ("t>=2026-01-31T00:00:00.5+01:00", r#"t >= "2026-01-31T00:00:00.5+01:00""#),
        ("digest:sha256:ab", r#"digest : "sha256:ab""#),
        ("name:*ngi*", r#"name : "*ngi*""#),
        (r#"name = "a\*b*""#, r#"name = "a\*b*""#),
        (r#"name:*"#, r#"name : "*""#),
        (r#"name = a\*"#, r#"name = "a\\*""#),
        ("email=a@b.example", r#"email = "a@b.example""#),
        ("uid = ab/cd", r#"uid = "ab/cd""#),
        ("n*x", r#""n*x""#),
        (r#"name = "a\nb\r\t""#, r#"name = "a\nb\r\t""#),
    ] {
        assert_eq!(printed(filter), canonical, "{filter}");
    }
}

#[test]
fn anything_else_is_rejected_with_its_position() {
    for (filter, expected) in [
        ("a =", "must have a value after `=` (at character 4)"),
        ("a = )", "must have a value after `=` (at character 5)"),
        ("a = = b", "must have a name or a value here, and not `=` (at character 5)"),
        ("a AND", "must not end here (at character 6)"),
        ("a OR ", "must not end here (at character 6)"),
        ("AND a", "must have a condition here, and not `AND` (at character 1)"),
        ("a AND OR b", "must have a condition here, and not `OR` (at character 7)"),
        ("NOT", "must not end here (at character 4)"),
        ("a=1 and b=2", "must have `AND` in capitals, or `\"and\"` to search for it (at character 5)"),
        ("a=1 Or b=2", "must have `OR` in capitals, or `\"Or\"` to search for it (at character 5)"),
        ("NOT(a=1)", "must have white space after `NOT` (at character 1)"),
        ("(a=1", "has a `(` without a `)` (at character 1)"),
        ("a=1)", "has a `)` without a `(` (at character 4)"),
        ("()", "must have a name or a value here, and not `)` (at character 2)"),
        ("a=1, b=2", "must have white space here (at character 4)"),
        ("a=1!=2", "must have white space here (at character 4)"),
        ("(a=1)(b=2)", "must have white space here (at character 6)"),
        ("é=\"b\"c", "must have white space here (at character 6)"),
        ("a=b\"c\"", "must have quotes around the whole value (at character 3)"),
        ("a.=1", "must have a name or a value here, and not `=` (at character 3)"),
        ("a = (b=1)", "must have white space here (at character 7)"),
        ("a = (b = 1)", "must have a name or a value here, and not `=` (at character 8)"),
        ("a = (b or c)", "must have `OR` in capitals, or `\"or\"` to search for it (at character 8)"),
        ("a = \"\\ud800\"", "must have the four hex digits of a character after `\\u` (at character 6)"),
        ("- a", "must have a name or a value here, and not ` ` (at character 2)"),
    ] {
        assert_eq!(rule(filter), expected, "{filter}");
    }
}

#[test]
fn length_terms_and_depth_are_bounded() {
    assert!(parse(&vec!["a"; MAX_TERMS].join(" ")).is_ok());
    assert!(rule(&vec!["a"; MAX_TERMS + 1].join(" ")).starts_with("must have at most 100 comparisons and words"));
    let nested = |depth: usize| format!("{}a{}", "(".repeat(depth), ")".repeat(depth));
    assert!(parse(&nested(MAX_DEPTH)).is_ok());
    assert!(rule(&nested(MAX_DEPTH + 1)).starts_with("must not be nested more than 16 deep"));
    assert!(rule(&nested(MAX_LEN / 2 - 1)).starts_with("must not be nested more than 16 deep"));
    assert!(rule(&"-(".repeat(MAX_LEN / 2)).starts_with("must not be nested more than 16 deep"));
    // Next to each other, and not in each other.
    for one in ["(a)", "-a"] {
        assert!(parse(&vec![one; MAX_TERMS].join(" ")).is_ok());
    }
    assert!(rule(&"a".repeat(MAX_LEN + 1)).starts_with("must be at most 8192 bytes long"));
}

fn literal() -> impl Strategy<Value = Expression> {
    vec("[a-z\"'\\\\*. \n☺()=:-]{0,4}", 1..3)
        .prop_map(|parts| Expression::Literal(Literal { text: Text::of_parts(parts), at: At(0) }))
}

/// Combines operands with operators, as deep as they are.
fn combined(leaf: impl Strategy<Value = Expression> + Clone + 'static) -> BoxedStrategy<Expression> {
    leaf.prop_recursive(3, 12, 3, |inner| {
        let flat = |all: Vec<Expression>, of: fn(Vec<Expression>) -> Expression| {
            let mut operands = Vec::new();
            for one in all {
                match (one, of(Vec::new())) {
                    (Expression::And(inner), Expression::And(_)) | (Expression::Or(inner), Expression::Or(_)) => {
                        operands.extend(inner);
                    }
                    (one, _) => operands.push(one),
                }
            }
            of(operands)
        };
        prop_oneof![
            vec(inner.clone(), 2..4).prop_map(move |all| flat(all, Expression::And)),
            vec(inner.clone(), 2..4).prop_map(move |all| flat(all, Expression::Or)),
            inner.prop_map(|one| Expression::Not(Box::new(one))),
        ]
    })
    .boxed()
}

fn comparison() -> impl Strategy<Value = Expression> + Clone {
    use Comparator::{Equal, Greater, GreaterOrEqual, Has, Less, LessOrEqual, NotEqual};
    let comparators = vec![Equal, NotEqual, Less, LessOrEqual, Greater, GreaterOrEqual, Has];
    (vec("[a-zA-Z_*\" ]{1,5}", 1..3), proptest::sample::select(comparators), combined(literal().boxed()))
        .prop_map(|(path, comparator, argument)| {
            Expression::Comparison(Comparison { path, comparator, argument: Box::new(argument), at: At(0) })
        })
        .boxed()
}

proptest! {
    #[test]
    fn a_printed_filter_is_parsed_to_itself(expression in combined(prop_oneof![comparison(), literal()].boxed())) {
        let text = expression.to_string();
        prop_assert_eq!(parse(&text), Ok(Some(expression)), "{}", text);
    }

    #[test]
    fn any_text_is_parsed_or_rejected_and_what_it_means_is_printed(text in "[ab.()*:=<>!\"'\\\\ ,ANDORTu0-9☺-]{0,40}") {
        if let Ok(Some(expression)) = parse(&text) {
            let printed = expression.to_string();
            prop_assert_eq!(parse(&printed), Ok(Some(expression)), "{} {}", text, printed);
        }
    }
}
