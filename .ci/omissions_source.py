"""Rewrites Rust source so that its mutants are selected at run time (mutant schemata), for .ci/omissions.

A mutant leaves out a statement that only checks or records, or one side of a condition:

    write.raise(epoch);    becomes    if !crate::omissions::on(1) { write.raise(epoch); }
    a && b                            (crate::omissions::on(2) || (a)) && (crate::omissions::on(3) || (b))
    a.max(b)                          (match (a, b) { (left, right) => if crate::omissions::on(4) { left } else … })

No line break is added, so that the line of an error or panic is the same in both. The source is parsed with tree-sitter,
which has the byte ranges of all expressions and statements and keeps what is between them; regular expressions do not find
the ends of either.
"""

import dataclasses
import re

import tree_sitter
import tree_sitter_rust

# The module that is appended to the root of each rewritten crate. A process that records adds each number to the file
# when it first evaluates the switch.
MODULE = """
#[doc(hidden)]
#[allow(missing_docs, unreachable_pub, clippy::all)]
pub mod omissions {
    use std::{fs, io::Write, sync::{LazyLock, atomic::{AtomicU8, Ordering::Relaxed}}};
    static STATES: LazyLock<Vec<AtomicU8>> = LazyLock::new(|| {
        let chosen: Vec<usize> = std::env::var("OMISSIONS_CHOSEN")
            .map(|ids| ids.split(',').filter_map(|id| id.parse().ok()).collect()).unwrap_or_default();
        let records = u8::from(std::env::var_os("OMISSIONS_RECORD").is_some()) * 2;
        (0..super::OMISSIONS).map(|id| AtomicU8::new(if chosen.contains(&id) { 1 } else { records })).collect()
    });
    #[inline(never)]
    pub fn on(id: usize) -> bool {
        match STATES[id].load(Relaxed) {
            0 => false,
            1 => true,
            _ => {
                if STATES[id].swap(0, Relaxed) == 2 {
                    let path = std::env::var_os("OMISSIONS_RECORD").unwrap_or_default();
                    if let Ok(mut file) = fs::OpenOptions::new().create(true).append(true).open(path) {
                        let _ = file.write_all(format!("{id}\\n").as_bytes());
                    }
                }
                false
            }
        }
    }
}
"""

# Texts for people and example values.
IGNORED_TRAITS = {"Debug", "Display", "fmt::Debug", "fmt::Display", "std::fmt::Debug", "std::fmt::Display"}
IGNORED_FUNCTIONS = {"example"}
IGNORED_NODES = {"attribute_item", "inner_attribute_item", "macro_invocation", "macro_definition", "array_type"}
REWRITTEN_NODES = {
    **dict.fromkeys(("impl_item", "function_item", "trait_item", "mod_item", "const_item", "static_item"), "item"),
    "expression_statement": "expression_statement",
    "let_declaration": "let_declaration",
    "binary_expression": "binary_expression",
    "let_chain": "let_chain",
    "call_expression": "call_expression",
}
TEST = re.compile(rb"#\[(cfg\((all\()?|(\w+::)?)test\b.*", re.DOTALL)
ABSOLUTE = {"abs": 0, "unsigned_abs": 0, "abs_diff": 1}
SWITCH = "crate::omissions::on"
# The numbers of a crate begin at a multiple of this, so that a change to one crate does not compile the others again.
STEP = 2000


@dataclasses.dataclass
class Mutant:
    number: int
    crate: str
    # The path from the root of the workspace.
    file: str
    line: int
    # What tells the mutant from others, also after other lines have changed.
    name: str
    # Why it cannot be a switch, if so.
    unviable: str = ""


