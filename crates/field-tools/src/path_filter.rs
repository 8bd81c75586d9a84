//! Which files of a tree are meant: patterns as in a shell, for paths below the top of the tree.
//!
//! `*` stands for any characters of one name, `?` for one of them, `[a-z]` and `[!a-z]` for one of a set, `**` for any
//! characters, slashes too; `\` takes away the meaning of the next one. A pattern without a slash is compared with names, at
//! any depth; one with a slash with the whole path from the top. One that ends with a slash means directories only. Whatever
//! fits a directory fits all that is below it.

use std::str::FromStr;

/// Characters of one pattern: what a comparison costs grows with them.
const PATTERN_CHARS_MAX: usize = 1024;

/// One pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glob {
    parts: Vec<Part>,
    /// Compared with the last name alone.
    is_of_name: bool,
    is_of_directories: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Character(char),
    /// One of a name.
    Any,
    /// One of these, or one of all others.
    Set {
        ranges: Vec<(char, char)>,
        is_negated: bool,
    },
    /// Any number of a name.
    Name,
    /// Any number.
    Path,
    /// Whole directories, or nothing.
    Directories,
}

/// Which files are meant: those that an `include` fits, where there is one, and no `exclude`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PathFilter {
    pub include: Vec<Glob>,
    pub exclude: Vec<Glob>,
}

impl PathFilter {
    /// Whether all files are meant.
    pub fn is_empty(&self) -> bool {
        self.include.is_empty() && self.exclude.is_empty()
    }

    /// Whether a file is meant, by its names from the top down.
    pub fn takes_file(&self, names: &[String]) -> bool {
        let included = self.include.is_empty() || fits_any(&self.include, names, Kind::File);
        included && !fits_any(&self.exclude, names, Kind::File)
    }

    /// Whether there may be files that are meant in a directory.
    pub fn enters(&self, names: &[String]) -> bool {
        !fits_any(&self.exclude, names, Kind::Directory)
    }

    /// Whether a directory is meant also when no file in it is.
    pub fn takes_directory(&self, names: &[String]) -> bool {
        let included = self.include.is_empty() || fits_any(&self.include, names, Kind::Directory);
        included && self.enters(names)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    Directory,
}

/// Whether a pattern fits a path or a directory above it.
fn fits_any(globs: &[Glob], names: &[String], kind: Kind) -> bool {
    (1..=names.len()).any(|depth| {
        let kind = match depth == names.len() {
            true => kind,
            false => Kind::Directory,
        };
        globs.iter().any(|glob| glob.fits(&names[..depth], kind))
    })
}

impl Glob {
    fn fits(&self, names: &[String], kind: Kind) -> bool {
        if self.is_of_directories && kind == Kind::File {
            return false;
        }
        match (self.is_of_name, names.last()) {
            (_, None) => false,
            (true, Some(name)) => self.fits_text(name),
            (false, Some(_)) => self.fits_text(&names.join("/")),
        }
    }

    /// Follows all ways at once, so that no pattern takes longer than its length times that of the text.
    fn fits_text(&self, text: &str) -> bool {
        let mut here = vec![false; self.parts.len() + 1];
        self.enter(&mut here, 0);
        for character in text.chars() {
            let mut next = vec![false; self.parts.len() + 1];
            for (at, part) in self.parts.iter().enumerate().filter(|(at, _)| here[*at]) {
                let is_of_name = character != '/';
                match part {
                    Part::Character(wanted) if *wanted == character => {
                        self.enter(&mut next, at + 1);
                    }
                    Part::Any if is_of_name => self.enter(&mut next, at + 1),
                    Part::Set { ranges, is_negated } if is_of_name => {
                        let is_in = |&(from, to): &(char, char)| (from..=to).contains(&character);
                        if ranges.iter().any(is_in) != *is_negated {
                            self.enter(&mut next, at + 1);
                        }
                    }
                    Part::Name if is_of_name => self.enter(&mut next, at),
                    Part::Path => self.enter(&mut next, at),
                    Part::Directories => {
                        // In the middle of a name it cannot end.
                        next[at] = true;
                        if character == '/' {
                            self.enter(&mut next, at + 1);
                        }
                    }
                    Part::Character(_) | Part::Any | Part::Set { .. } | Part::Name => {}
                }
            }
            here = next;
        }
        here[self.parts.len()]
    }

    /// Comes to a part, and to those behind it as long as they may stand for nothing.
    fn enter(&self, states: &mut [bool], at: usize) {
        for (at, state) in states.iter_mut().enumerate().skip(at) {
            *state = true;
            let may_be_nothing = matches!(
                self.parts.get(at),
                Some(Part::Name | Part::Path | Part::Directories)
            );
            if !may_be_nothing {
                break;
            }
        }
    }
}

impl FromStr for Glob {
    type Err = String;

