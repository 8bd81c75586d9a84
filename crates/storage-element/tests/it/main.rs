//! The storage element as its clients meet it: over a socket, on loopback.

mod access;
mod assets;
mod copies;
mod crowds;
mod issuer;
mod locks;
mod macaroons;
mod methods;
mod overload;
mod pages;
mod peer;
mod recovery;
mod site;
mod token_rules;
mod uploads;
mod writes;
