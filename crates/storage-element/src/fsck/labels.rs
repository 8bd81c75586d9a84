//! Compares what the labels of files say with what the namespace says. Two witnesses that contradict each other need a third
//! one before either is corrected: for the contents the bytes themselves, for the place the directory logs.

use super::report::{FieldDifference, LabelDifference, RightSide};
use super::{Check, FsckFailure};
use crate::file_label::{LABEL_VERSION, Label, write_label};
use crate::pool_files::{OnDisk, PoolRoot};
use penstock_model::{Bytes, Checksum, ChecksumAlgorithm};
use penstock_persistence::namespace::{Change, LastWord, StoredFile};
use penstock_protocol::checksum::of_file;
use std::collections::BTreeSet;
use std::fs::File;
use std::io;

/// What further evidence says of a difference.
struct Verdict {
    right: Option<RightSide>,
    why: String,
}

impl Check<'_> {
    /// Compares the label of a file with its entry, and writes one that is only out of date again.
    pub(super) fn compare_label(
        &mut self,
        pool: &PoolRoot,
        file: &StoredFile,
        data: &OnDisk,
        size: Bytes,
    ) -> Result<(), FsckFailure> {
        let at = |source| FsckFailure::File {
            path: data.path.clone(),
            source,
        };
        let label = data.label().map_err(at)?;
        let (fields, verdict) = match &label {
            None if file.is_labelled => {
                let right = Some(RightSide::Namespace);
                let why = "there is no label, although the namespace counts on one".to_owned();
                (Vec::new(), Verdict { right, why })
            }
            None => return self.renew_label(file, data),
            Some(label) => {
                let of_contents = contents_differences(file, label);
                let of_place = place_differences(file, label);
                if of_contents.is_empty() && of_place.is_empty() {
                    return self.renew_label(file, data);
                }
                let mut verdict = match of_contents.is_empty() {
                    true => Verdict {
                        right: Some(RightSide::Namespace),
                        why: String::new(),
                    },
                    false => verdict_of_bytes(file, label, data, size).map_err(at)?,
                };
                if !of_place.is_empty() {
                    self.hear_logs(file, &of_place, &mut verdict);
                }
                let fields = of_contents.into_iter().chain(of_place).collect();
                (fields, verdict)
            }
        };
        let is_mended = match (verdict.right, &label) {
            _ if !self.repair.mends => false,
            (Some(RightSide::Label), Some(label)) => self.correct_checksums(file, label, data)?,
            (Some(_), _) => self.relabel(file, data).map_err(at)?,
            (None, _) => false,
        };
        let finding = LabelDifference {
            path: self.shown(file)?,
            id: file.id.to_string(),
            pool: pool.name.to_string(),
            fields,
            right: verdict.right,
            why: verdict.why,
        };
        self.report.labels_different.add(finding, is_mended);
        Ok(())
    }

    /// A label that contradicts nothing may still be out of date.
    fn renew_label(&mut self, file: &StoredFile, data: &OnDisk) -> Result<(), FsckFailure> {
        if file.is_labelled {
            return Ok(());
        }
        self.report.labels_outdated += 1;
        let at = |source| FsckFailure::File {
            path: data.path.clone(),
            source,
        };
        if self.repair.mends && self.relabel(file, data).map_err(at)? {
            self.report.labels_written += 1;
        }
        Ok(())
    }

    /// The directory logs tell where a file was put last; of owners and times that labels hold they tell nothing.
    fn hear_logs(&self, file: &StoredFile, of_place: &[FieldDifference], verdict: &mut Verdict) {
        let is_place = |one: &FieldDifference| ["parent", "name"].contains(&&*one.field);
        let told = match self.words.on(file.id) {
            Some(LastWord::Visible { place, .. }) => place.as_ref(),
            Some(LastWord::Trashed(_) | LastWord::Removed { .. }) | None => None,
        };
        let is_told =
            told.is_some_and(|(parent, name)| (*parent, name) == (file.parent, &file.name));
        let of_logs = match is_told && of_place.iter().all(is_place) {
            true => "the directory logs agree with the namespace",
            false => {
                verdict.right = None;
                "neither the data nor the directory logs show which is right"
            }
        };
        let parts = [&*verdict.why, of_logs];
        let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        verdict.why = parts.join("; ");
    }

    /// Gives an entry the checksums of its bytes, which its label confirms.
    fn correct_checksums(
        &self,
        file: &StoredFile,
        label: &Label,
        data: &OnDisk,
    ) -> Result<bool, FsckFailure> {
        let at = |source| FsckFailure::File {
            path: data.path.clone(),
            source,
        };
        let algorithms = algorithms_of([&file.checksums, &label.checksums]);
        let opened = File::open(&data.path).map_err(at)?;
        let checksums = of_file(&opened, &algorithms).map_err(at)?;
        let file = StoredFile {
            checksums,
            ..file.clone()
        };
        self.mend(Change::AddChecksums {
            file: file.id,
            checksums: file.checksums.clone(),
        })?;
        // The change has marked the label as out of date.
        self.relabel(&file, data).map_err(at)
    }

    /// Writes the label of a file's data again. False: its file system keeps none that tells all.
    fn relabel(&self, file: &StoredFile, data: &OnDisk) -> io::Result<bool> {
        let other = |why: String| io::Error::other(why);
        let path = self.namespace.path_of(file.id);
        let Some(path) = path.map_err(|why| other(why.to_string()))? else {
            return Ok(false);
        };
        let label = Label {
            version: LABEL_VERSION,
            id: Some(file.id),
            parent: Some(file.parent),
            path,
            size: file.size,
            checksums: file.checksums.clone(),
            owner: file.owner.clone(),
            created: file.created,
            archival: file.archival,
        };
        let opened = File::open(&data.path)?;
        match write_label(&opened, &label) {
            Ok(()) => {}
            Err(why)
                if matches!(
                    why.kind(),
                    io::ErrorKind::StorageFull | io::ErrorKind::Unsupported
                ) =>
            {
                return Ok(false);
            }
            Err(why) => return Err(why),
        }
        opened.sync_all()?;
        let change = Change::Relabelled {
            file: file.id,
            parent: file.parent,
            name: file.name.clone(),
        };
        let changed = self.mend(change);
        changed.map_err(|why| other(why.to_string()))?;
        Ok(true)
    }
}

