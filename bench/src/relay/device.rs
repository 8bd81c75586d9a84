//! TUN devices: network interfaces whose packets a process reads and writes (Linux, `tuntap.rst` of the kernel).
#![allow(unsafe_code)]

use crate::error::{BenchError, doing};
use rustix::fs::{Mode, OFlags, open};
use rustix::ioctl::{Opcode, Setter, ioctl};
use std::os::fd::OwnedFd;

/// `TUNSETIFF`, `_IOW('T', 202, int)`.
const TUNSETIFF: Opcode = 0x4004_54ca;
/// `IFF_TUN | IFF_NO_PI`: IP packets without a header before them.
const FLAGS: i16 = 0x0001 | 0x1000;
const NAME_MAX: usize = 15;

/// `struct ifreq`, as far as the call reads it.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; NAME_MAX + 1],
    flags: i16,
    rest: [u8; 22],
}

/// Makes an interface of this name. It goes when the descriptor is closed, also when it was moved to another namespace.
pub fn make(name: &str) -> Result<OwnedFd, BenchError> {
    let what =
        || format!("cannot make the network interface {name} (root and /dev/net/tun are needed)");
    if name.len() > NAME_MAX {
        return Err(BenchError::failed(format!(
            "{name}: too long for an interface"
        )));
    }
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let device = open("/dev/net/tun", flags, Mode::empty())
        .map_err(Into::into)
        .or_else(doing(what()))?;
    let mut request = InterfaceRequest {
        name: [0; NAME_MAX + 1],
        flags: FLAGS,
        rest: [0; 22],
    };
    request.name[..name.len()].copy_from_slice(name.as_bytes());
    // SAFETY: TUNSETIFF reads a `struct ifreq` of 40 bytes, which this is, and keeps no pointer to it.
    let made = unsafe { ioctl(&device, Setter::<TUNSETIFF, InterfaceRequest>::new(request)) };
    made.map_err(Into::into).or_else(doing(what()))?;
    Ok(device)
}
