//! Files whose label and entry say different things: what is told, what is mended, and what is left alone.

use crate::recovery::{config, order_of};
use crate::site::{Site, path};
use penstock_model::{Checksum, ChecksumAlgorithm};
use penstock_persistence::namespace::{Change, EntryId, Namespace};
use penstock_storage_element::fsck::{FsckReport, RightSide, check};
use rustix::fs::{XattrFlags, getxattr, removexattr, setxattr};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

const LABEL: &str = "user.penstock";

/// A closed site with one file, and where the file's data lies.
struct ClosedSite {
    directory: tempfile::TempDir,
    id: EntryId,
    data: PathBuf,
}

impl ClosedSite {
    async fn new() -> ClosedSite {
        let site = Site::new().await;
        // The label of the first file of a directory does not tell the directory's number.
        site.put("/d/first", b"first").await;
        site.put("/d/f", b"kept").await;
        let entry = site.storage.namespace().lookup(&path("/d/f"));
        let id = entry.expect("readable").expect("stored").id;
        let directory = site.close().await;
        let data = directory.path().join(format!("pools/p1/data/0/{id}"));
        ClosedSite {
            directory,
            id,
            data,
        }
    }

    fn label(&self) -> Value {
        let mut value = vec![0; 4096];
        let length = getxattr(&self.data, LABEL, &mut value[..]).expect("a label");
        serde_json::from_slice(&value[..length]).expect("JSON")
    }

    fn set_label(&self, label: &Value) {
        let text = label.to_string();
        setxattr(&self.data, LABEL, text.as_bytes(), XattrFlags::empty()).expect("written");
    }

    fn namespace(&self) -> Namespace {
        let file = self.directory.path().join("state/namespace.sqlite");
        Namespace::open(&file).expect("opens")
    }

    fn compare(&self, mends: bool) -> FsckReport {
        let config = config(self.directory.path());
        check(&order_of(&config, mends), |_| ()).expect("compared")
    }
}

/// The differences of the one file that differs, and which side is right.
fn difference(found: &FsckReport) -> (Value, Option<RightSide>) {
    let [one] = &found.labels_different.named[..] else {
        panic!("{found:?}")
    };
    let fields = serde_json::to_value(&one.fields).expect("JSON");
    (fields, one.right)
}

fn adler32(hex: &str) -> Checksum {
    Checksum::from_hex(ChecksumAlgorithm::Adler32, hex).expect("valid")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_label_with_another_checksum_is_written_again_when_the_bytes_agree_with_the_namespace() {
    let site = ClosedSite::new().await;
    assert_eq!(site.compare(false).open(), 0);
    let written = site.label();
    let mut wrong = written.clone();
    wrong["checksums"] = json!([{ "algorithm": "adler32", "hex": "00000001" }]);
    site.set_label(&wrong);
    let found = site.compare(false);
    let (fields, right) = difference(&found);
    let ours = site.namespace().checksums(site.id).expect("readable");
    let ours = ours
        .iter()
        .find(|one| one.algorithm() == ChecksumAlgorithm::Adler32);
    let ours = ours.expect("computed").hex();
    let expected = json!([{ "field": "adler32", "namespace": ours, "label": "00000001" }]);
    assert_eq!((fields, right), (expected, Some(RightSide::Namespace)));
    assert_eq!((found.open(), site.label()), (1, wrong));
    assert_eq!(site.compare(true).open(), 0);
    assert_eq!(site.label(), written);
    assert_eq!(site.compare(false).labels_different.count, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_checksum_of_the_namespace_never_gets_into_a_label_that_the_bytes_confirm() {
    let site = ClosedSite::new().await;
    let written = site.label();
    let right = site.namespace().checksums(site.id).expect("readable");
    let wrong = Change::AddChecksums {
        file: site.id,
        checksums: vec![adler32("1")],
    };
    site.namespace().apply(wrong).expect("changed");
    let found = site.compare(false);
    assert_eq!(difference(&found).1, Some(RightSide::Label));
    assert_eq!(site.compare(true).open(), 0);
    assert_eq!(site.label(), written);
    assert_eq!(
        site.namespace().checksums(site.id).expect("readable"),
        right
    );
    assert_eq!(site.compare(false).open(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_other_evidence_decides_is_told_and_left_alone() {
    // The place: neither the bytes nor the logs tell it.
    let site = ClosedSite::new().await;
    let mut renamed = site.label();
    (renamed["path"], renamed["created"]) = (json!("/d/other"), json!(7));
    site.set_label(&renamed);
    let (fields, right) = difference(&site.compare(true));
    assert_eq!(
        fields[0],
        json!({ "field": "name", "namespace": "f", "label": "other" })
    );
    assert_eq!(
        (&fields[1]["field"], &fields[1]["label"]),
        (&json!("created_ms"), &json!("7"))
    );
    assert_eq!((right, site.label()), (None, renamed));
    // The contents: the bytes are neither's.
    let site = ClosedSite::new().await;
    let mut wrong = site.label();
    wrong["checksums"] = json!([{ "algorithm": "adler32", "hex": "00000001" }]);
    site.set_label(&wrong);
    damage(&site.data);
    let found = site.compare(true);
    assert_eq!((difference(&found).1, found.open()), (None, 1));
    assert!(found.labels_different.named[0].why.contains("neither"));
    assert_eq!(site.label(), wrong);
}

/// Other bytes in the same file.
fn damage(data: &Path) {
    fs::write(data, b"kopt").expect("written");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_label_that_the_namespace_counts_on_and_that_is_gone_is_written_again() {
    let site = ClosedSite::new().await;
    let written = site.label();
    removexattr(&site.data, LABEL).expect("removed");
    let found = site.compare(false);
    assert_eq!(difference(&found), (json!([]), Some(RightSide::Namespace)));
    assert_eq!(found.open(), 1);
    assert_eq!(site.compare(true).open(), 0);
    assert_eq!(site.label(), written);
}
