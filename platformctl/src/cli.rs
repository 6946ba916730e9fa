//! The command line, declared from the tables of the kinds.

use std::time::Duration;

use clap::{
    Arg, ArgAction, ArgGroup, Command,
    builder::PossibleValuesParser,
    error::{ContextKind, ContextValue},
    value_parser,
};
use clap_complete::Shell;
use heck::{ToKebabCase, ToSnakeCase};
use platform_engine::kind::{Kind, Parent, Registered, Verb};

use crate::{
    api,
    kinds::{Kinds, actions, aliases, command_name, needs_parent, noun},
};

pub(crate) mod options;

/// The program's name, as its own documentation and configuration know it.
pub(crate) const NAME: &str = "platformctl";

const ABOUT: &str = "Reads and changes the resources of a server of Platform API v2";

const LONG_ABOUT: &str = "\
Reads and changes the resources of a server of Platform API v2.

A resource is named by its uid, or by a path of names from the organization down, such as acme/team/nginx. One name \
alone is looked up everywhere; if several resources have it, they are listed and nothing is done.

The server and the token are those of `login`, or of --api and --token. A value of the form @FILE is read from a file, \
and @- from standard input.

Exit codes: 0 done (can-i: yes), 1 rejected or failed (can-i: no), 2 invalid command line or file, 3 not found, 4 not \
allowed, 5 timed out, 6 server unavailable, 7 changed by somebody else meanwhile.";

/// Returns the whole command line.
pub(crate) fn command(kinds: &Kinds) -> Command {
    Command::new(NAME)
        .version(env!("CARGO_PKG_VERSION"))
        .about(ABOUT)
        .long_about(LONG_ABOUT)
        .max_term_width(100)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .args(globals())
        .subcommand(get(kinds))
        .subcommand(create(kinds))
        .subcommand(update(kinds))
        .subcommand(apply())
        .subcommand(edit(kinds))
        .subcommand(delete(kinds))
        .subcommand(run(kinds))
        .subcommand(wait(kinds))
        .subcommand(find())
        .subcommand(can_i())
        .subcommand(explain(kinds))
        .subcommands(session())
        .subcommand(
            Command::new("completion")
                .about("Print the completion script of a shell")
                .arg(Arg::new("shell").required(true).value_parser(shells()).help("The shell")),
        )
        .subcommand(Command::new("man").about("Print the man page, or write one page for each command").arg(
            Arg::new("to").long("to").value_name("DIRECTORY").help("Write a page for each command to this directory"),
        ))
}

/// Removes the aliases from the subcommands that an error lists, in which clap has each kind in all of its spellings.
pub(crate) fn drop_aliases(error: &mut clap::Error, command: &Command) {
    fn has(command: &Command, name: &str) -> bool {
        command.get_subcommands().any(|inner| inner.get_name() == name || has(inner, name))
    }
    if let Some(ContextValue::Strings(names)) = error.get(ContextKind::ValidSubcommand) {
        let names = names.iter().filter(|name| has(command, name)).cloned().collect();
        error.insert(ContextKind::ValidSubcommand, ContextValue::Strings(names));
    }
}

fn shells() -> PossibleValuesParser {
    PossibleValuesParser::new([Shell::Bash, Shell::Zsh, Shell::Fish, Shell::PowerShell].map(|shell| shell.to_string()))
}

fn globals() -> [Arg; 6] {
    let arg = |name: &'static str| Arg::new(name).long(name).global(true).help_heading("Server");
    [
        arg("api").env("PLATFORM_API").value_name("URL").help("The server [default: that of the context]"),
        arg("token")
            .env("PLATFORM_TOKEN")
            .hide_env_values(true)
            .value_name("TOKEN")
            .help("The access token [default: that of the context]"),
        arg("context").env("PLATFORMCTL_CONTEXT").value_name("NAME").help("The context [default: the current one]"),
        arg("config")
            .env("PLATFORMCTL_CONFIG")
            .value_name("FILE")
            .help("The file of the contexts [default: platformctl/config.toml in $XDG_CONFIG_HOME or ~/.config]"),
        arg("ca-file")
            .env("PLATFORMCTL_CA_FILE")
            .value_name("FILE")
            .help("Verify the server's certificate by these PEM certificates only"),
        arg("retry-for")
            .value_name("TIME")
            .value_parser(|text: &str| humantime::parse_duration(text))
            .help(format!("Repeat unanswered requests for this time [default: {}s]", api::REPEAT_FOR.as_secs())),
    ]
}

