//! `ctl drill`: has the daemon run the nasty cases as a group, looks by itself, and judges.

use super::whole;
use socialweb_ctl::client::{Client, ClientError, Route};
use socialweb_ctl::progress::Progress;
use socialweb_ctl::{Ctl, CtlError, Exit, render};
use socialweb_daemon::drill::{self, Observed, SeenProcess, eyes};
use socialweb_wire::{Accepted, DRILL_GROUP, DrillQuery, ErrorCode, GroupQuery, GroupStatus, GroupTree, Health};
use socialweb_wire::{HostStatus, Phase, Receipt, Report};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, UNIX_EPOCH};

/// How often the daemon is asked how far it is.
const ASK: Duration = Duration::from_millis(100);
/// What is left is looked for this long before it counts as left: a process that was killed is seen for a moment longer.
const GOING: Duration = Duration::from_secs(20);

/// Runs the drill; a failure among its checks is exit code 1.
///
/// # Errors
/// What kept it from beginning. From then on whatever happens is part of the report.
pub(super) async fn run(ctl: &Ctl, timeout: Duration) -> Result<Exit, CtlError> {
    let client = Client::find(ctl.socket.as_deref(), ctl.state_dir.as_deref()).await?;
    let _one_at_a_time = lock(client.socket())?;
    let progress = Progress::on_stderr();
    let (token, seen) = (token(), Observed::default());
    let mut drill = Drill { client, timeout, token, seen, slowest: Duration::ZERO, progress };
    drill.clear_leftover().await?;
    let before = drill.status().await?;
    drill.begin().await?;
    drill.go_through(&before).await;
    drill.progress.clear();
    drill.seen.slowest_answer_ms = millis(drill.slowest);
    let subject = format!("a drill under the daemon, pid {}, version {}", before.pid, before.version);
    let report = Report::new(subject, drill::judge(&drill.seen));
    let text = whole(ctl.output, &report, || render::check::report(&report))?;
    socialweb_ctl::commands::print(&text)?;
    Ok(if report.health == Health::Fail { Exit::Failed } else { Exit::Done })
}

/// Held while a drill is under way; it goes with this process, whatever ends it. The socket's folder is locked, so that no
/// file is left.
fn lock(socket: &Path) -> Result<File, CtlError> {
    let folder = socket.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let file = File::open(folder)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => Err(not_done("another drill is under way; wait for its end")),
        Err(std::fs::TryLockError::Error(error)) => Err(error.into()),
    }
}

fn not_done(why: impl Into<String>) -> CtlError {
    CtlError::NotDone { what: "the drill".into(), why: why.into() }
}

/// Tells this drill's processes from everything else's.
fn token() -> String {
    let nanos = UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos() as u64;
    format!("{:08x}{nanos:016x}", std::process::id())
}

fn millis(took: Duration) -> u64 {
    u64::try_from(took.as_millis()).unwrap_or(u64::MAX)
}

struct Drill {
    client: Client,
    timeout: Duration,
    token: String,
    seen: Observed,
    slowest: Duration,
    progress: Progress<std::io::Stderr>,
}

impl Drill {
    async fn status(&mut self) -> Result<HostStatus, ClientError> {
        let began = Instant::now();
        let status = self.client.get::<HostStatus, GroupQuery>(Route { parts: &["status"], query: None }).await;
        self.slowest = self.slowest.max(began.elapsed());
        status
    }

    /// The drill's group; none when there is none.
    async fn group(&mut self) -> Result<Option<GroupStatus>, ClientError> {
        Ok(self.status().await?.group(DRILL_GROUP).cloned())
    }

    /// What an earlier drill left of itself because its daemon, or its client, was ended in the middle.
    async fn clear_leftover(&mut self) -> Result<(), CtlError> {
        if self.group().await?.is_none() {
            return Ok(());
        }
        socialweb_ctl::commands::note("an earlier drill was cut off; it is deleted first");
        self.change("delete").await?;
        match self.until(|group| group.is_none(), "the earlier drill's end").await {
            Ok(_) => Ok(()),
            Err(why) => Err(not_done(why)),
        }
    }

    async fn begin(&self) -> Result<Accepted, ClientError> {
        let query = DrillQuery { token: self.token.clone() };
        self.client.post(Route { parts: &["drill"], query: Some(&query) }).await
    }

    async fn change(&self, verb: &str) -> Result<Accepted, ClientError> {
        self.client.post::<_, ()>(Route::to(&["groups", DRILL_GROUP, verb])).await
    }

    async fn go_through(&mut self, before: &HostStatus) {
        self.seen.containment = before.cgroups.clone();
        let began = Instant::now();
        let ready = self.until(|group| group.is_some_and(is_settled), "the group to be Ready").await;
        self.seen.ready = Some(ready.and_then(|group| up(group.as_ref(), began.elapsed())));
        let places = self.look_while_it_runs().await;
        self.stop().await;
        self.seen.left = self.who_is_left(before.pid);
        self.seen.not_deleted = self.delete().await.err();
        self.seen.places_left = places.into_iter().chain([group_folder(before)]).filter(|path| path.exists()).collect();
        if let Ok(after) = self.status().await {
            self.seen.disturbed = disturbed(before, &after);
        }
    }

