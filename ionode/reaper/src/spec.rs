//! What to run, as the worker wrote it. May know: JSON and paths. One rule: a Spec that exists can be handed to the kernel: no NUL, no relative paths.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::path::{Component, Path, PathBuf};

use serde::Deserialize;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    pub source: PathBuf,
    pub target: PathBuf,
    pub directory: bool,
}

/// An unpacked image, and the place in it where the job finds its sandbox.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Container {
    pub root_dir: PathBuf,
    pub sandbox_at: PathBuf,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    pub attempt_id: String,
    pub epoch: u64,
    pub argv: Vec<String>,
    /// The whole environment; nothing is added.
    pub env: BTreeMap<String, String>,
    pub cwd: PathBuf,
    /// Link targets lie in here; left out, it is `cwd`.
    #[serde(default)]
    pub sandbox_dir: Option<PathBuf>,
    pub stdin: Option<PathBuf>,
    pub stdout: PathBuf,
    pub stderr: PathBuf,
    #[serde(default)]
    pub mounts: Vec<Link>,
    pub timeout_s: Option<f64>,
    /// It gets no capability, also where the reaper's user is root, and no program gives it one.
    #[serde(default)]
    pub unprivileged: bool,
    /// It writes in its sandbox and in a /tmp of its own, and nowhere else.
    #[serde(default)]
    pub isolate: bool,
    /// In the sandbox: what /tmp and /var/tmp are for an isolated job.
    #[serde(default)]
    pub scratch_dir: Option<PathBuf>,
    /// Directories of origins.
    #[serde(default)]
    pub origins: Vec<PathBuf>,
    /// It is told what an isolated job opens below them.
    #[serde(default)]
    pub watch: bool,
    /// What its root directory is instead of the host's.
    #[serde(default)]
    pub container: Option<Container>,
    /// Its tree is ended where it holds more memory than this.
    #[serde(default)]
    pub memory_limit_bytes: Option<u64>,
    #[serde(default = "default_grace_s")]
    pub grace_s: f64,
    pub result_path: PathBuf,
    pub lock_path: PathBuf,
}

fn default_grace_s() -> f64 {
    5.0
}

impl Spec {
    pub fn read(path: &Path) -> Result<Spec, String> {
        let text = std::fs::read(path).map_err(|error| format!("the spec {} cannot be read: {error}", path.display()))?;
        let spec: Spec = serde_json::from_slice(&text).map_err(|error| format!("the spec {} is not valid: {error}", path.display()))?;
        spec.check().map_err(|what| format!("the spec {} is not valid: {what}", path.display()))?;
        Ok(spec)
    }

    pub fn sandbox(&self) -> &Path {
        self.sandbox_dir.as_deref().unwrap_or(&self.cwd)
    }

    /// The same, with the paths of its sandbox as they are in the image.
    pub fn inside(&self, container: &Container) -> Spec {
        let sandbox = self.sandbox();
        let moved = |path: &Path| match path.strip_prefix(sandbox) {
            Ok(below) if below.as_os_str().is_empty() => container.sandbox_at.clone(),
            Ok(below) => container.sandbox_at.join(below),
            Err(_) => path.to_path_buf(),
        };
        Spec {
            cwd: moved(&self.cwd),
            sandbox_dir: Some(container.sandbox_at.clone()),
            stdin: self.stdin.as_deref().map(moved),
            scratch_dir: self.scratch_dir.as_deref().map(moved),
            ..self.clone()
        }
    }

    fn check(&self) -> Result<(), String> {
        for (key, path) in [
            ("cwd", &self.cwd),
            ("stdout", &self.stdout),
            ("stderr", &self.stderr),
            ("result_path", &self.result_path),
            ("lock_path", &self.lock_path),
        ] {
            absolute(key, path)?;
        }
        absolute("sandbox_dir", self.sandbox())?;
        if let Some(path) = &self.scratch_dir {
            absolute("scratch_dir", path)?;
        }
        for path in &self.origins {
            absolute("origins", path)?;
        }
        if let Some(container) = &self.container {
            absolute("container.root_dir", &container.root_dir)?;
            absolute("container.sandbox_at", &container.sandbox_at)?;
        }
        if !self.cwd.starts_with(self.sandbox()) {
            return Err(format!("cwd {:?} is not inside sandbox_dir {:?}", self.cwd, self.sandbox()));
        }
        if let Some(path) = &self.stdin {
            absolute("stdin", path)?;
        }
        if self.argv.first().is_none_or(|program| program.is_empty()) {
            return Err("argv names no program".into());
        }
        for seconds in [self.timeout_s.unwrap_or(0.0), self.grace_s] {
            if !(seconds.is_finite() && (0.0..=1e9).contains(&seconds)) {
                return Err(format!("{seconds} is not a number of seconds"));
            }
        }
        self.arguments().and(self.environment()).map(|_| ())
    }

    pub fn arguments(&self) -> Result<Vec<CString>, String> {
        self.argv.iter().map(|word| CString::new(word.as_str()).map_err(|_| format!("the argument {word:?} holds a NUL byte"))).collect()
    }

    pub fn environment(&self) -> Result<Vec<CString>, String> {
        let entry = |(key, value): (&String, &String)| {
            if key.is_empty() || key.contains('=') {
                return Err(format!("{key:?} cannot be the name of an environment variable"));
            }
            CString::new(format!("{key}={value}")).map_err(|_| format!("the environment variable {key:?} holds a NUL byte"))
        };
        self.env.iter().map(entry).collect()
    }

    /// Where execve is to look, in order. None: a bare name and no PATH.
    pub fn candidates(&self) -> Option<Vec<CString>> {
        let program = self.argv[0].as_str();
        if program.contains('/') {
            return Some(vec![CString::new(program).ok()?]);
        }
        let path = self.env.get("PATH").filter(|path| !path.is_empty())?;
        // An empty entry of PATH means the current directory, as for every shell.
        let place = |entry: &str| if entry.is_empty() { format!("./{program}") } else { format!("{entry}/{program}") };
        path.split(':').map(|entry| CString::new(place(entry)).ok()).collect()
    }
}

fn absolute(key: &str, path: &Path) -> Result<(), String> {
    let plain = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    if !path.is_absolute() || !plain || path.as_os_str().as_encoded_bytes().contains(&0) {
        return Err(format!("{key} {path:?} is not an absolute path without '..'"));
    }
    Ok(())
}
