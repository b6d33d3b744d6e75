//! The loop: one task that owns the [`Host`]. It takes whatever is there, in no fixed order, a bounded part of it at a time,
//! and lets the other tasks of this thread run once per round: no flood of one kind keeps the others waiting (law L10).

use super::watch::Saying;
use super::{Again, Containment, Host, Msg};
use crate::config::Switch;
use crate::manager::Manager;
use socialweb_core::Event;
use socialweb_core::mutant;
use socialweb_sys::socket::{Datagram, NotifySocket};
use std::io;
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, Interval, MissedTickBehavior};

/// While a stop waits for the last process, it is looked for this often even without a word from the kernel: the fallback
/// has no other way, and with cgroups it covers what no event tells.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// At the soonest after the look before it: a look reads all of /proc, and one that follows each of a thousand deaths would
/// leave the loop no time for other groups.
pub(super) const LOOK_GAP: Duration = Duration::from_millis(10);
/// Outcomes, or ended children, taken in one round.
pub(super) const BATCH: usize = 256;
/// Notify datagrams taken in one round. A component says READY once and WATCHDOG a few times a minute.
const DATAGRAMS: usize = 16;
/// While stopping, systemd is told this often that it takes longer.
const EXTEND_EVERY: Duration = Duration::from_secs(5);
/// ... by this much: above the longest rung that goes by without an event (the server's grace of 75 s).
const EXTEND_BY: Duration = Duration::from_secs(90);

/// What the loop listens to besides its own tasks.
pub(crate) struct Inlets {
    pub messages: UnboundedReceiver<Msg>,
    pub notify: AsyncFd<NotifySocket>,
    pub manager: Manager,
    pub signals: Signals,
}

/// The signals that mean something to the daemon.
pub(crate) struct Signals {
    child: Signal,
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
    quit: Signal,
    /// USR1 and USR2 mean nothing here. Other supervisors open their logs anew at them, so scripts send them, and what they
    /// do by default is to end the process.
    _unused: [Signal; 2],
}

impl Signals {
    /// Takes them over; from here on none of them ends the process.
    pub fn take() -> io::Result<Signals> {
        Ok(Signals {
            child: signal(SignalKind::child())?,
            hangup: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
            _unused: [signal(SignalKind::user_defined1())?, signal(SignalKind::user_defined2())?],
        })
    }
}

/// What the loop does now and then.
struct Timers<'a> {
    alive: &'a mut Interval,
    extend: &'a mut Interval,
    house: &'a mut Interval,
    watched: bool,
}

/// What the loop woke for.
enum Wake {
    Child,
    Message(Msg),
    Command(crate::admin::Command),
    Datagram(io::Result<Datagram>),
    Emptied,
    Reload,
    Shutdown,
    Time,
    Look,
    Alive,
    Extend,
    House,
}

impl Host {
    /// Runs until a shutdown is complete.
    ///
    /// # Errors
    /// What does not go away, named: the shutdown is given up.
    pub async fn drive(&mut self, mut inlets: Inlets) -> Result<(), String> {
        let beat = inlets.manager.watchdog_interval().filter(|_| self.config.watchdog == Switch::Auto);
        let watched = beat.is_some();
        let beat = beat.unwrap_or(EXTEND_EVERY);
        let mut alive = tokio::time::interval(beat);
        let mut extend = tokio::time::interval(EXTEND_EVERY);
        let mut house = tokio::time::interval(super::keep::LOOK_EVERY);
        for timer in [&mut alive, &mut extend, &mut house] {
            // A timer that was not looked at for a month must not fire for each of its days.
            timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
        }
        inlets.manager.ready();
        self.tell_status(&inlets.manager);
        loop {
            let wake = match std::mem::take(&mut self.more_children) {
                true => Wake::Child,
                false => {
                    let mut timers = Timers { alive: &mut alive, extend: &mut extend, house: &mut house, watched };
                    self.wait(&mut inlets, &mut timers).await
                }
            };
            self.wake(wake, &mut inlets);
            tokio::task::yield_now().await;
            if let Some(end) = self.is_through() {
                return end;
            }
        }
    }

    async fn wait(&mut self, inlets: &mut Inlets, timers: &mut Timers<'_>) -> Wake {
        let deadline = self.next_deadline().map(|at| self.clock.instant(at));
        let looking = !self.emptying.is_empty();
        // Kept over the rounds: a timer made anew in each would never fire on a busy host.
        self.look_at = looking.then(|| self.look_at.unwrap_or_else(|| Instant::now() + LOOK_AGAIN));
        let look_at = self.look_at;
        let signals = &mut inlets.signals;
        tokio::select! {
            _ = signals.child.recv() => Wake::Child,
            Some(message) = inlets.messages.recv() => Wake::Message(message),
            () = emptied(&mut self.containment), if looking => Wake::Emptied,
            Some(command) = self.port.commands.recv() => Wake::Command(command),
            datagram = receive(&inlets.notify), if !self.notify_broken => Wake::Datagram(datagram),
            _ = signals.terminate.recv() => Wake::Shutdown,
            _ = signals.interrupt.recv() => Wake::Shutdown,
            _ = signals.quit.recv() => Wake::Shutdown,
            _ = signals.hangup.recv() => Wake::Reload,
            () = sleep_until(deadline) => Wake::Time,
            () = sleep_until(look_at), if looking => Wake::Look,
            _ = timers.alive.tick(), if timers.watched => Wake::Alive,
            _ = timers.extend.tick(), if self.stopping => Wake::Extend,
            _ = timers.house.tick() => Wake::House,
        }
    }

