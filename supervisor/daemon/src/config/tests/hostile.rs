//! Files that nobody would write on purpose: each is an error with a place, or loads; none panics or hangs.

use super::*;

#[test]
fn no_text_makes_the_parser_panic() {
    let deep_array = format!("a = {}", "[".repeat(200_000));
    let deep_table = "a.".repeat(200_000) + "b = 1";
    let many = "[[component]]\n".repeat(20_000);
    let wide: String = (0..20_000).map(|i| format!("k{i} = 1\n")).collect();
    let wrong =
        ["component = 3", "component = [3]", "component = {}", "timeouts = []", "account = 1979-05-27T07:32:00Z"];
    let fixed = [
        &deep_array,
        &deep_table,
        &many,
        &wide,
        "\u{0}",
        "\u{feff}",
        "=",
        "[",
        "[[",
        "\"",
        "'''",
        "a = \"\\",
        "\r",
        "#\u{7}",
    ];
    for text in fixed.into_iter().chain(wrong) {
        let error = cluster(text).unwrap_err();
        assert!(!error.findings.is_empty() && error.findings.len() <= 25, "{:?}", &text[..text.len().min(40)]);
        assert!(error.findings.iter().all(|f| f.position.is_some()));
    }
}

/// Every prefix and every one-byte change of a full file, with a small generator instead of a random one.
#[test]
fn cut_and_damaged_files_are_refused_or_read() {
    let good = include_str!("../../../../../config/examples/web.toml");
    for end in (0..good.len()).filter(|i| good.is_char_boundary(*i)) {
        let _ = cluster(&good[..end]);
    }
    let mut seed: u32 = 7;
    for _ in 0..2000 {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let mut bytes = good.as_bytes().to_vec();
        let at = seed as usize % bytes.len();
        bytes[at] = b"\"[]{}=.#\n\0,'"[(seed >> 16) as usize % 12];
        let _ = cluster(&String::from_utf8_lossy(&bytes));
    }
}

#[test]
fn a_byte_order_mark_and_windows_lines_change_nothing() {
    let plain = cluster("account = \"demo\"\ntls_san = [\"a.example\"]\n").unwrap();
    let windows = cluster("\u{feff}account = \"demo\"\r\ntls_san = [\"a.example\"]\r\n").unwrap();
    assert_eq!(plain.file, windows.file);
    let error = cluster("\u{feff}acount = \"demo\"\r\n\r\nkin = 1\r\naccount = \"x\"").unwrap_err();
    assert!(error.findings[0].to_string().starts_with("web.toml:1:1: "), "{error}");
    assert!(error.findings[1].to_string().starts_with("web.toml:3:1: "), "{error}");
}

#[test]
fn columns_count_characters_and_not_bytes() {
    let error = cluster("account = \"\u{e4}\u{f6}\"\nkine = { \"\u{e4}\" = 1, dsn_file = 3 }").unwrap_err();
    let places: Vec<_> = error.findings.iter().filter_map(|f| f.position).map(|p| (p.line, p.column)).collect();
    assert_eq!(places, [(2, 10), (2, 30)], "{error}");
}

#[test]
fn what_is_no_readable_text_file_is_named_and_never_waited_for() {
    let site = Site::new("", &[("big.toml", &"#".repeat(2 * 1024 * 1024))]);
    let folder = site.path("clusters.d");
    fs::write(folder.join("garbage.toml"), b"account = \"x\"\n\xff\xfe\x00").unwrap();
    fs::create_dir(folder.join("folder.toml")).unwrap();
    nix::unistd::mkfifo(&folder.join("pipe.toml"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    std::os::unix::fs::symlink("nowhere", folder.join("dangling.toml")).unwrap();
    fs::write(folder.join("Bad_Name.toml"), "").unwrap();
    fs::write(folder.join("good.toml"), "account = \"x\"").unwrap();
    fs::write(folder.join("notes.txt"), "not a cluster").unwrap();
    fs::write(folder.join(".good.toml.swp"), "x").unwrap();
    fs::write(folder.join(".hidden.toml"), "x").unwrap();
    let declared = site.load(&[]).unwrap().declared;
    let lines: Vec<String> = declared
        .clusters
        .iter()
        .map(|entry| match entry {
            Ok(cluster) => format!("{} is good", cluster.name),
            Err(error) => error.to_string().replace(&format!("{}/", folder.display()), ""),
        })
        .collect();
    let expect = [
        "Bad_Name.toml: a cluster file is named after its group, and the name \"Bad_Name\" is not a DNS label",
        "big.toml: is larger than 1048576 bytes",
        "dangling.toml: cannot be opened: No such file or directory",
        "folder.toml: is not a regular file",
        "garbage.toml:2:1: is not UTF-8 text from here on",
        "good is good",
        "pipe.toml: is not a regular file",
    ];
    assert_eq!(lines.len(), expect.len(), "{lines:#?}");
    for (line, want) in lines.iter().zip(expect) {
        assert!(line.starts_with(want), "{line}");
    }
}
