use super::*;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tempfile::TempDir;

mod with_queue;

/// How long any of these tests may wait for something.
const PATIENCE: Duration = Duration::from_secs(30);

/// A program of a site, and how it is run.
struct Lab {
    directory: TempDir,
    config: HsmCommandConfig,
}

impl Lab {
    fn new(script: &str) -> Lab {
        let directory = tempfile::tempdir().expect("a directory");
        let program = directory.path().join("hsm");
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).expect("a script");
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&program, executable).expect("executable");
        let mut config = HsmCommandConfig::usual(program, directory.path().to_owned());
        config.stop_grace = Duration::from_millis(500);
        config.progress_interval = Duration::from_millis(20);
        Lab { directory, config }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn put(&self) -> HsmCall {
        HsmCall::Put {
            pnfsid: "0000AB".to_owned(),
            path: self.path("file"),
            storage_info: info(),
        }
    }

    fn get(&self, size_bytes: u64) -> HsmCall {
        HsmCall::Get {
            pnfsid: "0000AB".to_owned(),
            path: self.path("file"),
            size_bytes,
            uri: uri("hsm://site/a"),
            storage_info: info(),
        }
    }

    async fn run(&self, call: &HsmCall) -> HsmCommandEnd {
        let (_order, stop) = oneshot::channel();
        run_hsm_command(&self.config, call, stop).await
    }

    /// Runs it, and orders it to stop as soon as the script has made the file `ready`.
    async fn stopped(&self, call: &HsmCall) -> HsmCommandEnd {
        let (order, stop) = oneshot::channel();
        let run = run_hsm_command(&self.config, call, stop);
        let ordered = async {
            eventually(|| self.path("ready").exists()).await;
            order.send(()).expect("it runs");
        };
        tokio::join!(run, ordered).0
    }

    fn said(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).expect("it was written")
    }
}

fn info() -> HsmStorageInfo {
    HsmStorageInfo {
        size_bytes: 3,
        is_stored: false,
        storage_class: "atlas:raw".to_owned(),
        hsm: "osm".to_owned(),
        more: BTreeMap::from([("path".to_owned(), "/a;b=c d".to_owned())]),
    }
}

fn uri(text: &str) -> HsmUri {
    HsmUri::parse(text).expect("a URI")
}

fn succeeded(uris: &[&str]) -> HsmCommandEnd {
    HsmCommandEnd::Succeeded {
        uris: uris.iter().map(|text| uri(text)).collect(),
    }
}

async fn eventually(is_so: impl Fn() -> bool) {
    let wait = async {
        while !is_so() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, wait).await.expect("it never is so");
}

/// Whether a process with the number in this file is there and no zombie.
fn lives(id: &Path) -> bool {
    let id = std::fs::read_to_string(id).expect("a number");
    let status = std::fs::read_to_string(format!("/proc/{}/stat", id.trim()));
    status.is_ok_and(|status| !status.contains(") Z "))
}

#[tokio::test]
async fn a_put_prints_its_uris_and_nothing_else() {
    let lab = Lab::new("echo osm://osm/?bfid=1; echo; echo '  hsm://site/copy '; echo noise >&2");
    assert_eq!(
        lab.run(&lab.put()).await,
        succeeded(&["osm://osm/?bfid=1", "hsm://site/copy"])
    );
    let without = |text: &str| HsmCommandEnd::WithoutUri {
        text: text.to_owned(),
    };
    for (script, told) in [
        ("true", ""),
        ("echo stored; echo hsm://site/a", "stored hsm://site/a"),
        ("printf 'hsm://a b'", "hsm://a b"),
        ("printf 'hsm://\\377'", "hsm://\u{fffd}"),
    ] {
        let lab = Lab::new(script);
        assert_eq!(lab.run(&lab.put()).await, without(told), "{script}");
    }
}