/// Returns a subcommand of a kind.
fn of_kind(kind: &Kind, about: String) -> Command {
    Command::new(command_name(kind)).aliases(aliases(kind)).about(about)
}

/// Returns a command that has a subcommand for each kind with one of these methods.
fn per_kind(
    name: &'static str,
    about: &'static str,
    kinds: &Kinds,
    verbs: &[Verb],
    make: impl Fn(&Registered) -> Command,
) -> Command {
    Command::new(name)
        .about(about)
        .subcommand_required(true)
        .subcommand_value_name("KIND")
        .subcommand_help_heading("Kinds")
        .subcommands(kinds.with(verbs).map(make))
}

fn output() -> Arg {
    Arg::new("output")
        .short('o')
        .long("output")
        .value_name("FORMAT")
        .value_parser(|text: &str| crate::output::Format::parse(text))
        .default_value("table")
        .help("table, json (as the server answers), yaml (documents for `apply`), name, or jsonpath=EXPRESSION")
        .long_help(
            "table; json, as the server answers; yaml, documents for `apply`; name, one uid per line; or \
             jsonpath=EXPRESSION (RFC 9535), evaluated on each resource, such as jsonpath='$.name'",
        )
}

fn under(help: &'static str) -> Arg {
    Arg::new("under").long("under").value_name("UID|NAMES").help(help)
}

fn uids(help: &'static str) -> Arg {
    Arg::new("uid").value_name("UID|NAMES").num_args(0..).action(ArgAction::Append).help(help)
}

fn files(help: &'static str) -> Arg {
    Arg::new("file").short('f').long("file").value_name("FILE").action(ArgAction::Append).help(help)
}

fn get(kinds: &Kinds) -> Command {
    per_kind("get", "List resources, or get some of them", kinds, &[Verb::List, Verb::Get], |registered| {
        let kind = registered.kind;
        let mut command = of_kind(kind, format!("List {}, or get some of them", plural(kind))).arg(output());
        if kind.serves(Verb::Get) {
            command = command
                .arg(uids("The resources to get, or parts of names with `*` to list [default: list all]"))
                .arg(
                    Arg::new("etag")
                        .long("etag")
                        .action(ArgAction::SetTrue)
                        .requires("uid")
                        .help("Print the tags of these resources, for --if-match"),
                );
        }
        let Some(list) = kind.method(Verb::List).filter(|list| list.served) else { return command };
        if !matches!(kind.parent, Parent::None) {
            command = command.arg(under("Only resources at or below this one"));
        }
        let names = kind.fields.iter().flat_map(|field| field.sort).map(|name| name.to_snake_case());
        let mut orders: Vec<String> = names.flat_map(|name| [format!("{name} desc"), name]).collect();
        orders.sort();
        orders.dedup();
        command = command
            .arg(
                Arg::new("order-by")
                    .long("order-by")
                    .value_name("ORDER")
                    .value_parser(PossibleValuesParser::new(orders))
                    .hide_possible_values(true)
                    .help(format!("Order by a field, followed by ` desc` for the reverse [default: {}]", list.order)),
            )
            .arg(
                Arg::new("filter")
                    .long("filter")
                    .value_name("FILTER")
                    .help("Only resources that pass a filter (AIP-160), such as 'name:*ngi* AND createTime > 2026-01-31T00:00:00Z'")
                    .help_heading("Filters"),
            )
            .arg(Arg::new("all").long("all").action(ArgAction::SetTrue).help("Read all pages").conflicts_with("limit"))
            .arg(
                Arg::new("limit")
                    .long("limit")
                    .value_name("NUMBER")
                    .value_parser(value_parser!(u64).range(1..))
                    .help("Read at most this many resources [default: 50]"),
            )
            .arg(
                Arg::new("skip")
                    .long("skip")
                    .value_name("NUMBER")
                    .value_parser(value_parser!(u32))
                    .help("Skip this many resources first"),
            )
            .arg(
                Arg::new("watch")
                    .short('w')
                    .long("watch")
                    .action(ArgAction::SetTrue)
                    .help("Print the resources, and then each change as it comes")
                    .conflicts_with_all(["order-by", "all", "limit", "skip"]),
            );
        let taken = ["output", "under", "order-by", "filter", "all", "limit", "skip", "watch"];
        let parameters = options::of_list(list);
        command.args(parameters.iter().map(|leaf| {
            let is_variable = api::is_in_path(kind, list, leaf.field.name);
            options::arg(leaf, &taken).required(is_variable || leaf.field.required).help_heading("Filters")
        }))
    })
    .visible_alias("list")
}

