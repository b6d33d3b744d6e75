//! A launch becomes a process: folders and files first, then its own cgroup, its pipe, and the clone.

use super::live::{Key, Live, Owner};
use super::watch::Saying;
use super::{Containment, Host, Msg};
use crate::failpoint;
use crate::logs::{Source, Watch};
use crate::probe::Signalled;
use crate::state::{Fsync, read_regular, write_atomic};
use socialweb_core::{ComponentSpec, Event, Kind, Launch, Probe, Role, Traces, mutant};
use socialweb_sys::cgroup::Cgroup;
use socialweb_sys::socket::clear_stale_socket;
use socialweb_sys::spawn::{Command, ExecPipe, Output, Spawned};
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::AbortHandle;

/// The variable by which a process of ours is known, wherever it hides: `<state id>/<group>/<component>/<birth>`.
pub(crate) const MARKER: &str = "SOCIALWEB_BIRTH";

impl Host {
    pub(super) fn spawn_run(&mut self, key: Key, role: Role) {
        let Some(spec) = self.groups.get(&key.group).and_then(|h| h.machine.component_spec(&key.component)).cloned()
        else {
            return;
        };
        let Some(launch) = launch_of(&spec, role) else {
            let error = format!("the {role} is no longer in the configuration");
            return self.later(&key.group, Event::SpawnFailed { component: key.component, birth: key.birth, error });
        };
        if let Err(error) = self.try_spawn(&key, role, &spec, launch) {
            // What was made for it goes with the run's removal, which core asks for.
            self.later(&key.group, Event::SpawnFailed { component: key.component, birth: key.birth, error });
        }
    }

    fn try_spawn(&mut self, key: &Key, role: Role, spec: &ComponentSpec, launch: &Launch) -> Result<(), String> {
        prepare(launch)?;
        failpoint::reach("launch-prepared");
        let cgroup = self.make_run_cgroup(key)?;
        failpoint::reach("run-cgroup-made");
        self.limit_component(key);
        let (ready, beat) = (Signalled::new(), Signalled::new());
        let main = role == Role::Main;
        let watch = main.then(|| log_watch(spec, &ready, &beat)).flatten();
        let source = Source { group: key.group.clone(), component: key.component.clone() };
        let folder = self.state.layout().logs(&key.group);
        let (output, pipe) = self.logs.attach(source, key.birth, folder, watch).map_err(|e| crate::chain::chain(&e))?;
        let mut command = self.command(key, launch);
        self.limit_process(key, spec, launch, &mut command);
        command.output = Output::Merged(output);
        let wants_notify = main && wants_notify(spec);
        if wants_notify {
            command.env.push(("NOTIFY_SOCKET".into(), self.paths.notify.display().to_string()));
        }
        let notification = match &spec.readiness.probe {
            Probe::NotificationFd { fd } if main => Some(notification_pipe(&mut command, *fd)?),
            _ => None,
        };
        let spawned = match command.spawn(cgroup.as_ref()) {
            Ok(spawned) => spawned,
            Err(error) => {
                self.logs.finish(pipe);
                return Err(crate::chain::chain(&error));
            }
        };
        failpoint::reach(if spec.kind == Kind::OneShot { "task-spawned" } else { "spawned" });
        let exec = watch_exec(key.clone(), spawned.exec, self.tx.clone());
        self.pids.insert(spawned.pid, Owner::Leader(key.clone()));
        let mut tasks = Vec::new();
        if let Some(read) = notification {
            tasks.push(watch_notification(key.clone(), read, self.tx.clone()));
        }
        let live = Live {
            pid: spawned.pid,
            start_time: spawned.start_time,
            pidfd: spawned.pidfd,
            cgroup,
            exec: Some(exec),
            exec_failed: None,
            exited: false,
            status: None,
            traces: Traces::default(),
            oom_before: self.group_oom_kills(key),
            emptying: None,
            others: Vec::new(),
            probe: None,
            ready,
            beat,
            tasks,
            pipe,
        };
        self.births.insert(key.clone(), Box::new(live));
        failpoint::reach("run-noted");
        Ok(())
    }

