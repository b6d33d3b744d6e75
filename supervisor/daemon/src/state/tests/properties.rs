//! For any bytes under a record's name and any order of leasing: nothing panics, nothing is lost, no port moves.

use super::*;
use socialweb_property::proptest::collection::vec;
use socialweb_property::proptest::prelude::*;
use socialweb_property::proptest::test_runner::TestCaseError;
use socialweb_property::{holds, holds_in};
use std::collections::BTreeMap;

/// A good record and what may become of it on a bad disk.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let good = serde_json::to_vec_pretty(&json!({
        "schema": 1, "name": "web", "created_at": 1, "ports": {"https": 61000}, "generation": 3, "desired": "up"
    }));
    let good = good.unwrap();
    let len = good.len();
    let (cut, flipped, whole) = (good.clone(), good.clone(), good);
    prop_oneof![
        Just(whole),
        (0..len).prop_map(move |end| cut[..end].to_vec()),
        (0..len, any::<u8>()).prop_map(move |(at, byte)| {
            let mut bytes = flipped.clone();
            bytes[at] = byte;
            bytes
        }),
        vec(any::<u8>(), 0..100),
        any::<(u64, i64)>()
            .prop_map(|(schema, n)| json!({"schema": schema, "name": "web", "generation": n}).to_string().into_bytes()),
        "[a-z0-9-]{0,5}".prop_map(|name| {
            let value =
                json!({"schema": 1, "name": name, "created_at": 1, "ports": {}, "generation": 3, "desired": "up"});
            value.to_string().into_bytes()
        }),
    ]
}

#[test]
fn any_bytes_in_place_of_a_record_are_read_or_kept_aside_as_they_were() {
    let home = Home::new();
    let state = home.open();
    let web = group("web");
    let folder = state.ensure_group(&web).unwrap();
    let path = state.layout().record(&web);
    holds(damaged(), |bytes| {
        fs::write(&path, &bytes).unwrap();
        match GroupRecord::load(state.layout(), &web).unwrap() {
            Loaded::Found(record) => {
                prop_assert_eq!(&record.name, &web, "it would be written into another group's folder");
                prop_assert_eq!(fs::read(&path).unwrap(), bytes);
            }
            Loaded::Absent => prop_assert!(false, "it is there"),
            Loaded::SetAside(aside) => {
                prop_assert!(!path.exists());
                prop_assert_eq!(fs::read(&aside.moved_to).unwrap(), bytes);
                prop_assert!(!aside.why.is_empty());
                fs::remove_file(&aside.moved_to).unwrap();
            }
        }
        prop_assert!(names(&folder).iter().all(|name| !name.contains("corrupt")), "nothing else is made");
        Ok(())
    });
}

/// What a component, which may write there, puts into the folder of its group's receipts.
#[derive(Debug, Clone)]
enum Planted {
    File(Vec<u8>),
    Folder,
    Link,
    Fifo,
}

fn planted() -> impl Strategy<Value = (String, Planted)> {
    let number = prop_oneof![3 => (0u64..30).prop_map(|n| n.to_string()), 1 => any::<u64>().prop_map(|n| n.to_string()), 1 => Just(u64::MAX.to_string())];
    let name = prop_oneof![
        4 => (0u64..4, number).prop_map(|(generation, n)| format!("{generation}-{n}.json")),
        1 => "[a-z0-9.-]{1,8}".prop_filter("names of the folder itself", |name| name != "." && name != ".."),
    ];
    let kind = prop_oneof![
        4 => damaged().prop_map(Planted::File),
        1 => Just(Planted::Folder),
        1 => Just(Planted::Link),
        1 => Just(Planted::Fifo),
    ];
    (name, kind)
}

fn plant(path: &Path, what: &Planted) {
    // The second of one name finds the first in its place, which is as good.
    let _taken = match what {
        Planted::File(bytes) => fs::write(path, bytes).map_err(drop),
        Planted::Folder => fs::create_dir(path).map_err(drop),
        Planted::Link => std::os::unix::fs::symlink("/dev/zero", path).map_err(drop),
        Planted::Fifo => nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).map_err(drop),
    };
}

