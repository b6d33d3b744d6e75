//! Real sockets and ports. In a binary of its own that starts no process: a child between its making and its exec still holds
//! copies of our descriptors, and a socket would seem alive for that moment.
#![allow(clippy::unwrap_used, reason = "in tests a panic is the report")]

#[path = "../common/mod.rs"]
mod common;
mod port;
mod properties;
mod socket;
