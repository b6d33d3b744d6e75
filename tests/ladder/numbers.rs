//! Numbers that are given out again, and processes of another account.

use crate::support::{NOBODY, send, skip, wait_for};
use crate::world::*;
use socialweb_wire::{Phase, Rung};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// A process of somebody else under a number that was one of ours.
struct Stranger {
    maker: Child,
    number: u32,
}

impl Stranger {
    /// Waits for the number to become free, and takes it.
    fn to_be(number: u32) -> Stranger {
        let mut command = Command::new("python3");
        command.arg(program("reuse.py")).arg(number.to_string()).stdin(Stdio::null()).stdout(Stdio::piped());
        Stranger { maker: command.spawn().unwrap(), number }
    }

    /// Once it is there; what the kernel said where it cannot be.
    fn there(&mut self) -> Result<Shown, String> {
        let mut line = String::new();
        BufReader::new(self.maker.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let start = socialweb_sys::process::start_time(self.number).unwrap_or_default();
        if line.trim() == "there" { Ok(Shown { pid: self.number, start }) } else { Err(line) }
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        // Its maker waits for it; one that never came ends by itself.
        let _ = self.maker.kill();
        let _ = self.maker.wait();
        if let Ok(stat) = socialweb_sys::process::Stat::of(self.number)
            && stat.session == self.number
            && socialweb_sys::process::environ_value(self.number, "SOCIALWEB_BIRTH").is_none()
            && stat.comm == "sleep"
        {
            send(self.number, 9);
        }
    }
}

in_worlds!(a_number_that_is_given_out_again_during_the_ladder_is_nobody_of_ours: with_cgroups, without_cgroups);

fn a_number_that_is_given_out_again_during_the_ladder_is_nobody_of_ours(stage: Stage) {
    if !nix::unistd::geteuid().is_root() {
        return skip(&stage.name, "root: only root may choose a process's number");
    }
    // The leader follows the stop signal at once, so that its number is free while the others have their grace.
    let follow = "exec sleep 100000";
    let script = format!("(setsid $STAY brief &) ; (setsid $STAY stubborn &) ; {follow}");
    let stage = stage.started("troubled", &group(&[component("nasty", &script, "stop = { grace = \"4s\" }")]));
    let [brief, stubborn] = ["brief", "stubborn"].map(|name| stage.shown("troubled", "nasty", name));
    let leader = stage.leader("troubled", "nasty");
    let mut strangers = [leader, brief].map(|p| Stranger::to_be(p.pid));
    stage.daemon.ctl_ok(&["stop", "--no-wait", "troubled"]);
    send(brief.pid, 9);
    let there: Result<Vec<Shown>, String> = strangers.iter_mut().map(Stranger::there).collect();
    let there = match there {
        Ok(there) => there,
        Err(why) => return skip(&stage.name, &format!("numbers: this kernel or machine gave none back: {why}")),
    };
    stage.daemon.wait_phase("troubled", Phase::Parked);
    assert!(!leader.lives() && !brief.lives() && !stubborn.lives(), "{}", stage.daemon.log());
    assert!(there.iter().all(|s| s.lives()), "a stranger was killed: {there:?}\n{}", stage.daemon.log());
    stage.end();
    assert!(there.iter().all(|s| s.lives()), "a stranger was killed at the end");
}

/// Starts the daemon as root without the right to signal other accounts' processes, with one of those in its group.
fn with_a_foreign_process(stage: Stage) -> Option<(Stage, Shown)> {
    if !nix::unistd::geteuid().is_root() {
        skip(&stage.name, "root: only root can make a process of another account");
        return None;
    }
    let become_it = format!("setsid setpriv --reuid {NOBODY} --clear-groups sh {} foreign", program("sleep.sh"));
    let foreign = format!("mkdir -m 777 open; (cd open; {become_it} &)");
    let text =
        component("nasty", &format!("{foreign} ; $STAY leader"), "stop = { grace = \"300ms\", kill_wait = \"2s\" }");
    let stage = stage.wrapped(&["setpriv", "--bounding-set", "-kill", "--inh-caps", "-kill"]);
    let stage = stage.started("troubled", &group(&[text]));
    let foreign = stage.shown("troubled", "nasty", "open/foreign");
    assert_eq!(socialweb_sys::process::uid(foreign.pid).unwrap(), NOBODY);
    Some((stage, foreign))
}

in_worlds!(a_process_of_another_account_is_ended_by_its_cgroup: with_cgroups);

fn a_process_of_another_account_is_ended_by_its_cgroup(stage: Stage) {
    let Some((stage, foreign)) = with_a_foreign_process(stage) else { return };
    stage.stop("troubled");
    assert!(!foreign.lives(), "{}", stage.daemon.log());
    assert_eq!(stage.daemon.receipts("troubled").pop().unwrap().components[0].rung, Rung::Kill);
    stage.end();
}

in_worlds!(a_process_that_may_not_be_killed_is_named_and_only_its_own_group_waits: without_cgroups);

fn a_process_that_may_not_be_killed_is_named_and_only_its_own_group_waits(stage: Stage) {
    let Some((stage, foreign)) = with_a_foreign_process(stage) else { return };
    stage.daemon.ctl_ok(&["stop", "--no-wait", "troubled"]);
    let named = format!("pid {} (sleep, uid {NOBODY})", foreign.pid);
    wait_for("status names it", || {
        let component = stage.daemon.group("troubled").components.first()?.clone();
        (component.state == "Wedged" && component.detail.contains(&named)).then_some(())
    });
    let events = stage.daemon.ctl_ok(&["events", "troubled"]);
    assert!(events.contains(&format!("cannot kill pid {}", foreign.pid)), "{events}");
    let said = format!("cannot kill pid {} ", foreign.pid);
    assert_eq!(events.matches(&said).count(), 1, "said once: {events}");
    stage.daemon.ctl_ok(&["restart", "steady/steady"]);
    assert!(stage.daemon.receipts("troubled").is_empty() && foreign.lives(), "no proof of what is not so");
    send(foreign.pid, 9);
    stage.daemon.wait_phase("troubled", Phase::Parked);
    stage.end();
}
