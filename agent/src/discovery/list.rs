//! Lists of backends: one per line, `ADDRESS:PORT [weight=N] [name=NAME]`, `#` begins a comment.
//! Instead of address and port a unix socket may stand: `unix:/FILE` or `unix:@NAME`. Pure.

use super::file::{FileFault, Listed};
use crate::address::Address;
use crate::config::{Fault, WEIGHT_MAX, backend_fault, nearest, parse_endpoint, quoted};

/// The backends of a list's text, and the lines that name none.
pub(crate) fn parse(text: &str) -> (Vec<Listed>, Vec<FileFault>) {
    let (mut listed, mut faults) = (Vec::new(), Vec::new());
    for (index, content) in text.lines().enumerate() {
        let content = content.split('#').next().unwrap_or_default();
        let line = index + 1;
        match parse_line(content) {
            Ok(None) => {}
            Ok(Some((address, name, weight))) => {
                listed.push(Listed { address, name, weight, line });
            }
            Err((offset, fault)) => {
                let column = content[..offset].chars().count() + 1;
                faults.push(FileFault { line, column, fault });
            }
        }
    }
    (listed, faults)
}

type Line = Option<(Address, Option<String>, u32)>;

/// A line's backend if it has one; else the byte at which it goes wrong, and how.
fn parse_line(content: &str) -> Result<Line, (usize, Fault)> {
    let mut words = content.split_whitespace();
    let Some(first) = words.next() else {
        return Ok(None);
    };
    let offset = |word: &str| word.as_ptr() as usize - content.as_ptr() as usize;
    let address = parse_endpoint(first).map_err(|fault| (offset(first), fault))?;
    let (mut name, mut weight) = (None, None);
    for word in words {
        let at = |fault: Fault| (offset(word), fault);
        match word.split_once('=') {
            Some(("name", value)) if name.is_none() => {
                if let Some(fault) = backend_fault(value) {
                    let mend = "name it with 1 to 64 letters, digits, \"-\", \"_\", \".\", \":\"";
                    return Err(at((fault, mend.to_owned())));
                }
                name = Some(value.to_owned());
            }
            Some(("weight", value)) if weight.is_none() => {
                weight = Some(weight_of(value).map_err(at)?);
            }
            Some((key @ ("name" | "weight"), _)) => {
                let problem = format!("{key} is given twice");
                return Err(at((problem, "remove one of the two".to_owned())));
            }
            Some((key, _)) => {
                let mend = nearest(key, ["name", "weight"]);
                return Err(at((format!("unknown key {}", quoted(key)), mend)));
            }
            None => {
                let problem = format!("{} is not KEY=VALUE", quoted(word));
                let mend = "write one backend per line: ADDRESS:PORT [weight=N] [name=NAME]";
                return Err(at((problem, mend.to_owned())));
            }
        }
    }
    Ok(Some((address, name, weight.unwrap_or(1))))
}

pub(super) fn weight_of(text: &str) -> Result<u32, Fault> {
    let weight = text.parse::<i64>().ok().filter(|weight| (1..=WEIGHT_MAX).contains(weight));
    weight.and_then(|weight| u32::try_from(weight).ok()).ok_or_else(|| {
        let problem = format!("weight {} is out of range", quoted(text));
        (problem, format!("write a whole number from 1 to {WEIGHT_MAX}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_comments_blank_lines_names_and_weights() {
        let text = "# the farm\n\n192.0.2.1:80\r\n  [fd00::1]:81 name=b weight=7 # old\n\
                    unix:@app name=c\n";
        let (listed, faults) = parse(text);
        assert_eq!(faults, []);
        let first = "192.0.2.1:80".parse().expect("an address");
        let second = "[fd00::1]:81".parse().expect("an address");
        let third = "unix:@app".parse().expect("an address");
        assert_eq!(
            listed,
            [
                Listed { address: first, name: None, weight: 1, line: 3 },
                Listed { address: second, name: Some("b".to_owned()), weight: 7, line: 4 },
                Listed { address: third, name: Some("c".to_owned()), weight: 1, line: 5 },
            ]
        );
    }

    #[test]
    fn every_bad_line_is_reported_with_its_column() {
        let text = "nonsense\n192.0.2.1:80 wait=3\n192.0.2.2:80 weight=0\n192.0.2.3:80 x\n\
                    192.0.2.4:80 name=a name=b\n192.0.2.5:80 name=a*\n";
        let (listed, faults) = parse(text);
        assert_eq!(listed, []);
        let shown: Vec<_> =
            faults.iter().map(|fault| (fault.line, fault.column, fault.fault.0.as_str())).collect();
        assert_eq!(
            shown,
            [
                (1, 1, "\"nonsense\" is not ADDRESS:PORT"),
                (2, 14, "unknown key \"wait\""),
                (3, 14, "weight \"0\" is out of range"),
                (4, 14, "\"x\" is not KEY=VALUE"),
                (5, 21, "name is given twice"),
                (6, 14, "\"a*\" has the odd character \"*\""),
            ]
        );
    }
}