fn create(kinds: &Kinds) -> Command {
    per_kind("create", "Create a resource", kinds, &[Verb::Create], |registered| {
        let kind = registered.kind;
        let mut command = of_kind(kind, format!("Create {}", with_article(kind))).arg(output());
        if needs_parent(kind) != Some(false) {
            command = command.arg(under("The parent of the new resource").required(needs_parent(kind) == Some(true)));
        }
        command = command.arg(
            Arg::new("json").long("json").value_name("JSON").help("The fields as a JSON object; options override them"),
        );
        let fields = options::of_create(kind.fields);
        command.args(fields.iter().map(|leaf| options::arg(leaf, &TAKEN).help_heading("Fields")))
    })
}

/// The options of commands that set fields.
const TAKEN: [&str; 4] = ["output", "under", "json", "if-match"];

fn if_match() -> Arg {
    Arg::new("if-match")
        .long("if-match")
        .value_name("ETAG")
        .help("Only if the resource still has this tag, which `get --etag` prints")
}

fn update(kinds: &Kinds) -> Command {
    per_kind("update", "Set fields of a resource", kinds, &[Verb::Update], |registered| {
        let kind = registered.kind;
        let command = of_kind(kind, format!("Set fields of {}", with_article(kind)))
            .arg(output())
            .arg(uids("The resource").num_args(1).action(ArgAction::Set).required(true))
            .arg(if_match())
            .arg(
                Arg::new("json")
                    .long("json")
                    .value_name("JSON")
                    .help("The fields as a JSON object; options override them"),
            );
        let fields = options::of_update(kind.fields);
        command.args(fields.iter().map(|leaf| options::arg(leaf, &TAKEN).help_heading("Fields")))
    })
    .after_help("Sets only the fields that are given. An empty value clears a field.")
}

fn apply() -> Command {
    Command::new("apply")
        .about("Create and update resources until they are as files describe them")
        .long_about(
            "Create and update resources until they are as files describe them.\n\n\
             A document has `kind`, optionally `uid`, `parent` and `fields`. It describes the resource with this uid, or \
             the one of this kind, parent and name; without a name in the kind, the one whose required and immutable \
             fields have these values. Parents and references may be paths of names, also of resources that an earlier \
             document creates. Fields that a document does not mention are left alone.\n\n\
             The differences are printed first. An update sends only the fields that differ.",
        )
        .arg(files("A YAML or JSON file with documents, or a directory of them; - is standard input").required(true))
        .arg(
            Arg::new("dry-run")
                .long("dry-run")
                .value_name("WHERE")
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value("client")
                .value_parser(["client", "server"])
                .help("Only print the differences; with `server`, the server checks each change, too"),
        )
        .arg(
            Arg::new("set")
                .long("set")
                .value_name("NAME")
                .help("Record what is created under this name, for --prune"),
        )
        .arg(
            Arg::new("prune")
                .long("prune")
                .action(ArgAction::SetTrue)
                .requires("set")
                .help("Delete what an earlier apply of the set created and no document describes any more"),
        )
        .arg(yes())
        .arg(
            Arg::new("inventory")
                .long("inventory")
                .env("PLATFORMCTL_INVENTORY")
                .value_name("DIRECTORY")
                .help("Where sets are recorded [default: platformctl in $XDG_STATE_HOME or ~/.local/state]"),
        )
}

fn yes() -> Arg {
    Arg::new("yes").short('y').long("yes").action(ArgAction::SetTrue).help("Delete without asking")
}

