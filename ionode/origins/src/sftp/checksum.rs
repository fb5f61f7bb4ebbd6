//! Checksums computed by the server's own shell, where there is one. Knows one constant command, and how it is fed and read.
//!
//! The one rule: a file name never meets the shell. It goes in on standard input, ended by NUL, so no character in it can mean anything.
//!
//! An account's start files may take long, and each file's checksum is a round trip. So the command is started once for a connection and
//! works on many names at a time. Batches go out while those before are worked on: it reads them one after another.
//!
//! Answers are taken while a question is sent: russh holds up all of a connection, its requests for files too, for one channel whose
//! messages nobody takes, and `sha256sum` sends each line by itself.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures::future::{Fuse, FusedFuture};
use futures::FutureExt;
use russh::client::{Handle, Msg};
use russh::{Channel, ChannelMsg};
use tokio::sync::{oneshot, Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::host_key::Client;
use super::range_sums::RangeSums;
use crate::local::Source;

/// One file's, to the end of the input.
const ONE: &str = "xargs -0 sha256sum --";
/// So many names at a time, as they come.
const MANY: &str = "xargs -0 -n 64 sha256sum --";
const NAMES: usize = 64;
/// So many batches are under way, so that the next is there when one is done.
const BATCHES_AT_ONCE: usize = 4;
/// Below what any `xargs` takes for one command: it would begin early, and wait for more.
const NAMES_BYTES: usize = 16 << 10;
/// Makes a batch full: it is there on every system that has the command, costs nothing, and its last line says that the batch is done.
const FILLER: &str = "/dev/null";
/// A file that is larger takes so long that others should not wait behind it.
const SMALL_BYTES: u64 = 8 << 20;
const ANSWER_BYTES_MAX: usize = 64 * 1024;
pub(super) const LINE_BYTES_MAX: usize = 2 * NAMES_BYTES + 80;
const TIMEOUT_S: u64 = 30;
const SLOWEST_BYTES_PER_S: u64 = 20 << 20;
/// No process of ours stays at the origin for longer when there is nothing to do.
const IDLE: Duration = Duration::from_secs(20);

pub type Sum = [u8; 32];

pub(super) fn timeout(size_bytes: u64) -> Duration {
    Duration::from_secs(TIMEOUT_S + size_bytes / SLOWEST_BYTES_PER_S)
}

/// The server opened none for the command. That says nothing of the shell: so many may be open already.
pub struct NoChannel;

async fn run(ssh: &Handle<Client>, path: &str) -> Result<Option<Vec<u8>>, NoChannel> {
    let channel = ssh.channel_open_session().await.map_err(|_| NoChannel)?;
    if channel.exec(true, ONE).await.is_err() {
        return Ok(None);
    }
    let (mut answers, questions) = channel.split();
    let asking = async {
        questions.data_bytes(ended_by_nul(path)).await.ok()?;
        questions.eof().await.ok()
    };
    let answering = async {
        let mut answer = Vec::new();
        while let Some(message) = answers.wait().await {
            match message {
                ChannelMsg::Data { data } if answer.len() < ANSWER_BYTES_MAX => answer.extend_from_slice(&data),
                ChannelMsg::Failure => return None,
                _ => {}
            }
        }
        Some(answer)
    };
    let (asked, answer) = futures::join!(asking, answering);
    Ok(asked.and(answer))
}

pub(super) async fn started(channel: Channel<Msg>, command: &str) -> Option<Channel<Msg>> {
    channel.exec(true, command).await.ok()?;
    Some(channel)
}

pub(super) fn ended_by_nul(path: &str) -> Vec<u8> {
    let mut name = path.as_bytes().to_vec();
    name.push(0);
    name
}

/// The checksums of one connection. The command that takes many names is started when the first comes, and ended when none came for a while.
pub struct Sums {
    ssh: Arc<Handle<Client>>,
    /// Commands at once that take one name; sshd's MaxSessions is ten a connection.
    commands: Semaphore,
    /// Such commands at once that are there for as long as a large file is written.
    ranged: Arc<Semaphore>,
    queue: Arc<Queue>,
}

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    came: Notify,
    /// Told when its channel is open, or was not to be had.
    opened: Notify,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Asked>,
    is_running: bool,
    is_opening: bool,
    /// It gave no answer, or a wrong one: it is not asked again.
    has_failed: bool,
}

struct Asked {
    path: String,
    size_bytes: u64,
    answer: oneshot::Sender<Option<Sum>>,
}

impl Queue {
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

    fn has_opened(&self) {
        self.state().is_opening = false;
        self.opened.notify_waiters();
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
        Self { ssh, commands: Semaphore::new(4), ranged: Arc::new(Semaphore::new(2)), queue: Arc::default() }
    }

