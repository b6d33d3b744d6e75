//! What people ask through the admin socket.

use super::{Held, Host};
use crate::admin::{Change, Command, convert};
use crate::failpoint;
use crate::state::Desired;
use socialweb_core::{ComponentName, Event, GroupName, Phase, Why, mutant};
use socialweb_wire as wire;

impl Host {
    pub(super) fn answer(&mut self, command: Command) {
        // The asker may have gone; nothing depends on it.
        match command {
            Command::Status { group, reply } => drop(reply.send(self.status(group.as_ref()))),
            Command::Change { change, reply } => {
                let answer = self.change(change);
                match self.unflushed.take().filter(|_| answer.is_ok()) {
                    // What the operator wants is durable before it is confirmed; the loop does not wait for that.
                    Some(record) => self.aside(move || {
                        let flushed = crate::state::flush(&record).map_err(|e| unflushed(&e.to_string()));
                        let _ = reply.send(flushed.and(answer));
                    }),
                    None => drop(reply.send(answer)),
                }
            }
            Command::Reload { dry_run, allow_empty, reply } => {
                let plan = self.plan_reload(dry_run, allow_empty);
                let _ = reply.send(Ok(plan));
            }
            Command::Tree { group, reply } => drop(reply.send(self.tree(&group))),
            Command::Receipts { group, reply } => drop(reply.send(self.receipts(&group))),
            Command::Logs { group, component, tail, follow, reply } => {
                drop(reply.send(self.log_feed(&group, component, tail, follow)));
            }
            Command::Events { group, tail, follow, reply } => {
                drop(reply.send(self.event_feed(group.as_ref(), tail, follow)))
            }
        }
        self.drain();
    }

    // ---- changes --------------------------------------------------------------------------------------------------

    fn change(&mut self, change: Change) -> Result<wire::Accepted, wire::ApiError> {
        let why = Why::Operator;
        match change {
            Change::Shutdown => {
                self.begin_shutdown();
                Ok(accepted(wire::Operation::Shutdown, None, "every group goes down in its order"))
            }
            Change::Start(group) => {
                self.must_run(&group)?;
                self.keep_desired(&group, Desired::Up)?;
                self.feed(&group, Event::Start { why });
                self.accepted(wire::Operation::Start, &group, None)
            }
            Change::Stop(group) => {
                self.known(&group)?;
                self.keep_desired(&group, Desired::ParkedByOperator)?;
                self.feed(&group, Event::Stop { why });
                self.accepted(wire::Operation::Stop, &group, None)
            }
            Change::Restart(group, None) => {
                self.must_run(&group)?;
                self.keep_desired(&group, Desired::Up)?;
                self.feed(&group, Event::Restart { component: None, why });
                self.accepted(wire::Operation::Restart, &group, None)
            }
            Change::Restart(group, Some(component)) => self.restart_component(group, component),
            Change::Delete(group) => self.delete(&group),
            Change::Drill(token) => self.begin_drill(&token),
        }
    }

    fn restart_component(
        &mut self,
        group: GroupName,
        component: ComponentName,
    ) -> Result<wire::Accepted, wire::ApiError> {
        let held = self.known(&group)?;
        let running = matches!(held.view.phase, Phase::Starting | Phase::Ready | Phase::Degraded);
        let exists = held.machine.spec().is_some_and(|s| s.component(&component).is_some());
        if !exists {
            return Err(wire::ApiError::no_component(group.as_str(), component.as_str()));
        }
        if !running {
            let text = format!(
                "group {group} is {}, so its component {component} cannot be restarted",
                held.view.phase.as_str()
            );
            return Err(
                wire::ApiError::new(wire::ErrorCode::Conflict, text).with_hint(format!("`ctl start {group}` first"))
            );
        }
        // The run that is to be replaced, before anything can have replaced it: what the asker waits to see the end of.
        let answer = self.accepted(wire::Operation::RestartComponent, &group, Some(&component));
        self.feed(&group, Event::Restart { component: Some(component), why: Why::Operator });
        answer
    }

    /// Only what the source no longer declares may be destroyed (law L7). A drill is declared by no source.
    fn delete(&mut self, group: &GroupName) -> Result<wire::Accepted, wire::ApiError> {
        self.undeclare_drill(group);
        let held = self.known(group)?;
        let file = self.config.clusters_dir.join(format!("{group}.toml"));
        if held.machine.is_declared() || file.exists() {
            let text = format!("group {group} is declared, so it is not deleted");
            let others = self.groups.iter().any(|(name, held)| name != group && held.machine.is_declared());
            let reload = if others { "`ctl reload`" } else { "`ctl reload --allow-empty` (it is the last one)" };
            let hint = format!("remove {} and {reload} first; that parks it", file.display());
            return Err(wire::ApiError::new(wire::ErrorCode::Conflict, text).with_hint(hint));
        }
        if self.orphans.get(group).is_some_and(|met| !met.procs.is_empty()) {
            let text = format!("processes of an earlier run of group {group} do not end, so its data is not deleted");
            let hint = format!("`ctl events {group}` names them");
            return Err(wire::ApiError::new(wire::ErrorCode::Conflict, text).with_hint(hint));
        }
        let answer = self.accepted(wire::Operation::Delete, group, None);
        if let Some(held) = self.groups.get_mut(group) {
            held.delete = true;
        }
        match self.groups[group].view.phase {
            Phase::Parked | Phase::Absent => self.delete_when_swept(group),
            _ => self.feed(group, Event::Stop { why: Why::Delete }),
        }
        answer
    }

