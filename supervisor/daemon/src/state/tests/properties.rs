//! For any bytes under a record's name: nothing panics and nothing is lost.

use super::*;
use socialweb_property::holds;
use socialweb_property::proptest::collection::vec;
use socialweb_property::proptest::prelude::*;
use socialweb_property::proptest::test_runner::TestCaseError;

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
