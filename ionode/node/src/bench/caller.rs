//! A client of the benchmark: one connection, one call at a time, as little work beside that as a client can do. Knows packs over HTTP/1.1 as
//! this node answers them, nothing more.
//!
//! The one rule: it looks at every answer as any client has to, down to the checksum of each entry.

use std::io::Write;

use bytes::{Buf, Bytes, BytesMut};
use hyper::StatusCode;
use stager_core::error::ApiError;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::blocks::HEADER_BYTES;
use crate::pack_format::{Ask, Writer, ENTRY_HEAD_BYTES_MAX, MEDIA_TYPE};
use crate::peers::link::{Duplex, Link};
use crate::peers::pack::Answers;

const READ_BYTES: usize = 64 << 10;

pub struct Caller<'a> {
    link: &'a Link,
    stream: Box<dyn Duplex>,
    /// Of every request, up to its length.
    head: String,
    request: Vec<u8>,
    answer: BytesMut,
}

impl<'a> Caller<'a> {
    pub async fn to(link: &'a Link) -> Result<Self, ApiError> {
        let head = link.head("POST", "/v1/packs", MEDIA_TYPE).await?;
        Ok(Self { link, stream: link.stream().await?, head, request: Vec::new(), answer: BytesMut::new() })
    }

    /// `content_bytes`: what its gets may bring.
    pub async fn pack(&mut self, asks: &[Ask], content_bytes: u64) -> Result<Answers, ApiError> {
        let mut writer = Writer::default();
        asks.iter().for_each(|ask| writer.ask(ask));
        let body = writer.whole();
        self.request.clear();
        write!(self.request, "{}content-length: {}\r\n\r\n", self.head, body.len()).expect("memory takes it");
        self.request.extend_from_slice(&body);
        self.stream.write_all(&self.request).await.map_err(|error| self.broke(&error))?;
        let (status, body) = self.answer().await?;
        if !status.is_success() {
            return Err(self.link.error_of(status, &body));
        }
        self.link.told(&body, asks, asks.len() * ENTRY_HEAD_BYTES_MAX + content_bytes as usize + HEADER_BYTES)
    }

    async fn answer(&mut self) -> Result<(StatusCode, Bytes), ApiError> {
        let head = self.through(b"\r\n\r\n").await?;
        let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
        let status = head.split(' ').nth(1).and_then(|word| StatusCode::from_bytes(word.as_bytes()).ok());
        let status = status.ok_or_else(|| self.link.lost("it does not answer in HTTP"))?;
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let body = match length.and_then(|digits| digits.parse().ok()) {
            Some(length) => {
                self.fill(length).await?;
                self.answer.split_to(length)
            }
            None => self.chunks().await?,
        };
        Ok((status, body.freeze()))
    }

    async fn chunks(&mut self) -> Result<BytesMut, ApiError> {
        let mut body = BytesMut::new();
        loop {
            let line = self.through(b"\r\n").await?;
            let digits = String::from_utf8_lossy(&line[..line.len() - 2]).into_owned();
            let length = usize::from_str_radix(&digits, 16).map_err(|_| self.link.lost("a part of its answer has no length"))?;
            self.fill(length + 2).await?;
            body.unsplit(self.answer.split_to(length));
            self.answer.advance(2);
            if length == 0 {
                return Ok(body);
            }
        }
    }

    /// All up to this mark, with it.
    async fn through(&mut self, mark: &[u8]) -> Result<BytesMut, ApiError> {
        loop {
            if let Some(at) = self.answer.windows(mark.len()).position(|bytes| bytes == mark) {
                return Ok(self.answer.split_to(at + mark.len()));
            }
            self.fill(self.answer.len() + 1).await?;
        }
    }

    /// Reads until so many bytes are there.
    async fn fill(&mut self, length: usize) -> Result<(), ApiError> {
        while self.answer.len() < length {
            self.answer.reserve(READ_BYTES);
            match self.stream.read_buf(&mut self.answer).await {
                Ok(0) => return Err(self.link.lost("the connection ended within an answer")),
                Ok(_) => {}
                Err(error) => return Err(self.broke(&error)),
            }
        }
        Ok(())
    }

    fn broke(&self, error: &std::io::Error) -> ApiError {
        self.link.lost(&format!("the connection broke ({error})"))
    }
}
