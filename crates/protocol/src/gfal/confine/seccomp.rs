//! Which calls of the kernel a process may make from now on. What Landlock does not cover, or not in its older versions,
//! is refused here; each `open` and each `connect` is left to the service.
//!
//! A list of what is refused, not of what is allowed: libraries of others differ between systems. Calls that are newer
//! than the list do not exist for the process.
#![allow(unsafe_code)]

use libc::{
    BPF_ABS, BPF_ALU, BPF_AND, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, c_long,
    sock_filter, sock_fprog,
};
use std::io;
use std::os::fd::OwnedFd;

const KILL: u32 = 0x8000_0000;
const ASK: u32 = 0x7fc0_0000;
const ALLOW: u32 = 0x7fff_0000;
const ERROR: u32 = 0x0005_0000;

/// `seccomp(2)`.
const SET_MODE_FILTER: libc::c_uint = 1;
const NEW_LISTENER: libc::c_ulong = 1 << 3;
/// Linux 5.19: a signal does not make a call be asked about twice.
const WAIT_KILLABLE: libc::c_ulong = 1 << 5;

/// Where `struct seccomp_data` has the number of the call, the kind of processor, and the first argument.
const NUMBER_AT: u32 = 0;
const PROCESSOR_AT: u32 = 4;
const ARGUMENTS_AT: u32 = 16;

#[cfg(target_arch = "x86_64")]
const PROCESSOR: Option<u32> = Some(0xc000_003e);
#[cfg(target_arch = "aarch64")]
const PROCESSOR: Option<u32> = Some(0xc000_00b7);
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const PROCESSOR: Option<u32> = None;

/// On x86-64, the second set of numbers for the same calls begins here.
#[cfg(target_arch = "x86_64")]
const X32: u32 = 0x4000_0000;
/// Calls from this number on are newer than this list (Linux 6.13). They have the same number on all processors.
const FIRST_UNKNOWN: u32 = 463;
/// `fchmodat2` (Linux 6.6).
const FCHMODAT2: c_long = 452;

const ANY_BIT: u32 = u32::MAX;
const SOCKET_FLAGS: u32 = (libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) as u32;
const NEW_NAMESPACES: u32 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u32;
/// `FIOSETOWN` and `SIOCSPGRP`, and `TIOCSTI`.
const IOCTLS: [u32; 3] = [0x8901, 0x8902, 0x5412];
/// `F_SETOWN`, `F_SETSIG` and `F_SETOWN_EX`: they have the kernel send signals to others.
const FCNTLS: [u32; 3] = [8, 10, 15];

/// Refused with EPERM on all processors.
const REFUSED: &[c_long] = &[
    // Other programs and other processes.
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_process_mrelease,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    libc::SYS_tkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_kcmp,
    libc::SYS_move_pages,
    libc::SYS_migrate_pages,
    libc::SYS_setpriority,
    libc::SYS_ioprio_set,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setattr,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setscheduler,
    // The service ends a process with its group.
    libc::SYS_setpgid,
    libc::SYS_setsid,
    // Ways around this filter, and parts of the kernel that nobody needs here.
    libc::SYS_seccomp,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_bpf,
    libc::SYS_userfaultfd,
    libc::SYS_perf_event_open,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_personality,
    libc::SYS_fanotify_init,
    libc::SYS_fanotify_mark,
    libc::SYS_inotify_add_watch,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    // The system as a whole.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    // The service judges relative paths as paths from the root.
    libc::SYS_chdir,
    libc::SYS_fchdir,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_kexec_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_reboot,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_syslog,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_vhangup,
    // Memory and messages that are shared with others of the same account.
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_semctl,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
    libc::SYS_mq_notify,
    // What changes files, or what is known of them: Landlock has none of the first, and its first versions lack some of
    // the others.
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    FCHMODAT2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    libc::SYS_truncate,
    libc::SYS_mknodat,
    libc::SYS_mkdirat,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_renameat2,
    libc::SYS_unlinkat,
    // Nothing listens here: gfal2 connects in every protocol.
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
];

