//! Where the admin socket is: one rule for who binds it and who looks for it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// File name of the admin socket in the runtime folder.
pub const SOCKET_NAME: &str = "admin.sock";

/// Environment variable that names the admin socket for clients.
pub const SOCKET_ENV: &str = "SOCIALWEB_ADMIN_SOCKET";

/// Our folder's name below `$XDG_RUNTIME_DIR` and below the user's state folder.
pub const FOLDER: &str = "socialweb-computer";

/// The state folder when neither config nor command line names one: `$XDG_STATE_HOME/socialweb-computer`, or
/// `$HOME/.local/state/socialweb-computer`; none when both variables are unset.
pub fn default_state_dir(env: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let base = absolute(env, "XDG_STATE_HOME").or_else(|| Some(absolute(env, "HOME")?.join(".local/state")));
    base.map(|base| base.join(FOLDER))
}

/// Where a client looks for the socket, best first. One that was named, on the command line or in [`SOCKET_ENV`], is the
/// only candidate: falling through to another daemon would be a surprise.
pub fn socket_candidates(
    named: Option<&Path>,
    state_dir: Option<&Path>,
    env: &dyn Fn(&str) -> Option<OsString>,
) -> Vec<PathBuf> {
    if let Some(path) = named {
        return vec![path.to_path_buf()];
    }
    if let Some(path) = env(SOCKET_ENV).filter(|v| !v.is_empty()) {
        return vec![PathBuf::from(path)];
    }
    let mut found = Vec::new();
    found.extend(absolute(env, "XDG_RUNTIME_DIR").map(|dir| dir.join(FOLDER).join(SOCKET_NAME)));
    let state = state_dir.map(Path::to_path_buf).or_else(|| default_state_dir(env));
    found.extend(state.map(|dir| dir.join("run").join(SOCKET_NAME)));
    found
}

/// The variable as a path. A relative one is ignored, as the XDG specification asks.
fn absolute(env: &dyn Fn(&str) -> Option<OsString>, name: &str) -> Option<PathBuf> {
    env(name).map(PathBuf::from).filter(|path| path.is_absolute())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(pairs: &'static [(&'static str, &'static str)]) -> impl Fn(&str) -> Option<OsString> {
        move |name| pairs.iter().find(|(n, _)| *n == name).map(|(_, v)| OsString::from(v))
    }

    fn check(named: Option<&str>, state: Option<&str>, vars: &'static [(&'static str, &'static str)], want: &[&str]) {
        let found = socket_candidates(named.map(Path::new), state.map(Path::new), &env(vars));
        assert_eq!(found, want.iter().map(PathBuf::from).collect::<Vec<_>>());
    }

    #[test]
    fn a_named_socket_is_the_only_candidate() {
        check(Some("/a"), None, &[(SOCKET_ENV, "/b"), ("XDG_RUNTIME_DIR", "/r")], &["/a"]);
        check(None, Some("/s"), &[(SOCKET_ENV, "/b"), ("XDG_RUNTIME_DIR", "/r")], &["/b"]);
    }

    #[test]
    fn otherwise_the_runtime_folder_comes_before_the_state_folder() {
        check(
            None,
            None,
            &[("XDG_RUNTIME_DIR", "/r"), ("HOME", "/h")],
            &["/r/socialweb-computer/admin.sock", "/h/.local/state/socialweb-computer/run/admin.sock"],
        );
        check(None, Some("/s"), &[("HOME", "/h")], &["/s/run/admin.sock"]);
        check(None, None, &[(SOCKET_ENV, ""), ("XDG_STATE_HOME", "/x")], &["/x/socialweb-computer/run/admin.sock"]);
        check(None, None, &[], &[]);
        check(None, None, &[("XDG_RUNTIME_DIR", "r"), ("XDG_STATE_HOME", ""), ("HOME", "h")], &[]);
    }
}
