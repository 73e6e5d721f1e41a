//! The reference of the configuration, as Markdown, from the settings' own comments and defaults.

use serde_json::{Map, Value};

use super::example::{defaults, description, inline};
use super::shape::{Shape, choices, schema};

const COLUMNS: usize = 100;
/// Says whence the page comes, to whoever would change it by hand.
const HEAD: &str = "\
<!-- Written by `sickbay generate reference`; a test says when it is out of date. -->

# Configuration

A file in TOML, which `sickbay check -c FILE` holds to what stands here. Times are text with a unit:
\"500ms\", \"5s\", \"1m\". `sickbay check --print-example` prints a whole file to begin with.
";

/// Every table and key of the configuration file: what it takes, its default, what it means.
#[must_use]
pub fn reference() -> String {
    let schema = schema();
    let mut text = HEAD.to_owned();
    let Shape::Table(sections) = Shape::of(&schema) else {
        return text;
    };
    for (name, section) in sections {
        let (header, schema) = match Shape::of(section) {
            Shape::Names(named) => (format!("[{name}.NAME]"), named),
            Shape::List(items) => (format!("[[{name}]]"), items),
            _ => (format!("[{name}]"), section),
        };
        text.push_str(&format!("\n## `{header}`\n"));
        paragraphs(&mut text, "", description(section));
        if let Shape::Table(keys) = Shape::of(schema) {
            table(&mut text, keys, defaults(schema, section));
        }
    }
    text
}

fn table(text: &mut String, keys: &Map<String, Value>, defaults: Option<&Value>) {
    for (key, property) in keys {
        text.push_str(&format!("\n### `{key}`\n"));
        let given = |value: &&Value| !value.is_null();
        let default = property.get("default").filter(given);
        let default = default.or_else(|| defaults?.get(key).filter(given)).map(inline);
        let mut kind = capitalized(Shape::of(property).noun());
        match &default {
            Some(default) => kind.push_str(&format!("; default `{default}`.")),
            None => kind.push_str("; no default."),
        }
        let example = property.get("examples").and_then(|examples| examples.get(0)).map(inline);
        // An example that is the default tells nothing more.
        if let Some(example) = example.filter(|example| default.as_ref() != Some(example)) {
            kind.push_str(&format!(" Example: `{key} = {example}`."));
        }
        paragraphs(text, "", &kind);
        paragraphs(text, "", description(property));
        listed(
            text,
            choices(property).iter().map(|(choice, what)| (format!("\"{choice}\""), *what)),
        );
        if let Shape::List(items) = Shape::of(property)
            && let Shape::TextOrTable(inner) = Shape::of(items)
            && let Shape::Table(keys) = Shape::of(inner)
        {
            listed(text, keys.iter().map(|(key, it)| (key.clone(), description(it))));
        }
    }
}

/// A list of words with what each means; nothing when it is empty.
fn listed<'a>(text: &mut String, items: impl Iterator<Item = (String, &'a str)>) {
    for (index, (word, meaning)) in items.enumerate() {
        let item = format!("`{word}`: {meaning}");
        if index == 0 {
            text.push('\n');
        }
        wrap(text, "- ", "  ", &item);
    }
}

/// Paragraphs, each behind an empty line.
fn paragraphs(text: &mut String, indent: &str, content: &str) {
    for paragraph in content.split("\n\n").filter(|paragraph| !paragraph.trim().is_empty()) {
        text.push('\n');
        wrap(text, indent, indent, paragraph);
    }
}

/// One paragraph, its lines filled. What stands between backticks is not parted: renderers differ
/// about lines that end in code.
fn wrap(text: &mut String, first: &str, rest: &str, paragraph: &str) {
    let mut line = first.to_owned();
    let mut is_empty = true;
    for word in words(paragraph) {
        if !is_empty && COLUMNS < line.chars().count() + 1 + word.chars().count() {
            text.push_str(&line);
            text.push('\n');
            line = rest.to_owned();
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(&word);
        is_empty = false;
    }
    text.push_str(&line);
    text.push('\n');
}

/// The words of a paragraph; code with blanks in it is one. What Markdown would take for more than
/// text is escaped outside of code.
fn words(paragraph: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut in_code = false;
    for piece in paragraph.split_whitespace() {
        let continues = in_code;
        let mut word = String::new();
        for c in piece.chars() {
            in_code ^= c == '`';
            if !in_code && matches!(c, '*' | '_' | '[' | ']' | '<' | '>' | '|' | '\\') {
                word.push('\\');
            }
            word.push(c);
        }
        match words.last_mut() {
            Some(last) if continues => {
                last.push(' ');
                last.push_str(&word);
            }
            _ => words.push(word),
        }
    }
    words
}

fn capitalized(text: &str) -> String {
    let mut characters = text.chars();
    characters
        .next()
        .map_or_else(String::new, |first| first.to_uppercase().chain(characters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMITTED: &str = include_str!("../../docs/configuration.md");

    #[test]
    fn committed_page_is_the_generated_one() {
        assert!(
            COMMITTED == reference(),
            "write it anew: sickbay generate reference > agent/docs/configuration.md"
        );
    }

    #[test]
    fn every_key_of_the_example_has_its_heading_in_its_section() {
        let mut section = String::new();
        let mut seen = 0;
        for line in super::super::example().lines() {
            let line = line.strip_prefix("# ").unwrap_or(line);
            if line.starts_with('[') {
                section = line.replace(".web]", ".NAME]");
            } else if let Some((key, _)) = line.split_once(" = ")
                && key.chars().all(|c| c.is_ascii_lowercase() || c == '_')
            {
                let text = reference();
                let (_, rest) = text.split_once(&format!("\n## `{section}`\n")).unwrap();
                let own = rest.split("\n## ").next().unwrap();
                assert!(own.contains(&format!("\n### `{key}`\n")), "{key} of {section}");
                seen += 1;
            }
        }
        assert!(40 < seen, "{seen}");
    }

    #[test]
    fn what_markdown_would_take_for_more_is_escaped_outside_of_code() {
        assert_eq!(words("a_b `c_d e` [x]"), ["a\\_b", "`c_d e`", "\\[x\\]"]);
        let mut text = String::new();
        wrap(&mut text, "- ", "  ", &"word ".repeat(30));
        assert!(text.lines().all(|line| line.len() <= COLUMNS), "{text}");
        assert_eq!(text.lines().count(), 2);
        assert!(text.lines().nth(1).unwrap().starts_with("  word"), "{text}");
    }
}
