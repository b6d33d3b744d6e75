//! One `[[component]]` table to a [`ComponentSpec`]. The same code runs when a file is loaded, with stand-ins for what
//! is not known yet, only to find what is wrong; and when the group's ports are leased, to make the spec.

use super::binaries::{Binaries, is_executable};
use super::cluster_file::{ComponentFile, ComponentKind, RestartFile};
use super::env::Env;
use super::source::Step;
use super::value::HumanDuration;
use super::words::Words;
use socialweb_core::spec::{Backoff, Readiness, StopPolicy, Task};
use socialweb_core::{ComponentName, ComponentSpec, Kind, Launch, Probe, Rank, Restart};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Shortest interval or limit: below it a probe is a busy loop.
const SHORTEST: Duration = Duration::from_millis(10);

/// Something wrong, and the way to it from the component's table.
pub(super) type Fault<'a> = (Vec<Step<'a>>, String);

/// Makes one spec, and notes what is wrong on the way.
pub(super) struct Builder<'a> {
    pub file: &'a ComponentFile,
    pub words: Words<'a>,
    pub env: &'a Env,
    /// Where programs are; absent = they are not looked for.
    pub binaries: Option<&'a Binaries>,
    pub faults: Vec<Fault<'a>>,
}

impl<'a> Builder<'a> {
    /// The spec; usable only when `faults` is empty afterwards.
    pub fn component(&mut self, rank: Rank) -> ComponentSpec {
        let file = self.file;
        self.check_rest();
        let launch = self.launch();
        let readiness = self.readiness(&launch);
        let liveness = self.liveness(&launch, &readiness);
        let mut spec = ComponentSpec {
            name: file.name.clone(),
            rank,
            needs: file.needs.clone(),
            kind: match file.kind {
                ComponentKind::Service => Kind::Service,
                ComponentKind::OneShot => Kind::OneShot,
            },
            pre: self.hooks("pre", &file.pre, &launch),
            post: self.hooks("post", &file.post, &launch),
            launch,
            readiness,
            liveness,
            restart: restart(file.restart),
            backoff: self.backoff(),
            stop: self.stop(),
            limits: file.limits.bounds(),
        };
        if let Probe::Unix { path } = &spec.readiness.probe {
            spec.launch.stale_sockets.push(path.clone());
        }
        spec
    }