    fn from_str(text: &str) -> Result<Glob, String> {
        let wrong = |why: &str| Err(format!("the pattern '{text}' {why}"));
        if text.chars().count() > PATTERN_CHARS_MAX {
            return Err(format!(
                "a pattern has at most {PATTERN_CHARS_MAX} characters"
            ));
        }
        let (body, is_of_directories) = match text.strip_suffix('/') {
            Some(body) => (body, true),
            None => (text, false),
        };
        let (body, is_of_name) = match body.strip_prefix('/') {
            Some(body) => (body, false),
            None => (body, !body.contains('/')),
        };
        if body.is_empty() {
            return wrong("is empty");
        }
        if body.split('/').any(|name| name == "." || name == "..") {
            return wrong("has a '.' or '..', which no path below the top directory has");
        }
        let characters: Vec<char> = body.chars().collect();
        let mut parts = Vec::new();
        let mut at = 0;
        while let Some(&character) = characters.get(at) {
            let rest = &characters[at + 1..];
            let is_at_name = at == 0 || characters[at - 1] == '/';
            let (part, taken) = match character {
                '*' if is_at_name && rest.starts_with(&['*', '/']) => (Part::Directories, 3),
                '*' if rest.first() == Some(&'*') => (Part::Path, 2),
                '*' => (Part::Name, 1),
                '?' => (Part::Any, 1),
                '[' => match set_of(rest) {
                    Some((set, length)) => (set, length + 1),
                    None => {
                        return wrong("has a '[' without a ']'; write '\\[' for the character");
                    }
                },
                '\\' => match rest.first() {
                    Some(next) => (Part::Character(*next), 2),
                    None => return wrong("ends with a single '\\'"),
                },
                other => (Part::Character(other), 1),
            };
            parts.push(part);
            at += taken;
        }
        Ok(Glob {
            parts,
            is_of_name,
            is_of_directories,
        })
    }
}

/// What stands behind a `[`, and its length with the `]`.
fn set_of(characters: &[char]) -> Option<(Part, usize)> {
    let is_negated = matches!(characters.first(), Some('!' | '^'));
    let first = usize::from(is_negated);
    // A `]` that comes first is one of the set.
    let end = characters.iter().skip(first + 1).position(|c| *c == ']')? + first + 1;
    let mut ranges = Vec::new();
    let mut inner = &characters[first..end];
    loop {
        inner = match inner {
            [] => break,
            [from, '-', to, rest @ ..] => {
                ranges.push((*from, *to));
                rest
            }
            [one, rest @ ..] => {
                ranges.push((*one, *one));
                rest
            }
        };
    }
    Some((Part::Set { ranges, is_negated }, end + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(path: &str) -> Vec<String> {
        path.split('/').map(str::to_owned).collect()
    }

    fn filter(include: &[&str], exclude: &[&str]) -> PathFilter {
        let globs = |texts: &[&str]| {
            let parsed = texts.iter().map(|text| text.parse().expect(text));
            parsed.collect()
        };
        PathFilter {
            include: globs(include),
            exclude: globs(exclude),
        }
    }

    fn check(pattern: &str, fitting: &[&str], others: &[&str]) {
        let filter = filter(&[pattern], &[]);
        for path in fitting {
            assert!(filter.takes_file(&names(path)), "{pattern} fits {path}");
        }
        for path in others {
            assert!(!filter.takes_file(&names(path)), "{pattern}: {path}");
        }
    }

    #[test]
    fn patterns_are_read_as_in_a_shell() {
        check(
            "*.root",
            &["a.root", "run/b.root", ".root"],
            &["a.root.tmp", "aroot"],
        );
        check("/*.root", &["a.root"], &["run/a.root"]);
        check(
            "run?/x",
            &["run1/x", "run1/x/y"],
            &["run12/x", "a/run1/x", "run/x"],
        );
        check(
            "**/tmp/*",
            &["tmp/a", "a/tmp/b", "a/b/tmp/c"],
            &["atmp/a", "tmp"],
        );
        check("a/**", &["a/b", "a/b/c"], &["a", "b/a/c"]);
        check("a/**/z", &["a/z", "a/b/z", "a/b/c/z"], &["a/bz", "az"]);
        check("f[0-9a].[!t]", &["f0.x", "fa.y"], &["fb.x", "f0.t", "f/.x"]);
        check("[]x]", &["]", "x"], &["y"]);
        check("\\*", &["*"], &["a"]);
        check("logs/", &["logs/a", "x/logs/b/c"], &["logs"]);
        check("é*", &["été"], &["e"]);
        check("/a**b", &["ab", "a/b", "axx/yb"], &["a/bc", "x/ab"]);
        check("a**b", &["ab", "x/ab"], &["a/b"]);
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for text in ["", "/", "a[b", "a\\", "../a", "a/./b", &"x".repeat(1025)] {
            assert!(text.parse::<Glob>().is_err(), "{text}");
        }
    }

    #[test]
    fn an_exclusion_outranks_and_hides_all_below() {
        let filter = filter(&["*.root"], &["tmp/", "bad*"]);
        assert!(filter.takes_file(&names("a/x.root")));
        assert!(!filter.takes_file(&names("a/tmp/x.root")));
        assert!(!filter.takes_file(&names("bad.root")));
        assert!(filter.enters(&names("a")) && !filter.enters(&names("a/tmp")));
        assert!(!filter.takes_directory(&names("a")), "not for itself");
        assert!(PathFilter::default().takes_directory(&names("a")));
    }

    #[test]
    fn a_hostile_pattern_takes_no_time() {
        let pattern: Glob = "*a".repeat(500).parse().expect("a pattern");
        let text = "a".repeat(5_000) + "b";
        assert!(!pattern.fits_text(&text));
    }
}
