//! The pinned versions of components/upstream/pins.toml.

use crate::repo::Repo;
use anyhow::{Context, Result};

/// One version per upstream, without a leading `v`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pins {
    /// Kubernetes, such as 1.36.3.
    pub kubernetes: String,
    /// kine.
    pub kine: String,
    /// OpenBao.
    pub openbao: String,
    /// Build tags of the Go build, separated by commas.
    pub go_tags: String,
}

impl Pins {
    /// Reads the file.
    pub fn read(repo: &Repo) -> Result<Pins> {
        let path = repo.upstream().join("pins.toml");
        let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        Pins::parse(&text).with_context(|| format!("in {}", path.display()))
    }

    fn parse(text: &str) -> Result<Pins> {
        let table: toml::Table = text.parse().context("not TOML")?;
        let pin = |key: &str| -> Result<String> {
            let value = table.get(key).and_then(toml::Value::as_str);
            let value = value.with_context(|| format!("no pin {key} = \"X.Y.Z\""))?;
            Ok(value.trim_start_matches('v').to_string())
        };
        Ok(Pins {
            kubernetes: pin("kubernetes")?,
            kine: pin("kine")?,
            openbao: pin("openbao")?,
            go_tags: table.get("go-tags").and_then(toml::Value::as_str).unwrap_or_default().to_string(),
        })
    }

    /// Kubernetes' major and minor number, as text.
    pub fn kubernetes_parts(&self) -> Result<(&str, &str)> {
        let mut parts = self.kubernetes.split('.');
        match (parts.next(), parts.next()) {
            (Some(major), Some(minor)) => Ok((major, minor)),
            _ => anyhow::bail!("the pin kubernetes = {:?} is not X.Y.Z", self.kubernetes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_are_read_with_or_without_a_v_and_a_missing_one_is_named() {
        let pins = Pins::parse("kubernetes = \"v1.36.3\"\nkine = \"0.17.5\"\nopenbao = \"2.7.2\"").unwrap();
        assert_eq!((pins.kubernetes.as_str(), pins.kine.as_str()), ("1.36.3", "0.17.5"));
        assert_eq!(pins.kubernetes_parts().unwrap(), ("1", "36"));
        let error = Pins::parse("kubernetes = \"1.36.3\"\nkine = \"0.17.5\"").unwrap_err().to_string();
        assert!(error.contains("openbao"), "{error}");
    }
}
