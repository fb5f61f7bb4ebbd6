//! Packs on the wire: many small puts, gets, stats and deletes in one body, an entry a block. Pure functions over bytes.
//!
//! The one rule: an entry whose block does not have its checksum is told as damaged by its number; the whole ones around it count.
//!
//! A pack is blocks of `blocks.rs`, one for each entry, whose offset is the entry's number; the end mark's offset is how many there are.

use bytes::{Buf, Bytes, BytesMut};
use stager_core::error::ApiError;
use stager_core::ids::check_id;
use stager_core::replica::{Replica, ReplicaKey, ReplicaKind, ReplicaState};

use crate::blocks::{self, Broken, Parsed};
use crate::failure::bad_request;
use crate::stripes::{from_hex, hex};
use crate::wire::NotHeld;

pub const MEDIA_TYPE: &str = "application/x-stager-pack";
/// Packs go through no longer chains: each length has memory of its own.
pub const NODES_MAX: usize = 3;
pub const ENTRIES_MAX: usize = 16_384;
/// Of a request, with its frames.
pub const PACK_BYTES_MAX: usize = 16 << 20;
/// Of one entry's content.
pub const CONTENT_BYTES_MAX: usize = 1 << 20;
/// What an entry takes beside its content, at most, as long as it is no error.
pub const ENTRY_HEAD_BYTES_MAX: usize = blocks::HEADER_BYTES + 4 + 2 * 128 + 48 + 32 + 2 + TOKEN_BYTES_MAX;
const TOKEN_BYTES_MAX: usize = 4096;
const ERROR_BYTES_MAX: usize = 16 << 10;

const PUT: u8 = 1;
const GET: u8 = 2;
const STAT: u8 = 3;
const DELETE: u8 = 4;

const EXECUTABLE: u8 = 1;
const WITH_SHA256: u8 = 2;
const WITH_TOKEN: u8 = 4;
const DIRECTORY: u8 = 8;
const QUARANTINED: u8 = 16;
const STRIPES: u8 = 32;
/// Of a put: it was here already.
const ALREADY: u8 = 1;
/// Of a put: nodes of its chain do not hold it; they follow.
const NOT_ON_ALL: u8 = 2;

const DONE: u8 = 0;
const FAILED: u8 = 1;

/// One entry of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    Put { key: ReplicaKey, executable: bool, blake3: [u8; 32], content: Bytes },
    Get(ReplicaKey),
    Stat(ReplicaKey),
    Delete(ReplicaKey),
}

impl Ask {
    pub fn key(&self) -> &ReplicaKey {
        match self {
            Self::Put { key, .. } | Self::Get(key) | Self::Stat(key) | Self::Delete(key) => key,
        }
    }
}

/// What a node says of a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    pub kind: ReplicaKind,
    pub state: ReplicaState,
    pub executable: bool,
    /// Only stripes of it are here.
    pub striped: bool,
    pub size_bytes: u64,
    pub blake3: [u8; 32],
    pub crc64nvme: u64,
    pub sha256: Option<[u8; 32]>,
    pub token: Option<String>,
}

/// One entry of an answer that is no error.
#[derive(Clone, Debug, PartialEq)]
pub enum Answered {
    /// It is on disk; `missing`: the nodes of its chain that do not hold it, where its asker wanted to know.
    Put {
        already: bool,
        missing: Vec<NotHeld>,
    },
    Got(About, Bytes),
    Stat(About),
    Deleted,
}

impl About {
    pub fn of(replica: &Replica) -> Self {
        Self {
            kind: replica.kind,
            state: replica.state,
            executable: replica.executable,
            striped: replica.stripes.is_some(),
            size_bytes: replica.size_bytes,
            blake3: from_hex(&replica.blake3).expect("our own digest"),
            crc64nvme: u64::from_str_radix(&replica.crc64nvme, 16).expect("our own digest"),
            sha256: replica.sha256.as_deref().and_then(from_hex),
            token: replica.token.clone().filter(|token| token.len() <= TOKEN_BYTES_MAX),
        }
    }