/// The older calls, which newer processors do not have.
#[cfg(target_arch = "x86_64")]
const REFUSED_HERE: &[c_long] = &[
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_futimesat,
    libc::SYS_creat,
    libc::SYS_mknod,
    libc::SYS_mkdir,
    libc::SYS_rmdir,
    libc::SYS_link,
    libc::SYS_symlink,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_unlink,
    libc::SYS_uselib,
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_modify_ldt,
    libc::SYS_kexec_file_load,
];
#[cfg(target_arch = "aarch64")]
const REFUSED_HERE: &[c_long] = &[libc::SYS_renameat, libc::SYS_kexec_file_load];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const REFUSED_HERE: &[c_long] = &[];

/// Calls that the service judges.
const ASKED: &[c_long] = &[
    libc::SYS_connect,
    libc::SYS_openat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_open,
];

/// Puts the filter in force for this process, which has one thread and takes no new privileges: from now on `open` and
/// `connect` wait until whoever has the descriptor answers.
///
/// Errors: the kernel cannot do that.
pub(super) fn restrict() -> io::Result<OwnedFd> {
    let unsupported = || {
        io::Error::new(
            io::ErrorKind::Unsupported,
            "processors of this kind are not supported",
        )
    };
    let program = program(PROCESSOR.ok_or_else(unsupported)?, std::process::id());
    install(&program, NEW_LISTENER | WAIT_KILLABLE).or_else(|why| match why.raw_os_error() {
        Some(libc::EINVAL) => install(&program, NEW_LISTENER),
        _ => Err(why),
    })
}

fn install(program: &[sock_filter], flags: libc::c_ulong) -> io::Result<OwnedFd> {
    let too_long = |_| io::Error::other("the filter is too long");
    let whole = sock_fprog {
        len: u16::try_from(program.len()).map_err(too_long)?,
        filter: program.as_ptr().cast_mut(),
    };
    // SAFETY: the program lives for the call, and the kernel copies and checks it.
    let listener =
        unsafe { libc::syscall(libc::SYS_seccomp, SET_MODE_FILTER, flags, &raw const whole) };
    super::owned(listener)
}

/// The whole filter, for the process with this id.
fn program(processor: u32, process: u32) -> Vec<sock_filter> {
    let mut all = vec![load(PROCESSOR_AT)];
    all.extend(jump(BPF_JEQ, processor, &[], &[give(KILL)]));
    all.push(load(NUMBER_AT));
    #[cfg(target_arch = "x86_64")]
    all.extend(jump(BPF_JGE, X32, &[give(KILL)], &[]));
    all.extend(jump(BPF_JGE, FIRST_UNKNOWN, &[refuse(libc::ENOSYS)], &[]));
    for call in REFUSED.iter().chain(REFUSED_HERE) {
        all.extend(on(*call, vec![refuse(libc::EPERM)]));
    }
    // Their arguments lie in memory, where a filter sees nothing; libraries do without them.
    for call in [libc::SYS_clone3, libc::SYS_openat2] {
        all.extend(on(call, vec![refuse(libc::ENOSYS)]));
    }
    for (call, checks) in by_arguments(process) {
        let verdict = if ASKED.contains(&call) { ASK } else { ALLOW };
        let body = checks.into_iter().flatten().chain([give(verdict)]);
        all.extend(on(call, body.collect()));
    }
    all.push(give(ALLOW));
    all
}