    /// None: no shell, no such command, or another view of the file system (chroot). Only equality with what is expected proves anything.
    pub async fn sha256(&self, path: &str, size_bytes: u64) -> Result<Option<Sum>, NoChannel> {
        if size_bytes <= SMALL_BYTES && path.len() < NAMES_BYTES {
            return Ok(self.among_others(path, size_bytes).await);
        }
        let _permit = self.commands.acquire().await.expect("never closed");
        match tokio::time::timeout(timeout(size_bytes), run(&self.ssh, path)).await {
            Ok(answer) => Ok(answer?.and_then(|answer| parsed(&answer))),
            Err(_) => Ok(None),
        }
    }

    /// Whether there is a shell that knows the command. None: no answer in time, which on a line that is full says nothing of the shell.
    pub async fn are_told(&self) -> Option<bool> {
        let _permit = self.commands.acquire().await.expect("never closed");
        let answer = tokio::time::timeout(timeout(0), run(&self.ssh, FILLER)).await.ok()?.ok()?;
        Some(answer.and_then(|answer| parsed(&answer)).is_some())
    }

    /// None: others have all of them.
    pub fn place_for_ranges(&self) -> Option<OwnedSemaphorePermit> {
        self.ranged.clone().try_acquire_owned().ok()
    }

    /// Of the ranges of a large file, while it is written.
    pub fn of_ranges(&self, place: OwnedSemaphorePermit, remote: &str, source: &Source, size_bytes: u64) -> RangeSums {
        RangeSums::begin(self.ssh.clone(), place, remote, source, size_bytes)
    }

    /// So that it runs when the first checksum is wanted.
    pub fn start(&self) {
        let mut state = self.queue.state();
        if !state.has_failed {
            self.start_if_ended(&mut state);
        }
    }

    fn start_if_ended(&self, state: &mut State) {
        if !std::mem::replace(&mut state.is_running, true) {
            state.is_opening = true;
            tokio::spawn(work(self.ssh.clone(), self.queue.clone()));
        }
    }

    /// Not while a channel for it is being opened: where there are few, it comes first.
    pub async fn has_channel(&self) {
        let mut opened = std::pin::pin!(self.queue.opened.notified());
        opened.as_mut().enable();
        if self.queue.state().is_opening {
            opened.await;
        }
    }

    async fn among_others(&self, path: &str, size_bytes: u64) -> Option<Sum> {
        let (answer, come) = oneshot::channel();
        {
            let mut state = self.queue.state();
            if state.has_failed {
                return None;
            }
            state.waiting.push_back(Asked { path: path.to_owned(), size_bytes, answer });
            self.start_if_ended(&mut state);
        }
        self.queue.came.notify_one();
        come.await.ok()?
    }
}

async fn work(ssh: Arc<Handle<Client>>, queue: Arc<Queue>) {
    let opening = async { started(ssh.channel_open_session().await.ok()?, MANY).await };
    let opened = tokio::time::timeout(timeout(0), opening).await;
    queue.has_opened();
    let Some(channel) = opened.ok().flatten() else { return queue.fail() };
    let (mut answers, questions) = channel.split();
    let (mut output, mut under_way, mut sending) = (Output::default(), UnderWay::new(), Fuse::terminated());
    loop {
        let may_ask = sending.is_terminated() && under_way.batches.len() < BATCHES_AT_ONCE;
        let batch = if may_ask { queue.batch() } else { Vec::new() };
        if !batch.is_empty() {
            sending = questions.data_bytes(under_way.add(batch)).boxed().fuse();
            continue;
        }
        let timeout = under_way.since + under_way.timeout();
        tokio::select! {
            sent = &mut sending => if sent.is_err() {
                return queue.fail();
            },
            message = answers.wait() => match message {
                Some(ChannelMsg::Data { data }) if output.takes(&data, &mut under_way) => {}
                None | Some(ChannelMsg::Data { .. } | ChannelMsg::Failure | ChannelMsg::Eof | ChannelMsg::Close | ChannelMsg::ExitStatus { .. }) => {
                    return queue.fail();
                }
                Some(_) => {}
            },
            () = queue.came.notified(), if may_ask => {}
            () = tokio::time::sleep_until(timeout) => {
                if !under_way.batches.is_empty() {
                    return queue.fail();
                }
                if queue.ends_idle() {
                    questions.eof().await.ok();
                    return;
                }
            }
        }
    }
}

/// What the command was asked for and has not answered, in that order.
struct UnderWay {
    batches: VecDeque<Batch>,
    /// When the first of them became the first, or when there was none any more.
    since: Instant,
}

struct Batch {
    asked: HashMap<String, Asked>,
    fillers: usize,
    size_bytes: u64,
}

impl UnderWay {
    fn new() -> Self {
        Self { batches: VecDeque::new(), since: Instant::now() }
    }

