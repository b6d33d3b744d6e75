//! The verbs that change something: ask, then wait until a status shows that it is so.

use super::{Session, note, print};
use crate::args::{ChangeArgs, RestartArgs, Target, Verb, WaitArgs};
use crate::client::{ClientError, Line, Lines, Route};
use crate::exit::{CtlError, Exit, tell};
use crate::progress::Progress;
use crate::render;
use crate::wait::{Goal, Verdict, going_down};
use socialweb_wire::{
    Accepted, ErrorCode, GroupQuery, GroupStatus, HostStatus, Operation, Phase, ReloadPlan, ReloadQuery,
};
use std::io::{BufRead, IsTerminal};
use std::time::Duration;
use tokio::time::Instant;

/// How often the seconds on a waiting line go on.
const TICK: Duration = Duration::from_secs(1);

/// How long the daemon may take for the first status of a group.
const ONE_LOOK: Duration = Duration::from_secs(10);

/// How often a daemon that ends is looked for.
const POLL: Duration = Duration::from_millis(50);

/// Refuses what is wrong usage whoever answers, before the daemon is looked for.
pub(super) fn refuse_before_asking(verb: &Verb) -> Result<(), CtlError> {
    match verb {
        Verb::Start(args) | Verb::Stop(args) => args.groups.iter().try_for_each(|name| whole_group(name)),
        Verb::Delete { yes: false, .. } if !std::io::stdin().is_terminal() => Err(CtlError::Usage(
            "delete asks before it destroys data, and there is no terminal to ask on; say --yes".into(),
        )),
        _ => Ok(()),
    }
}

fn whole_group(name: &str) -> Result<(), CtlError> {
    if !name.contains(['/', ':']) {
        return Ok(());
    }
    let why =
        format!("{name:?} is a component, and only whole groups start and stop; `ctl restart {name}` restarts one");
    Err(CtlError::Usage(why))
}

/// How a group is seen while its goal is waited for.
enum Sight {
    /// Told by the daemon.
    Lines(Box<Lines<HostStatus>>),
    /// It has no such group.
    Gone,
    /// Asked for now and then: others follow so much that the daemon has no place for one more. What was asked for is under
    /// way all the same.
    Asked,
}

impl Session {
    pub(super) async fn start(&self, args: ChangeArgs) -> Result<Exit, CtlError> {
        let groups = self.groups_of(&args, |group| group.declared).await?;
        self.change_all("start", groups, args.wait).await
    }

    pub(super) async fn stop(&self, args: ChangeArgs) -> Result<Exit, CtlError> {
        let groups = self.groups_of(&args, |group| group.phase != Phase::Absent).await?;
        self.change_all("stop", groups, args.wait).await
    }

    pub(super) async fn restart(&self, args: RestartArgs) -> Result<Exit, CtlError> {
        self.change_all("restart", args.targets, args.wait).await
    }

    pub(super) async fn delete(&self, group: String, yes: bool, wait: WaitArgs) -> Result<Exit, CtlError> {
        if !yes && !confirm(&group)? {
            return Err(CtlError::NotConfirmed);
        }
        self.change_all("delete", vec![Target { group, component: None }], wait).await
    }

    async fn groups_of(&self, args: &ChangeArgs, keep: impl Fn(&GroupStatus) -> bool) -> Result<Vec<Target>, CtlError> {
        let names = if args.all {
            let status = self.status_of(&GroupQuery::default()).await?;
            status.groups.into_iter().filter(|group| keep(group)).map(|group| group.name).collect()
        } else {
            args.groups.clone()
        };
        Ok(names.into_iter().map(|group| Target { group, component: None }).collect())
    }

    /// Asks for all first, so that they go on side by side, then waits for each. Trouble with one does not keep the others
    /// from being asked for and waited for; the first trouble decides the exit code.
    async fn change_all(&self, verb: &str, targets: Vec<Target>, wait: WaitArgs) -> Result<Exit, CtlError> {
        let deadline = Instant::now() + wait.timeout;
        let mut exit = Exit::Done;
        let mut taken_on = Vec::new();
        for target in &targets {
            match self.ask_change(verb, target).await {
                Ok(accepted) => taken_on.push((target, accepted)),
                Err(error) => exit = first_trouble(exit, tell(&error.into())),
            }
        }
        for (target, accepted) in taken_on {
            let ended = if wait.no_wait {
                print(&render::one_of_many(self.format, &accepted, || taken_on_text(target, &accepted))?)
            } else {
                self.see_done(target, &accepted, deadline, wait.timeout).await
            };
            match ended {
                Err(CtlError::Output(error)) => return Err(error.into()),
                Err(error) => exit = first_trouble(exit, tell(&error)),
                Ok(()) => {}
            }
        }
        Ok(exit)
    }

