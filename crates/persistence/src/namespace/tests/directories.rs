//! The writer remembers directories: only those that are there.

use super::*;
use std::sync::mpsc::channel;

#[test]
fn writes_follow_directories_that_were_moved_removed_or_became_files() {
    let lab = Lab::new();
    lab.write("/a/b/f");
    lab.rename("/a", "/x", Replace::Refused).expect("moved");
    lab.write("/a/b/g");
    assert_eq!(lab.tree(), "/a/ /a/b/ /a/b/g /x/ /x/b/ /x/b/f");
    lab.remove("/x", 100).expect("removed");
    lab.write("/x/b/h");
    assert_eq!(lab.tree(), "/a/ /a/b/ /a/b/g /x/ /x/b/ /x/b/h");
    lab.remove("/a", 100).expect("removed");
    lab.write("/a");
    refused(
        lab.make(Change::Publish(lab.new_file("/a/b/i", 1))),
        "/a is a file, so nothing can be below it",
    );
}

#[test]
fn a_directory_of_a_transaction_that_was_rolled_back_is_forgotten() {
    let lab = Lab::new();
    let taken = lab.write("/taken");
    let (mut first, mut second) = (lab.new_file("/n/first", 1), lab.new_file("/n/second", 1));
    // The database refuses a second entry with this id, and with it the whole transaction; then each change is made alone.
    second.id = taken;
    first.path = path("/n/first");
    let (hold, held) = channel::<()>();
    let (answer, answers) = channel();
    lab.namespace().submit(
        Change::MakeDirectory {
            path: path("/o"),
            owner: None,
            at: NOW,
        },
        move |_| held.recv().expect("let go"),
    );
    let made = Change::MakeDirectory {
        path: path("/n"),
        owner: None,
        at: NOW,
    };
    for change in [made, Change::Publish(first), Change::Publish(second)] {
        let answer = answer.clone();
        lab.namespace().submit(change, move |made| {
            answer.send(made.is_ok()).expect("heard");
        });
    }
    hold.send(()).expect("waits");
    let made: Vec<bool> = answers.iter().take(3).collect();
    assert_eq!(made, [true, true, false]);
    lab.write("/n/third");
    assert_eq!(lab.tree(), "/n/ /n/first /n/third /o/ /taken");
}
