//! Shapes as SVG text. Colours are the style's, which has a light and a dark mode.

use std::fmt::Write as _;

/// Backgrounds and all: a page's own colour behind it does not matter.
const STYLE: &str = "
.back{fill:#ffffff} .text{fill:#1f2328} .weak{fill:#59636e} .grid{stroke:#d1d9e0}
.ours{fill:#0969da} .theirs{fill:#9198a1} .mark{stroke:#bc4c00;stroke-dasharray:4 3} .marked{fill:#bc4c00}
.ours-line{stroke:#0969da} .theirs-line{stroke:#818b98}
@media (prefers-color-scheme: dark){
.back{fill:#0d1117} .text{fill:#f0f6fc} .weak{fill:#9198a1} .grid{stroke:#3d444d}
.ours{fill:#4493f8} .theirs{fill:#656c76} .mark{stroke:#f0883e} .marked{fill:#f0883e}
.ours-line{stroke:#4493f8} .theirs-line{stroke:#9198a1}}
text{font:12px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif}
.head{font-size:14px;font-weight:600} .small{font-size:11px}
.ours-line,.theirs-line{fill:none;stroke-width:2;stroke-linejoin:round}
";

/// Where a text's point lies in it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// A picture under way.
#[derive(Default)]
pub(super) struct Svg {
    body: String,
}

impl Svg {
    /// A text on a line, of these classes.
    pub(super) fn text(&mut self, (x, y): (f64, f64), class: &str, anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let text = escaped(text);
        let _ = writeln!(
            self.body,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\" text-anchor=\"{anchor}\">{text}</text>"
        );
    }

    /// A filled rectangle.
    pub(super) fn rectangle(
        &mut self,
        (x, y): (f64, f64),
        (width, height): (f64, f64),
        class: &str,
    ) {
        let _ = writeln!(
            self.body,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
             class=\"{class}\"/>"
        );
    }

    /// A straight line.
    pub(super) fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), class: &str) {
        let _ = writeln!(
            self.body,
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" class=\"{class}\"/>"
        );
    }

    /// Points joined in their order.
    pub(super) fn polyline(&mut self, points: &[(f64, f64)], class: &str) {
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let points = points.join(" ");
        let _ = writeln!(self.body, "<polyline points=\"{points}\" class=\"{class}\"/>");
    }

    /// The whole, of that size.
    pub(super) fn finish(self, (width, height): (f64, f64), title: &str) -> String {
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
             viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\">\n<title>{}</title>\n\
             <style>{STYLE}</style>\n\
             <rect x=\"0\" y=\"0\" width=\"{width:.0}\" height=\"{height:.0}\" class=\"back\"/>\n\
             {}</svg>\n",
            escaped(title),
            self.body
        )
    }
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            // XML 1.0 has no control characters, escaped or not.
            character if character.is_control() => escaped.push(' '),
            character => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped() {
        assert_eq!(escaped("a<b>&\"c\"\u{7}"), "a&lt;b&gt;&amp;\"c\" ");
    }
}
