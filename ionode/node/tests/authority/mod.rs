//! Authorities of clusters and the certificates that they sign, made by openssl.
//!
//! The one rule: a certificate here is what a cluster hands out, wrong in the one way that its test names.
#![allow(dead_code)]

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub struct Authority {
    root: tempfile::TempDir,
}

/// Said aloud, and the test is over: without openssl there are no certificates.
pub fn missing() -> bool {
    let there = Command::new("openssl").arg("version").stdout(Stdio::null()).status().is_ok();
    if !there {
        writeln!(std::io::stderr(), "NOT RUN: TLS tests need openssl (Debian: apt-get install openssl)").ok();
    }
    !there
}

fn openssl(place: &Path, args: &str) {
    let made = Command::new("openssl").args(args.split(' ')).current_dir(place).stdin(Stdio::null()).output().unwrap();
    assert!(made.status.success(), "openssl {args}: {}", String::from_utf8_lossy(&made.stderr));
}

const NEW_KEY: &str = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
const CONFIG: &str = "[ca]\ndefault_ca = d\n[d]\ndatabase = index\nnew_certs_dir = .\nserial = serial\npolicy = p\ndefault_md = sha256\n\
                      unique_subject = no\n[p]\ncommonName = supplied\n";

impl Authority {
    pub fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        openssl(root.path(), &format!("req -x509 {NEW_KEY} -days 2 -subj /CN=cluster -keyout ca.key -out ca.pem"));
        std::fs::write(root.path().join("config"), CONFIG).unwrap();
        std::fs::write(root.path().join("index"), "").unwrap();
        std::fs::write(root.path().join("serial"), "1000").unwrap();
        Self { root }
    }

    /// A directory for `--tls-dir`, of the holder of this role.
    pub fn dir(&self, name: &str, role: &str) -> PathBuf {
        self.dir_until(name, &format!("URI:stager://c1/{role}"), "20491231235959Z")
    }

    pub fn dir_until(&self, name: &str, names: &str, until: &str) -> PathBuf {
        let dir = self.root.path().join(name);
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::copy(self.root.path().join("ca.pem"), dir.join("ca.pem")).unwrap();
        self.sign(&dir, names, until);
        dir
    }

    /// A new key and certificate in place of what is there.
    pub fn sign(&self, dir: &Path, names: &str, until: &str) {
        let place = self.root.path();
        openssl(place, &format!("req {NEW_KEY} -subj /CN=leaf -keyout leaf.key -out leaf.csr"));
        std::fs::write(place.join("names"), format!("subjectAltName={names}\nextendedKeyUsage=serverAuth,clientAuth\n")).unwrap();
        openssl(
            place,
            &format!(
                "ca -batch -notext -config config -cert ca.pem -keyfile ca.key -startdate 20200101000000Z -enddate {until} -extfile names \
                 -in leaf.csr -out leaf.pem"
            ),
        );
        std::fs::copy(place.join("leaf.pem"), dir.join("cert.pem")).unwrap();
        std::fs::copy(place.join("leaf.key"), dir.join("key.pem")).unwrap();
        std::fs::set_permissions(dir.join("key.pem"), Permissions::from_mode(0o600)).unwrap();
    }
}
