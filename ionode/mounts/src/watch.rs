//! Keeps one mount alive: a thread that asks it again and again, ends it when nobody answers, and mounts it anew.
//!
//! The one rule: this thread never touches what is mounted, so it cannot hang with it.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use stager_core::error::{ApiError, Code};
use stager_origins::SftpConfig;

use crate::session::{Place, Session};
use crate::{Mount, State, Timing};

const LOOK: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(60);

pub struct Watch {
    origin_id: String,
    path: PathBuf,
    config: SftpConfig,
    seen: Arc<Mutex<Seen>>,
    /// Dropped to end it.
    stop: Mutex<Option<Sender<()>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Seen {
    state: State,
    message: Option<String>,
}

impl Watch {
    /// Blocks until the first mount is there, or cannot be.
    pub fn start(root: &Path, origin_id: &str, config: &SftpConfig, timing: Timing) -> Result<Self, ApiError> {
        let place = Place::new(root, origin_id);
        DirBuilder::new().recursive(true).mode(0o700).create(&place.point).map_err(|error| {
            let shown = place.point.display().to_string();
            ApiError::new(Code::IoError, &shown, format!("the mount point {shown} cannot be made ({error}); look at its disk"))
        })?;
        let path = place.point.clone();
        let seen = Arc::new(Mutex::new(Seen { state: State::Away, message: None }));
        let ((stop, stopped), (first_done, first)) = (mpsc::channel(), mpsc::channel());
        let keeper = Keeper { place, config: config.clone(), timing, seen: seen.clone(), stopped };
        let thread = std::thread::spawn(move || keeper.run(&first_done));
        first.recv().expect("the keeper says how the first try went")?;
        Ok(Self {
            origin_id: origin_id.to_owned(),
            path,
            config: config.clone(),
            seen,
            stop: Mutex::new(Some(stop)),
            thread: Mutex::new(Some(thread)),
        })
    }

    pub fn is_for(&self, config: &SftpConfig) -> bool {
        self.config == *config
    }

    pub fn look(&self) -> Mount {
        let seen = self.seen.lock().expect("no holder panics");
        Mount { origin_id: self.origin_id.clone(), path: self.path.clone(), state: seen.state, message: seen.message.clone() }
    }

    pub fn end(&self) {
        drop(self.stop.lock().expect("no holder panics").take());
        if let Some(thread) = self.thread.lock().expect("no holder panics").take() {
            thread.join().ok();
        }
    }
}

struct Keeper {
    place: Place,
    config: SftpConfig,
    timing: Timing,
    seen: Arc<Mutex<Seen>>,
    stopped: Receiver<()>,
}

impl Keeper {
    fn run(self, first: &Sender<Result<(), ApiError>>) {
        match Session::start(&self.place, &self.config, self.timing) {
            Err(error) => {
                self.leave_nothing();
                // Nobody waits any more where the process ends meanwhile.
                let _ = first.send(Err(error));
            }
            Ok(session) => {
                self.note(State::Mounted, None);
                let _ = first.send(Ok(()));
                self.keep(session);
                self.leave_nothing();
            }
        }
    }

    fn keep(&self, mut session: Session) {
        loop {
            let why = self.follow(&mut session);
            session.end();
            let Some(why) = why else { return };
            tracing::warn!(point = %self.place.point.display(), why, "a mount is dead; reads through it fail");
            self.note(State::Away, Some(why));
            match self.mount_again() {
                Some(fresh) => session = fresh,
                None => return,
            }
        }
    }

    /// Until it is dead (and why), or is to end (None).
    fn follow(&self, session: &mut Session) -> Option<String> {
        loop {
            if self.waited(self.timing.probe_every, session) {
                return None;
            }
            session.ask();
            let deadline = Instant::now() + self.timing.probe_within;
            let answer = loop {
                if self.is_to_end() {
                    return None;
                }
                let answer = session.answer(LOOK);
                if answer.is_some() || Instant::now() >= deadline || session.has_ended() {
                    break answer;
                }
            };
            match answer {
                _ if session.has_ended() => return Some("sshfs has ended: the connection was lost".to_owned()),
                Some(Ok(())) => {}
                Some(Err(errno)) => return Some(format!("it answers {}", errno.desc())),
                None => return Some(format!("no answer for {:.0} s", self.timing.probe_within.as_secs_f64())),
            }
        }
    }

    fn mount_again(&self) -> Option<Session> {
        let mut pause = self.timing.pause;
        loop {
            if !matches!(self.stopped.recv_timeout(pause), Err(RecvTimeoutError::Timeout)) {
                return None;
            }
            match Session::start(&self.place, &self.config, self.timing) {
                Ok(session) => {
                    tracing::info!(point = %self.place.point.display(), "it is mounted again");
                    self.note(State::Mounted, None);
                    return Some(session);
                }
                Err(error) => self.note(State::Away, Some(error.message)),
            }
            pause = (2 * pause).min(PAUSE_MAX);
        }
    }

    /// True when it is to end. Ends early where sshfs does.
    fn waited(&self, pause: Duration, session: &mut Session) -> bool {
        let until = Instant::now() + pause;
        while Instant::now() < until && !session.has_ended() {
            if !matches!(self.stopped.recv_timeout(LOOK.min(pause)), Err(RecvTimeoutError::Timeout)) {
                return true;
            }
        }
        false
    }

    fn is_to_end(&self) -> bool {
        !matches!(self.stopped.try_recv(), Err(mpsc::TryRecvError::Empty))
    }

    fn note(&self, state: State, message: Option<String>) {
        *self.seen.lock().expect("no holder panics") = Seen { state, message };
    }

    /// The directory only, and never what may be mounted on it.
    fn leave_nothing(&self) {
        for name in ["ssh_config", "log"] {
            std::fs::remove_file(self.place.directory.join(name)).ok();
        }
        std::fs::remove_dir(&self.place.point).ok();
        std::fs::remove_dir(&self.place.directory).ok();
    }
}
