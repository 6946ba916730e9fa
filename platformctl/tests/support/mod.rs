//! A server of the API in this process, and the command line as a process of its own.

#![allow(dead_code, reason = "each test uses its part")]

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use platform_core::iam::{Bootstrap, Iam};
use platform_engine::{
    platform::{Platform, Settings},
    store::memory::MemoryStore,
    timestamp::Timestamp,
    uid::Uid,
};
use platform_http::{Layers, Limits, Rest, serve};
use platform_keys::{Algorithm, Keys};
use platform_oidc::{AccessToken, DiscoveryOptions, Issuer, Sts, StsOptions, Verifier, VerifierOptions};
use platform_outbound::{HttpFetch, Network};
use platform_services::Tokens;
use platform_system::{SystemClock, SystemEntropy};
use platform_testkit::{SeededEntropy, TestClock};
use serde_json::Value;
use tempfile::TempDir;
use tokio::{net::TcpListener, runtime::Runtime};

/// The uid of the organization.
pub(crate) const ORG: &str = "5b0f6c3d44617e3f2603851537be0123af4a57d9";
/// The uid of its operator.
pub(crate) const OPERATOR: &str = "7f0c2b1d44617e3f2603851537be0123af4a57d8";

const HOUR: Duration = Duration::from_secs(3600);

/// A server on a free port, with an organization `acme` and its operator.
pub(crate) struct Server {
    pub(crate) url: String,
    /// A token of the operator.
    pub(crate) token: String,
    issuer: Arc<Issuer>,
    _runtime: Runtime,
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::start_with(async |_| {})
    }

    /// Starts a server on a platform that is prepared first.
    pub(crate) fn start_with(prepare: impl AsyncFnOnce(&Platform)) -> Self {
        let runtime = Runtime::new().unwrap();
        let (url, issuer) = runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("http://{}", listener.local_addr().unwrap());
            let platform = platform().await;
            prepare(&platform).await;
            let platform = Arc::new(platform);
            let clock = Arc::new(SystemClock);
            let keys = Keys::generate(Algorithm::Es256, &SystemClock, &SystemEntropy).unwrap();
            let issuer = Issuer::new(&url, Arc::new(keys), clock.clone(), Arc::new(SystemEntropy)).unwrap();
            let issuer = Arc::new(issuer);
            let options = VerifierOptions {
                own: Some(issuer.clone()),
                trusted: Vec::new(),
                audiences: vec![url.clone()],
                cache_bytes: VerifierOptions::CACHE_BYTES,
            };
            let verifier = Arc::new(Verifier::new(options, clock.clone()).unwrap());
            let options = StsOptions {
                platform: Arc::clone(&platform),
                verifier: Arc::clone(&verifier),
                fetch: Arc::new(HttpFetch::public_only(&Network::default()).unwrap()),
                discovery: DiscoveryOptions::default(),
                clock,
            };
            let tokens = Tokens::new(Arc::new(Sts::new(options).unwrap()));
            let limits = Limits::default();
            let rest = Rest::new(platform, verifier, limits.clone()).unwrap().mount(tokens);
            let service = Layers::default().around(rest);
            tokio::spawn(async move { serve(listener, service, &limits, std::future::pending()).await });
            (url, issuer)
        });
        let mut server = Self { url, token: String::new(), issuer, _runtime: runtime };
        server.token = server.token_of(OPERATOR);
        server
    }

    /// Returns a token of an identity.
    pub(crate) fn token_of(&self, identity: &str) -> String {
        let identity = Uid::parse(identity).unwrap();
        let token = AccessToken { subject: &identity, audiences: &[&self.url], ttl: HOUR, claims: Default::default() };
        self.issuer.access_token(&token).unwrap().token
    }

    /// Returns a command line with a home of its own, which uses the token of the operator.
    pub(crate) fn ctl(&self) -> Ctl {
        let ctl = Ctl::new();
        ctl.env("PLATFORM_API", &self.url).env("PLATFORM_TOKEN", &self.token)
    }
}

/// Returns a platform in memory with the organization and its operator.
async fn platform() -> Platform {
    let (organization, operator) = (Uid::parse(ORG).unwrap(), Uid::parse(OPERATOR).unwrap());
    let clock = TestClock::ticking(Timestamp::from_millis(1_700_000_000_000), 1000);
    let settings = Settings { operators: [operator.clone()].into(), ..Settings::default() };
    let platform = platform_core::builder(Arc::new(MemoryStore::new()), clock, SeededEntropy::new(1))
        .settings(settings)
        .ephemeral_keys()
        .build()
        .unwrap();
    let first = Bootstrap { organization, organization_name: "acme".to_owned(), operator };
    Iam::of(&platform).bootstrap(&first).await.unwrap();
    platform
}

/// The command line, in an environment of its own.
pub(crate) struct Ctl {
    pub(crate) home: TempDir,
    env: Vec<(String, String)>,
}

/// The output of a command.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ctl {
    pub(crate) fn new() -> Self {
        Self { home: tempfile::tempdir().unwrap(), env: Vec::new() }
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Runs a command with these words.
    pub(crate) fn run(&self, words: &[&str]) -> Output {
        self.run_with(words, "")
    }

    /// Runs a command with a standard input.
    pub(crate) fn run_with(&self, words: &[&str], input: &str) -> Output {
        use std::io::Write;
        let mut command = Command::new(env!("CARGO_BIN_EXE_platformctl"));
        command.args(words).env_clear().env("HOME", self.home.path()).current_dir(self.home.path());
        command.env("PATH", std::env::var_os("PATH").unwrap());
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // A command that reads no input may have ended.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        let output = child.wait_with_output().unwrap();
        Output {
            code: output.status.code().unwrap(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Starts a command whose output is read while it runs.
    pub(crate) fn start(&self, words: &[&str]) -> Running {
        let mut command = Command::new(env!("CARGO_BIN_EXE_platformctl"));
        command.args(words).env_clear().env("HOME", self.home.path()).current_dir(self.home.path());
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Running { child, out }
    }

    /// Runs a command that must succeed, and returns its output.
    #[track_caller]
    pub(crate) fn ok(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert_eq!(output.code, 0, "{words:?}: {output:?}");
        output.out
    }

    /// Runs a command that must succeed, and returns the JSON that it prints.
    #[track_caller]
    pub(crate) fn json(&self, words: &[&str]) -> Value {
        let out = self.ok(&[words, &["-o", "json"]].concat());
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"))
    }

    /// Runs a command that must fail with this code, and returns the error.
    #[track_caller]
    pub(crate) fn fails(&self, code: i32, words: &[&str]) -> String {
        let output = self.run(words);
        assert_eq!(output.code, code, "{words:?}: {output:?}");
        output.err
    }

    /// Writes a file into the home and returns its path.
    pub(crate) fn file(&self, name: &str, text: &str) -> String {
        let path = self.home.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

/// A command that runs until it is dropped.
pub(crate) struct Running {
    pub(crate) child: Child,
    out: BufReader<ChildStdout>,
}

impl Running {
    /// Waits for the next line of its output.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the uid of a resource.
pub(crate) fn uid(resource: &Value) -> String {
    resource["uid"].as_str().unwrap().to_owned()
}

/// Returns the permissions of a file.
#[cfg(unix)]
pub(crate) fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}
