//! A PostgreSQL cluster for tests, which stops with the process that started it.

use std::{
    env, fs,
    io::{BufRead, BufReader},
    os::unix::{fs::chown, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::OnceLock,
    time::Duration,
};

use crate::not_run;

/// A cluster: that of `PLATFORM_POSTGRES_URL`, or a private one.
///
/// A private cluster listens on a socket in a temporary directory. A guard process stops it and deletes the directory
/// when this value is dropped or the process ends, even by a signal.
#[derive(Debug)]
pub struct Cluster {
    url: String,
    private: Option<Private>,
}

#[derive(Debug)]
struct Private {
    /// Stops the cluster when its standard input is closed.
    guard: Child,
    directory: PathBuf,
    programs: PathBuf,
    owner: Option<(u32, u32)>,
}

/// The settings of a private cluster. Without syncs, tests on slow disks are fast; the cluster still survives the end
/// of its processes.
const SETTINGS: &str = "listen_addresses=''\nfsync=off\nmax_connections=300\nshared_buffers=64MB\njit=off\n\
     wal_level=replica\nautovacuum_naptime=5s\n";

/// The parts of Citus that the store uses.
const LIKE_CITUS: &str = "DO $$ BEGIN IF to_regclass('pg_dist_partition') IS NULL THEN \
     CREATE TABLE pg_dist_local_group (groupid int4); INSERT INTO pg_dist_local_group VALUES (0); \
     CREATE TABLE pg_dist_node (isactive bool, shouldhaveshards bool, noderole text); \
     INSERT INTO pg_dist_node VALUES (true, true, 'primary'); \
     CREATE TABLE pg_dist_partition (logicalrelid regclass, partmethod \"char\", colocationid int4); \
     CREATE FUNCTION create_distributed_table(name regclass, distribution_column text, colocate_with text) \
     RETURNS void LANGUAGE sql AS 'INSERT INTO pg_dist_partition VALUES (name, ''h'', 1)'; \
     CREATE FUNCTION create_reference_table(name regclass) \
     RETURNS void LANGUAGE sql AS 'INSERT INTO pg_dist_partition VALUES (name, ''n'', 2)'; \
     CREATE FUNCTION truncate_local_data_after_distributing_table(name regclass) \
     RETURNS void LANGUAGE sql AS 'SELECT'; END IF; END $$";

impl Cluster {
    /// Returns the cluster of this process, which is started at the first call. Without one, prints a line that begins
    /// with `NOT RUN` and returns `None`.
    ///
    /// # Panics
    /// If there is no cluster and `PLATFORM_POSTGRES_REQUIRED` is `1`.
    #[expect(clippy::panic, reason = "the result of a test program")]
    pub fn shared() -> Option<&'static Self> {
        static SHARED: OnceLock<Option<Cluster>> = OnceLock::new();
        let start = || match Self::start() {
            Ok(cluster) => Some(cluster),
            Err(why) if env::var("PLATFORM_POSTGRES_REQUIRED").is_ok_and(|value| value == "1") => {
                panic!("PostgreSQL is required: {why}")
            }
            Err(why) => {
                not_run("tests on PostgreSQL", &why);
                None
            }
        };
        SHARED.get_or_init(start).as_ref()
    }

    /// Returns the cluster of `PLATFORM_CITUS_URL`, the URL of a coordinator. Without it, prints a line that begins with
    /// `NOT RUN` and returns `None`.
    pub fn citus() -> Option<Self> {
        let url = env::var("PLATFORM_CITUS_URL").ok();
        if url.is_none() {
            not_run("tests on Citus", "PLATFORM_CITUS_URL does not name a coordinator");
        }
        url.map(|url| Self { url, private: None })
    }

    /// Returns the cluster of `PLATFORM_POSTGRES_URL`, or else starts a private one.
    ///
    /// # Errors
    /// A text that says why there is no cluster.
    pub fn start() -> Result<Self, String> {
        match env::var("PLATFORM_POSTGRES_URL") {
            Ok(url) => Ok(Self { url, private: None }),
            Err(_) => Self::start_private(""),
        }
    }

    /// Starts a private cluster with these lines of `postgresql.conf` in addition to its own.
    ///
    /// # Errors
    /// A text that says why it cannot be started.
    pub fn start_private(settings: &str) -> Result<Self, String> {
        let programs = programs().ok_or("initdb is not on PATH and not below /usr/lib/postgresql")?;
        let directory = tempfile::Builder::new().prefix("platform-postgres").tempdir().map_err(text)?.keep();
        // A database server refuses to run as root.
        let owner = owner(&directory)?;
        if let Some((user, group)) = owner {
            chown(&directory, Some(user), Some(group)).map_err(text)?;
        }
        let data = directory.join("data");
        let mut initdb = command(&programs.join("initdb"), owner);
        initdb.args(["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "-D"]);
        let output = initdb.arg(&data).current_dir("/").output().map_err(text)?;
        if !output.status.success() {
            drop(fs::remove_dir_all(&directory));
            return Err(format!("initdb failed: {}", String::from_utf8_lossy(&output.stderr)));
        }
        let configuration = data.join("postgresql.conf");
        let own = format!("{SETTINGS}unix_socket_directories='{}'\n{settings}\n", directory.display());
        fs::write(&configuration, own).map_err(text)?;
        // The shell waits until this process closes the pipe, for whatever reason.
        let script = format!(
            "pg_ctl={0}/pg_ctl\ndata={1}/data\nlog={1}/log\n\
             \"$pg_ctl\" -D \"$data\" -l \"$log\" -w -s start >&2 || {{ cat \"$log\" >&2; exit 1; }}\n\
             echo started\nwhile read -r line; do :; done\n\
             \"$pg_ctl\" -D \"$data\" -m immediate -s stop >&2\nrm -rf {1}",
            programs.display(),
            directory.display(),
        );
        let mut shell = command(Path::new("/bin/sh"), owner);
        shell.args(["-c", &script]).current_dir("/").stdin(Stdio::piped()).stdout(Stdio::piped());
        // Signals of the terminal to this process must not reach the guard before the pipe is closed.
        let mut guard = shell.process_group(0).spawn().map_err(text)?;
        let mut line = String::new();
        if let Some(stdout) = guard.stdout.take() {
            BufReader::new(stdout).read_line(&mut line).map_err(text)?;
        }
        if line.trim() != "started" {
            drop(fs::remove_dir_all(&directory));
            return Err(format!("the server did not start in {}", directory.display()));
        }
        // `/` is not allowed in the host of a URL.
        let host = directory.display().to_string().replace('/', "%2F");
        let url = format!("postgres://postgres@{host}/postgres");
        Ok(Self { url, private: Some(Private { guard, directory, programs, owner }) })
    }

    /// Returns the URL of a schema of the cluster's database, which is created if it does not exist. Stores of different
    /// schemas are independent of each other.
    ///
    /// # Errors
    /// A text that says why the schema cannot be created.
    pub async fn schema(&self, name: &str) -> Result<String, String> {
        self.execute(&self.url, &format!("CREATE SCHEMA IF NOT EXISTS \"{name}\"")).await?;
        let separator = if self.url.contains('?') { '&' } else { '?' };
        Ok(format!("{}{separator}options=-csearch_path%3D%22{name}%22", self.url))
    }

    /// Returns the URL of a schema as [`Cluster::schema`], without what an earlier run has left in it.
    ///
    /// # Errors
    /// A text that says why the schema cannot be created.
    pub async fn empty_schema(&self, name: &str) -> Result<String, String> {
        self.execute(&self.url, &format!("DROP SCHEMA IF EXISTS \"{name}\" CASCADE")).await?;
        self.schema(name).await
    }

    /// Executes statements, separated by semicolons, at the URL of the cluster's database, or of a schema of it.
    ///
    /// # Errors
    /// The error of the first statement that fails.
    pub async fn execute(&self, url: &str, statements: &str) -> Result<(), String> {
        let connected = tokio_postgres::connect(url, tokio_postgres::NoTls).await;
        let (client, connection) = connected.map_err(|error| error.to_string())?;
        let driver = tokio::spawn(connection);
        let done = client.batch_execute(statements).await;
        drop(client);
        drop(driver.await);
        done.map_err(|error| error.as_db_error().map_or_else(|| error.to_string(), ToString::to_string))
    }

    /// Returns the statements that make a copy of the database of a private cluster.
    ///
    /// # Errors
    /// A text that says why not.
    pub fn dump(&self) -> Result<String, String> {
        let private = self.private.as_ref().ok_or("the cluster is not private")?;
        let mut dump = command(&private.programs.join("pg_dump"), private.owner);
        dump.args(["--inserts", "--no-owner", "--no-privileges", "--no-comments", "--dbname", &self.url]);
        let output = dump.current_dir("/").output().map_err(text)?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        let text = String::from_utf8_lossy(&output.stdout);
        // Without what depends on the version of PostgreSQL: comments, settings and commands for psql.
        let is_kept =
            |line: &&str| !line.is_empty() && !["--", "SET ", "\\"].iter().any(|start| line.starts_with(start));
        Ok(text.lines().filter(is_kept).map(|line| format!("{line}\n")).collect())
    }

    /// Returns the URL of a schema as [`Cluster::schema`], with the catalog and the functions of Citus as far as the
    /// store uses them. They distribute nothing, but the store then uses its statements for Citus.
    ///
    /// # Errors
    /// A text that says why the schema cannot be created.
    pub async fn schema_like_citus(&self, name: &str) -> Result<String, String> {
        let url = self.schema(name).await?;
        let (client, connection) =
            tokio_postgres::connect(&url, tokio_postgres::NoTls).await.map_err(|error| error.to_string())?;
        let driver = tokio::spawn(connection);
        let created = client.batch_execute(LIKE_CITUS).await.map_err(|error| error.to_string());
        drop(client);
        drop(driver.await);
        created.map(|()| url)
    }

    /// Returns the URL of the cluster's database.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Kills all processes of a private cluster, as a crash does; nothing else is written.
    ///
    /// # Errors
    /// A text that says why not.
    pub fn crash(&self) -> Result<(), String> {
        let private = self.private.as_ref().ok_or("the cluster is not private")?;
        let pid = fs::read_to_string(private.directory.join("data/postmaster.pid")).map_err(text)?;
        let pid = pid.lines().next().unwrap_or_default().to_owned();
        let mut kill = command(Path::new("kill"), private.owner);
        kill.args(["-9", &pid]).status().map_err(text)?;
        // The other processes end when they notice that their parent is gone.
        std::thread::sleep(Duration::from_millis(300));
        Ok(())
    }

    /// Makes the next [`Cluster::restart`] of a private cluster start it as a standby, which answers reads and refuses
    /// writes.
    ///
    /// # Errors
    /// A text that says why not.
    pub fn demote(&self) -> Result<(), String> {
        let private = self.private.as_ref().ok_or("the cluster is not private")?;
        fs::write(private.directory.join("data/standby.signal"), "").map_err(text)
    }

    /// Makes a private cluster that runs as a standby the primary. It begins another timeline, as in a failover.
    ///
    /// # Errors
    /// A text that says why not.
    pub fn promote(&self) -> Result<(), String> {
        let private = self.private.as_ref().ok_or("the cluster is not private")?;
        let mut promote = command(&private.programs.join("pg_ctl"), private.owner);
        promote.arg("-D").arg(private.directory.join("data")).args(["-w", "-s", "promote"]).current_dir("/");
        let status = promote.stdout(Stdio::null()).stderr(Stdio::null()).status().map_err(text)?;
        if status.success() { Ok(()) } else { Err("the standby is not promoted".to_owned()) }
    }

    /// Stops all processes of a private cluster where they are, as a frozen machine does.
    ///
    /// # Errors
    /// A text that says why not.
    pub fn freeze(&self) -> Result<(), String> {
        self.signal("-STOP")
    }

    /// Continues a private cluster after [`Cluster::freeze`].
    ///
    /// # Errors
    /// A text that says why not.
    pub fn thaw(&self) -> Result<(), String> {
        self.signal("-CONT")
    }

    fn signal(&self, signal: &str) -> Result<(), String> {
        let private = self.private.as_ref().ok_or("the cluster is not private")?;
        let pid = fs::read_to_string(private.directory.join("data/postmaster.pid")).map_err(text)?;
        let pid = pid.lines().next().unwrap_or_default();
        let mut kill = command(Path::new("kill"), private.owner);
        kill.args([signal, pid]);
        // Each server process has a process group of its own.
        for process in fs::read_dir("/proc").map_err(text)?.flatten() {
            let stat = fs::read_to_string(process.path().join("stat")).unwrap_or_default();
            let parent = stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1));
            if parent == Some(pid) {
                kill.arg(process.file_name());
            }
        }
        // A process may have ended in between.
        kill.stderr(Stdio::null()).status().map_err(text)?;
        Ok(())
    }

    /// Starts a private cluster again after [`Cluster::crash`].
    ///
    /// # Errors
    /// A text that says why not.
    pub fn restart(&self) -> Result<(), String> {
        let private = self.private.as_ref().ok_or("the cluster is not private")?;
        for _ in 0..20 {
            let mut start = command(&private.programs.join("pg_ctl"), private.owner);
            start.arg("-D").arg(private.directory.join("data")).arg("-l").arg(private.directory.join("log"));
            let status =
                start.args(["-w", "-s", "start"]).current_dir("/").stdout(Stdio::null()).stderr(Stdio::null()).status();
            if status.map_err(text)?.success() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(300));
        }
        Err("the server did not start again".to_owned())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some(private) = &mut self.private {
            drop(private.guard.stdin.take());
            drop(private.guard.wait());
        }
    }
}

