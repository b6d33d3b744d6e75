//! One case for each failpoint: a daemon is killed there by its own hand, in the middle of a group's life, and the next
//! one is judged. A point that the life never reaches is a failure too.

use crate::scene::{GROUP, Manners, Scene};
use crate::support::{Daemon, PATIENCE, long, wait_for};
use crate::{STEADY, SUPERVISOR};
use serde_json::Value;
use socialweb_daemon::failpoint::POINTS;
use socialweb_wire::Phase;
use std::collections::BTreeMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Cases at a time: they wait more than they work.
const AT_ONCE: usize = 6;
/// Asking is a process each time, so it is not done more often than it is needed.
const ASK_AGAIN: Duration = Duration::from_millis(100);

#[test]
fn a_kill_at_any_point_of_a_groups_life_loses_nothing_and_starts_everything_once() {
    let points: Vec<String> = POINTS.iter().map(ToString::to_string).collect();
    judge_all(&points);
}

#[test]
fn a_kill_at_the_second_and_third_time_of_any_point_does_neither() {
    if !long("a_kill_at_the_second_and_third_time_of_any_point_does_neither") {
        return;
    }
    // What is done once only: at the daemon's end, in a delete, in a sweep, for a new group.
    let once = [
        "shutdown-begun",
        "stragglers-ended",
        "tree-removed",
        "sockets-removed",
        "trashed",
        "ports-released",
        "group-forgotten",
        "trash-removed",
        "survivors-signalled",
        "survivors-gone",
    ];
    let again = POINTS.iter().filter(|p| !once.contains(*p));
    let points: Vec<String> = again.flat_map(|p| [format!("{p}:2"), format!("{p}:3")]).collect();
    judge_all(&points);
}

fn judge_all(points: &[String]) {
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(point) = points.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| judge(point))) {
                        let text = panic.downcast_ref::<String>().cloned().unwrap_or_default();
                        failures.lock().unwrap().push(format!("---- {point}: {text}"));
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{} of {} points:\n{}", failures.len(), points.len(), failures.join("\n"));
}

fn judge(point: &str) {
    let name = point.split(':').next().unwrap_or(point);
    // Only what ignores the signal is killed; the sweep of such takes its whole grace, so the others follow.
    let manners = if name.contains("kill") { Manners::Ignores } else { Manners::Follows };
    let scene = Scene::new(&point.replace(':', "-"), manners);
    let mut daemon = Daemon::new(SUPERVISOR, &[(GROUP, &scene.config(1)), ("steady", STEADY)]);
    if name.starts_with("survivors") {
        daemon.start();
        daemon.wait_phase(GROUP, Phase::Ready);
        daemon.kill_9();
    }
    daemon.set_env("SOCIALWEB_FAILPOINT", Some(point));
    daemon.launch();
    let died = Life { daemon: &mut daemon, scene: &scene }.live();
    if !died {
        // Only the first time has to come.
        assert!(point.contains(':'), "the point is never reached\n{}", daemon.log());
        return daemon.assert_nothing_left();
    }
    let before = Kept::read(&daemon);
    let mark = Scene::mark();
    daemon.set_env("SOCIALWEB_FAILPOINT", None);
    daemon.start();
    check(&daemon, &scene, &before, mark);
    daemon.stop();
    daemon.assert_nothing_left();
    let after = Kept::read(&daemon);
    assert_eq!(after.odd, Vec::<String>::new(), "\n{}", daemon.log());
}

/// All that can happen to a group, until the daemon dies of it.
struct Life<'a> {
    daemon: &'a mut Daemon,
    scene: &'a Scene,
}

impl Life<'_> {
    /// True when the daemon was killed on the way.
    fn live(&mut self) -> bool {
        self.up()
            || self.edit()
            || self.ask(&["restart", GROUP])
            || self.ask(&["stop", GROUP])
            || self.ask(&["start", GROUP])
            || self.undeclare()
            || self.ask(&["delete", GROUP, "--yes"])
            || self.gone()
            || self.term()
    }

    fn up(&mut self) -> bool {
        self.until(|daemon| {
            let status = daemon.try_status()?;
            let ready = |name: &str| status.group(name).is_some_and(|g| g.phase == Phase::Ready);
            (ready(GROUP) && ready("steady")).then_some(())
        })
    }

    fn edit(&mut self) -> bool {
        self.daemon.write_cluster(GROUP, &self.scene.config(2));
        self.ask(&["reload"]) || self.up()
    }

    fn undeclare(&mut self) -> bool {
        self.daemon.remove_cluster(GROUP);
        self.ask(&["reload"])
            || self.until(|daemon| {
                let status = daemon.try_status()?;
                status.group(GROUP).is_some_and(|g| g.phase == Phase::Parked).then_some(())
            })
    }

    /// The data goes beside the loop.
    fn gone(&mut self) -> bool {
        let groups = self.daemon.state().join("groups");
        self.until(|_| (names(&groups) == ["steady"]).then_some(()))
    }

    fn term(&mut self) -> bool {
        self.daemon.signal(nix::sys::signal::Signal::SIGTERM);
        let mut killed = false;
        self.until_ended(|status| killed = !status.success());
        killed
    }

    /// Asks, and says whether the daemon died of it. What ctl says then does not matter.
    fn ask(&mut self, args: &[&str]) -> bool {
        let out = self.daemon.ctl(args);
        if out.status.success() {
            return self.died();
        }
        let mut code = None;
        self.until_ended(|status| code = Some(status));
        assert!(code.is_some(), "ctl {args:?}: {out:?}\n{}", self.daemon.log());
        true
    }

    fn died(&mut self) -> bool {
        self.daemon.ended().is_some()
    }

    /// Waits for a state, or for the daemon's death: true.
    fn until(&mut self, mut there: impl FnMut(&Daemon) -> Option<()>) -> bool {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if self.died() {
                return true;
            }
            if there(self.daemon).is_some() {
                return false;
            }
            assert!(Instant::now() < deadline, "a state that never comes\n{}", self.daemon.log());
            std::thread::sleep(ASK_AGAIN);
        }
    }

    fn until_ended(&mut self, mut with: impl FnMut(std::process::ExitStatus)) {
        wait_for("the daemon ends", || self.daemon.ended().map(&mut with));
    }
}