fn edit(kinds: &Kinds) -> Command {
    per_kind("edit", "Change a resource in $VISUAL or $EDITOR", kinds, &[Verb::Update], |registered| {
        of_kind(registered.kind, format!("Change {} in an editor", with_article(registered.kind)))
            .arg(uids("The resource").num_args(1).action(ArgAction::Set).required(true))
            .arg(output())
    })
    .after_help("Sends only the fields that were changed. A field that was removed is cleared. If somebody else has changed one of \
                 them meanwhile, nothing is changed, and both values are shown.")
}

fn delete(kinds: &Kinds) -> Command {
    per_kind("delete", "Delete resources", kinds, &[Verb::Delete], |registered| {
        of_kind(registered.kind, format!("Delete {}", plural(registered.kind)))
            .arg(uids("The resources").num_args(1..).required(true))
            .arg(
                Arg::new("ignore-missing")
                    .long("ignore-missing")
                    .action(ArgAction::SetTrue)
                    .help("Succeed if a resource does not exist"),
            )
            .arg(if_match())
    })
}

fn run(kinds: &Kinds) -> Command {
    let with_actions = kinds.iter().filter(|registered| actions(registered).next().is_some());
    Command::new("run")
        .about("Run another method of a kind, such as the redelivery of a dead letter")
        .subcommand_required(true)
        .subcommand_value_name("KIND")
        .subcommand_help_heading("Kinds")
        .subcommands(with_actions.map(|registered| {
            let kind = registered.kind;
            of_kind(kind, format!("Run another method of {}", plural(kind)))
                .subcommand_required(true)
                .subcommand_value_name("METHOD")
                .subcommand_help_heading("Methods")
                .subcommands(actions(registered).map(|action| {
                    let fields = options::of_request(action.request);
                    let is_variable = |name: &str| api::variables(action.path).any(|variable| variable == name);
                    Command::new(action.name.to_kebab_case())
                        .about(format!("{} {}", action.http.name(), action.path))
                        .args(fields.iter().map(|leaf| {
                            // Of a message that is required, not every field is.
                            let is_required = leaf.field.required && leaf.path() == leaf.field.name;
                            options::arg(leaf, &TAKEN).required(is_required || is_variable(&leaf.path()))
                        }))
                        .arg(
                            Arg::new("output")
                                .short('o')
                                .long("output")
                                .value_name("FORMAT")
                                .value_parser(["json", "yaml"])
                                .default_value("json")
                                .help("The format of the reply"),
                        )
                }))
        }))
}

fn wait(kinds: &Kinds) -> Command {
    let time = |text: &str| humantime::parse_duration(text);
    per_kind("wait", "Wait until a resource fulfills a condition", kinds, &[Verb::Get], |registered| {
        of_kind(registered.kind, format!("Wait for {}", with_article(registered.kind)))
            .arg(uids("The resource").num_args(1).action(ArgAction::Set).required(true))
            .arg(
                Arg::new("for")
                    .long("for")
                    .value_name("CONDITION")
                    .default_value("exists")
                    .help("exists, deleted, or FIELD=VALUE with a dotted path"),
            )
            .arg(
                Arg::new("timeout")
                    .long("timeout")
                    .value_name("TIME")
                    .value_parser(time)
                    .default_value("60s")
                    .help("Give up after this time"),
            )
            .arg(
                Arg::new("interval")
                    .long("interval")
                    .value_name("TIME")
                    .value_parser(move |text: &str| match time(text) {
                        Ok(time) if time < Duration::from_millis(10) => Err("must be at least 10ms".to_owned()),
                        time => time.map_err(|error| error.to_string()),
                    })
                    .default_value("1s")
                    .help("Look this often"),
            )
    })
}

fn find() -> Command {
    Command::new("find")
        .about("Find resources of all kinds by a part of a name, email address or identifier, or by a uid")
        .long_about(
            "Find resources of all kinds that you may list, by a part of a name, of the email address of a person or of \
             the identifier of a vulnerability, or by a uid: prints the kind, the path of names and the uid of each, at \
             most 20 of a kind.\n\n\
             A part of at least three bytes is found in all names that the server has an index of, and a part of an \
             address or identifier among 10000 resources. Of other kinds with more than 1000 resources, and for a \
             shorter part, the first 1000 by name are searched, and all for exactly this name; a line on standard error \
             says so.",
        )
        .arg(Arg::new("text").required(true).value_name("TEXT").help("A part of a text regardless of case, or a uid"))
}

