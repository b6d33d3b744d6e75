//! Looks at the host. Only reads; what cannot be read is left out, and the judgement says so.

use super::facts::{ClockFacts, ConfigFacts, Facts, JournalFacts, LimitFacts, Need, PortFacts, Programs, StateFacts};
use super::{Place, cgroups, left};
use crate::config::{self, Binaries, BinariesFile, ClusterKind, DaemonConfig, Finding, Inputs, Severity, Switch};
use crate::state::LeaseOptions;
use nix::unistd::{Uid, User};
use socialweb_sys::PidFd;
use socialweb_sys::fsinfo::FsInfo;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// Components of a tenant.
const TENANT_COMPONENTS: u64 = 5;

/// Looks at everything.
pub fn gather(place: &Place) -> Facts {
    // Looked for before and after the rest: a daemon that comes or goes meanwhile has left nothing.
    let before = left::living();
    let cgroups = cgroups::gather(place);
    let found = left::gather(place, &cgroups);
    let living: Vec<left::Living> = before.into_iter().chain(left::living()).collect();
    let holder = place.state_dir.as_deref().and_then(|state| left::holder(&living, state));
    let systemd = systemd();
    let name = User::from_uid(Uid::from_raw(place.uid)).ok().flatten().map(|user| user.name);
    let name = name.unwrap_or_else(|| format!("uid {}", place.uid));
    let linger = systemd.as_ref().and_then(|_| linger(place.uid, &name, &cgroups.own));
    Facts {
        seen: place.seen,
        socket: place.socket.clone(),
        holder,
        config: config_facts(place),
        limits: limits(place, &cgroups.own),
        need: need(place.config.as_ref()),
        journal: linger.and_then(|_| journal(place)),
        linger,
        systemd,
        left: found.of_the_dead(&living),
        cgroups,
        kernel: fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_string(),
        pidfds: PidFd::open(std::process::id()).is_ok_and(|fd| fd.is_some()),
        programs: programs(place),
        state: state(place),
        ports: ports(place.config.as_ref()),
        clock: clock(place.state_dir.as_deref()),
        account: (place.uid, name),
    }
}

fn config_facts(place: &Place) -> ConfigFacts {
    let Some(file) = &place.config_file else { return ConfigFacts::default() };
    let known = BTreeSet::new();
    let inputs = Inputs { file, env: &place.env, flags: &place.flags, known: &known, may_be_empty: false };
    let findings = config::check(&inputs, &place.exe);
    let texts = |severity: Severity| -> Vec<String> {
        findings.iter().filter(|f: &&Finding| f.severity == severity).map(ToString::to_string).collect()
    };
    ConfigFacts { file: Some(file.clone()), errors: texts(Severity::Error), warnings: texts(Severity::Warning) }
}

fn need(config: Option<&DaemonConfig>) -> Need {
    let Some(config) = config else { return Need::default() };
    let declared = config::read_folder(&config.clusters_dir, &BTreeSet::new(), false);
    let mut need = Need::default();
    for cluster in declared.clusters.iter().filter_map(|c| c.as_ref().ok()) {
        let tenant = cluster.file.kind == ClusterKind::Tenant;
        need.groups += 1;
        need.tenants += u64::from(tenant);
        need.components += cluster.file.component.len() as u64 + if tenant { TENANT_COMPONENTS } else { 0 };
    }
    need
}

// ---- limits -----------------------------------------------------------------------------------------------------------

fn limits(place: &Place, own: &str) -> LimitFacts {
    let of = place.seen.pid().map_or_else(|| "self".to_string(), |pid| pid.to_string());
    let text = fs::read_to_string(format!("/proc/{of}/limits")).unwrap_or_default();
    let (nofile, nproc) = parse_limits(&text);
    let folder = place.seen.pid().or(Some(std::process::id())).and_then(socialweb_sys::cgroup::folder_of);
    let tasks = folder.and_then(|folder| lowest_tasks(&folder, own));
    LimitFacts { nofile, nproc: nproc.filter(|_| place.uid != 0), tasks }
}

/// Hard limit of open files, soft limit of processes; none for "unlimited".
fn parse_limits(text: &str) -> (Option<u64>, Option<u64>) {
    let fields = |name: &str| -> Vec<Option<u64>> {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        line.split_ascii_whitespace().take(2).map(|word| word.parse().ok()).collect()
    };
    let nofile = fields("Max open files").get(1).copied().flatten();
    (nofile, fields("Max processes").first().copied().flatten())
}

/// The lowest pids.max of the folder and those above it that belong to the hierarchy.
fn lowest_tasks(folder: &Path, own: &str) -> Option<(u64, PathBuf)> {
    let levels = own.split('/').filter(|part| !part.is_empty()).count();
    let limit = |at: &Path| fs::read_to_string(at.join("pids.max")).ok()?.trim().parse::<u64>().ok();
    folder.ancestors().take(levels).filter_map(|at| Some((limit(at)?, at.to_owned()))).min()
}

// ---- the account ------------------------------------------------------------------------------------------------------

/// The version of the systemd that runs this host.
fn systemd() -> Option<String> {
    if !Path::new("/run/systemd/system").is_dir() {
        return None;
    }
    let out = std::process::Command::new("systemctl").arg("--version").output().ok();
    let text = out.map(|out| String::from_utf8_lossy(&out.stdout).into_owned()).unwrap_or_default();
    Some(version_of(&text))
}