    fn wake(&mut self, wake: Wake, inlets: &mut Inlets) {
        match wake {
            Wake::Child if mutant!("l3-child-unseen") => {}
            Wake::Child => {
                // What an ended child said before its end counts, and who said it can be looked up until it is waited for.
                self.hear(inlets);
                self.reap();
            }
            Wake::Message(message) => {
                self.message(message);
                for _ in 0..BATCH {
                    let Ok(message) = inlets.messages.try_recv() else { break };
                    self.message(message);
                }
                self.tell_status(&inlets.manager);
            }
            Wake::Command(command) => self.answer(command),
            Wake::Datagram(Ok(datagram)) => {
                self.datagram(&datagram);
                self.hear(inlets);
            }
            Wake::Datagram(Err(error)) => {
                self.notify_broken = true;
                self.warn(
                    None,
                    format!("the notify socket is given up, components that notify will not get ready: {error}"),
                );
            }
            Wake::Emptied | Wake::Look => {
                self.look_at = None;
                self.check_emptying();
                self.drain();
            }
            Wake::Reload => {
                inlets.manager.reloading();
                self.reload();
                inlets.manager.ready();
            }
            Wake::Shutdown => self.begin_shutdown(),
            Wake::Time => self.tick(),
            Wake::Alive => inlets.manager.alive(),
            // Not for ever: when only what cannot be killed is left, systemd's own limit counts again.
            Wake::Extend if self.stuck_since.is_none() => inlets.manager.extend_timeout(EXTEND_BY),
            Wake::Extend => {}
            Wake::House => self.keep_house(inlets),
        }
        if self.stopping && !self.said_stopping {
            self.said_stopping = true;
            inlets.manager.stopping();
            inlets.manager.extend_timeout(EXTEND_BY);
        }
    }

    /// Takes the datagrams that are there, a bounded number.
    fn hear(&mut self, inlets: &Inlets) {
        if self.notify_broken {
            return;
        }
        for _ in 0..DATAGRAMS {
            let Ok(datagram) = inlets.notify.get_ref().recv() else { break };
            self.datagram(&datagram);
        }
    }

    fn message(&mut self, message: Msg) {
        match message {
            Msg::Event(group, event) => self.feed(&group, event),
            Msg::Swept(group, swept) => self.swept(&group, swept),
            Msg::LogsEnded(why) => {
                self.warn(None, format!("the log task ended, and components would block on full pipes: {why}"));
                self.begin_shutdown();
            }
            Msg::Exec(key, result) => self.exec_done(&key, result),
            Msg::Said(key, saying) => self.said(&key, saying),
            Msg::ExecProbe(ask) => self.start_probe(ask),
            Msg::Hunted(bag) => self.hunted(bag),
            Msg::Cores(group, found) => self.cores_found(&group, &found),
            Msg::LookForCores => self.look_for_all_cores(),
            Msg::Again(Again::RemoveRun(key, tries)) => self.remove_run(&key, tries),
            Msg::Again(Again::RemoveGroup(group, tries)) => self.remove_group(&group, tries),
            Msg::Again(Again::Sweep(group)) => self.reap_survivors(&group),
            Msg::Again(Again::Owed) => self.pay(),
            Msg::LeasesWritten(version, written) => self.leases_written(version, written),
            Msg::TrashEmptied(path, emptied) => self.trash_emptied(path, emptied),
        }
        self.drain();
    }

    /// A datagram counts for the run whose process sent it, as the kernel says.
    fn datagram(&mut self, datagram: &Datagram) {
        // Without the kernel's word on who sent it, it is nobody's.
        let Some(sender) = &datagram.sender else { return };
        let key = match self.pids.get(&sender.pid) {
            Some(owner) => Some(owner.key().clone()),
            None => self.run_of(sender.pid, sender.cgroup().as_deref()),
        };
        let Some(key) = key.filter(|key| self.births.contains_key(key)) else {
            // Said once: whoever sends thousands must not fill our log.
            if !std::mem::replace(&mut self.said_foreign, true) {
                let text = format!(
                    "a notify datagram of pid {} is ignored, as all of such: it is no process of a run",
                    sender.pid
                );
                self.warn(None, text);
            }
            return;
        };
        if datagram.value("READY") == Some("1") {
            self.said(&key, Saying::Ready);
        }
        if datagram.value("WATCHDOG") == Some("1") {
            self.said(&key, Saying::Alive);
        }
        if datagram.value("EXTEND_TIMEOUT_USEC").is_some() {
            let (component, birth) = (key.component.clone(), key.birth);
            self.feed(&key.group, Event::Progress { component, birth });
        }
    }
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Waits for news of cgroups that are being emptied.
async fn emptied(containment: &mut Containment) {
    let Containment::Cgroups { watcher: Some(watcher), .. } = containment else { return std::future::pending().await };
    loop {
        let Ok(mut ready) = watcher.readable_mut().await else { return std::future::pending().await };
        let ids = ready.get_inner_mut().read_events().unwrap_or_default();
        ready.clear_ready();
        if !ids.is_empty() {
            return;
        }
    }
}

async fn receive(socket: &AsyncFd<NotifySocket>) -> io::Result<Datagram> {
    loop {
        let mut ready = socket.readable().await?;
        match ready.try_io(|socket| socket.get_ref().recv()) {
            Ok(received) => return received,
            Err(_would_block) => {}
        }
    }
}