    /// An exec probe: the same hygiene, in a cgroup of its own below the run's, without output. What an earlier probe left
    /// goes first, so that a probe that hangs does not fill the host.
    pub(super) fn spawn_probe(&mut self, key: &Key, launch: &Launch) -> Result<(Spawned, Option<Cgroup>), String> {
        let cgroup = self.births.get(key).and_then(|live| live.cgroup.as_ref()).map(|run| run.child("probe"));
        if let Some(cgroup) = &cgroup {
            if cgroup.exists() {
                cgroup.kill().map_err(|e| crate::chain::chain(&e))?;
                cgroup
                    .remove()
                    .map_err(|e| format!("an earlier probe is still being ended: {}", crate::chain::chain(&e)))?;
            }
            cgroup.create().map_err(|e| crate::chain::chain(&e))?;
        }
        prepare(launch)?;
        let mut command = self.command(key, launch);
        if let Some(spec) = self.groups.get(&key.group).and_then(|h| h.machine.component_spec(&key.component)).cloned()
        {
            self.limit_process(key, &spec, &spec.launch, &mut command);
        }
        let spawned = command.spawn(cgroup.as_ref()).map_err(|e| crate::chain::chain(&e))?;
        Ok((spawned, cgroup))
    }

    fn command(&self, key: &Key, launch: &Launch) -> Command {
        let mut command = Command::new(launch.argv.clone(), &launch.cwd);
        command.env = launch.env.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
        if !mutant!("l3-no-marker") {
            command.env.push((MARKER.into(), format!("{}/{key}", self.paths.id)));
        }
        command.nofile = launch.nofile;
        command
    }

    fn make_run_cgroup(&self, key: &Key) -> Result<Option<Cgroup>, String> {
        let Some(cgroup) = self.run_cgroup(key) else { return Ok(None) };
        cgroup.create().map_err(|e| crate::chain::chain(&e))?;
        cgroup.limit_depth().map_err(|e| crate::chain::chain(&e))?;
        // A sister may have frozen the group: what is started in it would hang before its first instruction.
        if let Containment::Cgroups { tree, .. } = &self.containment {
            tree.thaw_above(&cgroup).map_err(|e| crate::chain::chain(&e))?;
        }
        Ok(Some(cgroup))
    }

    /// `<group>/<component>/<birth>`; none in the fallback.
    pub(super) fn run_cgroup(&self, key: &Key) -> Option<Cgroup> {
        match &self.containment {
            Containment::Fallback => None,
            Containment::Cgroups { tree, .. } => {
                let component = tree.child(key.group.as_str()).child(key.component.as_str());
                Some(component.child(&key.birth.to_string()))
            }
        }
    }

    /// exec of a run is decided.
    pub(super) fn exec_done(&mut self, key: &Key, result: Result<(), String>) {
        let Some(live) = self.births.get_mut(key) else { return };
        live.exec = None;
        let (component, birth) = (key.component.clone(), key.birth);
        match result {
            Ok(()) => {
                let pid = live.pid;
                failpoint::reach("exec-seen");
                self.feed(&key.group, Event::Spawned { component, birth, pid });
            }
            // Told once the process is waited for, so that its number is not forgotten while it exists.
            Err(error) => live.exec_failed = Some(error),
        }
        if self.births.get(key).is_some_and(|live| live.exited) {
            self.leader_gone(key);
        }
    }
}

/// Looks for the lines that mean ready or alive.
fn log_watch(spec: &ComponentSpec, ready: &Signalled, beat: &Signalled) -> Option<Watch> {
    let readiness = match &spec.readiness.probe {
        Probe::LogLine { contains } => Some(contains.clone()),
        _ => None,
    };
    let liveness = match spec.liveness.as_ref().map(|l| &l.probe) {
        Some(Probe::LogLine { contains }) => Some(contains.clone()),
        _ => None,
    };
    if readiness.is_none() && liveness.is_none() {
        return None;
    }
    let (ready, beat) = (ready.clone(), beat.clone());
    Some(Box::new(move |line| {
        if readiness.as_ref().is_some_and(|text| line.text.contains(text)) {
            ready.raise();
        }
        match &liveness {
            Some(text) if line.text.contains(text) => beat.raise(),
            Some(_) => {}
            None if ready.is_raised() => return ControlFlow::Break(()),
            None => {}
        }
        ControlFlow::Continue(())
    }))
}