#[tokio::test]
async fn exit_codes_and_the_end_of_what_it_said_are_told() {
    let lab = Lab::new("echo 'HPSS: disk full' >&2; exit 41");
    let text = "HPSS: disk full".to_owned();
    assert_eq!(
        lab.run(&lab.put()).await,
        HsmCommandEnd::Exited { code: 41, text }
    );
    let lab = Lab::new("kill -9 $$");
    let (signal, text) = (9, String::new());
    assert_eq!(
        lab.run(&lab.put()).await,
        HsmCommandEnd::Signaled { signal, text }
    );
    let mut lab = Lab::new("");
    lab.config.program = lab.path("missing");
    let end = lab.run(&lab.put()).await;
    assert!(
        matches!(&end, HsmCommandEnd::NotStarted { text } if text.contains("missing")),
        "{end:?}"
    );
}

#[tokio::test]
async fn much_output_blocks_nothing_and_is_not_kept() {
    let much = "i=0; while [ $i -lt 3000 ]; do echo hsm://site/$i-0123456789012345678901234567890123456789; \
                echo line $i >&2; i=$((i+1)); done";
    let lab = Lab::new(much);
    let end = lab.run(&lab.put()).await;
    assert!(
        matches!(&end, HsmCommandEnd::WithoutUri { text } if text.len() <= 500),
        "{end:?}"
    );
    let lab = Lab::new(&format!("{much}; exit 1"));
    let end = lab.run(&lab.put()).await;
    let is_end = |text: &str| text.len() <= ERRORS_BYTES_MAX && text.ends_with("line 2999");
    assert!(
        matches!(&end, HsmCommandEnd::Exited { code: 1, text } if is_end(text)),
        "{end:?}"
    );
}

#[tokio::test]
async fn arguments_reach_the_program_as_they_are() {
    let mut lab = Lab::new("printf '%s\\n' \"$@\" > said; pwd > where; echo hsm://a");
    lab.config.options = BTreeMap::from([("host".to_owned(), "$(x) `y`".to_owned())]);
    let mut call = lab.put();
    if let HsmCall::Put { path, .. } = &mut call {
        *path = PathBuf::from("/a b/'\"$HOME\\*;x");
    }
    assert_eq!(lab.run(&call).await, succeeded(&["hsm://a"]));
    let program = lab.config.program.display();
    let said = format!(
        "put\n0000AB\n/a b/'\"$HOME\\*;x\n\
         -si=size=3;new=true;stored=false;sClass=atlas:raw;cClass=-;hsm=osm;path=/a%3Bb%3Dc d;\n\
         -command={program}\n-host=$(x) `y`\n"
    );
    assert_eq!(lab.said("said"), said);
    let own = lab.directory.path().canonicalize().expect("it is there");
    assert_eq!(lab.said("where").trim(), own.to_str().expect("text"));
    let call = HsmCall::Remove {
        uri: uri("hsm://a"),
    };
    assert_eq!(lab.run(&call).await, succeeded(&[]));
    let said = format!("remove\n-uri=hsm://a\n-command={program}\n-host=$(x) `y`\n");
    assert_eq!(lab.said("said"), said);
}

#[tokio::test]
async fn a_program_has_its_own_environment_and_no_files_of_the_service() {
    let mut lab =
        Lab::new("/usr/bin/env > said; ls -l /proc/$$/fd > files; cat > input; echo hsm://a");
    lab.config
        .environment
        .insert("KEY".to_owned(), "value".into());
    let _open = std::fs::File::open(&lab.config.program).expect("a file of the service");
    assert_eq!(lab.run(&lab.put()).await, succeeded(&["hsm://a"]));
    let said = lab.said("said");
    let foreign = said.lines().filter(|line| {
        let own = ["KEY=", "PATH=", "PWD=", "SHLVL=", "_=", "OLDPWD="];
        !own.iter().any(|name| line.starts_with(name))
    });
    assert_eq!(foreign.collect::<Vec<_>>(), [""; 0]);
    assert!(said.contains("KEY=value"));
    assert_eq!(lab.said("input"), "");
    // Input, output and errors; the script itself, which its shell reads; what `ls` is redirected to; and what the tests
    // themselves were started with.
    let files = lab.said("files");
    // OpenSSL, in other tests, has the system's certificates open for a moment and without close-on-exec.
    let own = [
        "/dev/null",
        "pipe:",
        "/hsm",
        "/files",
        "/ca-certificates.crt",
    ]
    .map(str::to_owned);
    let own: Vec<String> = own.into_iter().chain(inherited()).collect();
    let foreign = files.lines().filter(|line| line.contains(" -> "));
    let foreign = foreign.filter(|line| !own.iter().any(|name| line.contains(name)));
    assert_eq!(foreign.collect::<Vec<_>>(), [""; 0]);
    assert_eq!(
        files.matches("/hsm").count(),
        1,
        "only the shell's own: {files}"
    );
}

