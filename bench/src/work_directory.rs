//! Where the servers' data lies: a file system of its own with a journal on a loop device with direct I/O,
//! when we may mount one, else tmpfs. Everything is removed at the end.
//!
//! Not simply a directory: an ext4 without journal refuses to reuse freed inodes for a minute, which makes
//! creates ten times slower after any bench that deletes; and a bench must not fill somebody's disk.

use crate::error::{BenchError, doing};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Size of the file system; the file under it is sparse. The largest cell keeps 8 GB.
const IMAGE_BYTES: u64 = 14 << 30;

/// The directory that all servers of this run use.
#[derive(Debug)]
pub struct WorkDirectory {
    data: PathBuf,
    /// For the table: what kind of file system the figures are from.
    pub description: String,
    mounted: Option<Mounted>,
    // Removed last, because fields are dropped in this order.
    _root: tempfile::TempDir,
}

#[derive(Debug)]
struct Mounted {
    device: String,
    at: PathBuf,
}

impl WorkDirectory {
    /// Makes one, the image under `parent`.
    pub fn make(parent: &Path) -> Result<WorkDirectory, BenchError> {
        let root = temporary(parent)?;
        match Mounted::make(root.path()) {
            Ok(mounted) => Ok(WorkDirectory {
                data: mounted.at.clone(),
                description: "ext4 with journal on a loop device with direct I/O".to_owned(),
                mounted: Some(mounted),
                _root: root,
            }),
            Err(why) => {
                let memory = Path::new("/dev/shm");
                let root = temporary(if memory.is_dir() { memory } else { parent })?;
                Ok(WorkDirectory {
                    data: root.path().to_owned(),
                    description: format!(
                        "{} (tmpfs where there is one: nothing is durable there, so compare with no \
                         other run; \
                         no loop device, because: {why})",
                        root.path().display()
                    ),
                    mounted: None,
                    _root: root,
                })
            }
        }
    }

    /// A new directory in it.
    pub fn directory(&self, name: &str) -> Result<PathBuf, BenchError> {
        let path = self.data.join(name);
        std::fs::create_dir_all(&path).or_else(doing(format!("{}", path.display())))?;
        Ok(path)
    }

    /// Writes and removes some GB: the first touch of a virtual machine's memory is slow, and would be
    /// counted against whoever writes first.
    pub fn warm_up(&self, bytes: u64) -> Result<(), BenchError> {
        use std::io::Write;
        let path = self.data.join("warm-up");
        let what = || format!("{}", path.display());
        let mut file = File::create(&path).or_else(doing(what()))?;
        let block = vec![0x5a; 1 << 20];
        for _ in 0..bytes >> 20 {
            file.write_all(&block).or_else(doing(what()))?;
        }
        file.sync_all().or_else(doing(what()))?;
        std::fs::remove_file(&path).or_else(doing(what()))
    }
}

impl Drop for WorkDirectory {
    fn drop(&mut self) {
        self.mounted.take();
    }
}

fn temporary(parent: &Path) -> Result<tempfile::TempDir, BenchError> {
    tempfile::Builder::new()
        .prefix("penstock-bench.")
        .tempdir_in(parent)
        .or_else(doing(format!("{}", parent.display())))
}

impl Mounted {
    fn make(root: &Path) -> Result<Mounted, BenchError> {
        if !rustix::process::geteuid().is_root() {
            return Err(BenchError::failed("only root may mount"));
        }
        let image = root.join("disk.img");
        let file = File::create(&image).or_else(doing(format!("{}", image.display())))?;
        file.set_len(IMAGE_BYTES)
            .or_else(doing(format!("{}", image.display())))?;
        run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image))?;
        let device = run(Command::new("losetup")
            .args(["--find", "--show", "--direct-io=on"])
            .arg(&image))?;
        let at = root.join("data");
        let mounted = std::fs::create_dir(&at)
            .or_else(doing(format!("{}", at.display())))
            .and_then(|()| run(Command::new("mount").arg(&device).arg(&at)));
        if let Err(why) = mounted {
            run(Command::new("losetup").args(["--detach", &device]))?;
            return Err(why);
        }
        Ok(Mounted { device, at })
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let unmounted = run(Command::new("umount").arg(&self.at));
        let detached = run(Command::new("losetup").args(["--detach", &self.device]));
        for failed in [unmounted.err(), detached.err()].into_iter().flatten() {
            eprintln!("clean-up: {failed}");
        }
    }
}

/// Runs a command to its end; gives what it printed, trimmed.
pub fn run(command: &mut Command) -> Result<String, BenchError> {
    let shown = format!("{command:?}");
    let output = command.output().or_else(doing(shown.clone()))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(BenchError::failed(format!(
            "{shown}: {} {}",
            output.status,
            text.trim()
        )));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
