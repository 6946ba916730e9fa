//! Writes the `.proto` files of kinds from their tables, and compiles them to the descriptors that a platform needs.
//!
//! For kinds of your own: [`update`] writes one file for each protobuf package into a folder, and `descriptors.binpb`.
//! Commit both, and pass the descriptors to [`Builder::descriptors`](platform_engine::platform::Builder::descriptors).
//! Call [`update`] again when a table changes. Numbers are only ever added: fields and enum values keep their numbers
//! in the existing file, and the numbers of removed ones stay reserved.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs, io,
    path::{Path, PathBuf},
};

use heck::{ToSnakeCase, ToUpperCamelCase};
use platform_engine::{
    kind::{Action, Field, Kind, Registered, Type, Verb},
    request::list_fields,
};
use prost_reflect::{
    DescriptorPool, MessageDescriptor,
    prost_types::{DescriptorProto, EnumDescriptorProto},
};
use protox::{
    Compiler,
    file::{ChainFileResolver, File, FileResolver, GoogleFileResolver},
};

/// The name of the file with the descriptors in the folder of [`update`].
pub const DESCRIPTORS: &str = "descriptors.binpb";

/// The `.proto` files of kinds, and their descriptors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Protos {
    /// The text of each file by its path, such as `example/tickets/v1/tickets.proto`.
    pub files: BTreeMap<String, String>,
    /// The descriptors: an encoded `google.protobuf.FileDescriptorSet` with all imports.
    pub descriptors: Vec<u8>,
}

/// The reason why the `.proto` files of kinds cannot be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProtoError {
    /// A field has a type or a name that protobuf cannot express.
    #[error("the field `{field}` of {message}: {rule}")]
    Field {
        /// The name of the message.
        message: String,
        /// The name of the field in camelCase.
        field: &'static str,
        /// The rule, as a phrase.
        rule: &'static str,
    },
    /// A file, written now or before, is not valid protobuf.
    #[error("cannot compile `{0}`: {1}")]
    Compile(String, #[source] Box<protox::Error>),
    /// A file cannot be read or written.
    #[error("cannot access `{path}`: {error}", path = path.display())]
    Io {
        /// The path of the file.
        path: PathBuf,
        /// The reason.
        #[source]
        error: io::Error,
    },
}

/// Writes the `.proto` files of these kinds and [`DESCRIPTORS`] into a folder, and returns the paths of the files that
/// have changed. Keeps the numbers in existing files.
///
/// # Errors
/// [`ProtoError`]. After [`ProtoError::Io`], some of the files may already have been written.
pub fn update(kinds: &[Registered], folder: &Path) -> Result<Vec<PathBuf>, ProtoError> {
    let protos = generate(kinds, |name| read(&folder.join(name)).map(|text| text.map(into_text)))?;
    let files = protos.files.into_iter().map(|(name, text)| (name, text.into_bytes()));
    let mut changed = Vec::new();
    for (name, bytes) in files.chain([(DESCRIPTORS.to_owned(), protos.descriptors)]) {
        let path = folder.join(name);
        if read(&path)?.is_some_and(|old| old == bytes) {
            continue;
        }
        let written = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&path, bytes));
        written.map_err(|error| ProtoError::Io { path: path.clone(), error })?;
        changed.push(path);
    }
    Ok(changed)
}

fn read(path: &Path) -> Result<Option<Vec<u8>>, ProtoError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(ProtoError::Io { path: path.to_owned(), error }),
    }
}

