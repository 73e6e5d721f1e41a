//! What the settings' schema says about a value: the one description that reading and the printed
//! example share.

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

use super::settings::Settings;

/// The schema of [`Settings`], with every reference in place.
pub(super) fn schema() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    settings.into_generator().into_root_schema_for::<Settings>().to_value()
}

/// The shape of a value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape<'a> {
    /// A table with these keys.
    Table(&'a Map<String, Value>),
    /// A table of names, each with a value of this schema.
    Names(&'a Value),
    /// An array of values of this schema.
    List(&'a Value),
    /// Text, or a table of this schema.
    TextOrTable(&'a Value),
    /// One of the texts that [`choices`] lists.
    Choice(&'a Value),
    /// Text.
    Text,
    /// A time with its unit.
    Time,
    /// A whole number.
    Whole,
    /// A name, or an array of them.
    NameOrNames,
    /// A status, a range of them, or an array of both.
    Statuses,
    /// A port, a range of them, `any`, or an array.
    Ports,
    /// A protocol's name or number.
    Protocol,
    /// True or false.
    Truth,
}

impl<'a> Shape<'a> {
    /// The shape that `schema` describes.
    pub(super) fn of(schema: &'a Value) -> Self {
        let schema = without_null(schema);
        match schema.get("format").and_then(Value::as_str) {
            Some("statuses") => return Self::Statuses,
            Some("ports") => return Self::Ports,
            Some("protocol") => return Self::Protocol,
            Some("names") => return Self::NameOrNames,
            _ => {}
        }
        if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
            return Self::Table(properties);
        }
        if let Some(named) = schema.get("additionalProperties").filter(|named| named.is_object()) {
            return Self::Names(named);
        }
        if let Some(items) = schema.get("items") {
            return Self::List(items);
        }
        if let Some(table) = alternatives(schema).find(|each| each.get("properties").is_some()) {
            return Self::TextOrTable(table);
        }
        if !choices(schema).is_empty() {
            return Self::Choice(schema);
        }
        if schema.get("format").and_then(Value::as_str) == Some("duration") {
            return Self::Time;
        }
        if has_type(schema, "boolean") {
            return Self::Truth;
        }
        if has_type(schema, "integer") { Self::Whole } else { Self::Text }
    }

    /// What an operator calls it.
    pub(super) fn noun(self) -> &'static str {
        match self {
            Self::Table(_) | Self::Names(_) => "a table",
            Self::List(_) => "an array",
            Self::TextOrTable(_) => "text or a table",
            Self::Choice(_) | Self::Text => "text in quotes",
            Self::Time => "a time in quotes with a unit",
            Self::Whole => "a whole number",
            Self::NameOrNames => "a name in quotes, or an array of names",
            Self::Statuses => "a status, or an array of statuses and ranges",
            Self::Ports => "a port, a range in quotes, or an array of both",
            Self::Protocol => "a protocol's name in quotes, or its number",
            Self::Truth => "true or false",
        }
    }
}

/// The texts that a choice allows, each with what it means; empty when it is not a choice.
pub(super) fn choices(schema: &Value) -> Vec<(&str, &str)> {
    fn constant(schema: &Value) -> Option<(&str, &str)> {
        let text = schema.get("const").and_then(Value::as_str)?;
        Some((text, schema.get("description").and_then(Value::as_str).unwrap_or_default()))
    }
    alternatives(without_null(schema)).filter_map(constant).collect()
}

/// What a schema that may be null says when it is not.
fn without_null(schema: &Value) -> &Value {
    fn is_null(schema: &Value) -> bool {
        schema.get("type").and_then(Value::as_str) == Some("null")
    }
    let mut rest = alternatives(schema).filter(|each| !is_null(each));
    match (rest.next(), rest.next()) {
        // A choice of one has no null beside it and stays a choice.
        (Some(only), None) if alternatives(schema).any(is_null) => only,
        _ => schema,
    }
}

fn alternatives(schema: &Value) -> impl Iterator<Item = &Value> {
    ["anyOf", "oneOf"]
        .into_iter()
        .filter_map(|key| schema.get(key).and_then(Value::as_array))
        .flatten()
}

fn has_type(schema: &Value, name: &str) -> bool {
    match schema.get("type") {
        Some(Value::String(only)) => only == name,
        Some(Value::Array(several)) => several.iter().any(|each| each == name),
        _ => false,
    }
}
