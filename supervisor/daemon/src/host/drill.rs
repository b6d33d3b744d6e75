//! Begins a drill: an ordinary group that no source declares. Its end is an ordinary delete.

use super::{Facts, Host};
use crate::chain::chain;
use crate::config::Context;
use crate::drill;
use socialweb_core::{Event, GroupName, Why};
use socialweb_sys::fsinfo::FsInfo;
use socialweb_wire::{Accepted, ApiError, ErrorCode, Operation};
use std::collections::BTreeMap;

/// A drill writes a record, a receipt and 3 MB of log lines; with less room it would take the rest from others.
const ROOM: u64 = 32 << 20;

impl Host {
    pub(super) fn begin_drill(&mut self, token: &str) -> Result<Accepted, ApiError> {
        let group = drill_group();
        let refuse = |code, text: String, hint: &str| Err(ApiError::new(code, text).with_hint(hint));
        if self.stopping {
            return refuse(ErrorCode::Conflict, "the daemon is going down".into(), "start it again first");
        }
        if self.groups.contains_key(&group) {
            let hint = format!("wait for its end; `ctl delete {group} --yes` ends one that was cut off");
            return refuse(ErrorCode::Conflict, "a drill is under way, or was cut off".into(), &hint);
        }
        let free = FsInfo::of(self.state.layout().root()).map_or(u64::MAX, |info| info.free_bytes);
        if free < ROOM {
            let text = format!("the state folder has {} KiB free, too little for a drill", free >> 10);
            return refuse(ErrorCode::Failed, text, "free at least 32 MiB there; nothing was started");
        }
        if let Err(why) = self.declare_drill(&group, token) {
            self.drop_group(&group);
            // Nothing but what was made just now is in it.
            let _ = crate::state::remove_tree(&self.state.layout().group(&group));
            return refuse(ErrorCode::Failed, why, "nothing was started; mend that and try again");
        }
        self.feed(&group, Event::Start { why: Why::Operator });
        self.accepted(Operation::Start, &group, None)
    }

    fn declare_drill(&mut self, group: &GroupName, token: &str) -> Result<(), String> {
        let record = self.record_of(group, None)?;
        self.hold(record);
        let cgroup = self.groups_tree().map(|tree| tree.child(group.as_str()).path().to_owned());
        let ports = BTreeMap::new();
        let context = Context::new(&self.config, group, &ports, &self.binaries, &self.paths.exe, &self.env);
        let expanded = drill::spec(&context, token, cgroup.as_deref()).map_err(|error| chain(&error))?;
        if let Some(held) = self.groups.get_mut(group) {
            held.facts = Facts { running: true, ..Facts::default() };
        }
        self.feed(group, Event::Declared { spec: Box::new(expanded.spec) });
        Ok(())
    }

    /// A drill that is to be deleted is no longer declared. Anything else is left as it is.
    pub(super) fn undeclare_drill(&mut self, group: &GroupName) {
        if *group == drill_group() && self.groups.get(group).is_some_and(|held| held.machine.is_declared()) {
            self.feed(group, Event::Removed);
        }
    }
}

fn drill_group() -> GroupName {
    GroupName::new(drill::GROUP).expect("the reserved name is a label")
}