    pub fn blake3_hex(&self) -> String {
        hex(self.blake3)
    }
}

/// Blocks one behind the other.
#[derive(Default)]
pub struct Writer {
    bytes: Vec<u8>,
    entries: usize,
}

impl Writer {
    /// One whose first entry has this number.
    pub fn from(entries: usize) -> Self {
        Self { bytes: Vec::new(), entries }
    }

    pub fn length(&self) -> usize {
        self.bytes.len()
    }
    pub fn entries(&self) -> usize {
        self.entries
    }

    fn entry(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        self.bytes.resize(start + blocks::HEADER_BYTES, 0);
        write(&mut self.bytes);
        let header = blocks::header(self.entries as u64, &self.bytes[start + blocks::HEADER_BYTES..]);
        self.bytes[start..start + blocks::HEADER_BYTES].copy_from_slice(&header);
        self.entries += 1;
    }

    pub fn ask(&mut self, ask: &Ask) {
        let (op, flags, key) = match ask {
            Ask::Put { key, executable, .. } => (PUT, if *executable { EXECUTABLE } else { 0 }, key),
            Ask::Get(key) => (GET, 0, key),
            Ask::Stat(key) => (STAT, 0, key),
            Ask::Delete(key) => (DELETE, 0, key),
        };
        self.entry(|bytes| {
            bytes.extend([op, flags, key.file_id.len() as u8, key.generation.len() as u8]);
            bytes.extend(key.file_id.as_bytes());
            bytes.extend(key.generation.as_bytes());
            if let Ask::Put { blake3, content, .. } = ask {
                bytes.extend(blake3);
                bytes.extend_from_slice(content);
            }
        });
    }

    pub fn say(&mut self, said: &Answered) {
        self.entry(|bytes| match said {
            Answered::Put { already, missing } => {
                let not_on_all = if missing.is_empty() { 0 } else { NOT_ON_ALL };
                bytes.extend([PUT, DONE, if *already { ALREADY } else { 0 } | not_on_all]);
                if !missing.is_empty() {
                    serde_json::to_writer(bytes, missing).expect("errors are plain values");
                }
            }
            Answered::Deleted => bytes.extend([DELETE, DONE, 0]),
            Answered::Stat(about) => about_into(bytes, STAT, about),
            Answered::Got(about, content) => {
                about_into(bytes, GET, about);
                bytes.extend_from_slice(content);
            }
        });
    }

    pub fn fail(&mut self, error: &ApiError) {
        self.entry(|bytes| {
            bytes.extend([0, FAILED]);
            serde_json::to_writer(bytes, error).expect("an error is plain values");
        });
    }

    /// Without the end mark: more follows.
    pub fn part(self) -> Bytes {
        Bytes::from(self.bytes)
    }

    pub fn whole(mut self) -> Bytes {
        self.bytes.extend(blocks::end(self.entries as u64));
        Bytes::from(self.bytes)
    }
}

fn about_into(bytes: &mut Vec<u8>, op: u8, about: &About) {
    let flag = |set: bool, flag: u8| if set { flag } else { 0 };
    let flags = flag(about.executable, EXECUTABLE)
        | flag(about.sha256.is_some(), WITH_SHA256)
        | flag(about.token.is_some(), WITH_TOKEN)
        | flag(about.kind == ReplicaKind::Directory, DIRECTORY)
        | flag(about.state == ReplicaState::Quarantined, QUARANTINED)
        | flag(about.striped, STRIPES);
    bytes.extend([op, DONE, flags]);
    bytes.extend(about.size_bytes.to_le_bytes());
    bytes.extend(about.blake3);
    bytes.extend(about.crc64nvme.to_le_bytes());
    bytes.extend(about.sha256.iter().flatten());
    if let Some(token) = &about.token {
        bytes.extend((token.len() as u16).to_le_bytes());
        bytes.extend(token.as_bytes());
    }
}

