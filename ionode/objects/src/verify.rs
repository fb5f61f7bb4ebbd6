//! Looking at objects without giving them to anybody: every block is compared. For threads that may wait.
//!
//! The one rule: what is found says something only of the version that was read.

use std::fs::File;
use std::path::Path;

use stager_core::error::{ApiError, Class};
use stager_store::{Log, Op, Stat, When};

use crate::file::Readable;
use crate::meta::{self, FilePart, Object, Stored};
use crate::{tables, Name, Objects};

/// How the disk is gone about.
pub trait Care {
    /// Before bytes are read, from a file or from the log; an error ends the look.
    fn before(&mut self, file: Option<&File>, offset: u64, length: usize) -> Result<(), ApiError>;
    fn after(&mut self, file: &File, offset: u64, length: usize);
}

#[derive(Debug)]
pub enum Verdict {
    Sound,
    Damaged(Damaged),
    /// Deleted, replaced meanwhile, or known to be damaged.
    Gone,
}

#[derive(Debug)]
pub struct Damaged {
    pub name: Name,
    version: u64,
    pub error: ApiError,
}

impl Damaged {
    fn op(&self) -> Op {
        Op::Quarantine { table: tables::OBJECTS, key: tables::object(&self.name), when: When::Version(self.version) }
    }
}

impl Objects {
    /// In the order of their names, at most so many.
    pub fn names_behind(&self, last: Option<&Name>, most: usize) -> Result<Vec<Name>, ApiError> {
        let start = last.map_or_else(Vec::new, |name| [&tables::object(name)[..], &[0]].concat());
        let found = self.log().scan(tables::OBJECTS, &start)?.take(most);
        found.map(|found| found.map(|(key, _)| tables::name_of(&key))).collect()
    }

    /// What is damaged is not given out any more when this returns.
    pub fn verify(&self, name: &Name, care: &mut dyn Care) -> Result<Verdict, ApiError> {
        let key = tables::object(name);
        let Some(stat) = self.log().stat(tables::OBJECTS, &key)? else { return Ok(Verdict::Gone) };
        let object: Object = meta::parse(&name.to_string(), &stat.meta)?;
        let _lease = self.inner.leases.take(object.stored.files());
        if stat.quarantined || self.log().stat(tables::OBJECTS, &key)?.is_none_or(|now| now.version != stat.version) {
            return Ok(Verdict::Gone);
        }
        let verdict = look(self.log(), &self.inner.directory, name, &stat, &object, care)?;
        if let Verdict::Damaged(damaged) = &verdict {
            self.note_damage(name, &damaged.error);
            self.log().write_all_blocking(vec![damaged.op()])?;
        }
        Ok(verdict)
    }
}

fn look(log: &Log, directory: &Path, name: &Name, stat: &Stat, object: &Object, care: &mut dyn Care) -> Result<Verdict, ApiError> {
    let read = match &object.stored {
        Stored::Inline => {
            care.before(None, 0, object.size_bytes as usize)?;
            log.get(tables::OBJECTS, &tables::object(name)).map(drop)
        }
        Stored::Files(files) => files.iter().try_for_each(|part| Readable::open(directory, part)?.compare_all(care)),
    };
    match read {
        Ok(()) => Ok(Verdict::Sound),
        Err(error) if error.class == Class::Corrupt => Ok(Verdict::Damaged(Damaged { name: name.clone(), version: stat.version, error })),
        Err(error) => Err(error),
    }
}

/// Of a store that no node serves: every object whose files are not as they were written, by their sizes or, with `care`, by their bytes.
pub fn scan(log: &Log, root: &Path, mut care: Option<&mut dyn Care>) -> Result<Vec<Damaged>, ApiError> {
    let directory = root.join("objects");
    let mut wrong = Vec::new();
    for found in log.scan(tables::OBJECTS, b"")? {
        let (key, stat) = found?;
        let name = tables::name_of(&key);
        let object: Object = meta::parse(&name.to_string(), &stat.meta)?;
        if stat.quarantined || matches!(object.stored, Stored::Inline) {
            continue;
        }
        let verdict = match care.as_deref_mut() {
            Some(care) => look(log, &directory, &name, &stat, &object, care)?,
            None => match object.stored.files().iter().try_for_each(|part: &FilePart| Readable::open(&directory, part).map(drop)) {
                Err(error) if error.class == Class::Corrupt => Verdict::Damaged(Damaged { name, version: stat.version, error }),
                read => read.map(|()| Verdict::Sound)?,
            },
        };
        wrong.extend(match verdict {
            Verdict::Damaged(damaged) => Some(damaged),
            Verdict::Sound | Verdict::Gone => None,
        });
    }
    Ok(wrong)
}

/// From here on they are not given out.
pub fn quarantine(log: &Log, damaged: &[Damaged]) -> Result<(), ApiError> {
    log.write_all_blocking(damaged.iter().map(Damaged::op).collect()).map(drop)
}
