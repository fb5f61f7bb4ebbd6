//! Checksums computed by the server's own shell, where there is one. Knows one constant command, and how it is fed and read.
//!
//! The one rule: a file name never meets the shell. It goes in on standard input, ended by NUL, so no character in it can mean anything.
//!
//! An account's start files may take long, and each file's checksum is a round trip. So the command is started once for a connection and
//! works on many names at a time: all that came while it worked on those before.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use russh::client::{Handle, Msg};
use russh::{Channel, ChannelMsg};
use tokio::sync::{oneshot, Notify};

use super::link::{Client, Link};

/// One file's, to the end of the input.
const ONE: &str = "xargs -0 sha256sum --";
/// So many names at a time, as they come.
const MANY: &str = "xargs -0 -n 64 sha256sum --";
const NAMES: usize = 64;
/// Below what any `xargs` takes for one command: it would begin early, and wait for more.
const NAMES_BYTES: usize = 16 << 10;
/// Makes a batch full: it is there on every system that has the command, costs nothing, and its last line says that the batch is done.
const FILLER: &str = "/dev/null";
/// A file that is larger takes so long that others should not wait behind it.
const SMALL_BYTES: u64 = 8 << 20;
const ANSWER_BYTES_MAX: usize = 64 * 1024;
const LINE_BYTES_MAX: usize = 2 * NAMES_BYTES + 80;
const PATIENCE_S: u64 = 30;
const SLOWEST_BYTES_PER_S: u64 = 20 << 20;
/// No process of ours stays at the origin for longer when there is nothing to do.
const IDLE: Duration = Duration::from_secs(20);

type Sum = [u8; 32];

/// None: no shell, no such command, or another view of the file system (chroot). Only equality with what is expected proves anything.
pub async fn sha256(link: &Link, path: &str, size_bytes: u64) -> Option<Sum> {
    if size_bytes <= SMALL_BYTES && path.len() < NAMES_BYTES {
        return link.sums.of(path, size_bytes).await;
    }
    let _permit = link.commands.acquire().await.ok()?;
    let answer = tokio::time::timeout(patience(size_bytes), run(link, path)).await.ok()??;
    parsed(&answer)
}

fn patience(size_bytes: u64) -> Duration {
    Duration::from_secs(PATIENCE_S + size_bytes / SLOWEST_BYTES_PER_S)
}

async fn run(link: &Link, path: &str) -> Option<Vec<u8>> {
    let mut channel = started(&link.ssh, ONE).await?;
    channel.data_bytes(ended_by_nul(path)).await.ok()?;
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

async fn started(ssh: &Handle<Client>, command: &str) -> Option<Channel<Msg>> {
    let channel = ssh.channel_open_session().await.ok()?;
    channel.exec(true, command).await.ok()?;
    Some(channel)
}

fn ended_by_nul(path: &str) -> Vec<u8> {
    let mut name = path.as_bytes().to_vec();
    name.push(0);
    name
}

/// The command of one connection that takes many names: started when the first comes, ended when none came for a while.
pub struct Sums {
    ssh: Arc<Handle<Client>>,
    desk: Arc<Desk>,
}

#[derive(Default)]
struct Desk {
    state: Mutex<State>,
    came: Notify,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Asked>,
    is_running: bool,
    /// It gave no answer, or a wrong one: it is not asked again.
    has_failed: bool,
}

struct Asked {
    path: String,
    size_bytes: u64,
    answer: oneshot::Sender<Option<Sum>>,
}

impl Desk {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics")
    }

    /// As many as go into one command, those that nobody waits for any more left out.
    fn batch(&self) -> Vec<Asked> {
        let (mut state, mut found, mut bytes) = (self.state(), Vec::new(), 0);
        // One place is left for the filler that ends the batch.
        while found.len() < NAMES - 1 {
            let Some(next) = state.waiting.front() else { break };
            bytes += next.path.len() + 1;
            if bytes > NAMES_BYTES && !found.is_empty() {
                break;
            }
            found.extend(state.waiting.pop_front().filter(|asked| !asked.answer.is_closed()));
        }
        found
    }

    /// Whether there is nothing to do, so that it ends.
    fn ends_idle(&self) -> bool {
        let mut state = self.state();
        state.is_running = !state.waiting.is_empty();
        !state.is_running
    }

    /// Whoever waits is told None, as its sender is dropped.
    fn fail(&self) {
        let mut state = self.state();
        (state.is_running, state.has_failed) = (false, true);
        state.waiting.clear();
    }
}

impl Sums {
    pub fn new(ssh: Arc<Handle<Client>>) -> Self {
        Self { ssh, desk: Arc::default() }
    }

    /// So that it runs when the first checksum is wanted.
    pub fn start(&self) {
        let mut state = self.desk.state();
        if !state.has_failed {
            self.start_if_ended(&mut state);
        }
    }

    fn start_if_ended(&self, state: &mut State) {
        if !std::mem::replace(&mut state.is_running, true) {
            tokio::spawn(work(self.ssh.clone(), self.desk.clone()));
        }
    }

    async fn of(&self, path: &str, size_bytes: u64) -> Option<Sum> {
        let (answer, come) = oneshot::channel();
        {
            let mut state = self.desk.state();
            if state.has_failed {
                return None;
            }
            state.waiting.push_back(Asked { path: path.to_owned(), size_bytes, answer });
            self.start_if_ended(&mut state);
        }
        self.desk.came.notify_one();
        come.await.ok()?
    }
}

