//! Whether the outputs of a job are as they were declared. Knows what was found, not where it goes.
//!
//! The one rule: a job that left an output out, or something else in its place, has no outputs.

use stager_core::error::{ApiError, Code};

use super::survey::{Found, Survey};
use crate::failure::Failure;
use crate::wire::Output;

/// Of the files that nobody declared, so many are named.
pub const UNDECLARED_NAMED_MAX: usize = 100;

/// What there is; those that are optional may be missing.
pub fn judged(attempt_id: &str, surveys: Vec<(Output, Survey)>) -> Result<Vec<(Output, Found)>, Failure> {
    let (mut wanted, mut missing, mut escapes) = (Vec::new(), Vec::new(), Vec::new());
    for (output, survey) in surveys {
        match survey {
            Survey::Found(found) => wanted.push((output, found)),
            Survey::Missing if output.optional => {}
            Survey::Missing => missing.push(output.path),
            Survey::Escapes(path, what) => escapes.push((path, what)),
        }
    }
    if !escapes.is_empty() {
        let named: Vec<String> = escapes.iter().map(|(path, what)| format!("{path} is {what}")).collect();
        let message = format!("outputs must be regular files inside the sandbox, of the declared kind: {}", named.join(", "));
        let paths: Vec<String> = escapes.into_iter().map(|(path, _)| path).collect();
        return Err(Failure::with(ApiError::new(Code::OutputEscapes, attempt_id, message), "paths", paths));
    }
    if missing.is_empty() {
        return Ok(wanted);
    }
    let message = format!("the job did not write {}; all declared outputs must exist when it ends", missing.join(", "));
    Err(Failure::with(ApiError::new(Code::OutputsMissing, attempt_id, message), "paths", missing))
}

/// More than is reserved for them.
pub fn too_large(attempt_id: &str, total_bytes: u64, held_bytes: u64) -> Failure {
    let message = format!(
        "the outputs of {attempt_id} are {total_bytes} bytes and {held_bytes} were reserved; grow the reservation and stage out again"
    );
    Failure::with(ApiError::new(Code::ExceedsReservation, attempt_id, message), "needed_bytes", total_bytes)
}