class Rewriter:
    """Rewrites files. Numbers the mutants of each crate in the order of the files and of their positions."""

    def __init__(self, unviable: set[str]):
        self.parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_rust.language()))
        self.unviable = unviable
        self.mutants: list[Mutant] = []
        self.number, self.crate = 0, ""

    def rewrite(self, crate: str, file: str, source: bytes) -> "Rewritten":
        """Returns the rewritten source of a file, and adds its mutants."""
        if crate != self.crate:
            self.number += -self.number % STEP
        self.crate, self.file, self.source = crate, file, source
        self.seen: dict[str, int] = {}
        self.scopes: list[str] = []
        self.const = 0
        text, spans = bytearray(), []
        flatten(self.node(self.parser.parse(source).root_node), text, spans)
        return Rewritten(bytes(text), spans)

    # Each method returns pieces: bytes, lists of pieces, and `(mutants, pieces)` for the range of mutants.

    def node(self, node):
        if node.type in IGNORED_NODES:
            return [self.text(node)]
        return getattr(self, REWRITTEN_NODES.get(node.type, "children"))(node)

    def item(self, node):
        name = node.child_by_field_name("name") or node.child_by_field_name("type")
        name = self.text(name).decode() if name else ""
        trait = node.child_by_field_name("trait")
        modifiers = b" ".join(self.text(child) for child in node.children if child.type == "function_modifiers")
        ignored = is_test(node) or (trait and self.text(trait).decode() in IGNORED_TRAITS)
        if ignored or (node.type == "function_item" and name in IGNORED_FUNCTIONS):
            return [self.text(node)]
        is_const = b"const" in modifiers.split() or node.type in ("const_item", "static_item")
        self.scopes.append(re.sub(r"<.*", "", name))
        self.const += is_const
        pieces = self.children(node)
        self.const -= is_const
        self.scopes.pop()
        return pieces

    def children(self, node, replaced=None):
        """Returns the pieces of a node, with `replaced` for some of its children."""
        pieces, at = [], node.start_byte
        for child in node.children:
            pieces.append(self.source[at : child.start_byte])
            pieces.append(replaced[child.id] if replaced and child.id in replaced else self.node(child))
            at = child.end_byte
        pieces.append(self.source[at : node.end_byte])
        return pieces

    def expression_statement(self, node):
        expression = node.named_children[0] if node.named_children else None
        while expression is not None and expression.type == "await_expression":
            expression = expression.named_children[0]
        kinds = ("try_expression", "call_expression", "assignment_expression", "compound_assignment_expr")
        ends = node.children[-1].type == ";"
        if expression is not None and (ends and expression.type in kinds or is_guard(expression)):
            return self.statement(node)
        return self.children(node)

    def let_declaration(self, node):
        pattern = node.child_by_field_name("pattern")
        return self.statement(node) if pattern is not None and self.text(pattern) == b"_" else self.children(node)

    def statement(self, node):
        mutant = self.mutant(node, "no")
        pieces = self.children(node)
        return self.switched([mutant], [f"if !{SWITCH}({mutant.number}) {{ ", pieces, " }"], pieces)

    def binary_expression(self, node):
        operator = node.child_by_field_name("operator").type
        return self.sides(node, operator) if operator in ("&&", "||") else self.children(node)

    def let_chain(self, node):
        return self.sides(node, "&&")

    def sides(self, node, operator):
        """Rewrites each side of a chain of one operator."""
        replaced = {}
        for child in node.named_children:
            if child.type == "let_condition":
                continue
            if child.type == "binary_expression" and child.child_by_field_name("operator").type == operator:
                replaced[child.id] = self.sides(child, operator)
                continue
            mutant = self.mutant(child, f"no side of {operator}:")
            pieces = self.node(child)
            prefix = f"({SWITCH}({mutant.number}) || (" if operator == "&&" else f"(!{SWITCH}({mutant.number}) && ("
            replaced[child.id] = self.switched([mutant], [prefix, pieces, "))"], pieces)
        return self.children(node, replaced)

    def call_expression(self, node):
        function, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments").named_children
        if function.type == "field_expression":
            name = self.text(function.child_by_field_name("field")).decode()
            sides = [function.child_by_field_name("value"), *arguments]
            call = f"left.{name}(right)"
        else:
            name = self.text(function).decode().rsplit("::", 1)[-1]
            sides, call = arguments, f"{self.text(function).decode()}(left, right)"
            if name not in ("max", "min"):
                return self.children(node)
        if name in ("max", "min", "or") and len(sides) == 2:
            return self.one_of_two(node, sides, call, both=True)
        if name == "or_else" and len(sides) == 2:
            return self.one_of_two(node, sides, call, both=False)
        if name in ABSOLUTE and len(sides) == ABSOLUTE[name] + 1:
            return self.absolute(node, sides, name)
        return self.children(node)

    def one_of_two(self, node, sides, call, both):
        """Rewrites a call that chooses one of two values: a mutant is always the left one, and another the right one."""
        mutants = [self.mutant(node, "left side alone:")]
        if both:
            mutants.append(self.mutant(node, "right side alone:"))
        left, right = rendered = [self.node(side) for side in sides]
        gaps = self.line_breaks(node, sides)
        pieces = ["(match (", gaps[0], left, ",", gaps[1], right, gaps[2], f") {{ (left, right) => if {SWITCH}({mutants[0].number}) {{ left }} "]
        if both:
            pieces.append(f"else if {SWITCH}({mutants[1].number}) {{ right }} ")
        pieces.append(f"else {{ {call} }} }})")
        return self.switched(mutants, pieces, self.with_sides(node, sides, rendered))

    def absolute(self, node, sides, name):
        """Rewrites an absolute value or difference: a mutant is 0 where the value is negative, another where positive."""
        mutants = [self.mutant(node, "0 if negative:"), self.mutant(node, "0 if positive:")]
        pieces = [self.node(side) for side in sides]
        gaps = self.line_breaks(node, sides)
        if len(sides) == 2:
            head, other, call = ["(left, right) =>", "right", f"left.{name}(right)"]
            scrutinee = ["(", gaps[0], pieces[0], ",", gaps[1], pieces[1], gaps[2], ")"]
        else:
            head, other, call = ["left =>", "Default::default()", f"left.{name}()"]
            scrutinee = ["(", gaps[0], pieces[0], gaps[1], ")"]
        condition = " || ".join(
            f"{SWITCH}({mutant.number}) && left {sign} {other}" for mutant, sign in zip(mutants, "<>", strict=True)
        )
        arm = f" {{ {head} if {condition} {{ Default::default() }} else {{ {call} }} }})"
        return self.switched(mutants, ["(match ", scrutinee, arm], self.with_sides(node, sides, pieces))

    def line_breaks(self, node, sides):
        """Returns the line breaks before, between and after these nodes within a node."""
        starts = [node.start_byte, *(side.end_byte for side in sides)]
        ends = [*(side.start_byte for side in sides), node.end_byte]
        return [b"\n" * self.source.count(b"\n", start, end) for start, end in zip(starts, ends, strict=True)]

    def with_sides(self, node, sides, pieces):
        """Returns a node with pieces for nodes within it."""
        result, at = [], node.start_byte
        for side, piece in zip(sides, pieces, strict=True):
            result += [self.source[at : side.start_byte], piece]
            at = side.end_byte
        return [*result, self.source[at : node.end_byte]]

    def switched(self, mutants, pieces, original):
        """Returns `pieces` as the range of mutants, or the original where one of them cannot be a switch."""
        for mutant in mutants:
            if mutant.unviable:
                for other in mutants:
                    other.unviable = other.unviable or mutant.unviable
                return original
        return (mutants, pieces)

    def mutant(self, node, kind) -> Mutant:
        text = " ".join(self.text(node).decode().split())
        text = text if len(text) <= 100 else text[:97] + "…"
        name = f"{self.file} {'::'.join(filter(None, self.scopes))}: {kind} {text}"
        self.seen[name] = self.seen.get(name, 0) + 1
        if self.seen[name] > 1:
            name += f" #{self.seen[name]}"
        unviable = "in a constant" if self.const else "the compiler rejects the switch" if name in self.unviable else ""
        mutant = Mutant(self.number, self.crate, self.file, node.start_point[0] + 1, name, unviable)
        self.number += 1
        self.mutants.append(mutant)
        return mutant

    def text(self, node) -> bytes:
        return self.source[node.start_byte : node.end_byte]


