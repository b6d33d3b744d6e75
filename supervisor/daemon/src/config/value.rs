//! The small values of config files: durations, sizes, cores, signals, port ranges and limits, each with its own text.

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};
use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeInclusive;
use std::time::Duration;

/// A duration as people write it: "30s", "2m", "1h 30m", "250ms".
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, JsonSchema)]
pub struct HumanDuration(#[schemars(with = "String")] pub Duration);

/// A year. Longer waits are slips of the pen, and sums of them would not fit into a Duration, nor a clock.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// A number of bytes: 1048576 or "1MiB".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size(pub u64);

/// Processor time in cores, held in thousandths: 2, 0.5 or "1.5".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cores(pub u32);

/// A signal by its name, with or without SIG.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema)]
pub struct SignalName(#[schemars(with = "String")] pub i32);

/// Ports from the first to the last: "61000-65535".
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema)]
pub struct PortRange(#[schemars(with = "String")] pub RangeInclusive<u16>);

/// A number of at least 1, or "off".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit(pub Option<u32>);

/// What a value looks like, and how its text or number is read.
trait Written: Sized {
    const EXPECTED: &'static str;
    fn text(text: &str) -> Result<Self, String>;
    fn number(_: u64) -> Option<Self> {
        None
    }
    fn decimal(_: f64) -> Option<Self> {
        None
    }
}

struct WrittenVisitor<T>(PhantomData<T>);

impl<T: Written> Visitor<'_> for WrittenVisitor<T> {
    type Value = T;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        T::text(text).map_err(E::custom)
    }
    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        let value = u64::try_from(number).ok().and_then(T::number);
        value.ok_or_else(|| E::invalid_value(serde::de::Unexpected::Signed(number), &self))
    }
    fn visit_f64<E: Error>(self, number: f64) -> Result<T, E> {
        T::decimal(number).ok_or_else(|| E::invalid_value(serde::de::Unexpected::Float(number), &self))
    }
}

macro_rules! deserialize_written {
    ($($name:ident)*) => {$(
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                d.deserialize_any(WrittenVisitor(PhantomData))
            }
        }
    )*};
}
deserialize_written!(HumanDuration Size Cores SignalName PortRange Limit);

impl Written for HumanDuration {
    const EXPECTED: &'static str = "a duration in quotes such as \"30s\" or \"2m\"";
    fn text(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?} is no duration; write {}", Self::EXPECTED);
        let duration = humantime::parse_duration(text).map_err(|_| bad())?;
        match duration <= LONGEST {
            true => Ok(HumanDuration(duration)),
            false => Err(format!("{text:?} is too long; write at most \"366d\"")),
        }
    }
}

impl Written for Size {
    const EXPECTED: &'static str = "a number of bytes, or a size in quotes such as \"10MiB\"";
    fn text(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?} is no size; write {}", Self::EXPECTED);
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let unit: u64 = match text[digits..].trim() {
            "" | "B" => 1,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            _ => return Err(bad()),
        };
        let number: u64 = text[..digits].parse().map_err(|_| bad())?;
        number.checked_mul(unit).map(Size).ok_or_else(bad)
    }
    fn number(number: u64) -> Option<Self> {
        Some(Size(number))
    }
}

impl Written for Cores {
    const EXPECTED: &'static str = "a number of cores such as 2 or 0.5";
    fn text(text: &str) -> Result<Self, String> {
        let number = text.trim().parse().ok().and_then(Self::decimal);
        number.ok_or_else(|| format!("{text:?} is no number of cores; write {}", Self::EXPECTED))
    }
    fn number(number: u64) -> Option<Self> {
        number.checked_mul(1000).and_then(|n| u32::try_from(n).ok()).map(Cores)
    }
    fn decimal(number: f64) -> Option<Self> {
        // More than a million cores are no bound of any host.
        (0.0..1e6).contains(&number).then(|| Cores((number * 1000.0).round() as u32))
    }
}

impl Written for SignalName {
    const EXPECTED: &'static str = "the name of a signal in quotes such as \"TERM\"";
    fn text(text: &str) -> Result<Self, String> {
        use nix::sys::signal::Signal;
        let name = if text.starts_with("SIG") { text.to_string() } else { format!("SIG{text}") };
        let signal: Signal = name.parse().map_err(|_| format!("{text:?} is no signal; write {}", Self::EXPECTED))?;
        match signal {
            Signal::SIGSTOP | Signal::SIGTSTP | Signal::SIGTTIN | Signal::SIGTTOU | Signal::SIGCONT => {
                Err(format!("{text:?} pauses or resumes and ends nothing; write TERM, INT, QUIT or KILL"))
            }
            other => Ok(SignalName(other as i32)),
        }
    }
}

impl Written for PortRange {
    const EXPECTED: &'static str = "a range of ports in quotes such as \"61000-65535\"";
    fn text(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?} is no range; write {}", Self::EXPECTED);
        let (first, last) = text.split_once('-').ok_or_else(bad)?;
        let port = |text: &str| text.trim().parse::<u16>().map_err(|_| bad());
        let (first, last) = (port(first)?, port(last)?);
        if first < 1024 || last < first {
            return Err(format!(
                "{text:?} is no usable range; begin at 1024 or above and end at or after the beginning"
            ));
        }
        Ok(PortRange(first..=last))
    }
}

impl Written for Limit {
    const EXPECTED: &'static str = "a whole number of at least 1, or \"off\"";
    fn text(text: &str) -> Result<Self, String> {
        if text == "off" { Ok(Limit(None)) } else { Err(format!("{text:?} is no limit; write {}", Self::EXPECTED)) }
    }
    fn number(number: u64) -> Option<Self> {
        u32::try_from(number).ok().filter(|n| *n > 0).map(|n| Limit(Some(n)))
    }
}

/// A JSON schema for values that are a number or a text.
macro_rules! number_or_text {
    ($name:ident) => {
        impl JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({
                    "description": <$name as Written>::EXPECTED,
                    "anyOf": [{ "type": "integer", "minimum": 0 }, { "type": "string" }]
                })
            }
        }
    };
}
number_or_text!(Size);
number_or_text!(Limit);

impl JsonSchema for Cores {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Cores".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": <Cores as Written>::EXPECTED,
            "anyOf": [{ "type": "number", "minimum": 0 }, { "type": "string" }]
        })
    }
}