    /// The names as they are sent, with what makes the batch full behind them.
    fn add(&mut self, asked: Vec<Asked>) -> Vec<u8> {
        let mut names: Vec<u8> = asked.iter().flat_map(|asked| ended_by_nul(&asked.path)).collect();
        let fillers = NAMES - asked.len();
        for _ in 0..fillers {
            names.extend(ended_by_nul(FILLER));
        }
        let size_bytes = asked.iter().map(|asked| asked.size_bytes).sum();
        if self.batches.is_empty() {
            self.since = Instant::now();
        }
        self.batches.push_back(Batch { asked: asked.into_iter().map(|asked| (asked.path.clone(), asked)).collect(), fillers, size_bytes });
        names
    }

    /// Until something has to come of it; where nothing is asked for, until it ends.
    fn timeout(&self) -> Duration {
        self.batches.front().map_or(IDLE, |batch| timeout(batch.size_bytes))
    }

    /// None: it says what it cannot have been asked for.
    fn answered(&mut self, name: &str, sum: Sum) -> Option<()> {
        let batch = self.batches.front_mut()?;
        if name != FILLER {
            if let Some(asked) = batch.asked.remove(name) {
                // Nobody may wait for it any more.
                let _ = asked.answer.send(Some(sum));
            }
            return Some(());
        }
        batch.fillers -= 1;
        if batch.fillers == 0 {
            // Who is left in it was not said: its sender is dropped, which is an answer too.
            self.batches.pop_front();
            self.since = Instant::now();
        }
        Some(())
    }
}

/// What came and is no whole line yet.
#[derive(Default)]
struct Output {
    rest: Vec<u8>,
}

impl Output {
    /// False: it says what it cannot have been asked for.
    fn takes(&mut self, data: &[u8], under_way: &mut UnderWay) -> bool {
        self.rest.extend_from_slice(data);
        while let Some(line) = line_of(&mut self.rest) {
            if named(&line).and_then(|(sum, name)| under_way.answered(&name, sum)).is_none() {
                return false;
            }
        }
        self.rest.len() <= LINE_BYTES_MAX
    }
}

/// The first whole line of what came, taken off it.
pub(super) fn line_of(rest: &mut Vec<u8>) -> Option<Vec<u8>> {
    let end = rest.iter().position(|byte| *byte == b'\n')?;
    let line = rest.drain(..=end).collect::<Vec<_>>();
    Some(line[..end].to_vec())
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
pub(super) fn parsed(answer: &[u8]) -> Option<Sum> {
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
    fn batches_are_answered_in_order_each_by_its_own_lines() {
        let (mut under_way, mut output) = (UnderWay::new(), Output::default());
        let mut ask = |names: [&str; 2]| {
            let (asked, come): (Vec<_>, Vec<_>) = names
                .iter()
                .map(|name| {
                    let (answer, come) = oneshot::channel();
                    (Asked { path: (*name).to_owned(), size_bytes: 1, answer }, come)
                })
                .unzip();
            let sent = under_way.add(asked);
            assert_eq!(sent.iter().filter(|byte| **byte == 0).count(), NAMES);
            come
        };
        let (mut first, mut second) = (ask(["a", "not said"]), ask(["b", "c"]));
        let lines = |names: &[&str]| names.iter().map(|name| format!("{SUM}  {name}\n")).collect::<String>();
        let filled = |name: &str, fillers: usize| lines(&[name]) + &lines(&[FILLER]).repeat(fillers);
        let whole = filled("a", NAMES - 2) + &filled("b", 0);
        let (begun, rest) = whole.as_bytes().split_at(100);
        assert!(output.takes(begun, &mut under_way) && under_way.batches.len() == 2);
        assert!(output.takes(rest, &mut under_way) && under_way.batches.len() == 1);
        assert!(matches!(first.remove(0).try_recv(), Ok(Some(_))));
        assert!(first.remove(0).try_recv().is_err(), "whoever was left out is told so when the batch is done");
        assert!(matches!(second.remove(0).try_recv(), Ok(Some(_))));
        assert!(!output.takes(b"welcome to the lab, please read the rules before you do anything at all here, thank you\n", &mut under_way));
        assert!(!Output::default().takes(lines(&["d"]).as_bytes(), &mut UnderWay::new()), "nobody asked");
    }

    #[test]
    fn a_batch_is_bounded_and_leaves_out_who_has_gone() {
        let queue = Queue::default();
        let mut waiting = Vec::new();
        let mut ask = |path: String| {
            let (answer, come) = oneshot::channel();
            queue.state().waiting.push_back(Asked { path, size_bytes: 1, answer });
            waiting.push(come);
        };
        (0..100).for_each(|n| ask(format!("{n}")));
        (0..9).for_each(|n| ask(format!("{n}").repeat(4000)));
        drop(waiting.drain(..10));
        let sizes: Vec<usize> = std::iter::from_fn(|| Some(queue.batch().len()).filter(|count| *count > 0)).collect();
        assert_eq!(sizes, [63, 31, 4, 1]);
    }
}
