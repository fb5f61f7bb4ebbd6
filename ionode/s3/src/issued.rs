//! Keys that whoever starts the node issues to owners, without telling the node of each: the secret of a key follows from its id.
//!
//! The one rule: what a key may do stands in its id, and only who has the issuer's secret can say the secret that belongs to an id. A key
//! holds as long as the token that it was given for: of each there is an empty file beside the issuer's secret, and none once it is revoked.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use base64::Engine;
use hmac::{Hmac, KeyInit, Mac};
use stager_objects::Owner;

/// Of what is authenticated, so that the issuer's secret can never be made to say something else.
const PURPOSE: &str = "stager-s3-key-1";

const TOKEN_CHARACTERS: usize = 8;

/// An id, `OWNER.r.EXPIRES.TOKEN` or `OWNER.w.EXPIRES.TOKEN`, of which nothing is proved yet. `EXPIRES` is in seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issued {
    pub owner: Owner,
    pub may_write: bool,
    /// The id of a token: a name of a file, too.
    token: String,
    expires_s: u64,
}

impl Issued {
    pub fn parse(id: &str) -> Option<Self> {
        let [owner, right, expires, token] = id.split('.').collect::<Vec<_>>().try_into().ok()?;
        let may_write = match right {
            "r" => false,
            "w" => true,
            _ => return None,
        };
        if expires.is_empty() || !expires.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let is_token = token.len() == TOKEN_CHARACTERS && token.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
        if !is_token {
            return None;
        }
        Some(Self { owner: Owner::named(owner)?, may_write, token: token.to_owned(), expires_s: expires.parse().ok()? })
    }

    /// Whether the token that it was given for is among the good ones, which lie in this directory.
    pub fn is_held_by(&self, tokens: &Path) -> bool {
        tokens.join(&self.token).exists()
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
        let issued = Issued::parse("alice-2.w.4000000000.0123abcd").unwrap();
        assert_eq!((issued.owner.clone(), issued.may_write, issued.is_over()), (Owner::named("alice-2").unwrap(), true, false));
        assert!(
            !Issued::parse("a.r.4000000000.0123abcd").unwrap().may_write && Issued::parse("a.r.1700000000.0123abcd").unwrap().is_over()
        );
        for wrong in [
            "",
            "a",
            "a.w",
            "a.w.4000000000",
            ".w.4000000000.0123abcd",
            "a.x.4000000000.0123abcd",
            "a.w..0123abcd",
            "a.w.-1.0123abcd",
            "a.w.+4.0123abcd",
            "a.w.4000000000.",
            "a.w.4000000000.0123abc",
            "a.w.4000000000.0123ABCD",
            "a.w.4000000000./../tmp1",
            "a.w.4000000000.0123abcd.x",
            "A.w.1.0123abcd",
            "a/b.w.1.0123abcd",
            "a.w.1e9.0123abcd",
        ] {
            assert_eq!(Issued::parse(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_key_holds_as_long_as_its_token_is_there() {
        let tokens = tempfile::tempdir().unwrap();
        let issued = Issued::parse("alice.w.4000000000.0123abcd").unwrap();
        assert!(!issued.is_held_by(tokens.path()));
        std::fs::write(tokens.path().join("0123abcd"), "").unwrap();
        assert!(issued.is_held_by(tokens.path()));
    }

    /// stager/adapters/storage_keys.py has the same one.
    #[test]
    fn a_secret_is_what_the_other_side_says_it_is() {
        assert_eq!(secret_of("0123456789abcdef", "alice.w.4000000000.0123abcd"), "fDaVkgPbKERuDNKFCiXm3sxuNT6vycwsVJUTd_9iPgc");
    }
}
