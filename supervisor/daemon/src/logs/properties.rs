//! For any bytes that a component writes: no line is lost or invented, however its bytes arrive, and none can pose as
//! another one in the journal.
#![allow(clippy::unwrap_used)]

use super::journal::Journal;
use super::line::{MAX_LINE, Raw, Splitter, interpret};
use super::{LogLine, Priority, Source};
use crate::state::testing::group;
use socialweb_core::{Birth, ComponentName};
use socialweb_property::holds;
use socialweb_property::proptest::collection::vec;
use socialweb_property::proptest::prelude::*;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::time::SystemTime;

/// Output in runs of one byte: short ones of any, and some about as long as the longest line.
fn output() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![3 => any::<u8>(), 2 => Just(b'\n'), 1 => Just(b'\r'), 1 => Just(0)];
    let length = prop_oneof![12 => 1usize..4, 1 => MAX_LINE - 4..MAX_LINE + 4];
    vec((byte, length), 0..40).prop_map(|runs| runs.into_iter().flat_map(|(byte, n)| vec![byte; n]).collect())
}

/// Bytes, continues and continued of each raw line, when the output arrives in pieces of these sizes.
fn lines(output: &[u8], sizes: &[usize]) -> Vec<(Vec<u8>, bool, bool)> {
    let mut splitter = Splitter::default();
    let mut given = Vec::new();
    let mut take = |raw: Raw<'_>| given.push((raw.bytes.to_vec(), raw.continues, raw.continued));
    let mut rest = output;
    let mut sizes = sizes.iter().cycle();
    while !rest.is_empty() {
        let size = sizes.next().map_or(rest.len(), |n| (*n).min(rest.len()));
        splitter.feed(&rest[..size], &mut take);
        rest = &rest[size..];
    }
    splitter.finish(&mut take);
    given
}

#[test]
fn lines_are_the_same_however_their_bytes_arrive_and_none_is_lost() {
    holds((output(), vec(1usize..5000, 1..5)), |(output, sizes)| {
        let whole = lines(&output, &[]);
        prop_assert!(whole == lines(&output, &sizes), "the pieces of {sizes:?} bytes changed the lines");
        prop_assert!(whole.iter().all(|(bytes, ..)| bytes.len() <= MAX_LINE));
        let joined: Vec<u8> = whole
            .iter()
            .flat_map(|(bytes, continues, _)| bytes.iter().copied().chain((!continues).then_some(b'\n')))
            .collect();
        let text = |bytes: &[u8]| bytes.iter().copied().filter(|b| *b != b'\r').collect::<Vec<u8>>();
        let mut expected = text(&output);
        if !output.is_empty() && output.last() != Some(&b'\n') {
            expected.push(b'\n');
        }
        prop_assert!(text(&joined) == expected, "bytes were lost or invented");
        Ok(())
    });
}

fn head() -> impl Strategy<Value = Vec<u8>> {
    let prefix = prop_oneof![
        Just(""),
        Just("<3>"),
        Just("<9>"),
        Just("<"),
        Just("I1130 "),
        Just("E11"),
        Just("{\"level\":"),
        Just("level="),
        Just("a [WARN] "),
        Just("{\"@level\": \""),
        Just("[")
    ];
    (prefix, vec(any::<u8>(), 0..40)).prop_map(|(prefix, rest)| [prefix.as_bytes(), &rest].concat())
}

#[test]
fn any_line_has_a_priority_and_a_text_that_is_what_was_written() {
    holds(head(), |bytes| {
        let raw = |continued| Raw { bytes: &bytes, continues: false, continued };
        let (priority, text) = interpret(&raw(false), Priority::INFO);
        prop_assert!(priority.number() <= 7);
        prop_assert!(!text.contains('\0'));
        let plain = String::from_utf8_lossy(&bytes).replace('\0', "\u{fffd}");
        prop_assert!(plain == text || plain.get(3..) == Some(&text), "{plain:?} became {text:?}");
        let (priority, text) = interpret(&raw(true), Priority::new(2));
        prop_assert_eq!((priority.number(), text), (2, plain), "a piece of a line has no level of its own");
        Ok(())
    });
}

#[test]
fn what_a_component_writes_is_one_field_of_one_message_in_the_journal() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("journal.sock");
    let listener = UnixDatagram::bind(&path).unwrap();
    let journal = Journal::new(&path).unwrap();
    let source = Arc::new(Source { group: group("demo"), component: ComponentName::new("web").unwrap() });
    let fields = prop::sample::select(vec![
        "",
        "\nPRIORITY=0",
        "\nSOCIALWEB_CLUSTER=other\n",
        "MESSAGE=\n\x05\0\0\0\0\0\0\0",
        "_UID=0\n",
    ]);
    holds((fields, head(), any::<u64>()), |(fields, bytes, birth)| {
        for (bytes, ..) in lines(&[fields.as_bytes(), &bytes].concat(), &[]) {
            let raw = Raw { bytes: &bytes, continues: false, continued: false };
            let (priority, text) = interpret(&raw, Priority::INFO);
            let (source, at) = (Arc::clone(&source), SystemTime::UNIX_EPOCH);
            let line = LogLine { source, birth: Birth(birth), at, priority, continues: false, text };
            journal.send(&line).unwrap();
            let mut datagram = vec![0; 2 * MAX_LINE];
            let n = listener.recv(&mut datagram).unwrap();
            let got = String::from_utf8(datagram[..n].to_vec()).unwrap();
            let (head, message) = got.split_once("MESSAGE=").unwrap();
            prop_assert_eq!(message, format!("{}\n", line.text));
            let expected = format!(
                "PRIORITY={}\nSYSLOG_IDENTIFIER=demo/web\nSOCIALWEB_CLUSTER=demo\nSOCIALWEB_COMPONENT=web\nSOCIALWEB_BIRTH={birth}\n",
                priority.number()
            );
            prop_assert_eq!(head, expected);
            prop_assert_eq!(got.lines().count(), 6, "a field was smuggled in");
        }
        Ok(())
    });
}
