#![allow(clippy::unwrap_used)]
use super::*;
use std::fs;
use std::os::unix::fs::PermissionsExt;

fn group() -> (tempfile::TempDir, Layout) {
    let tmp = tempfile::tempdir().unwrap();
    let layout = Layout::new(tmp.path().join("demo"));
    (tmp, layout)
}

fn run(layout: &Layout) -> Result<Report, EnsureError> {
    ensure(layout.group_dir())
}

/// Every file below `dir` with its content.
fn tree(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(tree(&path));
        } else {
            files.insert(path.clone(), fs::read(&path).unwrap());
        }
    }
    files
}

#[test]
fn the_second_run_changes_nothing() {
    let (_tmp, layout) = group();
    let first = run(&layout).unwrap();
    assert_eq!(first.created.len(), 13, "{first:?}");
    let before = tree(layout.group_dir());
    let second = run(&layout).unwrap();
    assert_eq!((second.created.len(), second.renewed.len()), (0, 0));
    assert_eq!(second.ca_hashes, first.ca_hashes);
    assert_eq!(second.ca_hashes.len(), 5);
    assert_eq!(tree(layout.group_dir()), before);
}

#[test]
fn every_file_is_private_and_every_folder_too() {
    fn walk(dir: &Path) {
        assert_eq!(fs::metadata(dir).unwrap().permissions().mode() & 0o777, 0o700, "{}", dir.display());
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path);
            } else {
                assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600, "{}", path.display());
            }
        }
    }
    let (_tmp, layout) = group();
    run(&layout).unwrap();
    walk(layout.group_dir());
}

#[test]
fn a_run_killed_before_the_record_is_completed_by_the_next() {
    let (_tmp, layout) = group();
    run(&layout).unwrap();
    let kept = fs::read(layout.client_ca().cert).unwrap();
    // As after a kill between the second CA and the third: no record, nothing placed.
    for gone in [layout.request_header_ca(), layout.kine_ca(), layout.openbao_ca()] {
        fs::remove_dir_all(gone.cert.parent().unwrap()).unwrap();
    }
    for gone in [layout.record(), layout.service_key(), layout.server_token(), layout.agent_token(), layout.seal_key()]
    {
        fs::remove_file(gone).unwrap();
    }
    fs::remove_dir_all(layout.k3s()).unwrap();
    fs::create_dir_all(layout.pki().join(".kine-ca.new")).unwrap();
    let report = run(&layout).unwrap();
    assert!(report.created.contains(&"kine-ca".to_owned()) && !report.created.contains(&"client-ca".to_owned()));
    assert_eq!(fs::read(layout.client_ca().cert).unwrap(), kept);
    assert_eq!(fs::read(layout.k3s_tls().join("client-ca.crt")).unwrap(), kept);
    assert!(!layout.pki().join(".kine-ca.new").exists());
    run(&layout).unwrap();
}

/// k3s-io/k3s#12388: a CA that is missing or other than at the first start must stop the start, not be made anew.
#[test]
fn a_ca_that_is_gone_or_changed_is_an_error_and_never_replaced() {
    let (_tmp, layout) = group();
    run(&layout).unwrap();
    let ca = layout.client_ca();
    let (cert, key) = (fs::read(&ca.cert).unwrap(), fs::read(&ca.key).unwrap());

    fs::remove_file(&ca.key).unwrap();
    assert!(matches!(run(&layout), Err(EnsureError::Ca(CaError::HalfPair { .. }))));
    assert_eq!(fs::read(&ca.cert).unwrap(), cert);

    fs::write(&ca.key, "not a key").unwrap();
    assert!(matches!(run(&layout), Err(EnsureError::Ca(CaError::Unusable { .. }))));

    fs::write(&ca.key, fs::read(layout.server_ca().key).unwrap()).unwrap();
    assert!(matches!(run(&layout), Err(EnsureError::Ca(CaError::Unusable { .. }))));

    fs::write(&ca.cert, fs::read(layout.server_ca().cert).unwrap()).unwrap();
    assert!(matches!(run(&layout), Err(EnsureError::Changed { .. })));

    fs::remove_dir_all(ca.cert.parent().unwrap()).unwrap();
    let gone = run(&layout);
    assert!(matches!(gone, Err(EnsureError::Gone { .. })), "{gone:?}");
    assert!(!ca.cert.exists());

    fs::create_dir(ca.cert.parent().unwrap()).unwrap();
    fs::write(&ca.cert, cert).unwrap();
    fs::write(&ca.key, key).unwrap();
    run(&layout).unwrap();
}

/// rancher/k3k#278: the datastore is encrypted with the token; another token locks the cluster out of its own data.
#[test]
fn a_token_or_seal_key_that_is_gone_or_changed_is_an_error() {
    for pick in [Layout::server_token, Layout::agent_token, Layout::seal_key, Layout::service_key] {
        let (_tmp, layout) = group();
        run(&layout).unwrap();
        let path = pick(&layout);
        fs::write(&path, "other").unwrap();
        assert!(matches!(run(&layout), Err(EnsureError::Changed { .. })), "{}", path.display());
        fs::remove_file(&path).unwrap();
        assert!(matches!(run(&layout), Err(EnsureError::Gone { .. })), "{}", path.display());
    }
}

#[test]
fn data_without_its_record_is_an_error() {
    let (_tmp, layout) = group();
    fs::create_dir_all(layout.kine()).unwrap();
    fs::write(layout.kine_database(), "").unwrap();
    assert!(matches!(run(&layout), Err(EnsureError::DataWithoutRecord { .. })));
    assert!(!layout.client_ca().cert.exists());
}