    async fn ask_change(&self, verb: &str, target: &Target) -> Result<Accepted, ClientError> {
        match &target.component {
            Some(component) => {
                let parts = ["groups", &target.group, "components", component, verb];
                self.client.post::<_, ()>(Route::to(&parts)).await
            }
            None => self.client.post::<_, ()>(Route::to(&["groups", &target.group, verb])).await,
        }
    }

    async fn see_done(
        &self,
        target: &Target,
        accepted: &Accepted,
        deadline: Instant,
        timeout: Duration,
    ) -> Result<(), CtlError> {
        let Some(goal) = Goal::of(accepted) else { return Ok(()) };
        if !accepted.note.is_empty() {
            note(&format!("{target}: {}", accepted.note));
        }
        let mut progress = Progress::on_stderr();
        let seen = self.watch_goal(goal, deadline, timeout, &mut progress).await;
        progress.clear();
        let group = seen?;
        let text = || done_text(target, accepted.operation, group.as_ref(), progress.elapsed());
        match &group {
            Some(group) => print(&render::one_of_many(self.format, group, text)?),
            None => print(&render::one_of_many(self.format, accepted, text)?),
        }
    }

    /// Follows the group's status until the goal is seen reached; returns what was seen then.
    async fn watch_goal(
        &self,
        mut goal: Goal,
        deadline: Instant,
        timeout: Duration,
        progress: &mut Progress<std::io::Stderr>,
    ) -> Result<Option<GroupStatus>, CtlError> {
        let query = GroupQuery { group: Some(goal.group().to_string()) };
        let route = Route { parts: &["watch"], query: Some(&query) };
        let (mut now, mut stopped) = (String::from("gave no status"), 0);
        // Of several, those whose turn comes when the time is up have long been done perhaps: one look is due to each.
        let mut until = deadline.max(Instant::now() + ONE_LOOK);
        let mut sight = match self.client.stream::<HostStatus, _>(route).await {
            Ok(lines) => Sight::Lines(Box::new(lines)),
            Err(error) if is(&error, ErrorCode::NotFound) => Sight::Gone,
            Err(error) if is(&error, ErrorCode::Busy) => Sight::Asked,
            Err(error) => return Err(error.into()),
        };
        loop {
            let group = tokio::select! {
                seen = self.next_group(&mut sight, goal.group(), &query) => seen?,
                () = tokio::time::sleep(TICK), if !matches!(sight, Sight::Asked) => {
                    progress.tick();
                    self.client.look_at_peer(&mut stopped)?;
                    continue;
                }
                () = tokio::time::sleep_until(until) => {
                    return Err(CtlError::TimedOut { what: goal.text(), now, after: timeout });
                }
            };
            until = deadline;
            match goal.judge(group.as_ref()) {
                Verdict::Done => return Ok(group),
                Verdict::Failed(why) => return Err(CtlError::NotDone { what: goal.text(), why }),
                Verdict::Waiting(text) => {
                    progress.show(&text);
                    now = format!("is not done: {text}");
                }
            }
        }
    }

    /// What is seen of the group next; none when the daemon does not know it any more.
    async fn next_group(
        &self,
        sight: &mut Sight,
        name: &str,
        query: &GroupQuery,
    ) -> Result<Option<GroupStatus>, ClientError> {
        loop {
            match sight {
                Sight::Lines(lines) => return group_of(lines.next().await, name),
                Sight::Gone => return Ok(None),
                Sight::Asked => tokio::time::sleep(TICK).await,
            }
            match self.status_of(query).await {
                Err(error) if is(&error, ErrorCode::Busy) => {}
                status => return group_of(status.map(|status| Some(Line::Item(status))), name),
            }
        }
    }

