//! Keys that whoever starts the node issues to owners, without telling the node of each: the secret of a key follows from its id.
//!
//! The one rule: what a key may do stands in its id, and only who has the issuer's secret can say the secret that belongs to an id.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use base64::Engine;
use hmac::{Hmac, KeyInit, Mac};
use stager_objects::Owner;

/// Of what is authenticated, so that the issuer's secret can never be made to say something else.
const PURPOSE: &str = "stager-s3-key-1";

/// An id, `OWNER.r.EXPIRES` or `OWNER.w.EXPIRES`, of which nothing is proved yet. `EXPIRES` is in seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issued {
    pub owner: Owner,
    pub may_write: bool,
    expires_s: u64,
}

impl Issued {
    pub fn parse(id: &str) -> Option<Self> {
        let [owner, right, expires] = id.split('.').collect::<Vec<_>>().try_into().ok()?;
        let may_write = match right {
            "r" => false,
            "w" => true,
            _ => return None,
        };
        if expires.is_empty() || !expires.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        Some(Self { owner: Owner::named(owner)?, may_write, expires_s: expires.parse().ok()? })
    }

    pub fn is_over(&self) -> bool {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() >= self.expires_s
    }
}

pub fn secret_of(issuer_secret: &str, id: &str) -> String {
    let mut code = Hmac::<sha2_011::Sha256>::new_from_slice(issuer_secret.as_bytes()).expect("any length is a key");
    code.update(format!("{PURPOSE}\n{id}").as_bytes());
    URL_SAFE_NO_PAD.encode(code.finalize().into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_say_who_what_and_until_when() {
        let issued = Issued::parse("alice-2.w.4000000000").unwrap();
        assert_eq!((issued.owner.clone(), issued.may_write, issued.is_over()), (Owner::named("alice-2").unwrap(), true, false));
        assert!(!Issued::parse("a.r.4000000000").unwrap().may_write && Issued::parse("a.r.1700000000").unwrap().is_over());
        for wrong in [
            "",
            "a",
            "a.w",
            ".w.4000000000",
            "a.x.4000000000",
            "a.w.",
            "a.w.-1",
            "a.w.+4",
            "a.w.4000000000.x",
            "A.w.1",
            "a/b.w.1",
            "a.w.1e9",
        ] {
            assert_eq!(Issued::parse(wrong), None, "{wrong:?}");
        }
    }

    /// stager/adapters/storage_keys.py has the same one.
    #[test]
    fn a_secret_is_what_the_other_side_says_it_is() {
        assert_eq!(secret_of("0123456789abcdef", "alice.w.4000000000"), "9i9W3MIawSP2ro-0sE0ppfe3uSo-Wn2KGqSWAqh82UE");
    }
}
