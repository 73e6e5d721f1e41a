//! The commented example, printed from the settings' own comments and defaults.

use serde_json::{Map, Value};

use super::shape::{Shape, choices, schema};

const COLUMNS: usize = 98;
/// What the one probe, pool and service of the example are called.
const NAME: &str = "web";

/// A configuration file that names every key with its meaning, and that `check` accepts.
///
/// Keys that need a value have an example; the others stand as comments, with their default or an
/// example.
#[must_use]
pub fn example() -> String {
    let schema = schema();
    let mut text = String::new();
    comment(&mut text, description(&schema));
    let Shape::Table(sections) = Shape::of(&schema) else {
        return text;
    };
    for (name, section) in sections {
        text.push('\n');
        comment(&mut text, description(section));
        let (header, schema) = match Shape::of(section) {
            Shape::Names(named) => (format!("[{name}.{NAME}]"), named),
            Shape::List(items) => (format!("[[{name}]]"), items),
            _ => (format!("[{name}]"), section),
        };
        text.push_str(&header);
        text.push('\n');
        if let Shape::Table(properties) = Shape::of(schema) {
            table(&mut text, properties, defaults(schema, section));
        }
    }
    text
}

fn table(text: &mut String, properties: &Map<String, Value>, defaults: Option<&Value>) {
    for (key, property) in properties {
        text.push('\n');
        comment(text, description(property));
        let choices = choices(property);
        for (choice, meaning) in choices {
            comment(text, &format!("  \"{choice}\": {meaning}"));
        }
        if let Shape::TextOrTable(inner) = list_items(property)
            && let Shape::Table(keys) = Shape::of(inner)
        {
            for (key, property) in keys {
                comment(text, &format!("  {key}: {}", description(property)));
            }
        }
        let live = property.get("x-live").is_some();
        let value = shown_value(key, property, defaults);
        let mark = if live { "" } else { "# " };
        text.push_str(&format!("{mark}{key} = {value}\n"));
    }
}

/// The shape of an array's elements; text for what is no array.
fn list_items(property: &Value) -> Shape<'_> {
    match Shape::of(property) {
        Shape::List(items) => Shape::of(items),
        _ => Shape::Text,
    }
}

/// The example if the key has one, else its default.
fn shown_value(key: &str, property: &Value, defaults: Option<&Value>) -> String {
    let example = property.get("examples").and_then(|examples| examples.get(0));
    let default = property.get("default").or_else(|| defaults?.get(key));
    inline(example.or(default).unwrap_or(&Value::Null))
}

pub(super) fn defaults<'a>(schema: &'a Value, section: &'a Value) -> Option<&'a Value> {
    schema.get("default").or_else(|| section.get("default"))
}

/// A value as TOML writes it within a line. Keys without a value are left out of tables.
pub(super) fn inline(value: &Value) -> String {
    match value {
        Value::Array(elements) => {
            format!("[{}]", elements.iter().map(inline).collect::<Vec<_>>().join(", "))
        }
        Value::Object(table) => {
            let pair = |(key, value): (&String, &Value)| format!("{key} = {}", inline(value));
            let given = table.iter().filter(|(_, value)| !value.is_null());
            format!("{{ {} }}", given.map(pair).collect::<Vec<_>>().join(", "))
        }
        scalar => scalar.to_string(),
    }
}

pub(super) fn description(schema: &Value) -> &str {
    schema.get("description").and_then(Value::as_str).unwrap_or_default()
}

/// The text as comment lines, wrapped; an indent at its begin is kept for the lines that follow.
fn comment(text: &mut String, content: &str) {
    let indent = content.len() - content.trim_start().len();
    for paragraph in content.split("\n\n") {
        let mut line = format!("#{}", " ".repeat(indent));
        for word in paragraph.split_whitespace() {
            if COLUMNS < line.chars().count() + 1 + word.chars().count() {
                text.push_str(&line);
                text.push('\n');
                line = format!("#{}", " ".repeat(indent + 2).get(..indent * 2).unwrap_or_default());
            }
            line.push(' ');
            line.push_str(word);
        }
        text.push_str(&line);
        text.push('\n');
    }
}
