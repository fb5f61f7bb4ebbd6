//! Tags of objects: in a header that is written like a query, in documents.
//!
//! The one rule: as S3 has them: at most ten, each name once.

use s3s::dto::{Tag, TagSet};
use s3s::{s3_error, S3Result};
use stager_objects::Tags;

use crate::xml::is_writable;

const TAGS_MAX: usize = 10;
const NAME_CHARACTERS_MAX: usize = 128;
const VALUE_CHARACTERS_MAX: usize = 256;

fn checked(mut tags: Tags) -> S3Result<Tags> {
    if tags.len() > TAGS_MAX {
        return Err(s3_error!(InvalidTag, "an object has at most {TAGS_MAX} tags"));
    }
    let fits = |(name, value): &(String, String)| {
        (1..=NAME_CHARACTERS_MAX).contains(&name.chars().count()) && value.chars().count() <= VALUE_CHARACTERS_MAX
    };
    let in_xml = |(name, value): &(String, String)| is_writable(name) && is_writable(value);
    if !tags.iter().all(|tag| fits(tag) && in_xml(tag)) {
        let (name, value) = (NAME_CHARACTERS_MAX, VALUE_CHARACTERS_MAX);
        return Err(s3_error!(
            InvalidTag,
            "a tag has a name of 1 to {name} characters and a value of up to {value}, none of them control characters"
        ));
    }
    tags.sort();
    if tags.windows(2).any(|pair| pair[0].0 == pair[1].0) {
        return Err(s3_error!(InvalidTag, "an object has one tag of a name"));
    }
    Ok(tags)
}

pub fn in_header(text: Option<&str>) -> S3Result<Tags> {
    checked(form_urlencoded::parse(text.unwrap_or_default().as_bytes()).into_owned().collect())
}

pub fn in_document(tags: TagSet) -> S3Result<Tags> {
    checked(tags.into_iter().map(|tag| (tag.key.unwrap_or_default(), tag.value.unwrap_or_default())).collect())
}

pub fn to_document(tags: &Tags) -> TagSet {
    tags.iter().map(|(name, value)| Tag { key: Some(name.clone()), value: Some(value.clone()) }).collect()
}

/// For an answer; `None` where there are none.
pub fn count(tags: &Tags) -> Option<i32> {
    (!tags.is_empty()).then_some(tags.len() as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_tags_each_name_once() {
        assert_eq!(in_header(None).unwrap(), Tags::new());
        assert_eq!(in_header(Some("b=2&a=%20x")).unwrap(), [("a".into(), " x".into()), ("b".into(), "2".into())]);
        assert!(in_header(Some("a=1&a=2")).is_err() && in_header(Some("=2")).is_err() && in_header(Some("a=%01")).is_err());
        let many = |count: usize| (0..count).map(|number| format!("t{number}=x")).collect::<Vec<_>>().join("&");
        assert!(in_header(Some(&many(10))).is_ok() && in_header(Some(&many(11))).is_err());
        assert!(in_header(Some(&format!("a={}", "x".repeat(257)))).is_err());
    }
}