    pub(super) fn fault(&mut self, steps: &[Step<'a>], message: impl Into<String>) {
        self.faults.push((steps.to_vec(), message.into()));
    }

    /// The text with its placeholders filled in.
    pub(super) fn fill(&mut self, steps: &[Step<'a>], text: &str) -> String {
        if text.contains('\0') {
            self.fault(steps, "a NUL character cannot be handed to a program; remove it");
        }
        self.words.fill(text).unwrap_or_else(|message| {
            self.fault(steps, message);
            String::new()
        })
    }

    /// The filled text as an absolute path.
    pub(super) fn path(&mut self, steps: &[Step<'a>], text: &str) -> PathBuf {
        let before = self.faults.len();
        let path = PathBuf::from(self.fill(steps, text));
        if self.faults.len() == before && !path.is_absolute() {
            self.fault(steps, format!("{text:?} must be an absolute path; begin it with {{dir}} or {{runtime}}"));
        }
        path
    }

    /// The duration, not shorter than a probe or wait can sensibly be.
    pub(super) fn duration(&mut self, steps: &[Step<'a>], given: Option<HumanDuration>, default: Duration) -> Duration {
        if given.is_some_and(|d| d.0 < SHORTEST) {
            self.fault(steps, "is too short; write at least \"10ms\"");
        }
        given.map_or(default, |d| d.0)
    }

    fn check_rest(&mut self) {
        let file = self.file;
        for (i, role) in file.ports.iter().enumerate() {
            if let Err(error) = ComponentName::new(role.as_str()) {
                self.fault(&["ports".into(), i.into()], format!("as the role of a port, {error}"));
            }
        }
        for name in file.env.keys() {
            self.check_variable(&["env".into(), name.as_str().into()], name);
        }
        for (i, name) in file.env_pass.iter().enumerate() {
            self.check_variable(&["env_pass".into(), i.into()], name);
        }
        if file.oom_score_adj.is_some_and(|n| !(-1000..=1000).contains(&n)) {
            self.fault(&["oom_score_adj".into()], "\"oom_score_adj\" must be between -1000 and 1000");
        }
        if file.nofile.is_some_and(|n| n < 16) {
            self.fault(&["nofile".into()], "\"nofile\" must be at least 16");
        }
        for (key, message) in file.limits.faults() {
            self.fault(&["limits".into(), key.into()], format!("\"limits.{key}\" {message}"));
        }
        if file.kind == ComponentKind::OneShot && file.liveness.is_some() {
            self.fault(&["liveness".into()], "a one-shot has no liveness: its end is its proof; remove this");
        }
    }

    fn check_variable(&mut self, steps: &[Step<'a>], name: &str) {
        if name.is_empty() || name.contains(['=', '\0']) {
            self.fault(steps, format!("{name:?} is no name of a variable"));
        } else if name == "NOTIFY_SOCKET" {
            self.fault(steps, "NOTIFY_SOCKET is set by the supervisor where readiness is \"notify\"; remove it");
        }
    }

    fn launch(&mut self) -> Launch {
        let file = self.file;
        let argv = self.argv(&["argv".into()], &file.argv, file.pre.is_empty());
        let cwd = self.path(&["cwd".into()], file.cwd.as_deref().unwrap_or("{dir}/{component}"));
        let mut launch = Launch::new(argv, cwd);
        for name in &file.env_pass {
            if let Some(value) = self.env.var(name) {
                launch.env.insert(name.clone(), value.into());
            }
        }
        for (name, value) in &file.env {
            let value = self.fill(&["env".into(), name.as_str().into()], value);
            launch.env.insert(name.clone(), value);
        }
        launch.nofile = file.nofile;
        launch.oom_score_adj = file.oom_score_adj;
        launch.core_limit = file.limits.core_max.map_or(0, |size| size.0);
        launch
    }

    /// Program and arguments. A program that a hook may still build (`must_exist` false) is not looked for.
    pub(super) fn argv(&mut self, steps: &[Step<'a>], argv: &[String], must_exist: bool) -> Vec<String> {
        let before = self.faults.len();
        let mut filled = Vec::with_capacity(argv.len());
        for (i, text) in argv.iter().enumerate() {
            let at: Vec<Step<'a>> = steps.iter().copied().chain([i.into()]).collect();
            filled.push(self.fill(&at, text));
        }
        match filled.first().map(String::as_str) {
            None | Some("") if self.faults.len() == before => {
                self.fault(steps, "names no program; write its absolute path, or its bare name, as the first element");
            }
            Some(program) if self.faults.len() == before => match self.program(program, must_exist) {
                Ok(path) => filled[0] = path,
                Err(message) => self.fault(steps, message),
            },
            _ => {}
        }
        filled
    }

    fn program(&self, program: &str, must_exist: bool) -> Result<String, String> {
        let absolute = program.starts_with('/');
        if !absolute && program.contains('/') {
            return Err(format!(
                "the program {program:?} must be an absolute path or a bare name; begin it with / or {{dir}}"
            ));
        }
        match self.binaries {
            Some(_) if absolute && must_exist && !is_executable(Path::new(program)) => {
                Err(format!("the program {program} is no executable file; install it or correct the path"))
            }
            Some(binaries) if !absolute => {
                let found = binaries.find(program).and_then(|p| p.into_os_string().into_string().ok());
                found.ok_or_else(|| {
                    format!("the program {program:?} was not found on PATH or in binaries.search; install it or write its absolute path")
                })
            }
            _ => Ok(program.to_string()),
        }
    }

    fn hooks(&mut self, key: &'static str, hooks: &[Vec<String>], main: &Launch) -> Vec<Task> {
        let timeout = self.duration(&["hook_timeout".into()], self.file.hook_timeout, Duration::from_secs(60));
        let mut tasks = Vec::with_capacity(hooks.len());
        for (i, argv) in hooks.iter().enumerate() {
            let argv = self.argv(&[key.into(), i.into()], argv, i == 0);
            tasks.push(Task { launch: Launch { argv, ..main.clone() }, timeout });
        }
        tasks
    }

    fn backoff(&mut self) -> Backoff {
        let (file, default) = (self.file.backoff.clone(), Backoff::default());
        let base = self.duration(&["backoff".into(), "base".into()], file.base, default.base);
        let max = self.duration(&["backoff".into(), "max".into()], file.max, default.max.max(base));
        if max < base {
            self.fault(&["backoff".into(), "max".into()], "\"backoff.max\" must not be below \"backoff.base\"");
        }
        if file.limit == Some(0) {
            self.fault(&["backoff".into(), "limit".into()], "\"backoff.limit\" must be at least 1");
        }
        Backoff {
            base,
            max,
            stable: self.duration(&["backoff".into(), "stable".into()], file.stable, default.stable),
            limit: file.limit.unwrap_or(default.limit),
            give_up: self.duration(&["backoff".into(), "give_up".into()], file.give_up, default.give_up),
        }
    }

    fn stop(&self) -> StopPolicy {
        let file = &self.file.stop;
        let mut stop = StopPolicy::term(file.grace.map_or(Duration::from_secs(10), |d| d.0));
        stop.signal = file.signal.map_or(stop.signal, |s| s.0);
        stop.grace_restart = file.grace_restart.map_or(stop.grace_restart, |d| d.0);
        stop.kill_wait = file.kill_wait.map_or(stop.kill_wait, |d| d.0);
        stop
    }

    fn readiness(&mut self, launch: &Launch) -> Readiness {
        let file = self.file.readiness.as_ref();
        let at = |key| ["readiness".into(), Step::Key(key)];
        let deadline = self.duration(&at("deadline"), file.and_then(|f| f.deadline), Duration::from_secs(60));
        let cap = self.duration(&at("cap"), file.and_then(|f| f.cap), deadline.max(Duration::from_secs(20 * 60)));
        if cap < deadline {
            self.fault(&at("cap"), "\"readiness.cap\" must not be below \"readiness.deadline\"");
        }
        Readiness {
            probe: file.map_or(Probe::Running, |f| self.readiness_probe(f, launch)),
            interval: self.duration(&at("interval"), file.and_then(|f| f.interval), Duration::from_secs(1)),
            timeout: self.duration(&at("timeout"), file.and_then(|f| f.timeout), Duration::from_secs(2)),
            deadline,
            cap,
        }
    }
}

fn restart(file: RestartFile) -> Restart {
    match file {
        RestartFile::Alone => Restart::Alone,
        RestartFile::WithDependents => Restart::WithDependents,
        RestartFile::StopGroup => Restart::StopGroup,
        RestartFile::Never => Restart::Never,
    }
}
