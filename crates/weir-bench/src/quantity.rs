//! Quantities as people write them: `10M` rows, `512M` or `2GiB` of memory.

/// Parses a count: digits with an optional decimal part and `k`, `M` or `G` (powers of 1000).
///
/// # Errors
/// What is wrong with the text.
pub fn parse_count(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text)?;
    let factor = match unit {
        "" => 1.0,
        "k" | "K" => 1e3,
        "m" | "M" => 1e6,
        "g" | "G" => 1e9,
        _ => return Err(format!("`{text}`: unknown unit `{unit}`; use k, M or G")),
    };
    whole(text, number * factor)
}

/// Parses a size in bytes: digits with an optional decimal part and `K`, `M`, `G` or `T` (powers of
/// 1024), optionally followed by `B` or `iB`.
///
/// # Errors
/// What is wrong with the text.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text)?;
    let shift = match unit.trim_end_matches("iB").trim_end_matches('B') {
        "" => 0,
        "k" | "K" => 10,
        "m" | "M" => 20,
        "g" | "G" => 30,
        "t" | "T" => 40,
        _ => return Err(format!("`{text}`: unknown unit `{unit}`; use K, M, G or T")),
    };
    whole(text, number * (1u64 << shift) as f64)
}

/// A count with the largest unit that keeps it exact, as [`parse_count`] reads it.
pub fn format_count(count: u64) -> String {
    for (unit, factor) in [("G", 1_000_000_000), ("M", 1_000_000), ("k", 1_000)] {
        if count >= factor && count.is_multiple_of(factor) {
            return format!("{}{unit}", count / factor);
        }
    }
    count.to_string()
}

/// A size in bytes with the largest unit that keeps it exact, as [`parse_bytes`] reads it.
pub fn format_bytes(bytes: u64) -> String {
    for (unit, shift) in [("T", 40), ("G", 30), ("M", 20), ("K", 10)] {
        if bytes >> shift > 0 && bytes.trailing_zeros() >= shift {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    bytes.to_string()
}

/// So many of something, in words: `1 client`, `4 clients`.
pub fn counted(number: impl Into<u64>, what: &str) -> String {
    let number = number.into();
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

fn split(text: &str) -> Result<(f64, &str), String> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number =
        text[..end].parse().map_err(|_| format!("`{text}` is not a number such as 500k or 2M"))?;
    Ok((number, text[end..].trim()))
}

fn whole(text: &str, value: f64) -> Result<u64, String> {
    if !value.is_finite() || value >= 1e18 {
        return Err(format!("`{text}` is too large"));
    }
    Ok(value.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts() {
        assert_eq!(parse_count("10M"), Ok(10_000_000));
        assert_eq!(parse_count("2.5k"), Ok(2_500));
        assert_eq!(parse_count("7"), Ok(7));
        assert!(parse_count("").is_err());
        assert!(parse_count("-1").is_err());
        assert!(parse_count("1x").is_err());
        assert!(parse_count("9999999999999999999G").is_err());
    }

    #[test]
    fn sizes() {
        assert_eq!(parse_bytes("1G"), Ok(1 << 30));
        assert_eq!(parse_bytes("1.5GiB"), Ok(3 << 29));
        assert_eq!(parse_bytes("64MB"), Ok(64 << 20));
        assert_eq!(parse_bytes("4096"), Ok(4096));
        assert!(parse_bytes("1Q").is_err());
    }

    #[test]
    fn one_is_not_many() {
        assert_eq!(
            (counted(1u32, "client"), counted(2u32, "client")),
            ("1 client".into(), "2 clients".into())
        );
        assert_eq!(counted(0u32, "thread"), "0 threads");
    }

    #[test]
    fn formats_read_back() {
        for count in [0, 1, 999, 1000, 1500, 2_000_000, 3_000_000_000] {
            assert_eq!(parse_count(&format_count(count)), Ok(count));
        }
        for bytes in [0, 1, 1 << 20, (1 << 30) + (1 << 20), 5 << 40] {
            assert_eq!(parse_bytes(&format_bytes(bytes)), Ok(bytes));
        }
    }
}