@dataclasses.dataclass
class Rewritten:
    text: bytes
    # The mutants with their ranges in the text.
    spans: list[tuple[int, int, Mutant]]

    def mutants_at(self, start: int, end: int) -> list[Mutant]:
        """Returns the mutants of the innermost range that contains this one."""
        around = [span for span in self.spans if span[0] <= start and end <= span[1]]
        if not around:
            return []
        innermost = min(span[1] - span[0] for span in around)
        return [span[2] for span in around if span[1] - span[0] == innermost]

    def mutants_within(self, start: int, end: int) -> list[Mutant]:
        return [span[2] for span in self.spans if start <= span[0] and span[1] <= end]


def flatten(pieces, text: bytearray, spans: list) -> None:
    if isinstance(pieces, bytes):
        text += pieces
    elif isinstance(pieces, str):
        text += pieces.encode()
    elif isinstance(pieces, tuple):
        start = len(text)
        flatten(pieces[1], text, spans)
        spans += [(start, len(text), mutant) for mutant in pieces[0]]
    else:
        for piece in pieces:
            flatten(piece, text, spans)


def is_test(node) -> bool:
    """Returns whether an attribute before the item restricts it to tests."""
    before = node.prev_sibling
    while before is not None and before.type in ("attribute_item", "line_comment", "block_comment"):
        if before.type == "attribute_item" and TEST.fullmatch(before.text):
            return True
        before = before.prev_sibling
    return False


def is_guard(node) -> bool:
    """Returns whether this is an `if` without `else` that leaves the function or the iteration."""
    if node.type != "if_expression" or node.child_by_field_name("alternative") is not None:
        return False
    last = [child for child in node.child_by_field_name("consequence").named_children if "comment" not in child.type][-1:]
    last = last[0] if last else None
    if last is not None and last.type == "expression_statement":
        last = last.named_children[0]
    return last is not None and last.type in ("return_expression", "continue_expression", "break_expression")
