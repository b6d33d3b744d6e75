//! Single-dash long flags: `-config FILE` means `--config FILE`, everywhere.

use std::collections::BTreeSet;
use std::ffi::OsString;

/// Gives the known long flags of `command`, and of all below it, a second dash. Short flags, also bundled (`-fn`) or with
/// their value (`-ojson`), stay as they are, and so does everything after `--`.
pub fn normalise(argv: impl IntoIterator<Item = OsString>, command: &mut clap::Command) -> Vec<OsString> {
    // Adds what clap adds by itself: --help and --version.
    command.build();
    let mut known = BTreeSet::new();
    collect(command, &mut known);
    let mut verbatim = false;
    let double = |(i, arg): (usize, OsString)| {
        verbatim |= arg == "--";
        match arg.to_str() {
            Some(text) if i > 0 && !verbatim && is_known(text, &known) => format!("-{text}").into(),
            _ => arg,
        }
    };
    argv.into_iter().enumerate().map(double).collect()
}

fn collect(command: &clap::Command, known: &mut BTreeSet<String>) {
    let arguments = command.get_arguments();
    known.extend(arguments.flat_map(|a| a.get_long_and_visible_aliases().unwrap_or_default()).map(str::to_string));
    for below in command.get_subcommands() {
        collect(below, known);
    }
}

fn is_known(arg: &str, known: &BTreeSet<String>) -> bool {
    let Some(name) = arg.strip_prefix('-') else { return false };
    let name = name.split('=').next().unwrap_or_default();
    name.len() > 1 && known.contains(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use clap::CommandFactory;

    fn check(line: &str, want: &str) {
        let argv = line.split(' ').map(OsString::from);
        let seen: Vec<String> =
            normalise(argv, &mut Cli::command()).into_iter().map(|a| a.into_string().unwrap()).collect();
        assert_eq!(seen.join(" "), want);
    }

    #[test]
    fn a_known_long_flag_gets_its_second_dash() {
        check("sc run -config a.toml -state-dir /s", "sc run --config a.toml --state-dir /s");
        check("sc run -config=a.toml -allow-tmpfs", "sc run --config=a.toml --allow-tmpfs");
        check("sc ctl -socket /a status -watch", "sc ctl --socket /a status --watch");
        check("sc -help", "sc --help");
        check("sc -version", "sc --version");
        check("sc run --config a.toml", "sc run --config a.toml");
    }

    #[test]
    fn short_flags_stay_short() {
        check("sc ctl logs demo -f -n 5", "sc ctl logs demo -f -n 5");
        check("sc ctl logs demo -fn5 -ojson", "sc ctl logs demo -fn5 -ojson");
        check("sc ctl status -o json -w", "sc ctl status -o json -w");
        check("sc ctl status -nonsense", "sc ctl status -nonsense");
    }

    #[test]
    fn what_follows_two_dashes_belongs_to_somebody_else() {
        let line = "sc internal kine-exec -dsn-file f -- kine -config x";
        check(line, "sc internal kine-exec --dsn-file f -- kine -config x");
    }

    #[test]
    fn the_programs_own_name_and_other_bytes_are_left_alone() {
        use std::os::unix::ffi::OsStringExt;
        let odd = OsString::from_vec(vec![b'-', 0xff]);
        let argv = vec![OsString::from("-config"), odd.clone()];
        assert_eq!(normalise(argv.clone(), &mut Cli::command()), argv);
    }
}
