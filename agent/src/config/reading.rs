//! From text to [`Settings`], with every unknown key and every wrong type found, not only the
//! first.
//!
//! Serde stops at its first error. So the parsed tree is compared with the settings' schema first;
//! what does not fit is reported with its place and taken out, and serde reads the rest.

use std::sync::LazyLock;

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::Lines;
use super::problem::{ConfigError, ERRORS_MAX, Problem, Report, Step, nearest, quoted, slip_of};
use super::settings::Settings;
use super::shape::{Shape, choices, schema};
use super::source::Source;

/// What the settings look like: made once, because it is larger than most files.
static SCHEMA: LazyLock<serde_json::Value> = LazyLock::new(schema);

/// The parsed text under its name.
///
/// # Errors
///
/// What is not TOML, each with its place.
pub(super) fn parse<'s>(name: &str, text: &'s str) -> Result<Source<'s>, ConfigError> {
    let (tree, errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() {
        return Ok(Source::new(name.to_owned(), text, tree.into_inner()));
    }
    let lines = Lines::new(text.as_bytes());
    let mut errors: Vec<Problem> = errors
        .iter()
        .take(ERRORS_MAX)
        .map(|error| {
            let offset = error.span().map_or(text.len(), |span| span.start);
            let (line, column) = lines.position(text.as_bytes(), offset);
            let (problem, mend) = syntax(error, text);
            let (file, path) = (name.to_owned(), String::new());
            Problem { file, line, column, path, problem, mend }
        })
        .collect();
    errors.sort();
    errors.dedup();
    Err(ConfigError { errors, warnings: Vec::new() })
}

/// The settings that the source holds; what does not fit them is reported and left at its default.
pub(super) fn read(source: &Source<'_>, report: &mut Report<'_>) -> Settings {
    let mut tree = Spanned::new(0..0, DeValue::Table(source.tree.clone()));
    prune(&mut tree, &SCHEMA, &mut Vec::new(), report);
    let DeValue::Table(table) = tree.into_inner() else {
        return Settings::default();
    };
    let deserializer = toml::Deserializer::from(Spanned::new(0..0, table));
    Settings::deserialize(deserializer).unwrap_or_else(|error| {
        // The schema lets through what only serde sees, such as a number past 64 bits.
        let offset = error.span().map_or(0, |span| span.start);
        let message = quoted(error.message());
        report.error_at_offset(offset, &[], format!("cannot be read: {message}"), "correct it");
        Settings::default()
    })
}

/// What is wrong with the syntax, and how to mend it.
fn syntax(error: &toml::de::Error, text: &str) -> (String, String) {
    if error.message().starts_with("duplicate key") {
        let key = error.span().and_then(|span| text.get(span)).unwrap_or_default();
        let problem = format!("{} is defined twice", quoted(key.trim_matches('"')));
        return (problem, "remove or rename one of the two".to_owned());
    }
    let problem = error.message().replace(char::is_control, " ");
    (format!("not TOML: {problem}"), "correct the syntax (see toml.io)".to_owned())
}

/// Takes out of `value` what does not fit `schema`, reporting each; whether the rest fits.
fn prune<'s>(
    value: &mut Spanned<DeValue<'s>>,
    schema: &serde_json::Value,
    place: &mut Vec<Step<'_>>,
    report: &mut Report<'_>,
) -> bool {
    let offset = value.span().start;
    let shape = Shape::of(schema);
    match (shape, value.get_mut()) {
        (Shape::TextOrTable(table), DeValue::Table(_)) => {
            prune(value, table, place, report);
            true
        }
        (Shape::Table(properties), DeValue::Table(table)) => {
            prune_keys(table, properties, place, report);
            true
        }
        (Shape::Names(named), DeValue::Table(table)) => {
            prune_names(table, named, place, report);
            true
        }
        (Shape::List(items), DeValue::Array(array)) => {
            for (index, element) in array.iter_mut().enumerate() {
                if report.is_full() {
                    break;
                }
                let mut inner: Vec<Step<'_>> = place.clone();
                inner.push(index.into());
                if !prune(element, items, &mut inner, report) {
                    // Keeps the indices of those behind; its place is marred and not looked at.
                    *element.get_mut() = placeholder(items);
                }
            }
            true
        }
        (Shape::Choice(schema), DeValue::String(text)) => {
            let known = choices(schema).into_iter().map(|(choice, _)| choice).collect::<Vec<_>>();
            if known.contains(&text.as_ref()) {
                return true;
            }
            let list = known.iter().map(|choice| quoted(choice)).collect::<Vec<_>>().join(" or ");
            report.error_at_offset(
                offset,
                place,
                format!("{} is not a choice", quoted(text)),
                format!("write {list}"),
            );
            false
        }
        (Shape::Statuses | Shape::Ports | Shape::NameOrNames, DeValue::Array(array)) => {
            let numbers = !matches!(shape, Shape::NameOrNames);
            let fits = |element: &Spanned<DeValue<'_>>| match element.get_ref() {
                DeValue::Integer(_) => numbers,
                element => matches!(element, DeValue::String(_)),
            };
            let Some(odd) = array.iter().find(|element| !fits(element)) else {
                return true;
            };
            let (wanted, mend) = match shape {
                Shape::Statuses => ("a status or a range in quotes", "write 204 or \"300-399\""),
                Shape::Ports => ("a port or a range in quotes", "write 80 or \"8000-8099\""),
                _ => ("a name in quotes", "write it as \"NAME\""),
            };
            let problem = format!("must be {wanted}, but is {}", noun(odd.get_ref()));
            report.error_at_offset(odd.span().start, place, problem, mend);
            false
        }
        (
            Shape::TextOrTable(_)
            | Shape::Text
            | Shape::Time
            | Shape::Statuses
            | Shape::Ports
            | Shape::Protocol
            | Shape::NameOrNames,
            DeValue::String(_),
        )
        | (Shape::Whole | Shape::Statuses | Shape::Ports | Shape::Protocol, DeValue::Integer(_))
        | (Shape::Truth, DeValue::Boolean(_)) => true,
        (_, found) => {
            let mend = mend_of_type(shape, found);
            let problem = format!("must be {}, but is {}", shape.noun(), noun(found));
            report.error_at_offset(offset, place, problem, mend);
            false
        }
    }
}

