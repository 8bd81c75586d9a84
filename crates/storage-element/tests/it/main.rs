//! The storage element as its clients meet it: over a socket, on loopback.

mod access;
mod answers;
mod assets;
mod clocks;
mod copies;
mod copies_headers;
mod copies_leftovers;
mod copies_streams;
mod crowds;
mod issuer;
mod ledger;
mod locks;
mod macaroons;
mod methods;
mod overload;
mod pages;
mod parts;
mod peer;
mod pools;
mod ranged;
mod recovery;
mod site;
mod token_rules;
mod uploads;
mod writes;
