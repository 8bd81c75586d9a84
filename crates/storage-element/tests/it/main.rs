//! The storage element as its clients meet it: over a socket, on loopback.

mod access;
mod copies;
mod macaroons;
mod methods;
mod overload;
mod peer;
mod recovery;
mod site;
mod writes;
