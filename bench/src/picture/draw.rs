//! From panels to shapes: two panels beside each other, each as high as it needs to be.

use super::panels::{Bar, Body, Curve, Panel};
use super::svg::{Anchor, Svg};

const MARGIN: f64 = 24.0;
const PANEL_WIDTH: f64 = 430.0;
const HEAD_HEIGHT: f64 = 46.0;
const LINE_HEIGHT: f64 = 16.0;
/// Bars: where they begin, their longest, and from one to the next.
const BARS_LEFT: f64 = 150.0;
const BARS_WIDTH: f64 = 150.0;
const BAR_STEP: f64 = 20.0;
const BAR_HEIGHT: f64 = 13.0;
/// Curves: the field they are drawn in.
const FIELD_LEFT: f64 = 42.0;
const FIELD_WIDTH: f64 = 370.0;
const FIELD_HEIGHT: f64 = 170.0;
const AXIS_HEIGHT: f64 = 26.0;
/// Nothing on a logarithmic scale is shorter than a bar that can be seen.
const SHORTEST: f64 = 2.0;

/// The whole picture.
pub(super) fn picture(panels: &[Panel], caption: &[String]) -> String {
    let mut svg = Svg::default();
    let mut top = MARGIN;
    for row in panels.chunks(2) {
        for (panel, left) in row.iter().zip([MARGIN, 2.0 * MARGIN + PANEL_WIDTH]) {
            draw(&mut svg, panel, (left, top));
        }
        top += row.iter().map(height).fold(0.0, f64::max) + MARGIN;
    }
    for line in caption {
        svg.text((MARGIN, top), "weak small", Anchor::Start, line);
        top += LINE_HEIGHT;
    }
    let columns = if panels.len() < 2 { 1.0 } else { 2.0 };
    let width = columns * (PANEL_WIDTH + MARGIN) + MARGIN;
    let titles: Vec<&str> = panels.iter().map(|panel| panel.title.as_str()).collect();
    svg.finish((width, top), &titles.join("; "))
}

fn height(panel: &Panel) -> f64 {
    let body = match &panel.body {
        Body::Bars { bars, .. } => count(bars.len()) * BAR_STEP,
        Body::Curves { curves, .. } => {
            FIELD_HEIGHT + AXIS_HEIGHT + count(curves.len()) * LINE_HEIGHT
        }
    };
    HEAD_HEIGHT + body + count(panel.notes.len()) * LINE_HEIGHT
}

fn draw(svg: &mut Svg, panel: &Panel, (left, top): (f64, f64)) {
    svg.text((left, top + 12.0), "text head", Anchor::Start, &panel.title);
    svg.text((left, top + 29.0), "weak small", Anchor::Start, &panel.unit);
    let body = (left, top + HEAD_HEIGHT);
    match &panel.body {
        Body::Bars { bars, is_logarithmic, reference } => {
            draw_bars(svg, bars, *is_logarithmic, *reference, body);
        }
        Body::Curves { curves, limit } => draw_curves(svg, curves, limit.as_ref(), body),
    }
    let first = top + height(panel) - count(panel.notes.len()) * LINE_HEIGHT;
    for (line, note) in panel.notes.iter().enumerate() {
        let y = first + count(line) * LINE_HEIGHT + 11.0;
        svg.text((left, y), "text small", Anchor::Start, note);
    }
}

fn draw_bars(
    svg: &mut Svg,
    bars: &[Bar],
    is_logarithmic: bool,
    reference: Option<f64>,
    (left, top): (f64, f64),
) {
    let zero = left + BARS_LEFT;
    let bottom = top + count(bars.len()) * BAR_STEP - (BAR_STEP - BAR_HEIGHT);
    let greatest = bars.iter().map(|bar| bar.value).chain(reference).fold(0.0, f64::max);
    let least = bars.iter().map(|bar| bar.value).fold(f64::INFINITY, f64::min);
    let (from, until) = decades(least, greatest);
    let length = |value: f64| {
        let share = if is_logarithmic {
            (value.max(f64::MIN_POSITIVE).log10() - from) / (until - from)
        } else {
            value / greatest
        };
        if share.is_finite() { (share * BARS_WIDTH).clamp(SHORTEST, BARS_WIDTH) } else { SHORTEST }
    };
    if is_logarithmic {
        let mut decade = from;
        while decade <= until {
            let x = zero + (decade - from) / (until - from) * BARS_WIDTH;
            svg.line((x, top - 4.0), (x, bottom + 4.0), "grid");
            decade += 1.0;
        }
    } else {
        svg.line((zero, top - 4.0), (zero, bottom + 4.0), "grid");
    }
    for (index, bar) in bars.iter().enumerate() {
        let y = top + count(index) * BAR_STEP;
        let baseline = y + BAR_HEIGHT - 2.5;
        svg.text((zero - 8.0, baseline), "text", Anchor::End, &bar.label);
        let class = if bar.is_ours { "ours" } else { "theirs" };
        svg.rectangle((zero, y), (length(bar.value), BAR_HEIGHT), class);
        let end = zero + length(bar.value) + 6.0;
        svg.text((end, baseline), "text small", Anchor::Start, &bar.text);
    }
    if let Some(value) = reference {
        let x = zero + length(value);
        svg.line((x, top - 4.0), (x, bottom + 4.0), "mark");
    }
}

