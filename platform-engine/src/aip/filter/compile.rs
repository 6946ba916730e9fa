//! Filters with the types of their fields.

use super::{Comparator, Comparison, Expression, Invalid, Literal, Text};
use crate::{
    duration::Duration,
    fields::named,
    kind::{Field, Kind, Type},
    timestamp::Timestamp,
};

type Result<T> = std::result::Result<T, Invalid>;

/// A filter of the lists of a kind.
#[derive(Debug)]
pub struct Filter {
    /// Conditions that must all hold.
    pub(super) conditions: Vec<Condition>,
}

/// A condition, and how it is written.
#[derive(Debug)]
pub(super) struct Condition {
    pub(super) test: Test,
    pub(super) text: String,
}

/// A test of a resource.
#[derive(Debug)]
pub(super) enum Test {
    All(Vec<Self>),
    Any(Vec<Self>),
    Not(Box<Self>),
    /// The value at a path. A list on the way passes if one of its elements does.
    Value {
        path: Vec<Step>,
        is: Is,
    },
    /// One of the texts in these fields has a part that is this text in lower case.
    Search(Vec<&'static str>, Text),
}

/// A step of a path.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    Field(&'static str),
    Key(String),
}

/// A test of a value.
#[derive(Debug)]
pub(super) enum Is {
    /// It is set to something else than the default of its type.
    Set(Type),
    /// It compares so with the operand.
    Compared(Order, Constant),
    /// A map has such a key.
    WithKey(Text),
}