/// Calls that are refused with some arguments.
fn by_arguments(process: u32) -> Vec<(c_long, Vec<Vec<sock_filter>>)> {
    let number = |value: libc::c_int| value as u32;
    let stream = number(libc::SOCK_STREAM);
    let (is_own, fast_open) = ([process, 0], number(libc::MSG_FASTOPEN));
    let no_fast_open = |argument| vec![only(argument, fast_open, &[0], libc::EOPNOTSUPP)];
    // What is opened for writing Landlock judges; Globus opens /dev/null so, and crashes when it cannot.
    let reading = number(libc::O_ACCMODE | libc::O_TRUNC);
    let no_truncation = |argument| vec![never(argument, reading, &[number(libc::O_TRUNC)])];
    let thread = number(libc::CLONE_THREAD);
    let control = [
        libc::PR_SET_SECCOMP,
        libc::PR_SET_DUMPABLE,
        libc::PR_SET_PDEATHSIG,
        libc::PR_SET_PTRACER,
    ];
    vec![
        // TCP alone: datagrams could be sent anywhere without `connect`, and other families lead to this machine.
        (
            libc::SYS_socket,
            vec![
                only(
                    0,
                    ANY_BIT,
                    &[number(libc::AF_INET), number(libc::AF_INET6)],
                    libc::EAFNOSUPPORT,
                ),
                only(1, !SOCKET_FLAGS, &[stream], libc::EAFNOSUPPORT),
                only(
                    2,
                    ANY_BIT,
                    &[0, number(libc::IPPROTO_TCP)],
                    libc::EAFNOSUPPORT,
                ),
            ],
        ),
        (
            libc::SYS_socketpair,
            vec![
                only(0, ANY_BIT, &[number(libc::AF_UNIX)], libc::EAFNOSUPPORT),
                // Datagrams of a pair could be sent to other sockets.
                only(1, !SOCKET_FLAGS, &[stream], libc::EAFNOSUPPORT),
            ],
        ),
        (libc::SYS_sendto, no_fast_open(3)),
        (libc::SYS_sendmsg, no_fast_open(2)),
        (libc::SYS_sendmmsg, no_fast_open(3)),
        // Threads, and no processes.
        (
            libc::SYS_clone,
            vec![
                only(0, thread, &[thread], libc::EPERM),
                only(0, NEW_NAMESPACES, &[0], libc::EPERM),
            ],
        ),
        (libc::SYS_kill, vec![only(0, ANY_BIT, &is_own, libc::EPERM)]),
        (
            libc::SYS_tgkill,
            vec![only(0, ANY_BIT, &[process], libc::EPERM)],
        ),
        (
            libc::SYS_prlimit64,
            vec![only(0, ANY_BIT, &is_own, libc::EPERM)],
        ),
        (
            libc::SYS_prctl,
            vec![never(0, ANY_BIT, &control.map(number))],
        ),
        (libc::SYS_ioctl, vec![never(1, ANY_BIT, &IOCTLS)]),
        (libc::SYS_fcntl, vec![never(1, ANY_BIT, &FCNTLS)]),
        // The first versions of Landlock let a file be cut that may be read.
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_open, no_truncation(1)),
        (libc::SYS_openat, no_truncation(2)),
        (libc::SYS_connect, Vec::new()),
    ]
}

fn statement(code: u32, value: u32) -> sock_filter {
    sock_filter {
        code: code as u16,
        jt: 0,
        jf: 0,
        k: value,
    }
}

fn load(offset: u32) -> sock_filter {
    statement(BPF_LD | BPF_W | BPF_ABS, offset)
}

fn give(verdict: u32) -> sock_filter {
    statement(BPF_RET | BPF_K, verdict)
}

fn refuse(errno: libc::c_int) -> sock_filter {
    give(ERROR | errno as u32)
}

/// `then` when the comparison holds, `otherwise` when not. What of them does not return goes on behind both, so only
/// the last may be left by its end.
fn jump(
    comparison: u32,
    value: u32,
    then: &[sock_filter],
    otherwise: &[sock_filter],
) -> Vec<sock_filter> {
    let length = |part: &[sock_filter]| u8::try_from(part.len()).expect("these parts are short");
    let test = sock_filter {
        code: (BPF_JMP | comparison | BPF_K) as u16,
        jt: if then.is_empty() {
            length(otherwise)
        } else {
            0
        },
        jf: length(then),
        k: value,
    };
    [&[test], then, otherwise].concat()
}

