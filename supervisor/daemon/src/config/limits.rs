//! `[limits]` of a cluster file: what the whole group, and what one component, may take of the host.

use super::value::{Cores, Size};
use schemars::JsonSchema;
use serde::Deserialize;
use socialweb_core::{CoreBudget, Limits};

/// `[limits]`: bounds of the whole group, and one table for each of a tenant's own components. A bound that this host cannot
/// keep (no such cgroup controller) is a warning of `ctl status`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GroupLimitsFile {
    /// Memory; above it the kernel ends a process.
    pub memory_max: Option<Size>,
    /// Memory; above it processes are slowed and memory is reclaimed.
    pub memory_high: Option<Size>,
    /// Processor time in cores: 0.5 is half of one.
    pub cpu: Option<Cores>,
    /// Processes and threads.
    pub pids_max: Option<u32>,
    /// Share of the disks beside other groups, 1 to 10000. The kernel's default is 100.
    pub io_weight: Option<u16>,
    /// Core dumps of the group that are kept, in bytes. Default: 1GiB.
    pub core_bytes: Option<Size>,
    /// Core dumps of the group that are kept, in number. Default: 5.
    pub core_count: Option<u32>,
    /// The task that places certificates and tokens.
    pub credentials: LimitsFile,
    /// kine.
    pub kine: LimitsFile,
    /// OpenBao.
    pub openbao: LimitsFile,
    /// k3s server, or kube-server.
    pub k3s: LimitsFile,
    /// The task that makes namespaces and rules.
    #[serde(rename = "bring-up")]
    pub bring_up: LimitsFile,
}

/// Bounds of one component.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsFile {
    /// Memory; above it the kernel ends a process.
    pub memory_max: Option<Size>,
    /// Memory; above it processes are slowed and memory is reclaimed.
    pub memory_high: Option<Size>,
    /// Processor time in cores: 0.5 is half of one.
    pub cpu: Option<Cores>,
    /// Processes and threads.
    pub pids_max: Option<u32>,
    /// Share of the disks beside the group's other components, 1 to 10000. The kernel's default is 100.
    pub io_weight: Option<u16>,
    /// Size of one core dump. Default: 0, none.
    pub core_max: Option<Size>,
}

impl GroupLimitsFile {
    /// Each table of a tenant's own component with its name.
    pub(super) fn each(&self) -> [(&'static str, &LimitsFile); 5] {
        [
            ("credentials", &self.credentials),
            ("kine", &self.kine),
            ("openbao", &self.openbao),
            ("k3s", &self.k3s),
            ("bring-up", &self.bring_up),
        ]
    }

    pub(super) fn of(&self, component: &str) -> LimitsFile {
        self.each().into_iter().find(|(name, _)| *name == component).map(|(_, l)| *l).unwrap_or_default()
    }

    /// Bounds of the group alone.
    fn own(&self) -> LimitsFile {
        let GroupLimitsFile { memory_max, memory_high, cpu, pids_max, io_weight, .. } = *self;
        LimitsFile { memory_max, memory_high, cpu, pids_max, io_weight, core_max: None }
    }

    pub(super) fn bounds(&self) -> Limits {
        self.own().bounds()
    }

    pub(super) fn cores(&self) -> CoreBudget {
        let default = CoreBudget::default();
        CoreBudget {
            bytes: self.core_bytes.map_or(default.bytes, |s| s.0),
            count: self.core_count.unwrap_or(default.count),
        }
    }

    /// What is wrong: the keys on the way, and why.
    pub(super) fn faults(&self) -> Vec<(Vec<&'static str>, String)> {
        let own = self.own().faults().into_iter().map(|(key, message)| (vec![key], message));
        let each = self
            .each()
            .into_iter()
            .flat_map(|(name, table)| table.faults().into_iter().map(move |(key, message)| (vec![name, key], message)));
        own.chain(each).collect()
    }
}

/// Below this nothing can run, and the kernel would end it at once: an unloaded shell takes half of it.
const LEAST_MEMORY: u64 = 1 << 20;
/// The kernel's shortest quota, 1 ms of each 100 ms.
const LEAST_CPU: u32 = 10;

impl LimitsFile {
    pub(super) fn bounds(&self) -> Limits {
        Limits {
            memory_max: self.memory_max.map(|s| s.0),
            memory_high: self.memory_high.map(|s| s.0),
            cpu_millis: self.cpu.map(|c| c.0),
            pids_max: self.pids_max,
            io_weight: self.io_weight,
        }
    }

    /// Keys with what is wrong with them.
    pub(super) fn faults(&self) -> Vec<(&'static str, String)> {
        let mut faults = Vec::new();
        for (key, size) in [("memory_max", self.memory_max), ("memory_high", self.memory_high)] {
            if size.is_some_and(|s| s.0 < LEAST_MEMORY) {
                faults.push((key, "must be at least \"1MiB\"".to_string()));
            }
        }
        if let (Some(high), Some(max)) = (self.memory_high, self.memory_max)
            && high.0 > max.0
        {
            faults.push(("memory_high", "must not be above the \"memory_max\" beside it".into()));
        }
        if self.cpu.is_some_and(|c| c.0 < LEAST_CPU) {
            faults.push(("cpu", "must be at least 0.01".into()));
        }
        if self.pids_max == Some(0) {
            faults.push(("pids_max", "must be at least 1".into()));
        }
        if self.io_weight.is_some_and(|n| !(1..=10_000).contains(&n)) {
            faults.push(("io_weight", "must be between 1 and 10000".into()));
        }
        faults
    }
}