fn text(error: std::io::Error) -> String {
    error.to_string()
}

/// Returns the directory of the server's programs.
fn programs() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let on_path = env::split_paths(&path).map(|directory| directory.join("initdb")).find(|initdb| initdb.is_file());
    // The other programs are next to the file that a link leads to.
    let on_path = on_path.and_then(|initdb| initdb.canonicalize().ok()?.parent().map(Path::to_owned));
    if let Some(programs) = on_path.filter(|programs| programs.join("pg_ctl").is_file()) {
        return Some(programs);
    }
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
    let mut found: Vec<PathBuf> = versions.flatten().map(|version| version.path().join("bin")).collect();
    found.retain(|programs| programs.join("initdb").is_file() && programs.join("pg_ctl").is_file());
    found.sort();
    found.pop()
}

/// Returns the user and the group `postgres` if the directory, which this process has created, belongs to root.
fn owner(directory: &Path) -> Result<Option<(u32, u32)>, String> {
    use std::os::unix::fs::MetadataExt;
    if fs::metadata(directory).map_err(text)?.uid() != 0 {
        return Ok(None);
    }
    let users = fs::read_to_string("/etc/passwd").map_err(text)?;
    let line = users.lines().find(|line| line.starts_with("postgres:")).ok_or("root needs a user `postgres`")?;
    let mut fields = line.split(':').skip(2).map(|field| field.parse().ok());
    let (user, group) = (fields.next().flatten(), fields.next().flatten());
    Ok(user.zip(group))
}

fn command(program: &Path, owner: Option<(u32, u32)>) -> Command {
    let mut command = Command::new(program);
    if let Some((user, group)) = owner {
        command.uid(user).gid(group);
    }
    command
}
