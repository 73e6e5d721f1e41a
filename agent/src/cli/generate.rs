//! `sickbay generate`: what packages and documentation are made of, out of the command line's and
//! the settings' own definitions, so that it cannot say anything else.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{CommandFactory as _, Subcommand};
use clap_complete::Shell;

use super::Arguments;
use super::listing::write_text;
use crate::config;

/// The manual's section: commands of the administrator (man-pages(7)).
const SECTION: &str = "8";

/// Generate manual pages, completions of a shell, or the reference of the configuration.
///
/// The Debian package holds all three already.
#[derive(Clone, Debug, clap::Args)]
pub struct GenerateArgs {
    /// What to generate
    #[command(subcommand)]
    pub what: What,
}

/// What can be generated.
#[derive(Clone, Debug, Subcommand)]
pub enum What {
    /// Manual pages, one for each command, into a directory that is there
    Man {
        /// The directory
        directory: PathBuf,
    },
    /// Completions of a shell, to standard output
    Completions {
        /// Which shell
        shell: Shell,
    },
    /// Every key of the configuration, as Markdown, to standard output
    Reference,
}

/// Generates it.
///
/// # Errors
///
/// It cannot be written.
pub fn run(arguments: &GenerateArgs) -> anyhow::Result<ExitCode> {
    match &arguments.what {
        What::Man { directory } => write_pages(directory)?,
        What::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(*shell, &mut Arguments::command(), "sickbay", &mut text);
            write_text(&mut std::io::stdout().lock(), &String::from_utf8(text)?)?;
        }
        What::Reference => {
            write_text(&mut std::io::stdout().lock(), &config::reference())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes the page of every command.
fn write_pages(directory: &Path) -> anyhow::Result<()> {
    for (name, page) in pages()? {
        let path = directory.join(name);
        let write = || fs::File::create(&path)?.write_all(&page);
        write().with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// The page of every command, by file name.
fn pages() -> anyhow::Result<Vec<(String, Vec<u8>)>> {
    let mut command = Arguments::command().disable_help_subcommand(true);
    // Gives subcommands their whole names and the options that all of them have.
    command.build();
    let mut pages = Vec::new();
    add_pages(command, &mut pages)?;
    Ok(pages)
}

/// As deep as subcommands are nested, which is three.
fn add_pages(command: clap::Command, pages: &mut Vec<(String, Vec<u8>)>) -> anyhow::Result<()> {
    let subcommands: Vec<clap::Command> = command.get_subcommands().cloned().collect();
    let closing = command.get_after_help().map(ToString::to_string);
    let source = concat!("sickbay ", env!("CARGO_PKG_VERSION"));
    // Its own rendering would fill the lines of the examples into one paragraph.
    let man = clap_mangen::Man::new(command.after_help(None::<&str>));
    let man = man.section(SECTION).source(source).manual("sickbay");
    let mut page = Vec::new();
    man.render(&mut page)?;
    if let Some(closing) = closing {
        page.extend(literal("NOTES", &closing).into_bytes());
    }
    pages.push((man.get_filename(), page));
    subcommands.into_iter().filter(|it| !it.is_hide_set()).try_for_each(|it| add_pages(it, pages))
}

/// A section whose lines stay as they are (man(7)).
fn literal(heading: &str, text: &str) -> String {
    let mut section = format!(".SH {heading}\n.nf\n");
    for line in text.lines() {
        let line = line.replace('\\', "\\e").replace('-', "\\-");
        // A dot or an apostrophe at the begin would be a request.
        section.push_str(&format!("\\&{line}\n"));
    }
    section + ".fi\n"
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Names of all commands as a page's file has them, by another way than [`pages`].
    fn names(prefix: &str, command: &clap::Command, all: &mut BTreeSet<String>) {
        all.insert(format!("{prefix}.{SECTION}"));
        for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
            names(&format!("{prefix}-{}", inner.get_name()), inner, all);
        }
    }

    #[test]
    fn every_command_has_a_page_that_names_its_options() {
        let pages = pages().unwrap();
        let found: BTreeSet<String> = pages.iter().map(|(name, _)| name.clone()).collect();
        let mut expected = BTreeSet::new();
        names("sickbay", &Arguments::command(), &mut expected);
        assert_eq!(found, expected);
        assert!(found.contains("sickbay-backend-set-health.8"), "{found:?}");
        let page = |name: &str| {
            let (_, page) = pages.iter().find(|(file, _)| file == name).unwrap();
            String::from_utf8(page.clone()).unwrap()
        };
        let run = page("sickbay-run.8");
        assert!(run.starts_with(".ie"), "{run}");
        for part in [".TH sickbay-run 8", "\\-\\-detach\\-on\\-exit", "instead of leaving"] {
            assert!(run.contains(part), "no {part:?} in {run}");
        }
        let main = page("sickbay.8");
        assert!(main.contains("sickbay\\-run(8)"), "{main}");
        let example = "\n\\&  sickbay check \\-c sickbay.toml";
        assert!(main.contains(example) && !main.contains("EXTRA"), "{main}");
    }

    #[test]
    fn completions_name_every_command() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), "sickbay", &mut text);
            let text = String::from_utf8(text).unwrap();
            for command in Arguments::command().get_subcommands() {
                assert!(text.contains(command.get_name()), "{shell}: {}", command.get_name());
            }
        }
    }
}