    /// Data is not taken from under processes of an earlier run: a sweep that is under way goes on to the delete.
    pub(super) fn delete_when_swept(&mut self, group: &GroupName) {
        if !self.sweeping.contains_key(group) {
            self.finish_delete(group);
        }
    }

    /// The group is down: its data, its ports and its logs go.
    pub(super) fn finish_delete(&mut self, group: &GroupName) {
        let trash = match self.state.trash_group(group) {
            Ok(Some(trash)) if mutant!("l7-delete-keeps-data") => {
                let _ = std::fs::rename(trash, self.state.layout().group(group));
                None
            }
            Ok(trash) => trash,
            Err(error) => return self.warn(Some(group), crate::chain::chain(&error)),
        };
        failpoint::reach("trashed");
        let version = if mutant!("l9-delete-keeps-ports") { 0 } else { self.leases.release(group) };
        failpoint::reach("ports-released");
        if let Some(trash) = trash {
            self.remove_trash(trash, version);
        }
        self.keep_leases();
        let runtime = self.paths.runtime.join(group.as_str());
        let _ = crate::state::remove_tree(&runtime);
        self.logs.forget(group);
        self.drop_group(group);
        failpoint::reach("group-forgotten");
        self.say_host(format!("group {group} and its data are deleted"));
        self.port.changed();
    }

    pub(super) fn known(&self, group: &GroupName) -> Result<&Held, wire::ApiError> {
        let held = self.groups.get(group).map(Box::as_ref);
        held.ok_or_else(|| self.faulty(group).unwrap_or_else(|| wire::ApiError::no_group(group.as_str())))
    }

    /// Why there is nothing of a group although it has a file.
    fn faulty(&self, group: &GroupName) -> Option<wire::ApiError> {
        let text = format!("the file of group {group} cannot be used: {}", self.sources.faulty.get(group)?);
        Some(wire::ApiError::new(wire::ErrorCode::Conflict, text).with_hint("mend it and `ctl reload`"))
    }

    fn must_run(&self, group: &GroupName) -> Result<(), wire::ApiError> {
        let held = self.known(group)?;
        let refuse =
            |text: String, hint: &str| Err(wire::ApiError::new(wire::ErrorCode::Conflict, text).with_hint(hint));
        if self.stopping {
            return refuse("the daemon is going down".into(), "start it again first");
        }
        if !held.machine.is_declared() {
            if let Some(faulty) = self.faulty(group) {
                return Err(faulty);
            }
            return refuse(format!("group {group} is no longer declared"), "put its file back and `ctl reload`");
        }
        if !held.facts.running {
            return refuse(
                format!("group {group} is parked by its file (running = false)"),
                "set running = true and `ctl reload`",
            );
        }
        Ok(())
    }

    /// An operator's stop outlives the daemon; so does the start that ends it.
    fn keep_desired(&mut self, group: &GroupName, desired: Desired) -> Result<(), wire::ApiError> {
        let layout = self.state.layout().clone();
        let Some(held) = self.groups.get_mut(group) else { return Ok(()) };
        if held.record.desired == desired {
            return Ok(());
        }
        let mut record = held.record.clone();
        record.desired = desired;
        if !mutant!("l7-stop-not-kept") {
            record.save(&layout, crate::state::Fsync::No).map_err(|e| unwritten(crate::chain::chain(&e)))?;
        }
        self.unflushed = Some(layout.record(group));
        held.record = record;
        failpoint::reach("desired-written");
        Ok(())
    }

    pub(super) fn accepted(
        &self,
        operation: wire::Operation,
        group: &GroupName,
        component: Option<&ComponentName>,
    ) -> Result<wire::Accepted, wire::ApiError> {
        let mut answer = accepted(operation, Some(group), "");
        if let Some(held) = self.groups.get(group) {
            answer.generation = held.view.generation;
            answer.phase = Some(convert::phase(held.view.phase));
            let c = component.and_then(|name| held.view.components.iter().find(|c| &c.name == name));
            answer.birth = c.and_then(|c| c.birth).map(|b| b.0);
            answer.restarts = c.map_or(0, |c| c.restarts);
        }
        answer.component = component.map(ToString::to_string);
        Ok(answer)
    }
}

fn unwritten(why: String) -> wire::ApiError {
    wire::ApiError::new(wire::ErrorCode::Failed, format!("the group's record cannot be written: {why}"))
        .with_hint("free space in the state folder and try again")
}

/// The record is written and the change is under way; only that it outlives a crash of the host is not certain.
fn unflushed(why: &str) -> wire::ApiError {
    let text = format!("the change is under way, but it is not certain that it outlives a crash of the host: {why}");
    wire::ApiError::new(wire::ErrorCode::Failed, text)
        .with_hint("look at the disk of the state folder; `ctl status` shows how far the change is")
}

fn accepted(operation: wire::Operation, group: Option<&GroupName>, note: &str) -> wire::Accepted {
    wire::Accepted {
        operation,
        group: group.map(ToString::to_string),
        component: None,
        generation: 0,
        birth: None,
        restarts: 0,
        phase: None,
        note: note.into(),
    }
}
