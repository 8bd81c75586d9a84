//! To which data set a file belongs that goes to tape: found out once, from what its client has said, and kept in the namespace, so
//! that it stays the same however often the file is asked for.

use super::Driver;
use crate::nearline::driver_task::TapeAccount;
use crate::nearline::tape_system::TapeSystem;
use penstock_persistence::namespace::{
    DataSetFacts, DataSetJoin, DataSetMember, EntryId, NearlineChange, TapeFile,
};
use penstock_tape::data_set::{
    ArchiveHints, DataSet, DataSetName, FileOrigin, HintSource, data_set_of,
};

/// What a file is put on tape with.
#[derive(Debug, Clone)]
pub(super) struct PutMember {
    pub data_set: DataSet,
    pub account: TapeAccount,
}

/// What a client has said of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hint {
    /// No archive metadata.
    Absent,
    /// Archive metadata that cannot be read.
    Unreadable,
    /// Archive metadata that name no data set.
    Blank,
    Named,
}

impl Hint {
    /// As it is stored and told.
    fn name(self) -> &'static str {
        match self {
            Hint::Absent => "absent",
            Hint::Unreadable => "unreadable",
            Hint::Blank => "blank",
            Hint::Named => "named",
        }
    }
}

impl<S: TapeSystem> Driver<S> {
    /// The data sets of these files, in their order.
    pub(super) async fn join_data_sets(&mut self, files: &[TapeFile]) -> Vec<PutMember> {
        if files.is_empty() {
            return Vec::new();
        }
        let ids: Vec<EntryId> = files.iter().map(|file| file.id).collect();
        let facts = self.context.namespace.data_set_facts(&ids);
        let facts = facts.unwrap_or_else(|why| {
            tracing::error!(%why, "what clients have said of files that go to tape cannot be looked up");
            vec![DataSetFacts::default(); files.len()]
        });
        let (mut joins, mut members) = (Vec::new(), Vec::with_capacity(files.len()));
        for (file, facts) in files.iter().zip(facts) {
            let (member, hint, has_blank_hints) = match facts.member.clone() {
                Some(member) => (member, None, false),
                None => decided(file, &facts),
            };
            let set = data_set(&member, has_blank_hints);
            members.push(PutMember {
                data_set: set,
                account: TapeAccount::of(member.activity.as_deref(), member.challenge.as_deref()),
            });
            if let Some(hint) = hint {
                let family = self.config.classes.family_of(&file.path, file.size);
                joins.push(DataSetJoin {
                    file: file.id,
                    family: family.to_owned(),
                    member,
                    sender: file.owner.clone(),
                    hint: hint.name().to_owned(),
                });
            }
        }
        if !joins.is_empty() {
            let at = self.recorded();
            self.must(NearlineChange::JoinDataSets { joins, at }).await;
        }
        members
    }
}

/// What a file is to be a member of, and what its client has said for that.
fn decided(file: &TapeFile, facts: &DataSetFacts) -> (DataSetMember, Option<Hint>, bool) {
    let told = facts.word.metadata.as_deref();
    let hints: Option<ArchiveHints> = told.and_then(|text| serde_json::from_str(text).ok());
    let set = data_set_of(FileOrigin {
        hints: hints.as_ref(),
        submission: facts
            .word
            .submission
            .as_deref()
            .filter(|_| facts.has_companion),
        path: &file.path.to_string(),
        came_ns: file.created.0.saturating_mul(1_000_000),
    });
    let hint = match (told, &hints, set.source) {
        (None, _, _) => Hint::Absent,
        (Some(_), None, _) => Hint::Unreadable,
        (Some(_), Some(_), HintSource::ClientMetadata) => Hint::Named,
        (Some(_), Some(_), _) => Hint::Blank,
    };
    let member = DataSetMember {
        levels: set.name.0.iter().map(|level| level.to_string()).collect(),
        source: set.source.name().to_owned(),
        expected_files: set.expected_files,
        expected_bytes: set.expected_bytes,
        activity: hints
            .as_ref()
            .and_then(ArchiveHints::activity)
            .map(str::to_owned),
        challenge: facts.word.challenge.clone(),
    };
    (member, Some(hint), hint == Hint::Blank)
}

fn data_set(member: &DataSetMember, has_blank_hints: bool) -> DataSet {
    let levels = member.levels.iter();
    DataSet {
        name: DataSetName(levels.map(|level| level.as_str().into()).collect()),
        expected_files: member.expected_files,
        expected_bytes: member.expected_bytes,
        // What a later version has stored is taken for a directory, which promises least.
        source: HintSource::by_name(&member.source).unwrap_or(HintSource::Path),
        has_blank_hints,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_model::{Archival, Bytes, NamespacePath, Timestamp};
    use penstock_persistence::namespace::ArchiveWord;

    fn told(metadata: Option<&str>, has_companion: bool) -> (String, String, &'static str) {
        let file = TapeFile {
            id: EntryId(7),
            path: NamespacePath::parse("/raw/run1/f").expect("valid"),
            size: Bytes(1),
            owner: None,
            created: Timestamp(0),
            checksums: Vec::new(),
            pool: None,
            archival: Archival::Precious,
            copies: Vec::new(),
        };
        let facts = DataSetFacts {
            word: ArchiveWord {
                metadata: metadata.map(str::to_owned),
                submission: Some("job-1".to_owned()),
                challenge: None,
            },
            has_companion,
            member: None,
        };
        let (member, hint, _) = decided(&file, &facts);
        let hint = hint.expect("decided").name();
        (member.levels.join("/"), member.source, hint)
    }

    #[test]
    fn the_client_names_the_data_set_else_companions_of_its_job_else_the_directory() {
        let of = |levels: &str, source: &str, hint| (levels.to_owned(), source.to_owned(), hint);
        let named = r#"{"collocation_hints": {"0": "data23", "1": "RAW"}}"#;
        assert_eq!(
            told(Some(named), true),
            of("data23/RAW", "client_metadata", "named")
        );
        assert_eq!(told(None, true), of("job-1", "submission", "absent"));
        let lone = of("/raw/run1", "path", "absent");
        assert_eq!(told(None, false), lone);
        assert_eq!(told(Some("{}"), false), of("/raw/run1", "path", "blank"));
        let wrong = r#"{"collocation_hints": ["data23"]}"#;
        for unreadable in ["", wrong] {
            assert_eq!(
                told(Some(unreadable), true),
                of("job-1", "submission", "unreadable")
            );
        }
    }
}
