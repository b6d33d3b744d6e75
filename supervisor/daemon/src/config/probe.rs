//! The probes of a `[[component]]`: which keys belong to which kind, and what they come to.

use super::cluster_file::{ComponentKind, ProbeFile, ProbeKind};
use super::component::Builder;
use super::daemon::check_socket;
use super::source::Step;
use socialweb_core::spec::{Liveness, Readiness, TlsFiles};
use socialweb_core::{Launch, Probe};
use std::time::Duration;

impl<'a> Builder<'a> {
    pub(super) fn readiness_probe(&mut self, file: &'a ProbeFile, launch: &Launch) -> Probe {
        let kind = file.kind.unwrap_or(ProbeKind::Running);
        if self.file.kind == ComponentKind::OneShot && kind != ProbeKind::Running {
            self.fault(&at("readiness", "kind"), "a one-shot is ready when it ended with status 0; remove \"kind\"");
        }
        if file.failures.is_some() {
            self.fault(
                &at("readiness", "failures"),
                "\"failures\" belongs to liveness; use \"deadline\" and \"cap\" here",
            );
        }
        self.probe("readiness", file, kind, launch)
    }

    pub(super) fn liveness(&mut self, launch: &Launch, readiness: &Readiness) -> Option<Liveness> {
        let file = self.file.liveness.as_ref()?;
        for key in [("deadline", file.deadline), ("cap", file.cap)] {
            if key.1.is_some() {
                self.fault(&at("liveness", key.0), format!("{:?} belongs to readiness; use \"failures\" here", key.0));
            }
        }
        if file.failures == Some(0) {
            self.fault(&at("liveness", "failures"), "\"liveness.failures\" must be at least 1");
        }
        let probe = match file.kind {
            Some(kind) => self.probe("liveness", file, kind, launch),
            None => readiness.probe.clone(),
        };
        // What holds once and for all says nothing about a process that hangs later.
        if matches!(probe, Probe::Running | Probe::NotificationFd { .. } | Probe::LogLine { .. }) {
            self.fault(
                &at("liveness", "kind"),
                "liveness needs a probe that can be asked again: notify, http, tcp, unix or exec",
            );
        }
        Some(Liveness {
            probe,
            interval: self.duration(&at("liveness", "interval"), file.interval, Duration::from_secs(10)),
            timeout: self.duration(&at("liveness", "timeout"), file.timeout, Duration::from_secs(5)),
            failures: file.failures.unwrap_or(3),
        })
    }

    fn probe(&mut self, table: &'static str, file: &'a ProbeFile, kind: ProbeKind, launch: &Launch) -> Probe {
        self.check_keys(table, file, kind);
        match kind {
            ProbeKind::Running => Probe::Running,
            ProbeKind::Notify => Probe::Notify,
            ProbeKind::NotificationFd => self.notification_fd(table, file),
            ProbeKind::Http => self.http(table, file),
            ProbeKind::Tcp => self.tcp(table, file),
            ProbeKind::Unix => self.unix(table, file),
            ProbeKind::LogLine => {
                let contains = self.required(table, "contains", kind, file.contains.as_deref());
                Probe::LogLine { contains }
            }
            ProbeKind::Exec => {
                let argv =
                    self.argv(&at(table, "argv"), file.argv.as_deref().unwrap_or_default(), self.file.pre.is_empty());
                Probe::Exec { launch: Box::new(Launch { argv, ..launch.clone() }) }
            }
        }
    }

    fn check_keys(&mut self, table: &'static str, file: &ProbeFile, kind: ProbeKind) {
        let set = [
            ("url", file.url.is_some()),
            ("expect", file.expect.is_some()),
            ("ca", file.ca.is_some()),
            ("cert", file.cert.is_some()),
            ("key", file.key.is_some()),
            ("address", file.address.is_some()),
            ("path", file.path.is_some()),
            ("fd", file.fd.is_some()),
            ("argv", file.argv.is_some()),
            ("contains", file.contains.is_some()),
        ];
        let own: &[&str] = match kind {
            ProbeKind::Running | ProbeKind::Notify => &[],
            ProbeKind::NotificationFd => &["fd"],
            ProbeKind::Http => &["url", "expect", "ca", "cert", "key"],
            ProbeKind::Tcp => &["address"],
            ProbeKind::Unix => &["path"],
            ProbeKind::Exec => &["argv"],
            ProbeKind::LogLine => &["contains"],
        };
        for (key, _) in set.iter().filter(|(key, set)| *set && !own.contains(key)) {
            let message = format!("\"{table}.{key}\" has no effect with kind \"{}\"; remove it", kind.as_str());
            self.fault(&at(table, key), message);
        }
    }

