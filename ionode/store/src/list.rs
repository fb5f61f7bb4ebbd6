//! Pages of keys with a prefix, as S3 lists them. A pure function over the index.
//!
//! The one rule: the next page begins exactly behind the last thing of this one, whatever was written in between.

use stager_core::error::ApiError;

use crate::index::{Index, Stat};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listed {
    Key(Vec<u8>, Stat),
    /// All keys that begin with this: prefix, and on to the delimiter.
    Prefix(Vec<u8>),
}

impl Listed {
    pub fn name(&self) -> &[u8] {
        match self {
            Self::Key(key, _) => key,
            Self::Prefix(prefix) => prefix,
        }
    }
}

/// In the order of their bytes. `next`: give it as `after` for the following page; `None` at the end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    pub listed: Vec<Listed>,
    pub next: Option<Vec<u8>>,
}

/// What comes behind `after` (empty: from the beginning), at most `limit` of it. `after` may be a key or a shared prefix of an earlier page.
pub fn page(index: &Index, table: u8, prefix: &[u8], delimiter: Option<&[u8]>, after: &[u8], limit: usize) -> Result<Page, ApiError> {
    let mut page = Page::default();
    let mut start = first(prefix, delimiter, after);
    'seek: while let Some(from) = start.take() {
        for found in index.scan(table, &from) {
            let (key, stat) = found?;
            if !key.starts_with(prefix) {
                break 'seek;
            }
            if page.listed.len() == limit {
                page.next = page.listed.last().map(|last| last.name().to_vec());
                break 'seek;
            }
            match shared(&key, prefix, delimiter) {
                Some(common) => {
                    start = behind_all(&common);
                    page.listed.push(Listed::Prefix(common));
                    continue 'seek;
                }
                None => page.listed.push(Listed::Key(key, stat)),
            }
        }
    }
    Ok(page)
}

fn first(prefix: &[u8], delimiter: Option<&[u8]>, after: &[u8]) -> Option<Vec<u8>> {
    if after < prefix {
        return Some(prefix.to_vec());
    }
    if shared(after, prefix, delimiter).is_some_and(|common| common == after) {
        return behind_all(after);
    }
    // The smallest name that is larger than `after`.
    if after.is_empty() {
        return Some(Vec::new());
    }
    let mut next = after.to_vec();
    next.push(0);
    Some(next)
}

fn shared(key: &[u8], prefix: &[u8], delimiter: Option<&[u8]>) -> Option<Vec<u8>> {
    let delimiter = delimiter.filter(|delimiter| !delimiter.is_empty())?;
    let rest = key.strip_prefix(prefix)?;
    let at = rest.windows(delimiter.len()).position(|window| window == delimiter)?;
    Some(key[..prefix.len() + at + delimiter.len()].to_vec())
}

/// The smallest name larger than all that begin with `prefix`; `None` where there can be none.
fn behind_all(prefix: &[u8]) -> Option<Vec<u8>> {
    let mut next = prefix.to_vec();
    while let Some(last) = next.pop() {
        if last < 0xff {
            next.push(last + 1);
            return Some(next);
        }
    }
    None
}