/// What a label says differently of the bytes themselves. A checksum that only the namespace has was computed later.
fn contents_differences(file: &StoredFile, label: &Label) -> Vec<FieldDifference> {
    let mut fields = Vec::new();
    if let Some(id) = label.id {
        fields.extend(difference("id", Some(file.id), Some(id)));
    }
    let (of_entry, of_label) = (file.size.0, label.size.0);
    fields.extend(difference("size_bytes", Some(of_entry), Some(of_label)));
    for theirs in &label.checksums {
        let algorithm = theirs.algorithm();
        let mut ours = file.checksums.iter();
        let ours = ours.find(|ours| ours.algorithm() == algorithm);
        let (ours, theirs) = (ours.map(Checksum::hex), Some(theirs.hex()));
        fields.extend(difference(algorithm.name(), ours, theirs));
    }
    fields
}

/// What a label says differently of the rest, when it is to tell it at all.
fn place_differences(file: &StoredFile, label: &Label) -> Vec<FieldDifference> {
    if !file.is_labelled {
        return Vec::new();
    }
    let mut fields = Vec::new();
    if let Some(parent) = label.parent {
        fields.extend(difference("parent", Some(file.parent), Some(parent)));
    }
    let name = label.path.name();
    fields.extend(difference("name", Some(&*file.name), name));
    let (ours, theirs) = (&file.owner, &label.owner);
    fields.extend(difference("owner", ours.as_ref(), theirs.as_ref()));
    let (ours, theirs) = (file.created.0, label.created.0);
    fields.extend(difference("created_ms", Some(ours), Some(theirs)));
    fields
}

fn difference<T: PartialEq + ToString>(
    field: &str,
    namespace: Option<T>,
    label: Option<T>,
) -> Option<FieldDifference> {
    (namespace != label).then(|| FieldDifference {
        field: field.to_owned(),
        namespace: namespace.map(|value| value.to_string()),
        label: label.map(|value| value.to_string()),
    })
}

/// Reads the file, and holds what both say of it against its bytes.
fn verdict_of_bytes(
    file: &StoredFile,
    label: &Label,
    data: &OnDisk,
    size: Bytes,
) -> io::Result<Verdict> {
    let algorithms = algorithms_of([&file.checksums, &label.checksums]);
    let found = of_file(&File::open(&data.path)?, &algorithms)?;
    let agrees = |told: Bytes, checksums: &[Checksum]| {
        let mut checksums = checksums.iter().peekable();
        told == size && checksums.peek().is_some() && checksums.all(|one| found.contains(one))
    };
    let is_of_file = label.id.is_none_or(|id| id == file.id);
    let namespace_agrees = agrees(file.size, &file.checksums);
    let label_agrees = is_of_file && agrees(label.size, &label.checksums);
    let (right, why) = match (namespace_agrees, label_agrees) {
        (true, false) => (
            Some(RightSide::Namespace),
            "the bytes agree with the namespace",
        ),
        // A checksum that only the label knows.
        (true, true) => (Some(RightSide::Label), "the bytes agree with both"),
        (false, true) if file.size == size => {
            (Some(RightSide::Label), "the bytes agree with the label")
        }
        (false, true) => (
            None,
            "the bytes agree with the label; `penstock rebuild` takes the size from it",
        ),
        (false, false) => (
            None,
            "the bytes agree with neither: compare the file with another copy",
        ),
    };
    Ok(Verdict {
        right,
        why: why.to_owned(),
    })
}

fn algorithms_of(checksums: [&Vec<Checksum>; 2]) -> Vec<ChecksumAlgorithm> {
    let all = checksums.into_iter().flatten().map(Checksum::algorithm);
    all.collect::<BTreeSet<_>>().into_iter().collect()
}