fn launch_of(spec: &ComponentSpec, role: Role) -> Option<&Launch> {
    match role {
        Role::Main => Some(&spec.launch),
        Role::Pre(n) => spec.pre.get(n).map(|t| &t.launch),
        Role::Post(n) => spec.post.get(n).map(|t| &t.launch),
    }
}

fn wants_notify(spec: &ComponentSpec) -> bool {
    spec.readiness.probe == Probe::Notify || spec.liveness.as_ref().is_some_and(|l| l.probe == Probe::Notify)
}

/// Folders, files and stale sockets, before the process exists.
fn prepare(launch: &Launch) -> Result<(), String> {
    for dir in std::iter::once(&launch.cwd).chain(&launch.dirs) {
        super::execute::make_private(dir)?;
    }
    for file in &launch.files {
        if read_regular(&file.path).is_ok_and(|now| now == file.content.as_bytes()) {
            continue;
        }
        write_atomic(&file.path, file.content.as_bytes(), file.mode, Fsync::No).map_err(|e| crate::chain::chain(&e))?;
    }
    let stale = |path| clear_stale_socket(path).map_err(|e| crate::chain::chain(&e));
    launch.stale_sockets.iter().try_for_each(|path| stale(path))
}

/// Waits until exec is decided, however long that takes, and tells the loop.
fn watch_exec(key: Key, pipe: ExecPipe, tx: UnboundedSender<Msg>) -> AbortHandle {
    let task = async move {
        let result = exec_result(pipe).await;
        let _ = tx.send(Msg::Exec(key, result));
    };
    tokio::spawn(task).abort_handle()
}

/// How an exec went, however long that takes.
pub(super) async fn exec_result(pipe: ExecPipe) -> Result<(), String> {
    let pipe = crate::fd::watch(pipe).map_err(|e| format!("cannot watch its exec: {e}"))?;
    read_exec(&pipe).await
}

async fn read_exec(pipe: &AsyncFd<ExecPipe>) -> Result<(), String> {
    loop {
        let mut ready = pipe.readable().await.map_err(|e| format!("cannot watch its exec: {e}"))?;
        match ready.try_io(|pipe| pipe.get_ref().read_result()) {
            Ok(Ok(result)) => return result.map_err(|e| crate::chain::chain(&e)),
            Ok(Err(e)) => return Err(format!("cannot read how its exec went: {e}")),
            Err(_would_block) => {}
        }
    }
}

fn notification_pipe(command: &mut Command, fd: i32) -> Result<OwnedFd, String> {
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    let failed = |e| format!("cannot make its notification pipe: {e}");
    let (read, write) = nix::unistd::pipe2(OFlag::O_CLOEXEC).map_err(failed)?;
    // Only our end: the program's must wait when the pipe is full, or its newline is lost.
    fcntl(&read, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map_err(failed)?;
    command.extra_fds.push((write, fd));
    Ok(read)
}

/// s6's contract: a newline on the descriptor means ready.
fn watch_notification(key: Key, read: OwnedFd, tx: UnboundedSender<Msg>) -> AbortHandle {
    let task = async move {
        let Ok(pipe) = crate::fd::watch(read) else { return };
        let mut bytes = [0u8; 512];
        loop {
            let Ok(mut ready) = pipe.readable().await else { return };
            match ready.try_io(|pipe| Ok(nix::unistd::read(pipe.get_ref(), &mut bytes)?)) {
                Ok(Ok(n)) if bytes[..n].contains(&b'\n') => {
                    let _ = tx.send(Msg::Said(key, Saying::Ready));
                    return;
                }
                Ok(Ok(0)) | Ok(Err(_)) => return,
                // One that writes without end and without a newline must not keep this thread.
                Ok(Ok(_)) => tokio::task::yield_now().await,
                Err(_would_block) => {}
            }
        }
    };
    tokio::spawn(task).abort_handle()
}
