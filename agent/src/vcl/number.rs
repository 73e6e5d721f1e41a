//! Numbers as the VCL compiler carries them: 32 bits without a sign, and seconds of six digits.

use super::stream::{Fault, Stream};
use super::token::Kind;

/// Digits of a whole number, as in structured fields (RFC 8941): Varnish refuses more.
const WHOLE_DIGITS_MAX: usize = 15;
/// Digits before and behind the point.
const FRACTION_DIGITS_MAX: (usize, usize) = (12, 3);

/// A whole number modulo 2^32, as Varnish's `unsigned` keeps it.
pub(super) fn whole(stream: &mut Stream) -> Result<u32, Fault> {
    if stream.peek().kind != Kind::Whole {
        let mend = "write a whole number; there is no sign";
        return Err(stream.unexpected("CNUM", mend));
    }
    let token = stream.take()?;
    let digits = stream.text(token);
    if WHOLE_DIGITS_MAX < digits.len() {
        let mend = "write at most 15 digits";
        return Err(stream.fault(token, "Too many digits for integer.", mend));
    }
    let add = |sum: u64, digit: &u8| sum * 10 + u64::from(digit - b'0');
    let number = digits.iter().fold(0, add);
    Ok(u32::try_from(number % (1 << 32)).expect("it is below 2^32"))
}

/// A duration in seconds: a number and its unit. Six significant digits are kept: Varnish prints
/// it with `%g` into the C that it compiles.
pub(super) fn duration(stream: &mut Stream) -> Result<f64, Fault> {
    let token = stream.peek();
    if !matches!(token.kind, Kind::Whole | Kind::Fraction) {
        let mend = "write a number and a unit without quotes, such as 5s or 0.5s";
        return Err(stream.unexpected("CNUM", mend));
    }
    stream.take()?;
    let text = String::from_utf8_lossy(stream.text(token)).into_owned();
    let (before, behind) = text.split_once('.').unwrap_or((&text, ""));
    if token.kind == Kind::Whole && WHOLE_DIGITS_MAX < before.len() {
        let mend = "write at most 15 digits";
        return Err(stream.fault(token, "Too many digits for integer.", mend));
    }
    let (before_max, behind_max) = FRACTION_DIGITS_MAX;
    if token.kind == Kind::Fraction && (before_max < before.len() || behind_max < behind.len()) {
        let mend = "write at most 12 digits before the point and 3 behind it; use a smaller unit";
        return Err(stream.fault(token, "Too many digits for real.", mend));
    }
    let unit = stream.expect_name()?;
    let seconds = match stream.text(unit) {
        b"ms" => 1e-3,
        b"s" => 1.0,
        b"m" => 60.0,
        b"h" => 3600.0,
        b"d" => 86_400.0,
        b"w" => 7.0 * 86_400.0,
        b"y" => 365.0 * 86_400.0,
        _ => {
            let problem = format!("Unknown duration unit {}", stream.shown(unit));
            let mend = "legal duration units are ms, s, m, h, d, w and y";
            return Err(stream.fault(unit, problem, mend));
        }
    };
    let number: f64 = text.trim_end_matches('.').parse().expect("digits and a point are a number");
    Ok(six_digits(number * seconds))
}

/// What is left of a number that was printed with C's `%g`.
fn six_digits(number: f64) -> f64 {
    format!("{number:.5e}").parse().expect("a printed number is one")
}

#[cfg(test)]
mod tests {
    use super::super::source::Source;
    use super::*;

    fn stream(text: &str) -> Stream {
        Stream::new(Source::of_text("t", text.into())).expect("it can be cut")
    }

    #[test]
    fn durations_have_units_and_six_digits() {
        for (text, seconds) in [
            ("5s", 5.0),
            ("5 s", 5.0),
            ("5.s", 5.0),
            ("250ms", 0.25),
            ("0.5m", 30.0),
            ("2h", 7200.0),
            ("1d", 86_400.0),
            ("1w", 604_800.0),
            ("1y", 31_536_000.0),
            ("1234.567s", 1234.57),
            ("1234567s", 1_234_570.0),
            ("0.001ms", 0.000_001),
            ("0s", 0.0),
        ] {
            assert_eq!(duration(&mut stream(text)), Ok(seconds), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_told_in_varnish_words() {
        for (text, problem) in [
            ("\"5s\"", "Expected CNUM got '\"5s\"'"),
            ("-5s", "Expected CNUM got '-'"),
            (".5s", "Expected CNUM got '.'"),
            ("5;", "Expected ID got ';'"),
            ("5q", "Unknown duration unit 'q'"),
            ("5.1234s", "Too many digits for real."),
            ("1234567890123.0s", "Too many digits for real."),
            ("1234567890123456s", "Too many digits for integer."),
        ] {
            let fault = duration(&mut stream(text)).expect_err(text);
            assert_eq!(fault.problem, problem, "{text}");
        }
    }

    #[test]
    fn whole_numbers_wrap_at_32_bits() {
        assert_eq!(whole(&mut stream("4294967298")), Ok(2));
        assert_eq!(whole(&mut stream("4294967295")), Ok(u32::MAX));
        assert_eq!(whole(&mut stream("000000000000009")), Ok(9));
        let fault = whole(&mut stream("1234567890123456")).expect_err("too long");
        assert_eq!(fault.problem, "Too many digits for integer.");
        let fault = whole(&mut stream("-1")).expect_err("a sign");
        assert_eq!(fault.problem, "Expected CNUM got '-'");
    }
}