/// What is done at a call. It must end with a verdict, because it may have loaded something else than the number.
fn on(call: c_long, body: Vec<sock_filter>) -> Vec<sock_filter> {
    jump(BPF_JEQ, call as u32, &body, &[])
}

/// Goes on when these bits of an argument have one of these values, and refuses otherwise. Arguments here are of 32 bits,
/// of which the kernel takes the lower half as well.
fn only(argument: u32, mask: u32, values: &[u32], errno: libc::c_int) -> Vec<sock_filter> {
    let mut all = masked(argument, mask);
    for (at, value) in values.iter().enumerate() {
        let beyond = u8::try_from(values.len() - at).expect("there are few values");
        all.push(sock_filter {
            code: (BPF_JMP | BPF_JEQ | BPF_K) as u16,
            jt: beyond,
            jf: 0,
            k: *value,
        });
    }
    all.push(refuse(errno));
    all
}

/// Refuses when these bits of an argument have one of these values, and goes on otherwise.
fn never(argument: u32, mask: u32, values: &[u32]) -> Vec<sock_filter> {
    let mut all = masked(argument, mask);
    for value in values {
        all.extend(jump(BPF_JEQ, *value, &[refuse(libc::EPERM)], &[]));
    }
    all
}

fn masked(argument: u32, mask: u32) -> Vec<sock_filter> {
    // The lower half comes first: both processors are little-endian.
    vec![
        load(ARGUMENTS_AT + 8 * argument),
        statement(BPF_ALU | BPF_AND | BPF_K, mask),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: u32 = 4711;

    /// Runs the filter as the kernel would (cBPF of `seccomp`).
    fn verdict(processor: u32, call: c_long, arguments: &[u64]) -> u32 {
        let program = program(PROCESSOR.expect("supported"), OWN);
        let word = |offset: u32| match offset {
            NUMBER_AT => call as u32,
            PROCESSOR_AT => processor,
            _ => {
                let at = ((offset - ARGUMENTS_AT) / 8) as usize;
                arguments.get(at).copied().unwrap_or(0) as u32
            }
        };
        let (mut value, mut at) = (0u32, 0usize);
        loop {
            let step = program[at];
            at += 1;
            let code = u32::from(step.code);
            match code {
                _ if code == BPF_LD | BPF_W | BPF_ABS => value = word(step.k),
                _ if code == BPF_ALU | BPF_AND | BPF_K => value &= step.k,
                _ if code == BPF_RET | BPF_K => return step.k,
                _ => {
                    let holds = match code {
                        _ if code == BPF_JMP | BPF_JEQ | BPF_K => value == step.k,
                        _ if code == BPF_JMP | BPF_JGE | BPF_K => value >= step.k,
                        other => panic!("{other:#x}"),
                    };
                    at += usize::from(if holds { step.jt } else { step.jf });
                }
            }
        }
    }

    fn check(call: c_long, arguments: &[u64], expected: &str) {
        let found = match verdict(PROCESSOR.expect("supported"), call, arguments) {
            ALLOW => "allowed".to_owned(),
            ASK => "asked".to_owned(),
            KILL => "killed".to_owned(),
            error => io::Error::from_raw_os_error((error & 0xffff) as i32)
                .kind()
                .to_string(),
        };
        assert_eq!(found, expected, "call {call} {arguments:?}");
    }

    #[test]
    fn what_libraries_need_is_allowed_and_connections_are_asked_about() {
        for call in [
            libc::SYS_read,
            libc::SYS_mmap,
            libc::SYS_futex,
            libc::SYS_ftruncate,
            libc::SYS_exit_group,
        ] {
            check(call, &[], "allowed");
        }
        check(libc::SYS_connect, &[3, 4, 16], "asked");
        let (four, six) = (libc::AF_INET as u64, libc::AF_INET6 as u64);
        let stream = (libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) as u64;
        check(libc::SYS_socket, &[four, stream, 0], "allowed");
        check(libc::SYS_socket, &[six, stream, 6], "allowed");
        check(libc::SYS_socketpair, &[1, stream, 0], "allowed");
        check(
            libc::SYS_sendto,
            &[3, 0, 0, libc::MSG_NOSIGNAL as u64],
            "allowed",
        );
        check(libc::SYS_clone, &[0x003d_0f00], "allowed");
        check(libc::SYS_kill, &[u64::from(OWN), 15], "allowed");
        check(libc::SYS_openat, &[0, 0, libc::O_CLOEXEC as u64], "asked");
        let anew = (libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC) as u64;
        check(libc::SYS_openat, &[0, 0, anew], "asked");
        #[cfg(target_arch = "x86_64")]
        check(libc::SYS_open, &[0, 0], "asked");
        check(libc::SYS_prctl, &[libc::PR_SET_NAME as u64], "allowed");
        check(libc::SYS_fcntl, &[3, libc::F_SETFL as u64], "allowed");
    }

    #[test]
    fn what_leads_out_is_refused() {
        for call in REFUSED.iter().chain(REFUSED_HERE) {
            check(*call, &[], "permission denied");
        }
        let (stream, datagram) = (libc::SOCK_STREAM as u64, libc::SOCK_DGRAM as u64);
        let refused = |family: libc::c_int, kind: u64, protocol: u64| {
            let found = verdict(
                PROCESSOR.expect("supported"),
                libc::SYS_socket,
                &[family as u64, kind, protocol],
            );
            assert_eq!(found, ERROR | libc::EAFNOSUPPORT as u32, "{family} {kind}");
        };
        refused(libc::AF_UNIX, stream, 0);
        refused(libc::AF_NETLINK, libc::SOCK_RAW as u64, 0);
        refused(libc::AF_INET, datagram, 0);
        refused(libc::AF_INET6, libc::SOCK_RAW as u64, 1);
        refused(libc::AF_INET, stream, 132);
        refused(libc::AF_INET, stream, 262);
        let fast_open = libc::MSG_FASTOPEN as u64;
        for (call, arguments) in [
            (libc::SYS_sendto, [3, 0, 0, fast_open]),
            (libc::SYS_sendmsg, [3, 0, fast_open, 0]),
            (libc::SYS_sendmmsg, [3, 0, 0, fast_open]),
        ] {
            let found = verdict(PROCESSOR.expect("supported"), call, &arguments);
            assert_eq!(found, ERROR | libc::EOPNOTSUPP as u32);
        }
        check(libc::SYS_kill, &[1, 15], "permission denied");
        check(libc::SYS_kill, &[u64::MAX, 15], "permission denied");
        check(libc::SYS_tgkill, &[1, 1, 15], "permission denied");
        check(libc::SYS_prlimit64, &[1], "permission denied");
        check(
            libc::SYS_clone,
            &[libc::SIGCHLD as u64],
            "permission denied",
        );
        let in_namespace = (libc::CLONE_THREAD | libc::CLONE_NEWUSER) as u64;
        check(libc::SYS_clone, &[in_namespace], "permission denied");
        check(libc::SYS_clone3, &[], "unsupported");
        check(libc::SYS_openat2, &[], "unsupported");
        check(FIRST_UNKNOWN.into(), &[], "unsupported");
        check(
            libc::SYS_openat,
            &[0, 0, libc::O_TRUNC as u64],
            "permission denied",
        );
        check(
            libc::SYS_prctl,
            &[libc::PR_SET_DUMPABLE as u64],
            "permission denied",
        );
        check(libc::SYS_fcntl, &[3, 8, 1], "permission denied");
        check(libc::SYS_ioctl, &[0, 0x5412], "permission denied");
    }

    #[test]
    fn calls_of_another_kind_of_processor_end_the_process() {
        assert_eq!(verdict(0x4000_0003, libc::SYS_read, &[]), KILL);
        #[cfg(target_arch = "x86_64")]
        check(i64::from(X32), &[], "killed");
    }
}