    pub(super) async fn reload(&self, dry_run: bool, allow_empty: bool) -> Result<Exit, CtlError> {
        let plan: ReloadPlan =
            self.client.post(Route { parts: &["reload"], query: Some(&ReloadQuery { dry_run, allow_empty }) }).await?;
        print(&render::whole(self.format, &plan, |_| render::plan::plan(&plan))?)?;
        Ok(if plan.has_errors() { Exit::Failed } else { Exit::Done })
    }

    pub(super) async fn shutdown(&self, wait: WaitArgs) -> Result<Exit, CtlError> {
        let accepted: Accepted = self.client.post::<_, ()>(Route::to(&["shutdown"])).await?;
        let mut progress = Progress::on_stderr();
        if !wait.no_wait {
            let ended = tokio::time::timeout(wait.timeout, self.see_gone(&mut progress)).await;
            progress.clear();
            ended.map_err(|_| CtlError::TimedOut {
                what: "the end of the daemon".into(),
                now: "still answers".into(),
                after: wait.timeout,
            })?;
        }
        print(&render::one_of_many(self.format, &accepted, || {
            if wait.no_wait {
                "the daemon goes down\n".into()
            } else {
                format!("the daemon is gone after {}\n", seconds(progress.elapsed()))
            }
        })?)?;
        Ok(Exit::Done)
    }

    /// Shows what still stops, until nobody answers on the socket any more.
    async fn see_gone(&self, progress: &mut Progress<std::io::Stderr>) {
        let watch = self.client.stream::<HostStatus, ()>(Route::to(&["watch"])).await;
        if let Ok(mut lines) = watch {
            loop {
                tokio::select! {
                    line = lines.next() => match line {
                        Ok(Some(Line::Item(status))) => progress.show(&going_down(&status.groups)),
                        Ok(Some(Line::Missed(_))) => {}
                        Ok(None) | Err(_) => break,
                    },
                    () = tokio::time::sleep(TICK) => progress.tick(),
                }
            }
        }
        while self.client.is_there().await {
            tokio::time::sleep(POLL).await;
        }
    }
}

fn is(error: &ClientError, code: ErrorCode) -> bool {
    matches!(error, ClientError::Api(error) if error.code == code)
}

/// The group in the next line of a watch; none when the daemon does not know it any more.
fn group_of(
    line: Result<Option<Line<HostStatus>>, ClientError>,
    name: &str,
) -> Result<Option<GroupStatus>, ClientError> {
    match line {
        Ok(Some(Line::Item(status))) => Ok(status.group(name).cloned()),
        Ok(Some(Line::Missed(_)) | None) => Err(ClientError::Ended),
        Err(error) if is(&error, ErrorCode::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

fn first_trouble(exit: Exit, next: Exit) -> Exit {
    if exit == Exit::Done { next } else { exit }
}

fn taken_on_text(target: &Target, accepted: &Accepted) -> String {
    let phase = accepted.phase.map(|phase| format!(", now {phase}")).unwrap_or_default();
    let note = if accepted.note.is_empty() { String::new() } else { format!(": {}", render::clean(&accepted.note)) };
    format!("{target}: {} taken on{phase}{note}\n", accepted.operation)
}

fn done_text(target: &Target, operation: Operation, group: Option<&GroupStatus>, took: Duration) -> String {
    let took = seconds(took);
    let component = target.component.as_ref().and_then(|name| group.and_then(|group| group.component(name)));
    let mut text = match (component, group) {
        (Some(component), _) => format!("{target}: {} after {took}\n", render::clean(&component.state)),
        (None, Some(group)) => format!("{target}: {} after {took}\n", group.phase),
        (None, None) => format!("{target}: gone after {took}\n"),
    };
    if let (Operation::Start | Operation::Restart, Some(group)) = (operation, group) {
        let lines = [("url", &group.url), ("kubeconfig", &group.kubeconfig)];
        for (name, value) in lines.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?))) {
            text.push_str(&format!("  {name:<11} {}\n", render::clean(value)));
        }
    }
    text
}

fn seconds(took: Duration) -> String {
    format!("{:.1} s", took.as_secs_f64())
}

fn confirm(group: &str) -> Result<bool, CtlError> {
    note(&format!("This destroys {group} and all its data. Type its name to go on:"));
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    Ok(line.trim() == group)
}