/// The files that this process was started with by somebody who did not close them: all others close on exec.
fn inherited() -> Vec<String> {
    const CLOSED_ON_EXEC: u32 = 0o2_000_000;
    let mut names = Vec::new();
    for found in std::fs::read_dir("/proc/self/fdinfo")
        .expect("a list")
        .flatten()
    {
        let info = std::fs::read_to_string(found.path()).unwrap_or_default();
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
        let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
        let name = std::fs::read_link(Path::new("/proc/self/fd").join(found.file_name()));
        if flags.is_some_and(|flags| flags & CLOSED_ON_EXEC == 0)
            && let Ok(name) = name
        {
            names.push(name.display().to_string());
        }
    }
    names
}

#[tokio::test]
async fn a_get_without_its_file_is_no_success() {
    let lab = Lab::new("printf abc > file");
    assert_eq!(lab.run(&lab.get(3)).await, succeeded(&[]));
    for (script, size_bytes) in [("printf abc > file", 4), ("rm -f file", 3)] {
        let lab = Lab::new(script);
        let end = lab.run(&lab.get(size_bytes)).await;
        assert!(
            matches!(end, HsmCommandEnd::Exited { code: 0, .. }),
            "{end:?}"
        );
    }
}

#[tokio::test]
async fn all_of_a_command_is_stopped_even_what_ignores_it() {
    let polite = Lab::new("trap 'echo bye >> said; exit 143' TERM; touch ready; sleep 100 & wait");
    assert_eq!(polite.stopped(&polite.put()).await, HsmCommandEnd::Stopped);
    assert_eq!(polite.said("said"), "bye\n");
    let deaf = Lab::new("trap '' TERM; sleep 100 & echo $! > child; touch ready; wait; sleep 100");
    assert_eq!(deaf.stopped(&deaf.put()).await, HsmCommandEnd::Stopped);
    eventually(|| !lives(&deaf.path("child"))).await;
    // One that has done its work when the order comes is not told as stopped.
    let done = Lab::new("trap 'echo hsm://a; exit 0' TERM; touch ready; sleep 100 & wait");
    assert_eq!(done.stopped(&done.put()).await, succeeded(&["hsm://a"]));
}

#[tokio::test]
async fn a_command_ends_at_its_time_limit() {
    let mut lab = Lab::new("echo working >&2; sleep 100 & wait");
    lab.config.put_timeout = Duration::from_millis(300);
    let text = "working".to_owned();
    assert_eq!(lab.run(&lab.put()).await, HsmCommandEnd::TimedOut { text });
}

#[tokio::test]
async fn what_a_command_leaves_behind_is_killed() {
    let lab = Lab::new("sleep 100 & echo $! > child; echo hsm://a");
    let begun = Instant::now();
    assert_eq!(lab.run(&lab.put()).await, succeeded(&["hsm://a"]));
    assert!(begun.elapsed() < Duration::from_secs(20));
    eventually(|| !lives(&lab.path("child"))).await;
}

#[tokio::test]
async fn a_command_whose_caller_is_gone_is_killed() {
    let lab = Lab::new("sleep 100 & echo $! > child; touch ready; wait");
    let (_order, stop) = oneshot::channel();
    let (config, call) = (lab.config.clone(), lab.put());
    let task = tokio::spawn(async move { run_hsm_command(&config, &call, stop).await });
    eventually(|| lab.path("ready").exists()).await;
    task.abort();
    let _ = task.await;
    eventually(|| !lives(&lab.path("child"))).await;
}