async fn work(ssh: Arc<Handle<Client>>, desk: Arc<Desk>) {
    let opened = tokio::time::timeout(patience(0), started(&ssh, MANY)).await;
    let Some(mut channel) = opened.ok().flatten() else { return desk.fail() };
    let mut said = Said::default();
    loop {
        let batch = desk.batch();
        if batch.is_empty() {
            if tokio::time::timeout(IDLE, desk.came.notified()).await.is_err() && desk.ends_idle() {
                channel.eof().await.ok();
                return;
            }
            continue;
        }
        let size_bytes = batch.iter().map(|asked| asked.size_bytes).sum();
        let found = tokio::time::timeout(patience(size_bytes), sums_of(&mut channel, &mut said, &batch)).await;
        let Some(mut found) = found.ok().flatten() else { return desk.fail() };
        for asked in batch {
            // Nobody may wait for it any more.
            let _ = asked.answer.send(found.remove(&asked.path));
        }
    }
}

/// What the command said of one full batch, by name; None where it ended, or says what it cannot have been asked for.
async fn sums_of(channel: &mut Channel<Msg>, said: &mut Said, batch: &[Asked]) -> Option<HashMap<String, Sum>> {
    let mut names: Vec<u8> = batch.iter().flat_map(|asked| ended_by_nul(&asked.path)).collect();
    let mut fillers = NAMES - batch.len();
    for _ in 0..fillers {
        names.extend(ended_by_nul(FILLER));
    }
    channel.data_bytes(names).await.ok()?;
    let mut found = HashMap::new();
    while fillers > 0 {
        match channel.wait().await? {
            ChannelMsg::Data { data } => said.rest.extend_from_slice(&data),
            ChannelMsg::Failure | ChannelMsg::Eof | ChannelMsg::Close | ChannelMsg::ExitStatus { .. } => return None,
            _ => {}
        }
        while let Some(line) = said.line() {
            match named(&line)? {
                (_, name) if name == FILLER => fillers = fillers.checked_sub(1)?,
                (sum, name) => drop(found.insert(name, sum)),
            }
        }
        if said.rest.len() > LINE_BYTES_MAX {
            return None;
        }
    }
    Some(found)
}

/// What came and is no whole line yet.
#[derive(Default)]
struct Said {
    rest: Vec<u8>,
}

impl Said {
    fn line(&mut self) -> Option<Vec<u8>> {
        let end = self.rest.iter().position(|byte| *byte == b'\n')?;
        let line = self.rest.drain(..=end).collect::<Vec<_>>();
        Some(line[..end].to_vec())
    }
}

/// `SUM  NAME`, or `\SUM  NAME` where the name is escaped; a star says that it was read as it is.
fn named(line: &[u8]) -> Option<(Sum, String)> {
    let sum = parsed(line)?;
    let (is_escaped, line) = line.strip_prefix(b"\\").map_or((false, line), |rest| (true, rest));
    let name = line.get(64..)?.strip_prefix(b" ")?;
    let name = name.strip_prefix(b" ").or_else(|| name.strip_prefix(b"*"))?;
    let name = String::from_utf8(name.to_vec()).ok()?;
    Some((sum, if is_escaped { unescaped(&name)? } else { name }))
}

fn unescaped(name: &str) -> Option<String> {
    let (mut found, mut characters) = (String::new(), name.chars());
    while let Some(character) = characters.next() {
        found.push(match character {
            '\\' => match characters.next()? {
                'n' => '\n',
                'r' => '\r',
                '\\' => '\\',
                _ => return None,
            },
            other => other,
        });
    }
    Some(found)
}

/// The first 64 hex digits; sha256sum puts a backslash before them when it had to escape the name.
fn parsed(answer: &[u8]) -> Option<Sum> {
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

    const SUM: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn only_a_checksum_is_taken_for_one() {
        assert_eq!(parsed(format!("{SUM}  name\n").as_bytes()).map(|sum| sum[0]), Some(0xe3));
        assert_eq!(parsed(format!("\\{SUM}  odd\\nname\n").as_bytes()).map(|sum| sum[31]), Some(0x55));
        for wrong in ["", "sha256sum: name: No such file", &SUM[..63], &"+".repeat(64)] {
            assert_eq!(parsed(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn a_line_says_whose_checksum_it_is() {
        let name = |line: &str| named(line.as_bytes()).map(|(_, name)| name);
        assert_eq!(name(&format!("{SUM}  a b")), Some("a b".to_owned()));
        assert_eq!(name(&format!("{SUM} *a\\n")), Some("a\\n".to_owned()), "nothing is escaped where nothing says so");
        assert_eq!(name(&format!("\\{SUM}  a\\nb\\\\c")), Some("a\nb\\c".to_owned()));
        for wrong in [SUM.to_owned(), format!("{SUM} name"), format!("\\{SUM}  a\\q"), format!("welcome {SUM}  a")] {
            assert_eq!(name(&wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_batch_is_bounded_and_leaves_out_who_has_gone() {
        let desk = Desk::default();
        let mut waiting = Vec::new();
        let mut ask = |path: String| {
            let (answer, come) = oneshot::channel();
            desk.state().waiting.push_back(Asked { path, size_bytes: 1, answer });
            waiting.push(come);
        };
        (0..100).for_each(|n| ask(format!("{n}")));
        (0..9).for_each(|n| ask(format!("{n}").repeat(4000)));
        drop(waiting.drain(..10));
        let sizes: Vec<usize> = std::iter::from_fn(|| Some(desk.batch().len()).filter(|count| *count > 0)).collect();
        assert_eq!(sizes, [63, 31, 4, 1]);
    }
}
