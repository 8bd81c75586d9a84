//! What the protocols do at their boundary: over sockets, with files, between the two ends.

mod http1;