fn into_text(bytes: Vec<u8>) -> String {
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Generates the `.proto` files of these kinds, without writing them. `previous` returns the existing text of the file
/// at a path, if any; its numbers are kept.
///
/// # Errors
/// [`ProtoError::Field`], [`ProtoError::Compile`], and the errors of `previous`.
pub fn generate(
    kinds: &[Registered],
    previous: impl Fn(&str) -> Result<Option<String>, ProtoError>,
) -> Result<Protos, ProtoError> {
    let mut packages: BTreeMap<(&str, String), Vec<&Registered>> = BTreeMap::new();
    for registered in kinds {
        let domain = registered.kind.domain;
        packages.entry((domain.name, domain.versioned_package())).or_default().push(registered);
    }
    let mut files = BTreeMap::new();
    for ((domain, package), kinds) in packages {
        let name = format!("{}/{domain}.proto", package.replace('.', "/"));
        let numbers = match previous(&name)? {
            Some(text) => Numbers::of(&pool(&BTreeMap::from([(name.clone(), text)]))?),
            None => Numbers::default(),
        };
        let mut file = ProtoFile { numbers, text: String::new(), package: package.clone() };
        file.write(&kinds)?;
        files.insert(name, file.text);
    }
    let descriptors = compile(&files)?.encode_file_descriptor_set();
    Ok(Protos { files, descriptors })
}

fn pool(files: &BTreeMap<String, String>) -> Result<DescriptorPool, ProtoError> {
    Ok(compile(files)?.descriptor_pool())
}

fn compile(files: &BTreeMap<String, String>) -> Result<Compiler, ProtoError> {
    let mut resolver = ChainFileResolver::new();
    resolver.add(InMemory(files.clone()));
    resolver.add(GoogleFileResolver::new());
    let mut compiler = Compiler::with_file_resolver(resolver);
    compiler.include_imports(true).include_source_info(true);
    for name in files.keys() {
        compiler.open_file(name).map_err(|error| ProtoError::Compile(name.clone(), Box::new(error)))?;
    }
    Ok(compiler)
}

struct InMemory(BTreeMap<String, String>);

impl FileResolver for InMemory {
    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        let text = self.0.get(name).ok_or_else(|| protox::Error::file_not_found(name))?;
        File::from_source(name, text)
    }
}

/// The numbers of fields and enum values in a file, by the path of their message or enum.
#[derive(Debug, Default)]
struct Numbers(BTreeMap<String, Scope>);

/// The numbers in one message or enum.
#[derive(Debug, Default, Clone)]
struct Scope {
    named: BTreeMap<String, i32>,
    reserved: BTreeSet<i32>,
    reserved_names: BTreeSet<String>,
}

impl Numbers {
    /// Moves the numbers of the message or enum of a field that was renamed, and of those in it.
    fn rename(&mut self, former: &str, path: &str) {
        let is_within = |known: &String| {
            known.strip_prefix(former).is_some_and(|rest| matches!(rest.get(..1), None | Some("." | "")))
        };
        for known in self.0.keys().filter(|known| is_within(known)).cloned().collect::<Vec<_>>() {
            if let (Some(rest), Some(scope)) = (known.strip_prefix(former), self.0.remove(&known)) {
                self.0.entry(format!("{path}{rest}")).or_insert(scope);
            }
        }
    }

    fn of(pool: &DescriptorPool) -> Self {
        let mut numbers = Self::default();
        for message in pool.all_messages().filter(|message| !message.is_map_entry()) {
            numbers.0.insert(message.full_name().to_owned(), Scope::of_message(&message));
        }
        for names in pool.all_enums() {
            numbers.0.insert(names.full_name().to_owned(), Scope::of_enum(names.enum_descriptor_proto()));
        }
        numbers
    }
}

impl Scope {
    fn of_message(message: &MessageDescriptor) -> Self {
        let DescriptorProto { field, reserved_range, reserved_name, .. } = message.descriptor_proto();
        Self {
            named: field.iter().map(|field| (field.name().to_owned(), field.number())).collect(),
            // The end of a range is exclusive.
            reserved: reserved_range.iter().flat_map(|range| range.start()..range.end()).collect(),
            reserved_names: reserved_name.iter().cloned().collect(),
        }
    }

    fn of_enum(names: &EnumDescriptorProto) -> Self {
        Self {
            named: names.value.iter().map(|value| (value.name().to_owned(), value.number())).collect(),
            // The end of a range is inclusive, unlike that of a message.
            reserved: names.reserved_range.iter().flat_map(|range| range.start()..=range.end()).collect(),
            reserved_names: names.reserved_name.iter().cloned().collect(),
        }
    }