/// The powers of ten around all values, and one more below, so that the least has a length too.
fn decades(least: f64, greatest: f64) -> (f64, f64) {
    let from = least.max(f64::MIN_POSITIVE).log10().floor() - 1.0;
    let until = greatest.max(f64::MIN_POSITIVE).log10().ceil();
    (from, until.max(from + 1.0))
}

fn draw_curves(
    svg: &mut Svg,
    curves: &[Curve],
    limit: Option<&(f64, String)>,
    (left, top): (f64, f64),
) {
    let values = curves.iter().flat_map(|curve| curve.quantiles.iter().copied());
    let greatest = values.chain(limit.map(|(value, _)| *value)).fold(0.0, f64::max);
    let step = step(greatest);
    let end = (greatest * 1.02 / step).ceil().max(1.0) * step;
    let x_of = |value: f64| left + FIELD_LEFT + (value / end).clamp(0.0, 1.0) * FIELD_WIDTH;
    let y_of = |percent: f64| top + FIELD_HEIGHT * (1.0 - percent / 100.0);
    for percent in [0.0, 25.0, 50.0, 75.0, 100.0] {
        let y = y_of(percent);
        svg.line((x_of(0.0), y), (x_of(end), y), "grid");
        let text = format!("{percent} %");
        svg.text((x_of(0.0) - 6.0, y + 4.0), "weak small", Anchor::End, &text);
    }
    let mut value = 0.0;
    while value <= end {
        let at = (x_of(value), y_of(0.0) + 15.0);
        svg.text(at, "weak small", Anchor::Middle, &format!("{value} ms"));
        value += step;
    }
    if let Some((value, name)) = limit {
        let x = x_of(*value);
        svg.line((x, y_of(100.0)), (x, y_of(0.0)), "mark");
        svg.text((x - 5.0, y_of(4.0)), "marked small", Anchor::End, name);
    }
    for curve in curves {
        let last = count(curve.quantiles.len().saturating_sub(1)).max(1.0);
        let points = curve.quantiles.iter().enumerate();
        let points: Vec<(f64, f64)> = points
            .map(|(index, value)| (x_of(*value), y_of(count(index) / last * 100.0)))
            .collect();
        svg.polyline(&points, if curve.is_ours { "ours-line" } else { "theirs-line" });
    }
    // The last is drawn on top, and named first.
    for (index, curve) in curves.iter().rev().enumerate() {
        let y = top + FIELD_HEIGHT + AXIS_HEIGHT + count(index) * LINE_HEIGHT;
        let class = if curve.is_ours { "ours" } else { "theirs" };
        svg.rectangle((left, y + 4.0), (18.0, 4.0), class);
        svg.text((left + 26.0, y + 11.0), "text small", Anchor::Start, &curve.label);
    }
}

/// From one mark of an axis to the next: 1, 2 or 5 times a power of ten, at most six marks.
fn step(greatest: f64) -> f64 {
    let power = 10_f64.powf((greatest / 6.0).max(f64::MIN_POSITIVE).log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|factor| greatest <= 6.0 * factor * power);
    factor.unwrap_or(10.0) * power
}

#[expect(clippy::cast_precision_loss, reason = "of the things in one picture")]
fn count(of_things: usize) -> f64 {
    of_things as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axis_has_few_round_marks() {
        assert_eq!([0.9, 7.0, 200.0, 250.0, 301.0].map(step), [0.2, 2.0, 50.0, 50.0, 100.0]);
    }

    #[test]
    fn decades_surround_all_values() {
        assert_eq!(decades(112.0, 2_345_678.0), (1.0, 7.0));
        assert_eq!(decades(100.0, 100.0), (1.0, 2.0));
    }
}