/// What is on the disk of a daemon that is not there.
#[derive(Debug, Default, PartialEq)]
struct Kept {
    declared: bool,
    folder: bool,
    parked: bool,
    ports: BTreeMap<String, u64>,
    receipts: Vec<String>,
    /// Half-written or unusable files, and data that should be gone.
    odd: Vec<String>,
}

impl Kept {
    fn read(daemon: &Daemon) -> Kept {
        let groups = daemon.state().join("groups");
        let folder = groups.join(GROUP);
        let record = json(&folder.join("record.json"));
        let places = [daemon.state(), groups.clone(), folder.clone(), folder.join("receipts"), groups.join("steady")];
        let odd = |name: &String| [".tmp-", ".corrupt-", ".trash-"].iter().any(|part| name.contains(part));
        Kept {
            declared: daemon.dir.join("clusters.d").join(format!("{GROUP}.toml")).exists(),
            folder: folder.is_dir(),
            parked: record["desired"] == "parked-by-operator",
            ports: ports(&record, &json(&daemon.state().join("leases.json"))),
            receipts: names(&folder.join("receipts")).into_iter().filter(|n| !n.starts_with('.')).collect(),
            odd: places.iter().flat_map(|place| names(place)).filter(odd).collect(),
        }
    }
}

/// By the record, else by the index.
fn ports(record: &Value, leases: &Value) -> BTreeMap<String, u64> {
    let own = |value: &Value| value.as_object().cloned().unwrap_or_default();
    let recorded: BTreeMap<String, u64> =
        own(&record["ports"]).into_iter().filter_map(|(role, port)| Some((role, port.as_u64()?))).collect();
    if !recorded.is_empty() {
        return recorded;
    }
    let leased = own(&leases["leases"]).into_iter().filter(|(_, lease)| lease["group"] == GROUP);
    leased.filter_map(|(port, l)| Some((l["role"].as_str()?.to_string(), port.parse().ok()?))).collect()
}

fn json(path: &Path) -> Value {
    fs::read(path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// The next daemon, against what the killed one had on disk.
fn check(daemon: &Daemon, scene: &Scene, before: &Kept, mark: u64) {
    daemon.wait_phase("steady", Phase::Ready);
    match (before.declared, before.folder) {
        (true, _) if !before.parked => {
            let group = daemon.wait_phase(GROUP, Phase::Ready);
            scene.wait_starts(daemon, mark, 1);
            assert!(group.components.iter().all(|c| c.restarts == 0), "{group:#?}\n{}", daemon.log());
        }
        (true, _) | (false, true) => {
            daemon.wait_phase(GROUP, Phase::Parked);
            wait_for("what was left is ended", || of_group(daemon).is_empty().then_some(()));
            assert_eq!(scene.starts_since(mark), Ok(BTreeMap::new()), "it was to stay down\n{}", daemon.log());
        }
        (false, false) => {
            assert!(daemon.status().group(GROUP).is_none(), "it was deleted\n{}", daemon.log());
            assert_eq!(of_group(daemon), Vec::<u32>::new());
        }
    }
    let now = wait_for("what the kill cut short is cleared up", || {
        let now = Kept::read(daemon);
        now.odd.is_empty().then_some(now)
    });
    if before.folder {
        assert!(before.ports.is_empty() || now.ports == before.ports, "{before:?} {now:?}\n{}", daemon.log());
        let lost: Vec<&String> = before.receipts.iter().filter(|r| !now.receipts.contains(r)).collect();
        assert!(lost.is_empty(), "receipts are lost: {lost:?}\n{}", daemon.log());
        assert_eq!(daemon.receipts(GROUP).len(), now.receipts.len(), "a receipt that cannot be read");
    } else if !before.declared {
        assert_eq!((now.folder, now.ports.len()), (false, 0), "a deleted group's data or ports are left");
    }
    assert!(daemon.status().warnings.iter().all(|w| !w.contains("cannot")), "{:?}", daemon.status().warnings);
}

/// Living processes of the group.
fn of_group(daemon: &Daemon) -> Vec<u32> {
    let prefix = format!("{}/{GROUP}/", socialweb_daemon::state_id(&daemon.state()));
    let found = socialweb_sys::process::find_marked("SOCIALWEB_BIRTH", &prefix).unwrap();
    found.into_iter().map(|p| p.pid).collect()
}
