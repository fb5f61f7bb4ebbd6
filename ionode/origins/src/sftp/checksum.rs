//! A checksum computed by the server's own shell, where there is one. Knows one constant command.
//!
//! The one rule: a file name never meets the shell. It goes in on standard input, ended by NUL, so no character in it can mean anything.

use std::time::Duration;

use russh::ChannelMsg;

use super::link::Link;

const COMMAND: &str = "xargs -0 sha256sum --";
const ANSWER_BYTES_MAX: usize = 64 * 1024;
const PATIENCE_S: u64 = 30;
const SLOWEST_BYTES_PER_S: u64 = 20 << 20;

/// None: no shell, no such command, or another view of the file system (chroot). Only equality with what is expected proves anything.
pub async fn sha256(link: &Link, path: &str, size_bytes: u64) -> Option<[u8; 32]> {
    let _permit = link.commands.acquire().await.ok()?;
    let patience = Duration::from_secs(PATIENCE_S + size_bytes / SLOWEST_BYTES_PER_S);
    let answer = tokio::time::timeout(patience, run(link, path)).await.ok()??;
    parsed(&answer)
}

async fn run(link: &Link, path: &str) -> Option<Vec<u8>> {
    let mut channel = link.ssh.channel_open_session().await.ok()?;
    channel.exec(true, COMMAND).await.ok()?;
    let mut name = path.as_bytes().to_vec();
    name.push(0);
    channel.data_bytes(name).await.ok()?;
    channel.eof().await.ok()?;
    let mut answer = Vec::new();
    while let Some(message) = channel.wait().await {
        match message {
            ChannelMsg::Data { data } if answer.len() < ANSWER_BYTES_MAX => answer.extend_from_slice(&data),
            ChannelMsg::Failure => return None,
            _ => {}
        }
    }
    Some(answer)
}

/// The first 64 hex digits; sha256sum puts a backslash before them when it had to escape the name.
fn parsed(answer: &[u8]) -> Option<[u8; 32]> {
    let digits = answer.strip_prefix(b"\\").unwrap_or(answer).get(..64)?;
    let mut sum = [0; 32];
    for (byte, pair) in sum.iter_mut().zip(digits.chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_checksum_is_taken_for_one() {
        let sum = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(parsed(format!("{sum}  name\n").as_bytes()).map(|sum| sum[0]), Some(0xe3));
        assert_eq!(parsed(format!("\\{sum}  odd\\nname\n").as_bytes()).map(|sum| sum[31]), Some(0x55));
        for wrong in ["", "sha256sum: name: No such file", &sum[..63], &"+".repeat(64)] {
            assert_eq!(parsed(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
