//! How we speak: HTTP/1.1 for moving files, TLS, WebDAV, third-party copy, digests, tokens and certificates.
//!
//! Turns bytes into values and values into bytes. Makes no choice about who may do what, and knows no
//! service.
#![deny(unsafe_code)]

pub mod broker;
pub mod checksum;
pub mod connections;
pub mod cross_site;
pub mod delegation;
pub mod deletion;
mod der;
pub mod digest;
pub mod exposition;
pub mod fair_turns;
pub mod gfal;
pub mod hosts;
pub mod http1;
pub mod identity;
pub mod listener;
pub mod macaroon;
pub mod membership;
pub mod monitoring;
pub mod network;
pub mod oauth;
pub mod openapi_page;
pub mod pace;
pub mod pki;
pub mod problem;
pub mod ranges;
pub mod resumable;
pub mod s3;
pub mod site_document;
pub mod storage_id;
pub mod stream;
pub mod tape;
pub mod tcp_info;
pub mod tls;
pub mod token;
pub mod told;
pub mod tpc;
mod vo;
pub mod voms;
pub mod webdav;
pub mod x509;