#[test]
fn the_last_receipt_is_the_last_whatever_lies_beside_it() {
    holds((vec(planted(), 0..30), 1u64..4), |(beside, generation)| {
        let folder = TempDir::new().unwrap();
        for (name, what) in &beside {
            // A write into a planted FIFO would wait for its reader.
            if folder.path().join(name).symlink_metadata().is_err() {
                plant(&folder.path().join(name), what);
            }
        }
        let receipts = Receipts::new(folder.path());
        for began in 0..3 {
            let receipt = Receipt { began: Time(began), ..receipt(generation) };
            receipts.save(&receipt).map_err(|e| TestCaseError::fail(format!("{e:?}")))?;
            prop_assert_eq!(receipts.latest().unwrap(), Some(receipt));
        }
        prop_assert!(receipts.list().unwrap().len() <= receipts::KEEP);
        Ok(())
    });
}

/// What happens to leases, and to the files that hold them.
#[derive(Debug, Clone)]
enum Step {
    Want(usize, Vec<PortRole>),
    GiveBack(usize),
    Reopen,
    Damage(Vec<u8>),
    Lose,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let role = prop_oneof![
        prop::sample::select(vec!["a", "b", "c"]).prop_map(|name| PortRole::Single(name.into())),
        Just(PortRole::Pair("low".into(), "high".into())),
    ];
    let step = prop_oneof![
        6 => (0usize..3, vec(role, 0..4)).prop_map(|(who, roles)| Step::Want(who, roles)),
        1 => (0usize..3).prop_map(Step::GiveBack),
        2 => Just(Step::Reopen),
        1 => vec(any::<u8>(), 0..30).prop_map(Step::Damage),
        1 => Just(Step::Lose),
    ];
    vec(step, 1..12)
}

fn ten_ports() -> LeaseOptions {
    LeaseOptions { ranges: vec![61000..=61009], ephemeral: PortSet::default(), is_bound: Box::new(|_| false) }
}

#[test]
fn no_port_moves_and_none_has_two_holders_whatever_becomes_of_the_index() {
    // Each case writes and flushes some dozen files.
    holds_in(4, steps(), |steps| {
        let home = Home::new();
        let state = home.open();
        let groups = ["x", "y", "z"].map(group);
        let mut records: Vec<GroupRecord> = groups.iter().map(|name| GroupRecord::new(name.clone())).collect();
        groups.iter().for_each(|name| drop(state.ensure_group(name).unwrap()));
        let (mut leases, _) = Leases::open(state.layout(), ten_ports()).unwrap();
        let mut held: BTreeMap<usize, BTreeMap<String, u16>> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Want(who, roles) => {
                    // An exhausted range refuses, and then nothing has changed.
                    let now = leases.ensure(&mut records[who], &roles).unwrap_or_else(|_| records[who].ports.clone());
                    let before = held.insert(who, now.clone()).unwrap_or_default();
                    prop_assert!(before.iter().all(|(role, port)| now.get(role) == Some(port)), "{before:?} {now:?}");
                }
                Step::GiveBack(who) => {
                    leases.release(&groups[who]);
                    leases.flush_now().unwrap();
                    // As a delete does: the record goes with the group.
                    let _absent = fs::remove_file(state.layout().record(&groups[who]));
                    records[who] = GroupRecord::new(groups[who].clone());
                    held.remove(&who);
                }
                Step::Reopen => leases = Leases::open(state.layout(), ten_ports()).unwrap().0,
                Step::Damage(bytes) => {
                    fs::write(state.layout().leases(), bytes).unwrap();
                    leases = Leases::open(state.layout(), ten_ports()).unwrap().0;
                }
                Step::Lose => {
                    let _absent = fs::remove_file(state.layout().leases());
                    leases = Leases::open(state.layout(), ten_ports()).unwrap().0;
                }
            }
            for (who, ports) in &held {
                prop_assert_eq!(&leases.of(&groups[*who]), ports);
            }
            let all: Vec<u16> = held.values().flat_map(|ports| ports.values().copied()).collect();
            prop_assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "two holders of one port");
        }
        Ok(())
    });
}
