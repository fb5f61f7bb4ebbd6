//! Errors by who must act, as they go over the wire (docs/formats/ionode-api.md).

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    InvalidInput,
    Refused,
    Transient,
    Corrupt,
    Denied,
}

/// One clear sentence, a stable code, and the file or id it is about.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    pub class: Class,
    pub code: String,
    pub message: String,
    pub subject: String,
    pub retry_after_s: Option<f64>,
}

impl ApiError {
    pub fn new(class: Class, code: &str, subject: impl Into<String>, message: impl Into<String>) -> Self {
        Self { class, code: code.into(), message: message.into(), subject: subject.into(), retry_after_s: None }
    }
    pub fn invalid(code: &str, subject: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(Class::InvalidInput, code, subject, message)
    }
    pub fn refused(code: &str, subject: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(Class::Refused, code, subject, message)
    }
    pub fn transient(code: &str, subject: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(Class::Transient, code, subject, message)
    }
    pub fn corrupt(code: &str, subject: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(Class::Corrupt, code, subject, message)
    }
    pub fn denied(code: &str, subject: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(Class::Denied, code, subject, message)
    }
}
