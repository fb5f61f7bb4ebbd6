//! Tickets: what an attempt on another host shows instead of a token. Knows secrets, not what they allow.
//!
//! The one rule: a ticket is made again, never kept: of the node's own token, the attempt and a random number of its opening.

use stager_core::error::{ApiError, Code};
use stager_core::ids::check_id;

const SHOWN: &str = "ticket:";
const TICKETS: &str = "stager 2026-11 tickets of attempts";
const REQUESTS: &str = "stager 2026-11 requests of attempts";

fn secret(token: &str, attempt_id: &str, nonce: &str) -> blake3::Hash {
    blake3::keyed_hash(&blake3::derive_key(TICKETS, token.as_bytes()), format!("{nonce}/{attempt_id}").as_bytes())
}

pub fn ticket(token: &str, attempt_id: &str, nonce: &str) -> String {
    format!("{SHOWN}{attempt_id}:{}", secret(token, attempt_id, nonce).to_hex())
}

/// What tells the same request from another one. A brief may hold what can be guessed, so its plain hash would be no secret.
pub fn digest_of_request(token: &str, request: &[u8]) -> String {
    blake3::keyed_hash(&blake3::derive_key(REQUESTS, token.as_bytes()), request).to_hex().to_string()
}

/// The attempt that a ticket names, and its secret; `None`: it is no ticket.
pub fn parsed(shown: &[u8]) -> Option<Result<(&str, blake3::Hash), ApiError>> {
    let text = std::str::from_utf8(shown).ok()?.strip_prefix(SHOWN)?;
    let whole = text.split_once(':').filter(|(id, _)| check_id("attempt id", id).is_ok());
    let whole = whole.and_then(|(id, hex)| Some((id, blake3::Hash::from_hex(hex).ok()?)));
    Some(whole.ok_or_else(|| wrong("ticket")))
}

/// In constant time.
pub fn is_of(found: blake3::Hash, token: &str, attempt_id: &str, nonce: &str) -> bool {
    found == secret(token, attempt_id, nonce)
}

pub fn wrong(subject: &str) -> ApiError {
    ApiError::new(Code::TokenWrong, subject, "the ticket is not one of this node's; the attempt has to be opened here by the scheduler")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_of_one_attempt_one_opening_and_one_node() {
        let made = ticket("token", "a.1", "n1");
        let (id, found) = parsed(made.as_bytes()).unwrap().unwrap();
        assert_eq!((id, is_of(found, "token", "a.1", "n1")), ("a.1", true));
        for (token, attempt, nonce) in [("other", "a.1", "n1"), ("token", "a.2", "n1"), ("token", "a.1", "n2")] {
            assert!(!is_of(found, token, attempt, nonce));
        }
        assert!(parsed(b"0123456789abcdef").is_none());
        for bad in ["ticket:", "ticket:a", "ticket:a:", "ticket:a:xyz", "ticket:../a:00", "ticket:a:b:c"] {
            assert!(parsed(bad.as_bytes()).unwrap().is_err(), "{bad}");
        }
    }
}