    /// Processes by our own eyes, restarts and cgroups by the daemon's word. Returns the folders that must go.
    async fn look_while_it_runs(&mut self) -> Vec<PathBuf> {
        self.seen.during = self.all_that_show();
        if let Ok(Some(group)) = self.group().await {
            let restarts = group.components.iter().map(|c| (c.name.clone(), c.restarts));
            self.seen.restarts = restarts.collect::<BTreeMap<_, _>>();
            self.seen.has_controllers = group.usage.memory_bytes.is_some() && group.usage.pids.is_some();
        }
        let tree = self.client.get::<GroupTree, ()>(Route::to(&["groups", DRILL_GROUP, "tree"])).await;
        let answered = tree.is_ok();
        let components = tree.into_iter().flat_map(|tree| tree.components);
        let runs: Vec<PathBuf> = components.filter_map(|c| c.cgroup).map(Into::into).collect();
        // A daemon that does not say is no host without cgroups.
        self.seen.has_cgroups = !runs.is_empty() || !answered;
        // <group>/<component>/<run>.
        let groups: Vec<PathBuf> =
            runs.iter().filter_map(|run| run.ancestors().nth(2)).map(Path::to_owned).take(1).collect();
        runs.into_iter().chain(groups).collect()
    }

    /// One look misses a process that is in the middle of an exec.
    fn all_that_show(&self) -> Vec<SeenProcess> {
        let mut all: BTreeMap<u32, SeenProcess> = BTreeMap::new();
        for _ in 0..3 {
            all.extend(eyes::look(&self.token).into_iter().map(|process| (process.pid, process)));
            std::thread::sleep(Duration::from_millis(50));
        }
        let living: Vec<u32> = eyes::look(&self.token).into_iter().map(|process| process.pid).collect();
        all.into_values().filter(|process| living.contains(&process.pid)).collect()
    }

    async fn stop(&mut self) {
        let began = Instant::now();
        let down = match self.change("stop").await {
            Ok(_) => self.until(|group| group.is_none_or(is_down), "the group to be down").await.map(drop),
            Err(error) => Err(error.to_string()),
        };
        self.seen.stopped = Some(down.map(|()| millis(began.elapsed())));
        let receipts = self.client.get::<Vec<Receipt>, ()>(Route::to(&["groups", DRILL_GROUP, "receipts"])).await;
        self.seen.receipt = receipts.ok().and_then(|receipts| receipts.into_iter().next());
    }

    /// Who does not go, even when waited for.
    fn who_is_left(&self, daemon: u32) -> Vec<SeenProcess> {
        let dead_before: Vec<SeenProcess> = eyes::unwaited(daemon);
        let deadline = Instant::now() + GOING;
        loop {
            let mut left = self.all_that_show();
            let still = eyes::unwaited(daemon);
            left.extend(dead_before.iter().filter(|dead| still.contains(dead)).cloned());
            if left.is_empty() || Instant::now() > deadline {
                return left;
            }
            std::thread::sleep(ASK);
        }
    }

    async fn delete(&mut self) -> Result<(), String> {
        match self.change("delete").await {
            Ok(_) => {}
            Err(ClientError::Api(error)) if error.code == ErrorCode::NotFound => return Ok(()),
            Err(error) => return Err(error.to_string()),
        }
        self.until(|group| group.is_none(), "the group to be deleted").await.map(drop)
    }

    /// Asks until it is so; else says what it waited for and what was last seen.
    async fn until(
        &mut self,
        is_so: impl Fn(Option<&GroupStatus>) -> bool,
        what: &str,
    ) -> Result<Option<GroupStatus>, String> {
        let deadline = Instant::now() + self.timeout;
        loop {
            let group = self.group().await.map_err(|error| error.to_string())?;
            if is_so(group.as_ref()) {
                return Ok(group);
            }
            self.progress.show(&format!("waiting for {what}"));
            if Instant::now() > deadline {
                let now = group.map_or("there is none".into(), |g| format!("it is {}: {}", g.phase, g.reason));
                return Err(format!("waited {} s for {what}; {now}", self.timeout.as_secs()));
            }
            tokio::time::sleep(ASK).await;
        }
    }
}

/// It is up, or it will not be.
fn is_settled(group: &GroupStatus) -> bool {
    matches!(group.phase, Phase::Ready | Phase::Unavailable | Phase::Parked)
}

fn is_down(group: &GroupStatus) -> bool {
    matches!(group.phase, Phase::Parked | Phase::Absent)
}

fn up(group: Option<&GroupStatus>, took: Duration) -> Result<u64, String> {
    match group {
        Some(group) if group.phase == Phase::Ready => Ok(millis(took)),
        Some(group) => Err(format!("the group is {}: {}", group.phase, group.reason)),
        None => Err("the group is gone".into()),
    }
}

fn group_folder(status: &HostStatus) -> PathBuf {
    Path::new(&status.state_dir).join("groups").join(DRILL_GROUP)
}

/// Other groups that had a run before which is another one now.
fn disturbed(before: &HostStatus, after: &HostStatus) -> Vec<String> {
    let runs = |group: &GroupStatus| -> Vec<(String, Option<u64>)> {
        group.components.iter().filter(|c| c.is_up()).map(|c| (c.name.clone(), c.birth)).collect()
    };
    let changed = |group: &&GroupStatus| {
        let now = after.group(&group.name).map(&runs).unwrap_or_default();
        group.name != DRILL_GROUP && runs(group).iter().any(|run| !now.contains(run))
    };
    before.groups.iter().filter(changed).map(|group| group.name.clone()).collect()
}