    /// Gives a field that was renamed the number that it had, and reserves its former name.
    fn rename(&mut self, former: &str, name: &str) {
        if let (false, Some(number)) = (self.named.contains_key(name), self.named.get(former).copied()) {
            self.named.remove(former);
            self.named.insert(name.to_owned(), number);
            self.reserved_names.insert(former.to_owned());
        }
    }

    /// Returns the number of each name: its existing number, or else the next number that was never used, from `first`
    /// on. Reserves the numbers of removed names.
    fn assign<'n>(&mut self, names: impl Iterator<Item = &'n str> + Clone, first: i32) -> Vec<i32> {
        let wanted: BTreeSet<_> = names.clone().collect();
        let (kept, gone): (BTreeMap<_, _>, BTreeMap<_, _>) =
            std::mem::take(&mut self.named).into_iter().partition(|(name, _)| wanted.contains(name.as_str()));
        self.reserved.extend(gone.values());
        self.reserved_names.extend(gone.into_keys());
        self.reserved_names.retain(|name| !wanted.contains(name.as_str()));
        let used = kept.values().chain(&self.reserved).max().map_or(first, |last| last + 1);
        let mut next = used.max(first);
        let numbers = names.map(|name| {
            kept.get(name).copied().unwrap_or_else(|| {
                next += 1;
                next - 1
            })
        });
        numbers.collect()
    }

    fn write_reserved(&self, text: &mut String, indent: &str) {
        if !self.reserved.is_empty() {
            let numbers: Vec<_> = self.reserved.iter().map(i32::to_string).collect();
            let _ = writeln!(text, "{indent}reserved {};", numbers.join(", "));
        }
        if !self.reserved_names.is_empty() {
            let names: Vec<_> = self.reserved_names.iter().map(|name| format!("\"{name}\"")).collect();
            let _ = writeln!(text, "{indent}reserved {};", names.join(", "));
        }
    }
}

/// A file under construction.
struct ProtoFile {
    package: String,
    numbers: Numbers,
    text: String,
}

/// A field of a message: its name in snake_case, its type, and its comment.
struct Line {
    name: String,
    ty: String,
    about: &'static str,
    /// The names that the field had before.
    former: Vec<String>,
}

impl Line {
    fn new(name: impl Into<String>, ty: impl Into<String>, about: &'static str) -> Self {
        Self { name: name.into(), ty: ty.into(), about, former: Vec::new() }
    }
}

impl ProtoFile {
    fn line(&mut self, depth: usize, text: impl AsRef<str>) {
        match text.as_ref() {
            "" => self.text.push('\n'),
            text => {
                let _ = writeln!(self.text, "{:1$}{text}", "", depth * 2);
            }
        }
    }

    fn comment(&mut self, depth: usize, about: &str) {
        about.lines().for_each(|line| self.line(depth, format!("// {line}")));
    }

    fn write(&mut self, kinds: &[&Registered]) -> Result<(), ProtoError> {
        self.line(0, "// Written from the tables of the kinds. Numbers are only ever added.");
        self.line(0, "syntax = \"proto3\";");
        self.line(0, "");
        self.line(0, format!("package {};", self.package));
        self.line(0, "");
        for import in ["duration", "empty", "field_mask", "timestamp"] {
            self.line(0, format!("import \"google/protobuf/{import}.proto\";"));
        }
        let services: BTreeSet<_> = kinds.iter().map(|registered| registered.kind.service).collect();
        for service in services {
            self.line(0, "");
            self.line(0, format!("service {service} {{"));
            for registered in kinds.iter().filter(|registered| registered.kind.service == service) {
                self.methods(registered);
            }
            self.line(0, "}");
        }
        for registered in kinds {
            self.messages(registered)?;
        }
        Ok(())
    }