/// Takes bytes as they come and keeps the whole entries. Holds no more than it was told to.
pub struct Reader {
    buffer: BytesMut,
    entries: Vec<Option<Bytes>>,
    came_bytes: usize,
    bytes_max: usize,
    ended: bool,
}

/// Why a pack is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPack {
    TooLarge,
    Broken(Broken),
    /// An entry came twice, or out of its order.
    Order(u64),
    NoEnd,
}

impl std::fmt::Display for NoPack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooLarge => write!(f, "it is more than {ENTRIES_MAX} entries, or more bytes than a pack may have"),
            Self::Broken(broken) => broken.fmt(f),
            Self::Order(number) => write!(f, "entry {number} is not in its place"),
            Self::NoEnd => f.write_str("it has no end mark"),
        }
    }
}

impl Reader {
    pub fn new(bytes_max: usize) -> Self {
        Self { buffer: BytesMut::new(), entries: Vec::new(), came_bytes: 0, bytes_max, ended: false }
    }

    pub fn push(&mut self, bytes: &[u8]) -> Result<(), NoPack> {
        self.came_bytes += bytes.len();
        if self.came_bytes > self.bytes_max {
            return Err(NoPack::TooLarge);
        }
        self.buffer.extend_from_slice(bytes);
        while self.take()? {}
        Ok(())
    }

    /// `false`: more has to come.
    fn take(&mut self) -> Result<bool, NoPack> {
        if self.ended {
            return if self.buffer.is_empty() { Ok(false) } else { Err(NoPack::Broken(Broken::AfterEnd)) };
        }
        match blocks::parse(&self.buffer) {
            Ok(Parsed::Needs(_)) => return Ok(false),
            Ok(Parsed::Block { offset, length }) => {
                let payload = self.buffer.split_to(blocks::HEADER_BYTES + length).freeze().slice(blocks::HEADER_BYTES..);
                self.keep(offset, payload)?;
            }
            Ok(Parsed::End { offset }) => {
                self.buffer.advance(blocks::HEADER_BYTES);
                if offset < self.entries.len() as u64 || offset > ENTRIES_MAX as u64 {
                    return Err(NoPack::Order(offset));
                }
                self.entries.resize(offset as usize, None);
                self.ended = true;
            }
            // Its length led somewhere: what stands there has to be a block again. The numbers tell which entry was lost.
            Err(Broken::Checksum(_)) => {
                let length = blocks::said_length(&self.buffer);
                self.buffer.advance(blocks::HEADER_BYTES + length);
            }
            Err(broken) => return Err(NoPack::Broken(broken)),
        }
        Ok(true)
    }

    fn keep(&mut self, number: u64, payload: Bytes) -> Result<(), NoPack> {
        if number >= ENTRIES_MAX as u64 {
            return Err(NoPack::TooLarge);
        }
        if number < self.entries.len() as u64 {
            return Err(NoPack::Order(number));
        }
        self.entries.resize(number as usize, None);
        self.entries.push(Some(payload));
        Ok(())
    }

    /// The entries in order; `None`: damaged on the way.
    pub fn finish(self) -> Result<Vec<Option<Bytes>>, NoPack> {
        if self.ended && self.buffer.is_empty() {
            Ok(self.entries)
        } else {
            Err(NoPack::NoEnd)
        }
    }
}

/// Walks over an entry.
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let taken = self.0.get(..length)?;
        self.0 = &self.0[length..];
        Some(taken)
    }
    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|taken| taken[0])
    }
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N).map(|taken| taken.try_into().expect("so many bytes"))
    }
    fn number(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
}

