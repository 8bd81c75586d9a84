//! What the kernel says of a TCP connection (`TCP_INFO`, linux/tcp.h).
//!
//! The one place that calls `getsockopt` by hand, because no safe wrapper reads the whole structure.
#![allow(unsafe_code)]

use penstock_model::TcpSummary;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Reads the state of a connected TCP socket. `None` when `fd` is no TCP socket. Costs about a microsecond.
///
/// Fields that an older kernel does not know are 0.
pub fn read(fd: BorrowedFd<'_>) -> Option<TcpSummary> {
    let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: `info` is writable for `length` bytes and the descriptor is open for the time of the borrow.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &mut length,
        )
    };
    if result != 0 {
        return None;
    }
    // SAFETY: the structure is plain integers, was zeroed, and the kernel wrote a prefix of it.
    let info = unsafe { info.assume_init() };
    Some(TcpSummary {
        rtt_us: info.tcpi_rtt,
        min_rtt_us: info.tcpi_min_rtt,
        congestion_window_segments: info.tcpi_snd_cwnd,
        segment_bytes: info.tcpi_snd_mss,
        retransmitted_segments: info.tcpi_total_retrans,
        sent_segments: info.tcpi_data_segs_out,
        busy_us: info.tcpi_busy_time,
        receiver_limited_us: info.tcpi_rwnd_limited,
        send_buffer_limited_us: info.tcpi_sndbuf_limited,
        delivery_rate: info.tcpi_delivery_rate,
        receiver_rtt_us: info.tcpi_rcv_rtt,
        received_segments: info.tcpi_data_segs_in,
        out_of_order_segments: info.tcpi_rcv_ooopack,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    #[test]
    fn a_connection_that_carried_data_says_so() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let mut sender =
            TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
        let (mut receiver, _) = listener.accept().expect("accept");
        sender.write_all(&[7; 10_000]).expect("write");
        receiver.read_exact(&mut [0; 10_000]).expect("read");
        let summary = read(sender.as_fd()).expect("a TCP socket");
        assert!(
            summary.sent_segments > 0 && summary.segment_bytes > 0 && summary.rtt_us > 0,
            "{summary:?}"
        );
        let received = read(receiver.as_fd()).expect("a TCP socket");
        assert!(
            received.received_segments > 0 && received.out_of_order_segments == 0,
            "{received:?}"
        );
    }

    #[test]
    fn a_descriptor_that_is_no_connection_has_no_summary() {
        let file = std::fs::File::open("/dev/null").expect("open");
        assert_eq!(read(file.as_fd()), None);
    }
}
