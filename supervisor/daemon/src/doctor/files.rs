//! What the facts mean for files, programs, ports and the clock. Pure.

use super::facts::Facts;
use socialweb_wire::Check;

const MIB: u64 = 1 << 20;
/// Below this nothing is written that has to be.
const LITTLE: u64 = 64 * MIB;
/// A tenant's databases grow to some hundred MiB, and SQLite needs its size again to compact.
const SCARCE: u64 = 1024 * MIB;
/// 2025-01-01: no host is right that is before it, and certificates made there would be from the past.
const PAST: u64 = 1_735_689_600;
/// A file that is this much younger than now was written before the clock was set back.
const SKEW: u64 = 120;

pub(super) fn config(facts: &Facts) -> Check {
    const NAME: &str = "configuration";
    let config = &facts.config;
    let Some(file) = &config.file else {
        return Check::warn(
            NAME,
            "no supervisor.toml is known, so that defaults are assumed in what follows",
            "name it with -config FILE",
        );
    };
    let fix = format!("`socialweb-computer config check -config {}` lists all", file.display());
    if let Some(first) = config.errors.first() {
        return Check::fail(NAME, format!("{} errors; the first: {first}", config.errors.len()), fix);
    }
    if let Some(first) = config.warnings.first() {
        return Check::warn(NAME, format!("{} warnings; the first: {first}", config.warnings.len()), fix);
    }
    Check::ok(NAME, format!("{}: in order, {} groups", file.display(), facts.need.groups))
}

pub(super) fn programs(facts: &Facts) -> Vec<Check> {
    let searched = &facts.programs.searched;
    let one = |(name, found): &(String, Result<std::path::PathBuf, String>)| match found {
        Ok(path) => Check::ok("program", format!("{name} is {} (by {searched})", path.display())),
        // The text names the fix after its semicolon.
        Err(missing) => {
            let (text, fix) = missing.split_once("; ").unwrap_or((missing, ""));
            let text = format!("{text} (looked for with {searched})");
            match facts.need.tenants {
                0 => Check::warn("program", format!("{text}; no tenant is declared that needs it"), fix),
                n => Check::fail("program", format!("{text}; {n} tenants need it"), fix),
            }
        }
    };
    facts.programs.found.iter().map(one).collect()
}

pub(super) fn state(facts: &Facts) -> Check {
    const NAME: &str = "state folder";
    let state = &facts.state;
    let Some(path) = &state.path else {
        return Check::fail(NAME, "there is no place for it", "set state_dir in supervisor.toml, or HOME");
    };
    let at = path.display();
    if let Some((owner, _)) = state.owner_and_mode.filter(|(owner, _)| *owner != facts.account.0) {
        let fix = format!("`chown -R {} {at}`, or choose another with -state-dir", facts.account.1);
        return Check::fail(
            NAME,
            format!("{at} belongs to uid {owner}, and the daemon is uid {}", facts.account.0),
            fix,
        );
    }
    if state.read_only {
        return Check::fail(
            NAME,
            format!("{at} is on a read-only file system"),
            "remount it, or choose another with -state-dir",
        );
    }
    if let Some(kind) = &state.memory {
        let text = format!("{at} is on a {kind}: a reboot takes every cluster in it");
        let fix = "put state_dir on a disk";
        return if state.memory_accepted { Check::warn(NAME, text, fix) } else { Check::fail(NAME, text, fix) };
    }
    let free = state.free_bytes.unwrap_or(u64::MAX);
    let space = format!("{at} has {} MiB free", free / MIB);
    if free < LITTLE {
        return Check::fail(NAME, format!("{space}: records and databases cannot be written"), "free some space there");
    }
    if free < SCARCE {
        return Check::warn(NAME, format!("{space}, which one tenant can fill"), "free some space there");
    }
    match state.owner_and_mode {
        None => Check::ok(NAME, format!("{at} is made at the first start")),
        Some((_, mode)) if mode & 0o077 != 0 => Check::warn(
            NAME,
            format!("{at} is open to others (mode {mode:o})"),
            format!("`chmod 700 {at}`; the daemon does it at its next start"),
        ),
        Some((_, mode)) => Check::ok(NAME, format!("{space}, mode {mode:04o}")),
    }
}

pub(super) fn ports(facts: &Facts) -> Check {
    const NAME: &str = "ports";
    let (overlap, ephemeral) = (&facts.ports.overlap, &facts.ports.ephemeral);
    if overlap.is_empty() {
        return Check::ok(NAME, format!("no range to lease from lies in the ephemeral one ({ephemeral})"));
    }
    let ranges: Vec<String> = overlap.iter().map(|(low, high)| format!("{low}-{high}")).collect();
    let ranges = ranges.join(",");
    Check::warn(
        NAME,
        format!(
            "the kernel gives {ranges} of the ranges to outgoing connections too ({ephemeral}); these are not leased anew"
        ),
        format!("`sysctl net.ipv4.ip_local_reserved_ports={ranges}`, or other `ranges` in [ports] of supervisor.toml"),
    )
}

pub(super) fn clock(facts: &Facts) -> Check {
    const NAME: &str = "clock";
    let clock = &facts.clock;
    const SET: &str = "set it (`timedatectl set-ntp true`, or `chronyd`): certificates made now would not hold";
    if clock.now < PAST {
        return Check::fail(NAME, format!("{} s since 1970 lie in the past", clock.now), SET);
    }
    if let Some((at, name)) = clock.newest.as_ref().filter(|(at, _)| *at > clock.now + SKEW) {
        let text =
            format!("{name} in the state folder is {} s younger than now: the clock was set back", at - clock.now);
        return Check::warn(NAME, text, SET);
    }
    match clock.synchronised {
        Some(false) => Check::warn(NAME, "systemd-timesyncd has not set it yet", "see `timedatectl timesync-status`"),
        _ => Check::ok(NAME, "plausible"),
    }
}