    fn required(&mut self, table: &'static str, key: &'static str, kind: ProbeKind, text: Option<&str>) -> String {
        match text {
            Some(text) if !text.is_empty() => self.fill(&at(table, key), text),
            _ => {
                self.fault(&at(table, key), format!("{table} of kind \"{}\" needs \"{key}\"; add it", kind.as_str()));
                String::new()
            }
        }
    }

    fn notification_fd(&mut self, table: &'static str, file: &ProbeFile) -> Probe {
        let fd = file.fd.unwrap_or(3);
        // 0 to 2 are the standard streams; far above, dup2 runs into the limit of open files.
        if !(3..=255).contains(&fd) {
            self.fault(&at(table, "fd"), format!("\"{table}.fd\" must be between 3 and 255"));
        }
        Probe::NotificationFd { fd }
    }

    fn http(&mut self, table: &'static str, file: &ProbeFile) -> Probe {
        let before = self.faults.len();
        let url = self.required(table, "url", ProbeKind::Http, file.url.as_deref());
        let secure = url.starts_with("https://");
        let valid = url.parse::<http::Uri>().is_ok_and(|u| {
            u.host().is_some_and(|h| !h.is_empty()) && !u.authority().is_some_and(|a| a.as_str().contains('@'))
        });
        if self.faults.len() == before && !(valid && (secure || url.starts_with("http://"))) {
            self.fault(
                &at(table, "url"),
                format!("{url:?} is no URL; write http://HOST:PORT/PATH or https://HOST:PORT/PATH, without name and password"),
            );
        }
        let expect = file.expect.clone().unwrap_or_else(|| vec![200]);
        if expect.is_empty() || expect.iter().any(|code| !(100..600).contains(code)) {
            self.fault(&at(table, "expect"), format!("\"{table}.expect\" must hold status codes between 100 and 599"));
        }
        Probe::Http { url, expect, tls: self.tls(table, file, secure) }
    }

    fn tls(&mut self, table: &'static str, file: &ProbeFile, secure: bool) -> Option<TlsFiles> {
        let keys = [("ca", &file.ca), ("cert", &file.cert), ("key", &file.key)];
        if !secure {
            for (key, _) in keys.iter().filter(|(_, text)| file.url.is_some() && text.is_some()) {
                self.fault(&at(table, key), format!("\"{table}.{key}\" has no effect with an http:// URL; remove it"));
            }
            return None;
        }
        if file.ca.is_none() {
            let message =
                format!("an https:// URL needs \"{table}.ca\": the PEM file of the certificates to trust; add it");
            self.fault(&at(table, "url"), message);
        }
        if file.cert.is_some() != file.key.is_some() {
            self.fault(&at(table, "cert"), format!("\"{table}.cert\" and \"{table}.key\" go together; add the other"));
        }
        let [ca, cert, key] = keys.map(|(key, text)| text.as_deref().map(|text| self.path(&at(table, key), text)));
        Some(TlsFiles { ca: ca?, identity: cert.zip(key) })
    }

    fn tcp(&mut self, table: &'static str, file: &ProbeFile) -> Probe {
        let before = self.faults.len();
        let address = self.required(table, "address", ProbeKind::Tcp, file.address.as_deref());
        let port =
            address.rsplit_once(':').filter(|(host, _)| !host.is_empty()).and_then(|(_, p)| p.parse::<u16>().ok());
        if self.faults.len() == before && port.is_none_or(|p| p == 0) {
            self.fault(
                &at(table, "address"),
                format!("{address:?} is no address; write HOST:PORT, such as 127.0.0.1:{{port.web}}"),
            );
        }
        Probe::Tcp { address }
    }

    fn unix(&mut self, table: &'static str, file: &ProbeFile) -> Probe {
        let Some(text) = file.path.as_deref() else {
            self.required(table, "path", ProbeKind::Unix, None);
            return Probe::Running;
        };
        let path = self.path(&at(table, "path"), text);
        if let Err(message) = check_socket(&path) {
            self.fault(&at(table, "path"), message);
        }
        Probe::Unix { path }
    }
}

fn at<'a>(table: &'a str, key: &'a str) -> [Step<'a>; 2] {
    [Step::Key(table), Step::Key(key)]
}
