//! Programs that hang in exec, and parents that wait in the kernel for that.

use crate::support::{skip, try_wait_for, wait_for};
use crate::world::*;
use nix::sys::fanotify::{EventFFlags, Fanotify, FanotifyEvent, InitFlags, MarkFlags, MaskFlags};
use socialweb_sys::process::Stat;
use socialweb_wire::Phase;
use std::path::PathBuf;

/// A program whose exec the kernel holds until this test says yes, which it never does. Dropped, it lets go.
struct Held {
    path: PathBuf,
    group: Fanotify,
    asked: Vec<FanotifyEvent>,
}

impl Held {
    /// None where the kernel or this account cannot.
    fn new(stage: &Stage) -> Option<Held> {
        let path = stage.daemon.dir.join("held");
        // Not by this process: a child that another test has just made would hold it open for writing, and it would be busy.
        assert!(std::process::Command::new("cp").arg("/bin/sleep").arg(&path).status().unwrap().success());
        let init = InitFlags::FAN_CLASS_CONTENT | InitFlags::FAN_CLOEXEC | InitFlags::FAN_NONBLOCK;
        let group = Fanotify::init(init, EventFFlags::O_RDONLY | EventFFlags::O_CLOEXEC).ok()?;
        let mask = MaskFlags::FAN_OPEN_EXEC_PERM;
        let marked = group.mark(MarkFlags::FAN_MARK_ADD, mask, nix::fcntl::AT_FDCWD, Some(&path));
        if let Err(error) = marked {
            skip(&stage.name, &format!("fanotify: cannot hold an exec here: {error}"));
            return None;
        }
        Some(Held { path, group, asked: Vec::new() })
    }

    /// The process that hangs in the exec of it.
    fn hanging(&mut self) -> Shown {
        let pid = wait_for("somebody hangs in exec", || {
            self.asked.extend(self.group.read_events().unwrap_or_default());
            self.asked.first().map(|event| event.pid() as u32)
        });
        Shown { pid, start: Stat::of(pid).unwrap().start_time }
    }
}

in_worlds!(a_program_that_hangs_in_exec_blocks_nobody_and_is_ended:
    with_cgroups, as_nobody_in_a_delegated_subtree, without_cgroups);

fn a_program_that_hangs_in_exec_blocks_nobody_and_is_ended(stage: Stage) {
    let Some(mut held) = Held::new(&stage) else { return };
    let text = format!(
        "kind = \"exec\"\n[[component]]\nname = \"nasty\"\nargv = [\"{}\", \"100000\"]\n{LONG}\n",
        held.path.display()
    );
    let stage = stage.begun("hung", &text);
    let hanging = held.hanging();
    assert_eq!(stage.daemon.group("hung").components[0].state, "Starting");
    stage.daemon.ctl_ok(&["restart", "steady/steady"]);
    assert!(hanging.lives(), "it hangs");
    // Nothing that never ran has a claim to its grace of 100 s.
    stage.daemon.ctl_ok(&["stop", "hung"]);
    assert!(!hanging.lives(), "{}", stage.daemon.log());
    assert_eq!(stage.daemon.group("hung").phase, Phase::Parked);
    stage.end();
}

in_worlds!(a_parent_that_waits_in_vfork_is_ended_with_its_child:
    with_cgroups, as_nobody_in_a_delegated_subtree, without_cgroups);

fn a_parent_that_waits_in_vfork_is_ended_with_its_child(stage: Stage) {
    vfork(stage, "");
}

in_worlds!(a_parent_that_waits_in_vfork_outside_of_every_group_is_ended_too:
    with_cgroups, as_nobody_in_a_delegated_subtree);

fn a_parent_that_waits_in_vfork_outside_of_every_group_is_ended_too(stage: Stage) {
    let outside = stage.daemon.outside().unwrap().display().to_string();
    vfork(stage, &outside);
}

fn vfork(stage: Stage, cgroup: &str) {
    let Some(mut held) = Held::new(&stage) else { return };
    let parent = format!("(setsid python3 {} {} {cgroup} &)", program("vfork.py"), held.path.display());
    let stage = stage.started("troubled", &nasty(&format!("{parent} ; $STAY leader")));
    let (parent, child) = (stage.shown("troubled", "nasty", "vfork"), held.hanging());
    let waits = || Stat::of(parent.pid).is_ok_and(|s| s.state == 'D').then_some(());
    assert!(try_wait_for(waits).is_some(), "it waits in the kernel: {:?}", Stat::of(parent.pid));
    stage.stop("troubled");
    assert!(!parent.lives() && !child.lives(), "{}", stage.daemon.log());
    stage.end();
}
