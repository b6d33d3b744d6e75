//! Law L9: a group keeps its ports.

use super::*;

struct World {
    home: Home,
    state: Option<StateDir>,
}

impl World {
    fn new() -> World {
        let home = Home::new();
        let state = Some(home.open());
        World { home, state }
    }
    fn layout(&self) -> Layout {
        Layout::new(self.home.path())
    }
    fn open(&self) -> (Leases, Vec<String>) {
        Leases::open(&self.layout(), few_ports()).unwrap()
    }
    fn record(&self, name: &str) -> GroupRecord {
        self.state.as_ref().unwrap().ensure_group(&group(name)).unwrap();
        let loaded = GroupRecord::load(&self.layout(), &group(name)).unwrap();
        loaded.found().unwrap_or_else(|| GroupRecord::new(group(name)))
    }
    fn delete(&self, name: &str) {
        let trash = self.state.as_ref().unwrap().trash_group(&group(name)).unwrap().unwrap();
        fs::remove_dir_all(trash).unwrap();
    }
    fn ports(&self, leases: &mut Leases, name: &str) -> Vec<(String, u16)> {
        let ports = leases.ensure(&mut self.record(name), &roles()).unwrap();
        leases.flush_now().unwrap();
        ports.into_iter().collect()
    }
}

fn list(ccm: u16, https: u16, inner: u16) -> Vec<(String, u16)> {
    vec![("ccm".into(), ccm), ("https".into(), https), ("https-inner".into(), inner)]
}

#[test]
fn a_group_keeps_its_ports_whatever_others_do() {
    let world = World::new();
    let (mut leases, _) = world.open();
    assert_eq!(world.ports(&mut leases, "a"), list(61002, 61000, 61001));
    assert_eq!(world.ports(&mut leases, "b"), list(61005, 61003, 61004));
    leases.release(&group("a"));
    assert_eq!(world.ports(&mut leases, "b"), list(61005, 61003, 61004));
    world.delete("a");
    assert_eq!(world.ports(&mut leases, "c"), list(61002, 61000, 61001), "released ports are given again");
    leases.release(&group("c"));
    leases.flush_now().unwrap();
    world.delete("c");
    let (mut later, warnings) = world.open();
    assert!(later.of(&group("c")).is_empty(), "a release outlives the daemon");
    assert_eq!((world.ports(&mut later, "b"), warnings.len()), (list(61005, 61003, 61004), 0));
    assert_eq!(later.holder(61003).unwrap().role, "https");
}

#[test]
fn a_port_that_is_bound_or_ephemeral_is_not_leased_anew_but_a_held_one_stays() {
    let world = World::new();
    let busy = || LeaseOptions {
        ephemeral: [61000, 61003].into_iter().collect(),
        is_bound: Box::new(|p| p == 61001 || p == 61005),
        ..few_ports()
    };
    let (mut leases, _) = Leases::open(&world.layout(), busy()).unwrap();
    assert_eq!(world.ports(&mut leases, "a"), list(61002, 61006, 61007));
    let all_bound = LeaseOptions { is_bound: Box::new(|_| true), ..busy() };
    let (mut later, _) = Leases::open(&world.layout(), all_bound).unwrap();
    assert_eq!(world.ports(&mut later, "a"), list(61002, 61006, 61007));
}

#[test]
fn a_pair_never_straddles_two_ranges() {
    let world = World::new();
    let options = LeaseOptions { ranges: vec![61000..=61000, 20000..=20001], ..few_ports() };
    let (mut leases, _) = Leases::open(&world.layout(), options).unwrap();
    assert_eq!(world.ports(&mut leases, "a"), list(61000, 20000, 20001));
}

