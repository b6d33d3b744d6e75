//! The verbs that only look.

use super::{Session, note, print};
use crate::args::{EventsArgs, Format, LogsArgs, StatusArgs};
use crate::client::{ClientError, Line, Lines, Route};
use crate::exit::{CtlError, Exit};
use crate::render;
use serde::Serialize;
use serde::de::DeserializeOwned;
use socialweb_wire::{EventLine, FeedQuery, GroupQuery, GroupTree, HostStatus, LogLine, Phase, Receipt};
use std::io::IsTerminal;

/// Clears the screen and goes to its first corner.
const CLEAR: &str = "\x1b[2J\x1b[H";

impl Session {
    pub(super) async fn status(&self, args: StatusArgs) -> Result<Exit, CtlError> {
        let query = GroupQuery { group: args.group };
        if !args.watch {
            let status = self.status_of(&query).await?;
            print(&render::whole(self.format, &status, |wide| table(&status, &query, wide))?)?;
            // A group that was asked for, and of which there is nothing but the reason why.
            let nothing = query.group.is_some() && status.groups.iter().all(|g| g.phase == Phase::Absent);
            return Ok(if nothing { Exit::Failed } else { Exit::Done });
        }
        let mut lines: Lines<HostStatus> = self.client.stream(Route { parts: &["watch"], query: Some(&query) }).await?;
        let in_place = std::io::stdout().is_terminal() && matches!(self.format, Format::Table | Format::Wide);
        let mut last = String::new();
        while let Some(Line::Item(status)) = lines.next().await? {
            let text =
                render::one_of_many(self.format, &status, || table(&status, &query, self.format == Format::Wide))?;
            if in_place {
                print(&format!("{CLEAR}{text}"))?;
            } else if text != last {
                print(&text)?;
            }
            last = text;
        }
        Err(ClientError::Ended.into())
    }

    pub(super) async fn status_of(&self, query: &GroupQuery) -> Result<HostStatus, ClientError> {
        self.client.get(Route { parts: &["status"], query: Some(query) }).await
    }

    pub(super) async fn tree(&self, group: Option<String>) -> Result<Exit, CtlError> {
        let groups = match group {
            Some(group) => vec![group],
            None => {
                let groups = self.status_of(&GroupQuery::default()).await?.groups.into_iter();
                groups.filter(|g| g.phase != Phase::Absent).map(|g| g.name).collect()
            }
        };
        let mut trees: Vec<GroupTree> = Vec::new();
        for group in groups {
            trees.push(self.client.get::<_, ()>(Route::to(&["groups", &group, "tree"])).await?);
        }
        print(&render::whole(self.format, &trees, |_| trees.iter().map(render::tree::group).collect())?)?;
        Ok(Exit::Done)
    }

    pub(super) async fn receipt(&self, group: &str, all: bool) -> Result<Exit, CtlError> {
        let mut receipts: Vec<Receipt> = self.client.get::<_, ()>(Route::to(&["groups", group, "receipts"])).await?;
        if receipts.is_empty() {
            return Err(CtlError::NoReceipt { group: group.into() });
        }
        if all {
            let text = |_| receipts.iter().map(render::receipt::receipt).collect::<Vec<_>>().join("\n");
            print(&render::whole(self.format, &receipts, text)?)?;
        } else {
            let last = receipts.swap_remove(0);
            print(&render::whole(self.format, &last, |_| render::receipt::receipt(&last))?)?;
        }
        Ok(Exit::Done)
    }

    pub(super) async fn logs(&self, args: LogsArgs) -> Result<Exit, CtlError> {
        let with_component = args.target.component.is_none();
        let query =
            FeedQuery { group: None, component: args.target.component, tail: Some(args.lines), follow: args.follow };
        let parts = ["groups", &args.target.group, "logs"];
        let lines: Lines<LogLine> = self.client.stream(Route { parts: &parts, query: Some(&query) }).await?;
        if matches!(self.format, Format::Table | Format::Wide) {
            return self.copy_runs(lines, &args.target.group, args.follow, with_component).await;
        }
        self.copy(lines, args.follow, |line| render::lines::log(line, with_component)).await
    }

    /// Log lines for people: with a mark where a component goes on in another run.
    async fn copy_runs(
        &self,
        mut lines: Lines<LogLine>,
        group: &str,
        follow: bool,
        with_component: bool,
    ) -> Result<Exit, CtlError> {
        let mut runs = render::lines::Runs::default();
        while let Some(line) = lines.next().await? {
            match line {
                Line::Item(line) => {
                    if runs.is_next(&line) {
                        let pid = self.pid_of(group, &line).await;
                        print(&render::lines::run_began(&line, pid, with_component))?;
                    }
                    print(&render::lines::log(&line, with_component))?;
                }
                Line::Missed(n) => missed(n),
            }
        }
        if follow { Err(ClientError::Ended.into()) } else { Ok(Exit::Done) }
    }

    /// The process of the run that wrote this line, while that run is the present one.
    async fn pid_of(&self, group: &str, line: &LogLine) -> Option<u32> {
        let status = self.status_of(&GroupQuery { group: Some(group.into()) }).await.ok()?;
        let component = status.group(group)?.component(&line.component)?;
        component.pid.filter(|_| component.birth == line.birth)
    }

    pub(super) async fn events(&self, args: EventsArgs) -> Result<Exit, CtlError> {
        let query = FeedQuery { group: args.group, component: None, tail: Some(args.lines), follow: args.follow };
        let lines: Lines<EventLine> = self.client.stream(Route { parts: &["events"], query: Some(&query) }).await?;
        self.copy(lines, args.follow, render::lines::event).await
    }

    /// Prints a stream. One that is followed ends only with the daemon.
    async fn copy<T: DeserializeOwned + Serialize>(
        &self,
        mut lines: Lines<T>,
        follow: bool,
        text: impl Fn(&T) -> String,
    ) -> Result<Exit, CtlError> {
        while let Some(line) = lines.next().await? {
            match line {
                Line::Item(item) => print(&render::one_of_many(self.format, &item, || text(&item))?)?,
                Line::Missed(n) => missed(n),
            }
        }
        if follow { Err(ClientError::Ended.into()) } else { Ok(Exit::Done) }
    }

    pub(super) async fn metrics(&self) -> Result<Exit, CtlError> {
        let text = self.client.text("metrics").await?;
        let samples = render::metrics::parse(&text);
        print(&render::whole(self.format, &samples, |_| text.clone())?)?;
        Ok(Exit::Done)
    }
}

fn missed(n: u64) {
    note(&format!("({n} lines are missing here: they came faster than they were read)"));
}

fn table(status: &HostStatus, query: &GroupQuery, wide: bool) -> String {
    match query.group {
        Some(_) => render::status::group(status, wide),
        None => render::status::host(status, wide),
    }
}
