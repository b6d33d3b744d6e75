//! What a spawn costs against a bare posix_spawn, in one run: `cargo run --release -p socialweb-sys --example spawn_cost`.
//! Arguments: children per loop (1000), open descriptors (4000), resident ballast in MiB (10).
#![allow(unsafe_code, clippy::unwrap_used, reason = "a measurement, not a part of the product")]

use socialweb_sys::{Cgroup, Command, Support, Tree, reap};
use std::ffi::CString;
use std::fs::File;
use std::time::{Duration, Instant};

fn main() {
    let number = |i: usize, default: usize| std::env::args().nth(i).and_then(|a| a.parse().ok()).unwrap_or(default);
    let (children, descriptors, ballast) = (number(1, 1_000), number(2, 4_000), number(3, 10));
    let _descriptors: Vec<File> = (0..descriptors).map(|_| File::open("/dev/null").unwrap()).collect();
    let _ballast = vec![1u8; ballast << 20];
    let support = Support::detect(None);
    println!("{children} children, {descriptors} descriptors, {ballast} MiB; {}", support.explain());

    let tree = support.root().map(|root| Tree::new(root, &format!("spawn-cost-{}", std::process::id())).unwrap());
    let (mut bare, mut ours, mut inside) = (Duration::MAX, Duration::MAX, Duration::MAX);
    // Three rounds, the best of each: the machine's other work must not decide.
    for round in 0..3 {
        bare = bare.min(time(children, |_| posix_spawn()));
        ours = ours.min(time(children, |_| spawn(None)));
        let Some(tree) = &tree else { continue };
        let cgroup = |i| tree.child(&format!("{round}-{i}"));
        inside = inside.min(time(children, |i| {
            cgroup(i).create().unwrap();
            spawn(Some(&cgroup(i)))
        }));
    }
    let show = |what: &str, time: Duration| {
        let each = time.as_secs_f64() * 1e3 / children as f64;
        println!("{what:32} {each:6.3} ms a child, {:5.2} x", time.as_secs_f64() / bare.as_secs_f64());
    };
    show("posix_spawn", bare);
    show("ours", ours);
    if let Some(tree) = tree {
        show("ours, mkdir and into the cgroup", inside);
        while tree.top().remove().is_err() {}
    }
}

/// Starts all, and waits for all afterwards; only the starts are timed.
fn time(children: usize, start: impl Fn(usize) -> u32) -> Duration {
    let begin = Instant::now();
    let pids: Vec<u32> = (0..children).map(start).collect();
    let time = begin.elapsed();
    for pid in pids {
        while reap::reap(pid).is_err() {
            std::thread::yield_now();
        }
    }
    time
}

fn spawn(cgroup: Option<&Cgroup>) -> u32 {
    Command::new(vec!["/bin/true".into()], "/").spawn(cgroup).unwrap().pid
}

fn posix_spawn() -> u32 {
    let program = CString::new("/bin/true").unwrap();
    let argv = [program.as_ptr().cast_mut(), std::ptr::null_mut()];
    let env = [std::ptr::null_mut()];
    let mut pid = 0;
    // SAFETY: program, argv and env are NUL- and null-terminated and outlive the call.
    let rc = unsafe {
        libc::posix_spawn(&mut pid, program.as_ptr(), std::ptr::null(), std::ptr::null(), argv.as_ptr(), env.as_ptr())
    };
    assert_eq!(rc, 0);
    pid as u32
}