    fn methods(&mut self, registered: &Registered) {
        let kind = registered.kind;
        for method in kind.served() {
            let rpc = kind.rpc(method.verb);
            let reply = match method.verb {
                Verb::List => format!("{rpc}Response"),
                Verb::Get | Verb::Create | Verb::Update => kind.name.to_owned(),
                Verb::Delete => "google.protobuf.Empty".to_owned(),
            };
            self.line(1, format!("rpc {rpc}({rpc}Request) returns ({reply});"));
        }
        for action in registered.actions {
            let reply =
                if returns_resource(kind, action) { kind.name.to_owned() } else { format!("{}Response", action.name) };
            self.line(1, format!("rpc {0}({0}Request) returns ({reply});", action.name));
        }
    }

    fn messages(&mut self, registered: &Registered) -> Result<(), ProtoError> {
        let kind = registered.kind;
        let resource = kind.name.to_snake_case();
        self.fields(0, "", kind.name, &fields_of(kind))?;
        for method in kind.served() {
            let request = format!("{}Request", kind.rpc(method.verb));
            let uid = || Line::new("uid", "string", "The uid of the resource.");
            match method.verb {
                Verb::Get | Verb::Delete => self.message(&request, vec![uid()]),
                Verb::Create => {
                    let parent = Line::new("parent", "string", "The uid of the parent; empty at the top.");
                    self.message(&request, vec![parent, Line::new(&resource, kind.name, "The new resource.")]);
                }
                Verb::Update => {
                    let about = "The fields to set; by default those that the resource has.";
                    let mask = Line::new("update_mask", "google.protobuf.FieldMask", about);
                    self.message(&request, vec![Line::new(&resource, kind.name, "The resource."), mask]);
                }
                Verb::List => {
                    self.fields(
                        0,
                        "",
                        &request,
                        &list_fields(kind).filter(|field| !field.rest_only).collect::<Vec<_>>(),
                    )?;
                    let page = vec![
                        Line::new(
                            kind.plural.to_snake_case(),
                            format!("repeated {}", kind.name),
                            "The resources, in order.",
                        ),
                        Line::new("next_page_token", "string", "The token of the next page; empty on the last page."),
                        Line::new("total_count", "optional int64", "The number of resources on all pages."),
                        Line::new("skipped", "int32", "The `skip` of the request."),
                    ];
                    self.message(&format!("{}Response", kind.rpc(method.verb)), page);
                }
            }
        }
        for action in registered.actions {
            for (suffix, fields) in [("Request", action.request), ("Response", action.response)] {
                if suffix == "Response" && returns_resource(kind, action) {
                    continue;
                }
                self.fields(0, "", &format!("{}{suffix}", action.name), &fields.iter().collect::<Vec<_>>())?;
            }
        }
        Ok(())
    }

    /// Writes a message without nested types.
    fn message(&mut self, name: &str, lines: Vec<Line>) {
        self.line(0, "");
        self.line(0, format!("message {name} {{"));
        let path = format!("{}.{name}", self.package);
        self.lines(1, &path, &lines);
        self.line(0, "}");
    }

