//! The Range header of a request for content. Pure.
//!
//! The one rule: what is answered with lies inside the content.

#[derive(Debug, PartialEq)]
pub enum Asked {
    /// From the first byte to before the last.
    Part(u64, u64),
    Unsatisfiable,
    Ignored,
}

/// One range; several or unreadable ones are ignored, as HTTP allows.
pub fn parse(text: &str, size_bytes: u64) -> Asked {
    let Some((first, last)) = text.strip_prefix("bytes=").filter(|text| !text.contains(',')).and_then(|text| text.trim().split_once('-'))
    else {
        return Asked::Ignored;
    };
    let number = |text: &str| if text.is_empty() { Some(None) } else { text.parse::<u64>().ok().map(Some) };
    match (number(first), number(last)) {
        (Some(Some(first)), Some(last)) if last.is_none_or(|last| last >= first) => match first < size_bytes {
            true => Asked::Part(first, last.map_or(size_bytes, |last| last.saturating_add(1).min(size_bytes))),
            false => Asked::Unsatisfiable,
        },
        (Some(None), Some(Some(0))) => Asked::Unsatisfiable,
        (Some(None), Some(Some(_))) if size_bytes == 0 => Asked::Unsatisfiable,
        (Some(None), Some(Some(suffix))) => Asked::Part(size_bytes.saturating_sub(suffix), size_bytes),
        _ => Asked::Ignored,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_as_http_has_them() {
        assert_eq!(parse("bytes=0-9", 100), Asked::Part(0, 10));
        assert_eq!(parse("bytes=90-", 100), Asked::Part(90, 100));
        assert_eq!(parse("bytes=90-1000", 100), Asked::Part(90, 100));
        assert_eq!(parse("bytes=-10", 100), Asked::Part(90, 100));
        assert_eq!(parse("bytes=-1000", 100), Asked::Part(0, 100));
        for bad in ["bytes=100-", "bytes=-0"] {
            assert_eq!(parse(bad, 100), Asked::Unsatisfiable, "{bad}");
        }
        for odd in ["bytes=9-0", "bytes=a-b", "bytes=0-1,3-4", "lines=1-2", "bytes=-"] {
            assert_eq!(parse(odd, 100), Asked::Ignored, "{odd}");
        }
        assert_eq!(parse("bytes=-5", 0), Asked::Unsatisfiable);
        assert_eq!(parse("bytes=18446744073709551615-18446744073709551615", 100), Asked::Unsatisfiable);
    }
}