#[test]
fn a_record_that_cannot_be_read_is_kept() {
    let (_tmp, layout) = group();
    run(&layout).unwrap();
    for bad in ["{", r#"{"schema":9,"sha256":{}}"#] {
        fs::write(layout.record(), bad).unwrap();
        assert!(matches!(run(&layout), Err(EnsureError::Record { .. })));
        assert_eq!(fs::read_to_string(layout.record()).unwrap(), bad);
    }
}

#[test]
fn a_copy_of_k3s_that_differs_is_an_error_and_a_missing_one_is_put_back() {
    let (_tmp, layout) = group();
    run(&layout).unwrap();
    let placed = layout.k3s_tls().join("server-ca.crt");
    fs::remove_file(&placed).unwrap();
    run(&layout).unwrap();
    assert_eq!(fs::read(&placed).unwrap(), fs::read(layout.server_ca().cert).unwrap());
    fs::write(&placed, "k3s made its own").unwrap();
    assert!(matches!(run(&layout), Err(EnsureError::PlacedDiffers { .. })));
    assert_eq!(fs::read_to_string(&placed).unwrap(), "k3s made its own");
}

#[test]
fn leaves_are_renewed_past_two_thirds_of_their_life_or_when_they_do_not_match() {
    let (_tmp, layout) = group();
    run(&layout).unwrap();
    let now = OffsetDateTime::now_utc();
    let at = |days| ensure_at(&layout, now + time::Duration::days(days)).unwrap().renewed;
    assert_eq!(at(240), []);
    assert_eq!(at(246).len(), 4);
    assert_eq!(at(246), [], "the renewed ones are good");

    let (_tmp, layout) = group();
    run(&layout).unwrap();
    let renewed = || run(&layout).unwrap().renewed.into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    fs::copy(layout.kine_client().cert, layout.kine_server().cert).unwrap();
    fs::copy(layout.kine_client().key, layout.kine_server().key).unwrap();
    assert_eq!(renewed(), ["kine-server"], "another leaf of the same CA");
    fs::write(layout.probe().cert, "").unwrap();
    assert_eq!(renewed(), ["probe"], "no certificate");
    fs::remove_file(layout.openbao_server().key).unwrap();
    assert_eq!(renewed(), ["openbao-server"], "half of it");
    fs::copy(layout.kine_client().key, layout.probe().key).unwrap();
    assert_eq!(renewed(), ["probe"], "another key");
    let (_tmp2, stranger) = group();
    run(&stranger).unwrap();
    fs::copy(stranger.kine_server().cert, layout.kine_server().cert).unwrap();
    fs::copy(stranger.kine_server().key, layout.kine_server().key).unwrap();
    assert_eq!(renewed(), ["kine-server"], "another cluster's");
    assert_eq!(renewed(), [""; 0]);
}

/// A CA of the same name is still another CA.
#[test]
fn a_leaf_is_good_only_with_its_own_cas_signature() {
    let (_tmp, layout) = group();
    run(&layout).unwrap();
    let now = OffsetDateTime::now_utc();
    let ca = ca::load(&layout.kine_ca(), now).unwrap().unwrap();
    let leaf = leaf::all(&layout).remove(1);
    let (cert, key) = (fs::read_to_string(&leaf.pair.cert).unwrap(), fs::read(&leaf.pair.key).unwrap());
    assert_eq!(leaf::fault(cert.as_bytes(), &key, &ca, &leaf.request, now), None);
    let body: String = cert.lines().filter(|l| !l.starts_with('-')).collect();
    let mut forged = data_encoding::BASE64.decode(body.as_bytes()).unwrap();
    *forged.last_mut().unwrap() ^= 1;
    let forged = der::pem("CERTIFICATE", &forged);
    let fault = leaf::fault(forged.as_bytes(), &key, &ca, &leaf.request, now);
    assert_eq!(fault.as_deref(), Some("another CA signed it"));
}

#[test]
fn leaves_say_what_their_readers_look_for() {
    let (_tmp, layout) = group();
    run(&layout).unwrap();
    let names = |pair: Pair| {
        let pem = fs::read(pair.cert).unwrap();
        let (_, pem) = x509_parser::pem::parse_x509_pem(&pem).unwrap();
        let cert = pem.parse_x509().unwrap();
        let san = cert
            .subject_alternative_name()
            .unwrap()
            .map(|s| s.value.general_names.iter().map(leaf::plain_name).collect::<Vec<_>>().join(" "));
        (cert.subject().to_string(), san.unwrap_or_default())
    };
    assert_eq!(names(layout.kine_server()).1, "localhost kine.sock");
    assert_eq!(names(layout.probe()), ("CN=socialweb-probe".into(), String::new()));
    assert_eq!(names(layout.openbao_server()).1, "localhost 127.0.0.1");
}

#[test]
fn the_service_key_is_sec1_because_the_api_server_reads_nothing_else() {
    let (_tmp, layout) = group();
    run(&layout).unwrap();
    let text = fs::read_to_string(layout.service_key()).unwrap();
    let body: String = text.lines().filter(|l| !l.starts_with('-')).collect();
    let der = data_encoding::BASE64.decode(body.as_bytes()).unwrap();
    assert!(text.starts_with("-----BEGIN EC PRIVATE KEY-----\n"));
    assert_eq!((der.len(), &der[..7]), (121, &[0x30, 0x77, 2, 1, 1, 4, 0x20][..]));
    assert_eq!(der[56], 4, "an uncompressed point");
}
