//! The admin server against a fake loop, over a real unix socket.

mod api;
mod bounds;
mod hostile;
mod peers;
mod properties;
mod world;