#[test]
fn a_used_up_range_is_told_with_counts_and_the_way_out_and_changes_nothing() {
    let world = World::new();
    let options = LeaseOptions {
        ranges: vec![61000..=61007],
        ephemeral: [61003].into_iter().collect(),
        is_bound: Box::new(|p| p == 61004),
    };
    let (mut leases, _) = Leases::open(&world.layout(), options).unwrap();
    assert_eq!(leases.max_tenants(&roles()), 2);
    world.ports(&mut leases, "a");
    let mut record = world.record("b");
    let greedy = [roles().to_vec(), (0..3).map(|n| PortRole::Single(format!("x{n}"))).collect()].concat();
    let error = leases.ensure(&mut record, &greedy).unwrap_err().to_string();
    for part in ["group b", "of 8 ports", "61000-61007", "6 are leased", "1 lie in", "1 are in use", "widen"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert!(record.ports.is_empty() && leases.of(&group("b")).is_empty());
    assert_eq!(leases.of(&group("a")).len(), 3);
}

#[test]
fn a_corrupt_lease_file_is_kept_aside_and_rebuilt_so_that_no_port_moves() {
    let world = World::new();
    let (mut leases, _) = world.open();
    let before = (world.ports(&mut leases, "a"), world.ports(&mut leases, "b"));
    for content in [Some("{"), Some("{\"schema\": 9}"), None] {
        match content {
            Some(content) => fs::write(world.layout().leases(), content).unwrap(),
            None => fs::remove_file(world.layout().leases()).unwrap(),
        }
        let (mut later, warnings) = world.open();
        assert_eq!(warnings.len(), usize::from(content.is_some()), "{warnings:?}");
        assert!(warnings.iter().all(|w| w.contains("rebuilt")));
        assert_eq!(later.holder(61000).unwrap().group, group("a"), "nobody else may get it before a asks");
        // In the other order: what is rebuilt, not what is allocated again.
        let b = world.ports(&mut later, "b");
        assert_eq!((world.ports(&mut later, "a"), b), before);
    }
    assert_eq!(names(&world.home.path()).iter().filter(|n| n.contains(".corrupt-")).count(), 2);
}

#[test]
fn a_lost_record_is_answered_from_the_lease_file() {
    let world = World::new();
    let (mut leases, _) = world.open();
    let before = world.ports(&mut leases, "b");
    fs::write(world.layout().record(&group("b")), "{").unwrap();
    let (mut later, warnings) = world.open();
    assert_eq!(warnings, Vec::<String>::new());
    assert_eq!(world.ports(&mut later, "b"), before);
    assert_eq!(world.record("b").ports.len(), 3);
}

#[test]
fn the_record_is_written_first_and_a_failed_lease_file_is_completed_later() {
    let world = World::new();
    let (mut leases, _) = world.open();
    let mut record = world.record("a");
    fs::create_dir_all(world.layout().leases().join("in-the-way")).unwrap();
    leases.ensure(&mut record, &roles()).unwrap();
    assert!(matches!(leases.flush_now(), Err(LeaseError::Write(_))));
    assert_eq!(world.record("a").ports, record.ports, "the record on disk has them");
    assert_eq!(leases.of(&group("a")), record.ports, "nobody else gets them");
    assert!(!leases.is_durable(&group("a")), "and it does not start with them");
    fs::remove_dir_all(world.layout().leases()).unwrap();
    leases.flush_now().unwrap();
    assert!(leases.is_durable(&group("a")));
    assert!(fs::read_to_string(world.layout().leases()).unwrap().contains("61000"));
}

#[test]
fn one_flush_serves_all_that_changed_before_it_and_none_that_changed_after() {
    let world = World::new();
    let (mut leases, _) = world.open();
    for name in ["a", "b"] {
        leases.ensure(&mut world.record(name), &roles()).unwrap();
    }
    let flush = leases.next_flush().unwrap();
    leases.ensure(&mut world.record("c"), &roles()).unwrap();
    assert!(leases.next_flush().is_none(), "two at once could overtake each other");
    flush.write().unwrap();
    leases.flushed(flush.version(), true);
    let durable = ["a", "b", "c"].map(|name| leases.is_durable(&group(name)));
    assert_eq!(durable, [true, true, false]);
    let version = leases.release(&group("a"));
    let flush = leases.next_flush().unwrap();
    leases.flushed(flush.version(), false);
    assert!(!leases.has_flushed(version) && !leases.is_durable(&group("c")), "nothing is durable by a failed write");
    leases.flush_now().unwrap();
    assert!(leases.has_flushed(version) && leases.is_durable(&group("c")) && leases.next_flush().is_none());
    leases.ensure(&mut world.record("b"), &roles()).unwrap();
    assert!(leases.next_flush().is_none(), "a restart changes nothing");
}

#[test]
fn two_records_with_one_port_are_named_and_neither_moves() {
    let world = World::new();
    let (mut leases, _) = world.open();
    world.ports(&mut leases, "a");
    let mut copy = world.record("b");
    copy.ports = [("https".to_string(), 61000)].into();
    copy.save(&world.layout(), Fsync::No).unwrap();
    let (mut later, warnings) = world.open();
    assert!(warnings[0].contains("port 61000 (https) of group b is leased to group a"), "{warnings:?}");
    assert!(matches!(later.ensure(&mut copy, &roles()), Err(LeaseError::Conflict { .. })));
    assert_eq!(world.ports(&mut later, "a"), list(61002, 61000, 61001));
    assert_eq!(world.record("b").ports.len(), 1);
}

#[test]
fn the_host_check_sees_a_listener_on_loopback() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    assert!(port_is_bound(port));
    let host = LeaseOptions::of_host();
    assert!(host.ranges.iter().all(|r| r.clone().count() > 4000));
}