/// How a value compares with an operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Equal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// The value that fields are compared with.
#[derive(Debug)]
pub(super) enum Constant {
    Text(Text),
    Bool(bool),
    Integer(i64),
    /// A name of an enum, and whether it is the one that means unspecified.
    Name(&'static str, bool),
    Time(Timestamp),
    Duration(Duration),
}

impl Filter {
    /// Compiles a filter for the lists of a kind.
    ///
    /// # Errors
    /// The first comparison with a field that the lists do not show, and the first with a comparator or a value that
    /// its field does not take.
    pub fn compile(expression: &Expression, kind: &'static Kind) -> Result<Self> {
        let all = match expression {
            Expression::And(all) => all.as_slice(),
            other => std::slice::from_ref(other),
        };
        let conditions = all.iter().map(|one| Ok(Condition { test: compile(one, kind)?, text: one.to_string() }));
        Ok(Self { conditions: conditions.collect::<Result<_>>()? })
    }
}

fn compile(expression: &Expression, kind: &'static Kind) -> Result<Test> {
    let each = |all: &[Expression]| all.iter().map(|one| compile(one, kind)).collect::<Result<Vec<_>>>();
    Ok(match expression {
        Expression::And(all) => Test::All(each(all)?),
        Expression::Or(all) => Test::Any(each(all)?),
        Expression::Not(inner) => Test::Not(Box::new(compile(inner, kind)?)),
        Expression::Comparison(comparison) => {
            let target = Target::find(comparison, kind)?;
            compare(&comparison.argument, comparison, &target)?
        }
        Expression::Literal(literal) => search(literal, kind)?,
    })
}

/// Returns the search for a text in the texts of a kind.
fn search(literal: &Literal, kind: &'static Kind) -> Result<Test> {
    let is_text = |field: &&Field| match field.ty {
        Type::String | Type::List(Type::String) => {
            field.is_shown() && !field.multiline && field.uid_of.is_none() && field.name != "uid"
        }
        _ => false,
    };
    let fields: Vec<_> = kind.fields.iter().filter(is_text).map(|field| field.name).collect();
    if fields.is_empty() {
        let rule = format!("must compare a field: lists of {} have no texts to search", kind.plural);
        return Err(Invalid::new(literal.at, rule));
    }
    Ok(Test::Search(fields, literal.text.to_lowercase()))
}

/// The field of a comparison.
struct Target {
    path: Vec<Step>,
    /// Its type, or that of its elements.
    ty: Type,
}

impl Target {
    fn find(comparison: &Comparison, kind: &'static Kind) -> Result<Self> {
        let invalid = |rule: String| Err(Invalid::new(comparison.at, rule));
        let mut names = comparison.path.iter();
        let (mut path, mut in_list) = (Vec::new(), false);
        let mut ty = Type::Message(kind.fields);
        let mut shown = String::new();
        for name in names.by_ref() {
            match ty {
                Type::Message(fields) => {
                    let Some(field) = named(fields, name).filter(|field| field.is_shown()) else {
                        let known: Vec<_> = fields.iter().filter(|one| one.is_shown()).map(|one| one.name).collect();
                        let of =
                            if shown.is_empty() { format!("lists of {}", kind.plural) } else { format!("`{shown}`") };
                        return invalid(format!(
                            "must not compare `{name}`: {of} have the fields {}",
                            known.join(", ")
                        ));
                    };
                    path.push(Step::Field(field.name));
                    ty = field.ty;
                    join(&mut shown, field.name);
                }
                Type::Map(element) => {
                    path.push(Step::Key(name.clone()));
                    ty = *element;
                    join(&mut shown, name);
                }
                _ => return invalid(format!("must not have `{name}` after `{shown}`, which has no fields")),
            }
            if let Type::List(element) = ty {
                in_list = true;
                ty = *element;
            }
        }
        if in_list && comparison.comparator != Comparator::Has {
            return invalid(format!("must use `:` with `{shown}`, which is or is in a list, such as `{shown}:value`"));
        }
        Ok(Self { path, ty })
    }
}

fn join(path: &mut String, name: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(name);
}

/// Compiles a comparison of a field with a value, or with several that are combined by operators.
fn compare(argument: &Expression, comparison: &Comparison, target: &Target) -> Result<Test> {
    let each = |all: &[Expression]| all.iter().map(|one| compare(one, comparison, target)).collect::<Result<Vec<_>>>();
    Ok(match argument {
        Expression::And(all) => Test::All(each(all)?),
        Expression::Or(all) => Test::Any(each(all)?),
        Expression::Not(inner) => Test::Not(Box::new(compare(inner, comparison, target)?)),
        Expression::Literal(literal) => compare_one(literal, comparison, target)?,
        Expression::Comparison(inner) => return Err(Invalid::new(inner.at, "must have only values here")),
    })
}

fn compare_one(literal: &Literal, comparison: &Comparison, target: &Target) -> Result<Test> {
    let (symbol, name) = (comparison.comparator.symbol(), comparison.path.join("."));
    let unfit = |rule: &str| Err(Invalid::new(comparison.at, format!("must not use `{symbol}` with `{name}`: {rule}")));
    let mut path: Vec<Step> = target.path.iter().map(Step::copy).collect();
    let order = match comparison.comparator {
        Comparator::Has if literal.text.is_any() => return Ok(Test::Value { path, is: Is::Set(target.ty) }),
        Comparator::Has | Comparator::Equal => Order::Equal,
        Comparator::NotEqual => {
            let equal = Comparison { comparator: Comparator::Equal, ..comparison.clone() };
            return Ok(Test::Not(Box::new(compare_one(literal, &equal, target)?)));
        }
        Comparator::Less => Order::Less,
        Comparator::LessOrEqual => Order::LessOrEqual,
        Comparator::Greater => Order::Greater,
        Comparator::GreaterOrEqual => Order::GreaterOrEqual,
    };
    let is_ordered = order != Order::Equal;
    match target.ty {
        Type::Map(_) if comparison.comparator == Comparator::Has => {
            return Ok(Test::Value { path, is: Is::WithKey(literal.text.clone()) });
        }
        Type::Message(fields) if comparison.comparator == Comparator::Has => {
            let field = literal.text.as_plain().and_then(|name| named(fields, name)).filter(|field| field.is_shown());
            let Some(field) = field else {
                let known: Vec<_> = fields.iter().filter(|one| one.is_shown()).map(|one| one.name).collect();
                return Err(Invalid::new(literal.at, format!("must be `*` or one of {}", known.join(", "))));
            };
            path.push(Step::Field(field.name));
            return Ok(Test::Value { path, is: Is::Set(element_of(field.ty)) });
        }
        Type::Map(_) => return unfit("it is a map, of which a key is compared, such as `map.key = value`"),
        Type::Message(_) => {
            return unfit("it is a message, of which a field is compared, such as `message.field = value`");
        }
        Type::List(_) => return unfit("it is a list of lists"),
        Type::Bytes => return unfit("it has bytes, which only `:*` tests"),
        Type::Bool | Type::Enum(_) if is_ordered => return unfit("its values have no order"),
        _ => {}
    }
    let is = Is::Compared(order, operand(literal, &target.ty, is_ordered)?);
    Ok(Test::Value { path, is })
}

impl Step {
    fn copy(&self) -> Self {
        match self {
            Self::Field(name) => Self::Field(name),
            Self::Key(key) => Self::Key(key.clone()),
        }
    }
}

/// Returns the type of the elements of a list, and otherwise the type itself.
const fn element_of(ty: Type) -> Type {
    match ty {
        Type::List(element) => *element,
        ty => ty,
    }
}

/// Reads the operand of a comparison with a field of this type.
fn operand(literal: &Literal, ty: &Type, is_ordered: bool) -> Result<Constant> {
    let invalid = |rule: String| Err(Invalid::new(literal.at, rule));
    let is_text = matches!(ty, Type::String | Type::FieldMask | Type::Capability);
    let Some(text) = literal.text.as_plain() else {
        return match (is_text, is_ordered) {
            (true, false) => Ok(Constant::Text(literal.text.clone())),
            (true, true) => {
                invalid("must not have a wildcard where texts are ordered; write `\\*` for the character".into())
            }
            (false, _) => invalid("must not have a wildcard, which only texts have".into()),
        };
    };
    match ty {
        Type::Bool => match text {
            "true" => Ok(Constant::Bool(true)),
            "false" => Ok(Constant::Bool(false)),
            _ => invalid("must be `true` or `false`".into()),
        },
        Type::Int32 | Type::Int64 => match text.parse() {
            Ok(number) if !text.starts_with('+') => Ok(Constant::Integer(number)),
            _ => invalid("must be a whole number of 64 bits".into()),
        },
        Type::Enum(names) => {
            let by_number = || text.parse::<usize>().ok().and_then(|number| names.get(number));
            match names.iter().find(|name| **name == text).or_else(by_number) {
                Some(name) => Ok(Constant::Name(name, names.first() == Some(name))),
                None => invalid(format!("must be one of {}", names.join(", "))),
            }
        }
        Type::Timestamp => Timestamp::parse(text).map(Constant::Time).or_else(|rule| invalid(rule.to_string())),
        Type::Duration => Duration::parse(text).map(Constant::Duration).or_else(|rule| invalid(rule.to_string())),
        _ => Ok(Constant::Text(literal.text.clone())),
    }
}
