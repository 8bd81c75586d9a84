//! The HTTP/1.1 server and client, over loopback connections.

mod client;
mod files;
mod framing;
mod identity;
mod pki;
mod reach;
mod server;
mod service;
mod tls;
mod upload;
