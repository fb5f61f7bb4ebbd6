//! Who has the writer. What is to be written waits here; a caller that finds nobody at it writes by itself, else the log's own thread
//! does, with all that waits. Knows messages and the writer, not what they do.
//!
//! The one rule: who has the writer gives it back, and nothing waits then without the thread being told.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use stager_core::error::ApiError;
use tokio::runtime::{Handle, RuntimeFlavor};

use crate::failure::at;
use crate::writer::{gone, Message, Submission, Writer};

pub struct WriterLeases {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    waiting: VecDeque<Message>,
    /// `None` while somebody writes.
    writer: Option<Box<Writer>>,
    over: bool,
}

/// The log's own thread, which writes whatever nobody else does.
pub fn start(writer: Writer) -> Result<(Arc<WriterLeases>, std::thread::JoinHandle<()>), ApiError> {
    let directory = writer.directory().to_owned();
    let state = State { waiting: VecDeque::new(), writer: Some(Box::new(writer)), over: false };
    let leases = Arc::new(WriterLeases { state: Mutex::new(state), changed: Condvar::new() });
    let ours = leases.clone();
    let thread =
        std::thread::Builder::new().name("log".into()).spawn(move || ours.serve()).map_err(at("starting the writer of", &directory))?;
    Ok((leases, thread))
}

impl WriterLeases {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics here")
    }

    /// Left to the thread.
    pub fn send(&self, message: Message) -> Result<(), ApiError> {
        let mut state = self.state();
        if state.over {
            return Err(gone());
        }
        state.waiting.push_back(message);
        if state.writer.is_some() {
            self.changed.notify_one();
        }
        Ok(())
    }

    /// Written by the caller, here and now, if nobody writes and it may wait for the disk; else by who writes next.
    pub fn write(&self, submission: Submission) -> Result<(), ApiError> {
        // On the only thread of a runtime everything else would wait, too.
        let flavor = Handle::try_current().ok().map(|handle| handle.runtime_flavor());
        if flavor == Some(RuntimeFlavor::CurrentThread) {
            return self.send(Message::Write(submission));
        }
        let mut state = self.state();
        if state.over {
            return Err(gone());
        }
        let writer = if state.waiting.is_empty() { state.writer.take() } else { None };
        if writer.is_none() {
            // Whoever writes, or was told to, finds it.
            state.waiting.push_back(Message::Write(submission));
            return Ok(());
        }
        drop(state);
        let mut lease = WriterLease { leases: self, writer };
        match flavor {
            // What else the runtime has to do on this thread goes on on another.
            Some(_) => tokio::task::block_in_place(|| lease.write(submission)),
            None => lease.write(submission),
        }
        Ok(())
    }

    fn serve(&self) {
        while let Some((mut lease, mut next)) = self.wait() {
            loop {
                match next {
                    Some(Message::Stop) => return lease.end(),
                    Some(Message::Write(submission)) => lease.write(submission),
                    Some(message) => lease.writer().perform(message),
                    None => lease.writer().catch_up(),
                }
                next = self.state().waiting.pop_front();
                if next.is_none() {
                    break;
                }
            }
        }
    }

    /// The writer and what it is to do; no message: what was due by now. `None`: it broke down.
    fn wait(&self) -> Option<(WriterLease<'_>, Option<Message>)> {
        let mut state = self.state();
        loop {
            if state.over {
                return None;
            }
            let here = state.writer.is_some();
            if let Some(message) = if here { state.waiting.pop_front() } else { None } {
                let writer = state.writer.take();
                return Some((WriterLease { leases: self, writer }, Some(message)));
            }
            let Some(due) = state.writer.as_ref().and_then(|writer| writer.due()) else {
                state = self.changed.wait(state).expect("nobody panics here");
                continue;
            };
            let (mut after, waited) = self.changed.wait_timeout(state, due).expect("nobody panics here");
            if waited.timed_out() && after.waiting.is_empty() {
                if let Some(writer) = after.writer.take() {
                    return Some((WriterLease { leases: self, writer: Some(writer) }, None));
                }
            }
            state = after;
        }
    }
}

/// Has the writer, until it is dropped.
struct WriterLease<'a> {
    leases: &'a WriterLeases,
    writer: Option<Box<Writer>>,
}

impl WriterLease<'_> {
    fn writer(&mut self) -> &mut Writer {
        self.writer.as_mut().expect("it is given back at the end only")
    }

    /// One group: this, and the writes that wait behind it.
    fn write(&mut self, first: Submission) {
        let leases = self.leases;
        self.writer().write_group(first, || {
            let mut state = leases.state();
            match state.waiting.pop_front() {
                Some(Message::Write(submission)) => Some(submission),
                Some(other) => {
                    state.waiting.push_front(other);
                    None
                }
                None => None,
            }
        });
    }

    fn end(mut self) {
        self.writer().end();
        self.leases.state().over = true;
    }
}

impl Drop for WriterLease<'_> {
    fn drop(&mut self) {
        let mut state = self.leases.state();
        state.over |= std::thread::panicking();
        let left = match state.over {
            // Their callers hear that nobody writes any more.
            true => std::mem::take(&mut state.waiting),
            false => VecDeque::new(),
        };
        let due = self.writer.as_ref().and_then(|writer| writer.due());
        state.writer = self.writer.take();
        if state.over || !state.waiting.is_empty() || due.is_some() {
            self.leases.changed.notify_one();
        }
        drop(state);
        drop(left);
    }
}