    /// Writes the message of a field table, with the messages and enums of its fields nested in it.
    fn fields(&mut self, depth: usize, scope: &str, name: &str, fields: &[&'static Field]) -> Result<(), ProtoError> {
        let path = if scope.is_empty() { format!("{}.{name}", self.package) } else { format!("{scope}.{name}") };
        self.line(0, "");
        self.line(depth, format!("message {name} {{"));
        let mut lines = Vec::new();
        for field in fields {
            let bad = |rule| ProtoError::Field { message: name.to_owned(), field: field.name, rule };
            let nested = field.name.to_upper_camel_case();
            let mut element = &field.ty;
            let ty = match field.ty {
                Type::List(inner) => {
                    element = inner;
                    format!("repeated {}", scalar(inner, &nested).ok_or_else(|| bad("cannot be a list of lists"))?)
                }
                Type::Map(inner) => {
                    element = inner;
                    let inner = scalar(inner, &nested).ok_or_else(|| bad("cannot be a map of lists or maps"))?;
                    format!("map<string, {inner}>")
                }
                ref ty => scalar(ty, &nested).unwrap_or_default(),
            };
            for former in field.former_names() {
                let former = format!("{path}.{}", former.to_upper_camel_case());
                self.numbers.rename(&former, &format!("{path}.{nested}"));
            }
            match element {
                Type::Message(inner) => self.fields(depth + 1, &path, &nested, &inner.iter().collect::<Vec<_>>())?,
                Type::Enum(names) => self.names(depth + 1, &path, &nested, names),
                _ => {}
            }
            let former = field.former_names().map(|name| name.to_snake_case()).collect();
            lines.push(Line { former, ..Line::new(field.name.to_snake_case(), ty, field.about) });
        }
        self.lines(depth + 1, &path, &lines);
        self.line(depth, "}");
        Ok(())
    }

    fn names(&mut self, depth: usize, scope: &str, name: &str, names: &[&'static str]) {
        let mut numbers = self.numbers.0.get(&format!("{scope}.{name}")).cloned().unwrap_or_default();
        let assigned = numbers.assign(names.iter().copied(), 0);
        self.line(depth, format!("enum {name} {{"));
        numbers.write_reserved(&mut self.text, &" ".repeat(depth * 2 + 2));
        names.iter().zip(assigned).for_each(|(name, number)| self.line(depth + 1, format!("{name} = {number};")));
        self.line(depth, "}");
    }

    fn lines(&mut self, depth: usize, path: &str, lines: &[Line]) {
        let mut numbers = self.numbers.0.get(path).cloned().unwrap_or_default();
        for line in lines {
            line.former.iter().for_each(|former| numbers.rename(former, &line.name));
        }
        let assigned = numbers.assign(lines.iter().map(|line| line.name.as_str()), 1);
        numbers.write_reserved(&mut self.text, &" ".repeat(depth * 2));
        for (Line { name, ty, about, .. }, number) in lines.iter().zip(assigned) {
            self.comment(depth, about);
            self.line(depth, format!("{ty} {name} = {number};"));
        }
    }
}

/// Returns whether an action responds with the resource, whose message then serves for the response.
fn returns_resource(kind: &Kind, action: &Action) -> bool {
    action.response.len() == kind.fields.len()
        && action.response.iter().zip(kind.fields).all(|(one, other)| one.name == other.name)
}

/// Returns the fields of a resource that protobuf has.
fn fields_of(kind: &'static Kind) -> Vec<&'static Field> {
    kind.fields.iter().filter(|field| !field.rest_only).collect()
}

/// Returns the protobuf type of a type that is not a list or map; `nested` is the name of the message or enum that the
/// field defines.
fn scalar(ty: &Type, nested: &str) -> Option<String> {
    let name = match ty {
        // Own messages do not import the enum of the contract, and write capabilities by their identifiers.
        Type::String | Type::Capability => "string",
        Type::Bool => "bool",
        Type::Int32 => "int32",
        Type::Int64 => "int64",
        Type::Bytes => "bytes",
        Type::Timestamp => "google.protobuf.Timestamp",
        Type::Duration => "google.protobuf.Duration",
        Type::FieldMask => "google.protobuf.FieldMask",
        Type::Enum(_) | Type::Message(_) => nested,
        Type::List(_) | Type::Map(_) => return None,
    };
    Some(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(named: &[(&str, i32)]) -> Scope {
        Scope { named: named.iter().map(|(name, number)| ((*name).to_owned(), *number)).collect(), ..Scope::default() }
    }

    #[test]
    fn numbers_are_kept_added_and_never_given_twice() {
        let mut fields = scope(&[("uid", 1), ("title", 2), ("state", 5)]);
        assert_eq!(fields.assign(["state", "uid", "owner"].into_iter(), 1), [5, 1, 6]);
        assert_eq!((fields.reserved.clone(), fields.reserved_names.len()), (BTreeSet::from([2]), 1));
        // A name that comes back gets a new number, because the old one may be in use with another meaning.
        let mut fields = Scope { named: BTreeMap::from([("uid".to_owned(), 1)]), ..fields };
        assert_eq!(fields.assign(["uid", "title"].into_iter(), 1), [1, 3]);
        assert_eq!(fields.reserved_names.len(), 0);
        assert_eq!(Scope::default().assign(["STATE_UNSPECIFIED", "STATE_OPEN"].into_iter(), 0), [0, 1]);
    }
}