/// "systemd 252 (252.39-1~deb12u1)": what stands in the brackets, else the number.
fn version_of(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let whole = line.split_once('(').and_then(|(_, rest)| rest.split_once(')')).map(|(version, _)| version);
    whole.or_else(|| line.split(' ').nth(1)).unwrap_or("unknown").to_string()
}

/// None where the question makes no sense: root's own unit is the system manager's.
fn linger(uid: u32, name: &str, own: &str) -> Option<bool> {
    if uid == 0 && !own.contains("/user.slice/") && !own.contains("user@0.service") {
        return None;
    }
    Some(Path::new("/var/lib/systemd/linger").join(name).exists())
}

/// systemd tells journald of a unit's own limit by a link whose target is the value.
fn journal(place: &Place) -> Option<JournalFacts> {
    let asked_for = place.config.as_ref().is_none_or(|config| config.log.journal == Switch::Auto);
    if !asked_for || !Path::new("/run/systemd/journal/socket").exists() {
        return None;
    }
    let unit = format!("user@{}.service", place.uid);
    let told = fs::read_link(format!("/run/systemd/units/log-rate-limit-burst:{unit}")).ok();
    let burst = told.and_then(|target| target.to_str()?.parse().ok());
    Some(JournalFacts { unit, burst })
}

// ---- files ------------------------------------------------------------------------------------------------------------

fn programs(place: &Place) -> Programs {
    let none = BinariesFile::default();
    let named = place.config.as_ref().map_or(&none, |c| &c.binaries);
    let binaries = Binaries::new(named, &place.env, &place.exe);
    let text = |found: Result<PathBuf, config::MissingBinary>| found.map_err(|missing| missing.to_string());
    let server = binaries.server();
    let name = server.as_ref().map_or("k3s or kube-server", |server| server.flavour.as_str());
    let found = vec![
        ("kine".to_string(), text(binaries.kine())),
        ("bao".to_string(), text(binaries.bao())),
        (name.to_string(), text(server.map(|server| server.path))),
    ];
    let whose = if place.env_is_daemons { "the daemon's PATH" } else { "the PATH of this shell" };
    Programs { searched: whose.into(), found }
}

fn state(place: &Place) -> StateFacts {
    let Some(path) = place.state_dir.clone() else { return StateFacts::default() };
    let info = FsInfo::of(&path).ok();
    let meta = fs::metadata(&path).ok();
    StateFacts {
        owner_and_mode: meta.map(|meta| (meta.uid(), meta.permissions().mode() & 0o7777)),
        memory: info.and_then(|info| info.memory).map(Into::into),
        memory_accepted: place.flags.allow_tmpfs || place.config.as_ref().is_some_and(|c| c.allow_tmpfs),
        read_only: info.is_some_and(|info| info.read_only),
        free_bytes: info.map(|info| info.free_bytes),
        path: Some(path),
    }
}

fn ports(config: Option<&DaemonConfig>) -> PortFacts {
    let options = LeaseOptions::of_host();
    let ranges = config.map_or(options.ranges, |c| c.ports.clone());
    let mut overlap: Vec<(u16, u16)> = Vec::new();
    for port in ranges.into_iter().flatten().filter(|port| options.ephemeral.contains(*port)) {
        match overlap.last_mut() {
            Some((_, high)) if high.checked_add(1) == Some(port) => *high = port,
            _ => overlap.push((port, port)),
        }
    }
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let ephemeral = range.split_whitespace().collect::<Vec<_>>().join("-");
    PortFacts { overlap, ephemeral }
}

fn clock(state: Option<&Path>) -> ClockFacts {
    let now = UNIX_EPOCH.elapsed().unwrap_or_default().as_secs();
    let entries = state.and_then(|state| fs::read_dir(state).ok()).into_iter().flatten().flatten();
    let times = entries.filter_map(|entry| {
        let at = entry.metadata().ok()?.modified().ok()?.duration_since(UNIX_EPOCH).ok()?.as_secs();
        Some((at, entry.file_name().to_string_lossy().into_owned()))
    });
    let timesync = Path::new("/run/systemd/timesync");
    let synchronised = timesync.is_dir().then(|| timesync.join("synchronized").exists());
    ClockFacts { now, newest: times.max(), synchronised }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_and_versions_are_read_as_the_host_writes_them() {
        let text = "Limit                     Soft Limit           Hard Limit           Units     \n\
                    Max processes             127246               unlimited            processes \n\
                    Max open files            1024                 524288               files     \n";
        assert_eq!(parse_limits(text), (Some(524_288), Some(127_246)));
        assert_eq!(parse_limits(&text.replace("524288", "unlimited")), (None, Some(127_246)));
        assert_eq!(parse_limits(""), (None, None));
        assert_eq!(version_of("systemd 252 (252.39-1~deb12u1)\n+PAM"), "252.39-1~deb12u1");
        assert_eq!(version_of("systemd 255\n"), "255");
        assert_eq!(version_of(""), "unknown");
    }

    #[test]
    fn the_lowest_bound_of_tasks_above_a_cgroup_counts() {
        let dir = tempfile::tempdir().unwrap();
        let low = dir.path().join("a");
        fs::create_dir_all(low.join("b")).unwrap();
        fs::write(dir.path().join("pids.max"), "1\n").unwrap();
        fs::write(low.join("pids.max"), "100\n").unwrap();
        fs::write(low.join("b/pids.max"), "max\n").unwrap();
        assert_eq!(
            lowest_tasks(&low.join("b"), "/a/b"),
            Some((100, low.clone())),
            "the mount's own folder is no cgroup of ours"
        );
        assert_eq!(lowest_tasks(&low.join("b"), "/"), None);
    }
}