pub fn ask(payload: &Bytes) -> Result<Ask, ApiError> {
    let no_entry = || bad_request("pack", "an entry of the pack is not understood; compare it with docs/formats/ionode-api.md");
    let mut cursor = Cursor(payload);
    let [op, flags, file_id, generation] = cursor.array().ok_or_else(no_entry)?;
    let mut id = |what, length: u8| {
        let text = cursor.take(usize::from(length)).and_then(|taken| std::str::from_utf8(taken).ok()).ok_or_else(no_entry)?;
        check_id(what, text).map(|()| text.to_string())
    };
    let key = ReplicaKey { file_id: id("file id", file_id)?, generation: id("generation", generation)? };
    let ask = match op {
        PUT if flags & !EXECUTABLE == 0 => {
            let blake3 = cursor.array().ok_or_else(no_entry)?;
            let content = payload.slice(payload.len() - cursor.0.len()..);
            return Ok(Ask::Put { key, executable: flags & EXECUTABLE != 0, blake3, content });
        }
        GET if flags == 0 => Ask::Get(key),
        STAT if flags == 0 => Ask::Stat(key),
        DELETE if flags == 0 => Ask::Delete(key),
        _ => return Err(no_entry()),
    };
    if cursor.0.is_empty() {
        Ok(ask)
    } else {
        Err(no_entry())
    }
}

/// What a node answered; `None`: no answer to a pack looks so.
pub fn said(payload: &Bytes) -> Option<Result<Answered, ApiError>> {
    let mut cursor = Cursor(payload);
    let (op, outcome) = (cursor.byte()?, cursor.byte()?);
    if (op, outcome) == (0, FAILED) {
        return (cursor.0.len() <= ERROR_BYTES_MAX).then(|| serde_json::from_slice(cursor.0).ok().map(Err))?;
    }
    let flags = cursor.byte().filter(|_| outcome == DONE)?;
    let said = match op {
        PUT if flags & !(ALREADY | NOT_ON_ALL) == 0 => {
            Answered::Put { already: flags & ALREADY != 0, missing: missing(&mut cursor, flags)? }
        }
        DELETE if flags == 0 => Answered::Deleted,
        STAT => Answered::Stat(about(&mut cursor, flags)?),
        GET => {
            let about = about(&mut cursor, flags)?;
            let content = payload.slice(payload.len() - cursor.0.len()..);
            return (content.len() as u64 == about.size_bytes).then_some(Ok(Answered::Got(about, content)));
        }
        _ => return None,
    };
    cursor.0.is_empty().then_some(Ok(said))
}

fn missing(cursor: &mut Cursor<'_>, flags: u8) -> Option<Vec<NotHeld>> {
    if flags & NOT_ON_ALL == 0 {
        return Some(Vec::new());
    }
    let rest = cursor.take(cursor.0.len()).filter(|rest| rest.len() <= ERROR_BYTES_MAX)?;
    serde_json::from_slice(rest).ok().filter(|missing: &Vec<NotHeld>| !missing.is_empty())
}

fn about(cursor: &mut Cursor<'_>, flags: u8) -> Option<About> {
    let has = |flag: u8| flags & flag != 0;
    if flags & !(EXECUTABLE | WITH_SHA256 | WITH_TOKEN | DIRECTORY | QUARANTINED | STRIPES) != 0 {
        return None;
    }
    Some(About {
        kind: if has(DIRECTORY) { ReplicaKind::Directory } else { ReplicaKind::File },
        state: if has(QUARANTINED) { ReplicaState::Quarantined } else { ReplicaState::Present },
        executable: has(EXECUTABLE),
        striped: has(STRIPES),
        size_bytes: cursor.number()?,
        blake3: cursor.array()?,
        crc64nvme: cursor.number()?,
        sha256: if has(WITH_SHA256) { Some(cursor.array()?) } else { None },
        token: match has(WITH_TOKEN) {
            true => {
                let length = cursor.array().map(u16::from_le_bytes).filter(|length| usize::from(*length) <= TOKEN_BYTES_MAX)?;
                Some(std::str::from_utf8(cursor.take(usize::from(length))?).ok()?.to_string())
            }
            false => None,
        },
    })
}