fn prune_keys<'s>(
    table: &mut DeTable<'s>,
    properties: &serde_json::Map<String, serde_json::Value>,
    place: &[Step<'_>],
    report: &mut Report<'_>,
) {
    let keys: Vec<_> = table.keys().cloned().collect();
    for key in keys {
        if report.is_full() {
            break;
        }
        let mut inner: Vec<Step<'_>> = place.to_vec();
        inner.push(Step::Key(key.get_ref()));
        let Some(schema) = properties.get(key.get_ref().as_ref()) else {
            let known = || properties.keys().map(String::as_str);
            let what = if place.is_empty() { "unknown section" } else { "unknown key" };
            let problem = format!("{what} {}", quoted(key.get_ref()));
            let mend = nearest(key.get_ref(), known());
            report.error_at_offset(key.span().start, &inner, problem, mend);
            if let Some(meant) = slip_of(key.get_ref(), known()) {
                // It need not be called missing as well.
                inner.pop();
                inner.push(Step::Key(meant));
                report.mar(&inner);
            }
            table.remove(key.get_ref().as_ref());
            continue;
        };
        let fits = match table.get_mut(key.get_ref().as_ref()) {
            Some(value) => prune(value, schema, &mut inner, report),
            None => true,
        };
        if !fits {
            table.remove(key.get_ref().as_ref());
        }
    }
}

fn prune_names<'s>(
    table: &mut DeTable<'s>,
    named: &serde_json::Value,
    place: &[Step<'_>],
    report: &mut Report<'_>,
) {
    let keys: Vec<_> = table.keys().cloned().collect();
    for key in keys {
        if report.is_full() {
            break;
        }
        let mut inner: Vec<Step<'_>> = place.to_vec();
        inner.push(Step::Key(key.get_ref()));
        let fits = match table.get_mut(key.get_ref().as_ref()) {
            Some(value) => prune(value, named, &mut inner, report),
            None => true,
        };
        if !fits {
            table.remove(key.get_ref().as_ref());
        }
    }
}

fn placeholder(schema: &serde_json::Value) -> DeValue<'static> {
    match Shape::of(schema) {
        Shape::Table(_) | Shape::Names(_) => DeValue::Table(DeTable::new()),
        _ => DeValue::String("".into()),
    }
}

fn noun(found: &DeValue<'_>) -> &'static str {
    match found {
        DeValue::String(_) => "text",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date or time of day",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    }
}

fn mend_of_type(shape: Shape<'_>, found: &DeValue<'_>) -> String {
    match (shape, found) {
        (Shape::Time, DeValue::Integer(number)) => {
            format!("a bare number has no unit: write \"{number}s\" or \"{number}ms\"")
        }
        (Shape::Time, DeValue::Float(number)) => {
            format!("a bare number has no unit: write \"{number}s\" as whole \"ms\"")
        }
        (Shape::Time, _) => "write it as \"5s\" or \"500ms\"".to_owned(),
        (Shape::Whole, DeValue::String(text)) if text.parse::<i64>().is_ok() => {
            format!("leave out the quotes: {text}")
        }
        (Shape::Text | Shape::Choice(_), DeValue::Integer(number)) => {
            format!("put it in quotes: \"{number}\"")
        }
        (Shape::Names(_), DeValue::Array(_)) => "write one [table.NAME] for each".to_owned(),
        (Shape::Names(_) | Shape::Table(_), _) => "write it as a [table] with keys".to_owned(),
        (Shape::List(_), DeValue::Table(_)) => "write [[…]] with double brackets".to_owned(),
        (Shape::List(_), _) => "put it in brackets: […]".to_owned(),
        _ => format!("write {}", shape.noun()),
    }
}