fn can_i() -> Command {
    Command::new("can-i")
        .about("Tell whether the token's identity may call a method")
        .long_about(
            "Tell whether the token's identity may call a method: prints yes or no, and exits with 0 or 1.\n\n\
             The answer is about the capabilities of the method, which the token now has at the group of --under or \
             above it; without --under, at any group. The server may reject a request for other reasons.\n\n\
             With --identity, the answer is about the role bindings of another identity; it is unknown if you may not list \
             all that count there.\n\n\
             With --why, prints the role bindings that give these capabilities there, as far as you may list them; they \
             count only within the limits of the token. If none does, prints the role bindings that the identity has and \
             why they do not suffice, and the roles that have the capability. --identity and --why are for this server \
             only.",
        )
        .arg(
            Arg::new("method")
                .required(true)
                .value_name("METHOD|CAPABILITY")
                .help("list, get, create, update, delete, the name of another method, or a capability like repo.list"),
        )
        .arg(Arg::new("kind").value_name("KIND").help("The kind of the method"))
        .arg(under("The resource, or the parent of what a create makes"))
        .arg(
            Arg::new("identity")
                .long("identity")
                .value_name("UID|NAMES")
                .requires("under")
                .help("Answer for this identity instead of the token's"),
        )
        .arg(
            Arg::new("why")
                .long("why")
                .action(ArgAction::SetTrue)
                .requires("under")
                .help("Print the role bindings behind the answer"),
        )
}

fn explain(kinds: &Kinds) -> Command {
    let names = kinds.iter().map(|registered| command_name(registered.kind));
    Command::new("explain")
        .about("Describe a kind: its fields, methods, filters and orders")
        .arg(
            Arg::new("kind")
                .required(true)
                .value_name("KIND[.FIELD]")
                .help("The kind, such as repos, or a field of it, such as repos.syncConfig"),
        )
        .after_help(format!("Kinds: {}", names.collect::<Vec<_>>().join(", ")))
}

/// Returns the commands about contexts.
fn session() -> [Command; 3] {
    let name = |help: &'static str| Arg::new("name").value_name("NAME").help(help);
    [
        Command::new("login")
            .about("Store a server and a token as a context, and make it the current one")
            .long_about(
                "Store a server and a token as a context, and make it the current one.\n\n\
                 The server is that of --api, and the token that of --token, or the first line of standard input. With \
                 --browser, a page of the server opens, where you sign in with an identity provider. The server checks the token before it is stored. The file of the contexts is readable by its owner only.",
            )
            .arg(
                Arg::new("exchange")
                    .long("exchange")
                    .action(ArgAction::SetTrue)
                    .help("The token is of another issuer: exchange it for one of the server"),
            )
            .arg(
                Arg::new("identity")
                    .long("identity")
                    .value_name("UID")
                    .requires("issuer")
                    .help("With --exchange or --browser: the identity to act as [default: the registered person]"),
            )
            .arg(
                Arg::new("browser")
                    .long("browser")
                    .action(ArgAction::SetTrue)
                    .conflicts_with("exchange")
                    .help("Sign in with an identity provider in a browser on this machine"),
            )
            .arg(
                Arg::new("provider")
                    .long("provider")
                    .value_name("UID|NAME")
                    .requires("browser")
                    .help("An identity provider, or an organization that has one [default: that of the operator]"),
            )
            .group(ArgGroup::new("issuer").args(["exchange", "browser"])),
        Command::new("logout").about("Remove a context and its token from this machine").long_about(
            "Remove a context and its token from this machine. The token itself stays valid until it expires.",
        ),
        Command::new("contexts").about("List the contexts, or select the current one").arg(name("The context to use")),
    ]
}

/// Returns the kind's name in the plural, for help.
fn plural(kind: &Kind) -> String {
    kind.plural.to_kebab_case().replace('-', " ")
}

/// Returns the kind's name with an article, for help.
fn with_article(kind: &Kind) -> String {
    let noun = noun(kind);
    let article = if noun.starts_with(['a', 'e', 'i', 'o']) { "an" } else { "a" };
    format!("{article} {noun}")
}

#[cfg(test)]
mod tests {
    use platform_core::resources::KINDS;

    use super::*;

    #[test]
    fn the_options_of_every_command_differ() {
        command(&Kinds::new(KINDS)).debug_assert();
    }
}
