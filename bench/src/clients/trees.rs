//! What clients carry, and whether it came back.

use crate::error::{BenchError, doing};
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

const SMALL_BYTES: usize = 1000;
/// Files of a directory of small ones.
const FILES_OF_DIRECTORY: usize = 500;
const BLOCK: usize = 1 << 20;

/// Names that clients and servers get wrong: what URLs, shells, XML and terminals read as something else, what looks alike, what
/// is long, and what is no text.
fn odd_names() -> Vec<OsString> {
    let plain = [
        "a blank",
        " leading blank",
        "trailing blank ",
        "two  blanks",
        "trailing dot.",
        "..three dots",
        ".hidden",
        "-rf",
        "--help",
        "#hash",
        "a#b",
        "per%cent",
        "per%20cent",
        "%2e%2e",
        "%00",
        "%zz",
        "question?",
        "a?b=c&d",
        "amper&sand",
        "semi;colon",
        "colon:colon",
        "C:drive",
        "back\\slash",
        "\"double\"",
        "'single'",
        "`backtick`",
        "$HOME",
        "$(id)",
        "~",
        "~root",
        "*",
        "[brackets]",
        "{braces}",
        "a+b",
        "a=b",
        "a@b",
        "a,b",
        "a|b",
        "<angle>",
        "<!--",
        "]]>",
        "&amp;",
        "été",
        "e\u{301}te\u{301}",
        "ﬁ",
        "日本語",
        "العربية",
        "עברית",
        "\u{202e}gpj.exe",
        "zero\u{200b}width",
        "nb\u{a0}sp",
        "😀",
        "👩‍🔬",
        "Ω",
        "\u{2126}",
        "ß",
        "ẞ",
        "İ",
        "ı",
        "UPPER",
        "upper",
        "Upper",
        "NUL",
        "con",
        "aux.txt",
        "LPT1",
        "a.tar.gz",
        "file",
        "file.",
        "file (1)",
        "^caret",
        "tab\there",
        "new\nline",
        "carriage\rreturn",
        "bell\u{7}",
        "escape\u{1b}[31m",
        "delete\u{7f}",
        "c1\u{85}",
        "~$lock.docx",
        "Thumbs.db",
        ".DS_Store",
        ".nfs0001",
        "desktop.ini",
        "a..b",
        "!bang",
        "x:y:z",
    ];
    let mut names: Vec<OsString> = plain.iter().map(OsString::from).collect();
    names.push("n".repeat(255).into());
    names.push("é".repeat(127).into());
    names.push("😀".repeat(63).into());
    for bytes in [
        &b"bad\xffbyte"[..],
        b"latin1 \xe9t\xe9",
        b"\xc0\xaf",
        b"\xed\xa0\x80",
        b"cut \xe2\x82",
    ] {
        names.push(OsString::from_vec(bytes.to_vec()));
    }
    // What is left of a hundred has names that only their number makes different.
    let left = 100_usize.saturating_sub(names.len());
    names.extend(
        (0..left).map(|number| OsString::from(format!("no. {number}/100").replace('/', " of "))),
    );
    names
}

/// A hundred files, each with its name for content. Gives their number.
pub fn make_named_tree(at: &Path) -> Result<usize, BenchError> {
    let names = odd_names();
    let directory = at.join("a directory with #odd? names");
    make_directory(&directory)?;
    for (number, name) in names.iter().enumerate() {
        write(&directory.join(name), format!("file {number}\n").as_bytes())?;
    }
    Ok(names.len())
}

/// Files of 1 kB, 500 in each directory. Gives their number.
pub fn make_small_files(at: &Path, files: usize) -> Result<usize, BenchError> {
    for number in 0..files {
        let directory = at.join(format!("run{:03}", number / FILES_OF_DIRECTORY));
        if number % FILES_OF_DIRECTORY == 0 {
            make_directory(&directory)?;
        }
        let mut content = format!("{number:08}").into_bytes();
        content.resize(SMALL_BYTES, b'.');
        write(&directory.join(format!("f{number:06}")), &content)?;
    }
    Ok(files)
}

/// A file no block of which is as another.
pub fn make_large_file(at: &Path, bytes: u64) -> Result<(), BenchError> {
    let what = || format!("{}", at.display());
    let mut file = File::create(at).or_else(doing(what()))?;
    let (mut block, mut left, mut number) = (vec![0x5a; BLOCK], bytes, 0_u64);
    while left > 0 {
        block[..8].copy_from_slice(&number.to_le_bytes());
        let length = left.min(BLOCK as u64);
        file.write_all(&block[..length as usize])
            .or_else(doing(what()))?;
        left -= length;
        number += 1;
    }
    Ok(())
}

/// How many files of a tree are in another, at the same place and with the same bytes.
pub fn come_back(tree: &Path, other: &Path) -> Result<usize, BenchError> {
    let mut same = 0;
    let entries = std::fs::read_dir(tree).or_else(doing(format!("{}", tree.display())))?;
    for entry in entries.flatten() {
        let (here, there) = (entry.path(), other.join(entry.file_name()));
        same += match here.is_dir() {
            true => come_back(&here, &there)?,
            false => usize::from(same_file(&here, &there)?),
        };
    }
    Ok(same)
}

/// Whether two files have the same bytes. One that is not there has none.
pub fn same_file(one: &Path, other: &Path) -> Result<bool, BenchError> {
    let (Ok(mut one), Ok(mut other)) = (File::open(one), File::open(other)) else {
        return Ok(false);
    };
    let (mut of_one, mut of_other) = (vec![0; BLOCK], vec![0; BLOCK]);
    loop {
        let read = fill(&mut one, &mut of_one)?;
        if fill(&mut other, &mut of_other)? != read || of_one[..read] != of_other[..read] {
            return Ok(false);
        }
        if read == 0 {
            return Ok(true);
        }
    }
}

fn fill(file: &mut File, block: &mut [u8]) -> Result<usize, BenchError> {
    let mut read = 0;
    while read < block.len() {
        match file
            .read(&mut block[read..])
            .or_else(doing("reading back"))?
        {
            0 => break,
            more => read += more,
        }
    }
    Ok(read)
}

/// Removes the files of a directory that are meant.
pub fn remove_those(
    directory: &Path,
    is_meant: impl Fn(&PathBuf) -> bool,
) -> Result<(), BenchError> {
    let entries =
        std::fs::read_dir(directory).or_else(doing(format!("{}", directory.display())))?;
    let meant = entries.flatten().map(|entry| entry.path()).filter(is_meant);
    for path in meant.filter(|path| path.is_file()) {
        std::fs::remove_file(&path).or_else(doing(format!("{}", path.display())))?;
    }
    Ok(())
}

fn make_directory(at: &Path) -> Result<(), BenchError> {
    std::fs::create_dir_all(at).or_else(doing(format!("{}", at.display())))
}

fn write(at: &Path, content: &[u8]) -> Result<(), BenchError> {
    std::fs::write(at, content).or_else(doing(format!("{}", at.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundred_names_are_a_hundred_files_and_only_the_same_bytes_come_back() {
        let directory = tempfile::tempdir().expect("a directory");
        let tree = directory.path().join("tree");
        assert_eq!(make_named_tree(&tree).expect("made"), 100);
        assert_eq!(come_back(&tree, &tree).expect("read"), 100);
        let other = directory.path().join("other");
        make_small_files(&tree, 3).expect("made");
        assert_eq!(make_small_files(&other, 2).expect("made"), 2);
        std::fs::write(other.join("run000/f000001"), b"else").expect("written");
        assert_eq!(come_back(&tree, &other).expect("read"), 1);
    }
}
